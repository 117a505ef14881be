"""A child process: how it is started, in a session of its own, signalled and reaped; and the watcher over all."""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from hookline.runners import Order

# Python ignores these, and its children would too, if nobody told them otherwise.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

ExitStatus = tuple[int | None, int | None]
"""An exit code or a signal; neither where that was lost."""
StandardFiles = tuple[int, int, int]
"""The files that a process has as its input, output and errors."""


class Child(Protocol):
    """A process in a session of its own. Its id is nobody else's before it is reaped."""

    @property
    def pid(self) -> int: ...

    @property
    def pidfd(self) -> int: ...

    def terminate(self) -> None:
        """Ask it to end, with all that is in its session's first group."""
        ...

    def reap(self) -> ExitStatus:
        """How it ended; asked once, when it is gone."""
        ...


Start = Callable[[Order, Mapping[str, str], str, StandardFiles], Child]
"""Start what was ordered, with that environment, its number and its files; OSError or ValueError where it cannot."""


class PopenChild:
    """A child of ours, started by Popen."""

    __slots__ = ("_popen", "pid", "pidfd")

    def __init__(
        self,
        order: Order,
        env: Mapping[str, str],
        _number: str,
        files: StandardFiles,
        more_fds: Sequence[int] = (),
    ) -> None:
        import subprocess  # slow to load, and not for `sync`

        self._popen = subprocess.Popen(
            order.argv,
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
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

    def terminate(self) -> None:
        signal_group(self.pid, signal.SIGTERM)

    def reap(self) -> ExitStatus:
        """Its exit code; not by Popen, which takes one that was lost for a 0."""
        code, number = exit_status(self.pidfd)
        self._popen.returncode = code if code is not None else number or 0
        return code, number


class SpawnChild:
    """A child of ours as Popen would start it, without the time that loading Popen takes."""

    __slots__ = ("pid", "pidfd")

    def __init__(self, order: Order, env: Mapping[str, str], _number: str, files: StandardFiles) -> None:
        before = os.open(".", os.O_PATH | os.O_CLOEXEC)
        try:
            # A child begins where we stand. Most are to stand there anyway, and hooks in threads may look.
            if order.cwd is not None and order.cwd != os.getcwd():
                os.chdir(order.cwd)
            self.pid = _spawned(order.argv, env, files)
        finally:
            os.fchdir(before)
            os.close(before)
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise

    def terminate(self) -> None:
        signal_group(self.pid, signal.SIGTERM)

    def reap(self) -> ExitStatus:
        return exit_status(self.pidfd)


def _spawned(argv: tuple[str, ...], env: Mapping[str, str], files: StandardFiles) -> int:
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
            # As where a shell looks: what is there and cannot be run is told, if nothing after it can be.
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
    """The files that whoever started us left open, which are no business of a hook."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            pass  # the list itself
    return found


def signal_group(pid: int, number: int) -> None:
    """Signal a group whose leader has not been reaped, so that its id is nobody else's."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def exit_status(pidfd: int) -> ExitStatus:
    """How a child ended that is gone; it is reaped by this."""
    try:
        found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        found = None
    if found is None:
        return None, None
    return (found.si_status, None) if found.si_code == os.CLD_EXITED else (None, found.si_status)


class Watcher:
    """A process that outlives us where we are killed: it acts when our end of its pipe closes."""

    def __init__(self, argv: Sequence[str], start: Start = PopenChild, *, cwd: str | None = "/") -> None:
        with open(os.devnull, "wb") as nothing:
            theirs, self._pipe = os.pipe()
            order = Order(argv=tuple(argv), cwd=cwd)
            try:
                self._child = start(order, os.environ, "", (theirs, nothing.fileno(), nothing.fileno()))
            except BaseException:
                os.close(self._pipe)
                raise
            finally:
                os.close(theirs)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return not is_readable(self._child.pidfd, 0.0)

    def dismiss(self) -> None:
        try:
            signal.pidfd_send_signal(self._child.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass
        is_readable(self._child.pidfd, None)
        self._child.reap()
        os.close(self._child.pidfd)
        os.close(self._pipe)


def is_readable(fd: int, seconds: float | None) -> bool:
    """True once a file has something to read, which for a pidfd is the end; waits so long at most."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def limit_file_size(pid: int, size: int) -> None:
    """Limit its files once it is started: between fork and exec that would cost as much as the process itself.

    So it may have children by now, which have not inherited the limit; those that come later do.
    """
    import resource

    waiting = [pid]
    while waiting:
        each = waiting.pop()
        try:
            most = resource.prlimit(each, resource.RLIMIT_FSIZE)[1]
            held = size if most == resource.RLIM_INFINITY else min(size, most)
            resource.prlimit(each, resource.RLIMIT_FSIZE, (held, held))
            with open(f"/proc/{each}/task/{each}/children", "rb") as file:
                waiting += map(int, file.read().split())
        except OSError:
            pass  # gone by now, or somebody else's by its set-user-id bit, and then not ours to hold
