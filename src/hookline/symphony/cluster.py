"""`hookline serve WORKFLOW.md --on kubernetes`: a volume for each workspace, and a Job for each attempt at its issue.

The service makes the Job and reads the log of its pod. A Job is found again by its name: the service after one that
was killed reads the same log from its beginning, and the journal takes each record once.

Before the Job is made, its volume's claim gets a note that the log is unread, which goes when it has been read to its
end. If the note is still there, the next pod sends the records of the journal on the volume again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hookline.engine.record import Begun, Journal, RunRow
from hookline.errors import HooklineError
from hookline.hookfile.sources import texts_to_send
from hookline.journal.recovery import end_as_lost
from hookline.kube.jobs import COMPONENT_LABEL, GIVEN, MANAGED, MOUNT, Task, claim_spec, started
from hookline.kube.objects import CLAIM, JOB, AlreadyThere, Object, Unreachable, with_head, within
from hookline.kube.pod_state import is_over
from hookline.options import ServeOptions
from hookline.symphony.agents import AgentEvent
from hookline.symphony.attempt import Attempt, AttemptEnd
from hookline.symphony.hooks import fields
from hookline.symphony.jobs import ATTEMPT, PAUSE, REMOVAL, UNREAD_NOTE, AttemptJob, AttemptStream
from hookline.symphony.pod import NEAR
from hookline.symphony.read import Workflow
from hookline.symphony.scheduler import eligible
from hookline.symphony.trackers import Issue, Tracker, TrackerError, issue_values
from hookline.symphony.workspace import workspace_key

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

logger = logging.getLogger(__name__)

WORKFLOW_LABEL = "hookline.dev/workflow"
IDENTIFIER_NOTE = "hookline.dev/issue"
ISSUE_NOTE = "hookline.dev/issue-id"
GONE = "lost: the volume of its workspace was deleted"
_LIFE = 10.0
"""Seconds between two signs of life of an attempt whose pod has not begun."""
_RECOVERY = 60.0
_MORE_GRACE = 30.0
_NOT_A_NAME = re.compile(r"[^a-z0-9]+")


def workflow_id(workflow: Workflow) -> str:
    """The label of its volumes and Jobs: the tracker as it is written, and the last part of `workspace.root`.

    Not the file's place, for a service may move to another machine."""
    tracker = workflow.tracker
    near = [workflow.folder] if tracker.kind in NEAR else []
    root = workflow.root.rstrip("/").rpartition("/")[2]
    known = json.dumps([tracker.kind, tracker.provider, root, near], sort_keys=True, default=str)
    return hashlib.sha256(known.encode()).hexdigest()[:16]


def hooks_to_send(hooks: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The names of hook files in a pod, and the texts of all that is sent; a module has to be in the image."""
    names: list[str] = []
    files: dict[str, str] = {}
    for number, each in enumerate(hooks):
        if not os.path.exists(each) and "/" not in each and ":" in each:
            names.append(each)
            continue
        texts = texts_to_send(Path(each))
        files |= {f"hooks-{number}/{name}": text for name, text in texts.items()}
        names.append(f"{GIVEN}/hooks-{number}/{next(iter(texts))}")
    return names, files


class ClusterWorker:
    """Works on issues in pods, with the WORKFLOW.md of the moment, and the hook files as they were at the start.

    `id` is the `workflow_id` of the WORKFLOW.md at the start."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        options: ServeOptions,
        id: str,
        journal: Journal,
    ) -> None:
        self._cluster, self._namespace, self._options = cluster, namespace, options
        self._id, self._journal = id, journal
        self._hooks, self._files = hooks_to_send(options.hooks)
        self._labels = {WORKFLOW_LABEL: id}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._left: dict[tuple[str, str], AttemptJob] = {}
        """Jobs that an earlier service left at work, until one of our own attempts or removals waits for them."""
        self._at_work: set[AttemptJob] = set()
        self._leaving = False

    async def attempt(self, workflow: Workflow, attempt: Attempt) -> AttemptEnd:
        issue, tell = attempt.issue, attempt.tell
        try:
            key = workspace_key(issue.identifier)
            async with self._locks[key]:
                job = self._left.pop((key, ATTEMPT), None)
                if job is None:
                    removal = self._left.get((key, REMOVAL))
                    if removal is not None:
                        await asyncio.wait({removal.task})
                    await self._place(workflow, tell)
                    words = ("--number", str(attempt.number or 0), "--mark", secrets.token_hex(8))
                    job = self._job(ATTEMPT, workflow, issue, words)
                return await self._waited(job, tell)
        except HooklineError as exc:
            return AttemptEnd(outcome="failed", error=str(exc))

    async def remove(self, workflow: Workflow, issue: Issue) -> None:
        key = workspace_key(issue.identifier)
        async with self._locks[key]:
            attempt = self._left.pop((key, ATTEMPT), None)
            if attempt is not None:
                attempt.stop()
                await asyncio.wait({attempt.task})
            job = self._left.pop((key, REMOVAL), None)
            if job is None:
                name = self._name(issue.identifier)
                if await self._cluster.get(CLAIM, name, self._namespace) is None:
                    return
                job = self._job(REMOVAL, workflow, issue, ("--remove",))
            try:
                await job.task
            except asyncio.CancelledError:
                job.task.cancel()
                raise

    async def workspaces(self) -> frozenset[str]:
        try:
            found, _ = await self._cluster.list(CLAIM, self._namespace, self._labels)
        except Unreachable as exc:
            logger.warning("old workspaces could not be listed: %s", exc)
            return frozenset()
        kept = [each["metadata"] for each in found if not each["metadata"].get("deletionTimestamp")]
        notes = [within(each, "annotations") for each in kept]
        return frozenset(each[IDENTIFIER_NOTE] for each in notes if IDENTIFIER_NOTE in each)

    def path(self, identifier: str) -> str:
        return f"{self._namespace}/{self._name(identifier)}:{MOUNT}/{workspace_key(identifier)}"

    async def recover(self, workflow: Workflow, tracker: Tracker) -> None:
        """Take up the Jobs that a service before us left: read those that are over, and end those whose issue is not
        eligible any more, with their hooks."""
        jobs, _ = await self._cluster.list(JOB, self._namespace, self._labels)
        over: list[asyncio.Task[AttemptEnd]] = []
        ids: dict[str, AttemptJob] = {}
        for each in jobs:
            job = self._take_up(each)
            if is_over(each):
                over.append(job.task)
            elif job.what == ATTEMPT:
                ids[within(each["metadata"], "annotations").get(ISSUE_NOTE, "")] = job
        if over:
            # Whatever takes longer is read on while the service works.
            await asyncio.wait(over, timeout=_RECOVERY)
        await self._stop_unwanted(workflow, tracker, ids)

    async def close(self) -> None:
        """End the Jobs that no attempt waits for, as the service ends its attempts."""
        left = [*self._left.values()]
        for job in left:
            # A removal goes on by itself, and the next service finds it.
            job.task.cancel() if self._leaving or job.what == REMOVAL else job.stop()
        await asyncio.gather(*(job.task for job in left), return_exceptions=True)

    def leave(self) -> None:
        """End no Job from now on: another service takes them up."""
        self._leaving = True

    def _take_up(self, found: Object) -> AttemptJob:
        head = found["metadata"]
        identifier = within(head, "annotations").get(IDENTIFIER_NOTE, "")
        what = str(head["labels"].get(COMPONENT_LABEL))

        async def as_it_is() -> Object:
            return found

        job = self._made(what, identifier, as_it_is)
        logger.info("%s continues from an earlier service", fields(issue_identifier=identifier, what=what))
        self._left[workspace_key(identifier), what] = job
        job.task.add_done_callback(lambda task: self._left_over(workspace_key(identifier), job, task))
        return job

    def _left_over(self, key: str, job: AttemptJob, task: asyncio.Task[AttemptEnd]) -> None:
        if self._left.get((key, job.what)) is job:
            del self._left[key, job.what]
        if not task.cancelled() and (error := task.exception()) is not None:
            trouble = "the Job of an earlier service could not be read to its end"
            if job.what == REMOVAL:
                trouble = "a workspace was not removed"
            logger.warning("%s %s: %s", job.about, trouble, error)

    async def _stop_unwanted(
        self, workflow: Workflow, tracker: Tracker, ids: Mapping[str, AttemptJob]
    ) -> None:
        if not ids:
            return
        try:
            found = {each.id: each for each in await tracker.by_ids(list(ids))}
        except TrackerError as exc:
            logger.warning(
                "%s the issues of earlier Jobs could not be read from the tracker: %s",
                fields(kind=exc.kind),
                exc,
            )
            return
        for id, job in ids.items():
            if id not in found or not eligible(found[id], workflow):
                logger.info(
                    "%s the attempt of an earlier service is stopped: its issue is not eligible any more",
                    fields(issue_id=id),
                )
                job.stop()

    async def _place(self, workflow: Workflow, tell: Callable[[AgentEvent], None]) -> None:
        """Wait while attempts of a service before us take up the slots."""
        while left := [job.task for (_, what), job in self._left.items() if what == ATTEMPT]:
            if len(left) + len(self._at_work) < workflow.agent.max_concurrent_agents:
                return
            tell(AgentEvent(kind="other_message", text="waits for an attempt that an earlier service began"))
            await asyncio.wait(left, timeout=_LIFE, return_when=asyncio.FIRST_COMPLETED)

    async def _waited(self, job: AttemptJob, tell: Callable[[AgentEvent], None]) -> AttemptEnd:
        job.stream.tell = tell
        self._at_work.add(job)
        cancelled: asyncio.CancelledError | None = None
        try:
            while not job.task.done():
                try:
                    await asyncio.wait({job.task}, timeout=_LIFE)
                except asyncio.CancelledError as exc:
                    cancelled = exc
                    job.task.cancel() if self._leaving else job.stop()
                if not job.stream.began:
                    # Nothing is heard of an agent that has no pod yet; that is no stall.
                    tell(AgentEvent(kind="other_message"))
        finally:
            self._at_work.discard(job)
        if cancelled is None:
            return job.task.result()
        if not job.task.cancelled():
            job.task.exception()  # or asyncio would report that nobody looked at it
        if job.unreported:
            logger.warning("%s the attempt was stopped, and did not report how its end hooks went", job.about)
        raise cancelled

    def _job(self, what: str, workflow: Workflow, issue: Issue, words: tuple[str, ...]) -> AttemptJob:
        async def make() -> Object:
            since = await self._since(await self._claimed(issue))
            task = self._task(what, workflow, issue, (*words, *since))
            job, _ = await started(self._cluster, task)
            return job

        return self._made(what, issue.identifier, make)

    def _made(self, what: str, identifier: str, make: Callable[[], Awaitable[Object]]) -> AttemptJob:
        claim = self._name(identifier)
        stream = AttemptStream(self._journal, f"{self._namespace}/{claim}")
        return AttemptJob(self._cluster, what, make, stream, claim, fields(issue_identifier=identifier))

    def _task(self, what: str, workflow: Workflow, issue: Issue, words: tuple[str, ...]) -> Task:
        options, name = self._options, self._name(issue.identifier)
        more = [word for each in self._hooks for word in ("--hooks", each)]
        payloads = os.environ.get("HOOKLINE_PAYLOADS")
        given = (
            "--file",
            f"{GIVEN}/WORKFLOW.md",
            "--issue",
            f"{GIVEN}/issue.json",
            "--source",
            workflow.file,
        )
        return Task(
            name=name if what == ATTEMPT else f"{name}-rm",
            namespace=self._namespace,
            image=options.image[0],
            args=("attempt", *given, "--root", MOUNT, *more, *words),
            component=what,
            labels=self._labels,
            notes=_notes(issue),
            env={"HOOKLINE_PAYLOADS": payloads} if payloads else {},
            files={
                "WORKFLOW.md": workflow.text,
                "issue.json": json.dumps(issue_values(issue)),
                **self._files,
            },
            secrets=options.secret,
            claim=name,
            grace=workflow.hooks.timeout + _MORE_GRACE,
            mark=secrets.token_hex(4),
            open_claim_as_root=options.open_volume_as_root,
        )

    async def _claimed(self, issue: Issue) -> Object:
        """The claim of the issue's volume: the one that is there, else a new one."""
        options, namespace, name = self._options, self._namespace, self._name(issue.identifier)
        # It has no owner: it outlives the Jobs that use it.
        wanted = {
            **with_head(CLAIM, name, namespace, {**MANAGED, **self._labels}, annotations=_notes(issue)),
            "spec": claim_spec(options.storage_size or "1Gi", options.storage_class),
        }
        while True:
            try:
                made = await self._cluster.create(wanted)
            except AlreadyThere:
                found = await self._cluster.get(CLAIM, name, namespace)
            else:
                await self._end_lost_runs(issue.identifier, f"{namespace}/{name}")
                return made
            if found is not None and not found["metadata"].get("deletionTimestamp"):
                return found
            await asyncio.sleep(PAUSE)

    async def _end_lost_runs(self, identifier: str, claim: str) -> None:
        """End on record the runs on a volume that somebody deleted: no pod will."""

        def was_there(row: RunRow) -> bool:
            records = self._journal.records(row.run_id)
            begun = next((each for each in records if isinstance(each, Begun)), None)
            return begun is not None and begun.about.get("claim") == claim

        for row in await end_as_lost(self._journal, GONE, was_there):
            logger.warning(
                "%s the volume of its workspace was deleted; a new one is made, and after_create runs again",
                fields(issue_identifier=identifier, run_id=row.run_id),
            )

    async def _since(self, claim: Object) -> tuple[str, ...]:
        """The option that makes the next pod send its records again, if a log was not read to its end. The moment is
        noted on the claim before there is a log, so that it also holds if we are killed."""
        known = within(claim["metadata"], "annotations").get(UNREAD_NOTE)
        if known:
            return ("--since", known)
        note: Object = {"metadata": {"annotations": {UNREAD_NOTE: f"{time.time():.0f}"}}}
        await self._cluster.patch(CLAIM, claim["metadata"]["name"], self._namespace, note)
        return ()

    def _name(self, identifier: str) -> str:
        key = workspace_key(identifier)
        mark = hashlib.sha256(f"{self._id} {key}".encode()).hexdigest()[:10]
        word = _NOT_A_NAME.sub("-", key.lower()).strip("-")[:30].strip("-")
        return f"hookline-{word}-{mark}" if word else f"hookline-{mark}"


def _notes(issue: Issue) -> dict[str, str]:
    return {IDENTIFIER_NOTE: issue.identifier, ISSUE_NOTE: issue.id}
