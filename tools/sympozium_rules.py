"""The page docs/reference/sympozium-openings.md: what Sympozium leaves open, what hookline does, the tests that show it."""

import csv
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.statements import PAGE
from tools.statements import table_row

LIST = PAGE / "sympozium-openings.csv"
TARGET = PAGE / "sympozium-openings.md"
NAME = "sympozium "
SHAPE = re.compile(rf"{NAME}(?:[BXC]\d+|1\.17\.\d+)")

HEAD = """\
# Sympozium's openings

An `AgentRun` runs here as Sympozium's documents say. Where its controller does something else, something wrong or
nothing, this is what hookline does on one machine: `B` is what it gets wrong, `X` what it leaves unsafe, `C` what is
missing there. The last table are the checks that a system like it owes its documents. *Cluster* says what waits for the
operator. A test names its row with `@pytest.mark.rule("sympozium B1")`. This page is made from
`sympozium-openings.csv` and the tests by `make docs`; do not edit it.
"""


class Opening(NamedTuple):
    id: str
    part: str
    upstream: str
    here: str
    cluster: str = ""

    @property
    def name(self) -> str:
        return NAME + self.id


def made(shown_by: Mapping[str, Sequence[str]]) -> tuple[str, Iterable[str]]:
    found, tests = openings(), {name: tests for name, tests in shown_by.items() if SHAPE.fullmatch(name)}
    return page(found.values(), tests), wrong(found, tests)


def openings(path: Path = LIST) -> dict[str, Opening]:
    """All rows by the name that tests give them, in the order of the list."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [Opening(**row) for row in csv.DictReader(file)]
    found = {row.name: row for row in rows}
    if len(found) != len(rows):
        raise ValueError(f"{path.name}: a row is listed twice")
    return found


def wrong(found: Mapping[str, Opening], tests: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """Rows that nobody shows and that wait for nothing, and names that are no rows."""
    for row in found.values():
        if row.name not in tests and not row.cluster:
            yield f"{row.id} ({row.here}) has no test; write one, or say in {LIST.name} what it waits for"
    for name in sorted(tests):
        if name not in found:
            yield f"{', '.join(tests[name])}: unknown rule {name!r}; {LIST.name} lists the known ones"


def page(rows: Iterable[Opening], tests: Mapping[str, Sequence[str]]) -> str:
    """The whole page as text."""
    rows = list(rows)
    shown = sum(row.name in tests for row in rows)
    waits = sum(bool(row.cluster) for row in rows)
    parts = [
        HEAD,
        f"{len(rows)} rows: {shown} shown by a test, {waits} wait for a cluster, in part or whole.\n",
    ]
    for part, group in itertools.groupby(rows, key=lambda row: row.part):
        cells = [(row.id, row.upstream, row.here, _shown(row, tests)) for row in group]
        head: Sequence[str] = ("id", "Sympozium", "hookline", "shown by")
        if not any(upstream for _, upstream, _, _ in cells):
            cells = [(id, *rest) for id, _, *rest in cells]
            head = ("id", "hookline", "shown by")
        lines = [table_row(*each) for each in (head, ["---"] * len(head), *cells)]
        parts.append("\n".join([f"## {part[0].upper()}{part[1:]}", "", *lines]) + "\n")
    return "\n".join(parts)


def _shown(row: Opening, tests: Mapping[str, Sequence[str]]) -> str:
    names = [f"`{name}`" for name in tests.get(row.name, ())]
    return "<br>".join([*names, *([f"cluster: {row.cluster}"] if row.cluster else [])]) or "not yet"
