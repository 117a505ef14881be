"""The page docs/reference/symphony-rules.md: each rule of Symphony with the tests that show it, or why there is none."""

import csv
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.statements import NOTES, PAGE, SET_ASIDE
from tools.statements import table_row

LIST = PAGE / "symphony-rules.csv"
TARGET = PAGE / "symphony-rules.md"
SHAPE = re.compile(r"[CWOM]\d+")

HEAD = """\
# Symphony's rules and tests

What `WORKFLOW.md`, workspaces, hooks and the service do follows Symphony's specification. Its rules have numbers here:
`C` are decisions where its documents disagree, `W` and `O` the rules, `M` the statements of its test matrix. A test names
those it shows with `@pytest.mark.rule`. This page is made from `symphony-rules.csv` and the tests by `make docs`; do
not edit it.
"""


class Rule(NamedTuple):
    id: str
    part: str
    rule: str
    note: str = ""

    @property
    def set_aside(self) -> bool:
        return self.note.startswith(SET_ASIDE)


def made(shown_by: Mapping[str, Sequence[str]]) -> tuple[str, Iterable[str]]:
    found, tests = rules(), {id: tests for id, tests in shown_by.items() if SHAPE.fullmatch(id)}
    return page(found.values(), tests), wrong(found, tests)


def rules(path: Path = LIST) -> dict[str, Rule]:
    """All rules by id, in the order of the list."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [Rule(**{key: value or "" for key, value in row.items()}) for row in csv.DictReader(file)]
    found: dict[str, Rule] = {}
    for row in rows:
        if row.id in found:
            raise ValueError(f"{path.name}: {row.id!r} is listed twice")
        if row.note and not row.note.startswith(NOTES):
            raise ValueError(f"{path.name}: the note of {row.id} must begin with one of: {', '.join(NOTES)}")
        found[row.id] = row
    return found


def wrong(found: Mapping[str, Rule], tests: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """Rules that nobody shows and nobody set aside, and names that are no rules."""
    for row in found.values():
        if row.id not in tests and not row.set_aside:
            yield f"{row.id} ({row.rule}) has no test; write one, or say in {LIST.name} why it needs none"
    for id in sorted(tests):
        if id not in found:
            yield f"{', '.join(tests[id])}: unknown rule {id!r}; {LIST.name} lists the known ones"


def page(rows: Iterable[Rule], tests: Mapping[str, Sequence[str]]) -> str:
    """The whole page as text."""
    rows = list(rows)
    shown = sum(row.id in tests for row in rows)
    aside = sum(row.set_aside and row.id not in tests for row in rows)
    parts = [HEAD, f"{len(rows)} rules: {shown} shown by a test, {aside} set aside with a reason.\n"]
    for part, group in itertools.groupby(rows, key=lambda row: row.part):
        lines = [f"## {part[0].upper()}{part[1:]}", "", "| id | rule | shown by |", "|---|---|---|"]
        lines += [table_row(row.id, row.rule, _shown(row, tests)) for row in group]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _shown(row: Rule, tests: Mapping[str, Sequence[str]]) -> str:
    names = [f"`{name}`" for name in tests.get(row.id, ())]
    return "<br>".join([*names, *filter(None, [row.note])]) or "not yet"
