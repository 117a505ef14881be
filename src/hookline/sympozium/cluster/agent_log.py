"""The log of an AgentRun's agent, and what it tells there of what it does inside.

Nobody needs it to follow a run: whoever may not read the log, or comes too late for it, is told so, and that is all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hookline.engine.record import Record
from hookline.journal.intake import MOST_BYTES, Intake, lacking
from hookline.journal.masking import Mask
from hookline.journal.stream import split_line
from hookline.kube.cache import Store
from hookline.kube.logs import GONE, LogReader
from hookline.kube.objects import POD, ApiRefused, ClusterError, items, owners, within
from hookline.kube.pod_state import ContainerPhase, container_state
from hookline.sympozium.cluster.objects import AGENT, RECORDS, RUN_LABEL, names
from hookline.sympozium.cluster.records import agent_has_begun, inner_scopes_of, would_tell
from hookline.tasks import cancel_and_wait

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

Object = Mapping[str, Any]

_PAUSE = 1.0


async def read_agent_log(cluster: Cluster, run: Object, took: Callable[[str | None], None]) -> str:
    """Bring the line of each record, from the first one until the agent has ended. Whenever they come from the first one
    on again, `took` gets None before. Returns why some of them may never come; empty where all came."""
    return await _AgentLog(cluster, run, took).whole()


class InnerRecords:
    """The records from inside an agent, read from its log, on their way to the journal and the screen."""

    def __init__(self, run: Object, mask: Mask) -> None:
        self._scopes = inner_scopes_of(run, mask)
        self._intake = Intake(self._keep, self._scopes.admit, trusted=False, most=MOST_BYTES)
        self._known: set[tuple[type, str]] = set()
        self._waiting: list[Record] = []
        self.over = bool(run["spec"].get("dryRun"))
        self.why = ""
        """What keeps the rest from being heard."""

    async def take(self, line: str | None) -> None:
        """Take in a line of the log; None before all of them come again."""
        if line is None:
            self._scopes.again()
            self._intake.again()
        else:
            await self._intake.take(line)

    def new(self) -> list[Record]:
        """Those that nobody has had."""
        new, self._waiting = self._waiting, []
        return new

    def missing(self, run: Object) -> list[str]:
        """What is to be told of those that never come, once that is certain."""
        if not (self.over and would_tell(run) and agent_has_begun(run)):
            return []
        why = [f"what the agent did inside is not all on record: {self.why}"] if self.why else []
        return [*why, *lacking(self._intake.dropped, self._intake.missing)]

    async def _keep(self, record: Record, _size: int) -> bool:
        key = (type(record), record.scope_id)
        if key in self._known:
            return False
        self._known.add(key)
        self._waiting.append(record)
        return True


class _AgentLog:
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
        except ApiRefused as exc:
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
            await cancel_and_wait(watching)

    async def _started(self) -> Object | None:
        """The pod when its agent has begun; None where it went before that was seen."""
        while True:
            self._changed.clear()
            pod = self._pod()
            if pod is None and self._first:
                return None
            if pod is not None and container_state(pod, AGENT).state is not ContainerPhase.WAITING:
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
        log = LogReader(self._cluster, name, self._namespace, AGENT, self._line, lambda: self._took(None))
        return await log.read(self._has_ended, self._wait)

    async def _line(self, line: str) -> None:
        _, ours = split_line(line)
        if ours is not None:
            self._took(ours)

    def _has_ended(self) -> bool:
        pod = self._pod()
        return pod is None or container_state(pod, AGENT).state is ContainerPhase.ENDED

    async def _wait(self) -> None:
        """Until the pod says that its container has ended, which comes a moment after the log's end; not for long."""
        if self._has_ended():
            await asyncio.sleep(_PAUSE)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE):
                while not self._has_ended():
                    self._changed.clear()
                    await self._changed.wait()


def _tells(pod: Object) -> bool:
    """Whether it was made to tell what it does; an agent of somebody else's does not."""
    containers = items(within(pod, "spec").get("containers"))
    given = (each for box in containers if box.get("name") == AGENT for each in items(box.get("env")))
    return any((each.get("name"), each.get("value")) == (RECORDS, "1") for each in given)
