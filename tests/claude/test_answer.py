"""As hook: each outcome in the words of Claude Code, Codex, Gemini CLI and kagent, and what they cannot say."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline.claude.answer import DEGRADED, answer, keeping_output, trouble
from hookline.claude.events import CALLERS, FORMS, point_of
from hookline.claude.payload import context_of, native_of, stdin_of
from hookline.claude.tools import TOOLS, kind_of, tool_named
from hookline.claude.wire import decode
from hookline.engine.point import Point
from hookline.engine.result import ALLOWED, WITHHELD, HookAction, HookResult, Outcome, Reason, add_up
from hookline.errors import HookBroke, UsageError
from hookline.matcher import TOOL_KINDS

FIXTURES = Path(__file__).parents[1] / "fixtures" / "claude-code" / "stdin"


def outcome(action, reason="", **more):
    return Outcome(HookAction(action), reasons=(Reason("h", HookAction(action), reason),), **more)


def changed_input(**payload):
    return Outcome(payload=payload, changed=True)


def changed_output(output):
    return Outcome(output=output, changed=True)


def own(event, **specific):
    return {"hookSpecificOutput": {"hookEventName": event, **specific}}


def no(reason="no"):
    return {"permissionDecision": "deny", "permissionDecisionReason": reason}


BLOCK = {"decision": "block", "reason": "no"}
STOP = {"continue": False, "stopReason": "no"}
REFUSED = "A hook changed the input, which cannot be passed on here; the unchanged one was refused."
SAID = Outcome(tell_model=("for", "model"), tell_user=("user",))

# caller, event, outcome, what is written, what is lost
WORDS = [
    ("claude", "PreToolUse", outcome("block", "no"), own("PreToolUse", **no()), []),
    ("claude", "PreToolUse", outcome("fail", "no"), {**STOP, **own("PreToolUse", **no())}, []),
    ("claude", "PreToolUse", outcome("allow", "ok"), own("PreToolUse", permissionDecision="allow", permissionDecisionReason="ok"), []),
    ("claude", "PreToolUse", outcome("allow"), own("PreToolUse", permissionDecision="allow"), []),
    ("claude", "PreToolUse", outcome("ask", "?"), own("PreToolUse", permissionDecision="ask", permissionDecisionReason="?"), []),
    ("claude", "PreToolUse", outcome("answer", output={"a": 1}, answered=True, changed=True), own("PreToolUse", **no('A hook answered in its place: {"a": 1}')), ["answer"]),
    ("claude", "PreToolUse", changed_input(command="ls"), own("PreToolUse", updatedInput={"command": "ls"}), []),
    ("claude", "PreToolUse", SAID, {"systemMessage": "user", **own("PreToolUse", additionalContext="for\nmodel")}, []),
    ("claude", "PostToolUse", outcome("block", "no"), BLOCK, []),
    ("claude", "PostToolUse", outcome("fail", "no"), {**STOP, **BLOCK}, []),
    ("claude", "PostToolUse", changed_output({"stdout": "x"}), own("PostToolUse", updatedToolOutput={"stdout": "x"}), []),
    ("claude", "PostToolUseFailure", outcome("block", "no"), own("PostToolUseFailure", additionalContext="no"), []),
    ("claude", "PostToolUseFailure", changed_output("x"), {"systemMessage": "hookline: a hook changed the output, which cannot be shown here"}, ["output"]),
    ("claude", "UserPromptSubmit", outcome("block", "no"), BLOCK, []),
    ("claude", "UserPromptSubmit", outcome("skip", "no"), BLOCK, ["skip"]),
    ("claude", "UserPromptSubmit", outcome("ask", "no"), BLOCK, ["ask"]),
    ("claude", "UserPromptSubmit", outcome("allow"), {}, []),
    ("claude", "UserPromptSubmit", changed_input(input="x"), {"decision": "block", "reason": REFUSED}, ["input"]),
    ("claude", "Stop", outcome("block", "no"), BLOCK, []),
    ("claude", "Stop", outcome("block", "no", tell_model=("why",)), {"decision": "block", "reason": "no\nwhy"}, []),
    ("claude", "Stop", SAID, {"systemMessage": "user"}, ["context"]),
    ("claude", "Stop", outcome("fail", "no"), {**STOP, **BLOCK}, []),
    ("claude", "SessionStart", outcome("fail", "no"), STOP, []),
    ("claude", "SessionStart", changed_input(a=1), {}, ["input kept"]),
    ("claude", "SessionEnd", SAID, {}, ["context", "user"]),
    ("claude", "SubagentStart", outcome("block", "no"), STOP, ["refuse by stop"]),
    ("claude", "PermissionRequest", outcome("block", "no"), own("PermissionRequest", decision={"behavior": "deny", "message": "no"}), []),
    ("claude", "PermissionRequest", outcome("allow", payload={"a": 1}, changed=True), own("PermissionRequest", decision={"behavior": "allow", "updatedInput": {"a": 1}}), []),
    ("claude", "PermissionRequest", changed_input(a=1), own("PermissionRequest", decision={"behavior": "deny", "message": REFUSED}), ["input"]),
    ("claude", "PostToolBatch", outcome("fail", "no"), STOP, []),
    ("claude", "Elicitation", outcome("block", "no"), own("Elicitation", action="decline"), []),
    ("claude", "Elicitation", outcome("answer", output={"action": "accept", "content": {}}, answered=True), own("Elicitation", action="accept", content={}), []),
    ("claude", "WorktreeCreate", outcome("answer", output="/w", answered=True), own("WorktreeCreate", worktreePath="/w"), []),
    ("claude", "MessageDisplay", changed_output("x"), own("MessageDisplay", displayContent="x"), []),
    ("claude", "Notification", outcome("block", "no"), {}, ["refuse"]),
    ("codex", "PreToolUse", outcome("block"), own("PreToolUse", **no("refused by a hook (block)")), []),
    ("codex", "PreToolUse", outcome("ask", "no"), own("PreToolUse", **no()), ["ask"]),
    ("codex", "PreToolUse", outcome("fail", "no"), own("PreToolUse", **no()), ["fail"]),
    ("codex", "PreToolUse", outcome("allow"), {}, ["allow"]),
    ("codex", "PreToolUse", changed_input(command="ls"), own("PreToolUse", updatedInput={"command": "ls"}, permissionDecision="allow"), ["input allow"]),
    ("codex", "PostToolUse", changed_output({"a": 1}), {"decision": "block", "reason": '{"a": 1}'}, ["output reason"]),
    ("codex", "PostToolUse", outcome("block", "no", output="x", changed=True), {"decision": "block", "reason": "x\nno"}, ["output reason"]),
    ("codex", "UserPromptSubmit", SAID, {"systemMessage": "user", **own("UserPromptSubmit", additionalContext="for\nmodel")}, []),
    ("codex", "Stop", outcome("block", "no"), BLOCK, []),
    ("gemini", "BeforeTool", outcome("block", "no"), {"decision": "deny", "reason": "no"}, []),
    ("gemini", "BeforeTool", outcome("fail", "no"), {**STOP, "decision": "deny", "reason": "no"}, []),
    ("gemini", "BeforeTool", outcome("ask", "?"), {"decision": "ask", "reason": "?"}, []),
    ("gemini", "BeforeTool", outcome("allow"), {}, ["allow"]),
    ("gemini", "BeforeTool", changed_input(command="ls"), own("BeforeTool", tool_input={"command": "ls"}), []),
    ("gemini", "AfterTool", changed_output("clean"), {"decision": "deny", "reason": "clean"}, ["output reason"]),
    ("gemini", "BeforeAgent", outcome("block", "no"), {"decision": "deny", "reason": "no"}, []),
    ("gemini", "AfterAgent", outcome("block", "no"), {"decision": "deny", "reason": "no"}, []),
    ("gemini", "BeforeModel", changed_input(model="x"), own("BeforeModel", llm_request={"model": "x"}), []),
    ("gemini", "BeforeModel", outcome("answer", output={"text": "x"}, answered=True), own("BeforeModel", llm_response={"text": "x"}), []),
    ("gemini", "SessionStart", outcome("fail", "no"), {}, ["refuse"]),
    ("kagent", "PreToolUse", outcome("block", "no"), BLOCK, []),
    ("kagent", "PreToolUse", outcome("allow"), {"decision": "approve"}, []),
    ("kagent", "PreToolUse", outcome("ask", "no"), BLOCK, ["ask"]),
    ("kagent", "PreToolUse", outcome("fail", "no"), BLOCK, ["fail"]),
    ("kagent", "PreToolUse", changed_input(a=1), {"decision": "block", "reason": REFUSED}, ["input"]),
    ("kagent", "PreToolUse", SAID, {}, ["context", "user"]),
    ("kagent", "PostToolUse", changed_output("x"), {}, ["output"]),
    ("kagent", "SessionStart", outcome("fail", "no"), {}, ["refuse"]),
]  # fmt: skip


@pytest.mark.parametrize(("as_", "event", "given_", "words", "lost"), WORDS)
def test_an_outcome_in_the_callers_words_and_what_is_lost(as_, event, given_, words, lost):
    said = answer(given_, event, as_)
    assert said.exit_code == 0
    assert (json.loads(said.stdout) if said.stdout else {}) == words
    assert [each.partition(":")[0] for each in said.lost] == lost
    assert all(f"({as_} {event})" in each for each in said.lost)


@pytest.mark.parametrize(
    "event", ["PreCompact", "TaskCreated", "TaskCompleted", "TeammateIdle", "ConfigChange"]
)
def test_an_event_that_reads_only_exit_codes_is_refused_with_exit_2(event):
    assert answer(outcome("block", "no"), event) == (2, "", "no\n", (), True)


def test_an_unknown_caller_is_told():
    with pytest.raises(UsageError, match="unknown caller 'cursor'; known: claude, codex, gemini, kagent"):
        answer(Outcome(), "PreToolUse", "cursor")


@pytest.mark.parametrize(
    ("before", "after", "sent"),
    [
        (
            {"stdout": "a", "stderr": "secret", "interrupted": False, "n": 3},
            {"stdout": "b"},
            {"stdout": "b", "stderr": "", "interrupted": False, "n": 0},
        ),
        ({"stdout": "a", "stderr": "secret"}, "b", {"stdout": "b", "stderr": ""}),
        ([{"type": "text", "text": "a"}], "b", [{"type": "text", "text": "b"}]),
        ("a", {"x": 1}, '{"x": 1}'),
        (None, "b", "b"),
    ],
)
def test_a_changed_result_keeps_the_tools_shape_and_what_was_taken_out_stays_out(before, after, sent):
    said = answer(changed_output(after), "PostToolUse", given={"tool_response": before})
    assert json.loads(said.stdout) == own("PostToolUse", updatedToolOutput=sent)
    assert said.lost == ()


def leaves(value, key=""):
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else ((key, each) for each in value)
        return [leaf for name, item in items for leaf in leaves(item, name)]
    return [(key, value)]


@pytest.mark.parametrize("file", sorted(FIXTURES.glob("PostToolUse.*.json")), ids=lambda file: file.name)
def test_a_withheld_result_keeps_the_tools_shape_and_none_of_its_texts(file):
    payload = json.loads(file.read_text())
    before = payload["tool_response"]
    said = answer(changed_output(WITHHELD), "PostToolUse", given=payload)
    after = json.loads(said.stdout)["hookSpecificOutput"]["updatedToolOutput"]
    assert said.lost == ()
    assert [value for _, value in leaves(after)].count(WITHHELD) == 1
    if isinstance(before, dict):
        assert [(key, type(value)) for key, value in leaves(after)] == [
            (key, type(value)) for key, value in leaves(before)
        ]
    kept = {"type", "status", "filePath", "service_tier", "speed"}
    assert {
        key for key, value in leaves(after) if isinstance(value, str) and value not in ("", WITHHELD)
    } <= kept


def test_a_withheld_result_keeps_the_words_of_its_shape_and_the_path_that_was_given():
    before = {"type": "create", "status": "the word is x", "filePath": "/a", "oldPath": "/x", "content": "x"}
    given = {"tool_input": {"file_path": "/a"}, "tool_response": before}
    said = answer(changed_output(WITHHELD), "PostToolUse", given=given)
    after = {**before, "status": WITHHELD, "oldPath": "", "content": ""}
    assert json.loads(said.stdout) == own("PostToolUse", updatedToolOutput=after)


def test_a_withheld_answer_of_a_model_keeps_the_shape_of_gemini():
    before = {
        "candidates": [{"content": {"role": "model", "parts": ["secret", "more"]}, "finishReason": "STOP"}]
    }
    said = answer(changed_output(WITHHELD), "AfterModel", "gemini", given={"llm_response": before})
    content = {"role": "model", "parts": [WITHHELD, ""]}
    sent = {"candidates": [{"content": content, "finishReason": "STOP"}]}
    assert json.loads(said.stdout)["hookSpecificOutput"]["llm_response"] == sent


def test_the_callers_that_cannot_replace_an_output_are_known():
    assert keeping_output(Point.TOOL_END) == ["kagent", "qwen"]
    assert keeping_output(Point.AGENT_END) == ["claude", "codex", "gemini", "qwen"]
    assert keeping_output(Point.MODEL_END) == ["codex"]


def test_a_changed_result_that_would_be_dropped_stops_the_run_instead():
    said = answer(
        changed_output("clean"), "PostToolUse", given={"tool_response": {"file": {"content": "secret"}}}
    )
    assert json.loads(said.stdout)["continue"] is False
    assert [each.partition(":")[0] for each in said.lost] == ["output shape"]


def test_gemini_merges_so_a_key_that_was_taken_out_is_a_refusal():
    native = {"tool_input": {"command": "ls", "secret": "x"}}
    said = answer(changed_input(command="ls"), "BeforeTool", "gemini", given=native)
    assert json.loads(said.stdout) == {"decision": "deny", "reason": REFUSED}
    assert [each.partition(":")[0] for each in said.lost] == ["input keys"]


CODEX_KEYS = {"continue", "stopReason", "systemMessage", "decision", "reason", "hookSpecificOutput"}
CODEX_OWN = {
    "hookEventName", "permissionDecision", "permissionDecisionReason", "updatedInput", "additionalContext", "decision",
}  # fmt: skip
outcomes = st.builds(
    lambda action, reason, payload, changed, model, user: Outcome(
        HookAction(action),
        payload,
        payload,
        (Reason("h", HookAction(action), reason),),
        model,
        user,
        changed or action == "answer",
        action == "answer",
    ),
    st.sampled_from(list(HookAction)),
    st.text(max_size=5),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.booleans(),
    st.lists(st.text(min_size=1, max_size=3), max_size=2).map(tuple),
    st.lists(st.text(min_size=1, max_size=3), max_size=2).map(tuple),
)


@given(outcomes, st.sampled_from(sorted(CALLERS["codex"])))
def test_codex_is_never_sent_what_makes_its_hook_fail(given_, event):
    said = answer(given_, event, "codex")
    assert said.exit_code == 0
    whole = json.loads(said.stdout or "{}")
    specific = whole.get("hookSpecificOutput", {})
    assert set(whole) <= CODEX_KEYS
    assert set(specific) <= CODEX_OWN
    assert "decision" not in whole or (whole["decision"] == "block" and whole["reason"])
    if event == "PreToolUse":
        assert not {"continue", "stopReason"} & set(whole)
        word = specific.get("permissionDecision")
        assert word in (None, "deny", "allow")
        assert word != "allow" or "updatedInput" in specific
        assert word != "deny" or specific["permissionDecisionReason"]
        assert "updatedInput" not in specific or word == "allow"


@given(
    outcomes,
    st.sampled_from(sorted(CALLERS)).flatmap(lambda as_: st.sampled_from([(as_, e) for e in CALLERS[as_]])),
)
def test_a_refusal_is_never_answered_with_a_yes(given_, where):
    as_, event = where
    said = answer(given_, event, as_)
    refused = given_.action in (HookAction.BLOCK, HookAction.FAIL)
    if not refused:
        return
    whole = json.loads(said.stdout or "{}")
    specific = whole.get("hookSpecificOutput", {})
    assert specific.get("permissionDecision") != "allow"
    assert whole.get("decision") != "approve"
    told = said.exit_code == 2 or whole.get("continue") is False or whole.get("decision") in ("block", "deny")
    told = (
        told or specific.get("permissionDecision") == "deny" or "decision" in specific or "action" in specific
    )
    told = told or FORMS[as_].get(event, (None,))[0] == "context"
    assert told or any(each.startswith("refuse") for each in said.lost)


@given(outcomes)
def test_what_we_answer_as_hook_we_read_as_host(given_):
    """At tool.start and tool.end of Claude Code, where both have the same words."""
    for event in ("PreToolUse", "PostToolUse"):
        if given_.action not in [action for action, points in ALLOWED.items() if point_of(event) in points]:
            continue
        said = answer(given_, event)
        result = decode(event, said.exit_code, said.stdout.encode(), said.stderr.encode())
        expected = HookAction.BLOCK if given_.action is HookAction.ANSWER else given_.action
        assert result.action is expected


@pytest.mark.parametrize(
    ("event", "as_", "code"),
    [
        ("PreToolUse", "claude", 0),
        ("UserPromptSubmit", "claude", 0),
        ("PreToolUse", "codex", 0),
        ("BeforeTool", "gemini", 0),
        ("PreToolUse", "kagent", 0),
        ("PermissionRequest", "claude", 0),
        ("PostToolUse", "claude", 1),
        ("Stop", "claude", 1),
        ("SessionStart", "gemini", 1),
        ("Notification", "claude", 1),
    ],
)
def test_our_own_trouble_is_a_refusal_at_a_start_and_exit_1_elsewhere(event, as_, code):
    said = trouble("hookline.yaml:3: unknown key", event, as_)
    assert said.exit_code == code
    assert "hookline.yaml:3" in (said.stderr if code else said.stdout)


def test_every_rule_for_a_loss_says_what_happens_instead():
    for thing, text in DEGRADED.items():
        assert text.startswith(("this caller", "nobody")), thing


GEMINI = {"session_id": "s", "transcript_path": "/t", "cwd": "/p", "timestamp": "2026-11-15T00:00:00Z"}
FOREIGN = [
    ("gemini", {**GEMINI, "hook_event_name": "BeforeTool", "tool_name": "run_shell_command", "tool_input": {"command": "ls"}}, "tool.start", "shell"),
    ("gemini", {**GEMINI, "hook_event_name": "AfterTool", "tool_name": "mcp_demo_greet", "tool_input": {}, "tool_response": {"llmContent": "x"}}, "tool.end", "mcp"),
    ("gemini", {**GEMINI, "hook_event_name": "BeforeAgent", "prompt": "hi"}, "agent.start", None),
    ("gemini", {**GEMINI, "hook_event_name": "AfterAgent", "prompt": "hi", "prompt_response": "done"}, "agent.end", None),
    ("gemini", {**GEMINI, "hook_event_name": "BeforeModel", "llm_request": {"messages": []}}, "model.start", None),
    ("gemini", {**GEMINI, "hook_event_name": "PreCompress", "trigger": "auto"}, "x.gemini.PreCompress", None),
    ("codex", {"session_id": "s", "turn_id": "1", "model": "m", "transcript_path": None, "cwd": "/p", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "c"}, "tool.start", "shell"),
    ("codex", {"session_id": "s", "transcript_path": None, "cwd": "/p", "hook_event_name": "Interrupt"}, "x.codex.Interrupt", None),
    ("kagent", {"hook_event_name": "PreToolUse", "tool_name": "bash", "tool_input": {"command": "ls"}}, "tool.start", "shell"),
    ("kagent", {"hook_event_name": "SessionEnd", "session_id": "s"}, "session.end", None),
]  # fmt: skip


@pytest.mark.parametrize(("as_", "payload", "point", "kind"), FOREIGN)
def test_what_other_callers_send_is_understood_and_kept_word_for_word(as_, payload, point, kind):
    context = context_of(payload, as_=as_)
    assert (context.point, context.tool_kind) == (point, kind)
    assert native_of(context) == payload


def test_a_hook_for_claude_code_is_sent_claude_codes_words_whoever_called():
    context = context_of(FOREIGN[0][1], as_="gemini")
    sent = json.loads(stdin_of(context))
    assert sent["hook_event_name"] == "PreToolUse"
    assert sent["tool_input"] == {"command": "ls"}
    assert sent["cwd"] == "/p"


@pytest.mark.parametrize("as_", TOOLS)
def test_every_tool_is_of_a_known_kind(as_):
    assert {tool.kind for tool in TOOLS[as_].values()} <= set(TOOL_KINDS)
    assert "shell" in {tool.kind for tool in TOOLS[as_].values()}
    assert kind_of("nobody_knows_it", as_) == "other"


@pytest.mark.parametrize(
    ("name", "as_", "kind", "keys"),
    [
        ("Bash", "claude", "shell", {"command": "command"}),
        ("Read", "claude", "read", {"path": "file_path"}),
        ("Grep", "claude", "search", {"path": "path", "pattern": "pattern"}),
        ("WebSearch", "claude", "web", {"query": "query"}),
        ("Task", "claude", "agent", {"prompt": "prompt"}),
        ("mcp__demo__greet", "claude", "mcp", {}),
        ("exec_command", "codex", "shell", {"command": "cmd"}),
        ("write_file", "gemini", "write", {"path": "file_path", "content": "content"}),
        ("shell_exec", "kagent", "shell", {"command": "command"}),
    ],
)
def test_a_tools_kind_and_the_keys_of_its_input(name, as_, kind, keys):
    assert tool_named(name, as_) == (kind, keys)


ANYWHERE = {
    "shell": "Bash bash shell local_shell exec_command run_shell_command shell_exec Execute launch-process execute_command",
    "write": "Write Edit apply_patch write_file replace edit edit_file Create save-file str-replace-editor",
    "read": "Read read_file view_image view",
    "search": "Grep glob list_directory list_files",
    "agent": "Task spawn_agent invoke_agent",
    "mcp": "mcp__demo__greet mcp_demo_greet",
    "other": "Skill nobody_knows_it",
}


@pytest.mark.parametrize("as_", CALLERS)
def test_a_kind_has_the_names_of_every_client_whoever_asks(as_):
    found = {kind: {kind_of(name, as_) for name in names.split()} for kind, names in ANYWHERE.items()}
    assert found == {kind: {kind} for kind in ANYWHERE}


def test_what_a_hook_in_the_middle_decides_reaches_the_caller():
    """Host and hook in one: an answer read, added up and said again."""
    first = decode("PreToolUse", 0, json.dumps(own("PreToolUse", updatedInput={"command": "ls"})).encode())
    second = decode("PreToolUse", 2, b"", b"not today")
    whole = add_up({"command": "ls"}, None, [("a", first), ("b", second)], changed=True)
    assert json.loads(answer(whole, "PreToolUse").stdout) == own("PreToolUse", **no("not today"))
    assert first == HookResult.continue_with(modified_payload={"command": "ls"}, replace=True)
    with pytest.raises(HookBroke):
        decode("PreToolUse", 1, b"")
    assert point_of("PreToolUse") is Point.TOOL_START
