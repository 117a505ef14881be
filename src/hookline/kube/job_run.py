"""One Job of ours from its making to its end: what it prints, how it ends, and what keeps it from getting on.

Whoever tends a Job may go and another may come: a Job is known by its name, and its log is read from the beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hookline.kube.cache import Store
from hookline.kube.errors import AlreadyThere, ClusterError
from hookline.kube.job_state import Slot, Stall, Workload, WorkloadState, follow, pod_of
from hookline.kube.jobs import CONTAINER, JOB_LABEL, Task, job_of, secret_of
from hookline.kube.kinds import JOB, POD
from hookline.kube.logs import LogEnd, LogReader
from hookline.kube.pod_state import ContainerPhase, ContainerState, Reason
from hookline.kube.pods import child
from hookline.tasks import cancel_and_wait

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

Object = dict[str, Any]

LAST_LINES = 20.0
"""Seconds to wait for more of the log of a container that has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the program of a Job ended: by itself with `exit_code`, or without, and then `why` says what happened to it.

    `began` is False where it never started."""

    exit_code: int | None = None
    why: str = ""
    reason: Reason = Reason.EXITED
    began: bool = True
    log_lost: bool = False
    """The log could not be read to its end."""


async def started(cluster: Cluster, task: Task) -> tuple[Object, bool]:
    """The Job of that name, with its Secret, and whether it was made just now; one that is there is taken as it is.

    One without a Secret was left by somebody who was killed right after making it. Nothing of it can have run."""
    while True:
        try:
            job = await cluster.create(job_of(task))
            await cluster.create(secret_of(task, job))
            return job, True
        except AlreadyThere:
            job = await cluster.get(JOB, task.name, task.namespace)
        if job is not None and await _is_whole(cluster, task, job):
            return job, False
        if job is not None:
            await end(cluster, job)


async def _is_whole(cluster: Cluster, task: Task, job: Object) -> bool:
    """Whether its Secret is there. That is asked with an empty one, with which no pod starts: who may make Secrets
    need not be able to read them."""
    volumes = job["spec"]["template"]["spec"]["volumes"]
    name = next(each["secret"]["secretName"] for each in volumes if each["name"] == "given")
    empty = secret_of(task, job)
    empty["metadata"]["name"] = name
    empty["stringData"] = {}
    try:
        await cluster.create(empty)
    except AlreadyThere:
        return True
    return False


async def end(cluster: Cluster, job: Object, *, at_once: bool = False) -> None:
    """Ask its program to end, with its end hooks, and its pod goes when that is done; or end it without them."""
    metadata = job["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    await cluster.delete(JOB, name, namespace, uid=metadata["uid"])
    if at_once:
        pods, _ = await cluster.list(POD, namespace, {JOB_LABEL: child(name, "")})
        for pod in pods:
            head = pod["metadata"]
            await cluster.delete(POD, head["name"], namespace, uid=head["uid"], grace=0)


async def forget(cluster: Cluster, job: Object) -> None:
    """Remove a Job that is over, with all that belongs to it."""
    await end(cluster, job)


async def tended(
    cluster: Cluster,
    job: Object,
    *,
    printed: Callable[[str], Awaitable[None]],
    waits: Callable[[str], None] = lambda _: None,
    ending: asyncio.Event | None = None,
) -> Ending:
    """Follow a Job until it is over. `printed` is awaited with each line of its log, from the first on, and records maybe
    again; `waits` is told what keeps its pod from starting. With `ending` set it is known that we ended it ourselves."""
    return await _Tending(cluster, job, printed, waits, ending or asyncio.Event()).ended()


class _Tending:
    def __init__(
        self,
        cluster: Cluster,
        job: Object,
        printed: Callable[[str], Awaitable[None]],
        waits: Callable[[str], None],
        ending: asyncio.Event,
    ) -> None:
        self._cluster, self._job = cluster, job
        self._printed, self._waits = printed, waits
        self._ending = ending
        self._changed = asyncio.Event()
        metadata = job["metadata"]
        self._name, self._namespace = str(metadata["name"]), str(metadata["namespace"])
        labels = {JOB_LABEL: child(self._name, "")}

        def store(kind: Any) -> Store:
            return Store(
                cluster,
                kind,
                namespace=self._namespace,
                labels=labels,
                on_change=lambda before, after: self._changed.set(),
            )

        self._jobs, self._pods = store(JOB), store(POD)
        self._made = Workload(name=self._name, uid=metadata["uid"])
        self._slot = Slot(container=CONTAINER, seen=ContainerState())
        self._before: Stall | None = None
        self._told = ""
        self._log: LogReader | None = None
        self._reading: asyncio.Task[LogEnd] | None = None
        self._over = asyncio.Event()

    async def ended(self) -> Ending:
        watching = [asyncio.ensure_future(each.run()) for each in (self._jobs, self._pods)]
        try:
            await asyncio.gather(self._jobs.synced.wait(), self._pods.synced.wait())
            while True:
                self._changed.clear()
                seen = self._look()
                if seen.made.over:
                    return await self._closed(seen)
                if seen.made.ended and not self._ending.is_set():
                    await self._not_again()
                await self._woken(seen)
        finally:
            left: list[asyncio.Task[Any]] = [*watching, *([self._reading] if self._reading else [])]
            await cancel_and_wait(*left)

    def _look(self) -> WorkloadState:
        whole = self._jobs.get(self._namespace, self._name)
        if whole is not None and whole["metadata"]["uid"] != self._made.uid:
            whole = None
        pods = self._pods.all()
        # A pod whose Job somebody deleted still has its end hooks to run, and is heard to its end.
        orphan = whole is None and pod_of(self._made, pods) is not None
        known = replace(self._made, ended=self._made.ended or self._ending.is_set() or orphan)
        seen = follow(known, whole, pods, [self._slot], now=datetime.now(UTC), before=self._before)
        self._made, (self._slot,), self._before = seen.made, seen.slots, seen.waiting
        if self._slot.seen.started is not None and self._reading is None and seen.pod is not None:
            pod = str(seen.pod["metadata"]["name"])
            self._log = LogReader(self._cluster, pod, self._namespace, CONTAINER, self._printed)
            self._reading = asyncio.ensure_future(self._log.read(self._has_ended))
        text = f"{seen.waiting.reason}: {seen.waiting.message}" if seen.waiting else ""
        if text and text != self._told:
            self._waits(text)
        self._told = text
        return seen

    async def _not_again(self) -> None:
        """Its pod is being deleted, and the cluster would put another in its place that begins anew."""
        with suppress(ClusterError):
            await end(self._cluster, self._job)

    async def _woken(self, seen: WorkloadState) -> None:
        wait = None if seen.wake is None else max((seen.wake - datetime.now(UTC)).total_seconds(), 0.05)
        asked = asyncio.ensure_future(self._ending.wait())
        changed = asyncio.ensure_future(self._changed.wait())
        waiting = {changed} if self._ending.is_set() else {changed, asked}
        try:
            await asyncio.wait(waiting, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (asked, changed):
                each.cancel()

    def _has_ended(self) -> bool:
        return self._over.is_set() or self._slot.seen.state is ContainerPhase.ENDED

    async def _read_on(self, log: LogReader, reading: asyncio.Task[LogEnd]) -> bool:
        """The rest of the log, for as long as some of it comes."""
        count = -1
        while not reading.done() and count < log.count:
            count = log.count
            await asyncio.wait({reading}, timeout=LAST_LINES)
        return reading.done() and reading.result().whole

    async def _closed(self, seen: WorkloadState) -> Ending:
        self._over.set()
        complete = True
        if self._log is not None and self._reading is not None:
            complete = await self._read_on(self._log, self._reading)
        found = self._slot.seen
        by_itself = found.reason is Reason.EXITED and found.exit_code is not None
        return Ending(
            exit_code=found.exit_code if by_itself else None,
            why="" if by_itself else found.detail or seen.why or str(found.reason),
            reason=found.reason,
            began=found.started is not None,
            log_lost=found.started is not None and not complete,
        )
