"""Driving a walk that waits: each hook under its own limit, and none able to hold the walk up.

Most hooks answer without waiting, and a timer costs more than they do; so `fire` takes the first step by hand and
comes here only when a hook really waits. The walk stays in the caller's own task, because what a hook began there
(a timeout, a cancel scope) must end there.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Generator, Iterator
from enum import Enum
from typing import Any, Protocol

_GROUPS_LEAVE_IT = sys.version_info < (3, 13)
GRACE = 1.0
"""Seconds that a cancelled hook may take to put its things in order before it is given up."""


class Interrupt(Enum):
    """What came over a hook: its own limit, or somebody who wants the whole task to end."""

    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Walk(Protocol):
    """What is driven: calls one hook after another. A step that gives the walk itself was the last one."""

    life: Any
    """Its coroutine; what that awaits is the hook."""

    def step(self, error: BaseException | None = None) -> Any:
        """Go on until something has to be waited for, and give that."""
        ...

    def limit(self) -> float | None:
        """Seconds for the hook it is at."""
        ...

    def give_up(self, why: Interrupt) -> Any:
        """Leave the hook it is at behind, which ignores its cancellation, and go on with a step."""
        ...

    def close(self) -> None:
        """End, in the middle of whatever it is at."""
        ...


class Driver:
    """Await it until the walk is done. A hook past its limit is cancelled, and given up if it goes on.

    It raises CancelledError only where somebody else cancels the task.
    """

    __slots__ = (
        "_armed",
        "_before",
        "_cancels",
        "_expired",
        "_future",
        "_gives_up",
        "_grace",
        "_groups",
        "_loop",
        "_task",
        "_timer",
        "_waiting",
        "_walk",
    )

    def __init__(self, walk: Walk) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("hooks run inside a task")
        self._walk = walk
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._before = _delivered(task)
        self._future: Any = None
        self._waiting: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._groups: list[Any] = []
        self._armed = self._cancels = self._expired = self._gives_up = False

    def drive(self, future: Any) -> Driver:
        """From where the walk's first step left it, waiting for `future`."""
        self._future = future
        return self

    def hook_ended(self) -> Interrupt | None:
        """What came over the hook that has just ended, whatever it made of it; the next one starts afresh."""
        expired = self._expired
        self._disarm()
        if _delivered(self._task) > self._before:
            return Interrupt.CANCELLED
        return Interrupt.EXPIRED if expired else None

    def __await__(self) -> Generator[Any, Any, None]:
        walk = self._walk
        try:
            while self._future is not walk:
                if not self._armed:
                    self._arm()
                error = yield from self._waited()
                if self._gives_up:
                    self._leave()
                else:
                    self._step(error)
        except GeneratorExit:
            walk.close()
            raise
        finally:
            self._disarm()

    def _waited(self) -> Generator[Any, Any, BaseException | None]:
        """Until the future is settled, one of our timers wakes us, or something is thrown at the task."""
        future = self._future
        try:
            if self._can_wait_for(future):
                future._asyncio_future_blocking = False
                self._waiting = self._loop.create_future()
                future.add_done_callback(self._wake)
                yield from self._waiting.__await__()
            else:
                yield future  # None from sleep(0); about anything odd the task complains
        except asyncio.CancelledError as exc:
            self._cancels = True
            if _GROUPS_LEAVE_IT:
                self._take_back_for_groups()
            if not self._expired:
                self._arm_grace()
            return exc
        except RuntimeError as exc:
            return exc
        return None

    def _step(self, error: BaseException | None) -> None:
        """One step of the walk, as a task would take it for a coroutine of its own."""
        future = self._future
        cancels, self._cancels = self._cancels, False
        if self._can_wait_for(future):
            if cancels and future.cancel():
                return  # it ends soon, and the hook then sees the cancellation for itself
            if error is None and not cancels and not future.done():
                return  # woken for nothing
        if cancels and error is None:
            error = asyncio.CancelledError()
        self._future = self._walk.step(error)

    def _leave(self) -> None:
        """Walk away from a hook that will not end."""
        self._gives_up = False
        cancelled = self._task.cancelling() - self._cancels_inside() > self._before
        if not cancelled and not self._expired:
            return  # a timeout or a task group inside the hook cancelled it, which is the hook's own affair
        self._disarm()
        self._future = self._walk.give_up(Interrupt.CANCELLED if cancelled else Interrupt.EXPIRED)

    def _can_wait_for(self, future: Any) -> bool:
        return (
            getattr(future, "_asyncio_future_blocking", None) is not None
            and future is not self._task
            and future.get_loop() is self._loop
        )

    def _take_back_for_groups(self) -> None:
        """Take back the cancellation by a task group one of whose tasks failed while the group was ending.

        Before Python 3.13 the group itself does not, and it would look like somebody else's.
        """
        for inner in self._awaited():
            frame = getattr(inner, "cr_frame", None)
            if frame is not None and frame.f_code is asyncio.TaskGroup.__aexit__.__code__:
                group, error = frame.f_locals["self"], frame.f_locals["exc"]
                taken_back = isinstance(error, asyncio.CancelledError) or group in self._groups
                if group._parent_cancel_requested and not taken_back:
                    self._groups.append(group)
                    self._task.uncancel()

    def _cancels_inside(self) -> int:
        """Cancellations by timeouts and task groups that the hook is inside of; they take them back at their end.

        What a suspended `async with` will leave by is on its frame's stack, where only the collector can see it.
        """
        held = [thing for inner in self._awaited() for thing in gc.get_referents(inner)]
        left = [getattr(thing, "__self__", thing) for thing in held]
        timeouts = {id(each) for each in left if isinstance(each, asyncio.Timeout) and each.expired()}
        groups = {
            id(each)
            for each in left
            if isinstance(each, asyncio.TaskGroup) and getattr(each, "_parent_cancel_requested", False)
        }
        return len(timeouts) + len(groups - {id(group) for group in self._groups})

    def _awaited(self) -> Iterator[Any]:
        """The walk's coroutine, what it awaits, what that awaits, and so on."""
        inner: Any = self._walk.life
        while inner is not None:
            yield inner
            inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)

    def _wake(self, _settled: Any = None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _arm(self) -> None:
        self._armed = True
        limit = self._walk.limit()
        self._timer = self._loop.call_later(limit, self._expire) if limit is not None else None

    def _arm_grace(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
        self._grace = self._loop.call_later(GRACE, self._give_up)

    def _disarm(self) -> None:
        for timer in (self._timer, self._grace):
            if timer is not None:
                timer.cancel()
        self._armed = self._cancels = self._expired = self._gives_up = False

    def _expire(self) -> None:
        self._expired = self._cancels = True
        self._arm_grace()
        self._wake()

    def _give_up(self) -> None:
        self._gives_up = True
        self._wake()


def _delivered(task: asyncio.Task[Any]) -> int:
    """How often the task was cancelled, without what it will only hear of at its next wait.

    Such a one came while a hook computed (a signal). It is not an old one, and told now it would be told twice.
    """
    return task.cancelling() - bool(getattr(task, "_must_cancel", False))
