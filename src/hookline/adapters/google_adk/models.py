"""Steps and model calls: ADK's callbacks before and after a model as step and model points.

ADK has no callback after the tools of a step. A step is over when the next request is made, or the agent ends.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from hookline.adapters.google_adk.messages import (
    Piece,
    change_request,
    content,
    contents,
    held_back,
    pieces,
    reply_from,
    reply_of,
    request_payload,
    response,
)
from hookline.adapters.google_adk.protocols import LlmRequest, LlmResponse
from hookline.adapters.google_adk.state import Frame, cause, entered
from hookline.agent.loop import MODEL_REFUSALS, STEP_REFUSALS
from hookline.agent.models import Reply
from hookline.engine.context import Step
from hookline.engine.lifecycle import OpenScope
from hookline.engine.point import Point, Scope, Status
from hookline.engine.result import HookAction, Outcome
from hookline.errors import AgentFailed, Refused

__all__ = ["answered", "asked", "broke", "over"]


async def asked(frame: Frame, request: LlmRequest) -> Any:
    """A request is about to leave: a new step. What comes back stands in for the model's answer."""
    await over(frame)
    # Whatever was cancelled before was a part of the run; its ends have their whole time again.
    frame.turn.run.resume()
    frame.request = request
    frame.shown = None
    frame.refusals = 0
    frame.complete(request)
    await _step(frame, request)
    return await _model(frame, request)


async def answered(frame: Frame, given: LlmResponse) -> Any:
    """A response, or a piece of one, is in. What comes back takes its place."""
    if given.partial:
        return held_back() if frame.may_change(Point.MODEL_END) else None
    scope, frame.model = frame.model, None
    if scope is None:
        # A model may answer one request in several whole responses; none of them passes unseen.
        scope = frame.open(Scope.MODEL, name=_name(frame))
        await entered(scope, None, silent=True)
    if given.error_code and not getattr(given.content, "parts", None):
        text = f"{given.error_code}: {given.error_message or 'the model gave no answer'}"
        await scope.left_after(AgentFailed(text))
        return None
    reply = reply_of(given)
    ending = await scope.left(reply, Status.OK)
    if ending.action is HookAction.BLOCK:
        return await _again(frame, ending)
    _take(frame, ending)
    return response(reply_from(ending.output), given) if ending.changed else None


async def broke(frame: Frame, error: BaseException) -> None:
    """The model raised."""
    scope, frame.model = frame.model, None
    if scope is not None:
        await scope.left_after(cause(error))


async def over(frame: Frame, exc: BaseException | None = None) -> None:
    """The step that was open, if one was, is through."""
    if frame.batch is not None:
        batch, frame.batch = frame.batch, None
        await batch.abandoned(exc)
    if frame.model is not None:
        # It never answered: cancelled, or the caller left.
        await broke(frame, exc or asyncio.CancelledError())
    scope, frame.step = frame.step, None
    if scope is None:
        return
    frame.steps.append(_made(frame))
    frame.results = []
    if exc is not None:
        await scope.left_after(exc, tuple(frame.steps), output=frame.steps[-1])
        return
    ending = await scope.left(frame.steps[-1], Status.OK, tuple(frame.steps))
    frame.turn.note(ending)
    frame.untold.extend(ending.tell_model)


async def _step(frame: Frame, request: LlmRequest) -> None:
    number = len(frame.steps) + 1
    last = Outcome()
    for _ in range(STEP_REFUSALS + 1):
        scope = frame.open(Scope.STEP, name=str(number), parent=frame.scope, step=number)
        shown = _shown(frame, request, Scope.STEP)
        outcome = await entered(scope, {"step": number, "messages": [piece.message for piece in shown]})
        frame.turn.note(outcome)
        if outcome.action is not HookAction.BLOCK:
            if outcome.changed:
                request.contents[:] = contents(
                    _messages(outcome.payload, Point.STEP_START), shown, request.contents
                )
            frame.tell(request, outcome.tell_model)
            frame.step = scope
            return
        await scope.leave(None, Status.BLOCKED, error=outcome.reason)
        frame.tell(request, [f"This step was refused: {outcome.reason}", *outcome.tell_model])
        last = outcome
    raise Refused(
        f"the step was refused {STEP_REFUSALS} times, last: {last.reason}",
        point=Point.STEP_START,
        hook=last.hook,
    )


async def _model(frame: Frame, request: LlmRequest) -> Any:
    """None where the model is to be asked; else what it is taken to have said."""
    while True:
        scope = frame.open(Scope.MODEL, name=_name(frame))
        shown = _shown(frame, request, Scope.MODEL)
        payload = request_payload(request, [piece.message for piece in shown])
        outcome = await entered(scope, payload)
        frame.turn.note(outcome)
        if outcome.action is HookAction.BLOCK:
            await scope.leave(None, Status.BLOCKED, error=outcome.reason)
            _refuse(frame, request, outcome, Point.MODEL_START)
            continue
        if not outcome.answered:
            if outcome.changed:
                change_request(request, payload, outcome.payload)
                request.contents[:] = contents(
                    _messages(outcome.payload, Point.MODEL_START), shown, request.contents
                )
            frame.tell(request, outcome.tell_model)
            frame.model = scope
            return None
        ending = await scope.left(reply_from(outcome.output), Status.ANSWERED)
        if ending.action is not HookAction.BLOCK:
            _take(frame, ending)
            return response(frame.reply)
        _refuse(frame, request, ending, Point.MODEL_END)


async def _again(frame: Frame, refused: Outcome) -> Any:
    """Ask the model once more, told why its answer is not used; ADK itself asks only once a step."""
    request = frame.request
    assert request is not None
    while True:
        _refuse(frame, request, refused, Point.MODEL_END)
        stood_in = await _model(frame, request)
        scope, frame.model = frame.model, None
        if scope is None:
            return stood_in
        given = await _called(frame, request, scope)
        refused = await scope.left(reply_of(given), Status.OK)
        if refused.action is not HookAction.BLOCK:
            _take(frame, refused)
            return response(frame.reply, given) if refused.changed else given


async def _called(frame: Frame, request: LlmRequest, scope: OpenScope) -> LlmResponse:
    last: LlmResponse | None = None
    try:
        frame.invocation.increment_llm_call_count()
        async for each in cast("Any", frame.agent).canonical_model.generate_content_async(
            request, stream=False
        ):
            last = each
    except BaseException as exc:
        await scope.left_after(exc)
        raise
    if last is None:
        raise AgentFailed(f"{_name(frame)} ended without an answer")
    return last


def _shown(frame: Frame, request: LlmRequest, scope: Scope) -> list[Piece]:
    """The messages of a request, where anybody is there to see them; a long history is turned into words once."""
    pipeline = frame.turn.pipeline
    looked_at = pipeline.at(Point.start_of(scope)) or pipeline.at(Point.end_of(scope))
    if not looked_at and not pipeline.recorder.on:
        return []
    now = [id(each) for each in request.contents]
    if frame.shown is None or frame.shown[0] != now:
        frame.shown = (now, pieces(request.contents))
    return frame.shown[1]


def _refuse(frame: Frame, request: LlmRequest, refused: Outcome, point: Point) -> None:
    frame.turn.note(refused)
    frame.refusals += 1
    at_start = point is Point.MODEL_START
    if frame.refusals > MODEL_REFUSALS:
        what = "the call of the model" if at_start else "the model's answer"
        raise Refused(
            f"{what} was refused {MODEL_REFUSALS} times, last: {refused.reason}",
            point=point,
            hook=refused.hook,
        )
    what = "This request was refused" if at_start else "Your answer was refused"
    request.contents.append(content(f"{what}: {refused.reason}. Answer again."))
    request.contents.extend(content(text) for text in refused.tell_model)


def _take(frame: Frame, ending: Outcome) -> None:
    frame.turn.note(ending)
    frame.untold.extend(ending.tell_model)
    frame.reply = reply_from(ending.output)


def _made(frame: Frame) -> Step:
    reply, frame.reply = frame.reply, Reply(text=frame.reply.text)
    return Step(
        step=len(frame.steps) + 1,
        content=reply.text,
        tool_calls=reply.tool_calls,
        tool_results=tuple(frame.results),
        usage=reply.usage,
    )


def _messages(payload: Any, point: Point) -> list[Any]:
    messages: Any = cast("dict[str, Any]", payload).get("messages") if isinstance(payload, dict) else None
    if not isinstance(messages, list):
        raise AgentFailed(f"the hooks at {point} left no list of messages under 'messages' in the payload")
    return cast("list[Any]", messages)


def _name(frame: Frame) -> str:
    config = frame.scope.facts.agent_config
    return f"google-adk/{config.model if config else '?'}"
