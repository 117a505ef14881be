"""An A2A server for an agent: clients send messages over HTTP, and the hooks run as they do on a terminal.

The only module that imports the `a2a-sdk`. An A2A context is a session: it begins with its first message and ends when it
has been idle for a while or the server stops. An A2A task is a run: it fails if the run fails, and cancelling it cancels
the run, whose end hooks still run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from a2a.helpers import new_task, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
    TaskState,
)
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from starlette.applications import Starlette

from hookline import http_server
from hookline.agent.run import StreamResult
from hookline.agent.sdk import Agent
from hookline.agent.spec import AgentResult, Event
from hookline.engine.plain import as_text, plain
from hookline.errors import HooklineError, Refused, Skipped
from hookline.tasks import cancel_and_wait

logger = logging.getLogger("hookline.a2a")

IDLE = 1800.0
"""Seconds after which an idle session ends."""
ROOM = 1000
"""The largest number of open sessions; beyond it the least recently used one ends."""
_ANSWER = "answer"
_VERSIONS = ("1.0", "0.3")
_TEXT = "text/plain"
_BEARER = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer"))


def card(agent: Agent, url: str, *, token: bool = False) -> AgentCard:
    """The agent card that clients read; `token` if they have to send one."""
    about = agent.description or f"The agent {agent.id}."
    return AgentCard(
        name=agent.id,
        description=about,
        version="1",
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=version)
            for version in _VERSIONS
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=[_TEXT],
        default_output_modes=[_TEXT],
        skills=[AgentSkill(id=agent.id, name=agent.id, description=about, tags=["agent"])],
        security_schemes={"token": _BEARER} if token else {},
        security_requirements=[SecurityRequirement(schemes={"token": StringList()})] if token else [],
    )


@asynccontextmanager
async def serving(
    agent: Agent,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    url: str = "",
    idle: float = IDLE,
    run: Mapping[str, Any] | None = None,
    mask: Callable[[str], str] = str,
    token: str = "",
) -> AsyncGenerator[tuple[str, int]]:
    """Serves the agent while the block runs; yields URL and port. At its end all runs are cancelled and all sessions end.

    `run` holds further arguments of `Agent.stream`; `url` is the address clients use for this server.
    """
    listener = http_server.listen(host, port)
    bound = int(listener.getsockname()[1])
    here = url or f"http://{_shown(host)}:{bound}"
    store = InMemoryTaskStore()
    talks = _Sessions(agent, store, idle)
    executor = _Executor(agent, talks, dict(run or {}), mask)
    about = card(agent, here, token=bool(token))
    handler = DefaultRequestHandler(agent_executor=executor, task_store=store, agent_card=about)
    app = Starlette(
        routes=[
            *create_agent_card_routes(about),
            *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True),
        ]
    )
    names = {urlsplit(url).hostname or ""} if url else ()
    try:
        async with http_server.serving(
            app, listener, token=token, public=[AGENT_CARD_WELL_KNOWN_PATH], names=names
        ) as server:
            tidying = asyncio.ensure_future(talks.tidied())
            try:
                yield here, bound
            finally:
                server.should_exit = True
                await cancel_and_wait(tidying)
                await executor.close()
                await handler.aclose()
    finally:
        await agent.close()


@dataclass(slots=True)
class _SessionUse:
    """The use of one context: its number of active runs, and its tasks, which are deleted with it."""

    running: int = 0
    used: float = field(default_factory=time.monotonic)
    tasks: list[tuple[str, ServerCallContext]] = field(default_factory=list[tuple[str, ServerCallContext]])


class _Sessions:
    """The open contexts, each a session of the agent."""

    def __init__(self, agent: Agent, store: InMemoryTaskStore, idle: float) -> None:
        self._agent = agent
        self._store = store
        self._idle = idle
        self._known: dict[str, _SessionUse] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def used(self, context_id: str, task_id: str, call: ServerCallContext) -> AsyncGenerator[None]:
        """Marks a context as used while a message is answered; if it is just ending, waits and opens it again."""
        while (ending := self._ending.get(context_id)) is not None:
            await asyncio.wait({ending})
        talk = self._known.setdefault(context_id, _SessionUse())
        talk.running += 1
        talk.tasks.append((task_id, call))
        try:
            yield
        finally:
            talk.running -= 1
            talk.used = time.monotonic()

    async def tidied(self) -> None:
        """Ends idle sessions, in an endless loop."""
        while True:
            await asyncio.sleep(min(self._idle / 4, 30.0))
            for context_id in self._over():
                await self._ended(context_id)

    def _over(self) -> list[str]:
        at_rest = sorted(
            (talk.used, context_id) for context_id, talk in self._known.items() if not talk.running
        )
        too_many, long_ago = len(self._known) - ROOM, time.monotonic() - self._idle
        return [
            context_id
            for index, (used, context_id) in enumerate(at_rest)
            if index < too_many or used < long_ago
        ]

    async def _ended(self, context_id: str) -> None:
        talk = self._known[context_id]
        if talk.running:
            return
        del self._known[context_id]
        ending = self._ending[context_id] = asyncio.ensure_future(self._end(context_id, talk))
        ending.add_done_callback(lambda _: self._ending.pop(context_id, None))
        await asyncio.shield(ending)

    async def _end(self, context_id: str, talk: _SessionUse) -> None:
        try:
            await self._agent.close_session(context_id)
        except HooklineError as exc:
            logger.warning("%s: its session did not end well: %s", context_id, exc)
        for task_id, call in talk.tasks:
            await self._store.delete(task_id, call)


class _Executor(AgentExecutor):
    """Runs the agent for a message and reports its progress to A2A."""

    def __init__(
        self, agent: Agent, talks: _Sessions, run: Mapping[str, Any], mask: Callable[[str], str]
    ) -> None:
        self._agent = agent
        self._talks = talks
        self._run = run
        self._mask = mask
        self._running: dict[str, tuple[StreamResult, asyncio.Event]] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task_id, context_id = str(context.task_id), str(context.context_id)
        updater = TaskUpdater(event_queue, task_id, context_id)
        if context.current_task is None:
            history = [context.message] if context.message is not None else []
            task = new_task(task_id, context_id, TaskState.TASK_STATE_SUBMITTED, history=history)
            await event_queue.enqueue_event(task)
        text = context.get_user_input()
        if not text.strip():
            await updater.reject(_said(updater, "the message has no text, and the agent needs text"))
            return
        async with self._talks.used(context_id, task_id, context.call_context):
            await self._answered(text, updater)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancels the run; returns after its end hooks have run and its end was reported."""
        running = self._running.get(str(context.task_id))
        if running is not None:
            stream, over = running
            stream.cancel()
            await over.wait()

    async def close(self) -> None:
        """Cancels all runs and waits for their end hooks."""
        running = list(self._running.values())
        for stream, _ in running:
            stream.cancel()
        for _, over in running:
            await over.wait()

    async def _answered(self, text: str, updater: TaskUpdater) -> None:
        await updater.start_work()
        stream = self._agent.stream(text, session_id=updater.context_id, **self._run)
        over = asyncio.Event()
        self._running[updater.task_id] = (stream, over)
        try:
            await self._followed(stream, updater)
        except asyncio.CancelledError:
            stream.cancel()
            await _ended(stream)
            raise
        finally:
            del self._running[updater.task_id]
            over.set()

    async def _followed(self, stream: StreamResult, updater: TaskUpdater) -> None:
        begun = False
        async for event in stream.events:
            begun = await _passed_on(event, begun, updater)
        ending = await _ended(stream)
        if isinstance(ending, AgentResult):
            await _tell_answer(ending, updater)
        elif isinstance(ending, asyncio.CancelledError):
            await updater.cancel(_said(updater, "cancelled"))
        elif isinstance(ending, Skipped):
            await updater.complete(_said(updater, self._mask(f"skipped: {ending}"), ending.run_id))
        elif isinstance(ending, Refused):
            await updater.reject(_said(updater, self._mask(str(ending)), ending.run_id))
        elif isinstance(ending, HooklineError):
            await updater.failed(_said(updater, self._mask(str(ending)), getattr(ending, "run_id", None)))
        else:
            logger.error("%s: the run broke", updater.task_id, exc_info=ending)
            await updater.failed(_said(updater, self._mask(f"{type(ending).__name__}: {ending}")))


async def _passed_on(event: Event, begun: bool, updater: TaskUpdater) -> bool:
    """Reports one event of the run to A2A; True if the text of the current step has begun."""
    if event.type == "step_start":
        return False
    if event.type == "text_delta" and event.text:
        # The text of an earlier step is replaced: the answer is the text of the last step.
        await updater.add_artifact(
            [new_text_part(event.text)], artifact_id=_ANSWER, name=_ANSWER, append=begun
        )
        return True
    if event.type == "notice":
        await updater.update_status(TaskState.TASK_STATE_WORKING, _said(updater, event.text))
    return begun


async def _tell_answer(result: AgentResult, updater: TaskUpdater) -> None:
    """Reports the whole answer in place of its pieces, because end hooks may have changed it."""
    about = {
        "run_id": result.agent_run_id,
        "steps": result.total_steps,
        "tools": [
            {"tool": each.tool_name, "status": each.status, "error": plain(each.error)}
            for each in result.tool_results
        ],
    }
    await updater.add_artifact(
        [new_text_part(as_text(plain(result.answer)))],
        artifact_id=_ANSWER,
        name=_ANSWER,
        metadata={"hookline": about},
        append=False,
        last_chunk=True,
    )
    await updater.complete()


async def _ended(stream: StreamResult) -> AgentResult | BaseException:
    """The result or error of the run, after its end hooks; a second cancel does not cut the wait short."""
    while True:
        try:
            return await stream.result()
        except asyncio.CancelledError as exc:
            if stream.done:
                return exc
        except Exception as exc:  # the outermost loop: the error of a message is reported to its sender
            return exc


def _said(updater: TaskUpdater, text: str, run_id: str | None = None) -> Any:
    about = {"hookline": {"run_id": run_id}} if run_id else None
    return updater.new_agent_message([new_text_part(text)], metadata=about)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
