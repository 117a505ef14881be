"""That one service alone works on a WORKFLOW.md in a namespace: its name stands in a Lease, and is renewed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hookline import files
from hookline.errors import HooklineError, UsageError
from hookline.kube.errors import AlreadyThere, ClusterError, Conflict, NotThere
from hookline.kube.kinds import LEASE
from hookline.kube.lease import Leased, claimed, may_take, released
from hookline.tasks import cancel_and_wait

DURATION = 40
EVERY = 5.0
PATIENCE = 30.0
"""Seconds: how long the name stands without a renewal, when it is renewed, and when we give up on that."""

Object = dict[str, Any]


class LeaseLost(HooklineError):
    """Another may work on this now."""


@asynccontextmanager
async def alone(
    cluster: Leased, namespace: str, id: str, home: Path, say: Callable[[str], None]
) -> AsyncGenerator[asyncio.Task[None]]:
    """With the lease held; the task ends, with a LeaseLost, if it is lost. UsageError where another one lives.

    A service that was killed is followed at once by one of the same home, which a lock there keeps single.
    """
    name = f"hookline-serve-{id}"
    with _locked(home / f"serve-{namespace}-{id}.lock"):
        held = _Lease(cluster, namespace, name, _identity(home))
        await held.take(say)
        renewing = asyncio.ensure_future(held.renew())
        try:
            yield renewing
        finally:
            await cancel_and_wait(renewing)
            await held.release()


class _Lease:
    def __init__(self, cluster: Leased, namespace: str, name: str, identity: str) -> None:
        self._cluster, self._namespace, self._name = cluster, namespace, name
        self._identity = identity

    async def take(self, say: Callable[[str], None]) -> None:
        """Put our name in, once it is nobody's. Who renews meanwhile lives, and is not waited for."""
        seen: tuple[Any, Any] | None = None
        since = time.monotonic()
        while True:
            lease = await self._read()
            now = _said(lease, "holderIdentity"), _said(lease, "renewTime")
            if may_take(lease, self._identity, time.monotonic() - since):
                with suppress(AlreadyThere, Conflict):
                    await self._put(lease)
                    return
            elif seen is None:
                say(
                    f"{now[0]} worked on this in the namespace {self._namespace!r}; waits whether it still does"
                )
            elif now != seen:
                raise UsageError(
                    f"{now[0]} works on this in the namespace {self._namespace!r} already; end it, or give this one"
                    " another workspace.root or another namespace"
                )
            seen = now
            await asyncio.sleep(1.0)

    async def renew(self) -> None:
        """Until it cannot be done any more: then it raises."""
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(EVERY)
            asked = time.monotonic()
            try:
                async with asyncio.timeout(max(renewed + PATIENCE - asked, 0.1)):
                    lease = await self._read()
                    if _said(lease, "holderIdentity") not in (self._identity, ""):
                        raise LeaseLost(f"{_said(lease, 'holderIdentity')} works on this now")
                    await self._put(lease)
                renewed = asked
            except (ClusterError, TimeoutError) as exc:
                if time.monotonic() - renewed > PATIENCE:
                    raise LeaseLost(
                        f"the lease {self._name} could not be renewed for {PATIENCE:g} s ({exc}); what is at work in"
                        " the cluster goes on, and the next service takes it up"
                    ) from exc

    async def release(self) -> None:
        # Who cannot tell need not: the lease runs out by itself.
        with suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(EVERY):
                lease = await self._read()
                if lease is not None and _said(lease, "holderIdentity") == self._identity:
                    await self._cluster.replace(released(lease))

    async def _read(self) -> Object | None:
        return await self._cluster.get(LEASE, self._name, self._namespace)

    async def _put(self, lease: Object | None) -> None:
        mine = claimed(
            lease,
            self._identity,
            name=self._name,
            namespace=self._namespace,
            duration=DURATION,
            now=datetime.now(UTC),
        )
        try:
            await (self._cluster.create if lease is None else self._cluster.replace)(mine)
        except NotThere as exc:
            raise UsageError(
                f"there is no namespace {self._namespace!r}; kubectl create namespace {self._namespace}"
            ) from exc


def _said(lease: Mapping[str, Any] | None, name: str) -> str:
    spec: Mapping[str, Any] = (lease or {}).get("spec") or {}
    return str(spec.get(name) or "")


def _identity(home: Path) -> str:
    mark = hashlib.sha256(os.path.realpath(home).encode()).hexdigest()[:8]
    return f"{socket.gethostname()}_{mark}"


@contextmanager
def _locked(file: Path) -> Generator[None]:
    files.private_folder(file.parent)
    with ExitStack() as stack:
        try:
            stack.enter_context(files.locked_file(file, wait=False))
        except BlockingIOError:
            raise UsageError(
                "another process of this machine works on this already; end it, or give this one another"
                " workspace.root or another namespace"
            ) from None
        yield
