"""Reads a file of manifests, with the present and the former names: the keys of every object, and every mistake."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from hookline.errors import FileError, meant
from hookline.kube import objects
from hookline.source import Wrong, load_all
from hookline.sympozium import types
from hookline.sympozium.policy import POLICY, POLICY_REF, VARIABLES, Policy, read_policy
from hookline.sympozium.types import GROUP, IN_LIFECYCLE, Instance, ModelSpec, RunSpec, Sandbox, TaskSpec
from hookline.table import (
    UNSET,
    Findings,
    InList,
    InMapping,
    Key,
    Location,
    Node,
    Table,
    filled,
    flag,
    open_table,
    pairs,
    text,
    texts,
    unread,
    unused,
    word,
)

_DOMAIN = "sympozium.ai/"
THINKING = ("off", "low", "medium", "high")
NO_TASK = "spec.task is required and must not be empty: a text, or a mapping with mode, tool and parameters"
_OF_THE_CLUSTER = ("SkillPack", "SympoziumSchedule", "Model", "MCPServer")
_OF_CLUSTERS = ("agentSandbox", "skills", "imagePullSecrets")
"""Keys that are read, and have an effect on a cluster only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """A persona: its name in the pack, and the instance that it becomes, `<pack>-<persona>`."""

    name: str
    instance: Instance
    excluded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """An `Ensemble` (once `PersonaPack`). One that is not enabled gives nothing."""

    name: str
    kind: str = "Ensemble"
    enabled: bool = True
    members: tuple[Persona, ...] = ()
    place: Location = field(default=Location(""), compare=False)
    elsewhere: Mapping[str, Location] = field(default_factory=dict[str, Location], compare=False)


class RunManifests(NamedTuple):
    """The content of a file. `secrets` are those that are written in it, by name."""

    runs: tuple[RunSpec, ...] = ()
    instances: tuple[Instance, ...] = ()
    packs: tuple[Pack, ...] = ()
    policies: tuple[Policy, ...] = ()
    secrets: Mapping[str, Mapping[str, str]] = {}
    problems: tuple[FileError, ...] = ()
    remarks: tuple[FileError, ...] = ()
    file: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(map(str, self.remarks))

    @property
    def agents(self) -> tuple[Instance, ...]:
        """Every instance in the file, also those that the personas of a pack become."""
        return (*self.instances, *(each.instance for pack in self.packs for each in pack.members))


def is_sympozium(text: str, file: str | PathLike[str]) -> bool:
    """True if a YAML text holds an object of Sympozium's, or the part of one that has its hooks."""
    return objects.holds_objects(text, file, _DOMAIN, _is_fragment)


@lru_cache(maxsize=16)
def parse(content: str, file: str | PathLike[str]) -> RunManifests:
    """Every object of the text that is read here, and every mistake in them.

    Cached: it is needed more than once in a run, and reading takes as long as starting a process.
    """
    try:
        documents = load_all(content, file)
    except FileError as exc:
        return RunManifests(problems=(exc,), file=str(file))
    findings = Findings()
    made: list[RunSpec | Instance | Pack | Policy | None] = []
    secrets: dict[str, Mapping[str, str]] = {}
    fragments = 0
    found = objects.named_objects(
        documents, findings, kinds=KINDS, is_apart=_is_apart, is_read=_is_read, names=_names
    )
    for node, kind, name, namespace in found:
        if kind:
            _, read, parts = SPECS[kind]
            spec = objects.spec_of(node, parts)
            made += [read(node, spec, name, namespace)] if spec is not None else []
        elif _is_fragment(node.value):
            made.append(_fragment(node, file, fragments))
            fragments += made[-1] is not None
        else:
            metadata = node.mapping("metadata")
            secrets[metadata.get("name", text) if metadata else ""] = objects.core_values(node)
    return RunManifests(
        runs=tuple(each for each in made if isinstance(each, RunSpec)),
        instances=tuple(each for each in made if type(each) is Instance),
        packs=tuple(each for each in made if isinstance(each, Pack)),
        policies=tuple(each for each in made if isinstance(each, Policy)),
        secrets=secrets,
        problems=tuple(findings.problems),
        remarks=tuple(findings.notes),
        file=str(file),
    )


def elsewhere(node: Node, table: Table) -> dict[str, Location]:
    """Where those of the keys stand that have no effect on one machine."""
    return {
        name: node.location(name)
        for name, key in table.keys.items()
        if (key.read is unread or name in _OF_CLUSTERS) and node.of_mapping.get(name)
    }


def as_it_is(node: Node, values: dict[str, Any]) -> tuple[Node, dict[str, Any]]:
    """The values of a mapping that is turned into an object once its surroundings are read."""
    return node, values


def _variables(node: Node) -> dict[str, str]:
    """`env` of a run: names and texts, in the order of their names."""
    if isinstance(node.value, list):
        raise Wrong("is a list; the env of a run is a mapping, as in {LOG_LEVEL: debug}")
    found = pairs(node)
    return {name: found[name] for name in sorted(found) if types.may_be_set(node, name, name)}


def _task(node: Node) -> str | TaskSpec:
    if isinstance(node.value, str) and node.value.strip():
        return node.value
    if isinstance(node.value, Mapping):
        values = _TASK.read(node)
        return TaskSpec(**values) if "mode" in values else UNSET
    if isinstance(node.value, str):
        raise Wrong(NO_TASK)
    raise Wrong(f"is {node.value!r}; a task is a text, or a mapping with mode, tool and parameters")


def _model(node: Node) -> ModelSpec:
    """A model as an object, or as its bare name."""
    if isinstance(node.value, str):
        if not node.value.strip():
            raise Wrong(f"is {node.value!r}; it names the model")
        return ModelSpec(model=node.value)
    return InMapping(_MODEL, _made_model)(node)


def _made_model(node: Node, values: dict[str, Any]) -> ModelSpec:
    needed = "" if values.get("ref") else "it names the provider's model"
    return ModelSpec(**values, model=node.get("model", text, needed=needed))


def _tools(node: Node, values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a run for its `toolPolicy`."""
    if node.of_mapping.get("allow") == []:
        node.note("is empty, so every tool is allowed; deny: ['*'] leaves none", "allow", code="no-effect")
    places = {
        name: node.location(key, index)
        for key in _TOOLS.keys
        if key in node
        for index, name in enumerate(node.child(key).of_list)
        if isinstance(name, str)
    }
    return {**values, "places": places}


def _remark(node: Node) -> Any:
    """A text for people."""
    text(node)
    return UNSET


def _unheeded(*keys: str) -> dict[str, Key]:
    """Keys that are known and have no effect on one machine."""
    return dict.fromkeys(keys, Key(unread))


def _listed(key: str) -> InList:
    """A list of mappings of which one key counts."""
    return InList(
        open_table({key: Key(text)}),
        lambda _, values: values.get(key) or None,
        f"- {key}: ...",
    )


_TASK = open_table(
    {
        "mode": Key(word("sidecar-driven", called="task mode"), needed="it is one of sidecar-driven"),
        "tool": Key(text),
        "parameters": Key(pairs),
    },
)
_MODEL = open_table(
    {
        "provider": Key(text),
        # Read by itself, after the others: it is not needed beside a modelRef.
        "model": Key(unread),
        **unused("providerHeadersSecretRef", "nodeSelector"),
        "baseURL": Key(text, field="base_url"),
        "thinking": Key(word(*THINKING)),
        "authSecretRef": Key(text, field="auth_secret"),
        "modelRef": Key(text, field="ref"),
        "providerHeaders": Key(pairs, field="headers"),
    },
    {
        "name": "; did you mean model?",
        "baseUrl": "; did you mean baseURL?",
        "apiKey": "; did you mean authSecretRef? It names a Secret",
    },
)
_SANDBOX = open_table(
    {
        "enabled": Key(flag),
        "runtimeClass": Key(text, field="runtime_class"),
        "runtimeClassName": Key(text, field="runtime_class"),
        "warmPoolRef": Key(text, field="warm_pool"),
        **unused("resources"),
    },
)
_TOOLS = open_table(
    {"allow": Key(texts, field="tools_allowed"), "deny": Key(texts, field="tools_denied")},
)
_AUTH = open_table(
    {"provider": Key(text), "secret": Key(text, field="auth_secret", needed="it names the Secret")}
)

_IN_MODEL = Key(_model, inner=_MODEL)
_IN_SANDBOX = Key(InMapping(_SANDBOX, lambda _, values: Sandbox(**values)), field="sandbox")
_IN_TOOLS = Key(InMapping(_TOOLS, _tools), field="tools")
_IN_POLICY = Key(text, field="policy")
_IN_AUTH = Key(InList(_AUTH, lambda _, values: ModelSpec(**values), "- secret: ..."), field="auth")
_IN_SKILLS = Key(_listed("skillPackRef"))
_IN_PULL_SECRETS = Key(_listed("name"), field="image_pull_secrets")
_OF_CHANNELS = ("channelAccessControl", "channelTriggers", "slackOptions")
_UNDER_LIFECYCLE = {
    **dict.fromkeys(("preRun", "postRun", "rbac"), ": it belongs under lifecycle"),
    "hooks": "; did you mean lifecycle?",
    "prompt": "; did you mean task?",
    "policyRef": ": it belongs under spec of the Agent or Ensemble",
}

RUN = open_table(
    {
        "agentRef": Key(text, field="instance"),
        "instanceRef": Key(text, field="instance", today="agentRef"),
        "agentId": Key(filled, field="agent_id"),
        "sessionKey": Key(text, field="session_key"),
        "env": Key(_variables),
        "task": Key(_task, inner=_TASK),
        "systemPrompt": Key(text, field="system_prompt"),
        "model": _IN_MODEL,
        "agentSandbox": _IN_SANDBOX,
        "skills": _IN_SKILLS,
        "toolPolicy": _IN_TOOLS,
        "timeout": Key(types.limit("10m")),
        "cleanup": Key(word("delete", "keep")),
        "mode": Key(word("task", "server")),
        "dryRun": Key(flag, field="dry_run"),
        "canaryMode": Key(flag, field="canary"),
        "imagePullSecrets": _IN_PULL_SECRETS,
        "lifecycle": IN_LIFECYCLE,
        "useContext": Key(flag, field="use_context"),
        **_unheeded("parent", "sandbox", "tolerations", "volumes", "volumeMounts", "backend"),
    },
    _UNDER_LIFECYCLE,
)
_AGENT = open_table(
    {
        "model": _IN_MODEL,
        "provider": Key(text),
        "baseURL": Key(text, field="base_url"),
        "authSecretRef": Key(text, field="auth_secret"),
        "thinking": Key(word(*THINKING)),
        "systemPrompt": Key(text, field="system_prompt"),
        "agentSandbox": _IN_SANDBOX,
        "runTimeout": Key(types.limit("10m"), field="timeout"),
        "lifecycle": IN_LIFECYCLE,
        **_unheeded("sandbox", "subagents", "nodeSelector", "tolerations"),
    },
    _UNDER_LIFECYCLE,
)
_AGENTS = open_table({"default": Key(InMapping(_AGENT, as_it_is))})
INSTANCE = open_table(
    {
        **_unheeded("channels"),
        "agents": Key(InMapping(_AGENTS, lambda _, values: values.get("default", UNSET))),
        "skills": _IN_SKILLS,
        "policyRef": _IN_POLICY,
        "authRefs": _IN_AUTH,
        **_unheeded("memory", "observability", "mcpServers", "webEndpoint"),
        "imagePullSecrets": _IN_PULL_SECRETS,
        **_unheeded("volumes", "volumeMounts"),
    },
    dict.fromkeys(("lifecycle", "model"), ": it belongs under agents.default"),
)
_MEMBER = open_table(
    {
        "name": Key(types.label("a persona's name"), needed="every persona has a name of its own"),
        "systemPrompt": Key(text, field="system_prompt"),
        "model": _IN_MODEL,
        "provider": Key(text),
        "baseURL": Key(text, field="base_url"),
        "skills": Key(texts),
        "toolPolicy": _IN_TOOLS,
        "lifecycle": IN_LIFECYCLE,
        "displayName": Key(_remark),
        **_unheeded("schedule", "memory", "channels", "webEndpoint"),
        **_unheeded("mcpServers", "subagents", *_OF_CHANNELS),
    },
    _UNDER_LIFECYCLE,
)
_IN_MEMBERS = Key(InList(_MEMBER, as_it_is, "- name: ..."), field="members")
PACK = open_table(
    {
        "enabled": Key(flag),
        "agentConfigs": _IN_MEMBERS,
        "personas": _IN_MEMBERS._replace(today="agentConfigs"),
        "authRefs": _IN_AUTH,
        "excludePersonas": Key(texts, field="excluded"),
        "baseURL": Key(text, field="base_url"),
        "modelRef": Key(text, field="ref"),
        "agentSandbox": _IN_SANDBOX,
        "policyRef": _IN_POLICY,
        **dict.fromkeys(("description", "category", "version"), Key(_remark)),
        **_unheeded("taskOverride", "skillParams"),
        **_unheeded("sharedMemory", "stimulus", "relationships", "workflowType", "volumes", "volumeMounts"),
        **_unheeded("channelConfigs", "channelVolumes", "channelVolumeMounts", *_OF_CHANNELS),
    },
)
HEAD = objects.head(lifecycle=": it belongs under spec")


def _fragment(node: Node, file: str | PathLike[str], number: int) -> RunSpec | None:
    # The name must be valid for objects of a cluster; a file name can be anything.
    name = re.sub(r"[^a-z0-9]+", "-", Path(file).stem.lower())[:50].strip("-") or "run"
    name = name if not number else f"{name}-{number + 1}"
    node.note(f"has no apiVersion and kind; it is read as the AgentRun {name!r}")
    HEAD.read(node)
    spec = node.mapping("spec")
    return _run(node, spec, name, "default") if spec is not None else None


def _instance(_node: Node, spec: Node, name: str, namespace: str) -> Instance | None:
    values = INSTANCE.read(spec)
    agents = spec.of_mapping.get("agents")
    if agents is None or (isinstance(agents, Mapping) and objects.mapping(agents).get("default") is None):
        spec.wrong("agents.default is missing; it has the model and the lifecycle")
    if "agents" not in values:
        return None
    default, inner = values.pop("agents")
    shared, *_ = values.pop("auth", ()) or (ModelSpec(),)
    where = {**elsewhere(spec, INSTANCE), **elsewhere(default, _AGENT)}
    return Instance(
        name=name,
        namespace=namespace,
        model=_agent_model(inner, shared),
        place=default.location(),
        places={POLICY_REF: spec.location(POLICY_REF)},
        elsewhere=where,
        **values,
        **inner,
    )


def _pack(node: Node, spec: Node, name: str, namespace: str) -> Pack:
    values = PACK.read(spec)
    kind = node.get("kind", text)
    if "personas" not in spec and "agentConfigs" not in spec:
        spec.wrong("agentConfigs is missing; it lists the personas of the pack")
    members: dict[str, Persona] = {}
    excluded: tuple[str, ...] = values.get("excluded", ())
    auth, *_ = values.get("auth") or (ModelSpec(),)
    shared = Instance(
        name=name,
        namespace=namespace,
        ensemble=name,
        model=replace(auth, base_url=values.get("base_url", ""), ref=values.get("ref", "")),
        sandbox=values.get("sandbox"),
        policy=values.get("policy", ""),
        places={POLICY_REF: spec.location(POLICY_REF)},
        elsewhere=elsewhere(spec, PACK),
    )
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
        kind=kind,
        # The seed's PersonaPack works as it is written; an Ensemble of today waits to be switched on.
        enabled=values.get("enabled", kind == "PersonaPack"),
        members=tuple(members.values()),
        place=node.location(),
        elsewhere=shared.elsewhere,
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
    return bool(metadata.with_value({key: name}).get(key, types.label()))


def _run(_node: Node, spec: Node, name: str, namespace: str) -> RunSpec:
    values = RUN.read(spec)
    if "task" in spec.of_mapping and "task" not in spec:
        spec.wrong(NO_TASK, "task")
    for variable in VARIABLES if "tools" in values else ():
        if variable in values.get("env", {}):
            spec.note("is set by toolPolicy and cannot be set here, so this has no effect", "env", variable)
    return RunSpec(
        name=name,
        namespace=namespace,
        place=spec.location(),
        elsewhere=elsewhere(spec, RUN),
        **values.pop("tools", {}),
        **values,
    )


def _member(pack: Instance, node: Node, values: dict[str, Any], excluded: tuple[str, ...]) -> Persona | None:
    own: str = values.pop("name", "")
    if not own:
        return None
    name = f"{pack.name}-{own}"
    if len(name) > 63:
        node.wrong(f"{name!r}, which it becomes, has more than 63 letters", "name")
        return None
    tools: dict[str, Any] = values.pop("tools", {})
    shared = pack.model or ModelSpec()
    model = _agent_model(values, shared) or shared
    instance = replace(
        pack,
        name=name,
        model=model if model != ModelSpec() else None,
        place=node.location(),
        elsewhere={**pack.elsewhere, **elsewhere(node, _MEMBER)},
        **{**tools, "places": {**pack.places, **tools.get("places", {})}},
        **values,
    )
    return Persona(name=own, instance=instance, excluded=own in excluded)


def _agent_model(values: dict[str, Any], shared: ModelSpec) -> ModelSpec | None:
    """The model of an instance; it takes what it lacks from keys beside it, which all leave the values, or what is shared."""
    found: ModelSpec | None = values.pop("model", None)
    keys = ("provider", "base_url", "auth_secret", "thinking", "ref")
    known = {key: values.pop(key, "") or getattr(shared, key) for key in keys}
    if found is None:
        return None
    return replace(found, **{key: getattr(found, key) or value for key, value in known.items()})


def _is_read(node: Node, kind: str) -> bool:
    """True if an object is of a known kind and version."""
    api = node.get("apiVersion", text, needed=f"it is {GROUP}")
    if objects.is_foreign(node, kind, api, _DOMAIN):
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
    is_secret = objects.mapping(value).get("kind") == "Secret" and objects.api_version(value) == "v1"
    return is_secret or _is_fragment(value)


def _is_fragment(value: Any) -> bool:
    """True for a run as documents show it: `spec` with `lifecycle`, and neither apiVersion nor kind."""
    given = objects.mapping(value)
    return "lifecycle" in objects.mapping(given.get("spec")) and not {"apiVersion", "kind"} & set(given)


_Read = Callable[[Node, Node, str, str], RunSpec | Instance | Pack | Policy | None]
SPECS: Mapping[str, tuple[Table, _Read, str]] = {
    "AgentRun": (RUN, _run, "the run's agentRef, task and model"),
    **dict.fromkeys(
        ("Agent", "SympoziumInstance"), (INSTANCE, _instance, "agents.default with model and lifecycle")
    ),
    **dict.fromkeys(("Ensemble", "PersonaPack"), (PACK, _pack, "agentConfigs (once personas)")),
    "SympoziumPolicy": (POLICY, read_policy, "toolGating, imagePolicy and lifecyclePolicy"),
}
"""For each kind the keys under `spec`, the function that reads it by its whole and its spec, and what belongs there."""
KINDS = tuple(SPECS)
