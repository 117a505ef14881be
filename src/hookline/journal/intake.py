"""Records of scopes inside a process that is not trusted: written there as lines, checked here before they count.

A line is a record as the journal keeps it. Only beginnings and ends are taken, and only of what an agent does: what
hooks said is on record where they ran, and nobody else can say it for them.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any, cast

from hookline.engine.point import Scope, Status
from hookline.engine.record import Begun, Ended, Record
from hookline.errors import JournalError
from hookline.journal.encoding import CAP, Encoding, decoded
from hookline.journal.masking import Mask
from hookline.journal.stream import MARK

__all__ = ["BROKEN_OFF", "INSIDE", "LONGEST", "Foreign", "line_of", "parted", "printed"]

INSIDE = "x.hookline.inside"
"""Where a run's record says that something of what came from inside its agent is missing."""

LONGEST = 4 * 1024 * 1024
"""Bytes of one line."""
MOST_BYTES = 64 * 1024 * 1024
MOST_RECORDS = 50_000
_AROUND = frozenset({Scope.WORKSPACE, Scope.RUN, Scope.SESSION})
_ID = re.compile(r"[0-9A-Za-z]{1,32}", re.ASCII)
_LONGEST_NAME = 200
BROKEN_OFF = "the agent's process was over before it"
_PRINTED = f'{MARK}["'


def line_of(record: Record, encoding: Encoding) -> bytes | None:
    """What the other process sends of a record; None where it is not to be sent."""
    if isinstance(record, Begun):
        record = record._replace(declaration=None, source=None, owner=None)
    elif not isinstance(record, Ended):
        return None
    return encoding.record(record).encode() + b"\n"


def printed(record: Record, encoding: Encoding) -> str | None:
    """The same, for a process that sends it among all else that it prints."""
    line = line_of(record, encoding)
    return None if line is None else f"{MARK}{line.decode()}"


def parted(text: str) -> tuple[str, list[str]]:
    """What a process printed without its records, and the lines of those."""
    if _PRINTED not in text:
        return text, []
    others: list[str] = []
    lines: list[str] = []
    for line in text.split("\n"):
        # Somebody may have begun the line who did not end it.
        said, mark, record = line.partition(_PRINTED)
        if mark:
            lines.append(f'["{record}')
        if said or not mark:
            others.append(said)
    return "\n".join(others), lines


class Foreign:
    """The scopes of another process, below a scope of a run here. None of them began before `since`; None is now."""

    def __init__(
        self, run_id: str, scope_id: str, mask: Mask | None = None, *, since: float | None = None
    ) -> None:
        self._run_id = run_id
        self._under = scope_id
        self._mask = mask or Mask()
        self._since = time.time() if since is None else since
        self._known: dict[str, str] = {}
        self._open: dict[str, Scope] = {}
        self._bytes = 0
        self.dropped = 0
        """How many lines were no records."""

    @property
    def lacks(self) -> str:
        """What a record made of these has to tell of what is not in it; empty where that is nothing."""
        return (
            f"{self.dropped} lines from inside the agent were no records, and are left out"
            if self.dropped
            else ""
        )

    def here(self, scope_id: object) -> str:
        """Which scope of the run here one of the other process's is."""
        return self._known.get(scope_id, self._under) if isinstance(scope_id, str) else self._under

    def record(self, line: bytes) -> Begun | Ended | None:
        """The record of a line. None where it is none, and where it is of a scope that is on record here already."""
        self._bytes += len(line)
        try:
            if len(line) > LONGEST or self._bytes > MOST_BYTES:
                raise ValueError
            given = decoded(self._run_id, json.loads(line))
            if not isinstance(given, Begun | Ended):
                raise TypeError
            return self._begun(given) if isinstance(given, Begun) else self._ended(given)
        except (ValueError, TypeError, RecursionError, JournalError):
            self.dropped += 1
            return None

    def left(self) -> list[Ended]:
        """The ends of what the other process never ended, innermost first."""
        broken = [
            Ended(self._run_id, id, scope, time.time(), Status.LOST, None, BROKEN_OFF)
            for id, scope in reversed(self._open.items())
        ]
        self._open.clear()
        return broken

    def _begun(self, given: Begun) -> Begun | None:
        inner, parent = given.scope_id, given.parent_id
        fits = _ID.fullmatch(inner) and inner not in self._known and len(self._known) < MOST_RECORDS
        if not fits or (parent is not None and parent not in self._known):
            raise ValueError
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
        self._open[made.scope_id] = made.scope
        return made

    def _ended(self, given: Ended) -> Ended | None:
        id = self._known.get(given.scope_id)
        if id == self._under:
            return None
        if id is None or self._open.get(id) is not given.scope:
            raise ValueError
        error = None if given.error is None else self._text(given.error, CAP)
        made = Ended(
            self._run_id,
            id,
            given.scope,
            self._moment(given.at),
            given.status,
            self._value(given.output),
            error,
        )
        del self._open[id]
        return made

    def _value(self, value: Any) -> Any:
        return json.loads(self._mask.json(value, CAP))

    def _text(self, value: object, cap: int) -> str:
        if not isinstance(value, str):
            raise TypeError
        return self._mask.text(value, cap)

    def _moment(self, at: float) -> float:
        """Theirs, if it can be; else when it came."""
        now = time.time()
        return at if self._since <= at <= now else now
