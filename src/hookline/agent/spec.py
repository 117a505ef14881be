"""An agent as the loop needs it, with live model, tools and hooks; the run that it is part of, and its result."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from hookline.agent.models import Model, OutputSchema
from hookline.agent.stop import StopCondition, max_steps
from hookline.agent.tools import Tool
from hookline.engine.context import AgentConfig, Facts, Step, ToolResult, Usage, WorkflowContext
from hookline.engine.hook import Hook, HookDeclaration, Mode
from hookline.engine.lifecycle import OpenScope, Run
from hookline.engine.pipeline import Pipeline
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Decided
from hookline.engine.result import HookAction, Outcome
from hookline.errors import Refused

if TYPE_CHECKING:
    from hookline.journal.session import SessionFiles


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

    def configured(self, arguments: RunArguments) -> AgentConfig:
        """Its configuration in one run."""
        kwargs = dict(arguments.provider_kwargs)
        return replace(self.config, tools=tuple(self.tools), provider_kwargs=kwargs)

    def conditions(self) -> tuple[StopCondition, ...]:
        """The stop conditions, with a default limit of steps if they have none."""
        if any(each.name == max_steps.name for each in self.stop_conditions):
            return self.stop_conditions
        return (*self.stop_conditions, max_steps())


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
    files: SessionFiles | None = None
    seen: HookCoverage = field(default_factory=HookCoverage)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])

    def facts(self, config: AgentConfig) -> dict[str, Any]:
        """The facts common to all points of an agent in this run, with the context for its hooks and tools."""
        run = self.run
        nested = self.scope is not None and self.scope.scope is Scope.TOOL
        workflow = WorkflowContext(
            workflow_id=config.name,
            execution_id=run.id,
            session_id=self.session_id,
            user_id=self.user_id,
            parent_execution_id=run.id if nested else None,
            root_execution_id=run.id,
            root_workflow_id=self.root_workflow_id,
            created_at=time.time(),
            workspace=self.workspace,
            state=run.state,
            agent_id=config.name,
            provider=config.provider,
            model=config.model,
            system_prompt=config.system_prompt,
            tools=config.tools,
            transcript=self.files.transcript if self.files is not None else None,
            env_file=self.files.variables if self.files is not None else None,
        )
        return {
            "workflow_id": config.name,
            "run_id": run.id,
            "agent": config.name,
            "parents": self.parents,
            "session_id": self.session_id,
            "user_id": self.user_id,
            "agent_config": config,
            "workflow": workflow,
        }


CURRENT_RUN: ContextVar[CurrentRun | None] = ContextVar("hookline_inside", default=None)
"""Set inside a tool: an agent that is started there becomes part of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArguments:
    """The arguments of one run of an agent. `emit` is called with its events, if it is a stream."""

    hooks: tuple[Hook, ...] = ()
    timeout: float | None = None
    provider_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    emit: Callable[[Event], None] | None = None

    def tell(self, type: str, agent: str, text: str = "", **data: Any) -> None:
        """Emits an event of an agent, if this is a stream."""
        if self.emit is not None:
            self.emit(Event(type=type, agent=agent, text=text, data=data))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """An agent's answer to one input. `stopped_by` names the condition that ended it early, if one did."""

    agent_run_id: str
    result: Any
    tool_results: tuple[ToolResult, ...] = ()
    total_steps: int = 0
    usage: Usage = Usage()
    result_schema: str | None = None
    session_id: str | None = None
    stopped_by: str | None = None
    notices: tuple[str, ...] = ()

    @property
    def answer(self) -> Any:
        """The result; where a stop condition left none, a sentence that says so, for one who reads nothing else."""
        if self.result is None and self.stopped_by:
            return f"there is no answer: the agent was stopped by {self.stopped_by}"
        return self.result

    @classmethod
    def model_validate(cls, value: Mapping[str, Any]) -> AgentResult:
        """Rebuilds a result from the plain form that hooks read and change."""
        given = dict(value)
        given["tool_results"] = tuple(ToolResult(**item) for item in given.get("tool_results") or ())
        given["usage"] = Usage(**cast("dict[str, int]", given.get("usage") or {}))
        given["notices"] = tuple(given.get("notices") or ())
        return cls(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a stream.

    `type`: agent_start, step_start, text_delta, tool_call, tool_start, tool_finish, notice, agent_finish,
    agent_error. The last event of a stream is always one of the last two.
    """

    type: str
    agent: str
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


_REFUSED = {
    Point.STEP_START: ("the step", 3, "This step was refused: {}"),
    Point.MODEL_START: ("the call of the model", 3, "This request was refused: {}. Answer again."),
    Point.MODEL_END: ("the model's answer", 3, "Your answer was refused: {}. Answer again."),
}
"""For each point the thing refused, how often that may be in a row before the run is refused, and the text for the model."""


class AgentContext:
    """One agent at work on one input: opens its scopes, and reports its events and notices.

    The hooks of the run come first, after them the agent's own.
    """

    def __init__(
        self, config: AgentConfig, inside: CurrentRun, arguments: RunArguments, own: tuple[Hook, ...] = ()
    ) -> None:
        self.config = config
        self.inside = inside
        self.run = inside.run
        self.pipeline = Pipeline((*inside.hooks, *own), inside.run.recorder, inside.seen.matched)
        inside.seen.hooks.update((hook.name, hook) for hook in self.pipeline.matching)
        self.steps: list[Step] = []
        self.notices: list[str] = []
        self.refusals: Counter[Scope] = Counter()
        self.arguments = arguments
        self._facts = inside.facts(config)
        self.workflow: WorkflowContext = self._facts["workflow"]

    def open(
        self, scope: Scope, parent: OpenScope | None, name: str, *, hooks: bool = True, **facts: Any
    ) -> OpenScope:
        """A scope inside another, with further facts of its own; `hooks` is False for one that is only recorded."""
        facts.setdefault("step", parent.facts.step if parent is not None else None)
        known = Facts(**self._facts, **facts, scope_id=self.run.next_id())
        pipeline = self.pipeline if hooks else self.no_hooks
        return OpenScope(self.run, pipeline, scope, known, name, parent, self.steps)

    def open_call(
        self, parent: OpenScope, tool: str, kind: str | None, call_id: str | None, *, runs: bool
    ) -> OpenScope:
        """The scope of a tool call; one that cannot run is only recorded."""
        if runs:
            self.inside.seen.tools[tool] = kind
        return self.open(
            Scope.TOOL, parent, tool, hooks=runs, current_tool=tool, tool_kind=kind, call_id=call_id
        )

    def agent_payload(self, given: Any, *, streaming: bool) -> dict[str, Any]:
        """The payload of `agent.start`."""
        kwargs = dict(self.arguments.provider_kwargs)
        return {"input": given, "prompt": given, "streaming": streaming, "provider_kwargs": kwargs}

    def inside_of(self, scope: OpenScope | None) -> CurrentRun:
        """The run for the agents that this one starts, in a scope of its own."""
        parents = (*self.inside.parents, self.config.name)
        return replace(self.inside, scope=scope, parents=parents, note=self.notice)

    @property
    def no_hooks(self) -> Pipeline:
        """The pipeline of a scope, or of one end of it, that is only recorded."""
        return Pipeline((), self.run.recorder)

    async def enter(self, scope: OpenScope, payload: Any, **record: Any) -> Outcome:
        """Enters a scope that is left elsewhere; one that hooks refuse, skip or fail is closed again."""
        outcome = await scope.start(payload, **record)
        self.note(outcome)
        return outcome

    async def leave(self, scope: OpenScope, output: Any, status: Status = Status.OK) -> Outcome:
        """Leaves a scope that came to an end by itself."""
        ending = await scope.left(output, status)
        self.note(ending)
        return ending

    def result_of(self, result: Any, **more: Any) -> AgentResult:
        """The result with the steps so far."""
        found = tuple(found for step in self.steps for found in step.tool_results)
        known: dict[str, Any] = {"tool_results": found, **more}
        return AgentResult(
            agent_run_id=self.run.id,
            result=result,
            total_steps=len(self.steps),
            usage=sum((step.usage for step in self.steps), Usage()),
            session_id=self.inside.session_id,
            **known,
        )

    def answer_of(self, scope: OpenScope, ending: Outcome) -> AgentResult:
        """The answer after the hooks of a scope; a bare value from a hook replaces its result."""
        if ending.action is HookAction.BLOCK:
            raise Refused(ending.reason or "refused", point=scope.scope.start, hook=ending.hook)
        if isinstance(ending.output, AgentResult):
            return ending.output
        found = scope.output if isinstance(scope.output, AgentResult) else self.result_of(None)
        return replace(found, result=ending.output)

    def refusal(self, refused: Outcome, point: Point) -> str:
        """The text for the model after a refusal; raises after too many in a row."""
        what, most, text = _REFUSED[point]
        self.refusals[point.scope] += 1
        if self.refusals[point.scope] > most:
            told = f"{what} was refused {most} times, last: {refused.reason}"
            raise Refused(told, point=point, hook=refused.hook)
        return text.format(refused.reason)

    def may_change(self, point: Point) -> bool:
        """True if a hook at the point may change or refuse what it is given."""
        return any(hook.mode is Mode.ENFORCE for hook in self.pipeline.at(point))

    def note(self, outcome: Outcome) -> None:
        """Reports what hooks tell the user."""
        for text in outcome.tell_user:
            self.notice(self.config.name, text)

    def notice(self, agent: str, text: str) -> None:
        self.notices.append(text)
        self.inside.note(agent, text)

    def tell(self, type: str, *, text: str = "", **data: Any) -> None:
        """Emits an event of this agent."""
        self.arguments.tell(type, self.config.name, text, **data)
