"""Tool calls: ADK runs the calls of a step in concurrent tasks; here their hooks run in call order.

All starts run one after another, then the bodies together, then all ends one after another. ADK also calls back for a
call that never ran (a refused one, or one that waits for a person); such a call has no end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any, cast

from hookline.adapters.google_adk.agents import AdkAgent, PausedCall
from hookline.adapters.google_adk.messages import google_module
from hookline.agent.loop import StepCall
from hookline.claude.tools import kind_of
from hookline.engine.effect import settled_by
from hookline.engine.lifecycle import OpenScope
from hookline.engine.plain import mapping, plain
from hookline.engine.point import Status
from hookline.engine.record import Question, Verdict, VerdictKind, nobodys_verdict
from hookline.engine.result import HookAction, Outcome
from hookline.errors import HooklineError, Refused, RunEnded

TOLD = "told_by_hooks"
"""The key of a tool's response under which the messages of hooks for the model stand."""
DECISION = "requested_tool_confirmations"
PAUSES = {DECISION: "a person has to decide first", "requested_auth_configs": "it needs a credential"}
"""ADK's lists of calls that will come again, each with the reason."""

TOOL_CLASSES: Mapping[str, str] = {
    "AgentTool": "agent",
    "TransferToAgentTool": "agent",
    "MCPTool": "mcp",
    "McpTool": "mcp",
    "ExecuteBashTool": "shell",
    "UrlContextTool": "web",
    "GoogleSearchTool": "web",
}
"""Kinds of ADK's own tools by their class, because they may have any name."""

BODY: ContextVar[AdkCall | None] = ContextVar("hookline_adk_body", default=None)
"""The tool call whose body runs here: an agent that starts inside it is part of that call's run."""


class PersonAsked(HooklineError):
    """ADK asks a person, and the call comes again with the answer."""


def returned_call(tool_context: Any) -> AdkCall | None:
    """The call whose body is over; None if hooks refused or answered it, or its scope has ended."""
    call = BODY.get()
    if call is None or call.tool_context is not tool_context:
        return None
    BODY.set(call.outer)
    return None if call.scope.ended else call


def cause(error: BaseException) -> BaseException:
    """The error of a hook without those that ADK wrapped around it; else the error itself."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, RunEnded):
        inner = inner.__cause__
    return inner or error


async def start_call(
    agent: AdkAgent, tool: Any, kinds: Mapping[str, str], args: dict[str, Any], context: Any
) -> Any:
    """Begin a call; a response stands in for the tool's. `kinds` are the user's, by the names of tools."""
    name = tool.name
    kind = kinds.get(name) or TOOL_CLASSES.get(type(tool).__name__) or kind_of(name)
    # ADK makes a bare BaseTool in the place of a name that no tool has, and tells the model.
    known = type(tool) is not google_module("adk.tools.base_tool").BaseTool
    scope = agent.open_call(agent.inner_scope, name, kind, context.function_call_id or None, runs=known)
    if known:
        return await AdkCall(agent, scope, args, context).start()
    await scope.enter(dict(args))
    await scope.leave(None, Status.FAILED, error=f"there is no tool {name!r}")
    return None


class AdkCall(StepCall):
    """One tool call, from before its start hooks to after its end hooks.

    `started`: its start hooks have run. `back`: its body has returned, or does not run. `over`: so have its end hooks.
    `calls`: all of its step. `failure`: why it did not start, which keeps the others from starting too.
    """

    def __init__(self, agent: AdkAgent, scope: OpenScope, args: dict[str, Any], tool_context: Any) -> None:
        super().__init__(agent, scope)
        if all(call.over.is_set() for call in agent.calls):
            agent.calls = []
        self.agent = agent
        self.calls, self._earlier = agent.calls, agent.calls.copy()
        self.calls.append(self)
        self.args = args
        self.tool_context = tool_context
        self.outer = BODY.get()
        self.failure: BaseException | None = None
        self.started, self.back, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._given = dict(args)
        if agent.run.approver is None:
            scope.approver = self._ask_client

    def settle(self, *_: Any) -> None:
        """Let nothing wait for it any more; also if its task is over without a callback."""
        for each in (self.started, self.back, self.over):
            each.set()

    async def start(self) -> Any:
        """Run its start hooks; a response stands in for the tool's."""
        try:
            outcome = await self._start_in_turn()
        except BaseException as exc:
            self.failure = exc
            await self._close(f"not run: {str(exc) or type(exc).__name__}")
            raise
        if outcome.action is HookAction.ASK:
            waits = "waits for a person's decision"
            return {"error": f"{waits}: {outcome.reason}" if outcome.reason else waits}
        if self.status is Status.BLOCKED:
            await self._close(outcome.reason, self.status, self.output)
            self.agent.tool_results.append(self.result())
            return _with_told(self.output, self.hook_texts)
        if self.status is Status.ANSWERED:
            return await self._end(always=True)
        payload: Any = outcome.payload
        if not isinstance(payload, Mapping):
            kind = type(payload).__name__
            why = f"the hooks at tool.start made the input of {self.name} a {kind}; it must stay a mapping"
            await self._close(why, Status.FAILED)
            return {"error": why}
        changed = cast("dict[str, Any]", plain(payload))
        if changed != self.args:
            self.args.clear()
            self.args.update(changed)
        if self.tool_context.tool_confirmation is None and not outcome.needs_permission:
            confirmation = google_module("adk.tools.tool_confirmation").ToolConfirmation(confirmed=True)
            self.tool_context.tool_confirmation = confirmation
        BODY.set(self)
        return None

    async def finish(self, result: Any) -> Any:
        """Run its end hooks; a response takes the result's place."""
        for pause in PAUSES:
            if self.id in (getattr(self.tool_context.actions, pause) or {}):
                # The tool or another plugin asks for it, after the start hooks: the call comes again.
                assert self.scope.outcome is not None
                await self._postpone(self.scope.outcome, pause)
                return None
        confirmation = self.tool_context.tool_confirmation
        if confirmation is not None and not confirmation.confirmed:
            await self._close("refused by a person", Status.BLOCKED)
            return None
        self.status, self.output = Status.OK, result
        return await self._end()

    async def fail(self, error: BaseException) -> Any:
        """Run its end hooks after it raised. A hook that gives an output recovers the call, as ADK allows."""
        why = cause(error)
        if isinstance(why, asyncio.CancelledError):
            await self.abandon(why)
            return None
        refused = isinstance(why, Refused)
        text = f"refused: {why.reason}" if isinstance(why, Refused) else f"{type(why).__name__}: {why}"
        self.status, self.output = self.scope.status_of(why), {"error": text}
        response = await self._end(always=refused, in_turn=False)
        # A hook inside an agent that is a tool ended the run; no other hook can recover that.
        return None if isinstance(why, RunEnded) and not refused else response

    async def abandon(self, exc: BaseException | None) -> None:
        """End a call for which ADK called nothing after its body."""
        if self.scope.ended or not self.started.is_set():
            return
        try:
            if exc is not None:
                await self.scope.left_after(exc)
            elif self.agent.is_node:
                # ADK calls nothing after a node of a workflow that waits for a person.
                await self.scope.drop(PAUSES[DECISION])
            else:
                why = "another plugin took the tool's result before hookline saw it"
                await self.scope.leave(None, Status.OK, error=why)
        finally:
            self.settle()

    async def _start_in_turn(self) -> Outcome:
        """Run its start hooks after those of the calls before it; return when those of every call have run."""
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(self.settle)
        # The tasks of a step are made together: after one round of the loop, all of them are here.
        await asyncio.sleep(0)
        await _all_started(self._earlier)
        outcome = await self._enter()
        self.take(outcome)
        self.started.set()
        if self.status is Status.BLOCKED:
            self.settle()
        await _all_started(self.calls)
        return outcome

    async def _enter(self) -> Outcome:
        """Run its start hooks, or take up a call that was paused after them."""
        paused = self._paused()
        if paused is not None:
            return await self._resume(paused)
        try:
            return await self.scope.enter(dict(self.args))
        except PersonAsked as exc:
            return await self._pause(exc.args[0])

    async def _resume(self, paused: PausedCall) -> Outcome:
        """Enter a call again whose start hooks have run; only the person's answer is new."""
        before = paused.outcome
        self.scope.pipeline = self.agent.no_hooks
        outcome = await self.agent.enter(self.scope, plain(before.payload))
        self.scope.pipeline = self.agent.pipeline
        if paused.question is None:
            return outcome._replace(tell_model=before.tell_model)
        verdict = _verdict(self.tool_context.tool_confirmation)
        journal = self.scope.run.recorder.journal
        if journal is not None:
            journal.answer(paused.question, verdict)
        return settled_by(verdict, before, is_start=True)

    async def _ask_client(self, question: Question) -> Verdict:
        """The approver if none was given: ADK asks its client, where it can."""
        if self.tool_context.tool_confirmation is not None:
            return _verdict(self.tool_context.tool_confirmation)
        # An AgentTool and a node of a workflow do not resume a call that a callback paused.
        if self.outer is None and not self.agent.is_node:
            raise PersonAsked(question)
        return nobodys_verdict(question)

    async def _pause(self, question: Question) -> Outcome:
        asked = Outcome(HookAction.ASK, payload=question.value, reasons=question.reasons)
        await self._postpone(asked, DECISION, question.id)
        payload = {"input": plain(question.value)}
        self.tool_context.request_confirmation(hint=asked.reason or f"May {self.name} run?", payload=payload)
        # Without this ADK calls the model once more before it asks the person.
        self.tool_context.actions.skip_summarization = True
        return asked

    async def _end(self, *, always: bool = False, in_turn: bool = True) -> Any:
        """Run its end hooks in its turn: when every body of the step is back, and the calls before it have ended.

        They run also when it is cancelled while it waits for that.
        """
        self.back.set()
        try:
            if in_turn:
                for each in self.calls:
                    await each.back.wait()
                for each in self._earlier:
                    await each.over.wait()
            ending = await self.leave()
        except asyncio.CancelledError as exc:
            await self.scope.left_after(exc, output=self.output, status=self.status)
            raise
        finally:
            self.settle()
        self.agent.tool_results.append(self.result())
        if self.hook_texts and (self.output or always):
            return _with_told(self.output, self.hook_texts)
        # A long-running tool has no result yet, and the messages of hooks must not be taken for one.
        self.agent.in_next_request.extend(self.hook_texts)
        return plain(self.output) if ending.changed or always else None

    async def _close(self, why: str, status: Status | None = None, output: Any = None) -> None:
        """Close its scope without end hooks, because its body never ran."""
        self.settle()
        await self.scope.drop(why, status, output)

    async def _postpone(self, outcome: Outcome, pause: str, question: str | None = None) -> None:
        """Close its scope until the call comes again."""
        paused = PausedCall(self.name, self._given, outcome, pause, question)
        self.agent.adk_run.session.paused[self.id] = paused
        await self._close(PAUSES[pause])

    def _paused(self) -> PausedCall | None:
        """This call as it was paused. A model may use an id twice: it must be the same call."""
        known = self.agent.adk_run.session.paused
        found = known.get(self.id)
        if found is None or (found.tool, found.args) != (self.name, self._given):
            return None
        if found.pause == DECISION and self.tool_context.tool_confirmation is None:
            return None
        return known.pop(self.id)


async def _all_started(calls: Iterable[AdkCall]) -> None:
    """Return when their start hooks have run; raise what kept one of them from starting."""
    for each in calls:
        await each.started.wait()
        if each.failure is not None:
            raise each.failure


def _with_told(output: Any, told: list[str]) -> Any:
    shown = plain(output)
    if not told:
        return shown
    whole: dict[str, Any] = cast("dict[str, Any]", shown) if isinstance(shown, dict) else {"result": shown}
    return {**whole, TOLD: told}


def _verdict(confirmation: Any) -> Verdict:
    if confirmation.confirmed:
        return Verdict(VerdictKind.APPROVE, by="the client")
    said = mapping(confirmation.payload)
    reason = str(said.get("rejection_reason") or said.get("reason") or "")
    return Verdict(VerdictKind.REJECT, reason or "refused by a person", by="the client")
