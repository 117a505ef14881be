"""Sessions, runs and agents of ADK, with their steps and model calls, as scopes of ours.

ADK has no callback after the tools of a step. A step is over when the next request is made, or the agent ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from hookline.adapters.google_adk import messages
from hookline.agent.models import Reply, refusal, reply_from
from hookline.agent.output import AgentResult
from hookline.agent.spec import facts_of
from hookline.engine.context import AgentConfig, Facts, Step, ToolResult, Usage
from hookline.engine.hook import Mode
from hookline.engine.lifecycle import OpenScope, Run
from hookline.engine.pipeline import Pipeline
from hookline.engine.point import Point, Scope, Status
from hookline.engine.result import HookAction, Outcome
from hookline.errors import AgentFailed, Refused


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

    `agents`: those at work in it, by the identity of the invocation that ADK made for each.
    `parents`: the names of the agents above those of this run.
    `tools`: the kinds of the tools that were called.
    `implied`: only an agent's callbacks are ours, and ADK has none there for the run.
    """

    invocation: Any
    run: Run
    pipeline: Pipeline
    session: AdkSession
    root: str
    workspace: str | None
    implied: bool
    rewritten: dict[str, str]
    outer: AdkRun | None = None
    parents: tuple[str, ...] = ()
    scope: OpenScope = field(init=False)
    agents: dict[int, AdkAgent] = field(default_factory=dict[int, Any])
    tools: dict[str, str | None] = field(default_factory=dict[str, str | None])
    notices: list[str] = field(default_factory=list[str])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    result: str | None = None
    status: Status = Status.OK

    def __post_init__(self) -> None:
        if self.outer is None:
            facts = self.facts(self.invocation.agent)
            self.scope = self.open(Scope.RUN, facts, name=self.root, hooks=not self.implied)

    @property
    def no_hooks(self) -> Pipeline:
        """The pipeline of a scope, or of one end of it, that is on record only."""
        return Pipeline((), self.run.recorder)

    def inside(self, invocation: Any, call: OpenScope, parents: tuple[str, ...]) -> AdkRun:
        """The run of an AgentTool in a tool call: part of this one, with agents and inputs of its own."""
        own: dict[str, Any] = {"rewritten": {}, "texts": {}, "agents": {}}
        inner = replace(self, invocation=invocation, outer=self, parents=parents, **own)
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
        self,
        scope: Scope,
        facts: dict[str, Any],
        *,
        name: str,
        parent: OpenScope | None = None,
        hooks: bool = True,
    ) -> OpenScope:
        """A scope of this run, not entered yet; on record only where `hooks` is false."""
        known = Facts(**facts, scope_id=self.run.next_id())
        pipeline = self.pipeline if hooks else self.no_hooks
        return OpenScope(self.run, pipeline, scope, known, name=name, parent=parent)

    async def start(self, scope: OpenScope, payload: Any, **record: Any) -> Outcome:
        """Enter a scope; refused or failed, it is closed again."""
        try:
            outcome = await scope.enter(payload, **record)
            scope.raise_if_over(outcome, Point.start_of(scope.scope))
        except BaseException as exc:
            await scope.left_after(exc)
            raise
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


class OpenCalls(Protocol):
    """The tool calls of a step, as its agent needs to know them."""

    async def abandon(self, exc: BaseException | None) -> None: ...


class AdkAgent:
    """One agent at work: its scope, the step it is in, and what hooks told it."""

    def __init__(self, run: AdkRun, invocation: Any, *, hooks: bool = True) -> None:
        self.run = run
        self.invocation = invocation
        self.parent = parent = _parent(run.agents, invocation.agent)
        self.parents: tuple[str, ...] = (*parent.parents, parent.name) if parent else run.parents
        self._facts = run.facts(invocation.agent, self.parents)
        self.name: str = self._facts["agent"]
        self._model_name = f"google-adk/{self._facts['agent_config'].model}"
        self.scope = run.open(
            Scope.AGENT,
            {**self._facts, "aliases": {"prompt": "input"}},
            name=self.name,
            parent=parent.scope if parent is not None else run.scope,
            hooks=hooks,
        )
        self.over = False
        self.in_next_request: list[str] = []
        self.steps: list[Step] = []
        self.step_calls: OpenCalls | None = None
        self.results: list[ToolResult] = []
        self._step: OpenScope | None = None
        self._model: OpenScope | None = None
        self._reply = Reply()
        self._request: messages.AdkRequest
        self._told: list[tuple[int, str]] = []
        self._refusals: Counter[Scope] = Counter()

    @property
    def outermost(self) -> bool:
        return self.parent is None and self.run.outer is None

    @property
    def is_node(self) -> bool:
        """True if no agent is at work, but a tool that is a node of a workflow."""
        return not hasattr(self.invocation.agent, "run_async")

    @property
    def tool_results(self) -> list[ToolResult]:
        return [*(result for step in self.steps for result in step.tool_results), *self.results]

    def open(self, scope: Scope, *, name: str, hooks: bool = True, **facts: Any) -> OpenScope:
        """A scope inside this agent."""
        if self._step is not None or scope is Scope.STEP:
            facts["step"] = len(self.steps) + 1
        known = {**self._facts, "steps": tuple(self.steps), **facts}
        return self.run.open(scope, known, name=name, parent=self._step or self.scope, hooks=hooks)

    async def end(self, exc: BaseException | None = None) -> Outcome | None:
        """End its step and then itself, once; with an exception, because of that."""
        if self.over:
            return None
        self.over = True
        await self._end_step(exc)
        steps = tuple(self.steps)
        if exc is not None:
            await self.scope.left_after(exc, steps)
            return None
        text = self.run.texts.get(self.name) or self._reply.text
        ending = await self.run.end(self.scope, answer_of(self.run, text, [self]), Status.OK, steps)
        if ending.action is HookAction.BLOCK:
            why = f"its end was refused, and ADK cannot continue it: {ending.reason}"
            refused = Refused(why, point=Point.AGENT_END, hook=ending.hook)
            await self.scope.left_after(refused)
            raise refused
        self.run.session.in_next_request.extend(ending.tell_model)
        return ending

    async def request_made(self, request: Any) -> Any:
        """Begin a step and its model call; a response stands in for the model's own."""
        await self._end_step()
        # Whatever was cancelled before was a part of the run; its ends have their whole time again.
        self.run.run.resume()
        self._refusals.clear()
        always = self.run.session.in_every_request if self.run.outer is None else ()
        self._request = messages.AdkRequest(request, self._told, always, self.run.rewritten)
        texts, self.in_next_request = self.in_next_request, []
        self._request.tell(texts)
        number = len(self.steps) + 1
        self._step, _ = await self._begin(Scope.STEP, str(number), {"step": number})
        return await self._begin_model()

    async def response_received(self, given: Any) -> Any:
        """End the model call; a response takes the given one's place. A refused answer is asked for again."""
        if given.partial:
            guards = self.run.pipeline.at(Point.MODEL_END)
            # An empty piece stands in for one of a text that a hook may still change.
            held = messages.adk_class("models", "LlmResponse")(partial=True)
            return held if any(hook.mode is Mode.ENFORCE for hook in guards) else None
        scope, self._model = self._model, None
        if scope is None:
            # A model may answer one request in several whole responses; none of them passes unseen.
            scope = self.open(Scope.MODEL, name=self._model_name, hooks=False)
            await self.run.start(scope, None)
            scope.pipeline = self.run.pipeline
        if given.error_code and not getattr(given.content, "parts", None):
            text = f"{given.error_code}: {given.error_message or 'the model gave no answer'}"
            await scope.left_after(AgentFailed(text))
            return None
        response = given
        while (
            ending := await self._end_model(scope, messages.reply_of(response))
        ).action is HookAction.BLOCK:
            instead = await self._begin_model()
            scope, self._model = self._model, None
            if scope is None:
                return instead
            response = await self._ask_model(scope)
        if ending.changed:
            return messages.response_for(self._reply, response)
        return response if response is not given else None

    async def model_failed(self, error: BaseException) -> None:
        scope, self._model = self._model, None
        if scope is not None:
            await scope.left_after(error)

    async def _begin(self, scope: Scope, name: str, more: dict[str, Any]) -> tuple[OpenScope, Outcome]:
        """Enter a scope around the request: again while it is refused; what hooks change goes into the request."""
        point, pipeline = Point.start_of(scope), self.run.pipeline
        is_seen = pipeline.recorder.on or pipeline.at(point) or pipeline.at(Point.end_of(scope))
        while True:
            opened = self.open(scope, name=name)
            shown = self._request.shown() if is_seen else []
            payload = {**more, "messages": [each.message for each in shown]}
            outcome = await self.run.start(opened, payload)
            if outcome.action is HookAction.BLOCK:
                self._refuse(outcome, point)
                continue
            if not outcome.answered:
                if outcome.changed:
                    self._request.change(payload, outcome.payload, point)
                self._request.tell(outcome.tell_model)
            return opened, outcome

    async def _begin_model(self) -> Any:
        """None where the model is to be asked; else the response that hooks gave in its place."""
        while True:
            settings = self._request.settings()
            scope, outcome = await self._begin(Scope.MODEL, self._model_name, settings)
            if not outcome.answered:
                self._model = scope
                return None
            ending = await self._end_model(scope, reply_from(outcome.output), Status.ANSWERED)
            if ending.action is not HookAction.BLOCK:
                return messages.response_for(self._reply)

    async def _end_model(self, scope: OpenScope, reply: Reply, status: Status = Status.OK) -> Outcome:
        ending = await self.run.end(scope, reply, status)
        if ending.action is HookAction.BLOCK:
            self._refuse(ending, Point.MODEL_END)
        else:
            self.in_next_request.extend(ending.tell_model)
            self._reply = reply_from(ending.output)
        return ending

    async def _ask_model(self, scope: OpenScope) -> Any:
        """Ask the model once more ourselves; ADK asks only once a step."""
        response: Any = None
        try:
            self.invocation.increment_llm_call_count()
            model = self.invocation.agent.canonical_model
            async for each in model.generate_content_async(self._request.raw, stream=False):
                response = each
            if response is None:
                raise AgentFailed(f"{self._model_name} ended without an answer")
        except BaseException as exc:
            await scope.left_after(exc)
            raise
        return response

    async def _end_step(self, exc: BaseException | None = None) -> None:
        """End the step that is open, if one is, with whatever is open in it."""
        if self.step_calls is not None:
            calls, self.step_calls = self.step_calls, None
            await calls.abandon(exc)
        # A model call that is still open never answered: cancelled, or the caller left.
        await self.model_failed(exc or asyncio.CancelledError())
        scope, self._step = self._step, None
        if scope is None:
            return
        step = Step(
            step=len(self.steps) + 1,
            content=self._reply.text,
            tool_calls=self._reply.tool_calls,
            tool_results=tuple(self.results),
            usage=self._reply.usage,
        )
        self.steps.append(step)
        self.results = []
        self._reply = Reply(text=step.content)
        if exc is not None:
            await scope.left_after(exc, tuple(self.steps), output=step)
            return
        ending = await self.run.end(scope, step, Status.OK, tuple(self.steps))
        self.in_next_request.extend(ending.tell_model)

    def _refuse(self, refused: Outcome, point: Point) -> None:
        """Tell the model why; what it is told of a step stays in its later requests."""
        self._refusals[point.scope] += 1
        texts = [refusal(refused, point, self._refusals[point.scope]), *refused.tell_model]
        if point.scope is Scope.STEP:
            self._request.tell(texts)
        else:
            self._request.tell_once(texts)


def answer_of(run: AdkRun, text: str | None, agents: Collection[AdkAgent]) -> AgentResult:
    """The work of some agents in the form that hooks of the built-in agent see."""
    steps = [step for agent in agents for step in agent.steps]
    return AgentResult(
        agent_run_id=run.run.id,
        result=text,
        tool_results=tuple(result for agent in agents for result in agent.tool_results),
        total_steps=len(steps),
        usage=sum((step.usage for step in steps), Usage()),
        session_id=run.session.id,
    )


def _parent(at_work: Mapping[int, AdkAgent], agent: Any) -> AdkAgent | None:
    """The nearest agent above this one that is at work in the same run."""
    # A workflow is named like an agent and is none.
    above = getattr(agent, "parent_agent", None)
    while above is not None:
        for found in reversed(list(at_work.values())):
            if found.name == above.name and not found.over:
                return found
        above = above.parent_agent
    return None
