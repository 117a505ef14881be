"""`hookline answer`: the hook of a foreign agent, whose own trouble is never a yes."""

import json
import sys

import pytest

from tests.command import approve

EVENT = {
    "session_id": "s1",
    "transcript_path": "/t",
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "git push --force"},
    "tool_use_id": "t1",
}
GUARDED = """
hooks:
  - name: no-force-push
    on: tool.start
    match: kind:shell
    python: guard.py:no_force
  - name: hide
    on: tool.end
    python: guard.py:hide
"""
GUARD = """
from hookline import HookResult

def no_force(ctx, c):
    command = c.current_payload["command"]
    if "--force" in command:
        return HookResult.block("no force pushes")
    if command == "ls":
        return HookResult.continue_with(modified_payload={"command": "ls -l"}, tell_model="listed long")
    return HookResult.continue_with()

def hide(ctx, c):
    return HookResult.continue_with(modified_output="hidden", replace=True)
"""


@pytest.fixture
def asked(hookline):
    (hookline.folder / "hookline.yaml").write_text(GUARDED)
    (hookline.folder / "guard.py").write_text(GUARD)
    approve(hookline.folder / "hookline.yaml", hookline.environ)

    def ask(*words, stdin=None, **changes):
        event = {**EVENT, "cwd": str(hookline.folder), **changes}
        return hookline("answer", *words, stdin=json.dumps(event) if stdin is None else stdin)

    ask.folder = hookline.folder
    ask.hookline = hookline
    return ask


def specific(done):
    return json.loads(done.stdout)["hookSpecificOutput"]


def test_a_call_is_blocked_in_the_callers_words(asked):
    done = asked()
    assert done.returncode == 0, done.stderr
    assert specific(done) == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "no force pushes",
    }


def test_an_input_is_changed_and_a_context_added(asked):
    found = specific(asked(tool_input={"command": "ls"}))
    assert found["updatedInput"] == {"command": "ls -l"}
    assert found["additionalContext"] == "listed long"


def test_no_opinion_is_no_answer(asked):
    done = asked(tool_input={"command": "true"})
    assert (done.returncode, done.stdout) == (0, "")


def test_the_file_is_found_upward_from_the_events_folder(asked):
    inner = asked.folder / "a" / "b"
    inner.mkdir(parents=True)
    assert specific(asked(cwd=str(inner)))["permissionDecision"] == "deny"


def test_a_file_can_be_named(asked):
    other = asked.folder / "other.yaml"
    other.write_text(
        "hooks:\n  - {name: all, on: tool.start, command: [" + sys.executable + ", -c, 'exit(2)']}\n"
    )
    assert (
        specific(asked("--file", "other.yaml", tool_input={"command": "true"}))["permissionDecision"]
        == "deny"
    )


@pytest.mark.parametrize(
    ("words", "changes", "said"),
    [
        ([], {"cwd": "/"}, "there is no hookline.yaml in / or above it"),
        (["--file", "broken.yaml"], {}, "broken.yaml:2: hooks[0].on: unknown point 'tool.strat'"),
        (["--file", "gone.yaml"], {}, "gone.yaml: there is no such file"),
    ],
)
def test_its_own_trouble_is_a_refusal_that_names_file_and_line(asked, words, changes, said):
    (asked.folder / "broken.yaml").write_text("hooks:\n  - {name: a, on: tool.strat, shell: 'true'}\n")
    found = specific(asked(*words, **changes))
    assert found["permissionDecision"] == "deny"
    assert said in found["permissionDecisionReason"]


@pytest.mark.parametrize("stdin", ["", "{half", "[1]", "\x00"])
def test_an_event_that_cannot_be_read_is_a_refusal_where_the_event_is_named(asked, stdin):
    assert specific(asked("PreToolUse", stdin=stdin))["permissionDecision"] == "deny"


def test_an_event_that_cannot_be_read_and_is_not_named_is_an_error(asked):
    done = asked(stdin="{half")
    assert done.returncode == 1
    assert "stdin is not JSON" in done.stderr


def test_every_answer_is_in_the_journal(asked):
    asked()
    asked(tool_input={"command": "true"}, tool_use_id="t2")
    asked(hook_event_name="PostToolUse", tool_input={"command": "true"}, tool_use_id="t2", tool_response="x")
    shown = asked.hookline("runs", "claude-s1").stdout
    assert "tool Bash" in shown
    assert "blocked: no force pushes" in shown
    assert "= Bash ok" in shown


def test_codex_and_gemini_are_answered_in_their_own_words(asked):
    gemini = asked(
        "--as", "gemini", hook_event_name="BeforeTool", tool_name="run_shell_command", tool_use_id=None
    )
    assert json.loads(gemini.stdout)["decision"] == "deny"
    codex = asked("--as", "codex")
    assert specific(codex)["permissionDecision"] == "deny"
