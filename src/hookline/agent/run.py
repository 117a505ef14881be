"""The execution of an agent: run and session scopes, the run's time limit, and the stream of its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hookline.agent.loop import Loop
from hookline.agent.models import Message, mapping, text_message
from hookline.agent.spec import (
    CURRENT_RUN,
    AgentContext,
    AgentResult,
    CurrentRun,
    Event,
    RunArguments,
    Spec,
)
from hookline.agent.tools import ToolTimedOut
from hookline.engine.lifecycle import OpenScope, Run
from hookline.engine.point import Point, Scope
from hookline.engine.result import Outcome
from hookline.errors import RunEnded, RunTimedOut

if TYPE_CHECKING:
    from hookline.journal.session import SessionFiles

_READERS = ("command", "shell", "http")
"""The kinds of hooks that are given the path of the transcript."""


@dataclass(slots=True)
class Session:
    """A conversation, which may outlive a run. One that `lasts` is closed by its owner."""

    id: str
    lasts: bool = False
    messages: list[Message] = field(default_factory=list[Message])
    hook_texts: tuple[str, ...] = ()
    scope: OpenScope | None = None
    files: SessionFiles | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def close(self) -> None:
        """Runs the session's end hooks, once."""
        async with self.turn:
            scope, self.scope = self.scope, None
            if scope is not None:
                await scope.left({"messages": self.messages})


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentExecution:
    """One run of one agent, up to its answer. `recorded` are further fields of its record."""

    spec: Spec
    run: Run
    session: Session
    arguments: RunArguments = RunArguments()
    workspace: str | None = None
    user_id: str | None = None
    recorded: Mapping[str, Any] = field(default_factory=dict[str, Any])

    async def answer(self, given: Any) -> AgentResult:
        """The agent's answer, or a RunEnded that says why there is none."""
        with _reported(self.arguments, self.spec.id, self.run.id):
            try:
                return await self._in_run(given)
            except RunEnded as exc:
                exc.run_id = self.run.id
                raise

    async def _in_run(self, given: Any) -> AgentResult:
        context, timeout = self._context(), self.arguments.timeout
        scope = context.open(Scope.RUN, None, self.spec.id)

        async def body(outcome: Outcome) -> AgentResult:
            context.note(outcome)
            limit = self.run.limit = asyncio.timeout(timeout)
            try:
                async with limit:
                    return await self._in_session(context, scope, outcome)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise RunTimedOut(f"the run passed its limit of {timeout:g} s") from None
            finally:
                context.inside.seen.note_unmatched(self.run, self.spec.id)

        ending = await scope.around({"input": given}, body, **self.recorded)
        context.note(ending)
        if self.session.lasts:
            self.session.hook_texts = (*self.session.hook_texts, *ending.tell_model)
        result = context.answer_of(scope, ending)
        return replace(result, notices=tuple(context.notices))

    def _files(self) -> SessionFiles | None:
        """The files of the session, made where a command hook is there to read them."""
        made = getattr(self.run.recorder.journal, "session_files", None)
        hooks = (*self.arguments.hooks, *self.spec.hooks)
        if self.session.files is None and made and any(hook.kind in _READERS for hook in hooks):
            self.session.files = made(self.run.id)
        return self.session.files

    def _context(self) -> AgentContext:
        inside = CurrentRun(
            run=self.run,
            root_workflow_id=self.spec.id,
            note=partial(self.arguments.tell, "notice"),
            hooks=self.arguments.hooks,
            workspace=self.workspace,
            session_id=self.session.id,
            user_id=self.user_id,
            files=self._files(),
        )
        return AgentContext(self.spec.configured(self.arguments), inside, self.arguments, self.spec.hooks)

    async def _in_session(self, context: AgentContext, parent: OpenScope, before: Outcome) -> AgentResult:
        session = self.session
        async with session.turn:
            if session.scope is not None:
                return await self._work(context, parent, before)
            scope = context.open(Scope.SESSION, parent, session.id)
            if session.lasts:
                opened = await context.enter(scope, {"session_id": session.id})
                session.scope, session.hook_texts = scope, opened.tell_model
                return await self._work(context, parent, before)

            async def body(outcome: Outcome) -> AgentResult:
                context.note(outcome)
                session.hook_texts = outcome.tell_model
                return await self._work(context, scope, before)

            ending = await scope.around({"session_id": session.id}, body)
            context.note(ending)
            return context.answer_of(scope, ending)

    async def _work(self, context: AgentContext, parent: OpenScope, before: Outcome) -> AgentResult:
        session = self.session
        spec = await self.spec.whole()
        told = (*session.hook_texts, *before.tell_model)
        history = [*session.messages, *(text_message("user", text) for text in told)]
        session.hook_texts = ()
        inside = replace(context.inside, scope=parent, note=context.notice)
        loop = Loop(spec, inside, self.arguments, history)
        result = await loop.answer(mapping(before.payload, Point.RUN_START).get("input"))
        session.messages = loop.messages
        return result


async def answer_inside(
    inside: CurrentRun, spec: Spec, arguments: RunArguments, given: Any, *, in_task: bool = False
) -> AgentResult:
    """The answer of an agent started inside another agent's tool: part of that run, under its hooks and its own.

    It always runs on the run's event loop, which the run's journal and hooks need, even if the tool runs in a
    thread with a loop of its own. With `in_task` it runs in a task other than the tool's, which is cancelled when the
    tool ends.
    """
    here = asyncio.get_running_loop()
    if here is not inside.loop:
        if arguments.emit is not None:
            arguments = replace(arguments, emit=partial(_hand_over, here, arguments.emit))
        there = answer_inside(inside, spec, arguments, given, in_task=True)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(there, inside.loop))
    task = asyncio.current_task()
    if in_task and task is not None:
        inside.tasks.add(task)
    # Only tools nest: an agent that a hook calls is a run of its own.
    place = CURRENT_RUN.set(None)
    limit = asyncio.timeout(arguments.timeout)
    try:
        with _reported(arguments, spec.id, inside.run.id):
            try:
                async with limit:
                    inside = replace(inside, hooks=(*inside.hooks, *arguments.hooks))
                    return await Loop(await spec.whole(), inside, arguments).answer(given)
            except TimeoutError:
                if not limit.expired():
                    raise
                # The tool fails, not the run.
                inside.run.resume()
                told = f"the agent {spec.id} ran past its limit of {arguments.timeout:g} s"
                raise ToolTimedOut(told) from None
    finally:
        CURRENT_RUN.reset(place)


@contextmanager
def _reported(arguments: RunArguments, agent: str, run_id: str) -> Generator[None]:
    """Emits the last event of a stream: agent_finish, or agent_error if the block raises."""
    try:
        yield
    except BaseException as exc:
        arguments.tell("agent_error", agent, str(exc) or type(exc).__name__, run_id=run_id)
        raise
    arguments.tell("agent_finish", agent, run_id=run_id)


def _hand_over(loop: asyncio.AbstractEventLoop, emit: Callable[[Event], None], event: Event) -> None:
    """Calls `emit` on the event loop of the stream's reader."""
    try:
        loop.call_soon_threadsafe(emit, event)
    except RuntimeError:
        pass  # that loop is closed; nobody reads any more


class StreamResult:
    """A run in progress. Iterate `events` or `text_chunks`, or await `text()` or `result()`."""

    def __init__(self, run: Callable[[Callable[[Event], None]], Coroutine[Any, Any, AgentResult]]) -> None:
        """Starts a run, which is given the function to call with each event."""
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task = asyncio.ensure_future(run(self._queue.put_nowait))
        self._task.add_done_callback(lambda _: self._queue.put_nowait(None))

    @property
    async def events(self) -> AsyncIterator[Event]:
        while (event := await self._queue.get()) is not None:
            yield event
        self._queue.put_nowait(None)
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # reported by the last event

    @property
    async def text_chunks(self) -> AsyncIterator[str]:
        async for event in self.events:
            if event.type == "text_delta":
                yield event.text
        if not self._task.cancelled():
            await self._task

    async def text(self) -> str:
        """The whole text; raises if the run failed, so that a partial answer is not taken for a whole one."""
        return "".join([piece async for piece in self.text_chunks])

    async def result(self) -> AgentResult:
        return await asyncio.shield(self._task)

    @property
    def done(self) -> bool:
        """True if the run and its end hooks are over."""
        return self._task.done()

    def cancel(self) -> None:
        """Cancels the run; its end hooks still run."""
        self._task.cancel()
