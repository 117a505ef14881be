"""`hookline runs`: lists the runs of the journal or of a cluster, or shows one as a tree."""

from __future__ import annotations

from dataclasses import dataclass

from hookline.engine.plain import plain
from hookline.engine.record import THERE, Begun, Ended, Record, RunRow
from hookline.journal.owner import alive
from hookline.journal.user import open_journal
from hookline.journal.view import Tree, duration, moment
from hookline.kube.connect import Target, target_of_runs
from hookline.options import KUBERNETES, ClusterOptions, argument, flag, option
from hookline.terminal import found_run, out, print_json, print_runs, show


@dataclass(kw_only=True, eq=False, repr=False)
class RunsOptions(ClusterOptions):
    run: str = argument("one run, as a tree of what happened; else all are listed")
    limit: int = option("how many to list", 20, kind="int")
    json: bool = flag("for a program to read")


def runs(options: RunsOptions) -> int:
    target = target_of_runs(options)
    if target is not None:
        from hookline.sympozium.cluster.runs import runs_there

        return runs_there(target, options.run, limit=options.limit, json=options.json)
    with open_journal() as journal:
        if options.run:
            _show_run(journal.records(found_run(journal, options.run)), as_json=options.json)
            return 0
        rows = journal.runs(limit=options.limit)
        pending = {question.run_id for question in journal.questions()}
    if options.json:
        for row in rows:
            print_json({**plain(row._asdict()), "waiting": row.run_id in pending})
        return 0
    if not rows:
        out.print('no runs yet; `hookline run agent.py:name "question"` makes one')
        return 0
    print_runs(
        (
            row.run_id,
            row.name,
            moment(row.began),
            duration(row.ended - row.began) if row.ended else "",
            str(row.calls),
            "waiting" if row.run_id in pending else _status(row),
        )
        for row in rows
    )
    return 0


def _status(row: RunRow) -> str:
    if row.status:
        return str(row.status)
    if row.owner is not None and alive(row.owner):
        return "running"
    if (row.source or "").startswith(THERE):
        return f"on {KUBERNETES}"
    # A run that nobody holds, of a workspace say, outlives the process that began it.
    return "open" if row.owner is None else "broken off"


def _show_run(records: list[Record], *, as_json: bool) -> None:
    tree = Tree(width=max(out.width, 60))
    for record in records:
        if as_json:
            print_json({"record": type(record).__name__.lower(), **record._asdict()})
            continue
        for line in tree.lines(record):
            show(line, out)
    if not as_json and _is_agentrun(records):
        from hookline.sympozium.run.state import status_lines

        for line in status_lines(records):
            show(line, out)
    if not as_json and (there := cluster_words(records)):
        out.print(f"it went on there: hookline runs {there}   brings the rest", style="yellow")


def cluster_words(records: list[Record]) -> str:
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


COMMANDS = {"runs": (RunsOptions, runs)}
