"""The loop of a controller, and the program that runs several of them.

A controller keeps copies of the kinds that it needs, and reconciles an object whenever a part of it has changed.
Level-based: only the present state matters, not the event that woke it. Of several operators, the one that holds the
lease acts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hookline.engine.record import Journal
from hookline.errors import JournalError
from hookline.journal.sqlite import KEEP_BYTES_OPERATOR, SqliteJournal
from hookline.kube.cache import Caches, Watch
from hookline.kube.client import Cluster
from hookline.kube.lease import Lease
from hookline.kube.objects import ClusterError, Kind, Object
from hookline.tasks import backoff, cancel_and_wait, run_interruptible

logger = logging.getLogger("hookline.kube")

LEASE = "hookline-operator"
RESYNC = 120.0
"""Seconds between two reconciliations of everything, whether or not changes were seen."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_LOUD_PAUSE = 4.0
"""A failure is logged as a warning once its pause is longer than this; before, it may pass by itself."""


class Key(NamedTuple):
    """Names the object to reconcile."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Key:
        metadata = obj["metadata"]
        return cls(str(obj["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]))


class Controller(ABC):
    """Reconciles keys: each by one worker at a time, `at_once` keys in parallel, with retries after a failure.

    The first of the `watches` is its main kind, for the log; `namespaces` are those it works in, none means all.
    """

    def __init__(
        self, cluster: Cluster, watches: Sequence[Watch], *, namespaces: Sequence[str] = (), at_once: int = 1
    ) -> None:
        self.ready = asyncio.Event()
        self.cluster = cluster
        self.caches = Caches(cluster, watches, namespaces, self.on_change)
        self._about = watches[0].kind
        self._workers: dict[Key, asyncio.Task[None]] = {}
        # Woken while their worker ran, which may have seen an older state.
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._places = asyncio.Semaphore(at_once)

    @abstractmethod
    def keys(self) -> Iterable[Key]:
        """All keys; they are reconciled at the start and at every resync."""

    @abstractmethod
    def keys_for(self, kind: Kind, before: Object | None, after: Object | None) -> Iterable[Key]:
        """The keys that a change of one object may affect; `before` or `after` is None if it is new or gone."""

    @abstractmethod
    async def reconcile(self, key: Key) -> datetime | None:
        """Acts on one key, which may be gone; returns when it must be reconciled again at the latest."""

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Tasks to run beside the loop, once the copies are complete."""
        return ()

    def on_change(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        """Called with every change, also during the first list."""
        if self.ready.is_set():
            for key in self.keys_for(kind, before, after):
                self.wake(key)

    async def run(self) -> None:
        """Runs until it is cancelled; unfinished work is picked up by the next controller."""
        try:
            async with asyncio.TaskGroup() as group:
                for store in self.caches.stores:
                    group.create_task(store.run())
                await self.caches.synced()
                for task in self.background():
                    group.create_task(task)
                self.ready.set()
                logger.info("watching %d %ss", len(self.caches.all(self._about)), self._about.kind)
                while True:
                    for key in self.keys():
                        self.wake(key)
                    await asyncio.sleep(RESYNC)
        finally:
            self.ready.clear()
            for timer in self._timers.values():
                timer.cancel()
            await cancel_and_wait(*self._workers.values())

    def wake(self, key: Key) -> None:
        """Schedules a reconciliation; calls before it starts count once."""
        if key in self._workers:
            self._again.add(key)
            return
        worker = asyncio.create_task(self._work(key))
        self._workers[key] = worker
        worker.add_done_callback(lambda _: self._worked(key))

    def _worked(self, key: Key) -> None:
        del self._workers[key]
        if key in self._again:
            self._again.discard(key)
            self._wake_if_ready(key)

    async def _work(self, key: Key) -> None:
        async with self._places:
            if (timer := self._timers.pop(key, None)) is not None:
                timer.cancel()
            try:
                at = await self.reconcile(key)
            except ClusterError as exc:
                self._retry(key, exc)
            except Exception:
                # The outermost loop: the failure of one object must not affect the others.
                logger.exception("%s %s/%s", *key)
                self._retry(key, None)
            else:
                self._failures.pop(key, None)
                if at is not None:
                    self._wake_in(key, (at - datetime.now(UTC)).total_seconds())

    def _retry(self, key: Key, error: ClusterError | None) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = backoff(failures, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        if error is not None:
            level = logging.WARNING if pause > _LOUD_PAUSE else logging.INFO
            logger.log(level, "%s %s/%s: retry in %g s: %s", *key, pause, error)
        self._wake_in(key, pause)

    def _wake_in(self, key: Key, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[key] = loop.call_later(max(seconds, 0.05), self._on_timer, key)

    def _on_timer(self, key: Key) -> None:
        del self._timers[key]
        self._wake_if_ready(key)

    def _wake_if_ready(self, key: Key) -> None:
        if self.ready.is_set():
            self.wake(key)


Controllers = Callable[[Cluster, Journal | None], Sequence[Controller]]
"""Makes the controllers of an operator, each time that it gets the lease."""


async def serve(
    cluster: Cluster,
    controllers: Controllers,
    *,
    lease_namespace: str = "",
    lease_seconds: int = 15,
    port: int | None = None,
    journal: Journal | None = None,
) -> None:
    """Waits for the lease and runs the controllers while it is held, until cancelled."""
    lease = Lease(
        cluster,
        lease_namespace or cluster.namespace or "default",
        LEASE,
        duration=lease_seconds,
        every=lease_seconds / 3,
        patience=lease_seconds * 2 / 3,
    )
    acting: list[Controller] = []

    async def act() -> None:
        acting[:] = controllers(cluster, journal)
        try:
            async with asyncio.TaskGroup() as group:
                for each in acting:
                    group.create_task(each.run())
        finally:
            acting.clear()

    def is_ready() -> bool:
        # An operator that waits for the lease is ready to take over.
        return all(each.ready.is_set() for each in acting)

    async with _probes(port, is_ready):
        await lease.hold(act)


@contextlib.asynccontextmanager
async def _probes(port: int | None, is_ready: Callable[[], bool]) -> AsyncGenerator[None]:
    """Serves `/healthz` and `/readyz`, for the kubelet."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                line = await reader.readline()
            path = line.split(b" ")[1:2]
            well = path == [b"/healthz"] or (path == [b"/readyz"] and is_ready())
            known = path in ([b"/healthz"], [b"/readyz"])
            word = b"200 OK" if well else b"503 Service Unavailable" if known else b"404 Not Found"
            writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % word)
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass
        finally:
            writer.close()

    if port is None:
        yield
        return
    server = await asyncio.start_server(answer, "0.0.0.0", port)
    async with server:
        yield


def main(controllers: Controllers, *, port: int, journal: Path) -> int:
    """Serves until a signal, then returns 130. `journal` is the file that runs are recorded in."""

    async def work(opened: Journal | None) -> int:
        async with Cluster() as cluster:
            await serve(cluster, controllers, port=port, journal=opened)
        return 0

    with _opened(journal) as opened:
        return run_interruptible(lambda: work(opened))


@contextlib.contextmanager
def _opened(path: Path) -> Generator[Journal | None]:
    """The journal; None if it cannot be opened: runs and their hooks work without it."""
    try:
        journal = SqliteJournal(path, keep_bytes=KEEP_BYTES_OPERATOR)
    except JournalError as exc:
        logger.warning("runs are not recorded: %s", exc)
        yield None
        return
    with contextlib.closing(journal):
        yield journal
