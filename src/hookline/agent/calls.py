"""The tool calls of one step: all starts in call order, the bodies together, all ends in call order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from hookline.agent.models import Message
from hookline.agent.spec import CURRENT_RUN, AgentContext
from hookline.agent.tools import Tool, ToolTimedOut
from hookline.engine.context import ToolCall, ToolResult
from hookline.engine.lifecycle import OpenScope
from hookline.engine.plain import as_text, plain
from hookline.engine.point import Point, Status
from hookline.engine.result import HookAction, Outcome
from hookline.errors import AgentFailed, HookFailed, Refused, RunTimedOut, Skipped
from hookline.tasks import cancel_and_wait


async def make_calls(
    context: AgentContext, step: OpenScope, tools: Mapping[str, Tool], calls: Sequence[ToolCall]
) -> list[PendingCall]:
    """Enters, runs and leaves every call of a step."""
    made: list[PendingCall] = []
    try:
        for call in calls:
            made.append(PendingCall(context, step, tools, call))
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
        self.told: list[str] = []
        self.runs = False

    def take(self, outcome: Outcome) -> None:
        """Takes the outcome of its start hooks; raises if that ends the run."""
        self.context.note(outcome)
        self.told.extend(outcome.tell_model)
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
        self.told.extend(ending.tell_model)
        if ending.action is HookAction.BLOCK and ending.reason:
            self.told.append(ending.reason)
        self.context.tell("tool_finish", id=self.id, tool=self.name, status=str(self.status))
        return ending

    @property
    def failed(self) -> bool:
        return self.status not in (Status.OK, Status.ANSWERED)

    def result(self) -> ToolResult:
        """The result as steps and answers have it."""
        return ToolResult(
            tool_call_id=self.id,
            tool_name=self.name,
            status=str(self.status),
            result=self.output,
            error=_error(self.output) if self.failed else None,
        )


class PendingCall(StepCall):
    """A call of the built-in agent while it is entered, run and left."""

    def __init__(
        self, context: AgentContext, step: OpenScope, tools: Mapping[str, Tool], call: ToolCall
    ) -> None:
        self.call = call
        self._tool = tools.get(call.name)
        self._problem = None
        if self._tool is None:
            known = ", ".join(tools) or "none"
            self._problem = f"there is no tool {call.name!r}; the tools are: {known}"
        elif call.arguments is None:
            self._problem = (
                f"the arguments of {call.name} are not a JSON object: {call.raw_arguments[:200]!r}"
            )
        kind = self._tool.kind if self._tool is not None else None
        scope = context.open_call(step, call.name, kind, call.id, runs=self._problem is None)
        super().__init__(context, scope)

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
        return {
            "role": "tool",
            "tool_call_id": self.id,
            "name": self.name,
            "content": self.content(),
        }

    def content(self) -> str:
        """The text for the model: the result, followed by the messages of hooks."""
        shown = _error(self.output) if self.failed else as_text(plain(self.output))
        return "\n".join([f"Error: {shown}" if self.failed else shown, *self.told])


def _error(output: Any) -> str:
    shown = plain(output)
    if isinstance(shown, dict) and "error" in shown:
        return str(cast("dict[str, Any]", shown)["error"])
    return as_text(shown)
