"""Records that cross from one process to another on a stream that others print to as well, such as a pod's log.

A line of ours is a JSON text after the character RS, as RFC 7464 has it, and is numbered: whoever reads the stream again
from its beginning takes each record once, and knows of those that are missing. Both ends are ours; what a process that
is not trusted says of itself is for `foreign`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from hookline.engine.record import Begun, Called, Decided, Ended, Journal, Record
from hookline.errors import JournalError
from hookline.journal.encoding import Encoding, decoded
from hookline.journal.masking import Mask

__all__ = ["MARK", "Received", "Said", "Sender", "Unwritten"]

MARK = "\x1e"


class Said(NamedTuple):
    """Something besides records that the other process has to tell, under a word that both know."""

    word: str
    value: Any


class Sender:
    """Prints them. `record` is for whoever takes a watcher of a run."""

    def __init__(self, write: Callable[[str], object], mask: Mask | None = None) -> None:
        self._write = write
        self._encoding = Encoding(mask or Mask())
        self._count = 0

    def record(self, record: Record) -> None:
        self._line(json.dumps(record.run_id), self._encoding.record(record))

    def say(self, word: str, value: Any) -> None:
        self._line("null", f"[{json.dumps(word)},{self._encoding.mask.json(value)}]")

    def _line(self, run_id: str, text: str) -> None:
        # Whatever somebody has printed without ending their line ends there.
        self._write(f"{MARK}[{self._count},{run_id},{text}]\n")
        self._count += 1


class Received:
    """Reads them, line by line."""

    def __init__(self) -> None:
        self._next = 0
        self.missing = 0
        """How many of their lines never came."""

    def take(self, line: str) -> tuple[Record | Said | None, str]:
        """What is new in a line, if anything is, and what others printed there."""
        others, mark, ours = line.partition(MARK)
        if not mark:
            return None, line
        try:
            number, run_id, fields = json.loads(ours)
            behind = number - self._next
            found = Said(*fields) if run_id is None else decoded(str(run_id), fields)
        except (ValueError, TypeError, RecursionError, JournalError):
            return None, line
        if behind < 0:
            return None, ""
        self.missing += behind
        self._next += behind + 1
        return found, others


class Unwritten:
    """Which records of other processes a journal does not have yet, however often they are sent."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[str, set[tuple[Any, ...]]] = {}

    def is_new(self, record: Record) -> bool:
        known = self._known.get(record.run_id)
        if known is None:
            known = self._known[record.run_id] = set(map(_mark, self._journal.records(record.run_id)))
        new = _mark(record) not in known
        known.add(_mark(record))
        return new

    async def write(self, record: Record) -> bool:
        """Keep it, unless it is kept; whether it was new."""
        if not self.is_new(record):
            return False
        if isinstance(record, Begun | Ended):
            await self._journal.write(record)
        else:
            self._journal.note(record)
        return True


def _mark(record: Record) -> tuple[Any, ...]:
    """Two records of a run are never the same in all of this."""
    where = record.hook if isinstance(record, Called) else ""
    point = record.point if isinstance(record, Called | Decided) else record.scope
    return type(record), record.scope_id, str(point), where, record.at
