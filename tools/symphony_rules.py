"""Writes docs/reference/symphony-rules.md: each rule of Symphony with the tests that show it, or why there is none.

`--write` makes the page; `--check` exits 1 if the page on disk is not what would be written, and says which rules have
neither a test nor a reason.
"""

import argparse
import contextlib
import csv
import io
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.statements import NOTES, PAGE, SET_ASIDE  # noqa: E402
from tools.statements import table_row  # noqa: E402

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


def main(argv: Sequence[str] | None = None) -> int:
    def made() -> tuple[str, Iterable[str]]:
        found, tests = rules(), shown_by(SHAPE)
        return page(found.values(), tests), wrong(found, tests)

    return written_or_checked(argv, __doc__ or "", TARGET, made)


def written_or_checked(
    argv: Sequence[str] | None, about: str, target: Path, made: Callable[[], tuple[str, Iterable[str]]]
) -> int:
    """The command line of a page: `made` gives its text, and what is to be complained of."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="make the page")
    action.add_argument(
        "--check", action="store_true", help="exit 1 if the page on disk is stale or has gaps"
    )
    parser.add_argument("--output", type=Path, default=target, help="the page (default: %(default)s)")
    options = parser.parse_args(argv)

    text, wrong = made()
    if options.write:
        options.output.write_text(text, encoding="utf-8")
        return 0
    complaints = list(wrong)
    if not options.output.exists() or options.output.read_text(encoding="utf-8") != text:
        complaints.append(f"{options.output.name} is stale: run `make docs` and commit the result")
    for line in complaints:
        print(line, file=sys.stderr)
    return 1 if complaints else 0


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


class Collector:
    """A pytest plugin that keeps which tests name which rule of a shape."""

    def __init__(self, shape: re.Pattern[str]) -> None:
        self.shape = shape
        self.tests: dict[str, set[str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            names = [name for marker in item.iter_markers("rule") for name in marker.args]
            for name in filter(self.shape.fullmatch, names):
                self.tests.setdefault(name, set()).add(item.nodeid.partition("[")[0])


def shown_by(shape: re.Pattern[str]) -> dict[str, list[str]]:
    """The tests by the rule they name; exits if they cannot be collected. Files that name no rule are not read."""
    collector = Collector(shape)
    files = [file for file in sorted(ROOT.glob("tests/**/test_*.py")) if "mark.rule(" in file.read_text()]
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", *(str(file) for file in files)]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), contextlib.chdir(ROOT):
        status = pytest.main(arguments, plugins=[collector])
    if status != pytest.ExitCode.OK:
        print(output.getvalue(), file=sys.stderr)
        raise SystemExit("the tests could not be collected; see above")
    return {id: sorted(tests) for id, tests in collector.tests.items()}


if __name__ == "__main__":
    raise SystemExit(main())
