"""One attempt at an issue: its agent works in the workspace, turn after turn, between `before_run` and `after_run`.

Each attempt is a run of the journal with an owner, so that after a crash `recovered` finds what it left.

A workspace is a run of its own, which begins when it is made and ends when it is removed, maybe by another process; it
has no owner, because it outlives them all. The note on the disk shows if a workspace is whole; the journal shows if
`before_remove` has run.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from hookline.engine.lifecycle import OpenScope
from hookline.engine.plain import mapping
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Ended, Owed, Record, RunRow, new_run_id, owed
from hookline.errors import HooklineError, JournalError, RunEnded, RunTimedOut, Skipped
from hookline.journal.masking import Mask
from hookline.journal.recovery import claim_abandoned, waits
from hookline.journal.sqlite import SqliteJournal
from hookline.symphony.agents import AgentEvent, AgentPlace, AgentSession, CodingAgent, TurnFailed
from hookline.symphony.hooks import AttemptSite, Scene, fields, issue_fields
from hookline.symphony.prompt import guidance, rendered
from hookline.symphony.read import Workflow, declaration
from hookline.symphony.scheduler import eligible
from hookline.symphony.trackers import Issue, Tracker
from hookline.symphony.workspace import Workspace, WorkspaceError, workspace_key
from hookline.tasks import finish

logger = logging.getLogger(__name__)

LOST = "lost: the process that worked on this is gone"
AGAIN = "had begun in a process that is gone, and was run again"
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

    issue: Issue
    tracker: Tracker | None
    number: int | None = None
    tell: Callable[[AgentEvent], None] = lambda _: None
    halt: Halt = field(default_factory=Halt)

    async def run(self, site: AttemptSite, agent: CodingAgent) -> Attempted:
        """Work on the issue until it is not eligible any more or has had its turns.

        However it ends, `after_run` has run then, unless the workspace could not be made; and no process is left. A
        failure is raised; `outcome_of` gives its outcome.
        """
        workflow = site.current()
        with site.root.held(workspace_key(self.issue.identifier)):
            workspace = await prepared(site, self.issue)
            return await self._run_in(workspace, workflow, site, agent)

    async def _run_in(
        self, workspace: Workspace, workflow: Workflow, site: AttemptSite, agent: CodingAgent
    ) -> Attempted:
        scene = Scene(
            issue=self.issue, workspace=workspace, attempt=self.number, outcome=lambda: self.halt.outcome
        )
        scope = site.scope(Scope.RUN, scene, new_run_id())
        site.keep(scope.run.id, workspace)
        try:
            outcome = await scope.enter(
                site.payload(scene),
                declaration=declaration(workflow).to_dict(),
                source=workflow.file,
                owner=site.owner,
            )
            scope.raise_if_over(outcome, Point.RUN_START)
            prompt = rendered(workflow, self.issue, self.number)
            place = AgentPlace(
                workspace=site.root.checked(workspace),
                env={**site.environment, "PWD": workspace.path},
                tell=self.tell,
            )
            found = await self._turns(agent(place), prompt, workflow, scope.run.id)
        except GeneratorExit:
            raise
        except BaseException as exc:
            await self._left_after(scope, exc, site.mask)
            raise
        await scope.left({"outcome": "ok", "turns": found.turns, "why": found.why}, Status.OK)
        return found

    async def _left_after(self, scope: OpenScope, exc: BaseException, mask: Mask) -> None:
        if isinstance(exc, RunEnded):
            exc.run_id = scope.run.id
        word, text = outcome_of(exc, self.halt), str(exc) or type(exc).__name__
        said = mask.text(text, 500)
        about = issue_fields(self.issue, run_id=scope.run.id, outcome=word, error=said)
        logger.warning("%s attempt ended", about)
        status = Status.TIMED_OUT if word in ("stalled", "timed_out") else scope.status_of(exc)
        await scope.left_after(exc, output={"outcome": word, "error": text}, status=status)

    async def _turns(self, session: AgentSession, prompt: str, workflow: Workflow, run_id: str) -> Attempted:
        most, turn = workflow.agent.max_turns, 1
        try:
            await session.open()
            while True:
                said = await session.turn(prompt if turn == 1 else guidance(turn, most))
                found, why = await self._issue_now(workflow)
                if why is not None or turn == most:
                    return Attempted(
                        run_id=run_id, issue=found, turns=turn, why=why or "max_turns", text=said
                    )
                turn += 1
        finally:
            await finish(session.close())

    async def _issue_now(self, workflow: Workflow) -> tuple[Issue | None, str | None]:
        """The issue as the tracker has it, and the reason to stop, if there is one."""
        if self.tracker is None:
            return self.issue, None
        found = await self.tracker.by_ids([self.issue.id])
        if not found:
            return None, "gone"
        return found[0], None if eligible(found[0], workflow) else "not active"


def outcome_of(exc: BaseException, halt: Halt | None = None) -> str:
    """The outcome of an attempt that raised this: failed, timed_out, cancelled, stalled, skipped or input_required."""
    if isinstance(exc, asyncio.CancelledError):
        return (halt.outcome if halt else None) or "cancelled"
    if isinstance(exc, Skipped):
        return "skipped"
    if isinstance(exc, TurnFailed) and exc.kind == "turn_input_required":
        return "input_required"
    late = isinstance(exc, RunTimedOut) or (isinstance(exc, TurnFailed) and exc.kind in _TIMEOUTS)
    return "timed_out" if late else "failed"


async def prepared(site: AttemptSite, issue: Issue) -> Workspace:
    """The issue's workspace: the existing one, or a new one in which `after_create` went well."""
    known = site.root.find(workspace_key(issue.identifier))
    if known is not None and known.state != "ready":
        await _put_away(site, known, issue)
    run_id = new_run_id()
    workspace = site.root.begin(issue.identifier, issue_id=issue.id, title=issue.title, run_id=run_id)
    if workspace.state == "making":
        return await _made(site, workspace, issue)
    if workspace.run_id == run_id:  # somebody else made the folder; from now on it is on record
        await _write_beginning(site, workspace)
    return workspace


async def remove_workspace(site: AttemptSite, issue: Issue) -> None:
    """Remove the workspace of an issue, if there is one, with its hook."""
    workspace = site.root.find(workspace_key(issue.identifier))
    if workspace is not None:
        await removed(site, workspace, issue)


async def removed(site: AttemptSite, workspace: Workspace, issue: Issue | None = None) -> None:
    """Run `before_remove`, and delete the workspace even if that hook failed."""
    with site.root.held(workspace.key):
        await _put_away(site, workspace, issue or _issue_of(workspace))


async def _made(site: AttemptSite, workspace: Workspace, issue: Issue) -> Workspace:
    """Run `after_create`; if it fails, the folder is deleted, so that the next attempt begins afresh."""
    scene = Scene(issue=issue, workspace=workspace)
    scope = site.scope(Scope.WORKSPACE, scene, workspace.run_id)
    site.keep(workspace.run_id, workspace)
    site.began.add(workspace.run_id)
    try:
        outcome = await scope.enter(
            site.payload(scene),
            declaration=declaration(site.current()).to_dict(),
            source=site.current().file,
        )
        scope.raise_if_over(outcome, Point.WORKSPACE_START)
        if not site.root.exists(workspace):
            raise WorkspaceError(
                f"after_create removed its own workspace {workspace.path}", kind="workspace_path_unreadable"
            )
        return site.root.finish(workspace)
    except GeneratorExit:
        raise
    except BaseException as exc:
        if isinstance(exc, RunEnded):
            exc.run_id = workspace.run_id
        await finish(_given_up(site, workspace, scope, str(exc) or type(exc).__name__))
        raise


async def _given_up(site: AttemptSite, workspace: Workspace, scope: OpenScope, why: str) -> None:
    try:
        await site.root.discard(workspace)
    except WorkspaceError as exc:
        logger.warning("%s %s", fields(issue_identifier=workspace.identifier, workspace=workspace.path), exc)
    await scope.drop(why)


async def _put_away(site: AttemptSite, workspace: Workspace, issue: Issue) -> None:
    """Remove a workspace in whatever state it is. `before_remove` runs once, and only in one that was whole."""
    there, whole = site.root.exists(workspace), workspace.state != "making"
    if not workspace.run_id:  # nobody here has worked in it, so it is not on record yet
        workspace = replace(workspace, run_id=new_run_id())
    if whole:
        workspace = site.root.to_be_removed(workspace)
    journal = site.recorder.journal
    records = journal.records(workspace.run_id) if journal is not None else []
    if not any(isinstance(each, Ended) and each.scope is Scope.WORKSPACE for each in records):
        if whole and journal is not None and not records:
            await _write_beginning(site, workspace)
        scene = Scene(issue=issue, workspace=workspace)
        due = whole and there
        others = await site.kept(workspace.run_id) if due and workspace.run_id not in site.began else None
        scope = site.scope(Scope.WORKSPACE, scene, workspace.run_id, hooks=due, others=others)
        if not whole:
            await scope.leave(None, Status.LOST, error=LOST)
        elif not there:
            gone = "its folder was gone already, so before_remove did not run"
            await scope.leave(None, Status.OK, error=gone)
        else:
            again = any(each.again for each in owed(records))
            told = {"note": f"before_remove {AGAIN}"} if again else {}
            await scope.left({"removed": workspace.path, **told}, Status.OK)
    await site.root.discard(workspace)
    logger.info(
        "%s workspace removed", fields(issue_identifier=workspace.identifier, workspace=workspace.path)
    )


async def _write_beginning(site: AttemptSite, workspace: Workspace) -> None:
    scene = Scene(issue=_issue_of(workspace), workspace=workspace)
    scope = site.scope(Scope.WORKSPACE, scene, workspace.run_id, hooks=False)
    await scope.enter(site.payload(scene), source=site.current().file)


def _issue_of(workspace: Workspace) -> Issue:
    return Issue(id=workspace.issue_id, identifier=workspace.identifier, title=workspace.title, state="")


class IssueWorker(Protocol):
    """Works on issues. An attempt that is cancelled runs its end hooks, and then raises."""

    async def attempt(self, workflow: Workflow, attempt: Attempt) -> AttemptEnd: ...

    async def remove(self, workflow: Workflow, issue: Issue) -> None:
        """Remove the issue's workspace, if there is one, with its hook."""
        ...

    async def workspaces(self) -> frozenset[str]:
        """The identifiers of the issues that have a workspace."""
        ...

    def path(self, identifier: str) -> str: ...

    async def recover(self, workflow: Workflow, tracker: Tracker) -> None:
        """Finish or take up the work that a service before us left."""
        ...

    async def close(self) -> None: ...


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


def _open_attempt(records: Sequence[Record]) -> Owed | None:
    """The attempt that the records of a run leave open."""
    return next((each for each in owed(records) if each.begun.scope is Scope.RUN), None)


def _is_attempt_here(site: AttemptSite, row: RunRow, records: Sequence[Record]) -> bool:
    journal = site.recorder.journal
    if isinstance(journal, SqliteJournal) and waits(journal, row.run_id):
        return False
    left = _open_attempt(records)
    # Where payloads are not kept, the file tells whose it was.
    near = site.root.path if row.source == site.current().file else None
    return left is not None and mapping(left.begun.payload).get("root", near) == site.root.path


async def _attempt_ended(site: AttemptSite, row: RunRow, records: Sequence[Record]) -> None:
    """Run the `after_run` that a dead attempt at this root still owes."""
    left = _open_attempt(records)
    if left is None:
        return
    begun = left.begun
    issue = _issue_again(mapping(begun.payload), begun.name)
    key = workspace_key(issue.identifier)
    workspace = site.root.find(key)
    number = begun.about.get("attempt") or 1
    gone = Workspace(key=key, path=os.path.join(site.root.path, key), identifier=issue.identifier)
    scene = Scene(issue=issue, workspace=workspace or gone, attempt=number - 1 or None)
    due = workspace is not None and left.due
    try:
        others = await site.kept(row.run_id) if due else None
    except HooklineError:
        if site.recorder.journal is not None and site.owner is not None and row.owner is not None:
            site.recorder.journal.claim(row.run_id, site.owner, row.owner)
        raise
    scope = site.scope(Scope.RUN, scene, row.run_id, hooks=due, others=others)
    agent = begun.about.get("agent")
    workflow = scope.facts.workflow and replace(scope.facts.workflow, agent_id=agent)
    scope.facts = replace(scope.facts, agent=agent, workflow=workflow)
    why = f"{LOST}; after_run {AGAIN}" if left.due and left.again else LOST
    await scope.leave({"outcome": "lost", "error": why}, Status.LOST, error=why)


def _issue_again(payload: Mapping[str, Any], identifier: str) -> Issue:
    known = mapping(payload.get("issue"))
    return Issue(
        id=str(known.get("id") or ""),
        identifier=identifier,
        title=str(known.get("title") or ""),
        state=str(known.get("state") or ""),
        url=known.get("url"),
    )


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> list[str]:
    """Do them all at once; returns the errors as texts."""
    ended = await asyncio.gather(*works, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException) and not isinstance(each, HooklineError):
            raise each
    return [str(each) for each in ended if isinstance(each, HooklineError)]
