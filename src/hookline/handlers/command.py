"""Hooks that are commands: JSON in, an exit code and perhaps JSON out. What that means, a dialect says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import DEFAULT_TIMEOUT, Handler
from hookline.engine.result import HookResult
from hookline.handlers.input import broke, context_json, environment, folder
from hookline.runners import OUTPUT_CAP, Ending, Order, Runner

__all__ = ["Decode", "Encode", "command_handler"]

Encode = Callable[[HookContext], bytes]
"""What the hook reads."""
Decode = Callable[[Ending, HookContext], HookResult]
"""What its ending means, or HookBroke. It is asked only about one that ran to an exit code of its own."""


def command_handler(
    argv: Sequence[str],
    runner: Runner,
    *,
    decode: Decode,
    encode: Encode = context_json,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    background_keep: bool = False,
    output_cap: int = OUTPUT_CAP,
) -> Handler:
    """A handler that runs `argv`. Its hook is declared `limits_itself`: the wait for a free place is not its time.

    `env` is the whole environment before the `HOOKLINE_*` variables, None for ours.
    """
    argv = tuple(argv)

    async def handler(ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
        order = Order(
            argv=argv,
            cwd=folder(cwd, ctx),
            env=environment(env, ctx, hook_context, cwd),
            stdin=encode(hook_context),
            timeout=timeout,
            output_cap=output_cap,
            background_keep=background_keep,
        )
        ending = await runner.run(order)
        trouble = broke(ending, timeout)
        if trouble is not None:
            raise trouble
        return decode(ending, hook_context)

    return handler
