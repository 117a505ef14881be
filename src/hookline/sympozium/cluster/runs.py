"""Runs on a cluster at the terminal: `hookline runs`, `approve`, `reject`, `rewrite`, `explain` with `--on kubernetes`."""

from __future__ import annotations

import asyncio
import getpass
import json as jsonlib
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

from hookline.engine.plain import parse_time
from hookline.engine.point import Point
from hookline.engine.record import Called, Decided, Record, Verdict, VerdictKind
from hookline.engine.result import HookAction
from hookline.errors import JournalError, UsageError
from hookline.journal.masking import Mask
from hookline.journal.user import open_journal
from hookline.journal.view import Line, Tree, duration, moment
from hookline.kube.connect import Target, connected, found_run
from hookline.kube.objects import AGENT_RUN, SECRET, ApiRefused, Conflict, Object, items, phase_of, within
from hookline.options import KUBERNETES
from hookline.secret_names import secrets_in
from hookline.sympozium.cluster.ledger import Ledger
from hookline.sympozium.cluster.objects import OperatorSettings, RunObjects, RunOwner, names
from hookline.sympozium.cluster.observation import VERDICT
from hookline.sympozium.cluster.records import (
    PHASE,
    RUN_SCOPE,
    is_agents_end,
    is_runs_end,
    records_of,
    run_id_of,
)
from hookline.sympozium.cluster.state import agent_name, has_ended, read_secret
from hookline.sympozium.phases import Seen, verdict, verdict_of
from hookline.sympozium.phases import digest as digest_of
from hookline.sympozium.run.state import lines_of_status
from hookline.sympozium.types import RunSpec
from hookline.terminal import Explained, ExplainedHook, err, out, print_json, print_runs, show

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

_UNKNOWN = "IMAGE"


def runs_there(target: Target, run: str = "", *, limit: int = 20, json: bool = False) -> int:
    """List the AgentRuns of a namespace, or show one: what happened, its phase, its conditions and its hooks.

    One that was started from here is brought up to date in the journal.
    """

    async def main() -> list[Object]:
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
    """Give a verdict on the answer that a run on a cluster holds back."""

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


def explain_there(file: str, spec: RunSpec) -> Explained:
    """The objects of a cluster that a run comes to, and which containers run in which order."""
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
        began, ended = status.get("startedAt"), status.get("completedAt")
        took = duration(_at(ended) - _at(began)) if began and ended else ""
        rows.append(
            (
                each["metadata"]["name"],
                agent_name(each),
                moment(_at(began or _created(each))),
                took,
                str(sum(hook.get("state") in ("succeeded", "failed") for hook in items(status.get("hooks")))),
                "waiting" if status.get("gateDigest") else phase_of(each) or "no status",
            )
        )
    print_runs(rows)


class RunView:
    """A run on a cluster as the lines of any run: the records of its status, and notes on its other fields.
    `how_to_answer` is shown when the answer waits for a verdict."""

    def __init__(self, mask: Mask | None = None, *, width: int = 80, how_to_answer: str = "") -> None:
        self._mask = mask or Mask()
        self._tree = Tree(self._mask, width)
        self._how_to_answer = how_to_answer
        self._count = 0
        self._phase = ""
        self._noted: set[tuple[str, ...]] = set()

    def lines(self, run: Object, inside: Iterable[Record] = ()) -> Iterator[Line]:
        """Lines for all that is new in the run; `inside` are the records from inside its agent, once that has ended."""
        told = records_of(run)
        new, self._count = told[self._count :], max(self._count, len(told))
        found = [(_place(each), each) for each in (*new, *inside) if getattr(each, "point", "") != PHASE]
        notes = [(place, _note(run, self._mask.text(text))) for place, text in self._notes(run)]
        for _, record in sorted([*found, *notes], key=lambda each: each[0]):
            # `hookline runs` finds it by the name that it has on the cluster.
            yield from self._tree.lines(record._replace(run_id=run["metadata"]["name"]))

    def inside(self, records: Iterable[Record]) -> Iterator[Line]:
        """Lines for records from inside the agent, while it is at work."""
        for each in records:
            yield from self._tree.lines(each)

    def _notes(self, run: Object) -> Iterator[tuple[int, str]]:
        """Notes on the parts of the status that no record has, each once, with its place among the records."""
        status, now = within(run, "status"), phase_of(run)
        if now and now != self._phase:
            self._phase = now
            yield _PHASE_OVER if has_ended(run) else _PHASE, f"phase {now}"
        if status.get("gateDigest") and self._once("gate"):
            yield _GATE, f"the answer waits for a verdict{self._how_to_answer}"
        word = str(status.get("gateVerdict") or "")
        if word and self._once("verdict"):
            by = f" by {status['gateBy']}" if status.get("gateBy") else ""
            yield _GATE, f"gate {word}{by}"
        for each in items(status.get("conditions")):
            key = tuple(str(each.get(part)) for part in ("type", "reason", "message"))
            known_by_hooks = each.get("type") == "PostRunFailed"
            if each.get("status") == "True" and not known_by_hooks and self._once("condition", *key):
                yield _CONDITION, f"{each.get('type')}: {each.get('message')}"

    def _once(self, *what: str) -> bool:
        new = what not in self._noted
        self._noted.add(what)
        return new


_BEFORE, _PHASE, _AGENT_OVER, _GATE, _AFTER, _CONDITION, _PHASE_OVER, _OVER = range(8)
"""The order of new lines at one change of a run."""


def _place(record: Record) -> int:
    if is_runs_end(record):
        return _OVER
    if is_agents_end(record):
        return _AGENT_OVER
    is_after = isinstance(record, Called) and record.point is Point.RUN_END
    return _AFTER if is_after else _BEFORE


def _note(run: Object, text: str) -> Decided:
    return Decided(run_id_of(run), RUN_SCOPE, PHASE, time.time(), HookAction.CONTINUE, note=text)


def _created(run: Object) -> str:
    return str(run["metadata"].get("creationTimestamp") or "")


def _at(text: Any) -> float:
    return parse_time(text).timestamp()


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
            run = await found_run(cluster, name, namespace)
            if _held(run) != digest:
                raise UsageError(
                    f"run {name} now waits for a verdict on another answer; look at it again"
                ) from None


def _objects(spec: RunSpec) -> list[Object]:
    """The objects as the operator would make them; only it knows its image, and only the cluster the run's uid."""
    owner = RunOwner(name=spec.name, namespace=spec.namespace, uid="")
    objects = RunObjects(owner, spec, OperatorSettings(image=_UNKNOWN))
    gate = () if spec.hooks.gate is None else (spec.hooks.gate,)
    rest = tuple(index for index in spec.hooks.post_order if index not in gate)
    after = [positions for positions in (gate, rest) if positions]
    jobs = [objects.post_job(Seen(), positions, number) for number, positions in enumerate(after, 1)]
    return [*objects.first(), *jobs]


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
