"""`hookline answer`: hookline as the hook of a foreign agent. JSON on stdin, that agent's words on stdout.

To its caller exit code 2 means "refused", so its own trouble (no file, a broken one) is a refusal in the caller's
words where something is about to start, and exit code 1 with a message elsewhere. It is never a yes.

This is the long way, which every call can take; `quick` spares most of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

from hookline.answer.quick import ForeignEvent, recorded, stdin_given, tell, troubled
from hookline.claude.answer import CallerAnswer
from hookline.claude.events import CALLERS
from hookline.claude.payload import context_of, read
from hookline.engine.context import Facts
from hookline.engine.hook import Hook
from hookline.hookfile.attach import load_hooks
from hookline.hookfile.compiler import copy_of, keep_copy
from hookline.hookfile.trust import FILE, found_from, trusted
from hookline.journal import open_journal
from hookline.runners.local import LocalRunner
from hookline.source import SUFFIXES


def answering(arguments: list[str], stdin: bytes | None = None) -> int:
    options = _options(arguments)
    return tell(_said(options, stdin_given() if stdin is None else stdin))


def _said(options: Any, stdin: bytes) -> CallerAnswer:
    name: str = options.event or ""
    facts: Facts | None = None
    try:
        payload = read(stdin)
        name = str(payload.get("hook_event_name") or name)
        context = context_of({**payload, "hook_event_name": name}, as_=options.caller)
        facts = context.facts
        return asyncio.run(_answered(options.file, ForeignEvent(name, options.caller, payload, context)))
    except Exception as exc:
        return troubled(exc, name, options.caller, facts)


async def _answered(file: Path | None, event: ForeignEvent) -> CallerAnswer:
    runner = LocalRunner()
    try:
        hooks = _hooks(file or _found(event.payload), runner)
        with open_journal() as journal:
            return await recorded(journal, hooks, event)
    finally:
        await runner.close()


def _hooks(file: Path, runner: LocalRunner) -> list[Hook]:
    try:
        content = file.read_bytes() if file.suffix in SUFFIXES else None
    except OSError:
        content = None  # reading it as a hook file says why
    found = load_hooks(str(file), runner)
    if found.problems:
        raise found.problems[0]
    if content is not None and copy_of(file, content, os.environ) is None:
        keep_copy(file, content, found, os.environ)
    return found.hooks


def _found(payload: dict[str, Any]) -> Path:
    """The file found from the folder of the event, if the user has approved it."""
    start = Path(str(payload.get("cwd") or os.getcwd())).absolute()
    return trusted(found_from(start), os.environ)


def _options(arguments: list[str]) -> Any:
    parser = argparse.ArgumentParser(
        prog="hookline answer",
        description="Act as a hook of another agent: its event as JSON on stdin, the answer on stdout.",
    )
    parser.add_argument("event", nargs="?", help="the event, if the JSON does not name it")
    parser.add_argument(
        "--as", dest="caller", choices=sorted(CALLERS), default="claude", help="the agent that calls"
    )
    parser.add_argument(
        "--file", type=Path, help=f"the hook file [default: the nearest {FILE}, here or in a folder above]"
    )
    return parser.parse_args(arguments)
