"""The keys of Sympozium's objects: of a run, an agent, a pack and its members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hookline.source import Wrong
from hookline.sympozium.lifecycle import IN_LIFECYCLE, label, limit, may_be_set
from hookline.sympozium.types import ModelSpec, Sandbox, TaskSpec
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

THINKING = ("off", "low", "medium", "high")
TASK_MODES = ("sidecar-driven",)
CLEANUPS = ("delete", "keep")
MODES = ("task", "server")
NO_TASK = "spec.task is required and must not be empty: a text, or a mapping with mode, tool and parameters"


def elsewhere(node: Node, keys: Iterable[str]) -> dict[str, Location]:
    """Where those of the keys stand that only a cluster heeds."""
    return {key: node.location(key) for key in keys if node.of_mapping.get(key)}


def as_it_is(node: Node, values: dict[str, Any]) -> tuple[Node, dict[str, Any]]:
    """The values of a mapping, of which something is made once what stands around it is known."""
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


def _names(key: str) -> InList:
    """A list of mappings of which one key counts."""
    return InList(
        Table({key: Key(text)}, unknown=ignore),
        lambda _, values: values.get(key) or None,
        f"- {key}: ...",
    )


_TASK = Table(
    {
        "mode": Key(word(*TASK_MODES, called="task mode"), needed=f"it is one of {', '.join(TASK_MODES)}"),
        "tool": Key(text),
        "parameters": Key(pairs),
    },
    unknown=refuse_slips,
)
_MODEL = Table(
    {
        "provider": Key(text),
        # Read by itself: whether it is needed is known once the others are.
        "model": Key(unread),
        "baseURL": Key(text, field="base_url"),
        "thinking": Key(word(*THINKING)),
        "authSecretRef": Key(text, field="auth_secret"),
        "modelRef": Key(text, field="ref"),
        "providerHeaders": Key(pairs, field="headers"),
        "providerHeadersSecretRef": Key(unread),
        "nodeSelector": Key(unread),
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
_UNREAD = Key(unread)
_UNDER_LIFECYCLE = {
    **dict.fromkeys(("preRun", "postRun", "rbac"), ": it stands under lifecycle"),
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
        "parent": _UNREAD,
        "task": Key(_task, inner=_TASK),
        "systemPrompt": Key(text, field="system_prompt"),
        "model": _IN_MODEL,
        "sandbox": _UNREAD,
        "agentSandbox": _IN_SANDBOX,
        "skills": _IN_SKILLS,
        "toolPolicy": _IN_TOOLS,
        "timeout": Key(limit("10m")),
        "cleanup": Key(word(*CLEANUPS)),
        "mode": Key(word(*MODES)),
        "dryRun": Key(flag, field="dry_run"),
        "canaryMode": Key(flag, field="canary"),
        "imagePullSecrets": _IN_PULL_SECRETS,
        "lifecycle": IN_LIFECYCLE,
        "useContext": Key(flag, field="use_context"),
        "tolerations": _UNREAD,
        "volumes": _UNREAD,
        "volumeMounts": _UNREAD,
        "backend": _UNREAD,
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
        "sandbox": _UNREAD,
        "agentSandbox": _IN_SANDBOX,
        "subagents": _UNREAD,
        "runTimeout": Key(limit("10m"), field="timeout"),
        "nodeSelector": _UNREAD,
        "lifecycle": IN_LIFECYCLE,
        "tolerations": _UNREAD,
    },
    _UNDER_LIFECYCLE,
    unknown=refuse_slips,
)
_AGENTS = Table({"default": Key(InMapping(_AGENT, as_it_is))}, unknown=refuse_slips)
INSTANCE = Table(
    {
        "channels": _UNREAD,
        "agents": Key(InMapping(_AGENTS, lambda _, values: values.get("default", UNSET))),
        "skills": _IN_SKILLS,
        "policyRef": _UNREAD,
        "authRefs": _IN_AUTH,
        **dict.fromkeys(("memory", "observability", "mcpServers", "webEndpoint"), _UNREAD),
        "imagePullSecrets": _IN_PULL_SECRETS,
        "volumes": _UNREAD,
        "volumeMounts": _UNREAD,
    },
    dict.fromkeys(("lifecycle", "model"), ": it stands under agents.default"),
    unknown=refuse_slips,
)
_MEMBER = Table(
    {
        "name": Key(label("a persona's name"), needed="every persona has a name of its own"),
        "displayName": _UNREAD,
        "systemPrompt": Key(text, field="system_prompt"),
        "model": _IN_MODEL,
        "provider": Key(text),
        "baseURL": Key(text, field="base_url"),
        "skills": Key(texts),
        "toolPolicy": _IN_TOOLS,
        **dict.fromkeys(("schedule", "memory", "channels", "webEndpoint"), _UNREAD),
        "lifecycle": IN_LIFECYCLE,
        **dict.fromkeys(
            ("channelAccessControl", "channelTriggers", "slackOptions", "mcpServers", "subagents"), _UNREAD
        ),
    },
    _UNDER_LIFECYCLE,
    unknown=refuse_slips,
)
_IN_MEMBERS = Key(InList(_MEMBER, as_it_is, "- name: ..."), field="members")
PACK = Table(
    {
        "enabled": Key(flag),
        **dict.fromkeys(("description", "category", "version"), _UNREAD),
        "agentConfigs": _IN_MEMBERS,
        "personas": _IN_MEMBERS._replace(today="agentConfigs"),
        "authRefs": _IN_AUTH,
        "excludePersonas": Key(texts, field="excluded"),
        "channelConfigs": _UNREAD,
        "policyRef": _UNREAD,
        "baseURL": Key(text, field="base_url"),
        "modelRef": Key(text, field="ref"),
        **dict.fromkeys(
            (
                "skillParams",
                "taskOverride",
                "channelAccessControl",
                "channelTriggers",
                "slackOptions",
                "channelVolumes",
                "channelVolumeMounts",
            ),
            _UNREAD,
        ),
        "agentSandbox": _IN_SANDBOX,
        **dict.fromkeys(
            ("sharedMemory", "stimulus", "relationships", "workflowType", "volumes", "volumeMounts"), _UNREAD
        ),
    },
    unknown=refuse_slips,
)
