"""The life of ADK's agents as our points: what each callback of ADK begins, ends or lets through.

ADK tells of a run's end only when it went well (`after_run`) or raised (`on_run_error`); of an agent's end not when
it handed over to another, nor when the caller left. Whatever is still open when the outer one ends is ended first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hookline.adapters.google_adk import models as asking
from hookline.adapters.google_adk import tools as calling
from hookline.adapters.google_adk.hooks import Given, declared, kind_of, live, several
from hookline.adapters.google_adk.messages import content, text_of, with_text
from hookline.adapters.google_adk.protocols import (
    CallbackContext,
    ForeignAgent,
    ForeignTool,
    Invocation,
    LlmRequest,
    LlmResponse,
    ToolContext,
    invocation_of,
)
from hookline.adapters.google_adk.state import WITHIN, Call, Conversation, Frame, Turn, cause, entered
from hookline.agent.output_schema import as_text
from hookline.engine.declaration import AgentDeclaration, Declaration
from hookline.engine.hook import Mode
from hookline.engine.lifecycle import Approver, Run
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.plain import plain
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Journal, Record
from hookline.engine.result import HookAction
from hookline.errors import HooklineError, Refused, Skipped, UsageError
from hookline.journal.owner import owner
from hookline.runners.local import LocalRunner

__all__ = ["Life"]

logger = logging.getLogger(__name__)

_NOT_LIVE = frozenset({Scope.STEP, Scope.MODEL})
_IN_ADK = frozenset(Scope) - {Scope.WORKSPACE}


class _Key(NamedTuple):
    app: str
    user: str
    session: str


class Life:
    """All that goes on in the runners that share a set of hooks."""

    def __init__(
        self,
        hooks: Given | Iterable[Given],
        *,
        journal: Journal | None,
        watch: Iterable[Callable[[Record], None]],
        approver: Approver | None,
        kinds: Mapping[str, str] | None,
        workspace: str | Path | None,
    ) -> None:
        self._given = several(hooks)
        self._recorder = Recorder(journal, watch)
        self._attach()
        self._approver = approver or calling.ask_in_client
        self._kinds = kinds or {}
        self._workspace = str(workspace) if workspace is not None else None
        self._turns: dict[str, Turn] = {}
        self._conversations: dict[_Key, Conversation] = {}
        self._late: set[asyncio.Task[None]] = set()

    def _attach(self) -> None:
        """Make the hooks live; once more where a runner that is closed with all it had is followed by another."""
        self._runner = LocalRunner()
        self._closed = False
        self.hooks = live(self._given, self._runner)
        for hook in self.hooks:
            if not any(isinstance(point, Point) and point.scope in _IN_ADK for point in hook.points):
                logger.warning(
                    "hook %s [%s] never runs here: ADK has none of its points", hook.name, hook.source
                )

    # -- run and session -----------------------------------------------------------------------------------

    async def message_given(self, invocation: Invocation, message: Any) -> Any:
        """The first that is heard of a run; the message that takes the given one's place, if hooks changed it."""
        turn = await self._begun(invocation, message)
        text = text_of(message)
        outcome = turn.scope.outcome
        if turn.within is not None or outcome is None or not outcome.changed or not text:
            return None
        new = _input(outcome.payload, Point.RUN_START)
        return with_text(message, new) if new != text else None

    async def run_started(self, invocation: Invocation) -> Any:
        """A content ends the run with it."""
        turn = self._turns.get(invocation.invocation_id) or await self._begun(
            invocation, invocation.user_content
        )
        if turn.stopped is not None:
            return content(turn.stopped, "model")
        if _is_live(invocation):
            self._check_live()
        if turn.within is None:
            try:
                await self._opened(turn)
            except asyncio.CancelledError as exc:
                # ADK tells its plugins nothing of a run that is cancelled before its first agent.
                await self.run_ended(invocation, exc)
                raise
        return None

    async def run_ended(self, invocation: Invocation, exc: BaseException | None = None) -> None:
        turn = self._turns.pop(invocation.invocation_id, None)
        if turn is not None:
            await self._over(turn, exc)

    def happened(self, invocation: Invocation, event: Any) -> Any:
        """Take note of what an agent said; the event with what hooks have for the user, if they have anything."""
        turn = self._turns.get(invocation.invocation_id)
        if turn is None:
            return None
        text = text_of(event.content) if event.content else ""
        if text and not event.partial:
            turn.texts[event.author] = text
            if event.is_final_response():
                turn.result = text
        if not turn.notices or turn.within is not None:
            return None
        said, turn.notices[:] = list(turn.notices), []
        known = dict(event.custom_metadata or {})
        return event.model_copy(update={"custom_metadata": {**known, "hookline": {"notices": said}}})

    async def close_session(
        self, session_id: str, *, app_name: str | None = None, user_id: str | None = None
    ) -> None:
        """The conversation is over: its session.end hooks run, once."""
        for key in list(self._conversations):
            wanted = key.session == session_id and app_name in (None, key.app) and user_id in (None, key.user)
            conversation = self._conversations.pop(key) if wanted else None
            if conversation is not None and conversation.scope is not None:
                scope, conversation.scope = conversation.scope, None
                await scope.left({"session_id": session_id}, Status.OK)

    async def close(self) -> None:
        """End what is still open and close every conversation."""
        while self._late:
            await asyncio.wait(self._late)
        for turn in list(self._turns.values()):
            if turn.within is None:
                await self._over(turn, None if turn.implied else asyncio.CancelledError())
        self._turns.clear()
        for key in list(self._conversations):
            await self.close_session(key.session, app_name=key.app, user_id=key.user)
        self._closed = True
        await self._runner.close()

    # -- agents --------------------------------------------------------------------------------------------

    async def agent_started(self, agent: ForeignAgent, context: CallbackContext) -> Any:
        """A content stands in for the agent's work."""
        invocation = invocation_of(context)
        turn = self._turn(invocation) or await self._implied(invocation)
        frame = self._framed(turn, invocation, agent)
        original = text_of(invocation.user_content)
        given = turn.rewritten.get(original, original)
        streaming = str(getattr(invocation.run_config, "streaming_mode", "")).lower().endswith("sse")
        payload: dict[str, Any] = {
            "input": given,
            "prompt": given,
            "streaming": streaming,
            "provider_kwargs": {},
        }
        try:
            outcome = await entered(frame.scope, payload)
        except BaseException as exc:
            frame.over = True
            return await self._not_begun(frame, exc)
        turn.note(outcome)
        if outcome.action is HookAction.BLOCK:
            frame.over = True
            await frame.scope.leave(None, Status.BLOCKED, error=outcome.reason)
            return self._instead(frame, f"refused: {outcome.reason}", Status.BLOCKED)
        frame.untold.extend(outcome.tell_model)
        if outcome.answered:
            frame.over = True
            ending = await frame.scope.left(outcome.output, Status.ANSWERED)
            turn.note(ending)
            return self._instead(frame, as_text(plain(ending.output)), Status.OK)
        new = _input(outcome.payload, Point.AGENT_START)
        if new != given:
            turn.rewritten[original] = new
        return None

    async def agent_ended(self, context: CallbackContext) -> Any:
        """A content comes after all that the agent said."""
        frame = self._frame(invocation_of(context))
        if frame is None or frame.over:
            return None
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            await self._left(frame, asyncio.CancelledError())
            await self._cancelled(frame)
            return None
        frame.over = True
        await asking.over(frame)
        ending = await frame.scope.left(frame.answer(), Status.OK, tuple(frame.steps))
        frame.turn.note(ending)
        if ending.action is HookAction.BLOCK:
            why = f"its end was refused, and ADK cannot send it back to work: {ending.reason}"
            refused = Refused(why, point=Point.AGENT_END, hook=ending.hook)
            await frame.scope.left_after(refused)
            raise refused
        frame.turn.conversation.untold.extend(ending.tell_model)
        await self._implied_over(frame)
        if not ending.changed:
            return None
        output = ending.output
        return content(as_text(plain(getattr(output, "result", output))), "model")

    async def agent_failed(self, context: CallbackContext, error: BaseException) -> None:
        frame = self._frame(invocation_of(context))
        if frame is not None:
            await self._left(frame, cause(error))

    # -- models and tools ----------------------------------------------------------------------------------

    async def model_asked(self, context: CallbackContext, request: LlmRequest) -> Any:
        if _is_live(invocation_of(context)):
            return None
        return await asking.asked(await self._there(context), request)

    async def model_answered(self, context: CallbackContext, response: LlmResponse) -> Any:
        if _is_live(invocation_of(context)):
            return None
        return await asking.answered(await self._there(context), response)

    async def model_broke(self, context: CallbackContext, error: BaseException) -> None:
        await asking.broke(await self._there(context), error)

    async def tool_started(self, tool: ForeignTool, args: dict[str, Any], context: ToolContext) -> Any:
        frame = await self._there(context)
        kind = kind_of(tool, self._kinds)
        frame.turn.tools[tool.name] = kind
        return await calling.started(frame, tool, args, context, kind)

    async def tool_finished(self, context: ToolContext, result: Any) -> Any:
        call = self._call(context)
        return await calling.finished(call, context, result) if call is not None else None

    async def tool_broke(self, context: ToolContext, error: BaseException) -> Any:
        call = self._call(context)
        return await calling.broke(call, error) if call is not None else None

    def _check_live(self) -> None:
        """In live mode ADK asks its model callbacks about scraps, in no order of calls; no guard may rest on that."""
        for hook in self.hooks:
            beyond = sorted(
                point for point in hook.points if isinstance(point, Point) and point.scope in _NOT_LIVE
            )
            if not beyond or hook.mode is Mode.OFF:
                continue
            text = f"hook {hook.name} [{hook.source}] stands at {', '.join(beyond)}, which live mode does not have"
            if hook.mode is Mode.ENFORCE:
                raise UsageError(f"{text}; take it out, or set its mode to observe")
            logger.warning("%s", text)

    # -- inside --------------------------------------------------------------------------------------------

    def _turn(self, invocation: Invocation) -> Turn | None:
        return self._turns.get(invocation.invocation_id)

    def _frame(self, invocation: Invocation) -> Frame | None:
        turn = self._turn(invocation)
        return turn.frames.get(id(invocation)) if turn is not None else None

    def _call(self, context: ToolContext) -> Call | None:
        frame = self._frame(invocation_of(context))
        return frame.calls.get(id(context)) if frame is not None else None

    async def _there(self, context: CallbackContext) -> Frame:
        """The frame that a callback is for; one is made where ADK said nothing of an agent's beginning."""
        invocation = invocation_of(context)
        frame = self._frame(invocation)
        if frame is None:
            turn = self._turn(invocation) or await self._implied(invocation)
            agent = invocation.agent or _Nobody(turn.root)
            frame = self._framed(turn, invocation, agent)
            frame.scope.pipeline = Pipeline((), self._recorder)
            await entered(frame.scope, None)
        return frame

    def _framed(self, turn: Turn, invocation: Invocation, agent: ForeignAgent) -> Frame:
        frame = Frame(turn, invocation, agent, _above(turn, agent))
        turn.frames[id(invocation)] = frame
        if turn.within is None:
            untold, turn.conversation.untold = turn.conversation.untold, []
            frame.untold.extend(untold)
        return frame

    async def _begun(self, invocation: Invocation, message: Any) -> Turn:
        within = WITHIN.get()
        if within is not None and within.frame.turn in self._turns.values():
            turn = self._nested(invocation, within)
            self._turns[invocation.invocation_id] = turn
            return turn
        turn = self._made(invocation)
        self._turns[invocation.invocation_id] = turn
        self._watch_over(turn)
        try:
            outcome = await entered(turn.scope, {"input": text_of(message)}, **self._record(turn))
        except Skipped as exc:
            turn.stopped, turn.status = exc.reason, Status.SKIPPED
            return turn
        except BaseException:
            self._turns.pop(invocation.invocation_id, None)
            raise
        turn.note(outcome)
        turn.conversation.untold.extend(outcome.tell_model)
        return turn

    def _record(self, turn: Turn) -> dict[str, Any]:
        """What a run's own record has besides, so that it can be told what it was when its process is gone."""
        config = turn.scope.facts.agent_config
        if self._recorder.journal is None or config is None:
            return {}
        agent = AgentDeclaration(
            name=config.name,
            provider=config.provider,
            model=config.model,
            system_prompt=config.system_prompt,
            tools=config.tools,
        )
        hooks = tuple(declared(hook) for hook in self.hooks)
        declaration = Declaration(format="google-adk", source="", agent=agent, hooks=hooks)
        return {"owner": owner(), "declaration": declaration.to_dict()}

    def _made(self, invocation: Invocation, *, implied: bool = False) -> Turn:
        if self._closed:
            self._attach()
        session = invocation.session
        key = _Key(session.app_name, session.user_id, session.id)
        known = self._conversations.get(key)
        if known is None:
            known = self._conversations[key] = Conversation(id=session.id, user_id=session.user_id)
        return Turn(
            invocation=invocation,
            run=Run(recorder=self._recorder, approver=self._approver),
            pipeline=Pipeline(self.hooks, self._recorder),
            conversation=known,
            workspace=self._workspace,
            implied=implied,
        )

    def _nested(self, invocation: Invocation, within: Call) -> Turn:
        outer = within.frame.turn
        return Turn(
            invocation=invocation,
            run=outer.run,
            pipeline=outer.pipeline,
            conversation=outer.conversation,
            within=within,
            workspace=self._workspace,
        )

    async def _implied(self, invocation: Invocation) -> Turn:
        """A run that nobody told us of: callbacks on an agent, where there is none for runs."""
        for turn in [each for each in self._turns.values() if each.implied]:
            if turn.invocation.session.id == invocation.session.id:
                # ADK says nothing to an agent's callbacks when the agent raises; what is left is from then.
                self._turns.pop(turn.invocation.invocation_id, None)
                await self._over(turn, HooklineError("it ended, and ADK did not say how"))
        within = WITHIN.get()
        if within is not None and within.frame.turn in self._turns.values():
            turn = self._nested(invocation, within)
        else:
            turn = self._made(invocation, implied=True)
            given = {"input": text_of(invocation.user_content)}
            await entered(turn.scope, given, silent=True, **self._record(turn))
        self._turns[invocation.invocation_id] = turn
        return turn

    async def _implied_over(self, frame: Frame) -> None:
        turn = frame.turn
        if turn.implied and frame.parent is None and all(each.over for each in turn.frames.values()):
            self._turns.pop(turn.invocation.invocation_id, None)
            await self._over(turn, None)

    async def _opened(self, turn: Turn) -> None:
        conversation = turn.conversation
        async with conversation.opening:
            if conversation.scope is not None:
                return
            scope = turn.open(Scope.SESSION, turn.invocation.agent, name=conversation.id, parent=turn.scope)
            events = turn.invocation.session.events
            before = any(event.invocation_id != turn.invocation.invocation_id for event in events)
            source = "resume" if before else "startup"
            outcome = await entered(scope, {"session_id": conversation.id, "source": source})
            turn.note(outcome)
            conversation.scope = scope
            conversation.told.extend(outcome.tell_model)

    async def _over(self, turn: Turn, exc: BaseException | None) -> None:
        for inner in [
            each for each in self._turns.values() if each.within and each.within.frame.turn is turn
        ]:
            self._turns.pop(inner.invocation.invocation_id, None)
            await self._over(inner, exc)
        for frame in reversed(turn.frames.values()):
            await self._left(frame, exc)
        if turn.within is not None:
            return
        turn.say_what_matched_nothing()
        if exc is not None:
            await turn.scope.left_after(exc)
        elif turn.implied:
            turn.scope.pipeline = Pipeline((), self._recorder)
            await turn.scope.leave(turn.answer(), turn.status)
        else:
            await turn.scope.left(turn.answer(), turn.status)

    async def _left(self, frame: Frame, exc: BaseException | None) -> None:
        """End an agent that ADK did not let end by itself."""
        if frame.over:
            return
        frame.over = True
        await asking.over(frame, exc)
        if exc is not None:
            await frame.scope.left_after(exc, tuple(frame.steps))
        else:
            await frame.scope.left(frame.answer(), Status.OK, tuple(frame.steps))

    async def _cancelled(self, frame: Frame) -> None:
        """ADK ends a cancelled run without another word; with its outermost agent, the run is over."""
        turn = frame.turn
        if frame.parent is None:
            self._turns.pop(turn.invocation.invocation_id, None)
            await self._over(turn, asyncio.CancelledError())

    async def _not_begun(self, frame: Frame, exc: BaseException) -> Any:
        if isinstance(exc, asyncio.CancelledError):
            await self._cancelled(frame)
        if isinstance(exc, Skipped) and frame.parent is None and frame.turn.within is None:
            return self._instead(frame, exc.reason, Status.SKIPPED)
        raise exc

    def _instead(self, frame: Frame, text: str, status: Status) -> Any:
        if frame.parent is None and frame.turn.within is None:
            frame.turn.status = status
        return content(text, "model")

    def _watch_over(self, turn: Turn) -> None:
        """A run whose task ends without a word from ADK was cancelled outside of any agent."""
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(lambda _: self._lost(turn))

    def _lost(self, turn: Turn) -> None:
        if self._turns.get(turn.invocation.invocation_id) is not turn:
            return
        del self._turns[turn.invocation.invocation_id]
        late = asyncio.ensure_future(self._over(turn, asyncio.CancelledError()))
        self._late.add(late)
        late.add_done_callback(self._late.discard)


class _Nobody:
    """Whose work it is where ADK names no agent: a tool in a workflow."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parent_agent: ForeignAgent | None = None


def _is_live(invocation: Invocation) -> bool:
    return getattr(invocation, "live_request_queue", None) is not None


def _above(turn: Turn, agent: ForeignAgent) -> Frame | None:
    """The nearest agent above this one that is at work in the same run."""
    # A workflow is named like an agent and is none.
    above: ForeignAgent | None = getattr(agent, "parent_agent", None)
    while above is not None:
        for frame in reversed(turn.frames.values()):
            if frame.agent.name == above.name and not frame.over:
                return frame
        above = above.parent_agent
    return None


def _input(payload: Any, point: Point) -> str:
    given: Any = payload.get("input") if isinstance(payload, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] a hook made it
    if given is None:
        raise UsageError(f"the hooks at {point} left no 'input' in the payload")
    return as_text(plain(given))
