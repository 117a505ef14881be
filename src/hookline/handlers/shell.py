"""Hooks that are shell scripts: exit code 0 goes on, anything else broke. What they print is only shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import DEFAULT_TIMEOUT, Handler
from hookline.engine.result import CONTINUE, HookResult
from hookline.errors import HookBroke
from hookline.handlers.input import broke, context_json, environment, folder, with_last_lines
from hookline.runners import Order, Runner

__all__ = ["shell_handler"]


def shell_handler(
    script: str,
    runner: Runner,
    *,
    shell: Sequence[str] = ("sh", "-c"),
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    background_keep: bool = False,
) -> Handler:
    """A handler that gives `script` to a shell, with the context on stdin. Its hook is declared `limits_itself`."""
    argv = (*shell, script)

    async def handler(ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
        order = Order(
            argv=argv,
            cwd=folder(cwd, ctx),
            env=environment(env, ctx, hook_context, cwd),
            stdin=context_json(hook_context),
            timeout=timeout,
            merge_stderr=True,
            background_keep=background_keep,
        )
        ending = await runner.run(order)
        trouble = broke(ending, timeout)
        if trouble is not None:
            raise trouble
        if ending.exit_code != 0:
            raise HookBroke(with_last_lines(ending.in_words(), ending), kind="exit")
        return CONTINUE

    return handler
