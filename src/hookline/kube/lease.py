"""Leader election by a Lease: of several processes one works, and the next begins only after it has ended.

Clocks of different machines are never compared: a waiting process counts from when it saw the lease change, the holder
from before it sent the renewal. So the holder has stopped before another may begin.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from hookline import files
from hookline.engine.plain import utc_text
from hookline.errors import HooklineError, UsageError
from hookline.kube.objects import (
    LEASE,
    AlreadyThere,
    ClusterError,
    Conflict,
    Fields,
    NotThere,
    Object,
    within,
)
from hookline.tasks import cancel_and_wait

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

logger = logging.getLogger("hookline.kube")


class LeaseHeld(UsageError):
    """Another process holds the lease, and renews it."""

    def __init__(self, holder: str, name: str) -> None:
        super().__init__(f"{holder} holds the lease {name}")
        self.holder = holder


class LeaseLost(HooklineError):
    """The lease could not be renewed, or another process holds it now."""


def may_take(lease: Fields | None, identity: str, unchanged: float) -> bool:
    """True if the lease is free, ours, or expired: `unchanged` are the seconds since it was last seen to change."""
    spec = _spec(lease)
    holder = spec.get("holderIdentity")
    return not holder or holder == identity or unchanged >= float(spec.get("leaseDurationSeconds") or 0)


def claimed(
    lease: Fields | None, identity: str, *, name: str, namespace: str, duration: int, now: datetime
) -> Object:
    """The lease as held by `identity`, renewed now."""
    spec = dict(_spec(lease))
    time = utc_text(now, timespec="microseconds")
    if spec.get("holderIdentity") != identity:
        spec["acquireTime"] = time
        spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (lease is not None)
    spec |= {"holderIdentity": identity, "leaseDurationSeconds": duration, "renewTime": time}
    head = (lease or {}).get("metadata") or {"name": name, "namespace": namespace}
    return {**LEASE.head, "metadata": head, "spec": spec}


def released(lease: Fields) -> Object:
    """The lease as held by nobody, so that the next holder need not wait."""
    spec = {**_spec(lease), "holderIdentity": "", "leaseDurationSeconds": 1}
    return {**lease, "spec": spec}


def _spec(lease: Fields | None) -> Fields:
    return within(lease or {}, "spec")


@dataclass(eq=False)
class Lease:
    """A lease that is valid for `duration` seconds, renewed `every` so many, given up when that fails for `patience`.

    A body that runs under it must end within `duration` less `patience` after it is cancelled. With a `lock` file, the
    identity is this machine and the file's folder, so that the next process there can follow a killed one at once; the
    lock excludes a second process.
    """

    cluster: Cluster
    namespace: str
    name: str
    _: KW_ONLY
    identity: str = ""
    lock: Path | None = None
    duration: int = 15
    every: float = 2.0
    patience: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.every < self.patience < self.duration:
            raise UsageError(
                f"every={self.every!r}, patience={self.patience!r}, duration={self.duration!r};"
                " each must be less than the next"
            )
        mark = secrets.token_hex(4)
        if self.lock:
            mark = hashlib.sha256(os.path.realpath(self.lock.parent).encode()).hexdigest()[:8]
        self.identity = self.identity or f"{socket.gethostname()}_{mark}"
        self._lease: Object | None = None
        self._changed = monotonic()
        self._renewed = monotonic()
        self._why = ""
        """The last failure of a renewal."""

    async def hold(self, body: Callable[[], Awaitable[None]]) -> None:
        """Runs `body` whenever and as long as the lease is ours; returns when the body does."""
        while True:
            async with self.held() as renewal:
                logger.info("%s: %s is the leader", self.name, self.identity)
                if await self._run(body, renewal):
                    return
            try:
                renewal.result()
            except LeaseLost as lost:
                logger.warning("%s: %s is no longer the leader: %s", self.name, self.identity, lost)

    @asynccontextmanager
    async def held(self, *, wait: bool = True) -> AsyncGenerator[asyncio.Task[None]]:
        """Takes the lease and renews it in a task, which raises LeaseLost if the lease is lost.

        Waits while another process holds it. Without `wait`, raises LeaseHeld once the other process is seen to renew
        it; until then that process may have been killed.
        """
        with self._locked():
            await (self._wait() if wait else self._take())
            renewal = asyncio.create_task(self._renew())
            try:
                yield renewal
            finally:
                await cancel_and_wait(renewal)
                await self._release()

    @contextmanager
    def _locked(self) -> Generator[None]:
        if self.lock is None:
            yield
            return
        files.private_folder(self.lock.parent)
        with ExitStack() as stack:
            try:
                stack.enter_context(files.locked_file(self.lock, wait=False))
            except BlockingIOError:
                raise LeaseHeld("another process of this machine", self.name) from None
            yield

    async def _wait(self) -> None:
        out = False
        while True:
            try:
                if await self._taken():
                    return
                out = False
            except ClusterError as error:
                if not out:
                    logger.warning("%s: cannot read or take the lease; retrying: %s", self.name, error)
                out = True
            await asyncio.sleep(min(self.every / 2, 2.0))

    async def _take(self) -> None:
        first: Fields | None = None
        while not await self._taken():
            holder = str(_spec(self._lease).get("holderIdentity"))
            if first is None:
                first = _spec(self._lease)
                logger.warning(
                    "%s: held by %s in the namespace %r; waiting to see if it is still alive",
                    self.name,
                    holder,
                    self.namespace,
                )
            elif _spec(self._lease) != first:
                raise LeaseHeld(holder, self.name)
            await asyncio.sleep(min(self.every / 2, 1.0))

    async def _run(self, body: Callable[[], Awaitable[None]], renewal: asyncio.Task[None]) -> bool:
        """True if the body ended, False if the lease was lost first."""
        work = asyncio.ensure_future(body())
        try:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            ended = work.done()
        finally:
            try:
                # The lease is renewed for as long as the body takes to end.
                await cancel_and_wait(work)
            finally:
                if not work.done():
                    # Cancelled a second time, while the body still runs: the lease has to expire.
                    self._lease = None
        if ended or not work.cancelled():
            await work
        return ended

    async def _renew(self) -> None:
        """Renews the lease; LeaseLost once another process holds it, or renewals failed for too long."""
        while True:
            await asyncio.sleep(self.every)
            left = self._renewed + self.patience - monotonic()
            try:
                async with asyncio.timeout(left):
                    await self._renew_once()
            except TimeoutError as error:
                raise LeaseLost(
                    f"the lease {self.name} could not be renewed for {self.patience:g} s{self._why}; work in"
                    " the cluster continues, and the next holder takes it over"
                ) from error

    async def _renew_once(self) -> None:
        while True:
            try:
                if await self._taken():
                    self._why = ""
                    return
                raise LeaseLost(f"{_spec(self._lease).get('holderIdentity')} holds the lease {self.name} now")
            except ClusterError as error:
                self._why = f" ({error})"
                logger.debug("%s: not renewed: %s", self.name, error)
            await asyncio.sleep(self.every / 5)

    async def _taken(self) -> bool:
        """Takes or renews the lease from its last known state, which is read again if it is old; True if it is ours."""
        if not self._held():
            await self._read()
        for _ in range(2):
            if not may_take(self._lease, self.identity, monotonic() - self._changed):
                return False
            try:
                await self._claim()
                return True
            except (AlreadyThere, Conflict):
                await self._read()
            except NotThere:
                if self._lease is None:
                    raise
                # It was deleted.
                await self._read()
        return False

    def _held(self) -> bool:
        return self._lease is not None and _spec(self._lease).get("holderIdentity") == self.identity

    async def _read(self) -> None:
        lease = await self.cluster.get(LEASE, self.name, self.namespace)
        if _spec(lease) != _spec(self._lease):
            self._changed = monotonic()
        self._lease = lease

    async def _claim(self) -> None:
        asked = monotonic()
        mine = claimed(
            self._lease,
            self.identity,
            name=self.name,
            namespace=self.namespace,
            duration=self.duration,
            now=datetime.now(UTC),
        )
        send = self.cluster.create if self._lease is None else self.cluster.replace
        self._lease = await send(mine)
        self._renewed = asked

    async def _release(self) -> None:
        # If this fails the lease expires by itself.
        with suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(self.every):
                try:
                    await self._give_back()
                except Conflict:
                    # The server has received a renewal that was cancelled here.
                    await self._read()
                    await self._give_back()
        self._lease = None

    async def _give_back(self) -> None:
        if self._lease is not None and self._held():
            await self.cluster.replace(released(self._lease))
