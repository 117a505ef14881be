"""AgentRuns with `--on kubernetes`: `hookline run`, which follows the run to its end, `runs`, `approve`, `reject`, `rewrite`.

The AgentRun that is put on a cluster is complete by itself. A Secret of the file gets a name of the run's own: it replaces no
other Secret, and is removed with the run.
"""

from __future__ import annotations

import asyncio
import getpass
import json as jsonlib
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from hookline.engine.lifecycle import new_run_id
from hookline.engine.record import Journal, Record, Verdict, VerdictKind
from hookline.errors import JournalError, UsageError
from hookline.journal import open_journal
from hookline.journal.masking import Mask
from hookline.journal.view import Tree, duration, moment
from hookline.kube.objects import (
    AGENT,
    AGENT_RUN,
    INSTANCE,
    SECRET,
    AlreadyThere,
    ApiRefused,
    Conflict,
    Object,
    bare,
    child,
    items,
    mapping,
    objects_in,
    phase_of,
    within,
)
from hookline.options import Target
from hookline.secret_names import secrets_in
from hookline.source import load_all, without_lines
from hookline.sympozium.check import doubts, unheeded
from hookline.sympozium.cluster.follow import FOLLOWED, RunFollower
from hookline.sympozium.cluster.ledger import Ledger
from hookline.sympozium.cluster.objects import MANAGER, RUN_LABEL, RunOwner, names, value_object
from hookline.sympozium.cluster.observation import VERDICT, agent_name, read_secret
from hookline.sympozium.cluster.records import lines_of_status, moment_of, records_of, run_id_of
from hookline.sympozium.phases import digest as digest_of
from hookline.sympozium.phases import verdict, verdict_of
from hookline.sympozium.read import RUN, RunManifests, parse
from hookline.sympozium.resolve import RunRequest, named, secret_values
from hookline.sympozium.types import GROUP, ContainerHook, Instance, RunSpec, SecretRef, Value
from hookline.table import Table, unread
from hookline.terminal import err, out, print_json, print_runs, show

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

_EMPTY: tuple[Any, ...] = (None, "", [], {})


def submit(
    asked: RunRequest, spec: RunSpec, target: Target, *, json: bool = False, quiet: bool = False
) -> int:
    """Put the requested AgentRun on a cluster, and follow it to its end."""
    secrets = secret_values(asked, spec, os.environ)
    mask = Mask([*secrets_in(os.environ), *secrets])
    quiet = quiet or json

    from hookline.kube.client import connected

    async def main(journal: Journal) -> int:
        async with connected(target) as cluster:
            made = await _Submission(cluster, asked, quiet=quiet).make(spec, target)
            where = target.words(made["metadata"]["namespace"])
            follow = RunFollower(cluster, made, where, mask, journal, json=json, quiet=quiet)
            return await follow.ended()

    with open_journal(secrets) as journal:
        return asyncio.run(main(journal))


def runs_there(target: Target, run: str = "", *, limit: int = 20, json: bool = False) -> int:
    """List the AgentRuns of a namespace, or show one: what happened, its phase, its conditions and its hooks.

    One that was started from here is brought up to date in the journal.
    """

    from hookline.kube.client import connected

    async def main() -> list[Object]:
        async with connected(target) as cluster:
            namespace = target.namespace or cluster.namespace
            if run:
                return [await _found(cluster, run, namespace)]
            found, _ = await cluster.list(AGENT_RUN, namespace)
            return sorted(found, key=_created, reverse=True)[:limit]

    found = asyncio.run(main())
    records = asyncio.run(_on_record(found[0])) if run else []
    if json:
        for each in found:
            print_json({"run_id": each["metadata"]["name"], "status": within(each, "status")})
    elif run:
        _show(found[0], records)
    elif found:
        _table(found)
    else:
        out.print(f"no runs yet; `hookline run agentrun.yaml {target.words()}` makes one")
    return 0


def answer_there(target: Target, run: str, word: Verdict, *, yes: bool = False) -> int:
    """Give a verdict on the answer that a run on a cluster holds back."""

    from hookline.kube.client import connected

    async def main() -> int:
        async with connected(target) as cluster:
            found = await _found(cluster, run, target.namespace or cluster.namespace)
            digest = _held(found)
            await _show_answer(cluster, found, digest)
            if not yes and sys.stdin.isatty() and not _confirmed(word.kind):
                return 1
            await _answer(cluster, found, word, digest)
        out.print(f"{word.kind}: {found['metadata']['name']}")
        return 0

    return asyncio.run(main())


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
        found = [*doubts(run.hooks, set(run.env)).problems, *unheeded(run)]
        self._tell(*dict.fromkeys(map(str, found)))
        # The first call: an error of the connection comes before anything is created.
        await self._cluster.list(AGENT_RUN, run.namespace, {FOLLOWED: name})
        run = await self._with_agent(run)
        known = self._manifests.secrets
        put: list[Object] = []
        try:
            # Before the run, so that none of its containers waits for them.
            for each in secrets_of(run, self._objects, known):
                put.append(await self._cluster.create(each))
            made = await self._cluster.create(manifest(with_own_secrets(run, known)))
        except BaseException:
            for head in (each["metadata"] for each in put):
                await self._cluster.delete(SECRET, head["name"], run.namespace, uid=head["uid"])
            raise
        owner = {**RunOwner.of(made).reference, "controller": False}
        for each in put:
            change: Object = {"metadata": {"ownerReferences": [owner]}}
            await self._cluster.patch(SECRET, each["metadata"]["name"], run.namespace, change)
        return made

    async def _with_agent(self, run: RunSpec) -> RunSpec:
        """The run with an agent of the cluster, or without one: all that it takes from the file's agent is in the run."""
        if not run.instance:
            return run
        written = instance_in(self._manifests, run.instance)
        for kind in (AGENT, INSTANCE):
            stored = await self._cluster.get(kind, run.instance, run.namespace)
            if stored is None:
                continue
            if written and differs(stored, written):
                self._tell(
                    f"the {kind.kind} {run.instance!r} on the cluster is not the one in {self._asked.file}; this run"
                    " has what the file says, and the cluster's stays as it is (kubectl apply -f changes it)"
                )
            return run
        source = source_of(self._objects, self._manifests, run)
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
            err.print(text, style="yellow")


def manifest(run: RunSpec) -> Object:
    """The AgentRun that is read as this run again."""
    if run.model and not (run.model.model or run.model.ref):
        run = replace(run, model=None)  # the name of a provider alone is no model
    tools = {"allow": list(run.tools_allowed), "deny": list(run.tools_denied)}
    return {
        **AGENT_RUN.head,
        "metadata": {
            "name": run.name,
            "namespace": run.namespace,
            "labels": {FOLLOWED: run.name, "app.kubernetes.io/managed-by": MANAGER},
        },
        "spec": _written(RUN, run) | ({"toolPolicy": tools} if any(tools.values()) else {}),
    }


def documents(text: str, file: str) -> list[Object]:
    """Every object of a file as it is written, also those of a List."""
    found = (mapping(without_lines(each.value)) for each in objects_in(load_all(text, file)))
    return [cast("Object", each) for each in found]


def names_namespace(objects: list[Object]) -> bool:
    """True if the file itself says in which namespace its objects stand."""
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
    return next((each for each in manifests.agents if each.name == name), None)


def differs(stored: Mapping[str, Any], written: Instance) -> bool:
    """True if the agent on the cluster gives its runs something else than the one in the file."""
    found = parse(jsonlib.dumps({**bare(stored), "metadata": {"name": written.name}}), written.name).instances
    return not found or any(
        getattr(found[0], key) != getattr(written, key)
        for key in ("model", "system_prompt", "lifecycle", "timeout")
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
    for hook in run.hooks.containers:
        yield from (value.name for value in hook.env.values() if isinstance(value, SecretRef))
    yield from (run.model.auth_secret,) if run.model else ()
    yield from run.image_pull_secrets


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


async def _found(cluster: Cluster, name: str, namespace: str) -> Object:
    """The AgentRun with this name or prefix; `last` is the newest."""
    runs, _ = await cluster.list(AGENT_RUN, namespace)
    exact = [each for each in runs if each["metadata"]["name"] == name]
    if name == "last" and not exact:
        exact = sorted(runs, key=lambda each: str(each["metadata"].get("creationTimestamp")))[-1:]
    found = exact or [each for each in runs if each["metadata"]["name"].startswith(name)]
    if not found:
        raise UsageError(f"there is no AgentRun {name!r} in the namespace {namespace!r} of {cluster.server}")
    if len(found) > 1:
        names = ", ".join(each["metadata"]["name"] for each in found[:5])
        raise UsageError(f"{name!r} could be {names}; give more of it")
    return found[0]


async def _on_record(run: Object) -> list[Record]:
    """The records of a run; where the journal has its beginning, it is brought up to date and has more of them."""
    run_id = run_id_of(run)
    try:
        with open_journal() as journal:
            if run_id in journal.find(run_id):
                await Ledger(journal).take(run)
                return journal.records(run_id)
    except JournalError as exc:
        err.print(f"the journal is not brought up to date: {exc}", style="yellow")
    return records_of(run)


def _show(run: Object, records: Iterable[Record]) -> None:
    metadata = run["metadata"]
    out.print(f"run {metadata['name']} in {metadata['namespace']}, made {metadata['creationTimestamp']}")
    tree = Tree(Mask(secrets_in(os.environ)), width=max(out.width, 60))
    for record in records:
        for line in tree.lines(record):
            show(line, out)
    status = within(run, "status")
    if not status:
        out.print("no status yet; is the operator running?", style="yellow")
    for line in lines_of_status(status) if status else ():
        show(line, out)
    if status.get("gateDigest"):
        out.print("  its answer waits for a verdict: hookline approve, reject or rewrite", style="yellow")


def _table(found: Iterable[Object]) -> None:
    rows: list[tuple[str, ...]] = []
    for each in found:
        status = within(each, "status")
        began, ended = moment_of(status.get("startedAt")), moment_of(status.get("completedAt"))
        took = duration(ended - began) if began and ended else ""
        rows.append(
            (
                each["metadata"]["name"],
                agent_name(each),
                moment(began or moment_of(_created(each)) or 0.0),
                took,
                str(sum(hook.get("state") in ("succeeded", "failed") for hook in items(status.get("hooks")))),
                "waiting" if status.get("gateDigest") else phase_of(each) or "no status",
            )
        )
    print_runs(rows)


def _created(run: Object) -> str:
    return str(run["metadata"].get("creationTimestamp") or "")


def _held(run: Object) -> str:
    """The digest of the answer that waits; a UsageError where none waits."""
    name, digest = run["metadata"]["name"], str(within(run, "status").get("gateDigest") or "")
    if not digest:
        gate = within(run, "status").get("gateVerdict")
        told = f", and its gate decided: {gate}" if gate else ""
        raise UsageError(
            f"run {name} is not waiting for an answer; its phase is {phase_of(run) or 'unknown'}{told}"
        )
    before = verdict(str(within(run, "metadata", "annotations").get(VERDICT, "")))
    if before is not None and before.digest == digest:
        raise UsageError(f"run {name}: someone else has just answered ({before.action} by {before.by})")
    return digest


async def _show_answer(cluster: Cluster, run: Object, digest: str) -> None:
    name, namespace = run["metadata"]["name"], run["metadata"]["namespace"]
    try:
        kept = await cluster.get(SECRET, names(name).record, namespace)
        answer = read_secret(kept or {}).seen.agent.result
    except ApiRefused as exc:
        out.print(f"the answer is not shown, because you may not read it: {exc.message}", style="yellow")
        return
    except (KeyError, ValueError) as exc:
        out.print(f"the answer is not shown, because its record cannot be read ({exc!r})", style="yellow")
        return
    if digest_of(answer) != digest:
        raise UsageError(f"run {name} has a new answer in the meantime; try again")
    out.print(f"the answer of {name}:")
    out.print(Mask(secrets_in(os.environ)).text(answer))


def _confirmed(kind: VerdictKind) -> bool:
    out.print(f"{kind} this answer? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _answer(cluster: Cluster, run: Object, word: Verdict, digest: str) -> None:
    """Write the verdict, only on the run as it was read: the second of two people gets an error."""
    by = cluster.user or f"{getpass.getuser()}@{socket.gethostname()}"
    said = asdict(replace(verdict_of(word), by=by, digest=digest))
    text = jsonlib.dumps({key: value for key, value in said.items() if value}, ensure_ascii=False)
    change: Object = {"metadata": {"annotations": {VERDICT: text}}}
    while True:
        name, namespace = run["metadata"]["name"], run["metadata"]["namespace"]
        version = run["metadata"]["resourceVersion"]
        try:
            await cluster.patch(AGENT_RUN, name, namespace, change, resource_version=version)
            return
        except Conflict:
            run = await _found(cluster, name, namespace)
            if _held(run) != digest:
                raise UsageError(
                    f"run {name} now waits for a verdict on another answer; look at it again"
                ) from None
