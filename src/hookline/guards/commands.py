"""Shell commands as data: those in the input of a tool, their words, and the expansion of braces and escapes in a word.

A part of a word that is only known at run time (a variable, the output of a command) is a hole in it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, cast

from hookline.engine.stdlib import dataclass, lazy_pattern

HOLE = "\ue000"
"""The placeholder in a word for a part that cannot be known."""
MOST_BRACED = 64
MOST_STEPS = 200_000
"""The steps one decision may take: a step reads or examines one sign, one word or one command."""

_COPIED = frozenset({"git", "sh", "bash", "dash"})
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash"})

# The programs that a pattern in a program's name may stand for.
_FITTED = ("git", "git-push", "git-send-pack", "bash", "sh", "dash", "rm", "tee", "cp", "mv", "touch")
_PATTERN = lazy_pattern(r"[*?@+!]|\[.+\]")
_EITHER = lazy_pattern(r"[@+!?*]\(([\w|.-]+)\)")

# The keys that agents use in the input of a shell tool.
KEYS = ("command", "cmd", "script", "shell_command", "commands", "argv", "code", "chars", "stdin", "input")
ARGUMENTS = ("args", "arguments")
FOLDERS = ("cwd", "workdir", "working_directory", "directory", "dir_path", "dir")

# Kinds of characters in a word: quoted, bare, a hole in quotes, a hole that may become several words, a word break.
QUOTED, BARE, HELD, OPEN, SPLIT = "q", "b", "H", "h", " "


# Not frozen: to make a frozen one takes four times as long, and a guard makes one for each word.
@dataclass()
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
    def program(self) -> str:
        """The name of the program that the word names, without its folder; of a pattern, the first that it fits."""
        name = program_name(self.text)
        if not self.text.startswith("/") or _PATTERN.search(name) is None or QUOTED in self.kinds:
            return name
        if not any(fnmatchcase(each, self.text.split("/")[-2]) for each in ("bin", "git-core")):
            return name
        if (either := _EITHER.fullmatch(name)) is not None:
            return either[1].partition("|")[0]
        return next((each for each in _FITTED if fnmatchcase(each, name)), name)

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


@dataclass(slots=True, kw_only=True)
class ShellCommand:
    """One simple command. `group` identifies its subshells; `fed` is true if it reads from a pipe.

    `added` are the variables it appends to, by `+=`.
    """

    words: tuple[Word, ...]
    assigned: tuple[tuple[str, Word], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    added: frozenset[str] = frozenset()
    fed: bool = False
    group: tuple[int, ...] = ()

    @property
    def program(self) -> str:
        """The name of the program it runs; empty if it runs none."""
        return self.words[0].program if self.words else ""

    @property
    def bodies(self) -> list[str]:
        """Its here-documents and here-strings."""
        return [each.body or each.target.text for each in self.redirects if each.body or each.sign == "<<<"]


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


def program_name(text: str) -> str:
    return text.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")


def argument_list(texts: Sequence[str], work: StepBudget) -> ShellCommand:
    """The command of a list of arguments, which no shell has parsed."""
    work.spend(len(texts))
    return ShellCommand(words=tuple(Word(text, QUOTED * len(text)) for text in texts))


def asked(payload: Any) -> Iterator[str | list[str]]:
    """Each command in a tool's input: a text for a shell, or a list of arguments."""
    if isinstance(payload, Mapping):
        given = cast("Mapping[str, Any]", payload)
        known = [key for key in KEYS if given.get(key)]
        # If the tool uses another key for its command, all values are searched.
        for key in known or [key for key in given if key not in FOLDERS]:
            if key == "commands" and isinstance(given[key], list):
                for item in cast("list[Any]", given[key]):
                    yield from asked(item)
            yield from _with_arguments(given[key], given) if known else asked(given[key])
    elif isinstance(payload, str):
        yield payload
    elif isinstance(payload, list):
        yield from _listed(cast("list[Any]", payload))


def _with_arguments(value: Any, given: Mapping[str, Any]) -> Iterator[str | list[str]]:
    more = next((given[key] for key in ARGUMENTS if given.get(key)), None)
    if not isinstance(value, str) or more is None:
        yield from asked(value)
        return
    words: list[Any] = cast("list[Any]", more) if isinstance(more, list) else [more]
    yield [value, *map(str, words)]
    yield " ".join([value, *map(str, words)])


def _listed(items: list[Any]) -> Iterator[str | list[str]]:
    if not all(isinstance(item, str | int | float) for item in items):
        for item in items:
            yield from asked(item)
        return
    words = [str(item) for item in items]
    yield words
    if any(" " in words[0] or word in ("&&", "||", ";", "|", "&") for word in words[:1] + words):
        # The list may hold lines, or one text in pieces, instead of arguments.
        yield "\n".join(words)
        yield " ".join(words)


def shell_aliases(commands: Iterable[ShellCommand]) -> dict[str, str]:
    """The aliases that commands define; also by `hash -p`, or as a link to git or a shell, or a copy of one."""
    found: dict[str, str] = {}
    for command in commands:
        name, words = command.program, command.words
        if name == "alias":
            pairs = (word.text.partition("=") for word in words[1:])
            found.update((name, value) for name, sign, value in pairs if sign)
        elif len(words) > 2 and (
            name in ("ln", "cp", "mv", "install") or (name == "hash" and "-p" in words[1].text)
        ):
            source, target = words[-2], words[-1]
            inner = {word.program for each in source.inner for word in each.words[1:]}
            given = {source.program, *inner} & _COPIED
            if given:
                found[target.program] = sorted(given)[0]
    return found


class WordDraft:
    """A word while it is read."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.kinds: list[str] = []
        self.inner: list[ShellCommand] = []

    def put(self, piece: str, kind: str) -> None:
        self.pieces.append(piece)
        self.kinds.append(kind * len(piece))

    def put_hole(self, *, quoted: bool) -> None:
        self.put(HOLE, HELD if quoted else OPEN)

    def put_value(self, value: str, work: StepBudget, *, quoted: bool) -> None:
        """Adds the value of a variable, which splits the word where it is not quoted."""
        for piece in re.split(r"(\s+|\ue000)", value):
            work.spend()
            if piece == HOLE:
                self.put_hole(quoted=quoted)
            elif piece.strip() or quoted:
                self.put(piece, QUOTED if quoted else BARE)
            elif piece:
                self.put(" ", SPLIT)


def joined(words: Sequence[Word]) -> Word:
    """The words as one, with spaces between them."""
    text = " ".join(word.text for word in words)
    kinds = QUOTED.join(word.kinds for word in words)
    return Word(text, kinds, tuple(each for word in words for each in word.inner))


class CommandDraft:
    """The command being read, at one level of nesting."""

    def __init__(self, group: tuple[int, ...] = ()) -> None:
        self.words: list[Word] = []
        self.assigned: list[tuple[str, Word]] = []
        self.added: set[str] = set()
        self.redirects: list[Redirect] = []
        self.fed = False
        self.group = group
        self.cases = [0]
        self.made: list[ShellCommand] = []

    def finish(self) -> ShellCommand | None:
        """Ends the command and begins the next; None if there is nothing in it."""
        command = None
        if self.words or self.assigned or self.redirects:
            command = ShellCommand(
                words=tuple(self.words),
                assigned=tuple(self.assigned),
                redirects=tuple(self.redirects),
                added=frozenset(self.added),
                fed=self.fed,
                group=self.group,
            )
            self.made.append(command)
        self.words, self.assigned, self.added, self.redirects, self.fed = [], [], set(), [], False
        return command


_ANSI_ESCAPE = lazy_pattern(
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


def unescaped(text: str) -> str:
    """The content of `$'...'`."""
    return _ANSI_ESCAPE.sub(_ansi_character, text)


def _ansi_character(found: re.Match[str]) -> str:
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
    for part in kinds.split(SPLIT):
        end = start + len(part)
        if part:
            work.spend()
            words += _unbraced(Word(text[start:end], part, inner), work)
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
