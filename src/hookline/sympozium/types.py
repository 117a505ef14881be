"""A run and an agent as values; a `lifecycle`, the containers before and after a run, also as keys of the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hookline.kube.objects import LABEL, LONGEST_NAME
from hookline.source import Wrong
from hookline.table import (
    UNSET,
    InList,
    InMapping,
    Key,
    Location,
    Node,
    Reader,
    Table,
    duration,
    flag,
    open_table,
    text,
    texts,
    word,
)

GROUP = "sympozium.ai/v1alpha1"
RUN_TIMEOUT = 600.0
"""Seconds for the agent where the file does not say."""
HOOK_TIMEOUT = 300.0
"""Seconds for a hook where the file does not say."""
RESERVED = frozenset(
    {"AGENT_RUN_ID", "INSTANCE_NAME", "AGENT_NAMESPACE", "AGENT_EXIT_CODE", "AGENT_RESULT", "GATE_MODE"}
)
"""The variables of hooks that a manifest cannot set."""
VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*", re.ASCII)
LONGEST = {"preRun": 59, "postRun": 58}
"""The name of a container, at most 63 letters, begins with pre- or post-."""
_RULE_HAS = "a rule has apiGroups, resources and verbs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """A value in a Secret, looked up when the hook is started. A missing `optional` one leaves the variable unset."""

    name: str
    key: str
    optional: bool = False
    place: Location = field(default=Location(""), compare=False)


Value = str | SecretRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerHook:
    """One container of `preRun` or `postRun`. `places` are those of `command` and `args`, one for each text."""

    name: str
    image: str
    pull_policy: str = "IfNotPresent"
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, Value] = field(default_factory=dict[str, Value])
    timeout: float = HOOK_TIMEOUT
    gate: bool = False
    place: Location = field(default=Location(""), compare=False)
    places: tuple[Location, ...] = field(default=(), compare=False, repr=False)
    env_places: Mapping[str, Location] = field(default_factory=dict[str, Location], compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RbacRule:
    """A right of the hooks on objects of the cluster."""

    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """The containers around a run, in the order of the file."""

    pre_run: tuple[ContainerHook, ...] = ()
    post_run: tuple[ContainerHook, ...] = ()
    rbac: tuple[RbacRule, ...] = ()
    gate_default: str = "block"
    place: Location = field(default=Location(""), compare=False)

    @property
    def containers(self) -> tuple[ContainerHook, ...]:
        return (*self.pre_run, *self.post_run)

    @property
    def gate(self) -> int | None:
        """The position in `post_run` of the hook that the answer waits for."""
        return next((index for index, hook in enumerate(self.post_run) if hook.gate), None)

    @property
    def post_order(self) -> tuple[int, ...]:
        """Positions in `post_run` as they are run: the gate first, so that the others see what it let through."""
        return tuple(sorted(range(len(self.post_run)), key=lambda index: not self.post_run[index].gate))


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

    `elsewhere` are the keys in the file that only a cluster heeds, and where they stand; `places` says the same of
    `policyRef` and of each name of a tool.
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
    policy: str = ""
    places: Mapping[str, Location] = field(default_factory=dict[str, Location], compare=False)
    place: Location = field(default=Location(""), compare=False)
    elsewhere: Mapping[str, Location] = field(default_factory=dict[str, Location], compare=False)

    @property
    def hooks(self) -> Lifecycle:
        """The lifecycle, empty where there is none."""
        return self.lifecycle or Lifecycle()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec(Instance):
    """One run, with all that it took from an instance or a pack."""

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


def label(what: str = "a name", longest: int = LONGEST_NAME) -> Reader:
    """A DNS label of that length."""

    def read(node: Node) -> str:
        name = text(node)
        if not LABEL.fullmatch(name):
            raise Wrong(
                f"{name!r} is not a DNS label; {what} has lower-case letters, digits and - inside, such as fetch-alerts"
            )
        if len(name) > longest:
            raise Wrong(f"{name!r} has {len(name)} letters; {what} has at most {longest}")
        return name

    return read


def limit(such_as: str) -> Reader:
    def read(node: Node) -> float:
        found = duration(node)
        if found is not UNSET and found <= 0:
            raise Wrong(f"is {node.value!r}; give a duration, such as {such_as}")
        return found

    return read


def may_be_set(node: Node, name: str, *inner: str | int) -> bool:
    """True if a variable can be set under that name; a finding is added where it cannot."""
    if not VARIABLE.fullmatch(name):
        node.wrong(f"{name!r} is not a name of a variable; write it like PD_TOKEN", *inner)
        return False
    if name in RESERVED:
        node.note(f"{name} is set for every hook and cannot be set here, so this has no effect", *inner)
        return False
    return True


def _image(node: Node) -> str:
    name = text(node)
    if re.search(r"\s", name):
        raise Wrong(f"is {name!r}; the name of an image has no space")
    return name


def _not_of_a_hook(node: Node) -> Any:
    node.note("a hook does not have this, so it has no effect")
    return UNSET


class _HookList(InList):
    """The hooks of a list, each with a name of its own."""

    def __init__(self, stage: str) -> None:
        super().__init__(_hook_table(stage), self._hook, "- name: ...")
        self._stage = stage

    def __call__(self, node: Node) -> tuple[ContainerHook, ...]:
        found: dict[str, ContainerHook] = {}
        for each, hook in super().__call__(node):
            if hook.name in found:
                first = found[hook.name].place.line
                told = f"{hook.name!r} is in line {first} already; give each hook of {self._stage} its own"
                each.wrong(told, "name")
            else:
                found[hook.name] = hook
        return tuple(found.values())

    def _hook(self, node: Node, values: dict[str, Any]) -> tuple[Node, ContainerHook] | None:
        if values.get("gate") and self._stage == "preRun":
            name = node.of_mapping.get("name")
            node.wrong(
                "gate hook validation failed: gate: true is only valid on postRun hooks, not preRun"
                f' (hook "{name if isinstance(name, str) else ""}")',
                "gate",
            )
        if "name" not in values or "image" not in values:
            return None
        env, env_places = values.pop("env", ({}, {}))
        places = tuple(
            node.location(key, index)
            for key in ("command", "args")
            for index in range(len(values.get(key, ())))
        )
        hook = ContainerHook(**values, env=env, place=node.location(), places=places, env_places=env_places)
        return node, hook


class _Env(InList):
    """The variables of a hook, and where each has its text."""

    def __call__(self, node: Node) -> Any:
        found: dict[str, Value] = {}
        places: dict[str, Location] = {}
        for each, name, value in super().__call__(node):
            if not may_be_set(each, name, "name"):
                continue
            if name in found:
                each.note(f"{name} is set above too; this one counts", "name")
            found[name] = value
            places[name] = each.location("value" if isinstance(value, str) else "valueFrom")
        return found, places


def _variable(node: Node, values: dict[str, Any]) -> tuple[Node, str, Value] | None:
    value: Value | None = values.get("value", "")
    if "valueFrom" in node:
        if "value" in node and isinstance(node.of_mapping["valueFrom"], Mapping):
            node.wrong("is given together with value; give one of them", "valueFrom")
            return None
        value = values.get("valueFrom")
    return (node, values["name"], value) if "name" in values and value is not None else None


def _value_from(node: Node, values: dict[str, Any]) -> SecretRef:
    if not isinstance(node.of_mapping.get("secretKeyRef"), Mapping):
        given = ", ".join(node.of_mapping) or "nothing"
        raise Wrong(f"has {given}; of a hook's variables only secretKeyRef is a source")
    return values.get("secretKeyRef", UNSET)


def _secret_ref(node: Node, values: dict[str, Any]) -> SecretRef:
    return SecretRef(**values, place=node.location()) if {"name", "key"} <= values.keys() else UNSET


def _rule(_: Node, values: dict[str, Any]) -> RbacRule | None:
    return RbacRule(**values) if len(values) == 3 else None


def _lifecycle(node: Node, values: dict[str, Any]) -> Lifecycle:
    gates = [hook for hook in values.get("post_run", ()) if hook.gate]
    if len(gates) > 1:
        node.wrong(
            f"gate hook validation failed: at most one postRun hook may set gate: true, found {len(gates)}",
            "postRun",
        )
    return Lifecycle(**values, place=node.location())


_SECRET_REF = open_table(
    {
        "name": Key(text, needed="it names the Secret"),
        "key": Key(text, needed="it names the key in it"),
        "optional": Key(flag),
    },
)
_VALUE_FROM = open_table({"secretKeyRef": Key(InMapping(_SECRET_REF, _secret_ref))})
_ENV = open_table(
    {
        "name": Key(text, needed="it is the variable"),
        "value": Key(text),
        "valueFrom": Key(InMapping(_VALUE_FROM, _value_from)),
    },
)
_RULE = open_table(
    {
        "apiGroups": Key(texts, field="api_groups", needed=_RULE_HAS),
        "resources": Key(texts, needed=_RULE_HAS),
        "verbs": Key(texts, needed=_RULE_HAS),
    },
    {"apiGroup": "; did you mean apiGroups?"},
)
_NOT_OF_A_HOOK = (
    *("envFrom", "workingDir", "resources", "securityContext", "volumeMounts", "volumes"),
    *("retries", "when", "failurePolicy"),
)
_HOOK_INSTEAD = {
    "run": "; did you mean command?",
    "script": '; did you mean command? Write ["sh", "-c", "..."]',
    "environment": "; did you mean env?",
    "timeoutSeconds": "; did you mean timeout? Write it like 30s",
}


def _hook_table(stage: str) -> Table:
    return open_table(
        {
            "name": Key(
                label(f"a {stage} hook's name", LONGEST[stage]), needed="every hook has a name of its own"
            ),
            "image": Key(_image, needed="it is the container's image, such as curlimages/curl:latest"),
            "imagePullPolicy": Key(word("Always", "IfNotPresent", "Never"), field="pull_policy"),
            "command": Key(texts),
            "args": Key(texts),
            "env": Key(_Env(_ENV, _variable, "- name: ...")),
            "timeout": Key(limit("30s")),
            "gate": Key(flag),
            **dict.fromkeys(_NOT_OF_A_HOOK, Key(_not_of_a_hook)),
        },
        _HOOK_INSTEAD,
    )


_LIFECYCLE = open_table(
    {
        "preRun": Key(_HookList("preRun"), field="pre_run"),
        "postRun": Key(_HookList("postRun"), field="post_run"),
        "rbac": Key(InList(_RULE, _rule, '- apiGroups: [""]')),
        "gateDefault": Key(word("allow", "block"), field="gate_default"),
    },
    {
        "hooks": ": hooks belong in preRun and postRun",
        "before": "; did you mean preRun?",
        "after": "; did you mean postRun?",
        "rules": "; did you mean rbac?",
    },
)

IN_LIFECYCLE = Key(InMapping(_LIFECYCLE, _lifecycle))
