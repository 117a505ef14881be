"""`hookline run FILE --on kubernetes`: puts the run on a cluster, and follows it to its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hookline.engine.lifecycle import new_run_id
from hookline.engine.record import Journal
from hookline.errors import UsageError
from hookline.journal.masking import Mask
from hookline.journal.user import open_journal
from hookline.kube.connect import Target, connected
from hookline.secret_names import secrets_in
from hookline.sympozium.check import doubts
from hookline.sympozium.cluster.follow import RunFollower
from hookline.sympozium.read import parse
from hookline.sympozium.resolve import RunRequest, secret_values
from hookline.sympozium.types import RunSpec
from hookline.terminal import err

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

Object = dict[str, Any]


def submit(
    asked: RunRequest, spec: RunSpec, target: Target, *, json: bool = False, quiet: bool = False
) -> int:
    """Make an AgentRun of what was asked for, and follow it to its end."""
    secrets = secret_values(asked, spec, os.environ)
    mask = Mask([*secrets_in(os.environ), *secrets])

    async def main(journal: Journal) -> int:
        async with connected(target) as cluster:
            made = await _submitted(cluster, asked, spec, target, quiet=quiet or json)
            where = target.words(made["metadata"]["namespace"])
            follow = RunFollower(cluster, made, where, mask, journal, json=json, quiet=quiet or json)
            return await follow.ended()

    with open_journal(secrets) as journal:
        return asyncio.run(main(journal))


async def _submitted(
    cluster: Cluster, asked: RunRequest, spec: RunSpec, target: Target, *, quiet: bool
) -> Object:
    """Put the run there, with the agent and the Secrets that its file brings."""
    from hookline.kube.kinds import AGENT_RUN, SECRET
    from hookline.sympozium.cluster import bundle as submitting

    manifests = parse(asked.text, asked.file)
    objects = submitting.documents(asked.text, asked.file)
    said = target.namespace or (spec.namespace if submitting.names_namespace(objects) else "")
    name = asked.name or submitting.named(spec.name, new_run_id())
    run = replace(spec, name=name, namespace=said or cluster.namespace)
    notes = [*map(str, doubts(run.hooks, set(run.env)).problems), *submitting.unheeded(run)]
    _tell(dict.fromkeys(notes), quiet=quiet)
    # The first call: what is wrong with the way there is told before anything is made.
    await cluster.list(AGENT_RUN, run.namespace, {submitting.FOLLOWED: name})
    run = await _with_agent(cluster, run, asked, quiet=quiet)
    secrets = submitting.secrets_of(run, objects, manifests.secrets)
    manifest = submitting.manifest(submitting.with_own_secrets(run, manifests.secrets))
    put: list[Object] = []
    try:
        # Before the run, so that none of its containers waits for them.
        for each in secrets:
            put.append(await cluster.create(each))
        made = await cluster.create(manifest)
    except BaseException:
        for each in put:
            await cluster.delete(SECRET, each["metadata"]["name"], run.namespace, uid=each["metadata"]["uid"])
        raise
    for each in put:
        await cluster.patch(SECRET, each["metadata"]["name"], run.namespace, _owned_by(made))
    return made


async def _with_agent(cluster: Cluster, run: RunSpec, asked: RunRequest, *, quiet: bool) -> RunSpec:
    """The run with an agent that is there, or without one: what it takes of the file's it has in itself."""
    from hookline.kube.kinds import AGENT, INSTANCE
    from hookline.sympozium.cluster import bundle as submitting

    if not run.instance:
        return run
    manifests = parse(asked.text, asked.file)
    written = submitting.instance_in(manifests, run.instance)
    for kind in (AGENT, INSTANCE):
        stored = await cluster.get(kind, run.instance, run.namespace)
        if stored is not None:
            if written and submitting.differs(stored, written):
                _tell([_DIFFERS.format(kind=kind.kind, name=run.instance, file=asked.file)], quiet=quiet)
            return run
    source = submitting.source_of(submitting.documents(asked.text, asked.file), manifests, run)
    if source is not None:
        return await _with_source(cluster, run, source, quiet=quiet)
    if run.lifecycle is None:
        # Its hooks would be the agent's, and one of them may be a guard.
        raise run.place.problem(
            f"agentRef names {run.instance!r}, and neither this file nor the namespace {run.namespace!r} has an"
            " Agent or SympoziumInstance of that name; apply it first, or leave agentRef out"
        )
    _tell([_NO_AGENT.format(name=run.instance, namespace=run.namespace)], quiet=quiet)
    return replace(run, instance="")


_DIFFERS = (
    "the {kind} {name!r} on the cluster is not the one in {file}; this run has what the file says, and the cluster's"
    " stays as it is (kubectl apply -f changes it)"
)
_NO_AGENT = "there is no Agent {name!r} in the namespace {namespace!r}; the run goes without agentRef, so INSTANCE_NAME is empty"


async def _with_source(cluster: Cluster, run: RunSpec, source: Object, *, quiet: bool) -> RunSpec:
    from hookline.kube.errors import AlreadyThere

    told = f"{source['kind']} {source['metadata']['name']!r}"
    try:
        await cluster.create(source)
    except AlreadyThere as exc:
        # A pack that is there, and has no such member.
        raise UsageError(
            f"the {told} is on the cluster already and makes no agent {run.instance!r}; kubectl apply -f changes it"
        ) from exc
    _tell(
        [
            f"the {told} of the file is on the cluster now, and stays there; Secrets of the file go with the run"
        ],
        quiet=quiet,
    )
    return run


def _owned_by(run: Object) -> Object:
    from hookline.sympozium.cluster.objects import Owner

    metadata = run["metadata"]
    owner = Owner(name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])
    return {"metadata": {"ownerReferences": [{**owner.reference, "controller": False}]}}


def _tell(texts: Iterable[str], *, quiet: bool) -> None:
    for text in () if quiet else texts:
        err.print(text, style="yellow")
