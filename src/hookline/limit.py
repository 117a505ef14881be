"""The rest of a coroutine that was stepped once by hand, under a time limit.

Most hooks answer without waiting, and a timer costs more than they do; so the caller takes the first step
itself and comes here only when the coroutine really waits. The rest runs in the caller's own task, because
what a coroutine began in one task (a timeout, a cancel scope) must end in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

from hookline.errors import HookBroke

__all__ = ["GRACE", "Rest"]

GRACE = 1.0
"""Seconds that a cancelled coroutine may take to put its things in order before it is given up."""


class Rest:
    """Await it for the coroutine's result. Past the limit, or cancelled and not ending, it is given up."""

    __slots__ = (
        "_cancels",
        "_coroutine",
        "_expired",
        "_future",
        "_given_up",
        "_limit",
        "_loop",
        "_task",
        "_timer",
    )

    def __init__(self, coroutine: Coroutine[Any, Any, Any], future: Any, limit: float | None) -> None:
        self._coroutine = coroutine
        self._future = future
        self._limit = limit
        self._expired = False
        self._given_up = False
        self._cancels = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("hooks run inside a task")
        self._task = task
        self._timer = self._loop.call_later(self._limit, self._expire) if self._limit is not None else None
        before = task.cancelling()
        try:
            value = yield from self._driven()
            error = None
        except asyncio.CancelledError as exc:
            value, error = None, exc
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for _ in range(self._cancels):
                task.uncancel()
        if task.cancelling() > before:
            # Somebody else wants this task to end; a coroutine that swallowed it does not change that.
            raise asyncio.CancelledError
        if self._expired:
            how = ", ignored its cancellation and was given up" if self._given_up else ""
            raise HookBroke(f"ran past its limit of {self._limit:g} s{how}", kind="timed_out")
        if error is not None:
            raise HookBroke("raised CancelledError, though nobody cancelled it") from error
        return value

    def _driven(self) -> Generator[Any, Any, Any]:
        """What a task does for its coroutine, but able to walk away."""
        coroutine, future = self._coroutine, self._future
        while True:
            error: asyncio.CancelledError | None = None
            try:
                yield from self._settled(future)
            except asyncio.CancelledError as exc:
                if self._given_up:
                    self._close()
                    raise
                if not self._expired:
                    self._arm_grace()
                if future is not None and future.cancel():
                    continue  # it ends soon, and the coroutine then sees the cancellation itself
                error = exc
            except GeneratorExit:
                coroutine.close()
                raise
            try:
                future = coroutine.throw(error) if error is not None else coroutine.send(None)
            except StopIteration as stop:
                return stop.value

    def _settled(self, future: Any) -> Generator[Any, Any, None]:
        if getattr(future, "_asyncio_future_blocking", None) is None:
            yield future  # None from sleep(0); anything odd is for the task to complain about
            return
        future._asyncio_future_blocking = False
        settled: asyncio.Future[None] = self._loop.create_future()

        def wake(_done: Any) -> None:
            if not settled.done():
                settled.set_result(None)

        future.add_done_callback(wake)
        yield from settled.__await__()

    def _expire(self) -> None:
        self._expired = True
        self._cancels += 1
        self._task.cancel()
        self._arm_grace()

    def _arm_grace(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(GRACE, self._give_up)

    def _give_up(self) -> None:
        self._given_up = True
        self._cancels += 1
        self._task.cancel()

    def _close(self) -> None:
        try:
            self._coroutine.close()
        except RuntimeError:
            pass  # it ignores even that; nobody runs it any more
