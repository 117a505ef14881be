"""The records of a run, read again: all, one by one, or the last of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from hookline.engine.record import Page, Record, joined
from hookline.journal.encoding import decoded
from hookline.journal.messages import Stored
from hookline.journal.rows import COUNTED, FROM_ITS_END, FROM_ITS_START, MESSAGES, NOT_COUNTED

_ROWS = 500
_ROWS_FROM_END = 50
"""Rows that are read at once: one has all that was written in a moment."""
_AROUND, _HEAD = 200, 20
"""Records before a page, and rows at the beginning of its run, that tell in which scopes it is."""


class History:
    """Reads runs by a function that executes a query."""

    def __init__(self, rows: Callable[..., list[tuple[Any, ...]]]) -> None:
        self._rows = rows

    def records(self, run_id: str) -> list[Record]:
        stored = self._messages(run_id)
        stored.load()  # they may be read when the journal is closed
        return [*joined(self._decoded(run_id, stored))]

    def each(self, run_id: str) -> Iterator[Record]:
        return joined(self._decoded(run_id, self._messages(run_id)))

    def latest(self, run_id: str, most: int) -> Page:
        stored = self._messages(run_id)
        total = sum(self._rows(query, run_id)[0][0] for query in (COUNTED, NOT_COUNTED))
        if total <= most + _AROUND:
            fields, first = [*self._from_start(run_id)], None
        else:
            fields, first = self._from_end(run_id, most + _AROUND)
            head = self._rows(FROM_ITS_START, run_id, -1, _HEAD)
            fields = [*(each for seq, body in head if seq < first for each in json.loads(body)), *fields]
        context: list[Record] = []
        records: list[Record] = []
        before = max(len(fields) - most, 0)
        taken = 0

        def read() -> Iterator[Record]:
            nonlocal taken
            for taken, each in enumerate(fields, 1):  # noqa: B007
                yield decoded(run_id, each, stored)

        for record in joined(read()):
            (context if taken <= before else records).append(record)
        return Page(context, records, max(total - most, 0))

    def _from_end(self, run_id: str, most: int) -> tuple[list[Any], int]:
        """At least so many of the last records, and the number of their first row."""
        found: list[Any] = []
        first = 1 << 62
        while len(found) < most and (rows := self._rows(FROM_ITS_END, run_id, first, _ROWS_FROM_END)):
            first = rows[-1][0]
            found[:0] = [each for _, body in reversed(rows) for each in json.loads(body)]
        return found, first

    def _from_start(self, run_id: str) -> Iterator[Any]:
        seq = -1
        while rows := self._rows(FROM_ITS_START, run_id, seq, _ROWS):
            seq = rows[-1][0]
            for _, body in rows:
                yield from json.loads(body)

    def _decoded(self, run_id: str, stored: Stored) -> Iterator[Record]:
        return (decoded(run_id, each, stored) for each in self._from_start(run_id))

    def _messages(self, run_id: str) -> Stored:
        return Stored(lambda: self._rows(MESSAGES, run_id))
