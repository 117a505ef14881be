"""One Job of a workflow on a cluster, an attempt or a removal, from its making to its end, and the stream of its pod.

Before the Job is made, its volume's claim gets a note that the log is unread, which goes when it has been read to its
end. If the note is still there, the next pod sends the records of the journal on the volume again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline.engine.record import Begun, Journal, Owner, Record
from hookline.journal.stream import Intake, OnceJournal
from hookline.kube.jobs import JobEnd, JobFollower, end
from hookline.kube.objects import CLAIM, ClusterError, Conflict, NotThere, Unreachable
from hookline.symphony.agents import AgentEvent, Tokens
from hookline.symphony.attempt import AttemptEnd
from hookline.symphony.pod import ENDED, TOLD

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

logger = logging.getLogger("hookline.symphony.cluster")

Object = dict[str, Any]

UNREAD_NOTE = "hookline.dev/unread-since"
_PAUSE = 1.0


class AttemptStream:
    """The stream of one Job's pod: records go to the journal, events of the agent to `tell`."""

    def __init__(self, journal: Journal, me: Owner, claim: str) -> None:
        self._journal, self._me, self._claim = journal, me, claim
        self._once = OnceJournal(journal)
        self._intake = Intake(self._write, self._own)
        self._last: deque[str] = deque(maxlen=3)
        self.tell: Callable[[AgentEvent], None] = lambda _: None
        self.began = False
        self.ended: Mapping[str, Any] | None = None

    @property
    def missing(self) -> int:
        return self._intake.missing

    @property
    def last(self) -> str:
        """The last lines that others printed."""
        return " / ".join(self._last)

    def flush(self) -> None:
        """Write the journal to disk, before the Job is removed with its log."""
        self._journal.flush()

    async def printed(self, line: str) -> None:
        self.began = True
        message, others = await self._intake.take(line)
        if others.strip():
            self._last.append(others.strip())
            logger.info("%s", others)
        if message is not None and message.word == TOLD:
            self.tell(_event_of(message.value))
        elif message is not None and message.word == ENDED:
            self.ended = message.value

    def _own(self, record: Record) -> Record:
        """The record with this process as the owner of its run, which is as alive as the reader of its log."""
        if isinstance(record, Begun) and record.parent_id is None:
            held = self._me if record.owner is not None else None
            return record._replace(about={**record.about, "claim": self._claim}, owner=held)
        return record

    async def _write(self, record: Record, _size: int) -> bool:
        new = await self._once.write(record)
        if not new and isinstance(record, Begun):
            self._take_over(record)
        return new

    def _take_over(self, record: Begun) -> None:
        """Claim a run that a service before us, which is gone, had begun to read."""
        row = next((each for each in self._journal.unfinished() if each.run_id == record.run_id), None)
        if row is not None and row.owner is not None and record.owner is not None and row.owner != self._me:
            self._journal.claim(row.run_id, row.owner, self._me)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptJobEnd:
    """The end of a Job: as the cluster has it, and as its program `said`, if it came to that.

    `last` are the last lines it printed; `stopped` is True if we ended it."""

    ending: JobEnd
    said: Mapping[str, Any] | None = None
    last: str = ""
    stopped: bool = False

    @property
    def is_well(self) -> bool:
        return self.said is not None and self.said.get("outcome") == "ok"

    @property
    def is_unsaid(self) -> bool:
        """True if it began and did not report its end."""
        return self.said is None and self.ending.began

    def outcome(self, claim: str) -> AttemptEnd:
        """The end for the service; `claim` is that of the workspace's volume."""
        if self.said is None:
            return AttemptEnd(outcome="failed", error=self._words())
        outcome, error = str(self.said.get("outcome")), self.said.get("error")
        if outcome == "cancelled" and not self.stopped:
            error = self.ending.why or "its pod was terminated, and not by this service"
        if self.said.get("full"):
            full = f"the workspace's volume is full (claim {claim}); free some space or make it larger"
            error = f"{error}; {full}" if error else full
        return AttemptEnd(outcome=outcome, error=error)

    def _words(self) -> str:
        ending = self.ending
        if not ending.began:
            return f"its pod never began: {ending.why}"
        if ending.exit_code is None:
            return ending.why
        last = f": {self.last}" if self.last else ""
        return f"its program ended with {ending.exit_code} and did not say how{last}"


class AttemptJob:
    """One Job from its making, or from where a service before us left it, to its end."""

    def __init__(
        self, cluster: Cluster, make: Callable[[], Awaitable[Object]], stream: AttemptStream, about: str
    ) -> None:
        self._cluster, self._make, self.about = cluster, make, about
        self.stream = stream
        self._job: Object | None = None
        self._ending = asyncio.Event()
        self._asked = 0
        self._ends: set[asyncio.Task[None]] = set()
        self.task = asyncio.ensure_future(self._over())

    def stop(self) -> None:
        """End the Job: the first time with its end hooks, the second time without."""
        self._asked += 1
        self._ending.set()
        if self._job is not None:
            self._end(self._job)

    async def _over(self) -> AttemptJobEnd:
        self._job = job = await self._make()
        if self._asked:
            self._end(job)
        stream = self.stream
        try:
            follower = JobFollower(
                self._cluster, job, printed=stream.printed, waits=self._waits, ending=self._ending
            )
            ending = await follower.ended()
        finally:
            stream.flush()
            for each in self._ends:
                each.cancel()
        # Its ending is the last that it says, and all is numbered.
        whole = stream.ended is not None and not stream.missing
        if not whole and ending.began:
            logger.warning(
                "%s the log of its pod is incomplete; the next pod sends the missing records", self.about
            )
        await patiently(lambda: self._put_away(job, whole=whole))
        return AttemptJobEnd(ending=ending, said=stream.ended, last=stream.last, stopped=bool(self._asked))

    async def _put_away(self, job: Object, *, whole: bool) -> None:
        """Remove the Job: its log is in the journal, or the next pod sends it again."""
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
        await end(self._cluster, job)

    def _end(self, job: Object) -> None:
        at_once = self._asked > 1
        self._ends.add(asyncio.ensure_future(self._ended(job, at_once=at_once)))

    async def _ended(self, job: Object, *, at_once: bool) -> None:
        try:
            await patiently(lambda: end(self._cluster, job, at_once=at_once))
        except ClusterError as exc:
            logger.warning("%s the Job cannot be stopped, and goes on: %s", self.about, exc)

    def _waits(self, why: str) -> None:
        logger.warning("%s its pod does not start: %s", self.about, why)
        self.stream.tell(AgentEvent(kind="other_message", text=f"its pod does not start: {why}"))


async def patiently(work: Callable[[], Awaitable[None]]) -> None:
    """Retry until the cluster answers; a refusal is raised."""
    while True:
        try:
            await work()
            return
        except ClusterError as exc:
            if not isinstance(exc, Conflict | Unreachable):
                raise
            logger.warning("the cluster does not answer; retrying: %s", exc)
        await asyncio.sleep(_PAUSE)


def _event_of(value: Mapping[str, Any]) -> AgentEvent:
    tokens = value.get("tokens")
    return AgentEvent(
        kind=str(value.get("kind")),
        text=str(value.get("text") or ""),
        tokens=Tokens(**tokens) if tokens else None,
        rate_limits=value.get("rate_limits"),
        session_id=value.get("session_id"),
    )
