"""Records of other processes into a journal here, each once, whatever happens to the stream between.

An `Intake` reads the lines of one process. Its `admit` says which records are that process's to tell, and what they are
called here; its `write` keeps them. Whoever is trusted is taken at its word. Of an agent that runs the tools of its
users (`InnerScopes`) only the beginnings and ends of scopes below its own are taken: what hooks said is on record where
they ran, and nobody else can say it for them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, cast

from hookline.engine.point import Scope
from hookline.engine.record import Begun, Called, Decided, Ended, Journal, Record
from hookline.journal.encoding import CAP
from hookline.journal.masking import Mask
from hookline.journal.recovery import lost_end
from hookline.journal.stream import MARK, LineReader, Message

INSIDE = "x.hookline.inside"
"""The point of a note on a run that something from inside its agent is missing on its record."""
LONGEST = 4 * 1024 * 1024
"""Characters of one line of a process that is not trusted."""
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
"""The record as it is called here; None where it is on record already. A ValueError or TypeError rejects it."""
Write = Callable[[Record, int], Awaitable[bool]]
"""Keeps a record that came in so many characters. True if it was new; a ValueError rejects it."""


def record_key(record: Record) -> Hashable:
    """Two records of a run are never the same in all of this."""
    where = record.hook if isinstance(record, Called) else ""
    point = record.point if isinstance(record, Called | Decided) else record.scope
    return type(record), record.scope_id, str(point), where, record.at


class OnceJournal:
    """Writes into a journal the records that it does not have yet, however often they come."""

    def __init__(self, journal: Journal, key: Callable[[Record], Hashable] = record_key) -> None:
        self._journal = journal
        self._key = key
        self._keys: dict[str, set[Hashable]] = {}

    def keys(self, run_id: str) -> set[Hashable]:
        """The keys of what the journal has of a run, as it was when first asked for."""
        if run_id not in self._keys:
            self._keys[run_id] = set(map(self._key, self._journal.records(run_id)))
        return self._keys[run_id]

    async def write(self, record: Record) -> bool:
        """Keep a record; False if it was there."""
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
            # It may be there or not: the journal is asked again.
            self.forget(record.run_id)
            raise
        return True

    def forget(self, run_id: str | None = None) -> None:
        """Ask the journal again what it has of a run; None for all runs."""
        if run_id is None:
            self._keys.clear()
        else:
            self._keys.pop(run_id, None)


class Intake:
    """Takes in the stream of one process, line by line, also one that is read again from its start.

    Of a process that is not trusted a line has `LONGEST` characters, and all lines together `most`.
    """

    def __init__(
        self,
        write: Write,
        admit: Admit = lambda record: record,
        *,
        trusted: bool = True,
        most: float = float("inf"),
    ) -> None:
        self._write, self._admit = write, admit
        self._trusted = trusted
        self._most, self._size = most, 0
        self._reader = LineReader(repeats=not trusted)
        self.taken = 0
        """Records that were new."""
        self.dropped = 0
        """Lines since the stream's start that were no records, or not that process's to write."""

    @property
    def missing(self) -> int:
        """Lines that never came."""
        return self._reader.missing

    def again(self) -> None:
        """The stream is read from its start again; what is dropped is counted anew."""
        self.dropped = self._size = 0

    async def take(self, line: str) -> tuple[Message | None, str]:
        """Take in a line: the message in it, if it has one, and what others printed there."""
        self._size += len(line) if MARK in line else 0
        if not self._trusted and (len(line) > LONGEST or self._size > self._most):
            self.dropped += MARK in line
            return None, line
        found, others = self._reader.read(line)
        if found is None:
            self.dropped += MARK in others
        elif isinstance(found, Message):
            return found, others
        else:
            await self._record(found, len(line))
        return None, others

    async def _record(self, found: Record, size: int) -> None:
        try:
            record = self._admit(found)
            if record is not None:
                self.taken += await self._write(record, size)
        except (ValueError, TypeError, RecursionError):
            if self._trusted:
                raise
            self.dropped += 1


def lacking(dropped: int, missing: int) -> list[str]:
    """The notes for a run's record on lines from inside its agent that are not in it."""
    texts = {
        f"{dropped} lines from the agent were not records and are left out": dropped,
        f"{missing} records from the agent were not received and are not in the journal": missing,
    }
    return [text for text, count in texts.items() if count]


class InnerScopes:
    """Admits the scopes of an agent's process, below a scope of a run here. None of them began before `since`; None is
    now."""

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
        """All of them come once more, from the first on."""
        self._known.clear()
        self._open.clear()

    def here(self, scope_id: object) -> str:
        """The scope of the run here that one of the other process's is."""
        return self._known.get(scope_id, self._under) if isinstance(scope_id, str) else self._under

    def admit(self, record: Record) -> Begun | Ended | None:
        """The record as it is called here; None for a scope that is on record here already."""
        if isinstance(record, Begun):
            return self._begun(record)
        if isinstance(record, Ended):
            return self._ended(record)
        raise TypeError("a hook's word is taken from the hook alone")

    def left(self) -> list[Ended]:
        """The ends of what the other process never ended, innermost first."""
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
        """Theirs, if it can be; else when it came."""
        now = time.time()
        return at if self._since <= at <= now else now


def is_sound(record: Record) -> bool:
    """True if every field is of its kind: what is stored is shown to people together with the runs of others."""
    values = zip(record._fields, cast("tuple[Any, ...]", record), strict=True)
    return all(_SHAPES[name](value) for name, value in values if name in _SHAPES)


def is_moment(value: Any) -> bool:
    """True if it is a time that has been, for a clock that may be a day ahead."""
    return _is_number(value) and 0 <= value <= time.time() + _FUTURE


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and bool(_ID.fullmatch(value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_number(value: Any) -> bool:
    # An integer of JSON may be too large for a float, and for a database.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _is_reasons(value: Any) -> bool:
    return all(isinstance(each[0], str) and _is_text_or_none(each[2]) for each in value)


_SHAPES: Mapping[str, Callable[[Any], bool]] = {
    "scope_id": _is_id,
    "parent_id": lambda value: value is None or _is_id(value),
    "at": is_moment,
    "about": lambda value: isinstance(value, dict),
    "seconds": _is_number,
    "last": lambda value: isinstance(value, bool),
    "reasons": _is_reasons,
    **dict.fromkeys(("name", "point", "hook", "mode"), _is_text),
    **dict.fromkeys(("reason", "error_kind", "error", "note", "tell_model", "tell_user"), _is_text_or_none),
}
