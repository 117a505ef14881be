"""Finds and ends what hookline has started: processes by the tag in their environment, containers by their label.

Run as a script it ends what a hookline that was killed had started; a watcher (`child.Watcher`) runs it then. It is
started by path with a bare interpreter, so it imports nothing of hookline.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

PROC = "/proc"
VARIABLE = "HOOKLINE_TAG"
MARK = "hookline.mark"
OWNER = "hookline.owner"
_LONGEST = 120.0
_REMOVAL = {"podman": ("rm", "--force", "--ignore", "--time", "0")}


def carriers(mark: bytes) -> dict[int, bytes]:
    """The live processes whose environment has the mark, with the number of the run that follows it."""
    found: dict[int, bytes] = {}
    try:
        names = os.listdir(PROC)
    except OSError:
        return found
    for name in names:
        if name[0] in "123456789":
            number = _number(name, mark)
            if number is not None:
                found[int(name)] = number
    return found


def end_carriers(mark: bytes, rounds: int = 100) -> None:
    """Kill every process with the mark until none is found: one may fork during the search."""
    for turn in range(rounds):
        found = carriers(mark)
        if not found:
            return
        for pid in found:
            send(pid, mark, signal.SIGKILL)
        if turn:
            time.sleep(0.005)


def send(pid: int, mark: bytes, number: int) -> None:
    """Signal a process if it has the mark."""
    send_if(lambda: _number(str(pid), mark) is not None, pid, number)


def send_if(is_meant: Callable[[], bool], pid: int, number: int) -> None:
    """Signal a process only if it is still the same: its id may have been reused."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if is_meant():
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass
    finally:
        os.close(handle)


def labelled(engine: Sequence[str], label: str) -> list[str]:
    """The ids of all containers with that label, running or not."""
    return said(engine, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}").split()


def remove(engine: Sequence[str], containers: Sequence[str]) -> None:
    """End and remove containers; one that is already gone is no error."""
    if containers:
        removal = _REMOVAL.get(os.path.basename(engine[0]), ("rm", "--force"))
        said(engine, *removal, *containers)


def abandoned(engine: Sequence[str]) -> list[str]:
    """The containers whose hookline process is gone from this machine."""
    form = f'{{{{.Id}}}} {{{{index .Config.Labels "{OWNER}"}}}}'
    found: list[str] = []
    for container in labelled(engine, OWNER):
        name, _, whose = said(engine, "inspect", "--format", form, container).strip().partition(" ")
        if name and whose and _is_gone(whose):
            found.append(name)
    return found


def owner(pid: int) -> str | None:
    """A word for a process that no other process ever has; None if the process is gone."""
    started = start_time(pid)
    return None if started is None else f"{_machine()}.{pid}.{started}"


def boot_id() -> str:
    """The same as that of `files`, which cannot be imported here."""
    try:
        with open(f"{PROC}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_time(pid: int) -> str | None:
    """The start of a process, in clock ticks since boot; None if it is gone, or a zombie."""
    try:
        with open(f"{PROC}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name stands in parentheses and may hold spaces and parentheses itself.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if not fields or fields[0] in "ZXx" else fields[19]


def watcher_of(mark: str, *engine: str) -> tuple[str, ...]:
    """The command of our watcher, for the processes with that mark or the containers of an engine with that label."""
    return (sys.executable, "-I", "-S", __file__, mark, *engine)


def _number(pid: str, mark: bytes) -> bytes | None:
    try:
        file = os.open(f"{PROC}/{pid}/environ", os.O_RDONLY)
    except OSError:
        return None  # gone, or another user's
    try:
        text = b""
        while part := os.read(file, 262144):
            text += part
    except OSError:
        return None
    finally:
        os.close(file)
    start = text.find(mark)
    if start < 0:
        return None
    start += len(mark)
    return text[start : text.find(b":", start)]


def _machine() -> str:
    """This system since its last start, and the namespace that gives its processes their ids here."""
    return f"{boot_id()}.{os.stat(f'{PROC}/self/ns/pid').st_ino}"


def _is_gone(whose: str) -> bool:
    place, pid, _ = [*whose.rsplit(".", 2), "", ""][:3]
    # A process from before the last boot is gone; one in another container cannot be judged from here.
    if place.partition(".")[0] != _machine().partition(".")[0]:
        return True
    return place == _machine() and pid.isdigit() and owner(int(pid)) != whose


def said(engine: Sequence[str], *words: str) -> str:
    """The output of a command of the engine; empty if it could not run."""
    import subprocess  # slow to load, and not for processes

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


def _end_all(mark: str, engine: Sequence[str]) -> None:
    """End all that a hookline which is gone has left."""
    # A process that was being started may show its tag a moment later; a container takes longer to be listed.
    for pause in (0.0, 0.5, 1.0, 2.0) if engine else (0.0, 0.05, 0.2, 0.5):
        time.sleep(pause)
        if engine:
            remove(engine, labelled(engine, mark))
        else:
            end_carriers(mark.encode(), rounds=1000)


if __name__ == "__main__":
    _end_all(sys.argv[1], sys.argv[2:])
