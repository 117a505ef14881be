"""The terminal: consoles, tables, JSON lines, the tree of a run as it happens, and questions at the terminal."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from hookline.engine.plain import visible, visible_json
from hookline.engine.record import Journal, Question, Record, Verdict, VerdictKind
from hookline.errors import FileError, HooklineError, UsageError
from hookline.files import output
from hookline.journal.masking import Mask
from hookline.journal.view import Line, Tree
from hookline.secrets.text import without_secrets

if TYPE_CHECKING:
    import asyncio
    import logging


_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


class Console:
    """Writes lines to a stream; styles such as `bold red` only where the stream is a terminal.

    Of the text itself nothing reaches the terminal that it would obey, or not show: that is escaped.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        self._stderr = stderr

    @property
    def is_terminal(self) -> bool:
        if os.environ.get("FORCE_COLOR"):
            return True
        return sys.stderr.isatty() if self._stderr else output.isatty()

    @property
    def width(self) -> int:
        import shutil  # slow to load, and few commands fit lines to the terminal

        return shutil.get_terminal_size().columns

    def print(self, text: object = "", *, style: str = "", end: str = "\n", whole: bool = False) -> None:
        """`whole`: a person decides by the text, and nothing is hidden because of its looks."""
        shown = visible(str(text) if whole else without_secrets(str(text)))
        told = self._styled(shown, style) + end
        if not self._stderr:
            output.write(told)
            return
        # Where nobody can be told any more, the work goes on.
        with suppress(OSError):
            sys.stderr.write(told)
            sys.stderr.flush()

    def _styled(self, text: str, style: str) -> str:
        coloured = style and self.is_terminal and not os.environ.get("NO_COLOR")
        if not coloured or os.environ.get("TERM") == "dumb":
            return text
        codes = ";".join(_CODES[word] for word in style.split())
        # Each line by itself, so that a pager or a cut does not colour what follows.
        return "\n".join(f"\x1b[{codes}m{line}\x1b[0m" if line else line for line in text.split("\n"))


out = Console()
err = Console(stderr=True)


def warn(text: str) -> None:
    """Print a warning; the command goes on."""
    err.print(text, style="yellow")


def show(line: Line, console: Console) -> None:
    console.print(line.text, style=line.style)


def print_json(value: Any, **as_it_is: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, default=str)
    if (mask := Mask()).suspects(text):
        text = json.dumps(json.loads(mask.json(json.loads(text))), ensure_ascii=False)
    if as_it_is:
        text = json.dumps({**json.loads(text), **as_it_is}, ensure_ascii=False, default=str)
    _print_json_text(text)


def _print_json_text(text: str) -> None:
    output.write(visible_json(text) + "\n")


def _print_answer(text: str) -> None:
    """An agent's answer, which is not ours to change: in a file or a pipe it is as it is."""
    output.write((visible(text) if output.isatty() else text) + "\n")


def log_filter(shown: Callable[[str], str] = visible) -> Callable[[logging.LogRecord], bool]:
    """A filter for handlers of a log, by which its messages and tracebacks are as `shown` has them."""
    import logging  # slow to load

    def shows(record: logging.LogRecord) -> bool:
        record.msg, record.args = shown(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = shown(logging.Formatter().formatException(record.exc_info))
        return True

    return shows


_OF_RUNS = ("run", "agent", "began", "took", "hooks", "status")
_TO_THE_RIGHT = ("took", "hooks")


def print_runs(rows: Iterable[Sequence[str]]) -> None:
    """Runs below the names of their columns, as wide as they need."""
    listed = [_OF_RUNS, *(tuple(visible(cell).replace("\n", "\\n") for cell in row) for row in rows)]
    widths = [max(len(row[index]) for row in listed) for index in range(len(_OF_RUNS))]
    for number, row in enumerate(listed):
        cells = [
            cell.rjust(width) if name in _TO_THE_RIGHT else cell.ljust(width)
            for name, cell, width in zip(_OF_RUNS, row, widths, strict=True)
        ]
        out.print("  ".join(cells).rstrip(), style="bold" if number == 0 else "")


class Explained(NamedTuple):
    """A file explained: its head, its hooks by point, and notes; `value` is the same as JSON."""

    head: Sequence[str]
    hooks: Sequence[ExplainedHook]
    notes: Sequence[str]
    value: Mapping[str, Any]


class ExplainedHook(NamedTuple):
    """One hook under the heading of its point."""

    heading: str
    text: str
    source: str


def print_explained(explained: Explained, *, as_json: bool) -> None:
    if as_json:
        print_json(explained.value)
        return
    for line in explained.head:
        out.print(line)
    heading = None
    for hook in explained.hooks:
        if hook.heading != heading:
            heading = hook.heading
            out.print(f"\n{heading}", style="bold")
        out.print(f"  {hook.text}")
        if hook.source:
            out.print(f"     {hook.source}", style="dim")
    if not explained.hooks:
        out.print("\nno hooks")
    for note in explained.notes:
        out.print(f"\n{note}")


MISTAKE, WARNING = "mistake", "warning"
_WARNINGS = {
    *("declared-elsewhere", "missing-api-key", "not-approved"),
    *("not-enforced", "not-in-file", "several-agents", "shell-syntax"),
}
"""Kinds of problems that are warnings wherever they are found: the file is right, and may still not do what is meant."""


class Problem(NamedTuple):
    """One thing that `hookline check` found. A mistake fails the check; a warning only with `--strict`."""

    level: str
    code: str
    file: str
    line: int | None
    key: str | None
    message: str

    @classmethod
    def of(cls, found: HooklineError | str, file: str, level: str = MISTAKE) -> Problem:
        """A mistake, unless its kind is a warning; with WARNING it is one in any case. `file` is for those without one."""
        code = found.code if isinstance(found, HooklineError) else HooklineError.code
        if code in _WARNINGS:
            level = WARNING
        if level is WARNING and code == HooklineError.code:
            code = "note"
        if isinstance(found, FileError):
            return cls(level, code, found.file, found.line, found.key, found.message)
        return cls(level, code, file, None, None, str(found).removeprefix(f"{file}: "))

    def __str__(self) -> str:
        told = str(FileError(self.message, file=self.file, line=self.line, key=self.key))
        return f"warning: {told}" if self.level == WARNING else told


def problems_of(
    mistakes: Iterable[HooklineError | str], notes: Iterable[HooklineError | str], file: str
) -> list[Problem]:
    return [
        *(Problem.of(each, file, WARNING) for each in notes),
        *(Problem.of(each, file) for each in mistakes),
    ]


def found_run(journal: Journal, prefix: str) -> str:
    """The one run that starts with `prefix`; `last` is the newest."""
    if prefix == "last":
        newest = journal.runs(limit=1)
        if not newest:
            raise UsageError("there is no run in the journal yet")
        return newest[0].run_id
    found = journal.find(prefix)
    if not found:
        raise UsageError(f"there is no run {prefix!r} in the journal; `hookline runs` lists them")
    if len(found) > 1 and prefix not in found:
        raise UsageError(f"{prefix!r} could be {', '.join(found[:5])}; give more of it")
    return prefix if prefix in found else found[0]


def watcher(mask: Mask, *, json: bool, quiet: bool) -> Callable[[Record], None] | None:
    """Shows each record of a run as it comes: as JSON on standard output, or as lines of the tree."""
    if json:
        return lambda record: _print_json_text(
            mask.json({"record": type(record).__name__.lower(), **record._asdict()})
        )
    if quiet:
        return None
    tree = Tree(mask, width=max(err.width, 60))

    def watch(record: Record) -> None:
        for line in tree.lines(record):
            show(line, err)

    return watch


def print_result(value: Mapping[str, Any], text: str, *, json: bool) -> None:
    """The last line of a run, for a program or for a person; the answer itself is not ours to change."""
    if json:
        print_json({"record": "result", **value}, **{key: value[key] for key in ("result",) if key in value})
    else:
        _print_answer(text)


def refuse_mistakes(file: str, count: int) -> None:
    """Raise if a file has mistakes: one may turn a guard off, so nothing is run."""
    if count:
        raise UsageError(f"{file} has {'a mistake' if count == 1 else f'{count} mistakes'}; nothing was run")


async def ask_here(
    mask: Mask, elsewhere: Callable[[Question], Awaitable[Awaitable[Verdict]]], question: Question
) -> Verdict:
    """Asks at the terminal; an answer from another terminal counts as well, whichever comes first.

    `elsewhere` says what such an answer needs, and gives what waits for it.
    """
    import asyncio

    tool = f" ({question.tool})" if question.tool else ""
    err.print(f"\n{question.point}{tool} needs your approval", style="bold yellow")
    for reason in question.reasons:
        err.print(f"  {reason.hook}: {mask.exact().text(reason.text)}", whole=True)
    show_asked(question, mask, err)
    told = await elsewhere(question)
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[Verdict] = loop.create_future()
    threading.Thread(target=_prompt, args=(loop, typed), daemon=True).start()
    other = asyncio.ensure_future(told)
    try:
        await asyncio.wait({typed, other}, return_when=asyncio.FIRST_COMPLETED)
        return typed.result() if typed.done() else other.result()
    finally:
        other.cancel()


def show_asked(question: Question, mask: Mask, console: Console, head: str = "  ") -> None:
    """Show what a person is asked about: all of it but the secrets that are known, and how much these are."""
    exact = mask.exact()
    console.print(f"{head}{exact.json(question.value)}", whole=True)
    hidden = question.hidden + exact.hidden
    if hidden:
        console.print(f"  {hidden} characters of known secrets are hidden (*)", style="yellow")


def _prompt(loop: asyncio.AbstractEventLoop, typed: asyncio.Future[Verdict]) -> None:
    verdict = None
    while verdict is None:
        verdict = _asked()

    def settle(word: Verdict = verdict) -> None:
        if not typed.done():
            typed.set_result(word)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        pass  # the run is over


def _asked() -> Verdict | None:
    by = who(f"the asking terminal, {os.ttyname(0)}" if sys.stdin.isatty() else "standard input of the run")
    try:
        word = _line("approve, reject or rewrite? [a/r/w] ").strip().lower()
    except EOFError:
        return Verdict(VerdictKind.REJECT, "the terminal was closed", by=by)
    if word in ("a", "approve", "y", "yes"):
        return Verdict(VerdictKind.APPROVE, by=by)
    if word in ("r", "reject", "n", "no"):
        return Verdict(VerdictKind.REJECT, _line("why? ").strip(), by=by)
    if word in ("w", "rewrite"):
        text = _line("the new value, as JSON or plain text: ")
        try:
            return Verdict(VerdictKind.REWRITE, value=value_of(text), by=by)
        except UsageError as exc:
            warn(str(exc))
            return None
    warn("a, r or w")
    return None


def who(place: str) -> str:
    """Who says something, and from where: by the user's id, for variables may name anybody."""
    import pwd

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"user {os.getuid()}"
    return f"{name} at {place}"


def says_yes(prompt: str) -> bool:
    """True if the person at the terminal types yes."""
    try:
        return _line(prompt).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _line(prompt: str) -> str:
    err.print(prompt, end="")
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def interruptible(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """The first Ctrl-C or SIGTERM cancels the run and lets its end hooks finish; the next one ends those."""
    import logging

    from hookline.tasks import run_interruptible  # brings asyncio, which most commands start without

    if logging.lastResort is not None:  # warnings where no log is kept
        logging.lastResort.addFilter(log_filter())
    return run_interruptible(main, warn)


def value_of(text: str) -> Any:
    """JSON where it is JSON, else the text itself; UsageError for JSON that is cut off or wrong."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        if text.lstrip().startswith(("{", "[")):
            raise UsageError(f"this is not JSON: {exc}: {text!r}") from None
        return text
