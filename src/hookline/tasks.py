"""Tasks: cancel and wait, finish in spite of a cancellation, stop work in a thread, back off; signals and the second Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from hookline.engine.pipeline import inside
from hookline.engine.threads import Threads
from hookline.errors import HooklineError

T = TypeVar("T")

INTERRUPTED = 130
"""The exit code of a program that was ended by a signal."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE = 1.0
"""Seconds that the loop has to hear of a second signal; a hook that holds it up is not waited for any longer."""
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
    """From now on, until the loop ends, Ctrl-C, SIGTERM and a closed terminal call this with their number, in the loop."""
    loop = asyncio.get_running_loop()
    for number in _heeded():
        loop.add_signal_handler(number, call, number)


def off_signals() -> None:
    """From now on, signals do again what they do by themselves."""
    loop = asyncio.get_running_loop()
    for number in _heeded():
        loop.remove_signal_handler(number)


def _heeded() -> list[signal.Signals]:
    """Our signals but SIGHUP where that is ignored, as under `nohup`."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [each for each in _SIGNALS if not (ignored and each is signal.SIGHUP)]


def run_interruptible(
    main: Callable[[], Coroutine[Any, Any, int]], told: Callable[[str], object] | None = None
) -> int:
    """Run it in a loop of its own. The first signal cancels it and lets its end hooks run; the next one ends those, and
    the process too where something holds up the loop. Hooks do not end the process by `os._exit`.

    Returns its exit code, or 130 if it was interrupted. `told` shows a text to the user who interrupted it.
    """
    interrupts = _Interrupts(told)

    async def guarded() -> int:
        task = asyncio.ensure_future(main())
        interrupts.cancels(task)
        try:
            return await task
        except asyncio.CancelledError:
            return INTERRUPTED

    before = {number: signal.getsignal(number) for number in (*_heeded(), signal.SIGALRM)}
    leave, os._exit = os._exit, _exit_of(os._exit)
    try:
        return asyncio.run(guarded())
    finally:
        os._exit = leave
        for number, handler in before.items():
            signal.signal(number, handler)


class _Interrupts:
    """Signals, heard by the interpreter itself: a hook that holds up the loop does not hold up these."""

    def __init__(self, told: Callable[[str], object] | None) -> None:
        self._told = told
        self._leave = os._exit
        self._came = self._heard = 0

    def cancels(self, task: asyncio.Task[int]) -> None:
        """From now on, until they are put back, signals cancel the task."""
        loop = asyncio.get_running_loop()

        def heard() -> None:
            self._heard += 1
            task.cancel()

        def came(_number: int, _frame: object) -> None:
            late = self._came > 1 and self._heard < self._came
            self._came += 1
            if self._came == 1 and self._told is not None:
                with suppress(
                    OSError, RuntimeError
                ):  # the terminal is gone, or this is in the midst of a line
                    self._told("interrupted: end hooks are running; Ctrl-C again ends them too")
            if late:
                self._leave(INTERRUPTED)
            with suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(heard)
            if self._came > 1:
                signal.signal(signal.SIGALRM, self._still_held_up)
                signal.setitimer(signal.ITIMER_REAL, _AT_ONCE)

        for number in _heeded():
            signal.signal(number, came)

    def _still_held_up(self, _number: int, _frame: object) -> None:
        if self._heard < self._came:
            # Watchers end what we have started, and the next start runs the ends that are owed.
            self._leave(INTERRUPTED)


def _exit_of(leave: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    """`os._exit` as hooks have it: the run is not theirs to end, only what they have forked is."""
    process = os.getpid()

    def ends(status: int) -> NoReturn:
        if inside() and os.getpid() == process:
            raise SystemExit(f"os._exit({status}) in a hook")
        leave(status)

    return ends
