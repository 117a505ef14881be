"""What the API server is told about our objects, made of the tables by which files are read.

A key that is read and not described here is still in the schema, with any value; so nothing that is read is dropped by
the server. What a schema cannot say (one gate at most, names of variables in a mapping) the operator tells in the
status. Rules in CEL would say some of it, but older servers drop them without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeAlias

from hookline.kube.kinds import LABEL, LONGEST_NAME
from hookline.sympozium.phases import Phase, Stage
from hookline.sympozium.read import (
    AGENT_KEYS,
    CLEANUPS,
    INSTANCE_KEYS,
    MEMBER_KEYS,
    MODEL_KEYS,
    MODES,
    PACK_KEYS,
    RUN_KEYS,
    SANDBOX_KEYS,
    TASK_KEYS,
    TASK_MODES,
    THINKING,
    TOOL_KEYS,
)
from hookline.sympozium.read_lifecycle import (
    ENV_KEYS,
    GATE_DEFAULTS,
    HOOK_KEYS,
    LIFECYCLE_KEYS,
    LONGEST,
    NOT_OF_A_HOOK,
    PULL_POLICIES,
    RULE_KEYS,
    SECRET_KEYS,
    VARIABLE,
)
from hookline.sympozium.types import HookSpec, Lifecycle, RunSpec
from hookline.table import DURATION_UNITS

Schema: TypeAlias = dict[str, Any]

ANY: Schema = {"x-kubernetes-preserve-unknown-fields": True}
NAME = f"^{LABEL.pattern}$"
# Some servers (1.20 built with a Go of today) take an empty text for null; where it is allowed, null has to be too.
_MAY_BE_EMPTY: Schema = {"nullable": True}
_NOT_BLANK = r"\S"
_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_ABOVE_ZERO = r"([0-9]*[1-9][0-9]*(\.[0-9]*)?|[0-9]*\.[0-9]*[1-9][0-9]*)"
_UNIT = f"({'|'.join(DURATION_UNITS)})"
DURATION = f"^(({_NUMBER}{_UNIT})*{_ABOVE_ZERO}{_UNIT}({_NUMBER}{_UNIT})*)?$"
"""A duration of Go's that is more than nothing; an empty text is one that is not given."""

# No type may be named where two are allowed. No number and no list fits both of its bounds.
_TEXT_OR_MAPPING: Schema = {
    **ANY,
    "minimum": 1,
    "maximum": 0,
    "minItems": 1,
    "maxItems": 0,
    "not": {"enum": [True, False]},
    "pattern": _NOT_BLANK,
}


def run_spec() -> Schema:
    described: Schema = {
        "agentRef": _text("The Agent whose lifecycle, model and prompt this run takes where it has none."),
        "instanceRef": _text("The name of agentRef before it was called so. Give one of them."),
        "agentId": _text("Handed to the agent.", default=_default(RunSpec, "agent_id")),
        "sessionKey": _text("Handed to the agent; the name of the run where it is not given."),
        "env": _texts_by_name("Variables of hooks and agent. A hook's own env comes before them."),
        "task": _task(),
        "systemPrompt": _text("Said to the model before the task."),
        "model": _model("The model that is asked: its bare name, or a mapping."),
        "agentSandbox": _sandbox(),
        "skills": _list_of_mappings("Skills for the agent.", {"skillPackRef": _text("The SkillPack.")}),
        "toolPolicy": _tools(),
        "timeout": _duration("The limit of the agent, such as 10m."),
        "cleanup": _word("Whether the workspace is kept.", CLEANUPS, _default(RunSpec, "cleanup")),
        "mode": _word("A task that ends, or a server.", MODES, _default(RunSpec, "mode")),
        "dryRun": _flag("Handed to the agent."),
        "canaryMode": _flag("Handed to the agent."),
        "imagePullSecrets": _list_of_mappings("For the images of pods.", {"name": _text("The Secret.")}),
        "lifecycle": _lifecycle(),
        "useContext": _flag(
            "Whether the agent is given /workspace/context.", _default(RunSpec, "use_context")
        ),
        **_parts_of_pods(RUN_KEYS),
    }
    return _mapping("One run of an agent.", RUN_KEYS, described) | {
        "not": {"required": ["agentRef", "instanceRef"]}
    }


def agent_spec() -> Schema:
    """An Agent, once SympoziumInstance."""
    inner: Schema = {
        "model": _model("The model that is asked: its bare name, or a mapping."),
        "provider": _text("Where the model is asked."),
        "baseURL": _text("The address, where it is not the provider's own."),
        "authSecretRef": _text("The Secret with the key."),
        "thinking": _word("How much the model thinks.", THINKING),
        "systemPrompt": _text("Said to the model before the task."),
        "agentSandbox": _sandbox(),
        "runTimeout": _duration("The limit of each run, such as 10m."),
        "lifecycle": _lifecycle(),
        **_parts_of_pods(AGENT_KEYS),
    }
    default = _mapping("What each run of this agent begins with.", AGENT_KEYS, inner)
    described: Schema = {
        "agents": _mapping("", ("default",), {"default": default}, required=("default",)),
        "skills": _list_of_mappings("Skills for the agent.", {"skillPackRef": _text("The SkillPack.")}),
        "authRefs": _auth(),
        "imagePullSecrets": _list_of_mappings("For the images of pods.", {"name": _text("The Secret.")}),
        **_parts_of_pods(INSTANCE_KEYS),
    }
    return _mapping("An agent, of which runs are made.", INSTANCE_KEYS, described, required=("agents",))


def pack_spec(*, enabled: bool) -> Schema:
    """An Ensemble, once PersonaPack; the two differ in what holds where `enabled` is not given."""
    members = _named_list("The agents of the pack.", _member())
    described: Schema = {
        "enabled": _flag("Whether the pack makes its agents.", enabled),
        "agentConfigs": members,
        "personas": members | {"description": "The name of agentConfigs before it was called so."},
        "authRefs": _auth(),
        "excludePersonas": _texts("Members that are not made."),
        "baseURL": _text("The address of the model, where it is not the provider's own."),
        "modelRef": _text("A Model of the cluster for all members."),
        "agentSandbox": _sandbox(),
        **_parts_of_pods(PACK_KEYS),
    }
    return _mapping("Agents that are made together.", PACK_KEYS, described) | {
        "oneOf": [{"required": ["agentConfigs"]}, {"required": ["personas"]}]
    }


def run_status() -> Schema:
    """What the operator writes on a run, and what other tools look for there."""
    hook = _typed(
        {
            "name": "key",
            "stage": "key",
            "state": "string",
            "exitCode": "integer",
            "reason": "string",
            "message": "string",
            "startedAt": "date-time",
            "seconds": "number",
            "tail": "string",
        }
    )
    hook["properties"]["stage"]["enum"] = [str(Stage.PRE_RUN), str(Stage.POST_RUN)]
    usage = ("inputTokens", "outputTokens", "totalTokens", "toolCalls", "durationMs")
    own = _typed(
        {
            "phase": "string",
            **dict.fromkeys(("podName", "jobName", "sandboxName", "sandboxClaimName"), "string"),
            **dict.fromkeys(("startedAt", "completedAt"), "date-time"),
            **dict.fromkeys(("result", "error"), "string"),
            "exitCode": "integer",
            **dict.fromkeys(("deploymentName", "serviceName", "traceID", "postRunJobName"), "string"),
            **dict.fromkeys(("gateVerdict", "gateDigest"), "string"),
        }
    )
    own["properties"] |= {
        "phase": _text(f"Where the run is: {', '.join(Phase)}."),
        "gateVerdict": _text("What the gate came to: approved, rejected, rewritten, timeout, error."),
        "gateDigest": _text("The SHA-256 of the answer that a verdict is asked for."),
        "tokenUsage": _typed(dict.fromkeys(usage, "long")),
        "costEstimate": ANY,
        "delegates": {"type": "array", "items": {"type": "object", **ANY}},
        "hooks": {
            **_list_of("Each hook: its state, exit code, reason, times and last lines.", hook),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["stage", "name"],
        },
    }
    hook["required"] = ["stage", "name"]
    return _with_conditions(own)


def status() -> Schema:
    """The status of the other kinds."""
    return _with_conditions(_typed({"phase": "string"}))


_TYPES: Mapping[str, Schema] = {
    "key": {"type": "string"},
    "string": {"type": "string", **_MAY_BE_EMPTY},
    "integer": {"type": "integer", "format": "int32"},
    "long": {"type": "integer", "format": "int64"},
    "number": {"type": "number"},
    "date-time": {"type": "string", "format": "date-time"},
}
_POD_LIST: Schema = {"type": "array", "items": {"type": "object", **ANY}}
_PARTS_OF_PODS: Mapping[str, Schema] = {
    "volumes": {**_POD_LIST, "description": "More volumes of the agent's pod."},
    "volumeMounts": {**_POD_LIST, "description": "Where the agent's container sees them."},
    "tolerations": {**_POD_LIST, "description": "The taints that pods of the run tolerate."},
    "nodeSelector": {
        "type": "object",
        "description": "Labels of the nodes that pods of the run may stand on.",
        "additionalProperties": {"type": "string", **_MAY_BE_EMPTY},
    },
}
"""Parts that are handed to the cluster as they are, wherever an object has them."""


def _lifecycle() -> Schema:
    rule = _mapping(
        "",
        RULE_KEYS,
        {
            "apiGroups": _texts('API groups; "" is that of pods and configmaps.'),
            "resources": _texts("Such as configmaps."),
            "verbs": _texts("Such as get."),
        },
        required=RULE_KEYS,
    )
    described: Schema = {
        "preRun": _named_list("Containers before the agent, one after another.", _hook(Stage.PRE_RUN)),
        "postRun": _named_list("Containers after the agent, whatever became of it.", _hook(Stage.POST_RUN)),
        "rbac": _list_of("What hooks may do in the run's namespace. The agent may not.", rule),
        "gateDefault": _word(
            "What becomes of an answer on which no verdict came.",
            GATE_DEFAULTS,
            _default(Lifecycle, "gate_default"),
        ),
    }
    return _mapping("Containers around a run.", LIFECYCLE_KEYS, described)


def _hook(stage: Stage) -> Schema:
    gate = _flag("Hold the answer back until a verdict is given. At most one postRun hook.")
    if stage is Stage.PRE_RUN:
        gate = _flag("Only postRun hooks have one.") | {"enum": [False]}
    described: Schema = {
        "name": _name("The hook, of a name of its own in its list.", LONGEST[stage]),
        "image": _needed("What the container is made of.", r"^\S+$"),
        "imagePullPolicy": _word(
            "When the image is fetched.", PULL_POLICIES, _default(HookSpec, "pull_policy")
        ),
        "command": _texts("In place of the image's entrypoint."),
        "args": _texts("After the command."),
        "env": _list_of("Variables of this hook.", _variable()),
        "timeout": _duration("The limit of this hook, such as 30s; 5m where it is not given."),
        "gate": gate,
        **{key: {**ANY, "description": "A hook does not have this: no effect."} for key in NOT_OF_A_HOOK},
    }
    return _mapping("", (*HOOK_KEYS, *NOT_OF_A_HOOK), described, required=("name", "image"))


def _variable() -> Schema:
    ref = _mapping(
        "A key of a Secret in the run's namespace.",
        SECRET_KEYS,
        {
            "name": _needed("The Secret."),
            "key": _needed("The key in it."),
            "optional": _flag("Leave the variable unset where the key is missing."),
        },
        required=("name", "key"),
    )
    described: Schema = {
        "name": _needed("The variable.", f"^{VARIABLE.pattern}$"),
        "value": _text("Its text."),
        "valueFrom": _mapping(
            "Where its text stands.", ("secretKeyRef",), {"secretKeyRef": ref}, required=("secretKeyRef",)
        ),
    }
    return _mapping("", ENV_KEYS, described, required=("name",)) | {
        "not": {"required": ["value", "valueFrom"]}
    }


def _member() -> Schema:
    described: Schema = {
        # It becomes part of an agent's name, behind that of the pack and a dash.
        "name": _name("The member; its agent is <pack>-<member>.", LONGEST_NAME - 2),
        "displayName": _text("What people call it."),
        "systemPrompt": _text("Said to the model before the task."),
        "model": _model("The model that is asked: its bare name, or a mapping."),
        "provider": _text("Where the model is asked."),
        "baseURL": _text("The address, where it is not the provider's own."),
        "skills": _texts("SkillPacks for the agent."),
        "toolPolicy": _tools(),
        "lifecycle": _lifecycle(),
    }
    return _mapping("", MEMBER_KEYS, described, required=("name",))


def _model(description: str) -> Schema:
    described: Schema = {
        "provider": _text("Where the model is asked."),
        "model": _text("The provider's name of the model."),
        "baseURL": _text("The address, where it is not the provider's own."),
        "thinking": _word("How much the model thinks.", THINKING),
        "authSecretRef": _text("The Secret with the key."),
        "modelRef": _text("A Model of the cluster instead."),
        "providerHeaders": _texts_by_name("Sent with each request."),
        **_parts_of_pods(MODEL_KEYS),
    }
    return {
        **_TEXT_OR_MAPPING,
        "description": description,
        "properties": _properties(MODEL_KEYS, described),
        "anyOf": [{"required": ["model"]}, {"required": ["modelRef"]}],
    }


def _task() -> Schema:
    described: Schema = {
        "mode": {"type": "string", "enum": list(TASK_MODES), "description": "How it is worked on."},
        "tool": _text("The tool that works on it."),
        "parameters": _texts_by_name("What the tool is given."),
    }
    return {
        **_TEXT_OR_MAPPING,
        "description": "What the agent is to do: a text, or a mapping with mode, tool and parameters.",
        "properties": _properties(TASK_KEYS, described),
        "required": ["mode"],
    }


def _sandbox() -> Schema:
    described: Schema = {
        "enabled": _flag("Run the agent's pod as a Sandbox."),
        "runtimeClass": _text("The RuntimeClass of its pod."),
        "runtimeClassName": _text("The same, as pods call it."),
        "warmPoolRef": _text("A pool of Sandboxes that wait."),
    }
    return _mapping("The agent in a Sandbox of agents.x-k8s.io.", SANDBOX_KEYS, described) | ANY


def _tools() -> Schema:
    described: Schema = {
        "allow": _texts("Tools that the agent has; all where it is not given."),
        "deny": _texts("Tools that it has not."),
    }
    return _mapping("Which tools the agent has.", TOOL_KEYS, described) | ANY


def _auth() -> Schema:
    described = {"provider": _text("The provider."), "secret": _needed("The Secret with its key.")}
    return _list_of_mappings("Keys of models. The first is used.", described, required=["secret"])


def _mapping(
    description: str, keys: Iterable[str], described: Mapping[str, Schema], *, required: Iterable[str] = ()
) -> Schema:
    made: Schema = {"type": "object", "properties": _properties(keys, described)}
    if description:
        made["description"] = description
    return made | ({"required": list(required)} if required else {})


def _properties(keys: Iterable[str], described: Mapping[str, Schema]) -> Schema:
    made = {key: described.get(key, ANY) for key in keys}
    unread = described.keys() - made.keys()
    if unread:
        raise ValueError(f"described, and read by nobody: {', '.join(sorted(unread))}")
    return made


def _parts_of_pods(keys: Iterable[str]) -> Mapping[str, Schema]:
    return {key: _PARTS_OF_PODS[key] for key in keys if key in _PARTS_OF_PODS}


def _with_conditions(own: Schema) -> Schema:
    condition = _typed(
        {
            **dict.fromkeys(("type", "status"), "key"),
            **dict.fromkeys(("reason", "message"), "string"),
            "lastTransitionTime": "date-time",
            "observedGeneration": "long",
        }
    )
    condition["properties"]["status"]["enum"] = ["True", "False", "Unknown"]
    condition["required"] = ["type", "status"]
    own["properties"] |= {
        "observedGeneration": {**_TYPES["long"], "description": "The generation that this is about."},
        "conditions": {
            **_list_of("What holds of the object besides.", condition),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    }
    return own


def _typed(types: Mapping[str, str]) -> Schema:
    """A mapping of plain values that may hold more than these."""
    return {"type": "object", **ANY, "properties": {key: dict(_TYPES[kind]) for key, kind in types.items()}}


def _named_list(description: str, item: Schema) -> Schema:
    """A list in which each `name` stands once."""
    return {
        **_list_of(description, item),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }


def _list_of(description: str, item: Schema) -> Schema:
    return {"type": "array", "description": description, "items": item}


def _list_of_mappings(description: str, known: Schema, **more: Any) -> Schema:
    return _list_of(description, {"type": "object", **ANY, "properties": known, **more})


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **_MAY_BE_EMPTY, **more}


def _needed(description: str, pattern: str = _NOT_BLANK, **more: Any) -> Schema:
    return {"type": "string", "description": description, "pattern": pattern, **more}


def _texts(description: str) -> Schema:
    return _list_of(description, {"type": "string", **_MAY_BE_EMPTY})


def _texts_by_name(description: str) -> Schema:
    # A whole number is read as its text.
    return {
        "type": "object",
        "description": description,
        "additionalProperties": {"x-kubernetes-int-or-string": True, **_MAY_BE_EMPTY},
    }


def _name(description: str, longest: int) -> Schema:
    return _needed(description, NAME, maxLength=longest)


def _duration(description: str) -> Schema:
    return _text(description, pattern=DURATION)


def _word(description: str, known: Iterable[str], default: str = "") -> Schema:
    # An empty text is a word that is not given.
    return _text(description, enum=[*known, ""], **({"default": default} if default else {}))


def _flag(description: str, default: bool | None = None) -> Schema:
    made: Schema = {"type": "boolean", "description": description}
    return made if default is None else {**made, "default": default}


def _default(kind: type, field: str) -> Any:
    """What a value of ours has where the file does not say."""
    return next(each.default for each in fields(kind) if each.name == field)
