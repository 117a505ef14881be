"""Parser of shell words: quotes, escapes, variables and substitutions. `shell` reads the commands around them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hookline.engine.stdlib import lazy_pattern
from hookline.guards.commands import (
    BARE,
    HOLE,
    QUOTED,
    CommandDraft,
    ShellCommand,
    ShellScript,
    StepBudget,
    Word,
    WordDraft,
    split_words,
    unescaped,
)
from hookline.guards.variables import expanded, is_printed, printed

DEEPEST = 25
MOST_FILLED_IN = 200_000

_PLAIN = lazy_pattern(r"[\w./:=,@%+-]+")
_IN_QUOTES = lazy_pattern(r'[^"\\$`\ue000]+')
_IN_BRACES = lazy_pattern(r"[^}\"'\\$`\ue000]+")
_VARIABLE = lazy_pattern(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_DEFAULT = lazy_pattern(r"([A-Za-z_]\w*):?[-=](.*)", re.DOTALL)
_ENDS = " \t\n;&|()<>"
_ANSI_END = lazy_pattern(r"(?:[^'\\]|\\.)*'", re.DOTALL)
_BACKTICKS = lazy_pattern(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)


class Unreadable(Exception):
    """The text ends inside a construct."""


class WordReader:
    """Reads the words of a text, from left to right; the commands substituted in them are added to `found`."""

    def __init__(self, text: str, variables: Mapping[str, str] | None, depth: int, work: StepBudget) -> None:
        self.text = text
        self.work = work
        self.at = 0
        self.variables = None if variables is None else dict(variables)
        self.depth: int = depth
        self.found: list[ShellCommand] = []
        self.fault: str | None = None
        self.holes = False
        self._groups = 0
        self._sums = 0
        self._room = MOST_FILLED_IN

    def commands(self, frame: CommandDraft, *, closed_by: str | None) -> list[ShellCommand]:
        """Reads commands up to `closed_by`; adds all to `found` and returns those of this level."""
        raise NotImplementedError

    def inside(self, text: str) -> ShellScript:
        """The commands of a text within this one."""
        raise NotImplementedError

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable("it is nested too deep")

    def word(self) -> list[Word]:
        """Reads the word that begins here; several if a value in it splits."""
        text, size = self.text, len(self.text)
        plain = _PLAIN.match(text, self.at)
        if plain is not None and text[plain.end() : plain.end() + 1] in _ENDS:
            # Most words have no sign in them; they take as many steps as below.
            self.at = plain.end()
            self.work.spend(3 if self.at < size else 2)
            return [Word(plain[0], BARE * len(plain[0]))]
        draft = WordDraft()
        if text.startswith(("<(", ">("), self.at):
            self.at += 1
            self._substitution(draft, quoted=True)
        while self.at < size:
            self.work.spend()
            letter = text[self.at]
            if letter in _ENDS:
                break
            if letter == "\\":
                if text[self.at + 1 : self.at + 2] != "\n":
                    draft.put(text[self.at + 1 : self.at + 2], QUOTED)
                self.at += 2
            elif letter == "'":
                self._single(draft)
            elif letter == '"':
                self._double(draft)
            elif not self._plain(draft, _PLAIN, BARE) and not self._expansion(draft, letter, quoted=False):
                draft.put(letter, BARE)
                self.at += 1
        return split_words(draft, self.work)

    def _plain(self, draft: WordDraft, pattern: re.Pattern[str], kind: str) -> bool:
        """Reads the letters here that mean themselves; False if there are none."""
        plain = pattern.match(self.text, self.at)
        if plain is None:
            return False
        draft.put(plain[0], kind)
        self.at = plain.end()
        return True

    def _expansion(self, draft: WordDraft, letter: str, *, quoted: bool) -> bool:
        """Reads a variable, a substitution or a hole; False if none begins here."""
        if letter == "$":
            self._dollar(draft, quoted=quoted)
        elif letter == "`":
            self._backticks(draft, quoted=quoted)
        elif letter == HOLE:
            self._hole(draft, quoted=quoted)
            self.at += 1
        else:
            return False
        return True

    def _single(self, draft: WordDraft) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unreadable("a ' is not closed")
        draft.put(self.text[self.at + 1 : end], QUOTED)
        self.at = end + 1

    def _double(self, draft: WordDraft) -> None:
        draft.put("", QUOTED)
        self.at += 1
        while self.at < len(self.text):
            self.work.spend()
            if self.text[self.at] == '"':
                self.at += 1
                return
            if not self._plain(draft, _IN_QUOTES, QUOTED):
                self._in_quotes(draft)
        raise Unreadable('a " is not closed')

    def _in_quotes(self, draft: WordDraft) -> None:
        letter = self.text[self.at]
        if self._expansion(draft, letter, quoted=True):
            return
        following = self.text[self.at + 1 : self.at + 2]
        if following != "\n":
            draft.put(following if following in '$`"\\' else letter + following, QUOTED)
        self.at += 2

    def _dollar(self, draft: WordDraft, *, quoted: bool) -> None:
        text = self.text
        following = text[self.at + 1 : self.at + 2]
        if (name := _VARIABLE.match(text, self.at + 1)) is not None:
            self.at = name.end()
            self._variable(draft, name[0], None, quoted=quoted)
        elif following == "(":
            self.at += 1
            self._substitution(draft, quoted=quoted)
        elif following == "{":
            self._braces(draft, quoted=quoted)
        elif following == "'" and not quoted:
            end = _ANSI_END.match(text, self.at + 2)
            if end is None:
                raise Unreadable("a $' is not closed")
            draft.put(unescaped(text[self.at + 2 : end.end() - 1]), QUOTED)
            self.at = end.end()
        elif following == '"' and not quoted:
            self.at += 1
        else:
            draft.put("$", QUOTED)
            self.at += 1

    def _substitution(self, draft: WordDraft, *, quoted: bool) -> None:
        """Reads a substitution, from the parenthesis of `$(`, `<(` or `>(`."""
        sums = self._sums
        self._sums = 1 if self.text.startswith("((", self.at) else 0
        self.at += 1
        self._groups += 1
        start, files = self.at, self.text[self.at - 2] in "<>"
        made = self.commands(CommandDraft((self._groups,)), closed_by=")")
        self._sums = sums
        if files or self.text[start] == "(":
            draft.inner += made
            self._hole(draft, quoted=quoted)
        else:
            self._put_output(draft, made, quoted=quoted)

    def _put_output(self, draft: WordDraft, made: list[ShellCommand], *, quoted: bool) -> None:
        """Puts the output of substituted commands; a hole where that cannot be seen."""
        draft.inner += made
        output = printed(made[0]).rstrip("\n") if len(made) == 1 and is_printed(made[0]) else HOLE
        self._room -= len(output)
        if HOLE in output or self._room < 0:
            self._hole(draft, quoted=quoted)
        else:
            draft.put_value(output, self.work, quoted=quoted)

    def _backticks(self, draft: WordDraft, *, quoted: bool) -> None:
        found = _BACKTICKS.match(self.text, self.at)
        if found is None:
            raise Unreadable("a ` is not closed")
        inside = re.sub(r'\\([`$\\"])' if quoted else r"\\([`$\\])", r"\1", found[1])
        inner = self.inside(inside)
        self.found += inner.commands
        self.fault = self.fault or inner.fault
        self.at = found.end()
        self._put_output(draft, list(inner.commands), quoted=quoted)

    def _braces(self, draft: WordDraft, *, quoted: bool) -> None:
        """Reads `${...}` and its content."""
        text, size = self.text, len(self.text)
        inside = WordDraft()
        self.deeper()
        self.at += 2
        while self.at < size and text[self.at] != "}":
            self.work.spend()
            if text[self.at] == '"':
                self._double(inside)
            elif text[self.at] == "'" and not quoted:
                self._single(inside)
            elif text[self.at] == "'":
                inside.put("'", QUOTED)
                self.at += 1
            elif not self._plain(inside, _IN_BRACES, QUOTED):
                self._in_quotes(inside)
        if self.at >= size:
            raise Unreadable("a ${ is not closed")
        self.at += 1
        self.depth -= 1
        draft.inner += inside.inner
        content = "".join(inside.pieces)
        given = _DEFAULT.fullmatch(content)
        name, default = (given[1], given[2]) if given else (content, None)
        if not given and _VARIABLE.fullmatch(content) is None and self.variables is not None:
            # To trim a value, each of its ends is compared.
            self.work.spend(60 if "#" in content or "%" in content else 4)
            value = expanded(content, self.variables)
            if value is not None:
                self._fill(draft, value, quoted=quoted and "@" not in content)
                return
        self._variable(draft, name, default, quoted=quoted)

    def _variable(self, draft: WordDraft, name: str, default: str | None, *, quoted: bool) -> None:
        value = (self.variables or {}).get(name, " " if name == "IFS" else None)
        if self.variables is None and value is None:
            self._hole(draft, quoted=quoted)
            return
        if value is None:
            plain = _VARIABLE.fullmatch(name) is not None and not name[0].isdigit()
            value = default if default is not None else "" if plain else HOLE
        self._fill(draft, value, quoted=quoted and name not in ("@", "*"))

    def _fill(self, draft: WordDraft, value: str, *, quoted: bool) -> None:
        self._room -= len(value)
        if self._room < 0:
            # Values that contain values could grow without limit.
            value = HOLE
        self.holes = self.holes or HOLE in value
        draft.put_value(value, self.work, quoted=quoted)

    def _hole(self, draft: WordDraft, *, quoted: bool) -> None:
        self.holes = True
        draft.put_hole(quoted=quoted)
