"""The 25 rules of the claude-command protocol: each is kept ("same") or broken on purpose ("ours differs").

The fixtures are what Claude Code 2.1.325 wrote to a hook's stdin, one file an event.
"""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline.claude.answer import CallerAnswer, answer
from hookline.claude.events import CALLERS, EVENTS, event_of, point_of
from hookline.claude.hooks import argv_of, process_of
from hookline.claude.matchers import applies, selector, whole_pattern
from hookline.claude.payload import context_of, native_of, payload_in, stdin_of
from hookline.claude.settings import declared, once
from hookline.claude.wire import TEXT_LIMIT, decode
from hookline.engine.context import Facts, HookContext
from hookline.engine.hook import Hook, OnError
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point, Status
from hookline.engine.record import Called
from hookline.engine.result import CONTINUE, HookAction, HookResult, Outcome, add_up, fault
from hookline.errors import HookBroke, UsageError
from hookline.journal.encoding import CAP
from hookline.journal.sqlite import MemoryJournal
from hookline.matcher import pattern
from hookline.runners.local import LocalRunner

FOLDER = Path(__file__).parents[1] / "fixtures" / "claude-code"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "claude-code-rules.md"
FIXTURES = {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(FOLDER.glob("stdin/*.json"))}
BASH = FIXTURES["PreToolUse.bash"]

rule = pytest.mark.rule
statement = pytest.mark.statement


def said(event, **answer):
    return decode(event, 0, json.dumps(answer).encode())


def own(event, **specific):
    """An answer with nothing but the event's own part."""
    return said(event, hookSpecificOutput={"hookEventName": event, **specific})


def own_answer(event, **specific):
    return {"hookSpecificOutput": {"hookEventName": event, **specific}}


def broke(event, code, out, err=b""):
    with pytest.raises(HookBroke) as caught:
        decode(event, code, out, err)
    assert caught.value.kind in ("bad_answer", "wrong_point", "exit")
    return str(caught.value)


def settings(hooks):
    return declared(json.dumps({"hooks": hooks}, indent=2), "settings.json")


def command(text="guard.sh", **more):
    return {"type": "command", "command": text, **more}


def tool_facts(name, status=None):
    point = Point.TOOL_START if status is None else Point.TOOL_END
    return Facts(workflow_id="w", point=point, current_tool=name, status=status)


# Input


@pytest.mark.parametrize("name", FIXTURES)
def test_every_fixture_decodes_and_encodes_back_unchanged(name):
    payload = FIXTURES[name]
    context = context_of(payload)
    assert native_of(context) == payload
    line = stdin_of(context)
    assert json.loads(line) == payload
    assert list(json.loads(line)) == list(payload)


@rule("claude 1")
@statement("KA18")
@pytest.mark.parametrize("name", FIXTURES)
def test_rule_1_same_stdin_is_one_json_object_on_one_line(name):
    line = stdin_of(context_of(FIXTURES[name]))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert payload_in(line) == FIXTURES[name]


@rule("claude 1")
def test_rule_1_same_also_for_what_json_or_utf_8_has_no_word_for():
    context = HookContext(
        workflow_id="w",
        point="tool.start",
        current_tool="bash",
        current_payload={"a": float("nan"), "b": "x\ny\u2028\ud800é", "c": {1, 2}},
    )
    line = stdin_of(context)
    assert line.count(b"\n") == 1
    assert json.loads(line, parse_constant=pytest.fail)["tool_input"]["b"] == "x\ny\u2028\ud800é"


@rule("claude 1")
@pytest.mark.parametrize(
    ("stdin", "told"),
    {
        b"": "is empty",
        b"{": "is not JSON",
        b"[1]": "a JSON array",
        b"\xff{}": "not UTF-8",
        b"[" * 100_000: "is not JSON",
    }.items(),
)
def test_rule_1_same_what_is_no_object_is_told_to_the_caller(stdin, told):
    with pytest.raises(UsageError, match=told):
        payload_in(stdin)


@rule("claude 2")
def test_rule_2_same_the_common_fields_are_always_there_and_absent_is_not_null(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    context = HookContext(
        workflow_id="w",
        point="tool.start",
        session_id="s",
        current_tool="bash",
        current_payload={"command": "ls"},
    )
    sent = json.loads(stdin_of(context))
    assert sent["session_id"] == "s"
    assert sent["transcript_path"] == ""
    assert sent["cwd"] == str(tmp_path)
    assert sent["hook_event_name"] == "PreToolUse"
    assert "agent_id" not in sent
    assert None not in sent.values()


@rule("claude 2")
def test_rule_2_same_inside_a_subagent_its_id_and_type_are_there():
    inner = HookContext(workflow_id="w", point="tool.start", agent="worker", parents=("main",), scope_id="a1")
    sent = json.loads(stdin_of(inner))
    assert (sent["agent_id"], sent["agent_type"]) == ("a1", "worker")
    context = context_of(FIXTURES["PreToolUse.bash-subagent"])
    assert (context.agent, context.parents) == ("general-purpose", ("claude-code",))


FIELDS = {
    "PreToolUse": (Point.TOOL_START, {}, {"tool_name", "tool_input", "tool_use_id"}),
    "PostToolUse": (
        Point.TOOL_END,
        {"status": "ok"},
        {"tool_name", "tool_input", "tool_use_id", "tool_response"},
    ),
    "PostToolUseFailure": (
        Point.TOOL_END,
        {"status": "failed"},
        {"tool_name", "tool_input", "tool_use_id", "error", "is_interrupt"},
    ),
    "UserPromptSubmit": (Point.AGENT_START, {}, {"prompt"}),
    "Stop": (Point.AGENT_END, {"status": "ok"}, {"stop_hook_active", "last_assistant_message"}),
    "SubagentStart": (Point.AGENT_START, {"parents": ("main",), "agent": "x"}, {"agent_id", "agent_type"}),
    "SubagentStop": (
        Point.AGENT_END,
        {"parents": ("main",), "agent": "x"},
        {"agent_id", "agent_type", "stop_hook_active", "last_assistant_message"},
    ),
    "SessionStart": (Point.SESSION_START, {}, {"source"}),
    "SessionEnd": (Point.SESSION_END, {}, {"reason"}),
}
COMMON = {"session_id", "transcript_path", "cwd", "permission_mode", "hook_event_name"}


@rule("claude 3")
@pytest.mark.parametrize("event", FIELDS)
def test_rule_3_same_each_event_has_its_fields(event):
    point, facts, fields = FIELDS[event]
    context = HookContext(
        workflow_id="w",
        point=point,
        session_id="s",
        call_id="c",
        current_tool="bash",
        current_payload={"input": "hi", "source": "startup", "reason": "other"},
        current_output={"result": "done", "error": "no"},
        **facts,
    )
    sent = json.loads(stdin_of(context))
    assert sent["hook_event_name"] == event
    assert set(sent) == COMMON | fields


@rule("claude 3")
def test_rule_3_same_all_33_events_are_accepted_and_each_fixture_is_one_of_them():
    listed = {
        entry["name"]: entry["supportsMatcher"] for entry in json.loads((FOLDER / "events.json").read_text())
    }
    assert listed == {name: event.subject is not None for name, event in EVENTS.items()}
    assert len(EVENTS) == 33
    shown = {payload["hook_event_name"] for payload in FIXTURES.values()}
    assert set(EVENTS) - shown == {"TeammateIdle"}
    for payload in FIXTURES.values():
        subject = EVENTS[payload["hook_event_name"]].subject
        assert subject is None or subject in payload


STANDS = {
    "PreToolUse": "tool.start",
    "PostToolUse": "tool.end",
    "PostToolUseFailure": "tool.end",
    "UserPromptSubmit": "agent.start",
    "Stop": "agent.end",
    "SessionStart": "session.start",
    "SessionEnd": "session.end",
    "SubagentStart": "agent.start",
    "SubagentStop": "agent.end",
}


@rule("claude 3")
@pytest.mark.parametrize("event", EVENTS)
def test_rule_3_same_an_event_that_is_no_point_passes_under_its_own_name(event):
    assert point_of(event) == STANDS.get(event, f"x.claude.{event}")


@rule("claude 3")
def test_rule_3_same_a_context_of_an_event_names_that_event_again():
    for payload in FIXTURES.values():
        assert event_of(context_of(payload).facts) == payload["hook_event_name"]


def test_a_context_has_what_the_built_in_agent_has_at_the_same_point():
    call = context_of(FIXTURES["PostToolUse.bash"])
    assert (call.current_tool, call.tool_kind, call.call_id) == ("Bash", "shell", "toolu_00011")
    assert call.current_payload["command"] == "echo hello"
    assert call.current_output["stdout"] == "hello"
    assert call.status is Status.OK
    failed = context_of(FIXTURES["PostToolUseFailure.bash"])
    assert failed.status is Status.FAILED
    assert failed.current_output["error"].startswith("Exit code 2")
    prompt = context_of(FIXTURES["UserPromptSubmit"])
    assert prompt.current_payload == {"input": "please do the thing", "prompt": "please do the thing"}
    assert context_of(FIXTURES["Stop"]).current_output == "All done."


def test_a_changed_input_is_what_the_next_hook_is_sent():
    context = context_of(BASH)
    later = HookContext.of(context.facts, {"command": "ls"}, None)
    assert json.loads(stdin_of(later)) == {**BASH, "tool_input": {"command": "ls"}}
    prompt = context_of(FIXTURES["UserPromptSubmit"])
    later = HookContext.of(prompt.facts, {"input": "other", "prompt": "other"}, None)
    assert json.loads(stdin_of(later)) == {**FIXTURES["UserPromptSubmit"], "prompt": "other"}


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({}, "hook_event_name is None"),
        ({"hook_event_name": 3}, "hook_event_name is 3"),
        ({"hook_event_name": "BeforeTool"}, "an event of gemini, not of claude; say --as gemini"),
        ({"hook_event_name": "pre tool use"}, "not the name of an event"),
    ],
)
def test_an_event_that_nobody_can_place_is_told_and_not_let_pass(payload, told):
    with pytest.raises(UsageError, match=told):
        context_of(payload)


def test_an_event_newer_than_we_are_passes_under_its_own_name():
    assert context_of({"hook_event_name": "PreDream"}).point == "x.claude.PreDream"


@rule("claude 4")
async def test_rule_4_same_the_environment_names_the_project_and_an_argument_may_too():
    [named] = settings({"PreToolUse": [{"hooks": [command('echo "$CLAUDE_PROJECT_DIR" >&2; exit 2')]}]}).hooks
    runner = LocalRunner()
    answered = await process_of(named, runner)(None, context_of(BASH))
    await runner.close()
    assert answered.reason == str(Path.cwd())
    group = [{"hooks": [command("x.sh", args=["${CLAUDE_PROJECT_DIR}/a b"]), command("y.sh | cat")]}]
    direct, shell = settings({"PreToolUse": group}).hooks
    assert argv_of(direct) == ["x.sh", f"{Path.cwd()}/a b"]
    assert argv_of(shell) == ["sh", "-c", "y.sh | cat"]


# Selecting

MATCHES = [
    (None, "Bash", True),
    ("", "Bash", True),
    ("*", "Bash", True),
    ("Bash", "Bash", True),
    ("Bas", "Bash", False),
    ("bash", "Bash", False),
    ("Write|Bash", "Bash", True),
    ("Write , Bash", "Bash", True),
    ("Write|Bash", "BashOutput", False),
    ("mcp__demo", "mcp__demo__greet", False),
    ("mcp__demo__*", "mcp__demo__greet", True),
    ("mcp__.*__greet", "mcp__demo__greet", True),
    ("Bash*", "Bash", True),
    ("B*h", "Bash", True),
    ("^Ba", "Bash", True),
    ("^Ba$", "Bash", False),
    ("a.h", "Bash", True),
    ("(?!Bash)W", "Write", True),
    ("kind:shell", "Bash", False),
]


@rule("claude 5")
@statement("KA46", "KA47")
@pytest.mark.parametrize(("matcher", "tool", "fits"), MATCHES)
def test_rule_5_same_names_are_exact_and_anything_else_is_searched(matcher, tool, fits):
    declared = settings({"PreToolUse": [{"matcher": matcher, "hooks": [command()]}]})
    (hook,) = declared.hooks
    assert selector(hook)(tool_facts(tool)) is fits
    assert (hook.match is None or pattern(hook.match)(tool)) is fits


@rule("claude 5")
def test_rule_5_ours_differs_an_invalid_pattern_is_told_with_its_line():
    found = settings({"PreToolUse": [{"matcher": "Bash(", "hooks": [command()]}, {"hooks": [command("b")]}]})
    assert [hook.params["command"] for hook in found.hooks] == ["b"]
    (problem,) = found.problems
    assert problem.line == 5
    assert problem.key == "hooks.PreToolUse[0].matcher"
    assert "'Bash('" in str(problem)
    with pytest.raises(UsageError):
        whole_pattern("a(")


@rule("claude 5")
def test_rule_5_same_a_matcher_where_there_is_nothing_to_match_is_ignored_and_told():
    found = settings({"Stop": [{"matcher": "Bash", "hooks": [command()]}]})
    assert found.hooks[0].match is None
    assert "Stop has nothing to match" in str(found.notes[0])


@rule("claude 5")
@pytest.mark.parametrize(
    ("event", "matcher", "name", "fits"),
    [
        ("SessionStart", "startup", "SessionStart.startup", True),
        ("SessionStart", "startup|compact", "SessionStart.resume", False),
        ("Notification", "elicitation_.*", "Notification", True),
        ("FileChanged", r"watched\.txt", "FileChanged", True),
        ("SubagentStop", "general-purpose", "SubagentStop", True),
        ("SubagentStop", "general-purpose", "SubagentStop.compact", False),
        ("PreModelSwitch", "sonnet-5$", "PreModelSwitch", True),
        ("Stop", "anything", "Stop", True),
    ],
)
def test_rule_5_same_each_event_has_its_own_subject(event, matcher, name, fits):
    (hook,) = settings({event: [{"matcher": matcher, "hooks": [command()]}]}).hooks
    assert selector(hook)(context_of(FIXTURES[name]).facts) is fits


def test_a_hook_is_meant_by_its_own_event_only():
    (after,) = settings({"PostToolUse": [{"hooks": [command()]}]}).hooks
    (failed,) = settings({"PostToolUseFailure": [{"hooks": [command()]}]}).hooks
    (inner,) = settings({"SubagentStop": [{"hooks": [command()]}]}).hooks
    assert after.points == failed.points == (Point.TOOL_END,)
    for status in (Status.OK, Status.FAILED):
        facts = tool_facts("Bash", status)
        assert selector(after)(facts) is (status is Status.OK)
        assert selector(failed)(facts) is (status is Status.FAILED)
    end = Facts(workflow_id="w", point=Point.AGENT_END)
    assert not selector(inner)(end)
    assert selector(inner)(Facts(workflow_id="w", point=Point.AGENT_END, parents=("main",)))
    assert not selector(inner)(Facts(workflow_id="w", point=Point.STEP_END))


CALLS = [
    ("Bash(git *)", "Bash", {"command": "git push"}, True),
    ("Bash(git *)", "Bash", {"command": "git"}, True),
    ("Bash(git *)", "Bash", {"command": "ls && git push"}, True),
    ("Bash(git *)", "Bash", {"command": "github"}, False),
    ("Bash(git push:*)", "Bash", {"command": "git push -f"}, True),
    ("Bash(git push:*)", "Bash", {"command": "git pushy"}, False),
    ("Bash", "Bash", {}, True),
    ("Bash(*)", "Bash", {"command": "x"}, True),
    ("Bash(git *)", "Write", {"file_path": "git x"}, False),
    ("Write(*.txt)", "Write", {"file_path": "/project/a.txt"}, True),
    ("Write(*.txt)", "Write", {"file_path": "/project/a.py"}, False),
    ("Write(src/**)", "Write", {"file_path": "/project/src/a/b.py"}, True),
    ("Read(.env)", "Read", {"file_path": "/project/.env"}, True),
    ("WebFetch(domain:example.com)", "WebFetch", {"url": "https://example.com/x"}, True),
    ("WebFetch(domain:example.com)", "WebFetch", {"url": "https://example.org/example.com"}, False),
    ("mcp__demo__*", "mcp__demo__greet", {"who": "bob"}, True),
    ("Bash(git *)", "Bash", "no object", False),
]


@rule("claude 6")
@pytest.mark.parametrize(("text", "tool", "values", "fits"), CALLS)
def test_rule_6_same_an_if_is_a_permission_rule(text, tool, values, fits):
    assert applies(text, tool, values) is fits


@rule("claude 6")
@pytest.mark.parametrize(
    ("event", "text"), [("PreToolUse", "Bash(git"), ("PreToolUse", 3), ("Stop", "Bash(git *)")]
)
def test_rule_6_same_a_malformed_if_never_runs_and_ours_says_so(event, text):
    found = settings({event: [{"hooks": [command(**{"if": text}), command("b")]}]})
    assert [hook.params["command"] for hook in found.hooks] == ["b"]
    assert repr(text) in str(found.problems[0]) or "a number" in str(found.problems[0])


@rule("claude 7")
def test_rule_7_same_one_command_runs_once_however_often_it_is_declared():
    groups = [
        {"matcher": "Bash", "hooks": [command("a"), command("b")]},
        {"matcher": "Write", "hooks": [command("a", timeout=3), command("a", **{"if": "Write(*.py)"})]},
    ]
    found = settings({"PreToolUse": groups, "PostToolUse": groups[:1]})
    assert [(hook.params["event"], hook.params["command"]) for hook in found.hooks] == [
        ("PreToolUse", "a"),
        ("PreToolUse", "b"),
        ("PreToolUse", "a"),
        ("PostToolUse", "a"),
        ("PostToolUse", "b"),
    ]
    first = selector(found.hooks[0])
    assert [first(tool_facts(name)) for name in ("Bash", "Write", "Read")] == [True, True, False]
    assert len([note for note in found.notes if "it runs once" in str(note)]) == 1
    hooks, notes = once([*found.hooks, *settings({"PreToolUse": groups[:1]}).hooks])
    assert len(hooks) == 5
    assert len(notes) == 2


@rule("claude 7", "claude 18", "claude 19")
async def test_rule_7_ours_differs_hooks_run_in_declared_order_each_with_what_the_last_one_changed():
    """Claude Code starts all together, and the one that finishes last wins."""
    seen = []

    def hook(name, result):
        async def handler(_ctx, context):
            seen.append((name, context.current_payload))
            return result

        return Hook(name=name, points=frozenset({Point.TOOL_START}), handler=handler)

    first = own("PreToolUse", updatedInput={"command": "one"}, additionalContext="first")
    second = own("PreToolUse", updatedInput={"command": "two"}, additionalContext="second")
    pipeline = Pipeline([hook("a", first), hook("b", second)])
    outcome = await pipeline.fire(context_of(BASH))
    assert seen == [("a", BASH["tool_input"]), ("b", {"command": "one"})]
    assert outcome.payload == {"command": "two"}
    assert outcome.tell_model == ("first", "second")


@rule("claude 8")
def test_rule_8_same_once_in_a_settings_file_is_ignored_and_ours_says_so():
    found = settings({"PreToolUse": [{"hooks": [command(once=True)]}]})
    assert len(found.hooks) == 1
    assert "once counts only in a skill" in str(found.notes[0])


# Reading the answer


@rule("claude 9")
@statement("KA19")
@pytest.mark.parametrize("around", ["{}", "\n  {}\t\n", "\ufeff{}", " \ufeff {}\r\n"])
def test_rule_9_same_white_space_and_a_bom_are_stripped(around):
    text = around.replace("{}", '{"decision": "block", "reason": "no"}')
    assert decode("PreToolUse", 0, text.encode()) == HookResult.block("no")


BLOCK = '{"decision": "block", "reason": "no"}'
NO_ANSWERS = {
    "cut off": (BLOCK[:-1], "is not JSON"),
    "cut off in a word": (BLOCK[:9], "is not JSON"),
    "a word before": (f"Checking... {BLOCK}", "something before it"),
    "a line before": (f"warning: slow\n{BLOCK}", "something before it"),
    "a word after": (f"{BLOCK} done", "is not JSON"),
    "two objects": (f"{BLOCK}\n{BLOCK}", "is not JSON"),
    "an array": (f"[{BLOCK}]", "something before it"),
    "another array": ("[1, 2]", "answered an array"),
    "a cut-off array": (f"[{BLOCK}", "something before it"),
    "a string": ('"block"', "answered a string"),
    "null": ("null", "answered null"),
    "a fenced object": (f"```json\n{BLOCK}\n```", "something before it"),
    "single quotes": ("{'decision': 'block'}", "is not JSON"),
    "NaN": ('{"decision": "block", "x": NaN}', "NaN is not JSON"),
    "NaN alone": ("NaN", "answered a number"),
    "too large": ('{"decision": "block", "x": 1e999}', "too large"),
    "deep": ('{"x":' * 200 + "1" + "}" * 200, "deeper than 100"),
    "very deep": ('{"x":' * 200_000, "deeper than 100"),
    "a deep array": ("[" * 200_000, "deeper than 100"),
    "half a pair": (r'{"reason": "\ud800"}', "half of a surrogate"),
    "a key twice": ('{"decision": "block", "decision": "approve"}', "there twice"),
    "many digits": ('{"x": ' + "1" * 5000 + "}", "is not JSON"),
}


@rule("claude 9", "claude 14")
@pytest.mark.parametrize(("text", "told"), NO_ANSWERS.values(), ids=NO_ANSWERS)
@pytest.mark.parametrize("event", ["PreToolUse", "UserPromptSubmit", "PostToolUse"])
def test_rule_9_ours_differs_what_was_meant_as_an_answer_and_is_none_is_broke(event, text, told):
    """Claude Code takes it for plain text, and the guard is off."""
    assert told in broke(event, 0, text.encode())


@rule("claude 9")
@pytest.mark.parametrize("raw", [b"\xff\xfe", b"ok \xc3", b'{"reason": "\xe2\x82'])
def test_rule_9_ours_differs_output_that_is_no_utf_8_is_broke(raw):
    assert "not UTF-8" in broke("PreToolUse", 0, raw)


WRONG = {
    "decision": ("PreToolUse", {"decision": "deny"}, "decision is 'deny'; known: block, approve"),
    "decision's type": ("PreToolUse", {"decision": True}, "decision is true or false; it must be a string"),
    "near": ("PreToolUse", {"decision": "blocked"}, "did you mean 'block'?"),
    "continue": ("PreToolUse", {"continue": "false"}, "continue is a string; it must be true or false"),
    "reason": (
        "PreToolUse",
        {"decision": "block", "reason": ["x"]},
        "reason is an array; it must be a string",
    ),
    "null": ("PreToolUse", {"decision": None}, "decision is null"),
    "own part": ("PreToolUse", {"hookSpecificOutput": []}, "hookSpecificOutput is an array"),
    "no name": (
        "PreToolUse",
        {"hookSpecificOutput": {"permissionDecision": "deny"}},
        'has no hookEventName; add "hookEventName": "PreToolUse"',
    ),
    "other event": (
        "PreToolUse",
        {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "x"}},
        "is for 'PostToolUse', but this is PreToolUse",
    ),
    "permission": (
        "PreToolUse",
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "block"}},
        "permissionDecision is 'block'; known: deny, defer, ask, allow",
    ),
    "input": (
        "PreToolUse",
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": "ls"}},
        "updatedInput is a string; it must be an object",
    ),
    "output": (
        "PostToolUse",
        {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": None}},
        "updatedToolOutput is null",
    ),
    "behavior": (
        "PermissionRequest",
        {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "no"}}},
        "behavior is 'no'; known: allow, deny",
    ),
    "action": (
        "Elicitation",
        {"hookSpecificOutput": {"hookEventName": "Elicitation", "action": "yes"}},
        "known: accept, decline, cancel",
    ),
    "defer": (
        "PreModelSwitch",
        {"hookSpecificOutput": {"hookEventName": "PreModelSwitch", "permissionDecision": "defer"}},
        "knows allow, deny, ask",
    ),
}


@rule("claude 10")
@pytest.mark.parametrize(("event", "answer", "told"), WRONG.values(), ids=WRONG)
def test_rule_10_same_wrong_types_and_another_events_name_are_a_failure(event, answer, told):
    assert told in broke(event, 0, json.dumps(answer).encode())


@rule("claude 10")
def test_rule_10_same_unknown_keys_are_ignored():
    assert said("PreToolUse", status="fine", version=3) is CONTINUE
    assert own("PreToolUse", somethingNew=1) is CONTINUE


@rule("claude 10")
@pytest.mark.parametrize(
    ("event", "answer", "told"),
    [
        ("PreToolUse", {"permissionDecision": "deny"}, 'belongs in "hookSpecificOutput"'),
        ("PreToolUse", {"desicion": "block"}, "did you mean 'decision'?"),
        ("PreToolUse", {"hook_specific_output": {}}, "did you mean 'hookSpecificOutput'?"),
        ("PreToolUse", {"permission": "deny"}, "to refuse, write"),
        (
            "PreToolUse",
            {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecison": "deny"}},
            "did you mean 'permissionDecision'?",
        ),
        (
            "PostToolUse",
            {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedInput": {}}},
            "updatedInput means nothing at PostToolUse",
        ),
    ],
)
def test_rule_10_ours_differs_a_verdict_under_a_wrong_key_is_broke_and_not_ignored(event, answer, told):
    assert told in broke(event, 0, json.dumps(answer).encode())


DENY = json.dumps(
    {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "json",
        }
    }
).encode()
ALLOW = DENY.replace(b"deny", b"allow")


@rule("claude 11")
@statement("KA20")
@pytest.mark.parametrize(
    ("out", "err", "reason"),
    [
        (b"", b"not here\n", "not here"),
        (ALLOW, b"not here", "not here"),
        (DENY, b"not here", "json"),
        (BLOCK.encode()[:-3], b"not here", "not here"),
        (b"\xff", b"\xff", "\ufffd"),
        (b"text", b"", "refused by a hook (exit code 2), which gave no reason"),
    ],
)
def test_rule_11_same_exit_2_always_blocks(out, err, reason):
    assert decode("PreToolUse", 2, out, err) == HookResult.block(reason)


@rule("claude 11")
@pytest.mark.parametrize("code", [1, 3, 127, 255, -9])
def test_rule_11_same_a_json_refusal_counts_whatever_the_exit_code(code):
    assert decode("PreToolUse", code, DENY, b"").action is HookAction.BLOCK


@rule("claude 11")
@pytest.mark.parametrize("out", [ALLOW, b"", b"{}", b'{"systemMessage": "x"}', BLOCK.encode()[:-1]])
def test_rule_11_ours_differs_a_json_allow_does_not_count_beside_a_failed_exit(out):
    """Claude Code would take the allow with exit code 3; a hook that failed has said no yes."""
    assert (
        broke("PreToolUse", 3, out, b"boom")
        == "exited with 3: 'boom'; exit with 0 to have the answer read, with 2 to refuse"
    )
    assert "ended by signal 9" in broke("PreToolUse", -9, out)


@rule("claude 12")
@pytest.mark.parametrize("event", EVENTS)
def test_rule_12_same_plain_text_is_context_at_three_events_and_a_log_elsewhere(event):
    result = decode(event, 0, b" some text with {braces}\n")
    if event in ("UserPromptSubmit", "UserPromptExpansion", "SessionStart"):
        assert result == HookResult.continue_with(tell_model="some text with {braces}")
    elif event == "WorktreeCreate":
        assert result == HookResult.answer("some text with {braces}")
    else:
        assert result is CONTINUE


@rule("claude 12")
@pytest.mark.parametrize("text", ["42", "[INFO] all well", "true enough", "1763247600"])
def test_rule_12_same_text_that_only_begins_like_json_is_text(text):
    assert decode("SessionStart", 0, text.encode()).tell_model == text


@rule("claude 12")
def test_rule_12_same_ten_thousand_characters_arrive_whole():
    text = "é" * TEXT_LIMIT
    assert decode("SessionStart", 0, text.encode()).tell_model == text
    assert own("PreToolUse", additionalContext=text).tell_model == text


@rule("claude 12")
def test_rule_12_ours_differs_more_is_cut_with_a_note_and_not_put_in_a_file():
    told = own("PreToolUse", additionalContext="x" * (TEXT_LIMIT + 1)).tell_model
    assert told.startswith("x" * 2000 + "\n[cut: ")
    assert "10,001" in told


LONG = ("A hook's long text, in numbered words: " + " ".join(map(str, range(3000))))[: TEXT_LIMIT + 1]
TOO_LONG = "é" * CAP
ENDINGS = {
    "plain text": ("SessionStart", str),
    "context": ("PreToolUse", lambda text: json.dumps(own_answer("PreToolUse", additionalContext=text))),
}


@rule("claude 12")
@pytest.mark.parametrize("way", ENDINGS)
@pytest.mark.parametrize(
    ("text", "kept"),
    [(LONG, "the whole is in the journal"), (TOO_LONG, "its first 65,536 bytes are in the journal")],
    ids=["long", "too long"],
)
async def test_rule_12_ours_differs_what_was_cut_is_in_the_journal(way, text, kept):
    event, made = ENDINGS[way]
    result = decode(event, 0, made(text).encode())
    assert kept in result.tell_model
    journal = MemoryJournal()
    hook = Hook(name="h", points=frozenset({point_of(event)}), handler=lambda ctx, context: result)
    context = HookContext(workflow_id="w", point=point_of(event), run_id="r", current_payload={})
    outcome = await Pipeline([hook], Recorder(journal)).fire(context)
    assert (outcome.action, outcome.reasons, outcome.tell_model) == ("continue", (), (result.tell_model,))
    called = next(each for each in journal.records("r") if isinstance(each, Called))
    stored = called.reason if text is LONG else called.reason.partition(" ... (cut")[0]
    assert text.startswith(stored)
    assert len(stored.encode()) == min(len(text.encode()), CAP)


@rule("claude 12")
@pytest.mark.parametrize(
    ("event", "answer"),
    [
        ("PreToolUse", {"permissionDecision": "deny"}),
        ("PreToolUse", {"permissionDecision": "ask"}),
        ("Stop", {}),
    ],
)
def test_rule_12_ours_differs_beside_a_verdict_the_rest_is_not_kept_and_that_is_said(event, answer):
    result = own(event, additionalContext=LONG, **answer)
    assert "the rest is not kept" in (result.tell_model or result.error_message)


IDLE = {
    "SessionStart": {
        "initialUserMessage": "hi",
        "sessionTitle": "t",
        "watchPaths": ["/a"],
        "reloadSkills": True,
    },
    "UserPromptSubmit": {"sessionTitle": "t", "suppressOriginalPrompt": True},
    "PostToolUse": {"classifierContext": "c"},
    "PermissionDenied": {"retry": True},
    "CwdChanged": {"watchPaths": ["/a"]},
    "FileChanged": {"watchPaths": ["/a"]},
    "PreToolUse": {"permissionDecisionReason": "so"},
}


@rule("claude 10")
@pytest.mark.parametrize(("event", "key"), [(event, key) for event, keys in IDLE.items() for key in keys])
def test_rule_10_ours_differs_a_field_without_effect_here_is_told(event, key):
    result = own(event, **{key: IDLE[event][key]})
    assert result.action == "continue"
    assert result.tell_user.startswith(f"accepted without effect: {key} (")


@rule("claude 10")
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"terminalSequence": "\a"}, ["terminalSequence"]),
        ({"async": True, "asyncTimeout": 5}, ["async", "asyncTimeout"]),
        ({"stopReason": "why"}, ["stopReason"]),
        ({"reason": "why"}, ["reason"]),
        ({"continue": True, "stopReason": "why", "systemMessage": "hello"}, ["hello", "stopReason"]),
    ],
)
def test_rule_10_ours_differs_so_is_one_at_the_top_beside_what_has_an_effect(answer, told):
    said_to_user = said("PreToolUse", **answer).tell_user
    assert [word for word in told if word not in said_to_user] == []


@rule("claude 10")
def test_rule_10_same_a_verdict_beside_a_field_without_effect_counts():
    permission = {"behavior": "allow", "updatedPermissions": []}
    result = own("PermissionRequest", decision=permission)
    assert (result.action, "updatedPermissions" in result.tell_user) == ("allow", True)
    refused = said("PreToolUse", decision="block", reason="no", terminalSequence="\a")
    assert (refused.action, refused.reason, "terminalSequence" in refused.tell_user) == ("block", "no", True)


@rule("claude 3")
def test_rule_3_same_every_field_that_an_event_reads_has_an_effect_or_is_told():
    samples = {
        **{key: value for keys in IDLE.values() for key, value in keys.items()},
        "content": {"x": 1},
        "permissionDecision": "deny",
        "updatedInput": {"a": 1},
        "additionalContext": "c",
        "updatedToolOutput": "o",
        "updatedMCPToolOutput": "o",
        "decision": {"behavior": "deny"},
        "displayContent": "d",
        "action": "decline",
        "worktreePath": "/w",
    }
    for event, known in EVENTS.items():
        for key in known.reads:
            assert own(event, **{key: samples[key]}) != CONTINUE, (event, key)


def test_what_follows_a_first_line_that_goes_async_is_no_answer():
    result = decode("PreToolUse", 0, b'{"async": true}\n{"decision": "approve"}\nsome log\n')
    assert result.action == "continue"
    assert "it was waited for" in result.tell_user
    assert broke("PreToolUse", 0, b'{"async": false}\n{"decision": "approve"}\n')


def test_nobody_waits_for_an_async_hook_and_what_it_cannot_have_is_noted():
    handlers = [
        command("a", **{"async": True}),
        command("b", **{"async": True, "timeout": 5}),
        command("c", asyncRewake=True, onFailure="block"),
    ]
    found = settings({"PreToolUse": [{"hooks": handlers}]})
    assert [hook.name for hook in found.hooks] == [f"PreToolUse: {each} (async)" for each in "abc"]
    assert all(hook.params["async"] for hook in found.hooks)
    assert found.hooks[2].on_error == OnError.CONTINUE
    noted = "\n".join(map(str, found.notes))
    assert "a timeout is not kept for an async hook" in noted
    assert "asyncRewake wakes no agent here" in noted
    assert "onFailure does nothing for an async hook" in noted


@rule("claude 13")
@statement("KA21", "KA22", "KA40")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"decision": "block", "reason": "no"}, HookResult.block("no")),
        ({"decision": "approve", "reason": "fine"}, HookResult.allow("fine")),
        ({"decision": "approve"}, HookResult.allow()),
        ({"decision": "block"}, HookResult.block("refused by a hook, which gave no reason")),
        ({"decision": "block", "reason": "old", "permissionDecision": "allow"}, HookResult.block("old")),
        (
            {"decision": "approve", "permissionDecision": "deny", "permissionDecisionReason": "new"},
            HookResult.block("new"),
        ),
        (
            {"decision": "approve", "permissionDecision": "ask", "permissionDecisionReason": "who"},
            HookResult.ask("who"),
        ),
    ],
)
def test_rule_13_same_the_old_words_work_and_the_stricter_field_wins(answer, expected):
    specific = {key: answer.pop(key) for key in list(answer) if key.startswith("permission")}
    if specific:
        answer["hookSpecificOutput"] = {"hookEventName": "PreToolUse", **specific}
    assert said("PreToolUse", **answer) == expected


@rule("claude 14")
def test_rule_14_same_a_failure_goes_ahead_and_on_failure_block_turns_it_into_a_refusal():
    found = settings(
        {
            "PreToolUse": [{"hooks": [command("a"), command("b", onFailure="block")]}],
            "Stop": [{"hooks": [command("c", onFailure="block")]}],
            "PostToolUse": [{"hooks": [command("d", onFailure="block", **{"async": True})]}],
        }
    )
    assert [hook.on_error for hook in found.hooks] == [
        OnError.CONTINUE,
        OnError.BLOCK,
        OnError.CONTINUE,
        OnError.CONTINUE,
    ]
    assert [note.message for note in found.notes] == [
        "onFailure does nothing for Stop",
        "onFailure does nothing for an async hook",
    ]


@rule("claude 15")
def test_rule_15_same_limits_are_seconds_with_fractions_and_each_event_has_its_own():
    found = settings({event: [{"hooks": [command()]}] for event in EVENTS})
    limits = {hook.params["event"]: hook.timeout for hook in found.hooks}
    others = {event: limit for event, limit in limits.items() if limit != 600}
    assert others == {
        "UserPromptSubmit": 30,
        "PreModelSwitch": 30,
        "PostModelSwitch": 30,
        "MessageDisplay": 10,
        "SessionEnd": 1.5,
    }
    assert settings({"Stop": [{"hooks": [command(timeout=0.5)]}]}).hooks[0].timeout == 0.5
    assert settings({"SessionEnd": [{"hooks": [command(timeout=90)]}]}).hooks[0].timeout == 60


@rule("claude 15")
def test_rule_15_same_and_a_limit_that_looks_like_milliseconds_is_told():
    found = settings({"Stop": [{"hooks": [command(timeout=5000)]}]})
    assert found.hooks[0].timeout == 5000
    assert "if these are milliseconds, write 5" in str(found.notes[0])


# Merging

PERMISSIONS = ("deny", "defer", "ask", "allow")


def permission(word):
    return own("PreToolUse", permissionDecision=word, permissionDecisionReason=word)


@rule("claude 16")
@pytest.mark.parametrize("stricter", PERMISSIONS)
@pytest.mark.parametrize("milder", PERMISSIONS)
def test_rule_16_same_the_strictest_permission_wins(stricter, milder):
    """Ours knows no defer; it is an ask."""
    wins = min(stricter, milder, key=PERMISSIONS.index)
    outcome = add_up(None, None, [("a", permission(milder)), ("b", permission(stricter))])
    assert outcome.action is permission(wins).action
    assert wins in outcome.reason


@rule("claude 17")
def test_rule_17_same_ask_is_a_refusal_where_nobody_can_answer():
    assert permission("ask") == HookResult.ask("ask")
    outcome = add_up({}, None, [("a", permission("ask"))])
    words = json.loads(answer(outcome, "PreToolUse", "codex").stdout)
    assert words["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert words["hookSpecificOutput"]["permissionDecisionReason"] == "ask"


@rule("claude 17")
def test_rule_17_ours_differs_defer_asks_a_person_and_parks_nothing():
    assert permission("defer") == HookResult.ask("defer")


@rule("claude 18")
def test_rule_18_same_a_change_replaces_the_whole_and_needs_no_decision():
    changed = own("PreToolUse", updatedInput={"command": "ls"})
    assert changed == HookResult.continue_with(modified_payload={"command": "ls"}, replace=True)
    both = own("PreToolUse", permissionDecision="allow", updatedInput={})
    assert (both.action, both.modified_payload, both.replace) == (HookAction.ALLOW, {}, True)
    for key in ("updatedToolOutput", "updatedMCPToolOutput"):
        output = own("PostToolUse", **{key: {"stdout": "x"}})
        assert output == HookResult.continue_with(modified_output={"stdout": "x"}, replace=True)
    assert own("PreToolUse", permissionDecision="deny", updatedInput={"a": 1}).modified_payload is None


@rule("claude 19")
def test_rule_19_same_context_is_delivered_also_beside_a_deny():
    result = own(
        "PreToolUse", permissionDecision="deny", permissionDecisionReason="no", additionalContext="why"
    )
    assert (result.action, result.tell_model) == (HookAction.BLOCK, "why")
    outcome = add_up(None, None, [("a", own("PreToolUse", additionalContext="one")), ("b", result)])
    assert outcome.tell_model == ("one", "why")


@rule("claude 20")
@pytest.mark.parametrize("event", sorted(set(EVENTS) - {"Stop", "SubagentStop", "SessionEnd"}))
def test_rule_20_ours_differs_continue_false_stops_the_run_and_the_pending_tool_too(event):
    """Claude Code lets the tool run and stops after it."""
    result = said(event, **{"continue": False, "stopReason": "enough", "decision": "approve"})
    assert result == HookResult.fail("enough")
    assert fault(result, point_of(event)) is None


@rule("claude 20")
@pytest.mark.parametrize("event", ["Stop", "SubagentStop", "SessionEnd"])
def test_rule_20_same_at_a_stop_continue_false_beats_a_block(event):
    result = said(
        event, **{"continue": False, "stopReason": "enough", "decision": "block", "reason": "go on"}
    )
    assert result == HookResult.continue_with(tell_user="enough")


@rule("claude 21")
@pytest.mark.parametrize("event", ["Stop", "SubagentStop"])
def test_rule_21_same_a_block_or_context_at_a_stop_continues(event):
    assert said(event, decision="block", reason="tests fail") == HookResult.block("tests fail")
    assert own(event, additionalContext="look again") == HookResult.block("look again")
    assert decode(event, 2, b"", b"not yet") == HookResult.block("not yet")


@rule("claude 21")
def test_rule_21_same_the_next_stop_is_told_that_a_hook_made_it_go_on():
    context = HookContext(workflow_id="w", point="agent.end", current_output="done")
    assert json.loads(stdin_of(context))["stop_hook_active"] is False
    context = HookContext(workflow_id="w", point="agent.end", current_output="done", end_refused=True)
    assert json.loads(stdin_of(context))["stop_hook_active"] is True


BLOCKS = {
    "PreToolUse PostToolUse PostToolUseFailure PermissionRequest UserPromptSubmit UserPromptExpansion Stop "
    "SubagentStop PreCompact PreModelSwitch Elicitation ElicitationResult TaskCreated TaskCompleted TeammateIdle "
    "ConfigChange": HookResult.block("why"),
    "PostToolBatch WorktreeCreate": HookResult.fail("why"),
    "SessionStart SessionEnd Setup SubagentStart PostCompact PostModelSwitch Notification StopFailure MessageDisplay "
    "PermissionDenied InstructionsLoaded CwdChanged FileChanged DirectoryAdded WorktreeRemove": (
        HookResult.continue_with(tell_user="why")
    ),
}
EXIT_TWO = {event: result for events, result in BLOCKS.items() for event in events.split()}


@rule("claude 22", "claude 3")
@pytest.mark.parametrize("event", EVENTS)
def test_rule_22_same_exit_2_means_what_the_event_can_bear(event):
    result = decode(event, 2, b"", b"why")
    assert result == EXIT_TWO[event]
    assert fault(result, point_of(event)) is None


@rule("claude 22")
def test_rule_22_same_any_other_exit_fails_the_making_of_a_worktree():
    assert decode("WorktreeCreate", 1, b"/x", b"disk full") == HookResult.fail("disk full")
    assert decode("WorktreeCreate", 0, b"making it\n/tmp/x\n") == HookResult.answer("/tmp/x")
    assert "printed no path" in broke("WorktreeCreate", 0, b"")


# Other handlers


@rule("claude 23")
def test_rule_23_same_an_http_hook_answers_with_a_json_object_only():
    handler = {
        "type": "http",
        "url": "https://example.com/hook",
        "headers": {"Authorization": "Bearer $TOKEN"},
        "allowedEnvVars": ["TOKEN"],
    }
    (hook,) = settings({"PreToolUse": [{"hooks": [handler]}]}).hooks
    assert hook.kind == "http"
    assert hook.params["url"] == "https://example.com/hook"
    assert hook.params["headers"] == {"Authorization": "Bearer $TOKEN"}
    assert hook.params["variables"] == ["TOKEN"]
    assert decode("PreToolUse", 0, BLOCK.encode(), reads_text=False) == HookResult.block("no")
    with pytest.raises(HookBroke, match="only a JSON object"):
        decode("SessionStart", 0, b"<html>", reads_text=False)


@rule("claude 24")
@pytest.mark.parametrize("kind", ["prompt", "agent", "mcp_tool"])
def test_rule_24_ours_differs_hooks_that_ask_a_model_or_a_server_are_told_and_not_run(kind):
    found = settings({"Stop": [{"hooks": [{"type": kind, "prompt": "ok?"}, command("b")]}]})
    assert [hook.params["command"] for hook in found.hooks] == ["b"]
    assert "does not do in this version" in str(found.problems[0])


# Configuration

BAD_ENTRIES = {
    "unknown event": (
        {"PreTooluse": []},
        "hooks.PreTooluse: is not an event of Claude Code; did you mean 'PreToolUse'?",
    ),
    "another tool's event": ({"AfterAgent": []}, "AfterAgent is an event of gemini"),
    "no event at all": ({"zzz": []}, "known: PreToolUse, PostToolUse"),
    "wrong type": (
        {"Stop": [{"hooks": [{"type": "comand", "command": "x"}]}]},
        "type is 'comand'; known: command, http",
    ),
    "no type": ({"Stop": [{"hooks": [{"command": "x"}]}]}, "type is None"),
    "flat": ({"Stop": [command()]}, "is a handler by itself; put it in a group"),
    "object matcher": (
        {"PreToolUse": [{"matcher": {"tool": "Bash"}, "hooks": [command()]}]},
        "matcher: is an object",
    ),
    "a list for a shell": ({"Stop": [{"hooks": [command(shell=["sh"])]}]}, "shell is ['sh']; known: bash"),
    "timeout 0": ({"Stop": [{"hooks": [command(timeout=0)]}]}, "timeout is 0; give seconds greater than 0"),
    "timeout text": ({"Stop": [{"hooks": [command(timeout="5")]}]}, "timeout is '5'"),
    "timeout true": ({"Stop": [{"hooks": [command(timeout=True)]}]}, "timeout is True"),
    "no command": ({"Stop": [{"hooks": [{"type": "command"}]}]}, "command is None"),
    "empty command": ({"Stop": [{"hooks": [command("  ")]}]}, "command is '  '"),
    "args": ({"Stop": [{"hooks": [command(args="x")]}]}, "args is 'x'; it must be a list"),
    "shell": ({"Stop": [{"hooks": [command(shell="fish")]}]}, "shell is 'fish'"),
    "url": ({"Stop": [{"hooks": [{"type": "http", "url": "x"}]}]}, "it must start with http"),
    "headers": (
        {"Stop": [{"hooks": [{"type": "http", "url": "http://x", "headers": {"a": 1}}]}]},
        "it must be an object of strings",
    ),
    "on failure": ({"Stop": [{"hooks": [command(onFailure="stop")]}]}, "onFailure is 'stop'"),
    "async": ({"Stop": [{"hooks": [command(**{"async": "yes"})]}]}, "async is 'yes'"),
    "async as a number": (
        {"Stop": [{"hooks": [command(**{"async": 1})]}]},
        "async is 1; it must be true or false",
    ),
    "groups": ({"Stop": {"hooks": []}}, "is an object; it must be a list of groups"),
    "group": ({"Stop": ["x"]}, "is a string; it must be a group"),
    "handlers": ({"Stop": [{"hooks": {}}]}, "it must be a list of handlers"),
    "handler": ({"Stop": [{"hooks": ["x"]}]}, "it must be a handler"),
}


@rule("claude 25")
@pytest.mark.parametrize(("entry", "told"), BAD_ENTRIES.values(), ids=BAD_ENTRIES)
def test_rule_25_ours_differs_only_the_wrong_entry_is_dropped_and_it_is_told(entry, told):
    """Claude Code drops the whole file, permissions too, with no word."""
    good = {"PostToolUse": [{"hooks": [command("good")]}]}
    found = settings({**entry, **good})
    assert [hook.params["command"] for hook in found.hooks] == ["good"]
    (problem,) = found.problems
    assert told in str(problem)
    assert str(problem).startswith("settings.json:")


@rule("claude 25")
@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("", 1, "the file is empty"),
        ('{"hooks": {\n  "Stop": [,]\n}}', 2, "not JSON"),
        ("[]", 1, "is a list"),
        ('{\n"hooks": []}', 2, "it must be an object of events"),
        ('{\n"Hooks": {}}', 2, "did you mean 'hooks'?"),
        ('{"hooks": {"Stop": [],\n"Stop": []}}', 2, "is given twice"),
        ("[" * 100_000, None, "not JSON that can be read"),
    ],
)
def test_rule_25_ours_differs_a_file_that_cannot_be_read_is_told_with_its_line(text, line, told):
    found = declared(text, "settings.json")
    assert found.hooks == ()
    assert (found.problems[0].line, told in str(found.problems[0])) == (line, True)


def test_what_is_only_odd_is_noted():
    text = json.dumps(
        {"hooks": {"PreToolUse": [{"matcher": "Bas|mcp__demo|Mine", "hooks": [command(timeOut=3)]}]}}
    )
    found = declared("\ufeff" + text, "s.json")
    assert len(found.hooks) == 1
    assert [note.message for note in found.notes] == [
        "no tool of Claude Code is called 'Bas'; did you mean 'Bash'?",
        "no tool of Claude Code is called 'mcp__demo'; to match every tool of that server write 'mcp__demo__.*'",
        "'timeOut' is not a key here and is ignored; did you mean timeout?",
    ]


def test_switched_off_hooks_are_said():
    found = declared(
        '{"disableAllHooks": true, "hooks": {"Stop": [{"hooks": [{"type":"command","command":"x"}]}]}}', "s"
    )
    assert found.hooks == ()
    assert "disableAllHooks is true" in str(found.notes[0])


def test_each_hook_knows_its_line():
    text = '{"hooks": {"Stop": [\n{"hooks": [\n{"type": "command", "command": "a\\"b\\u00e9 {[,:"},\n{"type":"command","command":"c"}]}]}}'
    assert [hook.source for hook in declared(text, "s.json").hooks] == ["s.json:3", "s.json:4"]


# Arbitrary output

events = st.sampled_from(sorted(EVENTS))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
KEYS = [
    "continue", "stopReason", "systemMessage", "decision", "reason", "suppressOutput", "hookSpecificOutput",
    "hookEventName", "permissionDecision", "permissionDecisionReason", "updatedInput", "updatedToolOutput",
    "additionalContext", "action", "content", "behavior", "message",
]  # fmt: skip
WORDS = ["block", "approve", "allow", "deny", "ask", "defer", "accept", *EVENTS]
near = st.dictionaries(
    st.sampled_from(KEYS),
    st.sampled_from(WORDS) | values | st.dictionaries(st.sampled_from(KEYS), st.sampled_from(WORDS) | values),
)


@given(events, st.integers(-64, 255), st.binary(), st.binary())
def test_any_bytes_are_an_answer_or_broke(event, code, out, err):
    try:
        result = decode(event, code, out, err)
    except HookBroke:
        return
    assert isinstance(result, HookResult)
    assert fault(result, point_of(event)) is None


@given(events, st.sampled_from([0, 1, 2]), near)
def test_any_object_is_an_answer_or_broke_and_the_engine_can_take_it(event, code, value):
    try:
        result = decode(event, code, json.dumps(value).encode())
    except HookBroke:
        return
    assert fault(result, point_of(event)) is None


@given(st.sampled_from(sorted(set(EVENTS) - {"WorktreeCreate"})), st.text())
def test_text_that_is_no_answer_never_decides_anything(event, text):
    try:
        result = decode(event, 0, text.encode("utf-8", "surrogatepass"))
    except HookBroke:
        return
    assert result.action is HookAction.CONTINUE
    assert result.modified_payload is None
    assert result.modified_output is None


@given(st.integers(1, len(DENY) - 1), st.sampled_from([DENY, ALLOW]))
def test_a_part_of_an_answer_is_never_a_yes(cut, whole):
    with pytest.raises(HookBroke):
        decode("PreToolUse", 0, whole[:cut])


@given(st.dictionaries(st.sampled_from([*KEYS, "hooks", "matcher", "type", "command"]), values), st.text())
def test_any_settings_file_is_declared_or_told(value, text):
    for content in (text, json.dumps({"hooks": value}), json.dumps({"hooks": {"Stop": [value]}})):
        declared(content, "s.json")


# As hook: the words of each caller are in tests/claude/test_answer.py


@pytest.mark.parametrize("name", FIXTURES)
def test_an_outcome_with_nothing_to_say_says_nothing(name):
    event = FIXTURES[name]["hook_event_name"]
    assert answer(Outcome(), event) == CallerAnswer(0, "")


def test_every_rule_has_a_test_that_names_it_and_says_same_or_differs():
    tests = [item for name, item in globals().items() if name.startswith("test_rule_")]
    named = {name for test in tests for mark in test.pytestmark if mark.name == "rule" for name in mark.args}
    assert named == {f"claude {number}" for number in range(1, 26)}
    for test in tests:
        assert "_same_" in test.__name__ or "_ours_differs_" in test.__name__, test.__name__


@pytest.mark.parametrize(
    "beside",
    [
        '"permissions": {"allow": 1, "allow": 2}',
        '"permissions"\n: {}',
        f'"env": {{"{"K" * 2000}": "x"}}',
        '"env": {"A": "\x7f"}',
        '"env": {"A": "\\ud800"}',
        f'"other": {"[" * 150}{"]" * 150}',
    ],
    ids=["a key twice", "a colon on the next line", "a long key", "DEL", "half a pair", "deep"],
)
def test_what_only_another_part_of_the_file_has_costs_no_hook(beside):
    hooks = json.dumps({"PreToolUse": [{"hooks": [command("a")]}]})
    found = declared(f'{{{beside},\n\n"hooks": {hooks}}}', "settings.json")
    assert found.problems == ()
    line = 3 + beside.count("\n")
    assert [(hook.params["command"], hook.source) for hook in found.hooks] == [("a", f"settings.json:{line}")]


def differing():
    """The tests that show how ours differs, by the number of each rule that they name."""
    found = {number: [] for number in range(1, 26)}
    for name, test in globals().items():
        marks = getattr(test, "pytestmark", ()) if "_ours_differs_" in name else ()
        for mark in marks:
            for told in mark.args if mark.name == "rule" else ():
                found[int(told.removeprefix("claude "))].append(name)
    return found


def test_the_page_says_of_each_rule_what_its_tests_say():
    page = PAGE.read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| .+ \| (same|ours differs) \|$", page, re.MULTILINE)
    said = {int(number): word for number, word in rows}
    assert len(rows) == 25
    assert said == {number: "ours differs" if tests else "same" for number, tests in differing().items()}


def test_the_page_gives_a_reason_for_each_difference_and_names_its_tests():
    parts = re.findall(
        r"^\*\*([\d, ]+)\.\*\* (.*?)(?=^\*\*|^## )", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    named = {}
    for numbers, text in parts:
        reason, *tests = re.split(r"^- ", text, flags=re.MULTILINE)
        assert len(reason.split()) > 8, numbers
        for number in numbers.split(", "):
            named[int(number)] = {test.strip().strip("`") for test in tests}
    for number, tests in differing().items():
        missing = set(tests) - named.get(number, set())
        assert not missing, f"rule {number}: the page does not name {missing}"
    everything = {test for tests in named.values() for test in tests}
    assert everything == {test for tests in differing().values() for test in tests}


def test_each_caller_has_its_own_events():
    assert {as_: len(events) for as_, events in CALLERS.items()} == {
        "claude": 33,
        "codex": 14,
        "gemini": 11,
        "kagent": 4,
        "qwen": 22,
    }
