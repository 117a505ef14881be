"""Work that waits (for the network, a disk, a program) in a thread, and that can be ended from the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from hookline.engine.threads import Threads
from hookline.errors import HooklineError

_threads = Threads()
# How long a thread has to put away what it began; it only waits where it cannot be reached.
_GRACE = 5.0
T = TypeVar("T")


class Stopped(HooklineError):
    """Nobody waits for this work any more."""


class Stop:
    """Ends a piece of work, also where its thread is waiting for something that can be ended."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._lock = threading.Lock()
        self._ends: list[Callable[[], None]] = []

    def stop(self) -> None:
        with self._lock:
            self._set.set()
            for end in self._ends:
                end()

    def check(self) -> None:
        if self._set.is_set():
            raise Stopped("stopped")

    def wait(self, seconds: float) -> None:
        self._set.wait(seconds)
        self.check()

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Generator[None]:
        """While this lasts, `end` is called when the work is to end."""
        with self._lock:
            self._ends.append(end)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._ends.remove(end)


async def stoppable(work: Callable[[Stop], T], *, timeout: float | None) -> T:
    """`work` in a thread. Past the limit it is ended and a TimeoutError raised; ended too where we are cancelled."""
    stop = Stop()
    task = asyncio.ensure_future(_threads.call(work, stop, timeout=None))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout)
        if not done:
            raise TimeoutError
        return task.result()
    finally:
        if not task.done():
            stop.stop()
            await asyncio.wait({task}, timeout=_GRACE)
            _forget(task)


def _forget(task: asyncio.Future[object]) -> None:
    if not task.done():
        task.cancel()
    elif not task.cancelled():
        task.exception()  # looked at, so that nobody calls it lost
