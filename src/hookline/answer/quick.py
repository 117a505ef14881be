"""The short way of `hookline answer`, and what both ways share: one event asked of its hooks, put on record, told.

It runs before and after every tool call of a foreign agent, so nothing slow is imported here (no asyncio, dataclasses,
yaml or pydantic). The hooks of an approved file are made of its compiled copy and asked by the same pipeline as ever,
without an event loop: a script, a command or a sync function is waited for, so that no coroutine ever waits and each
is done at its first step. Whatever is not plain (another kind of hook, no copy, no approval, anything wrong) goes the
long way, `full`, before anything is started; that decides alone.

Where hookline itself is in trouble, the agent is told a refusal where something is about to start.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from hookline.claude.answer import CallerAnswer, answer, trouble
from hookline.claude.events import CALLERS, meant, point_of
from hookline.claude.payload import context_of
from hookline.engine.context import Facts, HookContext
from hookline.engine.hook import Handler, Hook, Mode, OnError
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Begun, Decided, Ended, Journal
from hookline.engine.result import CONTINUE, HookAction, Reason
from hookline.errors import HooklineError, JournalError
from hookline.hookfile.compiler import OWN_GUARDS, copy_of
from hookline.hookfile.importer import function_of
from hookline.hookfile.trust import distrusted, nearest
from hookline.journal import open_journal, opened_journal
from hookline.journal.masking import storable

if TYPE_CHECKING:
    from hookline.engine.context import WorkflowContext
    from hookline.engine.hook import HookDeclaration
    from hookline.engine.result import HookResult
    from hookline.runners import Runner

LONG = "HOOKLINE_ANSWER_LONG"
"""The variable that has every call take the long way; for tests, which compare the two."""
_LONGEST = 4_000_000

Json = dict[str, Any]
T = TypeVar("T")


class _Asked(NamedTuple):
    event: str
    caller: str
    file: str | None


def let_go(arguments: list[str]) -> bytes | None:
    """End the process where the short way can answer; else what was read of stdin, for the long way."""
    asked = None if os.environ.get(LONG) else _usual_options(arguments)
    if asked is None:
        return None
    stdin = stdin_given()
    try:
        answer = _answer(asked, stdin)
    except Exception:
        # Nothing was decided or kept yet; what this is about is for the long way to say, and it will.
        answer = None
    if answer is not None:
        answer()
    return stdin


def stdin_given() -> bytes:
    return sys.stdin.buffer.read() if sys.stdin is not None else b""  # pyright: ignore[reportUnnecessaryComparison]


def _usual_options(words: list[str]) -> _Asked | None:
    """The options in the words, where they are of the usual kind; any other is for the real parser."""
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        key, value = (word, next(rest, "")) if word in ("--as", "--file") else ("event", word)
        if not value or value.startswith("-") or key in found:
            return None
        found[key] = value
    caller = found.get("--as", "claude")
    return _Asked(found.get("event", ""), caller, found.get("--file")) if caller in CALLERS else None


def _answer(asked: _Asked, stdin: bytes) -> Callable[[], None] | None:
    """Answers, once it is called; None where only the long way can."""
    payload = json.loads(stdin.removeprefix(b"\xef\xbb\xbf").decode())
    event = str(payload.get("hook_event_name") or asked.event)
    if event not in CALLERS[asked.caller]:
        return None
    rows = _rows(asked.file, payload)
    return None if rows is None else _answer_of_copy(rows, payload, event, asked.caller)


def _rows(named: str | None, payload: Json) -> list[Json] | None:
    if named is not None:
        file = Path(named)
    else:
        found = nearest(Path(str(payload.get("cwd") or os.getcwd())))
        if found is None or distrusted(found, os.environ):
            return None
        file = found
    if file.suffix not in (".yaml", ".yml", ".json") or not file.is_file():
        return None
    with open(file, "rb") as opened:
        content = opened.read(_LONGEST)
    return copy_of(file, content, os.environ)


class ForeignEvent(NamedTuple):
    """An event, the agent that tells of it, its JSON, and the same as hooks see it."""

    name: str
    caller: str
    payload: Json
    context: HookContext


async def recorded(journal: Journal, hooks: list[Hook], event: ForeignEvent) -> CallerAnswer:
    """The hooks' answer in the caller's words."""
    name, caller, payload, context = event
    facts = context.facts
    start = _begun(facts, name, caller, context.given.payload)
    ids = start.run_id, start.scope_id
    facts.run_id, facts.scope_id = ids
    await journal.write(start)
    pipeline = Pipeline(hooks, Recorder(journal))
    outcome = await pipeline.fire(context)
    said = answer(outcome, name, caller, given=payload)
    notes = [f"lost: {lost}" for lost in said.lost]
    if name not in CALLERS[caller] and not pipeline.at(facts.point):
        unknown = f"{name!r} is not a known event of {caller}, and no hook stands at {facts.point}"
        notes.append(f"{unknown}; {meant(name, caller)}")
        said = said._replace(stderr=f"{said.stderr}hookline: {notes[-1]}\n")
    for note in notes:
        journal.note(Decided(*ids, facts.point, time.time(), outcome.action, note=note))
    refused = outcome.action in (HookAction.BLOCK, HookAction.FAIL)
    status = Status.BLOCKED if refused else Status.OK
    await journal.write(Ended(*ids, start.scope, time.time(), status, outcome.output, outcome.reason or None))
    return said


def _begun(facts: Facts, event: str, caller: str, payload: Any) -> Begun:
    """The record of an event's beginning; it also names the run and the scope."""
    # An id may hold half a surrogate pair, and is then no key for a journal.
    run_id = storable(f"{caller}-{facts.session_id or os.getpid()}")
    scope_id = storable(f"{facts.call_id or event}-{time.time_ns():x}")
    scope = facts.point.scope if isinstance(facts.point, Point) else Scope.SESSION
    about = {"event": event, "tool": facts.current_tool, "agent": facts.agent}
    return Begun(run_id, scope_id, None, scope, facts.current_tool or event, time.time(), payload, about)


def tell(said: CallerAnswer) -> int:
    """Write it where the caller reads; the exit code that goes with it."""
    # Half a surrogate pair, which an event may carry and UTF-8 may not, becomes the escape that JSON has for it.
    sys.stdout.buffer.write(said.stdout.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
    sys.stderr.write(said.stderr)
    return said.exit_code


def troubled(exc: Exception, event: str, caller: str, facts: Facts | None) -> CallerAnswer:
    """The answer after an error of our own; to the caller a crash would be a yes."""
    if isinstance(exc, JournalError):
        return trouble(str(exc), event, caller)
    if isinstance(exc, HooklineError):
        return _kept_trouble(str(exc), event, caller, facts)
    import traceback

    traceback.print_exception(exc)
    message = f"a bug in hookline: {type(exc).__name__}: {exc}"
    return _kept_trouble(message, event, caller, facts)


def _kept_trouble(message: str, event: str, caller: str, facts: Facts | None) -> CallerAnswer:
    """The answer where no hook could be asked; on record, as every answer is."""
    said = trouble(message, event, caller)
    facts = facts or Facts(caller, point_of(event, caller))
    refused = said.exit_code != 1
    action, status = (HookAction.BLOCK, Status.BLOCKED) if refused else (HookAction.CONTINUE, Status.FAILED)
    start = _begun(facts, event, caller, None)
    reasons = (Reason("hookline", action, message),) if refused else ()
    ids = start.run_id, start.scope_id
    decided = Decided(*ids, facts.point, time.time(), action, reasons, note=f"no hook was called: {message}")
    try:
        with open_journal() as journal:
            _done(journal.write(start))
            journal.note(decided)
            _done(journal.write(Ended(*ids, start.scope, time.time(), status, None, message)))
    except Exception as exc:
        # The answer is owed, whatever becomes of its record.
        return said._replace(stderr=f"{said.stderr}hookline: not recorded: {exc}\n")
    return said


def _answer_of_copy(rows: Sequence[Json], payload: Json, name: str, caller: str) -> Callable[[], None] | None:
    """Asks the hooks of a compiled copy, answers and ends the process, once it is called; until then nothing has
    happened. None where a hook is concerned and not all that fit are plain."""
    event = ForeignEvent(name, caller, payload, context_of({**payload, "hook_event_name": name}, as_=caller))
    point = event.context.facts.point
    standing = [row for row in rows if point in row["points"] and row["mode"] != "off"]
    fitting = [row for row in standing if _fits(row, event.context.facts)]
    asked = fitting if any(_is_concerned(row, event.context) for row in fitting) else []
    if not all(row["plain"] for row in asked):
        return None
    runner = _runner(asked)
    hooks = [_live(row, row in fitting, row in asked, point, runner) for row in standing]

    def answer_and_exit() -> None:
        code = tell(_said(hooks, runner, event))
        if any(row["kind"] == "python" and not _is_own(row) for row in asked):
            # Somebody else's code may want to hear of the end.
            sys.exit(code)
        sys.stderr.flush()
        # Nothing is open any more that would have to be closed, and to take the interpreter down takes its time.
        os._exit(code)

    return answer_and_exit


def _fits(row: Json, facts: Facts) -> bool:
    """True if the hook is for this event and tool."""
    if row["event"] is not None:
        from hookline.claude.matchers import selector

        match = row["match"][0] if row["match"] else None
        return selector(cast("HookDeclaration", SimpleNamespace(params=row, match=match)))(facts)
    if row["match"] is None:
        return True
    from hookline.matcher import matcher

    return any(matcher(each)(facts) for each in row["match"])


def _is_concerned(row: Json, context: HookContext) -> bool:
    if row["when"] is None:
        return True
    from hookline.hookfile.condition import condition

    return condition(row["when"])(context)


def _is_own(row: Json) -> bool:
    return row["params"].get("module", "").startswith(OWN_GUARDS)


def _said(hooks: list[Hook], runner: Runner | None, event: ForeignEvent) -> CallerAnswer:
    try:
        return _done(_asked(hooks, runner, event))
    except Exception as exc:
        # Something may have run by now, so it is not asked again the long way; what follows is the same.
        return troubled(exc, event.name, event.caller, event.context.facts)


async def _asked(hooks: list[Hook], runner: Runner | None, event: ForeignEvent) -> CallerAnswer:
    try:
        # Not closed: what is in it is with the system, and to close it would write it to the disk.
        return await recorded(opened_journal(), hooks, event)
    finally:
        if runner is not None:
            await runner.close()


def _done(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("a hook waits, and there is no event loop")


def _runner(rows: Sequence[Json]) -> Runner | None:
    if all(row["kind"] == "python" for row in rows):
        return None
    from hookline.runners.process import ProcessRunner  # slow to load, and not for guards

    return ProcessRunner()


def _live(row: Json, fits: bool, asked: bool, point: str, runner: Runner | None) -> Hook:
    kind = row["kind"] if asked else "not concerned"
    return Hook(
        name=row["name"],
        points=frozenset(row["points"]),
        handler=_asked_when(row["when"] if asked else None, _KINDS[kind](row, cast("Runner", runner))),
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


# Guards need nothing of what starts processes, which is therefore loaded here.
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
    """It stands at the point, and its `match` or `when` keeps it from being asked."""
    return lambda _ctx, _context: CONTINUE


_KINDS: Mapping[str, Callable[[Json, Runner], Handler]] = {
    "not concerned": _never,
    "command": _command,
    "shell": _shell,
    "python": _function,
}
