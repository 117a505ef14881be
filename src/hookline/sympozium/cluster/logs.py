"""What the agent of an AgentRun prints of what it does inside, heard by somebody outside while it does it.

Nobody needs it to follow a run: whoever may not read the log, or comes too late for it, is told so, and that is all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from hookline.journal.intake import parted
from hookline.kube.cache import Store
from hookline.kube.errors import ClusterError, NotThere, Refused
from hookline.kube.fields import items, owners, within
from hookline.kube.kinds import POD
from hookline.kube.pod_state import container_seen
from hookline.sympozium.cluster.objects import AGENT, RECORDS, RUN_LABEL, names
from hookline.sympozium.phases import State

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

__all__ = ["hear"]

Object = Mapping[str, Any]

GONE = "its pod was gone before its log could be read to the end"
_FORBIDDEN = 403
_PAUSE = 1.0
_LOST = ("rpc error: code = NotFound", "unable to retrieve container logs for ")
"""What a kubelet says, as if it were printed, where it cannot find the container any more."""


async def hear(cluster: Cluster, run: Object, took: Callable[[str | None], None]) -> str:
    """Bring the line of each record, from the first one until the agent has ended. Whenever they come from the first one
    on again, `took` gets None before. Returns why some of them may never come; empty where all came."""
    return await _Hearing(cluster, run, took).whole()


class _Hearing:
    def __init__(self, cluster: Cluster, run: Object, took: Callable[[str | None], None]) -> None:
        metadata = run["metadata"]
        self._cluster, self._took = cluster, took
        self._namespace = str(metadata["namespace"])
        made = names(metadata["name"])
        self._owners = (made.agent, made.sandbox)
        self._labels = {RUN_LABEL: str(metadata["name"]), "sympozium.ai/component": "agent-run"}
        self._changed = asyncio.Event()
        self._first = ""
        """The uid of the pod that counts; another in its place would begin anew."""
        self._pods = Store(
            cluster,
            POD,
            namespace=self._namespace,
            labels=self._labels,
            on_change=lambda before, after: self._changed.set(),
        )

    async def whole(self) -> str:
        try:
            await self._cluster.list(POD, self._namespace, self._labels)
        except Refused as exc:
            return f"its pod may not be looked for: {exc.message}"
        except ClusterError:
            pass  # tried again below, for as long as it takes
        watching = asyncio.create_task(self._pods.run())
        try:
            pod = await self._started()
            if pod is None:
                return GONE
            return await self._read(str(pod["metadata"]["name"])) if _tells(pod) else ""
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _started(self) -> Object | None:
        """The pod when its agent has begun; None where it went before that was seen."""
        while True:
            self._changed.clear()
            pod = self._pod()
            if pod is None and self._first:
                return None
            if pod is not None and container_seen(pod, AGENT).state is not State.WAITING:
                return pod
            await self._changed.wait()

    def _pod(self) -> Object | None:
        own = [
            pod
            for pod in self._pods.all()
            if any(owner.get("name") in self._owners for owner in owners(pod))
            and self._first in ("", pod["metadata"]["uid"])
        ]
        found = min(own, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)
        self._first = found["metadata"]["uid"] if found is not None else self._first
        return found

    async def _read(self, name: str) -> str:
        whole = False
        while True:
            try:
                whole = await self._read_once(name)
            except NotThere:
                return "" if whole else GONE
            except Refused as exc:
                if exc.status == _FORBIDDEN:
                    return f"its log may not be read: {exc.message}"
            except ClusterError:
                whole = False
            # The log ends a moment before the pod says that its container has.
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE):
                    await self._ended()
            pod = self._pod()
            if whole and (pod is None or container_seen(pod, AGENT).state is State.ENDED):
                return ""

    async def _read_once(self, name: str) -> bool:
        """Whether it came to an end in good order."""
        whole = True
        self._took(None)
        async with aclosing(self._cluster.follow_log(name, self._namespace, AGENT)) as lines:
            async for line in lines:
                others, records = parted(line)
                whole = not others.startswith(_LOST)
                for each in records:
                    self._took(each)
        return whole

    async def _ended(self) -> None:
        while (pod := self._pod()) is not None and container_seen(pod, AGENT).state is not State.ENDED:
            self._changed.clear()
            await self._changed.wait()


def _tells(pod: Object) -> bool:
    """Whether it was made to tell what it does; an agent of somebody else's does not."""
    containers = items(within(pod, "spec").get("containers"))
    given = (each for box in containers if box.get("name") == AGENT for each in items(box.get("env")))
    return any((each.get("name"), each.get("value")) == (RECORDS, "1") for each in given)
