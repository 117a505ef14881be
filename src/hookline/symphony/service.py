"""The service: reports events to the scheduler and takes the actions that come back. Decided here is only when to poll
the tracker, and when to retry a poll that failed.

One event loop, one state. Attempts, removals and requests to the tracker are tasks of their own, so that a hook that
hangs holds up its own issue only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from hookline.engine.plain import utc_text
from hookline.errors import HooklineError
from hookline.journal.masking import Mask
from hookline.symphony import scheduler
from hookline.symphony.agents import AgentEvent
from hookline.symphony.attempt import Attempt, AttemptEnd, Halt, IssueWorker
from hookline.symphony.hooks import fields, issue_fields
from hookline.symphony.read import WatchedWorkflow, Workflow
from hookline.symphony.scheduler import Action, AskTracker, RemoveWorkspace, Running, State, StopAttempt
from hookline.symphony.settings import TrackerSettings
from hookline.symphony.trackers import Issue, Tracker, TrackerError
from hookline.tasks import cancel_and_wait, set_within

logger = logging.getLogger(__name__)

REMOVALS = 4
"""Workspaces that are removed at once."""
SOONEST = 1.0
"""Seconds from one look at a tracker to one for a place that has become free."""


class Service:
    """Works on issues until it is stopped. `changed` is called after every event.

    `mask` hides secrets in the messages of agents and errors, before they are part of the state.
    """

    def __init__(
        self,
        watched: WatchedWorkflow,
        tracker_of: Callable[[Workflow], Tracker],
        worker: IssueWorker,
        *,
        changed: Callable[[], None] = lambda: None,
        mask: Mask | None = None,
    ) -> None:
        self._watched = watched
        self._mask = mask or Mask()
        self._worker = worker
        self._changed = changed
        self.state = State()
        self._tracker_of = tracker_of
        self._trackers: list[tuple[TrackerSettings, Tracker]] = []
        self._attempts: dict[int, tuple[asyncio.Task[None], Halt]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
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
        """Work until `stop`; then cancel the attempts, whose end hooks run."""
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
            self._tell(scheduler.stopped)
            while self._tasks:
                await asyncio.wait(self._tasks)
            for _, tracker in self._trackers:
                await tracker.close()

    def stop(self) -> None:
        """Stop: the first time with end hooks, the second time without."""
        if self._stopping.is_set():
            for task in self._tasks:
                task.cancel()
        self._stopping.set()

    def refresh(self) -> dict[str, Any]:
        """Poll the tracker now; a request that is waiting already covers this one."""
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
        started = time.time() - time.monotonic()
        return StateView(state=self.state, clock=lambda at: started + at, workspace=self._worker.path)

    async def once(self) -> None:
        """Reconcile, then look for new work: one round of the poll."""
        self._polling = True
        try:
            workflow = self._watched.workflow
            tracker = self._tracker(workflow)
            ids = (*self.state.running, *self.state.parked)
            if ids:
                known = {issue.id: issue for issue in await tracker.by_ids(ids)}
                self._tell(partial(scheduler.refreshed, asked=ids, found=known))
            if self._watched.problem is not None:
                return
            found = await tracker.by_states(workflow.tracker.active_states)
            for line in tracker.omitted:
                logger.warning("an issue was skipped: %s", line)
            self.problem = None
            self._tell(partial(scheduler.polled, issues=found))
            self._left_waiting = scheduler.waits(self.state, found, workflow)
        finally:
            self._polling = False

    async def sweep(self) -> None:
        """Remove the workspaces of issues that reached a terminal state while no service ran."""
        workflow = self._watched.workflow
        kept = await self._worker.workspaces()
        if not kept:
            return
        try:
            tracker = self._tracker(workflow)
            found = await tracker.by_states(workflow.tracker.terminal_states)
        except TrackerError as exc:
            logger.warning("%s old workspaces could not be listed: %s", fields(kind=exc.kind), exc)
            return
        left = [issue for issue in found if issue.identifier in kept]
        self._tell(partial(scheduler.swept, issues=left))

    async def _polls(self) -> None:
        """Poll the tracker again and again; after a failure, not before the tracker wants to be asked again."""
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
            await set_within(self._look_now, wait)

    async def _ticks(self) -> None:
        while True:
            due = scheduler.next_due(self.state, self._watched.workflow)
            await set_within(self._wake, None if due is None else max(due - time.monotonic(), 0.0))
            self._tell(scheduler.ticked)
            self._wake.clear()

    def _tracker(self, workflow: Workflow) -> Tracker:
        """The tracker of this configuration. Earlier ones stay open to the end: an attempt may still use them."""
        for settings, tracker in self._trackers:
            if settings == workflow.tracker:
                return tracker
        made = self._tracker_of(workflow)
        self._trackers.append((workflow.tracker, made))
        return made

    def _tell(self, step: scheduler.Step) -> None:
        state = replace(self.state, paused=self._watched.problem is not None)
        self.state, actions = step(state, self._watched.workflow, time.monotonic())
        for action in actions:
            self._do(action)
        self._wake.set()
        self._changed()

    def _do(self, action: Action) -> None:
        match action:
            case AskTracker():
                self._aside(self._looked(action))
            case Running(generation=generation):
                halt = Halt()
                task = self._aside(self._attempted(action, halt))
                self._attempts[generation] = (task, halt)
                task.add_done_callback(lambda _: self._attempts.pop(generation, None))
            case StopAttempt():
                logger.info("%s an attempt is stopped: %s", fields(issue_id=action.id), action.why)
                task, halt = self._attempts[action.generation]
                halt.now(task, action.outcome)
            case RemoveWorkspace():
                self._aside(self._cleaned(action))

    async def _attempted(self, action: Running, halt: Halt) -> None:
        issue, workflow = action.issue, self._watched.workflow
        about = issue_fields(issue, attempt=action.attempt)
        logger.info("%s an attempt begins", about)

        def tell(event: AgentEvent) -> None:
            shown = replace(event, text=self._mask.text(event.text))
            self._tell(partial(scheduler.heard, id=issue.id, generation=action.generation, event=shown))

        ended = AttemptEnd(outcome="failed", error="it was cut short")
        try:
            tracker = self._tracker(workflow)
            attempt = Attempt(issue=issue, tracker=tracker, number=action.attempt, tell=tell, halt=halt)
            ended = await self._worker.attempt(workflow, attempt)
        except asyncio.CancelledError:
            ended = AttemptEnd(outcome="cancelled")
        except Exception as exc:
            logger.exception("%s an attempt broke off", about)
            ended = AttemptEnd(outcome="failed", error=f"{type(exc).__name__}: {exc}")
        finally:
            error = ended.error and self._mask.text(ended.error, 2000)
            logger.info("%s %s an attempt ended", about, fields(outcome=ended.outcome, error=error))
            over = partial(scheduler.finished, id=issue.id, generation=action.generation)
            self._tell(partial(over, outcome=ended.outcome, error=error))
            if self._left_waiting:
                self._look_soon()

    def _look_soon(self) -> None:
        """Poll for an issue that had no slot until now, but not again for every slot that becomes free."""
        self._left_waiting = False
        wait = max(self._looked_at + SOONEST - time.monotonic(), 0.0)
        asyncio.get_running_loop().call_later(wait, self._look_now.set)

    async def _looked(self, action: AskTracker) -> None:
        found: Mapping[str, Issue] = {}
        error: str | None = None
        try:
            tracker = self._tracker(self._watched.workflow)
            found = {issue.id: issue for issue in await tracker.by_ids(action.ids)}
        except TrackerError as exc:
            error = str(exc)
            logger.warning("%s the tracker could not be asked: %s", fields(kind=exc.kind), exc)
        except asyncio.CancelledError:
            error = "the service is stopping"
        self._tell(partial(scheduler.looked, asked=action.ids, found=found, error=error))

    async def _cleaned(self, action: RemoveWorkspace) -> None:
        about = issue_fields(action.issue)
        try:
            async with self._removing:
                await self._worker.remove(self._watched.workflow, action.issue)
        except asyncio.CancelledError:
            logger.warning("%s a workspace was not removed: the service is stopping", about)
        except HooklineError as exc:
            logger.warning("%s a workspace was not removed: %s", about, self._mask.text(str(exc)))
        except Exception:
            logger.exception("%s a workspace was not removed", about)
        finally:
            self._tell(partial(scheduler.cleaned, id=action.issue.id))

    def _aside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


@dataclass(frozen=True, slots=True, kw_only=True)
class StateView:
    """A state as plain values. `clock` turns its time into seconds since 1970, `workspace` an identifier into a path."""

    state: State
    clock: Callable[[float], float]
    workspace: Callable[[str], str]

    def snapshot(self, now: float, problem: str | None) -> dict[str, Any]:
        """Everything, for `GET /api/v1/state`."""
        state, statuses = self.state, self._statuses()
        # The state has the sums of the attempts that ended; those that run are added.
        running = state.running.values()
        seconds = state.seconds + sum(now - each.since for each in running)
        tokens = sum((each.tokens for each in running), state.tokens)
        return {
            "generated_at": self.time(now),
            "counts": {status: len(found) for status, (found, _) in statuses.items()},
            **{
                status: [shown(each) for each in found.values()]
                for status, (found, shown) in statuses.items()
            },
            "finished": [self._finished(each) for each in state.finished],
            "codex_totals": {**asdict(tokens), "seconds_running": round(seconds, 3)},
            "rate_limits": state.rate_limits,
            "configuration_error": problem,
        }

    def issue(self, identifier: str) -> dict[str, Any] | None:
        """One issue, for `GET /api/v1/ABC-123`; None if it is neither running, waiting nor blocked."""
        for status, (found, shown) in self._statuses().items():
            for each in found.values():
                if each.issue.identifier == identifier:
                    return self._issue(each.issue, status, shown(each))
        return None

    def time(self, at: float) -> str:
        """A moment of the state as ISO 8601."""
        return utc_text(datetime.fromtimestamp(self.clock(at), UTC))

    def _statuses(self) -> dict[str, tuple[Mapping[str, Any], Callable[[Any], dict[str, Any]]]]:
        state = self.state
        return {
            "running": (state.running, self._running),
            "retrying": (state.retries, self._retry),
            "blocked": (state.parked, self._parked),
        }

    def _issue(self, issue: Issue, status: str, shown: dict[str, Any]) -> dict[str, Any]:
        attempt = shown.get("attempt") or 0
        last = [each for each in self.state.finished if each.issue.id == issue.id]
        errors = [shown.get("error"), *(each.error for each in reversed(last))]
        return {
            "issue_identifier": issue.identifier,
            "issue_id": issue.id,
            "status": status,
            "workspace": {"path": self.workspace(issue.identifier)},
            "attempts": {"restart_count": max(attempt - 1, 0), "current_retry_attempt": attempt},
            "running": shown if status == "running" else None,
            "retry": shown if status == "retrying" else None,
            "blocked": shown if status == "blocked" else None,
            "recent_events": [self._finished(each) for each in last[-10:]],
            "last_error": next((error for error in errors if error), None),
        }

    def _running(self, each: Running) -> dict[str, Any]:
        return {
            **self._about(each.issue),
            "state": each.issue.state,
            "attempt": each.attempt,
            "session_id": each.session_id,
            "turn_count": each.turns,
            "last_message": each.said or None,
            "started_at": self.time(each.since),
            "last_event_at": self.time(each.heard),
            "stopping": each.ending,
            "tokens": asdict(each.tokens),
        }

    def _retry(self, each: scheduler.Retry) -> dict[str, Any]:
        due = self.time(each.due)
        return {**self._about(each.issue), "attempt": each.attempt, "due_at": due, "error": each.error}

    def _parked(self, each: scheduler.Parked) -> dict[str, Any]:
        since = self.time(each.since)
        return {**self._about(each.issue), "state": each.issue.state, "error": each.why, "blocked_at": since}

    def _finished(self, each: scheduler.Finished) -> dict[str, Any]:
        return {
            "issue_id": each.issue.id,
            "issue_identifier": each.issue.identifier,
            "at": self.time(each.at),
            "outcome": each.outcome,
            "error": each.error,
            "seconds": round(each.seconds, 3),
        }

    def _about(self, issue: Issue) -> dict[str, Any]:
        path = self.workspace(issue.identifier)
        return {"issue_id": issue.id, "issue_identifier": issue.identifier, "workspace_path": path}
