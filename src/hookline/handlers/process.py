"""Hooks that are processes: commands, shell scripts and containers.

The input of every hook outside this process is made here too: the `HOOKLINE_*` variables, and the context as JSON, for
a process on stdin. Without a `decode`, exit code 0 continues, any other means that the hook broke, and the output is
only shown; a `decode` reads more from the ending, such as a verdict in JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import DEFAULT_TIMEOUT, Handler
from hookline.engine.plain import finite
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
    decode: Decode | None = None,
    encode: Encode = context_json,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    background_keep: bool = False,
    variables: Callable[[HookContext], Mapping[str, str]] | None = None,
) -> Handler:
    """A handler that runs `argv`. Its hook is declared `limits_itself`: waiting for a free slot is not its time.

    `env` is the whole environment before the `HOOKLINE_*` variables, None for ours; `variables` are those of one call. Without `decode` the exit code
    alone counts, and output and errors are one.
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
    """Exit code 0 continues; any other means that the hook broke."""
    if ending.exit_code != 0:
        raise HookBroke(with_last_lines(ending.in_words(), ending), kind="exit")
    return CONTINUE


def environment(
    env: Mapping[str, str] | None, ctx: WorkflowContext | None, hook_context: HookContext, cwd: str | None
) -> dict[str, str]:
    """The whole environment of a process: the given one (None: ours) and the facts that are known."""
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
    whole = dict(os.environ if env is None else env)
    for name, value in known.items():
        whole.pop(name, None)
        if value is not None and value != "":
            whole[name] = variable_text(f"{value}")
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


async def _answer(order: Order, runner: Runner, decode: Decode, hook_context: HookContext) -> HookResult:
    ending = await runner.run(order)
    trouble = broke(ending, order.timeout)
    if trouble is not None:
        raise trouble
    return decode(ending, hook_context)


def variable_text(value: str) -> str:
    """A text as the value of a variable: without null bytes, and not too long."""
    text = value.replace("\0", "").encode("utf-8", "replace")[:_LONGEST]
    return text.decode("utf-8", "ignore")
