"""The first container of a run's pod."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hookline.sympozium.cluster.prepare import FOLDERS

TASK = {"task": "look"}


def prepared(tmp_path: Path, *, ipc: str = "ipc") -> subprocess.CompletedProcess[str]:
    task = tmp_path / "task.json"
    task.write_text(json.dumps(TASK))
    places = [str(task), str(tmp_path / "workspace"), str(tmp_path / ipc)]
    command = [sys.executable, "-P", "-m", "hookline.sympozium.cluster.prepare", *places]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.statement("SZ20", "SZ21")
@pytest.mark.rule("sympozium B2", "sympozium 1.17.18")
def test_the_folders_that_hooks_write_to_are_there_and_the_task_too(tmp_path: Path) -> None:
    done = prepared(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "workspace/context").is_dir()
    assert all((tmp_path / "ipc" / each).is_dir() for each in FOLDERS)
    assert list((tmp_path / "ipc/control").iterdir()) == []
    assert json.loads((tmp_path / "ipc/input/task.json").read_text()) == TASK
    assert (tmp_path / "ipc/control").stat().st_mode & 0o777 == 0o777


def test_a_second_time_what_is_there_stays(tmp_path: Path) -> None:
    prepared(tmp_path)
    kept = tmp_path / "workspace/context/incidents.json"
    kept.write_text("[]")
    own = tmp_path / "ipc/input/task.json"
    own.write_text('{"task": "changed by a hook"}')
    assert prepared(tmp_path).returncode == 0
    assert kept.read_text() == "[]"
    assert own.read_text() == '{"task": "changed by a hook"}'


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    done = prepared(tmp_path, ipc="taken")
    assert done.returncode == 1
    assert os.fspath(tmp_path / "taken") in done.stderr
    assert "Traceback" not in done.stderr
