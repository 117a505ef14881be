"""Hooks that are processes: commands, shell scripts and containers, with the context on stdin.

They differ in how the ending is read. By itself exit code 0 goes on, anything else broke, and what was printed is only
shown; a `decode` reads more out of it, such as a verdict in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import DEFAULT_TIMEOUT, Handler
from hookline.engine.result import CONTINUE, HookResult
from hookline.errors import HookBroke
from hookline.handlers.input import broke, context_json, environment, folder, with_last_lines
from hookline.runners import OUTPUT_CAP, Ending, Mount, Order, Runner

Encode = Callable[[HookContext], bytes]
"""What the hook reads."""
Decode = Callable[[Ending, HookContext], HookResult]
"""What its ending means, or HookBroke. It is asked only about one that ran to an exit code of its own."""

WORKSPACE = "/workspace"
"""Where a container finds the folder that a hook without one would stand in."""


def process_handler(
    argv: Sequence[str],
    runner: Runner,
    *,
    decode: Decode | None = None,
    encode: Encode = context_json,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    background_keep: bool = False,
    output_cap: int = OUTPUT_CAP,
) -> Handler:
    """A handler that runs `argv`. Its hook is declared `limits_itself`: the wait for a free place is not its time.

    `env` is the whole environment before the `HOOKLINE_*` variables, None for ours. Without `decode` the exit code
    alone counts, and output and errors are one.
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
            merge_stderr=decode is None,
            background_keep=background_keep,
        )
        return await _answer(order, runner, decode or by_exit_code, hook_context)

    return handler


def container_handler(
    image: str,
    runner: Runner,
    *,
    command: Sequence[str] = (),
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    network: bool = False,
    timeout: float | None = DEFAULT_TIMEOUT,
) -> Handler:
    """A handler that runs an image. Its hook is declared `limits_itself`; its exit code alone counts.

    Without `command` the image's own program is run. Nothing of our environment is handed on beside `env`.
    """

    async def handler(ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
        order = Order(
            argv=(*command, *args),
            own_program=not command,
            image=image,
            cwd=WORKSPACE,
            mounts=(Mount(target=WORKSPACE, source=folder(None, ctx), variable="HOOKLINE_CWD"),),
            network=network,
            env=environment(env or {}, ctx, hook_context, None),
            stdin=context_json(hook_context),
            timeout=timeout,
            merge_stderr=True,
        )
        return await _answer(order, runner, by_exit_code, hook_context)

    return handler


def by_exit_code(ending: Ending, _context: HookContext) -> HookResult:
    """0 goes on, anything else broke."""
    if ending.exit_code != 0:
        raise HookBroke(with_last_lines(ending.in_words(), ending), kind="exit")
    return CONTINUE


async def _answer(order: Order, runner: Runner, decode: Decode, hook_context: HookContext) -> HookResult:
    ending = await runner.run(order)
    trouble = broke(ending, order.timeout)
    if trouble is not None:
        raise trouble
    return decode(ending, hook_context)
