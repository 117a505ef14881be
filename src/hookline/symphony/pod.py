"""`hookline attempt`: one attempt at an issue, or the removal of its workspace, as the program of a pod.

Everything that lasts is on the volume of the workspace: its folder, the note on that, and a journal. So several pods
behave like one machine. Records, events of the agent and the end of the attempt go to standard output, where
the service reads them (`AttemptStream` in `jobs.py`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hookline import files
from hookline.engine.pipeline import Recorder
from hookline.engine.plain import typed
from hookline.engine.record import Begun, Called, Decided, Ended
from hookline.errors import FileError, HooklineError, UsageError
from hookline.files import output
from hookline.hookfile.sources import held
from hookline.journal import default_path
from hookline.journal.masking import Mask
from hookline.journal.sqlite import SqliteJournal
from hookline.journal.stream import Sender
from hookline.options import flag, option
from hookline.runners.local import LocalRunner
from hookline.secrets import secrets_in
from hookline.source import text_of
from hookline.symphony.agents import AgentEvent
from hookline.symphony.attempt import Attempt, Halt, outcome_of, recovered, remove_workspace
from hookline.symphony.hooks import AttemptSite
from hookline.symphony.read import Workflow, read, ready
from hookline.symphony.run import agent_of, log_masked, site_of, tracker_of
from hookline.symphony.trackers import Issue, Tracker, TrackerError
from hookline.symphony.workspace import WorkspaceError, WorkspaceRoot
from hookline.tasks import on_signals

TOLD = "told"
ENDED = "ended"
"""The messages that are sent besides records: an event of the agent, and the end of the attempt."""
NEAR = frozenset({"folder", "memory"})
"""Trackers on the machine of the service, which a pod cannot reach."""
KEPT = 64 * 1024 * 1024
"""Bytes of journal and of outputs that stay on the volume, which is the workspace's first of all."""
_FULL = 64 * 1024
_TERMINATED = 143
_OFTEN = 0.2
_CHATTER = frozenset({"notification", "other_message"})
_AN_HOUR = 3600.0
"""For clocks that differ."""

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class AttemptOptions:
    file: str = option("the WORKFLOW.md, as it was when the attempt began", required=True)
    issue: str = option("a file with the issue, as JSON", required=True)
    number: int = option("the number of the retry; 0 for the first attempt", 0)
    root: str = option("the folder with the workspace", "/workspaces")
    hooks: tuple[str, ...] = option("a file with more hooks", ())
    source: str = option("the name of the WORKFLOW.md in the journal")
    mark: str = option("an id of this attempt; an attempt with the same id is not started twice")
    since: float | None = option("send all records since this Unix time", None)
    patience: float = option("seconds to wait for an earlier attempt to end", 120.0)
    remove: bool = flag("remove the workspace instead")


def attempt(options: AttemptOptions) -> int:
    """Work on the issue once, or remove its workspace."""
    mask = Mask(secrets_in(os.environ))
    # Standard error is a part of the pod's log, which others may read.
    log_masked(mask, logging.StreamHandler(sys.stderr))
    sender = Sender(output.write, mask)
    code, ended = asyncio.run(_PodWork(options, sender, mask).ended())
    sender.say(ENDED, ended)
    return code


def _workflow(file: str, source: str, root: str) -> Workflow:
    found = read(text_of(Path(file)), source, os.environ)
    # Where the service would have its workspaces is of no concern here.
    problems = tuple(each for each in found.problems if each.key != "workspace.root")
    found = ready(replace(found, problems=problems, root=root))
    if found.tracker.kind in NEAR:
        # Nobody here knows whether the issue wants another turn.
        return replace(found, agent=replace(found.agent, max_turns=1))
    return found


def _issue(file: str) -> Issue:
    try:
        return typed(Issue, {**json.loads(text_of(Path(file)))})
    except (ValueError, TypeError) as exc:
        raise FileError(f"this is not an issue as JSON: {exc}", file=file) from exc


class SentJournal(SqliteJournal):
    """Keeps each record on the volume and sends it; a hook's answer may be sent a moment before it is kept."""

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
        """Send the records that the service may lack: of unfinished runs, and of all runs since then."""
        rows = self.unfinished()
        if since is not None:
            late = since - _AN_HOUR
            rows += [row for row in self.runs(limit=10_000) if row.ended is None or row.ended >= late]
        for run_id in dict.fromkeys(row.run_id for row in rows):
            for record in self.records(run_id):
                self._sender.record(record)


class _PodWork:
    """The work of this pod: an attempt at an issue, or the removal of its workspace."""

    def __init__(self, options: AttemptOptions, sender: Sender, mask: Mask) -> None:
        self._options, self._sender, self._mask = options, sender, mask
        self._workflow = _workflow(options.file, options.source or options.file, options.root)
        self._issue = _issue(options.issue)
        self._halt = Halt()
        self._sent_at = 0.0
        self._heard_at = time.monotonic()

    async def ended(self) -> tuple[int, dict[str, Any]]:
        """The exit code, and the end as the service reads it."""
        halt = self._halt
        task = asyncio.ensure_future(self._done())
        stalling = asyncio.ensure_future(self._stalled(task))
        signals = 0

        def terminate(_number: int) -> None:
            nonlocal signals
            signals += 1
            # One that has stalled is ending already: the first signal must not cut its end hooks short.
            if signals > 1 or halt.outcome is None:
                halt.now(task)

        on_signals(terminate)
        try:
            return 0, {"outcome": "ok", **await task}
        except asyncio.CancelledError as exc:
            return _TERMINATED if signals else 1, self._failure(outcome_of(exc, halt), "")
        except (HooklineError, OSError) as exc:
            return 1, self._failure(outcome_of(exc, halt), str(exc))
        finally:
            stalling.cancel()

    def _tell(self, event: AgentEvent) -> None:
        """Send an event of the agent; of its chatter only enough to show that it is alive."""
        self._heard_at = now = time.monotonic()
        if event.kind in _CHATTER and event.tokens is None and now - self._sent_at < _OFTEN:
            return
        self._sent_at = now
        self._sender.say(TOLD, asdict(event))

    async def _stalled(self, task: asyncio.Task[Any]) -> None:
        """End a silent agent, as the service would; here its end hooks learn the reason."""
        limit = self._workflow.codex.stall_timeout
        while limit is not None:
            silent = time.monotonic() - self._heard_at
            if silent > limit:
                logger.warning("the agent sent nothing for %.0f s", silent)
                self._halt.now(task, "stalled")
                return
            await asyncio.sleep(limit - silent + 0.01)

    async def _done(self) -> dict[str, Any]:
        options = self._options
        with (
            await _rooted(options.root, options.patience) as root,
            SentJournal(self._sender) as journal,
        ):
            journal.send_again(options.since)
            runner = LocalRunner()
            try:
                site = site_of(
                    lambda: self._workflow,
                    root,
                    runner,
                    Recorder(journal),
                    self._mask,
                    # A pod has what it was sent, and the machine's file of its image.
                    [each.file for each in held(None, os.environ, options.hooks)],
                    keep_bytes=KEPT,
                )
                for line in await recovered(site):
                    logger.warning("the work of an earlier pod could not be finished: %s", line)
                if options.remove:
                    await remove_workspace(site, self._issue)
                    return {}
                return await self._attempted(site)
            finally:
                await runner.close()

    async def _attempted(self, site: AttemptSite) -> dict[str, Any]:
        workflow, options = self._workflow, self._options
        _begin_once(options.mark)
        tracker = None if workflow.tracker.kind in NEAR else _tracker(workflow)
        try:
            attempt = Attempt(
                issue=self._issue,
                tracker=tracker,
                number=options.number or None,
                tell=self._tell,
                halt=self._halt,
            )
            done = await attempt.run(site, agent_of(workflow, site))
        finally:
            if tracker is not None:
                await tracker.close()
        return {"run_id": done.run_id, "turns": done.turns, "why": done.why}

    def _failure(self, outcome: str, error: str) -> dict[str, Any]:
        full = _is_full(self._options.root)
        return {"outcome": outcome, "error": self._mask.text(error, 2000) or None, "full": full}


async def _rooted(path: str, patience: float) -> WorkspaceRoot:
    """The root, once an earlier pod that is still ending has released it."""
    until = time.monotonic() + patience
    told = False
    while True:
        try:
            return WorkspaceRoot(path, holder="hookline attempt")
        except WorkspaceError as exc:
            if exc.kind != "root_locked" or time.monotonic() > until:
                raise
            if not told:
                logger.warning("%s; waits for up to %g s", exc, patience)
            told = True
        await asyncio.sleep(0.5)


def _tracker(workflow: Workflow) -> Tracker:
    try:
        return tracker_of(workflow)
    except TrackerError as exc:
        raise UsageError(
            f"{exc}; this is a pod, and has its variables from the Secrets that `hookline serve` is given"
        ) from exc


def _begin_once(mark: str) -> None:
    """Refuse an attempt that a lost pod had begun: the cluster may replace a pod."""
    if not mark:
        return
    file = default_path(os.environ).parent / "begun"
    if file.exists() and file.read_text() == mark:
        raise UsageError("an earlier pod started this attempt and is gone; it is not started a second time")
    files.write_whole(file, mark.encode())


def _is_full(root: str) -> bool:
    try:
        found = os.statvfs(root)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _FULL or bool(found.f_files and not found.f_favail)
