"""Of several operators one acts: the one whose name stands in a Lease.

Nobody compares clocks of two machines: whoever waits counts from when it saw the lease change, and whoever holds it
counts from before it asked for the renewal. So the holder has stopped before another may begin.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Protocol, cast

from hookline.errors import UsageError
from hookline.kube.errors import AlreadyThere, ClusterError, Conflict, NotThere
from hookline.kube.kinds import LEASE, Kind, Object
from hookline.tasks import cancel_and_wait
from hookline.times import utc_text

logger = logging.getLogger("hookline.kube")


class Leased(Protocol):
    """What is asked of a cluster here."""

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None: ...
    async def create(self, obj: Object) -> Object: ...
    async def replace(self, obj: Object) -> Object: ...


def may_take(lease: Mapping[str, Any] | None, identity: str, unchanged: float) -> bool:
    """Whether this one may put its name in: nobody's, its own, or not renewed for as long as it was lent."""
    spec = _spec(lease)
    holder = spec.get("holderIdentity")
    return not holder or holder == identity or unchanged >= float(spec.get("leaseDurationSeconds") or 0)


def claimed(
    lease: Mapping[str, Any] | None, identity: str, *, name: str, namespace: str, duration: int, now: datetime
) -> Object:
    """The lease with this one's name in it, renewed now."""
    spec = dict(_spec(lease))
    time = utc_text(now, timespec="microseconds")
    if spec.get("holderIdentity") != identity:
        spec["acquireTime"] = time
        spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (lease is not None)
    spec |= {"holderIdentity": identity, "leaseDurationSeconds": duration, "renewTime": time}
    head = (lease or {}).get("metadata") or {"name": name, "namespace": namespace}
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": head, "spec": spec}


def released(lease: Mapping[str, Any]) -> Object:
    """The lease as nobody's, so that the next need not wait."""
    spec = {**_spec(lease), "holderIdentity": "", "leaseDurationSeconds": 1}
    return {**lease, "spec": spec}


def _spec(lease: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", (lease or {}).get("spec") or {})


class Lead:
    """`duration` is how long a lease is lent, `every` when it is renewed, `patience` when the holder gives up.

    All in seconds. What is held must end soon after it is cancelled: within `duration` less `patience`.
    """

    def __init__(
        self,
        cluster: Leased,
        namespace: str,
        name: str,
        *,
        identity: str = "",
        duration: int = 15,
        every: float = 2.0,
        patience: float = 10.0,
    ) -> None:
        if not 0 < every < patience < duration:
            raise UsageError(
                f"every={every!r}, patience={patience!r}, duration={duration!r}; each must be less than the next"
            )
        self.identity = identity or f"{socket.gethostname()}_{secrets.token_hex(4)}"
        self.leading = False
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._duration = duration
        self._every = every
        self._patience = patience
        self._lease: Object | None = None
        self._changed = monotonic()
        self._renewed = monotonic()

    async def hold(self, body: Callable[[], Awaitable[None]]) -> None:
        """Runs `body` whenever and as long as the lease is ours; returns when it does."""
        while True:
            await self._wait()
            logger.info("%s: leads as %s", self._name, self.identity)
            if await self._led(body):
                return
            logger.warning("%s: %s leads no more", self._name, self.identity)

    async def _wait(self) -> None:
        out = False
        while True:
            try:
                if await self._taken():
                    return
                out = False
            except ClusterError as error:
                if not out:
                    logger.warning("%s: cannot read or take the lease, and tries on: %s", self._name, error)
                out = True
            await asyncio.sleep(min(self._every / 2, 2.0))

    async def _led(self, body: Callable[[], Awaitable[None]]) -> bool:
        """Whether the body came to its end, rather than the lease."""
        work = asyncio.ensure_future(body())
        renewal = asyncio.create_task(self._renew())
        self.leading = True
        try:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            ended = work.done()
        finally:
            await self._leave(work, renewal)
        for task in (work, renewal):
            if not task.cancelled():
                task.result()
        if ended:
            await work
        return ended

    async def _leave(self, work: asyncio.Future[None], renewal: asyncio.Task[None]) -> None:
        try:
            # The lease is renewed for as long as the body takes to end.
            await cancel_and_wait(work)
        finally:
            self.leading = False
            await cancel_and_wait(renewal)
            # Cancelled a second time, we leave with the body at work: then the lease has to run out.
            if work.done():
                await self._release()

    async def _renew(self) -> None:
        """Returns when the lease is not ours any more, or could not be renewed for too long."""
        while True:
            await asyncio.sleep(self._every)
            left = self._renewed + self._patience - monotonic()
            try:
                async with asyncio.timeout(left):
                    if not await self._renewed_again():
                        return
            except TimeoutError:
                logger.warning("%s: the lease could not be renewed for %g s", self._name, self._patience)
                return

    async def _renewed_again(self) -> bool:
        while True:
            try:
                return await self._taken()
            except ClusterError as error:
                logger.debug("%s: not renewed: %s", self._name, error)
            await asyncio.sleep(self._every / 5)

    async def _taken(self) -> bool:
        """Whether the lease is ours now. What is known of it is tried first, and read anew if that is old."""
        if not self._held():
            await self._read()
        for _ in range(2):
            if not may_take(self._lease, self.identity, monotonic() - self._changed):
                return False
            try:
                await self._claim()
                return True
            except (AlreadyThere, Conflict, NotThere):
                await self._read()
        return False

    def _held(self) -> bool:
        return self._lease is not None and _spec(self._lease).get("holderIdentity") == self.identity

    async def _read(self) -> None:
        lease = await self._cluster.get(LEASE, self._name, self._namespace)
        if _spec(lease) != _spec(self._lease):
            self._changed = monotonic()
        self._lease = lease

    async def _claim(self) -> None:
        asked = monotonic()
        mine = claimed(
            self._lease,
            self.identity,
            name=self._name,
            namespace=self._namespace,
            duration=self._duration,
            now=datetime.now(UTC),
        )
        send = self._cluster.create if self._lease is None else self._cluster.replace
        self._lease = await send(mine)
        self._renewed = asked

    async def _release(self) -> None:
        # Who cannot tell need not: the lease runs out by itself.
        with suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(self._every):
                try:
                    await self._give_back()
                except Conflict:
                    # A renewal that was cancelled has arrived nevertheless.
                    await self._read()
                    await self._give_back()
        self._lease = None

    async def _give_back(self) -> None:
        if self._lease is not None and self._held():
            await self._cluster.replace(released(self._lease))
