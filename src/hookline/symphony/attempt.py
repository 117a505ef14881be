"""One attempt at an issue: its agent works in the workspace, turn after turn, between `before_run` and `after_run`.

Each attempt is a run of the journal with an owner, so that after a crash `recovered` finds what it left.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from hookline.engine.context import Facts
from hookline.engine.lifecycle import OpenScope, Run, new_run_id
from hookline.engine.pipeline import Pipeline
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Begun, Record, RunRow, owed
from hookline.errors import HooklineError, JournalError, RunEnded, RunTimedOut, Skipped
from hookline.journal.recovery import claim_abandoned
from hookline.symphony.agents import AgentEvent, AgentPlace, CodingAgent, TurnFailed
from hookline.symphony.hooks import AttemptSite, Scene, fields
from hookline.symphony.prompt import guidance, rendered
from hookline.symphony.scheduler import eligible
from hookline.symphony.state import Rules, rules_of
from hookline.symphony.trackers import Tracker
from hookline.symphony.types import Issue, Workflow, declaration, issue_values
from hookline.symphony.workspace import Workspace, workspace_key
from hookline.symphony.workspace_run import (
    AGAIN,
    LOST,
    facts_of,
    payload_of,
    prepared,
    remove_workspace,
    removed,
    run_at,
)
from hookline.tasks import finish

logger = logging.getLogger(__name__)

_TIMEOUTS = frozenset({"turn_timeout", "response_timeout"})


class Halt:
    """Ends an attempt from outside, as cancelled or stalled."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: str | None = None

    def now(self, task: asyncio.Task[Any], outcome: str = "cancelled") -> None:
        """Cancel the attempt: the first time its end hooks still run, within their limits; the second time they do not."""
        self.outcome = self.outcome or outcome
        task.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """The end of an attempt, for the service. Outcomes are those of `scheduler.finished`."""

    outcome: str
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """An attempt that ended well. `issue` is as last read from the tracker, None if it is gone; `why` is the reason to
    stop."""

    run_id: str
    issue: Issue | None
    turns: int
    why: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at an issue. `number` is the retry's, None at first; `halt` ends it from outside.

    After each turn `tracker` shows if the issue needs another one; without a tracker it always does.
    """

    site: AttemptSite
    issue: Issue
    agent: CodingAgent
    tracker: Tracker | None
    number: int | None = None
    tell: Callable[[AgentEvent], None] = lambda _: None
    halt: Halt = field(default_factory=Halt)

    async def run(self) -> Attempted:
        """Work on the issue until it is not eligible any more or has had its turns.

        However it ends, `after_run` has run then, unless the workspace could not be made; and no process is left. A
        failure is raised; `outcome_of` gives its outcome.
        """
        workflow = self.site.current()
        with self.site.root.held(workspace_key(self.issue.identifier)):
            workspace = await prepared(self.site, self.issue)
            return await self._run_in(workspace, workflow)

    async def _run_in(self, workspace: Workspace, workflow: Workflow) -> Attempted:
        site = self.site
        run = run_at(site, new_run_id())
        scope = self._scope(run, workspace)
        try:
            outcome = await scope.enter(
                payload_of(site, self.issue, workspace, self.number),
                declaration=declaration(workflow).to_dict(),
                source=workflow.file,
                owner=site.owner,
            )
            scope.raise_if_over(outcome, Point.RUN_START)
            found = await self._worked(run.id, workspace, workflow)
        except GeneratorExit:
            raise
        except BaseException as exc:
            await self._left_after(scope, exc)
            raise
        await scope.left({"outcome": "ok", "turns": found.turns, "why": found.why}, Status.OK)
        return found

    async def _left_after(self, scope: OpenScope, exc: BaseException) -> None:
        if isinstance(exc, RunEnded):
            exc.run_id = scope.run.id
        word, text = outcome_of(exc, self.halt), str(exc) or type(exc).__name__
        logger.warning(
            "%s attempt ended",
            fields(
                issue_id=self.issue.id,
                issue_identifier=self.issue.identifier,
                run_id=scope.run.id,
                outcome=word,
                error=self.site.mask.text(text, 500),
            ),
        )
        status = Status.TIMED_OUT if word == "stalled" else _status(exc, scope)
        await scope.left_after(exc, output={"outcome": word, "error": text}, status=status)

    async def _worked(self, run_id: str, workspace: Workspace, workflow: Workflow) -> Attempted:
        site, issue = self.site, self.issue
        prompt = rendered(workflow, issue, self.number)
        path = site.root.checked(workspace)
        place = AgentPlace(
            workspace=path,
            env={**site.environment, "PWD": path},
            tell=self.tell,
            issue=issue_values(issue),
        )
        session = await self.agent.open(place)
        rules, most, turn = rules_of(workflow), workflow.agent.max_turns, 1
        try:
            while True:
                said = await session.turn(prompt if turn == 1 else guidance(turn, most))
                found = await self._issue_now()
                why = _why_over(found, rules) if self.tracker is not None else None
                if why is not None or turn == most:
                    return Attempted(
                        run_id=run_id, issue=found, turns=turn, why=why or "max_turns", text=said
                    )
                turn += 1
        finally:
            await finish(session.close())

    async def _issue_now(self) -> Issue | None:
        if self.tracker is None:
            return self.issue
        found = await self.tracker.by_ids([self.issue.id])
        return found[0] if found else None

    def _scope(self, run: Run, workspace: Workspace) -> OpenScope:
        scene = Scene(
            issue=self.issue, workspace=workspace, attempt=self.number, outcome=lambda: self.halt.outcome
        )
        facts = facts_of(self.site, workspace, run.id, run.next_id(), (self.number or 0) + 1)
        return OpenScope(run, self.site.pipeline(scene), Scope.RUN, facts, name=self.issue.identifier)


def _why_over(issue: Issue | None, rules: Rules) -> str | None:
    if issue is None:
        return "gone"
    return None if eligible(issue, rules) else "not active"


def outcome_of(exc: BaseException, halt: Halt | None = None) -> str:
    """The outcome of an attempt that raised this: failed, timed_out, cancelled, stalled, skipped or input_required."""
    if isinstance(exc, asyncio.CancelledError):
        return (halt.outcome if halt else None) or "cancelled"
    if isinstance(exc, Skipped):
        return "skipped"
    if isinstance(exc, TurnFailed) and exc.kind == "turn_input_required":
        return "input_required"
    return "timed_out" if _status(exc) is Status.TIMED_OUT else "failed"


class SiteWorker:
    """Works on issues on this machine. `agent` makes the agent of a workflow."""

    def __init__(self, site: AttemptSite, agent: Callable[[Workflow], CodingAgent]) -> None:
        self._site = site
        self._agent = agent

    async def attempt(
        self,
        workflow: Workflow,
        tracker: Tracker,
        issue: Issue,
        number: int | None,
        tell: Callable[[AgentEvent], None],
        halt: Halt,
    ) -> AttemptEnd:
        agent = self._agent(workflow)
        attempt = Attempt(
            site=self._site, issue=issue, agent=agent, tracker=tracker, number=number, tell=tell, halt=halt
        )
        try:
            await attempt.run()
        except HooklineError as exc:
            return AttemptEnd(outcome=outcome_of(exc, halt), error=self._site.mask.text(str(exc), 2000))
        return AttemptEnd(outcome="ok")

    async def remove(self, workflow: Workflow, issue: Issue) -> None:
        await remove_workspace(self._site, issue)

    async def workspaces(self) -> frozenset[str]:
        return frozenset(each.identifier for each in self._site.root.listed())

    def path(self, identifier: str) -> str:
        return os.path.join(self._site.root.path, workspace_key(identifier))

    async def recover(self, workflow: Workflow, tracker: Tracker) -> None:
        for line in await recovered(self._site):
            logger.warning("the work of a killed service could not be finished: %s", line)

    async def close(self) -> None:
        await self._site.runner.close()


async def recovered(site: AttemptSite) -> list[str]:
    """Finish what a killed service left at this root; returns a text for each thing that could not be finished.

    Attempts come first: their `after_run` runs in a workspace that may be due for removal.
    """
    told: list[str] = []
    journal = site.recorder.journal
    if journal is not None:
        ends: list[Coroutine[Any, Any, None]] = []
        try:
            for row, records in claim_abandoned(journal, site.owner, partial(_is_attempt_here, site)):
                ends.append(_attempt_ended(site, row, records))
        except JournalError as exc:
            told.append(str(exc))
        told += await _all(ends)
    halves = [each for each in site.root.listed() if each.state != "ready"]
    told += await _all(removed(site, each) for each in halves)
    told += await _all([site.root.empty_trash()])
    return told


def _attempt_in(records: Sequence[Record]) -> tuple[Begun | None, dict[str, Any]]:
    """The beginning of an attempt in the records of a run, and its payload."""
    begun = next((each for each in records if isinstance(each, Begun) and each.scope is Scope.RUN), None)
    payload = begun.payload if begun is not None else None
    return begun, cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}


def _is_attempt_here(site: AttemptSite, row: RunRow, records: Sequence[Record]) -> bool:
    begun, payload = _attempt_in(records)
    # Where payloads are not kept, the file tells whose it was.
    near = site.root.path if row.source == site.current().file else None
    return begun is not None and payload.get("root", near) == site.root.path


async def _attempt_ended(site: AttemptSite, row: RunRow, records: Sequence[Record]) -> None:
    """Run the `after_run` that a dead attempt at this root still owes."""
    begun, known = _attempt_in(records)
    if begun is None:
        return
    issue = _issue_again(known, begun.name)
    workspace = site.root.find(workspace_key(issue.identifier))
    left = next((each for each in owed(records) if each.begun is begun), None)
    due = left is not None and left.due
    run = Run(id=row.run_id, recorder=site.recorder)
    number = begun.about.get("attempt") or 1
    pipeline = Pipeline((), site.recorder)
    if workspace is not None and due:
        scene = Scene(issue=issue, workspace=workspace, attempt=number - 1 or None)
        pipeline = site.pipeline(scene)
    facts = Facts(
        workflow_id=begun.name,
        run_id=row.run_id,
        scope_id=begun.scope_id,
        attempt=number,
        agent=begun.about.get("agent"),
    )
    scope = OpenScope(run, pipeline, Scope.RUN, facts, name=begun.name)
    why = f"{LOST}; after_run {AGAIN}" if due and left is not None and left.again else LOST
    await scope.leave({"outcome": "lost", "error": why}, Status.LOST, error=why)


def _issue_again(payload: Mapping[str, Any], identifier: str) -> Issue:
    told = payload.get("issue")
    known = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    return Issue(
        id=str(known.get("id") or ""),
        identifier=identifier,
        title=str(known.get("title") or ""),
        state=str(known.get("state") or ""),
        url=known.get("url"),
    )


def _status(exc: BaseException, scope: OpenScope | None = None) -> Status:
    if isinstance(exc, RunTimedOut) or (isinstance(exc, TurnFailed) and exc.kind in _TIMEOUTS):
        return Status.TIMED_OUT
    return scope.status_of(exc) if scope is not None else Status.FAILED


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> list[str]:
    """Do them all at once; returns the errors as texts."""
    ended = await asyncio.gather(*works, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException) and not isinstance(each, HooklineError):
            raise each
    return [str(each) for each in ended if isinstance(each, HooklineError)]
