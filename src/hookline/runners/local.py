"""Process runner on an event loop: many processes of this machine at once.

Ending a process (limit, cancellation, a child that holds its pipe) is left to a task of the runner, so that it also
happens if the caller goes away.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from hookline.engine.threads import Threads
from hookline.errors import HookBroke, UsageError
from hookline.runners import CHUNK, Ending, Order, on_this_machine, tags
from hookline.runners.child import Child, PopenChild, StandardFiles, Start, unrunnable
from hookline.runners.process import GRACE, Pipes, Process, ProcessRunner

PATIENCE = 2.0
"""Seconds that a process with open pipes has to exit by itself once its input is closed."""
_SHELL = "/bin/sh"
_SWEEP = 0.25
"""Seconds between two searches for processes that finished hooks have left outside their group."""
_threads = Threads()


class Closes(Protocol):
    def close(self) -> None: ...


_Belonging = TypeVar("_Belonging", bound=Closes)
T = TypeVar("T")


OnOutput = Callable[[bytes, bool], None]
"""Gets a part of the output of a process, and True if that is its stdout."""


class LocalRunner(ProcessRunner):
    """Runs processes of this machine, at most `cap` at once; it belongs to one event loop.

    `on_output` is called with all they print, as it comes."""

    capabilities = replace(ProcessRunner.capabilities, keeps_background=True)

    def __init__(
        self, *, cap: int | None = None, grace: float = GRACE, on_output: OnOutput | None = None
    ) -> None:
        super().__init__(grace=grace)
        self._on_output = on_output
        self._slots = asyncio.Semaphore(cap or max(8, 2 * (os.cpu_count() or 1)))
        self._running: dict[str, Process] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._enders: dict[str, asyncio.Task[None]] = {}
        self._left: set[bytes] = set()
        self._kept: dict[int, asyncio.AbstractEventLoop] = {}
        self._looking = asyncio.Lock()
        self._next_look: asyncio.Task[dict[int, bytes]] | None = None
        self._closed = False
        self._belongings: dict[Hashable, Closes] = {}

    def belonging(self, key: Hashable, make: Callable[[], _Belonging]) -> _Belonging:
        """A resource that is closed with this runner, made on first use."""
        if self._closed:
            raise UsageError("this runner is closed")
        if key not in self._belongings:
            self._watch()
            self._belongings[key] = make()
        return cast("_Belonging", self._belongings[key])

    async def run(self, order: Order, start: Start = PopenChild) -> Ending:
        """Run a process to its end. Only a cancellation is raised."""
        if order.mounts:
            order = on_this_machine(order)
        wrong = unrunnable(order)
        if wrong is not None:
            return Ending(not_started=wrong)
        async with self._slots:
            if self._closed:
                raise UsageError("this runner is closed")
            process = self._started(_limited(order), start)
            return process if isinstance(process, Ending) else await self._waited(process)

    async def close(self) -> None:
        """End every process, including those kept in the background."""
        self._closed = True
        for process in list(self._running.values()):
            self._ender(process, self._grace)
        try:
            await self._finish_tasks()
            self._close_belongings()
            if self._watcher is not None:
                await self._clear(b"", time.monotonic() + self._grace)
            await self._finish_tasks()
        except BaseException:
            tags.end_carriers(self.mark.encode())
            raise
        finally:
            for fd in list(self._kept):
                self._drop(fd)
            self._close_belongings()
            self._dismiss_watcher()

    async def _finish_tasks(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _close_belongings(self) -> None:
        while self._belongings:
            self._belongings.popitem()[1].close()

    async def _waited(self, process: Process) -> Ending:
        self._running[process.number] = process
        try:
            return await self._completed(process)
        except asyncio.CancelledError:
            # Awaited, so that nothing runs any more when the caller is told; the task goes on without us too.
            await self._end(process, self._grace)
            raise
        except BaseException:
            self._abandon(process)  # we are closed in the middle, and nothing can be awaited any more
            raise
        finally:
            del self._running[process.number]
            self._enders.pop(process.number, None)

    def _process(self, order: Order, number: str, start: Start) -> Process:
        return _LoopProcess(order, number, start, self._on_output)

    async def _end(self, process: Process, grace: float) -> None:
        await asyncio.wait({self._ender(process, grace)})

    def _ender(self, process: Process, grace: float) -> asyncio.Task[None]:
        """The task that ends a process; each has one at most."""
        ender = self._enders.get(process.number)
        if ender is None:
            process.ending = True
            ender = self._enders[process.number] = self.spawn(self._ended_or_abandoned(process, grace))
        return ender

    async def _ended_or_abandoned(self, process: Process, grace: float) -> None:
        try:
            await super()._end(process, grace)
        except BaseException:
            self._abandon(process)  # the loop is being ended, and we with it
            raise

    def _abandon(self, process: Process) -> None:
        """End a process at once, for when nothing can be awaited any more."""
        process.kill_group()
        tags.end_carriers(f"{self.mark}{process.number}:".encode())
        process.finish()

    async def _pause(self, seconds: float, process: Process | None) -> None:
        await asyncio.sleep(seconds)

    def _keep(self, process: Process) -> None:
        loop = asyncio.get_running_loop()
        for fd in process.release():
            self._kept[fd] = loop
            loop.add_reader(fd, self._drain, fd)

    def _drain(self, fd: int) -> None:
        """Read on the output of a kept process, so that it does not die of a closed pipe."""
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

    def _sweep_later(self, process: Process) -> None:
        if not self._left:
            asyncio.get_running_loop().call_later(_SWEEP, self._sweep)
        self._left.add(process.number.encode())

    def _sweep(self) -> None:
        left, self._left = self._left, set()
        if not self._closed:
            self.spawn(self._swept(left))

    async def _swept(self, left: set[bytes]) -> None:
        """End what finished hooks have left outside their group, with one search for all of them."""
        for number in left.intersection((await self._carriers()).values()):
            await self._kill(number, {})

    async def _carriers(self) -> dict[int, bytes]:
        """The processes as of after this call; callers that wait at the same time share one search."""
        if self._next_look is None:
            self._next_look = self.spawn(self._look())
        return await asyncio.shield(self._next_look)

    async def _look(self) -> dict[int, bytes]:
        async with self._looking:
            self._next_look = None
            try:
                return await _threads.call(tags.carriers, self.mark.encode(), timeout=None)
            except HookBroke:
                return await super()._carriers()  # no thread to be had

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a task that `close` waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _LoopProcess(Process):
    """One process whose files are watched by the loop."""

    def __init__(self, order: Order, number: str, start: Start, on_output: OnOutput | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_output = on_output
        self._changed = asyncio.Event()
        super().__init__(order, number, start)

    def listen(self) -> None:
        self.write()
        if self._pipes.stdin in self._pipes.open:
            self._loop.add_writer(self._pipes.stdin, self.write)
        for fd in self._captures:
            self._loop.add_reader(fd, self.read, fd)
        self._loop.add_reader(self._child.pidfd, self.exited)

    def _take(self, fd: int, part: bytes) -> None:
        super()._take(fd, part)
        if self._on_output is not None:
            self._on_output(part, fd == self._pipes.stdout)

    def exited(self) -> None:
        super().exited()
        self._changed.set()

    async def until(self, is_met: Callable[[], bool], deadline: float | None) -> None:
        while not is_met():
            seconds = None if deadline is None else deadline - time.monotonic()
            if seconds is not None and seconds <= 0:
                return
            timer = None if seconds is None else self._loop.call_later(seconds, self._changed.set)
            self._changed.clear()
            try:
                await self._changed.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    def _forget(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        self._loop.remove_writer(fd)

    def _close(self, fd: int) -> None:
        super()._close(fd)
        if self.gone and not self.open:
            self._changed.set()


def _limited(order: Order) -> Order:
    """The order with its limit on files in its command; from outside, a child that is being forked would be missed."""
    if order.file_size is None:
        return order
    program = os.path.join(order.cwd or "", order.argv[0]) if "/" in order.argv[0] else order.argv[0]
    found = shutil.which(program, path=order.env.get("PATH"))
    if found is None:
        return order  # it cannot start, and its own error says why
    # It fails only where the system's limit is lower already, and that one holds.
    limit = f"ulimit -f {-(-order.file_size // 512)} 2>/dev/null; "
    # By its name too: one program may have many, as busybox has.
    is_shell = os.path.basename(found) == "sh" and os.path.realpath(found) == os.path.realpath(_SHELL)
    if is_shell and order.argv[1:2] == ("-c",) and order.argv[2:]:
        # To start a shell for the limit alone takes as long as many a hook.
        return replace(order, argv=(*order.argv[:2], limit + order.argv[2], *order.argv[3:]))
    return replace(order, argv=(_SHELL, "-c", f'{limit}exec "$@"', "sh", *order.argv))


class Piped(Pipes):
    """A process with open pipes: our ends of them, not blocking, and its ending."""

    ending: asyncio.Future[Ending]


@asynccontextmanager
async def piped(order: Order, patience: float = PATIENCE) -> AsyncGenerator[Piped, None]:
    """The process, started. At the end its input is closed; what then remains is ended with all its children."""
    runner = LocalRunner(cap=1)
    pipes = Piped()

    def start(order: Order, _: StandardFiles) -> Child:
        try:
            return PopenChild(order, pipes.theirs)
        finally:
            pipes.close(*pipes.theirs)

    ending = pipes.ending = asyncio.ensure_future(runner.run(order, start))
    # If it never started, reading from it must end too.
    ending.add_done_callback(lambda _: pipes.close(*pipes.theirs))
    try:
        yield pipes
    finally:
        pipes.close(pipes.stdin)
        try:
            await asyncio.wait({ending}, timeout=patience)
        finally:
            ending.cancel()
            try:
                await runner.close()
                await asyncio.wait({ending})
            finally:
                pipes.close(*pipes.open)
