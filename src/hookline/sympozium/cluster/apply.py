"""Applies the plan of one run: creates, records, removes, writes the status. All requests for a run are made here.

Every step may be repeated: an object that is there already and belongs to the run counts as created, one that is gone
as removed.

Hooks may be granted the rules of one role of the installation, `hookline-grantable`, and no more. The API server keeps
the operator from granting what it does not hold. It holds more than it may hand on, though: it writes secrets and makes
roles. So the rules of a run are held against that role before anything is made.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

from hookline.engine.plain import utc_text
from hookline.journal.masking import Mask
from hookline.journal.stream import split_text
from hookline.kube import objects
from hookline.kube.client import MOST_LOG_BYTES, Cluster
from hookline.kube.objects import AlreadyThere, ApiRefused, ClusterError, Kind, NotThere, Object, within
from hookline.kube.operator import GRANTABLE, GRANTABLE_NAME, OWN_RUN
from hookline.sympozium.cluster import observation
from hookline.sympozium.cluster.objects import AGENT, FOR_RUNS, names
from hookline.sympozium.cluster.observation import FINALIZER, STATE, Log, Record, World
from hookline.sympozium.cluster.plan import Note, Plan, Removal, plan
from hookline.sympozium.environment import secret_names, secrets_of
from hookline.sympozium.types import RunSpec

logger = logging.getLogger("hookline.kube")

_ROUNDS = 12
_LARGE_LOGS = 4
_TOO_WIDE = "lifecycle.rbac asks for more than hookline may grant (the role hookline-grantable says what)"
_KEYS = ("apiGroups", "resources", "verbs")

Rules = Iterable[Mapping[str, Any]]
OnRecords = Callable[[Mapping[str, Any], list[str], Mask], None]


class RetryLater(ClusterError):
    """An obstacle that goes away by itself."""


class Applier:
    """`on_change` is called with every object that was created or changed; `on_records` with the records that an ended
    agent printed, its run and the mask of that, before anything else is done about its end."""

    def __init__(
        self,
        cluster: Cluster,
        on_change: Callable[[Object], None],
        on_records: OnRecords = lambda run, lines, mask: None,
    ) -> None:
        self._cluster = cluster
        self._on_change = on_change
        self._on_records = on_records
        self._masks: dict[str, Mask] = {}
        # A whole log may have some megabytes, and the operator has not many.
        self._large = asyncio.Semaphore(_LARGE_LOGS)

    async def apply(self, world: World) -> tuple[Plan, Record | None]:
        """Plans and applies until nothing is left to be done at once; the last plan, and the record as it is now."""
        for _ in range(_ROUNDS):
            decided = plan(world)
            if decided.logs:
                world = await self._with_logs(world, decided.logs)
                continue
            try:
                kept = await self._apply(world, decided)
            except _NotCreated as exc:
                world = replace(world, refused={**world.refused, exc.name: exc.why})
                continue
            return decided, kept
        raise RetryLater(f"{world.head['name']}: it does not settle")

    async def read_record(self, run: Mapping[str, Any]) -> Record | None:
        """The record of a run; None where there is none, or it is of another run."""
        metadata = run["metadata"]
        name = names(metadata["name"]).record
        found = await self._cluster.get(objects.SECRET, name, metadata["namespace"])
        if found is None or not objects.is_owned(found, metadata["uid"]):
            return None
        kept = observation.read_secret(found)
        return replace(kept, uids={**kept.uids, f"Secret/{name}": found["metadata"]["uid"]})

    def forget(self, uid: str) -> None:
        self._masks.pop(uid, None)

    async def _with_logs(self, world: World, wanted: Iterable[Log]) -> World:
        logs, mask = dict(world.logs), await self._mask(world)
        for log in wanted:
            async with self._large if log.lines is None else nullcontext():
                text = await self._cluster.log(
                    log.pod, world.head["namespace"], log.container, tail_lines=log.lines
                )
                if text is not None and log.container == AGENT:
                    text, lines = split_text(_whole_lines(text))
                    self._on_records(world.run, lines, mask)
            logs[(log.uid, log.container)] = text or ""
        return replace(world, logs=logs, mask=mask)

    async def _mask(self, world: World) -> Mask:
        """A mask of the secrets of a run's hooks: those written in it, and those it refers to."""
        uid = world.head["uid"]
        if uid in self._masks or world.record is None:
            return self._masks.get(uid, Mask())
        secrets, refs = secrets_of(observation.spec_of(world.record.frozen))
        for name in {ref.name for ref in refs}:
            found = await self._cluster.get(objects.SECRET, name, world.head["namespace"])
            values = within(found or {}, "data")
            keys = {ref.key for ref in refs if ref.name == name}
            secrets += [base64.b64decode(values[key]).decode(errors="replace") for key in keys & set(values)]
        self._masks[uid] = Mask(secrets)
        return self._masks[uid]

    async def _apply(self, world: World, decided: Plan) -> Record | None:
        if decided.hold is True:
            await self._set_finalizers(world, [*world.head.get("finalizers", ()), FINALIZER])
        kept = world.record
        if decided.record is not None and kept is None:
            kept = await self._create_record(world, decided.record)
        elif kept is not None:
            kept = await self._create_and_record(world, kept, decided)
        for removal in decided.remove:
            await self._remove(world, removal)
        if decided.status is not None:
            await self._write_status(world, decided.status)
        for note in decided.notes:
            await self._write_event(world, note)
        if decided.hold is False:
            rest = [each for each in world.head.get("finalizers", ()) if each != FINALIZER]
            await self._set_finalizers(world, rest)
        return kept

    async def _set_finalizers(self, world: World, finalizers: list[str]) -> None:
        version = str(world.head.get("resourceVersion", "")) if FINALIZER in finalizers else ""
        change = {"metadata": {"finalizers": finalizers or None}}
        await self._patch_run(world, change, resource_version=version)

    async def _patch_run(self, world: World, change: Object, **how: str) -> None:
        name, namespace = world.head["name"], world.head["namespace"]
        try:
            run = await self._cluster.patch(objects.AGENT_RUN, name, namespace, change, **how)
        except NotThere:
            return
        self._on_change(run)

    async def _create_record(self, world: World, begun: Record) -> Record:
        spec = observation.spec_of(begun.frozen)
        wanted = world.objects(spec).record(observation.written(begun))
        if world.settings.labelled_secrets and world.record is None:
            await self._check_secrets(world, spec, f"{objects.SECRET.kind}/{wanted['metadata']['name']}")
        made = await self._create(world, wanted)
        return replace(begun, uids={f"Secret/{made['metadata']['name']}": made["metadata"]["uid"]})

    async def _check_secrets(self, world: World, spec: RunSpec, record: str) -> None:
        """Refuses a run before it begins if a Secret that it names has no label; one that is made later has none yet."""
        for name in secret_names(spec):
            found = await self._cluster.get(objects.SECRET, name, world.head["namespace"])
            if not FOR_RUNS.items() <= within(found or {}, "metadata", "labels").items():
                label = "=".join(*FOR_RUNS.items())
                raise _NotCreated(
                    record, f"the Secret {name!r} has no label {label}, which runs need to name it"
                )

    async def _create_and_record(self, world: World, kept: Record, decided: Plan) -> Record:
        """Creates the planned objects, and records all that is known before anything is removed."""
        now = decided.record or kept
        uids = dict(kept.uids)
        for wanted in decided.make:
            made = await self._create(world, wanted)
            uids[f"{made['kind']}/{made['metadata']['name']}"] = made["metadata"]["uid"]
            now = _with(now, made)
        now = replace(now, uids=uids)
        if now != kept:
            name = names(world.head["name"]).record
            merge = {"stringData": {STATE: observation.written(now)[STATE]}}
            try:
                await self._cluster.patch(objects.SECRET, name, world.head["namespace"], merge)
            except NotThere:
                # Somebody removed it; all that was in it is known here.
                now = replace(now, uids={**uids, **(await self._create_record(world, now)).uids})
        return now

    async def _create(self, world: World, wanted: Object) -> Object:
        name, kind = str(wanted["metadata"]["name"]), objects.kind_of(wanted)
        if kind is objects.ROLE:
            grantable = await self._grantable(world)
            if more := beyond(wanted["rules"], grantable):
                raise _NotCreated(f"{kind.kind}/{name}", f"{_TOO_WIDE}: {', '.join(more)}")
            wanted = {**wanted, "rules": narrowed(wanted["rules"], grantable, world.head["name"])}
        try:
            made = await self._cluster.create(wanted)
        except AlreadyThere:
            made = await self._existing(world, kind, name, wanted)
        except ApiRefused as exc:
            raise _NotCreated(f"{kind.kind}/{name}", _why(kind, exc)) from exc
        made = {"apiVersion": kind.api_version, "kind": kind.kind, **made}
        self._on_change(made)
        return made

    async def _grantable(self, world: World) -> Rules:
        """The rules that hooks may be granted: those of the namespace, or of an operator that works in all."""
        for kind, namespace in ((objects.ROLE, world.head["namespace"]), (objects.CLUSTER_ROLE, None)):
            try:
                found = await self._cluster.get(kind, GRANTABLE_NAME, namespace)
            except ApiRefused:
                continue  # one that works in some namespaces may not read that of the cluster
            if found is not None:
                return objects.items(found.get("rules"))
        return GRANTABLE

    async def _existing(self, world: World, kind: Kind, name: str, wanted: Object) -> Object:
        """The object that has the name already: ours of an earlier try, or else an error."""
        found = await self._cluster.get(kind, name, world.head["namespace"])
        if found is None or objects.is_ending(found):
            raise RetryLater(f"{kind.kind} {name!r} is just being removed")
        if objects.is_owned(found, world.head["uid"]) or not wanted["metadata"].get("ownerReferences"):
            return found
        if ("AgentRun", world.head["name"]) in [
            (each.get("kind"), each.get("name")) for each in objects.owners(found)
        ]:
            raise RetryLater(
                f"{kind.kind} {name!r} is left over from an earlier run of that name and is being removed"
            )
        raise _NotCreated(
            f"{kind.kind}/{name}",
            f"there is a {kind.kind} {name!r} already that does not belong to this run; remove it, or rename the run",
        )

    async def _remove(self, world: World, removal: Removal) -> None:
        kind, namespace, uid = removal.kind, world.head["namespace"], removal.uid
        if not uid:
            found = await self._cluster.get(kind, removal.name, namespace)
            if found is None or not objects.is_owned(found, world.head["uid"]):
                return
            uid = str(found["metadata"]["uid"])
        await self._cluster.delete(kind, removal.name, namespace, uid=uid)

    async def _write_status(self, world: World, status: Object) -> None:
        """Writes the status; fields that it no longer has are removed."""
        have = dict(within(world.run, "status"))
        wanted = {**status, "observedGeneration": world.head.get("generation")}
        if have == wanted:
            return
        merge = {"status": {**{key: None for key in have if key not in wanted}, **wanted}}
        await self._patch_run(world, merge, subresource="status")

    async def _write_event(self, world: World, note: Note) -> None:
        """Writes an event; the same one twice is one. A failure to write it is logged, and nothing else."""
        name, namespace, uid = (world.head[key] for key in ("name", "namespace", "uid"))
        mark = hashlib.sha256(f"{uid}{note.reason}{note.message}".encode()).hexdigest()[:16]
        now = utc_text(datetime.now(UTC))
        event: Object = {
            **objects.EVENT.head,
            "metadata": {"name": f"{name}.{mark}", "namespace": namespace},
            "involvedObject": {**objects.AGENT_RUN.head, "name": name, "namespace": namespace, "uid": uid},
            "type": note.kind,
            "reason": note.reason,
            "message": world.mask.text(note.message)[:1000],
            "source": {"component": "hookline"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._cluster.create(event)
        except AlreadyThere:
            return
        except ClusterError as exc:
            logger.warning("%s/%s: no event for %r: %s", namespace, name, note.message, exc)


class _NotCreated(Exception):
    """The cluster refuses to create an object, or a foreign object has its name."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name
        self.why = why


def beyond(wanted: Rules, grantable: Rules) -> list[str]:
    """The rights that are wanted and not grantable, each as a few words."""
    held = [*_held(grantable), *_held(grantable, OWN_RUN)]
    return [
        f"{verb} {resource}{f' of {group}' if group else ''}"
        for rule in wanted
        for group, resource, verb in _missing(rule, held)
    ]


def narrowed(wanted: Rules, grantable: Rules, run: str) -> list[Object]:
    """The rules to grant: those rights that are grantable for a run's own AgentRun only are for that name."""
    rules: list[Object] = []
    for rule in wanted:
        own = _missing(rule, _held(grantable))
        if not own:
            rules.append(dict(rule))
            continue
        for right in product(*_words(rule)):
            part: Object = {key: [word] for key, word in zip(_KEYS, right, strict=True)}
            rules.append({**part, "resourceNames": [run]} if right in own else part)
    return rules


def _held(grantable: Rules, *names: str) -> Rules:
    """The rules for objects of these names and no other; without names, for all."""
    return [rule for rule in grantable if list(rule.get("resourceNames") or ()) == [*names]]


def _missing(rule: Mapping[str, Any], held: Rules) -> list[tuple[str, ...]]:
    """The rights of a rule that no held rule covers."""
    return [right for right in product(*_words(rule)) if not any(_covers(have, right) for have in held)]


def _words(rule: Mapping[str, Any]) -> list[list[str]]:
    return [[str(word) for word in rule.get(key) or ()] for key in _KEYS]


def _covers(rule: Mapping[str, Any], wanted: tuple[str, ...]) -> bool:
    return all(word in allowed or "*" in allowed for word, allowed in zip(wanted, _words(rule), strict=True))


def _with(kept: Record, made: Mapping[str, Any]) -> Record:
    """The record with a Job or Sandbox that was created."""
    if made["kind"] not in (objects.JOB.kind, objects.SANDBOX.kind):
        return kept
    entry = observation.workload_of(made)
    return replace(kept, post=(*kept.post, entry)) if entry.positions else replace(kept, agent=entry)


def _whole_lines(text: str) -> str:
    """A log that was cut because it is long, without the rest of its first line."""
    return text.partition("\n")[2] if len(text.encode("utf-8", "replace")) >= MOST_LOG_BYTES else text


def _why(kind: Kind, exc: ApiRefused) -> str:
    if isinstance(exc, NotThere) and kind.kind == "Sandbox":
        return f"agentSandbox: this cluster has no {kind.kind} of {kind.group}; install agent-sandbox, or leave it out"
    if kind.kind in ("Role", "RoleBinding"):
        return f"{_TOO_WIDE}: {exc.message}"
    return f"the cluster rejected the {kind.kind}: {exc.message}"
