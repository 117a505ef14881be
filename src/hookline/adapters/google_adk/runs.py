"""Sessions and runs of ADK, and how the scopes of a run are entered and left."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hookline.agent.spec import HookCoverage, facts_of
from hookline.engine.context import AgentConfig, Facts, Step
from hookline.engine.lifecycle import OpenScope, Run
from hookline.engine.pipeline import Pipeline
from hookline.engine.point import Point, Scope, Status
from hookline.engine.result import HookAction, Outcome


class PausedCall(NamedTuple):
    """A call that is to come again: what its start hooks made of it, and the question, where that is ours."""

    tool: str
    args: dict[str, Any]
    outcome: Outcome
    pause: str
    question: str | None


@dataclass(slots=True, kw_only=True)
class AdkSession:
    """One session of ADK, as long as the plugin knows it.

    `rewritten`: a user's inputs with what hooks made of them; ADK keeps the original and shows it to us again.
    """

    id: str
    user_id: str
    scope: OpenScope | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    in_every_request: list[str] = field(default_factory=list[str])
    in_next_request: list[str] = field(default_factory=list[str])
    rewritten: dict[str, str] = field(default_factory=dict[str, str])
    paused: dict[str, PausedCall] = field(default_factory=dict[str, PausedCall])


@dataclass(slots=True, kw_only=True, eq=False)
class AdkRun:
    """One invocation: a run of a Runner, or what an AgentTool runs inside a tool call of an `outer` one.

    `parents`: the names of the agents above those of this run.
    `implied`: only an agent's callbacks are ours, and ADK has none there for the run.
    """

    invocation: Any
    run: Run
    pipeline: Pipeline
    session: AdkSession
    seen: HookCoverage
    root: str
    workspace: str | None
    implied: bool
    rewritten: dict[str, str]
    outer: AdkRun | None = None
    parents: tuple[str, ...] = ()
    scope: OpenScope = field(init=False)
    notices: list[str] = field(default_factory=list[str])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    result: str | None = None
    status: Status = Status.OK

    def __post_init__(self) -> None:
        if self.outer is None:
            self.scope = self.open(Scope.RUN, self.facts(self.invocation.agent), name=self.root)

    def inside(self, invocation: Any, call: OpenScope, parents: tuple[str, ...]) -> AdkRun:
        """The run of an AgentTool in a tool call: part of this one, with inputs of its own."""
        inner = replace(self, invocation=invocation, outer=self, parents=parents, rewritten={}, texts={})
        inner.scope = call
        return inner

    def facts(self, agent: Any, parents: tuple[str, ...] = ()) -> dict[str, Any]:
        """The facts that hold at every point of an agent. A workflow as the root is none, and goes by its app's name."""
        model = getattr(agent, "model", None)
        instruction = getattr(agent, "instruction", None)
        tools = (
            getattr(each, "name", None) or getattr(each, "__name__", "")
            for each in getattr(agent, "tools", None) or ()
        )
        config = AgentConfig(
            name=getattr(agent, "name", None) or self.root,
            provider="google-adk",
            model=model if isinstance(model, str) else str(getattr(model, "model", "")),
            tools=tuple(filter(None, tools)),
            system_prompt=instruction if isinstance(instruction, str) and instruction else None,
        )
        return facts_of(
            config,
            self.run,
            root=self.root,
            session_id=self.session.id,
            user_id=self.session.user_id,
            workspace=self.workspace,
            parents=parents,
            nested=self.outer is not None,
        )

    def open(
        self, scope: Scope, facts: dict[str, Any], *, name: str, parent: OpenScope | None = None
    ) -> OpenScope:
        """A scope of this run, not entered yet."""
        known = Facts(**facts, scope_id=self.run.next_id())
        return OpenScope(self.run, self.pipeline, scope, known, name=name, parent=parent)

    async def start(self, scope: OpenScope, payload: Any, *, hooks: bool = True, **record: Any) -> Outcome:
        """Enter a scope, without its start hooks where `hooks` is false; refused or failed, it is closed again."""
        pipeline = scope.pipeline
        if not hooks:
            without_hooks(scope)
        try:
            outcome = await scope.enter(payload, **record)
            scope.raise_if_over(outcome, Point.start_of(scope.scope))
        except BaseException as exc:
            await scope.left_after(exc)
            raise
        finally:
            scope.pipeline = pipeline
        self.notices.extend(outcome.tell_user)
        if outcome.action is HookAction.BLOCK:
            await scope.leave(None, Status.BLOCKED, error=outcome.reason)
        return outcome

    async def end(
        self, scope: OpenScope, output: Any, status: Status = Status.OK, steps: tuple[Step, ...] | None = None
    ) -> Outcome:
        """Leave a scope that came to an end by itself."""
        ending = await scope.left(output, status, steps)
        self.notices.extend(ending.tell_user)
        return ending


def without_hooks(scope: OpenScope) -> None:
    """Let a scope be on record only."""
    scope.pipeline = Pipeline((), scope.run.recorder)
