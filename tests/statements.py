"""The statements of the source documents, and which of them a test says it shows.

Used by conftest.py, which refuses unknown ids, and by tools/pages.py, which writes the reference page.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "reference"
LIST = PAGE / "statements.csv"

# What a note may begin with; the first two stand in for a test, the third only explains.
SET_ASIDE = ("not in this version", "not applicable")
NOTES = (*SET_ASIDE, "changed")


class Statement(NamedTuple):
    id: str
    seed: str
    lines: str
    statement: str
    note: str = ""

    @property
    def set_aside(self) -> bool:
        return self.note.startswith(SET_ASIDE)


def statements(path: Path = LIST) -> dict[str, Statement]:
    """All statements by id, in the order of the list."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [Statement(**{key: value or "" for key, value in row.items()}) for row in csv.DictReader(file)]
    found: dict[str, Statement] = {}
    for row in rows:
        if row.id in found:
            raise ValueError(f"{path.name}: {row.id!r} is listed twice")
        if row.note and not row.note.startswith(NOTES):
            raise ValueError(f"{path.name}: the note of {row.id} must begin with one of: {', '.join(NOTES)}")
        found[row.id] = row
    return found


def named(item: pytest.Item) -> Iterator[str]:
    """The ids in the test's `statement` markers, whether they exist or not."""
    for marker in item.iter_markers("statement"):
        yield from marker.args


def wrong_markers(item: pytest.Item, known: dict[str, Statement]) -> Iterator[str]:
    """One message for each thing that is wrong with the test's `statement` markers."""
    for marker in item.iter_markers("statement"):
        if not marker.args or marker.kwargs:
            yield f'{item.nodeid}: a statement marker takes one or more ids: @pytest.mark.statement("PO1")'
    for id in named(item):
        if id not in known:
            yield f"{item.nodeid}: unknown statement {id!r}; docs/reference/{LIST.name} lists the known ones"
