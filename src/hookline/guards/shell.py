"""Parser of shell text: returns the commands it would run, without running any, for guards.

All commands are returned, including those in subshells, substitutions, functions and branches that may not be taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hookline.engine.stdlib import lazy_pattern
from hookline.guards.commands import (
    BARE,
    HOLE,
    QUOTED,
    CommandDraft,
    Redirect,
    ShellCommand,
    ShellScript,
    StepBudget,
    Word,
    WordDraft,
    names,
    split_words,
    unescaped,
)

# The longest argument that Linux passes to a program.
LONGEST = 131_072
DEEPEST = 25
MOST_FILLED_IN = 200_000

# The number of characters that take as long as one step.
_CHARACTERS_A_STEP = 16


def read(
    text: str, variables: Mapping[str, str] | None = None, *, depth: int = 0, work: StepBudget | None = None
) -> ShellScript:
    """The commands of a text. `variables` are filled in; all others are then empty.

    Raises TooMuch if that takes more steps than `work` has left.
    """
    work = work or StepBudget()
    work.spend(1 + len(text) // _CHARACTERS_A_STEP)
    reader = _ShellReader(text, variables, depth, work)
    try:
        reader.commands(CommandDraft(), closed_by=None)
    except _Unreadable as exc:
        reader.fault = reader.fault or str(exc)
    return ShellScript(commands=tuple(reader.found), fault=reader.fault, holes=reader.holes)


class _Unreadable(Exception):
    """The text ends inside a construct."""


# Keywords before a command.
_PLACES = names("! if then else elif while until do { } fi done esac")
_PLAIN = lazy_pattern(r"[\w./:=,@%+-]+")
_IN_QUOTES = lazy_pattern(r'[^"\\$`\ue000]+')
_IN_BRACES = lazy_pattern(r"[^}\"'\\$`\ue000]+")
_ASSIGNMENT = lazy_pattern(r"([A-Za-z_]\w*)(?:\[[^\]\ue000]{0,200}\])?\+?=")
_VARIABLE = lazy_pattern(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_DEFAULT = lazy_pattern(r"([A-Za-z_]\w*):?[-=](.*)", re.DOTALL)
_REDIRECT = lazy_pattern(r"&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<|>")
_OPERATOR = lazy_pattern(r";;&|;;|;&|;|&&|&(?!>)|\|\||\|&|\|")
_ENDS = " \t\n;&|()<>"
_ANSI_END = lazy_pattern(r"(?:[^'\\]|\\.)*'", re.DOTALL)
_BACKTICKS = lazy_pattern(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_EXPANDS = lazy_pattern(r"[\\$`]")


class _ShellReader:
    """Reads a text once, from left to right."""

    def __init__(self, text: str, variables: Mapping[str, str] | None, depth: int, work: StepBudget) -> None:
        self.text = text
        self.work = work
        self.at = 0
        self.variables = variables
        self.depth = depth
        self.found: list[ShellCommand] = []
        self.fault: str | None = None
        self.holes = False
        self._waiting: list[Redirect] = []
        self._groups = 0
        self._sums = 0
        self._room = MOST_FILLED_IN

    def commands(self, frame: CommandDraft, *, closed_by: str | None) -> list[ShellCommand]:
        """Reads commands up to `closed_by`; adds all to `found` and returns those of this level."""
        self._deeper()
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
            elif letter in ";|&" and (operator := _OPERATOR.match(text, self.at)) is not None:
                self.at = operator.end()
                self._end(frame)
                frame.fed = operator[0] in ("|", "|&")
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

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Unreadable("it is nested too deep")

    def _open(self, frame: CommandDraft) -> None:
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

    def _close(self, frame: CommandDraft, closed_by: str | None) -> bool:
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

    def _end(self, frame: CommandDraft) -> None:
        command = frame.finish()
        if command is not None:
            self.work.spend(2)
            self.found.append(command)

    def _words(self, frame: CommandDraft) -> None:
        for word in self._word():
            first = not frame.words
            if first and not frame.assigned and word.text in _PLACES and word.unquoted:
                if word.text == "esac":
                    frame.cases[-1] = max(0, frame.cases[-1] - 1)
                continue
            if first and word.text == "case" and word.unquoted:
                frame.cases[-1] += 1
            assignment = _ASSIGNMENT.match(word.text) if first else None
            if assignment and word.kinds.startswith(BARE * (assignment.end() - 1)):
                frame.assigned.append((assignment[1], word.after(assignment.end())))
            else:
                frame.words.append(word)

    def _redirect(self, frame: CommandDraft) -> None:
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
        redirect = Redirect(sign[0], targets[0] if targets else Word("", ""))
        frame.redirects.append(redirect)
        frame.words.extend(targets[1:])
        if sign[0] in ("<<", "<<-"):
            self._waiting.append(redirect)

    def _bodies(self) -> None:
        """Reads the here-documents announced on the line just ended."""
        waiting, self._waiting = self._waiting, []
        for redirect in waiting:
            start = end = self.at
            while end < len(self.text):
                stop = self.text.find("\n", end)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[end:stop]
                following = min(stop + 1, len(self.text))
                if (line.lstrip("\t") if redirect.sign == "<<-" else line) == redirect.target.text:
                    break
                end = following
            else:
                following = end
            redirect.body = self.text[start:end]
            self.at = following
            if QUOTED not in redirect.target.kinds:
                self._expansions(redirect.body)

    def _expansions(self, body: str) -> None:
        inner = _ShellReader(body, self.variables, self.depth, self.work)
        draft = WordDraft()
        while (sign := _EXPANDS.search(body, inner.at)) is not None:
            self.work.spend()
            inner.at = sign.start()
            if not inner._expansion(draft, sign[0], quoted=True):
                inner.at += 2
        self.found += inner.found
        self.fault = self.fault or inner.fault

    def _word(self) -> list[Word]:
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
            raise _Unreadable("a ' is not closed")
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
        raise _Unreadable('a " is not closed')

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
                raise _Unreadable("a $' is not closed")
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
        draft.inner += self.commands(CommandDraft((self._groups,)), closed_by=")")
        self._sums = sums
        self._hole(draft, quoted=quoted)

    def _backticks(self, draft: WordDraft, *, quoted: bool) -> None:
        found = _BACKTICKS.match(self.text, self.at)
        if found is None:
            raise _Unreadable("a ` is not closed")
        inside = re.sub(r'\\([`$\\"])' if quoted else r"\\([`$\\])", r"\1", found[1])
        inner = read(inside, self.variables, depth=self.depth, work=self.work)
        self.found += inner.commands
        self.fault = self.fault or inner.fault
        draft.inner += inner.commands
        self.at = found.end()
        self._hole(draft, quoted=quoted)

    def _braces(self, draft: WordDraft, *, quoted: bool) -> None:
        """Reads `${...}` and its content."""
        text, size = self.text, len(self.text)
        inside = WordDraft()
        self._deeper()
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
            raise _Unreadable("a ${ is not closed")
        self.at += 1
        self.depth -= 1
        draft.inner += inside.inner
        content = "".join(inside.pieces)
        given = _DEFAULT.fullmatch(content)
        name, default = (given[1], given[2]) if given else (content, None)
        self._variable(draft, name, default, quoted=quoted)

    def _variable(self, draft: WordDraft, name: str, default: str | None, *, quoted: bool) -> None:
        value = (self.variables or {}).get(name, " " if name == "IFS" else None)
        if self.variables is None and value is None:
            self._hole(draft, quoted=quoted)
            return
        if value is None:
            plain = _VARIABLE.fullmatch(name) is not None and not name[0].isdigit()
            value = default if default is not None else "" if plain else HOLE
        self._room -= len(value)
        if self._room < 0:
            # Values that contain values could grow without limit.
            value = HOLE
        self.holes = self.holes or HOLE in value
        draft.put_value(value, self.work, quoted=quoted)

    def _hole(self, draft: WordDraft, *, quoted: bool) -> None:
        self.holes = True
        draft.put_hole(quoted=quoted)
