"""Runs on a cluster: `hookline runs`, `approve`, `reject`, `rewrite` and `explain` with `--on kubernetes`."""

from __future__ import annotations

import asyncio
import base64
import binascii
import getpass
import json as jsonlib
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from hookline.engine.record import Record, Verdict, VerdictKind
from hookline.errors import JournalError, UsageError
from hookline.journal.masking import Mask
from hookline.journal.user import open_journal
from hookline.journal.view import Tree, duration, moment
from hookline.kube.connect import Target, connected, found_run
from hookline.kube.fields import phase_of, within
from hookline.options import KUBERNETES, ExplainOptions
from hookline.secret_names import secrets_in
from hookline.source import text_of
from hookline.sympozium.cluster.ledger import Ledger
from hookline.sympozium.cluster.records import records_of, run_id_of
from hookline.sympozium.phases import Seen, verdict
from hookline.sympozium.phases import digest as digest_of
from hookline.sympozium.resolve import RunRequest, spec_of
from hookline.sympozium.run.state import lines_of_status
from hookline.sympozium.types import RunSpec
from hookline.terminal import Explained, ExplainedHook, err, out, print_json, print_runs, show
from hookline.times import parse_time

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

Object = dict[str, Any]

_OVER = ("succeeded", "failed")
_UNKNOWN = "IMAGE"


def runs_there(target: Target, run: str = "", *, limit: int = 20, json: bool = False) -> int:
    """List the AgentRuns of a namespace, or show one: what happened, its phase, its conditions and its hooks.

    One that was started from here is brought up to date in the journal.
    """

    async def main() -> list[Object]:
        from hookline.kube.kinds import AGENT_RUN

        async with connected(target) as cluster:
            namespace = target.namespace or cluster.namespace
            if run:
                return [await found_run(cluster, run, namespace)]
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
    """Say what becomes of the answer that a run on a cluster holds back."""

    async def main() -> int:
        async with connected(target) as cluster:
            found = await found_run(cluster, run, target.namespace or cluster.namespace)
            digest = _held(found)
            await _show_answer(cluster, found, digest)
            if not yes and sys.stdin.isatty() and not _confirmed(word.kind):
                return 1
            await _answer(cluster, found, word, digest)
        out.print(f"{word.kind}: {found['metadata']['name']}")
        return 0

    return asyncio.run(main())


def explain_there(options: ExplainOptions) -> Explained:
    """The objects of a cluster that a run comes to, and which containers run in which order."""
    file = options.file
    spec = spec_of(
        RunRequest(
            file=file,
            text=text_of(file),
            task="-",
            persona=options.persona,
            env=options.variables(),
            on=KUBERNETES,
        )
    )
    made = _objects(spec)
    return Explained(
        head=[f"{file}, on {KUBERNETES}"],
        hooks=[
            ExplainedHook(f"{each['kind']} {each['metadata']['name']}", line, "")
            for each in made
            for line in _parts(each)
        ],
        notes=[],
        value={"on": KUBERNETES, "objects": made},
    )


async def _on_record(run: Object) -> list[Record]:
    """What there is to tell of a run; in the journal too, where that has its beginning."""
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
        out.print("no status yet: nobody has looked after it; is the operator there?", style="yellow")
    for line in lines_of_status(status) if status else ():
        show(line, out)
    if status.get("gateDigest"):
        out.print("  its answer waits for a verdict: hookline approve, reject or rewrite", style="yellow")


def _table(found: Iterable[Object]) -> None:
    rows: list[tuple[str, ...]] = []
    for each in found:
        status, spec = within(each, "status"), cast("Object", each.get("spec") or {})
        began, ended = status.get("startedAt"), status.get("completedAt")
        took = duration(_at(ended) - _at(began)) if began and ended else ""
        hooks = cast("list[Object]", status.get("hooks") or [])
        rows.append(
            (
                each["metadata"]["name"],
                str(spec.get("agentRef") or spec.get("instanceRef") or ""),
                moment(_at(began or _created(each))),
                took,
                str(sum(hook.get("state") in _OVER for hook in hooks)),
                "waiting" if status.get("gateDigest") else phase_of(each) or "no status",
            )
        )
    print_runs(rows)


def _created(run: Object) -> str:
    return str(run["metadata"].get("creationTimestamp") or "")


def _at(text: Any) -> float:
    return parse_time(text).timestamp()


def _held(run: Object) -> str:
    """What the answer that waits is known by; a UsageError where none waits."""
    from hookline.sympozium.cluster.observation import VERDICT

    name, digest = run["metadata"]["name"], str(within(run, "status").get("gateDigest") or "")
    if not digest:
        gate = within(run, "status").get("gateVerdict")
        told = f", and its gate has come to: {gate}" if gate else ""
        raise UsageError(
            f"run {name} is waiting for nobody; its phase is {phase_of(run) or 'not told yet'}{told}"
        )
    before = verdict(str(within(run, "metadata", "annotations").get(VERDICT, "")))
    if before is not None and before.digest == digest:
        raise UsageError(f"run {name}: somebody else has just answered ({before.action} by {before.by})")
    return digest


async def _show_answer(cluster: Cluster, run: Object, digest: str) -> None:
    from hookline.kube.errors import Refused
    from hookline.kube.kinds import SECRET
    from hookline.sympozium.cluster.objects import names

    name, namespace = run["metadata"]["name"], run["metadata"]["namespace"]
    try:
        kept = await cluster.get(SECRET, names(name).record, namespace)
        answer = _result_in(kept or {})
    except Refused as exc:
        out.print(f"the answer is not shown, for you may not read it: {exc.message}", style="yellow")
        return
    except (KeyError, ValueError, binascii.Error) as exc:
        out.print(f"the answer is not shown, for its record cannot be read ({exc!r})", style="yellow")
        return
    if digest_of(answer) != digest:
        raise UsageError(f"run {name} has another answer by now than the one that waits; try again")
    out.print(f"the answer of {name}:")
    out.print(Mask(secrets_in(os.environ)).text(answer))


def _result_in(secret: Mapping[str, Any]) -> str:
    from hookline.sympozium.cluster.state import read

    texts = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    return read(texts).seen.agent.result


def _confirmed(kind: VerdictKind) -> bool:
    out.print(f"{kind} this answer? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _answer(cluster: Cluster, run: Object, word: Verdict, digest: str) -> None:
    """Written only on the run as it was read, so that of two people one is told that the other was there before."""
    from hookline.kube.errors import Conflict
    from hookline.kube.kinds import AGENT_RUN
    from hookline.sympozium.cluster.observation import VERDICT

    said = {
        **_said(word),
        "by": cluster.user or f"{getpass.getuser()}@{socket.gethostname()}",
        "digest": digest,
    }
    change: Object = {"metadata": {"annotations": {VERDICT: jsonlib.dumps(said, ensure_ascii=False)}}}
    while True:
        name, namespace = run["metadata"]["name"], run["metadata"]["namespace"]
        version = run["metadata"]["resourceVersion"]
        try:
            await cluster.patch(AGENT_RUN, name, namespace, change, resource_version=version)
            return
        except Conflict:
            run = await found_run(cluster, name, namespace)
            if _held(run) != digest:
                raise UsageError(
                    f"run {name} waits for a word on another answer now; look at it again"
                ) from None


def _said(word: Verdict) -> Object:
    """A person's word on an answer. What they wrote instead of it, or why not, is what goes out."""
    if word.kind is VerdictKind.REWRITE:
        text = word.value if isinstance(word.value, str) else jsonlib.dumps(word.value, ensure_ascii=False)
        return {"action": "rewrite", "response": text}
    if word.kind is VerdictKind.REJECT:
        return {"action": "reject", **({"response": word.text, "reason": word.text} if word.text else {})}
    return {"action": "approve"}


def _objects(spec: RunSpec) -> list[Object]:
    """As the operator would make them; only it knows its image, and the run's uid is the cluster's to give."""
    from hookline.sympozium.cluster import grants, objects

    owner = objects.Owner(name=spec.name, namespace=spec.namespace, uid="")
    settings = objects.Settings(image=_UNKNOWN)
    hooks = spec.hooks
    sandboxed = spec.sandbox is not None and spec.sandbox.enabled
    agent = (objects.agent_sandbox if sandboxed else objects.agent_job)(owner, spec, settings)
    gate = () if hooks.gate is None else (hooks.gate,)
    rest = tuple(index for index in hooks.post_order if index not in gate)
    after = [positions for positions in (gate, rest) if positions]
    return [
        *(grants.grants(owner, spec, settings) or [grants.shared_account(owner.namespace)]),
        *([objects.claim(owner, spec, settings)] if hooks.post_run else []),
        agent,
        *(
            objects.post_job(owner, spec, settings, Seen(), positions, number)
            for number, positions in enumerate(after, 1)
        ),
    ]


def _parts(made: Object) -> Iterator[str]:
    spec = cast("Object", made.get("spec") or {})
    for rule in cast("list[Object]", made.get("rules") or []):
        yield f"{', '.join(rule['verbs'])}: {', '.join(rule['resources'])}"
    if made["kind"] == "PersistentVolumeClaim":
        yield f"{spec['resources']['requests']['storage']}, which agent and postRun hooks share"
    pod = within(spec, "template", "spec") or within(spec, "podTemplate", "spec")
    each = [*pod.get("initContainers", ()), *pod.get("containers", ())]
    for number, container in enumerate(each, 1):
        image = "hookline's own image" if container["image"] == _UNKNOWN else container["image"]
        yield f"{number}. {container['name']}  {image}"
    if "activeDeadlineSeconds" in spec:
        yield f"ended by the cluster after {spec['activeDeadlineSeconds']} s, whatever happens"
