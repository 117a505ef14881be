"""Runs on a cluster at the terminal: `hookline runs`, `approve`, `reject`, `rewrite` with `--on kubernetes`."""

from __future__ import annotations

import asyncio
import getpass
import json as jsonlib
import os
import socket
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace

from hookline.engine.record import Record, Verdict, VerdictKind
from hookline.errors import JournalError, UsageError
from hookline.journal import open_journal
from hookline.journal.masking import Mask
from hookline.journal.view import Tree, duration, moment
from hookline.kube.client import Cluster, connected
from hookline.kube.objects import AGENT_RUN, SECRET, ApiRefused, Conflict, Object, items, phase_of, within
from hookline.options import Target
from hookline.secrets import secrets_in
from hookline.sympozium import phases
from hookline.sympozium.cluster.ledger import Ledger
from hookline.sympozium.cluster.objects import names
from hookline.sympozium.cluster.observation import VERDICT, agent_name, read_secret
from hookline.sympozium.cluster.records import moment_of, records_of, run_id_of
from hookline.sympozium.view import lines_of_status
from hookline.terminal import out, print_json, print_runs, show, warn


def runs_there(target: Target, run: str = "", *, limit: int = 20, json: bool = False) -> int:
    """List the AgentRuns of a namespace, or show one: what happened, its phase, its conditions and its hooks.

    One that was started from here is brought up to date in the journal.
    """

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


async def _found(cluster: Cluster, name: str, namespace: str) -> Object:
    """The AgentRun with this name or prefix; `last` is the newest."""
    runs, _ = await cluster.list(AGENT_RUN, namespace)
    exact = [each for each in runs if each["metadata"]["name"] == name]
    if name == "last" and not exact:
        exact = sorted(runs, key=_created)[-1:]
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
        warn(f"the journal is not brought up to date: {exc}")
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
                moment(when) if (when := began or moment_of(_created(each))) else "",
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
    before = phases.verdict(str(within(run, "metadata", "annotations").get(VERDICT, "")))
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
    if phases.digest(answer) != digest:
        raise UsageError(f"run {name} has a new answer in the meantime; try again")
    out.print(f"the answer of {name}:")
    exact = Mask(secrets_in(os.environ)).exact()
    out.print(exact.text(answer), whole=True)
    if exact.hidden:
        out.print(f"{exact.hidden} characters of known secrets are hidden (*)", style="yellow")


def _confirmed(kind: VerdictKind) -> bool:
    out.print(f"{kind} this answer? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _answer(cluster: Cluster, run: Object, word: Verdict, digest: str) -> None:
    """Write the verdict, only on the run as it was read: the second of two people gets an error."""
    by = cluster.user or f"{getpass.getuser()}@{socket.gethostname()}"
    said = asdict(replace(phases.verdict_of(word), by=by, digest=digest))
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
