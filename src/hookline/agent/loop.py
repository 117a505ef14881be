"""The loop: steps of one model call and its tools, with a scope and its hooks around each.

agent.start
  step.start(n)
    model.start, the model answers, model.end         refused: told why and asked again, three times
    tool.start of every call, in order                a fail: none of the step's tools runs
    the tools, together
    tool.end of every call, in order
  step.end(n)
  no tool was called: the answer; else stop conditions, then the next step
agent.end                                             refused: the reason is the next input, eight times; then it ends
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from hookline.agent.models import (
    DoesNotFit,
    Message,
    Reply,
    Request,
    assistant_message,
    input_in,
    mapping,
    messages_in,
    reply_from,
    text_message,
)
from hookline.agent.spec import CURRENT_RUN, AgentContext, AgentResult, CurrentRun, RunArguments, Spec
from hookline.agent.stop import StopConditionContext
from hookline.agent.tools import ToolTimedOut
from hookline.engine.context import Step, ToolCall, ToolResult
from hookline.engine.lifecycle import OpenScope
from hookline.engine.plain import as_text, plain
from hookline.engine.point import Point, Scope, Status
from hookline.engine.result import HookAction, Outcome
from hookline.engine.shared import Shared
from hookline.errors import AgentFailed, HookFailed, Refused, RunTimedOut, Skipped
from hookline.tasks import cancel_and_wait


class Loop(AgentContext):
    """The steps of one agent on one input, after the messages of `history`."""

    def __init__(
        self, spec: Spec, inside: CurrentRun, arguments: RunArguments, history: Sequence[Message] = ()
    ) -> None:
        super().__init__(spec.configured(arguments), inside, arguments, spec.hooks)
        self.spec = spec
        self.messages: list[Message] = list(history)
        self._kwargs = arguments.provider_kwargs
        self._hook_texts: list[str] = []
        self._cut = False
        self._agent_id = ""
        """Of an agent that is a tool: the name of its transcript."""
        ends = (Point.AGENT_END, Point.STEP_END, Point.MODEL_END)
        self._shown_at = next((point for point in ends if self.may_change(point)), None)
        """The last point at which a hook may change a text, which is shown after it; None: piece by piece."""

    async def answer(self, given: Any) -> AgentResult:
        """Runs the agent on one input, with its hooks."""
        payload = self.agent_payload(given, streaming=self.arguments.emit is not None)
        scope = self.open(Scope.AGENT, self.inside.scope, self.spec.id, aliases={"prompt": "input"})
        self._agent_id = scope.facts.scope_id if self.inside.parents else ""

        async def body(outcome: Outcome) -> AgentResult:
            self.tell("agent_start", run_id=self.run.id)
            payload = mapping(outcome.payload, Point.AGENT_START)
            self._kwargs = cast("dict[str, Any]", payload.get("provider_kwargs") or {})
            self._take_input(outcome)
            return await self._work(scope)

        async def again(ending: Outcome) -> AgentResult:
            told = ending.reason or "This is not finished yet; go on."
            self.note(ending)
            self.messages.append(text_message("user", told))
            self._hook_texts.extend(ending.tell_model)
            return await self._work(scope)

        ending = await scope.around(payload, body, again=again)
        self.note(ending)
        result = self.answer_of(scope, ending)
        started = scope.outcome or ending
        if started.answered:
            self._take_input(started)
            self.messages.append(text_message("assistant", as_text(plain(ending.output))))
        self._hook_texts.extend(ending.tell_model)
        self._add_hook_texts()
        return self._final(result, ending, answered=started.answered)

    def _take_input(self, outcome: Outcome) -> None:
        given = input_in(outcome.payload, Point.AGENT_START)
        self.note(outcome)
        if isinstance(given, list):
            self.messages.extend(cast("list[Message]", plain(given)))
        else:
            self.messages.append(text_message("user", as_text(given)))
        self._hook_texts.extend(outcome.tell_model)
        self._save()

    def _save(self) -> None:
        """Brings the transcript of the session up to date, or of an agent that is a tool its own."""
        if self.inside.files is not None:
            self.inside.files.write(self.messages, self.inside.session_id, self._agent_id)

    async def _work(self, scope: OpenScope) -> AgentResult:
        repaired = False
        while True:
            step = await self._step(scope, len(self.steps) + 1)
            if isinstance(step, Outcome):
                self.messages.append(text_message("user", self.refusal(step, Point.STEP_START)))
                continue
            self.refusals[Scope.STEP] = 0
            stopped_by = await self._stopped(scope) if step.tool_results else None
            goes_on = bool(step.tool_results) and stopped_by is None
            if self._shown_at is Point.STEP_END or (self._shown_at is Point.AGENT_END and goes_on):
                self._show(step.content or "")
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

    async def _stopped(self, scope: OpenScope) -> str | None:
        """The condition that ends the agent here, told and on record; the limit that nobody set is a failure."""
        context = StopConditionContext(list(self.steps), self.spec.id, self.run.id)
        for condition in self.spec.conditions():
            if not await condition.holds(context):
                continue
            if condition not in self.spec.stop_conditions:
                raise AgentFailed(f"ended at its limit of {len(self.steps)} steps, without an answer")
            told = f"stopped by {condition}"
            scope.remark(told)
            self.notice(self.config.name, told)
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
        if (self._shown_at is Point.AGENT_END or answered) and result.result is not None:
            self._show(as_text(plain(result.result)))
        return replace(result, notices=(*result.notices, *self.notices))

    async def _step(self, agent_scope: OpenScope, number: int) -> Step | Outcome:
        """Runs one step; returns the outcome instead if its start was refused."""
        self._add_hook_texts()
        scope = self.open(Scope.STEP, agent_scope, str(number), step=number)
        payload = {"step": number, "messages": Shared(self.messages)}
        self.tell("step_start", step=number)

        async def body(outcome: Outcome) -> Step:
            self.note(outcome)
            messages = (
                messages_in(outcome.payload, Point.STEP_START) if outcome.changed else Shared(self.messages)
            )
            told = [text_message("user", text) for text in outcome.tell_model]
            self.messages.extend(told)
            messages.extend(told)
            reply = await self._reply(scope, messages)
            self._cut = reply.stop_reason == "length"
            self.messages.append(assistant_message(reply))
            self._save()
            made = await self._make_calls(scope, reply.tool_calls)
            self.messages.extend(each.message() for each in made)
            self._save()
            step = reply.step(number, (each.result() for each in made))
            self.steps.append(step)
            return step

        ending = await scope.around(payload, body)
        self.note(ending)
        self._hook_texts.extend(ending.tell_model)
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
        self.refusals[Scope.MODEL] = 0
        while True:
            started, ending = await self._model_call(step_scope, messages)
            self.note(ending)
            if ending.action is not HookAction.BLOCK:
                reply = reply_from(ending.output)
                self.messages.extend(text_message("user", text) for text in started.tell_model)
                self._hook_texts.extend(ending.tell_model)
                if self._shown_at is Point.MODEL_END or (self._shown_at is None and started.answered):
                    self._show(reply.text or "")
                return reply
            at_start = started.action is HookAction.BLOCK
            point = Point.MODEL_START if at_start else Point.MODEL_END
            again = text_message("user", self.refusal(ending, point))
            messages = Shared(messages)
            messages += again, *(text_message("user", text) for text in ending.tell_model)

    async def _model_call(self, step_scope: OpenScope, messages: list[Message]) -> tuple[Outcome, Outcome]:
        """Calls the model; returns the outcomes of the start hooks and of the end hooks."""
        scope = self.open(Scope.MODEL, step_scope, f"{self.spec.model.provider}/{self.spec.model.name}")
        payload = {
            "messages": messages,
            "system": self.config.system_prompt,
            "tools": list(self.spec.tools),
            "temperature": self.config.temperature,
            "top_p": self.config.top_p,
            "max_output_tokens": self.config.max_output_tokens,
        }

        async def body(outcome: Outcome) -> Reply:
            self.note(outcome)
            told = [text_message("user", text) for text in outcome.tell_model]
            return await self._ask(self._request(outcome.payload, told))

        ending = await scope.around(payload, body)
        return scope.outcome or ending, ending

    def _request(self, given: Any, told: list[Message]) -> Request:
        payload = mapping(given, Point.MODEL_START)
        known: list[str] = payload.get("tools") or []
        schema = self.spec.output
        return Request(
            messages=(*messages_in(payload, Point.MODEL_START), *told),
            system=payload.get("system"),
            tools=tuple(self.spec.tools[name].spec for name in known if name in self.spec.tools),
            output_schema=schema.json_schema if schema else None,
            output_schema_name=schema.name if schema else None,
            temperature=payload.get("temperature"),
            top_p=payload.get("top_p"),
            max_output_tokens=payload.get("max_output_tokens"),
            extra=self._kwargs,
        )

    async def _ask(self, request: Request) -> Reply:
        reply: Reply | None = None
        async for piece in self.spec.model.stream(request):
            if isinstance(piece, Reply):
                reply = piece
            elif self._shown_at is None:
                self._show(piece.text)
        if reply is None:
            raise AgentFailed(f"{self.spec.model.provider}/{self.spec.model.name} ended without an answer")
        for call in reply.tool_calls:
            self.tell("tool_call", id=call.id, tool=call.name, arguments=call.arguments)
        return reply

    async def _make_calls(self, step: OpenScope, calls: Sequence[ToolCall]) -> list[PendingCall]:
        """Enters, runs and leaves every call of a step: starts and ends in call order, the tools together."""
        made: list[PendingCall] = []
        try:
            for call in calls:
                made.append(PendingCall(self, step, call))
                await made[-1].enter()
        except BaseException as exc:
            for each in made:
                await each.scope.drop(f"not run: {exc}")
            raise
        begun = [each for each in made if each.runs or each.status is Status.ANSWERED]
        failure: HookFailed | None = None
        try:
            await _run_together([each for each in begun if each.runs])
            for each in begun:
                try:
                    await each.leave()
                except HookFailed as exc:
                    failure = failure or exc  # the end hooks of the other calls are still due
        except BaseException as exc:
            for each in begun:
                await each.scope.left_after(exc, output=each.output, status=each.status)
            raise
        if failure is not None:
            raise failure
        return made

    def _add_hook_texts(self) -> None:
        """Adds the messages of hooks since the last model call; they cannot stand between a call and its result."""
        self.messages.extend(text_message("user", text) for text in self._hook_texts)
        self._hook_texts.clear()

    def _show(self, text: str) -> None:
        if text:
            self.tell("text_delta", text=text)


async def _run_together(calls: Sequence[PendingCall]) -> None:
    """Runs the tools concurrently; one that ends the run cancels the others."""
    if not calls:
        return
    tasks = [asyncio.ensure_future(each.run()) for each in calls]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()
    except BaseException:
        await cancel_and_wait(*tasks)
        raise


class StepCall:
    """One call of a step: its scope, the messages of its hooks for the model, and its result so far."""

    def __init__(self, context: AgentContext, scope: OpenScope) -> None:
        self.context = context
        self.scope = scope
        self.id, self.name = scope.facts.call_id or "", scope.name
        self.status = Status.CANCELLED
        self.output: Any = {"error": "cancelled"}
        self.hook_texts: list[str] = []
        self.runs = False

    def take(self, outcome: Outcome) -> None:
        """Takes the outcome of its start hooks; raises if that ends the run."""
        self.context.note(outcome)
        self.hook_texts.extend(outcome.tell_model)
        if outcome.action is HookAction.BLOCK:
            self.status, self.output = Status.BLOCKED, {"error": f"refused: {outcome.reason}"}
        elif outcome.action is HookAction.ANSWER:
            self.status, self.output = Status.ANSWERED, outcome.output
        else:
            self.scope.raise_if_over(outcome, Point.TOOL_START)
            self.runs = True

    async def leave(self) -> Outcome:
        """Runs its end hooks."""
        ending = await self.context.leave(self.scope, self.output, self.status)
        self.output = ending.output
        self.hook_texts.extend(ending.tell_model)
        if ending.action is HookAction.BLOCK and ending.reason:
            self.hook_texts.append(ending.reason)
        self.context.tell("tool_finish", id=self.id, tool=self.name, status=str(self.status))
        return ending

    def result(self) -> ToolResult:
        """The result as steps and answers have it."""
        return ToolResult(
            tool_call_id=self.id,
            tool_name=self.name,
            status=str(self.status),
            result=self.output,
            error=None if self.status in (Status.OK, Status.ANSWERED) else _error(self.output),
        )


class PendingCall(StepCall):
    """A call of the built-in agent while it is entered, run and left."""

    def __init__(self, loop: Loop, step: OpenScope, call: ToolCall) -> None:
        self.call = call
        self._tool = loop.spec.tools.get(call.name)
        self._problem = None
        if self._tool is None:
            known = ", ".join(loop.spec.tools) or "none"
            self._problem = f"there is no tool {call.name!r}; the tools are: {known}"
        elif call.arguments is None:
            self._problem = (
                f"the arguments of {call.name} are not a JSON object: {call.raw_arguments[:200]!r}"
            )
        kind = self._tool.kind if self._tool is not None else None
        scope = loop.open_call(step, call.name, kind, call.id, runs=self._problem is None)
        super().__init__(loop, scope)

    async def enter(self) -> None:
        """Runs its start hooks; a call that cannot run is only recorded, and the model reads why."""
        tool, scope = self._tool, self.scope
        if tool is None or self._problem is not None:
            await scope.enter(self.call.raw_arguments)
            self.status, self.output = Status.FAILED, {"error": self._problem}
            await scope.leave(self.output, Status.FAILED, error=self._problem)
            return
        permission = f"{tool.id} needs approval" if tool.approval == "always" else None
        outcome = await scope.enter(dict(self.call.arguments or {}), permission=permission)
        self.take(outcome)
        self._arguments = outcome.payload
        if self.status is Status.BLOCKED:
            await scope.leave(self.output, self.status, error=outcome.reason)

    async def run(self) -> None:
        """Runs its tool, in a task of its own."""
        assert self._tool is not None
        context, tasks = self.context, set[asyncio.Task[Any]]()
        context.tell("tool_start", id=self.id, tool=self.name)
        CURRENT_RUN.set(replace(context.inside_of(self.scope), tasks=tasks))
        try:
            self.output = await self._tool(context.workflow, plain(self._arguments))
            self.status = Status.OK
        except Refused as exc:
            self.status, self.output = Status.BLOCKED, {"error": f"refused: {exc.reason}"}
        except (HookFailed, Skipped, RunTimedOut) as exc:
            self.status, self.output = self.scope.status_of(exc), {"error": str(exc)}
            raise
        except ToolTimedOut as exc:
            context.run.resume()
            self.status, self.output = Status.TIMED_OUT, {"error": str(exc)}
        except asyncio.CancelledError as exc:
            self.status, self.output = self.scope.status_of(exc), {"error": "cancelled"}
            raise
        except Exception as exc:
            text = str(exc) if isinstance(exc, AgentFailed) else f"{type(exc).__name__}: {exc}"
            self.status, self.output = Status.FAILED, {"error": text}
        finally:
            if tasks:  # a tool that has ended leaves no agent running
                await cancel_and_wait(*tasks)

    def message(self) -> Message:
        """The message for the model: the result, followed by the messages of hooks."""
        error = self.result().error
        shown = as_text(plain(self.output)) if error is None else f"Error: {error}"
        content = "\n".join([shown, *self.hook_texts])
        return {"role": "tool", "tool_call_id": self.id, "name": self.name, "content": content}


def _error(output: Any) -> str:
    shown = plain(output)
    if isinstance(shown, dict) and "error" in shown:
        return str(cast("dict[str, Any]", shown)["error"])
    return as_text(shown)
