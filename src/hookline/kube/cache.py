"""Local copies of all objects of a kind, so that decisions need no request.

A kind is listed once and then watched. Our own writes are put in at once; the watch brings them again later. Versions
are compared as numbers, as every API server gives them, so that an old answer does not replace a newer one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hookline.kube.objects import ClusterError, Gone, Kind, NotThere, Object, kind_of, owners
from hookline.tasks import backoff

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

logger = logging.getLogger("hookline.kube")

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0
MISSING_PAUSE = 15.0
"""Seconds before a kind that the cluster does not have is listed again."""

Key: TypeAlias = tuple[str, str]
OnChange: TypeAlias = Callable[[Object | None, Object | None], None]


@dataclass(eq=False)
class Store:
    """A copy of one kind. Its objects are shared with all callers and must not be changed.

    `on_change` is called with the object before and after; None if it was absent. A cluster may lack an `optional`
    kind: the copy is empty until the kind is installed.
    """

    cluster: Cluster
    kind: Kind
    _: KW_ONLY
    namespace: str | None = None
    labels: Mapping[str, str] | str | None = None
    optional: bool = False
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
                    await asyncio.sleep(FIRST_PAUSE)
            except Gone:
                logger.debug("%s: too much has happened since version %s", self.kind.kind, self._version)
            except ClusterError as error:
                if self.optional and isinstance(error, NotThere):
                    self.synced.set()
                    await asyncio.sleep(MISSING_PAUSE)
                    continue
                self._tell(error)
            self._failures += 1
            await asyncio.sleep(backoff(self._failures, first=FIRST_PAUSE, longest=LONGEST_PAUSE, jitter=0.5))

    def get(self, namespace: str, name: str) -> Object | None:
        return self._objects.get((namespace, name))

    def all(self) -> list[Object]:
        return list(self._objects.values())

    def owned(self, uid: str) -> list[Object]:
        """The objects with an owner reference to this uid."""
        return [self._objects[key] for key in sorted(self._owned.get(uid, ()))]

    def put(self, obj: Object) -> None:
        """Takes in an object that we created or changed just now, unless something newer is known already."""
        if _key(obj) not in self._objects and not _is_newer(_version(obj), self._version):
            return
        self._take(obj)

    async def _list(self) -> None:
        found, version = await self.cluster.list(self.kind, self.namespace, self.labels)
        here = {_key(obj) for obj in found}
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
                self._seen(word, obj)
        self._failures = 0

    def _seen(self, word: str, obj: Object) -> None:
        self._failures = 0
        self._version = _version(obj) or self._version
        if word in ("ADDED", "MODIFIED"):
            self._take(obj)
        elif word == "DELETED":
            known = self._objects.get(_key(obj))
            if known is not None and not _is_newer(_version(known), _version(obj)):
                self._drop(_key(obj))

    def _take(self, obj: Object) -> None:
        key = _key(obj)
        before = self._objects.get(key)
        if before is not None and not _is_newer(_version(obj), _version(before)):
            return
        after = _lean(obj)
        self._objects[key] = after
        self._own(key, before, after)
        self.on_change(before, after)

    def _drop(self, key: Key) -> None:
        before = self._objects.pop(key)
        self._own(key, before, None)
        self.on_change(before, None)

    def _own(self, key: Key, before: Object | None, after: Object | None) -> None:
        for uid in _owner_uids(before):
            self._owned[uid].discard(key)
            if not self._owned[uid]:
                del self._owned[uid]
        for uid in _owner_uids(after):
            self._owned[uid].add(key)

    def _tell(self, error: ClusterError) -> None:
        """Logs an error once per outage."""
        if not self._out:
            self._out = True
            logger.warning("%s: the copy is out of date; retrying: %s", self.kind.kind, error)


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
            kind: [
                Store(
                    cluster,
                    kind,
                    namespace=namespace,
                    labels=labels,
                    optional=optional,
                    on_change=partial(on_change, kind),
                )
                for namespace in (namespaces or (None,))
            ]
            for kind, labels, optional in watches
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


def _key(obj: Object) -> Key:
    head = obj["metadata"]
    return (head.get("namespace") or "", head["name"])


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
