"""`command:` and `shell:` hooks made live, in the protocol of Claude Code. Light to load: every answer needs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hookline.claude.events import NAMES, event_of
from hookline.claude.payload import encode, variables
from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import Handler
from hookline.engine.point import Point
from hookline.engine.result import CONTINUE, HookResult
from hookline.handlers.command import command_handler
from hookline.handlers.input import context_json
from hookline.handlers.shell import shell_handler
from hookline.runners import Ending, Runner

__all__ = ["asked_when", "command_of", "read", "shell_of", "written"]

Params = Mapping[str, Any]


def command_of(params: Params, timeout: float | None, runner: Runner) -> Handler:
    """The handler of an entry's `command:`."""
    return command_handler(
        params.get("argv") or ["sh", "-c", params["command"]],
        runner,
        encode=written,
        decode=read,
        env=_environment(params),
        cwd=params.get("cwd"),
        timeout=timeout,
        background_keep=params.get("background") == "keep",
    )


def shell_of(params: Params, timeout: float | None, runner: Runner) -> Handler:
    """The handler of an entry's `shell:`."""
    return shell_handler(
        params["script"],
        runner,
        env=_environment(params),
        cwd=params.get("cwd"),
        timeout=timeout,
        background_keep=params.get("background") == "keep",
    )


def asked_when(conditions: Sequence[Callable[[HookContext], bool]], handler: Handler) -> Handler:
    """The handler, asked only where every condition is met, so that no process starts for what is not its own."""
    if not conditions:
        return handler

    def concerned(ctx: WorkflowContext | None, hook_context: HookContext, /) -> Any:
        return handler(ctx, hook_context) if all(met(hook_context) for met in conditions) else CONTINUE

    return concerned


def written(context: HookContext) -> bytes:
    """As Claude Code would write it; at points that Claude Code does not have, the context as it is."""
    point = context.facts.point
    return (
        encode(context, cwd=os.getcwd()) if point in NAMES or "." not in str(point) else context_json(context)
    )


def read(ending: Ending, context: HookContext, *, reads_text: bool = True) -> HookResult:
    """What its ending means there."""
    from hookline.claude.wire import decode  # slow to load, and not for a script

    point = context.facts.point
    if isinstance(point, Point) and point not in NAMES:
        # Where Claude Code has no event, a start is read like one before a tool, an end like one after it.
        event = "PreToolUse" if point.is_start else "PostToolUse"
    else:
        event = event_of(context.facts)
    code = ending.exit_code if ending.exit_code is not None else 1
    return decode(event, code, ending.stdout.content, ending.stderr.content, reads_text=reads_text)


def _environment(params: Params) -> dict[str, str] | None:
    theirs = variables(params["event"], os.getcwd()) if "event" in params else {}
    return {**os.environ, **theirs, **params.get("env", {})}
