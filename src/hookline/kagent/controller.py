"""Keeps what kagent's Agents come to: makes their objects, changes them when the agent changes, and tells how they fare.

Level-based like the operator for runs, and run by it. What belongs to somebody else is not touched: an object is ours when
it says so and names the agent that is there as its owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from hookline.engine.record import Journal
from hookline.errors import UsageError
from hookline.journal.stream import MARK
from hookline.kagent.objects import (
    APPLIED,
    CONFIG_HASH,
    HOOKS_INIT,
    LABEL,
    MANAGER,
    Pods,
    compiled,
    has_hooks,
)
from hookline.kagent.records import Listener
from hookline.kube.cache import Store
from hookline.kube.client import Cluster
from hookline.kube.errors import AlreadyThere, ClusterError, Conflict, NotThere, Refused
from hookline.kube.fields import items, mapping, owners, within
from hookline.kube.kinds import (
    ACCOUNT,
    DEPLOYMENT,
    KAGENT,
    MCP_SERVER,
    MODEL_CONFIG,
    POD,
    REMOTE_MCP_SERVER,
    SECRET,
    SERVICE,
    Kind,
    kind_of,
)
from hookline.kube.pod_state import trouble
from hookline.tasks import backoff
from hookline.times import utc_text

logger = logging.getLogger("hookline.kube")

Object = dict[str, Any]
Key = tuple[str, str]

RESYNC = 120.0
_MISSING_KIND = 15.0
_LONGEST_PAUSE = 30.0
_OWN = f"app=kagent,app.kubernetes.io/managed-by={MANAGER}"
_THEIRS = (KAGENT, MODEL_CONFIG, REMOTE_MCP_SERVER, MCP_SERVER)
_LABELLED = (DEPLOYMENT, POD)
_MADE = (DEPLOYMENT, SERVICE, SECRET, ACCOUNT)
# Of these a part is the cluster's own: an address, a token.
_PATCHED = (SERVICE, ACCOUNT)
_LONGEST_MESSAGE = 4000
_FALLBACK = 2048
"""Bytes of a log that the kubelet takes for a message."""


class Condition(NamedTuple):
    type: str
    status: bool
    reason: str
    message: str


def selector_of(text: str) -> tuple[str, str] | None:
    """`LABEL=VALUE` as the two; nothing selects all agents with hooks."""
    if not text:
        return None
    label, equals, value = text.partition("=")
    if not label or not equals or "," in text:
        raise UsageError(f"{text!r} selects no agents; write LABEL=VALUE")
    return label, value


def selected(agent: Mapping[str, Any], selector: tuple[str, str] | None) -> bool:
    """Whether an agent is for us: it has the label, or where none is given, it has hooks."""
    if selector is None:
        return has_hooks(agent)
    label, value = selector
    return within(agent, "metadata", "labels").get(label) == value


class Agents:
    """One that acts. `namespaces` are those it looks at, none means all; what pods tell of their runs goes to `journal`."""

    def __init__(
        self,
        cluster: Cluster,
        pods: Pods,
        *,
        selector: str = "",
        namespaces: Sequence[str] = (),
        journal: Journal | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        self._cluster = cluster
        self._pods = pods
        self._selector = selector_of(selector)
        self._listener = Listener(cluster, journal, self._speaking) if journal is not None else None
        self._due: dict[Key, None] = {}
        self._some = asyncio.Event()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._stores = {
            kind: [
                Store(
                    cluster,
                    kind,
                    namespace=each,
                    labels=_OWN if kind in _LABELLED else None,
                    on_change=lambda before, after, kind=kind: self._noticed(kind, before, after),
                )
                for each in (namespaces or (None,))
            ]
            for kind in (*_THEIRS, *_LABELLED)
        }

    async def run(self) -> None:
        """Acts until it is cancelled; what is half done by then is found by the next one."""
        try:
            async with asyncio.TaskGroup() as group:
                for kind, stores in self._stores.items():
                    for store in stores:
                        group.create_task(self._kept(kind, store))
                for stores in self._stores.values():
                    for store in stores:
                        await store.synced.wait()
                self.ready.set()
                group.create_task(self._looked_at_all())
                if self._listener is not None:
                    group.create_task(self._listener.run())
                while True:
                    await self._worked(await self._next())
        finally:
            self.ready.clear()
            for timer in self._timers.values():
                timer.cancel()

    async def _kept(self, kind: Kind, store: Store) -> None:
        """A store that runs for ever; of a kind that the cluster does not have, from when it has it."""
        while kind in _THEIRS:
            with contextlib.suppress(ClusterError):
                try:
                    await self._cluster.list(kind, store.namespace)
                    break
                except NotThere:
                    # There are none of them, and that is known as well.
                    store.synced.set()
            await asyncio.sleep(_MISSING_KIND)
        await store.run()

    async def _looked_at_all(self) -> None:
        while True:
            for agent in self._all(KAGENT):
                self._wake(_key(agent))
            await asyncio.sleep(RESYNC)

    def _noticed(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        found = after or before
        if found is None or not self.ready.is_set():
            return
        namespace, name = _key(found)
        if kind is POD and self._listener is not None:
            self._listener.wake()
        if kind in _LABELLED:
            self._wake((namespace, str(within(found, "metadata", "labels").get(LABEL) or name)))
            return
        if kind is KAGENT:
            self._wake((namespace, name))
        if (before or {}).get("spec") == (after or {}).get("spec"):
            return
        # Others of the namespace may refer to it.
        for agent in self._all(KAGENT):
            if _key(agent)[0] == namespace:
                self._wake(_key(agent))

    def _wake(self, key: Key) -> None:
        self._due[key] = None
        self._some.set()

    async def _next(self) -> Key:
        while not self._due:
            self._some.clear()
            await self._some.wait()
        key = next(iter(self._due))
        del self._due[key]
        return key

    async def _worked(self, key: Key) -> None:
        try:
            await self._keep(key)
            self._failures.pop(key, None)
        except ClusterError as exc:
            self._try_again(key, exc)
        except Exception:
            # The outermost loop: one agent's trouble, whatever it is, is no other's.
            logger.exception("Agent %s/%s", *key)
            self._try_again(key, None)

    def _try_again(self, key: Key, why: ClusterError | None) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = backoff(failures, first=0.5, longest=_LONGEST_PAUSE)
        if why is not None:
            level = logging.WARNING if pause > 4 else logging.INFO
            logger.log(level, "Agent %s/%s: tried again in %g s: %s", *key, pause, why)
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(pause, self._wake, key)

    async def _keep(self, key: Key) -> None:
        agent = self._one(KAGENT, *key)
        if agent is None or agent["metadata"].get("deletionTimestamp"):
            return
        if not selected(agent, self._selector):
            await self._left(agent)
            return
        made = compiled(agent, self._one, self._pods)
        if made.problems:
            running = " What was made of it before still runs." if self._deployment(agent) else ""
            said = "; ".join(made.problems)
            await self._tell(agent, Condition("Accepted", False, "NotValid", f"{said}.{running}"))
            return
        try:
            taken = [each for obj in made.objects if (each := await self._put(agent, obj))]
        except (Conflict, NotThere):
            raise
        except Refused as exc:
            await self._tell(agent, Condition("Accepted", False, "Refused", str(exc)))
            raise
        if taken:
            said = f"{', '.join(taken)}: of that name there is one that is not ours, and it is left alone"
            await self._tell(agent, Condition("Accepted", False, "NameTaken", said))
            return
        notes = "; ".join(made.notes) or "the agent can be run"
        await self._tell(agent, Condition("Accepted", True, "Accepted", notes))

    async def _put(self, agent: Object, wanted: Object) -> str:
        """Makes an object, or what has changed of it; its kind and name where it is somebody else's."""
        kind, head = kind_of(wanted), wanted["metadata"]
        have = await self._cluster.get(kind, head["name"], head["namespace"])
        if have is None:
            with contextlib.suppress(AlreadyThere):
                self._changed(await self._cluster.create(wanted))
                logger.info("Agent %s/%s: made its %s", *_key(agent), kind.kind)
                return ""
            have = await self._cluster.get(kind, head["name"], head["namespace"])
        if have is None or not _is_ours(have, agent):
            return f"{kind.kind} {head['name']!r}"
        if within(have, "metadata", "annotations").get(APPLIED) == head["annotations"][APPLIED]:
            return ""
        version = str(have["metadata"].get("resourceVersion") or "")
        if kind in _PATCHED:
            part = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind")}
            put = await self._cluster.patch(
                kind, head["name"], head["namespace"], part, resource_version=version
            )
        else:
            put = await self._cluster.replace({**wanted, "metadata": {**head, "resourceVersion": version}})
        self._changed(put)
        logger.info("Agent %s/%s: changed its %s", *_key(agent), kind.kind)
        return ""

    async def _left(self, agent: Object) -> None:
        """Removes what we made of an agent that is for us no more: hooks that are taken away must not run on."""
        if self._deployment(agent) is None:
            return
        namespace, name = _key(agent)
        for kind in _MADE:
            have = await self._cluster.get(kind, name, namespace)
            if have is not None and _is_ours(have, agent):
                await self._cluster.delete(kind, name, namespace, uid=have["metadata"]["uid"])
                logger.info("Agent %s/%s: removed its %s", namespace, name, kind.kind)

    async def _tell(self, agent: Object, accepted: Condition) -> None:
        namespace, name = _key(agent)
        pods = [
            each for each in self._all(POD) if within(each, "metadata", "labels").get(LABEL) == name
            and _key(each)[0] == namespace
        ]  # fmt: skip
        ready = condition_of(self._deployment(agent), pods)
        if not accepted.status and ready.status:
            ready = Condition("Ready", False, accepted.reason, "not what the agent says now; see Accepted")
        status = _status(agent, [accepted, ready])
        if status != within(agent, "status"):
            told = await self._cluster.patch(
                KAGENT, name, namespace, {"status": status}, subresource="status"
            )
            self._changed(told)

    def _speaking(self) -> list[Object]:
        """The pods whose runs are told here; those of an agent that is no longer ours have their last words too."""
        return [pod for pod in self._all(POD) if self._is_heard(pod)]

    def _is_heard(self, pod: Object) -> bool:
        if self._listener is not None and self._listener.follows(pod):
            return True
        name = str(within(pod, "metadata", "labels").get(LABEL) or "")
        agent = self._one(KAGENT, _key(pod)[0], name)
        return agent is None or selected(agent, self._selector)

    def _deployment(self, agent: Object) -> Object | None:
        have = self._one(DEPLOYMENT, *_key(agent))
        return have if have is not None and _is_ours(have, agent) else None

    def _changed(self, obj: Object) -> None:
        for store in self._stores.get(kind_of(obj), ()):
            if store.namespace in (None, obj["metadata"].get("namespace")):
                store.put(obj)

    def _all(self, kind: Kind) -> list[Object]:
        return [each for store in self._stores[kind] for each in store.all()]

    def _one(self, kind: Kind, namespace: str, name: str) -> Object | None:
        found = (store.get(namespace, name) for store in self._stores[kind])
        return next((each for each in found if each is not None), None)


def condition_of(deployment: Mapping[str, Any] | None, pods: Sequence[Mapping[str, Any]]) -> Condition:
    """Whether the pods of now serve; where they do not, why, in the words of who knows."""
    if deployment is None:
        return Condition("Ready", False, "NotMade", "there are no pods for it yet")
    status, wanted = within(deployment, "status"), within(deployment, "spec").get("replicas", 1)
    current = (status.get("observedGeneration") or 0) >= (deployment["metadata"].get("generation") or 0)
    there = min(int(status.get(key) or 0) for key in ("updatedReplicas", "availableReplicas"))
    if current and there >= wanted and int(status.get("replicas") or 0) <= there:
        return Condition("Ready", True, "Ready", f"{there} of {wanted} pods serve")
    mark = within(deployment, "spec", "template", "metadata", "annotations").get(CONFIG_HASH)
    for pod in pods:
        if within(pod, "metadata", "annotations").get(CONFIG_HASH) != mark:
            continue
        if (found := _wrong_with(pod)) is not None:
            return Condition("Ready", False, *found)
    return Condition("Ready", False, "Starting", f"{there} of {wanted} pods serve")


def _wrong_with(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    status = within(pod, "status")
    for key in ("initContainerStatuses", "containerStatuses"):
        for each in items(status.get(key)):
            ended = within(each, "state", "terminated") or within(each, "lastState", "terminated")
            if not ended or not ended.get("exitCode") or within(each, "state", "running"):
                continue
            name = str(each.get("name"))
            said = _readable(str(ended.get("message") or "")) or str(ended.get("reason") or "")
            reason = "HooksNotFetched" if name == HOOKS_INIT else "Crashed"
            return reason, f"{name} ended with {ended['exitCode']}: {said}"
    found = trouble(pod)
    return (found.reason, f"{found.container}: {found.message}".removeprefix(": ")) if found else None


def _readable(log: str) -> str:
    """The end of a log without records; a line that was cut off at its beginning may be the rest of one."""
    # The mark of a record would count as the end of a line elsewhere.
    lines = log.strip().split("\n")
    cut = len(log.encode()) >= _FALLBACK and len(lines) > 1
    shown = [line.partition(MARK)[0] for line in lines[cut:]]
    return "\n".join(line for line in shown if line).strip()[-_LONGEST_MESSAGE:]


def _status(agent: Mapping[str, Any], conditions: Sequence[Condition]) -> Object:
    """With the moments of those that say the same as before."""
    before = {str(each.get("type")): each for each in items(within(agent, "status").get("conditions"))}
    generation = agent["metadata"].get("generation") or 0
    told: list[Object] = []
    for each in conditions:
        word = "True" if each.status else "False"
        known = mapping(before.get(each.type))
        since = known.get("lastTransitionTime") if known.get("status") == word else None
        told.append(
            {
                "type": each.type,
                "status": word,
                "reason": each.reason,
                "message": each.message,
                "observedGeneration": generation,
                "lastTransitionTime": since or utc_text(datetime.now(UTC)),
            }
        )
    return {"observedGeneration": generation, "conditions": told}


def _is_ours(obj: Mapping[str, Any], agent: Mapping[str, Any]) -> bool:
    label = within(obj, "metadata", "labels").get("app.kubernetes.io/managed-by")
    return label == MANAGER and any(each.get("uid") == agent["metadata"]["uid"] for each in owners(obj))


def _key(obj: Mapping[str, Any]) -> Key:
    return str(obj["metadata"].get("namespace") or ""), str(obj["metadata"]["name"])
