"""The database of a journal: opening, migration, sharing with other processes, pruning, and error messages."""

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from hookline import files
from hookline.errors import JournalError
from hookline.journal.session import session_folder

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        # The same without its adapters for dates, which take longer to load than a journal to open.
        import _sqlite3 as sqlite3
    except ImportError:
        import sqlite3

IN_MEMORY = Path(":memory:")
"""The path of a database that is kept in this process only."""

_DAY = 86400.0
_PRUNE_SECONDS = 0.5
_DRIFT = 3600.0
_LONGEST_PAUSE = 7 * _DAY
"""Between two readings with a start of the system in between: more is taken for a clock that jumped."""
_T = TypeVar("_T")

MIGRATIONS: Sequence[Sequence[str]] = (
    (
        # `scope_id` is the scope whose end is the run's end.
        """
        CREATE TABLE run (
            run_id TEXT PRIMARY KEY, scope_id TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
            began REAL NOT NULL, ended REAL, status TEXT, error TEXT, source TEXT,
            boot_id TEXT, pid INTEGER, started TEXT
        ) WITHOUT ROWID
        """,
        "CREATE INDEX run_began ON run (began)",
        # One row is all that was written of a run at once: a JSON array of records.
        """
        CREATE TABLE record (
            seq INTEGER PRIMARY KEY, run_id TEXT NOT NULL, at REAL NOT NULL, calls INTEGER NOT NULL, body TEXT NOT NULL
        )
        """,
        "CREATE INDEX record_run ON record (run_id, calls)",
        # `rewrite` is a person's new input as they gave it; it goes when the run ends.
        """
        CREATE TABLE question (
            id TEXT PRIMARY KEY, run_id TEXT NOT NULL, scope_id TEXT NOT NULL, asked REAL NOT NULL, body TEXT NOT NULL,
            verdict TEXT, text TEXT, said_by TEXT, rewrite TEXT, answered REAL
        ) WITHOUT ROWID
        """,
        "CREATE INDEX question_run ON question (run_id)",
        "CREATE TABLE chore (name TEXT PRIMARY KEY, done REAL NOT NULL) WITHOUT ROWID",
        "INSERT INTO chore VALUES ('prune', 0)",
    ),
    # The digest of a question's code, and the signature of an answer with it.
    ("ALTER TABLE question ADD COLUMN code TEXT", "ALTER TABLE question ADD COLUMN signature TEXT"),
    (
        # NULL where the run began before this version; its records have it.
        "ALTER TABLE run ADD COLUMN format TEXT",
        "CREATE INDEX run_unfinished ON run (began) WHERE ended IS NULL",
        # The end hooks of a run as they were at its start, for a crash; the same content is there once.
        "CREATE TABLE content (digest TEXT PRIMARY KEY, body BLOB NOT NULL)",
        """
        CREATE TABLE kept (
            run_id TEXT NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (run_id, name)
        ) WITHOUT ROWID
        """,
        "CREATE TABLE retry (run_id TEXT PRIMARY KEY, tries INTEGER NOT NULL, due REAL NOT NULL) WITHOUT ROWID",
    ),
    (
        # Records refer to the messages of their run by these numbers.
        "CREATE TABLE message (number INTEGER PRIMARY KEY, run_id TEXT NOT NULL, body TEXT NOT NULL)",
        "CREATE INDEX message_run ON message (run_id)",
    ),
    (
        # The row `clock`: what the clocks said when old runs were last looked for, and since when they agree.
        "ALTER TABLE chore ADD COLUMN boot_id TEXT",
        "ALTER TABLE chore ADD COLUMN up REAL",
        "ALTER TABLE chore ADD COLUMN agreed REAL NOT NULL DEFAULT 0",
        "INSERT INTO chore (name, done) VALUES ('clock', 0)",
    ),
    (
        # The number of records in a row, and the rows of a run in order, so that it can be read from its end.
        "ALTER TABLE record ADD COLUMN records INTEGER",
        "DROP INDEX record_run",
        "CREATE INDEX record_run ON record (run_id, seq, calls, records)",
    ),
)
"""Step n leads to version n + 1. A step that was released is never changed; a new one is added."""

# A time that is still to come was set by a clock that was wrong.
_CLAIM = "UPDATE chore SET done = ? WHERE name = 'prune' AND (done <= ? OR done > ?)"
_LAST_READING = "SELECT done, boot_id, up, agreed FROM chore WHERE name = 'clock'"
_SET_READING = "UPDATE chore SET done = ?, boot_id = ?, up = ?, agreed = ? WHERE name = 'clock'"
# Records of which no beginning was ever written belong to no run, and are finished when they are a day old; so is what
# a foreign agent left open, for nobody holds it.
_OLDEST_FINISHED = """
    SELECT run_id, ended AS last FROM run WHERE ended IS NOT NULL
    UNION ALL
    SELECT run_id, max(at) AS last FROM record
    WHERE run_id NOT IN (
            SELECT run_id FROM run WHERE ended IS NOT NULL OR pid IS NOT NULL OR scope IN ('workspace', 'run')
        )
        AND run_id NOT IN (SELECT run_id FROM question WHERE verdict IS NULL)
    GROUP BY run_id HAVING max(at) < ?
    ORDER BY last
"""
_ENDED = (
    "DELETE FROM retry WHERE run_id NOT IN (SELECT run_id FROM run WHERE ended IS NULL)",
    "DELETE FROM kept WHERE run_id NOT IN (SELECT run_id FROM run WHERE ended IS NULL)",
    "DELETE FROM content WHERE digest NOT IN (SELECT digest FROM kept)",
)
_ADVICE = {
    sqlite3.SQLITE_BUSY: "{path} is locked by another process for more than {patience:g} s; end that process or wait",
    sqlite3.SQLITE_LOCKED: "{path} is locked by another process for more than {patience:g} s; end that process or wait",
    sqlite3.SQLITE_READONLY: "{path} cannot be written ({exc}); make the file and its folder writable for you,"
    " or set HOOKLINE_HOME to another folder",
    sqlite3.SQLITE_PERM: "{path} may not be used ({exc}); make the file and its folder writable for you",
    sqlite3.SQLITE_CANTOPEN: "{path} cannot be opened ({exc}); it must be a file, in a folder that you may write",
    sqlite3.SQLITE_FULL: "{path} cannot grow ({exc}); free some space on its disk, then the next start goes on",
    sqlite3.SQLITE_NOTADB: "{path} is not a journal ({exc}); move it away, or set HOOKLINE_HOME to another folder",
    sqlite3.SQLITE_CORRUPT: "{path} is damaged ({exc}); move it away together with its -wal and -shm files,"
    " and a new one is made",
    sqlite3.SQLITE_IOERR: "{path} could not be read or written ({exc}); look at the disk it is on",
}


class Reading(NamedTuple):
    """The time, and the seconds since this start of this system, which nobody can set."""

    time: float
    boot_id: str
    up: float


def read_clocks() -> Reading:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return Reading(time.time(), files.boot_id(), time.clock_gettime(clock))


class Database:
    """An open database, used by one thread. SQLite never waits for a lock in it; `patiently` does."""

    def __init__(self, path: Path, patience: float, clocks: Callable[[], Reading] = read_clocks) -> None:
        self.path = path
        self.patience = patience
        self.closed = False
        self._clocks = clocks
        self.connection = self._opened()
        self._file = self._file_now()

    def close(self) -> None:
        self.closed = True
        self.connection.close()

    def check_open(self) -> None:
        if self.closed:
            raise JournalError(f"{self.path} is closed already")

    def is_there(self) -> bool:
        """False if the file was deleted or replaced since it was opened."""
        return self._file_now() == self._file

    def _file_now(self) -> tuple[int, int] | None:
        if self.path == IN_MEMORY:
            return None
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def patiently(self, act: Callable[[], _T]) -> _T:
        """Calls `act` until no other process holds the file; blocks the caller meanwhile."""
        self.check_open()
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return act()
            except sqlite3.Error as exc:
                if not is_busy(exc) or time.monotonic() >= deadline:
                    raise self.error(exc) from exc
            time.sleep(0.005)

    def error(self, exc: sqlite3.Error) -> JournalError:
        """The error in words, with advice on what to do about it."""
        advice = _ADVICE.get(_code(exc), "{path}: the journal could not be used: {exc}")
        return JournalError(advice.format(path=self.path, exc=exc, patience=self.patience))

    def prune_daily(self, keep_days: float, keep_bytes: int) -> None:
        """Prune at most once a day, and only for a moment; what is left then is for the next opening."""
        if self.path == IN_MEMORY:
            return
        now = self._clocks().time
        try:
            claimed = self.connection.execute(_CLAIM, (now, now - _DAY, now)).rowcount
            if not claimed:
                return
            _, finished = self.prune(keep_days, keep_bytes, within=_PRUNE_SECONDS)
            if not finished:
                self.connection.execute(_CLAIM, (0.0, now, now))
        except sqlite3.Error as exc:
            # On a full disk the journal can still be read.
            if not is_busy(exc) and _code(exc) != sqlite3.SQLITE_FULL:
                raise self.error(exc) from exc

    def prune(self, keep_days: float, keep_bytes: int, within: float | None = None) -> tuple[int, bool]:
        """Prunes; the number of runs removed, and True if none is left to remove. With a limit it does not wait for others."""
        attempt = self.patiently if within is None else _at_once
        deadline = None if within is None else time.monotonic() + within
        now = self._clocks()
        oldest, a_day_ago = now.time - keep_days * _DAY, now.time - _DAY
        agreed = attempt(lambda: self._agreed_since(now))
        if agreed > oldest:
            import logging

            told = "%s: the clock jumped; no run is deleted for its age before it was right for %g days"
            logging.getLogger(__name__).warning(told, self.path, keep_days)
            oldest = a_day_ago = float("-inf")
        gone = 0
        finished = True
        for run_id, ended in attempt(
            lambda: self.connection.execute(_OLDEST_FINISHED, (a_day_ago,)).fetchall()
        ):
            if ended >= oldest and attempt(self._live_bytes) <= keep_bytes:
                break
            if deadline is not None and time.monotonic() >= deadline:
                finished = False
                break
            attempt(lambda run_id=run_id: self._drop(run_id))
            gone += 1
        attempt(self._drop_kept)
        if gone:
            attempt(self._shrink)
        return gone, finished

    def _agreed_since(self, now: Reading) -> float:
        """The time since which the clock has not jumped, as far as can be seen; 0 if it never did."""
        with transaction(self.connection):
            *last, agreed = self.connection.execute(_LAST_READING).fetchone()
            if last[0] and not _agree(Reading(*last), now):
                agreed = now.time
            self.connection.execute(_SET_READING, (*now, agreed))
        return agreed

    def _drop(self, run_id: str) -> None:
        with transaction(self.connection):
            for table in ("record", "message", "question", "retry", "kept", "run"):
                self.connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
        files.remove_tree(session_folder(Path(self.path), run_id))

    def _drop_kept(self) -> None:
        """Remove what was kept for the ends of runs that have ended."""
        for statement in _ENDED:
            self.connection.execute(statement)

    def _live_bytes(self) -> int:
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        return (pages - free) * size

    def _shrink(self) -> None:
        db = self.connection
        # A few pages at a time, so that others can write in between.
        while db.execute("PRAGMA freelist_count").fetchone()[0] > 0:
            before = db.execute("PRAGMA page_count").fetchone()[0]
            db.execute("PRAGMA incremental_vacuum(1000)").fetchall()
            if db.execute("PRAGMA page_count").fetchone()[0] == before:
                # Made without incremental vacuum, by hand or by another program.
                db.execute("VACUUM")
                break
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _opened(self) -> sqlite3.Connection:
        in_memory = self.path == IN_MEMORY
        if not in_memory:
            self._make_file()
        try:
            # Nobody else can reach one in memory, so threads may share it.
            db = sqlite3.connect(self.path, isolation_level=None, timeout=0, check_same_thread=not in_memory)
        except sqlite3.Error as exc:
            raise self.error(exc) from exc
        try:
            self.patiently(lambda: _prepare(db))
            self.patiently(lambda: migrate(db, self.path))
        except BaseException:
            db.close()
            raise
        return db

    def _make_file(self) -> None:
        try:
            files.private_folder(self.path.parent)
            # Made here and not by SQLite, which would let everybody read it.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as exc:
            raise JournalError(
                f"{self.path}: {exc.strerror}; it must be a file that you may write, in a folder that you may write"
                " (HOOKLINE_HOME names another folder)"
            ) from exc


def migrate(db: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring an open file to today's version; whole or not at all."""
    if _version(db, path, len(migrations)) == len(migrations):
        return
    with transaction(db):
        # Another process may have been faster.
        for step in migrations[_version(db, path, len(migrations)) :]:
            for statement in step:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(migrations)}")


def is_busy(exc: sqlite3.Error) -> bool:
    return _code(exc) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(exc: sqlite3.Error) -> int:
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF


def _agree(last: Reading, now: Reading) -> bool:
    """True if the time has gone on as the system's own seconds did; where it was started anew, by a few days."""
    passed = now.time - last.time
    if last.boot_id and last.boot_id == now.boot_id:
        return abs(passed - (now.up - last.up)) <= _DRIFT
    return -_DRIFT <= passed <= _LONGEST_PAUSE


@contextmanager
def transaction(db: sqlite3.Connection) -> Generator[None]:
    """Commits all statements inside it together, or none of them."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection, path: Path, known: int) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if version > known:
        raise JournalError(
            f"{path} is of version {version}, and this hookline knows versions up to {known};"
            " update hookline, or set HOOKLINE_HOME to another folder"
        )
    if version == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise JournalError(
            f"{path} is a database of some other program; set HOOKLINE_HOME to a folder of hookline's own"
        )
    return version


def _prepare(db: sqlite3.Connection) -> None:
    if db.execute("PRAGMA page_count").fetchone()[0] == 0:
        # Only has an effect in a file that is still empty, and before anything else is said to it.
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("PRAGMA synchronous = NORMAL")


def _at_once(act: Callable[[], _T]) -> _T:
    return act()
