"""The commands of the tests are forks; a fork does what a new interpreter does."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks

ROOT = Path(__file__).parents[1]
RUN = "examples/sympozium/incident.yaml"
COMMANDS = [
    "--help",
    "check examples/symphony/WORKFLOW.md",
    "check examples/kagent/agent.yaml",
    f"check {RUN}",
    "crds",
    "crds --kagent",
    "explain examples/polos/release.py:assistant",
    "explain examples/kagent/agent.yaml --json",
    "explain examples/symphony/WORKFLOW.md",
    f"explain {RUN}",
    f"explain {RUN} --on kubernetes --json",
    "init",
    "install claude-code --project .",
    "operator manifest --image x:1",
    "prune",
    "run nothing.py",
    "runs",
    "schema",
    "trust examples/nothing.yaml",
    "try tool.start examples/polos/release.py:assistant --tool bash --input {}",
    "uninstall claude-code",
    "wrong",
    "workspace list --file examples/symphony/WORKFLOW.md",
]


def started(words, *, cwd, env):
    """The command in an interpreter of its own."""
    start = [sys.executable, "-m", "hookline", *words]
    return subprocess.run(start, cwd=cwd, env=env, input="", capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_fork_says_what_a_new_interpreter_says(command, tmp_path):
    said = []
    for way in (started, forks.run):
        folder = tmp_path / "here"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ROOT / "examples", folder / "examples")
        env = {**os.environ, "HOOKLINE_HOME": str(folder / "home"), "NO_COLOR": "1"}
        done = way(command.split(), cwd=folder, env=env)
        shown = re.sub(r"\d+(\.\d+)? (us|ms|s)\b", "", done.stdout)
        said.append((done.returncode, shown, done.stderr, (folder / "hookline.yaml").exists()))
    assert said[0] == said[1]


def test_a_fork_is_a_process_of_its_own(tmp_path):
    file = tmp_path / "pid.py"
    file.write_text("import os\nprint(os.getpid(), os.environ.get('MARK'), os.getcwd())\n")
    pids = []
    for mark in ("one", "two"):
        env = {**os.environ, "HOOKLINE_HOME": str(tmp_path / "home"), "MARK": mark}
        pid, *rest = forks.run(["check", "pid.py"], cwd=tmp_path, env=env).stderr.split()[:3]
        pids.append(pid)
        assert rest == [mark, str(tmp_path)]
    assert len({*pids, str(os.getpid())}) == 3


def test_a_variable_that_python_reads_at_its_start_has_a_new_interpreter(tmp_path):
    (tmp_path / "off.py").write_text("import sys\nprint(sys.flags.no_user_site)\n")
    env = {**os.environ, "HOOKLINE_HOME": str(tmp_path / "home"), "PYTHONNOUSERSITE": "1"}
    assert forks.run(["check", "off.py"], cwd=tmp_path, env=env).stderr.startswith("1\n")
