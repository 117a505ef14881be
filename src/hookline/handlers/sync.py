"""Sync Python functions for who has no event loop: called in a thread, and waited for within their limit."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import Handler
from hookline.engine.result import HookResult
from hookline.errors import HookBroke


def waiting_handler(function: Callable[..., Any], timeout: float | None) -> Handler:
    """As `python_hook` has it called, and with the same words where it breaks."""

    def handler(ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
        call = _Call(function, ctx, hook_context)
        context = contextvars.copy_context()
        worker = threading.Thread(target=context.run, args=(call.make,), name="hookline-hook", daemon=True)
        try:
            worker.start()
        except RuntimeError as exc:
            raise HookBroke(f"could not start: {exc}", kind="not_started") from exc
        if not call.done.wait(timeout):
            raise HookBroke(
                f"ran past its limit of {timeout:g} s; its thread cannot be stopped and is left to itself",
                kind="timed_out",
            )
        return _awaited(call.answer(), timeout)

    return handler


class _Call:
    """One call, made in a thread."""

    __slots__ = ("_args", "_error", "_function", "_value", "done")

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._function = function
        self._args = args
        self._value: Any = None
        self._error: BaseException | None = None
        self.done = threading.Event()

    def make(self) -> None:
        try:
            self._value = self._function(*self._args)
        except BaseException as exc:
            self._error = exc
        self.done.set()

    def answer(self) -> Any:
        error = self._error
        if isinstance(error, StopIteration | GeneratorExit | KeyboardInterrupt):
            # Here they would be taken for something meant for whoever asks.
            raise RuntimeError(f"the function raised {type(error).__name__}")
        if error is not None:
            raise error
        return self._value


def _awaited(answer: Any, timeout: float | None) -> Any:
    """Few give something to await that do not look like it; those get a loop after all."""
    if not hasattr(answer.__class__, "__await__"):
        return answer
    import asyncio

    from hookline.handlers.python import in_time

    return asyncio.run(in_time(answer, timeout))
