"""Who answers the questions of a run: a person where it asks, or at another terminal with the question's code.

The code is shown only where the question is shown to a person. So an agent that runs as the same user, and whose
process cannot be told from a person's any more, has nothing to answer with.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hookline.engine.record import Journal, Question, Verdict, VerdictKind, nobodys_verdict
from hookline.errors import UsageError
from hookline.journal.masking import Mask
from hookline.terminal import ask_here, err, show_asked, warn

if TYPE_CHECKING:
    from hookline.engine.lifecycle import Approver
    from hookline.journal.code import Code

POLL = 0.2
_TERMINAL = Path("/dev/tty")


def approver_of(
    word: str, journal: Journal, mask: Mask, agent: str | None, code_to: Path | None = None
) -> Approver | None:
    """The approver that `--ask` names; None refuses every question. A guarded `agent` above is nobody to ask.

    `code_to`: where the codes of questions are shown, if not at this terminal.
    """
    word = word or ("terminal" if sys.stdin.isatty() else "refuse")
    if word not in ("terminal", "journal", "refuse"):
        raise UsageError(f"--ask is {word!r}; known: terminal, journal, refuse")
    if code_to is not None:
        _refuse_readable(code_to)
    if word == "refuse":
        return None
    if agent:
        warn(
            f"questions are refused: hookline was called by an agent that it guards ({agent});"
            " start it in a terminal of your own"
        )
        return None
    place = code_to or _TERMINAL
    if word == "terminal":
        return partial(ask_here, mask, partial(_elsewhere, journal, place))
    try:
        os.close(_opened(place))
    except OSError:
        warn(
            "questions are refused: there is no terminal to show their codes at; run it at one, or with --code-to"
        )
        return None
    return partial(_ask_elsewhere, journal, mask, place)


async def _ask_elsewhere(journal: Journal, mask: Mask, place: Path, question: Question) -> Verdict:
    """Waits for an answer from another terminal: `hookline approve`, `reject` or `rewrite`, which show the question."""
    exact = mask.exact()
    reasons = "; ".join(f"{exact.text(reason.text)} [{reason.hook}]" for reason in question.reasons)
    err.print(f"waiting for a person: {reasons or question.point}", style="yellow", whole=True)
    if not str(question.point).endswith(".end"):  # an output is for nobody yet but the person who approves it
        show_asked(question, mask, err)
    coded, shown, code = await _with_code(journal, place, question)
    if code is None:
        warn(f"  it is refused: {place}, where its code should be shown, is gone")
        return nobodys_verdict(question)
    warn(f"  in another terminal: hookline approve {question.run_id}   (or reject, rewrite)")
    return await _answered(journal, coded, shown, code)


async def _elsewhere(journal: Journal, place: Path, question: Question) -> Awaitable[Verdict]:
    """Shows the code of a question that is asked here too; the answer from another terminal, to be waited for."""
    return _answered(journal, *await _with_code(journal, place, question))


async def _answered(journal: Journal, question: Question, shown: Question, code: Code | None) -> Verdict:
    """The answer from another terminal. A refusal needs no code; anything else without it does not count.

    `shown` is the question as a person sees it there; an answer to anything else does not count either.
    """
    import asyncio

    from hookline.journal.code import is_signed

    while True:
        found = journal.question(question.id)
        verdict = found.verdict if found is not None else None
        if verdict is not None:
            if code is not None and is_signed(code.key, shown, verdict):
                return verdict
            if verdict.kind is VerdictKind.REJECT:
                return verdict._replace(by=f"{verdict.by}, without the code")
            await journal.ask(question)
            warn("an answer without the code of this question does not count")
        await asyncio.sleep(POLL)


async def _with_code(
    journal: Journal, place: Path, question: Question
) -> tuple[Question, Question, Code | None]:
    """A question with a new code, and as a person sees it. The code is shown where only a person sees it, or is None."""
    from hookline.journal.code import new_code  # only for a question

    code = new_code()
    coded = question._replace(code=code.digest)
    # First, so that who has read the code can answer.
    shown = await journal.ask(coded)
    if _is_shown(
        place, f"  its code, for an answer from another terminal: {code.text}   (run {question.run_id})\n"
    ):
        return coded, shown, code
    return question, await journal.ask(question), None


def _is_shown(place: Path, line: str) -> bool:
    try:
        with open(_opened(place), "w") as file:
            file.write(line)
    except OSError:
        return False
    return True


def _opened(place: Path) -> int:
    return os.open(place, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK)


def _refuse_readable(place: Path) -> None:
    """Raise if this user can read what is written there: an agent runs as the same user."""
    try:
        with open(_opened(place), "wb", buffering=0) as file:
            if file.isatty():
                return
            owner = os.fstat(file.fileno()).st_uid
    except OSError as exc:
        raise UsageError(f"--code-to {place} cannot be written: {exc.strerror}") from exc
    if owner == os.getuid() or os.access(place, os.R_OK):
        raise UsageError(
            f"--code-to {place}: an agent of this run could read it; give a terminal, or a file of another user that"
            " this one can only write"
        )
