"""The controller of kagent's Agents: creates their objects, updates them with the agent, and writes its conditions.

Foreign objects are not touched: an object is ours if it has our label and the present agent as its owner.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from hookline.engine.plain import utc_text
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
from hookline.kagent.read import KINDS
from hookline.kagent.records import Listener
from hookline.kube import objects
from hookline.kube.client import Cluster
from hookline.kube.controller import Controller, Key, Watch
from hookline.kube.objects import Fields, Kind, Object, is_owned, items, kind_of, mapping, within
from hookline.kube.pod_state import statuses_of, trouble

logger = logging.getLogger("hookline.kube")

_OWN = f"app=kagent,app.kubernetes.io/managed-by={MANAGER}"
_LABELLED = (objects.DEPLOYMENT, objects.POD)
_WATCHES = (
    *(Watch(kind, optional=True) for kind in KINDS.values()),
    *(Watch(kind, _OWN) for kind in _LABELLED),
)
_MADE = (objects.DEPLOYMENT, objects.SERVICE, objects.NETWORK_POLICY, objects.SECRET, objects.ACCOUNT)
# The cluster sets fields of these itself: an address, a token.
_PATCHED = (objects.SERVICE, objects.ACCOUNT)
_LONGEST_MESSAGE = 4000
_FALLBACK = 2048
"""Bytes of a log that the kubelet uses as a termination message."""


class Condition(NamedTuple):
    type: str
    status: bool
    reason: str
    message: str


def selector_of(text: str) -> tuple[str, str] | None:
    """Label and value of `LABEL=VALUE`; None, for all agents with hooks, where the text is empty."""
    if not text:
        return None
    label, equals, value = text.partition("=")
    if not label or not equals or "," in text:
        raise UsageError(f"{text!r} is not a selector; write LABEL=VALUE")
    return label, value


def selected(agent: Fields, selector: tuple[str, str] | None) -> bool:
    """True if this controller runs the agent: it has the label, or, without a selector, it has hooks."""
    if selector is None:
        return has_hooks(agent)
    label, value = selector
    return within(agent, "metadata", "labels").get(label) == value


class AgentController(Controller):
    """Reconciles kagent's Agents; the records of their pods go to `journal`."""

    def __init__(
        self,
        cluster: Cluster,
        pods: Pods,
        *,
        selector: str = "",
        namespaces: Sequence[str] = (),
        journal: Journal | None = None,
    ) -> None:
        super().__init__(cluster, _WATCHES, namespaces=namespaces)
        self._pods = pods
        self._selector = selector_of(selector)
        self._listener = Listener(cluster, journal, self._recorded_pods) if journal is not None else None

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        return () if self._listener is None else (self._listener.run(),)

    def on_change(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        if kind is objects.POD and self._listener is not None:
            self._listener.wake()
        super().on_change(kind, before, after)

    def keys(self) -> Iterator[Key]:
        return map(Key.of, self.caches.all(objects.KAGENT))

    def keys_for(self, kind: Kind, before: Object | None, after: Object | None) -> Iterator[Key]:
        key = Key.of(after or before or {})
        if kind in _LABELLED:
            namespace, agent = _agent_key(after or before or {})
            yield Key(objects.KAGENT.kind, namespace, agent or key.name)
            return
        if kind is objects.KAGENT:
            yield key
        if (before or {}).get("spec") != (after or {}).get("spec"):
            # Other agents of the namespace may refer to it.
            yield from (each for each in self.keys() if each.namespace == key.namespace)

    async def reconcile(self, key: Key) -> None:
        agent = self.caches.get(objects.KAGENT, key.namespace, key.name)
        if agent is None or agent["metadata"].get("deletionTimestamp"):
            return
        if not selected(agent, self._selector):
            await self._remove(agent)
            return
        made = compiled(agent, self.caches.get, self._pods)
        if made.problems:
            running = " Its previous version still runs." if self._deployment(agent) else ""
            said = "; ".join(made.problems)
            await self._write_status(agent, Condition("Accepted", False, "NotValid", f"{said}.{running}"))
            return
        try:
            taken = [each for obj in made.objects if (each := await self._put(agent, obj))]
        except (objects.Conflict, objects.NotThere):
            raise
        except objects.ApiRefused as exc:
            await self._write_status(agent, Condition("Accepted", False, "Refused", str(exc)))
            raise
        if taken:
            said = f"{', '.join(taken)}: an object of this name exists that is not hookline's; it is left unchanged"
            await self._write_status(agent, Condition("Accepted", False, "NameTaken", said))
            return
        notes = "; ".join(made.notes) or "the agent can be run"
        await self._write_status(agent, Condition("Accepted", True, "Accepted", notes))

    async def _put(self, agent: Object, wanted: Object) -> str:
        """Creates or updates an object; returns its kind and name if it belongs to another owner."""
        kind, head = kind_of(wanted), wanted["metadata"]
        have = await self.cluster.get(kind, head["name"], head["namespace"])
        if have is None:
            with contextlib.suppress(objects.AlreadyThere):
                self.caches.put(await self.cluster.create(wanted))
                logger.info("%s %s/%s: made its %s", *Key.of(agent), kind.kind)
                return ""
            have = await self.cluster.get(kind, head["name"], head["namespace"])
        if have is None or not _is_ours(have, agent):
            return f"{kind.kind} {head['name']!r}"
        if within(have, "metadata", "annotations").get(APPLIED) == head["annotations"][APPLIED]:
            return ""
        version = str(have["metadata"].get("resourceVersion") or "")
        if kind in _PATCHED:
            part = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind")}
            put = await self.cluster.patch(
                kind, head["name"], head["namespace"], part, resource_version=version
            )
        else:
            put = await self.cluster.replace({**wanted, "metadata": {**head, "resourceVersion": version}})
        self.caches.put(put)
        logger.info("%s %s/%s: changed its %s", *Key.of(agent), kind.kind)
        return ""

    async def _remove(self, agent: Object) -> None:
        """Deletes the objects of an agent that is no longer selected: hooks that were removed must not run on."""
        if self._deployment(agent) is None:
            return
        _, namespace, name = Key.of(agent)
        for kind in _MADE:
            have = await self.cluster.get(kind, name, namespace)
            if have is not None and _is_ours(have, agent):
                await self.cluster.delete(kind, name, namespace, uid=have["metadata"]["uid"])
                logger.info("%s %s/%s: removed its %s", *Key.of(agent), kind.kind)

    async def _write_status(self, agent: Object, accepted: Condition) -> None:
        _, namespace, name = Key.of(agent)
        pods = [each for each in self.caches.all(objects.POD) if _agent_key(each) == (namespace, name)]
        ready = condition_of(self._deployment(agent), pods)
        if not accepted.status and ready.status:
            ready = Condition(
                "Ready", False, accepted.reason, "not up to date with the Agent; see the condition Accepted"
            )
        status = _status(agent, [accepted, ready])
        if status != within(agent, "status"):
            told = await self.cluster.patch(
                objects.KAGENT, name, namespace, {"status": status}, subresource="status"
            )
            self.caches.put(told)

    def _recorded_pods(self) -> list[Object]:
        """The pods whose records are taken, including those still followed of an agent that is no longer selected."""
        return [pod for pod in self.caches.all(objects.POD) if self._is_recorded(pod)]

    def _is_recorded(self, pod: Object) -> bool:
        if self._listener is not None and self._listener.follows(pod):
            return True
        agent = self.caches.get(objects.KAGENT, *_agent_key(pod))
        return agent is None or selected(agent, self._selector)

    def _deployment(self, agent: Object) -> Object | None:
        _, namespace, name = Key.of(agent)
        have = self.caches.get(objects.DEPLOYMENT, namespace, name)
        return have if have is not None and _is_ours(have, agent) else None


def _agent_key(obj: Fields) -> tuple[str, str]:
    """The namespace and name of the agent that an object was made for, by its label."""
    head = within(obj, "metadata")
    return str(head.get("namespace") or ""), str(within(head, "labels").get(LABEL) or "")


def condition_of(deployment: Fields | None, pods: Sequence[Fields]) -> Condition:
    """The condition Ready: true if the newest pods serve, else with the message of the cluster or the container."""
    if deployment is None:
        return Condition("Ready", False, "NotMade", "there are no pods for it yet")
    status, wanted = within(deployment, "status"), within(deployment, "spec").get("replicas", 1)
    current = (status.get("observedGeneration") or 0) >= (deployment["metadata"].get("generation") or 0)
    there = min(int(status.get(key) or 0) for key in ("updatedReplicas", "availableReplicas"))
    if current and there >= wanted and int(status.get("replicas") or 0) <= there:
        return Condition("Ready", True, "Ready", f"{there} of {wanted} pods are ready")
    mark = within(deployment, "spec", "template", "metadata", "annotations").get(CONFIG_HASH)
    for pod in pods:
        if within(pod, "metadata", "annotations").get(CONFIG_HASH) != mark:
            continue
        if (found := _failure_of(pod)) is not None:
            return Condition("Ready", False, *found)
    return Condition("Ready", False, "Starting", f"{there} of {wanted} pods are ready")


def _failure_of(pod: Fields) -> tuple[str, str] | None:
    for each in statuses_of(pod):
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
    """The end of a log without records; a first line that was cut off may be the rest of a record."""
    # Not splitlines(): the mark of a record counts as the end of a line there.
    lines = log.strip().split("\n")
    cut = len(log.encode()) >= _FALLBACK and len(lines) > 1
    shown = [line.partition(MARK)[0] for line in lines[cut:]]
    return "\n".join(line for line in shown if line).strip()[-_LONGEST_MESSAGE:]


def _status(agent: Fields, conditions: Sequence[Condition]) -> Object:
    """The new status; a condition that has not changed keeps its transition time."""
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


def _is_ours(obj: Fields, agent: Fields) -> bool:
    label = within(obj, "metadata", "labels").get("app.kubernetes.io/managed-by")
    return label == MANAGER and is_owned(obj, agent["metadata"]["uid"])
