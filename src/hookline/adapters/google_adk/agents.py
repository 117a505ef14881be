"""Agents at work, their steps and model calls.

ADK has no callback after the tools of a step. A step is over when the next request is made, or the agent ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Protocol

from hookline.adapters.google_adk import messages
from hookline.adapters.google_adk.runs import AdkRun
from hookline.agent.models import Message, Reply, refusal, reply_from
from hookline.agent.output import AgentResult
from hookline.engine.context import Step, ToolResult, Usage
from hookline.engine.hook import Mode
from hookline.engine.lifecycle import OpenScope
from hookline.engine.point import Point, Scope, Status
from hookline.engine.result import HookAction, Outcome
from hookline.errors import AgentFailed, Refused


class OpenCalls(Protocol):
    """The tool calls of a step, as its agent needs to know them."""

    async def abandon(self, exc: BaseException | None) -> None: ...


class AdkAgent:
    """One agent at work: its scope, the step it is in, and what hooks told it."""

    def __init__(self, run: AdkRun, invocation: Any, parent: AdkAgent | None) -> None:
        self.run = run
        self.invocation = invocation
        self.parent = parent
        self.parents: tuple[str, ...] = (*parent.parents, parent.name) if parent else run.parents
        self._facts = run.facts(invocation.agent, self.parents)
        self.name: str = self._facts["agent"]
        self.scope = run.open(
            Scope.AGENT,
            {**self._facts, "aliases": {"prompt": "input"}},
            name=self.name,
            parent=parent.scope if parent is not None else run.scope,
        )
        self.over = False
        self.in_next_request: list[str] = []
        self.steps: list[Step] = []
        self.step_calls: OpenCalls | None = None
        self.results: list[ToolResult] = []
        self._step: OpenScope | None = None
        self._model: OpenScope | None = None
        self._reply = Reply()
        self._request: Any = None
        self._refusals: Counter[Scope] = Counter()
        self._shown: tuple[list[int], list[messages.ContentSlice]] = ([], [])
        self._inserted: list[tuple[int, str]] = []
        self._length = 0

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

    def open(self, scope: Scope, *, name: str, **facts: Any) -> OpenScope:
        """A scope inside this agent."""
        if self._step is not None or scope is Scope.STEP:
            facts["step"] = len(self.steps) + 1
        known = {**self._facts, "steps": tuple(self.steps), **facts}
        return self.run.open(scope, known, name=name, parent=self._step or self.scope)

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
            why = f"its end was refused, and ADK cannot send it back to work: {ending.reason}"
            refused = Refused(why, point=Point.AGENT_END, hook=ending.hook)
            await self.scope.left_after(refused)
            raise refused
        self.run.session.in_next_request.extend(ending.tell_model)
        return ending

    # -- steps and model calls -----------------------------------------------------------------------------

    async def request_made(self, request: Any) -> Any:
        """Begin a step and its model call; a response stands in for the model's own."""
        await self._end_step()
        # Whatever was cancelled before was a part of the run; its ends have their whole time again.
        self.run.run.resume()
        self._request = request
        self._refusals.clear()
        self._add_told()
        number = len(self.steps) + 1
        self._step, _ = await self._begin(
            Scope.STEP, str(number), lambda shown: {"step": number, "messages": shown}
        )
        return await self._begin_model()

    async def response_received(self, given: Any) -> Any:
        """End the model call; a response takes the given one's place. A refused answer is asked for again."""
        if given.partial:
            guards = self.run.pipeline.at(Point.MODEL_END)
            return messages.held_back() if any(hook.mode is Mode.ENFORCE for hook in guards) else None
        scope, self._model = self._model, None
        if scope is None:
            # A model may answer one request in several whole responses; none of them passes unseen.
            scope = self.open(Scope.MODEL, name=self._model_name)
            await self.run.start(scope, None, hooks=False)
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

    async def _begin(
        self, scope: Scope, name: str, payload_of: Callable[[list[Message]], dict[str, Any]]
    ) -> tuple[OpenScope, Outcome]:
        """Enter a scope around the request: again while it is refused; what hooks change goes into the request."""
        point = Point.start_of(scope)
        while True:
            opened = self.open(scope, name=name)
            shown = self._slices(scope)
            payload = payload_of([each.message for each in shown])
            outcome = await self.run.start(opened, payload)
            if outcome.action is HookAction.BLOCK:
                self._refuse(outcome, point)
                continue
            if outcome.changed and not outcome.answered:
                messages.change_request(self._request, shown, payload, outcome.payload, point)
            if not outcome.answered:
                self._tell(outcome.tell_model)
            return opened, outcome

    async def _begin_model(self) -> Any:
        """None where the model is to be asked; else the response that hooks gave in its place."""
        while True:
            payload_of = partial(messages.request_payload, self._request)
            scope, outcome = await self._begin(Scope.MODEL, self._model_name, payload_of)
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
            async for each in model.generate_content_async(self._request, stream=False):
                response = each
        except BaseException as exc:
            await scope.left_after(exc)
            raise
        if response is None:
            raise AgentFailed(f"{self._model_name} ended without an answer")
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
            self._tell(texts)
        else:
            self._request.contents.extend(messages.text_content(text) for text in texts)

    # -- requests ------------------------------------------------------------------------------------------

    def _slices(self, scope: Scope) -> list[messages.ContentSlice]:
        """The messages of the request, where anybody is there to see them; a long history is read once."""
        pipeline = self.run.pipeline
        looked_at = pipeline.at(Point.start_of(scope)) or pipeline.at(Point.end_of(scope))
        if not looked_at and not pipeline.recorder.on:
            return []
        now = [id(each) for each in self._request.contents]
        if self._shown[0] != now:
            self._shown = (now, messages.slices(self._request.contents))
        return self._shown[1]

    def _add_told(self) -> None:
        """Add what hooks have told the model so far; ADK builds every request anew from its own record."""
        contents, rewritten = self._request.contents, self.run.rewritten
        for index, each in enumerate(contents) if rewritten else ():
            text = messages.text_of(each)
            if each.role == "user" and text in rewritten:
                contents[index] = messages.with_text(each, rewritten[text])
        always = self.run.session.in_every_request if self.run.outer is None else ()
        self._length = len(contents)
        for index, text in reversed([*((0, text) for text in always), *self._inserted]):
            contents.insert(min(index, self._length), messages.text_content(text))
        texts, self.in_next_request = self.in_next_request, []
        self._tell(texts)

    def _tell(self, texts: Iterable[str]) -> None:
        """Say it in this request, and at the same place in those that follow."""
        for text in texts:
            self._request.contents.append(messages.text_content(text))
            self._inserted.append((self._length, text))

    @property
    def _model_name(self) -> str:
        return f"google-adk/{self._facts['agent_config'].model}"


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
