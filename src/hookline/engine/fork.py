"""Work in a fork of our process: whatever ends the fork, we go on, and know that the work was not done.

A hook finds the fork as its parent. `hookline answer` loads this, so nothing slow is imported here.
"""

import fcntl
import gc
import os
import select
import sys
from collections.abc import Callable

from hookline.errors import HooklineError

LINGER = 2.0
"""Seconds that a fork has to end once its work is done."""
_HEAD = 8
"""Bytes of the length before a result, which tells a whole one from a part."""
_SIGKILL = 9  # `signal` takes longer to load than a fork


class ForkEnded(HooklineError):
    """The fork ended before its work was done."""


def in_fork(work: Callable[[], bytes], *, at_once: bool) -> bytes:
    """The result of the work, done in a fork; raises ForkEnded if there is none, and OSError if there is no fork.

    With `at_once` the fork ends without the functions that wait for the end of the interpreter. It is killed if we die.
    """
    ours, theirs = os.pipe()
    life, held = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
    except BaseException:
        for fd in (ours, theirs, life, held):
            os.close(fd)
        raise
    if not pid:
        os.close(ours)
        os.close(held)
        _die_with(life, parent)
        _work(work, theirs, at_once=at_once)
    os.close(theirs)
    os.close(life)
    try:
        return _result(pid, ours)
    finally:
        os.close(ours)
        os.close(held)


def _die_with(life: int, parent: int) -> None:
    """Have the system kill us when the other end of the pipe is closed, which also happens where the parent is killed."""
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETSIG, _SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, os.O_ASYNC)
    if os.getppid() != parent:
        os._exit(1)


def _work(work: Callable[[], bytes], theirs: int, *, at_once: bool) -> None:
    """Do the work and end the process."""
    try:
        result = work()
    except BaseException:
        import traceback  # slow to load, and hardly ever needed

        traceback.print_exc()
        os._exit(1)
    rest = memoryview(len(result).to_bytes(_HEAD) + result)
    while rest:
        rest = rest[os.write(theirs, rest) :]
    if at_once:
        os._exit(0)
    gc.freeze()  # a look for garbage would copy every page
    sys.exit(0)


def _result(pid: int, ours: int) -> bytes:
    pidfd = os.pidfd_open(pid)
    try:
        found = _read(ours, pidfd)
        whole = len(found) >= _HEAD and len(found) == _HEAD + int.from_bytes(found[:_HEAD])
        if whole and not _ends(pidfd, LINGER):
            print("hookline: what a hook left running in its own process was ended", file=sys.stderr)
        if not _ends(pidfd, 0.0):
            os.kill(pid, _SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(pidfd)
    if whole:
        return found[_HEAD:]
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    raise ForkEnded(f"the process that called the hooks {how} before they had all answered")


def _read(ours: int, pidfd: int) -> bytes:
    """All that the fork wrote: what a hook forked itself may keep the pipe open for longer."""
    poll = select.poll()
    poll.register(ours, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    found = b""
    while len(found) < _HEAD or len(found) < _HEAD + int.from_bytes(found[:_HEAD]):
        if ours not in dict(poll.poll()):
            break
        part = os.read(ours, 1 << 16)
        if not part:
            break
        found += part
    return found


def _ends(pidfd: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
