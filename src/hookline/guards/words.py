"""Words and commands of shell text, as data, and the expansion of braces and escapes in a word.

A part of a word that is only known at run time (a variable, the output of a command) is a hole in it.
"""

from __future__ import annotations

import itertools
import re
from functools import cached_property

from hookline.engine.classes import dataclass, field
from hookline.secret_names import lazy_pattern

HOLE = "\ue000"
"""The placeholder in a word for a part that cannot be known."""
MOST_BRACED = 64
MOST_STEPS = 200_000
"""The steps one decision may take: a step reads or examines one sign, one word or one command."""

# Kinds of characters in a word: quoted, bare, a hole in quotes, a hole that may become several words, a word break.
QUOTED, BARE, HELD, OPEN, SPLIT = "q", "b", "H", "h", " "


@dataclass(frozen=True)
class Word:
    """One word of a command; `kinds` has one letter per character, `inner` the commands substituted in it."""

    text: str
    kinds: str
    inner: tuple[ShellCommand, ...] = ()

    @cached_property
    def known(self) -> bool:
        return HOLE not in self.text

    @cached_property
    def bare(self) -> str:
        """The text without its holes."""
        return self.text.replace(HOLE, "")

    @cached_property
    def start(self) -> str:
        """The beginning of the word up to the first hole or pattern."""
        for at, (letter, kind) in enumerate(zip(self.text, self.kinds, strict=True)):
            if letter == HOLE or (kind == BARE and letter in "*?[{"):
                return self.text[:at]
        return self.text

    @cached_property
    def may_split(self) -> bool:
        return OPEN in self.kinds

    @cached_property
    def unquoted(self) -> bool:
        return self.kinds.strip(BARE) == ""

    def after(self, at: int) -> Word:
        return Word(self.text[at:], self.kinds[at:], self.inner)


@dataclass(slots=True)
class Redirect:
    """A redirection. `body` is the text of a here-document, set once it is read, after the command."""

    sign: str
    target: Word
    body: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCommand:
    """One simple command. `group` identifies its subshells; `fed` is true if it reads from a pipe."""

    words: tuple[Word, ...]
    assigned: tuple[tuple[str, Word], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    fed: bool = False
    group: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellScript:
    """The commands of a text, in order; `fault` is the reason if it could not be read to its end."""

    commands: tuple[ShellCommand, ...]
    fault: str | None = None
    holes: bool = False


class TooMuch(Exception):
    """A command is too long to be read in full. Guards refuse it, because the caller waits."""

    def __init__(self) -> None:
        super().__init__(
            "the command is too long, or nested too often, to be read in full; write it to a file or in parts"
        )


class StepBudget:
    """Counts the steps of one decision, over all texts it reads."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooMuch


def names(words: str) -> frozenset[str]:
    """The set of names in a text, for long tables."""
    return frozenset(words.split())


def word_of(text: str) -> Word:
    """A word of an argument list, which no shell has parsed."""
    return Word(text, QUOTED * len(text))


@dataclass(slots=True)
class WordDraft:
    """A word while it is read."""

    pieces: list[str] = field(default_factory=list[str])
    kinds: list[str] = field(default_factory=list[str])
    inner: list[ShellCommand] = field(default_factory=list[ShellCommand])

    def put(self, piece: str, kind: str) -> None:
        self.pieces.append(piece)
        self.kinds.append(kind * len(piece))


ANSI_ESCAPE = lazy_pattern(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_ANSI_LETTERS = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "v": "\v",
}


def ansi_escape(found: re.Match[str]) -> str:
    hexadecimal = found[1] or found[2] or found[3]
    if hexadecimal:
        return chr(min(int(hexadecimal, 16), 0x10FFFF))
    if found[4]:
        return chr(int(found[4], 8) & 0xFF)
    if found[5]:
        return chr(ord(found[5]) & 0x1F)
    return _ANSI_LETTERS.get(found[6], found[6])


def split_words(draft: WordDraft, work: StepBudget) -> list[Word]:
    text, kinds, inner = "".join(draft.pieces), "".join(draft.kinds), tuple(draft.inner)
    if not text:
        # An empty variable gives no word; '' gives one.
        return [Word("", "", inner)] if draft.pieces or inner else []
    words: list[Word] = []
    start = 0
    for end in (
        [*(at for at, kind in enumerate(kinds) if kind == SPLIT), len(text)]
        if SPLIT in kinds
        else [len(text)]
    ):
        if end > start:
            work.spend()
            words += _unbraced(Word(text[start:end], kinds[start:end], inner), work)
        start = end + 1
    return words


def _unbraced(word: Word, work: StepBudget) -> list[Word]:
    """The expansion of `{a,b}`."""
    done: list[Word] = []
    waiting = [word]
    while waiting:
        this = waiting.pop()
        span = None
        if "{" in this.text:
            work.spend(1 + len(this.text) // 4)  # each character is examined
            span = _brace(this)
        if span is None:
            done.append(this)
            continue
        if len(done) + len(waiting) > MOST_BRACED:
            return [Word(HOLE, OPEN, word.inner)]
        first, commas, last = span
        cuts = [first, *commas, last]
        for start, end in reversed(list(itertools.pairwise(cuts))):
            text = this.text[:first] + this.text[start + 1 : end] + this.text[last + 1 :]
            kinds = this.kinds[:first] + this.kinds[start + 1 : end] + this.kinds[last + 1 :]
            waiting.append(Word(text, kinds, this.inner))
        if len(waiting) > MOST_BRACED:
            return [Word(HOLE, OPEN, word.inner)]
    return done


def _brace(word: Word) -> tuple[int, list[int], int] | None:
    """The positions of the first expandable brace: its opening, its commas, its closing."""
    opened: list[tuple[int, list[int]]] = []
    best: tuple[int, list[int], int] | None = None
    for at, (letter, kind) in enumerate(zip(word.text, word.kinds, strict=True)):
        if kind != BARE:
            continue
        if letter == "{":
            opened.append((at, []))
        elif letter == "," and opened:
            opened[-1][1].append(at)
        elif letter == "}" and opened:
            start, commas = opened.pop()
            if commas and (best is None or start < best[0]):
                best = (start, commas, at)
    return best
