"""An AgentRun on this machine, from its beginning to its end, also after a crash.

In the journal it is a run like any other: preRun hooks stand at `run.start`, postRun hooks at `run.end`, the agent is
inside. The files that end it after a crash are beside its workspace, in a folder that is removed last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from hookline.engine.context import Facts, WorkflowContext
from hookline.engine.hook import Hook
from hookline.engine.lifecycle import OpenScope
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.plain import as_text, plain, typed
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Owner, Record, RunRow, new_run_id, owed
from hookline.engine.result import Outcome
from hookline.errors import AgentFailed, HooklineError, RunEnded, RunTimedOut, Skipped, UsageError
from hookline.hookfile.ends import hooks_again
from hookline.journal.recovery import (
    LOST,
    alive,
    claim_abandoned,
    format_of,
    lost_end,
    lost_ends,
    made_or_put_off,
    waits,
)
from hookline.journal.snapshot import snapshot, snapshot_of
from hookline.kube.pod_state import ContainerPhase, ContainerState, EndReason
from hookline.sympozium import resolve
from hookline.sympozium.environment import task_input
from hookline.sympozium.phases import AgentSeen, Phase, Seen, outcome
from hookline.sympozium.policy import without_effect
from hookline.sympozium.resolve import FORMAT, RunRequest
from hookline.sympozium.run.agent import inner_points, relayed, run_agent
from hookline.sympozium.run.folders import RELAYED, Folder, FolderError, apart
from hookline.sympozium.run.hooks import CANCELLED, SEEN, Ground, LocalSite, container_hooks
from hookline.sympozium.types import RUN_TIMEOUT, RunSpec

TOOL_POLICY = "x.sympozium.toolPolicy"
"""The point of a note on a limit that has no effect."""
AGAIN = f"{LOST}; its postRun hooks had begun; unfinished ones were run again"
_STATUS: dict[Phase | None, Status] = {Phase.SUCCEEDED: Status.OK, Phase.SKIPPED: Status.SKIPPED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a run ended. `kept` is where its workspace stays, where that was asked for."""

    run_id: str
    phase: Phase
    status: Mapping[str, Any]
    kept: Path | None = None
    problem: str = ""


async def run(site: LocalSite, asked: RunRequest) -> Ran:
    """Run it. However it ends, postRun has run by then unless it was skipped, and its folders are gone.

    A cancellation is raised after postRun; any other failure is in the returned value.
    """
    spec = resolve.spec_of(asked)
    resolve.check_request(asked, spec, site.environ, site.agent_runner)
    _check_hooks(site, asked)
    run_id = asked.name or resolve.named(spec.name, new_run_id())
    spec = replace(spec, name=run_id)
    if run_id in site.journal.find(run_id):
        raise UsageError(f"there was a run {run_id!r} already; give another --name, or none")
    folder = site.home.make(run_id)
    try:
        resolve.keep_request(folder, asked)
        task = folder.ipc / "input/task.json"
        task.write_text(task_input(spec), encoding="utf-8", errors="replace")
        work = _LocalRun(site, asked, spec, folder)
    except BaseException:
        folder.remove()
        raise
    try:
        return await work.done()
    finally:
        # Nothing was begun, or all of it has ended.
        folder.let_go()


async def recovered(site: LocalSite) -> list[Ran]:
    """End every run on this machine that a killed process left, and remove the remains of ended ones."""

    def is_left(row: RunRow, records: Sequence[Record]) -> bool:
        return format_of(records) == FORMAT and not (site.home.path / row.run_id).exists()

    found: list[Ran | None] = []
    for folder in site.home.left():
        if waits(site.journal, folder.run_id):
            folder.let_go()
        else:
            found.append(await resumed(site, folder))
    recorder = Recorder(site.journal, site.watchers)
    found += [await _given_up(recorder, *each) for each in claim_abandoned(site.journal, site.owner, is_left)]
    return [each for each in found if each is not None]


async def resumed(site: LocalSite, folder: Folder) -> Ran | None:
    """End the run of an abandoned folder; None where it had ended, or never begun."""
    row = next((each for each in site.journal.unfinished() if each.run_id == folder.run_id), None)
    if row is None:
        await _removed(folder)
        return None
    try:
        if row.owner is not None and not _taken_over(site, row.run_id, row.owner):
            return None
        try:
            asked = resolve.kept_request(folder)
            spec = replace(resolve.spec_of(asked), name=folder.run_id)
            given = await _given_hooks(site, folder.run_id)
        except HooklineError as exc:
            return Ran(run_id=folder.run_id, phase=Phase.FAILED, status={}, problem=str(exc))
        seen = typed(Seen, folder.read(SEEN) or {})
        return await _LocalRun(site, asked, spec, folder, seen).broken_off(given)
    finally:
        # Also where the user ends us meanwhile: the rest is done when the folder is recovered.
        folder.let_go()


async def _given_hooks(site: LocalSite, run_id: str) -> Sequence[Hook]:
    """The end hooks that the run was given by the command line, as they were then."""
    kept = snapshot_of(site.journal, run_id)
    if kept is None or not kept.hooks:
        return ()
    return await made_or_put_off(site.journal, run_id, hooks_again(kept))


def _taken_over(site: LocalSite, run_id: str, held_by: Owner) -> bool:
    if held_by == site.owner:
        return True
    return not alive(held_by) and site.journal.claim(run_id, held_by, site.owner)


class _LocalRun(Ground):
    """One run while it is at work."""

    async def done(self) -> Ran:
        scope = self._scope(self.site.hooks)
        try:
            await self._worked(scope)
        except GeneratorExit:
            raise
        except BaseException:
            await self._over()
            raise
        return await self._over()

    async def _worked(self, scope: OpenScope) -> None:
        self.site.journal.keep(self.run.id, snapshot(self.site.hooks, workspace=str(self.folder.workspace)))
        try:
            entered = await scope.enter(
                {"input": self._task, "workspace": str(self.folder.workspace)},
                declaration=resolve.declaration(self.spec).to_dict(),
                source=self.asked.file,
                owner=self.site.owner,
            )
            for text in without_effect(self.spec, builtin=self.asked.is_builtin):
                self.note(TOOL_POLICY, text)
            scope.raise_if_over(entered, Point.RUN_START)
            await self._agent(scope)
        except GeneratorExit:
            raise
        except BaseException as exc:
            if outcome(self.spec.hooks, self.seen) is None:
                cancelled = isinstance(exc, asyncio.CancelledError)
                self.change(stopped=CANCELLED if cancelled else str(exc) or type(exc).__name__)
            await scope.left_after(exc, output=self.shown)
            if not isinstance(exc, RunEnded):
                raise
        else:
            await scope.left(self.shown, Status.OK)

    async def broken_off(self, given: Sequence[Hook]) -> Ran:
        """End a run that a killed process left: its end hooks that had not ended, the record, the folders.

        `given` are the end hooks of the command line that began it.
        """
        left = owed(self.site.journal.records(self.run.id))
        again = any(each.again for each in left if each.begun.scope is Scope.RUN)
        self.change(**self._settled(LOST))
        for each in left:
            if each.begun.scope is not Scope.RUN:
                await self.recorder.write(lost_end(each.begun, LOST))
        why = AGAIN if again else LOST
        self.show(note=why)
        status = _STATUS.get(outcome(self.spec.hooks, self.seen), Status.LOST)
        await self._scope(given).left(self.shown, status)
        return await self._over()

    def _settled(self, why: str) -> dict[str, Any]:
        """The state after the process was killed: all that was running has ended, and the rest never began."""
        seen = self.seen
        killed = {"state": ContainerPhase.ENDED, "reason": EndReason.KILLED}
        before = tuple(
            replace(each, **killed, detail=why) if each.state is ContainerPhase.RUNNING else each
            for each in seen.pre_run
        )
        # A postRun hook that was running is due again: it may not have got far.
        after = tuple(
            ContainerState() if each.state is ContainerPhase.RUNNING else each for each in seen.post_run
        )
        changes: dict[str, Any] = {"pre_run": before, "post_run": after}
        if seen.agent.state is ContainerPhase.RUNNING:
            changes["agent"] = replace(seen.agent, **killed, error=why)
        elif seen.agent.state is ContainerPhase.WAITING and seen.skip is None:
            through = len(before) == len(self.spec.hooks.pre_run) and all(each.succeeded for each in before)
            skip = self.folder.skip_reason() if through else None
            changes |= {"stopped": why} if skip is None else {"skip": skip}
        return changes

    @property
    def _task(self) -> Any:
        return plain(self.spec.task)

    def _scope(self, given: Sequence[Hook]) -> OpenScope:
        run = self.run
        hooks = (*given, *container_hooks(self))
        pipeline = Pipeline(hooks, self.recorder)
        return OpenScope(
            run, pipeline, Scope.RUN, self._facts(self.scope_id), name=self.spec.instance or self.spec.name
        )

    async def _agent(self, parent: OpenScope) -> None:
        """The agent's own scope, with the hooks of the command line around it."""
        site = self.site
        scope = OpenScope(
            self.run,
            Pipeline(site.hooks, self.recorder),
            Scope.AGENT,
            self._facts(self.run.next_id()),
            name=self.spec.agent_id,
            parent=parent,
        )

        async def body(started: Outcome) -> dict[str, Any]:
            given = cast("dict[str, Any]", started.payload or {}).get("input")
            task = given if isinstance(given, str) and given != self._task else None
            told = {RELAYED: ",".join(inner_points(site.hooks))} if site.hooks else {}
            relay = relayed(self.folder.ipc, site.hooks, scope, self.mask)
            async with relay if self.asked.is_builtin else nullcontext():
                seen = await run_agent(self, task, told)
            return _answer(self.spec, seen)

        try:
            ended = await scope.around({"input": self._task}, body)
            if self.seen.agent.state is ContainerPhase.WAITING:
                self._not_run(ended, answered=scope.outcome is not None and scope.outcome.answered)
        except RunEnded as exc:
            if self.seen.agent.state is ContainerPhase.WAITING:
                self.change(
                    agent=AgentSeen(state=ContainerPhase.ENDED, reason=EndReason.NOT_STARTED, error=str(exc))
                )
            raise

    def _not_run(self, outcome: Outcome, *, answered: bool) -> None:
        """A hook of the command line answered in the agent's place, or refused its task."""
        if not answered:
            raise AgentFailed(outcome.reason or "a hook refused the task")
        self.change(
            agent=AgentSeen(state=ContainerPhase.ENDED, exit_code=0, result=as_text(plain(outcome.output)))
        )

    async def _over(self) -> Ran:
        """Put the folders away."""
        self.tell_phase()
        kept = None
        if self.spec.cleanup == "keep":
            kept = await apart(self.folder.keep)
        problem = "" if kept else await _removed(self.folder)
        shown = {**self.shown, "workspace": str(kept)} if kept else self.shown
        return Ran(run_id=self.run.id, phase=self.phase, status=shown, kept=kept, problem=problem)

    def _facts(self, scope_id: str) -> Facts:
        spec, run_id = self.spec, self.run.id
        workflow = spec.instance or spec.name
        return Facts(
            workflow_id=workflow,
            run_id=run_id,
            scope_id=scope_id,
            agent=spec.agent_id,
            session_id=spec.session_key,
            workflow=WorkflowContext(
                workflow_id=workflow,
                execution_id=run_id,
                root_execution_id=run_id,
                root_workflow_id=workflow,
                created_at=time.time(),
                workspace=str(self.folder.workspace),
                agent_id=spec.agent_id,
            ),
        )


def _check_hooks(site: LocalSite, asked: RunRequest) -> None:
    """Refuse hooks inside the work of a foreign agent, which would never be called."""
    if asked.is_builtin:
        return
    for hook in site.hooks:
        points = inner_points([hook])
        if points:
            raise UsageError(
                f"hook {hook.name} [{hook.source}] stands at {', '.join(points)}, which hookline cannot see inside"
                " --agent-command; only the built-in agent calls such hooks"
            )


def _answer(spec: RunSpec, seen: AgentSeen) -> dict[str, Any]:
    """The output of the agent's scope; raises if there is no answer."""
    if seen.skipped is not None:
        raise Skipped(seen.skipped, point=Point.AGENT_END, hook="agent")
    if not seen.succeeded:
        late = seen.reason is EndReason.TIMED_OUT
        limit = spec.timeout or RUN_TIMEOUT
        raise RunTimedOut(f"the agent passed its limit of {limit:g} s") if late else AgentFailed(seen.error)
    return {"result": seen.result, "exit_code": seen.exit_code}


async def _removed(folder: Folder) -> str:
    """Remove a run's folders; what went wrong, if anything did."""
    try:
        await apart(folder.remove)
    except FolderError as exc:
        return str(exc)
    return ""


async def _given_up(recorder: Recorder, row: RunRow, records: Sequence[Record]) -> Ran:
    """Record the end of a run whose folders were removed."""
    why = f"{LOST}, and its folders are gone, so no postRun hook was run"
    for each in lost_ends(records, why):
        await recorder.write(each)
    return Ran(run_id=row.run_id, phase=Phase.FAILED, status={}, problem=why)
