"""A guard that prints its verdict in words: not a yes, and what it printed is not lost."""

import json

import pytest

from tests.command import approve

AGENT = """
from hookline import Agent, Scripted

calls = {"tools": [{"name": "bash", "arguments": {"command": "touch made"}}]}
agent = Agent(id="coder", tools=["bash"], model=Scripted([calls, "done"]))
"""
FILE = "hooks:\n  - {name: guard, on: %s, command: [sh, guard.sh]}\n"
WORDS = [
    "deny",
    "DENY: not this one",
    "no",
    "block",
    '"block"',
    "2",
    "false",
    "['deny']",
    'reason: {"decision": "block"}',
]


@pytest.fixture
def guarded(hookline):
    def made(point, script):
        (hookline.folder / "coder.py").write_text(AGENT)
        (hookline.folder / "guard.sh").write_text(script)
        (hookline.folder / "hookline.yaml").write_text(FILE % point)
        approve(hookline.folder / "hookline.yaml", hookline.environ)

    return made


@pytest.mark.parametrize("point", ["tool.start", "model.start", "step.start"])
@pytest.mark.parametrize("word", WORDS)
def test_a_guard_that_prints_a_no_and_exits_with_0_lets_nothing_pass(hookline, guarded, point, word):
    guarded(point, f"cat > /dev/null; cat <<'END'\n{word}\nEND\n")
    hookline("run", "coder.py", "x")
    assert not (hookline.folder / "made").exists()


@pytest.mark.parametrize("event", ["PreToolUse", "PermissionRequest"])
@pytest.mark.parametrize("word", WORDS)
def test_nor_under_a_client(hookline, guarded, word, event):
    guarded("[tool.start, x.claude.PermissionRequest]", f"cat > /dev/null; cat <<'END'\n{word}\nEND\n")
    given = {
        "hook_event_name": event,
        "session_id": "s",
        "tool_name": "Bash",
        "tool_input": {"command": "touch made"},
    }
    done = hookline("answer", stdin=json.dumps({**given, "cwd": str(hookline.folder)}))
    assert done.returncode == 2 or '"deny"' in done.stdout


@pytest.mark.parametrize(("point", "says"), [("tool.start", "broke"), ("tool.end", "continue")])
def test_what_a_hook_printed_is_on_record(hookline, guarded, point, says):
    guarded(point, "cat > /dev/null; echo said this; echo and that >&2\n")
    hookline("run", "coder.py", "x")
    [told] = [
        json.loads(line) for line in hookline("logs", "last", "--json").stdout.splitlines() if "guard" in line
    ]
    assert "said this" in str(told)
    assert "and that" in str(told)
    shown = hookline("logs", "last").stdout
    assert says in shown
    assert "said this" in shown
    assert "and that" in shown


def test_what_a_hook_printed_beside_its_answer_is_on_record(hookline, guarded):
    guarded("tool.start", "cat > /dev/null; echo '{}'; echo looked at it >&2\n")
    hookline("run", "coder.py", "x")
    assert (hookline.folder / "made").exists()
    assert "looked at it" in hookline("logs", "last").stdout
