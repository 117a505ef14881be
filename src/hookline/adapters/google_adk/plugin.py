"""ADK's callbacks as points of hookline: the plugin, and the same as callbacks of one agent.

Each run and agent is begun once and ended once. ADK reports the end of a run only if it went well (`after_run`) or
raised (`on_run_error`), and not the end of an agent that handed over to another or whose caller left. Whatever is still
open when the outer scope ends is ended first.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

# ADK is not in the environment that hookline itself is checked in; in a user's it is.
from google.adk.plugins.base_plugin import (  # pyright: ignore[reportMissingImports]
    BasePlugin,  # pyright: ignore[reportUnknownVariableType]
)

from hookline.adapters.google_adk.agents import AdkAgent, AdkRun, AdkSession
from hookline.adapters.google_adk.messages import text_content, text_of, with_text
from hookline.adapters.google_adk.tools import BODY, cause, returned_call, start_call
from hookline.agent.models import input_in
from hookline.agent.spec import CurrentRun
from hookline.engine.hook import Hook, Mode
from hookline.engine.lifecycle import Approver, Run
from hookline.engine.pipeline import Recorder
from hookline.engine.plain import as_text, plain
from hookline.engine.point import Point, Scope, Status, points_in
from hookline.engine.record import Journal, Record
from hookline.engine.result import HookAction
from hookline.errors import HooklineError, RunEnded, Skipped, UsageError
from hookline.handlers.python import python_hook
from hookline.hookfile.attach import load_hooks
from hookline.runners.local import LocalRunner

logger = logging.getLogger(__name__)

HookSource = str | Path | Hook | Callable[..., Any]
"""A hook file, a hook, or a function with `@hook(on=...)`."""


class HooklinePlugin(BasePlugin):  # pyright: ignore[reportUntypedBaseClass]
    """The hooks as a plugin of ADK.

    hooks: hook files (`hookline.yaml`, `.claude/settings.json`), functions with `@hook(on=...)`, `Hook` objects
    journal: where it is recorded; see `hookline.engine.record`
    approver: who answers `ask`; without one, ADK asks its client to confirm the call
    kinds: tool names to tool kinds (`{"deploy": "shell"}`), for `match: kind:shell`
    """

    def __init__(
        self,
        hooks: HookSource | Iterable[HookSource] = (),
        *,
        journal: Journal | None = None,
        watch: Iterable[Callable[[Record], None]] = (),
        approver: Approver | None = None,
        kinds: Mapping[str, str] | None = None,
        workspace: str | Path | None = None,
        name: str = "hookline",
    ) -> None:
        if isinstance(hooks, str | Path | Hook) or callable(hooks):
            hooks = [hooks]
        self.name = name
        self._kinds = kinds or {}
        self._sources = list(hooks)
        self._recorder = Recorder(journal, watch)
        self._approver = approver
        self._workspace = str(workspace) if workspace is not None else None
        self._runs: dict[str, AdkRun] = {}
        self._sessions: dict[tuple[str, str, str], AdkSession] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._attach()

    def _attach(self) -> None:
        """Make the hooks live; again if a runner was closed with all its plugins and another uses this one."""
        self._runner = LocalRunner()
        self._closed = False
        self.hooks = tuple(hook for source in self._sources for hook in _hooks_of(source, self._runner))
        for hook in self.hooks:
            if not points_in(hook.points, set(Scope) - {Scope.WORKSPACE}):
                text = "hook %s [%s] never runs here: ADK has none of its points"
                logger.warning(text, hook.name, hook.source)

    async def close_session(
        self, session_id: str, *, app_name: str | None = None, user_id: str | None = None
    ) -> None:
        """End a conversation: its session.end hooks run, once."""
        for app, user, id in list(self._sessions):
            if id != session_id or app_name not in (None, app) or user_id not in (None, user):
                continue
            scope = self._sessions.pop((app, user, id)).scope
            if scope is not None:
                await scope.left({"session_id": session_id}, Status.OK)

    async def close(self) -> None:
        """End everything that is open, and all conversations."""
        while self._ending:
            await asyncio.wait(self._ending)
        for run in list(self._runs.values()):
            await self._end_run(run, None if run.implied else asyncio.CancelledError())
        for app, user, id in list(self._sessions):
            await self.close_session(id, app_name=app, user_id=user)
        self._closed = True
        await self._runner.close()

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> Any:
        """Begin a run; a content takes the message's place."""
        run = await self._begin(invocation_context)
        outcome, text = run.scope.outcome, text_of(user_message)
        if run.outer is not None or outcome is None or not outcome.changed or not text:
            return None
        new = _input(outcome.payload, Point.RUN_START)
        return with_text(user_message, new) if new != text else None

    async def before_run_callback(self, *, invocation_context: Any) -> Any:
        """Begin the session, and the run where it came without a message; a content ends the run with it."""
        run = self._run_of(invocation_context) or await self._begin(invocation_context)
        if run.status is Status.SKIPPED:
            return text_content(run.result or "", "model")
        if _is_live(invocation_context):
            # There ADK calls the model callbacks for fragments, in no order of calls; no guard can rely on that.
            check_reach(
                self.hooks,
                {Scope.STEP, Scope.MODEL},
                "which live mode does not have",
                "take it out, or set its mode to observe",
                lambda hook: hook.mode is Mode.ENFORCE,
            )
        if run.outer is None:
            try:
                await run.open_session()
            except asyncio.CancelledError as exc:
                # ADK calls no plugin for a run that is cancelled before its first agent.
                await self._end_run(run, exc)
                raise
        return None

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        # ADK has no other callback for a caller that leaves; the exception is still being handled here.
        left = isinstance(sys.exc_info()[1], GeneratorExit | asyncio.CancelledError)
        exc = asyncio.CancelledError() if left or invocation_context.is_aborted else None
        await self._end_run(self._run_of(invocation_context), exc)

    async def on_run_error_callback(self, *, invocation_context: Any, error: Exception) -> None:
        await self._end_run(self._run_of(invocation_context), cause(error))

    async def on_event_callback(self, *, invocation_context: Any, event: Any) -> Any:
        """Keep the text of an agent; the event carries the notices of hooks to the user."""
        run = self._run_of(invocation_context)
        if run is None:
            return None
        text = text_of(event.content)
        if text and not event.partial:
            run.texts[event.author] = text
            if event.is_final_response():
                run.result = text
        if not run.notices or run.outer is not None:
            return None
        notices, run.notices = run.notices, []
        known = dict(event.custom_metadata or {})
        return event.model_copy(update={"custom_metadata": {**known, "hookline": {"notices": notices}}})

    async def before_agent_callback(self, callback_context: Any, agent: Any = None) -> Any:
        """Begin an agent's work; a content stands in for it."""
        invocation = invocation_of(callback_context)
        at_work = await self._take_up(invocation)
        run = at_work.adk_run
        original = text_of(invocation.user_content)
        given = run.session.rewritten.get(original, original)
        streaming = str(getattr(invocation.run_config, "streaming_mode", "")).lower().endswith("sse")
        try:
            outcome = await at_work.enter(at_work.scope, at_work.agent_payload(given, streaming=streaming))
        except Skipped as exc:
            if at_work.parent is not None or run.outer is not None:
                raise
            run.status = Status.SKIPPED
            return text_content(exc.reason, "model")
        except asyncio.CancelledError as exc:
            if at_work.parent is None:
                # ADK calls nothing more for a cancelled run: it is over with its outermost agent.
                await self._end_run(run, exc)
            raise
        if outcome.action is HookAction.BLOCK:
            if at_work.parent is None:
                run.status = Status.BLOCKED
            return text_content(f"refused: {outcome.reason}", "model")
        at_work.in_next_request.extend(outcome.tell_model)
        if outcome.answered:
            ending = await at_work.leave(at_work.scope, outcome.output, Status.ANSWERED)
            return text_content(as_text(plain(ending.output)), "model")
        new = _input(outcome.payload, Point.AGENT_START)
        if new != given:
            run.session.rewritten[original] = new
        return None

    async def after_agent_callback(self, callback_context: Any, agent: Any = None) -> Any:
        """End an agent's work; a content comes after all that it said."""
        at_work = self._agent_of(callback_context)
        if at_work is None:
            return None
        run = at_work.adk_run
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            cancelled = asyncio.CancelledError()
            await (at_work.end(cancelled) if at_work.parent is not None else self._end_run(run, cancelled))
            return None
        ending = await at_work.end()
        if run.implied and at_work.parent is None and all(agent.scope.ended for agent in run.agents.values()):
            await self._end_run(run)
        if ending is None or not ending.changed:
            return None
        return text_content(as_text(plain(getattr(ending.output, "result", ending.output))), "model")

    async def on_agent_error_callback(self, *, agent: Any, callback_context: Any, error: Exception) -> None:
        at_work = self._agent_of(callback_context)
        if at_work is not None:
            await at_work.end(cause(error))

    async def before_model_callback(self, callback_context: Any, llm_request: Any) -> Any:
        if _is_live(invocation_of(callback_context)):
            return None
        return await (await self._at_work(callback_context)).request_made(llm_request)

    async def after_model_callback(self, callback_context: Any, llm_response: Any) -> Any:
        if _is_live(invocation_of(callback_context)):
            return None
        return await (await self._at_work(callback_context)).response_received(llm_response)

    async def on_model_error_callback(
        self, callback_context: Any, llm_request: Any, error: Exception
    ) -> None:
        await (await self._at_work(callback_context)).model_failed(cause(error))

    async def before_tool_callback(self, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> Any:
        at_work = await self._at_work(tool_context)
        return await start_call(at_work, tool, self._kinds, tool_args, tool_context)

    async def after_tool_callback(self, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> Any:
        call = returned_call(tool_context)
        return await call.finish(result) if call is not None else None

    async def on_tool_error_callback(
        self, tool: Any, tool_args: Any, tool_context: Any, error: BaseException
    ) -> Any:
        call = returned_call(tool_context)
        return await call.fail(error) if call is not None else None

    def _run_of(self, invocation: Any) -> AdkRun | None:
        return self._runs.get(invocation.invocation_id)

    def _agent_of(self, context: Any) -> AdkAgent | None:
        invocation = invocation_of(context)
        run = self._run_of(invocation)
        return run.agents.get(id(invocation)) if run is not None else None

    async def _at_work(self, context: Any) -> AdkAgent:
        """The agent that a callback is for; only recorded if ADK did not report its beginning."""
        agent = self._agent_of(context)
        if agent is None:
            agent = await self._take_up(invocation_of(context), hooks=False)
            await agent.enter(agent.scope, None)
        return agent

    async def _take_up(self, invocation: Any, *, hooks: bool = True) -> AdkAgent:
        """The agent of an invocation, not started yet, in its run."""
        run = self._run_of(invocation)
        if run is None:
            for left in [each for each in self._runs.values() if each.implied]:
                if left.session.id == invocation.session.id:
                    # ADK calls no callback of an agent that raises; this run was left open by one.
                    await self._end_run(left, HooklineError("it ended, and ADK did not report how"))
            # An agent's callbacks, among which there is none for runs.
            run = await self._begin(invocation, implied=True)
        agent = run.agents[id(invocation)] = AdkAgent(run, invocation, hooks=hooks)
        return agent

    async def _begin(self, invocation: Any, *, implied: bool = False) -> AdkRun:
        """Begin a run, or a part of the run whose tool call it is in."""
        call = BODY.get()
        if call is not None and call.agent.adk_run in self._runs.values():
            outer, inside = call.agent.adk_run, call.agent.inside_of(call.scope)
            session = AdkSession(outer.session.id, paused=outer.session.paused)
            run = AdkRun(invocation, inside, session, implied=outer.implied, outer=outer)
            self._runs[invocation.invocation_id] = run
            return run
        run = self._runs[invocation.invocation_id] = self._new_run(invocation, implied)
        task = asyncio.current_task()
        if task is not None and not implied:
            # One task may make any number of runs, and must not keep those that are over.
            known = weakref.ref(run)
            task.add_done_callback(lambda _: self._end_silent(known()))
        try:
            outcome = await run.enter(run.scope, {"input": text_of(invocation.user_content)}, **run.record())
        except Skipped as exc:
            run.result, run.status = exc.reason, Status.SKIPPED
            return run
        except BaseException:
            self._runs.pop(invocation.invocation_id, None)
            raise
        run.session.in_next_request.extend(outcome.tell_model)
        return run

    def _new_run(self, invocation: Any, implied: bool) -> AdkRun:
        if self._closed:
            self._attach()
        given = invocation.session
        key = (given.app_name, given.user_id, given.id)
        session = self._sessions.setdefault(key, AdkSession(given.id))
        inside = CurrentRun(
            run=Run(recorder=self._recorder, approver=self._approver),
            root_workflow_id=getattr(invocation.agent, "name", None) or given.app_name,
            note=lambda _agent, _text: None,
            hooks=self.hooks,
            workspace=self._workspace,
            session_id=given.id,
            user_id=given.user_id,
        )
        return AdkRun(invocation, inside, session, implied=implied)

    async def _end_run(self, run: AdkRun | None, exc: BaseException | None = None) -> None:
        """End a run, once, after everything that is open in it; a refused or failed end stops no other."""
        if run is None or self._runs.pop(run.invocation.invocation_id, None) is None:
            return
        failed: RunEnded | None = None
        for inner in [each for each in self._runs.values() if each.outer is run]:
            await self._end_run(inner, exc)
        for agent in reversed(run.agents.values()):
            try:
                await agent.end(exc)
            except RunEnded as error:
                exc = failed = error
        if run.outer is None:
            run.inside.seen.note_unmatched(run.run, run.inside.root_workflow_id)
            await (run.scope.left_after(exc) if exc is not None else run.scope.left(run.answer(), run.status))
        if failed is not None:
            raise failed

    def _end_silent(self, run: AdkRun | None) -> None:
        """End a run whose task ended without a callback: it was cancelled outside of any agent."""
        if run is not None and self._run_of(run.invocation) is run:
            ending = asyncio.ensure_future(self._end_run(run, asyncio.CancelledError()))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)


def check_reach(
    hooks: Iterable[Hook], scopes: set[Scope], why: str, remedy: str, is_refused: Callable[[Hook], bool]
) -> None:
    """Refuse, or warn of, every hook at a point where it is never called."""
    for hook in hooks:
        points = points_in(hook.points, scopes)
        if not points or hook.mode is Mode.OFF:
            continue
        text = f"hook {hook.name} [{hook.source}] stands at {', '.join(points)}, {why}"
        if is_refused(hook):
            raise UsageError(f"{text}; {remedy}")
        logger.warning("%s", text)


def _is_live(invocation: Any) -> bool:
    return getattr(invocation, "live_request_queue", None) is not None


def _input(payload: Any, point: Point) -> str:
    return as_text(plain(input_in(payload, point)))


def invocation_of(context: Any) -> Any:
    """The invocation of a callback; its public getter makes a copy, which has another identity."""
    return getattr(context, "_invocation_context")  # noqa: B009


def _hooks_of(source: HookSource, runner: LocalRunner) -> list[Hook]:
    if isinstance(source, Hook):
        return [source]
    if not isinstance(source, str | Path):
        return [python_hook(source)]
    attached = load_hooks(str(source), runner)
    if attached.problems:
        raise attached.problems[0]
    for note in (*attached.notes, *attached.doubts):
        logger.warning("%s", note)
    return attached.hooks
