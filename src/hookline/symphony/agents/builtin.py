"""The built-in agent as a coding agent: our own loop with the ready tools in the workspace, one session an attempt."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hookline.agent.sdk import Agent
from hookline.agent.tools import READY, Tool, bash_tool, ready_tool
from hookline.engine.hook import Hook
from hookline.engine.plain import as_text, plain
from hookline.engine.point import Point, Scope
from hookline.engine.record import Journal, Record
from hookline.errors import RunEnded
from hookline.runners.local import LocalRunner
from hookline.symphony.agents import Place, Tokens, Told, TurnFailed
from hookline.symphony.agents.stall import unless_silent
from hookline.tasks import cancel_and_wait

SYSTEM = (
    "You work on one issue in a folder of its own. Look at the files, change what the issue asks for, check that it"
    " works, and say at the end what you did."
)
_OUTER = frozenset({Scope.WORKSPACE, Scope.RUN})


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinAgent:
    """A model (provider/name), the names of ready tools (None: all), and the hooks around its work."""

    model: str
    tools: tuple[str, ...] | None = None
    silence: float = 3600.0
    hooks: tuple[Hook, ...] = ()
    journal: Journal | None = None

    async def open(self, place: Place) -> BuiltinSession:
        session = BuiltinSession(self, place)
        try:
            session.agent.live_model()
        except BaseException as exc:
            await session.close()
            place.tell(Told(kind="startup_failed", text=str(exc)))
            raise
        place.tell(Told(kind="session_started", session_id=session.id))
        return session


class BuiltinSession:
    """One conversation of the built-in agent. Its shell has the environment of the place, and no other."""

    def __init__(self, settings: BuiltinAgent, place: Place) -> None:
        self.id = secrets.token_hex(6)
        self._settings = settings
        self._place = place
        self._runner = LocalRunner()
        self._going: asyncio.Task[str] | None = None
        self._tokens = Tokens()
        self._last = 0.0
        provider, _, model = settings.model.partition("/")
        self.agent = Agent(
            id="builtin",
            provider=provider,
            model=model,
            system_prompt=SYSTEM,
            tools=_tools(settings.tools, self._runner, place.env),
            workspace=place.workspace,
        )

    async def turn(self, prompt: str) -> str:
        self._last = asyncio.get_running_loop().time()
        self._going = asyncio.get_running_loop().create_task(self._taken(prompt))
        try:
            said = await unless_silent(self._going, lambda: self._last, self._settings.silence)
        except TurnFailed as exc:
            self._place.tell(Told(kind="turn_failed", text=str(exc)))
            raise
        self._place.tell(
            Told(kind="turn_completed", text=said[-500:], tokens=self._tokens, session_id=self.id)
        )
        return said

    async def close(self) -> None:
        if self._going is not None and not self._going.done():
            await cancel_and_wait(self._going, insist=True)
        try:
            await self.agent.close()
        finally:
            await self._runner.close()

    async def _taken(self, prompt: str) -> str:
        try:
            result = await self.agent.run(
                prompt,
                session_id=self.id,
                hooks=_inner(self._settings.hooks),
                journal=self._settings.journal,
                watch=[self._heard],
                workspace=self._place.workspace,
            )
        except RunEnded as exc:
            raise TurnFailed(str(exc), kind="turn_failed") from exc
        used, before = result.usage, self._tokens
        self._tokens = Tokens(
            input=before.input + used.input_tokens,
            output=before.output + used.output_tokens,
            total=before.total + used.total_tokens,
        )
        return as_text(plain(result.result))

    def _heard(self, record: Record) -> None:
        self._last = asyncio.get_running_loop().time()
        self._place.tell(Told(kind="notification", text=type(record).__name__.lower()))


def _inner(hooks: Iterable[Hook]) -> list[Hook]:
    """Hooks without the points of workspace and run, which the attempt itself has."""
    found: list[Hook] = []
    for hook in hooks:
        points = frozenset(
            point for point in hook.points if not (isinstance(point, Point) and point.scope in _OUTER)
        )
        if points:
            found.append(replace(hook, points=points))
    return found


def _tools(names: tuple[str, ...] | None, runner: LocalRunner, env: Mapping[str, str]) -> list[Tool]:
    """The ready tools of these names; the shell has an environment without the secrets of the tracker."""
    chosen = READY if names is None else names
    return [bash_tool(runner, env) if name == "bash" else ready_tool(name) for name in chosen]
