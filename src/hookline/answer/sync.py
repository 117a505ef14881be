"""The short way of `hookline answer` where hooks are concerned, and all of them are of the plain kinds.

They are made of the compiled copy and asked by the same pipeline as ever. What is spared is the event loop: a script,
a command or a sync function is waited for, so that no coroutine ever waits and each is done at its first step. Hooks
of any other kind send the call the long way, before anything is started.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hookline.answer.event import recorded, tell
from hookline.claude.payload import context_of
from hookline.engine.hook import Handler, Hook, Mode, OnError
from hookline.engine.result import CONTINUE
from hookline.hookfile.compiler import OWN_GUARDS
from hookline.hookfile.importer import function_of
from hookline.journal.user import opened_journal

if TYPE_CHECKING:
    from hookline.claude.answer import CallerAnswer
    from hookline.engine.context import HookContext, WorkflowContext
    from hookline.engine.hook import HookDeclaration
    from hookline.engine.record import Begun, Called, Decided, Ended, Journal
    from hookline.engine.result import HookResult
    from hookline.journal.sqlite import SqliteJournal
    from hookline.runners import Runner

Json = dict[str, Any]
T = TypeVar("T")


def answering(
    rows: Sequence[tuple[Json, bool | None]], payload: Json, event: str, caller: str
) -> Callable[[], None]:
    """Asks the hooks, answers and ends the process, once it is called. Until then nothing has happened.

    `rows` are the hooks of the copy at this point, each with whether its `match` fits; those whose does are plain.
    """
    runner = _runner(rows)
    context = context_of({**payload, "hook_event_name": event}, as_=caller)
    hooks = [_live(row, bool(fits), context.facts.point, runner) for row, fits in rows]

    def answer() -> None:
        code = tell(_said(hooks, runner, payload, event, context, caller))
        if any(fits and row["kind"] == "python" and not _is_own(row) for row, fits in rows):
            # Somebody else's code may want to hear of the end.
            sys.exit(code)
        sys.stderr.flush()
        # Nothing is open any more that would have to be closed, and to take the interpreter down takes its time.
        os._exit(code)

    return answer


def _is_own(row: Json) -> bool:
    return row["params"].get("module", "").startswith(OWN_GUARDS)


def _said(
    hooks: list[Hook],
    runner: Runner | None,
    payload: Json,
    event: str,
    context: HookContext,
    caller: str,
) -> CallerAnswer:
    try:
        return _done(_asked(hooks, runner, payload, event, context, caller))
    except Exception as exc:
        # Something may have run by now, so it is not asked again the long way; what follows is the same.
        from hookline.answer.failure import troubled

        return troubled(exc, event, caller, context.facts)


async def _asked(
    hooks: list[Hook],
    runner: Runner | None,
    payload: Json,
    event: str,
    context: HookContext,
    caller: str,
) -> CallerAnswer:
    try:
        # Not closed: what is in it is with the system, and to close it would write it to the disk.
        journal = cast("Journal", _Waiting(opened_journal()))
        return await recorded(journal, hooks, payload, event, context, caller)
    finally:
        if runner is not None:
            await runner.close()


def _done(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("a hook waits, and there is no event loop")


class _Waiting:
    """The journal of who has no event loop: a write is done when it returns, and so is a note."""

    def __init__(self, journal: SqliteJournal) -> None:
        self._journal = journal

    async def write(self, record: Begun | Ended) -> None:
        self._journal.put(record)

    def note(self, record: Called | Decided) -> None:
        self._journal.note(record)


def _runner(rows: Sequence[tuple[Json, bool | None]]) -> Runner | None:
    if all(row["kind"] == "python" for row, fits in rows if fits):
        return None
    from hookline.runners.sync import SyncRunner  # slow to load, and not for guards

    return SyncRunner()


def _live(row: Json, fits: bool, point: str, runner: Runner | None) -> Hook:
    kind = row["kind"] if fits else "not concerned"
    handler = _asked_when(row["when"] if fits else None, _KINDS[kind](row, cast("Runner", runner)))
    return Hook(
        name=row["name"],
        points=frozenset(row["points"]),
        handler=handler,
        kind=row["kind"],
        match=None if row["match"] is None and row["event"] is None else lambda _: fits,
        timeout=row["timeout"],
        on_error=OnError(row["follows"][point]),
        mode=Mode(row["mode"]),
        limits_itself=not row["inline"],
    )


def _asked_when(when: Json | None, handler: Handler) -> Handler:
    if when is None:
        return handler
    from hookline.claude.host import asked_when
    from hookline.hookfile.condition import condition

    return asked_when([condition(when)], handler)


# What processes need is not loaded where there are only guards.
def _command(row: Json, runner: Runner) -> Handler:
    from hookline.claude.host import command_of

    return command_of(row["params"], row["timeout"], runner)


def _shell(row: Json, runner: Runner) -> Handler:
    from hookline.claude.host import shell_of

    return shell_of(row["params"], row["timeout"], runner)


def _function(row: Json, _runner: Runner) -> Handler:
    if not _is_own(row):
        gc.enable()
    function = function_of(cast("HookDeclaration", SimpleNamespace(**row)))
    if row["inline"]:
        return cast("Handler", function)
    return _in_thread(function, row["timeout"])


def _in_thread(function: Callable[..., Any], timeout: float | None) -> Handler:
    """As `python_hook` has it called, and with the same words where it breaks."""
    from hookline.engine.threads import call_and_wait  # few are called in a thread

    def handler(ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
        answer = call_and_wait(function, ctx, hook_context, timeout=timeout)
        if not hasattr(answer.__class__, "__await__"):
            return answer
        # Few give something to await that do not look like it; those get a loop after all.
        import asyncio

        from hookline.handlers.python import in_time

        return asyncio.run(in_time(answer, timeout))

    return handler


def _never(_row: Json, _runner: Runner) -> Handler:
    """It stands at the point, and its `match` keeps it from being asked."""
    return lambda _ctx, _context: CONTINUE


_KINDS: Mapping[str, Callable[[Json, Runner], Handler]] = {
    "not concerned": _never,
    "command": _command,
    "shell": _shell,
    "python": _function,
}
