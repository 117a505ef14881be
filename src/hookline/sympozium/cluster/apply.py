"""Does for one run what was decided: makes, keeps, removes, tells. All that it asks the cluster is in here.

Every step may be repeated: what is there already and is the run's own counts as made, what is gone as removed.
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
from typing import Any

from hookline.journal.masking import Mask
from hookline.journal.stream import split_text
from hookline.kube.client import MOST_LOG_BYTES, Cluster
from hookline.kube.errors import AlreadyThere, ClusterError, NotThere, Refused
from hookline.kube.fields import items, owners, within
from hookline.kube.install import GRANTABLE, GRANTABLE_NAME
from hookline.kube.job_state import Made
from hookline.kube.kinds import AGENT_RUN, CLUSTER_ROLE, EVENT, KINDS, ROLE, SECRET, Kind, kind_of
from hookline.secret_names import secrets_in
from hookline.sympozium.cluster import objects
from hookline.sympozium.cluster import state as record
from hookline.sympozium.cluster.grants import beyond
from hookline.sympozium.cluster.plan import FINALIZER, Log, Making, Plan, Removal, World, plan
from hookline.sympozium.cluster.state import Record, spec_of
from hookline.sympozium.cluster.status import Note
from hookline.sympozium.environment import for_agent
from hookline.sympozium.phases import Stage
from hookline.sympozium.types import RunSpec, SecretRef
from hookline.times import utc_text

logger = logging.getLogger("hookline.kube")

Object = dict[str, Any]

_BY_NAME: Mapping[str, Kind] = {
    kind.kind: kind for (api, _), kind in KINDS.items() if not api.startswith("kagent")
}
_ROUNDS = 12
_LARGE_LOGS = 4
_TOO_WIDE = "lifecycle.rbac asks for more than hookline may grant (the role hookline-grantable says what)"


Heard = Callable[[Mapping[str, Any], list[str], Mask], None]


class Later(ClusterError):
    """Something that goes by itself stands in the way."""


class Hands:
    """`changed` is told every object that was made or changed; `heard` the records that an agent which has ended printed,
    with its run and the mask of that, before anything else is done about its end."""

    def __init__(
        self,
        cluster: Cluster,
        changed: Callable[[Object], None],
        heard: Heard = lambda run, lines, mask: None,
    ) -> None:
        self._cluster = cluster
        self._changed = changed
        self._tell_inside = heard
        self._masks: dict[str, Mask] = {}
        # A whole log may have some megabytes, and the operator has not many.
        self._large = asyncio.Semaphore(_LARGE_LOGS)

    async def done(self, world: World) -> tuple[Plan, Record | None]:
        """Decide and do until nothing is left to be done at once; what was done last, and the record as it is now."""
        for _ in range(_ROUNDS):
            decided = plan(world)
            if decided.logs:
                world = await self._heard(world, decided.logs)
                continue
            try:
                kept = await self._do(world, decided)
            except _RefusedTo as exc:
                world = replace(world, refused={**world.refused, exc.name: exc.why})
                continue
            return decided, kept
        raise Later(f"{world.owner.name}: it does not come to rest")

    async def read_record(self, run: Mapping[str, Any]) -> Record | None:
        """What was kept of a run; None where nothing was, or it is of another one."""
        metadata = run["metadata"]
        name = objects.names(metadata["name"]).record
        found = await self._cluster.get(SECRET, name, metadata["namespace"])
        if found is None or not is_own(found, metadata["uid"]):
            return None
        texts = {key: base64.b64decode(value).decode() for key, value in within(found, "data").items()}
        kept = record.read(texts)
        return replace(kept, uids={**kept.uids, f"Secret/{name}": found["metadata"]["uid"]})

    def forget(self, uid: str) -> None:
        self._masks.pop(uid, None)

    async def _heard(self, world: World, wanted: Iterable[Log]) -> World:
        logs, mask = dict(world.logs), await self._mask(world)
        for log in wanted:
            async with self._large if log.lines is None else nullcontext():
                text = await self._cluster.log(
                    log.pod, world.owner.namespace, log.container, tail_lines=log.lines
                )
                if text is not None and log.container == objects.AGENT:
                    text, lines = split_text(_whole_lines(text))
                    self._tell_inside(world.run, lines, mask)
            logs[(log.uid, log.container)] = text or ""
        return replace(world, logs=logs, mask=mask)

    async def _mask(self, world: World) -> Mask:
        """Knows the secrets of a run's hooks: those written in it, and those it refers to."""
        uid = world.owner.uid
        if uid in self._masks or world.record is None:
            return self._masks.get(uid, Mask())
        spec = spec_of(world.record.frozen)
        written, refs = _secrets(spec)
        for name in {ref.name for ref in refs}:
            found = await self._cluster.get(SECRET, name, world.owner.namespace)
            values = within(found or {}, "data")
            keys = {ref.key for ref in refs if ref.name == name}
            written += [base64.b64decode(values[key]).decode(errors="replace") for key in keys & set(values)]
        self._masks[uid] = Mask(written)
        return self._masks[uid]

    async def _do(self, world: World, decided: Plan) -> Record | None:
        if decided.hold is True:
            await self._hold(world, [*world.run["metadata"].get("finalizers", ()), FINALIZER])
        kept = world.record
        if decided.record is not None and kept is None:
            kept = await self._begin(world, decided.record)
        elif kept is not None:
            kept = await self._keep(world, kept, decided)
        for removal in decided.remove:
            await self._remove(world, removal)
        if decided.status is not None:
            await self._show(world, decided.status)
        for note in decided.notes:
            await self._note(world, note)
        if decided.hold is False:
            rest = [each for each in world.run["metadata"].get("finalizers", ()) if each != FINALIZER]
            await self._hold(world, rest)
        return kept

    async def _hold(self, world: World, finalizers: list[str]) -> None:
        owner = world.owner
        version = str(world.run["metadata"].get("resourceVersion", ""))
        try:
            run = await self._cluster.patch(
                AGENT_RUN,
                owner.name,
                owner.namespace,
                {"metadata": {"finalizers": finalizers or None}},
                resource_version=version if FINALIZER in finalizers else "",
            )
        except NotThere:
            return
        self._changed(run)

    async def _begin(self, world: World, begun: Record) -> Record:
        spec = spec_of(begun.frozen)
        made = await self._made(world, objects.record(world.owner, spec, record.written(begun)))
        return replace(begun, uids={f"Secret/{made['metadata']['name']}": made["metadata"]["uid"]})

    async def _keep(self, world: World, kept: Record, decided: Plan) -> Record:
        """Make what is to be made, and put all that is known on record before anything is removed."""
        now = decided.record or kept
        uids = dict(kept.uids)
        for making in decided.make:
            made = await self._made(world, making.object)
            uids[f"{made['kind']}/{made['metadata']['name']}"] = made["metadata"]["uid"]
            now = _with(now, making, made)
        now = replace(now, uids=uids)
        if now != kept:
            texts = record.written(now)
            name = objects.names(world.owner.name).record
            merge = {"stringData": {record.STATE: texts[record.STATE]}}
            try:
                await self._cluster.patch(SECRET, name, world.owner.namespace, merge)
            except NotThere:
                # Somebody removed it; all that was in it is known here.
                now = replace(now, uids={**uids, **(await self._begin(world, now)).uids})
        return now

    async def _made(self, world: World, wanted: Object) -> Object:
        name, kind = str(wanted["metadata"]["name"]), kind_of(wanted)
        if kind is ROLE and (more := beyond(wanted["rules"], await self._grantable(world))):
            raise _RefusedTo(f"{kind.kind}/{name}", f"{_TOO_WIDE}: {', '.join(more)}")
        try:
            made = await self._cluster.create(wanted)
        except AlreadyThere:
            made = await self._taken(world, kind, name, wanted)
        except Refused as exc:
            raise _RefusedTo(f"{kind.kind}/{name}", _why(kind, exc)) from exc
        made = {"apiVersion": kind.api_version, "kind": kind.kind, **made}
        self._changed(made)
        return made

    async def _grantable(self, world: World) -> Iterable[Mapping[str, Any]]:
        """What the installation lets hooks be granted: everywhere, or where it works in some namespaces only, there."""
        for kind, namespace in ((CLUSTER_ROLE, None), (ROLE, world.owner.namespace)):
            try:
                found = await self._cluster.get(kind, GRANTABLE_NAME, namespace)
            except Refused:
                continue  # one that works in some namespaces may not read the other
            if found is not None:
                return items(found.get("rules"))
        return GRANTABLE

    async def _taken(self, world: World, kind: Kind, name: str, wanted: Object) -> Object:
        """What has that name already: ours of an earlier try, else something in the way."""
        found = await self._cluster.get(kind, name, world.owner.namespace)
        if found is None or found["metadata"].get("deletionTimestamp"):
            raise Later(f"{kind.kind} {name!r} is just being removed")
        if is_own(found, world.owner.uid) or not wanted["metadata"].get("ownerReferences"):
            return found
        if any(
            owner.get("kind") == "AgentRun" and owner.get("name") == world.owner.name
            for owner in owners(found)
        ):
            raise Later(f"{kind.kind} {name!r} is left of an earlier run of that name, and goes by itself")
        raise _RefusedTo(
            f"{kind.kind}/{name}",
            f"there is a {kind.kind} {name!r} already that is not this run's; remove it, or name the run otherwise",
        )

    async def _remove(self, world: World, removal: Removal) -> None:
        kind, namespace, uid = _BY_NAME[removal.kind], world.owner.namespace, removal.uid
        if not uid:
            found = await self._cluster.get(kind, removal.name, namespace)
            if found is None or not is_own(found, world.owner.uid):
                return
            uid = str(found["metadata"]["uid"])
        await self._cluster.delete(kind, removal.name, namespace, uid=uid)

    async def _show(self, world: World, status: Object) -> None:
        """Put the status in place; what it has no more is taken out."""
        have = dict(within(world.run, "status"))
        wanted = {**status, "observedGeneration": world.run["metadata"].get("generation")}
        if have == wanted:
            return
        merge = {"status": {**{key: None for key in have if key not in wanted}, **wanted}}
        owner = world.owner
        try:
            run = await self._cluster.patch(
                AGENT_RUN, owner.name, owner.namespace, merge, subresource="status"
            )
        except NotThere:
            return
        self._changed(run)

    async def _note(self, world: World, note: Note) -> None:
        """An event; the same one twice is one. That none can be written keeps nothing from going on."""
        owner = world.owner
        mark = hashlib.sha256(f"{owner.uid}{note.reason}{note.message}".encode()).hexdigest()[:16]
        now = utc_text(datetime.now(UTC))
        event: Object = {
            "apiVersion": "v1",
            "kind": EVENT.kind,
            "metadata": {"name": f"{owner.name}.{mark}", "namespace": owner.namespace},
            "involvedObject": {
                key: value
                for key, value in owner.reference.items()
                if key in ("apiVersion", "kind", "name", "uid")
            }
            | {"namespace": owner.namespace},
            "type": note.kind,
            "reason": note.reason,
            "message": world.mask.text(note.message)[:1000],
            "source": {"component": objects.MANAGER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._cluster.create(event)
        except AlreadyThere:
            return
        except ClusterError as exc:
            logger.warning("%s/%s: no event for %r: %s", owner.namespace, owner.name, note.message, exc)


class _RefusedTo(Exception):
    """The cluster will not make something, or somebody else's is in its place."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name
        self.why = why


def is_own(found: Mapping[str, Any], uid: str) -> bool:
    """Whether an object belongs to the run with that uid."""
    return any(owner.get("uid") == uid for owner in owners(found))


def _with(kept: Record, making: Making, made: Mapping[str, Any]) -> Record:
    entry = Made(name=made["metadata"]["name"], uid=made["metadata"]["uid"], positions=making.positions)
    if making.part == Stage.AGENT:
        return replace(kept, agent=entry)
    return replace(kept, post=(*kept.post, entry)) if making.part == Stage.POST_RUN else kept


def _whole_lines(text: str) -> str:
    """Of a log that was cut because it is long, what is left of its first line is not taken for what it is not."""
    return text.partition("\n")[2] if len(text.encode("utf-8", "replace")) >= MOST_LOG_BYTES else text


def _why(kind: Kind, exc: Refused) -> str:
    if isinstance(exc, NotThere) and kind.kind == "Sandbox":
        return f"agentSandbox: this cluster has no {kind.kind} of {kind.group}; install agent-sandbox, or leave it out"
    if kind.kind in ("Role", "RoleBinding"):
        return f"{_TOO_WIDE}: {exc.message}"
    return f"the cluster does not take the {kind.kind}: {exc.message}"


def _secrets(spec: RunSpec) -> tuple[list[str], list[SecretRef]]:
    hooks = (*spec.hooks.pre_run, *spec.hooks.post_run)
    given = {**for_agent(spec).given, **spec.env}
    environments = (given, *(hook.env for hook in hooks))
    refs = [value for environ in environments for value in environ.values() if isinstance(value, SecretRef)]
    return secrets_in(*environments), refs
