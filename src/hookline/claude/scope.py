"""The scope of a client's event in the journal, and how it ended.

The start and the end of one call are two events, answered by two processes that know nothing of each other: both
name the scope by the client's own ids. The start leaves it open unless it refuses; the end closes it. The record of an
end event's beginning `joins` the open scope, and stands for it where the client never told of the start.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from hookline.engine.plain import as_text, inner, mapping
from hookline.engine.point import HookAction, Point, Scope, Status
from hookline.engine.record import Begun, Called, Decided, Ended
from hookline.files import open_lock
from hookline.hookfile.trust import digest
from hookline.journal.masking import storable

if TYPE_CHECKING:
    from hookline.engine.context import Facts
    from hookline.engine.result import Outcome

Json = dict[str, Any]

_IDS = {Scope.AGENT: ("agent_id", "prompt_id", "turn_id"), Scope.MODEL: ("turn_id",)}
"""The keys of a payload that name the scope within its session, the narrowest first."""
_UNIQUE = (Scope.TOOL, Scope.AGENT)
"""Scopes whose ids name no second one."""
_REFUSED = {HookAction.ANSWER: Status.ANSWERED, HookAction.SKIP: Status.SKIPPED}
# Lines of Gemini CLI below the output of a command, besides the one with its exit code.
_BELOW_EXIT_CODE = (
    "Signal: ",
    "Background PIDs: ",
    "Process Group PGID: ",
    "</untrusted_context>",
    "[System] ",
)


def begun(facts: Facts, event: str, caller: str, payload: Any) -> Begun:
    """The record of an event's beginning; it also names the run and the scope."""
    point = facts.point
    # An id may hold half a surrogate pair, and is then no key for a journal.
    run_id = storable(f"{caller}-{facts.session_id or os.getpid()}")
    about: Json = {"event": event, "tool": facts.current_tool, "agent": facts.agent}
    if not isinstance(point, Point):
        scope_id = storable(f"{event}-{time.time_ns():x}")
        return Begun(run_id, scope_id, None, Scope.SESSION, event, time.time(), payload, about)
    scope = point.scope
    if not point.is_start or _has_own_id(facts):
        about["joins"] = True
    name = facts.current_tool if scope is Scope.TOOL else facts.agent
    return Begun(
        run_id, _scope_id(facts, scope, payload), None, scope, name or event, time.time(), payload, about
    )


def answered_elsewhere(facts: Facts, event: str, caller: str, files: Iterable[str]) -> bool:
    """True if another process was asked about the same call, prompt or end at the same time, and has answered.

    A client may have an entry of hookline in several settings files, and asks them together.
    The first takes a lock for as long as it lives; whoever finds it taken waits, and then goes by the record: one that
    was killed has left none. An id alone is not enough, for a model may give the same one to its next call: a record
    from before this process began is of another call, or of the last time that the agent would have stopped.
    """
    from fcntl import LOCK_EX, LOCK_NB, lockf

    from hookline.journal import default_path, open_journal

    if not _has_own_id(facts):
        return False
    began, start = time.time(), begun(facts, event, caller, None)
    about = "\0".join([start.run_id, start.scope_id, event, *files])
    place = int(digest(about.encode())[:15], 16)
    lock = open_lock(default_path(os.environ).with_name("answers.lock"))
    try:
        lockf(lock, LOCK_EX | LOCK_NB, 1, place)
        return False
    except BlockingIOError:
        lockf(lock, LOCK_EX, 1, place)
    with open_journal() as journal:
        kept = journal.records(start.run_id)
    return any(
        (each.scope_id, each.point) == (start.scope_id, facts.point) and each.at >= began
        for each in kept
        if isinstance(each, Decided) or (isinstance(each, Called) and each.last)
    )


def renamed(start: Begun, facts: Facts, outcome: Outcome) -> Begun | None:
    """The same scope by the name that its end will give it, where a call without an id is named by its input and a
    hook has changed that."""
    scope_id = _scope_id(facts, start.scope, outcome.payload) if start.scope is Scope.TOOL else start.scope_id
    if scope_id == start.scope_id:
        return None
    return start._replace(scope_id=scope_id, at=time.time(), about={**start.about, "was": start.scope_id})


def ended(start: Begun, facts: Facts, outcome: Outcome, *, refused: bool) -> Ended | None:
    """The record of the end of an event's scope; None if the client goes on inside it."""
    point, action = facts.point, outcome.action
    error = outcome.reason or None
    if not isinstance(point, Point):
        status = Status.BLOCKED if action in (HookAction.BLOCK, HookAction.FAIL) else Status.OK
    elif point.is_start:
        if not refused:
            return None
        status = _REFUSED.get(action, Status.BLOCKED)
    elif _goes_on(facts, action):
        return None
    else:
        # A refusal after a tool call has not undone the call.
        status = facts.status or Status.OK
        error = error_in(_native(facts)) if status is not Status.OK else None
    return Ended(start.run_id, start.scope_id, start.scope, time.time(), status, outcome.output, error)


def status_in(payload: Json, event: str, point: Point | str) -> Status | None:
    """How the thing ended that an event tells of; None at a start.

    Codex says of a command only what it printed, so one that failed is ok there.
    """
    if not isinstance(point, Point) or point.is_start:
        return None
    if payload.get("is_interrupt") is True:
        return Status.CANCELLED
    return Status.FAILED if event == "PostToolUseFailure" or error_in(payload) else Status.OK


def error_in(payload: Json) -> str | None:
    """The error of a failed tool or model call in the payload of its end."""
    if payload.get("error"):
        return _message(payload["error"])
    told = mapping(payload.get("tool_response"))
    if told.get("error"):
        return _message(told["error"])
    if told.get("isError") is True:
        return "the tool reported an error"
    return _exit_code(told.get("llmContent"))


def _exit_code(content: Any) -> str | None:
    for line in reversed(content.splitlines() if isinstance(content, str) else ()):
        if line.startswith("Exit Code: "):
            return None if line == "Exit Code: 0" else line
        if line and not line.startswith(_BELOW_EXIT_CODE):
            return None
    return None


def _goes_on(facts: Facts, action: HookAction) -> bool:
    """True if this is not the end after all: an agent that may not stop yet, a model whose answer is still coming."""
    if facts.point is Point.AGENT_END:
        return action is HookAction.BLOCK
    if facts.point is not Point.MODEL_END:
        return False
    # Gemini CLI tells of every piece of an answer; the last one has the reason why it is the last.
    candidates = inner(_native(facts), "llm_response", "candidates")
    return isinstance(candidates, list) and not any(
        inner(each, "finishReason") for each in cast("list[Any]", candidates)
    )


def _scope_id(facts: Facts, scope: Scope, payload: Any) -> str:
    own = _own_id(facts, scope)
    if not own and scope is Scope.TOOL:
        text = json.dumps(payload, sort_keys=True, default=str)
        own = f"{facts.current_tool}-{digest(text.encode('utf-8', 'backslashreplace'))[:16]}"
    return storable(f"{own or 'main'}-{scope}")


def _has_own_id(facts: Facts) -> bool:
    """True if the client has named this tool call or agent by an id that it gives to no second one."""
    point = facts.point
    return isinstance(point, Point) and point.scope in _UNIQUE and bool(_own_id(facts, point.scope))


def _own_id(facts: Facts, scope: Scope) -> str:
    if scope is Scope.TOOL:
        return facts.call_id or ""
    native = _native(facts)
    return next((str(native[key]) for key in _IDS.get(scope, ()) if native.get(key)), "")


def _native(facts: Facts) -> Json:
    return cast("Json", facts.native or {})


def _message(error: Any) -> str:
    return as_text(mapping(error).get("message", error))
