"""The built-in agent as a coding agent: our own loop with the ready tools in the workspace, one session an attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hookline.agent.sdk import Agent
from hookline.agent.tools import READY, Tool, bash_tool, ready_tool
from hookline.engine.hook import Hook
from hookline.engine.plain import as_text, plain
from hookline.engine.record import Journal, Record
from hookline.errors import RunEnded
from hookline.runners.local import LocalRunner
from hookline.symphony.agents import AgentPlace, AgentSession, TurnFailed
from hookline.symphony.agents.guard import inner_points
from hookline.symphony.settings import AgentSettings

SYSTEM = (
    "You work on one issue in a folder of its own. Look at the files, change what the issue asks for, check that it"
    " works, and say at the end what you did."
)


class BuiltinSession(AgentSession):
    """One conversation of the built-in agent, with these hooks around its work.

    Its shell has the environment of the place, and no other.
    """

    def __init__(
        self,
        place: AgentPlace,
        *,
        settings: AgentSettings,
        silence: float,
        hooks: Sequence[Hook] = (),
        journal: Journal | None = None,
    ) -> None:
        super().__init__(place, silence)
        self._hooks, self._journal = hooks, journal
        self._runner = LocalRunner()
        provider, _, model = settings.model.partition("/")
        self._agent = Agent(
            id="builtin",
            provider=provider,
            model=model,
            system_prompt=SYSTEM,
            tools=_tools(settings, self._runner, place.env),
            workspace=place.workspace,
        )

    async def close(self) -> None:
        await super().close()
        try:
            await self._agent.close()
        finally:
            await self._runner.close()

    async def _begin(self) -> None:
        self._agent.live_model()
        self._place.report("session_started", session_id=self.id)

    async def _run(self, prompt: str) -> str:
        inner = [(hook, inner_points(hook)) for hook in self._hooks]
        try:
            result = await self._agent.run(
                prompt,
                session_id=self.id,
                hooks=[replace(hook, points=points) for hook, points in inner if points],
                journal=self._journal,
                watch=[self._heard],
                workspace=self._place.workspace,
            )
        except RunEnded as exc:
            raise TurnFailed(str(exc), kind="turn_failed") from exc
        self._tokens += result.usage
        return as_text(plain(result.answer))

    def _heard(self, record: Record) -> None:
        self._alive()
        self._place.report("notification", type(record).__name__.lower())


def _tools(settings: AgentSettings, runner: LocalRunner, env: Mapping[str, str]) -> list[Tool]:
    """The agent's ready tools; the shell has an environment without the secrets of the tracker."""
    chosen = READY if settings.tools is None else settings.tools
    shell = bash_tool(runner, env, handed=settings.env)
    return [shell if name == "bash" else ready_tool(name) for name in chosen]
