"""One issue or one hook by hand, without a service: `hookline run WORKFLOW.md --issue`, `hookline try`."""

from __future__ import annotations

import asyncio
import difflib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hookline.engine.context import Facts, HookContext
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point, Status
from hookline.engine.result import Outcome
from hookline.errors import UsageError
from hookline.journal.masking import Mask
from hookline.runners import Runner
from hookline.symphony.agents import CodingAgent, Told
from hookline.symphony.attempt import Attempted, Site, Stop, attempt, removed
from hookline.symphony.board.service import rules_of
from hookline.symphony.board.state import eligible
from hookline.symphony.hooks import Outputs, Scene, Scripts, workspace_hooks
from hookline.symphony.issue import Issue
from hookline.symphony.read import POINTS, Workflow
from hookline.symphony.trackers import Tracker
from hookline.symphony.workspace import Root, workspace_key

__all__ = ["Tried", "is_terminal", "issue_named", "run_issue", "tried"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a hook decided, and all that it printed."""

    outcome: Outcome
    output: str


async def run_issue(
    site: Site,
    tracker: Tracker,
    agent: CodingAgent,
    identifier: str,
    *,
    tell: Callable[[Told], None] = lambda _: None,
    stop: Stop | None = None,
) -> Attempted | None:
    """One attempt at one issue, whoever would be next. An issue that is over has its workspace removed: None."""
    workflow = site.current()
    issue = await issue_named(tracker, workflow, identifier)
    if is_terminal(issue, workflow):
        await _cleaned(site, issue)
        return None
    rules = rules_of(workflow)

    async def refresh(before: Issue) -> Issue | None:
        found = await tracker.by_ids([before.id])
        return found[0] if found else None

    done = await attempt(
        site,
        issue,
        agent,
        refresh=refresh,
        wanted=lambda found: eligible(found, rules),
        tell=tell,
        stop=stop,
    )
    if done.issue is not None and is_terminal(done.issue, workflow):
        await _cleaned(site, done.issue)
    return done


async def issue_named(tracker: Tracker, workflow: Workflow, identifier: str) -> Issue:
    """The issue of that name, in whatever state it is."""
    states = (*workflow.tracker.active_states, *workflow.tracker.terminal_states)
    found = await tracker.by_states(states)
    for issue in found:
        if identifier in (issue.identifier, issue.id):
            return issue
    # It may be in a state that the file does not name.
    others = await tracker.by_ids([identifier])
    if others:
        return others[0]
    known = [issue.identifier for issue in found]
    near = difflib.get_close_matches(identifier, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known[:10]) or 'none'}"
    raise UsageError(f"there is no issue {identifier!r}{hint}")


def is_terminal(issue: Issue, workflow: Workflow) -> bool:
    return issue.state.strip().lower() in {state.lower() for state in workflow.tracker.terminal_states}


async def tried(
    workflow: Workflow,
    point: Point,
    *,
    runner: Runner,
    environ: Mapping[str, str],
    secret_names: frozenset[str] = frozenset(),
    mask: Mask | None = None,
    recorder: Recorder | None = None,
    status: Status = Status.OK,
) -> Tried:
    """Run the hook of a point in a scratch workspace that is gone afterwards."""
    name = next((name for name, where in POINTS.items() if where is point), None)
    if name is None or getattr(workflow.hooks, name) is None:
        has = [f"{where} ({name})" for name, where in POINTS.items() if getattr(workflow.hooks, name)]
        raise UsageError(f"{workflow.file} has no hook at {point}; it has: {', '.join(has) or 'none'}")
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="hookline-try-")
    outputs = Outputs(Path(folder, "outputs"))
    scripts = Scripts(
        current=lambda: workflow.hooks,
        runner=runner,
        environ=environ,
        file=workflow.file,
        secret_names=secret_names,
        mask=mask or Mask(),
        outputs=outputs,
    )
    issue = Issue(id="try", identifier="TRY-1", title="A hook is tried", state="Todo")
    try:
        with Root(folder) as root:
            workspace = root.finish(root.begin(issue.identifier, run_id="try"))
            try:
                hooks = workspace_hooks(scripts, Scene(issue=issue, workspace=workspace, root=root))
                facts = Facts(
                    workflow_id=issue.identifier,
                    run_id="try",
                    scope_id="1",
                    point=point,
                    status=None if point.is_start else status,
                )
                outcome = await Pipeline(hooks, recorder).fire(HookContext.of(facts, {}, None))
            finally:
                await root.discard(workspace)
        kept = outputs.folder / f"try.{name}.log"
        return Tried(outcome=outcome, output=kept.read_text() if kept.exists() else "")
    finally:
        await asyncio.to_thread(_delete, folder)


def _delete(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


async def _cleaned(site: Site, issue: Issue) -> None:
    workspace = site.root.find(workspace_key(issue.identifier))
    if workspace is not None:
        await removed(site, workspace, issue)
