"""The agents that a pack makes, and the ended runs that are beyond the history: values in, values out."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from hookline.kube.objects import bare, is_owned, mapping, owner_reference, within
from hookline.sympozium.cluster.objects import MANAGER
from hookline.sympozium.cluster.state import agent_name, has_ended, problem_text
from hookline.sympozium.read import parse
from hookline.sympozium.types import GROUP, Pack

Object = Mapping[str, Any]

PACK_LABEL = "sympozium.ai/ensemble"
_MEMBER_LABEL = "sympozium.ai/agent-config"
_MARK = "hookline.dev/member"
"""A digest of the agent as the pack has it: a field that was taken out of the pack cannot be seen otherwise, since the
server fills in fields of its own."""
_COPIED = ("model", "provider", "baseURL", "systemPrompt", "lifecycle", "subagents")


class Members(NamedTuple):
    """The agents of a pack: those to put in place, those to remove, and the status of the pack."""

    put: tuple[dict[str, Any], ...]
    remove: tuple[Object, ...]
    status: dict[str, Any]


def members(pack: Object, agents: Sequence[Object]) -> Members:
    """`agents` are those in the pack's namespace. Those that are not the pack's own are left alone, and told."""
    manifests = parse(json.dumps(bare(pack)), f"{pack['kind']} {pack['metadata']['name']}")
    own = [each for each in agents if is_owned(each, pack["metadata"]["uid"])]
    if manifests.problems:
        # The agents of the last good pack stay: taking them away would take their hooks away.
        return Members((), (), {"phase": "Error", "message": problem_text(*manifests.problems)})
    read = manifests.packs[0]
    wanted = {each["metadata"]["name"]: each for each in _wanted(pack, read)}
    foreign = {each["metadata"]["name"] for each in agents} - {each["metadata"]["name"] for each in own}
    taken = sorted(foreign & set(wanted))
    have = {each["metadata"]["name"]: each for each in own}
    put = [each for name, each in wanted.items() if name not in taken and _differs(have.get(name), each)]
    gone = [each for name, each in have.items() if name not in wanted]
    installed = [
        {"name": each["metadata"]["labels"][_MEMBER_LABEL], "instanceName": name}
        for name, each in wanted.items()
        if name not in taken
    ]
    status: dict[str, Any] = {
        "phase": "Ready" if read.enabled and not taken else "Error" if taken else "Disabled",
        "personaCount": len(installed),
        "installedPersonas": installed,
        "message": f"there are agents already that are not this pack's: {', '.join(taken)}"
        if taken
        else None,
    }
    return Members(tuple(put), tuple(gone), status)


def outdated(runs: Sequence[Object], most: int) -> list[Object]:
    """The oldest ended runs of each instance beyond that many; one that has not ended is never among them."""
    ended: defaultdict[tuple[str, str], list[Object]] = defaultdict(list)
    for run in runs:
        metadata = run["metadata"]
        if has_ended(run) and not metadata.get("deletionTimestamp"):
            ended[(metadata["namespace"], agent_name(run))].append(run)
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
    return {
        "apiVersion": GROUP,
        "kind": "Agent",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "annotations": {_MARK: mark},
            "labels": {
                PACK_LABEL: metadata["name"],
                _MEMBER_LABEL: own,
                "app.kubernetes.io/managed-by": MANAGER,
            },
            "ownerReferences": [owner_reference(GROUP, pack["kind"], metadata["name"], metadata["uid"])],
        },
        "spec": wanted,
    }


def _differs(have: Object | None, wanted: Object) -> bool:
    """True if something that is wanted is not there; fields that the server filled in besides do not count."""
    if have is None:
        return True
    same = all(
        within(have, "metadata", part).get(key) == value
        for part in ("labels", "annotations")
        for key, value in wanted["metadata"][part].items()
    )
    return not same or _missing(wanted["spec"], have.get("spec")) or _extra_hooks(wanted, have)


def _missing(wanted: Any, have: Any) -> bool:
    if isinstance(wanted, Mapping):
        known = cast("Mapping[str, Any]", wanted)
        return any(_missing(value, mapping(have).get(key)) for key, value in known.items())
    if isinstance(wanted, list):
        listed, others = cast("list[Any]", wanted), cast("list[Any]", have) if isinstance(have, list) else []
        return len(listed) != len(others) or any(map(_missing, listed, others))
    return wanted != have


def _extra_hooks(wanted: Object, have: Object) -> bool:
    """True if the agent has a lifecycle or sandbox that the pack no longer has."""
    default = ("spec", "agents", "default")
    return any(
        within(have, *default).get(key) and not within(wanted, *default).get(key)
        for key in ("lifecycle", "agentSandbox")
    )
