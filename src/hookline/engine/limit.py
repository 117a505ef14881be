"""Waits for a hook under its limit, `Hook.timeout`, if the handler does not keep it itself, so that it cannot hold up its caller.

Most hooks answer without waiting, and a timer costs more than they do; so `fire` takes the first step itself and comes
here only if a hook really waits. The hook stays in the caller's own task, because what it began there (a timeout, a task
group) must end there. A cancellation of that task may therefore be meant for the caller, or only for a part of the hook;
the context of the canceller decides, because everything that a hook starts carries the mark of the hook.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine
from typing import Any

from hookline.errors import HookBroke

GRACE = 1.0
"""Seconds that a cancelled hook may take to clean up before it is abandoned."""
_GROUPS_LEAVE_IT = sys.version_info < (3, 13)
"""True if a task group in which a task fails while the group ends does not uncancel its parent."""

_NOBODY = Context()
_WAITS: Any = object()
_STUBBORN: list[Coroutine[Any, Any, Any]] = []
"""Hooks that would not end; they are never resumed."""


async def finished(
    hook: Coroutine[Any, Any, Any], pending: Any, limit: float | None, is_own: Callable[[Context], bool]
) -> Any:
    """The answer or exception of a hook in the end; `HookBroke` where it went past its limit, in seconds.

    At its limit, or where its caller is cancelled, it is cancelled too, and given up if it then goes on for longer
    than `GRACE`. CancelledError is raised only where the caller's task is to end, whatever the hook made of that.
    `is_own` knows the contexts of what the hook has started.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("hooks run inside a task")
    now = asyncio.get_running_loop().time
    deadline = None if limit is None else now() + limit
    expired, before, by_hook, by_others = False, task.cancelling(), 0, 0
    answer: Any = _WAITS
    try:
        while answer is _WAITS:
            wait = _Wait(pending, task, is_own)
            error = await wait.until(deadline)
            if isinstance(error, asyncio.CancelledError):
                if wait.cancelled_by_hook:
                    by_hook += 1
                else:
                    deadline = deadline if expired or by_others else now() + GRACE
                    by_others += 1
            elif deadline is not None and now() >= deadline:
                if expired or by_others:
                    break
                expired, deadline, error = True, now() + GRACE, asyncio.CancelledError()
            elif wait.is_early:
                continue
            if isinstance(error, asyncio.CancelledError) and wait.passed_on():
                continue
            try:
                pending = hook.throw(error) if error is not None else hook.send(None)
            except StopIteration as stop:
                answer = stop.value
            except KeyboardInterrupt:
                raise
            except BaseException as exc:
                answer = exc
            if answer is not _WAITS and not (expired or by_others):
                # It blocked the loop, so nothing could interrupt it.
                expired = deadline is not None and now() >= deadline
    finally:
        _close(hook)
    kept = task.cancelling() - before - by_others
    if by_others or (kept > 0 and not expired and isinstance(answer, asyncio.CancelledError)):
        raise answer if isinstance(answer, asyncio.CancelledError) else asyncio.CancelledError
    if _GROUPS_LEAVE_IT:
        for _ in range(min(kept, by_hook)):
            task.uncancel()
    if not expired:
        return answer
    ignored = ", ignored its cancellation and was given up" if answer is _WAITS else ""
    return HookBroke(f"ran past its limit of {limit:g} s{ignored}", kind="timed_out")


class _Wait(asyncio.Future[None]):
    """One wait of a hook, as the caller's task sees it: it can be abandoned, whatever the hook waits for.

    Cancelling a task cancels the future that it waits for, so `cancel` is called here, in the canceller's context.
    """

    def __init__(self, pending: Any, task: asyncio.Task[Any], is_own: Callable[[Context], bool]) -> None:
        super().__init__()
        self._pending: Any = pending
        self._task = task
        self._is_own = is_own
        self._canceller: Context | None = None
        self._lets_go_first = pending is None
        # Anything else that a coroutine may yield is an error, which the task itself raises.
        self._on_future = (
            asyncio.isfuture(pending) and pending is not task and pending.get_loop() is self.get_loop()
        )

    async def until(self, deadline: float | None) -> BaseException | None:
        """Wait until the hook can go on, or the deadline; the exception thrown into the task meanwhile, if any."""
        timer = None if deadline is None else self.get_loop().call_at(deadline, self._wake)
        try:
            if self._on_future:
                self._pending.add_done_callback(self._wake)
                await self
            elif self._lets_go_first:
                self.get_loop().call_soon(self._wake)
                await self
            else:
                await _handed_up(self._pending)
        except (asyncio.CancelledError, RuntimeError) as exc:
            return exc
        finally:
            if timer is not None:
                timer.cancel()
            if self._on_future:
                self._pending.remove_done_callback(self._wake)
        return None

    @property
    def is_early(self) -> bool:
        """True if it was woken before the hook can go on."""
        return self._on_future and not self._pending.done()

    @property
    def cancelled_by_hook(self) -> bool:
        """True if it was cancelled by something that the hook had started: a timeout, a task group."""
        return self._canceller is not None and self._is_own(self._canceller)

    def cancel(self, msg: Any | None = None) -> bool:
        # A cancellation that came while the task ran is delivered by the task itself, once it waits.
        return self._cancelled_in(_NOBODY if asyncio.current_task() is self._task else copy_context())

    def _cancelled_in(self, canceller: Context) -> bool:
        # Of two at once, the one meant for the caller counts.
        if self._canceller is None or self.cancelled_by_hook:
            self._canceller = canceller
        return super().cancel()

    def passed_on(self) -> bool:
        """Cancel what the hook waits for, as a task does, so that the hook sees it; False if that is done already."""
        if isinstance(self._pending, _Wait):
            return self._pending._cancelled_in(self._canceller or _NOBODY)
        return self._on_future and self._pending.cancel()

    def _wake(self, _settled: Any = None) -> None:
        if not self.done():
            self.set_result(None)


@coroutine
def _handed_up(odd: Any) -> Generator[Any, Any, None]:
    yield odd


def _close(hook: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine; one that is finished stays as it is."""
    try:
        hook.close()
    except KeyboardInterrupt:
        raise
    except RuntimeError:
        # It may ignore even that. If it were dropped, Python would close it once more, and warn.
        _STUBBORN.append(hook)
    except BaseException:
        pass  # raised while it was closed; it is finished
