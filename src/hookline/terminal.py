"""What the commands share: consoles, the journal they open, records as JSON, and who answers questions."""

from __future__ import annotations

import asyncio
import getpass
import json
import sys
import threading
from typing import Any

from rich.console import Console
from rich.text import Text

from hookline.engine.record import Journal, Question, Record, Verdict, VerdictKind
from hookline.errors import UsageError
from hookline.journal.masking import Mask
from hookline.journal.user import open_journal, secrets_of
from hookline.journal.view import Line

__all__ = [
    "JournalApprover",
    "TerminalApprover",
    "err",
    "found_run",
    "open_journal",
    "out",
    "print_json",
    "record_json",
    "secrets_of",
    "show",
    "value_of",
]

out = Console(highlight=False, soft_wrap=True, markup=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)

POLL = 0.2


def show(line: Line, console: Console) -> None:
    console.print(Text(line.text, style=line.style), soft_wrap=True)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


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


def record_json(record: Record, mask: Mask) -> str:
    """A record as one line of JSON, masked."""
    kind = type(record).__name__.lower()
    return mask.json({"record": kind, **record._asdict()})


class JournalApprover:
    """Waits for a word from another terminal: `hookline approve`, `reject` or `rewrite`."""

    def __init__(self, journal: Journal, console: Console) -> None:
        self._journal = journal
        self._console = console

    async def __call__(self, question: Question) -> Verdict:
        self._console.print(f"waiting for a person: {_why(question)}", style="yellow")
        self._console.print(
            f"  in another terminal: hookline approve {question.run_id}   (or reject, rewrite)",
            style="yellow",
        )
        return await self.answered(question)

    async def answered(self, question: Question) -> Verdict:
        while True:
            found = self._journal.question(question.id)
            if found is not None and found.verdict is not None:
                return found.verdict
            await asyncio.sleep(POLL)


class TerminalApprover:
    """Asks at the terminal; a word from another terminal counts as well, whichever comes first."""

    def __init__(self, journal: Journal, console: Console, mask: Mask) -> None:
        self._elsewhere = JournalApprover(journal, console)
        self._console = console
        self._mask = mask

    async def __call__(self, question: Question) -> Verdict:
        tool = f" ({question.tool})" if question.tool else ""
        self._console.print(f"\n{question.point}{tool} needs your word", style="bold yellow")
        for reason in question.reasons:
            self._console.print(f"  {reason.hook}: {reason.text}")
        self._console.print(f"  {self._mask.json(question.value)}")
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[Verdict] = loop.create_future()
        threading.Thread(target=self._prompt, args=(loop, typed), daemon=True).start()
        elsewhere = asyncio.ensure_future(self._elsewhere.answered(question))
        try:
            await asyncio.wait({typed, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
            return typed.result() if typed.done() else elsewhere.result()
        finally:
            elsewhere.cancel()

    def _prompt(self, loop: asyncio.AbstractEventLoop, typed: asyncio.Future[Verdict]) -> None:
        verdict = None
        while verdict is None:
            verdict = self._asked()

        def settle(word: Verdict = verdict) -> None:
            if not typed.done():
                typed.set_result(word)

        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            pass  # the run is over

    def _asked(self) -> Verdict | None:
        by = getpass.getuser()
        try:
            word = self._line("approve, reject or rewrite? [a/r/w] ").strip().lower()
        except EOFError:
            return Verdict(VerdictKind.REJECT, "the terminal was closed", by=by)
        if word in ("a", "approve", "y", "yes"):
            return Verdict(VerdictKind.APPROVE, by=by)
        if word in ("r", "reject", "n", "no"):
            return Verdict(VerdictKind.REJECT, self._line("why? ").strip(), by=by)
        if word in ("w", "rewrite"):
            text = self._line("the new value, as JSON or plain text: ")
            return Verdict(VerdictKind.REWRITE, value=value_of(text), by=by)
        self._console.print("a, r or w", style="yellow")
        return None

    def _line(self, prompt: str) -> str:
        self._console.print(prompt, end="")
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")


def value_of(text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _why(question: Question) -> str:
    return "; ".join(f"{reason.text} [{reason.hook}]" for reason in question.reasons) or str(question.point)
