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
from hookline.engine.point import Point, Scope, Status
from hookline.engine.result import HookAction
from hookline.errors import AgentFailed, HookFailed, Refused, RunTimedOut, Skipped
from hookline.tasks import cancel_and_wait


class ToolCalls:
    """Makes the tool calls of one step."""

    def __init__(self, context: AgentContext, step: OpenScope, tools: Mapping[str, Tool]) -> None:
        self._context = context
        self._step = step
        self._tools = tools

    async def made(self, calls: Sequence[ToolCall]) -> list[PendingCall]:
        """Enters, runs and leaves every call of a step."""
        entered = [PendingCall(call, self._tools.get(call.name)) for call in calls]
        try:
            for each in entered:
                await self._enter(each)
        except BaseException as exc:
            for each in entered:
                if each.scope is not None:
                    await each.scope.drop(f"not run: {exc}")
            raise
        begun = [each for each in entered if each.runs or each.status is Status.ANSWERED]
        try:
            await self._bodies([each for each in begun if each.runs])
        except BaseException as exc:
            for each in begun:
                if each.scope is not None:
                    await each.scope.left_after(exc, output=each.output, status=each.status)
            raise
        await self._leave(begun)
        return entered

    async def _enter(self, each: PendingCall) -> None:
        call, tool = each.call, each.tool
        problem = None
        if tool is None:
            known = ", ".join(self._tools) or "none"
            problem = f"there is no tool {call.name!r}; the tools are: {known}"
        elif call.arguments is None:
            problem = f"the arguments of {call.name} are not a JSON object: {call.raw_arguments[:200]!r}"
        scope = self._context.open(
            Scope.TOOL,
            self._step,
            call.name,
            hooks=problem is None,
            current_tool=call.name,
            tool_kind=tool.kind if tool else None,
            call_id=call.id,
        )
        if tool is None or problem is not None:
            # It cannot run, so no hooks run either; it is still recorded, and the model reads why.
            await scope.enter(call.raw_arguments)
            await scope.leave({"error": problem}, Status.FAILED, error=problem)
            each.status, each.output = Status.FAILED, {"error": problem}
            return
        each.scope = scope
        self._context.inside.seen.tools[tool.id] = tool.kind
        permission = f"{tool.id} needs approval" if tool.approval == "always" else None
        outcome = await scope.enter(dict(call.arguments or {}), permission=permission)
        self._context.note(outcome)
        each.told.extend(outcome.tell_model)
        each.arguments = outcome.payload
        if outcome.action is HookAction.BLOCK:
            each.status, each.output = Status.BLOCKED, {"error": f"refused: {outcome.reason}"}
            await scope.leave(each.output, Status.BLOCKED, error=outcome.reason)
        elif outcome.answered and outcome.action is HookAction.ANSWER:
            each.status, each.output = Status.ANSWERED, outcome.output
        else:
            scope.raise_if_over(outcome, Point.TOOL_START)
            each.runs = True

    async def _bodies(self, running: Sequence[PendingCall]) -> None:
        """Runs the tools concurrently; one that ends the run cancels the others."""
        if not running:
            return
        tasks = [asyncio.ensure_future(self._body(each)) for each in running]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
        finally:
            await cancel_and_wait(*tasks)

    async def _body(self, each: PendingCall) -> None:
        assert each.tool is not None
        assert each.scope is not None
        self._context.tell("tool_start", id=each.call.id, tool=each.call.name)
        inside, tasks = self._context.inside, set[asyncio.Task[Any]]()
        CURRENT_RUN.set(
            replace(
                inside,
                scope=each.scope,
                parents=(*inside.parents, self._context.config.name),
                note=self._context.notice,
                tasks=tasks,
            ),
        )
        try:
            each.output = await each.tool(self._context.workflow, plain(each.arguments))
            each.status = Status.OK
        except Refused as exc:
            each.status, each.output = Status.BLOCKED, {"error": f"refused: {exc.reason}"}
        except (HookFailed, Skipped, RunTimedOut) as exc:
            each.status, each.output = each.scope.status_of(exc), {"error": str(exc)}
            raise
        except ToolTimedOut as exc:
            inside.run.resume()
            each.status, each.output = Status.TIMED_OUT, {"error": str(exc)}
        except asyncio.CancelledError:
            each.status, each.output = each.scope.status_of(asyncio.CancelledError()), {"error": "cancelled"}
            raise
        except Exception as exc:
            text = str(exc) if isinstance(exc, AgentFailed) else f"{type(exc).__name__}: {exc}"
            each.status, each.output = Status.FAILED, {"error": text}
        finally:
            # A tool that has ended leaves no agent running.
            await cancel_and_wait(*tasks)

    async def _leave(self, begun: Sequence[PendingCall]) -> None:
        """Runs all end hooks that are due, in call order, even after one of them failed the run."""
        failure: HookFailed | None = None
        for each in begun:
            assert each.scope is not None
            try:
                ending = await self._context.leave(each.scope, each.output, each.status)
            except HookFailed as exc:
                failure = failure or exc
                continue
            each.output = ending.output
            each.told.extend(ending.tell_model)
            if ending.action is HookAction.BLOCK and ending.reason:
                each.told.append(ending.reason)
            self._context.tell("tool_finish", id=each.call.id, tool=each.call.name, status=str(each.status))
        if failure is not None:
            raise failure


class PendingCall:
    """One call of a step while it is entered, run and left."""

    __slots__ = ("arguments", "call", "output", "runs", "scope", "status", "told", "tool")

    def __init__(self, call: ToolCall, tool: Tool | None) -> None:
        self.call = call
        self.tool = tool
        self.scope: OpenScope | None = None
        self.arguments: Any = None
        self.runs = False
        self.status = Status.CANCELLED
        self.output: Any = {"error": "cancelled"}
        self.told: list[str] = []

    @property
    def failed(self) -> bool:
        return _is_failure(self.status)

    def result(self) -> ToolResult:
        return tool_result(self.call.id, self.call.name, self.status, self.output)

    def message(self) -> Message:
        return {
            "role": "tool",
            "tool_call_id": self.call.id,
            "name": self.call.name,
            "content": self.content(),
        }

    def content(self) -> str:
        """The text for the model: the result, followed by the messages of hooks."""
        shown = _error(self.output) if self.failed else as_text(plain(self.output))
        return "\n".join([f"Error: {shown}" if self.failed else shown, *self.told])


def tool_result(call_id: str, tool: str, status: Status, output: Any) -> ToolResult:
    """The result of a call as steps and answers have it."""
    return ToolResult(
        tool_call_id=call_id,
        tool_name=tool,
        status=str(status),
        result=output,
        error=_error(output) if _is_failure(status) else None,
    )


def _is_failure(status: Status) -> bool:
    return status not in (Status.OK, Status.ANSWERED)


def _error(output: Any) -> str:
    shown = plain(output)
    if isinstance(shown, dict) and "error" in shown:
        return str(cast("dict[str, Any]", shown)["error"])
    return as_text(shown)
