"""Synchronous process runner for `hookline answer`: no event loop.

There is nothing else to do and no time to load a loop, so processes run one after another, and everything waits for
them. If hookline is killed, nothing is left behind: a shell, started before the first process, waits for our end of a
pipe to close and then becomes the watcher that `local` has too. Starting that one at once would cost more than a hook.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator, Mapping

from hookline.engine.classes import replace
from hookline.errors import UsageError
from hookline.runners import Ending, Order, tags
from hookline.runners.child import Child, PopenChild, StandardFiles, Watcher
from hookline.runners.process import CAPABILITIES as ON_A_LOOP
from hookline.runners.process import ProcessRunner, unrunnable

CAPABILITIES = replace(ON_A_LOOP, keeps_background=False)
# Python ignores these signals, and its children would inherit that.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
# At the end of the pipe the rest of the line is run. The shell must neither hold our folder nor end before us.
_SLEEPING_WATCHER = "trap '' INT TERM HUP QUIT; cd /; read -r word || exec \"$@\""


class SyncRunner(ProcessRunner):
    """Runs processes of this machine; its coroutines never suspend, and finish at their first step."""

    capabilities = CAPABILITIES

    async def run(self, order: Order) -> Ending:
        if order.mounts or order.background_keep or order.file_size is not None:
            raise UsageError(
                "mounts, a background that is kept and a limit on files are for the other runners, not for this one"
            )
        wrong = unrunnable(order)
        if wrong is not None:
            return Ending(not_started=wrong)
        process = self._started(order, _spawned)
        if isinstance(process, Ending):
            return process
        try:
            return await self._completed(process)
        except BaseException:
            await self._end(process, self._grace)
            raise

    async def close(self) -> None:
        """End the processes left outside their groups."""
        if self._watcher is None:
            return
        try:
            await self._clear(b"", time.monotonic() + self._grace)
        finally:
            tags.end_carriers(self.mark.encode())
            self._dismiss_watcher()

    def _new_watcher(self) -> Watcher:
        _fill_standard_files()
        argv = ("/bin/sh", "-c", _SLEEPING_WATCHER, "sh", *tags.watcher_of(self.mark))
        return Watcher(argv, _spawned, cwd=None)


def _spawned(order: Order, files: StandardFiles) -> Child:
    try:
        return _SpawnChild(order, files)
    except NotImplementedError:
        return PopenChild(order, files)  # a Python that was built for an old system cannot


class _SpawnChild(Child):
    """A child of ours as Popen would start it, without the time that loading Popen takes."""

    __slots__ = ()

    def __init__(self, order: Order, files: StandardFiles) -> None:
        before = os.open(".", os.O_PATH | os.O_CLOEXEC)
        try:
            # A child starts in our folder. Most should, and a hook in a thread may read our folder meanwhile.
            if order.cwd is not None and order.cwd != os.getcwd():
                os.chdir(order.cwd)
            self.pid = _spawned_pid(order.argv, order.env, files)
        finally:
            os.fchdir(before)
            os.close(before)
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise


def _spawned_pid(argv: tuple[str, ...], env: Mapping[str, str], files: StandardFiles) -> int:
    actions: list[tuple[int, int, int] | tuple[int, int]] = [
        (os.POSIX_SPAWN_DUP2, theirs, fd) for fd, theirs in enumerate(files)
    ]
    actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in _inherited()]
    trouble = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    refused: OSError | None = None
    for path in _places(argv[0], env):
        try:
            return os.posix_spawn(
                path,
                argv,
                env,
                file_actions=actions,
                setsid=True,
                setsigdef=_IGNORED_BY_PYTHON,
            )
        except OSError as exc:
            # As a shell does: a file that exists and cannot run is reported, if no later one can run.
            if exc.errno not in (errno.ENOENT, errno.ENOTDIR):
                refused = refused or exc
            trouble = exc
    raise refused or trouble


def _places(program: str, env: Mapping[str, str]) -> Iterator[str]:
    if "/" in program:
        yield program
        return
    for folder in os.get_exec_path(env):
        path = os.path.join(folder, program)
        if os.path.exists(path):
            yield path


def _inherited() -> list[int]:
    """The inheritable files that our own parent left open; a hook must not get them."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            pass  # the list itself
    return found


def _fill_standard_files() -> None:
    """Open the first three files if our parent closed some, so that no pipe of ours takes their numbers."""
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(fd)
