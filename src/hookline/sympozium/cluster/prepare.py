"""The first container of a run's pod, `python -m hookline.sympozium.cluster.prepare TASK WORKSPACE IPC`.

Hooks write to /workspace/context and /ipc/control without making them, and the agent looks for its task in /ipc/input:
all of that is there before the first hook begins. Standard library only; it is started for every run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys

FOLDERS = ("input", "output", "spawn", "tools", "messages", "schedules", "prompts", "context", "control")
"""The folders beneath /ipc that Sympozium's bridge makes, and that its documents write into."""


def main(task: str, workspace: str, ipc: str) -> int:
    try:
        for folder in (f"{workspace}/context", *(f"{ipc}/{name}" for name in FOLDERS)):
            os.makedirs(folder, exist_ok=True)
            _open(folder)
        _open(workspace)
        _open(ipc)
        place = f"{ipc}/input/task.json"
        if not os.path.exists(place):
            shutil.copyfile(task, f"{place}.part")
            os.rename(f"{place}.part", place)
    except OSError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    return 0


def _open(folder: str) -> None:
    """Hooks may run as another user than this, where the volume does not take the pod's group."""
    with contextlib.suppress(PermissionError):
        os.chmod(folder, 0o777)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
