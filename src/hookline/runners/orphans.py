"""Finding and removing the containers of a hookline, by their label.

Run as a script this is the watcher of containers: it outlives a hookline that was killed, and removes what that had
started. It is started by path with a bare interpreter, so it imports nothing of ours.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

__all__ = ["MARK", "OWNER", "abandoned", "labelled", "owner", "remove"]

MARK = "hookline.mark"
OWNER = "hookline.owner"
_LONGEST = 120.0
_REMOVAL = {"podman": ("rm", "--force", "--ignore", "--time", "0")}


def labelled(engine: Sequence[str], label: str) -> list[str]:
    """The ids of all containers with that label, running or not."""
    return _said(engine, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}").split()


def remove(engine: Sequence[str], containers: Sequence[str]) -> None:
    """End and remove them; one that is gone already is no trouble."""
    if containers:
        removal = _REMOVAL.get(os.path.basename(engine[0]), ("rm", "--force"))
        _said(engine, *removal, *containers)


def abandoned(engine: Sequence[str]) -> list[str]:
    """The containers whose hookline is gone from this machine."""
    form = f'{{{{.Id}}}} {{{{index .Config.Labels "{OWNER}"}}}}'
    found: list[str] = []
    for container in labelled(engine, OWNER):
        name, _, whose = _said(engine, "inspect", "--format", form, container).strip().partition(" ")
        if name and whose and _is_gone(whose):
            found.append(name)
    return found


def owner(pid: int) -> str | None:
    """A process as a word that no other one has, before or after it; None where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            began = file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None
    return f"{_here()}.{pid}.{began}"


def _here() -> str:
    """This system since its start, and the numbers that its processes have here."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"


def _is_gone(whose: str) -> bool:
    place, pid, _ = [*whose.rsplit(".", 2), "", ""][:3]
    # One from before the last start of this machine is gone; one in another container we cannot judge.
    if place.partition(".")[0] != _here().partition(".")[0]:
        return True
    return place == _here() and pid.isdigit() and owner(int(pid)) != whose


def _said(engine: Sequence[str], *words: str) -> str:
    try:
        done = subprocess.run(
            [*engine, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_LONGEST,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")


def _watch(parent: int, label: str, engine: Sequence[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    try:
        if os.getppid() == parent:
            poll.register(os.pidfd_open(parent), select.POLLIN)
            poll.poll()
    except OSError:
        pass
    # What was just being made may be listed a moment later.
    for pause in (0.0, 0.5, 1.0, 2.0):
        time.sleep(pause)
        remove(engine, labelled(engine, label))


if __name__ == "__main__":
    _watch(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
