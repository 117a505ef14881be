"""Reads a file of manifests, with the present and the former names: every object in it, and every mistake."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from hookline.errors import FileError
from hookline.kube.objects import (
    api_version,
    holds_objects,
    is_foreign,
    mapping,
    named_objects,
    secret_values,
    spec_of,
)
from hookline.source import load_all
from hookline.sympozium.lifecycle import label
from hookline.sympozium.types import (
    GROUP,
    INSTANCE,
    NO_TASK,
    PACK,
    RUN,
    Instance,
    ModelSpec,
    Pack,
    Persona,
    RunManifests,
    RunSpec,
    elsewhere,
)
from hookline.table import Findings, Key, Node, Table, meant, refuse_slips, text, unread

_DOMAIN = "sympozium.ai/"
SPECS: Mapping[str, Table] = {
    "AgentRun": RUN,
    "Agent": INSTANCE,
    "SympoziumInstance": INSTANCE,
    "Ensemble": PACK,
    "PersonaPack": PACK,
}
"""The kinds that are read, and the keys under `spec` of each."""
KINDS = tuple(SPECS)
HEAD = Table(
    dict.fromkeys(("apiVersion", "kind", "metadata", "spec", "status"), Key(unread)),
    {"lifecycle": ": it belongs under spec"},
    unknown=refuse_slips,
)
_OF_THE_CLUSTER = ("SkillPack", "SympoziumPolicy", "SympoziumSchedule", "Model", "MCPServer")
_POD_PARTS = ("tolerations", "volumes", "volumeMounts")
_RUN_ELSEWHERE = ("parent", "sandbox", "agentSandbox", "skills", "imagePullSecrets", *_POD_PARTS, "backend")
_INSTANCE_ELSEWHERE = tuple(key for key in INSTANCE.keys if key not in ("agents", "authRefs"))
_AGENT_ELSEWHERE = ("sandbox", "agentSandbox", "subagents", "nodeSelector", "tolerations")
_MEMBER_ELSEWHERE = ("skills", "schedule", "memory", "channels", "webEndpoint", "mcpServers", "subagents")


def is_sympozium(text: str, file: str | PathLike[str]) -> bool:
    """True if a YAML text holds an object of Sympozium's, or the part of one that has its hooks."""
    return holds_objects(text, file, _DOMAIN, _is_fragment)


def parse(content: str | bytes, file: str | PathLike[str]) -> RunManifests:
    """Every object of the text that is read here, and every mistake in them."""
    try:
        documents = load_all(content, file)
    except FileError as exc:
        return RunManifests(problems=(exc,), file=str(file))
    findings = Findings()
    made: list[RunSpec | Instance | Pack | None] = []
    secrets: dict[str, Mapping[str, str]] = {}
    found = named_objects(
        documents, findings, kinds=KINDS, is_apart=_is_apart, is_read=_is_read, names=_names
    )
    for node, kind, name, namespace in found:
        if kind:
            made.append(_READERS[kind](node, name, namespace))
        elif _is_fragment(node.value):
            before = sum(isinstance(each, RunSpec) and each.fragment for each in made)
            made.append(_fragment(node, file, before))
        else:
            metadata = node.mapping("metadata")
            secrets[metadata.get("name", text) if metadata else ""] = secret_values(node)
    return RunManifests(
        runs=tuple(each for each in made if isinstance(each, RunSpec)),
        instances=tuple(each for each in made if type(each) is Instance),
        packs=tuple(each for each in made if isinstance(each, Pack)),
        secrets=secrets,
        problems=tuple(findings.problems),
        notes=tuple(map(str, findings.notes)),
        file=str(file),
    )


def _fragment(node: Node, file: str | PathLike[str], number: int) -> RunSpec | None:
    # The name must be valid for objects of a cluster; a file name can be anything.
    name = re.sub(r"[^a-z0-9]+", "-", Path(file).stem.lower())[:50].strip("-") or "run"
    name = name if not number else f"{name}-{number + 1}"
    node.note(f"has no apiVersion and kind; it is read as the AgentRun {name!r}")
    spec = node.mapping("spec")
    return _run_spec(spec, name, "default", fragment=True) if spec is not None else None


def _run(node: Node, name: str, namespace: str) -> RunSpec | None:
    spec = spec_of(node, "the run's agentRef, task and model")
    return _run_spec(spec, name, namespace) if spec is not None else None


def _instance(node: Node, name: str, namespace: str) -> Instance | None:
    spec = spec_of(node, "agents.default with model and lifecycle")
    if spec is None:
        return None
    values = INSTANCE.read(spec)
    agents = spec.of_mapping.get("agents")
    if agents is None or (isinstance(agents, Mapping) and mapping(agents).get("default") is None):
        spec.wrong("agents.default is missing; it has the model and the lifecycle")
    if "agents" not in values:
        return None
    default, inner = values.pop("agents")
    first = (values.pop("auth", ()) or (("", ""),))[0]
    where = {**elsewhere(spec, _INSTANCE_ELSEWHERE), **elsewhere(default, _AGENT_ELSEWHERE)}
    return Instance(
        name=name,
        namespace=namespace,
        model=_agent_model(inner, first),
        place=default.location(),
        elsewhere=where,
        **values,
        **inner,
    )


def _pack(node: Node, name: str, namespace: str) -> Pack | None:
    spec = spec_of(node, "agentConfigs (once personas)")
    if spec is None:
        return None
    values = PACK.read(spec)
    kind = node.get("kind", text)
    if "personas" not in spec and "agentConfigs" not in spec:
        spec.wrong("agentConfigs is missing; it lists the personas of the pack")
    members: dict[str, Persona] = {}
    excluded: tuple[str, ...] = values.get("excluded", ())
    shared = _shared(values, name, namespace)
    for each, inner in values.get("members", ()):
        member = _member(shared, each, inner, excluded)
        if member and member.name in members:
            each.wrong(f"{member.name!r} is a persona of this pack already", "name")
        elif member:
            members[member.name] = member
    for index, known in enumerate(excluded):
        if known not in members:
            spec.wrong(
                f"{known!r} is not a persona of this pack{meant(known, members)}", "excludePersonas", index
            )
    return Pack(
        name=name,
        namespace=namespace,
        kind=kind,
        # The seed's PersonaPack works as it is written; an Ensemble of today waits to be switched on.
        enabled=values.get("enabled", kind == "PersonaPack"),
        members=tuple(members.values()),
        place=node.location(),
    )


def _names(kind: str, metadata: Node) -> tuple[str, str]:
    key = "generateName" if kind == "AgentRun" and "name" not in metadata else "name"
    name = metadata.get(key if key in metadata else "name", text, needed="every object has a name")
    if key == "generateName":
        name = name.rstrip("-")
    namespace = metadata.get("namespace", text) or "default"
    return (
        name if name and _is_label(metadata, key, name) else "",
        namespace if _is_label(metadata, "namespace", namespace) else "default",
    )


def _is_label(metadata: Node, key: str, name: str) -> bool:
    return bool(metadata.with_value({key: name}).get(key, label()))


def _run_spec(spec: Node, name: str, namespace: str, *, fragment: bool = False) -> RunSpec:
    values = RUN.read(spec)
    if "task" in spec.of_mapping and "task" not in spec:
        spec.wrong(NO_TASK, "task")
    allowed, denied = values.pop("tools", ((), ()))
    return RunSpec(
        name=name,
        namespace=namespace,
        tools_allowed=allowed,
        tools_denied=denied,
        fragment=fragment,
        place=spec.location(),
        elsewhere=elsewhere(spec, _RUN_ELSEWHERE),
        **values,
    )


def _shared(values: dict[str, Any], name: str, namespace: str) -> Instance:
    """The part that all personas of a pack share."""
    provider, secret = (values.get("auth") or (("", ""),))[0]
    model = ModelSpec(
        provider=provider,
        base_url=values.get("base_url", ""),
        auth_secret=secret,
        ref=values.get("ref", ""),
    )
    return Instance(name=name, namespace=namespace, model=model, sandbox=values.get("sandbox"))


def _member(pack: Instance, node: Node, values: dict[str, Any], excluded: tuple[str, ...]) -> Persona | None:
    own: str = values.pop("name", "")
    if not own:
        return None
    name = f"{pack.name}-{own}"
    if len(name) > 63:
        node.wrong(f"{name!r}, which it becomes, has more than 63 letters", "name")
        return None
    allowed, denied = values.pop("tools", ((), ()))
    instance = Instance(
        name=name,
        namespace=pack.namespace,
        ensemble=pack.name,
        model=_member_model(pack.model or ModelSpec(), values),
        sandbox=pack.sandbox,
        tools_allowed=allowed,
        tools_denied=denied,
        place=node.location(),
        elsewhere=elsewhere(node, _MEMBER_ELSEWHERE),
        **values,
    )
    return Persona(name=own, instance=instance, excluded=own in excluded)


def _member_model(pack: ModelSpec, values: dict[str, Any]) -> ModelSpec | None:
    own = _agent_model(values, (pack.provider, pack.auth_secret)) or pack
    found = replace(own, base_url=own.base_url or pack.base_url, ref=own.ref or pack.ref)
    return found if found != ModelSpec() else None


def _agent_model(values: dict[str, Any], auth: tuple[str, str]) -> ModelSpec | None:
    """The model of an instance; its provider and address are keys beside it, and all are taken out of the values."""
    found: ModelSpec | None = values.pop("model", None)
    beside = {key: values.pop(key, "") for key in ("provider", "base_url", "auth_secret", "thinking")}
    if found is None:
        return None
    return replace(
        found,
        provider=found.provider or beside["provider"] or auth[0],
        base_url=found.base_url or beside["base_url"],
        auth_secret=found.auth_secret or beside["auth_secret"] or auth[1],
        thinking=found.thinking or beside["thinking"],
    )


def _is_read(node: Node, kind: str) -> bool:
    """True if an object is of a known kind and version."""
    api = node.get("apiVersion", text, needed=f"it is {GROUP}")
    if is_foreign(node, kind, api, _DOMAIN):
        return False
    if kind in _OF_THE_CLUSTER:
        node.note(f"a {kind} is not supported here; supported: {', '.join(KINDS)}", "kind")
        return False
    if kind not in KINDS:
        node.wrong(f"unknown kind {kind!r}{meant(kind, KINDS)}", "kind")
        return False
    if api != GROUP:
        node.wrong(f"is {api!r}; {GROUP} is read", "apiVersion")
        return False
    HEAD.read(node)
    return True


def _is_apart(value: Any) -> bool:
    """True for a run without its head, and for a Secret."""
    return _is_fragment(value) or (mapping(value).get("kind") == "Secret" and api_version(value) == "v1")


def _is_fragment(value: Any) -> bool:
    """True for a run as documents show it: `spec` with `lifecycle`, and neither apiVersion nor kind."""
    given = mapping(value)
    return "lifecycle" in mapping(given.get("spec")) and not {"apiVersion", "kind"} & set(given)


_READERS: Mapping[str, Callable[[Node, str, str], RunSpec | Instance | Pack | None]] = {
    "AgentRun": _run,
    "Agent": _instance,
    "SympoziumInstance": _instance,
    "Ensemble": _pack,
    "PersonaPack": _pack,
}
