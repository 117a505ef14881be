"""Hand-written loops over hooks: what dispatch costs when nothing but the loop is there.

`limited` is the reference of every ratio: a limit is set, and its timer is armed only when a hook really waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

from timing import Run

LIMIT = 5.0


@dataclass(slots=True)
class Event:
    point: str
    tool: str
    args: dict[str, Any]


Hook = Callable[[Any, Event], Any]
Call = Callable[..., Awaitable[Any]]


async def tool(x: int) -> int:
    return x + 1


async def noop(ctx: Any, event: Event) -> None:
    return None


def sync_noop(ctx: Any, event: Event) -> None:
    return None


def alone() -> Run:
    """The tool call, with no point around it."""

    async def run(calls: int) -> None:
        for _ in range(calls):
            Event("tool.start", "add", {"x": 1})
            await tool(1)
            Event("tool.end", "add", {"x": 1})

    return run


def plain(n: int, function: Hook = noop) -> Run:
    hooks, ctx = [function] * n, object()

    async def run(calls: int) -> None:
        for _ in range(calls):
            event = Event("tool.start", "add", {"x": 1})
            for hook in hooks:
                await hook(ctx, event)
            await tool(1)
            event = Event("tool.end", "add", {"x": 1})
            for hook in hooks:
                await hook(ctx, event)

    return run


def plain_sync(n: int) -> Run:
    hooks, ctx = [sync_noop] * n, object()

    async def run(calls: int) -> None:
        for _ in range(calls):
            event = Event("tool.start", "add", {"x": 1})
            for hook in hooks:
                hook(ctx, event)
            await tool(1)
            event = Event("tool.end", "add", {"x": 1})
            for hook in hooks:
                hook(ctx, event)

    return run


def limited(n: int, function: Hook = noop) -> Run:
    return called_through(with_lazy_limit, [function] * n)


def eagerly_limited(n: int) -> Run:
    return called_through(with_timeout, [noop] * n)


def threaded(n: int) -> Run:
    return called_through(asyncio.to_thread, [sync_noop] * n)


def called_through(call: Call, hooks: list[Hook]) -> Run:
    ctx = object()

    async def run(calls: int) -> None:
        for _ in range(calls):
            event = Event("tool.start", "add", {"x": 1})
            for hook in hooks:
                await call(hook, ctx, event)
            await tool(1)
            event = Event("tool.end", "add", {"x": 1})
            for hook in hooks:
                await call(hook, ctx, event)

    return run


async def with_lazy_limit(hook: Hook, ctx: Any, event: Event, limit: float = LIMIT) -> Any:
    coroutine = hook(ctx, event)
    try:
        pending = coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    async with asyncio.timeout(limit):
        return await Rest(coroutine, pending)


async def with_timeout(hook: Hook, ctx: Any, event: Event) -> Any:
    async with asyncio.timeout(LIMIT):
        return await hook(ctx, event)


class Rest:
    """Awaits what is left of a coroutine that was already stepped once."""

    __slots__ = ("coroutine", "pending")

    def __init__(self, coroutine: Any, pending: Any) -> None:
        self.coroutine, self.pending = coroutine, pending

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, pending = self.coroutine, self.pending
        try:
            while True:
                try:
                    value = yield pending
                except BaseException as exc:
                    pending = coroutine.throw(exc)
                else:
                    pending = coroutine.send(value)
        except StopIteration as stop:
            return stop.value


async def check_lazy_limit() -> None:
    """A reference that is fast because its limit never fires would be worth nothing."""

    async def waits(_ctx: Any, _event: Event) -> int:
        await asyncio.sleep(0)
        return 7

    async def hangs(_ctx: Any, _event: Event) -> None:
        await asyncio.Event().wait()

    event = Event("tool.start", "add", {})
    assert await with_lazy_limit(waits, None, event) == 7
    try:
        await with_lazy_limit(hangs, None, event, limit=0.01)
    except TimeoutError:
        return
    raise AssertionError("the lazily armed limit did not fire")
