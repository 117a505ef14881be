"""Writes the pages of docs/reference that list statements and rules with the tests that show them.

`--write` makes the pages; `--check` exits 1 if a page on disk is not what would be written, or a row lacks its test.
"""

import argparse
import contextlib
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools import statements, symphony_rules, sympozium_rules  # noqa: E402

Shown = Mapping[str, Sequence[str]]
"""The tests by the statement or rule that they name."""

PAGES = (
    (statements.TARGET, "statement", statements.made),
    (symphony_rules.TARGET, "rule", symphony_rules.made),
    (sympozium_rules.TARGET, "rule", sympozium_rules.made),
)
"""Each page with its marker, and the function that makes its text and its complaints."""
MARKERS = ("statement", "rule")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="make the pages")
    action.add_argument("--check", action="store_true", help="exit 1 if a page is stale or has gaps")
    options = parser.parse_args(argv)

    marked = collected()
    complaints: list[str] = []
    for target, marker, made in PAGES:
        text, wrong = made(marked[marker])
        if options.write:
            target.write_text(text, encoding="utf-8")
        else:
            complaints += [*wrong, *stale(target, text)]
    for line in complaints:
        print(line, file=sys.stderr)
    return 1 if complaints else 0


def stale(target: Path, text: str) -> list[str]:
    """The complaint about a page that is not there or has another text."""
    if target.exists() and target.read_text(encoding="utf-8") == text:
        return []
    return [f"{target.name} is stale: run `make docs` and commit the result"]


class Collector:
    """A pytest plugin that keeps the tests."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.items = items


def marked_files() -> list[Path]:
    """The files of tests that name something; no other is read."""
    texts = {file: file.read_text() for file in sorted(ROOT.glob("tests/**/test_*.py"))}
    return [file for file, text in texts.items() if any(marker in text for marker in MARKERS)]


def by_id(items: Iterable[pytest.Item]) -> dict[str, Shown]:
    """The tests by what they name, for each marker."""
    tests: dict[str, dict[str, set[str]]] = {marker: {} for marker in MARKERS}
    for item in items:
        for marker in MARKERS:
            for id in (id for mark in item.iter_markers(marker) for id in mark.args):
                # One line a test, not one a parameter.
                tests[marker].setdefault(id, set()).add(item.nodeid.partition("[")[0])
    return {marker: {id: sorted(each) for id, each in found.items()} for marker, found in tests.items()}


def collected() -> dict[str, Shown]:
    """The tests by what they name, for each marker; exits if they cannot be collected."""
    collector = Collector()
    output = io.StringIO()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", *map(str, marked_files())]
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), contextlib.chdir(ROOT):
        status = pytest.main(arguments, plugins=[collector])
    if status != pytest.ExitCode.OK:
        print(output.getvalue(), file=sys.stderr)
        raise SystemExit("the tests could not be collected; see above")
    return by_id(collector.items)


if __name__ == "__main__":
    raise SystemExit(main())
