"""Processes on this machine, each in a session of its own and none left behind.

The way of a good hook is short, and as fast as `subprocess.run`: a plain Popen (vfork), its pipes and its pidfd on
the loop, its group killed and its exit code read when it is gone. Everything else (limit, cancel, something that
holds the pipe) is left to a task of the runner, so that it also happens where the caller goes away.

A child that left the group is found by the tag in its environment. One that wiped its environment too is not held
here; that takes a sandbox or a container.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Protocol, TypeVar, cast

from hookline.engine.threads import Threads
from hookline.errors import HookBroke, UsageError
from hookline.runners import Capabilities, Ending, Order, Output
from hookline.runners import tags as tagged
from hookline.runners.lookup import why_not_started
from hookline.runners.mounts import on_this_machine
from hookline.runners.process import (
    CAPABILITIES,
    CHUNK,
    GRACE,
    LINGER,
    POLL,
    Kept,
    Pipes,
    Start,
    Started,
    Status,
    group_asked,
    popened,
    unrunnable,
)

__all__ = [
    "CAPABILITIES",
    "GRACE",
    "LocalRunner",
    "Pipes",
    "Start",
    "Started",
    "Status",
    "group_asked",
    "popened",
    "unrunnable",
]

logger = logging.getLogger(__name__)

_SWEEP = 0.25
"""At most so often is looked for what hooks that ended well have left outside their group."""
_threads = Threads()


class Closes(Protocol):
    def close(self) -> None: ...


_Belonging = TypeVar("_Belonging", bound=Closes)


class LocalRunner:
    """Runs processes of this machine, at most `cap` at once; it belongs to one event loop."""

    def __init__(self, *, cap: int | None = None, grace: float = GRACE) -> None:
        self._places = asyncio.Semaphore(cap or max(8, 2 * (os.cpu_count() or 1)))
        self._grace = grace
        self._mark = f":{os.urandom(8).hex()}."
        self._numbers = itertools.count(1)
        self._running: dict[str, _Process] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._left: set[bytes] = set()
        self._kept: dict[int, asyncio.AbstractEventLoop] = {}
        self._lookers: list[asyncio.Future[dict[int, bytes]]] = []
        self._looking = self._sweeping = self._closed = False
        self._watcher: subprocess.Popen[bytes] | None = None
        self._watcher_pipe = -1
        self._belongings: dict[Hashable, Closes] = {}

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    @property
    def mark(self) -> str:
        """What stands in the environment of every process from here."""
        return self._mark

    def tag(self, number: str) -> str:
        """What one process has as its `HOOKLINE_TAG`: the tags around us, and ours."""
        return f"{os.environ.get(tagged.VARIABLE) or ''}{self._mark}{number}:"

    def belonging(self, key: Hashable, make: Callable[[], _Belonging]) -> _Belonging:
        """Something that is ended with this runner, made when it is first asked for."""
        if self._closed:
            raise UsageError("this runner is closed")
        if key not in self._belongings:
            self._watch()
            self._belongings[key] = make()
        return cast("_Belonging", self._belongings[key])

    async def run(self, order: Order, start: Start | None = None) -> Ending:
        """Run it to its end. Only a cancellation comes out as an exception."""
        if order.mounts:
            order = on_this_machine(order)
        wrong = unrunnable(order)
        if wrong is not None:
            return Ending(not_started=wrong)
        async with self._places:
            if self._closed:
                raise UsageError("this runner is closed")
            process = self._start(order, start or popened)
            return process if isinstance(process, Ending) else await self._waited(process)

    async def close(self) -> None:
        """End everything, also what was kept in the background."""
        self._closed = True
        for process in list(self._running.values()):
            self._end(process)
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
            self._close_belongings()
            if self._watcher is not None:
                await self._clear(b"", time.monotonic() + self._grace)
        except BaseException:
            tagged.end_carriers(self._mark.encode())
            raise
        finally:
            for fd in list(self._kept):
                self._drop(fd)
            self._close_belongings()
            self._dismiss_watcher()

    def _close_belongings(self) -> None:
        while self._belongings:
            self._belongings.popitem()[1].close()

    def _start(self, order: Order, start: Start) -> _Process | Ending:
        number = f"{next(self._numbers)}"
        try:
            self._watch()
            process = _Process(order, number, {**order.env, tagged.VARIABLE: self.tag(number)}, start)
        except ProcessLookupError:
            # It ran, but SIGCHLD is ignored in this process, and the system has thrown its exit code away.
            return Ending()
        except (OSError, ValueError) as exc:
            return Ending(not_started=why_not_started(order.argv, order.cwd, exc))
        self._running[number] = process
        try:
            process.listen(self._exited)
        except BaseException:
            self._abandon(process)
            raise
        if order.timeout is not None:
            process.timer = process.loop.call_later(order.timeout, self._expire, process)
        return process

    async def _waited(self, process: _Process) -> Ending:
        try:
            return await process.over
        except asyncio.CancelledError:
            # Awaited, so that a caller who was cancelled finds nothing running; the task goes on without us too.
            self._end(process)
            await asyncio.wait({process.ended})
            raise
        finally:
            if process.number in self._running and not process.ending:
                self._abandon(process)  # we are closed in the middle, and nothing can be awaited any more

    def _exited(self, process: _Process) -> None:
        """The process itself is gone. Without anybody holding its output that is the end."""
        if process.ending:
            return
        if process.order.background_keep:
            for fd in process.give_away():
                self._kept[fd] = process.loop
                process.loop.add_reader(fd, self._drain, fd)
        elif process.open:
            process.disarm()
            process.timer = process.loop.call_later(LINGER, self._end, process, True)
            return
        else:
            process.signal(signal.SIGKILL)
            self._sweep_later(process)
        self._finish(process)

    def _finish(self, process: _Process) -> None:
        process.finish()
        self._running.pop(process.number, None)

    def _abandon(self, process: _Process) -> None:
        """End it on the spot."""
        process.signal(signal.SIGKILL)
        tagged.end_carriers(f"{self._mark}{process.number}:".encode())
        self._finish(process)

    def _expire(self, process: _Process) -> None:
        process.passed_limit = True
        self._end(process)

    def _end(self, process: _Process, at_once: bool = False) -> None:
        if process.ending or process.number not in self._running:
            return
        process.ending = True
        process.disarm()
        self._spawn(self._ended(process, 0.0 if at_once else self._grace))

    async def _ended(self, process: _Process, grace: float) -> None:
        """SIGTERM to the group, a while to put things in order, then SIGKILL to it and to all with the tag."""
        try:
            if grace:
                process.ask()
            deadline = time.monotonic() + grace
            await process.gone_by(deadline)
            await self._clear(process.number.encode(), deadline, process)
            await process.gone_by(time.monotonic() + 2.0)
            self._finish(process)
        finally:
            if process.number in self._running:
                self._abandon(process)  # the loop is being ended, and we with it

    async def _clear(self, number: bytes, deadline: float, process: _Process | None = None) -> None:
        """Ask what there is of one run, or of all, to end; at the deadline kill it."""
        asked: set[int] = set()
        while time.monotonic() < deadline:
            left = await self._alive(number)
            if not left and (process is None or process.gone):
                break
            for pid in left - asked:
                if process is None or not process.has_in_group(pid):
                    tagged.send(pid, self._mark.encode(), signal.SIGTERM)
            asked |= left
            await asyncio.sleep(POLL)
        if process is not None:
            process.signal(signal.SIGKILL)
        await self._kill(number)

    async def _kill(self, number: bytes) -> None:
        """Kill it until none is found: one may fork while we look."""
        left = await self._alive(number)
        for turn in range(100):
            if not left:
                return
            for pid in left:
                tagged.send(pid, self._mark.encode(), signal.SIGKILL)
            await asyncio.sleep(min(0.001 * turn, 0.05))
            left = await self._alive(number)
        logger.warning("processes %s of a hook could not be ended", sorted(left))

    async def _alive(self, number: bytes) -> set[int]:
        return {pid for pid, its in (await self._seen()).items() if not number or its == number}

    def _sweep_later(self, process: _Process) -> None:
        self._left.add(process.number.encode())
        if not self._sweeping:
            self._sweeping = True
            process.loop.call_later(_SWEEP, self._sweep)

    def _sweep(self) -> None:
        left, self._left, self._sweeping = self._left, set(), False
        if not self._closed:
            self._spawn(self._swept(left))

    async def _swept(self, left: set[bytes]) -> None:
        """End what exited hooks have left outside their group: one look for all of them."""
        for number in left.intersection((await self._seen()).values()):
            await self._kill(number)

    async def _seen(self) -> dict[int, bytes]:
        """The live processes from here with the number of their run, looked up after this call; shared by callers."""
        looker: asyncio.Future[dict[int, bytes]] = asyncio.get_running_loop().create_future()
        self._lookers.append(looker)
        if not self._looking:
            self._looking = True
            self._spawn(self._look())
        return await looker

    async def _look(self) -> None:
        lookers: list[asyncio.Future[dict[int, bytes]]] = []
        try:
            while self._lookers:
                lookers, self._lookers = self._lookers, []
                found = await self._found()
                for looker in lookers:
                    if not looker.done():
                        looker.set_result(found)
        finally:
            self._looking = False
            for looker in lookers + self._lookers:
                looker.cancel()

    async def _found(self) -> dict[int, bytes]:
        mark = self._mark.encode()
        try:
            return await _threads.call(tagged.carriers, mark, timeout=None)
        except HookBroke:
            return tagged.carriers(mark)  # no thread to be had

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _drain(self, fd: int) -> None:
        """Read on what a kept process prints, so that it does not die of a closed pipe."""
        try:
            if os.read(fd, CHUNK):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._drop(fd)

    def _drop(self, fd: int) -> None:
        loop = self._kept.pop(fd)
        if not loop.is_closed():
            loop.remove_reader(fd)
        os.close(fd)

    def _watch(self) -> None:
        """Have a watcher that ends everything should we be killed; it needs no word from us for that."""
        if self._watcher is not None:
            if self._watcher.poll() is None:
                return
            self._dismiss_watcher()
        theirs, self._watcher_pipe = os.pipe()
        try:
            self._watcher = subprocess.Popen(
                [sys.executable, "-I", "-S", tagged.__file__, self._mark, f"{os.getpid()}"],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(theirs)
            if self._watcher is None:
                os.close(self._watcher_pipe)

    def _dismiss_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()
            os.close(self._watcher_pipe)
            self._watcher = None


def _hold_files(pid: int, size: int) -> None:
    """Limit its files once it is started: between fork and exec that would cost as much as the process itself.

    So it may have children by now, which have not inherited the limit; those that come later do.
    """
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


class _Process:
    """One process with its pipes on the loop."""

    __slots__ = (
        "_errors",
        "_on_exit",
        "_out",
        "_pidfd",
        "_rest",
        "_since",
        "_started",
        "_status",
        "_stdin",
        "_waiter",
        "ended",
        "ending",
        "gone",
        "loop",
        "number",
        "order",
        "over",
        "passed_limit",
        "timer",
    )

    def __init__(self, order: Order, number: str, env: dict[str, str], start: Start) -> None:
        self.order = order
        self.number = number
        self.loop = asyncio.get_running_loop()
        self.over: asyncio.Future[Ending] = self.loop.create_future()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.timer: asyncio.TimerHandle | None = None
        self.gone = self.ending = self.passed_limit = False
        self._waiter: asyncio.Future[None] | None = None
        self._status: Status = (None, None)
        pipes: list[int] = []
        try:
            for _ in range(2 if order.merge_stderr else 3):
                pipes += os.pipe()
            self._stdin = pipes[1]
            os.set_blocking(self._stdin, False)
            self._since = time.perf_counter()
            theirs = (pipes[0], pipes[3], pipes[3 if order.merge_stderr else 5])
            self._started = start(order, env, number, theirs)
            self._pidfd = self._started.pidfd
            if order.file_size is not None:
                _hold_files(self._started.pid, order.file_size)
        except BaseException:
            for fd in pipes:
                os.close(fd)
            raise
        for fd in (pipes[0], *pipes[3::2]):
            os.close(fd)
        self._out = Kept(pipes[2], order.output_cap)
        self._errors = None if order.merge_stderr else Kept(pipes[4], order.output_cap)
        self._rest = memoryview(order.stdin)

    def listen(self, on_exit: Callable[[_Process], None]) -> None:
        self._on_exit = on_exit
        self._write()
        if self._stdin >= 0:
            self.loop.add_writer(self._stdin, self._write)
        for kept in self._outputs():
            self.loop.add_reader(kept.fd, self._read, kept)
        self.loop.add_reader(self._pidfd, self._exit)

    @property
    def open(self) -> bool:
        """Whether somebody still holds an output."""
        return any(kept.fd >= 0 for kept in self._outputs())

    def ask(self) -> None:
        if self._pidfd >= 0:
            self._started.ask()

    def signal(self, number: int) -> None:
        """To the whole group. It has not been reaped, so its id is nobody else's."""
        if self._pidfd < 0:
            return
        try:
            os.killpg(self._started.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def has_in_group(self, pid: int) -> bool:
        try:
            return os.getpgid(pid) == self._started.pid
        except OSError:
            return False

    async def gone_by(self, deadline: float) -> None:
        """Wait for the process itself."""
        seconds = deadline - time.monotonic()
        if self.gone or seconds <= 0:
            return
        self._waiter = self.loop.create_future()
        await asyncio.wait({self._waiter}, timeout=seconds)

    def give_away(self) -> list[int]:
        """The outputs that are still open, which somebody else reads on."""
        given: list[int] = []
        for kept in self._outputs():
            if kept.fd >= 0:
                self.loop.remove_reader(kept.fd)
                given.append(kept.fd)
                kept.fd = -1
        return given

    def disarm(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def finish(self) -> None:
        """Read what is still there, give everything back, and say how it went."""
        self.disarm()
        self._close_stdin()
        for kept in self._outputs():
            self._read_rest(kept)
            self._close(kept)
        self._reap()
        for future in (self._waiter, self.ended):
            if future is not None and not future.done():
                future.set_result(None)
        if not self.over.done():
            self.over.set_result(self._ending())

    def _ending(self) -> Ending:
        code, number = self._status
        return Ending(
            exit_code=code,
            signal=number,
            stdout=self._out.output(),
            stderr=self._errors.output() if self._errors else Output(),
            seconds=time.perf_counter() - self._since,
            passed_limit=self.passed_limit,
        )

    def _outputs(self) -> tuple[Kept, ...]:
        return (self._out,) if self._errors is None else (self._out, self._errors)

    def _exit(self) -> None:
        self.loop.remove_reader(self._pidfd)
        self._close_stdin()
        for kept in self._outputs():
            self._read_rest(kept)
        self.gone = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._on_exit(self)

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
            self.loop.remove_writer(self._stdin)
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
        if self.gone and not self.ending and not self.open:
            self.disarm()
            self._on_exit(self)
        return False

    def _read_rest(self, kept: Kept) -> None:
        # A pipe holds a megabyte at most; who prints on for ever does not keep us.
        for _ in range(32):
            if kept.fd < 0 or not self._read(kept):
                return

    def _close(self, kept: Kept) -> None:
        if kept.fd >= 0:
            self.loop.remove_reader(kept.fd)
            os.close(kept.fd)
            kept.fd = -1

    def _reap(self) -> None:
        if self._pidfd < 0:
            return
        self.loop.remove_reader(self._pidfd)
        if not self.gone:
            # It has been killed; only a system call that cannot be interrupted could still hold it.
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            poll.poll(1000)
        self._status = self._started.reap()
        os.close(self._pidfd)
        self._pidfd = -1
