"""Shell text read into the commands it would run, without running any: who asks is a guard that must decide.

Every command counts, also those in subshells, substitutions, functions and branches that may never be taken.
What cannot be known before it runs (a variable, the output of a command) is a hole in a word.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from functools import cached_property

from hookline.engine.classes import dataclass, field
from hookline.guards.patterns import compiled_later

HOLE = "\ue000"
"""Stands in a word for what cannot be known."""

# No shell on Linux takes a longer text as an argument.
LONGEST = 131_072
DEEPEST = 25
MOST_BRACED = 64
MOST_FILLED_IN = 200_000
MOST_STEPS = 200_000
"""What one decision may take: a step is one sign, one word or one command, read or looked at."""

# Looking at so many characters takes as long as a step.
_CHARACTERS_A_STEP = 16

# What a character of a word is: quoted, bare, a hole in quotes, a hole that may become several words.
_QUOTED, _BARE, _HELD, _OPEN, _SPLIT = "q", "b", "H", "h", " "


@dataclass(frozen=True)
class Word:
    """One word of a command; `kinds` has a letter for each of its characters. `inner` are commands in it."""

    text: str
    kinds: str
    inner: tuple[Command, ...] = ()

    @cached_property
    def known(self) -> bool:
        return HOLE not in self.text

    @cached_property
    def bare(self) -> str:
        """The text without its holes."""
        return self.text.replace(HOLE, "")

    @cached_property
    def start(self) -> str:
        """What it begins with whatever the holes and patterns in it become."""
        for at, (letter, kind) in enumerate(zip(self.text, self.kinds, strict=True)):
            if letter == HOLE or (kind == _BARE and letter in "*?[{"):
                return self.text[:at]
        return self.text

    @cached_property
    def may_split(self) -> bool:
        return _OPEN in self.kinds

    @cached_property
    def unquoted(self) -> bool:
        return self.kinds.strip(_BARE) == ""

    def after(self, at: int) -> Word:
        return Word(self.text[at:], self.kinds[at:], self.inner)


@dataclass(slots=True)
class Redirect:
    """`body` is a here-document's text; it is read after its command, so it is filled in later."""

    sign: str
    target: Word
    body: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One simple command. `group` tells which subshells it is in; `fed` that a pipe is its input."""

    words: tuple[Word, ...]
    assigned: tuple[tuple[str, Word], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    fed: bool = False
    group: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a text would run, in the order it is written; `fault` says why it could not be read to its end."""

    commands: tuple[Command, ...]
    fault: str | None = None
    holes: bool = False


class TooMuch(Exception):
    """A command that is too long to be read in full. Who asked is waiting, so that is refused, and never let through."""

    def __init__(self) -> None:
        super().__init__(
            "the command is too long, or nested too often, to be read in full; write it to a file or in parts"
        )


class Work:
    """Counts the steps of one decision, over every text that it reads."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooMuch


def read(
    text: str, variables: Mapping[str, str] | None = None, *, depth: int = 0, work: Work | None = None
) -> Script:
    """The commands of a text. With `variables`, those are filled in and all others are empty.

    TooMuch where that takes more steps than `work` has left.
    """
    work = work or Work()
    work.spend(1 + len(text) // _CHARACTERS_A_STEP)
    reader = _Reader(text, variables, depth, work)
    try:
        reader.commands(_Frame(), closed_by=None)
    except _Unreadable as exc:
        reader.fault = reader.fault or str(exc)
    return Script(commands=tuple(reader.found), fault=reader.fault, holes=reader.holes)


def names(words: str) -> frozenset[str]:
    """The names in a text; a long table reads better so."""
    return frozenset(words.split())


def word_of(text: str) -> Word:
    """A word of an argument list, which no shell has touched."""
    return Word(text, _QUOTED * len(text))


class _Unreadable(Exception):
    """The text ends inside something."""


class _Frame:
    """The command being read, in one level of nesting."""

    def __init__(self, group: tuple[int, ...] = ()) -> None:
        self.words: list[Word] = []
        self.assigned: list[tuple[str, Word]] = []
        self.redirects: list[Redirect] = []
        self.fed = False
        self.group = group
        self.cases = [0]
        self.made: list[Command] = []


@dataclass(slots=True)
class _Draft:
    """A word being read."""

    pieces: list[str] = field(default_factory=list[str])
    kinds: list[str] = field(default_factory=list[str])
    inner: list[Command] = field(default_factory=list[Command])

    def put(self, piece: str, kind: str) -> None:
        self.pieces.append(piece)
        self.kinds.append(kind * len(piece))


# Words that only give a command its place; what follows them is the command.
_PLACES = names("! if then else elif while until do { } fi done esac")
_PLAIN = compiled_later(r"[\w./:=,@%+-]+")
_IN_QUOTES = compiled_later(r'[^"\\$`\ue000]+')
_IN_BRACES = compiled_later(r"[^}\"'\\$`\ue000]+")
_ASSIGNMENT = compiled_later(r"([A-Za-z_]\w*)(?:\[[^\]\ue000]{0,200}\])?\+?=")
_VARIABLE = compiled_later(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_DEFAULT = compiled_later(r"([A-Za-z_]\w*):?[-=](.*)", re.DOTALL)
_REDIRECT = compiled_later(r"&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<|>")
_OPERATOR = compiled_later(r";;&|;;|;&|;|&&|&|\|\||\|&|\|")
_ENDS = frozenset(" \t\n;&|()<>")
_ANSI = compiled_later(
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
_ANSI_END = compiled_later(r"(?:[^'\\]|\\.)*'", re.DOTALL)
_EXPANDS = compiled_later(r"[\\$`]")


class _Reader:
    """Goes over a text once, from left to right."""

    def __init__(self, text: str, variables: Mapping[str, str] | None, depth: int, work: Work) -> None:
        self.text = text
        self.work = work
        self.at = 0
        self.variables = variables
        self.depth = depth
        self.found: list[Command] = []
        self.fault: str | None = None
        self.holes = False
        self._waiting: list[tuple[Redirect, str, bool, bool]] = []
        self._groups = 0
        self._sums = 0
        self._room = MOST_FILLED_IN

    def commands(self, frame: _Frame, *, closed_by: str | None) -> list[Command]:
        """Read commands up to what closes this level; they are in `found`, and this level's are given back."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Unreadable("it is nested too deep")
        text, size = self.text, len(self.text)
        while self.at < size:
            self.work.spend()
            letter = text[self.at]
            if letter in " \t":
                self.at += 1
            elif letter == "\n":
                self.at += 1
                self._end(frame)
                self._bodies()
            elif letter == "#":
                end = text.find("\n", self.at)
                self.at = size if end < 0 else end
            elif letter in ";|" or (letter == "&" and not text.startswith("&>", self.at)):
                self._operator(frame)
            elif letter == "(":
                self._open(frame)
            elif letter == ")":
                if self._close(frame, closed_by):
                    break
            elif letter in "<>&" and not text.startswith(("<(", ">("), self.at):
                self._redirect(frame)
            else:
                self._words(frame)
        else:
            if closed_by is not None:
                raise _Unreadable(f"a {closed_by!r} is missing")
        self._end(frame)
        self._bodies()
        self.depth -= 1
        return frame.made

    def _operator(self, frame: _Frame) -> None:
        sign = _OPERATOR.match(self.text, self.at)
        assert sign is not None
        self._end(frame)
        frame.fed = sign[0] in ("|", "|&")
        self.at = sign.end()

    def _open(self, frame: _Frame) -> None:
        fed = frame.fed and not frame.words
        self._end(frame)
        frame.fed = fed
        if self.text.startswith("((", self.at):
            self._sums += 1
        frame.cases.append(0)
        self._groups += 1
        frame.group = (*frame.group, self._groups)
        if len(frame.group) > 200:
            raise _Unreadable("it is nested too deep")
        self.at += 1

    def _close(self, frame: _Frame, closed_by: str | None) -> bool:
        self._end(frame)
        self.at += 1
        if frame.cases[-1] > 0:
            return False  # the end of a pattern of `case`
        if len(frame.cases) > 1:
            frame.cases.pop()
            frame.group = frame.group[:-1]
            if self._sums and self.text.startswith(")", self.at):
                self._sums -= 1
            return False
        if closed_by is None:
            self.fault = self.fault or "a ')' is closed that was not opened"
        return closed_by is not None

    def _end(self, frame: _Frame) -> None:
        if frame.words or frame.assigned or frame.redirects:
            self.work.spend(2)
            made = Command(
                words=tuple(frame.words),
                assigned=tuple(frame.assigned),
                redirects=tuple(frame.redirects),
                fed=frame.fed,
                group=frame.group,
            )
            self.found.append(made)
            frame.made.append(made)
        frame.words, frame.assigned, frame.redirects, frame.fed = [], [], [], False

    def _words(self, frame: _Frame) -> None:
        for word in self._word():
            first = not frame.words
            if first and not frame.assigned and word.unquoted and word.text in _PLACES:
                if word.text == "esac":
                    frame.cases[-1] = max(0, frame.cases[-1] - 1)
                continue
            if first and word.unquoted and word.text == "case":
                frame.cases[-1] += 1
            assignment = _ASSIGNMENT.match(word.text) if first else None
            if assignment and word.kinds.startswith(_BARE * (assignment.end() - 1)):
                frame.assigned.append((assignment[1], word.after(assignment.end())))
            else:
                frame.words.append(word)

    def _redirect(self, frame: _Frame) -> None:
        sign = _REDIRECT.match(self.text, self.at)
        assert sign is not None
        self.at = sign.end()
        if self._sums and sign[0] in ("<<", "<<-"):
            return  # a shift inside (( ))
        if frame.words and frame.words[-1].text.isdigit() and self.text[sign.start() - 1].isdigit():
            frame.words.pop()
        while self.text.startswith((" ", "\t", "\\\n"), self.at):
            self.at += 2 if self.text[self.at] == "\\" else 1
        targets = self._word() if self.at < len(self.text) and self.text[self.at] not in "\n;|" else []
        target = targets[0] if targets else Word("", "")
        redirect = Redirect(sign[0], target)
        frame.redirects.append(redirect)
        frame.words.extend(targets[1:])
        if sign[0] in ("<<", "<<-"):
            self._waiting.append((redirect, target.text, sign[0] == "<<-", _QUOTED in target.kinds))

    def _bodies(self) -> None:
        """The here-documents that were announced on the line that has just ended."""
        waiting, self._waiting = self._waiting, []
        for redirect, delimiter, tabs, quoted in waiting:
            start = end = self.at
            while end < len(self.text):
                stop = self.text.find("\n", end)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[end:stop]
                following = min(stop + 1, len(self.text))
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
                end = following
            else:
                following = end
            redirect.body = self.text[start:end]
            self.at = following
            if not quoted:
                self._expansions(redirect.body)

    def _expansions(self, body: str) -> None:
        inner = _Reader(body, self.variables, self.depth, self.work)
        draft = _Draft()
        while (sign := _EXPANDS.search(body, inner.at)) is not None:
            self.work.spend()
            inner.at = sign.start()
            if sign[0] == "\\":
                inner.at += 2
            elif sign[0] == "$":
                inner._dollar(draft, quoted=True)
            else:
                inner._backticks(draft, quoted=True)
        self.found += inner.found
        self.fault = self.fault or inner.fault

    def _word(self) -> list[Word]:
        """The word that begins here; several where something in it is filled in and splits."""
        draft = _Draft()
        text, size = self.text, len(self.text)
        if text.startswith(("<(", ">("), self.at):
            self.at += 1
            self._substitution(draft, quoted=True)
        while self.at < size:
            self.work.spend()
            plain = _PLAIN.match(text, self.at)
            if plain is not None:
                draft.put(plain[0], _BARE)
                self.at = plain.end()
                continue
            letter = text[self.at]
            if letter in _ENDS:
                break
            if letter == "\\":
                if text[self.at + 1 : self.at + 2] != "\n":
                    draft.put(text[self.at + 1 : self.at + 2], _QUOTED)
                self.at += 2
            elif letter == "'":
                end = self._found("'", self.at + 1)
                draft.put(text[self.at + 1 : end], _QUOTED)
                self.at = end + 1
            elif letter == '"':
                self._double(draft)
            elif letter == "$":
                self._dollar(draft, quoted=False)
            elif letter == "`":
                self._backticks(draft, quoted=False)
            else:
                self._bare(draft, letter)
        return _words(draft, self.work)

    def _bare(self, draft: _Draft, letter: str) -> None:
        if letter == HOLE:
            self._hole(draft, quoted=False)
        else:
            draft.put(letter, _BARE)
        self.at += 1

    def _found(self, sign: str, start: int) -> int:
        end = self.text.find(sign, start)
        if end < 0:
            raise _Unreadable(f"a {sign} is not closed")
        return end

    def _double(self, draft: _Draft) -> None:
        text, size = self.text, len(self.text)
        draft.put("", _QUOTED)
        self.at += 1
        while self.at < size:
            self.work.spend()
            plain = _IN_QUOTES.match(text, self.at)
            if plain is not None:
                draft.put(plain[0], _QUOTED)
                self.at = plain.end()
                continue
            letter = text[self.at]
            if letter == '"':
                self.at += 1
                return
            self._in_quotes(draft, letter)
        raise _Unreadable('a " is not closed')

    def _in_quotes(self, draft: _Draft, letter: str) -> None:
        if letter == "$":
            self._dollar(draft, quoted=True)
        elif letter == "`":
            self._backticks(draft, quoted=True)
        elif letter == HOLE:
            self._hole(draft, quoted=True)
            self.at += 1
        else:
            following = self.text[self.at + 1 : self.at + 2]
            if following != "\n":
                draft.put(following if following in '$`"\\' else letter + following, _QUOTED)
            self.at += 2

    def _dollar(self, draft: _Draft, *, quoted: bool) -> None:
        text = self.text
        following = text[self.at + 1 : self.at + 2]
        if following == "(":
            self.at += 1
            self._substitution(draft, quoted=quoted)
        elif following == "{":
            self._braces(draft, quoted=quoted)
        elif following == "'" and not quoted:
            end = _ANSI_END.match(text, self.at + 2)
            if end is None:
                raise _Unreadable("a $' is not closed")
            draft.put(_ANSI.sub(_ansi, text[self.at + 2 : end.end() - 1]), _QUOTED)
            self.at = end.end()
        elif following == '"' and not quoted:
            self.at += 1
        elif (name := _VARIABLE.match(text, self.at + 1)) is not None:
            self.at = name.end()
            self._variable(draft, name[0], None, quoted=quoted)
        else:
            draft.put("$", _QUOTED)
            self.at += 1

    def _substitution(self, draft: _Draft, *, quoted: bool) -> None:
        """At the parenthesis of `$(`, `<(` or `>(`."""
        sums = self._sums
        self._sums = 1 if self.text.startswith("((", self.at) else 0
        self.at += 1
        self._groups += 1
        draft.inner += self.commands(_Frame((self._groups,)), closed_by=")")
        self._sums = sums
        self._hole(draft, quoted=quoted)

    def _backticks(self, draft: _Draft, *, quoted: bool) -> None:
        end = self.at + 1
        while True:
            end = self._found("`", end)
            slashes = end
            while self.text[slashes - 1] == "\\":
                slashes -= 1
            if (end - slashes) % 2 == 0:
                break
            end += 1
        inside = re.sub(r'\\([`$\\"])' if quoted else r"\\([`$\\])", r"\1", self.text[self.at + 1 : end])
        inner = read(inside, self.variables, depth=self.depth, work=self.work)
        self.found += inner.commands
        self.fault = self.fault or inner.fault
        draft.inner += inner.commands
        self.at = end + 1
        self._hole(draft, quoted=quoted)

    def _braces(self, draft: _Draft, *, quoted: bool) -> None:
        """`${...}`, with whatever is inside it."""
        text, size = self.text, len(self.text)
        inside = _Draft()
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Unreadable("it is nested too deep")
        self.at += 2
        while self.at < size and text[self.at] != "}":
            self.work.spend()
            plain = _IN_BRACES.match(text, self.at)
            if plain is not None:
                inside.put(plain[0], _QUOTED)
                self.at = plain.end()
            elif text[self.at] == '"':
                self._double(inside)
            elif text[self.at] == "'" and not quoted:
                end = self._found("'", self.at + 1)
                inside.put(text[self.at + 1 : end], _QUOTED)
                self.at = end + 1
            elif text[self.at] == "'":
                inside.put("'", _QUOTED)
                self.at += 1
            else:
                self._in_quotes(inside, text[self.at])
        if self.at >= size:
            raise _Unreadable("a ${ is not closed")
        self.at += 1
        self.depth -= 1
        draft.inner += inside.inner
        content = "".join(inside.pieces)
        given = _DEFAULT.fullmatch(content)
        name, default = (given[1], given[2]) if given else (content, None)
        self._variable(draft, name, default, quoted=quoted)

    def _variable(self, draft: _Draft, name: str, default: str | None, *, quoted: bool) -> None:
        value = (self.variables or {}).get(name, " " if name == "IFS" else None)
        if self.variables is None and value is None:
            self._hole(draft, quoted=quoted)
            return
        if value is None:
            plain = _VARIABLE.fullmatch(name) is not None and not name[0].isdigit()
            value = default if default is not None else "" if plain else HOLE
        self._room -= len(value)
        if self._room < 0:
            # Values that hold values grow without end.
            value = HOLE
        for piece in re.split(r"(\s+|\ue000)", value):
            self.work.spend()
            if piece == HOLE:
                self._hole(draft, quoted=quoted)
            elif piece.strip() or quoted:
                draft.put(piece, _QUOTED if quoted else _BARE)
            elif piece:
                draft.put(" ", _SPLIT)

    def _hole(self, draft: _Draft, *, quoted: bool) -> None:
        self.holes = True
        draft.put(HOLE, _HELD if quoted else _OPEN)


def _ansi(found: re.Match[str]) -> str:
    hexadecimal = found[1] or found[2] or found[3]
    if hexadecimal:
        return chr(min(int(hexadecimal, 16), 0x10FFFF))
    if found[4]:
        return chr(int(found[4], 8) & 0xFF)
    if found[5]:
        return chr(ord(found[5]) & 0x1F)
    return _ANSI_LETTERS.get(found[6], found[6])


def _words(draft: _Draft, work: Work) -> list[Word]:
    text, kinds, inner = "".join(draft.pieces), "".join(draft.kinds), tuple(draft.inner)
    if not text:
        # Nothing at all, as of an empty variable, is no word; '' is one.
        return [Word("", "", inner)] if draft.pieces or inner else []
    words: list[Word] = []
    start = 0
    for end in (
        [*(at for at, kind in enumerate(kinds) if kind == _SPLIT), len(text)]
        if _SPLIT in kinds
        else [len(text)]
    ):
        if end > start:
            work.spend()
            words += _unbraced(Word(text[start:end], kinds[start:end], inner), work)
        start = end + 1
    return words


def _unbraced(word: Word, work: Work) -> list[Word]:
    """`{a,b}` as the words it becomes."""
    done: list[Word] = []
    waiting = [word]
    while waiting:
        this = waiting.pop()
        span = None
        if "{" in this.text:
            work.spend(1 + len(this.text) // 4)  # each character is looked at by itself
            span = _brace(this)
        if span is None:
            done.append(this)
            continue
        if len(done) + len(waiting) > MOST_BRACED:
            return [Word(HOLE, _OPEN, word.inner)]
        first, commas, last = span
        cuts = [first, *commas, last]
        for start, end in reversed(list(itertools.pairwise(cuts))):
            text = this.text[:first] + this.text[start + 1 : end] + this.text[last + 1 :]
            kinds = this.kinds[:first] + this.kinds[start + 1 : end] + this.kinds[last + 1 :]
            waiting.append(Word(text, kinds, this.inner))
        if len(waiting) > MOST_BRACED:
            return [Word(HOLE, _OPEN, word.inner)]
    return done


def _brace(word: Word) -> tuple[int, list[int], int] | None:
    """Where the first brace that means something opens, has its commas, and closes."""
    opened: list[tuple[int, list[int]]] = []
    best: tuple[int, list[int], int] | None = None
    for at, (letter, kind) in enumerate(zip(word.text, word.kinds, strict=True)):
        if kind != _BARE:
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
