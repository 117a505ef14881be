"""A task whose first step is taken at once.

A task begins at the loop's next turn, and who waits for it is woken a turn later. Most end hooks answer without
waiting, and those turns cost many times what they do. From Python 3.12 on this is an eager task.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task  # pyright: ignore
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


def begun(coroutine: Coroutine[Any, Any, T]) -> T | asyncio.Task[T]:
    """What the coroutine returns, where it does so without waiting; else the task in which it goes on.

    From its first line on it is in that task, with a context of its own: a timeout that it enters there has to find
    the same task when it expires.
    """
    loop = asyncio.get_running_loop()
    here = asyncio.current_task(loop)
    if here is None:
        raise RuntimeError("hooks run inside a task")
    rest, context = _Rest(coroutine), copy_context()
    task = asyncio.Task(rest, loop=loop, context=context)
    _leave_task(loop, here)
    _enter_task(loop, task)
    try:
        context.run(rest.begin)
    finally:
        _leave_task(loop, task)
        _enter_task(loop, here)
    # One that cancelled itself hears of it in its task.
    return task if rest.waits or task.cancelling() else rest.value


class _Rest(Coroutine[Any, Any, Any]):
    """What is left of a coroutine after its first step, for a task to go on with; nothing if that was all."""

    __slots__ = ("_coroutine", "_handed_on", "_waited_for", "value", "waits")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._waited_for: Any = None
        self._handed_on = False
        self.value: Any = None
        self.waits = False

    def begin(self) -> None:
        try:
            self._waited_for = self._coroutine.send(None)
        except StopIteration as stop:
            self.value = stop.value
        else:
            self.waits = True

    def send(self, value: Any, /) -> Any:
        if not self.waits:
            raise StopIteration(self.value)
        if self._handed_on:
            return self._coroutine.send(value)
        self._handed_on = True
        return self._waited_for

    def throw(self, error: Any, /, *_: Any) -> Any:
        if not self.waits:
            raise error
        handed_on, self._handed_on = self._handed_on, True
        if not handed_on and asyncio.isfuture(self._waited_for) and self._waited_for.cancel():
            # Cancelled before the task knew what to cancel; the coroutine hears of it from what it waits for.
            return self._waited_for
        return self._coroutine.throw(error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise RuntimeError("only its task goes on with it")
