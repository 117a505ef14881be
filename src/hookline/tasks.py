"""Tasks: cancel and wait, finish in spite of a cancellation, stop work in a thread, back off; signals and the second Ctrl-C."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from hookline.engine.threads import Threads
from hookline.errors import HooklineError

T = TypeVar("T")

INTERRUPTED = 130
"""The exit code of a program that was ended by a signal."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LARGEST_EXPONENT = 60
_GRACE = 5.0
"""Seconds that a thread has to put away what it began; it only waits where it cannot be reached."""
_threads = Threads()


async def cancel_and_wait(*tasks: asyncio.Future[Any], insist: bool = False) -> None:
    """Cancel these tasks and wait for their ends, whatever those are.

    If we are cancelled meanwhile, we stop waiting; with `insist` we wait first, and are cancelled afterwards.
    """
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    try:
        if left:
            await (finish(asyncio.wait(left)) if insist else asyncio.wait(left))
    finally:
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not report it


async def finish(work: Awaitable[T]) -> T:
    """Await something to its end even if we are cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()
    raise cancelled


async def set_within(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set, for at most this long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class WorkStopped(HooklineError):
    """The work was stopped by its caller."""


class StopToken:
    """Ends a piece of work in a thread, also while it waits for something that can be ended."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._lock = threading.Lock()
        self._ends: list[Callable[[], object]] = []

    def stop(self) -> None:
        """From any thread: the work raises WorkStopped where it looks next."""
        with self._lock:
            self._set.set()
            for end in self._ends:
                end()

    def check(self) -> None:
        """Raise WorkStopped if the work is to end."""
        if self._set.is_set():
            raise WorkStopped("stopped")

    def wait(self, seconds: float) -> None:
        """Sleep for this long, unless the work is to end."""
        self._set.wait(seconds)
        self.check()

    @contextmanager
    def ending(self, end: Callable[[], object]) -> Generator[None]:
        """While this lasts, `end` is called when the work is to end."""
        with self._lock:
            self._ends.append(end)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._ends.remove(end)


async def stoppable(work: Callable[[StopToken], T], *, timeout: float | None) -> T:
    """`work` in a thread. Past the limit it is ended and a TimeoutError raised; ended too where we are cancelled."""
    stop = StopToken()
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
            if not task.done():
                task.cancel()
            elif not task.cancelled():
                task.exception()


def backoff(attempt: int, *, first: float, longest: float, jitter: float = 0.0) -> float:
    """Seconds to wait after this many attempts: twice as long each time, up to a part of `jitter` less by chance."""
    pause = min(first * 2 ** min(max(attempt - 1, 0), _LARGEST_EXPONENT), longest)
    return pause * random.uniform(1.0 - jitter, 1.0) if jitter else pause


def on_signals(call: Callable[[int], object]) -> None:
    """From now on, until the loop ends, Ctrl-C and SIGTERM call this with their number, in the loop."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, call, number)


def off_signals() -> None:
    """From now on, signals do again what they do by themselves."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.remove_signal_handler(number)


def run_interruptible(
    main: Callable[[], Coroutine[Any, Any, int]], told: Callable[[str], object] | None = None
) -> int:
    """Run it in a loop of its own. The first signal cancels it and lets its end hooks run; the next one ends those.

    Returns its exit code, or 130 if it was interrupted. `told` shows a text to the user who interrupted it.
    """

    async def guarded() -> int:
        task = asyncio.ensure_future(main())
        first = True

        def interrupt(_number: int) -> None:
            nonlocal first
            if first and told is not None:
                told("interrupted: end hooks are running; Ctrl-C again ends them too")
            first = False
            task.cancel()

        on_signals(interrupt)
        try:
            return await task
        except asyncio.CancelledError:
            return INTERRUPTED

    return asyncio.run(guarded())
