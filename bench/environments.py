"""One virtual environment per peer, because the frameworks no longer install side by side."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".bench"
INSTALL_LIMIT = 900


class NotInstalled(Exception):
    """The environment of a peer could not be made."""


def interpreter(name: str, requirements: tuple[str, ...]) -> Path:
    """The python of the peer's environment, made or made anew where its pins or the python changed."""
    folder = ENVIRONMENTS / name
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp = folder / "stamp.json"
    wanted = json.dumps({"python": platform.python_version(), "requirements": requirements})
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python

    hide_from_git()
    shutil.rmtree(folder, ignore_errors=True)
    for command in commands(folder, python, requirements):
        carry_out(command)
    # Last, so that an install that was cut short is not taken for a whole one.
    stamp.write_text(wanted)
    return python


def commands(folder: Path, python: Path, requirements: tuple[str, ...]) -> list[list[str]]:
    uv = shutil.which("uv")
    if uv:
        return [
            [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), *requirements],
        ]
    return [
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements],
    ]


def carry_out(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NotInstalled(str(exc)) from exc
    if done.returncode:
        raise NotInstalled(last_line(done.stderr) or f"exit code {done.returncode}")


def hide_from_git() -> None:
    ENVIRONMENTS.mkdir(exist_ok=True)
    (ENVIRONMENTS / ".gitignore").write_text("*\n")


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [""])[-1]
