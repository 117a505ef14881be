"""The service: tells the state what happened, and does what the state says. Nothing here decides.

One event loop, one state. Attempts, removals and questions to the tracker are tasks of their own, so that a hook
that hangs holds up nobody but its issue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Protocol

from hookline.errors import HooklineError
from hookline.symphony.agents import Told
from hookline.symphony.attempt import AttemptEnd, Halt
from hookline.symphony.hooks import fields
from hookline.symphony.read import WatchedWorkflow
from hookline.symphony.scheduler import next_due, step, waits
from hookline.symphony.state import (
    Action,
    AskTracker,
    Cleaned,
    Event,
    Finish,
    Heard,
    Looked,
    Polled,
    Refreshed,
    RemoveWorkspace,
    Rules,
    StartAttempt,
    State,
    StopAttempt,
    Stopped,
    Swept,
    Ticked,
    rules_of,
)
from hookline.symphony.trackers import Tracker, TrackerError
from hookline.symphony.types import Issue, Workflow
from hookline.symphony.view import StateView
from hookline.tasks import cancel_and_wait

logger = logging.getLogger(__name__)

REMOVALS = 4
"""Workspaces that are removed at once."""
SOONEST = 1.0
"""Seconds from one look at a tracker to one for a place that has become free."""


class IssueWorker(Protocol):
    """Does the work on one issue. Cancelled, an attempt runs its end hooks and then says how it ended."""

    async def attempt(
        self,
        workflow: Workflow,
        tracker: Tracker,
        issue: Issue,
        number: int | None,
        tell: Callable[[Told], None],
        halt: Halt,
    ) -> AttemptEnd: ...

    async def remove(self, workflow: Workflow, issue: Issue) -> None:
        """Remove the issue's workspace, with its hook; nothing where there is none."""
        ...

    async def workspaces(self) -> frozenset[str]:
        """The identifiers of the issues that have one."""
        ...

    def path(self, identifier: str) -> str: ...


class Service:
    """Works on issues until it is stopped. `changed` is called after every event, for whoever shows the state.

    `mask` hides secrets in what agents say, before it is part of the state that others see.
    """

    def __init__(
        self,
        watched: WatchedWorkflow,
        tracker_of: Callable[[Workflow], Tracker],
        worker: IssueWorker,
        *,
        changed: Callable[[], None] = lambda: None,
        mask: Callable[[str], str] = str,
    ) -> None:
        self._watched = watched
        self._mask = mask
        self._worker = worker
        self._changed = changed
        self.state = State()
        self._trackers = _Trackers(tracker_of)
        self._attempts: dict[int, tuple[asyncio.Task[None], Halt]] = {}
        self._others: set[asyncio.Task[None]] = set()
        self._removing = asyncio.Semaphore(REMOVALS)
        self._wake = asyncio.Event()
        self._look_now = asyncio.Event()
        self._stopping = asyncio.Event()
        self._polling = False
        self._left_waiting = False
        self._looked_at = 0.0
        self.problem: str | None = None
        """Why the tracker could not be read the last time."""

    async def run(self) -> None:
        """Until `stop`; attempts that are under way are cancelled then, and their end hooks run."""
        loops = [
            asyncio.ensure_future(each)
            for each in (self._polls(), self._ticks(), self._watched.watch(self._look_now.set))
        ]
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([*loops, stopped], return_when=asyncio.FIRST_COMPLETED)
            for each in loops:
                if each.done():
                    each.result()
        finally:
            await cancel_and_wait(*loops, stopped)
            self._tell(Stopped())
            await self._drained()
            await self._trackers.close()

    def stop(self) -> None:
        """The first time everything comes to its end; the second time end hooks are cut short."""
        if self._stopping.is_set():
            for task in (*(task for task, _ in self._attempts.values()), *self._others):
                task.cancel()
        self._stopping.set()

    def refresh(self) -> dict[str, Any]:
        """Look at the tracker now; a wish that is waiting already takes this one along."""
        waiting = self._look_now.is_set()
        self._look_now.set()
        return {
            "queued": True,
            "coalesced": waiting or self._polling,
            "requested_at": self._view().time(time.monotonic()),
            "operations": ["poll", "reconcile"],
        }

    def snapshot(self) -> dict[str, Any]:
        problem = self._watched.problem or self.problem
        return self._view().snapshot(time.monotonic(), problem)

    def issue(self, identifier: str) -> dict[str, Any] | None:
        return self._view().issue(identifier)

    def _view(self) -> StateView:
        return StateView(state=self.state, clock=_wall, workspace=self._worker.path)

    async def once(self) -> None:
        """Reconcile, then look for new work: one round of the poll."""
        self._polling = True
        try:
            workflow = self._watched.workflow
            tracker = await self._trackers.of(workflow)
            await self._reconciled(tracker)
            if self._watched.problem is not None:
                return
            found = await tracker.by_states(workflow.tracker.active_states)
            for line in tracker.omitted:
                logger.warning("an issue was left out: %s", line)
            self.problem = None
            self._tell(Polled(issues=tuple(found)))
            self._left_waiting = waits(self.state, found, self._rules())
        finally:
            self._polling = False

    async def sweep(self) -> None:
        """Remove the workspaces of issues that came to their end while nobody looked."""
        workflow = self._watched.workflow
        kept = await self._worker.workspaces()
        if not kept:
            return
        try:
            tracker = await self._trackers.of(workflow)
            found = await tracker.by_states(workflow.tracker.terminal_states)
        except TrackerError as exc:
            logger.warning("%s old workspaces could not be listed: %s", fields(kind=exc.kind), exc)
            return
        self._tell(Swept(issues=tuple(issue for issue in found if issue.identifier in kept)))

    async def _polls(self) -> None:
        await self.sweep()
        while True:
            self._look_now.clear()
            wait = self._watched.workflow.polling.interval
            try:
                await self.once()
            except TrackerError as exc:
                self.problem = str(exc)
                wait = max(wait, exc.retry_after or 0.0)
                logger.warning("%s the tracker could not be read: %s", fields(kind=exc.kind), exc)
                self._changed()
            self._looked_at = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._look_now.wait()

    async def _ticks(self) -> None:
        while True:
            due = next_due(self.state, self._rules())
            with suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(due - time.monotonic(), 0.0)):
                    await self._wake.wait()
            self._wake.clear()
            self._tell(Ticked(), wake=False)

    async def _reconciled(self, tracker: Tracker) -> None:
        ids = (*self.state.running, *self.state.parked)
        if not ids:
            return
        found = await tracker.by_ids(ids)
        by_id = {issue.id: issue for issue in found}
        self._tell(Refreshed(asked=ids, found=by_id))

    def _rules(self) -> Rules:
        return rules_of(self._watched.workflow, dispatch=self._watched.problem is None)

    def _tell(self, event: Event, *, wake: bool = True) -> None:
        self.state, actions = step(self.state, event, self._rules(), time.monotonic())
        for action in actions:
            self._do(action)
        if wake:
            self._wake.set()
        self._changed()

    def _do(self, action: Action) -> None:
        match action:
            case AskTracker():
                self._aside(self._looked(action))
            case StartAttempt():
                self._start(action)
            case StopAttempt():
                self._stop_one(action)
            case RemoveWorkspace():
                self._aside(self._cleaned(action))

    def _start(self, action: StartAttempt) -> None:
        halt = Halt()
        task = asyncio.ensure_future(self._attempted(action, halt))
        self._attempts[action.generation] = (task, halt)
        task.add_done_callback(lambda _: self._attempts.pop(action.generation, None))

    async def _attempted(self, action: StartAttempt, halt: Halt) -> None:
        issue, workflow = action.issue, self._watched.workflow
        about = fields(issue_id=issue.id, issue_identifier=issue.identifier, attempt=action.attempt)
        logger.info("%s an attempt begins", about)

        def tell(told: Told) -> None:
            shown = replace(told, text=self._mask(told.text))
            self._tell(Heard(id=issue.id, generation=action.generation, told=shown))

        ended = AttemptEnd(outcome="failed", error="it was cut short")
        try:
            async with self._trackers.held(workflow) as tracker:
                ended = await self._worker.attempt(workflow, tracker, issue, action.attempt, tell, halt)
        except asyncio.CancelledError:
            ended = AttemptEnd(outcome="cancelled")
        except Exception as exc:
            logger.exception("%s an attempt broke off", about)
            ended = AttemptEnd(outcome="failed", error=self._mask(f"{type(exc).__name__}: {exc}"))
        finally:
            logger.info("%s %s an attempt ended", about, fields(outcome=ended.outcome, error=ended.error))
            self._tell(
                Finish(
                    id=issue.id,
                    generation=action.generation,
                    outcome=ended.outcome,
                    error=ended.error,
                )
            )
            if self._left_waiting:
                self._look_soon()

    def _look_soon(self) -> None:
        """There is a place now for an issue that had none; ask the tracker, but not for each place anew."""
        self._left_waiting = False
        wait = max(self._looked_at + SOONEST - time.monotonic(), 0.0)
        asyncio.get_running_loop().call_later(wait, self._look_now.set)

    def _stop_one(self, action: StopAttempt) -> None:
        logger.info("%s an attempt is stopped: %s", fields(issue_id=action.id), action.why)
        task, halt = self._attempts[action.generation]
        halt.now(task, action.outcome)

    async def _looked(self, action: AskTracker) -> None:
        found: Mapping[str, Issue] = {}
        error: str | None = None
        try:
            tracker = await self._trackers.of(self._watched.workflow)
            found = {issue.id: issue for issue in await tracker.by_ids(action.ids)}
        except TrackerError as exc:
            error = str(exc)
            logger.warning("%s the tracker could not be asked: %s", fields(kind=exc.kind), exc)
        except asyncio.CancelledError:
            error = "the service is stopping"
        self._tell(Looked(asked=action.ids, found=found, error=error))

    async def _cleaned(self, action: RemoveWorkspace) -> None:
        about = fields(issue_id=action.issue.id, issue_identifier=action.issue.identifier)
        try:
            async with self._removing:
                await self._worker.remove(self._watched.workflow, action.issue)
        except asyncio.CancelledError:
            logger.warning("%s a workspace was not removed: the service is stopping", about)
        except HooklineError as exc:
            logger.warning("%s a workspace was not removed: %s", about, self._mask(str(exc)))
        except Exception:
            logger.exception("%s a workspace was not removed", about)
        finally:
            self._tell(Cleaned(id=action.issue.id))

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _drained(self) -> None:
        while self._attempts or self._others:
            await asyncio.wait([*(task for task, _ in self._attempts.values()), *self._others])


class _Trackers:
    """The tracker of the present configuration; one of an earlier one stays open while an attempt uses it."""

    def __init__(self, make: Callable[[Workflow], Tracker]) -> None:
        self._make = make
        self._now: tuple[Any, Tracker] | None = None
        self._holders: dict[int, int] = {}
        self._old: list[Tracker] = []

    async def of(self, workflow: Workflow) -> Tracker:
        if self._now is None or self._now[0] != workflow.tracker:
            made = self._make(workflow)
            if self._now is not None:
                self._old.append(self._now[1])
            self._now = (workflow.tracker, made)
            await self._tidy()
        return self._now[1]

    @asynccontextmanager
    async def held(self, workflow: Workflow) -> AsyncGenerator[Tracker, None]:
        """A tracker that is not closed before the block is left."""
        tracker = await self.of(workflow)
        self._holders[id(tracker)] = self._holders.get(id(tracker), 0) + 1
        try:
            yield tracker
        finally:
            self._holders[id(tracker)] -= 1
            await self._tidy()

    async def close(self) -> None:
        for tracker in (*self._old, *([self._now[1]] if self._now else [])):
            await tracker.close()
        self._old, self._now = [], None

    async def _tidy(self) -> None:
        free = [tracker for tracker in self._old if not self._holders.get(id(tracker))]
        self._old = [tracker for tracker in self._old if tracker not in free]
        for tracker in free:
            self._holders.pop(id(tracker), None)
            await tracker.close()


def _wall(at: float) -> float:
    return time.time() - time.monotonic() + at
