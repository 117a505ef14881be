"""The stream of records between processes: its lines, and how they are taken into a journal, each once.

A line of ours is a JSON text after the character RS, as in RFC 7464: `RS [number, run id, record]`, or
`RS [number, null, [word, value]]` for a message besides records; others, as in the log of a pod, may print between. A
reader that begins again at the start of the stream takes each line once by its number, and knows how many are missing.

An `Intake` reads the lines of one process. Its `admit` decides which records that process may write, and renames them;
its `write` stores them. A trusted process may write anything. Of an agent that runs the tools of its users
(`InnerScopes`) only the beginnings and ends of scopes below its own are taken: the results of hooks are recorded where
the hooks run.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, NamedTuple, cast

from hookline.engine.point import Scope
from hookline.engine.record import Begun, Called, Decided, Ended, Journal, Record
from hookline.errors import JournalError
from hookline.journal.encoding import CAP, Encoding, decoded
from hookline.journal.masking import Mask
from hookline.journal.recovery import lost_end

MARK = "\x1e"
SERVING = "serving"
"""The message of a process that has recovered the runs of earlier ones, with the time of its start."""
_OURS = re.compile(rf"{MARK}\[([0-9]{{1,12}}),")
INSIDE = "x.hookline.inside"
"""The point of a note that records from inside a run's agent are missing."""
LONGEST = 4 * 1024 * 1024
"""Characters of one line of an untrusted process."""
MOST_BYTES = 64 * 1024 * 1024
MOST_RECORDS = 50_000
BROKEN_OFF = "the agent's process was over before it"
_AROUND = frozenset({Scope.WORKSPACE, Scope.RUN, Scope.SESSION})
_INNER_ID = re.compile(r"[0-9A-Za-z]{1,32}", re.ASCII)
_ID = re.compile(r"[0-9A-Za-z._-]{1,200}")
_LONGEST_NAME = 200
_FUTURE = 86400.0
_LARGEST = 1e15

Admit = Callable[[Record], Record | None]
"""The record with the ids used here; None if it is recorded already. A ValueError or TypeError rejects it."""
Write = Callable[[Record], Awaitable[bool]]
"""Stores a record. True if it was new; a ValueError rejects it."""


class Message(NamedTuple):
    """A message that is not a record, under a word that both sides know."""

    word: str
    value: Any


class Sender:
    """Writes records and messages as lines. `record` can be used as the watcher of a run.

    Without `payloads`, records have no inputs and outputs."""

    def __init__(
        self, write: Callable[[str], object], mask: Mask | None = None, *, payloads: bool = True
    ) -> None:
        self._write = write
        self._encoding = Encoding(mask or Mask(), payloads=payloads)
        self._count = 0

    def record(self, record: Record) -> None:
        self._line(json.dumps(record.run_id), self._encoding.record(record))

    def scope(self, record: Record) -> None:
        """Send the beginning or end of a scope, without the fields that only mean something on this machine."""
        if isinstance(record, Begun):
            self.record(record._replace(declaration=None, source=None, owner=None))
        elif isinstance(record, Ended):
            self.record(record)

    def say(self, word: str, value: Any) -> None:
        self._line("null", f"[{json.dumps(word)},{self._encoding.mask.json(value)}]")

    def _line(self, run_id: str, text: str) -> None:
        # The mark also separates it from what others have printed on the same line.
        self._write(f"{MARK}[{self._count},{run_id},{text}]\n")
        self._count += 1


class LineReader:
    """Reads the lines of a `Sender`, and counts those that are missing.

    A line that came before is skipped. The numbers of a sender that is not `trusted`, or was restarted, prove nothing,
    so each of its lines is returned however often it comes.
    """

    def __init__(self, *, trusted: bool = True) -> None:
        self._trusted = trusted
        self._first = ""
        self._next = 0
        self.missing = 0
        """Lines that never came."""

    def read(self, line: str) -> tuple[Record | Message | None, str]:
        """The record or message of a line, if it is new, and the text that others printed on it."""
        others, ours = split_line(line)
        if ours is None:
            return None, line
        number = int(ours[2 : ours.index(",")])
        if not self._trusted:
            self._count(number, ours)
        try:
            _, run_id, fields = json.loads(ours[1:])
            found = Message(*fields) if run_id is None else decoded(str(run_id), fields)
        except (ValueError, TypeError, RecursionError, JournalError):
            return None, line
        # A line that was cut off is not counted until it is complete.
        if self._trusted and not self._count(number, ours):
            return None, ""
        return found, others

    def _count(self, number: int, ours: str) -> bool:
        """True if the line is new.

        If the stream of another process follows on it, the numbers begin again with another first line."""
        if not self._trusted and number == 0 and ours != self._first:
            self._first, self._next = ours, 0
        ahead = number - self._next
        self.missing += max(ahead, 0)
        self._next = max(self._next, number + 1)
        return ahead >= 0


def split_line(line: str) -> tuple[str, str | None]:
    """The part of a line that others printed, and our part with its mark, or None."""
    # The last mark: others may have begun the line without ending it.
    at = line.rfind(MARK)
    if at < 0 or not _OURS.match(line, at):
        return line, None
    return line[:at], line[at:]


def split_text(text: str) -> tuple[str, list[str]]:
    """The output of a process without our lines, and our lines."""
    if not _OURS.search(text):
        return text, []
    printed: list[str] = []
    lines: list[str] = []
    for line in text.split("\n"):
        others, ours = split_line(line)
        if ours is not None:
            lines.append(ours)
        if others or ours is None:
            printed.append(others)
    return "\n".join(printed), lines


def record_key(record: Record) -> Hashable:
    """A key that no two records of a run share."""
    where = record.hook if isinstance(record, Called) else ""
    point = record.point if isinstance(record, Called | Decided) else record.scope
    return type(record), record.scope_id, str(point), where, record.at


class OnceJournal:
    """Writes into a journal each record once, however often it comes."""

    def __init__(self, journal: Journal, key: Callable[[Record], Hashable] = record_key) -> None:
        self._journal = journal
        self._key = key
        self._keys: dict[str, set[Hashable]] = {}

    def keys(self, run_id: str) -> set[Hashable]:
        """The keys of the records of a run, read from the journal on first use."""
        if run_id not in self._keys:
            self._keys[run_id] = set(map(self._key, self._journal.records(run_id)))
        return self._keys[run_id]

    async def write(self, record: Record) -> bool:
        """Write a record; False if the journal had it."""
        keys, key = self.keys(record.run_id), self._key(record)
        if key in keys:
            return False
        keys.add(key)
        try:
            if isinstance(record, Begun | Ended):
                await self._journal.write(record)
            else:
                self._journal.note(record)
        except BaseException:
            # It may be stored or not: the journal is read again.
            self.forget(record.run_id)
            raise
        return True

    def forget(self, run_id: str | None = None) -> None:
        """Read the records of a run from the journal again; of all runs if None."""
        if run_id is None:
            self._keys.clear()
        else:
            self._keys.pop(run_id, None)


class Intake(LineReader):
    """Takes in the stream of one process line by line; the stream may be read again from its start.

    An untrusted process may write lines of `LONGEST` characters, and `most` characters in all.
    """

    def __init__(
        self,
        write: Write,
        admit: Admit = lambda record: record,
        *,
        trusted: bool = True,
        most: float = float("inf"),
    ) -> None:
        super().__init__(trusted=trusted)
        self._write, self._admit = write, admit
        self._most, self._size = most, 0
        self.taken = 0
        """Records that were new."""
        self.dropped = 0
        """Lines since the start of the stream that were no records, or that the process may not write."""

    def again(self) -> None:
        """Begin again at the start of the stream; dropped lines are counted anew."""
        self.dropped = self._size = 0

    async def take(self, line: str) -> tuple[Message | None, str]:
        """Take in a line; returns the message in it, if any, and the text that others printed on it."""
        self._size += len(line) if MARK in line else 0
        if not self._trusted and (len(line) > LONGEST or self._size > self._most):
            self.dropped += MARK in line
            return None, line
        found, others = self.read(line)
        if found is None:
            self.dropped += MARK in others
        elif isinstance(found, Message):
            return found, others
        else:
            await self._record(found)
        return None, others

    async def _record(self, found: Record) -> None:
        try:
            record = self._admit(found)
            if record is not None:
                self.taken += await self._write(record)
        except (ValueError, TypeError, RecursionError):
            if self._trusted:
                raise
            self.dropped += 1


def lacking(dropped: int, missing: int) -> list[str]:
    """The notes on lines from inside an agent that are missing in the record of its run."""
    texts = {
        f"{dropped} lines from the agent were not records and are left out": dropped,
        f"{missing} records from the agent were not received and are not in the journal": missing,
    }
    return [text for text, count in texts.items() if count]


class InnerScopes:
    """Admits the scopes of an agent's process, below a scope of a run here. None began before `since` (default: now)."""

    def __init__(
        self, run_id: str, scope_id: str, mask: Mask | None = None, *, since: float | None = None
    ) -> None:
        self._run_id = run_id
        self._under = scope_id
        self._mask = mask or Mask()
        self._since = time.time() if since is None else since
        self._known: dict[str, str] = {}
        self._open: dict[str, Begun] = {}

    def again(self) -> None:
        """Begin again at the first of them."""
        self._known.clear()
        self._open.clear()

    def here(self, scope_id: object) -> str:
        """The id here of a scope of the other process."""
        return self._known.get(scope_id, self._under) if isinstance(scope_id, str) else self._under

    def admit(self, record: Record) -> Begun | Ended | None:
        """The record with the ids used here; None for a scope that is recorded here already."""
        if isinstance(record, Begun):
            return self._begun(record)
        if isinstance(record, Ended):
            return self._ended(record)
        raise TypeError("a hook's word is taken from the hook alone")

    def left(self) -> list[Ended]:
        """An end for each scope that the other process never ended, innermost first."""
        broken = [lost_end(each, BROKEN_OFF) for each in reversed(self._open.values())]
        self._open.clear()
        return broken

    def _begun(self, given: Begun) -> Begun | None:
        inner, parent = given.scope_id, given.parent_id
        fits = _INNER_ID.fullmatch(inner) and inner not in self._known and len(self._known) < MOST_RECORDS
        if not fits or (parent is not None and parent not in self._known):
            raise ValueError("it has no place in the run")
        about = self._value(dict(given.about))
        above = self.here(parent)
        if given.scope in _AROUND or (given.scope is Scope.AGENT and above == self._under):
            self._known[inner] = self._under
            return None
        made = Begun(
            self._run_id,
            f"{self._under}.{inner}",
            above,
            given.scope,
            self._text(given.name, _LONGEST_NAME),
            self._moment(given.at),
            self._value(given.payload),
            cast("dict[str, Any]", about) if isinstance(about, dict) else {},
        )
        self._known[inner] = made.scope_id
        self._open[made.scope_id] = made
        return made

    def _ended(self, given: Ended) -> Ended | None:
        id = self._known.get(given.scope_id)
        if id == self._under:
            return None
        if id is None or id not in self._open or self._open[id].scope is not given.scope:
            raise ValueError("it ends nothing that is open")
        made = Ended(
            self._run_id,
            id,
            given.scope,
            self._moment(given.at),
            given.status,
            self._value(given.output),
            None if given.error is None else self._text(given.error, CAP),
        )
        del self._open[id]
        return made

    def _value(self, value: Any) -> Any:
        return json.loads(self._mask.json(value, CAP))

    def _text(self, value: object, cap: int) -> str:
        if not isinstance(value, str):
            raise TypeError("it is not a text")
        return self._mask.text(value, cap)

    def _moment(self, at: float) -> float:
        """Their time if it is plausible, else now."""
        now = time.time()
        return at if self._since <= at <= now else now


def is_sound(record: Record) -> bool:
    """True if every field has the right type: the record is shown together with the runs of others."""
    return all(_CHECKS[name](value) for name, value in record._asdict().items() if name in _CHECKS)


def is_moment(value: Any) -> bool:
    """True if it is a time in the past, by a clock that may be a day ahead."""
    return _is_number(value) and 0 <= value <= time.time() + _FUTURE


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and bool(_ID.fullmatch(value))


def _is_number(value: Any) -> bool:
    # An integer of JSON may be too large for a float, and for a database.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _is_reasons(value: Any) -> bool:
    return all(isinstance(each[0], str) and isinstance(each[2], str | None) for each in value)


_TEXTS = ("name", "point", "hook", "mode")
_TEXTS_OR_NONE = ("reason", "error_kind", "error", "note", "tell_model", "tell_user")
_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_TEXTS, lambda value: isinstance(value, str)),
    **dict.fromkeys(_TEXTS_OR_NONE, lambda value: isinstance(value, str | None)),
    "about": lambda value: isinstance(value, dict),
    "last": lambda value: isinstance(value, bool),
    "scope_id": _is_id,
    "parent_id": lambda value: value is None or _is_id(value),
    "at": is_moment,
    "seconds": _is_number,
    "reasons": _is_reasons,
}
