"""`hookline run agentrun.yaml --on kubernetes`: puts the run on a cluster, and follows it to its end.

The AgentRun that is put there is complete by itself. A Secret of the file gets a name of the run's own: it replaces no
other Secret, and is removed with the run.
"""

from __future__ import annotations

import asyncio
import json as jsonlib
import os
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from decimal import Decimal
from typing import Any, cast

from hookline.engine.record import Journal, new_run_id
from hookline.errors import UsageError
from hookline.journal import open_journal
from hookline.journal.masking import Mask
from hookline.kube import objects
from hookline.kube.client import Cluster, connected
from hookline.kube.jobs import MANAGED
from hookline.kube.objects import AlreadyThere, Object, bare, child, mapping, owner_reference, within
from hookline.options import KUBERNETES, Target
from hookline.secrets import secrets_in
from hookline.source import load_all, without_lines
from hookline.sympozium import environment
from hookline.sympozium.check import doubts, unheeded
from hookline.sympozium.cluster.follow import RunFollower
from hookline.sympozium.cluster.objects import FOLLOWED, FOR_RUNS, RUN_LABEL, value_object
from hookline.sympozium.policy import governed, policy_of
from hookline.sympozium.read import RUN, RunManifests, parse
from hookline.sympozium.resolve import RunRequest, named, secret_values
from hookline.sympozium.types import GROUP, ContainerHook, Instance, RunSpec, SecretRef, Value
from hookline.table import Table, unread
from hookline.terminal import warn

_EMPTY: tuple[Any, ...] = (None, "", [], {})


def submit(
    asked: RunRequest, spec: RunSpec, target: Target, *, json: bool = False, quiet: bool = False
) -> int:
    """Put the requested AgentRun on a cluster, and follow it to its end."""
    secrets = secret_values(asked, spec, os.environ)
    mask = Mask([*secrets_in(os.environ), *secrets])
    quiet = quiet or json

    async def main(journal: Journal) -> int:
        async with connected(target) as cluster:
            made = await _Submission(cluster, asked, quiet=quiet).make(spec, target)
            where = target.words(made["metadata"]["namespace"])
            follow = RunFollower(cluster, made, where, mask, journal, json=json, quiet=quiet)
            return await follow.ended()

    with open_journal(secrets) as journal:
        return asyncio.run(main(journal))


class _Submission:
    """One run of a file, put on a cluster with the agent and the Secrets that the file brings."""

    def __init__(self, cluster: Cluster, asked: RunRequest, *, quiet: bool) -> None:
        self._cluster, self._asked, self._quiet = cluster, asked, quiet
        self._manifests = parse(asked.text, asked.file)
        self._objects = documents(asked.text, asked.file)

    async def make(self, spec: RunSpec, target: Target) -> Object:
        said = target.namespace or (spec.namespace if names_namespace(self._objects) else "")
        name = self._asked.name or named(spec.name, new_run_id())
        run = replace(spec, name=name, namespace=said or self._cluster.namespace)
        found = [*doubts(run), *unheeded(run)]
        self._tell(*dict.fromkeys(map(str, found)))
        # The first call: an error of the connection comes before anything is created.
        await self._cluster.list(objects.AGENT_RUN, run.namespace, {FOLLOWED: name})
        run = await self._with_agent(await self._with_policy(run))
        known = self._manifests.secrets
        put: list[Object] = []
        try:
            # Before the run, so that none of its containers waits for them.
            for each in secrets_of(run, self._objects, known):
                put.append(await self._cluster.create(each))
            made = await self._cluster.create(manifest(with_own_secrets(run, known)))
        except BaseException:
            for head in (each["metadata"] for each in put):
                await self._cluster.delete(objects.SECRET, head["name"], run.namespace, uid=head["uid"])
            raise
        head = made["metadata"]
        owner = owner_reference(objects.AGENT_RUN, head["name"], head["uid"], controller=False)
        for each in put:
            change: Object = {"metadata": {"ownerReferences": [owner]}}
            await self._cluster.patch(objects.SECRET, each["metadata"]["name"], run.namespace, change)
        return made

    async def _with_policy(self, run: RunSpec) -> RunSpec:
        """The run with the limits of its policy: the file's, which is put on the cluster, or the cluster's."""
        if not run.policy:
            return run
        stored = await self._cluster.get(objects.POLICY, run.policy, run.namespace)
        written = source_of(self._objects, run, run.policy, objects.POLICY.kind)
        if stored is None and written is not None:
            await self._put_source(run, written)
        found = stored or written
        read = parse(jsonlib.dumps(bare(found)), f"SympoziumPolicy {run.policy}") if found else RunManifests()
        for problem in read.problems:
            raise problem
        if stored is not None and written is not None and stored.get("spec") != written.get("spec"):
            self._tell(
                f"the SympoziumPolicy {run.policy!r} on the cluster is not the one in {self._asked.file}; this run has"
                " the limits of both (kubectl apply -f changes the cluster's)"
            )
        policy = policy_of(run, (replace(each, namespace=run.namespace) for each in read.policies))
        return governed(run, policy, KUBERNETES) if policy else run

    async def _with_agent(self, run: RunSpec) -> RunSpec:
        """The run with an agent of the cluster, or without one: all that it takes from the file's agent is in the run."""
        if not run.instance:
            return run
        written = next((each for each in self._manifests.agents if each.name == run.instance), None)
        for kind in (objects.AGENT, objects.INSTANCE):
            stored = await self._cluster.get(kind, run.instance, run.namespace)
            if stored is None:
                continue
            if written and differs(stored, written):
                self._tell(
                    f"the {kind.kind} {run.instance!r} on the cluster is not the one in {self._asked.file}; this run"
                    " has what the file says, and the cluster's stays as it is (kubectl apply -f changes it)"
                )
            return run
        source = source_of(self._objects, run, *maker(self._manifests, run))
        if source is not None:
            await self._put_source(run, source)
            return run
        if run.lifecycle is None:
            # Its hooks would be the agent's, and one of them may be a guard.
            raise run.place.problem(
                f"agentRef names {run.instance!r}, and neither this file nor the namespace {run.namespace!r} has an"
                " Agent or SympoziumInstance of that name; apply it first, or leave agentRef out"
            )
        self._tell(
            f"there is no Agent {run.instance!r} in the namespace {run.namespace!r}; the run has no agentRef,"
            " so INSTANCE_NAME is empty"
        )
        return replace(run, instance="")

    async def _put_source(self, run: RunSpec, source: Object) -> None:
        told = f"{source['kind']} {source['metadata']['name']!r}"
        try:
            await self._cluster.create(source)
        except AlreadyThere as exc:
            # A pack that is there, and has no such member.
            raise UsageError(
                f"the {told} is on the cluster already and makes no agent {run.instance!r}; kubectl apply -f changes it"
            ) from exc
        self._tell(
            f"the {told} of the file is on the cluster now, and stays there; Secrets of the file go with the run"
        )

    def _tell(self, *texts: str) -> None:
        for text in () if self._quiet else texts:
            warn(text)


def manifest(run: RunSpec) -> Object:
    """The AgentRun that is read as this run again."""
    if run.model and not (run.model.model or run.model.ref):
        run = replace(run, model=None)  # the name of a provider alone is no model
    tools = {"allow": list(run.tools_allowed), "deny": list(run.tools_denied)}
    return {
        **objects.with_head(objects.AGENT_RUN, run.name, run.namespace, {FOLLOWED: run.name, **MANAGED}),
        "spec": _written(RUN, run) | ({"toolPolicy": tools} if any(tools.values()) else {}),
    }


def documents(text: str, file: str) -> list[Object]:
    """Every object of a file as it is written, also those of a List."""
    found = (mapping(without_lines(each.value)) for each in objects.objects_in(load_all(text, file)))
    return [cast("Object", each) for each in found]


def names_namespace(written: list[Object]) -> bool:
    """True if the file itself says in which namespace its objects stand."""
    return any(within(each, "metadata").get("namespace") for each in written if _is_ours(each))


def maker(manifests: RunManifests, run: RunSpec) -> tuple[str, ...]:
    """The name and the kinds of the object that makes the run's agent: the agent itself, or the pack that it is a member of."""
    for pack in manifests.packs:
        if any(member.instance.name == run.instance for member in pack.members):
            return pack.name, pack.kind
    return run.instance, "Agent", "SympoziumInstance"


def source_of(written: list[Object], run: RunSpec, name: str, *kinds: str) -> Object | None:
    """The object of the file with that name and one of the kinds, for the run's namespace."""
    for each in written:
        metadata = {**within(each, "metadata"), "namespace": run.namespace}
        if metadata.get("name") == name and each.get("kind") in kinds and _is_ours(each):
            return {"apiVersion": GROUP, "kind": each["kind"], "metadata": metadata, "spec": each.get("spec")}
    return None


def differs(stored: Mapping[str, Any], written: Instance) -> bool:
    """True if the agent on the cluster gives its runs something else than the one in the file."""
    found = parse(jsonlib.dumps({**bare(stored), "metadata": {"name": written.name}}), written.name).instances
    return not found or any(
        getattr(found[0], key) != getattr(written, key)
        for key in ("model", "system_prompt", "lifecycle", "timeout", "policy")
    )


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
    run: RunSpec, written: list[Object], known: Mapping[str, Mapping[str, str]]
) -> tuple[Object, ...]:
    """The Secrets of the file that the run, as the file has it, names."""
    kinds = {
        str(within(each, "metadata").get("name")): each.get("type")
        for each in written
        if each.get("kind") == "Secret"
    }
    labels = {RUN_LABEL: run.name, **FOR_RUNS, **MANAGED}
    return tuple(
        {
            **objects.with_head(objects.SECRET, _own_name(run, name), run.namespace, labels),
            "type": kinds.get(name) or "Opaque",
            "stringData": dict(known[name]),
        }
        for name in environment.secret_names(run)
        if name in known
    )


def _own_name(run: RunSpec, secret: str) -> str:
    return child(run.name, f"-{secret}", 253)


def _with_secrets(hook: ContainerHook, own: Mapping[str, str]) -> ContainerHook:
    def moved(value: Value) -> Value:
        return replace(value, name=own.get(value.name, value.name)) if isinstance(value, SecretRef) else value

    return replace(hook, env={name: moved(value) for name, value in hook.env.items()})


def _is_ours(each: Mapping[str, Any]) -> bool:
    return each.get("apiVersion") == GROUP


def _written(table: Table, value: Any) -> Object:
    """The keys that the value is read from, without those that are empty, which are read as not given."""
    keys: dict[str, str] = {}
    for name, key in sorted(table.keys.items(), key=lambda each: each[1].read is unread):
        if not key.today:
            keys.setdefault(key.field or name, name)
    found = {
        name: _plain(getattr(value, field, None), table.keys[name].below) for field, name in keys.items()
    }
    return {name: each for name, each in found.items() if each not in _EMPTY or table.keys[name].needed}


def _plain(value: Any, table: Table | None) -> Any:
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}s"  # written out, for Go reads no exponents
    if isinstance(value, tuple):
        listed = cast("tuple[Any, ...]", value)
        if table is not None and len(table.keys) == 1:
            return [dict.fromkeys(table.keys, each) for each in listed]
        return [_plain(each, table) for each in listed]
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return dict(given) if table is None else [value_object(*each) for each in given.items()]
    return _written(table, value) if table is not None and is_dataclass(value) else value
