"""Tool calls: ADK runs the calls of a step in tasks side by side; here they become tool points in call order.

All starts one after another, then the bodies together, then all ends one after another. ADK also calls back for
what never ran (a refused call, one that waits for a person); those have no end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, cast

from hookline.adapters.google_adk.protocols import ForeignTool, ToolContext, of_adk
from hookline.adapters.google_adk.state import (
    WITHIN,
    Batch,
    Call,
    Frame,
    Paused,
    Pending,
    Waits,
    cause,
    entered,
)
from hookline.engine.context import ToolResult
from hookline.engine.lifecycle import OpenScope
from hookline.engine.pipeline import Pipeline
from hookline.engine.plain import plain
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Question, Verdict, VerdictKind
from hookline.engine.result import HookAction, Outcome
from hookline.errors import Refused, RunEnded

__all__ = ["TOLD", "ask_in_client", "broke", "finished", "started"]

TOLD = "told_by_hooks"
"""Where a tool's response carries what hooks add for the model."""

_CALL: ContextVar[Call | None] = ContextVar("hookline_adk_call", default=None)
"""The call whose start hooks are at work here."""


async def ask_in_client(question: Question) -> Verdict:
    """The approver where none was given: ADK asks whoever is at the other end, if it can there."""
    call = _CALL.get()
    if call is not None and call.context.tool_confirmation is not None:
        return _verdict(call.context.tool_confirmation)
    if call is not None and call.can_pause:
        raise Pending(question)
    why = "; ".join(reason.text for reason in question.reasons if reason.text)
    text = f"a person has to decide ({why})" if why else "a person has to decide"
    return Verdict(VerdictKind.REJECT, f"{text}, and nobody is there to answer", by="nobody")


async def started(
    frame: Frame, tool: ForeignTool, args: dict[str, Any], context: ToolContext, kind: str | None
) -> Any:
    """The start points of one call; what comes back is ADK's response in the tool's place."""
    name = tool.name
    scope = frame.open(
        Scope.TOOL, name=name, tool=name, tool_kind=kind, call_id=context.function_call_id or None
    )
    call = frame.calls[id(context)] = Call(frame, scope, context)
    call.given = dict(args)
    paused = _paused(call)
    if _unknown(tool):
        # It can never run, so nothing is before or after it; the record still has it, and ADK tells the model.
        call.known = False
        await entered(scope, dict(args), silent=True)
        return None
    if frame.batch is None or frame.batch.through:
        frame.batch = Batch()
    try:
        outcome = await frame.batch.start(call, lambda: _entered(call, args, context, paused))
    except Pending as exc:
        return await _pause(call, exc.question, context)
    except BaseException as exc:
        await scope.drop(f"not run: {str(exc) or type(exc).__name__}")
        raise
    return await _begun(call, args, context, outcome)


async def finished(call: Call, context: ToolContext, result: Any) -> Any:
    """The end points of one call; what comes back takes the result's place."""
    WITHIN.set(call.outer)
    if call.over or not call.runs:
        return None
    for waits, why in (
        (Waits.DECISION, "a person has to decide first"),
        (Waits.CREDENTIAL, "it needs a credential"),
    ):
        if call.id in (getattr(context.actions, waits) or {}):
            # Somebody else's request, after ours: the call comes again.
            assert call.scope.outcome is not None
            _remember(call, call.scope.outcome, waits)
            await _dropped(call, why)
            return None
    if context.tool_confirmation is not None and not context.tool_confirmation.confirmed:
        await _dropped(call, "refused by a person", Status.BLOCKED)
        return None
    return await _ended(call, result, Status.ANSWERED if _answered(call) else Status.OK)


async def broke(call: Call, error: BaseException) -> Any:
    """The tool raised, or was cancelled. A hook that gives an output recovers the call, as ADK allows."""
    WITHIN.set(call.outer)
    if not call.known and not call.over:
        await _dropped(call, f"there is no tool {call.scope.name!r}", Status.FAILED)
        return None
    if call.over or not call.runs:
        return None
    why = cause(error)
    if isinstance(why, asyncio.CancelledError):
        call.over = True
        try:
            await call.scope.left_after(why)
        finally:
            _moved(call)
        return None
    refused = isinstance(why, Refused)
    status = call.scope.status_of(why)
    given = {
        "error": f"refused: {why.reason}" if isinstance(why, Refused) else f"{type(why).__name__}: {why}"
    }
    try:
        ending = await call.scope.left(given, status)
    finally:
        call.over = True
        _moved(call)
    found = _response(call, ending, given, status, always=refused)
    # What ends the run, said by a hook inside an agent that is a tool, is not for another hook to mend.
    return None if isinstance(why, RunEnded) and not refused else found


async def _entered(call: Call, args: dict[str, Any], context: ToolContext, paused: Paused | None) -> Outcome:
    if paused is not None:
        return await _resumed(call, context, paused)
    token = _CALL.set(call)
    try:
        outcome = await call.scope.enter(dict(args))
    finally:
        _CALL.reset(token)
    call.frame.turn.note(outcome)
    call.scope.raise_if_over(outcome, Point.TOOL_START)
    return outcome


async def _resumed(call: Call, context: ToolContext, paused: Paused) -> Outcome:
    """The call has been before the hooks already; only a person's word is new."""
    confirmation = context.tool_confirmation
    before = paused.outcome
    outcome = await entered(call.scope, plain(before.payload), silent=True)
    call.told.extend(before.tell_model)
    if paused.question is None:
        return outcome
    verdict = _verdict(confirmation)
    if call.frame.journal is not None:
        call.frame.journal.answer(paused.question, verdict)
    if confirmation.confirmed:
        return outcome
    reasons = before.reasons
    refusal = next((reason for reason in reasons), None)
    named = (refusal._replace(action=HookAction.BLOCK, text=verdict.text),) if refusal else ()
    return outcome._replace(action=HookAction.BLOCK, reasons=(*reasons, *named))


async def _begun(call: Call, args: dict[str, Any], context: ToolContext, outcome: Outcome) -> Any:
    call.told.extend(outcome.tell_model)
    if outcome.action is HookAction.BLOCK:
        refusal = {"error": f"refused: {outcome.reason}"}
        await _quietly(call.scope, outcome.reason, Status.BLOCKED, refusal)
        _counted(call, refusal, Status.BLOCKED)
        return _with_told(refusal, call.told)
    if outcome.action is HookAction.ANSWER:
        return await _ended(call, outcome.output, Status.ANSWERED, always=True)
    payload: Any = outcome.payload
    if not isinstance(payload, Mapping):
        kind = type(payload).__name__
        why = f"the hooks at tool.start made the input of {call.scope.name} a {kind}; it must stay a mapping"
        await _dropped(call, why, Status.FAILED)
        return {"error": why}
    changed = cast("dict[str, Any]", plain(payload))
    if changed != args:
        args.clear()
        args.update(changed)
    if context.tool_confirmation is None and any(each.action is HookAction.ALLOW for each in outcome.reasons):
        context.tool_confirmation = of_adk("tools.tool_confirmation", "ToolConfirmation")(confirmed=True)
    WITHIN.set(call)
    return None


async def _pause(call: Call, question: Question, context: ToolContext) -> Any:
    outcome = Outcome(payload=question.value, reasons=question.reasons)
    _remember(call, outcome, Waits.DECISION, question.id)
    why = "; ".join(reason.text for reason in question.reasons if reason.text)
    context.request_confirmation(
        hint=why or f"May {call.scope.name} run?", payload={"input": plain(question.value)}
    )
    # The pause is no result to go on with; without this ADK asks the model once more before the person.
    context.actions.skip_summarization = True
    await call.scope.drop("a person has to decide first")
    return {"error": f"waits for a person's decision: {why}" if why else "waits for a person's decision"}


async def _ended(call: Call, result: Any, status: Status, *, always: bool = False) -> Any:
    """Run its end hooks in its turn, also when it is cancelled while it waits for that."""
    call.back = True
    _moved(call)
    batch = call.frame.batch
    try:
        if batch is not None and call in batch.calls:
            await batch.turn_to_end(call)
        ending = await call.scope.left(result, status)
    except asyncio.CancelledError as exc:
        await call.scope.left_after(exc, output=result, status=status)
        raise
    finally:
        call.over = True
        _moved(call)
    return _response(call, ending, result, status, always=always)


def _response(call: Call, ending: Outcome, given: Any, status: Status, *, always: bool = False) -> Any:
    frame = call.frame
    frame.turn.note(ending)
    told = [*call.told, *ending.tell_model]
    if ending.action is HookAction.BLOCK and ending.reason:
        told.append(ending.reason)
    output = ending.output
    _counted(call, output, status)
    if not output and told and not always:
        # A long-running tool has no result yet, and a text of ours must not be taken for it.
        frame.untold.extend(told)
        return plain(output) if ending.changed else None
    if told:
        return _with_told(output, told)
    return plain(output) if ending.changed or always else None


def _with_told(output: Any, told: list[str]) -> Any:
    shown = plain(output)
    if not told:
        return shown
    whole: dict[str, Any] = cast("dict[str, Any]", shown) if isinstance(shown, dict) else {"result": shown}
    return {**whole, TOLD: told}


def _counted(call: Call, output: Any, status: Status) -> None:
    failed = status not in (Status.OK, Status.ANSWERED)
    shown: Any = plain(output)
    text = cast("Any", shown).get("error") if failed and isinstance(shown, dict) else None
    made = ToolResult(
        tool_call_id=call.id,
        tool_name=call.scope.name,
        status=str(status),
        result=output,
        error=str(text) if text is not None else None,
    )
    call.frame.results.append(made)
    call.frame.all_results.append(made)


async def _dropped(call: Call, why: str, status: Status = Status.CANCELLED) -> None:
    call.over = True
    if status is Status.CANCELLED:
        await call.scope.drop(why)
    else:
        await _quietly(call.scope, why, status)
    _moved(call)


async def _quietly(scope: OpenScope, why: str, status: Status, output: Any = None) -> None:
    """Close a scope whose inside never ran, with no end hook."""
    scope.pipeline = Pipeline((), scope.run.recorder)
    await scope.leave(output, status, error=why)


def _remember(call: Call, outcome: Outcome, waits: Waits, question: str | None = None) -> None:
    call.frame.turn.conversation.paused[call.id] = Paused(
        tool=call.scope.name, given=call.given, outcome=outcome, waits=waits, question=question
    )


def _paused(call: Call) -> Paused | None:
    """What is known of this call from before it was paused. A model may use an id twice: it must be the same call."""
    known = call.frame.turn.conversation.paused
    found = known.get(call.id)
    if found is None or (found.tool, found.given) != (call.scope.name, call.given):
        return None
    if found.waits is Waits.DECISION and call.context.tool_confirmation is None:
        return None
    return known.pop(call.id)


def _answered(call: Call) -> bool:
    return call.scope.outcome is not None and call.scope.outcome.answered


def _moved(call: Call) -> None:
    if call.frame.batch is not None:
        call.frame.batch.move()


def _unknown(tool: ForeignTool) -> bool:
    """Whether it is ADK's stand-in for a name that no tool has."""
    return type(tool) is of_adk("tools.base_tool", "BaseTool")


def _verdict(confirmation: Any) -> Verdict:
    given: Any = confirmation.payload
    said = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    reason = str(said.get("rejection_reason") or said.get("reason") or "")
    if confirmation.confirmed:
        return Verdict(VerdictKind.APPROVE, by="the client")
    return Verdict(VerdictKind.REJECT, reason or "refused by a person", by="the client")
