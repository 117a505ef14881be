"""The wire format of records: numbered lines on a stream that others print to as well, such as the log of a pod.

A line of ours is a JSON text after the character RS, as in RFC 7464: `RS [number, run id, record]`, or
`RS [number, null, [word, value]]` for a message besides records. A reader that begins again at the start of the stream
takes each line once by its number, and knows how many are missing. `intake` decides which of them are accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from hookline.engine.record import Begun, Ended, Record
from hookline.errors import JournalError
from hookline.journal.encoding import Encoding, decoded
from hookline.journal.masking import Mask

MARK = "\x1e"
SERVING = "serving"
"""The message of a process that has recovered the runs of earlier ones, with the time of its start."""
_OURS = re.compile(rf"{MARK}\[([0-9]{{1,12}}),")


class Message(NamedTuple):
    """A message that is not a record, under a word that both sides know."""

    word: str
    value: Any


class Sender:
    """Writes records and messages as lines. `record` can be used as the watcher of a run."""

    def __init__(self, write: Callable[[str], object], mask: Mask | None = None) -> None:
        self._write = write
        self._encoding = Encoding(mask or Mask())
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

    A line that came before is skipped, unless `repeats`: the numbers of an untrusted or restarted sender prove nothing,
    so each line is returned however often it comes.
    """

    def __init__(self, *, repeats: bool = False) -> None:
        self._repeats = repeats
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
        if self._repeats:
            self._count(number, ours)
        try:
            _, run_id, fields = json.loads(ours[1:])
            found = Message(*fields) if run_id is None else decoded(str(run_id), fields)
        except (ValueError, TypeError, RecursionError, JournalError):
            return None, line
        # A line that was cut off is not counted until it is complete.
        if not self._repeats and not self._count(number, ours):
            return None, ""
        return found, others

    def _count(self, number: int, ours: str) -> bool:
        """True if the line is new.

        If the stream of another process follows on it, the numbers begin again with another first line."""
        if self._repeats and number == 0 and ours != self._first:
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
