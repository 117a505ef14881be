"""An agent as the loop needs it, with live model, tools and hooks; and the run that it is part of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hookline.agent.models import Model
from hookline.agent.output import Event, OutputSchema
from hookline.agent.stop import MaxStepsConfig, StopCondition, max_steps
from hookline.agent.tools import Tool
from hookline.engine.context import AgentConfig, Facts, Step, WorkflowContext
from hookline.engine.hook import Hook, HookDeclaration, Mode
from hookline.engine.lifecycle import Approver, OpenScope, Run
from hookline.engine.pipeline import Pipeline
from hookline.engine.point import Point, Scope
from hookline.engine.record import Decided, Journal, Owner, Record
from hookline.engine.result import HookAction, Outcome
from hookline.errors import UsageError

DEFAULT_MAX_STEPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One agent: configuration, model, tools, hooks, stop conditions. `listed` returns the current tools of its servers."""

    config: AgentConfig
    model: Model
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    hooks: tuple[Hook, ...] = ()
    stop_conditions: tuple[StopCondition, ...] = ()
    output: OutputSchema | None = None
    listed: Callable[[], Awaitable[Mapping[str, Tool]]] | None = None

    @property
    def id(self) -> str:
        return self.config.name

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


def hook_declaration(hook: Hook) -> HookDeclaration:
    """The declaration of a live hook, for the record of a run."""
    return HookDeclaration(
        name=hook.name,
        points=tuple(sorted(hook.points)),
        kind=hook.kind,
        match=hook.match_text,
        timeout=hook.timeout,
        on_error=hook.on_error,
        mode=hook.mode,
        source=hook.source,
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
    """The run, scope and settings that an agent works in, also one that is started inside a tool."""

    run: Run
    root_workflow_id: str
    note: Callable[[str, str], None]
    hooks: tuple[Hook, ...] = ()
    scope: OpenScope | None = None
    parents: tuple[str, ...] = ()
    workspace: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    seen: HookCoverage = field(default_factory=HookCoverage)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])

    def facts(self, config: AgentConfig) -> dict[str, Any]:
        """The facts common to all points of an agent in this run."""
        return facts_of(
            config,
            self.run,
            root=self.root_workflow_id,
            session_id=self.session_id,
            user_id=self.user_id,
            workspace=self.workspace,
            parents=self.parents,
            nested=bool(self.parents),
        )


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
        "agent": config.name,
        "parents": parents,
        "session_id": session_id,
        "user_id": user_id,
        "agent_config": config,
        "workflow": workflow,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArguments:
    """The arguments of one run of an agent. `emit` is called with its events, if it is a stream."""

    hooks: tuple[Hook, ...] = ()
    timeout: float | None = None
    provider_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    emit: Callable[[Event], None] | None = None
    session_id: str | None = None
    user_id: str | None = None
    journal: Journal | None = None
    watch: Iterable[Callable[[Record], None]] = ()
    approver: Approver | None = None
    workspace: str | Path | None = None
    run_id: str | None = None
    source: str | None = None
    owner: Owner | None = None

    def check_nested(self, agent: str) -> None:
        """Raises if an agent inside another's tool is given what it takes from the run it is part of."""
        own = ("hooks", "timeout", "provider_kwargs", "emit")
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in own}
        named = [name for name, value in given.items() if value not in (None, ())]
        if named:
            raise UsageError(
                f"agent {agent!r} is run inside another's tool, so {', '.join(named)} cannot be given:"
                " it is part of that run, its session and its record"
            )


class AgentContext:
    """One agent at work on one input: opens its scopes, and reports its events and notices."""

    def __init__(
        self,
        spec: Spec,
        inside: CurrentRun,
        arguments: RunArguments,
        pipeline: Pipeline | None = None,
    ) -> None:
        self.spec = spec
        self.inside = inside
        self.run = inside.run
        hooks = (*inside.hooks, *spec.hooks)
        self.pipeline = pipeline or Pipeline(hooks, self.run.recorder, inside.seen.matched)
        self.steps: list[Step] = []
        self.notices: list[str] = []
        self._emit = arguments.emit
        self.config = replace(
            spec.config, tools=tuple(spec.tools), provider_kwargs=dict(arguments.provider_kwargs)
        )
        self._facts = inside.facts(self.config)
        self.workflow: WorkflowContext = self._facts["workflow"]

    def scope(
        self, scope: Scope, parent: OpenScope | None, name: str, *, hooks: bool = True, **facts: Any
    ) -> OpenScope:
        """A scope inside another, with further facts of its own; `hooks` is False for a call that cannot run."""
        facts.setdefault("step", parent.facts.step if parent is not None else None)
        known = Facts(**self._facts, **facts, scope_id=self.run.next_id(), steps=tuple(self.steps))
        pipeline = self.pipeline if hooks else Pipeline((), self.run.recorder)
        return OpenScope(self.run, pipeline, scope, known, name=name, parent=parent)

    def may_change(self, point: Point) -> bool:
        """True if a hook at the point may change or refuse what it is given."""
        return any(hook.mode is Mode.ENFORCE for hook in self.pipeline.at(point))

    def note(self, outcome: Outcome) -> None:
        """Reports what hooks tell the user."""
        for text in outcome.tell_user:
            self.notice(self.spec.id, text)

    def notice(self, agent: str, text: str) -> None:
        self.notices.append(text)
        self.inside.note(agent, text)

    def tell(self, type: str, *, text: str = "", **data: Any) -> None:
        """Emits an event, if this is a stream."""
        if self._emit is not None:
            self._emit(Event(type=type, agent=self.spec.id, text=text, data=data))
