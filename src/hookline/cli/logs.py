"""`hookline logs`: what each hook of a run was given, and what it said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hookline.engine.hook import Mode
from hookline.engine.record import Begun, Called, Ended, Record
from hookline.engine.result import merged
from hookline.errors import UsageError
from hookline.journal.masking import Mask
from hookline.journal.user import open_journal
from hookline.journal.view import duration, moment
from hookline.options import argument, flag
from hookline.terminal import found_run, out, print_json


@dataclass(kw_only=True, eq=False, repr=False)
class LogsOptions:
    run: str = argument("a run's id, the beginning of one, or `last`", required=True)
    hook: str = argument("only this hook")
    json: bool = flag("for a program to read")


def logs(options: LogsOptions) -> int:
    hook = options.hook
    with open_journal() as journal:
        records = journal.records(found_run(journal, options.run))
    called = list(_with_given(records))
    wanted = [record for record in called if not hook or record.hook == hook]
    if hook and not wanted:
        names = ", ".join(dict.fromkeys(record.hook for record in called)) or "none"
        raise UsageError(f"hook {hook!r} was not called in that run; called were: {names}")
    for record in wanted:
        if options.json:
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


COMMANDS = {"logs": (LogsOptions, logs)}
