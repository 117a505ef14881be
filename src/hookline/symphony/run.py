"""`hookline run WORKFLOW.md --issue` and `hookline try`: one attempt at one issue, or one hook, without a service.

Also what every command needs: the tracker and the agent of a file, its site, and the log.
"""

from __future__ import annotations

import difflib
import logging
import os
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hookline.engine.context import Facts, HookContext
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.plain import visible
from hookline.engine.point import Status, point_named
from hookline.engine.record import Record
from hookline.engine.result import HookAction, Outcome
from hookline.errors import HooklineError, Skipped, UsageError
from hookline.hookfile.attach import hooks_of
from hookline.journal import default_path, open_journal
from hookline.journal.masking import Mask
from hookline.journal.recovery import owner
from hookline.options import RunOptions, TryOptions
from hookline.runners import Runner
from hookline.runners.local import LocalRunner
from hookline.runners.places import Place, place_of, usable
from hookline.secrets import secrets_in
from hookline.symphony.agents import CodingAgent
from hookline.symphony.agents.builtin import BuiltinSession
from hookline.symphony.agents.codex import CodexSession
from hookline.symphony.agents.command import CommandSession
from hookline.symphony.agents.guard import guard_of
from hookline.symphony.attempt import Attempt, Attempted, AttemptEnd, outcome_of, recovered, remove_workspace
from hookline.symphony.hooks import KEEP_BYTES, AttemptSite, Outputs, Scene, workspace_hooks
from hookline.symphony.read import AGENT_HERE, Workflow, WorkflowError, read_workflow, ready
from hookline.symphony.scheduler import is_terminal
from hookline.symphony.settings import POINTS
from hookline.symphony.trackers import TRACKERS, Issue, Tracker, TrackerError, setting
from hookline.symphony.trackers.folder import FolderTracker
from hookline.symphony.trackers.github import GithubTracker
from hookline.symphony.trackers.linear import LinearTracker
from hookline.symphony.workspace import WorkspaceRoot, workspace_key
from hookline.terminal import interruptible, log_filter, out, print_json, print_result, warn, watcher

logger = logging.getLogger(__name__)


def run_one_issue(options: RunOptions) -> int:
    """One attempt at one issue of a WORKFLOW.md, with all its hooks."""
    file, issue, hooks = options.file, options.issue, options.hooks
    if not issue:
        raise UsageError(
            f"--issue is missing: hookline run {file} --issue ABC-123 (hookline serve {file} works on all issues)"
        )
    workflow = ready(read_workflow(file, strict=options.strict))
    for warning in workflow.warnings:
        warn(str(warning))
    place, others = place_of(options.on, options.image, network=options.network, mounts=options.mount)
    if others:
        raise UsageError(
            f"--image {others[0]!r}: REF=SOURCE is for a kagent manifest, and this is a WORKFLOW.md"
        )
    for text in () if options.quiet else place.told(AGENT_HERE, files=hooks):
        warn(text)
    with open_site(
        workflow,
        holder=f"hookline run {file}",
        json=options.json,
        quiet=options.quiet,
        place=place,
        files=hooks,
    ) as site:
        for line in site.guard.blind(workflow.agent) if site.guard else ():
            warn(line)
        return interruptible(lambda: _attempted(site, issue, json=options.json))


async def _attempted(site: AttemptSite, identifier: str, *, json: bool) -> int:
    workflow = site.current()
    tracker = tracker_of(workflow)
    try:
        await usable(site.runner)
        for line in await recovered(site):
            warn(f"the work of a killed process could not be finished: {line}")
        done = await run_issue(site, tracker, agent_of(workflow, site), identifier)
    except Skipped as exc:
        shown: dict[str, Any] = {"run_id": exc.run_id, "skipped": exc.reason}
        text = f"skipped: {exc}"
    else:
        if done is None:
            shown = {"removed": identifier}
            text = f"{identifier} is closed; its workspace is removed"
        else:
            shown = {"run_id": done.run_id, "turns": done.turns, "why": done.why, "text": done.text}
            text = done.text.rstrip()
    finally:
        await tracker.close()
        await site.runner.close()
    print_result(shown, text, json=json)
    return 0


@contextmanager
def open_site(
    workflow: Workflow,
    *,
    holder: str,
    json: bool = False,
    quiet: bool = False,
    place: Place | None = None,
    files: Sequence[str] = (),
) -> Generator[AttemptSite]:
    """The workspaces of a workflow, locked for one command, with the journal that keeps what happens there, shown too."""
    mask = Mask(secrets_in(os.environ))
    watch = _watchers(mask, json=json, quiet=quiet)
    with open_journal() as journal, WorkspaceRoot(workflow.root, holder=holder) as root:
        runner = (place or Place()).runner(each_of=root.path, files=files)
        yield site_of(lambda: workflow, root, runner, Recorder(journal, watch), mask, files)


def _watchers(mask: Mask, *, json: bool, quiet: bool) -> list[Callable[[Record], None]]:
    watch = watcher(mask, json=json, quiet=quiet)
    if watch is None:
        return []
    # Whoever sees the records needs no log lines beside them.
    logging.getLogger("hookline.symphony").addHandler(logging.NullHandler())
    return [watch]


async def run_issue(
    site: AttemptSite, tracker: Tracker, agent: CodingAgent, identifier: str
) -> Attempted | None:
    """One attempt at one issue, whatever its priority. Of an issue in a terminal state the workspace is removed: None."""
    workflow = site.current()
    issue = await issue_named(tracker, workflow, identifier)
    if is_terminal(issue, workflow):
        await remove_workspace(site, issue)
        return None
    done = await Attempt(issue=issue, tracker=tracker).run(site, agent)
    if done.issue is not None and is_terminal(done.issue, workflow):
        await remove_workspace(site, done.issue)
    return done


async def issue_named(tracker: Tracker, workflow: Workflow, identifier: str) -> Issue:
    """The issue of that identifier or id, in any state."""
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


def try_hook(workflow: Workflow, options: TryOptions) -> int:
    """Run the hook of a point, and print its output and decision; 1 if it refused."""
    workflow = workflow.checked()

    async def main() -> int:
        outcome, output = await _tried(workflow, options)
        failed = outcome.action is not HookAction.CONTINUE
        if options.json:
            print_json({"point": options.point, "action": outcome.action, "output": output})
        else:
            out.print(output, end="")
            out.print(f"= {'fails' if failed else 'goes on'}")
        return 1 if failed else 0

    return interruptible(main)


async def _tried(workflow: Workflow, options: TryOptions) -> tuple[Outcome, str]:
    """Run the hooks of a point in a temporary workspace; their decision, and the output of the file's own."""
    point, mask = point_named(options.point), Mask(secrets_in(os.environ))
    watch = _watchers(mask, json=options.json, quiet=False)
    name = next((name for name, where in POINTS.items() if where is point), None)
    runner = LocalRunner()
    more = hooks_of(options.hooks, runner)
    given = workflow.hooks.given
    if name not in given and not any(point in hook.points for hook in more):
        has = [f"{POINTS[name]} ({name})" for name in given]
        raise UsageError(f"{workflow.file} has no hook at {point}; it has: {', '.join(has) or 'none'}")
    issue = Issue(id="try", identifier="TRY-1", title="A hook is tried", state="Todo")
    temporary = tempfile.TemporaryDirectory(prefix="hookline-try-", ignore_cleanup_errors=True)
    with temporary as folder, WorkspaceRoot(folder) as root:
        outputs = Outputs(Path(folder, "outputs"))
        site = site_of(lambda: workflow, root, runner, Recorder(None, watch), mask)
        workspace = root.finish(root.begin(issue.identifier, run_id="try"))
        hooks = workspace_hooks(replace(site, outputs=outputs), Scene(issue=issue, workspace=workspace))
        facts = Facts(
            workflow_id=issue.identifier,
            run_id="try",
            scope_id="1",
            point=point,
            status=None if point.is_start else Status.OK,
        )
        pipeline = Pipeline([*more, *hooks], site.recorder)
        try:
            outcome = await pipeline.fire(HookContext.of(facts, {}, None))
        finally:
            await runner.close()
            await root.discard(workspace)
        kept = outputs.folder / f"try.{name}.log"
        return outcome, kept.read_text() if kept.exists() else ""


def tracker_of(workflow: Workflow) -> Tracker:
    """The tracker that a workflow names. Paths are taken from the folder of its file."""
    kind, provider, env = workflow.tracker.kind, workflow.tracker.provider, os.environ
    if kind == "linear":
        return LinearTracker(provider, env)
    if kind == "github":
        return GithubTracker(provider, env)
    if kind in ("folder", "memory"):
        path = setting(provider, "path", env)
        folder = Path(workflow.folder) / Path(path or "issues").expanduser()
        return FolderTracker(folder, workflow.tracker.terminal_states)
    raise TrackerError(
        f"tracker.kind is {kind!r}; known: {', '.join(TRACKERS)}", kind="unsupported_tracker_kind"
    )


def agent_of(workflow: Workflow, site: AttemptSite) -> CodingAgent:
    """The agent that a workflow names. The built-in one runs the hooks of the site itself; others get its guard."""
    agent, codex, guard = workflow.agent, workflow.codex, site.guard
    if agent.kind == "command":
        argv = guard.argv(agent.command) if guard else agent.command
        return partial(CommandSession, argv=argv, silence=codex.turn_timeout)
    if agent.kind == "builtin":
        return partial(
            BuiltinSession,
            settings=agent,
            silence=codex.turn_timeout,
            hooks=site.hooks,
            journal=site.recorder.journal,
        )
    hooks = guard.events("codex") if guard else {}
    return partial(CodexSession, settings=codex, secret_names=site.withheld_names, hooks=hooks)


def check_tracker(workflow: Workflow) -> None:
    """Check that the tracker of a workflow can be made."""
    try:
        tracker_of(workflow)
    except TrackerError as exc:
        raise WorkflowError(str(exc), kind=exc.kind, file=workflow.file, key="tracker") from exc


def site_of(
    current: Callable[[], Workflow],
    root: WorkspaceRoot,
    runner: Runner,
    recorder: Recorder,
    mask: Mask,
    files: Sequence[str] = (),
    *,
    keep_bytes: int = KEEP_BYTES,
) -> AttemptSite:
    """The site of a command: with the hooks of these files, the environment of this process, and outputs beside the
    journal."""
    hooks = tuple(hooks_of(files, runner))
    return AttemptSite(
        current=current,
        root=root,
        runner=runner,
        environ=dict(os.environ),
        recorder=recorder,
        secret_names=current().tracker.secret_names,
        mask=mask,
        outputs=Outputs(default_path(os.environ).parent / "outputs", keep_bytes=keep_bytes),
        owner=owner(),
        hooks=hooks,
        guard=guard_of(files, hooks, os.environ),
    )


class SiteWorker:
    """Works on issues on this machine. `agent` makes the agent of a workflow."""

    def __init__(self, site: AttemptSite, agent: Callable[[Workflow], CodingAgent]) -> None:
        self._site = site
        self._agent = agent

    async def attempt(self, workflow: Workflow, attempt: Attempt) -> AttemptEnd:
        agent = self._agent(workflow)
        try:
            await attempt.run(self._site, agent)
        except HooklineError as exc:
            return AttemptEnd(outcome=outcome_of(exc, attempt.halt), error=str(exc))
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


def log_masked(mask: Mask, *handlers: logging.Handler) -> None:
    """Send the log of hookline, masked, to these handlers."""
    masked = log_filter(lambda text: visible(mask.text(text)))
    ours = logging.getLogger("hookline")
    ours.setLevel(logging.INFO)
    for handler in handlers:
        handler.addFilter(masked)
        ours.addHandler(handler)
