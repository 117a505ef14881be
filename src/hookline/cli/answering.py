"""`hookline answer`: hookline as the hook of a foreign agent. JSON on stdin, that agent's words on stdout.

To its caller exit code 2 means "refused", so its own trouble (no file, a broken one) is a refusal in the caller's
words where something is about to start, and exit code 1 with a message elsewhere. It is never a yes.

This is the long way, which every call can take; `quick` spares most of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from hookline.attaching import SUFFIXES, attached
from hookline.cli.compiled import copy_of, keep_copy
from hookline.cli.keeping import open_journal
from hookline.cli.quick import begun, stdin_given
from hookline.cli.trust import FILE, found_from, trusted
from hookline.context import Facts, HookContext
from hookline.dialects.claude.answering import Answer, answer, trouble
from hookline.dialects.claude.events import CALLERS, meant, point_of
from hookline.dialects.claude.payload import context_of, read
from hookline.errors import FileError, HooklineError, JournalError
from hookline.hook import Hook
from hookline.importing import function_of
from hookline.journal import Begun, Decided, Ended, Journal
from hookline.pipeline import Pipeline, Recorder
from hookline.point import Status
from hookline.result import HookAction, Outcome, Reason
from hookline.runners.local import LocalRunner

__all__ = ["answering"]


def answering(arguments: list[str], stdin: bytes | None = None) -> int:
    options = _options(arguments)
    said = _said(options, stdin_given() if stdin is None else stdin)
    # Half a surrogate pair, which an event may carry and UTF-8 may not, becomes the escape that JSON has for it.
    sys.stdout.buffer.write(said.stdout.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
    sys.stderr.write(said.stderr)
    return said.exit_code


def _said(options: Any, stdin: bytes) -> Answer:
    event: str = options.event or ""
    facts: Facts | None = None
    try:
        payload = read(stdin)
        event = str(payload.get("hook_event_name") or event)
        context = context_of({**payload, "hook_event_name": event}, as_=options.caller)
        facts = context.facts
        return asyncio.run(_answered(options, payload, event, context))
    except JournalError as exc:
        return trouble(str(exc), event, options.caller)
    except HooklineError as exc:
        message = str(exc)
    except Exception as exc:
        # To the caller a crash would be a yes.
        traceback.print_exc()
        message = f"a defect in hookline itself: {type(exc).__name__}: {exc}"
    return _kept_trouble(message, event, options.caller, facts)


def _kept_trouble(message: str, event: str, caller: str, facts: Facts | None) -> Answer:
    """What the caller is told where no hook could be asked; on record, as every answer is."""
    said = trouble(message, event, caller)
    facts = facts or Facts(caller, point_of(event, caller))
    refused = said.exit_code != 1
    action, status = (HookAction.BLOCK, Status.BLOCKED) if refused else (HookAction.CONTINUE, Status.FAILED)
    start = begun(facts, event, caller, None)
    reasons = (Reason("hookline", action, message),) if refused else ()
    ids = start.run_id, start.scope_id
    decided = Decided(*ids, facts.point, time.time(), action, reasons, note=f"no hook was asked: {message}")
    try:
        with open_journal() as journal:
            journal.put(start, decided, Ended(*ids, start.scope, time.time(), status, None, message))
    except Exception as exc:
        # The answer is owed, whatever becomes of its record.
        return said._replace(stderr=f"{said.stderr}hookline: not on record: {exc}\n")
    return said


async def _answered(options: Any, payload: dict[str, Any], event: str, context: HookContext) -> Answer:
    runner = LocalRunner()
    try:
        hooks = _hooks(options.file or _found(payload), runner)
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
    start = begun(facts, event, caller, context.given.payload)
    facts.run_id, facts.scope_id = start.run_id, start.scope_id
    await journal.write(start)
    pipeline = Pipeline(hooks, Recorder(journal))
    outcome = await pipeline.fire(context)
    said = answer(outcome, event, caller, given=payload)
    notes = [f"lost: {lost}" for lost in said.lost]
    if event not in CALLERS[caller] and not pipeline.at(facts.point):
        unknown = f"{event!r} is no event of {caller} that is known here, and no hook stands at {facts.point}"
        notes.append(f"{unknown}; {meant(event, caller)}")
        said = said._replace(stderr=f"{said.stderr}hookline: {notes[-1]}\n")
    for note in notes:
        journal.note(
            Decided(start.run_id, start.scope_id, facts.point, time.time(), outcome.action, note=note)
        )
    await journal.write(_ended(start, outcome))
    return said


def _ended(start: Begun, outcome: Outcome) -> Ended:
    refused = outcome.action in (HookAction.BLOCK, HookAction.FAIL)
    status = Status.BLOCKED if refused else Status.OK
    reason = outcome.reason or None
    return Ended(start.run_id, start.scope_id, start.scope, time.time(), status, outcome.output, reason)


def _hooks(file: Path, runner: LocalRunner) -> list[Hook]:
    if file.suffix not in SUFFIXES:
        from hookline.compose import load_hooks  # loads a whole agent's needs

        return load_hooks(str(file), runner).hooks
    if not file.is_file():
        raise FileError("there is no such file", file=file)
    content = _content(file)
    found = attached(file, runner, function_of)
    if found.problems:
        raise found.problems[0]
    if content is not None and copy_of(file, content, os.environ) is None:
        keep_copy(file, content, found.hooks, os.environ)
    return found.hooks


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None  # reading it as a hook file says why


def _found(payload: dict[str, Any]) -> Path:
    """The file found from the folder of the event, if the user has approved it."""
    start = Path(str(payload.get("cwd") or os.getcwd())).absolute()
    return trusted(found_from(start), os.environ)


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
