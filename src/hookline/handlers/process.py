"""Hooks that are processes: commands, shell scripts and containers.

The input of every hook outside this process is made here too: the `HOOKLINE_*` variables, and the context as JSON, for
a process on stdin. A `decode` reads the result of a command from its ending, such as a verdict in JSON. Of an image
only the exit code counts: 0 continues, any other means that the hook broke, and the output is only shown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import Handler
from hookline.engine.plain import cut, finite
from hookline.engine.result import CONTINUE, HookResult
from hookline.errors import HookBroke
from hookline.runners import Ending, Mount, Order, Runner

Encode = Callable[[HookContext], bytes]
"""Makes the input of a hook."""
Decode = Callable[[Ending, HookContext], HookResult]
"""Reads a result from an ending, or raises HookBroke; called only for a process that exited by itself."""

WORKSPACE = "/workspace"
"""The path in a container of the folder that a hook works in elsewhere."""
_LONGEST = 4096
"""Bytes of one variable. A name that a model made up must not keep a guard from starting."""


def context_json(hook_context: HookContext) -> bytes:
    """The context as strict JSON; NaN and infinities are null, other values that JSON lacks are texts."""
    shown = hook_context.to_dict()
    try:
        return json.dumps(shown, allow_nan=False, default=str).encode()
    except ValueError:
        return json.dumps(finite(shown, lambda _: None), default=str).encode()


def process_handler(
    argv: Sequence[str],
    runner: Runner,
    *,
    decode: Decode,
    encode: Encode,
    env: Mapping[str, str],
    timeout: float | None,
    cwd: str | None = None,
    background_keep: bool = False,
    variables: Callable[[HookContext], Mapping[str, str]] | None = None,
) -> Handler:
    """A handler that runs `argv`. Its hook is declared `limits_itself`: waiting for a free slot is not its time.

    `env` is the whole environment before the `HOOKLINE_*` variables; `variables` are those of one call.
    """
    argv = tuple(argv)

    async def handler(ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
        own: Mapping[str, str] = variables(hook_context) if variables is not None else {}
        order = Order(
            argv=argv,
            cwd=folder(cwd, ctx),
            env={**environment(env, ctx, hook_context, cwd), **own},
            stdin=encode(hook_context),
            timeout=timeout,
            background_keep=background_keep,
        )
        return decode(await _exited(order, runner), hook_context)

    return handler


def container_handler(
    image: str,
    runner: Runner,
    *,
    command: Sequence[str],
    args: Sequence[str],
    env: Mapping[str, str],
    network: bool,
    timeout: float | None,
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
            env=environment(env, ctx, hook_context, None),
            stdin=context_json(hook_context),
            timeout=timeout,
            merge_stderr=True,
        )
        ending = await _exited(order, runner)
        if ending.exit_code != 0:
            raise HookBroke(with_last_lines(ending.in_words(), ending), kind="exit")
        return CONTINUE

    return handler


def environment(
    env: Mapping[str, str], ctx: WorkflowContext | None, hook_context: HookContext, cwd: str | None
) -> dict[str, str]:
    """The whole environment of a process: the given one and the facts that are known."""
    facts = hook_context.facts
    known = {
        "HOOKLINE_POINT": facts.point,
        "HOOKLINE_RUN_ID": facts.run_id,
        "HOOKLINE_CALL_ID": facts.call_id,
        "HOOKLINE_ATTEMPT": facts.attempt,
        "HOOKLINE_AGENT": facts.agent,
        "HOOKLINE_TOOL": facts.current_tool,
        "HOOKLINE_TOOL_KIND": facts.tool_kind,
        "HOOKLINE_SESSION_ID": facts.session_id,
        "HOOKLINE_CWD": folder(cwd, ctx),
        "HOOKLINE_STATUS": facts.status,
    }
    return with_variables(env, known)


def with_variables(env: Mapping[str, str], known: Mapping[str, object]) -> dict[str, str]:
    """An environment with these variables; one whose value is not known is left out, as it would be of another run."""
    whole = dict(env)
    for name, value in known.items():
        whole.pop(name, None)
        if value is not None and value != "":
            whole[name] = cut(f"{value}", _LONGEST)
    return whole


def folder(cwd: str | None, ctx: WorkflowContext | None) -> str:
    """The folder of a hook's process: its own, else the workspace, else ours."""
    return cwd or (ctx.workspace if ctx is not None and ctx.workspace else os.getcwd())


def broke(ending: Ending, timeout: float | None) -> HookBroke | None:
    """The error of a process without an exit code of its own, the same in every protocol; None if it exited."""
    if ending.exited:
        return None
    kind = "not_started" if ending.not_started is not None else "timed_out" if ending.passed_limit else "exit"
    return HookBroke(with_last_lines(ending.in_words(timeout), ending), kind=kind)


def with_last_lines(message: str, ending: Ending) -> str:
    lines = ending.last_lines()
    return f"{message}: {lines}" if lines else message


async def _exited(order: Order, runner: Runner) -> Ending:
    """The ending of a process that exited by itself."""
    ending = await runner.run(order)
    trouble = broke(ending, order.timeout)
    if trouble is not None:
        raise trouble
    return ending
