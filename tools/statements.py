"""Writes docs/reference/statements.md: each statement of the source documents with the tests that show it.

`--write` makes the page; `--check` exits 1 if the page on disk is not what would be written.
"""

import argparse
import contextlib
import io
import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.statements import PAGE, Statement, named, statements  # noqa: E402

TARGET = PAGE / "statements.md"

HEAD = """\
# Statements and tests

hookline is built from five documents. Each claim in them is a statement with a number, and a test names the
statements it shows with `@pytest.mark.statement`. This page is made from `statements.csv` and the tests by
`make docs`; do not edit it.

*Set aside* means that the statement is not owed in this version; its row says why.
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="make the page")
    action.add_argument("--check", action="store_true", help="exit 1 if the page on disk is stale")
    parser.add_argument("--output", type=Path, default=TARGET, help="the page (default: %(default)s)")
    options = parser.parse_args(argv)

    text = page(statements().values(), shown_by())
    if options.write:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text, encoding="utf-8")
        return 0
    if not options.output.exists() or options.output.read_text(encoding="utf-8") != text:
        print(f"{options.output.name} is stale: run `make docs` and commit the result", file=sys.stderr)
        return 1
    return 0


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


class Collector:
    """A pytest plugin that keeps which tests name which statement."""

    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for id in named(item):
                # One line a test, not one a parameter.
                self.tests.setdefault(id, set()).add(item.nodeid.partition("[")[0])


def shown_by() -> dict[str, list[str]]:
    """The tests by the statement they name; exits if they cannot be collected. Files that name none are not read."""
    collector = Collector()
    output = io.StringIO()
    files = [file for file in sorted(ROOT.glob("tests/**/test_*.py")) if "statement" in file.read_text()]
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", *(str(file) for file in files)]
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), contextlib.chdir(ROOT):
        status = pytest.main(arguments, plugins=[collector])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(output.getvalue(), file=sys.stderr)
        raise SystemExit("the tests could not be collected; see above")
    return {id: sorted(tests) for id, tests in collector.tests.items()}


if __name__ == "__main__":
    raise SystemExit(main())
