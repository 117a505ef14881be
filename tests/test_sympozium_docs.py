"""The page of Sympozium's openings: every id is on it, with a test or with what it waits for."""

from pathlib import Path

from tools.sympozium_rules import Opening, openings, page, wrong

ROOT = Path(__file__).parents[1]


def test_all_openings_and_all_checks_are_listed():
    numbers = {"B": 18, "X": 8, "C": 14, "1.17.": 22}
    known = {row.id for row in openings().values()}
    assert known == {f"{kind}{n}" for kind, most in numbers.items() for n in range(1, most + 1)}


def test_only_a_cluster_is_a_reason_to_have_no_test():
    rows = [
        Opening("B1", "wrong", "loses it", "keeps it"),
        Opening("B2", "wrong", "loses it", "keeps it"),
        Opening("X1", "unsafe", "shares it", "none to share", "one for each run"),
    ]
    tests = {"sympozium B1": ["tests/test_a.py::test_x"], "sympozium B9": ["tests/test_a.py::test_y"]}
    told = list(wrong({row.name: row for row in rows}, tests))
    assert [line.split()[0] for line in told] == ["B2", "tests/test_a.py::test_y:"]
    text = page(rows, tests)
    assert "3 rows: 1 shown by a test, 1 wait for a cluster, in part or whole." in text
    assert "| B1 | loses it | keeps it | `tests/test_a.py::test_x` |" in text
    assert "| X1 | shares it | none to share | cluster: one for each run |" in text
    assert "| B2 | loses it | keeps it | not yet |" in text
