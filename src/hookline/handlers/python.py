"""Hooks that are Python functions: async ones on the event loop, sync ones in our threads, or inline."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import (
    WITHHOLDS,
    Handler,
    Hook,
    HookOptions,
    check_signature,
    name_of,
    options_of,
    source_of,
)
from hookline.engine.point import KEYWORDS, Point, Scope, points_in
from hookline.engine.result import HookResult
from hookline.engine.threads import Threads
from hookline.errors import HookBroke, UsageError
from hookline.matcher import matcher

_threads = Threads()


def python_hook(
    function: Callable[..., Any], points: Iterable[Point | str] = (), options: HookOptions | None = None
) -> Hook:
    """A live hook of a function with the options of its `@hook(...)`; `points` are those it was attached to.

    `options`, from a file, replace those of `@hook(...)`.
    """
    check_signature(function)
    options = options or options_of(function)
    name = options.name or name_of(function)
    standing = frozenset(points) or frozenset(options.on)
    source = source_of(function)
    if not standing:
        raise UsageError(
            f"hook {name} [{source}] names no point; write @hook(on='tool.start') or attach it to one"
        )
    declared = frozenset(options.on) or frozenset({KEYWORDS[name]} if name in KEYWORDS else ())
    doubt = ""
    if declared and (elsewhere := sorted(standing - declared)):
        import logging  # slow to load, and seldom needed

        doubt = f"is declared for {', '.join(sorted(declared))}, and stands at {', '.join(elsewhere)} too"
        logging.getLogger(__name__).warning("hook %s [%s] %s", name, source, doubt)
    no_tool = points_in(standing, set(Scope) - {Scope.TOOL})
    if options.match is not None and no_tool:
        raise UsageError(
            f"hook {name} [{source}] has a match for tool names, and {', '.join(no_tool)} has no tool"
        )
    try:
        match = matcher(options.match) if options.match is not None else None
    except UsageError as exc:
        raise UsageError(f"hook {name} [{source}]: {exc}") from exc
    on_loop = options.inline or is_async(function)
    return Hook(
        name=name,
        points=standing,
        handler=cast("Handler", function) if on_loop else _in_thread(function, options.timeout),
        match=match,
        match_text=options.match,
        timeout=options.timeout,
        on_error=options.on_error,
        mode=options.mode,
        source=source,
        doubt=doubt,
        limits_itself=not on_loop,
        defaults=WITHHOLDS if options.changes == "output" else None,
    )


def is_async(function: Callable[..., Any]) -> bool:
    """True if a call returns an awaitable; also for partials and objects with an async `__call__`."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


def _in_thread(function: Callable[..., Any], timeout: float | None) -> Handler:
    async def handler(ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
        answer = await _threads.call(function, ctx, hook_context, timeout=timeout)
        return await in_time(answer, timeout) if inspect.isawaitable(answer) else answer

    handler.__dict__["__wrapped__"] = function
    return handler


async def in_time(answer: Awaitable[HookResult], timeout: float | None) -> HookResult:
    """The result, awaited in a task of its own, which can be left behind if it does not end."""
    import asyncio  # not loaded where hooks are only looked at

    from hookline.engine.limit import GRACE

    task = asyncio.ensure_future(answer)
    try:
        await asyncio.wait({task}, timeout=timeout)
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE)
    raise HookBroke(f"ran past its limit of {timeout:g} s", kind="timed_out")
