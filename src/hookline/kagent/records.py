"""What the pods of kagent's Agents tell of their runs, in the operator's journal.

A pod prints its records to its log, between whatever else is printed there. It runs the tools of its users, so it is
believed about runs that it began itself and about nothing else. A log is read from its beginning again after every break,
also by the next operator, and nothing is kept twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol, cast

from hookline.engine.lifecycle import owed
from hookline.engine.point import Scope, Status
from hookline.engine.record import Begun, Ended, Journal, Record
from hookline.errors import JournalError
from hookline.journal.recovery import THERE
from hookline.journal.stream import MARK, Received, Said, Unwritten
from hookline.kagent.objects import CONTAINER
from hookline.kube.errors import ClusterError
from hookline.kube.fields import items, mapping, within
from hookline.kube.pod_state import container_seen, evicted

__all__ = ["SERVING", "Listener", "Logs", "Pace", "Told", "source_of"]

logger = logging.getLogger("hookline.kube")

Object = Mapping[str, Any]

SERVING = "serving"
"""Said by a process when it has ended what earlier ones left, with the moment since which it runs."""
LONGEST = 4 * 2**20
# A journal keeps what is newest, and is there for all.
MOST_RECORDS = 20_000
MOST_BYTES = 32 * 2**20
_HOUR = 3600.0
_PRUNED_AFTER = 8 * 2**20
_KEPT_DAYS, _KEPT_BYTES = 30.0, 128 * 2**20
_RUNS = 32
"""Of which one pod's records are known without asking the journal."""
_LAST_TRIES = 5
_AT_ONCE = 200
_FUTURE = 86400.0
_LARGEST = 1e15
# As a process of ours makes it; those of AgentRuns are not of this shape.
_RUN_ID = re.compile(r"[0-9a-z]{6,8}-[0-9a-f]{6}")
_ID = re.compile(r"[0-9A-Za-z._-]{1,200}")
_NUMBER = re.compile(r"\[([0-9]{1,12}),")
_SOURCE = re.compile(re.escape(THERE) + r"([^/# ]+)/([^/# ]+)#(\S+)")


class Pace(NamedTuple):
    """Seconds before a log is read again, which double while nothing new comes, and to read the rest of that of a pod
    that is gone."""

    pause: float = 1.0
    longest: float = 30.0
    last: float = 20.0


PACE = Pace()


class Logs(Protocol):
    """What is asked of a cluster here."""

    def follow_log(self, pod: str, namespace: str | None, container: str) -> AsyncGenerator[str, None]: ...


def source_of(pod: Object) -> str:
    """What stands in the journal as the source of a pod's runs."""
    head = within(pod, "metadata")
    return f"{THERE}{head.get('namespace')}/{head.get('name')}#{head.get('uid')}"


class Listener:
    """Follows the log of each pod that there is, one connection a pod, until the pod is gone or this is cancelled."""

    def __init__(
        self,
        cluster: Logs,
        journal: Journal,
        pods: Callable[[], Iterable[Object]],
        *,
        pace: Pace = PACE,
    ) -> None:
        self._cluster = cluster
        self._pace = pace
        self._journal = journal
        self._pods = pods
        self._followed: dict[str, _Following] = {}
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Something about the pods has changed."""
        self._changed.set()

    def follows(self, pod: Object) -> bool:
        return str(within(pod, "metadata").get("uid")) in self._followed

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_until_written(self._lose_others, self._pace, "runs of pods that are gone"))
            while True:
                self._changed.clear()
                self._look(group)
                await self._changed.wait()

    def _look(self, group: asyncio.TaskGroup) -> None:
        there = {str(within(pod, "metadata").get("uid")): pod for pod in self._pods()}
        for uid, pod in there.items():
            if uid in self._followed:
                self._followed[uid].see(pod)
            elif _container(pod).id or _has_ended(pod):
                found = self._followed[uid] = _Following(self._cluster, self._journal, pod, self._pace)
                group.create_task(found.run())
        for uid in self._followed.keys() - there.keys():
            self._followed.pop(uid).leave()

    async def _lose_others(self) -> None:
        """Ends the runs of pods that went while nobody listened."""
        there = {source_of(pod) for pod in self._pods()}
        for row in self._journal.unfinished():
            source = row.source or ""
            if _SOURCE.fullmatch(source) and source not in there:
                await _lost(self._journal, row.run_id, "its pod was gone when the operator came back")


async def _until_written(write: Callable[[], Awaitable[None]], pace: Pace, what: str) -> None:
    """Tries until the journal takes it."""
    told = False
    while True:
        try:
            await write()
            return
        except JournalError as exc:
            if not told:
                logger.warning("%s: not ended in the journal, and tried again: %s", what, exc)
            told = True
        await asyncio.sleep(pace.longest)


class _Container(NamedTuple):
    """Which container of a pod prints, or printed last; without `id` none has yet."""

    id: str
    running: bool


class _Following:
    """One pod."""

    def __init__(self, cluster: Logs, journal: Journal, pod: Object, pace: Pace) -> None:
        self._cluster = cluster
        self._pace = pace
        self._pod = pod
        self._told = Told(journal, pod)
        self._name = f"{within(pod, 'metadata').get('namespace')}/{within(pod, 'metadata').get('name')}"
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._reading: asyncio.Timeout | None = None
        # The container that has ended and whose log is read.
        self._through = ""
        self._tries = 0
        self._heard = 0
        self._out = False

    def see(self, pod: Object) -> None:
        self._pod = pod
        self._changed.set()

    def leave(self) -> None:
        """The pod is gone: what is on its way is still read."""
        self._gone.set()
        self._changed.set()
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time() + self._pace.last)

    async def run(self) -> None:
        try:
            await self._follow()
            why = _why(self._pod, gone=self._gone.is_set())
            await _until_written(lambda: self._told.lost(why), self._pace, f"pod {self._name}")
        finally:
            self._told.close()

    async def _follow(self) -> None:
        pause = self._pace.pause
        while not self._is_over():
            self._changed.clear()
            if not self._has_more():
                await self._changed.wait()
                continue
            useful = await self._read()
            pause = self._pace.pause if useful else min(pause * 2, self._pace.longest)
            await _set_within(self._gone, self._pace.pause)
            await _set_within(self._changed, pause - self._pace.pause)

    def _is_over(self) -> bool:
        return self._gone.is_set() or (_has_ended(self._pod) and not self._has_more())

    def _has_more(self) -> bool:
        now = _container(self._pod)
        return bool(now.id) and (now.running or now.id != self._through)

    async def _read(self) -> bool:
        """One connection; whether it was worth it."""
        clock = asyncio.get_running_loop().time
        now, taken, began = _container(self._pod), self._told.taken, clock()
        self._told.again()
        try:
            async with asyncio.timeout(None) as self._reading:
                await self._lines()
        except TimeoutError:
            logger.warning("pod %s: the end of its log could not be read", self._name)
        except Exception as exc:
            # The outermost loop: one pod's trouble, whatever it is, is no other's.
            self._told.forget()
            self._tell(exc)
            self._tries += not now.running
        else:
            # Of one that ran when we began, more may have come after the connection ended.
            self._tries = 0 if now.running else _LAST_TRIES
        finally:
            self._reading = None
        if self._tries >= _LAST_TRIES:
            self._through, self._tries = now.id, 0
        return self._told.taken > taken or clock() - began > self._pace.longest

    async def _lines(self) -> None:
        head = within(self._pod, "metadata")
        log = self._cluster.follow_log(str(head.get("name")), str(head.get("namespace")), CONTAINER)
        self._heard = 0
        async with aclosing(log) as lines:
            async for line in lines:
                await self._told.take(line)
                self._heard += 1
                if self._heard % _AT_ONCE == 0:
                    # A long log comes faster than it is worked on, and others have their turn too.
                    await asyncio.sleep(0)

    def _tell(self, why: Exception) -> None:
        """Once for each outage. That a connection ends which brought something is none: a pod may be quiet for long."""
        if isinstance(why, ClusterError) and self._heard:
            self._out = False
            logger.debug("pod %s: its log is read anew: %s", self._name, why)
        elif not self._out and not self._gone.is_set():
            self._out = True
            known = isinstance(why, ClusterError | JournalError)
            logger.warning(
                "pod %s: what it tells is not on record, and tried again: %s",
                self._name,
                why,
                exc_info=None if known else why,
            )


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


class Told:
    """What one pod tells, line by line, and which of it is kept: `most_records` of a run, `most_bytes` in an hour."""

    def __init__(
        self,
        journal: Journal,
        pod: Object,
        *,
        most_records: int = MOST_RECORDS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._most_records, self._most_bytes = most_records, most_bytes
        head = within(pod, "metadata")
        self._journal = journal
        self._source = source_of(pod)
        self._name = f"{head.get('namespace')}/{head.get('name')}"
        self._runs: OrderedDict[str, _Run | None] = OrderedDict()
        self._first = 0
        self._next = 0
        self._since, self._size, self._grown = time.monotonic(), 0, 0
        self._warned = False
        self.taken = 0
        """How many records were new."""
        self.dropped = 0
        """How many lines were no records, or of runs that the pod did not begin, or beyond what it may write."""
        self.missing = 0
        """How many of its lines never came."""

    async def take(self, line: str) -> None:
        _, mark, ours = line.rpartition(MARK)
        if not mark:
            return
        number = _NUMBER.match(ours)
        if number is None or len(line) > LONGEST:
            self._drop()
            return
        self._count(int(number[1]), ours)
        try:
            found = Received().take(mark + ours)[0]
            if isinstance(found, Said):
                await self._said(found)
            elif found is None or not _is_sound(found) or not await self._kept(found, len(ours)):
                self._drop()
        except RecursionError:
            self._drop()

    async def lost(self, why: str, before: float = math.inf) -> None:
        """Ends what the pod has left open of the runs that began before that moment."""
        for row in self._journal.unfinished():
            if row.source == self._source and row.began < before:
                await _lost(self._journal, row.run_id, why)
                self._runs.pop(row.run_id, None)

    def forget(self) -> None:
        """What is on record is asked of the journal anew: the last of it may not have been stored."""
        self._runs.clear()

    def again(self) -> None:
        """The log is read from its beginning: what is not taken is counted anew."""
        self.dropped = 0

    def close(self) -> None:
        """Tells how many there were of what was told when it began."""
        if self.dropped > 1:
            logger.warning("pod %s: lines that were not taken for records: %d", self._name, self.dropped)
        if self.missing > 1:
            logger.warning("pod %s: records that were not in its log: %d in all", self._name, self.missing)

    def _count(self, number: int, ours: str) -> None:
        """The numbers of a new process begin again; those of the same log, read again, are known."""
        if number == 0 and hash(ours) != self._first:
            self._first, self._next = hash(ours), 0
        lacking = number - self._next
        if lacking > 0:
            if not self.missing:
                logger.warning("pod %s: records that are not in its log: %d", self._name, lacking)
            self.missing += lacking
        self._next = max(self._next, number + 1)

    def _drop(self) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "pod %s: printed a line that is no record, or of a run that it did not begin, or too many of them;"
                " such are not taken",
                self._name,
            )
        self.dropped += 1

    async def _said(self, said: Said) -> None:
        since = mapping(said.value).get("since")
        if said.word == SERVING and _is_moment(since):
            await self.lost("its container was started anew", cast("float", since))

    def _is_allowed(self) -> bool:
        now = time.monotonic()
        if now - self._since > _HOUR:
            self._since, self._size = now, 0
        return self._size < self._most_bytes

    async def _kept(self, record: Record, size: int) -> bool:
        """Whether the record was the pod's to write; one that is there already is not written again."""
        run = self._run(record)
        if run is None or run.count >= self._most_records or not self._is_allowed():
            return False
        if isinstance(record, Begun):
            # Nobody here can see its process, or run its hooks.
            outermost = record.parent_id is None or record.scope is Scope.RUN
            source = self._source if outermost else None
            record = record._replace(owner=None, declaration=None, source=source)
        if await run.unwritten.write(record):
            run.count += 1
            self.taken += 1
            self._size += size
            self._grown += size
        if self._grown > _PRUNED_AFTER:
            self._grown = 0
            self._journal.prune(keep_days=_KEPT_DAYS, keep_bytes=_KEPT_BYTES)
        return True

    def _run(self, record: Record) -> _Run | None:
        run_id = record.run_id
        if run_id in self._runs:
            self._runs.move_to_end(run_id)
            return self._runs[run_id]
        known = self._journal.records(run_id)
        if not known and not (isinstance(record, Begun) and record.parent_id is None):
            return None
        begun = known[0] if known else None
        mine = not known or (isinstance(begun, Begun) and begun.source == self._source)
        found = self._runs[run_id] = _Run(self._journal, len(known)) if mine else None
        if len(self._runs) > _RUNS:
            self._runs.popitem(last=False)
        return found


class _Run:
    def __init__(self, journal: Journal, count: int) -> None:
        self.unwritten = Unwritten(journal)
        self.count = count


async def _lost(journal: Journal, run_id: str, why: str) -> None:
    for each in owed(journal.records(run_id)):
        begun = each.begun
        at = max(time.time(), begun.at)
        await journal.write(Ended(run_id, begun.scope_id, begun.scope, at, Status.LOST, None, f"lost: {why}"))


def _container(pod: Object) -> _Container:
    statuses = items(within(pod, "status").get("containerStatuses"))
    found = next((each for each in statuses if each.get("name") == CONTAINER), mapping(None))
    return _Container(str(found.get("containerID") or ""), bool(within(found, "state", "running")))


def _has_ended(pod: Object) -> bool:
    return within(pod, "status").get("phase") in ("Failed", "Succeeded")


def _why(pod: Object, *, gone: bool) -> str:
    """What became of a pod, in the cluster's words where it has some."""
    seen = container_seen(pod, CONTAINER)
    ended = f"its container ended with {seen.exit_code}" if seen.exit_code is not None else ""
    told = evicted(pod) or seen.detail
    return told or ("its pod was deleted" if gone else ended or "its pod ended")


def _is_sound(record: Record) -> bool:
    """Whether every field is of its kind: what is stored is shown to people together with the runs of others."""
    return all(
        _SHAPES.get(name, _is_anything)(value)
        for name, value in zip(record._fields, cast("tuple[Any, ...]", record), strict=True)
    )


def _is_anything(_value: Any) -> bool:
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_number(value: Any) -> bool:
    # An integer of JSON may be too large for a float, and for a database.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _is_moment(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= time.time() + _FUTURE


def _is_reasons(value: Any) -> bool:
    return all(isinstance(each[0], str) and _is_text_or_none(each[2]) for each in value)


_SHAPES: Mapping[str, Callable[[Any], bool]] = {
    "run_id": lambda value: bool(_RUN_ID.fullmatch(value)),
    "scope_id": lambda value: isinstance(value, str) and bool(_ID.fullmatch(value)),
    "parent_id": lambda value: value is None or (isinstance(value, str) and bool(_ID.fullmatch(value))),
    "name": _is_text,
    "at": _is_moment,
    "about": lambda value: isinstance(value, dict),
    "point": _is_text,
    "hook": _is_text,
    "seconds": _is_number,
    "reason": _is_text_or_none,
    "mode": _is_text,
    "error_kind": _is_text_or_none,
    "error": _is_text_or_none,
    "note": _is_text_or_none,
    "tell_model": _is_text_or_none,
    "tell_user": _is_text_or_none,
    "last": lambda value: isinstance(value, bool),
    "reasons": _is_reasons,
}
