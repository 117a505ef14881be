"""SqliteJournal: the records in one file, which several processes may use at once.

`write` commits before it returns, in one row together with what was noted before. SQLite never waits for a lock here:
a write is tried again from the event loop, so a busy file does not block anything else. Without a loop the caller waits.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from hookline.engine.point import Scope
from hookline.engine.record import (
    Begun,
    Called,
    Decided,
    Ended,
    Owner,
    Page,
    Question,
    Record,
    RunRow,
    Verdict,
    VerdictKind,
)
from hookline.errors import JournalError
from hookline.files import user_key
from hookline.journal.database import (
    IN_MEMORY,
    Database,
    Reading,
    is_busy,
    read_clocks,
    sqlite3,
    transaction,
)
from hookline.journal.encoding import CAP, Encoding, decoded_question
from hookline.journal.history import History
from hookline.journal.masking import Mask
from hookline.journal.rows import (
    ANSWER,
    ASK,
    BEGIN_RUN,
    CLAIM_RUN,
    END_RUN,
    FORGET_REWRITES,
    MESSAGE,
    QUESTIONS,
    RECORD,
    RUNS,
    kept_question,
    question_of,
    run_of,
)
from hookline.journal.session import SessionFiles, session_folder

if TYPE_CHECKING:
    import asyncio

KEEP_DAYS = 30.0
KEEP_BYTES = 512 * 1024 * 1024
KEEP_BYTES_OPERATOR = 128 * 1024 * 1024
"""For an operator, which keeps its journal in its pod."""
LAG = 0.05
"""Seconds that a note may wait for others to be stored with."""

_PATIENCE = 10.0
_MOST_PENDING = 256
T = TypeVar("T")

_Row = tuple[str, float, int, str, int]
_Statement = tuple[str, tuple[Any, ...]]
_Entry = tuple[_Row | None, Sequence[_Statement]]
"""A part of a commit: a row of (run, time, calls, text, 1), and the statements that go with it."""


class SqliteJournal:
    """Used by one thread, and closed at the end of a `with`.

    `patience` is how long, in seconds, another process may hold the file.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        secrets: Iterable[str] = (),
        payloads: bool = True,
        cap: int = CAP,
        keep_days: float = KEEP_DAYS,
        keep_bytes: int = KEEP_BYTES,
        patience: float = _PATIENCE,
        clocks: Callable[[], Reading] = read_clocks,
    ) -> None:
        self.path = Path(path)
        self._encoding = Encoding(Mask(secrets), payloads=payloads, cap=cap, has_messages=True)
        self._history = History(self.rows)
        self._batch: list[_Entry] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failing, self._busy_since = False, 0.0
        # Scopes that began inside another one; their end is not the end of a run.
        self._inner: set[tuple[str, str]] = set()
        # Beginnings of scopes without an end, and questions without an answer.
        self._open: dict[str | tuple[str, str], _Entry] = {}
        # Those whose end is still to be stored.
        self._over: list[tuple[str, str]] = []
        self._database = Database(self.path, patience, clocks)
        self._db = self._database.connection
        try:
            self._database.prune_daily(keep_days, keep_bytes)
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    async def write(self, record: Begun | Ended) -> None:
        await self._stored(self._entry(record))

    def note(self, record: Called | Decided) -> None:
        self._database.check_open()
        self._batch.append(self._entry(record))
        loop = _running_loop()
        if loop is None:
            self._flush_now()
            return
        # The timer of a closed loop never fires.
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_later(LAG, self._flush_in_time)

    async def ask(self, question: Question) -> Question:
        digest = self._encoding.digest(question, self._key())
        body = self._encoding.question(question, digest)
        row = (question.id, question.run_id, question.scope_id, question.asked, body, question.code)
        entry: _Entry = None, [(ASK, row)]
        self._open[question.id] = entry
        await self._stored(entry)
        return kept_question(question, body)

    def answer(self, question_id: str, verdict: Verdict, code: tuple[Question, bytes] | None = None) -> bool:
        kind = VerdictKind(verdict.kind).value
        text, by, rewrite = self._encoding.verdict(verdict)
        signed = None
        if code is not None:
            from hookline.journal.code import signature  # only for an answer from another terminal

            shown, key = code
            signed = signature(key, shown, kind, text, by, rewrite)
        said = (kind, text, by, rewrite, signed, time.time(), question_id)
        changed = self._answered(said, verdict.digest)
        self._open.pop(question_id, None)
        return changed

    def _answered(self, said: tuple[Any, ...], digest: str) -> bool:
        if not digest:
            return self.changed(ANSWER, said)
        found = self.rows("SELECT body FROM question WHERE id = ?", said[-1])
        if not found or decoded_question(found[0][0])[4] != digest:
            return False
        return self.changed(f"{ANSWER} AND body = ?", (*said, found[0][0]))

    def question(self, question_id: str) -> Question | None:
        found = self.rows(f"{QUESTIONS} WHERE id = ?", question_id)
        return question_of(found[0]) if found else None

    def questions(self, run_id: str | None = None, *, pending: bool = True) -> list[Question]:
        where = "(?1 IS NULL OR run_id = ?1) AND (?2 = 0 OR verdict IS NULL)"
        found = self.rows(f"{QUESTIONS} WHERE {where} ORDER BY asked", run_id, pending)
        return [question_of(row) for row in found]

    def runs(self, *, limit: int = 50) -> list[RunRow]:
        return [run_of(row) for row in self.rows(f"{RUNS} ORDER BY began DESC LIMIT ?", limit)]

    def records(self, run_id: str) -> list[Record]:
        return self._history.records(run_id)

    def each(self, run_id: str) -> Iterator[Record]:
        return self._history.each(run_id)

    def latest(self, run_id: str, most: int) -> Page:
        return self._history.latest(run_id, most)

    def find(self, prefix: str) -> list[str]:
        found = self.rows(
            "SELECT run_id FROM run WHERE substr(run_id, 1, length(?1)) = ?1 ORDER BY began DESC", prefix
        )
        return [run_id for (run_id,) in found]

    def unfinished(self) -> list[RunRow]:
        return [run_of(row) for row in self.rows(f"{RUNS} WHERE ended IS NULL ORDER BY began")]

    def claim(self, run_id: str, old: Owner, new: Owner) -> bool:
        return self.changed(CLAIM_RUN, (*new, run_id, *old))

    def keep(self, run_id: str, contents: Mapping[str, bytes]) -> None:
        """Keep what the ends of a run need after a crash; stored together with the record that is written next."""
        from hookline.journal.snapshot import kept  # not for `hookline answer`

        self._database.check_open()
        self._batch.append((None, kept(run_id, contents)))

    def prune(self, *, keep_days: float, keep_bytes: int) -> int:
        self.flush()
        gone, _ = self._database.prune(keep_days, keep_bytes)
        return gone

    def session_files(self, run_id: str) -> SessionFiles | None:
        """Files for the command hooks of a session; None where nothing but memory is kept, or no payloads are."""
        if self.path == IN_MEMORY or not self._encoding.payloads:
            return None
        return SessionFiles(session_folder(self.path, run_id), self._encoding.mask)

    def flush(self) -> None:
        """Commit what was noted; unlike a timed flush this waits, and raises errors."""
        self._database.patiently(self._commit)

    def close(self) -> None:
        if self._database.closed:
            return
        try:
            self.flush()
        except JournalError as exc:
            lost = len(self._batch)
            raise JournalError(
                f"{exc} ({lost} {'record' if lost == 1 else 'records'} could not be stored)"
            ) from exc
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._database.close()

    def _key(self) -> bytes:
        try:
            return user_key(self.path.parent)
        except OSError as exc:
            raise JournalError(
                f"{exc.filename}: {exc.strerror}; the key of the journal cannot be used"
            ) from exc

    def _entry(self, record: Record) -> _Entry:
        row = record.run_id, record.at, record.__class__ is Called, self._encoding.record(record), 1
        messages = self._encoding.messages
        if messages is not None and messages.new:
            # By themselves: later records refer to them, also if this one cannot be stored.
            self._batch.append((None, [(MESSAGE, each) for each in messages.new]))
            messages.new = []
        entry: _Entry = row, self._statements(record)
        if isinstance(record, Begun):
            self._open[record.run_id, record.scope_id] = entry
        elif isinstance(record, Ended):
            self._over.append((record.run_id, record.scope_id))
        return entry

    def _statements(self, record: Record) -> list[_Statement]:
        if isinstance(record, Begun):
            return self._begin(record)
        return self._end(record) if isinstance(record, Ended) else []

    def _begin(self, record: Begun) -> list[_Statement]:
        if record.scope is not Scope.RUN and record.parent_id is not None:
            self._inner.add((record.run_id, record.scope_id))
            return []
        name, source = self._encoding.text(record.name), self._encoding.text(record.source)
        owner = record.owner or (None, None, None)
        format = (record.declaration or {}).get("format")
        row = (record.run_id, record.scope_id, record.scope.value, name, record.at, source, format, *owner)
        return [(BEGIN_RUN, row)]

    def _end(self, record: Ended) -> list[_Statement]:
        key = (record.run_id, record.scope_id)
        if key in self._inner:
            self._inner.discard(key)
            return []
        if self._encoding.messages is not None:
            self._encoding.messages.forget(record.run_id)
        error = self._encoding.text(record.error)
        ended = (record.at, record.status.value, error, record.run_id, record.scope_id)
        return [(END_RUN, ended), (FORGET_REWRITES, (record.run_id, record.scope_id))]

    async def _stored(self, entry: _Entry) -> None:
        """Commit this with all that is pending before it, without blocking the loop if the file is busy."""
        self._database.check_open()
        batch = self._batch
        batch.append(entry)
        try:
            await self._committed(batch)
        except BaseException:
            # The caller is told that it is not stored, so it must not turn up later.
            if self._batch is batch:
                batch[:] = [other for other in batch if other is not entry]
            raise

    async def _committed(self, batch: list[_Entry]) -> None:
        if _running_loop() is None:
            self.flush()  # nothing else could go on meanwhile
            return
        import asyncio

        deadline = 0.0
        pause = 0.001
        # Another write that waited too may have committed these rows.
        while self._batch is batch:
            try:
                self._commit()
            except sqlite3.Error as exc:
                deadline = deadline or time.monotonic() + self._database.patience
                if not is_busy(exc) or time.monotonic() >= deadline:
                    raise self._database.error(exc) from exc
            else:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _commit(self) -> None:
        """Commit everything pending in one transaction; it stays pending if that fails."""
        if not self._batch:
            return
        self._follow_file()
        by_run: dict[str, list[_Row]] = {}
        for row, _ in self._batch:
            if row is not None:
                by_run.setdefault(row[0], []).append(row)
        statements: list[_Statement] = [(RECORD, _joined(rows)) for rows in by_run.values()]
        statements += [each for _, several in self._batch for each in several]
        if len(statements) == 1:
            self._db.execute(*statements[0])
        else:
            with transaction(self._db):
                for each in statements:
                    self._db.execute(*each)
        self._batch = []
        self._failing, self._busy_since = False, 0.0
        for key in self._over:
            self._open.pop(key, None)
        self._over.clear()

    def _follow_file(self) -> None:
        """Go on in the file that is at the path now: nobody would find what is written to one that was deleted."""
        if self._database.is_there():
            return
        import logging

        told = "%s was deleted or replaced while it was used: what was recorded before is lost, a new one is begun"
        logging.getLogger(__name__).warning(told, self.path)
        new = Database(self.path, self._database.patience)
        self._database.close()
        self._database, self._db = new, new.connection
        if self._encoding.messages is not None:
            self._encoding.messages.forget()
        waiting = [id(entry) for entry in self._batch]
        self._batch[:0] = [entry for entry in self._open.values() if id(entry) not in waiting]

    def _flush_in_time(self) -> None:
        self._timer = None
        if self._database.closed or self._flush_now() or self._loop is None:
            return
        self._timer = self._loop.call_later(LAG, self._flush_in_time)

    def _flush_now(self) -> bool:
        """Try once. If it fails, everything stays pending, and the log says so; of a busy file once its patience ends."""
        try:
            self._commit()
        except (sqlite3.Error, JournalError) as exc:
            now = time.monotonic()
            self._busy_since = self._busy_since or now
            passes = isinstance(exc, sqlite3.Error) and is_busy(exc)
            if passes and now - self._busy_since < self._database.patience:
                return False
            if not self._failing:
                import logging

                log = logging.getLogger(__name__)
                error = exc if isinstance(exc, JournalError) else self._database.error(exc)
                log.warning("%s; %s records wait, trying again", error, len(self._batch))
            self._failing = True
            return False
        return True

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._executed(query, values, lambda found: found.fetchall())

    def changed(self, statement: str, values: tuple[Any, ...]) -> bool:
        """True if the statement has changed its one row."""
        return self._executed(statement, values, lambda done: done.rowcount) == 1

    def _executed(self, statement: str, values: tuple[Any, ...], taken: Callable[[sqlite3.Cursor], T]) -> T:
        self._follow_file()
        if self._batch:
            self.flush()
        return self._database.patiently(lambda: taken(self._db.execute(statement, values)))


class MemoryJournal(SqliteJournal):
    """Keeps its records in this process only, masked and capped as in a file; for tests, and for runs without a file.

    It need not be closed."""

    def __init__(self, *, secrets: Iterable[str] = (), payloads: bool = True, cap: int = CAP) -> None:
        import weakref  # not for a journal in a file, which every answer opens

        self._own_key = os.urandom(32)
        super().__init__(IN_MEMORY, secrets=secrets, payloads=payloads, cap=cap)
        weakref.finalize(self, self._database.close)

    def _key(self) -> bytes:
        return self._own_key

    async def write(self, record: Begun | Ended) -> None:
        self.note(record)

    def note(self, record: Record) -> None:
        """Store a record later: in memory nothing outlives a crash, so storing it at once gains nothing."""
        self._database.check_open()
        self._batch.append(self._entry(record))
        if len(self._batch) >= _MOST_PENDING:
            self.flush()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    # Not imported here, because it is slow to load; if nobody has imported it, no loop runs.
    loops = sys.modules.get("asyncio")
    try:
        return loops and loops.get_running_loop()
    except RuntimeError:
        return None


def _joined(rows: list[_Row]) -> _Row:
    run_id, at, _, _, _ = rows[-1]
    return run_id, at, sum([row[2] for row in rows]), f"[{','.join([row[3] for row in rows])}]", len(rows)
