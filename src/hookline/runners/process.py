"""The core of the process runners: start, feed, drain, limit and end a process of this machine.

By itself it polls the files of a process and waits for it, for `hookline answer`, which has nothing else to do and no time
to load a loop; `local` overrides how files are watched and how to wait, for an event loop. The coroutines await only what
`local` overrides, so without a loop they never suspend.

A well-behaved process is as fast as with `subprocess.run`: its pipes and its pidfd are watched, and when it is gone
its group is killed and its exit code read. A child that left the group is found by the tag in its environment. A child
that cleared its environment too escapes; only a sandbox or a container holds that one.
"""

from __future__ import annotations

import itertools
import os
import select
import signal
import time
from collections.abc import Callable

from hookline.engine.stdlib import replace
from hookline.errors import UsageError
from hookline.files import fill_standard_files
from hookline.runners import CHUNK, Capabilities, Capture, Ending, Order, Output, tags
from hookline.runners.child import (
    StandardFiles,
    Start,
    Watcher,
    is_readable,
    signal_group,
    spawned,
    unrunnable,
    why_not_started,
)

GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL; less than a cancelled hook has before the pipeline gives it up."""
LINGER = 0.1
"""Seconds that a child which holds a hook's output (`tee`, say) has once the hook itself has exited."""
LAST_WAIT = 2.0
"""Seconds to wait for a process to disappear once it is killed."""
POLL = 0.02
"""Seconds between two looks for processes that are still there."""


class Pipes:
    """Three pipes to a process, or two if stderr goes into stdout. `theirs` are the ends of the process.

    Our ends do not block. Each end is closed once, because its number may be reused afterwards.
    """

    def __init__(self, *, merge_stderr: bool = False) -> None:
        self.open: set[int] = set()
        try:
            inward, self.stdin = self._pipe()
            self.stdout, outward = self._pipe()
            self.stderr, errors = (self.stdout, outward) if merge_stderr else self._pipe()
        except OSError:
            self.close(*self.open)
            raise
        self.theirs: StandardFiles = (inward, outward, errors)
        for fd in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(fd, False)

    def close(self, *fds: int) -> None:
        for fd in fds:
            if fd in self.open:
                self.open.discard(fd)
                os.close(fd)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self.open.update(ends)
        return ends


class Process:
    """One process with its pipes, whose files are polled while its runner waits for it."""

    def __init__(self, order: Order, number: str, start: Start) -> None:
        self.order = order
        self.number = number
        self.gone = self.ending = self.passed_limit = self.stopped = False
        self._result: Ending | None = None
        self._pipes = pipes = Pipes(merge_stderr=order.merge_stderr)
        try:
            self._since = time.perf_counter()
            self._child = start(order, pipes.theirs)
        except BaseException:
            pipes.close(*pipes.open)
            raise
        pipes.close(*pipes.theirs)
        self._captures = {fd: Capture(order.output_cap) for fd in (pipes.stdout, pipes.stderr)}
        self._input = memoryview(order.stdin)

    def listen(self) -> None:
        """Begin to watch the files of the process."""
        self._poll = select.poll()
        for fd in (*self._captures, self._child.pidfd):
            self._poll.register(fd, select.POLLIN)
        self._poll.register(self._pipes.stdin, select.POLLOUT)

    async def until(self, is_met: Callable[[], bool], deadline: float | None) -> None:
        """Feed and drain the process until the condition is met, or until a time of the monotonic clock."""
        while not is_met() and (deadline is None or time.monotonic() < deadline):
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            ready = [fd for fd, _ in self._poll.poll(left)]
            for fd in ready:
                if fd == self._pipes.stdin:
                    self.write()
                elif fd in self._captures:
                    self.read(fd)
            if self._child.pidfd in ready:
                self.exited()

    def _forget(self, fd: int) -> None:
        """Stop watching a file."""
        self._poll.unregister(fd)

    @property
    def open(self) -> bool:
        """True if some process still holds an output open."""
        return not self._pipes.open.isdisjoint(self._captures)

    def terminate(self) -> None:
        if self._result is None:
            self._child.terminate()

    def kill_group(self) -> None:
        if self._result is None:
            signal_group(self._child.pid, signal.SIGKILL)

    def has_in_group(self, pid: int) -> bool:
        try:
            return os.getpgid(pid) == self._child.pid
        except OSError:
            return False

    def write(self) -> None:
        """Write as much input as the pipe takes; close it at the end of the input."""
        try:
            while self._input:
                self._input = self._input[os.write(self._pipes.stdin, self._input) :]
        except BlockingIOError:
            return
        except OSError:
            pass  # it has closed its input, as it may
        self._close(self._pipes.stdin)

    def read(self, fd: int) -> bool:
        """Read a chunk of output; True if there may be more."""
        try:
            part = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            part = b""
        if part:
            self._take(fd, part)
            return True
        self._close(fd)
        return False

    def _take(self, fd: int, part: bytes) -> None:
        self._captures[fd].add(part)

    def exited(self) -> None:
        """Note that the process itself is gone; its children may still print."""
        self._forget(self._child.pidfd)
        self._close(self._pipes.stdin)
        self._read_rest()
        self.gone = True
        self.stopped = self.ending and not self.passed_limit

    def release(self) -> list[int]:
        """Give up the outputs that are still open, for the caller to read on."""
        released = [fd for fd in self._captures if fd in self._pipes.open]
        for fd in released:
            self._forget(fd)
            self._pipes.open.discard(fd)
        return released

    def finish(self) -> Ending:
        """Read the rest of the output and close everything; the ending, the same at every call."""
        if self._result is None:
            self._read_rest()
            for fd in (self._pipes.stdin, *self._captures):
                self._close(fd)
            self._result = self._reaped()
        return self._result

    def _reaped(self) -> Ending:
        if not self.gone:
            # It was killed; only an uninterruptible system call could still hold it.
            self._forget(self._child.pidfd)
            is_readable(self._child.pidfd, 1.0)
        code, number = self._child.reap()
        os.close(self._child.pidfd)
        outputs = [capture.output() for capture in self._captures.values()]
        return Ending(
            exit_code=code,
            signal=number,
            stdout=outputs[0],
            stderr=outputs[1] if len(outputs) > 1 else Output(),
            seconds=time.perf_counter() - self._since,
            passed_limit=self.passed_limit,
            stopped=self.stopped,
        )

    def _read_rest(self) -> None:
        for fd in self._captures:
            # A pipe holds a megabyte at most; a process that prints for ever must not hold us up.
            for _ in range(32):
                if fd not in self._pipes.open or not self.read(fd):
                    break

    def _close(self, fd: int) -> None:
        if fd in self._pipes.open:
            self._forget(fd)
            self._pipes.close(fd)


class ProcessRunner:
    """Runs processes of this machine one after another, and waits without a loop; `local` overrides how it waits.

    If hookline is killed, nothing is left behind: a watcher is started before the first process.
    """

    capabilities = Capabilities(name="local", isolates=False, uses_image=False, keeps_background=False)

    def __init__(self, *, grace: float = GRACE) -> None:
        self._grace = grace
        self.mark = f":{os.urandom(8).hex()}."
        """The part of the tag that every process from here has in its environment."""
        self._numbers = itertools.count(1)
        self._watcher: Watcher | None = None

    async def run(self, order: Order) -> Ending:
        if order.mounts or order.background_keep or order.file_size is not None:
            raise UsageError(
                "mounts, a background that is kept and a limit on files are for the other runners, not for this one"
            )
        wrong = unrunnable(order)
        if wrong is not None:
            return Ending(not_started=wrong)
        process = self._started(order, spawned)
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

    def tag(self, number: str) -> str:
        """The `HOOKLINE_TAG` of one process: that of our own process, if any, and the one of this run."""
        return f"{os.environ.get(tags.VARIABLE) or ''}{self.mark}{number}:"

    def _process(self, order: Order, number: str, start: Start) -> Process:
        return Process(order, number, start)

    async def _carriers(self) -> dict[int, bytes]:
        """The live processes from here with the number of their run."""
        return tags.carriers(self.mark.encode())

    async def _pause(self, seconds: float, process: Process | None) -> None:
        if process is not None:
            await process.until(lambda: False, time.monotonic() + seconds)
        else:
            time.sleep(seconds)  # noqa: ASYNC251 (there is no loop)

    def _keep(self, process: Process) -> None:
        """Leave what the process started alive until the runner is closed."""
        raise NotImplementedError

    def _sweep_later(self, process: Process) -> None:
        """End what the process left outside its group; by itself that is left to `close`."""

    def _started(self, order: Order, start: Start) -> Process | Ending:
        number = f"{next(self._numbers)}"
        try:
            self._watch()
            tagged = replace(order, env={**order.env, tags.VARIABLE: self.tag(number)})
            return self._process(tagged, number, start)
        except ProcessLookupError:
            # It ran, but SIGCHLD is ignored in this process, so the system has dropped its exit code.
            return Ending()
        except (OSError, ValueError) as exc:
            return Ending(not_started=why_not_started(order.argv, order.cwd, exc))

    async def _completed(self, process: Process) -> Ending:
        """Wait for a process within its limit, and end the processes that it leaves behind."""
        timeout = process.order.timeout
        process.listen()
        await process.until(lambda: process.gone, None if timeout is None else time.monotonic() + timeout)
        if not process.gone:
            process.passed_limit = not process.ending
            await self._end(process, self._grace)
        elif process.order.background_keep and not process.ending:
            self._keep(process)
        else:
            # A child may hold its output, and still print.
            await process.until(lambda: not process.open, time.monotonic() + LINGER)
            if process.open or process.ending:
                await self._end(process, 0.0)
            else:
                process.kill_group()
                self._sweep_later(process)
        return process.finish()

    async def _end(self, process: Process, grace: float) -> None:
        """Send SIGTERM to the group, wait for the grace period, then SIGKILL the group and all processes with the tag."""
        deadline = time.monotonic() + grace
        if grace:
            process.terminate()
            await process.until(lambda: process.gone, deadline)
        await self._clear(process.number.encode(), deadline, process)
        await process.until(lambda: process.gone, time.monotonic() + LAST_WAIT)
        process.finish()

    async def _clear(self, number: bytes, deadline: float, process: Process | None = None) -> None:
        """Terminate the processes of one run, or of all; kill them at the deadline."""
        found: dict[int, str] = {}
        asked: set[int] = set()
        while time.monotonic() < deadline:
            left = await self._alive(number, found)
            if not left and (process is None or process.gone):
                break
            for pid in left - asked:
                if process is None or not process.has_in_group(pid):
                    tags.send(pid, self.mark.encode(), signal.SIGTERM)
            asked |= left
            await self._pause(POLL, process)
        await self._kill(number, found, process)

    async def _kill(self, number: bytes, found: dict[int, str], process: Process | None = None) -> None:
        """Kill the processes of one run, or of all, until none is found: one may fork during the search."""
        left = await self._alive(number, found)
        if process is not None:
            process.kill_group()
        for turn in range(100):
            if not left:
                return
            for pid in left:
                tags.send_if(lambda pid=pid: tags.start_time(pid) == found.get(pid), pid, signal.SIGKILL)
            await self._pause(min(0.001 * turn, 0.05), process)
            left = await self._alive(number, found)
        import logging  # slow to load, and hardly ever needed

        logging.getLogger(__name__).warning("processes %s of a hook could not be ended", sorted(left))

    async def _alive(self, number: bytes, found: dict[int, str]) -> set[int]:
        """The processes of one run, or of all. Those in `found`, by their start, count until they have exited.

        A process that exits loses its environment, and so its tag, before it has closed its files.
        """
        tagged = {pid for pid, its in (await self._carriers()).items() if not number or its == number}
        for pid in tagged - found.keys():
            if started := tags.start_time(pid):
                found[pid] = started
        return tagged | {pid for pid, started in found.items() if tags.start_time(pid) == started}

    def _watch(self) -> None:
        """Start the watcher that ends everything if we are killed, unless it runs already."""
        if self._watcher is not None and not self._watcher.alive:
            self._dismiss_watcher()
        if self._watcher is None:
            fill_standard_files()
            self._watcher = Watcher(tags.watcher_of(self.mark))

    def _dismiss_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.dismiss()
            self._watcher = None
