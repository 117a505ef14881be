"""One Job of a service, an attempt or a removal: followed to its end, and the stream of its pod taken into the journal."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hookline.engine.plain import typed
from hookline.engine.record import Begun, Journal, Record
from hookline.errors import HooklineError
from hookline.journal.recovery import owner
from hookline.journal.stream import Intake, OnceJournal
from hookline.kube.jobs import JobEnd, JobFollower, end
from hookline.kube.objects import CLAIM, ClusterError, Conflict, NotThere, Object, Unreachable
from hookline.symphony.agents import AgentEvent
from hookline.symphony.attempt import AttemptEnd
from hookline.symphony.pod import ENDED, TOLD

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

logger = logging.getLogger(__name__)

ATTEMPT, REMOVAL = "attempt", "removal"
UNREAD_NOTE = "hookline.dev/unread-since"
PAUSE = 1.0
"""Seconds before something on the cluster is tried again."""


class AttemptJob:
    """One Job, an attempt or a removal, from its making, or from where a service before us left it, to its end.

    `claim` is that of the workspace's volume, which goes with the workspace. `unreported` is True if the program began
    and did not report its end."""

    def __init__(
        self,
        cluster: Cluster,
        what: str,
        make: Callable[[], Awaitable[Object]],
        stream: AttemptStream,
        claim: str,
        about: str,
    ) -> None:
        self._cluster, self._make, self._claim = cluster, make, claim
        self.what, self.stream, self.about = what, stream, about
        self.unreported = False
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

    async def _over(self) -> AttemptEnd:
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
        whole = stream.ended is not None and not stream.intake.missing
        if not whole and ending.began:
            logger.warning(
                "%s the log of its pod is incomplete; the next pod sends the missing records", self.about
            )
        await patiently(lambda: self._put_away(job, whole=whole))
        self.unreported = stream.ended is None and ending.began
        ended = attempt_end(ending, self._claim, stream.ended, last=stream.last, stopped=bool(self._asked))
        if self.what == REMOVAL:
            if ended.outcome != "ok":
                why = ended.error or "its pod was ended"
                raise HooklineError(f"{why}; the claim {self._claim} stays")
            await self._cluster.delete(CLAIM, self._claim, job["metadata"]["namespace"])
        return ended

    async def _put_away(self, job: Object, *, whole: bool) -> None:
        """Remove the Job: its log is in the journal, or the next pod sends it again."""
        if whole:
            read: Object = {"metadata": {"annotations": {UNREAD_NOTE: None}}}
            with suppress(NotThere):
                await self._cluster.patch(CLAIM, self._claim, job["metadata"]["namespace"], read)
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


def attempt_end(
    ending: JobEnd,
    claim: str,
    said: Mapping[str, Any] | None = None,
    *,
    last: str = "",
    stopped: bool = False,
) -> AttemptEnd:
    """The end for the service of a Job that ended so on the cluster, and as its program `said`, if it came to that.

    `claim` is that of the workspace's volume, `last` are the last lines it printed; `stopped` is True if we ended it.
    """
    if said is not None:
        outcome, error = str(said.get("outcome")), said.get("error")
        if outcome == "cancelled" and not stopped:
            error = ending.why or "its pod was terminated, and not by this service"
        if said.get("full"):
            full = f"the workspace's volume is full (claim {claim}); free some space or make it larger"
            error = f"{error}; {full}" if error else full
        return AttemptEnd(outcome=outcome, error=error)
    if not ending.began:
        error = f"its pod never began: {ending.why}"
    elif ending.exit_code is None:
        error = ending.why
    else:
        error = f"its program ended with {ending.exit_code} and did not say how{f': {last}' if last else ''}"
    return AttemptEnd(outcome="failed", error=error)


class AttemptStream:
    """The stream of one Job's pod: records go to the journal, events of the agent to `tell`."""

    def __init__(self, journal: Journal, claim: str) -> None:
        self._journal, self._me, self._claim = journal, owner(), claim
        self._once = OnceJournal(journal)
        self.intake = Intake(self._write, self._own)
        self._last: deque[str] = deque(maxlen=3)
        self.tell: Callable[[AgentEvent], None] = lambda _: None
        self.began = False
        self.ended: Mapping[str, Any] | None = None

    @property
    def last(self) -> str:
        """The last lines that others printed."""
        return " / ".join(self._last)

    def flush(self) -> None:
        """Write the journal to disk, before the Job is removed with its log."""
        self._journal.flush()

    async def printed(self, line: str) -> None:
        self.began = True
        message, others = await self.intake.take(line)
        if others.strip():
            self._last.append(others.strip())
            logger.info("%s", others)
        if message is not None and message.word == TOLD:
            self.tell(typed(AgentEvent, message.value))
        elif message is not None and message.word == ENDED:
            self.ended = message.value

    def _own(self, record: Record) -> Record:
        """The record with this process as the owner of its run, which is as alive as the reader of its log."""
        if isinstance(record, Begun) and record.parent_id is None:
            held = self._me if record.owner is not None else None
            return record._replace(about={**record.about, "claim": self._claim}, owner=held)
        return record

    async def _write(self, record: Record) -> bool:
        new = await self._once.write(record)
        if not new and isinstance(record, Begun):
            self._take_over(record)
        return new

    def _take_over(self, record: Begun) -> None:
        """Claim a run that a service before us, which is gone, had begun to read."""
        row = next((each for each in self._journal.unfinished() if each.run_id == record.run_id), None)
        if row is not None and row.owner is not None and record.owner is not None and row.owner != self._me:
            self._journal.claim(row.run_id, row.owner, self._me)


async def patiently(work: Callable[[], Awaitable[None]]) -> None:
    """Retry until the cluster answers; a refusal is raised."""
    while True:
        try:
            await work()
            return
        except (Conflict, Unreachable) as exc:
            logger.warning("the cluster does not answer; retrying: %s", exc)
        await asyncio.sleep(PAUSE)
