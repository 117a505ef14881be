"""`hookline serve WORKFLOW.md --on kubernetes`: a volume for each workspace, and a Job for each attempt at its issue.

The service makes the Job, and reads what its pod prints. A Job is found again by its name: whoever comes after a
service that was killed reads the same log from its beginning, and the journal takes each record once. That a log has
not been read to its end stands on the volume's claim from before the Job is made; the next pod then sends again what
the journal on the volume has.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from hookline.engine.point import Status
from hookline.engine.record import Begun, Journal, Owner, Record
from hookline.engine.record import Ended as RunEnded
from hookline.errors import HooklineError
from hookline.journal.masking import Mask
from hookline.journal.stream import Received, Said, Unwritten
from hookline.kube.errors import AlreadyThere, ClusterError, Conflict, NotThere, Unreachable
from hookline.kube.job_run import Ending, end, forget, started, tended
from hookline.kube.jobs import CLAIM as MOUNT
from hookline.kube.jobs import GIVEN, Task, claim_of
from hookline.kube.kinds import CLAIM, JOB
from hookline.kube.pod_state import is_over
from hookline.symphony.agents import Tokens, Told
from hookline.symphony.attempt import Stop
from hookline.symphony.board.service import Ended, rules_of
from hookline.symphony.board.state import eligible
from hookline.symphony.hooks import fields
from hookline.symphony.issue import Issue, issue_text
from hookline.symphony.pod import ENDED, NEAR, TOLD
from hookline.symphony.read import Workflow
from hookline.symphony.trackers import Tracker, TrackerError
from hookline.symphony.workspace import workspace_key

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

__all__ = ["NEAR", "ClusterWorker", "Over", "Terms", "workflow_id"]

logger = logging.getLogger(__name__)

Object = dict[str, Any]

ATTEMPT, REMOVAL = "attempt", "removal"
COMPONENT_LABEL = "hookline.dev/component"
WORKFLOW_LABEL = "hookline.dev/workflow"
IDENTIFIER_NOTE = "hookline.dev/issue"
ISSUE_NOTE = "hookline.dev/issue-id"
UNREAD_NOTE = "hookline.dev/unread-since"
GONE = "lost: the volume of its workspace was deleted"
_LIFE = 10.0
"""Seconds between two signs of life of an attempt whose pod has not begun."""
_RECOVERY = 60.0
_PAUSE = 1.0
_MORE_GRACE = 30.0
_NOT_A_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the command line says of pods and volumes. `hooks` are further hook files, by name."""

    namespace: str
    image: str
    secrets: tuple[str, ...] = ()
    size: str = "1Gi"
    storage_class: str = ""
    open_as_root: bool = False
    hooks: tuple[tuple[str, str], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])


def workflow_id(workflow: Workflow) -> str:
    """By what its volumes and Jobs are known: the tracker as it is written, and the last part of `workspace.root`.

    Not the file's place, for a service may move to another machine."""
    tracker = workflow.tracker
    near = [workflow.folder] if tracker.kind in NEAR else []
    root = workflow.root.rstrip("/").rpartition("/")[2]
    known = json.dumps([tracker.kind, tracker.provider, root, near], sort_keys=True, default=str)
    return hashlib.sha256(known.encode()).hexdigest()[:16]


class _Reading:
    """What one Job sends, as it comes: records go to the journal, what the agent tells to whoever waits."""

    def __init__(self, journal: Journal, me: Owner, claim: str) -> None:
        self._journal, self._me, self._claim = journal, me, claim
        self._unwritten = Unwritten(journal)
        self._received = Received()
        self._last: deque[str] = deque(maxlen=3)
        self.tell: Callable[[Told], None] = lambda _: None
        self.began = False
        self.ended: Mapping[str, Any] | None = None

    @property
    def missing(self) -> int:
        return self._received.missing

    @property
    def last(self) -> str:
        """What was printed last that is not for us."""
        return " / ".join(self._last)

    def flush(self) -> None:
        """The Job with its log is forgotten next."""
        self._journal.flush()

    async def printed(self, line: str) -> None:
        self.began = True
        found, others = self._received.take(line)
        if others.strip():
            self._last.append(others.strip())
            logger.info("%s", others)
        if isinstance(found, Said):
            self._heed(found)
        elif found is not None:
            await self._write(found)

    def _heed(self, said: Said) -> None:
        if said.word == TOLD:
            self.tell(_told(said.value))
        elif said.word == ENDED:
            self.ended = said.value

    async def _write(self, record: Record) -> None:
        if isinstance(record, Begun) and record.parent_id is None:
            # Whether its process lives is for the one to say who tends it.
            held = self._me if record.owner is not None else None
            record = record._replace(about={**record.about, "claim": self._claim}, owner=held)
        if not await self._unwritten.write(record) and isinstance(record, Begun):
            self._take_over(record)

    def _take_over(self, record: Begun) -> None:
        """A service that is gone had begun to read this run."""
        row = next((each for each in self._journal.unfinished() if each.run_id == record.run_id), None)
        if row is not None and row.owner is not None and record.owner is not None and row.owner != self._me:
            self._journal.claim(row.run_id, row.owner, self._me)


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """How a Job ended: what the cluster says of its pod, and what its program `said` of itself, if it came to that.

    `last` is what was printed last; `stopped` says that we asked it to end."""

    ending: Ending
    said: Mapping[str, Any] | None = None
    last: str = ""
    stopped: bool = False

    @property
    def is_well(self) -> bool:
        return self.said is not None and self.said.get("outcome") == "ok"

    @property
    def is_unsaid(self) -> bool:
        """Whether it began, and nobody knows how far it came."""
        return self.said is None and self.ending.began

    def outcome(self, claim: str) -> Ended:
        """The same for the service; `claim` is that of the workspace's volume."""
        if self.said is None:
            return Ended(outcome="failed", error=self._words())
        outcome, error = str(self.said.get("outcome")), self.said.get("error")
        if outcome == "cancelled" and not self.stopped:
            error = self.ending.why or "its pod was asked to end, and not by us"
        if self.said.get("full"):
            full = f"the workspace's volume is full (claim {claim}); free some space or make it larger"
            error = f"{error}; {full}" if error else full
        return Ended(outcome=outcome, error=error)

    def _words(self) -> str:
        ending = self.ending
        if not ending.began:
            return f"its pod never began: {ending.why}"
        if ending.exit_code is None:
            return ending.why
        last = f": {self.last}" if self.last else ""
        return f"its program ended with {ending.exit_code} and did not say how{last}"


class _Job:
    """One Job from its making, or from where a service before us left it, to its end."""

    def __init__(
        self, cluster: Cluster, make: Callable[[], Awaitable[Object]], reading: _Reading, about: str
    ) -> None:
        self._cluster, self._make, self.about = cluster, make, about
        self.reading = reading
        self._job: Object | None = None
        self._ending = asyncio.Event()
        self._asked = 0
        self._ends: set[asyncio.Task[None]] = set()
        self.task = asyncio.ensure_future(self._over())

    def stop(self) -> None:
        """The first time its end hooks run; the next time its pod is ended as it is."""
        self._asked += 1
        self._ending.set()
        if self._job is not None:
            self._end(self._job)

    async def _over(self) -> Over:
        self._job = job = await self._make()
        if self._asked:
            self._end(job)
        reading = self.reading
        try:
            ending = await tended(
                self._cluster, job, printed=reading.printed, waits=self._waits, ending=self._ending
            )
        finally:
            reading.flush()
            for each in self._ends:
                each.cancel()
        # Its ending is the last that it says, and all is numbered.
        whole = reading.ended is not None and not reading.missing
        if not whole and ending.began:
            logger.warning(
                "%s the log of its pod is not whole; what is missing comes with the next pod", self.about
            )
        await _patiently(lambda: self._put_away(job, whole=whole))
        return Over(ending=ending, said=reading.ended, last=reading.last, stopped=bool(self._asked))

    async def _put_away(self, job: Object, *, whole: bool) -> None:
        """All of it is in the journal, or will be sent once more."""
        if whole:
            metadata, spec = job["metadata"], job["spec"]["template"]["spec"]
            claim = next(
                each["persistentVolumeClaim"]["claimName"]
                for each in spec["volumes"]
                if each["name"] == "claim"
            )
            read: Object = {"metadata": {"annotations": {UNREAD_NOTE: None}}}
            with suppress(NotThere):
                await self._cluster.patch(CLAIM, claim, metadata["namespace"], read)
        await forget(self._cluster, job)

    def _end(self, job: Object) -> None:
        at_once = self._asked > 1
        self._ends.add(asyncio.ensure_future(self._ended(job, at_once=at_once)))

    async def _ended(self, job: Object, *, at_once: bool) -> None:
        try:
            await _patiently(lambda: end(self._cluster, job, at_once=at_once))
        except ClusterError as exc:
            logger.warning("%s it cannot be ended, and goes on: %s", self.about, exc)

    def _waits(self, why: str) -> None:
        logger.warning("%s its pod does not start: %s", self.about, why)
        self.reading.tell(Told(kind="other_message", text=f"its pod does not start: {why}"))


class ClusterWorker:
    """Does the work of a service in pods. `text` gives the WORKFLOW.md of this moment."""

    def __init__(
        self,
        cluster: Cluster,
        terms: Terms,
        workflow: Workflow,
        *,
        text: Callable[[], str],
        journal: Journal,
        me: Owner,
        mask: Mask | None = None,
    ) -> None:
        self._cluster, self._terms, self._text = cluster, terms, text
        self._journal, self._me, self._mask = journal, me, mask or Mask()
        self.id = workflow_id(workflow)
        self._labels = {WORKFLOW_LABEL: self.id}
        self._locks: dict[str, asyncio.Lock] = {}
        self._left: dict[tuple[str, str], _Job] = {}
        """What a service before us left at work, until one of our own attempts or removals waits for it."""
        self._at_work: set[_Job] = set()
        self._removals: set[asyncio.Task[None]] = set()
        self._leaving = False

    async def attempt(
        self,
        workflow: Workflow,
        tracker: Tracker,
        issue: Issue,
        number: int | None,
        tell: Callable[[Told], None],
        halt: Stop,
    ) -> Ended:
        text = self._text()
        try:
            key = workspace_key(issue.identifier)
            async with self._lock(key):
                job = self._left.pop((key, ATTEMPT), None)
                if job is None:
                    await self._removed_before(key)
                    await self._place(workflow, tell)
                    job = self._job(issue.identifier, lambda: self._begun(workflow, issue, number, text))
                over = await self._waited(job, tell)
        except HooklineError as exc:
            return Ended(outcome="failed", error=self._mask.text(str(exc), 2000))
        ended = over.outcome(self._name(issue.identifier))
        return replace(ended, error=ended.error and self._mask.text(ended.error, 2000))

    async def remove(self, workflow: Workflow, issue: Issue) -> None:
        text = self._text()
        key = workspace_key(issue.identifier)
        async with self._lock(key):
            await self._ended_before(key)
            job = self._left.pop((key, REMOVAL), None)
            if job is None:
                if (
                    await self._cluster.get(CLAIM, self._name(issue.identifier), self._terms.namespace)
                    is None
                ):
                    return
                job = self._job(issue.identifier, lambda: self._removing(workflow, issue, text))
            await self._removed(job, issue.identifier)

    async def workspaces(self) -> frozenset[str]:
        try:
            found, _ = await self._cluster.list(CLAIM, self._terms.namespace, self._labels)
        except Unreachable as exc:
            logger.warning("old workspaces were not looked for: %s", exc)
            return frozenset()
        kept = [each["metadata"] for each in found if not each["metadata"].get("deletionTimestamp")]
        return frozenset(_notes(each)[IDENTIFIER_NOTE] for each in kept if IDENTIFIER_NOTE in _notes(each))

    def path(self, identifier: str) -> str:
        return f"{self._terms.namespace}/{self._name(identifier)}:{MOUNT}/{workspace_key(identifier)}"

    async def recovered(self, workflow: Workflow, tracker: Tracker) -> None:
        """Take up what a service before us left: what is over is read; what is at work and not wanted any more is
        ended, with its hooks."""
        jobs, _ = await self._cluster.list(JOB, self._terms.namespace, self._labels)
        over: list[asyncio.Task[Any]] = []
        ids: dict[str, _Job] = {}
        for each in jobs:
            made, removal = self._taken_up(each)
            if is_over(each):
                over.append(removal or made.task)
            elif removal is None:
                ids[_notes(each["metadata"]).get(ISSUE_NOTE, "")] = made
        if over:
            # Whatever takes longer is read on while the service works.
            await asyncio.wait(over, timeout=_RECOVERY)
        await self._unwanted_ended(workflow, tracker, ids)

    async def close(self) -> None:
        """End what nobody waits for, as the service ends its attempts."""
        for job in self._left.values() if not self._leaving else ():
            job.stop()
        left = [job.task for job in self._left.values()]
        for task in left if self._leaving else ():
            task.cancel()
        # A removal goes on by itself, and the next service finds it.
        for task in self._removals:
            task.cancel()
        await asyncio.gather(*left, *self._removals, return_exceptions=True)

    def leave(self) -> None:
        """From now on nothing is ended: another service has what is at work here, or will."""
        self._leaving = True

    def _taken_up(self, found: Object) -> tuple[_Job, asyncio.Task[None] | None]:
        head = found["metadata"]
        identifier, what = _notes(head).get(IDENTIFIER_NOTE, ""), head["labels"].get(COMPONENT_LABEL)

        async def as_it_is() -> Object:
            return found

        job = self._job(identifier, as_it_is)
        logger.info("%s goes on, from a service before", fields(issue_identifier=identifier, what=what))
        at = (workspace_key(identifier), str(what))
        self._left[at] = job
        job.task.add_done_callback(lambda task: self._left_over(at, job, task))
        if what != REMOVAL:
            return job, None
        task = asyncio.ensure_future(self._finished(job, identifier))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)
        return job, task

    def _left_over(self, at: tuple[str, str], job: _Job, task: asyncio.Task[Over]) -> None:
        if self._left.get(at) is job:
            del self._left[at]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("%s could not be read to its end: %s", fields(issue_identifier=at[0]), error)

    async def _finished(self, job: _Job, identifier: str) -> None:
        """The removal of a service before us, also where nobody asks for it again."""
        try:
            await self._removed(job, identifier)
        except HooklineError as exc:
            logger.warning("%s a workspace was not removed: %s", fields(issue_identifier=identifier), exc)

    async def _unwanted_ended(self, workflow: Workflow, tracker: Tracker, ids: Mapping[str, _Job]) -> None:
        if not ids:
            return
        try:
            found = {each.id: each for each in await tracker.by_ids(list(ids))}
        except TrackerError as exc:
            logger.warning("%s it is not known which issues are still wanted: %s", fields(kind=exc.kind), exc)
            return
        rules = rules_of(workflow)
        for id, job in ids.items():
            if id not in found or not eligible(found[id], rules):
                logger.info(
                    "%s an attempt of a service before is ended: not wanted any more", fields(issue_id=id)
                )
                job.stop()

    async def _place(self, workflow: Workflow, tell: Callable[[Told], None]) -> None:
        """Wait while attempts that a service before us left take the places."""
        while left := [job.task for (_, what), job in self._left.items() if what == ATTEMPT]:
            if len(left) + len(self._at_work) < workflow.agent.max_concurrent_agents:
                return
            tell(Told(kind="other_message", text="waits for an attempt that an earlier service began"))
            await asyncio.wait(left, timeout=_LIFE, return_when=asyncio.FIRST_COMPLETED)

    async def _ended_before(self, key: str) -> None:
        job = self._left.pop((key, ATTEMPT), None)
        if job is not None:
            job.stop()
            await asyncio.wait({job.task})

    async def _removed_before(self, key: str) -> None:
        job = self._left.get((key, REMOVAL))
        if job is not None:
            await asyncio.wait({job.task})

    async def _waited(self, job: _Job, tell: Callable[[Told], None]) -> Over:
        job.reading.tell = tell
        self._at_work.add(job)
        cancelled: asyncio.CancelledError | None = None
        try:
            while not job.task.done():
                try:
                    await asyncio.wait({job.task}, timeout=_LIFE)
                except asyncio.CancelledError as exc:
                    cancelled = exc
                    job.task.cancel() if self._leaving else job.stop()
                if not job.reading.began:
                    # Nothing is heard of an agent that has no pod yet; that is no stall.
                    tell(Told(kind="other_message"))
        finally:
            self._at_work.discard(job)
        if cancelled is None:
            return job.task.result()
        if not job.task.cancelled() and job.task.exception() is None and job.task.result().is_unsaid:
            logger.warning("%s it was ended, and did not say how its end hooks went", job.about)
        raise cancelled

    async def _removed(self, job: _Job, identifier: str) -> None:
        try:
            over = await job.task
        except asyncio.CancelledError:
            job.task.cancel()
            raise
        name = self._name(identifier)
        if not over.is_well:
            raise HooklineError(f"{over.outcome(name).error or 'its pod was ended'}; the claim {name} stays")
        await self._cluster.delete(CLAIM, name, self._terms.namespace)

    def _job(self, identifier: str, make: Callable[[], Awaitable[Object]]) -> _Job:
        claim = f"{self._terms.namespace}/{self._name(identifier)}"
        reading = _Reading(self._journal, self._me, claim)
        return _Job(self._cluster, make, reading, fields(issue_identifier=identifier))

    async def _begun(self, workflow: Workflow, issue: Issue, number: int | None, text: str) -> Object:
        claim = await self._claimed(issue)
        words = ("--number", str(number or 0), "--mark", secrets.token_hex(8), *await self._since(claim))
        job, _ = await started(self._cluster, self._task(ATTEMPT, workflow, issue, text, words))
        return job

    async def _removing(self, workflow: Workflow, issue: Issue, text: str) -> Object:
        claim = await self._claimed(issue)
        words = ("--remove", *await self._since(claim))
        job, _ = await started(self._cluster, self._task(REMOVAL, workflow, issue, text, words))
        return job

    def _task(self, what: str, workflow: Workflow, issue: Issue, text: str, words: tuple[str, ...]) -> Task:
        terms, name = self._terms, self._name(issue.identifier)
        hooks = {f"hooks-{number}/{file}": said for number, (file, said) in enumerate(terms.hooks)}
        more = [word for file in hooks for word in ("--hooks", f"{GIVEN}/{file}")]
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
            namespace=terms.namespace,
            image=terms.image,
            args=("attempt", *given, "--root", MOUNT, *more, *words),
            component=what,
            labels=self._labels,
            notes={IDENTIFIER_NOTE: issue.identifier, ISSUE_NOTE: issue.id},
            env=terms.env,
            files={"WORKFLOW.md": text, "issue.json": issue_text(issue), **hooks},
            secrets=terms.secrets,
            claim=name,
            grace=workflow.hooks.timeout + _MORE_GRACE,
            mark=secrets.token_hex(4),
            open_claim_as_root=terms.open_as_root,
        )

    async def _claimed(self, issue: Issue) -> Object:
        """The claim of the issue's volume: the one that is there, else a new one."""
        terms, name = self._terms, self._name(issue.identifier)
        wanted = claim_of(
            name,
            terms.namespace,
            size=terms.size,
            storage_class=terms.storage_class,
            labels=self._labels,
            notes={IDENTIFIER_NOTE: issue.identifier, ISSUE_NOTE: issue.id},
        )
        while True:
            try:
                made = await self._cluster.create(wanted)
            except AlreadyThere:
                found = await self._cluster.get(CLAIM, name, terms.namespace)
            else:
                await self._told_gone(issue.identifier, f"{terms.namespace}/{name}")
                return made
            if found is not None and not found["metadata"].get("deletionTimestamp"):
                return found
            await asyncio.sleep(_PAUSE)

    async def _told_gone(self, identifier: str, claim: str) -> None:
        """What was open on a volume that somebody deleted will not be ended by anybody."""
        for row in self._journal.unfinished():
            begun = next(
                (each for each in self._journal.records(row.run_id) if isinstance(each, Begun)), None
            )
            if begun is None or begun.about.get("claim") != claim:
                continue
            logger.warning(
                "%s the volume of its workspace was deleted; a new one is made, and after_create runs again",
                fields(issue_identifier=identifier, run_id=row.run_id),
            )
            await self._journal.write(
                RunEnded(row.run_id, begun.scope_id, begun.scope, time.time(), Status.LOST, None, GONE)
            )

    async def _since(self, claim: Object) -> tuple[str, ...]:
        """From when on the next pod sends records again, where a log was not read to its end; noted before there is
        a log, so that it holds also if we are killed."""
        known = _notes(claim["metadata"]).get(UNREAD_NOTE)
        if known:
            return ("--since", known)
        note: Object = {"metadata": {"annotations": {UNREAD_NOTE: f"{time.time():.0f}"}}}
        await self._cluster.patch(CLAIM, claim["metadata"]["name"], self._terms.namespace, note)
        return ()

    def _name(self, identifier: str) -> str:
        key = workspace_key(identifier)
        mark = hashlib.sha256(f"{self.id} {key}".encode()).hexdigest()[:10]
        word = _NOT_A_NAME.sub("-", key.lower()).strip("-")[:30].strip("-")
        return f"hookline-{word}-{mark}" if word else f"hookline-{mark}"

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())


async def _patiently(work: Callable[[], Awaitable[None]]) -> None:
    """Until the cluster has answered; what it refuses is not asked again."""
    while True:
        try:
            await work()
            return
        except ClusterError as exc:
            if not isinstance(exc, Conflict | Unreachable):
                raise
            logger.warning("the cluster does not answer, and is asked again: %s", exc)
        await asyncio.sleep(_PAUSE)


def _notes(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    return cast("Mapping[str, str]", metadata.get("annotations") or {})


def _told(value: Mapping[str, Any]) -> Told:
    tokens = value.get("tokens")
    return Told(
        kind=str(value.get("kind")),
        text=str(value.get("text") or ""),
        tokens=Tokens(**tokens) if tokens else None,
        rate_limits=value.get("rate_limits"),
        session_id=value.get("session_id"),
    )
