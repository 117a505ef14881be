"""The controller of AgentRuns, and of the packs that make agents for them."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from hookline.engine.record import Journal
from hookline.kube import objects
from hookline.kube.client import Cluster
from hookline.kube.controller import Controller, Key, Watch
from hookline.kube.jobs import MANAGED
from hookline.kube.objects import (
    AGENT,
    AGENT_RUN,
    CLAIM,
    ENSEMBLE,
    INSTANCE,
    JOB,
    PACK,
    POD,
    POLICY,
    SANDBOX,
    Object,
)
from hookline.options import OperatorOptions
from hookline.sympozium.cluster.apply import Applier
from hookline.sympozium.cluster.ledger import JournalWriter
from hookline.sympozium.cluster.objects import RUN_LABEL
from hookline.sympozium.cluster.observation import (
    Record,
    World,
    agent_name,
    has_ended,
    is_held,
    policy_name,
    problem_text,
)
from hookline.sympozium.phases import Phase
from hookline.sympozium.read import Pack, parse

AT_ONCE = 16
"""Runs that are worked on side by side."""
PACK_LABEL = "sympozium.ai/ensemble"
_MEMBER_LABEL = "sympozium.ai/agent-config"
_MARK = "hookline.dev/member"
"""A digest of the agent as the pack has it: a field that was taken out of the pack cannot be seen otherwise, since the
server fills in fields of its own."""
_COPIED = ("model", "provider", "baseURL", "systemPrompt", "lifecycle", "subagents")
_LABELLED = (JOB, POD, CLAIM, SANDBOX)
_OWN = f"{RUN_LABEL},app.kubernetes.io/managed-by=hookline"
_WATCHES = (
    *(Watch(kind) for kind in (AGENT_RUN, AGENT, INSTANCE, ENSEMBLE, PACK)),
    # Optional: the definitions on a cluster may be older than the operator.
    Watch(POLICY, optional=True),
    *(Watch(kind, _OWN, optional=kind is SANDBOX) for kind in _LABELLED),
)


class AgentRunController(Controller):
    """Reconciles AgentRuns, and the packs that make agents; `journal` gets the records of runs."""

    def __init__(
        self,
        cluster: Cluster,
        settings: OperatorOptions,
        namespaces: Sequence[str] = (),
        journal: Journal | None = None,
    ) -> None:
        super().__init__(cluster, _WATCHES, namespaces=namespaces, at_once=AT_ONCE)
        self._writing = (
            None if journal is None else JournalWriter(journal, built_in=not settings.agent_command)
        )
        self._settings = settings
        self._records: dict[str, Record] = {}
        # The uids whose record and mask are kept, since a run that is gone has none to look up.
        self._uids: dict[Key, str] = {}
        self._applier = Applier(
            cluster, self.caches.put, *([self._writing.keep_lines] if self._writing else [])
        )

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        return () if self._writing is None else (self._writing.run(self.caches.all(AGENT_RUN)),)

    def on_change(self, kind: objects.Kind, before: Object | None, after: Object | None) -> None:
        if kind is AGENT_RUN and self._writing is not None:
            self._writing.note(before, after)
        super().on_change(kind, before, after)

    def keys(self) -> Iterator[Key]:
        for kind in (ENSEMBLE, PACK, AGENT_RUN):
            for each in self.caches.all(kind):
                if kind is not AGENT_RUN or not _is_put_away(each):
                    yield Key.of(each)

    def keys_for(self, kind: objects.Kind, before: Object | None, after: Object | None) -> Iterator[Key]:
        obj = after or before or {}
        namespace = str(obj["metadata"].get("namespace") or "")
        if kind in _LABELLED:
            if run := objects.within(obj, "metadata", "labels").get(RUN_LABEL):
                yield Key(AGENT_RUN.kind, namespace, str(run))
        elif kind in (AGENT, INSTANCE, POLICY):
            for run in self._all_in(AGENT_RUN, namespace):
                if objects.phase_of(run) in ("", Phase.PENDING):
                    yield Key.of(run)
            for owner in objects.owners(obj):
                if owner.get("kind") in (ENSEMBLE.kind, PACK.kind):
                    yield Key(str(owner["kind"]), namespace, str(owner.get("name")))
        else:
            yield Key.of(obj)

    async def reconcile(self, key: Key) -> datetime | None:
        if key.kind == AGENT_RUN.kind:
            return await self._reconcile_run(key)
        return await self._reconcile_pack(key)

    async def _reconcile_run(self, key: Key) -> datetime | None:
        run = self.caches.get(AGENT_RUN, key.namespace, key.name)
        uid = "" if run is None else str(run["metadata"]["uid"])
        if self._uids.get(key, uid) != uid or run is None or _is_put_away(run):
            self._forget(key)
        if run is None:
            return None
        if _is_put_away(run):
            # Also one that never began, of which nothing was made.
            await self._prune(key.namespace)
            return None
        self._uids[key] = uid
        if uid not in self._records and is_held(run):
            found = await self._applier.read_record(run)
            if found is not None:
                self._records[uid] = found
        try:
            decided, record = await self._applier.apply(self._world(run))
        except objects.ClusterError:
            # It may have been put on record before something after it went wrong.
            self._records.pop(uid, None)
            raise
        if record is not None:
            self._records[uid] = record
        return decided.wake

    def _forget(self, key: Key) -> None:
        """Drops all that is kept of a run that is gone, or that nothing is to be done for any more."""
        uid = self._uids.pop(key, "")
        self._records.pop(uid, None)
        self._applier.forget(uid)

    def _world(self, run: Object) -> World:
        uid, namespace = run["metadata"]["uid"], run["metadata"]["namespace"]
        instance = self._instance(run)
        jobs, sandboxes = self.caches.owned(JOB, uid), self.caches.owned(SANDBOX, uid)
        record = self._records.get(uid)
        # Of those that are gone themselves, pods may be left.
        owners_of_pods = [each["metadata"]["uid"] for each in (*jobs, *sandboxes)]
        owners_of_pods += [each.uid for each in record.workloads] if record is not None else []
        return World(
            run=run,
            now=datetime.now(UTC),
            settings=self._settings,
            record=record,
            instance=instance,
            policy=self.caches.get(POLICY, namespace, policy_name(instance)),
            jobs=jobs,
            pods=[pod for each in dict.fromkeys(owners_of_pods) for pod in self.caches.owned(POD, each)],
            sandboxes=sandboxes,
            claims=self.caches.owned(CLAIM, uid),
        )

    def _instance(self, run: Object) -> Object | None:
        """The agent that a run names; for one that a pack made, the pack, which has all of it."""
        name, namespace = agent_name(run), run["metadata"]["namespace"]
        found = self.caches.get(AGENT, namespace, name) or self.caches.get(INSTANCE, namespace, name)
        if found is None:
            return None
        for owner in objects.owners(found):
            for kind in (ENSEMBLE, PACK):
                if owner.get("kind") == kind.kind:
                    return self.caches.get(kind, namespace, str(owner.get("name"))) or found
        return found

    async def _reconcile_pack(self, key: Key) -> None:
        kind = PACK if key.kind == PACK.kind else ENSEMBLE
        pack = self.caches.get(kind, key.namespace, key.name)
        if pack is None or objects.is_ending(pack):
            return
        found = members(pack, self._all_in(AGENT, key.namespace))
        for each in found.put:
            self.caches.put(await self._put(each))
        for each in found.remove:
            metadata = each["metadata"]
            await self.cluster.delete(AGENT, metadata["name"], key.namespace, uid=metadata["uid"])
        have = objects.within(pack, "status")
        if any(have.get(field) != value for field, value in found.status.items()):
            await self.cluster.patch(
                kind, key.name, key.namespace, {"status": found.status}, subresource="status"
            )

    async def _put(self, agent: Object) -> Object:
        try:
            return await self.cluster.create(agent)
        except objects.AlreadyThere:
            metadata = agent["metadata"]
            # The whole spec, so that fields go that the pack no longer has.
            have = self.caches.get(AGENT, metadata["namespace"], metadata["name"])
            version = str(objects.within(have or {}, "metadata").get("resourceVersion") or "")
            return await self.cluster.replace({**agent, "metadata": {**metadata, "resourceVersion": version}})

    async def _prune(self, namespace: str) -> None:
        """Removes the oldest runs of each instance beyond those that are kept."""
        for old in outdated(self._all_in(AGENT_RUN, namespace), self._settings.max_run_history):
            metadata = old["metadata"]
            await self.cluster.delete(AGENT_RUN, metadata["name"], namespace, uid=metadata["uid"])

    def _all_in(self, kind: objects.Kind, namespace: str) -> list[Object]:
        return [each for each in self.caches.all(kind) if each["metadata"]["namespace"] == namespace]


def _is_put_away(run: Mapping[str, Any]) -> bool:
    return has_ended(run) and not is_held(run)


class Members(NamedTuple):
    """The agents of a pack: those to put in place, those to remove, and the status of the pack."""

    put: tuple[dict[str, Any], ...]
    remove: tuple[Object, ...]
    status: dict[str, Any]


def members(pack: Object, agents: Sequence[Object]) -> Members:
    """`agents` are those in the pack's namespace. Foreign ones are left alone, and named in the status."""
    manifests = parse(json.dumps(objects.bare(pack)), f"{pack['kind']} {pack['metadata']['name']}")
    if manifests.problems:
        # The agents of the last good pack stay: taking them away would take their hooks away.
        return Members((), (), {"phase": "Error", "message": problem_text(*manifests.problems)})
    read = manifests.packs[0]
    wanted = {each["metadata"]["name"]: each for each in _wanted(pack, read)}
    there = {each["metadata"]["name"]: each for each in agents}
    have = {name: each for name, each in there.items() if objects.is_owned(each, pack["metadata"]["uid"])}
    taken = sorted(name for name in wanted if name in there and name not in have)
    free = {name: each for name, each in wanted.items() if name not in taken}
    put = [each for name, each in free.items() if _differs(have.get(name), each)]
    gone = [each for name, each in have.items() if name not in wanted]
    installed = [
        {"name": each["metadata"]["labels"][_MEMBER_LABEL], "instanceName": name}
        for name, each in free.items()
    ]
    status: dict[str, Any] = {
        "phase": "Ready" if read.enabled and not taken else "Error" if taken else "Disabled",
        "personaCount": len(installed),
        "installedPersonas": installed,
        "message": f"agents of these names exist already and do not belong to this pack: {', '.join(taken)}"
        if taken
        else None,
    }
    return Members(tuple(put), tuple(gone), status)


def outdated(runs: Sequence[Object], most: int) -> list[Object]:
    """The oldest ended runs of each instance beyond that many; one that has not ended is never among them."""
    ended: defaultdict[tuple[str, str], list[Object]] = defaultdict(list)
    for run in runs:
        if has_ended(run) and not objects.is_ending(run):
            ended[(run["metadata"]["namespace"], agent_name(run))].append(run)
    old: list[Object] = []
    for group in ended.values():
        group.sort(key=lambda run: (str(run["metadata"].get("creationTimestamp")), run["metadata"]["name"]))
        old += group[: max(0, len(group) - most)]
    return old


def _wanted(pack: Object, read: Pack) -> list[dict[str, Any]]:
    if not read.enabled:
        return []
    spec = cast("Mapping[str, Any]", pack["spec"])
    written = cast("list[dict[str, Any]]", spec.get("personas") or spec.get("agentConfigs") or [])
    by_name = {str(each.get("name")): each for each in written}
    return [
        _agent(pack, by_name[member.name], member.name, member.instance.name)
        for member in read.members
        if not member.excluded
    ]


def _agent(pack: Object, member: Mapping[str, Any], own: str, name: str) -> dict[str, Any]:
    metadata, spec = pack["metadata"], pack["spec"]
    default = {key: member[key] for key in _COPIED if key in member}
    if "baseURL" not in default and spec.get("baseURL"):
        default["baseURL"] = spec["baseURL"]
    if spec.get("agentSandbox"):
        default["agentSandbox"] = spec["agentSandbox"]
    wanted: dict[str, Any] = {
        "agents": {"default": default},
        **{key: spec[key] for key in ("authRefs", "policyRef") if spec.get(key)},
        **{key: member[key] for key in ("skills", "channels", "memory", "mcpServers") if member.get(key)},
    }
    mark = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
    head = objects.with_head(
        AGENT,
        name,
        metadata["namespace"],
        {PACK_LABEL: metadata["name"], _MEMBER_LABEL: own, **MANAGED},
        annotations={_MARK: mark},
        ownerReferences=[objects.owner_reference(objects.kind_of(pack), metadata["name"], metadata["uid"])],
    )
    return {**head, "spec": wanted}


def _differs(have: Object | None, wanted: Object) -> bool:
    """True if something that is wanted is not there; fields that the server filled in besides do not count."""
    if have is None:
        return True
    same = all(
        objects.within(have, "metadata", part).get(key) == value
        for part in ("labels", "annotations")
        for key, value in wanted["metadata"][part].items()
    )
    return not same or _missing(wanted["spec"], have.get("spec")) or _extra_hooks(wanted, have)


def _missing(wanted: Any, have: Any) -> bool:
    if isinstance(wanted, Mapping):
        known = cast("Mapping[str, Any]", wanted)
        return any(_missing(value, objects.mapping(have).get(key)) for key, value in known.items())
    if isinstance(wanted, list):
        listed, others = cast("list[Any]", wanted), cast("list[Any]", have) if isinstance(have, list) else []
        return len(listed) != len(others) or any(map(_missing, listed, others))
    return wanted != have


def _extra_hooks(wanted: Object, have: Object) -> bool:
    """True if the agent has a lifecycle or sandbox that the pack no longer has."""
    default = ("spec", "agents", "default")
    return any(
        objects.within(have, *default).get(key) and not objects.within(wanted, *default).get(key)
        for key in ("lifecycle", "agentSandbox")
    )
