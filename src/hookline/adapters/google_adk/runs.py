"""Open runs and agents: each is begun once and ended once, whatever ADK tells of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hookline.adapters.google_adk.agents import AdkAgent, AdkRun, AdkSession, answer_of
from hookline.adapters.google_adk.messages import text_of
from hookline.adapters.google_adk.tools import BODY, ask_in_client
from hookline.agent.sdk import hook_declaration
from hookline.agent.spec import HookCoverage
from hookline.engine.hook import AgentDeclaration, Declaration, Hook
from hookline.engine.lifecycle import Approver, Run
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Journal, Record
from hookline.errors import HooklineError, RunEnded, Skipped
from hookline.handlers.python import python_hook
from hookline.hookfile.attach import load_hooks
from hookline.journal.recovery import owner
from hookline.runners.local import LocalRunner

logger = logging.getLogger(__name__)

HookSource = str | Path | Hook | Callable[..., Any]
"""A hook file, a hook, or a function with `@hook(on=...)`."""


class OpenRuns:
    """The hooks that some runners share, made live, and all that is open in those runners."""

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
        self._approver = approver or ask_in_client
        self._workspace = str(workspace) if workspace is not None else None
        self._runs: dict[str, AdkRun] = {}
        self._sessions: dict[tuple[str, str, str], AdkSession] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._attach()

    def _attach(self) -> None:
        """Make the hooks live; once more where a runner that is closed with all it had is followed by another."""
        self._runner = LocalRunner()
        self._closed = False
        self.hooks = tuple(hook for source in self._sources for hook in _hooks_of(source, self._runner))
        for hook in self.hooks:
            scopes = {point.scope for point in hook.points if isinstance(point, Point)}
            if not scopes - {Scope.WORKSPACE}:
                text = "hook %s [%s] never runs here: ADK has none of its points"
                logger.warning(text, hook.name, hook.source)

    async def close_session(
        self, session_id: str, *, app_name: str | None = None, user_id: str | None = None
    ) -> None:
        """The conversation is over: its session.end hooks run, once."""
        for app, user, id in list(self._sessions):
            if id != session_id or app_name not in (None, app) or user_id not in (None, user):
                continue
            scope = self._sessions.pop((app, user, id)).scope
            if scope is not None:
                await scope.left({"session_id": session_id}, Status.OK)

    async def close(self) -> None:
        """End what is still open and close every conversation."""
        while self._ending:
            await asyncio.wait(self._ending)
        for run in list(self._runs.values()):
            if run.outer is None:
                await self._end_run(run, None if run.implied else asyncio.CancelledError())
        self._runs.clear()
        for app, user, id in list(self._sessions):
            await self.close_session(id, app_name=app, user_id=user)
        self._closed = True
        await self._runner.close()

    def _run_of(self, invocation: Any) -> AdkRun | None:
        return self._runs.get(invocation.invocation_id)

    def _agent_of(self, context: Any) -> AdkAgent | None:
        invocation = invocation_of(context)
        run = self._run_of(invocation)
        return run.agents.get(id(invocation)) if run is not None else None

    async def _at_work(self, context: Any) -> AdkAgent:
        """The agent that a callback is for; on record only where ADK said nothing of its beginning."""
        agent = self._agent_of(context)
        if agent is None:
            agent = await self._take_up(invocation_of(context), hooks=False)
            await agent.run.start(agent.scope, None)
        return agent

    async def _take_up(self, invocation: Any, *, hooks: bool = True) -> AdkAgent:
        """The agent of an invocation, not started yet, in its run."""
        run = self._run_of(invocation) or await self._begin_implied(invocation)
        agent = run.agents[id(invocation)] = AdkAgent(run, invocation, hooks=hooks)
        if run.outer is None:
            texts, run.session.in_next_request = run.session.in_next_request, []
            agent.in_next_request.extend(texts)
        return agent

    async def _begin(self, invocation: Any, message: Any, *, implied: bool = False) -> AdkRun:
        """Begin a run, or find the one that it is part of."""
        call = BODY.get()
        if call is not None and call.agent.run in self._runs.values():
            parents = (*call.agent.parents, call.agent.name)
            run = call.agent.run.inside(invocation, call.scope, parents)
            self._runs[invocation.invocation_id] = run
            return run
        run = self._runs[invocation.invocation_id] = self._new_run(invocation, implied)
        task = asyncio.current_task()
        if task is not None and not implied:
            task.add_done_callback(lambda _: self._end_silent(run))
        try:
            outcome = await run.start(run.scope, {"input": text_of(message)}, **self._record(run))
        except Skipped as exc:
            run.result, run.status = exc.reason, Status.SKIPPED
            return run
        except BaseException:
            self._runs.pop(invocation.invocation_id, None)
            raise
        run.session.in_next_request.extend(outcome.tell_model)
        return run

    async def _begin_implied(self, invocation: Any) -> AdkRun:
        """Begin a run that nobody told us of: callbacks on an agent, where there is none for runs."""
        for run in list(self._runs.values()):
            if run.implied and run.session.id == invocation.session.id:
                # ADK says nothing to an agent's callbacks when the agent raises; what is left is from then.
                await self._end_run(run, HooklineError("it ended, and ADK did not report how"))
        return await self._begin(invocation, invocation.user_content, implied=True)

    def _new_run(self, invocation: Any, implied: bool) -> AdkRun:
        if self._closed:
            self._attach()
        given = invocation.session
        key = (given.app_name, given.user_id, given.id)
        session = self._sessions.setdefault(key, AdkSession(id=given.id, user_id=given.user_id))
        return AdkRun(
            invocation=invocation,
            run=Run(recorder=self._recorder, approver=self._approver),
            pipeline=Pipeline(self.hooks, self._recorder),
            session=session,
            rewritten=session.rewritten,
            root=getattr(invocation.agent, "name", None) or given.app_name,
            workspace=self._workspace,
            implied=implied,
        )

    def _record(self, run: AdkRun) -> dict[str, Any]:
        """Owner and declaration for a run's record, which say what it was when its process is gone."""
        config = run.scope.facts.agent_config
        if self._recorder.journal is None or config is None:
            return {}
        agent = AgentDeclaration(
            name=config.name,
            provider=config.provider,
            model=config.model,
            system_prompt=config.system_prompt,
            tools=config.tools,
        )
        hooks = tuple(hook_declaration(hook) for hook in self.hooks)
        declaration = Declaration(format="google-adk", source="", agent=agent, hooks=hooks)
        return {"owner": owner(), "declaration": declaration.to_dict()}

    async def _open_session(self, run: AdkRun) -> None:
        session = run.session
        async with session.opening:
            if session.scope is not None:
                return
            facts = run.facts(run.invocation.agent)
            scope = run.open(Scope.SESSION, facts, name=session.id, parent=run.scope)
            events = run.invocation.session.events
            before = any(event.invocation_id != run.invocation.invocation_id for event in events)
            payload = {"session_id": session.id, "source": "resume" if before else "startup"}
            outcome = await run.start(scope, payload)
            session.scope = scope
            session.in_every_request.extend(outcome.tell_model)

    async def _end_run(self, run: AdkRun | None, exc: BaseException | None = None) -> None:
        """End a run, once, and first all that is open in it; an end that is refused or fails holds up no other."""
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
            matching = {hook.name: hook for hook in run.pipeline.matching}
            HookCoverage(matching, run.pipeline.matched, run.tools).note_unmatched(run.run, run.root)
            if exc is not None:
                await run.scope.left_after(exc)
            else:
                await run.scope.left(answer_of(run, run.result, run.agents.values()), run.status)
        if failed is not None:
            raise failed

    def _end_silent(self, run: AdkRun) -> None:
        """A run whose task ends without a word from ADK was cancelled outside of any agent."""
        if self._runs.get(run.invocation.invocation_id) is run:
            ending = asyncio.ensure_future(self._end_run(run, asyncio.CancelledError()))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)


def invocation_of(context: Any) -> Any:
    """The invocation a callback belongs to; its public getter makes a copy, and we need to know it again."""
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
