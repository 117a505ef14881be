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


@pytest.mark.parametrize(
    ("stdin", "code", "said"),
    [
        ("{half", 2, "stdin is not JSON"),
        ("", 2, "stdin is empty"),
        ("[1]", 2, "stdin has a JSON array"),
        ('{"hook_event_name": 5}', 2, "hook_event_name '5' is not"),
        ('{"hook_event_name": "Stop", half', 1, "stdin is not JSON"),
        ('{"hook_event_name": "ConfigChange", half', 2, "stdin is not JSON"),
    ],
)
def test_an_event_that_cannot_be_read_is_refused_unless_it_is_known_to_be_over(asked, stdin, code, said):
    done = asked(stdin=stdin)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


GEMINI = {"hook_event_name": "BeforeTool", "tool_name": "run_shell_command", "timestamp": "t"}
LIKE_TOOLS = {
    "a NUL in the command": {"tool_input": {"command": "true\0"}},
    "a NUL in a key": {"tool_input": {"command": "true", "x\0": 1}},
    "no tool": {"tool_name": None},
    "a tool that is a number": {"tool_name": 5},
    "a tool without a name": {"tool_name": ""},
    "deep": {"tool_input": {"command": json.loads("[" * 200 + "]" * 200)}},
    "codex": {"turn_id": "1", "model": "m"},
    "no file": {"cwd": "/"},
}


@pytest.mark.parametrize("changes", LIKE_TOOLS.values(), ids=LIKE_TOOLS.keys())
def test_what_a_guard_cannot_be_asked_about_is_refused(asked, changes):
    event = "PermissionRequest" if changes in (LIKE_TOOLS["no tool"], LIKE_TOOLS["no file"]) else "PreToolUse"
    done = asked(**{"hook_event_name": event, "tool_input": {"command": "true"}, **changes})
    found = specific(done)
    assert (found.get("permissionDecision") or found["decision"]["behavior"]) == "deny"


def test_a_key_that_is_there_twice_is_refused_before_a_call_and_read_after_it(asked):
    event = json.dumps({**EVENT, "cwd": str(asked.folder)})
    twice = event.replace('"command":', '"command": "git push --force", "command":').replace(
        '--force"}', '"}'
    )
    assert specific(asked(stdin=twice))["permissionDecision"] == "deny"
    assert "'command' is there twice" in specific(asked(stdin=twice))["permissionDecisionReason"]
    two = event.replace('"hook_event_name":', '"hook_event_name": "PreToolUse", "hook_event_name":', 1)
    two = two.replace('"PreToolUse", "tool_name"', '"PostToolUse", "tool_name"')
    assert two.count("ToolUse") == 2
    assert "'hook_event_name' is there twice" in specific(asked(stdin=two))["permissionDecisionReason"]
    nameless = twice.replace('"hook_event_name": "PreToolUse", ', "")
    assert specific(asked("PreToolUse", stdin=nameless))["permissionDecision"] == "deny"
    over = twice.replace("PreToolUse", "PostToolUse").replace(
        '"tool_use_id"', '"tool_response": "x", "tool_use_id"'
    )
    assert specific(asked(stdin=over))["updatedToolOutput"] == "hidden"
    nameless = over.replace('"hook_event_name": "PostToolUse", ', "")
    assert specific(asked("PostToolUse", stdin=nameless))["updatedToolOutput"] == "hidden"


@pytest.mark.parametrize(
    ("words", "changes", "code", "said"),
    [
        ((), GEMINI, 2, "BeforeTool is an event of gemini, not of claude; say --as gemini"),
        (("--as", "codex"), GEMINI, 2, "say --as gemini"),
        (("--as", "gemini"), {}, 2, "PreToolUse is an event of claude"),
        ((), {**GEMINI, "hook_event_name": "AfterTool"}, 1, "say --as gemini"),
        ((), {"hook_event_name": "PreToolUsed"}, 2, "'PreToolUsed' is not a known event of claude"),
        ((), {"hook_event_name": "ConfigChanges", "cwd": "/"}, 2, "there is no hookline.yaml"),
        ((), {"hook_event_name": "PostToolUsed"}, 0, "'PostToolUsed' is not a known event of claude"),
        ((), {"hook_event_name": "ConfigChange", "cwd": "/"}, 2, "there is no hookline.yaml"),
        ((), {"hook_event_name": "TaskCreated", "cwd": "/"}, 2, "there is no hookline.yaml"),
        ((), {"hook_event_name": "Stop", "cwd": "/"}, 1, "there is no hookline.yaml"),
        ((), {"hook_event_name": "PreCompact", "cwd": "/"}, 1, "there is no hookline.yaml"),
    ],
)
def test_trouble_is_never_a_yes_where_something_is_about_to_happen(asked, words, changes, code, said):
    done = asked(*words, **changes)
    assert done.returncode == code
    assert said in done.stderr
    if changes is GEMINI:
        assert json.loads(done.stdout)["decision"] == "deny", "in the words of the client that called"


FOREIGN = """
hooks:
  - {name: file, on: [x.claude.ConfigChange, x.claude.PreCompact, x.codex.Interrupt, x.claude.TaskCompleted], python: 'guard.py:boom'}
  - {name: prompts, on: x.claude.UserPromptExpansion, shell: exit 1}
  - {name: asked, on: x.claude.PermissionRequest, command: [sh, -c, "grep -q rm && exit 2; exit 1"]}
  - {name: own, on: x.gemini.BeforeToolSelection, command: [sh, -c, "cat > seen"]}
"""


def test_a_broken_guard_refuses_where_a_client_can_be_refused_and_nowhere_else(asked):
    (asked.folder / "guard.py").write_text(
        "def boom(ctx, c):\n    raise ValueError(c.current_payload['hook_event_name'])\n"
    )
    (asked.folder / "foreign.yaml").write_text(FOREIGN)

    def said(event, *words, **more):
        done = asked("--file", "foreign.yaml", *words, hook_event_name=event, **more)
        return done.returncode, done.stdout, done.stderr

    code, _, stderr = said("ConfigChange")
    assert (code, "raised ValueError: ConfigChange" in stderr) == (2, True)
    for event, words in (("PreCompact", ()), ("TaskCompleted", ()), ("Interrupt", ("--as", "codex"))):
        code, stdout, stderr = said(event, *words)
        assert (code, stdout, "broke: raised ValueError" in stderr) == (0, "", True)
    assert json.loads(said("UserPromptExpansion")[1])["decision"] == "block"
    for command in ("rm x", "ls"):
        found = json.loads(said("PermissionRequest", tool_input={"command": command})[1])
        assert found["hookSpecificOutput"]["decision"]["behavior"] == "deny"
    assert said("BeforeToolSelection", "--as", "gemini", llm_request={"tools": 1})[0] == 0
    assert json.loads((asked.folder / "seen").read_text())["llm_request"] == {"tools": 1}


def test_a_python_file_can_guard_an_event_of_a_client(asked):
    (asked.folder / "own.py").write_text(
        "from hookline import HookResult, hook\n"
        "@hook(on='x.claude.ConfigChange')\ndef no(ctx, c):\n    return HookResult.block('kept as it is')\n"
    )
    done = asked("--file", "own.py", hook_event_name="ConfigChange")
    assert (done.returncode, done.stderr) == (2, "kept as it is\n")


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


SECRET = "ghp_" + "a1" * 20
MASKS = """
hooks:
  - {name: ready, on: tool.end, match: 'Bash|run_shell_command', python: 'hookline.guards:mask_secrets'}
  - {name: says so, on: tool.end, match: Script, changes: output, shell: exit 1}
  - {name: told to, on: tool.end, match: Told, on_error: withhold, command: [sh, -c, 'exit 1']}
  - {name: own, on: tool.end, match: Own, python: 'guard.py:own'}
  - {name: other, on: tool.end, match: Other, shell: exit 1}
"""
OWN = """
from hookline import hook

@hook(changes="output")
def own(ctx, c):
    raise ValueError("broke")
"""


@pytest.mark.parametrize(
    ("tool", "words", "event"),
    [
        ("Bash", (), "PostToolUse"),
        ("Bash", ("--as", "codex"), "PostToolUse"),
        ("run_shell_command", ("--as", "gemini"), "AfterTool"),
        ("Script", (), "PostToolUse"),
        ("Told", (), "PostToolUse"),
        ("Own", (), "PostToolUse"),
    ],
)
def test_a_masking_hook_that_breaks_lets_no_secret_through(asked, tool, words, event):
    (asked.folder / "guard.py").write_text(OWN)
    (asked.folder / "masks.yaml").write_text(MASKS)
    # No guard can look into what is nested so deep.
    deep = "[" * 950 + "]" * 950
    response = (
        f'{{"stdout": "{SECRET}", "stderr": "", "deep": {deep if "shell" in tool or tool == "Bash" else 1}}}'
    )
    for _ in ("the long way", "the short way"):
        event_given = {**EVENT, "hook_event_name": event, "tool_name": tool, "tool_response": "RESPONSE"}
        done = asked(
            "--file", "masks.yaml", *words, stdin=json.dumps(event_given).replace('"RESPONSE"', response)
        )
        assert done.returncode == 0
        assert SECRET not in done.stdout
        assert "hookline withheld this output" in done.stdout
    other = {**EVENT, "hook_event_name": "PostToolUse", "tool_name": "Other", "tool_response": SECRET}
    assert asked("--file", "masks.yaml", stdin=json.dumps(other)).stdout == "", (
        "one that only looks hides nothing"
    )
