"""`hookline answer`: hookline as the hook of a foreign agent. JSON on stdin, that agent's words on stdout.

To its caller exit code 2 means "refused", so its own trouble (no file, a broken one) is a refusal in the caller's
words where something is about to start, and exit code 1 with a message elsewhere. It is never a yes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from hookline.cli.terminal import open_journal
from hookline.cli.trust import FILE, distrusted, nearest
from hookline.compose import load_hooks
from hookline.context import HookContext
from hookline.dialects.claude.answering import Answer, answer, trouble
from hookline.dialects.claude.events import CALLERS
from hookline.dialects.claude.payload import context_of, read
from hookline.errors import FileError, HooklineError, UsageError
from hookline.hook import Hook
from hookline.journal import Begun, Decided, Ended, Journal
from hookline.pipeline import Pipeline, Recorder
from hookline.point import Point, Scope, Status
from hookline.result import HookAction, Outcome
from hookline.runners.local import LocalRunner

__all__ = ["answering"]


def answering(arguments: list[str]) -> int:
    options = _options(arguments)
    event = options.event or ""
    try:
        payload = read(sys.stdin.buffer.read())
        event = str(payload.get("hook_event_name") or event)
        context = context_of({**payload, "hook_event_name": event}, as_=options.caller)
        said = asyncio.run(_answered(options, payload, event, context))
    except HooklineError as exc:
        said = trouble(str(exc), event, options.caller)
    sys.stdout.write(said.stdout)
    sys.stderr.write(said.stderr)
    return said.exit_code


async def _answered(options: Any, payload: dict[str, Any], event: str, context: HookContext) -> Answer:
    runner = LocalRunner()
    try:
        hooks = _hooks(options.file or _nearest(payload), runner)
        with open_journal() as journal:
            return await _recorded(journal, hooks, payload, event, context, options.caller)
    finally:
        await runner.close()


async def _recorded(
    journal: Journal,
    hooks: list[Hook],
    payload: dict[str, Any],
    event: str,
    context: HookContext,
    caller: str,
) -> Answer:
    facts = context.facts
    facts.run_id = f"{caller}-{facts.session_id or os.getpid()}"
    facts.scope_id = f"{facts.call_id or event}-{time.time_ns():x}"
    scope = facts.point.scope if isinstance(facts.point, Point) else Scope.SESSION
    name = facts.current_tool or event
    about = {"event": event, "tool": facts.current_tool, "agent": facts.agent}
    await journal.write(
        Begun(facts.run_id, facts.scope_id, None, scope, name, time.time(), context.given.payload, about)
    )
    outcome = await Pipeline(hooks, Recorder(journal)).fire(context)
    said = answer(outcome, event, caller, given=payload)
    for lost in said.lost:
        journal.note(
            Decided(
                facts.run_id, facts.scope_id, facts.point, time.time(), outcome.action, note=f"lost: {lost}"
            )
        )
    await journal.write(_ended(facts.run_id, facts.scope_id, scope, outcome))
    return said


def _ended(run_id: str, scope_id: str, scope: Scope, outcome: Outcome) -> Ended:
    refused = outcome.action in (HookAction.BLOCK, HookAction.FAIL)
    status = Status.BLOCKED if refused else Status.OK
    return Ended(run_id, scope_id, scope, time.time(), status, outcome.output, outcome.reason or None)


def _hooks(file: Path, runner: LocalRunner) -> list[Hook]:
    attached = load_hooks(str(file), runner)
    if attached.problems:
        raise attached.problems[0]
    return attached.hooks


def _nearest(payload: dict[str, Any]) -> Path:
    """The file found from the folder of the event, if the user has approved it."""
    start = Path(str(payload.get("cwd") or os.getcwd())).absolute()
    file = nearest(start)
    if file is None:
        raise UsageError(f"there is no {FILE} in {start} or above it; write one, or name it with --file")
    why = distrusted(file, os.environ)
    if why:
        raise FileError(f"{why}, then: hookline trust {shlex.quote(str(file))}", file=file)
    return file


def _options(arguments: list[str]) -> Any:
    parser = argparse.ArgumentParser(
        prog="hookline answer",
        description="Be the hook of a foreign agent: its JSON on stdin, its words on stdout.",
    )
    parser.add_argument("event", nargs="?", help="the event, where the JSON does not name it")
    parser.add_argument(
        "--as", dest="caller", choices=sorted(CALLERS), default="claude", help="who is asking"
    )
    parser.add_argument("--file", type=Path, help=f"the hook file; else the nearest {FILE} upward")
    return parser.parse_args(arguments)
