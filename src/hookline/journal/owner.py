"""Who holds a run: the machine's boot, the process and when that process started."""

from __future__ import annotations

import os
from pathlib import Path

from hookline.engine.record import Owner

_PROC = Path("/proc")


def owner() -> Owner:
    """This process."""
    pid = os.getpid()
    return Owner(_boot_id(), pid, _started(pid) or "")


def alive(owner: Owner) -> bool:
    """Whether that very process still runs; its pid may have been given out again since."""
    if owner.boot_id != _boot_id():
        return False
    if not owner.started:
        return _answers(owner.pid)
    return _started(owner.pid) == owner.started


def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """In clock ticks since boot; None where there is no such process, or only its corpse."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may hold spaces and parentheses itself.
    rest = stat.rpartition(")")[2].split()
    return None if rest[0] in "ZXx" else rest[19]


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
