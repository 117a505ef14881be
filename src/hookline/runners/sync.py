"""Processes on this machine for who has no event loop: one after another, and everything waits for them.

For `hookline answer`, which has nothing else to do and no time to load a loop. A process is held as by `local`: in a
session of its own, fed and drained to the end, ended with its group past its limit; what left the group is found by
its tag. Nothing is left where we are killed either: a shell, begun before the first process, waits for our end of a
pipe to close and then becomes the same watcher that `local` has. Begun as that at once, it would cost more than a hook.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping

from hookline.errors import UsageError
from hookline.runners import Capabilities, Ending, Order, Output
from hookline.runners import tags as tagged
from hookline.runners.lookup import why_not_started
from hookline.runners.process import (
    CHUNK,
    GRACE,
    LINGER,
    POLL,
    Kept,
    Pipes,
    Started,
    Status,
    group_asked,
    popened,
    reaped,
    unrunnable,
)

__all__ = ["WaitingRunner"]

CAPABILITIES = Capabilities(
    name="local",
    hides_files=False,
    hides_processes=False,
    cuts_network=False,
    uses_image=False,
    keeps_background=False,
)
# Once the pipe is at its end the rest of the line is run. It must not hold our folder, nor end before us.
_SLEEPING_WATCHER = "trap '' INT TERM HUP QUIT; cd /; read -r word || exec \"$@\""
_LAST_WAIT = 2.0
# And by its children too, if nobody tells them otherwise.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class WaitingRunner:
    """Runs processes of this machine; its coroutines never wait for a loop, and are done at their first step."""

    def __init__(self, *, grace: float = GRACE) -> None:
        self._grace = grace
        self._mark = f":{os.urandom(8).hex()}."
        self._count = 0
        self._watcher: Started | None = None
        self._watcher_pipe = -1

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def run(self, order: Order) -> Ending:
        if order.mounts or order.background_keep or order.file_size is not None:
            raise UsageError(
                "mounts, a background that is kept and a limit on files are for the other runners, not for this one"
            )
        wrong = unrunnable(order)
        if wrong is not None:
            return Ending(not_started=wrong)
        self._count += 1
        number = f"{self._count}"
        tag = f"{os.environ.get(tagged.VARIABLE) or ''}{self._mark}{number}:"
        try:
            self._watch()
            process = _Process(order, {**order.env, tagged.VARIABLE: tag}, number)
        except ProcessLookupError:
            # It ran, but SIGCHLD is ignored in this process, and the system has thrown its exit code away.
            return Ending()
        except (OSError, ValueError) as exc:
            return Ending(not_started=why_not_started(order.argv, order.cwd, exc))
        try:
            return self._ran(process)
        except BaseException:
            self._end(process, self._grace)
            process.finish()
            raise

    async def close(self) -> None:
        """End what the processes have left outside their groups."""
        if self._watcher is None:
            return
        try:
            self._clear(b"", time.monotonic() + self._grace)
        finally:
            tagged.end_carriers(self._mark.encode())
            self._dismiss(self._watcher)
            self._watcher = None

    def _ran(self, process: _Process) -> Ending:
        timeout = process.order.timeout
        process.go_on(None if timeout is None else time.monotonic() + timeout)
        if not process.gone:
            process.passed_limit = True
            self._end(process, self._grace)
            return process.finish()
        # Somebody else may hold its output, and still have something to say.
        process.read_on(time.monotonic() + LINGER)
        if process.open:
            self._end(process, 0.0)
            return process.finish()
        process.signal(signal.SIGKILL)
        return process.finish()

    def _end(self, process: _Process, grace: float) -> None:
        """SIGTERM to the group, a while to put things in order, then SIGKILL to it and to all with the tag."""
        deadline = time.monotonic() + grace
        if grace:
            process.signal(signal.SIGTERM)
            process.go_on(deadline)
        self._clear(process.number.encode(), deadline, process)
        process.signal(signal.SIGKILL)
        tagged.end_carriers(self._own(process.number))
        process.go_on(time.monotonic() + _LAST_WAIT)

    def _clear(self, number: bytes, deadline: float, process: _Process | None = None) -> None:
        """Ask what there is outside the group, of one run or of all, to end, and wait for it until the deadline."""
        asked: set[int] = set()
        while time.monotonic() < deadline:
            found = tagged.carriers(self._mark.encode())
            left = {pid for pid, its in found.items() if not number or its == number}
            if not left and (process is None or process.gone):
                return
            for pid in left - asked:
                if process is None or not process.has_in_group(pid):
                    tagged.send(pid, self._mark.encode(), signal.SIGTERM)
            asked |= left
            time.sleep(POLL) if process is None else process.pass_time(POLL)

    def _own(self, number: str) -> bytes:
        return f"{self._mark}{number}:".encode()

    def _watch(self) -> None:
        if self._watcher is not None:
            return
        _fill_standard_files()
        nothing = os.open(os.devnull, os.O_WRONLY)
        theirs, ours = os.pipe()
        watcher = (sys.executable, "-I", "-S", tagged.__file__, self._mark, f"{os.getpid()}")
        order = Order(argv=("/bin/sh", "-c", _SLEEPING_WATCHER, "sh", *watcher))
        try:
            self._watcher = _started(order, os.environ, (theirs, nothing, nothing))
            self._watcher_pipe = ours
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
            os.close(nothing)

    def _dismiss(self, watcher: Started) -> None:
        os.kill(watcher.pid, signal.SIGKILL)
        select.select([watcher.pidfd], [], [])
        watcher.reap()
        os.close(watcher.pidfd)
        os.close(self._watcher_pipe)


def _fill_standard_files() -> None:
    """A caller may have closed some of the first three, and no pipe of ours must take their place."""
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(fd)


def _started(order: Order, env: Mapping[str, str], pipes: Pipes) -> Started:
    try:
        return _Spawned(order, env, pipes)
    except NotImplementedError:
        return popened(order, env, "", pipes)  # a Python that was built for an old system cannot


class _Spawned:
    """A child of ours as Popen would start it, without the time that loading Popen takes."""

    __slots__ = ("pid", "pidfd")

    def __init__(self, order: Order, env: Mapping[str, str], pipes: Pipes) -> None:
        before = os.open(".", os.O_PATH | os.O_CLOEXEC)
        try:
            # A child begins where we stand. Most are to stand there anyway, and hooks in threads may look.
            if order.cwd is not None and order.cwd != os.getcwd():
                os.chdir(order.cwd)
            self.pid = _spawned(order.argv, env, pipes)
        finally:
            os.fchdir(before)
            os.close(before)
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise

    def ask(self) -> None:
        group_asked(self.pid)

    def reap(self) -> Status:
        return reaped(self.pidfd)


def _spawned(argv: tuple[str, ...], env: Mapping[str, str], pipes: Pipes) -> int:
    actions: list[tuple[int, int, int] | tuple[int, int]] = [
        (os.POSIX_SPAWN_DUP2, theirs, fd) for fd, theirs in enumerate(pipes)
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


class _Process:
    """One process with its pipes."""

    __slots__ = (
        "_by_fd",
        "_outputs",
        "_poll",
        "_rest",
        "_since",
        "_started",
        "_stdin",
        "gone",
        "number",
        "order",
        "passed_limit",
    )

    def __init__(self, order: Order, env: Mapping[str, str], number: str) -> None:
        self.order = order
        self.number = number
        self.gone = self.passed_limit = False
        pipes: list[int] = []
        try:
            for _ in range(2 if order.merge_stderr else 3):
                pipes += os.pipe()
            self._since = time.perf_counter()
            theirs = (pipes[0], pipes[3], pipes[3 if order.merge_stderr else 5])
            self._started = _started(order, env, theirs)
        except BaseException:
            for fd in pipes:
                os.close(fd)
            raise
        for fd in (pipes[0], *pipes[3::2]):
            os.close(fd)
        self._stdin = pipes[1]
        os.set_blocking(self._stdin, False)
        self._rest = memoryview(order.stdin)
        self._outputs = [Kept(fd, order.output_cap) for fd in pipes[2::2]]
        self._by_fd = {kept.fd: kept for kept in self._outputs}
        self._poll = select.poll()
        for fd in (*self._by_fd, self._started.pidfd):
            self._poll.register(fd, select.POLLIN)
        self._poll.register(self._stdin, select.POLLOUT)

    @property
    def open(self) -> bool:
        """Whether somebody still holds an output."""
        return any(kept.fd >= 0 for kept in self._outputs)

    def go_on(self, deadline: float | None) -> None:
        """Feed and drain it until it is gone."""
        while not self.gone and (deadline is None or time.monotonic() < deadline):
            self._step(deadline)

    def read_on(self, deadline: float) -> None:
        """Drain what is still held open until nobody holds it."""
        while self.open and time.monotonic() < deadline:
            self._step(deadline)

    def pass_time(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._step(deadline)

    def signal(self, number: int) -> None:
        """To the whole group. It has not been reaped, so its id is nobody else's."""
        try:
            os.killpg(self._started.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def has_in_group(self, pid: int) -> bool:
        try:
            return os.getpgid(pid) == self._started.pid
        except OSError:
            return False

    def finish(self) -> Ending:
        """Read what is still there, give everything back, and say how it went."""
        self._close_stdin()
        for kept in self._outputs:
            self._read_rest(kept)
            self._close(kept)
        code, number = self._started.reap()
        os.close(self._started.pidfd)
        kept = [each.output() for each in self._outputs]
        return Ending(
            exit_code=code,
            signal=number,
            stdout=kept[0],
            stderr=kept[1] if len(kept) > 1 else Output(),
            seconds=time.perf_counter() - self._since,
            passed_limit=self.passed_limit,
        )

    def _step(self, deadline: float | None) -> None:
        """Wait until something can be done, and do it."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        ready = [fd for fd, _ in self._poll.poll(left)]
        for fd in ready:
            if fd == self._stdin:
                self._write()
            elif fd in self._by_fd:
                self._read(self._by_fd[fd])
        if self._started.pidfd in ready:
            self._exit()

    def _exit(self) -> None:
        self._poll.unregister(self._started.pidfd)
        self._close_stdin()
        for kept in self._outputs:
            self._read_rest(kept)
        self.gone = True

    def _write(self) -> None:
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._stdin, self._rest) :]
        except BlockingIOError:
            return
        except OSError:
            pass  # it does not want to read on, which is its own affair
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self._poll.unregister(self._stdin)
            os.close(self._stdin)
            self._stdin = -1

    def _read(self, kept: Kept) -> bool:
        """Whether there may be more."""
        try:
            part = os.read(kept.fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            part = b""
        if part:
            kept.add(part)
            return True
        self._close(kept)
        return False

    def _read_rest(self, kept: Kept) -> None:
        # A pipe holds a megabyte at most; who prints on for ever does not keep us.
        for _ in range(32):
            if kept.fd < 0 or not self._read(kept):
                return

    def _close(self, kept: Kept) -> None:
        if kept.fd >= 0:
            self._poll.unregister(kept.fd)
            del self._by_fd[kept.fd]
            os.close(kept.fd)
            kept.fd = -1
