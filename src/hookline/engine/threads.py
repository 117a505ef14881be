"""Daemon threads for sync hooks and tools: one that never returns blocks neither the loop nor the exit."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from hookline.engine.stdlib import dataclass
from hookline.errors import HookBroke

if TYPE_CHECKING:
    import asyncio

_NAME = "hookline-hook"


class Threads:
    """At most `cap` busy threads. A thread left behind by a call past its limit does not count."""

    def __init__(self, cap: int = 64) -> None:
        self._cap = cap
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_Job]] = []
        self._busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def call(self, function: Callable[..., Any], *args: Any, timeout: float | None) -> Any:
        """`function(*args)` in a thread. Waiting for a free thread does not count towards the limit."""
        import asyncio  # not loaded by `hookline answer`, which has no event loop

        loop = asyncio.get_running_loop()
        await self._take_place(loop)
        try:
            jobs = self._thread()
        except RuntimeError as exc:
            self._free_place()
            raise _not_started(exc) from exc
        job = _Job(contextvars.copy_context(), function, args, loop.create_future())
        jobs.put(job)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await job.done
        except (TimeoutError, asyncio.CancelledError) as exc:
            self._leave(job)
            _drop_result(job.done)
            if isinstance(exc, TimeoutError) and limit.expired():
                raise _past_limit(timeout) from None
            raise

    async def _take_place(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._busy < self._cap:
                self._busy += 1
                return
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._free_place()
            raise

    def _thread(self) -> SimpleQueue[_Job]:
        """The queue of a thread that has nothing to do."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        jobs: SimpleQueue[_Job] = SimpleQueue()
        threading.Thread(target=self._work, args=(jobs,), name=_NAME, daemon=True).start()
        return jobs

    def _work(self, jobs: SimpleQueue[_Job]) -> None:
        goes_on = True
        while goes_on:
            job = jobs.get()
            value, error = _called(job.context, job.function, job.args)
            goes_on = self._finish(jobs, job)
            try:
                job.done.get_loop().call_soon_threadsafe(_settle, job.done, value, error)
            except RuntimeError:
                _drop(value)  # the loop is closed; nobody waits
            del job, value, error

    def _leave(self, job: _Job) -> None:
        with self._lock:
            if job.finished:
                return
            job.left = True
        self._free_place()

    def _finish(self, jobs: SimpleQueue[_Job], job: _Job) -> bool:
        """True if the thread can be used again; one that was left behind ends."""
        with self._lock:
            job.finished = True
            if job.left:
                return False
            self._idle.append(jobs)
        self._free_place()
        return True

    def _free_place(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._busy -= 1
                    return
                turn = self._waiting.popleft()
            try:
                turn.get_loop().call_soon_threadsafe(self._give_turn, turn)
            except RuntimeError:
                continue  # that loop is closed; nobody waits there
            return

    def _give_turn(self, turn: asyncio.Future[None]) -> None:
        if turn.done():
            self._free_place()
        else:
            turn.set_result(None)


def call_and_wait(function: Callable[..., Any], *args: Any, timeout: float | None) -> Any:
    """`function(*args)` in a thread of its own, without an event loop."""
    said: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    context = contextvars.copy_context()

    def work() -> None:
        said.put(_called(context, function, args))

    try:
        threading.Thread(target=work, name=_NAME, daemon=True).start()
    except RuntimeError as exc:
        raise _not_started(exc) from exc
    try:
        value, error = said.get(timeout=timeout)
    except Empty:
        raise _past_limit(timeout) from None
    if error is not None:
        raise error
    return value


@dataclass(slots=True)
class _Job:
    context: contextvars.Context
    function: Callable[..., Any]
    args: tuple[Any, ...]
    done: asyncio.Future[Any]
    left: bool = False
    finished: bool = False


def _called(
    context: contextvars.Context, function: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Any, BaseException | None]:
    try:
        return context.run(_returned, function, *args), None
    except (StopIteration, GeneratorExit, KeyboardInterrupt) as exc:
        # A future cannot carry the first; the others would look as if they were meant for the waiting task.
        return None, RuntimeError(f"the function raised {type(exc).__name__}")
    except BaseException as exc:
        return None, exc


def _returned(function: Callable[..., Any], *args: Any) -> Any:
    """The result of the function; a process that a hook has forked ends here instead."""
    from hookline.engine.pipeline import end_fork

    try:
        return function(*args)
    finally:
        end_fork()


def _not_started(exc: RuntimeError) -> HookBroke:
    return HookBroke(f"could not start: {exc}", kind="not_started")


def _past_limit(timeout: float | None) -> HookBroke:
    return HookBroke(
        f"ran past its limit of {timeout:g} s; its thread cannot be stopped and keeps running",
        kind="timed_out",
    )


def _settle(done: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if done.done():
        _drop(value)
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)


def _drop_result(done: asyncio.Future[Any]) -> None:
    if done.done() and not done.cancelled() and done.exception() is None:
        _drop(done.result())


def _drop(value: Any) -> None:
    """Drop a result that came too late; Python would warn of a coroutine that is never awaited."""
    if isinstance(value, CoroutineType):
        value.close()
