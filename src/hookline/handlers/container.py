"""Hooks that are containers: exit code 0 goes on, anything else broke. What they print is only shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import DEFAULT_TIMEOUT, Handler
from hookline.engine.result import CONTINUE, HookResult
from hookline.errors import HookBroke
from hookline.handlers.input import broke, context_json, environment, folder, with_last_lines
from hookline.runners import Mount, Order, Runner

__all__ = ["WORKSPACE", "container_handler"]

WORKSPACE = "/workspace"
"""Where a container finds the folder that a hook without one would stand in."""


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
    """A handler that runs an image, with the context on stdin. Its hook is declared `limits_itself`.

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
        ending = await runner.run(order)
        trouble = broke(ending, timeout)
        if trouble is not None:
            raise trouble
        if ending.exit_code != 0:
            raise HookBroke(with_last_lines(ending.in_words(), ending), kind="exit")
        return CONTINUE

    return handler
