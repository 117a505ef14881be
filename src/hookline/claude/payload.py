"""The JSON on stdin: read into a HookContext (hook side), and written from one (host side).

The handlers that write it are here too: `command:` and `shell:` hooks in the protocol of Claude Code. `hookline answer`
loads this for every event, so what only a process needs is imported where one is started.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from hookline.claude.events import (
    CALLERS,
    CODEX_MODEL,
    EVENTS,
    FAILED,
    NAMES,
    ClaudeEvent,
    event_of,
    known_caller,
    meant,
    point_of,
)
from hookline.claude.scope import status_in
from hookline.claude.tools import kind_of
from hookline.engine.classes import replace
from hookline.engine.context import Facts, HookContext, WorkflowContext
from hookline.engine.hook import Condition, Handler, HookDeclaration
from hookline.engine.plain import as_text, finite, plain
from hookline.engine.point import Point, Status
from hookline.engine.result import ALLOWED, HookAction, HookResult
from hookline.errors import UsageError

if TYPE_CHECKING:
    from hookline.runners import Ending, Runner

PROJECT = "CLAUDE_PROJECT_DIR"
"""The variable of Claude Code that names the project's folder."""
ENV_FILE = "CLAUDE_ENV_FILE"
"""The variable that names the file whose lines are sourced before each later shell call."""
_CODEX = frozenset({"turn_id", "model"})
"""Fields by which an event of Codex is told from one of Claude Code that has the same name."""
MAIN_AGENT = {
    "claude": "claude-code",
    "codex": "codex",
    "gemini": "gemini-cli",
    "kagent": "kagent",
    "qwen": "qwen-code",
}
"""The main agent's name in a context, if the payload does not name it."""

Json = dict[str, Any]


def context_of(payload: Json, *, as_: str = "claude") -> HookContext:
    """The context of a client's event; `native` keeps the payload unchanged."""
    event = _event_in(payload, as_)
    point = point_of(event, as_)
    tool = _text(payload.get("tool_name"))
    if not tool and (point is Point.TOOL_START or event == "PermissionRequest"):
        raise UsageError(f"tool_name is {payload.get('tool_name')!r}; {event} must name its tool")
    agent, parents = _agent_in(payload, as_, event)
    session = _text(payload.get("session_id"))
    given, output = _values_in(payload, point, event)
    workspace = _text(payload.get("cwd"))
    return HookContext(
        workflow=WorkflowContext(workflow_id=as_, session_id=session, workspace=workspace),
        workflow_id=as_,
        point=point,
        call_id=_text(payload.get("tool_use_id")),
        agent=agent,
        parents=parents,
        session_id=session,
        current_tool=tool,
        tool_kind=kind_of(tool, as_) if tool else None,
        status=status_in(payload, event, point),
        native=payload,
        aliases={"prompt": "input"} if point is Point.AGENT_START else None,
        current_payload=given,
        current_output=output,
    )


def native_of(context: HookContext) -> Json | None:
    """The client's payload that a context was made from; None if there is none."""
    native = context.native
    return cast("Json", native) if isinstance(native, dict) and "hook_event_name" in native else None


def encode(context: HookContext, *, cwd: str = "") -> bytes:
    """The context as Claude Code would write it to a hook: one JSON object, one line, UTF-8.

    A native payload is passed on unchanged, except for the changes of earlier hooks.
    """
    return _line(_event_of(context, cwd))


def _event_of(context: HookContext, cwd: str) -> Json:
    native, is_point = native_of(context), isinstance(context.facts.point, Point)
    if native is None or (is_point and native["hook_event_name"] not in EVENTS):
        return _written(context, cwd)
    return _updated(native, context)


def _line(written: Json) -> bytes:
    try:
        text = json.dumps(written, ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)
    except ValueError:
        # NaN and infinities are not JSON; a hook's parser would refuse the whole object.
        text = json.dumps(finite(written, str), ensure_ascii=False, separators=(",", ":"), default=str)
    # A lone surrogate becomes its JSON escape.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def filled(argv: Iterable[str], project: str) -> tuple[str, ...]:
    """The arguments of a command without a shell, with the project's folder filled in."""
    return tuple(item.replace(f"${{{PROJECT}}}", project) for item in argv)


def command_of(declared: HookDeclaration, runner: Runner) -> Handler:
    """The handler of an entry's `command:`."""
    return _process_of(declared, runner, argv_of(declared.params))


def argv_of(params: Mapping[str, Any]) -> Sequence[str]:
    """The arguments of a `command:`; with the project's folder where Claude Code, and no shell, fills it in."""
    argv = params.get("argv", ())
    return filled(argv, os.getcwd()) if "event" in params and "command" not in params else argv


def shell_of(declared: HookDeclaration, runner: Runner) -> Handler:
    """The handler of an entry's `shell:`."""
    return _process_of(declared, runner, ("sh", "-c", declared.params["script"]))


def _process_of(declared: HookDeclaration, runner: Runner, argv: Sequence[str]) -> Handler:
    from hookline.handlers.process import process_handler

    params = declared.params
    foreign = "event" in params
    theirs = {PROJECT: os.getcwd()} if foreign else {}
    reads = params.get("output", declared.kind)
    return process_handler(
        argv,
        runner,
        encode=stdin_of if foreign else own_stdin_of,
        decode=result_of if foreign else lambda ending, context: own_result_of(ending, context, reads),
        env={**os.environ, **theirs, **params.get("env", {})},
        cwd=params.get("cwd"),
        timeout=declared.timeout,
        background_keep=params.get("background") == "keep",
        variables=_env_file if "event" in params else None,
    )


def _env_file(context: HookContext) -> Json:
    """CLAUDE_ENV_FILE of our own agent's session, at its start; the file of a client is inherited."""
    workflow = context.facts.workflow
    path = workflow.env_file if workflow is not None else None
    return {ENV_FILE: path} if path and context.facts.point is Point.SESSION_START else {}


def when_of(declared: HookDeclaration) -> Condition | None:
    """The conditions of an entry as one: its `when:`, and `if` in the settings of Claude Code; None if it has none."""
    found: list[Condition] = []
    if declared.when is not None:
        from hookline.hookfile.condition import condition  # slow to load, and few entries have one

        found.append(condition(declared.when))
    rule = declared.params.get("if")
    if rule is not None:
        from hookline.claude.matchers import applies

        found.append(lambda context: applies(rule, context.current_tool or "", context.given.payload))
    if len(found) < 2:
        return found[0] if found else None
    return lambda context: all(met(context) for met in found)


def when_text(declared: HookDeclaration) -> str | None:
    """The conditions of an entry in one line."""
    rule = declared.params.get("if")
    parts = [] if declared.when is None else [json.dumps(declared.when, ensure_ascii=False)]
    return ", ".join([*parts, rule] if rule is not None else parts) or None


def stdin_of(context: HookContext, *, event: str | None = None) -> bytes:
    """The input as Claude Code would write it."""
    facts, payload, output = context.given
    if event == "PostToolUse" and facts.status in FAILED:
        # One event for every end of a call: a failed call has its error as the response.
        context = HookContext.of(facts.at(Point.TOOL_END, Status.OK), payload, output)
    return encode(context, cwd=os.getcwd())


def own_stdin_of(context: HookContext) -> bytes:
    """The input of a hook of `hookline.yaml`: the event as Claude Code would write it, and the fields of the context."""
    event, own = _event_of(context, os.getcwd()), context.to_dict()
    if (native_of(context) or {}).get("hook_event_name") == event["hook_event_name"]:
        del own["native"]
    return _line({**event, **{key: value for key, value in own.items() if key not in event}})


def result_of(
    ending: Ending, context: HookContext, *, reads_text: bool = True, event: str | None = None
) -> HookResult:
    """The result of an ended process, by Claude Code's rules for its event."""
    from hookline.claude.wire import decode  # slow to load

    code = ending.exit_code if ending.exit_code is not None else 1
    name = event or _event_at(context.facts)
    result = decode(name, code, ending.stdout.content, ending.stderr.content, reads_text=reads_text)
    return _with_own_path(result, context)


def own_result_of(ending: Ending, context: HookContext, reads: str) -> HookResult:
    """The result of a hook of `hookline.yaml`, which means the same under every caller; `reads` is its `output` or kind."""
    from hookline.claude.wire import Reading, decode_by
    from hookline.handlers.process import with_last_lines

    facts = context.facts
    name, rules = _event_at(facts), _rules_at(facts)
    if reads == "http":
        rules = rules._replace(text="broke")
    elif reads in ("shell", "text") and (reads == "text" or rules.text != "path"):
        rules = rules._replace(text="record")
    answers = {"shell": "object", "text": "none"}.get(reads, "all")
    failed = None if answers == "all" else with_last_lines(ending.in_words(), ending)
    reading = Reading(name, rules, _called_at(facts), answers, failed)
    code = ending.exit_code if ending.exit_code is not None else 1
    result = decode_by(reading, code, ending.stdout.content, ending.stderr.content)
    return _with_own_path(result, context)


_TEXTS = {
    Point.TOOL_START: "broke",
    Point.MODEL_START: "broke",
    Point.AGENT_START: "context",
    Point.SESSION_START: "context",
}
"""The use of plain output at a point, for hooks of `hookline.yaml`; elsewhere it is kept on record."""


def _rules_at(facts: Facts) -> ClaudeEvent:
    """The rules of the event, with a refusal and plain output as they are at its point."""
    point, event = facts.point, EVENTS.get(_event_at(facts), ClaudeEvent())
    if isinstance(point, Point):
        refusal = "block" if point in ALLOWED[HookAction.BLOCK] else "end" if point.is_start else "none"
        return event._replace(refusal=refusal, text=_TEXTS.get(point, "record"))
    if event.text != "log":
        return event
    return event._replace(text="broke" if event.refusal == "block" else "record")


def _event_in(payload: Json, as_: str) -> str:
    event = payload.get("hook_event_name")
    if not isinstance(event, str) or not event:
        raise UsageError(
            f"hook_event_name is {event!r}; it must name the event, one of: {', '.join(known_caller(as_))}"
        )
    if event in known_caller(as_):
        if as_ == "claude" and payload.keys() >= _CODEX:
            raise UsageError("this event is one of codex, not of claude; say --as codex")
        return event
    theirs = [caller for caller, names in CALLERS.items() if event in names]
    if theirs:
        raise UsageError(f"{event} is an event of {theirs[0]}, not of {as_}; say --as {theirs[0]}")
    if not event.isidentifier():
        raise UsageError(f"hook_event_name {event!r} is not the name of an event; {meant(event, as_)}")
    return event


def _agent_in(payload: Json, as_: str, event: str) -> tuple[str, tuple[str, ...]]:
    main = MAIN_AGENT[as_]
    kind = _text(payload.get("agent_type"))
    if payload.get("agent_id") is not None or event.startswith("Subagent"):
        return kind or "subagent", (main,)
    return kind or main, ()


def _values_in(payload: Json, point: Point | str, event: str) -> tuple[Any, Any]:
    """The input and output in a payload, in the form the built-in agent uses."""
    match point:
        case Point.TOOL_START:
            return payload.get("tool_input"), None
        case Point.TOOL_END if event == "PostToolUseFailure":
            return payload.get("tool_input"), {"error": payload.get("error")}
        case Point.TOOL_END:
            return payload.get("tool_input"), payload.get("tool_response")
        case Point.AGENT_START if event != "SubagentStart":
            return {"input": payload.get("prompt"), "prompt": payload.get("prompt")}, None
        case Point.AGENT_END:
            return None, payload.get("last_assistant_message", payload.get("prompt_response"))
        case Point.MODEL_START | Point.MODEL_END if event in CODEX_MODEL:
            given = {"model": payload.get("model")}
            told = {key: payload.get(key) for key in ("status", "error", "token_usage")}
            return given, None if point.is_start else told
        case Point.MODEL_START:
            return payload.get("llm_request"), None
        case Point.MODEL_END:
            return payload.get("llm_request"), payload.get("llm_response")
        case _ if event.startswith("Permission"):
            return payload.get("tool_input"), None
        case _:
            return payload, None


_LIVE = {
    "PreToolUse": (("tool_input", True),),
    "PostToolUse": (("tool_input", True), ("tool_response", False)),
    "PostToolUseFailure": (("tool_input", True),),
    "PermissionRequest": (("tool_input", True),),
    "Stop": (("last_assistant_message", False),),
    "SubagentStop": (("last_assistant_message", False),),
}
"""The fields of a native payload that an earlier hook may have changed; True for input, False for output."""


def _updated(native: Json, context: HookContext) -> Json:
    _, payload, output = context.given
    event = native["hook_event_name"]
    if event == "UserPromptSubmit" and isinstance(payload, dict) and "prompt" in native:
        return {**native, "prompt": cast("Json", payload).get("input", native["prompt"])}
    for field, is_input in _LIVE.get(event, ()):
        now = plain(payload if is_input else output)
        if field in native and now is not None and now != native[field]:
            native = {**native, field: now}
    return native


def _written(context: HookContext, cwd: str) -> Json:
    facts, payload, output = context.given
    event = _called_at(facts)
    folder = facts.workflow.workspace if facts.workflow and facts.workflow.workspace else cwd
    written: Json = {
        "session_id": facts.session_id or facts.run_id,
        "transcript_path": (facts.workflow.transcript if facts.workflow else None) or "",
        "cwd": folder,
        "permission_mode": "default",
        "hook_event_name": event,
    }
    if facts.parents:
        written |= {"agent_id": facts.scope_id or facts.agent, "agent_type": facts.agent}
    if event == "SubagentStop" and written["transcript_path"]:
        from hookline.journal.session import agent_transcript  # a foreign agent tells its own

        written["agent_transcript_path"] = agent_transcript(written["transcript_path"], facts.scope_id)
    return written | _fields(event, facts, plain(payload), plain(output))


def _fields(event: str, facts: Facts, payload: Any, output: Any) -> Json:
    """The fields of an event besides the common ones; an absent value has no field."""
    match event:
        case "PreToolUse" | "PostToolUse" | "PostToolUseFailure":
            call: Json = {"tool_name": facts.current_tool or "", "tool_input": _both_paths(facts, payload)}
            if event == "PostToolUse":
                call["tool_response"] = output
            call["tool_use_id"] = facts.call_id or ""
            if event == "PostToolUseFailure":
                call |= {
                    "error": as_text(_member(output, "error")),
                    "is_interrupt": facts.status is Status.CANCELLED,
                }
            return call
        case "UserPromptSubmit":
            return {"prompt": as_text(_member(payload, "input"))}
        case "Stop" | "SubagentStop":
            stop: Json = {"stop_hook_active": facts.end_refused}
            if output is not None:
                stop["last_assistant_message"] = as_text(_member(output, "result"))
            return stop
        case "SessionStart":
            return {"source": _text(_member(payload, "source")) or "startup"}
        case "SessionEnd":
            return {"reason": _text(_member(payload, "reason")) or "other"}
        case "BeforeModel":
            return {"llm_request": payload}
        case "AfterModel":
            return {"llm_request": payload, "llm_response": output}
        case _ if event == "SubagentStart" or isinstance(facts.point, Point):
            return {}
        case _:
            return cast("Json", payload) if isinstance(payload, dict) else {}


_PATHS = {"path": "file_path", "file_path": "path"}
"""The key for a file in the input of some tools, and the one that scripts for other tools look for."""


def _both_paths(facts: Facts, payload: Any) -> Any:
    """The input with its path under both keys, so that a script for another agent's tools finds it."""
    added = _added_path(facts, payload)
    return {**cast("Json", payload), added: payload[_PATHS[added]]} if added else payload


def _with_own_path(result: HookResult, context: HookContext) -> HookResult:
    """The result with the tool's own key alone for a changed path, whichever of the two was changed."""
    facts, given, _ = context.given
    added, changed = _added_path(facts, plain(given)), result.modified_payload
    theirs = (native_of(context) or {}).get("hook_event_name") in EVENTS
    if added is None or theirs or not isinstance(changed, dict) or added not in changed:
        return result
    own, rest = _PATHS[added], {**cast("Json", changed)}
    path, before = rest.pop(added), plain(given)[own]
    if path != before and rest.get(own) in (before, None):
        rest[own] = path
    return replace(result, modified_payload=rest)


def _added_path(facts: Facts, payload: Any) -> str | None:
    if facts.tool_kind not in ("read", "write", "search") or not isinstance(payload, dict):
        return None
    return next((other for own, other in _PATHS.items() if own in payload and other not in payload), None)


def _member(value: Any, key: str) -> Any:
    return cast("Json", value).get(key, cast("Json", value)) if isinstance(value, dict) else value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _event_at(facts: Facts) -> str:
    """The event of Claude Code by whose rules an answer is read."""
    point = facts.point
    if isinstance(point, Point) and point not in NAMES:
        # If Claude Code has no event, a start is read as one before a tool, an end as one after it.
        return "PreToolUse" if point.is_start else "PostToolUse"
    return event_of(facts)


_NOT_CLAUDES = {Point.MODEL_START: "BeforeModel", Point.MODEL_END: "AfterModel"}


def _called_at(facts: Facts) -> str:
    """The name of the event that a hook reads: Claude Code's, else Gemini's, else that of the point."""
    point = facts.point
    if not isinstance(point, Point) or point in NAMES:
        return event_of(facts)
    return _NOT_CLAUDES.get(point, str(point))
