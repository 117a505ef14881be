"""The JSON on stdin, of kagent's hooks too: read into a HookContext (hook side), and written from one (host side).

`hookline answer` reads it strictly where a guard is asked.
"""

from __future__ import annotations

import json
import os
import re
from codecs import BOM_UTF8
from typing import Any, cast

from hookline.claude.events import (
    CALLERS,
    CODEX_MODEL,
    EVENTS,
    FAILED,
    NAMES,
    event_of,
    known_caller,
    meant,
    point_of,
    refuses,
)
from hookline.claude.scope import status_in
from hookline.claude.tools import kind_of
from hookline.engine.context import Facts, HookContext, WorkflowContext
from hookline.engine.plain import DEEPEST, as_text, finite, mapping, plain, singles
from hookline.engine.point import Point, Status
from hookline.engine.result import HookResult
from hookline.engine.stdlib import replace
from hookline.errors import UsageError

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


def payload_in(stdin: bytes, event: str = "", as_: str = "claude") -> Json:
    """The JSON object on stdin; UsageError if it is anything else, or if it could be read in two ways and a guard is asked.

    `event` counts where the object does not name its own.
    """
    twice: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> Json:
        whole = dict(pairs)
        if len(whole) < len(pairs):
            names = [name for name, _ in pairs]
            twice.extend(name for name in whole if names.count(name) > 1)
        return whole

    try:
        value: Any = json.loads(stdin.removeprefix(BOM_UTF8).decode(), object_pairs_hook=members)
    except UnicodeDecodeError as exc:
        raise UsageError(f"stdin is not UTF-8: {exc}; give the event as one JSON object") from exc
    except (ValueError, RecursionError) as exc:
        got = "is empty" if not stdin.strip() else f"is not JSON ({exc})"
        raise UsageError(f"stdin {got}; give the event as one JSON object") from exc
    if not isinstance(value, dict):
        raise UsageError(f"stdin has a JSON {_kind(value)}; give the event as one JSON object")
    payload = cast("Json", value)
    if "hook_event_name" in twice or refuses(str(payload.get("hook_event_name") or event), as_):
        wrong = f"the key {twice[0]!r} is there twice" if twice else _wrong_inside(payload)
        if wrong:
            raise UsageError(f"stdin cannot be trusted: {wrong}")
    return payload


def event_named_in(stdin: bytes) -> str:
    """The event that an input names which cannot be read; empty if it names none."""
    found = re.search(rb'"hook_event_name"\s*:\s*"(\w+)"', stdin)
    return found[1].decode("utf-8", "replace") if found else ""


def context_of(payload: Json, *, as_: str = "claude", project: str | None = None) -> HookContext:
    """The context of a client's event; `native` keeps the payload unchanged, `project` is the client's own folder."""
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
        workflow=WorkflowContext(workflow_id=as_, session_id=session, workspace=workspace, project=project),
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


def stdin_of(context: HookContext, *, event: str | None = None) -> bytes:
    """The input of a hook of settings or of kagent, as Claude Code would write it: one JSON object, one line, UTF-8."""
    facts, payload, output = context.given
    if event == "PostToolUse" and facts.status in FAILED:
        # One event for every end of a call: a failed call has its error as the response.
        context = HookContext.of(facts.at(Point.TOOL_END, Status.OK), payload, output)
    return _line(_event_of(context))


def own_stdin_of(context: HookContext) -> bytes:
    """The input of a hook of `hookline.yaml`: the event as Claude Code would write it, and the fields of the context."""
    event, own = _event_of(context), context.to_dict()
    if (native_of(context) or {}).get("hook_event_name") == event["hook_event_name"]:
        del own["native"]
    return _line({**event, **{key: value for key, value in own.items() if key not in event}})


def _event_of(context: HookContext) -> Json:
    """The context in Claude Code's words; a native payload is unchanged, except for the changes of earlier hooks."""
    native, is_point = native_of(context), isinstance(context.facts.point, Point)
    if native is None or (is_point and native["hook_event_name"] not in EVENTS):
        return _written(context)
    return _updated(native, context)


def _line(written: Json) -> bytes:
    try:
        text = json.dumps(written, ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)
    except ValueError:
        # NaN and infinities are not JSON; a hook's parser would refuse the whole object.
        text = json.dumps(finite(written, str), ensure_ascii=False, separators=(",", ":"), default=str)
    # A lone surrogate becomes its JSON escape.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _wrong_inside(payload: Json) -> str | None:
    """The reason why a guard and the client behind it would read the payload in two ways; None if there is none."""
    try:
        has_nul = any(isinstance(each, str) and "\0" in each for each in singles(payload))
    except RecursionError:
        return f"it is nested deeper than {DEEPEST} levels"
    return "there is a NUL character in it" if has_nul else None


def _kind(value: Any) -> str:
    kinds = {"list": "array", "str": "string", "bool": "boolean", "int": "number", "float": "number"}
    return kinds.get(value.__class__.__name__, "null")


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


def _written(context: HookContext) -> Json:
    facts, payload, output = context.given
    event = called_at(facts)
    workspace = facts.workflow.workspace if facts.workflow else None
    written: Json = {
        "session_id": facts.session_id or facts.run_id,
        "transcript_path": (facts.workflow.transcript if facts.workflow else None) or "",
        "cwd": workspace or os.getcwd(),
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
            return dict(mapping(payload))


_PATHS = {"path": "file_path", "file_path": "path"}
"""The key for a file in the input of some tools, and the one that scripts for other tools look for."""


def _both_paths(facts: Facts, payload: Any) -> Any:
    """The input with its path under both keys, so that a script for another agent's tools finds it."""
    added = _added_path(facts, payload)
    return {**cast("Json", payload), added: payload[_PATHS[added]]} if added else payload


def with_own_path(result: HookResult, context: HookContext) -> HookResult:
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


_NOT_CLAUDES = {Point.MODEL_START: "BeforeModel", Point.MODEL_END: "AfterModel"}


def called_at(facts: Facts) -> str:
    """The name of the event that a hook reads: Claude Code's, else Gemini's, else that of the point."""
    point = facts.point
    if not isinstance(point, Point) or point in NAMES:
        return event_of(facts)
    return _NOT_CLAUDES.get(point, str(point))
