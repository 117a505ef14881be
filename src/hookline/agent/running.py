"""Running an agent: the run and session scopes around its work, the run's limit, and what the stream is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hookline.agent.answer import AgentResult, Event
from hookline.agent.loop import Inside, Loop, Message, Seen
from hookline.agent.spec import Spec
from hookline.context import Facts
from hookline.errors import Refused, RunEnded, RunTimedOut
from hookline.hook import Hook
from hookline.journal import Decided, Owner
from hookline.lifecycle import OpenScope, Run
from hookline.pipeline import Pipeline
from hookline.point import Point, Scope, Status
from hookline.result import HookAction, Outcome

__all__ = ["Running", "Session", "run_inside"]


@dataclass(slots=True)
class Session:
    """A conversation that may outlive its runs. One that `lasts` is closed by whoever keeps it."""

    id: str
    lasts: bool = False
    messages: list[Message] = field(default_factory=list[Message])
    told: tuple[str, ...] = ()
    scope: OpenScope | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def close(self, status: Status = Status.OK) -> None:
        """Run the session's end hooks, once."""
        scope, self.scope = self.scope, None
        if scope is not None:
            await scope.left({"messages": self.messages}, status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One run of one agent, from its declaration to its answer."""

    spec: Spec
    run: Run
    session: Session
    hooks: tuple[Hook, ...] = ()
    user_id: str | None = None
    workspace: str | None = None
    attempt: int = 1
    timeout: float | None = None
    streaming: bool = False
    emit: Callable[[Event], None] | None = None
    provider_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    declaration: dict[str, Any] | None = None
    source: str | None = None
    owner: Owner | None = None
    seen: Seen = field(default_factory=Seen)

    async def answer(self, given: Any) -> AgentResult:
        """The agent's answer, or a RunEnded that says why there is none."""
        try:
            result = await self._in_run(given)
        except BaseException as exc:
            if isinstance(exc, RunEnded):
                exc.run_id = self.run.id
            self._tell("agent_error", str(exc) or type(exc).__name__)
            raise
        self._tell("agent_finish")
        return result

    async def _in_run(self, given: Any) -> AgentResult:
        pipeline = Pipeline((*self.hooks, *self.spec.hooks), self.run.recorder, self.seen.matched)
        scope = OpenScope(self.run, pipeline, Scope.RUN, self._facts(), name=self.spec.id)

        async def body(outcome: Outcome) -> AgentResult:
            limit = self.run.limit = asyncio.timeout(self.timeout)
            try:
                async with limit:
                    return await self._in_session(scope, pipeline, outcome)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise RunTimedOut(f"the run passed its limit of {self.timeout:g} s") from None
            finally:
                self._say_what_matched_nothing(pipeline)

        ending = await scope.around(
            {"input": given},
            body,
            declaration=self.declaration,
            source=self.source,
            owner=self.owner,
        )
        return _refused_or(ending, Point.RUN_START)

    async def _in_session(self, parent: OpenScope, pipeline: Pipeline, before: Outcome) -> AgentResult:
        session = self.session
        async with session.turn:
            if session.lasts:
                if session.scope is None:
                    await self._open(session, parent, pipeline)
                return await self._work(parent, before)
            scope = OpenScope(
                self.run, pipeline, Scope.SESSION, self._facts(), name=session.id, parent=parent
            )

            async def body(outcome: Outcome) -> AgentResult:
                session.told = outcome.tell_model
                return await self._work(scope, before)

            ending = await scope.around({"session_id": session.id}, body)
            return _refused_or(ending, Point.SESSION_START)

    async def _open(self, session: Session, parent: OpenScope, pipeline: Pipeline) -> None:
        scope = OpenScope(self.run, pipeline, Scope.SESSION, self._facts(), name=session.id, parent=parent)
        try:
            outcome = await scope.enter({"session_id": session.id})
            scope.raise_if_over(outcome, Point.SESSION_START)
        except BaseException as exc:
            await scope.left_after(exc)
            raise
        session.scope, session.told = scope, outcome.tell_model

    async def _work(self, parent: OpenScope, before: Outcome) -> AgentResult:
        session = self.session
        inside = Inside(
            run=self.run,
            hooks=self.hooks,
            scope=parent,
            parents=(),
            workspace=self.workspace,
            session_id=session.id,
            user_id=self.user_id,
            seen=self.seen,
            attempt=self.attempt,
            root_workflow_id=self.spec.id,
        )
        told = (*session.told, *before.tell_model)
        history = [*session.messages, *({"role": "user", "content": text} for text in told)]
        session.told = ()
        loop = Loop(
            self.spec,
            inside,
            history=history,
            streaming=self.streaming,
            emit=self.emit,
            provider_kwargs=self.provider_kwargs,
        )
        result = await loop.answer(before.payload.get("input"))
        session.messages = loop.messages
        return result

    def _facts(self) -> Facts:
        run, spec, session = self.run, self.spec, self.session
        return Facts(
            workflow_id=spec.id,
            run_id=run.id,
            scope_id=run.next_id(),
            attempt=self.attempt,
            agent=spec.id,
            session_id=session.id,
            user_id=self.user_id,
            agent_config=spec.config(self.provider_kwargs),
            workflow=spec.workflow(
                run_id=run.id,
                root=spec.id,
                session_id=session.id,
                user_id=self.user_id,
                attempt=self.attempt,
                workspace=self.workspace,
                state=run.state,
            ),
        )

    def _say_what_matched_nothing(self, pipeline: Pipeline) -> None:
        """A guard whose match fits no call is as good as none; better said in the run than found out after."""
        if not self.run.recorder.on or not self.seen.tools:
            return
        called = ", ".join(sorted(self.seen.tools))
        for hook in pipeline.hooks:
            if hook.match is not None and hook.name not in self.seen.matched:
                note = (
                    f"hook {hook.name}: match {hook.match_text!r} fitted no tool call of this run ({called})"
                )
                self.run.recorder.note(
                    Decided(
                        self.run.id, "", Point.RUN_END, time.time(), HookAction.CONTINUE, (), None, None, note
                    )
                )

    def _tell(self, type: str, text: str = "") -> None:
        if self.emit is not None:
            self.emit(Event(type=type, agent=self.spec.id, text=text, data={"run_id": self.run.id}))


async def run_inside(
    spec: Spec, inside: Inside, given: Any, provider_kwargs: Mapping[str, Any]
) -> AgentResult:
    """An agent started from within another's tool: part of that run, under its hooks, with its own besides."""
    loop = Loop(spec, inside, history=(), streaming=False, emit=None, provider_kwargs=provider_kwargs)
    return await loop.answer(given)


def _refused_or(ending: Outcome, point: Point) -> AgentResult:
    if ending.action is HookAction.BLOCK:
        raise Refused(ending.reason or "refused", point=point, hook=ending.hook)
    return ending.output
