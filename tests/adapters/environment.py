"""An environment with google-adk beside hookline: frameworks do not install together with all that we test with."""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("HOOKLINE_TEST_CACHE") or ROOT / ".cache")
ADK = "2.13.0"
TESTING = ("pytest>=8.4", "pytest-asyncio>=1.0", "pytest-timeout>=2.3")


def adk_python() -> Path:
    """The python of an environment with google-adk and what hookline needs, made where it is not there yet."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        base = tomllib.load(file)["project"]["dependencies"]
    wanted = [f"google-adk=={ADK}", *base, *TESTING]
    folder = CACHE / f"google-adk-{ADK}"
    python = folder / "bin" / "python"
    stamp = folder / "stamp.json"
    mark = json.dumps({"python": platform.python_version(), "wanted": wanted})
    with _alone(folder):
        if stamp.exists() and stamp.read_text() == mark:
            return python
        shutil.rmtree(folder, ignore_errors=True)
        for command in _commands(folder, python, wanted):
            subprocess.run(command, check=True, capture_output=True, text=True)
        # Last, so that an install that was cut short is not taken for a whole one.
        stamp.write_text(mark)
    return python


def in_adk(python: Path, *words: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """A command of that python, with hookline from the source tree."""
    return subprocess.run(
        [str(python), *words],
        input=stdin,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1", **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def _commands(folder: Path, python: Path, wanted: list[str]) -> list[list[str]]:
    uv = shutil.which("uv")
    if uv:
        return [
            [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", str(python), *wanted],
        ]
    return [
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted],
    ]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Several workers may want it at once; one makes it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
