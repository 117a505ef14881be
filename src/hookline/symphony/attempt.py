"""One attempt at an issue, and the workspace around it: made, worked in, removed, each with its hooks.

In the journal a workspace is a run of its own, begun when it is made and ended when it is removed, maybe by another
process; it has no owner, because it outlives them all. Each attempt is a run with an owner, so that after a crash
`recovered` finds what it left. Whether a workspace is whole, its note on the disk says; whether `before_remove` has
run, the journal does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

from hookline.engine.context import Facts, WorkflowContext
from hookline.engine.hook import Hook
from hookline.engine.lifecycle import OpenScope, Run, new_run_id
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Begun, Ended, Owner, Record, RunRow, owed
from hookline.errors import HooklineError, JournalError, RunEnded, RunTimedOut, Skipped
from hookline.journal.masking import Mask
from hookline.journal.recovery import claim_abandoned
from hookline.runners import Runner
from hookline.symphony.agents import CodingAgent, Place, Told, TurnFailed
from hookline.symphony.hooks import Outputs, Scene, Scripts, fields, withheld, workspace_hooks
from hookline.symphony.issue import Issue
from hookline.symphony.prompt import guidance, issue_values, rendered
from hookline.symphony.types import Workflow, declaration
from hookline.symphony.workspace import Root, Workspace, WorkspaceError, workspace_key
from hookline.tasks import finish

logger = logging.getLogger(__name__)
T = TypeVar("T")

LOST = "lost: the process that was at work on this is gone"
AGAIN = "had begun when a process that is gone was at work on this, and was run again"
_MORE_GRACE = 5.0
_TIMEOUTS = frozenset({"turn_timeout", "response_timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all attempts of a service share. `current` gives the workflow of this moment; `hooks` are further ones."""

    current: Callable[[], Workflow]
    root: Root
    runner: Runner
    environ: Mapping[str, str]
    recorder: Recorder = field(default_factory=Recorder)
    secret_names: frozenset[str] = frozenset()
    mask: Mask = field(default_factory=Mask)
    outputs: Outputs | None = None
    owner: Owner | None = None
    hooks: tuple[Hook, ...] = ()

    @property
    def withheld_names(self) -> frozenset[str]:
        """What neither hooks nor agents are given; a file that was read again may name other variables."""
        return self.secret_names | self.current().tracker.variables

    @property
    def scripts(self) -> Scripts:
        return Scripts(
            current=lambda: self.current().hooks,
            runner=self.runner,
            environ=self.environ,
            file=self.current().file,
            secret_names=self.withheld_names,
            mask=self.mask,
            outputs=self.outputs,
        )


class Stop:
    """Ends an attempt from outside, and says as what: cancelled or stalled."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: str | None = None

    def now(self, task: asyncio.Task[Any], outcome: str = "cancelled") -> None:
        """The first time its end hooks still run, within their limits; the next time they are ended too."""
        self.outcome = self.outcome or outcome
        task.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """An attempt that ended well. `issue` is as it was last seen, None where it is gone; `why` it went no further."""

    run_id: str
    workspace: Workspace
    issue: Issue | None
    turns: int
    why: str
    text: str = ""


Refresh = Callable[[Issue], Awaitable[Issue | None]]


async def attempt(
    site: Site,
    issue: Issue,
    agent: CodingAgent,
    *,
    refresh: Refresh,
    wanted: Callable[[Issue], bool],
    number: int | None = None,
    tell: Callable[[Told], None] = lambda _: None,
    stop: Stop | None = None,
) -> Attempted:
    """Work on an issue until it is not `wanted` any more or has had its turns. `number` is the retry's, None at first.

    However it ends, `after_run` has run when this does, unless the workspace could not even be made; and no process
    is left. `refresh` asks the tracker after each turn. What went wrong is raised; `outcome_of` has one word for it.
    """
    workflow = site.current()
    with site.root.held(workspace_key(issue.identifier)):
        workspace = await prepared(site, issue)
        work = _Work(
            site=site,
            issue=issue,
            agent=agent,
            workflow=workflow,
            workspace=workspace,
            refresh=refresh,
            wanted=wanted,
            number=number,
            tell=tell,
            stop=stop or Stop(),
        )
        return await work.done()


def outcome_of(exc: BaseException, stop: Stop | None = None) -> str:
    """What an attempt that raised this came to: failed, timed_out, cancelled, stalled, skipped or input_required."""
    if isinstance(exc, asyncio.CancelledError):
        return (stop.outcome if stop else None) or "cancelled"
    if isinstance(exc, Skipped):
        return "skipped"
    if isinstance(exc, TurnFailed) and exc.kind == "turn_input_required":
        return "input_required"
    return "timed_out" if _status(exc) is Status.TIMED_OUT else "failed"


async def prepared(site: Site, issue: Issue) -> Workspace:
    """The issue's workspace: the one that is there, else a new one in which `after_create` went well."""
    known = site.root.find(workspace_key(issue.identifier))
    if known is not None and known.state != "ready":
        await _put_away(site, known, issue)
    run_id = new_run_id()
    workspace = site.root.begin(issue.identifier, issue_id=issue.id, title=issue.title, run_id=run_id)
    if workspace.created_now:
        return await _made(site, workspace, issue)
    if workspace.run_id == run_id:  # somebody else made the folder; from now on it is on record
        await _write_beginning(site, workspace)
    return workspace


async def removed(site: Site, workspace: Workspace, issue: Issue | None = None) -> None:
    """Run `before_remove` and delete the workspace, however that hook went. One that is gone is removed."""
    with site.root.held(workspace.key):
        await _put_away(site, workspace, issue or _issue_of(workspace))


async def recovered(site: Site) -> list[str]:
    """Finish what a service that was killed left at this root; what could not be finished is told.

    Attempts first, for their `after_run` stands in a workspace that may be due for removal.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One attempt in its workspace."""

    site: Site
    issue: Issue
    agent: CodingAgent
    workflow: Workflow
    workspace: Workspace
    refresh: Refresh
    wanted: Callable[[Issue], bool]
    number: int | None
    tell: Callable[[Told], None]
    stop: Stop

    async def done(self) -> Attempted:
        site = self.site
        # After a cancel a hook still has its own limit; what ends it earlier is a second cancel.
        run = Run(recorder=site.recorder, end_grace=site.current().hooks.timeout + _MORE_GRACE)
        scope = self._scope(run)
        try:
            outcome = await scope.enter(
                _payload(site, self.issue, self.workspace, self.number),
                declaration=declaration(self.workflow).to_dict(),
                source=self.workflow.file,
                owner=site.owner,
            )
            scope.raise_if_over(outcome, Point.RUN_START)
            found = await self._worked(run.id)
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
        word, text = outcome_of(exc, self.stop), str(exc) or type(exc).__name__
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

    async def _worked(self, run_id: str) -> Attempted:
        site, issue = self.site, self.issue
        prompt = rendered(self.workflow, issue, self.number)
        path = site.root.checked(self.workspace)
        place = Place(
            workspace=path,
            env={**withheld(site.environ, site.withheld_names), "PWD": path},
            tell=self.tell,
            title=f"{issue.identifier}: {issue.title}",
            issue=issue_values(issue),
        )
        session = await self.agent.open(place)
        try:
            return await self._turns(session.turn, prompt, run_id)
        finally:
            await finish(session.close())

    async def _turns(self, take: Callable[[str], Awaitable[str]], prompt: str, run_id: str) -> Attempted:
        issue, most = self.issue, self.workflow.agent.max_turns
        turn = 1
        while True:
            said = await take(prompt if turn == 1 else guidance(turn, most))
            found = await self.refresh(issue)
            why = "gone" if found is None else "not active" if not self.wanted(found) else "max_turns"
            if why != "max_turns" or turn == most:
                return Attempted(
                    run_id=run_id, workspace=self.workspace, issue=found, turns=turn, why=why, text=said
                )
            issue, turn = cast("Issue", found), turn + 1

    def _scope(self, run: Run) -> OpenScope:
        site, workspace = self.site, self.workspace
        scene = Scene(
            issue=self.issue,
            workspace=workspace,
            root=site.root,
            attempt=self.number,
            outcome=lambda: self.stop.outcome,
        )
        facts = _facts(site, workspace, run.id, run.next_id(), (self.number or 0) + 1)
        return OpenScope(run, _pipeline(site, scene), Scope.RUN, facts, name=self.issue.identifier)


async def _made(site: Site, workspace: Workspace, issue: Issue) -> Workspace:
    """Run `after_create`; where it does not go well, the folder goes again, so that the next attempt begins afresh."""
    scope = _workspace_scope(site, workspace, issue)
    try:
        outcome = await scope.enter(
            _payload(site, issue, workspace, None),
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


async def _given_up(site: Site, workspace: Workspace, scope: OpenScope, why: str) -> None:
    try:
        await site.root.discard(workspace)
    except WorkspaceError as exc:
        logger.warning("%s %s", fields(issue_identifier=workspace.identifier, workspace=workspace.path), exc)
    await scope.drop(why)


async def _put_away(site: Site, workspace: Workspace, issue: Issue) -> None:
    """Remove a workspace in whatever state it is. `before_remove` runs once, and only in one that was whole."""
    there = site.root.exists(workspace)
    if not workspace.run_id:  # nobody here has worked in it, so it is not on record yet
        workspace = replace(workspace, run_id=new_run_id())
    if workspace.state == "making":
        await _write_end(site, workspace, Status.LOST, LOST)
    else:
        workspace = site.root.to_be_removed(workspace)
        if not _has_ended(site, workspace):
            await _end_hooks(site, workspace, issue, there)
    await site.root.discard(workspace)
    logger.info(
        "%s workspace removed", fields(issue_identifier=workspace.identifier, workspace=workspace.path)
    )


async def _end_hooks(site: Site, workspace: Workspace, issue: Issue, there: bool) -> None:
    journal = site.recorder.journal
    if journal is not None and not journal.records(workspace.run_id):
        await _write_beginning(site, workspace)
    if not there:
        await _write_end(
            site, workspace, Status.OK, "its folder was gone already, so before_remove did not run"
        )
        return
    scope = _workspace_scope(site, workspace, issue)
    again = (
        any(each.again for each in owed(journal.records(workspace.run_id))) if journal is not None else False
    )
    told = {"note": f"before_remove {AGAIN}"} if again else {}
    await scope.left({"removed": workspace.path, **told}, Status.OK)


def _attempt_in(records: Sequence[Record]) -> tuple[Begun | None, dict[str, Any]]:
    """The beginning of an attempt in the records of a run, and its payload."""
    begun = next((each for each in records if isinstance(each, Begun) and each.scope is Scope.RUN), None)
    payload = begun.payload if begun is not None else None
    return begun, cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}


def _is_attempt_here(site: Site, row: RunRow, records: Sequence[Record]) -> bool:
    begun, payload = _attempt_in(records)
    # Where payloads are not kept, the file tells whose it was.
    near = site.root.path if row.source == site.current().file else None
    return begun is not None and payload.get("root", near) == site.root.path


async def _attempt_ended(site: Site, row: RunRow, records: Sequence[Record]) -> None:
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
    hooks: tuple[Hook, ...] = ()
    if workspace is not None and due:
        scene = Scene(issue=issue, workspace=workspace, root=site.root, attempt=number - 1 or None)
        hooks = (*site.hooks, *workspace_hooks(site.scripts, scene))
    facts = Facts(
        workflow_id=begun.name,
        run_id=row.run_id,
        scope_id=begun.scope_id,
        attempt=number,
        agent=begun.about.get("agent"),
    )
    scope = OpenScope(run, Pipeline(hooks, site.recorder), Scope.RUN, facts, name=begun.name)
    why = f"{LOST}; after_run {AGAIN}" if due and left is not None and left.again else LOST
    await scope.leave({"outcome": "lost", "error": why}, Status.LOST, error=why)


def _has_ended(site: Site, workspace: Workspace) -> bool:
    journal = site.recorder.journal
    records = journal.records(workspace.run_id) if journal is not None else []
    return any(isinstance(each, Ended) and each.scope is Scope.WORKSPACE for each in records)


def _workspace_scope(site: Site, workspace: Workspace, issue: Issue) -> OpenScope:
    run = Run(
        id=workspace.run_id,
        recorder=site.recorder,
        end_grace=site.current().hooks.timeout + _MORE_GRACE,
    )
    scene = Scene(issue=issue, workspace=workspace, root=site.root)
    facts = _facts(site, workspace, run.id, _OUTERMOST, 1)
    return OpenScope(run, _pipeline(site, scene), Scope.WORKSPACE, facts, name=workspace.identifier)


_OUTERMOST = "1"


def _pipeline(site: Site, scene: Scene) -> Pipeline:
    return Pipeline((*site.hooks, *workspace_hooks(site.scripts, scene)), site.recorder)


def _facts(site: Site, workspace: Workspace, run_id: str, scope_id: str, number: int) -> Facts:
    kind = site.current().agent.kind
    return Facts(
        workflow_id=workspace.identifier,
        run_id=run_id,
        scope_id=scope_id,
        attempt=number,
        agent=kind,
        workflow=WorkflowContext(
            workflow_id=workspace.identifier,
            execution_id=run_id,
            root_execution_id=run_id,
            root_workflow_id=workspace.identifier,
            retry_count=number - 1,
            created_at=time.time(),
            workspace=workspace.path,
            agent_id=kind,
        ),
    )


def _payload(site: Site, issue: Issue, workspace: Workspace, number: int | None) -> dict[str, Any]:
    """Enough to find everything again after a crash; a description may be long, and is left out."""
    return {
        "issue": {
            "id": issue.id,
            "identifier": issue.identifier,
            "title": issue.title[:500],
            "state": issue.state,
            "url": issue.url,
        },
        "attempt": number,
        "workspace": workspace.path,
        "root": site.root.path,
    }


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


def _issue_of(workspace: Workspace) -> Issue:
    return Issue(id=workspace.issue_id, identifier=workspace.identifier, title=workspace.title, state="")


async def _write_beginning(site: Site, workspace: Workspace) -> None:
    if not site.recorder.on:
        return
    payload = _payload(site, _issue_of(workspace), workspace, None)
    about = {"workflow_id": workspace.identifier}
    await site.recorder.write(
        Begun(
            workspace.run_id,
            _OUTERMOST,
            None,
            Scope.WORKSPACE,
            workspace.identifier,
            time.time(),
            payload,
            about,
            None,
            site.current().file,
        )
    )


async def _write_end(site: Site, workspace: Workspace, status: Status, error: str) -> None:
    if site.recorder.on and not _has_ended(site, workspace):
        await site.recorder.write(
            Ended(workspace.run_id, _OUTERMOST, Scope.WORKSPACE, time.time(), status, None, error)
        )


def _status(exc: BaseException, scope: OpenScope | None = None) -> Status:
    if isinstance(exc, RunTimedOut) or (isinstance(exc, TurnFailed) and exc.kind in _TIMEOUTS):
        return Status.TIMED_OUT
    return scope.status_of(exc) if scope is not None else Status.FAILED


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> list[str]:
    """Do them together; what went wrong, as texts."""
    ended = await asyncio.gather(*works, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException) and not isinstance(each, HooklineError):
            raise each
    return [str(each) for each in ended if isinstance(each, HooklineError)]
