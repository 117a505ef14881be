"""An agent as the loop needs it, with live model, tools and hooks; and the run that it is part of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from hookline.agent.models import Model
from hookline.agent.output import OutputSchema
from hookline.agent.stop import MaxStepsConfig, StopCondition, max_steps
from hookline.agent.tools import Tool
from hookline.engine.context import AgentConfig, Facts, WorkflowContext
from hookline.engine.hook import Hook
from hookline.engine.lifecycle import OpenScope, Run
from hookline.engine.point import Point
from hookline.engine.record import Decided
from hookline.engine.result import HookAction

DEFAULT_MAX_STEPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One agent: model, tools, hooks, stop conditions. `listed` returns the current tools of its MCP servers."""

    id: str
    model: Model
    system_prompt: str | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    hooks: tuple[Hook, ...] = ()
    stop_conditions: tuple[StopCondition, ...] = ()
    output: OutputSchema | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    provider_base_url: str | None = None
    listed: Callable[[], Awaitable[Mapping[str, Tool]]] | None = None

    async def whole(self) -> Spec:
        """The spec with the tools of its servers, which are requested here."""
        if self.listed is None:
            return self
        return replace(self, tools={**self.tools, **await self.listed()}, listed=None)

    def conditions(self) -> tuple[StopCondition, ...]:
        """The stop conditions, with a default limit of steps if they have none."""
        if any(each.name == max_steps.name for each in self.stop_conditions):
            return self.stop_conditions
        return (*self.stop_conditions, max_steps(MaxStepsConfig(count=DEFAULT_MAX_STEPS)))

    def config(self, provider_kwargs: Mapping[str, Any]) -> AgentConfig:
        """The agent's configuration, for hooks to read."""
        return AgentConfig(
            name=self.id,
            provider=self.model.provider,
            model=self.model.name,
            tools=tuple(self.tools),
            system_prompt=self.system_prompt,
            temperature=self.temperature,
            top_p=self.top_p,
            max_output_tokens=self.max_output_tokens,
            provider_base_url=self.provider_base_url,
            provider_kwargs=dict(provider_kwargs),
            output_schema_name=self.output.name if self.output else None,
        )


@dataclass(frozen=True, slots=True)
class HookCoverage:
    """The hooks of a run's agents, the names of those whose match fitted, and the tools called with their kinds."""

    hooks: dict[str, Hook] = field(default_factory=dict[str, Hook])
    matched: set[str] = field(default_factory=set[str])
    tools: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def note_unmatched(self, run: Run, workflow_id: str) -> None:
        """Records each hook whose match fitted no tool call: such a guard protects nothing."""
        if not run.recorder.on or not self.tools:
            return
        called = ", ".join(sorted(self.tools))
        # An earlier hook may have ended the walk, so a hook that was never called may still fit.
        calls = [Facts(workflow_id, current_tool=name, tool_kind=kind) for name, kind in self.tools.items()]
        for hook in self.hooks.values():
            if hook.match is None or hook.name in self.matched or any(map(hook.match, calls)):
                continue
            note = f"hook {hook.name}: match {hook.match_text!r} fitted no tool call of this run ({called})"
            run.recorder.note(Decided(run.id, "", Point.RUN_END, time.time(), HookAction.CONTINUE, note=note))


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRun:
    """The run, scope and settings that an agent started inside a tool belongs to."""

    run: Run
    hooks: tuple[Hook, ...]
    scope: OpenScope
    parents: tuple[str, ...]
    workspace: str | None
    session_id: str | None
    user_id: str | None
    seen: HookCoverage
    attempt: int
    root_workflow_id: str
    note: Callable[[str, str], None]
    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])


CURRENT_RUN: ContextVar[CurrentRun | None] = ContextVar("hookline_inside", default=None)
"""Set inside a tool: an agent that is started there becomes part of the run."""


def facts_of(
    config: AgentConfig,
    run: Run,
    *,
    root: str,
    session_id: str | None,
    user_id: str | None,
    workspace: str | None,
    attempt: int = 1,
    parents: tuple[str, ...] = (),
    nested: bool = False,
) -> dict[str, Any]:
    """The facts common to all points of one agent, including the context of its execution for hooks and tools."""
    workflow = WorkflowContext(
        workflow_id=config.name,
        execution_id=run.id,
        session_id=session_id,
        user_id=user_id,
        parent_execution_id=run.id if nested else None,
        root_execution_id=run.id,
        root_workflow_id=root,
        retry_count=attempt - 1,
        created_at=time.time(),
        workspace=workspace,
        state=run.state,
        agent_id=config.name,
        provider=config.provider,
        model=config.model,
        system_prompt=config.system_prompt,
        tools=config.tools,
    )
    return {
        "workflow_id": config.name,
        "run_id": run.id,
        "attempt": attempt,
        "agent": config.name,
        "parents": parents,
        "session_id": session_id,
        "user_id": user_id,
        "agent_config": config,
        "workflow": workflow,
    }
