"""Sympozium's objects as values, and the keys of the file that they are read from: a run, an agent, a pack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hookline.errors import FileError
from hookline.source import Wrong
from hookline.sympozium.lifecycle import IN_LIFECYCLE, Lifecycle, label, limit, may_be_set
from hookline.table import (
    UNSET,
    InList,
    InMapping,
    Key,
    Location,
    Node,
    Table,
    filled,
    flag,
    ignore,
    pairs,
    refuse_slips,
    text,
    texts,
    unread,
    word,
)

GROUP = "sympozium.ai/v1alpha1"
RUN_TIMEOUT = 600.0
"""Seconds for the agent where the file does not say."""
THINKING = ("off", "low", "medium", "high")
NO_TASK = "spec.task is required and must not be empty: a text, or a mapping with mode, tool and parameters"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Which model is asked. `ref` names a Model of the cluster instead."""

    provider: str = ""
    model: str = ""
    base_url: str = ""
    auth_secret: str = ""
    thinking: str = ""
    ref: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """A task that is an object: how it is worked on, with which tool and what parameters."""

    mode: str
    tool: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """`agentSandbox`: the agent's pod as a Sandbox of the cluster."""

    enabled: bool = False
    runtime_class: str = ""
    warm_pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An `Agent` (once `SympoziumInstance`): the defaults of the runs that are made of it.

    `elsewhere` are the keys in the file that only a cluster heeds, and where they stand.
    """

    name: str
    namespace: str = "default"
    ensemble: str = ""
    model: ModelSpec | None = None
    system_prompt: str = ""
    lifecycle: Lifecycle | None = None
    timeout: float | None = None
    sandbox: Sandbox | None = None
    skills: tuple[str, ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
    tools_allowed: tuple[str, ...] = ()
    tools_denied: tuple[str, ...] = ()
    place: Location = field(default=Location(""), compare=False)
    elsewhere: Mapping[str, Location] = field(default_factory=dict[str, Location], compare=False)

    @property
    def hooks(self) -> Lifecycle:
        """The lifecycle, empty where there is none."""
        return self.lifecycle or Lifecycle()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec(Instance):
    """One run, with all that it took from an instance or a pack. A `fragment` was written without its head."""

    instance: str = ""
    agent_id: str = "default"
    session_key: str = ""
    task: str | TaskSpec | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cleanup: str = "delete"
    mode: str = "task"
    dry_run: bool = False
    canary: bool = False
    use_context: bool = True
    fragment: bool = False


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
    namespace: str = "default"
    kind: str = "Ensemble"
    enabled: bool = True
    members: tuple[Persona, ...] = ()
    place: Location = field(default=Location(""), compare=False)


class RunManifests(NamedTuple):
    """The content of a file. `secrets` are those that are written in it, by name."""

    runs: tuple[RunSpec, ...] = ()
    instances: tuple[Instance, ...] = ()
    packs: tuple[Pack, ...] = ()
    secrets: Mapping[str, Mapping[str, str]] = {}
    problems: tuple[FileError, ...] = ()
    notes: tuple[str, ...] = ()
    file: str = ""

    @property
    def agents(self) -> tuple[Instance, ...]:
        """Every instance in the file, also those that the personas of a pack become."""
        return (*self.instances, *(each.instance for pack in self.packs for each in pack.members))


def elsewhere(node: Node, keys: Iterable[str]) -> dict[str, Location]:
    """Where those of the keys stand that only a cluster heeds."""
    return {key: node.location(key) for key in keys if node.of_mapping.get(key)}


def as_it_is(node: Node, values: dict[str, Any]) -> tuple[Node, dict[str, Any]]:
    """The values of a mapping that is turned into an object once its surroundings are read."""
    return node, values


def _variables(node: Node) -> dict[str, str]:
    """`env` of a run: names and texts, in the order of their names."""
    if isinstance(node.value, list):
        raise Wrong("is a list; the env of a run is a mapping, as in {LOG_LEVEL: debug}")
    found = pairs(node)
    return {name: found[name] for name in sorted(found) if may_be_set(node, name, name)}


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


def _unheeded(*keys: str) -> dict[str, Key]:
    """Keys that are known and have no effect on one machine."""
    return dict.fromkeys(keys, Key(unread))


def _names(key: str) -> InList:
    """A list of mappings of which one key counts."""
    return InList(
        Table({key: Key(text)}, unknown=ignore),
        lambda _, values: values.get(key) or None,
        f"- {key}: ...",
    )


_TASK = Table(
    {
        "mode": Key(word("sidecar-driven", called="task mode"), needed="it is one of sidecar-driven"),
        "tool": Key(text),
        "parameters": Key(pairs),
    },
    unknown=refuse_slips,
)
_MODEL = Table(
    {
        "provider": Key(text),
        # Read by itself, after the others: it is not needed beside a modelRef.
        "model": Key(unread),
        "baseURL": Key(text, field="base_url"),
        "thinking": Key(word(*THINKING)),
        "authSecretRef": Key(text, field="auth_secret"),
        "modelRef": Key(text, field="ref"),
        "providerHeaders": Key(pairs, field="headers"),
        **_unheeded("providerHeadersSecretRef", "nodeSelector"),
    },
    {
        "name": "; did you mean model?",
        "baseUrl": "; did you mean baseURL?",
        "apiKey": "; did you mean authSecretRef? It names a Secret",
    },
    unknown=refuse_slips,
)
_SANDBOX = Table(
    {
        "enabled": Key(flag),
        "runtimeClass": Key(text, field="runtime_class"),
        "runtimeClassName": Key(text, field="runtime_class"),
        "warmPoolRef": Key(text, field="warm_pool"),
        "resources": Key(unread),
    },
    unknown=refuse_slips,
)
_TOOLS = Table({"allow": Key(texts), "deny": Key(texts)}, unknown=ignore)
_AUTH = Table({"provider": Key(text), "secret": Key(text, needed="it names the Secret")}, unknown=ignore)

_IN_MODEL = Key(_model, inner=_MODEL)
_IN_SANDBOX = Key(InMapping(_SANDBOX, lambda _, values: Sandbox(**values)), field="sandbox")
_IN_TOOLS = Key(
    InMapping(_TOOLS, lambda _, values: (values.get("allow", ()), values.get("deny", ()))), field="tools"
)
_IN_AUTH = Key(
    InList(_AUTH, lambda _, values: (values.get("provider", ""), values.get("secret", "")), "- secret: ..."),
    field="auth",
)
_IN_SKILLS = Key(_names("skillPackRef"))
_IN_PULL_SECRETS = Key(_names("name"), field="image_pull_secrets")
_OF_CHANNELS = ("channelAccessControl", "channelTriggers", "slackOptions")
_UNDER_LIFECYCLE = {
    **dict.fromkeys(("preRun", "postRun", "rbac"), ": it belongs under lifecycle"),
    "hooks": "; did you mean lifecycle?",
    "prompt": "; did you mean task?",
}

RUN = Table(
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
        "timeout": Key(limit("10m")),
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
    unknown=refuse_slips,
)
_AGENT = Table(
    {
        "model": _IN_MODEL,
        "provider": Key(text),
        "baseURL": Key(text, field="base_url"),
        "authSecretRef": Key(text, field="auth_secret"),
        "thinking": Key(word(*THINKING)),
        "systemPrompt": Key(text, field="system_prompt"),
        "agentSandbox": _IN_SANDBOX,
        "runTimeout": Key(limit("10m"), field="timeout"),
        "lifecycle": IN_LIFECYCLE,
        **_unheeded("sandbox", "subagents", "nodeSelector", "tolerations"),
    },
    _UNDER_LIFECYCLE,
    unknown=refuse_slips,
)
_AGENTS = Table({"default": Key(InMapping(_AGENT, as_it_is))}, unknown=refuse_slips)
INSTANCE = Table(
    {
        **_unheeded("channels"),
        "agents": Key(InMapping(_AGENTS, lambda _, values: values.get("default", UNSET))),
        "skills": _IN_SKILLS,
        **_unheeded("policyRef"),
        "authRefs": _IN_AUTH,
        **_unheeded("memory", "observability", "mcpServers", "webEndpoint"),
        "imagePullSecrets": _IN_PULL_SECRETS,
        **_unheeded("volumes", "volumeMounts"),
    },
    dict.fromkeys(("lifecycle", "model"), ": it belongs under agents.default"),
    unknown=refuse_slips,
)
_MEMBER = Table(
    {
        "name": Key(label("a persona's name"), needed="every persona has a name of its own"),
        "systemPrompt": Key(text, field="system_prompt"),
        "model": _IN_MODEL,
        "provider": Key(text),
        "baseURL": Key(text, field="base_url"),
        "skills": Key(texts),
        "toolPolicy": _IN_TOOLS,
        "lifecycle": IN_LIFECYCLE,
        **_unheeded("displayName", "schedule", "memory", "channels", "webEndpoint"),
        **_unheeded("mcpServers", "subagents", *_OF_CHANNELS),
    },
    _UNDER_LIFECYCLE,
    unknown=refuse_slips,
)
_IN_MEMBERS = Key(InList(_MEMBER, as_it_is, "- name: ..."), field="members")
PACK = Table(
    {
        "enabled": Key(flag),
        "agentConfigs": _IN_MEMBERS,
        "personas": _IN_MEMBERS._replace(today="agentConfigs"),
        "authRefs": _IN_AUTH,
        "excludePersonas": Key(texts, field="excluded"),
        "baseURL": Key(text, field="base_url"),
        "modelRef": Key(text, field="ref"),
        "agentSandbox": _IN_SANDBOX,
        **_unheeded("description", "category", "version", "policyRef", "taskOverride", "skillParams"),
        **_unheeded("sharedMemory", "stimulus", "relationships", "workflowType", "volumes", "volumeMounts"),
        **_unheeded("channelConfigs", "channelVolumes", "channelVolumeMounts", *_OF_CHANNELS),
    },
    unknown=refuse_slips,
)
