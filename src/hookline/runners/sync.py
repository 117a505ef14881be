"""Synchronous process runner for `hookline answer`: no event loop.

It has nothing else to do and no time to load a loop, so processes run one after another, and everything waits for
them. Nothing is left where we are killed either: a shell, begun before the first process, waits for our end of a pipe
to close and then becomes the same watcher that `local` has. Begun as that at once, it would cost more than a hook.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping

from hookline.errors import UsageError
from hookline.runners import Capabilities, Ending, Order, tags
from hookline.runners.child import Child, PopenChild, SpawnChild, StandardFiles, Start, Watcher
from hookline.runners.process import GRACE, Process, ProcessRunner, unrunnable

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


class SyncRunner(ProcessRunner):
    """Runs processes of this machine; its coroutines never wait for a loop, and are done at their first step."""

    def __init__(self, *, grace: float = GRACE) -> None:
        super().__init__(grace=grace)

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
        process = self._started(order, _spawned)
        if isinstance(process, Ending):
            return process
        try:
            return await self._completed(process)
        except BaseException:
            await self._end(process, self._grace)
            raise

    async def close(self) -> None:
        """End what the processes have left outside their groups."""
        if self._watcher is None:
            return
        try:
            await self._clear(b"", time.monotonic() + self._grace)
        finally:
            tags.end_carriers(self._mark.encode())
            self._dismiss_watcher()

    def _process(self, order: Order, number: str, env: Mapping[str, str], start: Start) -> Process:
        return _PollProcess(order, number, env, start)

    def _new_watcher(self) -> Watcher:
        _fill_standard_files()
        argv = ("/bin/sh", "-c", _SLEEPING_WATCHER, "sh", *tags.watcher_of(self._mark))
        return Watcher(argv, _spawned, cwd=None)

    async def _end(self, process: Process, grace: float) -> None:
        await self._ended(process, grace)

    async def _carriers(self) -> dict[int, bytes]:
        return tags.carriers(self._mark.encode())

    async def _pause(self, seconds: float, process: Process | None) -> None:
        if isinstance(process, _PollProcess):
            process.pass_time(seconds)
        else:
            time.sleep(seconds)  # noqa: ASYNC251 (there is no loop)

    def _sweep_later(self, process: Process) -> None:
        """Left to `close`, which comes soon."""


class _PollProcess(Process):
    """One process whose files are polled while somebody waits for it."""

    def listen(self) -> None:
        self._poll = select.poll()
        for fd in (*self._captures, self._child.pidfd):
            self._poll.register(fd, select.POLLIN)
        self._poll.register(self._pipes.stdin, select.POLLOUT)

    async def gone_by(self, deadline: float | None) -> None:
        while not self.gone and (deadline is None or time.monotonic() < deadline):
            self._step(deadline)

    async def closed_by(self, deadline: float) -> None:
        while self.open and time.monotonic() < deadline:
            self._step(deadline)

    def pass_time(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._step(deadline)

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)

    def _step(self, deadline: float | None) -> None:
        """Wait until something can be done, and do it."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        ready = [fd for fd, _ in self._poll.poll(left)]
        for fd in ready:
            if fd == self._pipes.stdin:
                self.write()
            elif fd in self._captures:
                self.read(fd)
        if self._child.pidfd in ready:
            self.exited()


def _spawned(order: Order, env: Mapping[str, str], number: str, files: StandardFiles) -> Child:
    try:
        return SpawnChild(order, env, number, files)
    except NotImplementedError:
        return PopenChild(order, env, number, files)  # a Python that was built for an old system cannot


def _fill_standard_files() -> None:
    """A caller may have closed some of the first three, and no pipe of ours must take their place."""
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(fd)
