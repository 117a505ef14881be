"""`hookline answer`: hookline as the hook of another agent. JSON on stdin, that agent's words on stdout.

To its caller exit code 2 means "refused", so its own trouble (no file, a broken one) is a refusal in the caller's
words where something is about to start, and exit code 1 with a message elsewhere. It is never a yes.

It runs before and after every tool call, so nothing slow is imported here (no asyncio, dataclasses, yaml or pydantic).
On the short way the hooks of an approved file are made of its compiled copy and asked by the same pipeline as ever,
without an event loop: a script, a command or a sync function is waited for, so that no coroutine ever waits and each
is done at its first step. Whatever is not plain (another kind of hook, no copy, no approval, anything wrong) goes the
long way before anything is started; that decides alone.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from hookline.claude.answer import CallerAnswer, answer, trouble
from hookline.claude.events import CALLERS, PROJECT_FOLDERS, fails_closed, meant, point_of, refuses
from hookline.claude.hooks import process_of, when_of
from hookline.claude.payload import context_of, event_named_in, payload_in
from hookline.claude.scope import answered_elsewhere, begun, ended, renamed
from hookline.claude.tools import kind_meant
from hookline.engine.context import Facts, HookContext, WorkflowContext
from hookline.engine.hook import Handler, Hook, Mode, OnError
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.plain import visible
from hookline.engine.point import Status
from hookline.engine.record import Decided, Ended, Journal
from hookline.engine.result import CONTINUE, HookAction, HookResult, Reason
from hookline.errors import HooklineError, JournalError, UsageError
from hookline.files import fix, fixed, output, write_all
from hookline.hookfile.compiler import copy_of, copy_place, is_forged, keep_copy
from hookline.hookfile.importer import function_of, is_ready_guard
from hookline.hookfile.person import note_client
from hookline.hookfile.sources import held, is_machine
from hookline.hookfile.trust import FILE, refuse_changed
from hookline.journal import open_journal

if TYPE_CHECKING:
    from hookline.runners import Runner

LONG = "HOOKLINE_ANSWER_LONG"
"""The variable that has every call take the long way; for tests, which compare the two."""
_LONGEST = 4_000_000
_REFUSED = 2  # the exit code that every caller takes for a no
_COPIED = (".yaml", ".yml", ".json")
_FORGED = "does not carry your key, so hookline did not make it for you; it was not used, and the file itself was read"

Json = dict[str, Any]
Row = Any
"""A hook of a compiled copy: what its declaration says, by the same names, and what was found out about it."""
T = TypeVar("T")


class _Asked(NamedTuple):
    event: str
    caller: str
    files: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    once: bool = False
    within: int = 0


class ForeignEvent(NamedTuple):
    """An event, the agent that tells of it, its JSON, and the same as hooks see it."""

    name: str
    caller: str
    payload: Json
    context: HookContext


def main(words: list[str]) -> int:
    """Answer one event; the exit code, unless the short way has ended the process."""
    usual = None if os.environ.get(LONG) else _usual_options(words)
    asked = usual or _options(words)
    if asked.within:
        # To be killed is refused by the entry that has this option; for a client that gave up waiting it is a yes.
        import_module("_signal").alarm(asked.within)  # `signal` itself takes longer to load
    output.take()
    stdin = sys.stdin.buffer.read()
    event = _event_in(stdin, asked)
    if asked.once and event is not None:
        # Where that cannot be told, it is asked again; whatever is wrong will be said there.
        with suppress(OSError, HooklineError):
            if answered_elsewhere(event.context.facts, event.name, event.caller, asked.files):
                return 0
    # Where it cannot be noted, the journal, in the same folder, says why.
    with suppress(OSError):
        note_client(os.environ)
    try:
        answer_and_exit = _short_way(asked, event) if usual and event is not None else None
    except Exception:
        # Nothing was decided or kept yet; what this is about is for the long way to say, and it will.
        answer_and_exit = None
    if answer_and_exit is not None:
        answer_and_exit()
    gc.enable()
    name = asked.event or (event.name if event is not None else event_named_in(stdin))
    facts = event.context.facts if event is not None else None
    return _tell(_apart(lambda: _long_way(asked, stdin), name, asked.caller, facts), name, asked.caller)


def _usual_options(words: list[str]) -> _Asked | None:
    """The options in the words, where they are of the usual kind; any other is for the real parser."""
    keys = ("event", "--as", "--file", "--content", "--within")
    found: dict[str, tuple[str, ...]] = dict.fromkeys(keys, ())
    once = "--once" in words
    rest = iter([word for word in words if word != "--once"])
    for word in rest:
        key, value = (word, next(rest, "")) if word.startswith("--") else ("event", word)
        is_twice = key not in ("--file", "--content") and found.get(key)
        if key not in found or not value or value.startswith("-") or is_twice:
            return None
        found[key] += (value,)
    caller, within = "".join(found["--as"]) or "claude", "".join(found["--within"]) or "0"
    if caller not in CALLERS or not within.isdecimal():
        return None
    return _Asked("".join(found["event"]), caller, found["--file"], found["--content"], once, int(within))


def _options(words: list[str]) -> _Asked:
    import argparse

    parser = argparse.ArgumentParser(
        prog="hookline answer",
        description="Act as a hook of another agent: its event as JSON on stdin, the answer on stdout.",
    )
    parser.add_argument("event", nargs="?", default="", help="the event, if the JSON does not name it")
    parser.add_argument(
        "--as", dest="caller", choices=sorted(CALLERS), default="claude", help="the agent that calls"
    )
    searched = f"the user's, and the nearest {FILE} from the client's project folder or the event's upward"
    parser.add_argument(
        "--file",
        dest="files",
        metavar="FILE",
        action="append",
        default=[],
        help=f"a hook file, besides the machine's [default: {searched}]",
    )
    # For the service: what each --file was when it began, as JSON. One that has changed must be approved.
    parser.add_argument("--content", dest="contents", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument(
        "--once",
        action="store_true",
        help="say nothing where another entry was asked at the same time and has answered",
    )
    parser.add_argument("--within", type=int, default=0, help="the seconds after which this process is ended")
    return _Asked(**vars(parser.parse_args(words)))


def _event_in(stdin: bytes, asked: _Asked) -> ForeignEvent | None:
    """The event on stdin; None if it cannot be read, which is for the long way to say."""
    try:
        payload = payload_in(stdin, asked.event, asked.caller)
        return _event(payload, str(payload.get("hook_event_name") or asked.event), asked.caller)
    except Exception:
        return None


def _event(payload: Json, name: str, caller: str) -> ForeignEvent:
    named = {**payload, "hook_event_name": name}
    return ForeignEvent(name, caller, payload, context_of(named, as_=caller, project=_project(caller)))


def _project(caller: str) -> str | None:
    """The folder that the client was started in, where it says so: a session may have changed its own."""
    return os.environ.get(PROJECT_FOLDERS.get(caller, "")) or None


def _files(asked: _Asked, payload: Json) -> list[Path]:
    """The files that were named, or those that are found, with the machine's."""
    folders = [each for each in (_project(asked.caller), str(payload.get("cwd") or os.getcwd())) if each]
    found = held(None if asked.files else folders, os.environ, asked.files, option="--file")
    for file, content in zip(asked.files, asked.contents, strict=False):
        if known := json.loads(content):
            refuse_changed(Path(file), known, os.environ, option="--hooks when the service starts")
    if not found:
        raise UsageError(f"there is no {FILE} in {folders[0]} or above it; write one, or name it with --file")
    return [Path(each.file) for each in found]


def _apart(
    work: Callable[[], CallerAnswer], event: str, caller: str, facts: Facts | None, *, at_once: bool = False
) -> CallerAnswer:
    """The answer of work that calls somebody else's code, done in a process that this code may end without ending us."""
    from hookline.engine.fork import in_fork  # not for ready guards

    try:
        return CallerAnswer(*json.loads(in_fork(lambda: json.dumps(work()).encode(), at_once=at_once)))
    except Exception as exc:
        return _troubled(exc, event, caller, facts)


def _long_way(asked: _Asked, stdin: bytes) -> CallerAnswer:
    import asyncio

    name = asked.event or event_named_in(stdin)
    facts: Facts | None = None
    try:
        payload = payload_in(stdin, name, asked.caller)
        name = str(payload.get("hook_event_name") or name)
        event = _event(payload, name, asked.caller)
        facts = event.context.facts
        return asyncio.run(_answered(asked, event))
    except Exception as exc:
        return _troubled(exc, name, asked.caller, facts)


async def _answered(asked: _Asked, event: ForeignEvent) -> CallerAnswer:
    from hookline.hookfile.attach import each_once
    from hookline.runners.local import LocalRunner

    runner = LocalRunner()
    try:
        files = _files(asked, event.payload)
        forged = [str(copy_place(each, os.environ)) for each in files if is_forged(each, os.environ)]
        hooks, _ = each_once(hook for file in files for hook in _loaded(file, runner))
        unknown = _unknown(event, hooks)
        if unknown is not None and refuses(event.name, event.caller):
            raise UsageError(unknown)
        with open_journal() as journal:
            return await _recorded(journal, hooks, event, [f"{each} {_FORGED}" for each in forged])
    finally:
        await runner.close()


def _unknown(event: ForeignEvent, hooks: Sequence[Hook]) -> str | None:
    """A message about an event that nobody knows and no hook is for; None for any other."""
    name, caller, point = event.name, event.caller, event.context.facts.point
    if name in CALLERS[caller] or any(point in hook.points and hook.mode is not Mode.OFF for hook in hooks):
        return None
    return f"{name!r} is not a known event of {caller}, and no hook stands at {point}; {meant(name, caller)}"


def _loaded(file: Path, runner: "Runner") -> list[Hook]:
    """The hooks of a file, and a copy of it for the next call."""
    from hookline.hookfile.attach import load_hooks

    try:
        content = _content(file) if file.suffix in _COPIED else None
    except OSError:
        content = None  # reading it as a hook file says why
    if content is not None:
        fix(file, content)  # what is copied is what was read
    found = load_hooks(str(file), runner)
    if found.problems:
        raise found.problems[0]
    if content is not None and copy_of(file, content, os.environ) is None:
        keep_copy(file, content, found, os.environ)
    return found.hooks


def _content(file: Path) -> bytes:
    known = fixed(file)
    if known is not None:
        return known
    with open(file, "rb") as opened:
        return opened.read(_LONGEST + 1)


def _short_way(asked: _Asked, event: ForeignEvent) -> Callable[[], None] | None:
    """Asks the hooks of a compiled copy, answers and ends the process, once it is called; until then nothing has
    happened. None where only the long way can: there is no copy, or a hook is concerned and not all that fit are plain."""
    if event.name not in CALLERS[event.caller]:
        return None
    copies = [_rows(file) for file in _files(asked, event.payload)]
    if None in copies:
        return None
    rows = _each_once([row for copy in copies for row in copy or ()])
    if rows is None:
        return None
    point = event.context.facts.point
    standing = [row for row in rows if point in row.points and row.mode != "off"]
    fitting = [row for row in standing if _fits(row, event.context.facts)]
    for row in fitting:
        row.met = when_of(row)
    met = any(row.met is None or row.met(event.context) for row in fitting)
    concerned = fitting if met else []
    if not all(row.plain for row in concerned):
        return None
    runner = _runner(concerned)
    hooks = [_live(row, row in fitting, row in concerned, point, runner) for row in standing]

    def answer_and_exit() -> None:
        foreign = [row for row in concerned if not is_ready_guard(row.params)]
        if foreign:
            # Somebody else's Python may want to hear of the end.
            at_once = all(row.kind != "python" for row in foreign)
            name, facts = event.name, event.context.facts
            said = _apart(lambda: _said(hooks, runner, event), name, event.caller, facts, at_once=at_once)
        else:
            said = _said(hooks, runner, event)
        code = _tell(said, event.name, event.caller)
        # Nothing is open any more that would have to be closed, and to take the interpreter down takes its time.
        os._exit(code)

    return answer_and_exit


def _rows(file: Path) -> list[Row] | None:
    if file.suffix not in _COPIED or not file.is_file():
        return None
    rows = copy_of(file, _content(file), os.environ)
    last_word = is_machine(file)
    return None if rows is None else [_row(file, row, last_word) for row in rows]


def _row(file: Path, row: Json, last_word: bool) -> Row:
    # The copy is of the content; by which path it was read then may be another.
    source = f"{file}:{row['source'].rpartition(':')[2]}"
    return SimpleNamespace(**{**row, "source": source}, last_word=last_word)


def _each_once(rows: list[Row]) -> list[Row] | None:
    """The rows without those of the same hook in a later file; None where its match is another there."""
    found: dict[Any, Row] = {}
    if any(found.setdefault(row.same or id(row), row).match != row.match for row in rows):
        return None
    return list(found.values())


async def _recorded(
    journal: Journal, hooks: list[Hook], event: ForeignEvent, notes: Sequence[str] = ()
) -> CallerAnswer:
    """The hooks' answer in the caller's words."""
    name, caller, payload, context = event
    facts = context.facts
    start = begun(facts, name, caller, context.given.payload)
    ids = start.run_id, start.scope_id
    facts.run_id, facts.scope_id = ids
    await journal.write(start)
    pipeline = Pipeline(hooks, Recorder(journal))
    outcome = await pipeline.fire(context)
    said = answer(outcome, name, caller, given=payload)
    last = ended(start, facts, outcome, refused=said.refused) or renamed(start, facts, outcome)
    unknown = _unknown(event, hooks)
    told = [*notes, unknown] if unknown is not None else [*notes]
    for hook in pipeline.at(facts.point) if facts.current_tool else ():
        kind = kind_meant(hook.match_text, caller)
        fits = hook.match is None or hook.match(facts)
        if kind is not None and facts.tool_kind in kind.split("|") and not fits:
            name_match = f"hook {hook.name}: match {hook.match_text!r} fits no tool of {caller}"
            told.append(f"{name_match}; match: kind:{kind} fits {facts.current_tool}")
    for note in (*(f"lost: {lost}" for lost in said.lost), *told):
        journal.note(Decided(*ids, facts.point, time.time(), outcome.action, note=note))
    if last is not None:
        await journal.write(last)
    try:
        journal.flush()  # what could not be stored yet, because others were writing
    except JournalError as exc:
        told.append(f"not recorded: {exc}")
    return said._replace(stderr="".join([said.stderr, *(f"hookline: {each}\n" for each in told)]))


def _tell(said: CallerAnswer, event: str, caller: str) -> int:
    """Write it where the caller reads; the exit code that goes with it, also where it cannot be written."""
    # Half a surrogate pair, which an event may carry and UTF-8 may not, becomes the escape that JSON has for it.
    output.write_bytes(said.stdout.encode("utf-8", "backslashreplace"))
    told = said.stderr
    if output.lost:
        # An answer that is lost would be taken for a yes.
        why = output.fault or "its reader has gone"
        told += f"hookline: standard output cannot be written: {why}; the answer was {said.stdout.strip()}\n"
    with suppress(OSError):
        write_all(2, visible(told).encode("utf-8", "backslashreplace"))
    if not output.lost:
        return said.exit_code
    return _REFUSED if said.refused or fails_closed(event, caller) else 1


def _troubled(exc: Exception, event: str, caller: str, facts: Facts | None) -> CallerAnswer:
    """The answer after an error of our own, where no hook could be asked; to the caller a crash would be a yes.

    It is on record, as every answer is, unless the record itself is the trouble.
    """
    message = str(exc)
    if not isinstance(exc, HooklineError):
        import traceback

        sys.stderr.write(visible("".join(traceback.format_exception(exc))))
        message = f"a bug in hookline: {type(exc).__name__}: {exc}"
    said = trouble(message, event, caller)
    if isinstance(exc, JournalError):
        return said
    facts = facts or Facts(caller, point_of(event, caller))
    refused = said.exit_code != 1
    action, status = (HookAction.BLOCK, Status.BLOCKED) if refused else (HookAction.CONTINUE, Status.FAILED)
    start = begun(facts, event, caller, None)
    reasons = (Reason("hookline", action, message),) if refused else ()
    ids = start.run_id, start.scope_id
    decided = Decided(*ids, facts.point, time.time(), action, reasons, note=f"no hook was called: {message}")
    try:
        with open_journal() as journal:
            _done(journal.write(start))
            journal.note(decided)
            _done(journal.write(Ended(*ids, start.scope, time.time(), status, None, message)))
    except Exception as failure:
        # The answer is owed, whatever becomes of its record.
        return said._replace(stderr=f"{said.stderr}hookline: not recorded: {failure}\n")
    return said


def _fits(row: Row, facts: Facts) -> bool:
    """True if the hook is for this event and tool."""
    if "event" in row.params:
        from hookline.claude.matchers import selector

        return selector(row)(facts)
    if row.match is None:
        return True
    from hookline.matcher import matcher

    return matcher(row.match)(facts)


def _said(hooks: list[Hook], runner: "Runner | None", event: ForeignEvent) -> CallerAnswer:
    try:
        try:
            # Not closed: what is in it is with the system, and to close it would write it to the disk.
            return _done(_recorded(open_journal(), hooks, event))
        finally:
            if runner is not None:
                _done(runner.close())
    except Exception as exc:
        # Something may have run by now, so it is not asked again the long way; what follows is the same.
        return _troubled(exc, event.name, event.caller, event.context.facts)


def _done(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("a hook waits, and there is no event loop")


def _runner(rows: Sequence[Row]) -> "Runner | None":
    if all(row.kind == "python" for row in rows):
        return None
    from hookline.runners.process import ProcessRunner  # slow to load, and not for guards

    return ProcessRunner()


def _live(row: Row, fits: bool, asked: bool, point: str, runner: "Runner | None") -> Hook:
    handler: Handler = _not_concerned
    if asked:
        handler = _function(row) if row.kind == "python" else process_of(row, cast("Runner", runner))
    return Hook(
        name=row.name,
        points=frozenset(row.points),
        handler=handler,
        kind=row.kind,
        match=None if row.match is None and "event" not in row.params else lambda _: fits,
        when=row.met if fits else None,
        match_text=row.match,
        timeout=row.timeout,
        on_error=OnError(row.follows[point]),
        mode=Mode(row.mode),
        source=row.source,
        limits_itself=not row.inline,
        last_word=row.last_word,
    )


def _not_concerned(_ctx: WorkflowContext | None, _context: HookContext, /) -> HookResult:
    """The handler of a hook that stands at the point, and whose `match` or `when` keeps it from being asked."""
    return CONTINUE


def _function(row: Row) -> Handler:
    if not is_ready_guard(row.params):
        gc.enable()
    function = function_of(row)
    return cast("Handler", function) if row.inline else _in_thread(function, row.timeout)


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
