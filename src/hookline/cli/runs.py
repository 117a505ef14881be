"""The journal: `hookline runs`, `logs`, `prune`, and the answers to questions: `approve`, `reject`, `rewrite`."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table

from hookline.engine.hook import Mode
from hookline.engine.plain import plain
from hookline.engine.record import Begun, Called, Ended, Record, Verdict, VerdictKind
from hookline.engine.result import merged
from hookline.errors import UsageError
from hookline.journal.masking import Mask
from hookline.journal.owner import alive
from hookline.journal.recovery import THERE
from hookline.journal.sqlite import KEEP_BYTES, KEEP_DAYS
from hookline.journal.view import Tree, duration, moment
from hookline.kube.connect import CONTEXT, KUBECONFIG, KUBERNETES, NAMESPACE, ON, Target, chosen
from hookline.terminal import found_run, open_journal, out, print_json, secrets_of, show, value_of

__all__ = ["approve", "logs", "prune", "reject", "rewrite", "runs"]

RUN = Annotated[str, typer.Argument(help="a run's id, the beginning of one, or `last`")]
JSON = Annotated[bool, typer.Option("--json", help="for a program to read")]
YES = Annotated[
    bool, typer.Option("--yes", "-y", help="of a run on a cluster: do not ask whether you are sure")
]


def runs(
    run: Annotated[str, typer.Argument(help="one run, as a tree of what happened; else all are listed")] = "",
    limit: Annotated[int, typer.Option(help="how many to list")] = 20,
    on: ON = "",
    namespace: NAMESPACE = "",
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
    json: JSON = False,
) -> int:
    """List the runs of the journal, or show one as a tree; or those of a cluster."""
    target = chosen(on, namespace, context, kubeconfig)
    if target is not None:
        from hookline.sympozium.cluster.runs import runs_there

        return runs_there(target, run, limit=limit, json=json)
    with open_journal() as journal:
        if run:
            _show_run(journal.records(found_run(journal, run)), json=json)
            return 0
        rows = journal.runs(limit=limit)
        pending = {question.run_id for question in journal.questions()}
    if json:
        for row in rows:
            print_json({**plain(row._asdict()), "waiting": row.run_id in pending})
        return 0
    if not rows:
        out.print('no runs yet; `hookline run agent.py:name "question"` makes one')
        return 0
    table = Table(box=None, pad_edge=False)
    for name in ("run", "agent", "began", "took", "hooks", "status"):
        table.add_column(name, justify="right" if name in ("took", "hooks") else "left", no_wrap=True)
    for row in rows:
        # What nobody holds, a workspace say, outlives the process that began it.
        if row.owner is not None and alive(row.owner):
            held = "running"
        elif (row.source or "").startswith(THERE):
            held = f"on {KUBERNETES}"
        else:
            held = "open" if row.owner is None else "broken off"
        status = str(row.status) if row.status else held
        if row.run_id in pending:
            status = "waiting"
        took = duration(row.ended - row.began) if row.ended else ""
        table.add_row(row.run_id, row.name, moment(row.began), took, str(row.calls), status)
    out.print(table)
    return 0


def logs(
    run: RUN,
    hook: Annotated[str, typer.Argument(help="only this hook")] = "",
    json: JSON = False,
) -> int:
    """What each hook of a run was given, and what it said."""
    with open_journal() as journal:
        records = journal.records(found_run(journal, run))
    called = list(_with_given(records))
    wanted = [record for record in called if not hook or record.hook == hook]
    if hook and not wanted:
        names = ", ".join(dict.fromkeys(record.hook for record in called)) or "none"
        raise UsageError(f"hook {hook!r} was not called in that run; called were: {names}")
    for record in wanted:
        if json:
            print_json(record._asdict())
            continue
        out.print(
            f"{moment(record.at)}  {record.hook} at {record.point}, {duration(record.seconds)}", style="bold"
        )
        said = {
            "given": record.given,
            "said": None
            if record.error
            else f"{record.action}{f': {record.reason}' if record.reason else ''}",
            "changed": record.changed,
            "broke": record.error,
            "tells the model": record.tell_model,
            "tells the user": record.tell_user,
            "note": record.note,
        }
        for name, value in said.items():
            if value is not None:
                out.print(
                    f"  {name}: {value if isinstance(value, str) else Mask().json(value)}", markup=False
                )
    return 0


def prune(
    days: Annotated[float, typer.Option(help="keep runs that are younger")] = KEEP_DAYS,
    megabytes: Annotated[float, typer.Option(help="keep the file below this size")] = KEEP_BYTES / 1048576,
    json: JSON = False,
) -> int:
    """Drop old runs from the journal; runs that have not ended stay."""
    with open_journal() as journal:
        gone = journal.prune(keep_days=days, keep_bytes=int(megabytes * 1048576))
    if json:
        print_json({"pruned": gone})
    else:
        out.print("1 run dropped" if gone == 1 else f"{gone} runs dropped")
    return 0


def approve(
    run: RUN,
    on: ON = "",
    namespace: NAMESPACE = "",
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
    yes: YES = False,
) -> int:
    """Say yes to what a run is waiting for."""
    target = chosen(on, namespace, context, kubeconfig)
    return _answer(run, Verdict(VerdictKind.APPROVE, by=getpass.getuser()), target, yes=yes)


def reject(
    run: RUN,
    reason: Annotated[str, typer.Argument(help="why; the agent is told")] = "",
    on: ON = "",
    namespace: NAMESPACE = "",
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
    yes: YES = False,
) -> int:
    """Say no to what a run is waiting for."""
    target = chosen(on, namespace, context, kubeconfig)
    return _answer(run, Verdict(VerdictKind.REJECT, reason, by=getpass.getuser()), target, yes=yes)


def rewrite(
    run: RUN,
    value: Annotated[str, typer.Argument(help="the new input, as JSON or plain text")],
    on: ON = "",
    namespace: NAMESPACE = "",
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
    yes: YES = False,
) -> int:
    """Let a run go on with another input than the one it asks about."""
    target = chosen(on, namespace, context, kubeconfig)
    verdict = Verdict(VerdictKind.REWRITE, value=value_of(value), by=getpass.getuser())
    return _answer(run, verdict, target, yes=yes)


def _answer(run: str, verdict: Verdict, target: Target | None, *, yes: bool) -> int:
    if target is not None:
        from hookline.sympozium.cluster.runs import answer_there

        return answer_there(target, run, verdict, yes=yes)
    with open_journal() as journal:
        run_id = found_run(journal, run)
        pending = journal.questions(run_id)
        if not pending and (there := _there(journal.records(run_id))):
            raise UsageError(f"run {run_id} is on a cluster; there it is answered: {there}")
        if not pending:
            raise UsageError(f"run {run_id} is waiting for nobody")
        question = pending[0]
        if not journal.answer(question.id, verdict):
            raise UsageError(f"run {run_id}: somebody else has just answered")
    tool = f" {question.tool}" if question.tool else ""
    mask = Mask(secrets_of(os.environ))
    out.print(f"{verdict.kind}: {question.point}{tool} {mask.json(question.value)}")
    if len(pending) > 1:
        out.print(f"{len(pending) - 1} more questions of this run are waiting")
    return 0


def _with_given(records: list[Record]) -> Iterator[Called]:
    """Every call with what it was given, also where the record leaves that to its scope and to earlier changes."""
    began = {record.scope_id: record.payload for record in records if isinstance(record, Begun)}
    ended = {record.scope_id: record.output for record in records if isinstance(record, Ended)}
    now: dict[tuple[str, str], Any] = {}
    for record in records:
        if not isinstance(record, Called):
            continue
        place = (record.scope_id, str(record.point))
        scope = began if str(record.point).endswith(".start") else ended
        given = record.given if record.given is not None else now.get(place, scope.get(record.scope_id))
        yield record._replace(given=given)
        now[place] = given
        if record.changed is not None and record.mode == Mode.ENFORCE:
            now[place] = merged("changed", given, record.changed)


def _show_run(records: list[Record], *, json: bool) -> None:
    tree = Tree(width=max(out.width, 60))
    for record in records:
        if json:
            print_json({"record": type(record).__name__.lower(), **record._asdict()})
            continue
        for line in tree.lines(record):
            show(line, out)
    if not json and _is_agentrun(records):
        from hookline.sympozium.system import status_lines

        for line in status_lines(records):
            show(line, out)
    if not json and (there := _there(records)):
        out.print(f"it went on there: hookline runs {there}   brings the rest", style="yellow")


def _there(records: list[Record]) -> str:
    """The command line's words for a run on a cluster of which the end is not known here; else empty."""
    begun = next((each for each in records if isinstance(each, Begun)), None)
    declared = (begun.declaration if begun is not None else None) or {}
    if begun is None or declared.get("on") != KUBERNETES:
        return ""
    if any(isinstance(each, Ended) and each.scope_id == begun.scope_id for each in records):
        return ""
    return f"{declared.get('name')} {Target(namespace=str(declared.get('namespace'))).words()}"


def _is_agentrun(records: list[Record]) -> bool:
    declared = (each.declaration or {} for each in records if isinstance(each, Begun))
    return any(each.get("format") == "sympozium" for each in declared)
