"""One process of this machine: how it is started and told to end, and what is kept of its output.

`local` runs many of them on an event loop, `waiting` one after another without one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from hookline.runners import Capabilities, Order, Output
from hookline.runners.lookup import missing_script

__all__ = [
    "CAPABILITIES",
    "CHUNK",
    "GRACE",
    "LINGER",
    "POLL",
    "Kept",
    "Pipes",
    "Start",
    "Started",
    "Status",
    "group_asked",
    "popened",
    "reaped",
    "unrunnable",
]

GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL; less than a cancelled hook has before the pipeline gives it up."""
LINGER = 0.1
"""Seconds that the last reader of a hook's output (`tee`, say) has when the hook itself has exited."""
POLL = 0.02
"""Seconds between two looks for what is still there."""
CHUNK = 65536
CAPABILITIES = Capabilities(
    name="local",
    hides_files=False,
    hides_processes=False,
    cuts_network=False,
    uses_image=False,
    keeps_background=True,
)

Status = tuple[int | None, int | None]
"""An exit code or a signal; neither where that was lost."""
Pipes = tuple[int, int, int]
"""What a process has as its input, output and errors."""


class Started(Protocol):
    """A process in a session of its own. Its id is nobody else's before it is reaped."""

    @property
    def pid(self) -> int: ...

    @property
    def pidfd(self) -> int: ...

    def ask(self) -> None:
        """Ask it to end, with all that is in its session's first group."""
        ...

    def reap(self) -> Status:
        """How it ended; asked once, when it is gone."""
        ...


Start = Callable[[Order, Mapping[str, str], str, Pipes], Started]
"""Start what was ordered, with that environment, its number and its pipes; OSError or ValueError where it cannot."""


def group_asked(pid: int) -> None:
    """SIGTERM to a group whose leader has not been reaped, so that its id is nobody else's."""
    try:
        os.killpg(pid, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        pass


def unrunnable(order: Order, exists: Callable[[str], bool] = os.path.exists) -> str | None:
    """What is wrong with an order that is to run without its image; `exists` knows the files that it would see."""
    if order.own_program:
        return f"image {order.image!r} is not used here, so its own program is not known; name a command"
    return missing_script(order.argv, order.cwd, order.env, exists) if order.argv else "it names no program"


class popened:
    """A child of ours, by Popen."""

    __slots__ = ("_popen", "pid", "pidfd")

    def __init__(
        self, order: Order, env: Mapping[str, str], _number: str, pipes: Pipes, more_fds: Sequence[int] = ()
    ) -> None:
        import subprocess  # slow to load, and not for `waiting`

        self._popen = subprocess.Popen(
            order.argv,
            stdin=pipes[0],
            stdout=pipes[1],
            stderr=pipes[2],
            cwd=order.cwd,
            env=env,
            start_new_session=True,
            pass_fds=more_fds,
        )
        self.pid = self._popen.pid
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError:
            self._popen.kill()
            self._popen.wait()
            raise

    def ask(self) -> None:
        group_asked(self.pid)

    def reap(self) -> Status:
        """Its exit code; not by Popen, which takes one that was lost for a 0."""
        code, number = reaped(self.pidfd)
        self._popen.returncode = code if code is not None else number or 0
        return code, number


def reaped(pidfd: int) -> Status:
    """How a child ended that is gone."""
    try:
        found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        found = None
    if found is None:
        return None, None
    return (found.si_status, None) if found.si_code == os.CLD_EXITED else (None, found.si_status)


class Kept:
    """The beginning and the end of what comes out of a pipe; what is between is only counted."""

    __slots__ = ("_head", "_room_at_end", "_room_at_start", "_tail", "_total", "fd")

    def __init__(self, fd: int, cap: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._head = bytearray()
        self._tail = bytearray()
        self._room_at_end = cap // 2
        self._room_at_start = cap - self._room_at_end
        self._total = 0

    def add(self, part: bytes) -> None:
        self._total += len(part)
        free = self._room_at_start - len(self._head)
        if free > 0:
            self._head += part[:free]
            part = part[free:]
        self._tail += part
        if len(self._tail) > 2 * self._room_at_end + CHUNK:
            self._cut()

    def output(self) -> Output:
        self._cut()
        return Output(head=bytes(self._head), tail=bytes(self._tail), total=self._total)

    def _cut(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._room_at_end)]
