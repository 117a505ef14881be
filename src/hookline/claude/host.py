"""Handlers of `command:` and `shell:` hooks in the protocol of Claude Code. Light to load: answers need it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hookline.claude.events import FAILED, NAMES, event_of
from hookline.claude.payload import encode, filled, variables
from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import Handler
from hookline.engine.point import Point, Status
from hookline.engine.result import CONTINUE, HookResult
from hookline.handlers.process import context_json, process_handler
from hookline.runners import Ending, Runner

Params = Mapping[str, Any]


def command_of(params: Params, timeout: float | None, runner: Runner) -> Handler:
    """The handler of an entry's `command:`."""
    return command_handler(
        argv_of(params) or ["sh", "-c", params["command"]],
        runner,
        env=_environment(params),
        cwd=params.get("cwd"),
        timeout=timeout,
        background_keep=params.get("background") == "keep",
    )


def argv_of(params: Params) -> Sequence[str]:
    """The arguments of a `command:`; with the project's folder where Claude Code, and no shell, fills it in."""
    argv = params.get("argv", ())
    return filled(argv, os.getcwd()) if "event" in params and "command" not in params else argv


def command_handler(
    argv: Sequence[str],
    runner: Runner,
    *,
    env: Mapping[str, str],
    timeout: float | None,
    event: str | None = None,
    cwd: str | None = None,
    background_keep: bool = False,
) -> Handler:
    """The handler of a command in this protocol. `event` is the only event it knows, if it knows just one."""
    return process_handler(
        argv,
        runner,
        encode=lambda context: written(context, event=event),
        decode=lambda ending, context: read(ending, context, event=event),
        env=env,
        cwd=cwd,
        timeout=timeout,
        background_keep=background_keep,
    )


def shell_of(params: Params, timeout: float | None, runner: Runner) -> Handler:
    """The handler of an entry's `shell:`; only its exit code counts."""
    return process_handler(
        ("sh", "-c", params["script"]),
        runner,
        env=_environment(params),
        cwd=params.get("cwd"),
        timeout=timeout,
        background_keep=params.get("background") == "keep",
    )


def asked_when(conditions: Sequence[Callable[[HookContext], bool]], handler: Handler) -> Handler:
    """The handler, called only if every condition is met, so that no process starts needlessly."""
    if not conditions:
        return handler

    def concerned(ctx: WorkflowContext | None, hook_context: HookContext, /) -> Any:
        return handler(ctx, hook_context) if all(met(hook_context) for met in conditions) else CONTINUE

    return concerned


def written(context: HookContext, *, event: str | None = None) -> bytes:
    """The input as Claude Code would write it; at points that Claude Code does not have, the context itself."""
    facts, payload, output = context.given
    if event == "PostToolUse" and facts.status in FAILED:
        # One event for every end of a call: a failed call has its error as the response.
        context = HookContext.of(facts.at(Point.TOOL_END, Status.OK), payload, output)
    point = facts.point
    return (
        encode(context, cwd=os.getcwd()) if point in NAMES or "." not in str(point) else context_json(context)
    )


def read(
    ending: Ending, context: HookContext, *, reads_text: bool = True, event: str | None = None
) -> HookResult:
    """The result of an ended process, by the rules of its event."""
    from hookline.claude.wire import decode  # slow to load, and not for a script

    code = ending.exit_code if ending.exit_code is not None else 1
    name = event or _event_at(context)
    return decode(name, code, ending.stdout.content, ending.stderr.content, reads_text=reads_text)


def _event_at(context: HookContext) -> str:
    point = context.facts.point
    if isinstance(point, Point) and point not in NAMES:
        # If Claude Code has no event, a start is read as one before a tool, an end as one after it.
        return "PreToolUse" if point.is_start else "PostToolUse"
    return event_of(context.facts)


def _environment(params: Params) -> dict[str, str]:
    theirs = variables(params["event"], os.getcwd()) if "event" in params else {}
    return {**os.environ, **theirs, **params.get("env", {})}
