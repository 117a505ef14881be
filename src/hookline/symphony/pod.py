"""`hookline attempt`: one attempt at an issue, or the removal of its workspace, as the program of a pod.

All that lasts is on the volume of the workspace: its folder, the note on that, and a journal. So what holds on one
machine holds over several pods. Who started the pod reads the records, what the agent tells, and the ending on
standard output.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hookline import files
from hookline.engine.hook import Hook
from hookline.engine.pipeline import Recorder
from hookline.engine.record import Begun, Called, Decided, Ended, RunRow
from hookline.errors import FileError, HooklineError, UsageError
from hookline.hookfile.attach import hooks_of
from hookline.journal.masking import Mask
from hookline.journal.recovery import owner
from hookline.journal.sqlite import SqliteJournal
from hookline.journal.stream import Sender
from hookline.journal.user import default_path
from hookline.options import flag, option
from hookline.runners.local import LocalRunner
from hookline.secret_names import secrets_in
from hookline.source import text_of
from hookline.symphony.agents import Told
from hookline.symphony.agents.guard import guard_of
from hookline.symphony.attempt import Site, Stop, outcome_of, recovered, removed
from hookline.symphony.attempt import attempt as attempted
from hookline.symphony.board.service import rules_of
from hookline.symphony.board.state import eligible
from hookline.symphony.hooks import Outputs
from hookline.symphony.issue import Issue, issue_from
from hookline.symphony.read import read
from hookline.symphony.trackers import Tracker, TrackerError
from hookline.symphony.types import Workflow
from hookline.symphony.worker import agent_of, tracker_of
from hookline.symphony.workspace import Root, WorkspaceError, workspace_key
from hookline.tasks import on_signals

TOLD = "told"
ENDED = "ended"
"""The words of what is sent besides records: what the agent tells of itself, and how it ended."""
NEAR = frozenset({"folder", "memory"})
"""Trackers that are on the machine of the service, and not to be had from a pod."""
KEPT = 64 * 1024 * 1024
"""Bytes of journal and of outputs that stay on the volume, which is the workspace's first of all."""
_FULL = 64 * 1024
_TERMINATED = 143
_OFTEN = 0.2
_CHATTER = frozenset({"notification", "other_message"})
_AN_HOUR = 3600.0
"""For clocks that differ."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What is to be done, and where."""

    workflow: Workflow
    issue: Issue
    number: int | None
    root: str
    hooks: tuple[str, ...]
    mark: str
    since: float | None
    patience: float


@dataclass(kw_only=True, eq=False, repr=False)
class AttemptOptions:
    file: str = option("the WORKFLOW.md, as it was when the attempt was begun", required=True)
    issue: str = option("a file with the issue, as JSON", required=True)
    number: int = option("which retry it is; 0 for none", 0, kind="int")
    root: str = option("the folder with the workspace", "/workspaces")
    hooks: tuple[str, ...] = option("a file with more hooks", kind="texts")
    source: str = option("what the WORKFLOW.md is called in the record")
    mark: str = option("of this attempt: under it nothing is begun twice")
    since: float | None = option("send all records since then, in seconds since 1970", None, kind="float")
    patience: float = option("seconds to wait for an earlier one to end", 120.0, kind="float")
    remove: bool = flag("remove the workspace instead")


def attempt(options: AttemptOptions) -> int:
    """Work on the issue once, or remove its workspace."""
    mask = Mask(secrets_in(os.environ))
    _log(mask)
    sender = Sender(_line, mask)
    given = _Given(
        workflow=_workflow(options.file, options.source or options.file, options.root),
        issue=_issue(options.issue),
        number=options.number or None,
        root=options.root,
        hooks=options.hooks,
        mark=options.mark,
        since=options.since,
        patience=options.patience,
    )
    code, told = asyncio.run(_ended(given, sender, mask, _remove if options.remove else _attempt))
    sender.say(ENDED, told)
    return code


def _workflow(file: str, source: str, root: str) -> Workflow:
    found = read(text_of(Path(file)), source, os.environ)
    # Where the service would have its workspaces is of no concern here.
    problems = tuple(each for each in found.problems if each.key != "workspace.root")
    found = replace(found, problems=problems, root=root).checked()
    if found.tracker.kind in NEAR:
        # Nobody here knows whether the issue wants another turn.
        return replace(found, agent=replace(found.agent, max_turns=1))
    return found


def _issue(file: str) -> Issue:
    try:
        return issue_from(text_of(Path(file)))
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise FileError(f"this is no issue as JSON: {exc}", file=file) from exc


class _Journal(SqliteJournal):
    """Keeps each record on the volume and sends it; what a hook said may be sent a moment before it is kept."""

    def __init__(self, sender: Sender) -> None:
        super().__init__(
            default_path(os.environ),
            secrets=secrets_in(os.environ),
            payloads=os.environ.get("HOOKLINE_PAYLOADS", "on") != "off",
            keep_bytes=KEPT,
        )
        self._sender = sender

    async def write(self, record: Begun | Ended) -> None:
        await super().write(record)
        self._sender.record(record)

    def note(self, record: Called | Decided) -> None:
        super().note(record)
        self._sender.record(record)

    def send_again(self, since: float | None) -> None:
        """What the reader may not have: of runs that did not come to their end, and of all since then."""
        late = [] if since is None else self.runs(limit=10_000)
        rows = [*self.unfinished(), *(row for row in late if _is_since(row, since))]
        for run_id in dict.fromkeys(row.run_id for row in rows):
            for record in self.records(run_id):
                self._sender.record(record)


def _is_since(row: RunRow, since: float | None) -> bool:
    return since is not None and (row.ended is None or row.ended >= since - _AN_HOUR)


class _Telling:
    """Hands on what the agent tells; of its chatter only so much that one sees that it lives."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._said = 0.0
        self.heard = time.monotonic()

    def __call__(self, told: Told) -> None:
        self.heard = now = time.monotonic()
        if told.kind in _CHATTER and told.tokens is None and now - self._said < _OFTEN:
            return
        self._said = now
        self._sender.say(TOLD, asdict(told))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """What the one thing that is done here is done with."""

    given: _Given
    site: Site
    journal: _Journal
    tell: _Telling
    stop: Stop


Work = Callable[[_Scene], Coroutine[Any, Any, dict[str, Any]]]


async def _ended(given: _Given, sender: Sender, mask: Mask, work: Work) -> tuple[int, dict[str, Any]]:
    """The exit code, and how it ended, in words for the one who reads."""
    stop, telling = Stop(), _Telling(sender)
    task = asyncio.ensure_future(_done(given, sender, mask, work, stop, telling))
    stalling = asyncio.ensure_future(_stalled(given.workflow.codex.stall_timeout, telling, stop, task))
    signals = 0

    def terminate(_number: int) -> None:
        nonlocal signals
        signals += 1
        # One that has stalled is ending already: the first signal must not cut its end hooks short.
        if signals > 1 or stop.outcome is None:
            stop.now(task)

    on_signals(terminate)
    try:
        return 0, {"outcome": "ok", **await task}
    except asyncio.CancelledError as exc:
        return _TERMINATED if signals else 1, _failure(given, mask, outcome_of(exc, stop), "")
    except (HooklineError, OSError) as exc:
        return 1, _failure(given, mask, outcome_of(exc, stop), str(exc))
    finally:
        stalling.cancel()


async def _stalled(limit: float | None, telling: _Telling, stop: Stop, task: asyncio.Task[Any]) -> None:
    """End an agent that is silent, as the service would: here its end hooks can be told why."""
    while limit is not None:
        silent = time.monotonic() - telling.heard
        if silent > limit:
            logger.warning("nothing was heard of the agent for %.0f s", silent)
            stop.now(task, "stalled")
            return
        await asyncio.sleep(limit - silent + 0.01)


async def _done(
    given: _Given, sender: Sender, mask: Mask, work: Work, stop: Stop, telling: _Telling
) -> dict[str, Any]:
    with await _rooted(given.root, given.patience) as root, _opened(sender) as journal:
        journal.send_again(given.since)
        runner = LocalRunner()
        more = tuple(hooks_of(list(given.hooks), runner))
        try:
            site = _site(given.workflow, root, runner, journal, mask, more)
            for line in await recovered(site):
                logger.warning("what an earlier pod left could not be finished: %s", line)
            return await work(_Scene(given=given, site=site, journal=journal, tell=telling, stop=stop))
        finally:
            await runner.close()


@contextmanager
def _opened(sender: Sender) -> Generator[_Journal]:
    journal = _Journal(sender)
    try:
        yield journal
    finally:
        journal.close()


async def _rooted(path: str, patience: float) -> Root:
    """The root, once an earlier pod that is still ending has let it go."""
    until = time.monotonic() + patience
    told = False
    while True:
        try:
            return Root(path, holder="hookline attempt")
        except WorkspaceError as exc:
            if exc.kind != "root_locked" or time.monotonic() > until:
                raise
            if not told:
                logger.warning("%s; waits for up to %g s", exc, patience)
            told = True
        await asyncio.sleep(0.5)


def _site(
    workflow: Workflow,
    root: Root,
    runner: LocalRunner,
    journal: _Journal,
    mask: Mask,
    hooks: tuple[Hook, ...],
) -> Site:
    return Site(
        current=lambda: workflow,
        root=root,
        runner=runner,
        environ=dict(os.environ),
        recorder=Recorder(journal),
        secret_names=_secret_names(workflow),
        mask=mask,
        outputs=Outputs(default_path(os.environ).parent / "outputs", keep_bytes=KEPT),
        owner=owner(),
        hooks=hooks,
    )


def _secret_names(workflow: Workflow) -> frozenset[str]:
    """Also where the tracker cannot be used, which a removal does not need."""
    try:
        return tracker_of(workflow, os.environ).secret_names
    except TrackerError:
        return workflow.tracker.variables


async def _remove(scene: _Scene) -> dict[str, Any]:
    workspace = scene.site.root.find(workspace_key(scene.given.issue.identifier))
    if workspace is not None:
        await removed(scene.site, workspace, scene.given.issue)
    return {}


async def _attempt(scene: _Scene) -> dict[str, Any]:
    given, site = scene.given, scene.site
    _begin_once(given.mark)
    tracker = None if given.workflow.tracker.kind in NEAR else _tracker(given.workflow)
    rules = rules_of(given.workflow)
    try:
        done = await attempted(
            site,
            given.issue,
            agent_of(
                given.workflow,
                site.withheld_names,
                site.hooks,
                scene.journal,
                guard_of(list(given.hooks), site.hooks, os.environ),
            ),
            refresh=_refresh(tracker),
            wanted=lambda found: tracker is None or eligible(found, rules),
            number=given.number,
            tell=scene.tell,
            stop=scene.stop,
        )
    finally:
        if tracker is not None:
            await tracker.close()
    return {"run_id": done.run_id, "turns": done.turns, "why": done.why}


def _tracker(workflow: Workflow) -> Tracker:
    try:
        return tracker_of(workflow, os.environ)
    except TrackerError as exc:
        raise UsageError(
            f"{exc}; this is a pod, and has its variables from the Secrets that `hookline serve` is given"
        ) from exc


def _refresh(tracker: Tracker | None) -> Callable[[Issue], Awaitable[Issue | None]]:
    async def refresh(before: Issue) -> Issue | None:
        if tracker is None:
            return before
        found = await tracker.by_ids([before.id])
        return found[0] if found else None

    return refresh


def _begin_once(mark: str) -> None:
    """Where a pod was lost the cluster may put another in its place; what the first had begun is not begun again."""
    if not mark:
        return
    file = default_path(os.environ).parent / "begun"
    if file.exists() and file.read_text() == mark:
        raise UsageError("an earlier pod had begun this attempt and is gone; it is not begun a second time")
    files.write_whole(file, mark.encode())


def _failure(given: _Given, mask: Mask, outcome: str, error: str) -> dict[str, Any]:
    return {"outcome": outcome, "error": mask.text(error, 2000) or None, "full": _is_full(given.root)}


def _is_full(root: str) -> bool:
    try:
        found = os.statvfs(root)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _FULL or bool(found.f_files and not found.f_favail)


def _log(mask: Mask) -> None:
    """Standard error is a part of the pod's log, which others may read: masked."""

    def masked(record: logging.LogRecord) -> bool:
        record.msg, record.args = mask.text(record.getMessage()), None
        return True

    shown = logging.StreamHandler(sys.stderr)
    shown.addFilter(masked)
    ours = logging.getLogger("hookline")
    ours.setLevel(logging.INFO)
    ours.addHandler(shown)


def _line(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
