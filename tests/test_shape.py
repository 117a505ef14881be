"""The shape of the source tree: names, sizes of files, and the totals that a change may only raise on purpose."""

from pathlib import Path

import pytest

from tools.figures import figures

SOURCE = Path(__file__).parents[1] / "src/hookline"

# A change that needs more raises the total here, in a commit that says why.
TOTALS = {
    "lines": 55_100,
    "files": 222,
    "modules and packages at the root": 31,
}


@pytest.fixture(scope="module")
def found():
    # Not at import: every worker would read the whole tree to collect these few tests.
    return figures(SOURCE)


@pytest.mark.parametrize("total", TOTALS)
def test_a_total_is_raised_on_purpose_only(total, found):
    assert found[total] <= TOTALS[total]


def test_modules_are_named_with_nouns(found):
    assert found["modules in -ing"] == 0


def test_no_file_is_over_600_lines_and_few_are_over_400(found):
    assert found["files over 600 lines"] == 0
    # Ten of 175 files.
    assert found["files over 400 lines"] <= found["files"] * 10 / 175, found["which files"]


def test_a_module_of_a_command_is_at_most_250_lines(found):
    assert max(found["longest file of cli"].values()) <= 250, found["longest file of cli"]


def test_few_class_names_are_used_twice(found):
    assert found["class names used again"] <= 20, found["which class names"]


def test_no_docstring_begins_with_a_question(found):
    assert found["docstrings with What"] + found["docstrings with Whether"] == 0
