"""The operator: keeps copies of what concerns runs, and looks at a run whenever something of it has changed.

Level-based: what made it look does not matter, only what is there. Of two operators one acts, the one with the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from hookline.engine.record import Journal
from hookline.errors import JournalError
from hookline.journal.sqlite import SqliteJournal
from hookline.kube.cache import Store
from hookline.kube.client import Cluster
from hookline.kube.errors import AlreadyThere, ClusterError, NotThere
from hookline.kube.fields import owners, phase_of, within
from hookline.kube.kinds import (
    AGENT,
    AGENT_RUN,
    CLAIM,
    ENSEMBLE,
    INSTANCE,
    JOB,
    PACK,
    POD,
    SANDBOX,
    Kind,
    kind_of,
)
from hookline.kube.lease import Lead
from hookline.sympozium.cluster import packs
from hookline.sympozium.cluster.apply import Hands
from hookline.sympozium.cluster.ledger import KEPT_BYTES, JournalWriter
from hookline.sympozium.cluster.objects import RUN_LABEL, Settings
from hookline.sympozium.cluster.plan import FINALIZER, World
from hookline.sympozium.cluster.state import Record
from hookline.sympozium.phases import Phase
from hookline.tasks import backoff, cancel_and_wait, run_interruptible

logger = logging.getLogger("hookline.kube")

Object = dict[str, Any]
Key = tuple[str, str, str]

LEASE = "hookline-operator"
AT_ONCE = 16
"""Runs that are worked on side by side."""
RESYNC = 120.0
_MISSING_KIND = 30.0
_LONGEST_PAUSE = 30.0
_LABELLED = (JOB, POD, CLAIM, SANDBOX)
_OWN = f"{RUN_LABEL},app.kubernetes.io/managed-by=hookline"


class Operator:
    """One that acts. `namespaces` are those it looks at; none means all. In `journal` it keeps what becomes of runs."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        namespaces: Sequence[str] = (),
        journal: Journal | None = None,
    ) -> None:
        self._cluster = cluster
        self._writing = (
            None if journal is None else JournalWriter(journal, built_in=not settings.agent_command)
        )
        self._settings = settings
        self._stores: dict[Kind, list[Store]] = {}
        self._records: dict[str, Record] = {}
        # Whose record and mask are kept; a run that is gone does not say it any more.
        self._uids: dict[Key, str] = {}
        self._working: dict[Key, asyncio.Task[None]] = {}
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._hands = Hands(cluster, self._changed, *([self._writing.heard] if self._writing else []))
        self.ready = asyncio.Event()
        for kind in (AGENT_RUN, AGENT, INSTANCE, ENSEMBLE, PACK, *_LABELLED):
            labels = _OWN if kind in _LABELLED else None
            self._stores[kind] = [
                Store(cluster, kind, namespace=each, labels=labels, on_change=self._noticed(kind))
                for each in (namespaces or (None,))
            ]

    async def run(self) -> None:
        """Acts until it is cancelled; what was begun for a run by then is finished first, or found by the next one."""
        try:
            async with asyncio.TaskGroup() as group:
                for kind, stores in self._stores.items():
                    for store in stores:
                        group.create_task(self._kept(kind, store))
                for stores in self._stores.values():
                    for store in stores:
                        if store.kind is not SANDBOX:
                            await store.synced.wait()
                if self._writing is not None:
                    group.create_task(self._writing.run(self._all(AGENT_RUN)))
                self.ready.set()
                logger.info("looks after %d AgentRuns", len(self._all(AGENT_RUN)))
                self._look_at_all()
                while True:
                    await asyncio.sleep(RESYNC)
                    self._look_at_all()
        finally:
            self.ready.clear()
            for timer in self._timers.values():
                timer.cancel()
            await cancel_and_wait(*self._working.values())

    async def _kept(self, kind: Kind, store: Store) -> None:
        """A store that runs for ever; of a kind that the cluster does not have, from when it has it."""
        while kind is SANDBOX:
            with contextlib.suppress(ClusterError):
                try:
                    await self._cluster.list(kind, store.namespace)
                    break
                except NotThere:
                    pass
            await asyncio.sleep(_MISSING_KIND)
        await store.run()

    def _noticed(self, kind: Kind) -> Callable[[Object | None, Object | None], None]:
        def noticed(before: Object | None, after: Object | None) -> None:
            found = after or before
            if kind is AGENT_RUN and self._writing is not None:
                self._writing.note(before, after)
            if found is not None and self.ready.is_set():
                for key in self._concerned(kind, found):
                    self.wake(key)

        return noticed

    def _concerned(self, kind: Kind, found: Object) -> list[Key]:
        """The runs, or packs, that may have to do with an object."""
        metadata = found["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        if kind in _LABELLED:
            run = within(found, "metadata", "labels").get(RUN_LABEL)
            return [(AGENT_RUN.kind, namespace, str(run))] if run else []
        if kind in (AGENT, INSTANCE):
            waiting = [
                (AGENT_RUN.kind, namespace, each["metadata"]["name"])
                for each in self._all(AGENT_RUN)
                if each["metadata"]["namespace"] == namespace and phase_of(each) in ("", Phase.PENDING)
            ]
            made_by = [
                (str(owner.get("kind")), namespace, str(owner.get("name")))
                for owner in owners(found)
                if owner.get("kind") in (ENSEMBLE.kind, PACK.kind)
            ]
            return [*waiting, *made_by]
        return [(kind.kind, namespace, name)]

    def _look_at_all(self) -> None:
        for kind in (ENSEMBLE, PACK, AGENT_RUN):
            for each in self._all(kind):
                if kind is not AGENT_RUN or not _is_put_away(each):
                    self.wake((kind.kind, each["metadata"]["namespace"], each["metadata"]["name"]))

    def wake(self, key: Key) -> None:
        """Look at it soon; once, however often this is asked for before."""
        if key in self._working:
            self._again.add(key)
            return
        task = asyncio.create_task(self._worked(key))
        self._working[key] = task
        task.add_done_callback(lambda _: self._finished(key))

    def _finished(self, key: Key) -> None:
        del self._working[key]
        if key in self._again:
            self._again.discard(key)
            if self.ready.is_set():
                self.wake(key)

    def _wake_at(self, key: Key, seconds: float) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(max(seconds, 0.05), self._time_is_up, key)

    def _time_is_up(self, key: Key) -> None:
        self._timers.pop(key, None)
        if self.ready.is_set():
            self.wake(key)

    async def _worked(self, key: Key) -> None:
        async with self._places:
            try:
                await (self._run(key) if key[0] == AGENT_RUN.kind else self._pack(key))
                self._failures.pop(key, None)
            except ClusterError as exc:
                self._try_again(key, f"{exc}")
            except Exception:
                # The outermost loop: one run's trouble, whatever it is, is no other's.
                logger.exception("%s %s/%s", *key)
                self._try_again(key, "")

    def _try_again(self, key: Key, why: str) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = backoff(failures, first=0.5, longest=_LONGEST_PAUSE)
        if why:
            logger.log(
                logging.WARNING if pause > 4 else logging.INFO,
                "%s %s/%s: tried again in %g s: %s",
                *key,
                pause,
                why,
            )
        self._wake_at(key, pause)

    async def _run(self, key: Key) -> None:
        _, namespace, name = key
        run = self._one(AGENT_RUN, namespace, name)
        uid = "" if run is None else str(run["metadata"]["uid"])
        if self._uids.get(key, uid) != uid or run is None or _is_put_away(run):
            self._forget(key)
        if run is None:
            return
        if _is_put_away(run):
            # Also one that never began, of which nothing was made.
            await self._prune(run)
            return
        self._uids[key] = uid
        if uid not in self._records and FINALIZER in run["metadata"].get("finalizers", ()):
            found = await self._hands.read_record(run)
            if found is not None:
                self._records[uid] = found
        try:
            decided, record = await self._hands.done(self._world(run))
        except ClusterError:
            # It may have been put on record before something after it went wrong.
            self._records.pop(uid, None)
            raise
        if record is not None:
            self._records[uid] = record
        if decided.wake is not None:
            self._wake_at(key, (decided.wake - datetime.now(UTC)).total_seconds())

    def _forget(self, key: Key) -> None:
        """Drops all that is kept of a run that is gone, or that nothing is to be done for any more."""
        uid = self._uids.pop(key, "")
        self._records.pop(uid, None)
        self._hands.forget(uid)
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def _world(self, run: Object) -> World:
        uid = run["metadata"]["uid"]
        jobs, sandboxes = self._owned(JOB, uid), self._owned(SANDBOX, uid)
        pods = [pod for whole in (*jobs, *sandboxes) for pod in self._owned(POD, whole["metadata"]["uid"])]
        record = self._records.get(uid)
        known = (record.agent, *record.post) if record else ()
        pods += [
            pod
            for made in known
            if made is not None
            for pod in self._owned(POD, made.uid)
            if all(pod is not each for each in pods)
        ]
        return World(
            run=run,
            now=datetime.now(UTC),
            settings=self._settings,
            record=record,
            instance=self._instance(run),
            jobs=jobs,
            pods=pods,
            sandboxes=sandboxes,
            claims=self._owned(CLAIM, uid),
        )

    def _instance(self, run: Object) -> Object | None:
        """The agent that a run names; for one that a pack made, the pack, which has all of it."""
        spec = within(run, "spec")
        name = str(spec.get("agentRef") or spec.get("instanceRef") or "")
        namespace = run["metadata"]["namespace"]
        found = self._one(AGENT, namespace, name) or self._one(INSTANCE, namespace, name)
        if found is None:
            return None
        for owner in owners(found):
            for kind in (ENSEMBLE, PACK):
                if owner.get("kind") == kind.kind:
                    return self._one(kind, namespace, str(owner.get("name"))) or found
        return found

    async def _pack(self, key: Key) -> None:
        word, namespace, name = key
        kind = PACK if word == PACK.kind else ENSEMBLE
        pack = self._one(kind, namespace, name)
        if pack is None or pack["metadata"].get("deletionTimestamp"):
            return
        agents = [each for each in self._all(AGENT) if each["metadata"]["namespace"] == namespace]
        found = packs.members(pack, agents)
        for each in found.put:
            self._changed(await self._put(each))
        for each in found.remove:
            metadata = each["metadata"]
            await self._cluster.delete(AGENT, metadata["name"], namespace, uid=metadata["uid"])
        have = within(pack, "status")
        if any(have.get(field) != value for field, value in found.status.items()):
            await self._cluster.patch(kind, name, namespace, {"status": found.status}, subresource="status")

    async def _put(self, agent: Object) -> Object:
        try:
            made = await self._cluster.create(agent)
        except AlreadyThere:
            metadata = agent["metadata"]
            # The whole spec, so that what the pack no longer has goes too.
            have = self._one(AGENT, metadata["namespace"], metadata["name"])
            version = str(within(have or {}, "metadata").get("resourceVersion") or "")
            made = await self._cluster.replace(
                {**agent, "metadata": {**metadata, "resourceVersion": version}}
            )
        return made

    async def _prune(self, run: Object) -> None:
        """Remove the oldest runs of an instance beyond what is kept."""
        namespace = run["metadata"]["namespace"]
        runs = [each for each in self._all(AGENT_RUN) if each["metadata"]["namespace"] == namespace]
        for old in packs.outdated(runs, self._settings.max_run_history):
            metadata = old["metadata"]
            await self._cluster.delete(AGENT_RUN, metadata["name"], namespace, uid=metadata["uid"])

    def _changed(self, obj: Object) -> None:
        for store in self._stores.get(kind_of(obj), ()):
            if store.namespace in (None, obj["metadata"].get("namespace")):
                store.put(obj)

    def _all(self, kind: Kind) -> list[Object]:
        return [each for store in self._stores[kind] for each in store.all()]

    def _one(self, kind: Kind, namespace: str, name: str) -> Object | None:
        found = (store.get(namespace, name) for store in self._stores[kind])
        return next((each for each in found if each is not None), None)

    def _owned(self, kind: Kind, uid: str) -> list[Object]:
        return [each for store in self._stores[kind] for each in store.owned(uid)]


def _is_put_away(run: Mapping[str, Any]) -> bool:
    ended = phase_of(run) in (Phase.SUCCEEDED, Phase.FAILED, Phase.SKIPPED)
    return ended and FINALIZER not in run["metadata"].get("finalizers", ())


class Acting(Protocol):
    """A controller that acts while the lease is held."""

    ready: asyncio.Event

    async def run(self) -> None: ...


Others = Callable[[Cluster, Journal | None], Sequence[Acting]]


async def serve(
    cluster: Cluster,
    settings: Settings,
    *,
    namespaces: Sequence[str] = (),
    lease_namespace: str = "",
    lease_seconds: int = 15,
    port: int | None = None,
    journal: Journal | None = None,
    others: Others | None = None,
) -> None:
    """Be an operator until cancelled: wait for the lease, act while it is held, together with `others`."""
    lead = Lead(
        cluster,
        lease_namespace or cluster.namespace or "default",
        LEASE,
        duration=lease_seconds,
        every=lease_seconds / 3,
        patience=lease_seconds * 2 / 3,
    )
    acting: list[Acting] = []

    async def body() -> None:
        acting[:] = [
            Operator(cluster, settings, namespaces, journal),
            *(others(cluster, journal) if others else ()),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for each in acting:
                    group.create_task(each.run())
        finally:
            acting.clear()

    def is_ready() -> bool:
        # One that waits for the lease is ready to take over.
        return all(each.ready.is_set() for each in acting)

    async with _probes(port, is_ready):
        await lead.hold(body)


@contextlib.asynccontextmanager
async def _probes(port: int | None, is_ready: Callable[[], bool]) -> AsyncGenerator[None]:
    """`/healthz` and `/readyz`, for whoever keeps this program alive."""

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


def main(
    *,
    settings: Settings,
    namespaces: Sequence[str] = (),
    lease_namespace: str = "",
    kubeconfig: str | None = None,
    port: int | None = None,
    journal: Path | None = None,
    others: Others | None = None,
) -> int:
    """Run until a signal; 130 then, as every program of ours. `journal` is the file that it keeps runs in."""

    async def work(kept: Journal | None) -> int:
        async with Cluster.from_kubeconfig(kubeconfig) as cluster:
            await serve(
                cluster,
                settings,
                namespaces=namespaces,
                lease_namespace=lease_namespace,
                port=port,
                journal=kept,
                others=others,
            )
        return 0

    with _opened(journal) as kept:
        return run_interruptible(lambda: work(kept))


@contextlib.contextmanager
def _opened(path: Path | None) -> Generator[Journal | None]:
    """The journal; None where there is none to be had, which keeps no run from its hooks."""
    try:
        journal = SqliteJournal(path, keep_bytes=KEPT_BYTES) if path is not None else None
    except JournalError as exc:
        logger.warning("what becomes of runs is not on record: %s", exc)
        journal = None
    try:
        yield journal
    finally:
        if journal is not None:
            journal.close()
