import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import COLLECTED
from tests.statements import Statement, statements
from tools import pages
from tools.statements import page

ROOT = Path(__file__).parents[1]

INI = """
[pytest]
addopts = -p tests.conftest
asyncio_default_fixture_loop_scope = function
markers =
    statement(*ids): as in our own configuration
"""


@pytest.fixture
def guarded(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of its own that has the rules of our conftest.py."""
    for name in ("HOOKLINE_CI", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini(INI)
    return pytester


def test_all_249_statements_are_listed():
    assert len(statements()) == 249


def test_the_pages_are_up_to_date_and_every_rule_has_a_test_or_a_reason(request, monkeypatch, capsys):
    items = request.config.stash[COLLECTED]
    if {item.path for item in items}.issuperset(pages.marked_files()):
        monkeypatch.setattr(pages, "collected", lambda: pages.by_id(items))
        assert pages.main(["--check"]) == 0, capsys.readouterr().err
        return
    # Only some files were asked for, and the pages list the tests of all.
    command = [sys.executable, "tools/pages.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_stale_page_is_told(tmp_path):
    page = tmp_path / "page.md"
    told = ["page.md is stale: run `make docs` and commit the result"]
    assert pages.stale(page, "new") == told
    page.write_text("old")
    assert pages.stale(page, "new") == told
    assert pages.stale(page, "old") == []


def test_the_page_has_tests_notes_and_counts():
    rows = [
        Statement("A1", "First", "1", "`a|b` is shown"),
        Statement("A2", "First", "2", "is open"),
        Statement("B1", "Second", "3", "is not owed", "not applicable: elsewhere"),
        Statement("B2", "Second", "4", "is another way", "changed: decision 7"),
    ]
    text = page(rows, {"A1": ["tests/test_a.py::test_x", "tests/test_b.py::test_y"]})
    assert [
        line for line in text.splitlines() if line.startswith(("| A", "| B", "| First", "| Second", "| all"))
    ] == [
        "| First | 2 | 1 | 1 | 0 |",
        "| Second | 2 | 0 | 1 | 1 |",
        "| all | 4 | 1 | 2 | 1 |",
        r"| A1 | 1 | `a\|b` is shown | `tests/test_a.py::test_x`<br>`tests/test_b.py::test_y` |",
        "| A2 | 2 | is open | not yet |",
        "| B1 | 3 | is not owed | not applicable: elsewhere |",
        "| B2 | 4 | is another way | not yet<br>changed: decision 7 |",
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [("A1,First,2,again,", "'A1' is listed twice"), ("A2,First,2,x,some day", "the note of A2 must begin")],
)
def test_a_wrong_list_is_refused(tmp_path, row, said):
    file = tmp_path / "list.csv"
    file.write_text(f"id,seed,lines,statement,note\nA1,First,1,x,\n{row}\n")
    with pytest.raises(ValueError, match=said):
        statements(file)


@pytest.mark.parametrize("workers", [[], ["--workers", "1"]], ids=["alone", "workers"])
def test_an_unknown_statement_is_a_collection_error_that_names_test_and_id(guarded, workers):
    guarded.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.statement("PO1", "XX99")
        def test_something():
            pass
        """
    )
    result = guarded.runpytest_inprocess(*workers)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_it.py::test_something: unknown statement 'XX99'*"])
    assert result.ret != 0


def test_a_statement_marker_without_an_id_is_refused(guarded):
    guarded.makepyfile(
        test_it="""
        import pytest

        class TestThing:
            @pytest.mark.statement
            def test_something(self):
                pass
        """
    )
    result = guarded.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_it.py::TestThing::test_something: a statement marker takes*"])


def test_known_statements_are_taken(guarded):
    guarded.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.statement("PO1", "SZ19")
        def test_something():
            pass
        """
    )
    guarded.runpytest_inprocess().assert_outcomes(passed=1)


SKIPS = {
    "test_part": """
        import pytest

        def test_passes():
            pass

        @pytest.mark.skip(reason="no engine here")
        def test_skipped():
            pass
        """,
    "test_whole": """
        import pytest

        pytest.skip("no cluster here", allow_module_level=True)
        """,
}


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]], ids=["alone", "workers"])
def test_a_skip_fails_the_session_in_ci_and_is_listed_with_its_reason(guarded, monkeypatch, workers):
    guarded.makepyfile(**SKIPS)
    monkeypatch.setenv("HOOKLINE_CI", "1")
    result = guarded.runpytest_inprocess(*workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    listed = result.stdout.str().partition("HOOKLINE_CI=1 does not allow")[2].splitlines()
    assert "test_part.py::test_skipped: no engine here" in listed
    assert "test_whole.py: no cluster here" in listed


def test_a_skip_is_no_failure_elsewhere(guarded):
    guarded.makepyfile(**SKIPS)
    assert guarded.runpytest_inprocess().ret == pytest.ExitCode.OK
