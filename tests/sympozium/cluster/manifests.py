"""Objects of Sympozium's kinds for the schema and for the reader: one of each with every field, right ones, wrong ones."""

from functools import cache
from typing import Any

from hookline.kube.objects import LABEL
from hookline.kube.operator import crds
from hookline.sympozium.types import GROUP, VARIABLE

# Of two fields that cannot stand together, the one that is left out.
LEFT_OUT = ("instanceRef", "personas", "value")

Object = dict[str, Any]

HOOK = {"name": "a", "image": "busybox:1.36"}


@cache
def schemas() -> dict[str, Object]:
    """The schema of each kind; who changes it works on a copy."""
    return {
        crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for crd in crds()
    }


DURATION: str = schemas()["AgentRun"]["properties"]["spec"]["properties"]["timeout"]["pattern"]
SAMPLES = {f"^{LABEL.pattern}$": "a-1", f"^{VARIABLE.pattern}$": "NAME", DURATION: "1h30m"}


def made(kind: str, spec: Any, name: str = "r") -> Object:
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec}


def run(**spec: Any) -> Object:
    return made("AgentRun", spec)


def hooked(stage: str = "postRun", **fields: Any) -> Object:
    return run(task="t", lifecycle={stage: [{**HOOK, **fields}]})


def agent(**default: Any) -> Object:
    return made("Agent", {"agents": {"default": default}})


def full(kind: str) -> Object:
    """An object with everything that the schema has."""
    return made(kind, sample(schemas()[kind]["properties"]["spec"], "spec"), "full")


def sample(schema: Object, key: str) -> Any:
    """A value that fits, with all fields; a text says which field it stands in."""
    if key == "excludePersonas":
        return ["a-1"]
    if "enum" in schema:
        return next(word for word in reversed(schema["enum"]) if word != "")
    if "properties" in schema:
        return {
            name: sample(inner, name) for name, inner in schema["properties"].items() if name not in LEFT_OUT
        }
    if "additionalProperties" in schema:
        return {"NAME": f"{key}-text"}
    if schema.get("type") == "array":
        return [sample(schema["items"], key)]
    plain = {"boolean": not schema.get("default", False), "integer": 3, "number": 1.5}
    text = SAMPLES.get(schema.get("pattern", ""), f"{key}-text")
    return (
        {"more": {"kept": [1, key]}}
        if "type" not in schema or schema["type"] == "object"
        else plain.get(schema["type"], text)
    )


REFERENCE = {"secretKeyRef": {"name": "s", "key": "k"}}
PACK = {"agentConfigs": [{"name": "a"}]}

RIGHT: dict[str, Object] = {
    "a task as a text": run(task="look"),
    "a task as a mapping": run(task={"mode": "sidecar-driven", "tool": "t", "parameters": {"n": 3}}),
    "no task, no model": run(),
    "a model by its name": run(task="t", model="gpt-4o"),
    "a model of the cluster": run(task="t", model={"modelRef": "m"}),
    "variables that are numbers": run(task="t", env={"PORT": 8080, "HOST": "h"}),
    "the old name of the agent": run(task="t", instanceRef="oncall"),
    "words that are not given": run(task="t", cleanup="", mode="", timeout="", lifecycle={"gateDefault": ""}),
    "texts that are empty": run(
        sessionKey="",
        env={"A": ""},
        lifecycle={"postRun": [{**HOOK, "args": [""], "env": [{"name": "A", "value": ""}]}]},
    ),
    "a rule of the first group": run(
        lifecycle={"rbac": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}
    ),
    "a limit in parts": run(task="t", timeout="1h30m0.5s"),
    "a limit with a point": run(task="t", timeout=".5m"),
    "parts of the cluster": run(task="t", tolerations=[{"key": "k"}], backend={"of": ["any", 1]}),
    "the longest name before": hooked("preRun", name="a" * 59),
    "the longest name after": hooked(name="a" * 58),
    "the longest name of a run": made("AgentRun", {"task": "t"}, "r" * 63),
    "a gate": hooked(gate=True),
    "the word for no gate": hooked("preRun", gate=False),
    "a secret": hooked(env=[{"name": "A", "valueFrom": REFERENCE}]),
    "a variable twice": hooked(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
    "a variable without a text": hooked(env=[{"name": "A"}]),
    "what a hook does not have": hooked(resources={"limits": {}}, workingDir="/x"),
    "one name before and after": run(task="t", lifecycle={"preRun": [HOOK], "postRun": [HOOK]}),
    "an agent with a bare model": agent(model="gpt-4o", provider="openai"),
    "an agent with a mapping": agent(model={"provider": "openai", "model": "gpt-4o"}, runTimeout="5m"),
    "an instance": made("SympoziumInstance", {"agents": {"default": {}}}),
    "a pack": made("Ensemble", PACK),
    "a pack with the old word": made("PersonaPack", {"personas": [{"name": "a", "skills": ["s"]}]}),
    "a pack without members": made("Ensemble", {"agentConfigs": []}),
}

WRONG: dict[str, tuple[Object, str]] = {
    "no spec": ({"apiVersion": GROUP, "kind": "AgentRun", "metadata": {"name": "r"}}, "spec"),
    "no label for a name": (made("AgentRun", {"task": "t"}, "a.b"), "metadata.name"),
    "a name too long": (made("AgentRun", {"task": "t"}, "r" * 64), "metadata.name"),
    "a task that is a number": (run(task=3), "spec.task"),
    "a task that is a list": (run(task=["t"]), "spec.task"),
    "a task that is an empty list": (run(task=[]), "spec.task"),
    "a task that is a flag": (run(task=True), "spec.task"),
    "a task that is blank": (run(task="  "), "spec.task"),
    "a task in an unknown mode": (run(task={"mode": "other"}), "spec.task.mode"),
    "a task without a mode": (run(task={"tool": "t"}), "spec.task.mode"),
    "a parameter that is a list": (
        run(task={"mode": "sidecar-driven", "parameters": {"a": []}}),
        "spec.task.parameters.a",
    ),
    "a model that is a number": (run(model=3), "spec.model"),
    "a model without a name": (run(model={"provider": "openai"}), "spec.model"),
    "a model that is blank": (run(model=""), "spec.model"),
    "an unknown way of thinking": (run(model={"model": "m", "thinking": "hard"}), "spec.model.thinking"),
    "both names of the agent": (run(agentRef="a", instanceRef="a"), "spec"),
    "an agent's name that is a number": (run(agentRef=3), "spec.agentRef"),
    "variables as a list": (run(env=[{"name": "A"}]), "spec.env"),
    "a variable that is a flag": (run(env={"A": True}), "spec.env.A"),
    "an unknown word for cleanup": (run(cleanup="never"), "spec.cleanup"),
    "an unknown mode": (run(mode="serve"), "spec.mode"),
    "a flag that is a text": (run(useContext="yes"), "spec.useContext"),
    "a limit in words": (run(timeout="soon"), "spec.timeout"),
    "a limit of nothing": (run(timeout="0s"), "spec.timeout"),
    "a limit that is zero": (run(timeout="0"), "spec.timeout"),
    "a limit without a unit": (run(timeout="5"), "spec.timeout"),
    "a limit below zero": (run(timeout="-5s"), "spec.timeout"),
    "a limit that is a number": (run(timeout=5), "spec.timeout"),
    "tools as a text": (run(toolPolicy={"allow": "bash"}), "spec.toolPolicy.allow"),
    "a sandbox's flag as a text": (run(agentSandbox={"enabled": "yes"}), "spec.agentSandbox.enabled"),
    "secrets of images as texts": (run(imagePullSecrets=["s"]), "spec.imagePullSecrets"),
    "hooks as a mapping": (run(lifecycle={"preRun": {}}), "spec.lifecycle.preRun"),
    "a hook without a name": (
        run(lifecycle={"postRun": [{"image": "b"}]}),
        "spec.lifecycle.postRun.name",
    ),
    "a hook without an image": (run(lifecycle={"postRun": [{"name": "a"}]}), "spec.lifecycle.postRun.image"),
    "a hook's name that is no label": (hooked(name="Fetch_It"), "spec.lifecycle.postRun.name"),
    "a hook's name too long before": (hooked("preRun", name="a" * 60), "spec.lifecycle.preRun.name"),
    "a hook's name too long after": (hooked(name="a" * 59), "spec.lifecycle.postRun.name"),
    "a hook twice": (run(lifecycle={"postRun": [HOOK, HOOK]}), "spec.lifecycle.postRun[1]"),
    "an image with a blank": (hooked(image="busy box"), "spec.lifecycle.postRun.image"),
    "an image that is empty": (hooked(image=""), "spec.lifecycle.postRun.image"),
    "an unknown pull policy": (hooked(imagePullPolicy="always"), "spec.lifecycle.postRun.imagePullPolicy"),
    "a command as a text": (hooked(command="echo"), "spec.lifecycle.postRun.command"),
    "an argument that is a number": (hooked(args=["a", 1]), "spec.lifecycle.postRun.args"),
    "a hook's limit of nothing": (hooked(timeout="0s"), "spec.lifecycle.postRun.timeout"),
    "a gate before the agent": (hooked("preRun", gate=True), "spec.lifecycle.preRun.gate"),
    "a gate that is a text": (hooked(gate="yes"), "spec.lifecycle.postRun.gate"),
    "a hook's variables as a mapping": (hooked(env={"A": "b"}), "spec.lifecycle.postRun.env"),
    "no name of a variable": (hooked(env=[{"name": "A B"}]), "spec.lifecycle.postRun.env.name"),
    "a variable without a name": (hooked(env=[{"value": "b"}]), "spec.lifecycle.postRun.env.name"),
    "a variable's text that is a number": (
        hooked(env=[{"name": "A", "value": 1}]),
        "spec.lifecycle.postRun.env.value",
    ),
    "a variable from elsewhere": (
        hooked(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]),
        "spec.lifecycle.postRun.env.valueFrom.secretKeyRef",
    ),
    "a variable from two places": (
        hooked(env=[{"name": "A", "value": "b", "valueFrom": REFERENCE}]),
        "spec.lifecycle.postRun.env",
    ),
    "a secret without its key": (
        hooked(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a"}}}]),
        "spec.lifecycle.postRun.env.valueFrom.secretKeyRef.key",
    ),
    "a rule without resources": (
        run(lifecycle={"rbac": [{"apiGroups": [""], "verbs": ["get"]}]}),
        "spec.lifecycle.rbac.resources",
    ),
    "a rule with a text": (
        run(lifecycle={"rbac": [{"apiGroups": "", "resources": ["a"], "verbs": ["get"]}]}),
        "spec.lifecycle.rbac.apiGroups",
    ),
    "an unknown default of gates": (run(lifecycle={"gateDefault": "maybe"}), "spec.lifecycle.gateDefault"),
    "an instance without agents": (made("SympoziumInstance", {}), "spec.agents"),
    "an agent without a default": (made("Agent", {"agents": {}}), "spec.agents.default"),
    "an agent's limit in words": (agent(runTimeout="soon"), "spec.agents.default.runTimeout"),
    "an agent's hook without an image": (
        agent(lifecycle={"preRun": [{"name": "a"}]}),
        "spec.agents.default.lifecycle.preRun.image",
    ),
    "a key of models without its secret": (
        made("Agent", {"agents": {"default": {}}, "authRefs": [{"provider": "p"}]}),
        "spec.authRefs.secret",
    ),
    "a pack without a list": (made("Ensemble", {"enabled": True}), "spec"),
    "a pack with two lists": (made("Ensemble", {**PACK, "personas": []}), "spec"),
    "a member twice": (made("Ensemble", {"agentConfigs": [{"name": "a"}] * 2}), "spec.agentConfigs[1]"),
    "a member without a name": (made("PersonaPack", {"personas": [{}]}), "spec.personas.name"),
    "a member's name that is no label": (
        made("PersonaPack", {"personas": [{"name": "A"}]}),
        "spec.personas.name",
    ),
    "a member's skills as mappings": (
        made("PersonaPack", {"personas": [{"name": "a", "skills": [{}]}]}),
        "spec.personas.skills",
    ),
    "a pack's flag as a text": (made("Ensemble", {**PACK, "enabled": "yes"}), "spec.enabled"),
}
"""Each with the field that is to be named; positions in lists are left out, since servers do not all tell them."""
