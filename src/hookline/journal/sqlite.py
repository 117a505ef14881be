"""SqliteJournal: the record in one file, which several processes may use at once.

What must not be lost is committed before `write` returns, in one row together with what was noted before it. SQLite
never waits for a lock here: a write tries again from the event loop, so a busy file does not stop anything else.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hookline import files
from hookline.engine.point import Scope, Status
from hookline.engine.record import (
    Begun,
    Called,
    Decided,
    Ended,
    Owner,
    Question,
    Record,
    RunRow,
    Verdict,
    VerdictKind,
)
from hookline.errors import JournalError
from hookline.journal.encoding import CAP, Encoding, decoded, decoded_question
from hookline.journal.masking import Mask
from hookline.journal.schema import migrate

if TYPE_CHECKING:
    import asyncio
    import sqlite3
else:
    try:
        # The same without its adapters for dates, which take longer to load than a journal to open.
        import _sqlite3 as sqlite3
    except ImportError:
        import sqlite3

KEEP_DAYS = 30.0
KEEP_BYTES = 512 * 1024 * 1024
KEEP_BYTES_OPERATOR = 128 * 1024 * 1024
"""Of an operator, which keeps its journal in its pod."""
LAG = 0.05
"""Seconds that a note may wait for others to be stored with."""

_PATIENCE = 10.0
_DAY = 86400.0
_PRUNE_SECONDS = 0.5

_clock = time.monotonic
_T = TypeVar("_T")


class _Batch:
    """What is to be committed next: rows of (run, time, calls, text), and statements that go with them."""

    __slots__ = ("rows", "statements")

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, int, str]] = []
        self.statements: list[tuple[str, tuple[Any, ...]]] = []


class SqliteJournal:
    """Used by one thread. `patience` is how long, in seconds, another process may hold the file."""

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
    ) -> None:
        self.path = Path(path)
        self._encoding = Encoding(Mask(secrets), payloads=payloads, cap=cap)
        self._patience = patience
        self._batch = _Batch()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failing = False
        self._closed = False
        # Scopes that began inside another one; their end is not the end of a run.
        self._inner: set[tuple[str, str]] = set()
        self._db = self._opened()
        try:
            self._tidy(keep_days, keep_bytes)
        except BaseException:
            self._db.close()
            raise

    async def write(self, record: Begun | Ended) -> None:
        row = (record.run_id, record.at, 0, self._encoding.record(record))
        statements = self._begin(record) if isinstance(record, Begun) else self._end(record)
        await self._stored(row, statements)

    def put(self, *records: Record) -> None:
        """`write` and `note` at once, for who has no event loop: where the file is busy, the caller waits."""
        for record in records:
            called = 1 if record.__class__ is Called else 0
            self._batch.rows.append((record.run_id, record.at, called, self._encoding.record(record)))
            if isinstance(record, Begun):
                self._batch.statements += self._begin(record)
            elif isinstance(record, Ended):
                self._batch.statements += self._end(record)
        self.flush()

    def note(self, record: Called | Decided) -> None:
        if self._closed:
            raise self._closed_error()
        called = 1 if record.__class__ is Called else 0
        self._batch.rows.append((record.run_id, record.at, called, self._encoding.record(record)))
        # Not imported above, for it is slow to load; where nobody has, no loop runs.
        loops = sys.modules.get("asyncio")
        try:
            loop: asyncio.AbstractEventLoop | None = loops and loops.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is None:
            self._flush_now()
            return
        # A timer of a loop that is gone never comes.
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_later(LAG, self._flush_in_time)

    async def ask(self, question: Question) -> None:
        body = self._encoding.question(question)
        row = (question.id, question.run_id, question.scope_id, question.asked, body)
        await self._stored(None, [(_ASK, row)])

    def answer(self, question_id: str, verdict: Verdict) -> bool:
        text, by, rewrite = self._encoding.verdict(verdict)
        said = (VerdictKind(verdict.kind).value, text, by, rewrite, time.time(), question_id)
        return self._patiently(lambda: self._db.execute(_ANSWER, said).rowcount) == 1

    def question(self, question_id: str) -> Question | None:
        found = self._all(f"{_QUESTIONS} WHERE id = ?", question_id)
        return _question(found[0]) if found else None

    def questions(self, run_id: str | None = None, *, pending: bool = True) -> list[Question]:
        where = "(?1 IS NULL OR run_id = ?1) AND (?2 = 0 OR verdict IS NULL)"
        return [
            _question(row) for row in self._all(f"{_QUESTIONS} WHERE {where} ORDER BY asked", run_id, pending)
        ]

    def runs(self, *, limit: int = 50) -> list[RunRow]:
        return [_run(row) for row in self._all(f"{_RUNS} ORDER BY began DESC LIMIT ?", limit)]

    def records(self, run_id: str) -> list[Record]:
        bodies = self._all("SELECT body FROM record WHERE run_id = ? ORDER BY seq", run_id)
        return [decoded(run_id, fields) for (body,) in bodies for fields in json.loads(body)]

    def find(self, prefix: str) -> list[str]:
        found = self._all(
            "SELECT run_id FROM run WHERE substr(run_id, 1, length(?1)) = ?1 ORDER BY began DESC", prefix
        )
        return [run_id for (run_id,) in found]

    def unfinished(self) -> list[RunRow]:
        return [_run(row) for row in self._all(f"{_RUNS} WHERE ended IS NULL ORDER BY began")]

    def claim(self, run_id: str, old: Owner, new: Owner) -> bool:
        return self._patiently(lambda: self._db.execute(_CLAIM_RUN, (*new, run_id, *old)).rowcount) == 1

    def prune(self, *, keep_days: float, keep_bytes: int) -> int:
        self.flush()
        gone, _ = self._pruned(keep_days, keep_bytes)
        return gone

    def flush(self) -> None:
        """Commit what was noted; unlike a timed flush this waits, and raises."""
        self._patiently(self._commit)

    def close(self) -> None:
        if self._closed:
            return
        try:
            self.flush()
        except JournalError as exc:
            lost = len(self._batch.rows)
            raise JournalError(
                f"{exc} ({lost} {'record' if lost == 1 else 'records'} could not be stored)"
            ) from exc
        finally:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            self._db.close()

    def _opened(self) -> sqlite3.Connection:
        try:
            files.private_folder(self.path.parent)
            # Made here and not by SQLite, which would let everybody read it.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as exc:
            raise JournalError(
                f"{self.path}: {exc.strerror}; it must be a file that you may write, in a folder that you may write"
                " (HOOKLINE_HOME names another folder)"
            ) from exc
        try:
            db = sqlite3.connect(self.path, isolation_level=None, timeout=0)
        except sqlite3.Error as exc:
            raise self._error(exc) from exc
        try:
            self._patiently(lambda: _prepare(db))
            self._patiently(lambda: migrate(db, self.path))
        except BaseException:
            db.close()
            raise
        return db

    def _begin(self, record: Begun) -> list[tuple[str, tuple[Any, ...]]]:
        if record.scope is not Scope.RUN and record.parent_id is not None:
            self._inner.add((record.run_id, record.scope_id))
            return []
        text = self._encoding.text
        boot_id, pid, started = record.owner or (None, None, None)
        name, source = text(record.name), text(record.source)
        row = (
            record.run_id,
            record.scope_id,
            record.scope.value,
            name,
            record.at,
            source,
            boot_id,
            pid,
            started,
        )
        return [(_BEGIN_RUN, row)]

    def _end(self, record: Ended) -> list[tuple[str, tuple[Any, ...]]]:
        key = (record.run_id, record.scope_id)
        if key in self._inner:
            self._inner.discard(key)
            return []
        error = self._encoding.text(record.error)
        ended = (record.at, record.status.value, error, record.run_id, record.scope_id)
        return [(_END_RUN, ended), (_FORGET_REWRITES, (record.run_id, record.scope_id))]

    async def _stored(
        self, row: tuple[str, float, int, str] | None, statements: list[tuple[str, tuple[Any, ...]]]
    ) -> None:
        """Commit this with all that is pending before it; where the file is busy, without holding up the loop."""
        if self._closed:
            raise self._closed_error()
        batch = self._batch
        if row is not None:
            batch.rows.append(row)
        batch.statements += statements
        try:
            await self._committed(batch)
        except BaseException:
            # Not stored, and told so: it must not turn up later.
            if self._batch is batch:
                batch.rows = [other for other in batch.rows if other is not row]
                batch.statements = [
                    one for one in batch.statements if not any(one is mine for mine in statements)
                ]
            raise

    async def _committed(self, batch: _Batch) -> None:
        import asyncio

        deadline = 0.0
        pause = 0.001
        # Another write that waited too may have taken this one's rows along.
        while self._batch is batch:
            try:
                self._commit()
            except sqlite3.Error as exc:
                deadline = deadline or _clock() + self._patience
                if not _is_busy(exc) or _clock() >= deadline:
                    raise self._error(exc) from exc
            else:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _commit(self) -> None:
        """Everything pending in one transaction; it stays pending where that fails."""
        batch, db = self._batch, self._db
        rows = batch.rows
        if not batch.statements:
            if not rows:
                return
            if len(rows) == 1 or all(row[0] == rows[0][0] for row in rows):
                db.execute(_RECORD, _joined(rows))
                self._done()
                return
        db.execute("BEGIN IMMEDIATE")
        try:
            by_run: dict[str, list[tuple[str, float, int, str]]] = {}
            for row in rows:
                by_run.setdefault(row[0], []).append(row)
            for of_run in by_run.values():
                db.execute(_RECORD, _joined(of_run))
            for statement, values in batch.statements:
                db.execute(statement, values)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self._done()

    def _done(self) -> None:
        self._batch = _Batch()
        self._failing = False

    def _flush_in_time(self) -> None:
        self._timer = None
        if self._closed or self._flush_now() or self._loop is None:
            return
        self._timer = self._loop.call_later(LAG, self._flush_in_time)

    def _flush_now(self) -> bool:
        """Try once. What fails stays pending, is told in the log, and is raised by the next write that fails too."""
        try:
            self._commit()
        except sqlite3.Error as exc:
            if not self._failing:
                import logging

                log = logging.getLogger(__name__)
                log.warning("%s; %s records wait, trying again", self._error(exc), len(self._batch.rows))
            self._failing = True
            return False
        return True

    def _patiently(self, act: Callable[[], _T]) -> _T:
        """For what is not async: waits for other processes, holding up the caller."""
        if self._closed:
            raise self._closed_error()
        deadline = _clock() + self._patience
        while True:
            try:
                return act()
            except sqlite3.Error as exc:
                if not _is_busy(exc) or _clock() >= deadline:
                    raise self._error(exc) from exc
            time.sleep(0.005)

    def _all(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        if self._batch.rows or self._batch.statements:
            self.flush()
        return self._patiently(lambda: self._db.execute(query, values).fetchall())

    def _tidy(self, keep_days: float, keep_bytes: int) -> None:
        """Prune at most once a day, and only for a moment; what is left then is for the next opening."""
        now = time.time()
        try:
            claimed = self._db.execute(_CLAIM, (now, now - _DAY)).rowcount
            if not claimed:
                return
            _, finished = self._pruned(keep_days, keep_bytes, within=_PRUNE_SECONDS)
            if not finished:
                self._db.execute(_CLAIM, (0.0, now))
        except sqlite3.Error as exc:
            if not _is_busy(exc):
                raise self._error(exc) from exc

    def _pruned(self, keep_days: float, keep_bytes: int, within: float | None = None) -> tuple[int, bool]:
        """How many runs went, and whether that was all. With a limit it does not wait for others either."""
        attempt = self._patiently if within is None else _at_once
        deadline = None if within is None else _clock() + within
        now = time.time()
        gone = 0
        finished = True
        for run_id, ended in attempt(lambda: self._db.execute(_OLDEST_FINISHED, (now - _DAY,)).fetchall()):
            if ended >= now - keep_days * _DAY and attempt(self._live_bytes) <= keep_bytes:
                break
            if deadline is not None and _clock() >= deadline:
                finished = False
                break
            attempt(lambda run_id=run_id: self._drop(run_id))
            gone += 1
        if gone:
            attempt(self._shrink)
        return gone, finished

    def _drop(self, run_id: str) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            for table in ("record", "question", "run"):
                db.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _live_bytes(self) -> int:
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        return (pages - free) * size

    def _shrink(self) -> None:
        db = self._db
        # A few pages at a time, so that others can write in between.
        while db.execute("PRAGMA freelist_count").fetchone()[0] > 0:
            before = db.execute("PRAGMA page_count").fetchone()[0]
            db.execute("PRAGMA incremental_vacuum(1000)").fetchall()
            if db.execute("PRAGMA page_count").fetchone()[0] == before:
                # Made without incremental vacuum, by hand or by another program.
                db.execute("VACUUM")
                break
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _closed_error(self) -> JournalError:
        return JournalError(f"{self.path} is closed already")

    def _error(self, exc: sqlite3.Error) -> JournalError:
        code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
        advice = _ADVICE.get(code, "{path}: the journal could not be used: {exc}")
        return JournalError(advice.format(path=self.path, exc=exc, patience=self._patience))


_RECORD = "INSERT INTO record (run_id, at, calls, body) VALUES (?, ?, ?, ?)"
# The run's own scope speaks for it; another outermost scope (a workspace, an agent alone) where there is none.
_BEGIN_RUN = """
    INSERT INTO run (run_id, scope_id, scope, name, began, source, boot_id, pid, started)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (run_id) DO UPDATE SET
        scope_id = excluded.scope_id, scope = excluded.scope, name = excluded.name,
        ended = NULL, status = NULL, error = NULL, source = coalesce(excluded.source, source),
        started = CASE WHEN excluded.pid IS NULL THEN started ELSE excluded.started END,
        boot_id = CASE WHEN excluded.pid IS NULL THEN boot_id ELSE excluded.boot_id END,
        pid = coalesce(excluded.pid, pid)
    WHERE excluded.scope = 'run' OR (run.ended IS NOT NULL AND run.scope <> 'run')
"""
_END_RUN = "UPDATE run SET ended = ?, status = ?, error = ? WHERE run_id = ? AND scope_id = ?"
_CLAIM_RUN = """
    UPDATE run SET boot_id = ?, pid = ?, started = ?
    WHERE run_id = ? AND ended IS NULL AND boot_id = ? AND pid = ? AND started = ?
"""
_FORGET_REWRITES = """
    UPDATE question SET rewrite = NULL
    WHERE run_id = ?1 AND rewrite IS NOT NULL AND EXISTS (SELECT 1 FROM run WHERE run_id = ?1 AND scope_id = ?2)
"""
_RUNS = """
    SELECT run_id, name, began, ended, status, error, source, boot_id, pid, started,
        (SELECT coalesce(sum(calls), 0) FROM record WHERE record.run_id = run.run_id)
    FROM run
"""
_QUESTIONS = "SELECT id, run_id, scope_id, asked, body, verdict, text, said_by, rewrite FROM question"
# Asked again it is open again: what was said to an earlier input is no answer to this one.
_ASK = "INSERT OR REPLACE INTO question (id, run_id, scope_id, asked, body) VALUES (?, ?, ?, ?, ?)"
_ANSWER = """
    UPDATE question SET verdict = ?, text = ?, said_by = ?, rewrite = ?, answered = ?
    WHERE id = ? AND verdict IS NULL
"""
_CLAIM = "UPDATE chore SET done = ? WHERE name = 'prune' AND done <= ?"
# Records of which no beginning was ever written belong to no run, and are finished when they are a day old.
_OLDEST_FINISHED = """
    SELECT run_id, ended AS last FROM run WHERE ended IS NOT NULL
    UNION ALL
    SELECT run_id, max(at) AS last FROM record
    WHERE run_id NOT IN (SELECT run_id FROM run)
        AND run_id NOT IN (SELECT run_id FROM question WHERE verdict IS NULL)
    GROUP BY run_id HAVING max(at) < ?
    ORDER BY last
"""
_ADVICE = {
    sqlite3.SQLITE_BUSY: "{path} is locked by another process for more than {patience:g} s; end that process or wait",
    sqlite3.SQLITE_LOCKED: "{path} is locked by another process for more than {patience:g} s; end that process or wait",
    sqlite3.SQLITE_READONLY: "{path} cannot be written ({exc}); make the file and its folder writable for you,"
    " or set HOOKLINE_HOME to another folder",
    sqlite3.SQLITE_PERM: "{path} may not be used ({exc}); make the file and its folder writable for you",
    sqlite3.SQLITE_CANTOPEN: "{path} cannot be opened ({exc}); it must be a file, in a folder that you may write",
    sqlite3.SQLITE_FULL: "{path} cannot grow ({exc}); free some space, or run `hookline prune`",
    sqlite3.SQLITE_NOTADB: "{path} is not a journal ({exc}); move it away, or set HOOKLINE_HOME to another folder",
    sqlite3.SQLITE_CORRUPT: "{path} is damaged ({exc}); move it away together with its -wal and -shm files,"
    " and a new one is made",
    sqlite3.SQLITE_IOERR: "{path} could not be read or written ({exc}); look at the disk it is on",
}


def _prepare(db: sqlite3.Connection) -> None:
    if db.execute("PRAGMA page_count").fetchone()[0] == 0:
        # Only has an effect in a file that is still empty, and before anything else is said to it.
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("PRAGMA synchronous = NORMAL")


def _at_once(act: Callable[[], _T]) -> _T:
    return act()


def _is_busy(exc: sqlite3.Error) -> bool:
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _joined(rows: list[tuple[str, float, int, str]]) -> tuple[str, float, int, str]:
    run_id, at, calls, text = rows[-1]
    if len(rows) == 1:
        return run_id, at, calls, f"[{text}]"
    return run_id, at, sum([row[2] for row in rows]), f"[{','.join([row[3] for row in rows])}]"


def _run(row: tuple[Any, ...]) -> RunRow:
    run_id, name, began, ended, status, error, source, boot_id, pid, started, calls = row
    return RunRow(
        run_id=run_id,
        name=name,
        began=began,
        ended=ended,
        status=None if status is None else Status(status),
        error=error,
        source=source,
        owner=None if pid is None else Owner(boot_id, pid, started),
        calls=calls,
    )


def _question(row: tuple[Any, ...]) -> Question:
    id, run_id, scope_id, asked, body, kind, text, by, rewrite = row
    point, tool, reasons, value = decoded_question(body)
    return Question(
        id=id,
        run_id=run_id,
        scope_id=scope_id,
        point=point,
        tool=tool,
        reasons=reasons,
        value=value,
        asked=asked,
        verdict=kind
        and Verdict(VerdictKind(kind), text, None if rewrite is None else json.loads(rewrite), by),
    )
