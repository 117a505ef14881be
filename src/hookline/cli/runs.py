"""`hookline runs`, `runs drop`, `logs` and `prune`: runs of the journal or of a cluster."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hookline.engine.plain import plain
from hookline.engine.record import (
    THERE,
    Begun,
    Called,
    Ended,
    Journal,
    Question,
    Record,
    RunRow,
)
from hookline.errors import UsageError
from hookline.hookfile.person import caller, refuse_agent
from hookline.journal import open_journal
from hookline.journal.masking import Mask
from hookline.journal.recovery import alive, drop, format_of
from hookline.journal.sqlite import KEEP_BYTES, KEEP_DAYS
from hookline.journal.view import Tree, asked_in_json, duration, last_calls, moment
from hookline.options import KUBERNETES, ClusterOptions, Target, argument, flag, option, target_of_runs
from hookline.secrets import secrets_in
from hookline.terminal import found_run, out, print_json, print_runs, show, who

_RUNS, _RECORDS, _CALLS = 20, 1000, 200
"""How many are shown, unless an option says otherwise."""


@dataclass(kw_only=True, eq=False, repr=False)
class RunsOptions(ClusterOptions):
    run: str = argument("show this run as a tree; without it, list all runs")
    limit: int | None = option(
        "how many runs to list [default: 20], or records of a run to show, from its end [default: 1000]", None
    )
    json: bool = flag("print JSON")


def runs(options: RunsOptions) -> int:
    target = target_of_runs(options)
    if target is not None:
        from hookline.sympozium.cluster.runs import runs_there

        return runs_there(target, options.run, limit=options.limit or _RUNS, json=options.json)
    with open_journal() as journal:
        if options.run:
            _show_run(journal, found_run(journal, options.run), options)
            return 0
        rows = journal.runs(limit=options.limit or _RUNS)
        pending = {question.run_id: question for question in reversed(journal.questions())}
    if options.json:
        for row in rows:
            asked = asked_in_json(pending.get(row.run_id), Mask(secrets_in(os.environ)))
            print_json({**plain(row._asdict()), "waiting": bool(asked)}, **asked)
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
    # A run without an owner, such as that of a workspace, outlives the process that began it.
    return "open" if row.owner is None else "broken off"


def _show_run(journal: Journal, run_id: str, options: RunsOptions) -> None:
    if options.json:
        shown = journal.latest(run_id, options.limit).records if options.limit else journal.each(run_id)
        for record in shown:
            print_json({"record": type(record).__name__.lower(), **record._asdict()})
        return
    page = journal.latest(run_id, options.limit or _RECORDS)
    records = [*page.context, *page.records]
    tree = Tree(width=max(out.width, 60))
    for record in page.context:
        deque(tree.lines(record), 0)
    if page.earlier:
        told = f"{page.earlier} earlier records are not shown; --limit {page.earlier + len(page.records)} shows all"
        out.print(told, style="dim")
    lines = [*(line for record in page.records for line in tree.lines(record)), *tree.open()]
    if format_of(records) == "sympozium":
        from hookline.sympozium.view import status_lines

        lines += status_lines(records)
    for line in lines:
        show(line, out)
    if there := cluster_words(records):
        out.print(f"still running on the cluster; `hookline runs {there}` fetches the rest", style="yellow")


def cluster_words(records: list[Record]) -> str:
    """The arguments that name a run on a cluster whose end is not in this journal; else empty."""
    begun = next((each for each in records if isinstance(each, Begun)), None)
    declared = (begun.declaration if begun is not None else None) or {}
    if begun is None or declared.get("on") != KUBERNETES:
        return ""
    if any(isinstance(each, Ended) and each.scope_id == begun.scope_id for each in records):
        return ""
    return f"{declared.get('name')} {Target(namespace=str(declared.get('namespace'))).words()}"


@dataclass(kw_only=True, eq=False, repr=False)
class LogsOptions:
    run: str = argument("a run's id, the beginning of one, or `last`", required=True)
    hook: str = argument("show only this hook")
    limit: int | None = option("how many of the last calls to show [default: 200; with --json all]", None)
    json: bool = flag("print JSON")


def logs(options: LogsOptions) -> int:
    hook = options.hook
    most = options.limit or (sys.maxsize // 8 if options.json else _CALLS)
    with open_journal() as journal:
        run_id = found_run(journal, options.run)
        wanted, names, earlier = last_calls(journal, run_id, hook, most)
        _print_calls(wanted, as_json=options.json)
        _print_questions(() if hook or options.json else journal.questions(run_id, pending=False))
    if hook and not wanted:
        known = ", ".join(names) or "none"
        raise UsageError(f"hook {hook!r} was not called in that run; hooks called: {known}")
    if earlier and not options.json:
        told = f"the last {len(wanted)} calls; there are {earlier} earlier records, and --limit shows more of them"
        out.print(told, style="dim")
    return 0


def _print_calls(wanted: Sequence[Called], *, as_json: bool) -> None:
    for record in wanted:
        if as_json:
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
                out.print(f"  {name}: {value if isinstance(value, str) else Mask().json(value)}")


def _print_questions(questions: Iterable[Question]) -> None:
    for question in questions:
        said = question.verdict.in_words() if question.verdict is not None else "waiting for an answer"
        tool = f" ({question.tool})" if question.tool else ""
        out.print(f"{moment(question.asked)}  question at {question.point}{tool}: {said}", style="bold")


_MEGABYTE = 1048576


@dataclass(kw_only=True, eq=False, repr=False)
class PruneOptions:
    days: float = option("keep runs that are younger than this many days", KEEP_DAYS)
    megabytes: float = option("keep the journal below this many megabytes", KEEP_BYTES / _MEGABYTE)
    json: bool = flag("print JSON")


def prune(options: PruneOptions) -> int:
    refuse_agent("prune", os.environ)
    with open_journal() as journal:
        gone = journal.prune(keep_days=options.days, keep_bytes=int(options.megabytes * _MEGABYTE))
    if options.json:
        print_json({"pruned": gone})
    else:
        out.print("1 run deleted" if gone == 1 else f"{gone} runs deleted")
    return 0


@dataclass(kw_only=True, eq=False, repr=False)
class DropOptions:
    run: str = argument("a run's id, the beginning of one, or `last`", required=True)


def drop_run(options: DropOptions) -> int:
    import asyncio  # not for `runs`

    refuse_agent("runs drop", os.environ)
    with open_journal() as journal:
        run_id = found_run(journal, options.run)
        asyncio.run(drop(journal, run_id, who(caller())))
    out.print(f"run {run_id} is ended; its end hooks do not run")
    return 0
