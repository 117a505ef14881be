"""Sessions, runs and agents of ADK, with their steps and model calls, as scopes of hookline.

ADK has no callback after the tools of a step. A step is over when the next request is made, or the agent ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hookline.adapters.google_adk import messages
from hookline.agent.models import Reply, reply_from
from hookline.agent.spec import AgentContext, AgentResult, CurrentRun, RunArguments, hook_declaration
from hookline.engine.context import AgentConfig, ToolResult
from hookline.engine.hook import AgentDeclaration, Declaration
from hookline.engine.lifecycle import OpenScope
from hookline.engine.point import Point, Scope, Status
from hookline.engine.result import HookAction, Outcome
from hookline.errors import AgentFailed, Refused
from hookline.journal.recovery import owner
from hookline.journal.snapshot import snapshot


class PausedCall(NamedTuple):
    """A call that will come again: the outcome of its start hooks, and the question, if hookline asked one."""

    tool: str
    args: dict[str, Any]
    outcome: Outcome
    pause: str
    question: str | None


@dataclass(slots=True)
class AdkSession:
    """One session of ADK, or what a run of an AgentTool keeps in its place.

    `rewritten`: inputs of the user, each with the text that hooks put in its place; ADK keeps the original and shows it again.
    """

    id: str
    scope: OpenScope | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    in_every_request: list[str] = field(default_factory=list[str])
    in_next_request: list[str] = field(default_factory=list[str])
    rewritten: dict[str, str] = field(default_factory=dict[str, str])
    paused: dict[str, PausedCall] = field(default_factory=dict[str, PausedCall])


class AdkRun(AgentContext):
    """One invocation: a run of a Runner, or the run of an AgentTool inside a tool call of an `outer` one.

    `agents`: its agents, by the identity of the invocation that ADK made for each.
    `implied`: hookline has only callbacks of an agent, and ADK has none there for runs.
    """

    def __init__(
        self,
        invocation: Any,
        inside: CurrentRun,
        session: AdkSession,
        *,
        implied: bool,
        outer: AdkRun | None = None,
    ) -> None:
        root = inside.root_workflow_id
        super().__init__(AgentConfig(**_described(invocation.agent, root)), inside, RunArguments())
        self.invocation = invocation
        self.session = session
        self.outer = outer
        self.implied = implied
        self.scope = inside.scope or self.open(Scope.RUN, None, root, hooks=not implied)
        self.agents: dict[int, AdkAgent] = {}
        self.texts: dict[str, str] = {}
        self.result: str | None = None
        self.status = Status.OK

    def record(self) -> dict[str, Any]:
        """Owner and declaration for the record of the run, from which it can be ended after a crash."""
        if self.run.recorder.journal is None:
            return {}
        keep = getattr(self.run.recorder.journal, "keep", None)
        if keep is not None:
            keep(self.run.id, snapshot(self.inside.hooks))
        agent = AgentDeclaration(**_described(self.invocation.agent, self.inside.root_workflow_id))
        hooks = tuple(hook_declaration(hook) for hook in self.inside.hooks)
        declaration = Declaration(format="google-adk", source="", agent=agent, hooks=hooks)
        return {"owner": owner(), "declaration": declaration.to_dict()}

    async def open_session(self) -> None:
        """Begin the session, if no earlier run of it did."""
        session, invocation = self.session, self.invocation
        async with session.opening:
            if session.scope is not None:
                return
            scope = self.open(Scope.SESSION, self.scope, session.id)
            resumed = any(
                each.invocation_id != invocation.invocation_id for each in invocation.session.events
            )
            payload = {"session_id": session.id, "source": "resume" if resumed else "startup"}
            outcome = await self.enter(scope, payload)
            session.scope = scope
            session.in_every_request.extend(outcome.tell_model)

    def answer(self) -> AgentResult:
        """The work of all its agents as the result of a run."""
        agents = self.agents.values()
        self.steps = [step for agent in agents for step in agent.steps]
        found = tuple(result for agent in agents for result in agent.tool_results)
        return self.result_of(self.result, tool_results=found)


class AdkAgent(AgentContext):
    """One agent at work: its scope, its current step, and the messages of hooks for its model.

    `inner_scope`: that of its step, or its own between steps. `calls`: the `AdkCall`s of its step, which start and end
    in turn.
    """

    def __init__(self, adk_run: AdkRun, invocation: Any, *, hooks: bool = True) -> None:
        parent = _parent(adk_run.agents, invocation.agent)
        inside = replace(adk_run.inside, note=adk_run.notice)
        if parent is not None:
            inside = parent.inside_of(inside.scope)
        config = AgentConfig(**_described(invocation.agent, inside.root_workflow_id))
        super().__init__(config, inside, adk_run.arguments)
        self.adk_run = adk_run
        self.invocation = invocation
        self.parent = parent
        self.scope = self.open(
            Scope.AGENT,
            parent.scope if parent is not None else adk_run.scope,
            self.config.name,
            hooks=hooks,
            step=None,
            aliases={"prompt": "input"},
        )
        self.inner_scope = self.scope
        self.in_next_request: list[str] = []
        self.calls: list[Any] = []
        self.tool_results: list[ToolResult] = []
        self._model_name = f"google-adk/{self.config.model}"
        self._model: OpenScope | None = None
        self._reply = Reply()
        self._request: messages.AdkRequest
        self._told: list[tuple[int, str]] = []

    @property
    def is_node(self) -> bool:
        """True for a tool that is a node of a workflow, and no agent."""
        return not hasattr(self.invocation.agent, "run_async")

    async def end(self, exc: BaseException | None = None) -> Outcome | None:
        """End its step and then itself, once; with an exception, because of that."""
        if self.scope.ended:
            return None
        await self._end_step(exc)
        if exc is not None:
            await self.scope.left_after(exc)
            return None
        text = self.adk_run.texts.get(self.config.name) or self._reply.text
        answer = self.result_of(text, tool_results=tuple(self.tool_results))
        ending = await self.leave(self.scope, answer)
        if ending.action is HookAction.BLOCK:
            why = f"its end was refused, and ADK cannot continue it: {ending.reason}"
            refused = Refused(why, point=Point.AGENT_END, hook=ending.hook)
            await self.scope.left_after(refused)
            raise refused
        # An agent that is a tool makes no more requests; its caller does.
        told = self.adk_run.outer or self.adk_run
        told.session.in_next_request.extend(ending.tell_model)
        return ending

    async def request_made(self, request: Any) -> Any:
        """Begin a step and its model call; a response stands in for the model's own."""
        await self._end_step()
        # Only a part of the run was cancelled, if anything; end hooks have their whole time again.
        self.run.resume()
        self.refusals.clear()
        session = self.adk_run.session
        texts = [*session.in_next_request, *self.in_next_request]
        session.in_next_request, self.in_next_request = [], []
        self._request = messages.AdkRequest(request, self._told, session.in_every_request, session.rewritten)
        self._request.tell(texts)
        number = len(self.steps) + 1
        self.inner_scope, _ = await self._begin(Scope.STEP, str(number), {"step": number}, step=number)
        return await self._begin_model(again=False)

    async def response_received(self, given: Any) -> Any:
        """End the model call; a response takes the given one's place. After a refusal the model is called again."""
        if given.partial:
            # An empty piece stands in for one of a text that a hook may still change.
            held = messages.google_module("adk.models").LlmResponse(partial=True)
            return held if self.may_change(Point.MODEL_END) else None
        scope, self._model = self._model, None
        if scope is None:
            # A model may answer one request in several whole responses; hooks see each of them.
            scope = self.open(Scope.MODEL, self.inner_scope, self._model_name, hooks=False)
            await self.enter(scope, None)
            scope.pipeline = self.pipeline
        if given.error_code and not getattr(given.content, "parts", None):
            text = f"{given.error_code}: {given.error_message or 'the model gave no answer'}"
            await scope.left_after(AgentFailed(text))
            return None
        response = await self._end_model(scope, messages.reply_of(given), given, again=True)
        return response if response is not given else None

    async def model_failed(self, error: BaseException) -> None:
        scope, self._model = self._model, None
        if scope is not None:
            await scope.left_after(error)

    async def _begin(
        self, scope: Scope, name: str, more: dict[str, Any], **facts: Any
    ) -> tuple[OpenScope, Outcome]:
        """Enter a scope around the request, again while it is refused; changes of hooks go into the request."""
        point, pipeline = scope.start, self.pipeline
        is_seen = pipeline.recorder.on or pipeline.at(point) or pipeline.at(scope.end)
        while True:
            opened = self.open(scope, self.inner_scope, name, **facts)
            shown = self._request.shown() if is_seen else []
            payload = {**more, "messages": [each.message for each in shown]}
            outcome = await self.enter(opened, payload)
            if outcome.action is HookAction.BLOCK:
                self._refuse(outcome, point)
                continue
            if not outcome.answered:
                if outcome.changed:
                    self._request.change(payload, outcome.payload, point)
                self._request.tell(outcome.tell_model)
            return opened, outcome

    async def _begin_model(self, *, again: bool) -> Any:
        """The response after the hooks of a model call; None if ADK is to call the model."""
        scope, outcome = await self._begin(Scope.MODEL, self._model_name, self._request.settings())
        if outcome.answered:
            return await self._end_model(scope, reply_from(outcome.output), None, again=again)
        if again:
            given = await self._ask_model(scope)
            return await self._end_model(scope, messages.reply_of(given), given, again=True)
        self._model = scope
        return None

    async def _end_model(self, scope: OpenScope, reply: Reply, given: Any, *, again: bool) -> Any:
        """The response after the end hooks of a model call, or of the next one if they refuse it.

        `given`: the model's response; None if hooks gave the reply in its place.
        """
        ending = await self.leave(scope, reply, Status.ANSWERED if given is None else Status.OK)
        if ending.action is HookAction.BLOCK:
            self._refuse(ending, Point.MODEL_END)
            return await self._begin_model(again=again)
        self.in_next_request.extend(ending.tell_model)
        self._reply = reply_from(ending.output)
        if given is not None and not ending.changed:
            return given
        return messages.response_for(self._reply, given)

    async def _ask_model(self, scope: OpenScope) -> Any:
        """Call the model once more; ADK itself calls it only once a step."""
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
        """End the open step, if there is one, after everything that is open in it."""
        calls, self.calls = self.calls, []
        for call in calls:
            await call.abandon(exc)
        # A model call that is still open was cancelled, or the caller left.
        await self.model_failed(exc or asyncio.CancelledError())
        scope, self.inner_scope = self.inner_scope, self.scope
        if scope is self.scope:
            return
        counted = sum(len(each.tool_results) for each in self.steps)
        step = self._reply.step(len(self.steps) + 1, self.tool_results[counted:])
        self.steps.append(step)
        self._reply = Reply(text=step.content)
        if exc is not None:
            await scope.left_after(exc, output=step)
            return
        ending = await self.leave(scope, step)
        self.in_next_request.extend(ending.tell_model)

    def _refuse(self, refused: Outcome, point: Point) -> None:
        """Tell the model the reason; that of a step stays in its later requests."""
        texts = [self.refusal(refused, point), *refused.tell_model]
        if point.scope is Scope.STEP:
            self._request.tell(texts)
        else:
            self._request.tell_once(texts)


def _described(agent: Any, root: str) -> dict[str, Any]:
    """An agent of ADK in our words. A workflow as the root is no agent, and goes by the name of its app."""
    model = getattr(agent, "model", None)
    instruction = getattr(agent, "instruction", None)
    tools = (
        getattr(each, "name", None) or getattr(each, "__name__", "")
        for each in getattr(agent, "tools", None) or ()
    )
    return {
        "name": getattr(agent, "name", None) or root,
        "provider": "google-adk",
        "model": model if isinstance(model, str) else str(getattr(model, "model", "")),
        "tools": tuple(filter(None, tools)),
        "system_prompt": instruction if isinstance(instruction, str) and instruction else None,
    }


def _parent(at_work: Mapping[int, AdkAgent], agent: Any) -> AdkAgent | None:
    """The nearest agent above this one that is at work in the same run."""
    # A workflow is named like an agent and is none.
    above = getattr(agent, "parent_agent", None)
    while above is not None:
        for found in reversed(list(at_work.values())):
            if found.config.name == above.name and not found.scope.ended:
                return found
        above = above.parent_agent
    return None
