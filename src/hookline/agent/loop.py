"""The loop: steps of one model call and its tools, with a scope and its hooks around each.

agent.start
  step.start(n)
    model.start, the model answers, model.end         refused: told why and asked again, three times
    tool.start of every call, in order                a fail: none of the step's tools runs
    the tools, together
    tool.end of every call, in order
  step.end(n)
  no tool was called: the answer; else stop conditions, then the next step
agent.end                                             refused: the reason is the next input, eight times
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from hookline.agent.calls import make_calls
from hookline.agent.models import (
    DoesNotFit,
    Message,
    Reply,
    Request,
    assistant_message,
    input_in,
    mapping,
    messages_in,
    refusal,
    reply_from,
    text_message,
)
from hookline.agent.spec import AgentContext, AgentResult, CurrentRun, RunArguments, Spec, agent_payload
from hookline.agent.stop import StopConditionContext
from hookline.engine.context import Step
from hookline.engine.lifecycle import OpenScope
from hookline.engine.pipeline import Pipeline
from hookline.engine.plain import as_text, plain
from hookline.engine.point import Point, Scope
from hookline.engine.result import HookAction, Outcome
from hookline.errors import AgentFailed, Refused

END_REFUSALS = 8


class Loop(AgentContext):
    """The steps of one agent on one input, after the messages of `history`."""

    def __init__(
        self,
        spec: Spec,
        inside: CurrentRun,
        arguments: RunArguments,
        pipeline: Pipeline | None = None,
        history: Sequence[Message] = (),
    ) -> None:
        pipeline = pipeline or inside.pipeline(spec.hooks)
        super().__init__(spec.configured(arguments), inside, pipeline, arguments.emit)
        self.spec = spec
        self.messages: list[Message] = list(history)
        self._model = spec.model
        self._tools = spec.tools
        self._kwargs = arguments.provider_kwargs
        self._untold: list[str] = []
        self._cut = False
        ends = (Point.AGENT_END, Point.STEP_END, Point.MODEL_END)
        self._said_at = next((point for point in ends if self.may_change(point)), None)
        """The last point at which a hook may change a text, which is said after it; None: piece by piece."""

    async def answer(self, given: Any) -> AgentResult:
        """Runs the agent on one input, with its hooks."""
        payload = agent_payload(given, streaming=self._emit is not None, provider_kwargs=self._kwargs)
        scope = self.open(Scope.AGENT, self.inside.scope, self.spec.id, aliases={"prompt": "input"})
        refusals = 0

        async def body(outcome: Outcome) -> AgentResult:
            self.tell("agent_start", run_id=self.run.id)
            payload = mapping(outcome.payload, Point.AGENT_START)
            self._kwargs = cast("dict[str, Any]", payload.get("provider_kwargs") or {})
            self._take_input(outcome)
            return await self._work(scope)

        async def again(ending: Outcome) -> AgentResult:
            nonlocal refusals
            refusals += 1
            if refusals > END_REFUSALS:
                raise Refused(
                    f"its end was refused {END_REFUSALS} times, last: {ending.reason}",
                    point=Point.AGENT_END,
                    hook=ending.hook,
                )
            self.note(ending)
            self.messages.append(text_message("user", ending.reason or "This is not finished yet; go on."))
            self._untold.extend(ending.tell_model)
            return await self._work(scope)

        ending = await scope.around(payload, body, again=again)
        self.note(ending)
        result = self.answer_of(scope, ending)
        started = scope.outcome
        answered = started is not None and started.answered
        if answered and started is not None:
            self._take_input(started)
            self.messages.append(text_message("assistant", as_text(plain(ending.output))))
        self._untold.extend(ending.tell_model)
        self._tell_untold()
        return self._final(result, ending, answered=answered)

    def _take_input(self, outcome: Outcome) -> None:
        given = input_in(outcome.payload, Point.AGENT_START)
        self.note(outcome)
        if isinstance(given, list):
            self.messages.extend(cast("list[Message]", given))
        else:
            self.messages.append(text_message("user", as_text(given)))
        self._untold.extend(outcome.tell_model)

    async def _work(self, scope: OpenScope) -> AgentResult:
        repaired = False
        refusals = 0
        while True:
            step = await self._step(scope, len(self.steps) + 1)
            if isinstance(step, Outcome):
                refusals += 1
                self.messages.append(text_message("user", refusal(step, Point.STEP_START, refusals)))
                continue
            refusals = 0
            stopped_by = await self._stopped() if step.tool_results else None
            goes_on = bool(step.tool_results) and stopped_by is None
            if self._said_at is Point.STEP_END or (self._said_at is Point.AGENT_END and goes_on):
                self._say(step.content or "")
            if goes_on:
                continue
            result: Any = step.content
            if self.spec.output is not None and stopped_by is None:
                try:
                    result = self.spec.output.read(step.content)
                except DoesNotFit as exc:
                    if repaired:
                        raise AgentFailed(f"{exc} (after one repair)") from None
                    repaired = True
                    self.messages.append(
                        text_message("user", f"{exc}. Answer again with JSON that fits the schema.")
                    )
                    continue
            return self.result_of(
                result,
                result_schema=self.spec.output.name if self.spec.output else None,
                stopped_by=stopped_by or ("max_output_tokens" if self._cut else None),
            )

    async def _stopped(self) -> str | None:
        context = StopConditionContext(list(self.steps), self.spec.id, self.run.id)
        for condition in self.spec.conditions():
            if await condition.holds(context):
                return str(condition)
        return None

    def _final(self, result: AgentResult, ending: Outcome, *, answered: bool) -> AgentResult:
        """The answer after the hooks, checked against the schema, with all notices."""
        schema = self.spec.output
        if schema is not None and (ending.changed or answered):
            try:
                result = replace(result, result=schema.check(result.result))
            except DoesNotFit as exc:
                where = Point.AGENT_END if ending.changed else Point.AGENT_START
                raise AgentFailed(f"a hook at {where} gave the answer: {exc}") from None
        if (self._said_at is Point.AGENT_END or answered) and result.result is not None:
            self._say(as_text(plain(result.result)))
        return replace(result, notices=(*result.notices, *self.notices))

    # -- one step ------------------------------------------------------------------------------------------

    async def _step(self, agent_scope: OpenScope, number: int) -> Step | Outcome:
        """Runs one step; returns the outcome instead if its start was refused."""
        self._tell_untold()
        scope = self.open(Scope.STEP, agent_scope, str(number), step=number)
        payload = {"step": number, "messages": list(self.messages)}
        self.tell("step_start", step=number)

        async def body(outcome: Outcome) -> Step:
            self.note(outcome)
            messages = (
                messages_in(outcome.payload, Point.STEP_START) if outcome.changed else list(self.messages)
            )
            told = [text_message("user", text) for text in outcome.tell_model]
            self.messages.extend(told)
            reply = await self._reply(scope, [*messages, *told])
            self._cut = reply.stop_reason == "length"
            self.messages.append(assistant_message(reply))
            made = await make_calls(self, scope, self._tools, reply.tool_calls)
            self.messages.extend(each.message() for each in made)
            step = reply.step(number, (each.result() for each in made))
            self.steps.append(step)
            return step

        ending = await scope.around(payload, body)
        self.note(ending)
        self._untold.extend(ending.tell_model)
        if ending.action is HookAction.BLOCK:
            return ending
        if ending.changed:
            changed = ending.output
            self.steps[-1] = (
                changed if isinstance(changed, Step) else replace(self.steps[-1], content=as_text(changed))
            )
        return self.steps[-1]

    async def _reply(self, step_scope: OpenScope, messages: list[Message]) -> Reply:
        """The model's answer; after a refusal the model reads the reason and is called again."""
        refusals = 0
        while True:
            started, ending = await self._model_call(step_scope, messages)
            self.note(ending)
            if ending.action is not HookAction.BLOCK:
                reply = reply_from(ending.output)
                self.messages.extend(text_message("user", text) for text in started.tell_model)
                self._untold.extend(ending.tell_model)
                if self._said_at is Point.MODEL_END or (self._said_at is None and started.answered):
                    self._say(reply.text or "")
                return reply
            refusals += 1
            at_start = started.action is HookAction.BLOCK
            point = Point.MODEL_START if at_start else Point.MODEL_END
            again = text_message("user", refusal(ending, point, refusals))
            messages = [*messages, again, *(text_message("user", text) for text in ending.tell_model)]

    async def _model_call(self, step_scope: OpenScope, messages: list[Message]) -> tuple[Outcome, Outcome]:
        """Calls the model; returns the outcomes of the start hooks and of the end hooks."""
        scope = self.open(Scope.MODEL, step_scope, f"{self._model.provider}/{self._model.name}")
        payload = {
            "messages": messages,
            "system": self.config.system_prompt,
            "tools": list(self._tools),
            "temperature": self.config.temperature,
            "top_p": self.config.top_p,
            "max_output_tokens": self.config.max_output_tokens,
        }

        async def body(outcome: Outcome) -> Reply:
            self.note(outcome)
            told = [text_message("user", text) for text in outcome.tell_model]
            return await self._asked(self._request(outcome.payload, told))

        ending = await scope.around(payload, body)
        return scope.outcome or ending, ending

    def _request(self, given: Any, told: list[Message]) -> Request:
        payload = mapping(given, Point.MODEL_START)
        known: list[str] = payload.get("tools") or []
        schema = self.spec.output
        return Request(
            messages=(*messages_in(payload, Point.MODEL_START), *told),
            system=payload.get("system"),
            tools=tuple(self._tools[name].spec for name in known if name in self._tools),
            output_schema=schema.json_schema if schema else None,
            output_schema_name=schema.name if schema else None,
            temperature=payload.get("temperature"),
            top_p=payload.get("top_p"),
            max_output_tokens=payload.get("max_output_tokens"),
            extra=self._kwargs,
        )

    async def _asked(self, request: Request) -> Reply:
        reply: Reply | None = None
        async for piece in self._model.stream(request):
            if isinstance(piece, Reply):
                reply = piece
            elif self._said_at is None:
                self._say(piece.text)
        if reply is None:
            raise AgentFailed(f"{self._model.provider}/{self._model.name} ended without an answer")
        for call in reply.tool_calls:
            self.tell("tool_call", id=call.id, tool=call.name, arguments=call.arguments)
        return reply

    # -- small things --------------------------------------------------------------------------------------

    def _tell_untold(self) -> None:
        """Adds the messages of hooks since the last model call; they cannot stand between a call and its result."""
        self.messages.extend(text_message("user", text) for text in self._untold)
        self._untold.clear()

    def _say(self, text: str) -> None:
        if text:
            self.tell("text_delta", text=text)
