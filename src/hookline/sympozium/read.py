"""Reads a file of manifests, in the words of today and those before: every object in it, and every mistake."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from hookline.errors import FileError
from hookline.kube.objects import api_version, holds_objects, mapping, objects_in, secret_values
from hookline.source import Document, load_all
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


def parse(text: str | bytes, file: str | PathLike[str]) -> RunManifests:
    """Every object of the text that is read here, and every mistake in them."""
    try:
        documents = load_all(text, file)
    except FileError as exc:
        return RunManifests(problems=(exc,), file=str(file))
    return _ManifestFile(documents, str(file)).manifests()


class _ManifestFile:
    """One file while it is read."""

    def __init__(self, documents: list[Document], file: str) -> None:
        self._documents = documents
        self._file = file
        self._findings = Findings()
        self._runs: list[RunSpec] = []
        self._instances: list[Instance] = []
        self._packs: list[Pack] = []
        self._secrets: dict[str, Mapping[str, str]] = {}
        self._seen: dict[tuple[str, str, str], str] = {}
        self._readers: Mapping[str, Callable[[Node, str, str], None]] = {
            "AgentRun": self._run,
            "Agent": self._instance,
            "SympoziumInstance": self._instance,
            "Ensemble": self._pack,
            "PersonaPack": self._pack,
        }

    def manifests(self) -> RunManifests:
        for document in objects_in(self._documents):
            value: Any = document.value
            node = Node.root(document, self._findings)
            if isinstance(value, Mapping):
                self._object(node)
            elif value is not None:
                node.wrong("is not an object; it must have apiVersion and kind")
        return RunManifests(
            runs=tuple(self._runs),
            instances=tuple(self._instances),
            packs=tuple(self._packs),
            secrets=self._secrets,
            problems=tuple(self._findings.problems),
            notes=tuple(map(str, self._findings.notes)),
            file=self._file,
        )

    def _object(self, node: Node) -> None:
        if _is_fragment(node.value):
            self._fragment(node)
            return
        kind = node.get("kind", text, needed=f"it is one of {', '.join(KINDS)}")
        if kind == "Secret" and api_version(node.value) == "v1":
            metadata = node.mapping("metadata")
            self._secrets[metadata.get("name", text) if metadata else ""] = secret_values(node)
            return
        if not kind or not _is_read(node, kind):
            return
        HEAD.read(node)
        metadata = node.mapping("metadata")
        if metadata is None:
            node.wrong("metadata is missing; write metadata: {name: ...}")
            return
        name, namespace = _names(kind, metadata)
        first = self._seen.setdefault((kind, namespace, name), node.source)
        if first != node.source:
            node.wrong(f"the {kind} {name!r} is in {first} already", "metadata", "name")
        elif name:
            self._readers[kind](node, name, namespace)

    def _fragment(self, node: Node) -> None:
        # A file name is anything; what is made of it must be a name for objects of the cluster too.
        name = re.sub(r"[^a-z0-9]+", "-", Path(self._file).stem.lower())[:50].strip("-") or "run"
        number = sum(each.fragment for each in self._runs)
        name = name if not number else f"{name}-{number + 1}"
        node.note(f"has no apiVersion and kind; it is read as the AgentRun {name!r}")
        spec = node.mapping("spec")
        if spec is not None:
            self._runs.append(_run(spec, name, "default", fragment=True))

    def _run(self, node: Node, name: str, namespace: str) -> None:
        spec = _spec(node, "the run's agentRef, task and model")
        if spec is not None:
            self._runs.append(_run(spec, name, namespace))

    def _instance(self, node: Node, name: str, namespace: str) -> None:
        spec = _spec(node, "agents.default with model and lifecycle")
        if spec is None:
            return
        values = INSTANCE.read(spec)
        agents = spec.of_mapping.get("agents")
        if agents is None or (isinstance(agents, Mapping) and mapping(agents).get("default") is None):
            spec.wrong("agents.default is missing; it has the model and the lifecycle")
        if "agents" not in values:
            return
        default, inner = values.pop("agents")
        first = (values.pop("auth", ()) or (("", ""),))[0]
        where = {**elsewhere(spec, _INSTANCE_ELSEWHERE), **elsewhere(default, _AGENT_ELSEWHERE)}
        self._instances.append(
            Instance(
                name=name,
                namespace=namespace,
                model=_agent_model(inner, first),
                place=default.location(),
                elsewhere=where,
                **values,
                **inner,
            )
        )

    def _pack(self, node: Node, name: str, namespace: str) -> None:
        spec = _spec(node, "agentConfigs (once personas)")
        if spec is None:
            return
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
                    f"{known!r} is not a persona of this pack{meant(known, members)}",
                    "excludePersonas",
                    index,
                )
        self._packs.append(
            Pack(
                name=name,
                namespace=namespace,
                kind=kind,
                # The seed's PersonaPack works as it is written; an Ensemble of today waits to be switched on.
                enabled=values.get("enabled", kind == "PersonaPack"),
                members=tuple(members.values()),
                place=node.location(),
            )
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


def _run(spec: Node, name: str, namespace: str, *, fragment: bool = False) -> RunSpec:
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
    """The model of an instance, whose provider and address stand beside its name; all of them are taken out."""
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


def _spec(node: Node, what: str) -> Node | None:
    spec = node.mapping("spec")
    if spec is None and "spec" not in node:
        node.wrong(f"spec is missing; it has {what}")
    return spec


def _is_read(node: Node, kind: str) -> bool:
    """True if an object is of a kind and version that mean something here."""
    api = node.get("apiVersion", text, needed=f"it is {GROUP}")
    if not api.startswith(_DOMAIN):
        if api:
            node.note(f"is a {kind} of {api}, which is not supported here")
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
    return True


def _is_fragment(value: Any) -> bool:
    """A run without its head, as documents show it: `spec` with `lifecycle`, and neither apiVersion nor kind."""
    given = mapping(value)
    return "lifecycle" in mapping(given.get("spec")) and not {"apiVersion", "kind"} & set(given)
