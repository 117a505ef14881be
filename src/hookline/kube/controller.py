"""The loop of a controller, and the local copies of all objects of a kind that it decides by, without a request.

A kind is listed once and then watched. Our own writes are put in at once; the watch brings them again later. Versions
are compared as numbers, as every API server gives them, so that an old answer does not replace a newer one.

A controller keeps copies of the kinds that it needs, and reconciles an object whenever a part of it has changed.
Level-based: only the present state matters, not the event that woke it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hookline.kube.objects import SYSTEM, ClusterError, Gone, Kind, NotThere, Object, kind_of, owners
from hookline.tasks import backoff, cancel_and_wait

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

logger = logging.getLogger("hookline.kube")

RESYNC = 120.0
"""Seconds between two reconciliations of everything, whether or not changes were seen."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_LOUD_PAUSE = 4.0
"""A failure is logged as a warning once its pause is longer than this; before, it may pass by itself."""
_FIRST_WATCH_PAUSE = 0.2
_LONGEST_WATCH_PAUSE = 10.0
MISSING_PAUSE = 15.0
"""Seconds before a kind that the cluster does not have is listed again."""

OnChange: TypeAlias = Callable[[Object | None, Object | None], None]


class Key(NamedTuple):
    """Names an object."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Key:
        metadata = obj["metadata"]
        return cls(str(obj["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]))


@dataclass(eq=False)
class Store:
    """A copy of one kind, without the system's namespaces. Its objects are shared with all callers and must not be changed.

    `on_change` is called with the object before and after; None if it was absent. A cluster may lack an `optional`
    kind: the copy is empty until the kind is installed.
    """

    cluster: Cluster
    kind: Kind
    labels: Mapping[str, str] | str | None = None
    optional: bool = False
    _: KW_ONLY
    namespace: str | None = None
    on_change: OnChange = lambda before, after: None

    def __post_init__(self) -> None:
        self.synced = asyncio.Event()
        self._objects: dict[Key, Object] = {}
        self._owned: defaultdict[str, set[Key]] = defaultdict(set)
        # The version of the last list or event; an object that is older and not here was deleted.
        self._version = ""
        self._out = False
        self._failures = 0

    async def run(self) -> None:
        """Keeps the copy up to date until it is cancelled."""
        while True:
            try:
                await self._list()
                while True:
                    await self._watch()
                    # A server may end every watch at once.
                    await asyncio.sleep(_FIRST_WATCH_PAUSE)
            except Gone:
                logger.debug("%s: too much has happened since version %s", self.kind.kind, self._version)
            except ClusterError as error:
                if self.optional and isinstance(error, NotThere):
                    self.synced.set()
                    await asyncio.sleep(MISSING_PAUSE)
                    continue
                if not self._out:
                    self._out = True
                    logger.warning("%s: the copy is out of date; retrying: %s", self.kind.kind, error)
            self._failures += 1
            await asyncio.sleep(
                backoff(self._failures, first=_FIRST_WATCH_PAUSE, longest=_LONGEST_WATCH_PAUSE, jitter=0.5)
            )

    def get(self, namespace: str, name: str) -> Object | None:
        return self._objects.get(Key(self.kind.kind, namespace, name))

    def all(self) -> list[Object]:
        return list(self._objects.values())

    def owned(self, uid: str) -> list[Object]:
        """The objects with an owner reference to this uid."""
        return [self._objects[key] for key in sorted(self._owned.get(uid, ()))]

    def put(self, obj: Object) -> None:
        """Takes in an object that we created or changed just now, unless something newer is known already."""
        if Key.of(obj) not in self._objects and not _is_newer(_version(obj), self._version):
            return
        self._take(obj)

    async def _list(self) -> None:
        found, version = await self.cluster.list(self.kind, self.namespace, self.labels)
        here = {Key.of(obj) for obj in found}
        # An object that was put in during the request is newer than the list.
        lost = [
            key
            for key, obj in self._objects.items()
            if key not in here and not (version and _is_newer(_version(obj), version))
        ]
        self._version = version
        for key in lost:
            self._drop(key)
        for obj in found:
            self._take(obj)
        self.synced.set()
        if self._out:
            self._out = False
            logger.info("%s: the cluster answers again", self.kind.kind)

    async def _watch(self) -> None:
        watching = self.cluster.watch(self.kind, self.namespace, self.labels, self._version)
        async with aclosing(watching) as events:
            async for word, obj in events:
                self._apply(word, obj)
        self._failures = 0

    def _apply(self, word: str, obj: Object) -> None:
        self._failures = 0
        self._version = _version(obj) or self._version
        if word in ("ADDED", "MODIFIED"):
            self._take(obj)
        elif word == "DELETED":
            known = self._objects.get(Key.of(obj))
            if known is not None and not _is_newer(_version(known), _version(obj)):
                self._drop(Key.of(obj))

    def _take(self, obj: Object) -> None:
        key = Key.of(obj)
        if key.namespace in SYSTEM:
            return
        before = self._objects.get(key)
        if before is not None and not _is_newer(_version(obj), _version(before)):
            return
        after = _lean(obj)
        self._objects[key] = after
        self._index_owners(key, before, after)
        self.on_change(before, after)

    def _drop(self, key: Key) -> None:
        before = self._objects.pop(key)
        self._index_owners(key, before, None)
        self.on_change(before, None)

    def _index_owners(self, key: Key, before: Object | None, after: Object | None) -> None:
        for uid in _owner_uids(before):
            self._owned[uid].discard(key)
            if not self._owned[uid]:
                del self._owned[uid]
        for uid in _owner_uids(after):
            self._owned[uid].add(key)


class Watch(NamedTuple):
    """A kind to keep a copy of: all objects, or those with the `labels`; see `Store` for `optional`."""

    kind: Kind
    labels: str | None = None
    optional: bool = False


class Caches:
    """Copies of several kinds: of the whole cluster, or of each of the `namespaces`."""

    def __init__(
        self,
        cluster: Cluster,
        watches: Iterable[Watch],
        namespaces: Sequence[str] = (),
        on_change: Callable[[Kind, Object | None, Object | None], None] = lambda kind, before, after: None,
    ) -> None:
        self._stores = {
            watch.kind: [
                Store(cluster, *watch, namespace=namespace, on_change=partial(on_change, watch.kind))
                for namespace in (namespaces or (None,))
            ]
            for watch in watches
        }

    @property
    def stores(self) -> list[Store]:
        return [store for stores in self._stores.values() for store in stores]

    async def synced(self) -> None:
        """Waits until every copy has been complete."""
        for store in self.stores:
            await store.synced.wait()

    def all(self, kind: Kind) -> list[Object]:
        return [obj for store in self._stores[kind] for obj in store.all()]

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        found = (store.get(namespace, name) for store in self._stores[kind])
        return next((obj for obj in found if obj is not None), None)

    def owned(self, kind: Kind, uid: str) -> list[Object]:
        """The objects with an owner reference to this uid."""
        return [obj for store in self._stores[kind] for obj in store.owned(uid)]

    def put(self, obj: Object) -> None:
        """Takes in an object that we created or changed just now, if its kind is kept here."""
        for store in self._stores.get(kind_of(obj), ()):
            if store.namespace in (None, obj["metadata"].get("namespace")):
                store.put(obj)


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


def _version(obj: Object) -> str:
    return str(obj["metadata"].get("resourceVersion") or "")


def _is_newer(version: str, than: str) -> bool:
    """Compares versions as numbers; others count as newer if they differ, since they arrived later."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than


def _lean(obj: Object) -> Object:
    """The object without managedFields, which are often half of it."""
    head = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": head}


def _owner_uids(obj: Object | None) -> set[str]:
    return {str(owner.get("uid", "")) for owner in owners(obj or {})}
