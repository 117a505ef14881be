"""The examples and the demo run, offline, and show what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks

ROOT = Path(__file__).parents[1]
AGENTS = [file for file in ROOT.glob("examples/*/*.py") if "Agent(" in file.read_text()]
WORKFLOWS = [*ROOT.glob("examples/symphony/*.md"), *ROOT.glob("examples/symphony/patterns/*.md")]
EXAMPLES = sorted([*AGENTS, *ROOT.glob("examples/*/*.yaml"), *WORKFLOWS])
KAGENT = "ghcr.io/org/security-hooks:v1.0"


@pytest.fixture
def environ(tmp_path):
    keep = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    return {**keep, "HOOKLINE_HOME": str(tmp_path), "COLUMNS": "100"}


@pytest.mark.parametrize("columns", ["100", pytest.param("80", marks=pytest.mark.real)])
def test_the_demo_shows_hooks_at_every_level_doing_something(environ, columns):
    environ["COLUMNS"] = columns
    done = subprocess.run(
        [sys.executable, "examples/demo.py"],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    if columns == "80":
        return  # what is long is cut there; that it comes to its end is what is asked
    for said in (
        "hide_addresses  ",
        'changed the input: {"input":"Release 1.4 and tell [address]"}',
        "tells the model: Tags are written v1.4",
        'changed the input: {"temperature":0}',
        "blocked: force pushes are not allowed here",
        'changed the output: {"output":"pushed v1.4 with [key]',
        "asks: this goes to every customer",
        "approved by",
        "Released v1.4",
        "$ hookline runs last",
        "failed the run: we do not release on a Friday",
        "= block: force pushes",
        "no force-push",
        "no network from bash here",
        '"permissionDecision": "deny"',
        "of tidy, in ",
        "move files to trash/ instead",
        "I may not delete build, so it goes to trash/.",
        "no answer from the server",
        "ABC-125 after_run failed",
        "payments: the queue is full",
        "broke: exited with 4: nobody is on call",
        "ABC-123 after_run ok\nABC-123 before_remove",
    ):
        assert said in done.stdout, said


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_wrong_with_an_example(example, environ):
    done = forks.run(["check", example], env=environ)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.statement("KA13", "KA26", "KA43")
@pytest.mark.parametrize("file", ["agent.yaml", "hooks.yaml"])
def test_the_kagent_example_runs_out_of_an_oci_layout_too(file, environ, tmp_path):
    example = "examples/kagent"
    made = subprocess.run(
        [sys.executable, f"{example}/make_layout.py", f"{example}/security-hooks", tmp_path / "layout"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    tools = ["--tools", "bash"] if file == "hooks.yaml" else []
    arguments = [
        "--image",
        f"{KAGENT}=oci:{tmp_path}/layout",
        "--model",
        f"scripted/{example}/scripts/tidy.yaml",
    ]
    words = ["run", f"{example}/{file}", "tidy up", *arguments, *tools]
    done = forks.run(words, cwd=ROOT, env=environ)
    assert (done.returncode, done.stdout) == (0, "I may not delete build, so it goes to trash/.\n"), (
        done.stderr
    )
    assert done.stderr.count(f"image {KAGENT} is {made.stdout.strip()}") == 1
    assert "tells the model: Session " in done.stderr
    assert "blocked: rm -rf is not allowed here" in done.stderr


def test_there_are_examples():
    assert EXAMPLES
