"""Real ADK agents with a scripted model, offline: the tests of in_google_adk.py, each by its own name."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hookline.adapters.google_adk import TESTED, gaps
from tests import forks
from tests.adapters.environment import ADK, ROOT, adk_python, in_adk

INSIDE = Path(__file__).with_name("in_google_adk.py")
NAMED = ("statement", "rule")


def inside() -> Iterator[pytest.param]:
    """Each test of the file with what it says it shows; it is read, for it cannot be imported without ADK."""
    for node in ast.parse(INSIDE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield pytest.param(node.name, marks=list(marks(node)), id=node.name.removeprefix("test_"))


def marks(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[pytest.MarkDecorator]:
    for each in node.decorator_list:
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in NAMED:
            yield getattr(pytest.mark, each.func.attr)(*(ast.literal_eval(arg) for arg in each.args))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What went wrong in each test, by its name."""
    report = tmp_path_factory.mktemp("adk") / "report.xml"
    done = in_adk(
        adk_python(),
        *(
            "-m",
            "pytest",
            "-q",
            "--noconftest",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            str(INSIDE),
        ),
    )
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        wrong = [each.text or each.get("message") or each.tag for each in case]
        found.setdefault(str(case.get("name")).partition("[")[0], []).extend(wrong)
    return found


@pytest.mark.real
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", list(inside()))
def test_around_a_real_adk_agent(name: str, told: dict[str, list[str]]) -> None:
    assert name in told, "it did not run"
    assert told[name] == []


def test_the_release_that_is_said_to_be_tested_is_the_one_that_is() -> None:
    assert TESTED == ADK


def test_what_cannot_be_hooked_can_be_told_without_adk() -> None:
    code = (
        "import sys\n"
        "sys.modules['google.adk'] = None\n"
        "from hookline.adapters.google_adk import gaps, callbacks\n"
        "assert len(gaps()) > 5\n"
        "from hookline.adapters import google_adk\n"
        "for made in (lambda: google_adk.HooklinePlugin, callbacks):\n"
        "    try:\n        made()\n"
        "    except Exception as exc:\n        print(type(exc).__name__, exc)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    plugin, called = done.stdout.splitlines()
    assert plugin.startswith("MissingExtra HooklinePlugin needs more packages")
    assert called.startswith("MissingExtra callbacks needs more packages")
    assert all("pip install 'hookline[adk]'" in line for line in (plugin, called))


def test_every_gap_says_which_points_it_concerns() -> None:
    assert all(gap.points and gap.text.endswith(".") for gap in gaps())


GUIDE = ROOT / "docs" / "guides" / "google-adk.md"


def test_the_guide_lists_every_gap_as_it_is() -> None:
    rows = [f"| {', '.join(f'`{point}`' for point in gap.points)} | {gap.text} |" for gap in gaps()]
    told = GUIDE.read_text(encoding="utf-8").partition("| points | |\n|---|---|\n")[2].splitlines()
    assert told == rows


def explained(*words: str) -> subprocess.CompletedProcess[str]:
    return forks.run(["explain", *words])


def test_explain_says_which_of_a_files_hooks_adk_does_not_wholly_reach(tmp_path: Path) -> None:
    file = tmp_path / "hookline.yaml"
    file.write_text(
        "hooks:\n  - {name: last-word, on: agent.end, shell: 'true'}\n"
        "  - {name: first-word, on: run.start, shell: 'true'}\n"
    )
    done = explained("--for", "adk", str(file))
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert f"around an agent of google-adk {TESTED}" in shown
    assert shown.index("first-word") < shown.index("last-word")
    assert "agent.end: What an agent said has been shown when agent.end runs." in shown
    assert "Live mode: the tool.end" not in shown, "it concerns none of the hooks"


def test_explain_for_a_program_has_hooks_and_gaps_as_data(tmp_path: Path) -> None:
    file = tmp_path / "hookline.yaml"
    file.write_text("hooks:\n  - {name: looks, on: step.end, shell: 'true'}\n")
    found = json.loads(explained("--for", "adk", str(file), "--json").stdout)
    assert [(row["point"], row["name"]) for row in found["hooks"]] == [("step.end", "looks")]
    assert all("step.end" in gap["points"] for gap in found["gaps"])


def test_explain_for_a_framework_that_is_not_known_says_which_are(tmp_path: Path) -> None:
    done = explained("--for", "akd", str(tmp_path / "hookline.yaml"))
    assert done.returncode == 2
    assert "--for is 'akd'; known: adk" in done.stderr
