"""Finding and ending the processes that carry a tag in their environment, wherever they have gone.

Run as a script this is the watcher: it outlives a hookline that was killed, ends what that had started, and goes.
It is started by path with a bare interpreter, so it imports nothing of ours.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

__all__ = ["VARIABLE", "carriers", "end_carriers", "send"]

VARIABLE = "HOOKLINE_TAG"


def carriers(mark: bytes) -> dict[int, bytes]:
    """The live processes whose environment has the mark, with the run's number that follows it."""
    found: dict[int, bytes] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return found
    for name in names:
        if name[0] in "123456789":
            number = _number(name, mark)
            if number is not None:
                found[int(name)] = number
    return found


def end_carriers(mark: bytes, rounds: int = 100) -> None:
    """Kill every process with the mark, again and again until none is found: one may fork while we look."""
    for turn in range(rounds):
        found = carriers(mark)
        if not found:
            return
        for pid in found:
            send(pid, mark, signal.SIGKILL)
        if turn:
            time.sleep(0.005)


def send(pid: int, mark: bytes, number: int) -> None:
    """Signal a process only if it is still the one with the mark: its id may be somebody else's by now."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _number(str(pid), mark) is not None:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass
    finally:
        os.close(handle)


def _number(pid: str, mark: bytes) -> bytes | None:
    try:
        file = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
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


def _watch(mark: bytes, parent: int) -> None:
    """Wait until the parent is gone, then end what it left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    try:
        # The pipe alone is not enough: a fork of the parent may hold it open.
        if os.getppid() == parent:
            poll.register(os.pidfd_open(parent), select.POLLIN)
            poll.poll()
    except OSError:
        pass
    # A process that was just being started may show its tag a moment later.
    for pause in (0.0, 0.05, 0.2, 0.5):
        time.sleep(pause)
        end_carriers(mark, rounds=1000)


if __name__ == "__main__":
    _watch(sys.argv[1].encode(), int(sys.argv[2]))
