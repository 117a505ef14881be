"""The page docs/reference/statements.md: each statement of the source documents with the tests that show it."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from tests.statements import PAGE, Statement, statements

TARGET = PAGE / "statements.md"

HEAD = """\
# Statements and tests

hookline is built from five documents. Each claim in them is a statement with a number, and a test names the
statements it shows with `@pytest.mark.statement`. This page is made from `statements.csv` and the tests by
`make docs`; do not edit it.

*Set aside* means that the statement is not owed in this version; its row says why.
"""


def made(shown_by: Mapping[str, Sequence[str]]) -> tuple[str, Iterable[str]]:
    """The text of the page; unknown statements are complained of when tests are collected."""
    return page(statements().values(), shown_by), ()


def page(rows: Iterable[Statement], tests: Mapping[str, Sequence[str]]) -> str:
    """The whole page as text."""
    seeds = [(seed, list(group)) for seed, group in itertools.groupby(rows, key=lambda row: row.seed)]
    parts = [HEAD, summary(seeds, tests)]
    for seed, group in seeds:
        lines = [f"## {seed}", "", "| id | line | statement | shown by |", "|---|---|---|---|"]
        lines += [table_row(row.id, row.lines, row.statement, shown(row, tests)) for row in group]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def summary(seeds: Sequence[tuple[str, list[Statement]]], tests: Mapping[str, Sequence[str]]) -> str:
    lines = ["| document | statements | shown | not yet | set aside |", "|---|---|---|---|---|"]
    totals = [0, 0, 0, 0]
    for seed, group in seeds:
        with_test = sum(row.id in tests for row in group)
        aside = sum(row.set_aside and row.id not in tests for row in group)
        counts = [len(group), with_test, len(group) - with_test - aside, aside]
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        lines.append(table_row(seed, *counts))
    lines.append(table_row("all", *totals))
    return "\n".join(lines) + "\n"


def shown(row: Statement, tests: Mapping[str, Sequence[str]]) -> str:
    names = [f"`{name}`" for name in tests.get(row.id, ())]
    if not names and not row.set_aside:
        names = ["not yet"]
    return "<br>".join([*names, *filter(None, [row.note])])


def table_row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |"
