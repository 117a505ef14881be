"""Programs that real tests need on this machine. Nothing of hookline is imported."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


def installed(**programs: str) -> None:
    """Have each program, by its Debian package; skips where that cannot be."""
    if not _missing(programs):
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        pytest.skip(f"not installed: {', '.join(_missing(programs))}")
    # Tests run side by side, and apt does not wait for the lists that another one is fetching.
    with Path(tempfile.gettempdir(), "hookline-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = _missing(programs)
        if missing:
            _install(missing)


def _missing(programs: dict[str, str]) -> list[str]:
    return [package for program, package in programs.items() if shutil.which(program) is None]


def _install(missing: list[str]) -> None:
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=600"]
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([*apt, "update"], check=False, env=environ, capture_output=True)
    subprocess.run([*apt, "install", "-y", "--no-install-recommends", *missing], check=True, env=environ)
