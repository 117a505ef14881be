"""The examples and the demo run, offline, and show what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted([*ROOT.glob("examples/*/[!n]*.py"), *ROOT.glob("examples/*/*.yaml")])


@pytest.fixture
def environ(tmp_path):
    keep = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    return {**keep, "HOOKLINE_HOME": str(tmp_path), "COLUMNS": "100"}


@pytest.mark.parametrize("columns", ["80", "100"])
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
    ):
        assert said in done.stdout, said


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_wrong_with_an_example(example, environ):
    done = subprocess.run(
        [sys.executable, "-m", "hookline", "check", example],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_examples():
    assert EXAMPLES
