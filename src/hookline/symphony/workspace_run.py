"""A workspace as a run of its own: made, kept and removed, each with its hooks, and on record.

It begins when the workspace is made and ends when that is removed, maybe by another process; it has no owner, because
it outlives them all. The note on the disk shows if a workspace is whole; the journal shows if `before_remove` has run.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

from hookline.engine.context import Facts, WorkflowContext
from hookline.engine.lifecycle import OpenScope, Run, new_run_id
from hookline.engine.pipeline import Pipeline
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Ended, owed
from hookline.errors import RunEnded
from hookline.symphony.hooks import AttemptSite, Scene, fields
from hookline.symphony.read import declaration
from hookline.symphony.trackers import Issue
from hookline.symphony.workspace import Workspace, WorkspaceError, workspace_key
from hookline.tasks import finish

logger = logging.getLogger(__name__)

LOST = "lost: the process that worked on this is gone"
AGAIN = "had begun in a process that is gone, and was run again"
_MORE_GRACE = 5.0
_OUTERMOST = "1"
"""The scope of a workspace in its own run."""


async def prepared(site: AttemptSite, issue: Issue) -> Workspace:
    """The issue's workspace: the existing one, or a new one in which `after_create` went well."""
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
    scope = _workspace_scope(site, workspace, issue)
    try:
        outcome = await scope.enter(
            payload_of(site, issue, workspace, None),
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


async def _end_hooks(site: AttemptSite, workspace: Workspace, issue: Issue, there: bool) -> None:
    journal = site.recorder.journal
    if journal is not None and not journal.records(workspace.run_id):
        await _write_beginning(site, workspace)
    if not there:
        await _write_end(
            site, workspace, Status.OK, "its folder was gone already, so before_remove did not run"
        )
        return
    scope = _workspace_scope(site, workspace, issue)
    again = journal is not None and any(each.again for each in owed(journal.records(workspace.run_id)))
    told = {"note": f"before_remove {AGAIN}"} if again else {}
    await scope.left({"removed": workspace.path, **told}, Status.OK)


def _workspace_scope(site: AttemptSite, workspace: Workspace, issue: Issue | None = None) -> OpenScope:
    """The scope of a workspace, with the hooks around it; without an issue it is only put on record."""
    run = run_at(site, workspace.run_id)
    facts = facts_of(site, workspace, run.id, _OUTERMOST, 1)
    silent = Pipeline((), site.recorder)
    pipeline = site.pipeline(Scene(issue=issue, workspace=workspace)) if issue else silent
    return OpenScope(run, pipeline, Scope.WORKSPACE, facts, name=workspace.identifier)


def _has_ended(site: AttemptSite, workspace: Workspace) -> bool:
    journal = site.recorder.journal
    records = journal.records(workspace.run_id) if journal is not None else []
    return any(isinstance(each, Ended) and each.scope is Scope.WORKSPACE for each in records)


async def _write_beginning(site: AttemptSite, workspace: Workspace) -> None:
    payload = payload_of(site, _issue_of(workspace), workspace, None)
    await _workspace_scope(site, workspace).enter(payload, source=site.current().file)


async def _write_end(site: AttemptSite, workspace: Workspace, status: Status, error: str) -> None:
    if not _has_ended(site, workspace):
        await _workspace_scope(site, workspace).leave(None, status, error=error)


def _issue_of(workspace: Workspace) -> Issue:
    return Issue(id=workspace.issue_id, identifier=workspace.identifier, title=workspace.title, state="")


def run_at(site: AttemptSite, run_id: str) -> Run:
    """A run whose end hooks have their whole limit even if it is cancelled."""
    # After a cancel a hook still has its own limit; what ends it earlier is a second cancel.
    grace = site.current().hooks.timeout + _MORE_GRACE
    return Run(id=run_id, recorder=site.recorder, end_grace=grace)


def facts_of(site: AttemptSite, workspace: Workspace, run_id: str, scope_id: str, number: int) -> Facts:
    """Facts of a scope around a workspace. `number` counts attempts from 1."""
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


def payload_of(site: AttemptSite, issue: Issue, workspace: Workspace, number: int | None) -> dict[str, Any]:
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
