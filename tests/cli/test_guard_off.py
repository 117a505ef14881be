"""Every way a guard can be off is said: in the terminal, in the journal, and by `check` where it can be known."""

import json
import sys

import pytest

from tests.command import approve

AGENT = """
from hookline import Agent, Scripted
turn = {"tools": [{"name": "bash", "arguments": {"command": "touch made"}}]}
agent = Agent(id="coder", tools=["bash"], model=Scripted([turn, "done"]))
"""


@pytest.fixture
def guarded(hookline):
    (hookline.folder / "coder.py").write_text(AGENT)

    def write(*keys, name="hookline.yaml", on="tool.start"):
        lines = ["hooks:", "  - name: guard", f"    on: {on}", *(f"    {key}" for key in keys)]
        (hookline.folder / name).write_text("\n".join(lines).replace("PYTHON", sys.executable))
        return hookline

    return write


def made(hookline):
    """True if the call that the guard stands before has happened."""
    return (hookline.folder / "made").exists()


def flat(text):
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("keys", "said", "checked"),
    [
        (["command: ./nowhere"], "broke: could not start", "it could not start"),
        (["command: [PYTHON, gone.py]"], "broke: could not start", "gone.py"),
        (["command: [PYTHON, -c, 'exit(1)']"], "broke: exited with 1", None),
        (["shell: sleep 60", "timeout: 0.3"], "broke: ran past its limit of 0.3 s", None),
        (["command: [PYTHON, -c, 'print(\"{half\")']"], "broke: ", None),
        (["shell: exit 1", "mode: observe"], "broke: exited with 1", "its mode is observe"),
    ],
)
def test_a_guard_that_breaks_says_so_everywhere(guarded, keys, said, checked):
    hookline = guarded(*keys)
    done = hookline("run", "coder.py", "x", "--hooks", "hookline.yaml")
    assert made(hookline) is ("mode: observe" in keys), (
        "only one that may refuse nothing lets the call happen"
    )
    assert said in flat(done.stderr)
    assert said in flat(hookline("runs", "last").stdout)
    if checked is not None:
        found = hookline("check", "--strict", "hookline.yaml")
        assert found.returncode == 2
        assert checked in found.stdout


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["match: '('", "shell: 'true'"], "hookline.yaml:4: hooks[0].match"),
        (["mtch: bash", "shell: 'true'"], "hookline.yaml:4: hooks[0].mtch: unknown key; did you mean match?"),
    ],
)
def test_a_file_that_is_wrong_runs_nothing(guarded, keys, said):
    hookline = guarded(*keys)
    done = hookline("run", "coder.py", "x", "--hooks", "hookline.yaml")
    assert (done.returncode, made(hookline)) == (2, False)
    assert said in done.stderr
    assert "no runs yet" in hookline("runs").stdout
    assert said in hookline("check", "hookline.yaml").stdout


def test_a_misspelt_point_runs_nothing(guarded):
    hookline = guarded("shell: 'true'", on="tool.strat")
    done = hookline("run", "coder.py", "x", "--hooks", "hookline.yaml")
    assert (done.returncode, made(hookline)) == (2, False)
    assert "did you mean tool.start?" in done.stderr
    assert "did you mean tool.start?" in hookline("check", "hookline.yaml").stdout


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("x.claude.PermissionReqest", "did you mean PermissionRequest?"),
        ("x.claud.PermissionRequest", "unknown caller 'claud'"),
        ("x.claude.PreToolUse", "write tool.start"),
    ],
)
def test_an_event_that_no_client_sends_lets_nothing_through(guarded, event, said):
    hookline = guarded("shell: exit 2", on=event)
    python = (
        "from hookline import HookResult, hook\n@hook(on='{}')\ndef no(c, h): return HookResult.block('no')\n"
    )
    (hookline.folder / "mine.py").write_text(python.format(event))
    asked = {"hook_event_name": "PermissionRequest", "tool_name": "Bash", "tool_input": {}, "session_id": "s"}
    for file in ("hookline.yaml", "mine.py"):
        done = hookline("answer", "--file", file, stdin=json.dumps({**asked, "cwd": str(hookline.folder)}))
        assert json.loads(done.stdout)["hookSpecificOutput"]["decision"]["behavior"] == "deny"
        assert said in done.stdout
        assert hookline("run", "coder.py", "x", "--hooks", file).returncode == 2
    assert said in hookline("check", "hookline.yaml").stdout


@pytest.mark.parametrize("content", ['{"hooks": {"PreToolUse": [', "[]", "", '{"hooks": []}'])
def test_a_foreign_file_that_cannot_be_read_at_all_runs_nothing(guarded, content):
    hookline = guarded("shell: 'true'", name="other.yaml")
    (hookline.folder / "settings.json").write_text(content)
    for command in (("run", "coder.py", "x"), ("try", "tool.start", "coder.py", "--tool", "bash")):
        done = hookline(*command, "--hooks", "settings.json")
        assert (done.returncode, "settings.json:1: " in done.stderr) == (2, True)
    assert "no runs yet" in hookline("runs").stdout


@pytest.mark.parametrize(
    ("key", "tool", "given"),
    [
        ("path", "Write", {"file_path": "/etc/x", "content": ""}),
        ("file_path", "write_file", {"path": "/etc/x", "content": ""}),
        ("path", "NotebookEdit", {"notebook_path": "/etc/x", "new_source": ""}),
        ("command", "exec_command", {"cmd": "ls /etc"}),
    ],
)
def test_a_condition_on_an_input_holds_under_the_key_of_the_tool_that_is_called(guarded, key, tool, given):
    hookline = guarded(f"when: {{input.{key}: {{contains: /etc}}}}", "shell: exit 2")
    event = {
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "session_id": "s",
        "cwd": str(hookline.folder),
    }
    for put, verdict in ((given, "deny"), (dict.fromkeys(given, "/srv"), None)):
        asked = json.dumps({**event, "tool_input": put})
        said = hookline("answer", "--file", "hookline.yaml", stdin=asked).stdout or "{}"
        assert json.loads(said).get("hookSpecificOutput", {}).get("permissionDecision") == verdict


def test_a_misspelt_event_of_a_foreign_file_is_told(guarded):
    hookline = guarded("shell: 'true'", name="other.yaml")
    hooks = {"PreTolUse": [{"hooks": [{"type": "command", "command": "true"}]}]}
    hooks["PreToolUse"] = [{"hooks": [{"type": "command", "command": "echo no >&2; exit 2"}]}]
    (hookline.folder / "settings.json").write_text(json.dumps({"hooks": hooks}))
    done = hookline("run", "coder.py", "x", "--hooks", "settings.json")
    assert not made(hookline), "only that entry is dropped"
    assert "did you mean 'PreToolUse'?" in done.stderr
    assert "did you mean 'PreToolUse'?" in hookline("check", "settings.json").stdout


def test_a_file_that_is_not_there_runs_nothing(guarded):
    hookline = guarded("shell: 'true'", name="other.yaml")
    done = hookline("run", "coder.py", "x", "--hooks", "gone.yaml")
    assert (done.returncode, made(hookline)) == (2, False)
    assert "gone.yaml: there is no such file" in done.stderr
    assert "gone.yaml: there is no such file" in hookline("check", "gone.yaml").stdout


def test_a_match_that_fits_nothing_is_told(guarded):
    hookline = guarded("match: bsh", "shell: 'true'")
    done = hookline("run", "coder.py", "x", "--hooks", "hookline.yaml")
    said = "hook guard: match 'bsh' fitted no tool call of this run (bash)"
    assert said in flat(done.stderr)
    assert said in flat(hookline("runs", "last").stdout)
    checked = hookline("check", "coder.py", "--hooks", "hookline.yaml")
    assert "fits no tool of coder; its tools: bash" in checked.stdout


def test_a_guard_that_is_switched_off_is_told(guarded):
    hookline = guarded("shell: exit 1", "mode: off")
    done = hookline("run", "coder.py", "x", "--hooks", "hookline.yaml")
    assert done.returncode == 0
    assert "guard" not in done.stderr
    assert "its mode is off, so it refuses nothing" in hookline("check", "hookline.yaml").stdout
    assert "off" in hookline("explain", "coder.py", "--hooks", "hookline.yaml").stdout


def test_the_same_hook_in_two_files_is_told(guarded):
    guarded("shell: 'true'", name="other.yaml")
    hookline = guarded("shell: 'true'")
    done = hookline("run", "coder.py", "x", "--hooks", "hookline.yaml", "--hooks", "other.yaml")
    assert "hook guard is in hookline.yaml:2 and in other.yaml:2; it runs twice" in flat(done.stderr)


EVENT = {"session_id": "s1", "tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "ls"}}


def asked(hookline, event):
    given = {**EVENT, "hook_event_name": event, "cwd": str(hookline.folder)}
    return hookline("answer", stdin=json.dumps(given))


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
def test_a_file_that_is_not_trusted_is_told(guarded, event):
    hookline = guarded("shell: exit 1")
    done = asked(hookline, event)
    if event == "PreToolUse":
        assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "is not approved" in (done.stdout if event == "PreToolUse" else done.stderr)
    told = flat(hookline("runs", "claude-s1").stdout)
    assert "no hook was called:" in told
    assert "is not approved" in told
    checked = hookline("check", "hookline.yaml")
    assert "hookline.yaml: is not approved" in checked.stdout
    assert checked.returncode == 0, "where nobody approves, as in CI, a right file stays right"
    approve(hookline.folder / "hookline.yaml", hookline.environ)
    assert "is not approved" not in hookline("check", "hookline.yaml").stdout


def test_an_event_that_nobody_knows_is_told_and_refused_where_something_begins(guarded):
    hookline = guarded("shell: exit 1")
    approve(hookline.folder / "hookline.yaml", hookline.environ)
    assert asked(hookline, "PostTolUse").returncode == 0
    done = asked(hookline, "PreTolUse")
    assert (done.returncode, done.stdout) == (2, "")
    said = "'PreTolUse' is not a known event of claude, and no hook stands at x.claude.PreTolUse"
    assert f"{said}; did you mean 'PreToolUse'?" in done.stderr
    assert said in flat(hookline("runs", "claude-s1").stdout)


def test_a_new_event_that_a_hook_stands_at_is_not_told(guarded):
    hookline = guarded("shell: 'true'", on="x.claude.Brandnew")
    approve(hookline.folder / "hookline.yaml", hookline.environ)
    assert asked(hookline, "Brandnew").stderr == ""


@pytest.mark.parametrize("way", ["", "1"])
def test_a_match_by_a_name_that_the_caller_does_not_have_is_told(guarded, way):
    hookline = guarded("match: bash", "shell: exit 1")
    hookline.environ["HOOKLINE_ANSWER_LONG"] = way
    approve(hookline.folder / "hookline.yaml", hookline.environ)
    said = "hook guard: match 'bash' fits no tool of claude; match: kind:shell fits Bash"
    for _ in range(2):
        assert said in asked(hookline, "PreToolUse").stderr
    assert said in flat(hookline("runs", "claude-s1").stdout)
    checked = hookline("check", "hookline.yaml")
    assert "match 'bash' fits no tool of claude, codex, gemini" in flat(checked.stdout)
    assert checked.returncode == 0, "it is right for other agents"
    guarded("match: publish", "shell: exit 1")
    approve(hookline.folder / "hookline.yaml", hookline.environ)
    assert asked(hookline, "PreToolUse").stderr == "", "a name that nobody knows may be anybody's"


WRITER = """
from hookline import Agent, Scripted, tool

@tool
def run_shell_command(command: str) -> str:
    open("by-name", "w").close()
    return "ran"

turn = {"tools": [
    {"name": "bash", "arguments": {"command": "touch by-shell"}},
    {"name": "write_file", "arguments": {"path": "by-file", "content": "x"}},
    {"name": "write_file", "arguments": {"path": "moved", "content": "x"}},
    {"name": "run_shell_command", "arguments": {"command": "touch x"}},
]}
agent = Agent(id="writer", tools=["bash", "write_file", run_shell_command], model=Scripted([turn, "done"]))
"""
CHECK = """
import json, sys
event = json.load(sys.stdin)
given = event["tool_input"]
assert given["path"] == given["file_path"]
if given["file_path"] == "by-file":
    sys.exit(2)
print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {**given, "file_path": "there"}}}))
"""


def test_hooks_for_claudes_tools_hold_for_ours_by_their_kind(guarded):
    hookline = guarded("shell: 'true'", name="other.yaml")
    (hookline.folder / "writer.py").write_text(WRITER)
    (hookline.folder / "check.py").write_text(CHECK)
    command = f"{sys.executable} {hookline.folder}/check.py"
    groups = [
        {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo no >&2; exit 2"}]},
        {"matcher": "Write|Edit", "hooks": [{"type": "command", "command": command}]},
    ]
    (hookline.folder / "settings.json").write_text(json.dumps({"hooks": {"PreToolUse": groups}}))
    done = hookline("run", "writer.py", "x", "--hooks", "settings.json")
    assert done.returncode == 0, done.stderr
    written = {
        name
        for name in ("by-shell", "by-name", "by-file", "moved", "there")
        if (hookline.folder / name).exists()
    }
    assert written == {"there"}, done.stderr
