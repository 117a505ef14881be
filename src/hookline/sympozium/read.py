"""Reads a file of manifests, in the words of today and those before: every object in it, and every mistake."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, cast

from hookline.errors import FileError
from hookline.source import Document, load_all, text_of
from hookline.sympozium.read_lifecycle import check_name, read_lifecycle, variable_named
from hookline.sympozium.types import (
    GROUP,
    Instance,
    Lifecycle,
    Manifests,
    Member,
    Model,
    Pack,
    RunSpec,
    Sandbox,
    TaskSpec,
)
from hookline.table import At, Place, Told, meant

_DOMAIN = "sympozium.ai/"
_HEAD = re.compile(r"^apiVersion:\s*['\"]?sympozium\.ai/", re.MULTILINE)
KINDS = ("AgentRun", "Agent", "SympoziumInstance", "Ensemble", "PersonaPack")
_OF_THE_CLUSTER = ("SkillPack", "SympoziumPolicy", "SympoziumSchedule", "Model", "MCPServer")

HEAD_KEYS = ("apiVersion", "kind", "metadata", "spec", "status")
RUN_KEYS = (
    "agentRef",
    "instanceRef",
    "agentId",
    "sessionKey",
    "env",
    "parent",
    "task",
    "systemPrompt",
    "model",
    "sandbox",
    "agentSandbox",
    "skills",
    "toolPolicy",
    "timeout",
    "cleanup",
    "mode",
    "dryRun",
    "canaryMode",
    "imagePullSecrets",
    "lifecycle",
    "useContext",
    "tolerations",
    "volumes",
    "volumeMounts",
    "backend",
)
_LIFECYCLE_INSTEAD = {
    "preRun": ": it stands under lifecycle",
    "postRun": ": it stands under lifecycle",
    "rbac": ": it stands under lifecycle",
    "hooks": "; did you mean lifecycle?",
    "prompt": "; did you mean task?",
}
_RUN_ELSEWHERE = (
    "parent",
    "sandbox",
    "agentSandbox",
    "skills",
    "imagePullSecrets",
    "tolerations",
    "volumes",
    "volumeMounts",
    "backend",
)
INSTANCE_KEYS = (
    "channels",
    "agents",
    "skills",
    "policyRef",
    "authRefs",
    "memory",
    "observability",
    "mcpServers",
    "webEndpoint",
    "imagePullSecrets",
    "volumes",
    "volumeMounts",
)
_INSTANCE_ELSEWHERE = tuple(key for key in INSTANCE_KEYS if key not in ("agents", "authRefs"))
_INSTANCE_INSTEAD = {
    "lifecycle": ": it stands under agents.default",
    "model": ": it stands under agents.default",
}
AGENT_KEYS = (
    "model",
    "provider",
    "baseURL",
    "authSecretRef",
    "thinking",
    "systemPrompt",
    "sandbox",
    "agentSandbox",
    "subagents",
    "runTimeout",
    "nodeSelector",
    "lifecycle",
    "tolerations",
)
_AGENT_ELSEWHERE = ("sandbox", "agentSandbox", "subagents", "nodeSelector", "tolerations")
PACK_KEYS = (
    "enabled",
    "description",
    "category",
    "version",
    "agentConfigs",
    "personas",
    "authRefs",
    "excludePersonas",
    "channelConfigs",
    "policyRef",
    "baseURL",
    "modelRef",
    "skillParams",
    "taskOverride",
    "channelAccessControl",
    "channelTriggers",
    "slackOptions",
    "channelVolumes",
    "channelVolumeMounts",
    "agentSandbox",
    "sharedMemory",
    "stimulus",
    "relationships",
    "workflowType",
    "volumes",
    "volumeMounts",
)
MEMBER_KEYS = (
    "name",
    "displayName",
    "systemPrompt",
    "model",
    "provider",
    "baseURL",
    "skills",
    "toolPolicy",
    "schedule",
    "memory",
    "channels",
    "webEndpoint",
    "lifecycle",
    "channelAccessControl",
    "channelTriggers",
    "slackOptions",
    "mcpServers",
    "subagents",
)
_MEMBER_ELSEWHERE = ("skills", "schedule", "memory", "channels", "webEndpoint", "mcpServers", "subagents")
MODEL_KEYS = (
    "provider",
    "model",
    "baseURL",
    "thinking",
    "authSecretRef",
    "modelRef",
    "providerHeaders",
    "providerHeadersSecretRef",
    "nodeSelector",
)
_MODEL_INSTEAD = {
    "name": "; did you mean model?",
    "baseUrl": "; did you mean baseURL?",
    "apiKey": "; did you mean authSecretRef? It names a Secret",
}
SANDBOX_KEYS = ("enabled", "runtimeClass", "runtimeClassName", "warmPoolRef", "resources")
THINKING = ("off", "low", "medium", "high")
TASK_MODES = ("sidecar-driven",)
TASK_KEYS = ("mode", "tool", "parameters")
TOOL_KEYS = ("allow", "deny")
CLEANUPS = ("delete", "keep")
MODES = ("task", "server")
NO_TASK = "spec.task is required and must not be empty: a text, or a mapping with mode, tool and parameters"


def is_sympozium(text: str, file: str | PathLike[str]) -> bool:
    """Whether a YAML text holds an object of Sympozium's, or the part of one that has its hooks."""
    try:
        documents = load_all(text, file)
    except FileError:
        return _HEAD.search(text) is not None
    return any(
        _api(each.value).startswith(_DOMAIN) or _is_fragment(each.value) for each in _objects(documents)
    )


def read(file: str | PathLike[str]) -> Manifests:
    try:
        return parse(text_of(file), file)
    except FileError as exc:
        return Manifests(problems=(exc,), file=str(file))


def parse(text: str | bytes, file: str | PathLike[str]) -> Manifests:
    """Every object of the text that is read here, and every mistake in them."""
    try:
        documents = load_all(text, file)
    except FileError as exc:
        return Manifests(problems=(exc,), file=str(file))
    return _File(documents, str(file)).manifests()


class _File:
    """One file while it is read."""

    def __init__(self, documents: list[Document], file: str) -> None:
        self._documents = documents
        self._file = file
        self._told = Told()
        self._runs: list[RunSpec] = []
        self._instances: list[Instance] = []
        self._packs: list[Pack] = []
        self._secrets: dict[str, Mapping[str, str]] = {}
        self._seen: dict[tuple[str, str, str], str] = {}
        self._readers: Mapping[str, Callable[[At, str, str], None]] = {
            "AgentRun": self._run,
            "Agent": self._instance,
            "SympoziumInstance": self._instance,
            "Ensemble": self._pack,
            "PersonaPack": self._pack,
        }

    def manifests(self) -> Manifests:
        for document in _objects(self._documents):
            value: Any = document.value
            if isinstance(value, Mapping):
                self._object(At(document, _mapping(value), (), self._told))
            elif value is not None:
                self._told.problems.append(document.problem("is no object; it must have apiVersion and kind"))
        return Manifests(
            runs=tuple(self._runs),
            instances=tuple(self._instances),
            packs=tuple(self._packs),
            secrets=self._secrets,
            problems=tuple(self._told.problems),
            notes=tuple(self._told.notes),
            file=self._file,
        )

    def _object(self, at: At) -> None:
        if _is_fragment(at.value):
            self._fragment(at)
            return
        kind = at.text("kind", needed=f"it is one of {', '.join(KINDS)}")
        if kind == "Secret" and _api(at.value) == "v1":
            self._secret(at)
            return
        if not kind or not _is_read(at, kind):
            return
        at.keys(*HEAD_KEYS, instead={"lifecycle": ": it stands under spec"})
        metadata = at.mapping("metadata")
        if metadata is None:
            at.wrong("metadata is missing; write metadata: {name: ...}")
            return
        name, namespace = self._names(kind, metadata)
        first = self._seen.setdefault((kind, namespace, name), at.line())
        if first != at.line():
            at.wrong(f"the {kind} {name!r} is in {first} already", "metadata", "name")
        elif name:
            self._readers[kind](at, name, namespace)

    def _names(self, kind: str, metadata: At) -> tuple[str, str]:
        key = "generateName" if kind == "AgentRun" and "name" not in metadata else "name"
        name = metadata.text(key if key in metadata else "name", needed="every object has a name")
        if key == "generateName":
            name = name.rstrip("-")
        namespace = metadata.text("namespace") or "default"
        fits = bool(name) and check_name(metadata, name, key)
        return (name if fits else ""), (
            namespace if check_name(metadata, namespace, "namespace") else "default"
        )

    def _fragment(self, at: At) -> None:
        # A file name is anything; what is made of it must be a name for objects of the cluster too.
        name = re.sub(r"[^a-z0-9]+", "-", Path(self._file).stem.lower())[:50].strip("-") or "run"
        number = sum(each.fragment for each in self._runs)
        name = name if not number else f"{name}-{number + 1}"
        at.note(f"has no apiVersion and kind; it is read as the AgentRun {name!r}")
        spec = at.mapping("spec")
        if spec is not None:
            self._runs.append(_run(spec, name, "default", fragment=True))

    def _run(self, at: At, name: str, namespace: str) -> None:
        spec = _spec(at, "the run's agentRef, task and model")
        if spec is not None:
            self._runs.append(_run(spec, name, namespace))

    def _instance(self, at: At, name: str, namespace: str) -> None:
        spec = _spec(at, "agents.default with model and lifecycle")
        if spec is None:
            return
        spec.keys(*INSTANCE_KEYS, instead=_INSTANCE_INSTEAD)
        agents = spec.mapping("agents")
        default = agents.mapping("default") if agents else None
        if agents is not None:
            agents.keys("default")
        if default is None:
            if "agents" not in spec or (agents is not None and "default" not in agents):
                spec.wrong("agents.default is missing; it has the model and the lifecycle")
            return
        self._instances.append(_instance(spec, default, name, namespace))

    def _pack(self, at: At, name: str, namespace: str) -> None:
        spec = _spec(at, "agentConfigs (once personas)")
        if spec is None:
            return
        spec.keys(*PACK_KEYS)
        kind = at.text("kind")
        if "personas" in spec and "agentConfigs" in spec:
            spec.wrong("stands beside agentConfigs, which is its name today; give one of them", "personas")
        key = "personas" if "personas" in spec else "agentConfigs"
        if key not in spec:
            spec.wrong("agentConfigs is missing; it lists the personas of the pack")
        members: dict[str, Member] = {}
        excluded = spec.texts("excludePersonas")
        shared = _shared(spec, name, namespace)
        for each in spec.mappings(key, "- name: ..."):
            member = _member(shared, each, excluded)
            if member and member.name in members:
                each.wrong(f"{member.name!r} is a persona of this pack already", "name")
            elif member:
                members[member.name] = member
        for index, word in enumerate(excluded):
            if word not in members:
                spec.wrong(
                    f"{word!r} is no persona of this pack{meant(word, members)}", "excludePersonas", index
                )
        self._packs.append(
            Pack(
                name=name,
                namespace=namespace,
                kind=kind,
                # The seed's PersonaPack works as it is written; an Ensemble of today waits to be switched on.
                enabled=spec.flag("enabled", kind == "PersonaPack"),
                members=tuple(members.values()),
                place=at.spot(),
            )
        )

    def _secret(self, at: At) -> None:
        metadata = at.mapping("metadata") or At.empty()
        found = at.pairs("stringData")
        for key, value in at.pairs("data").items():
            try:
                found.setdefault(key, base64.b64decode(value, validate=True).decode())
            except (binascii.Error, UnicodeDecodeError):
                at.wrong("is not text in base64; write it plainly under stringData", "data", key)
        self._secrets[metadata.text("name")] = found


def _run(spec: At, name: str, namespace: str, *, fragment: bool = False) -> RunSpec:
    spec.keys(*RUN_KEYS, instead=_LIFECYCLE_INSTEAD)
    if "agentRef" in spec and "instanceRef" in spec:
        spec.wrong("stands beside agentRef, which is its name today; give one of them", "instanceRef")
    allowed, denied = _tools(spec)
    return RunSpec(
        name=name,
        namespace=namespace,
        instance=spec.text("agentRef") or spec.text("instanceRef"),
        agent_id=spec.text("agentId") or "default",
        session_key=spec.text("sessionKey"),
        model=_model(spec),
        task=_task(spec),
        system_prompt=spec.text("systemPrompt"),
        env=_variables(spec),
        timeout=_limit(spec, "timeout"),
        image_pull_secrets=_named(spec, "imagePullSecrets", "name"),
        cleanup=spec.word("cleanup", CLEANUPS, "delete"),
        sandbox=_sandbox(spec),
        lifecycle=_lifecycle(spec),
        mode=spec.word("mode", MODES, "task"),
        dry_run=spec.flag("dryRun"),
        canary=spec.flag("canaryMode"),
        use_context=spec.flag("useContext", True),
        skills=_named(spec, "skills", "skillPackRef"),
        tools_allowed=allowed,
        tools_denied=denied,
        fragment=fragment,
        place=spec.spot(),
        elsewhere=_elsewhere(spec, _RUN_ELSEWHERE),
    )


def _instance(spec: At, default: At, name: str, namespace: str) -> Instance:
    default.keys(*AGENT_KEYS, instead=_LIFECYCLE_INSTEAD)
    return Instance(
        name=name,
        namespace=namespace,
        model=_agent_model(default, _auth(spec)),
        system_prompt=default.text("systemPrompt"),
        lifecycle=_lifecycle(default),
        timeout=_limit(default, "runTimeout"),
        sandbox=_sandbox(default),
        skills=_named(spec, "skills", "skillPackRef"),
        image_pull_secrets=_named(spec, "imagePullSecrets", "name"),
        place=default.spot(),
        elsewhere={**_elsewhere(spec, _INSTANCE_ELSEWHERE), **_elsewhere(default, _AGENT_ELSEWHERE)},
    )


def _shared(spec: At, name: str, namespace: str) -> Instance:
    """What the personas of a pack have in common."""
    provider, secret = _auth(spec)
    return Instance(
        name=name,
        namespace=namespace,
        model=Model(
            provider=provider,
            base_url=spec.text("baseURL"),
            auth_secret=secret,
            ref=spec.text("modelRef"),
        ),
        sandbox=_sandbox(spec),
    )


def _member(pack: Instance, at: At, excluded: tuple[str, ...]) -> Member | None:
    at.keys(*MEMBER_KEYS, instead=_LIFECYCLE_INSTEAD)
    own = at.text("name", needed="every persona has a name of its own")
    if not own or not check_name(at, own, "name", what="a persona's name"):
        return None
    name = f"{pack.name}-{own}"
    if len(name) > 63:
        at.wrong(f"{name!r}, which it becomes, has more than 63 letters", "name")
        return None
    allowed, denied = _tools(at)
    instance = Instance(
        name=name,
        namespace=pack.namespace,
        ensemble=pack.name,
        model=_member_model(pack.model or Model(), at),
        system_prompt=at.text("systemPrompt"),
        lifecycle=_lifecycle(at),
        sandbox=pack.sandbox,
        skills=at.texts("skills"),
        tools_allowed=allowed,
        tools_denied=denied,
        place=at.spot(),
        elsewhere=_elsewhere(at, _MEMBER_ELSEWHERE),
    )
    return Member(name=own, instance=instance, excluded=own in excluded)


def _member_model(pack: Model, at: At) -> Model | None:
    own = _agent_model(at, (pack.provider, pack.auth_secret)) or pack
    found = replace(own, base_url=own.base_url or pack.base_url, ref=own.ref or pack.ref)
    return found if found != Model() else None


def _model(at: At) -> Model | None:
    """A model as an object, or as its bare name."""
    given = at.value.get("model")
    if isinstance(given, str):
        return Model(model=given) if at.text("model", needed="it names the model") else None
    inner = at.mapping("model")
    if inner is None:
        return None
    inner.keys(*MODEL_KEYS, instead=_MODEL_INSTEAD)
    ref = inner.text("modelRef")
    return Model(
        provider=inner.text("provider"),
        model=inner.text("model", needed="" if ref else "it names the provider's model"),
        base_url=inner.text("baseURL"),
        auth_secret=inner.text("authSecretRef"),
        thinking=inner.word("thinking", THINKING),
        ref=ref,
        headers=inner.pairs("providerHeaders"),
    )


def _agent_model(at: At, auth: tuple[str, str]) -> Model | None:
    """The model of an instance, whose provider and address stand beside its name."""
    found = _model(at)
    if found is None:
        return None
    return Model(
        provider=found.provider or at.text("provider") or auth[0],
        model=found.model,
        base_url=found.base_url or at.text("baseURL"),
        auth_secret=found.auth_secret or at.text("authSecretRef") or auth[1],
        thinking=found.thinking or at.word("thinking", THINKING),
        ref=found.ref,
        headers=found.headers,
    )


def _auth(at: At) -> tuple[str, str]:
    """The provider and the Secret of the first of `authRefs`."""
    found = [
        (each.text("provider"), each.text("secret", needed="it names the Secret"))
        for each in at.mappings("authRefs", "- secret: ...")
    ]
    return found[0] if found else ("", "")


def _task(spec: At) -> str | TaskSpec | None:
    given = spec.value.get("task")
    if "task" not in spec.value:
        return None
    if isinstance(given, str) and given.strip():
        return given
    if isinstance(given, Mapping):
        inner = spec.mapping("task") or At.empty()
        inner.keys(*TASK_KEYS)
        mode = inner.text("mode", needed=f"it is one of {', '.join(TASK_MODES)}")
        if mode and mode not in TASK_MODES:
            inner.wrong(f"unknown task mode {mode!r}{meant(mode, TASK_MODES)}", "mode")
        return (
            TaskSpec(mode=mode, tool=inner.text("tool"), parameters=inner.pairs("parameters"))
            if mode
            else None
        )
    if given is None or given == "" or isinstance(given, str):
        spec.wrong(NO_TASK, "task")
    else:
        spec.wrong(f"is {given!r}; a task is a text, or a mapping with mode, tool and parameters", "task")
    return None


def _variables(spec: At) -> dict[str, str]:
    """`env` of a run: names and texts, in the order of their names."""
    if isinstance(spec.value.get("env"), list):
        spec.wrong("is a list; the env of a run is a mapping, as in {LOG_LEVEL: debug}", "env")
        return {}
    found = spec.pairs("env")
    return {name: found[name] for name in sorted(found) if variable_named(spec, name, "env", name)}


def _limit(at: At, key: str) -> float | None:
    found = at.duration(key)
    if found is not None and found <= 0:
        at.wrong(f"is {at.value[key]!r}; give a time that can be kept, such as 10m", key)
        return None
    return found


def _named(at: At, key: str, inner: str) -> tuple[str, ...]:
    return tuple(filter(None, (each.text(inner) for each in at.mappings(key, f"- {inner}: ..."))))


def _sandbox(at: At) -> Sandbox | None:
    inner = at.mapping("agentSandbox")
    if inner is None:
        return None
    inner.keys(*SANDBOX_KEYS)
    return Sandbox(
        enabled=inner.flag("enabled"),
        runtime_class=inner.text("runtimeClass") or inner.text("runtimeClassName"),
        warm_pool=inner.text("warmPoolRef"),
    )


def _tools(at: At) -> tuple[tuple[str, ...], tuple[str, ...]]:
    inner = at.mapping("toolPolicy")
    return (inner.texts(TOOL_KEYS[0]), inner.texts(TOOL_KEYS[1])) if inner else ((), ())


def _lifecycle(at: At) -> Lifecycle | None:
    inner = at.mapping("lifecycle")
    return read_lifecycle(inner) if inner else None


def _elsewhere(at: At, keys: tuple[str, ...]) -> dict[str, Place]:
    return {key: at.spot(key) for key in keys if at.value.get(key)}


def _spec(at: At, what: str) -> At | None:
    spec = at.mapping("spec")
    if spec is None and "spec" not in at:
        at.wrong(f"spec is missing; it has {what}")
    return spec


def _is_read(at: At, kind: str) -> bool:
    """Whether an object is of a kind and version that mean something here."""
    api = at.text("apiVersion", needed=f"it is {GROUP}")
    if not api.startswith(_DOMAIN):
        if api:
            at.note(f"is a {kind} of {api}, which means nothing here")
        return False
    if kind in _OF_THE_CLUSTER:
        at.note(f"a {kind} means nothing here; read are {', '.join(KINDS)}", "kind")
        return False
    if kind not in KINDS:
        at.wrong(f"unknown kind {kind!r}{meant(kind, KINDS)}", "kind")
        return False
    if api != GROUP:
        at.wrong(f"is {api!r}; {GROUP} is read", "apiVersion")
        return False
    return True


def _api(value: Any) -> str:
    given = _mapping(value).get("apiVersion")
    return given if isinstance(given, str) else ""


def _is_fragment(value: Any) -> bool:
    """A run without its head, as documents show it: `spec` with `lifecycle`, and neither apiVersion nor kind."""
    given = _mapping(value)
    return "lifecycle" in _mapping(given.get("spec")) and not {"apiVersion", "kind"} & set(given)


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _objects(documents: list[Document]) -> Iterator[Document]:
    """Each object by itself, also those of a `List`."""
    for document in documents:
        given = _mapping(document.value)
        items = given.get("items")
        if given.get("kind") != "List" or not isinstance(items, list):
            yield document
            continue
        for item in cast("list[Any]", items):
            yield Document(item, document.file, getattr(item, "line", document.line))
