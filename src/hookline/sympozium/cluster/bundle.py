"""What is put on a cluster for one run of a file: the AgentRun, whole in itself, and the Secrets that are written there.

Values in, values out. A Secret of the file goes under a name of the run's own: it is nobody else's, takes the place of
none that is there, and goes with the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

from hookline.kube.fields import items, mapping, within
from hookline.kube.kinds import LONGEST_NAME
from hookline.kube.pods import child
from hookline.source import load_all, without_lines
from hookline.sympozium.cluster.objects import MANAGER, RUN_LABEL
from hookline.sympozium.lifecycle import ContainerHook, Lifecycle, SecretRef, Value
from hookline.sympozium.read import parse
from hookline.sympozium.types import GROUP, Instance, ModelSpec, RunManifests, RunSpec, Sandbox, TaskSpec

Object = dict[str, Any]

FOLLOWED = "hookline.dev/run"
"""The label by which a run is followed: its own name."""
_NOT_HERE = {"agentSandbox", "imagePullSecrets", "skills"}
"""Keys that only a cluster heeds, and that a run carries there."""


def manifest(run: RunSpec) -> Object:
    """The AgentRun that is read as this run again."""
    spec: Object = {
        "agentRef": run.instance,
        "agentId": run.agent_id,
        "sessionKey": run.session_key,
        "model": _model(run.model or ModelSpec()),
        "task": _task(run.task),
        "systemPrompt": run.system_prompt,
        "env": dict(run.env),
        "timeout": _duration(run.timeout) if run.timeout else None,
        "imagePullSecrets": [{"name": name} for name in run.image_pull_secrets],
        "cleanup": run.cleanup,
        "agentSandbox": _sandbox(run.sandbox),
        "lifecycle": _lifecycle(run.lifecycle),
        "mode": run.mode,
        "dryRun": run.dry_run,
        "canaryMode": run.canary,
        "skills": [{"skillPackRef": name} for name in run.skills],
        "toolPolicy": _written({"allow": list(run.tools_allowed), "deny": list(run.tools_denied)}),
    }
    return {
        "apiVersion": GROUP,
        "kind": "AgentRun",
        "metadata": {
            "name": run.name,
            "namespace": run.namespace,
            "labels": {FOLLOWED: run.name, "app.kubernetes.io/managed-by": MANAGER},
        },
        "spec": _written(spec) | ({} if run.use_context else {"useContext": False}),
    }


def named(name: str, mark: str) -> str:
    """A name for one more run of that name: with the mark behind it, and never too long."""
    return f"{name[: LONGEST_NAME - len(mark) - 1].rstrip('-')}-{mark}"


def documents(text: str, file: str) -> list[Object]:
    """Every object of a file as it is written, also those of a List."""
    found: list[Object] = []
    for document in load_all(text, file):
        value = mapping(without_lines(document.value))
        found += cast("list[Object]", items(value.get("items")) if value.get("kind") == "List" else [value])
    return found


def names_namespace(objects: list[Object]) -> bool:
    """Whether the file itself says in which namespace its objects stand."""
    return any(within(each, "metadata").get("namespace") for each in objects if _is_ours(each))


def source_of(objects: list[Object], manifests: RunManifests, run: RunSpec) -> Object | None:
    """The object of the file that makes the run's agent: the agent itself, or the pack that it is a member of."""
    wanted = {run.instance: ("Agent", "SympoziumInstance")}
    for pack in manifests.packs:
        if any(member.instance.name == run.instance for member in pack.members):
            wanted = {pack.name: (pack.kind,)}
    for each in objects:
        kinds = wanted.get(str(within(each, "metadata").get("name")), ())
        if each.get("kind") in kinds and _is_ours(each):
            metadata = {**within(each, "metadata"), "namespace": run.namespace}
            return {"apiVersion": GROUP, "kind": each["kind"], "metadata": metadata, "spec": each.get("spec")}
    return None


def instance_in(manifests: RunManifests, name: str) -> Instance | None:
    """The agent of that name, also as a member of a pack."""
    members = (member.instance for pack in manifests.packs for member in pack.members)
    return next((each for each in (*manifests.instances, *members) if each.name == name), None)


def differs(stored: Mapping[str, Any], written: Instance) -> bool:
    """Whether the agent on the cluster gives its runs something else than the one in the file."""
    bare = {key: stored.get(key) for key in ("apiVersion", "kind", "spec")}
    named = {**bare, "metadata": {"name": written.name}}
    found = parse(json.dumps(named), written.name).instances
    return not found or _given(found[0]) != _given(written)


def unheeded(run: RunSpec) -> list[str]:
    """What stands in the file and has no effect on a cluster either."""
    return [
        str(place.problem("has no effect: hookline's operator does not heed it"))
        for key, place in run.elsewhere.items()
        if key not in _NOT_HERE
    ]


def with_own_secrets(run: RunSpec, known: Mapping[str, Any]) -> RunSpec:
    """The run with those Secrets under names of its own."""
    own = {name: _own_name(run, name) for name in known}
    lifecycle = run.lifecycle and replace(
        run.lifecycle,
        pre_run=tuple(_with_secrets(hook, own) for hook in run.lifecycle.pre_run),
        post_run=tuple(_with_secrets(hook, own) for hook in run.lifecycle.post_run),
    )
    model = run.model and replace(
        run.model, auth_secret=own.get(run.model.auth_secret, run.model.auth_secret)
    )
    pulls = tuple(own.get(name, name) for name in run.image_pull_secrets)
    return replace(run, lifecycle=lifecycle, model=model, image_pull_secrets=pulls)


def secrets_of(
    run: RunSpec, objects: list[Object], known: Mapping[str, Mapping[str, str]]
) -> tuple[Object, ...]:
    """The Secrets of the file that the run, as the file has it, names."""
    asked = [name for name in dict.fromkeys(_asked(run)) if name in known]
    kinds = {
        str(within(each, "metadata").get("name")): each.get("type")
        for each in objects
        if each.get("kind") == "Secret"
    }
    return tuple(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": _own_name(run, name),
                "namespace": run.namespace,
                "labels": {RUN_LABEL: run.name, "app.kubernetes.io/managed-by": MANAGER},
            },
            "type": kinds.get(name) or "Opaque",
            "stringData": dict(known[name]),
        }
        for name in asked
    )


def _own_name(run: RunSpec, secret: str) -> str:
    return child(run.name, f"-{secret}", 253)


def _asked(run: RunSpec) -> Iterator[str]:
    for hook in (*run.hooks.pre_run, *run.hooks.post_run):
        yield from (value.name for value in hook.env.values() if isinstance(value, SecretRef))
    yield from (run.model.auth_secret,) if run.model else ()
    yield from run.image_pull_secrets


def _with_secrets(hook: ContainerHook, own: Mapping[str, str]) -> ContainerHook:
    def moved(value: Value) -> Value:
        return replace(value, name=own.get(value.name, value.name)) if isinstance(value, SecretRef) else value

    return replace(hook, env={name: moved(value) for name, value in hook.env.items()})


def _given(instance: Instance) -> tuple[Any, ...]:
    return (instance.model, instance.system_prompt, instance.lifecycle, instance.timeout)


def _is_ours(each: Mapping[str, Any]) -> bool:
    return each.get("apiVersion") == GROUP


def _model(model: ModelSpec) -> Object:
    if not model.model and not model.ref:
        return {}  # the name of a provider alone is no model
    return _written(
        {
            "provider": model.provider,
            "model": model.model,
            "baseURL": model.base_url,
            "authSecretRef": model.auth_secret,
            "thinking": model.thinking,
            "modelRef": model.ref,
            "providerHeaders": dict(model.headers),
        }
    )


def _task(task: str | TaskSpec | None) -> Any:
    if not isinstance(task, TaskSpec):
        return task
    return _written({"mode": task.mode, "tool": task.tool, "parameters": dict(task.parameters)})


def _sandbox(sandbox: Sandbox | None) -> Object | None:
    if sandbox is None:
        return None
    more = _written({"runtimeClass": sandbox.runtime_class, "warmPoolRef": sandbox.warm_pool})
    return {"enabled": sandbox.enabled, **more}


def _lifecycle(lifecycle: Lifecycle | None) -> Object:
    if lifecycle is None:
        return {}
    rules = [
        {"apiGroups": list(rule.api_groups), "resources": list(rule.resources), "verbs": list(rule.verbs)}
        for rule in lifecycle.rbac
    ]
    return _written(
        {
            "preRun": [_hook(hook) for hook in lifecycle.pre_run],
            "postRun": [_hook(hook) for hook in lifecycle.post_run],
            "rbac": rules,
            "gateDefault": lifecycle.gate_default,
        }
    )


def _hook(hook: ContainerHook) -> Object:
    return _written(
        {
            "name": hook.name,
            "image": hook.image,
            "imagePullPolicy": hook.pull_policy,
            "command": list(hook.command),
            "args": list(hook.args),
            "env": [{"name": name, **_value(value)} for name, value in hook.env.items()],
            "timeout": _duration(hook.timeout),
            "gate": hook.gate,
        }
    )


def _value(value: Value) -> Object:
    if isinstance(value, str):
        return {"value": value}
    ref: Object = {"name": value.name, "key": value.key}
    return {"valueFrom": {"secretKeyRef": ref | ({"optional": True} if value.optional else {})}}


def _duration(seconds: float) -> str:
    """Written out, for Go reads no exponents."""
    return f"{Decimal(repr(seconds)):f}s"


def _written(fields: Object) -> Object:
    """Without what is empty, which is read as not given."""
    return {key: value for key, value in fields.items() if value not in (None, "", [], {}, False)}
