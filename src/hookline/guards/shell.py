"""Parser of shell text: returns the commands it would run, without running any, for guards.

All commands are returned, including those in subshells, substitutions, functions and branches that may not be taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from hookline.engine.stdlib import lazy_pattern
from hookline.guards.commands import (
    BARE,
    QUOTED,
    CommandDraft,
    Redirect,
    ShellCommand,
    ShellScript,
    StepBudget,
    Word,
    WordDraft,
    joined,
    names,
)
from hookline.guards.variables import assign
from hookline.guards.words import Unreadable, WordReader

# The longest argument that Linux passes to a program.
LONGEST = 131_072

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
    except Unreadable as exc:
        reader.fault = reader.fault or str(exc)
    return ShellScript(commands=tuple(reader.found), fault=reader.fault, holes=reader.holes)


# Keywords before a command.
_PLACES = names("! if then else elif while until do { } fi done esac")
_ASSIGNMENT = lazy_pattern(r"([A-Za-z_]\w*)(?:\[[^\]\ue000]{0,200}\])?\+?=")
_REDIRECT = lazy_pattern(r"&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<|>")
_OPERATOR = lazy_pattern(r";;&|;;|;&|;|&&|&(?!>)|\|\||\|&|\|")
_INDEXED = lazy_pattern(r"\[([^\]]{0,100})\]=")
_ENDS = " \t\n;&|()<>"
_EXPANDS = lazy_pattern(r"[\\$`]")


class _ShellReader(WordReader):
    """Reads a text once, from left to right."""

    def __init__(self, text: str, variables: Mapping[str, str] | None, depth: int, work: StepBudget) -> None:
        super().__init__(text, variables, depth, work)
        self._waiting: list[Redirect] = []

    def commands(self, frame: CommandDraft, *, closed_by: str | None) -> list[ShellCommand]:
        """Reads commands up to `closed_by`; adds all to `found` and returns those of this level."""
        self.deeper()
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
                raise Unreadable(f"a {closed_by!r} is missing")
        self._end(frame)
        self._bodies()
        self.depth -= 1
        return frame.made

    def inside(self, text: str) -> ShellScript:
        return read(text, self.variables, depth=self.depth, work=self.work)

    def _open(self, frame: CommandDraft) -> None:
        if self.at and self.text[self.at - 1] == "=" and (frame.assigned or frame.words):
            self._array(frame)
            return
        fed = frame.fed and not frame.words
        self._end(frame)
        frame.fed = fed
        if self.text.startswith("((", self.at):
            self._sums += 1
        frame.cases.append(0)
        self._groups += 1
        frame.group = (*frame.group, self._groups)
        if len(frame.group) > 200:
            raise Unreadable("it is nested too deep")
        self.at += 1

    def _array(self, frame: CommandDraft) -> None:
        """Reads the words of `NAME=(...)`: one value with spaces, and a command for who runs them."""
        self.at += 1
        words: list[Word] = []
        while self.at < len(self.text) and self.text[self.at] != ")":
            self.work.spend()
            if self.text[self.at] in _ENDS:
                self.at += 1  # also what bash would not take here
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                words += self.word()
        if self.at >= len(self.text):
            raise Unreadable("a ( is not closed")
        self.at += 1
        indexed = [
            (found[1], word.after(found.end())) for word in words if (found := _INDEXED.match(word.text))
        ]
        last = frame.assigned.pop()[0] if frame.assigned else frame.words.pop().text.partition("=")[0]
        frame.assigned += [(f"{last}[{index}]", word) for index, word in indexed]
        if last in frame.added:
            words.insert(0, Word(" ", BARE))
        held = [word for _, word in sorted(indexed, key=lambda each: each[0])] or words
        frame.assigned.append((last, joined(held)))
        self.found.append(ShellCommand(words=tuple(words), group=frame.group))

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
            if self.variables is not None:
                assign(self.variables, command)

    def _words(self, frame: CommandDraft) -> None:
        words = self.word()
        if len(words) > 1 and not frame.words and _ASSIGNMENT.match(words[0].text):
            words = [joined(words)]
        for word in words:
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
                if assignment[0].endswith("+="):
                    frame.added.add(assignment[1])
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
        targets = self.word() if self.at < len(self.text) and self.text[self.at] not in "\n;|" else []
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
