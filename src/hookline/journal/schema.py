"""The tables of a journal file, as the steps that lead from an empty file to today's version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hookline.errors import JournalError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

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
)
"""Step n leads to version n + 1. A step that was released is never changed; a new one is added."""


def migrate(db: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring an open file to today's version; whole or not at all."""
    if _version(db, path, len(migrations)) == len(migrations):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been faster.
        for step in migrations[_version(db, path, len(migrations)) :]:
            for statement in step:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(migrations)}")
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
