"""The records that the pods of kagent's Agents print of their runs, taken into the operator's journal.

A pod prints its records to its log, among other output. It runs the tools of its users, so only records of runs that
it began itself are accepted. A log is read from its beginning again after every break, also by the next operator, and
no record is kept twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple, cast

from hookline.engine.point import Scope
from hookline.engine.record import THERE, Begun, Journal, Record, RunRow
from hookline.errors import JournalError
from hookline.journal.recovery import end_as_lost
from hookline.journal.sqlite import KEEP_BYTES_OPERATOR, KEEP_DAYS
from hookline.journal.stream import SERVING, Intake, OnceJournal, is_moment, is_sound
from hookline.kagent.objects import CONTAINER
from hookline.kube.client import Cluster
from hookline.kube.logs import LogReader
from hookline.kube.objects import ClusterError, Fields, mapping, within
from hookline.kube.pod_state import container_state, evicted, has_ended, status_of
from hookline.tasks import set_within

logger = logging.getLogger("hookline.kube")

# Limits for one pod, since all pods share the journal, which drops its oldest runs.
MOST_RECORDS = 20_000
MOST_BYTES = 32 * 2**20
_HOUR = 3600.0
_PRUNED_AFTER = 8 * 2**20
_RUNS = 32
"""Runs of one pod whose records are known without reading the journal."""
_LAST_TRIES = 5
# The ids that our processes make; those of AgentRuns differ.
_RUN_ID = re.compile(r"[0-9a-z]{6,8}-[0-9a-f]{6}")
_SOURCE = re.compile(re.escape(THERE) + r"([^/# ]+)/([^/# ]+)#(\S+)")


class Pace(NamedTuple):
    """Seconds before a log is read again, doubled up to `longest` while nothing new comes; `last` is the limit for the
    rest of the log of a pod that is gone."""

    pause: float = 1.0
    longest: float = 30.0
    last: float = 20.0


def source_of(pod: Fields) -> str:
    """The source of a pod's runs in the journal."""
    head = within(pod, "metadata")
    return f"{THERE}{head.get('namespace')}/{head.get('name')}#{head.get('uid')}"


@dataclass(eq=False)
class Listener:
    """Follows the log of each pod over one connection, until the pod is gone or this is cancelled."""

    cluster: Cluster
    journal: Journal
    pods: Callable[[], Iterable[Fields]]
    _: KW_ONLY
    pace: Pace = Pace()

    def __post_init__(self) -> None:
        self._followed: dict[str, _PodFollower] = {}
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Call this when a pod has changed."""
        self._changed.set()

    def follows(self, pod: Fields) -> bool:
        return str(within(pod, "metadata").get("uid")) in self._followed

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_until_written(self._lose_others, self.pace, "runs of pods that are gone"))
            while True:
                self._changed.clear()
                self._look(group)
                await self._changed.wait()

    def _look(self, group: asyncio.TaskGroup) -> None:
        there = {str(within(pod, "metadata").get("uid")): pod for pod in self.pods()}
        for uid, pod in there.items():
            if uid in self._followed:
                self._followed[uid].see(pod)
            elif _container(pod)[0] or has_ended(pod):
                found = self._followed[uid] = _PodFollower(self.cluster, self.journal, pod, self.pace)
                group.create_task(found.run())
        for uid in self._followed.keys() - there.keys():
            self._followed.pop(uid).leave()

    async def _lose_others(self) -> None:
        """Ends the runs of pods that were deleted while no operator ran."""
        there = {source_of(pod) for pod in self.pods()}

        def is_gone(row: RunRow) -> bool:
            source = row.source or ""
            return bool(_SOURCE.fullmatch(source)) and source not in there

        await end_as_lost(self.journal, "lost: its pod was gone when the operator restarted", is_gone)


async def _until_written(write: Callable[[], Awaitable[None]], pace: Pace, what: str) -> None:
    """Retries until the journal has stored it."""
    told = False
    while True:
        try:
            await write()
            return
        except JournalError as exc:
            if not told:
                logger.warning("%s: not ended in the journal; retrying: %s", what, exc)
            told = True
        await asyncio.sleep(pace.longest)


class _PodFollower:
    """Follows the log of one pod."""

    def __init__(self, cluster: Cluster, journal: Journal, pod: Fields, pace: Pace) -> None:
        self._pace = pace
        self._pod = pod
        self._records = PodRecords(journal, pod)
        head = within(pod, "metadata")
        namespace, name = str(head.get("namespace")), str(head.get("name"))
        self._name = f"{namespace}/{name}"
        records = self._records
        self._log = LogReader(cluster, name, namespace, CONTAINER, records.take, records.intake.again)
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._reading: asyncio.Timeout | None = None
        # The id of the ended container whose log was read to its end.
        self._through = ""
        self._tries = 0
        self._out = False

    def see(self, pod: Fields) -> None:
        self._pod = pod
        self._changed.set()

    def leave(self) -> None:
        """The pod is gone: the rest of its log is read within the limit."""
        self._gone.set()
        self._changed.set()
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time() + self._pace.last)

    async def run(self) -> None:
        try:
            await self._follow()
            why = _why(self._pod, gone=self._gone.is_set())
            await _until_written(lambda: self._records.lost(why), self._pace, f"pod {self._name}")
        finally:
            self._records.close()

    async def _follow(self) -> None:
        pause = self._pace.pause
        while not self._is_over():
            self._changed.clear()
            if not self._has_more():
                await self._changed.wait()
                continue
            useful = await self._read()
            pause = self._pace.pause if useful else min(pause * 2, self._pace.longest)
            await set_within(self._gone, self._pace.pause)
            await set_within(self._changed, pause - self._pace.pause)

    def _is_over(self) -> bool:
        return self._gone.is_set() or (has_ended(self._pod) and not self._has_more())

    def _has_more(self) -> bool:
        id, running = _container(self._pod)
        return bool(id) and (running or id != self._through)

    async def _read(self) -> bool:
        """Read over one connection; True if it brought records or lasted long."""
        clock = asyncio.get_running_loop().time
        id, running = _container(self._pod)
        taken, began = self._records.intake.taken, clock()
        try:
            async with asyncio.timeout(None) as self._reading:
                await self._log.read_once()
        except TimeoutError:
            logger.warning("pod %s: the end of its log could not be read", self._name)
        except Exception as exc:
            # The outermost loop: the failure of one pod must not affect the others.
            self._records.forget()
            self._log_outage(exc)
            self._tries += not running
        else:
            # A container that ran when we began may have printed more after the connection ended.
            self._tries = 0 if running else _LAST_TRIES
        finally:
            self._reading = None
        if self._tries >= _LAST_TRIES:
            self._through, self._tries = id, 0
        return self._records.intake.taken > taken or clock() - began > self._pace.longest

    def _log_outage(self, why: Exception) -> None:
        """Log a failure once per outage. A connection that brought lines and then ended is none: pods may be quiet."""
        if isinstance(why, ClusterError) and self._log.line_number:
            self._out = False
            logger.debug("pod %s: its log is read again: %s", self._name, why)
        elif not self._out and not self._gone.is_set():
            self._out = True
            known = isinstance(why, ClusterError | JournalError)
            logger.warning(
                "pod %s: its records are not stored; retrying: %s",
                self._name,
                why,
                exc_info=None if known else why,
            )


class PodRecords:
    """Takes the records of one pod line by line: at most `MOST_RECORDS` of a run and `MOST_BYTES` in an hour."""

    def __init__(self, journal: Journal, pod: Fields) -> None:
        head = within(pod, "metadata")
        self._journal = journal
        self._once = OnceJournal(journal)
        self.intake = Intake(self._once.write, self._admit, trusted=False)
        self._source = source_of(pod)
        self._name = f"{head.get('namespace')}/{head.get('name')}"
        self._runs: OrderedDict[str, bool] = OrderedDict()
        """True for a run that is the pod's."""
        self._since, self._size, self._grown = time.monotonic(), 0, 0
        self._warned = False

    async def take(self, line: str) -> None:
        missing, taken = self.intake.missing, self.intake.taken
        message, _ = await self.intake.take(line)
        if self.intake.taken > taken:
            self._grow(len(line))
        if self.intake.missing and not missing:
            logger.warning("pod %s: records that are not in its log: %d", self._name, self.intake.missing)
        if self.intake.dropped and not self._warned:
            self._warned = True
            logger.warning(
                "pod %s: printed a line that is not a record, or of a run that it did not begin, or too many of them;"
                " such are not taken",
                self._name,
            )
        since = mapping(message.value).get("since") if message and message.word == SERVING else None
        if is_moment(since):
            await self.lost("its container was started anew", cast("float", since))

    async def lost(self, why: str, before: float = math.inf) -> None:
        """End the pod's unfinished runs that began before that time."""

        def is_left(row: RunRow) -> bool:
            return row.source == self._source and row.began < before

        for row in await end_as_lost(self._journal, f"lost: {why}", is_left):
            self._forget(row.run_id)

    def forget(self) -> None:
        """Read the journal again: the last records may not have been stored."""
        self._runs.clear()
        self._once.forget()

    def close(self) -> None:
        """Log the totals of dropped lines and missing records."""
        if self.intake.dropped > 1:
            logger.warning("pod %s: lines that were not records: %d", self._name, self.intake.dropped)
        if self.intake.missing > 1:
            logger.warning(
                "pod %s: records that were not in its log: %d in all", self._name, self.intake.missing
            )

    def _admit(self, record: Record) -> Record:
        """The record as it is stored; ValueError if the pod may not write it."""
        if not _RUN_ID.fullmatch(record.run_id) or not is_sound(record):
            raise ValueError("a field is not of its kind")
        if not self._is_own(record) or self._is_full(record.run_id):
            raise ValueError("it is not of the pod's runs, or too much")
        if isinstance(record, Begun):
            # Its process is on another machine, and its hooks are not run here.
            outermost = record.parent_id is None or record.scope is Scope.RUN
            source = self._source if outermost else None
            return record._replace(owner=None, declaration=None, source=source)
        return record

    def _is_full(self, run_id: str) -> bool:
        now = time.monotonic()
        if now - self._since > _HOUR:
            self._since, self._size = now, 0
        return self._size >= MOST_BYTES or len(self._once.keys(run_id)) >= MOST_RECORDS

    def _grow(self, size: int) -> None:
        self._size += size
        self._grown += size
        if self._grown > _PRUNED_AFTER:
            self._grown = 0
            self._journal.prune(keep_days=KEEP_DAYS, keep_bytes=KEEP_BYTES_OPERATOR)

    def _is_own(self, record: Record) -> bool:
        """True if its run is the pod's, or begins with it."""
        run_id = record.run_id
        if run_id in self._runs:
            self._runs.move_to_end(run_id)
            return self._runs[run_id]
        known = self._journal.records(run_id)
        if not known and not (isinstance(record, Begun) and record.parent_id is None):
            return False
        begun = known[0] if known else None
        self._runs[run_id] = not known or (isinstance(begun, Begun) and begun.source == self._source)
        if len(self._runs) > _RUNS:
            self._forget(next(iter(self._runs)))
        return self._runs[run_id]

    def _forget(self, run_id: str) -> None:
        self._runs.pop(run_id, None)
        self._once.forget(run_id)


def _container(pod: Fields) -> tuple[str, bool]:
    """The id of the present or last container, empty before the first; and True if it runs."""
    status = status_of(pod, CONTAINER)
    return str(status.get("containerID") or ""), bool(within(status, "state", "running"))


def _why(pod: Fields, *, gone: bool) -> str:
    """Why a pod ended or is gone, with the cluster's message if there is one."""
    seen = container_state(pod, CONTAINER)
    ended = f"its container ended with {seen.exit_code}" if seen.exit_code is not None else ""
    told = evicted(pod) or seen.detail
    return told or ("its pod was deleted" if gone else ended or "its pod ended")
