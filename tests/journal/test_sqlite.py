import asyncio
import json
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Begun, Called, Ended, Question, Verdict, VerdictKind
from hookline.engine.result import HookAction
from hookline.errors import JournalError
from hookline.journal.database import MIGRATIONS, migrate
from hookline.journal.sqlite import LAG, SqliteJournal

NOBODY = 65534


@pytest.fixture
def path(tmp_path):
    return tmp_path / "home" / "journal.db"


@pytest.fixture
def opened(path):
    """Opens the journal, as often as is asked, and closes all."""
    journals = []

    def one(**options):
        journals.append(SqliteJournal(path, **options))
        return journals[-1]

    yield one
    for journal in journals:
        # What a test left full or locked cannot be stored; that is the test's own matter.
        journal._batch.clear()
        journal.close()


@pytest.fixture
def journal(opened):
    return opened()


@pytest.fixture
def python():
    """Runs code in another process, up to the line that it prints; it goes on when its stdin is closed."""
    processes = []

    def run(code, *args):
        process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + code, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        with process:
            process.kill()


PREAMBLE = """
import asyncio, os, sqlite3, sys, time
from hookline.engine.record import *
from hookline.journal.sqlite import SqliteJournal
from hookline.engine.point import Point, Scope, Status
from hookline.engine.result import HookAction

def begun(run_id, scope_id):
    return Begun(run_id, scope_id, None if scope_id == "s" else "s", Scope.RUN if scope_id == "s" else Scope.TOOL, "n", 1.0, None, {})

def ended(run_id, scope_id):
    return Ended(run_id, scope_id, Scope.RUN if scope_id == "s" else Scope.TOOL, 2.0, Status.OK, None, None)
"""
LOCK = """
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
db.execute("ROLLBACK")
db.close()
print("free", flush=True)
"""


def begun(run_id="run", scope_id="s", parent_id=None, scope=Scope.RUN, at=1.0, payload=None):
    return Begun(run_id, scope_id, parent_id, scope, "n", at, payload, {})


def called(run_id="run", hook="guard", given=None):
    return Called(
        run_id, "s", Point.TOOL_START, hook, 1.5, 0.1, HookAction.CONTINUE,
        None, given, None, "enforce", None, None, None, None, None,
    )  # fmt: skip


def ended(run_id="run", scope_id="s", at=2.0):
    return Ended(run_id, scope_id, Scope.RUN, at, Status.OK, None, None)


def question(id="q"):
    return Question(
        id=id,
        run_id="run",
        scope_id="s",
        point=Point.TOOL_START,
        tool=None,
        reasons=(),
        value=None,
        asked=1.0,
    )


def stored(path, query="SELECT body FROM record ORDER BY seq"):
    """What another connection sees now."""
    db = sqlite3.connect(path)
    try:
        return [row[0] for row in db.execute(query)]
    finally:
        db.close()


def kinds(path):
    return [record[0] for body in stored(path) for record in json.loads(body)]


def intact(path):
    return stored(path, "PRAGMA integrity_check") == ["ok"]


# Writing


async def test_what_is_written_is_in_the_file_on_return_with_all_that_was_noted_before(journal, path):
    await journal.write(begun())
    assert kinds(path) == ["begin"]

    journal.note(called())
    journal.note(called())
    assert kinds(path) == ["begin"]

    await journal.write(ended())
    assert kinds(path) == ["begin", "call", "call", "end"]


async def test_a_question_is_in_the_file_on_return_with_all_that_was_noted_before(journal, path):
    journal.note(called())
    await journal.ask(question())

    assert stored(path, "SELECT id FROM question") == ["q"]
    assert kinds(path) == ["call"]


async def test_a_note_is_in_the_file_soon_without_anybody_asking(journal, path):
    journal.note(called())
    deadline = time.monotonic() + 5
    while not kinds(path) and time.monotonic() < deadline:
        await asyncio.sleep(LAG / 5)
    assert kinds(path) == ["call"]

    journal.note(called())
    while len(kinds(path)) < 2 and time.monotonic() < deadline:
        await asyncio.sleep(LAG / 5)
    assert kinds(path) == ["call", "call"]


def test_a_note_outside_of_a_loop_is_in_the_file_at_once(journal, path):
    journal.note(called())
    assert kinds(path) == ["call"]


def test_a_note_left_by_a_loop_that_ended_is_stored_by_the_next(journal, path):
    async def notes():
        journal.note(called())

    async def notes_and_waits():
        journal.note(called())
        await asyncio.sleep(LAG * 4)

    asyncio.run(notes())
    asyncio.run(notes_and_waits())
    assert kinds(path) == ["call", "call"]


async def test_flushing_and_closing_store_what_was_noted(opened, path):
    one, two = opened(), opened()
    one.note(called())
    one.flush()
    assert kinds(path) == ["call"]

    two.note(called())
    two.close()
    assert kinds(path) == ["call", "call"]


async def test_notes_of_several_runs_between_two_writes_are_stored_together(journal):
    for number in range(6):
        journal.note(called(f"run-{number % 2}", hook=f"hook {number}"))
    await journal.write(begun("run-0"))

    assert [record.hook for record in journal.records("run-1")] == ["hook 1", "hook 3", "hook 5"]
    assert [type(record) for record in journal.records("run-0")] == [Called, Called, Called, Begun]


async def test_secrets_are_not_in_the_bytes_of_the_file(opened, path):
    journal = opened(secrets=["hunter2!"])
    await journal.write(begun(payload={"a": "hunter2!", "token": "n4medS3cret"}))
    journal.note(called(given="x hunter2!", hook="hunter2!"))
    await journal.write(ended())
    journal.close()

    raw = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"guard" not in raw
    assert b"hunter2" not in raw
    assert b"n4med" not in raw


# Locked


async def test_a_locked_file_does_not_hold_up_the_loop_and_is_written_when_it_is_free(journal, path, python):
    await journal.write(begun())
    process = python(LOCK, path)
    assert process.stdout.readline() == "locked\n"

    journal.note(called(hook="before"))
    one = asyncio.create_task(journal.write(begun(scope_id="a", parent_id="s", scope=Scope.TOOL)))
    two = asyncio.create_task(journal.write(begun(scope_id="b", parent_id="s", scope=Scope.TOOL)))
    ticks = 0
    while ticks < 20:
        await asyncio.sleep(0.005)
        ticks += 1
    assert not one.done()
    assert not two.done()

    process.stdin.close()
    await asyncio.gather(one, two)
    assert [getattr(record, "hook", None) or record.scope_id for record in journal.records("run")] == [
        "s",
        "before",
        "a",
        "b",
    ]


async def test_a_file_that_stays_locked_is_told_and_what_failed_does_not_turn_up_later(opened, path, python):
    journal = opened(patience=0.2)
    process = python(LOCK, path)
    process.stdout.readline()
    journal.note(called())

    with pytest.raises(JournalError, match=r"journal\.db is locked by another process for more than 0\.2 s"):
        await journal.write(begun())
    with pytest.raises(JournalError, match="locked"):
        journal.flush()

    process.stdin.close()
    assert process.stdout.readline() == "free\n"
    await journal.write(ended())
    assert kinds(path) == ["call", "end"]
    assert journal.runs() == []


async def test_a_write_that_was_cancelled_while_it_waited_does_not_turn_up_later(journal, path, python):
    process = python(LOCK, path)
    process.stdout.readline()
    task = asyncio.create_task(journal.write(begun()))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    process.stdin.close()
    assert process.stdout.readline() == "free\n"
    await journal.write(ended())
    assert kinds(path) == ["end"]


async def test_a_timed_flush_that_failed_is_logged_once_and_tried_again(opened, path, python, caplog):
    journal = opened(patience=0.1)
    process = python(LOCK, path)
    process.stdout.readline()
    journal.note(called())
    await asyncio.sleep(LAG * 6)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "journal.db is locked" in caplog.text

    process.stdin.close()
    assert process.stdout.readline() == "free\n"
    deadline = time.monotonic() + 5
    while not kinds(path) and time.monotonic() < deadline:
        await asyncio.sleep(LAG / 5)
    assert kinds(path) == ["call"]


async def test_closing_a_locked_journal_says_how_much_is_lost(opened, path, python):
    journal = opened(patience=0.1)
    process = python(LOCK, path)
    process.stdout.readline()
    journal.note(called())

    with pytest.raises(JournalError, match=r"locked.*\(1 record could not be stored\)"):
        journal.close()


def test_an_unprepared_file_that_is_locked_cannot_be_opened(path, python):
    path.parent.mkdir()
    process = python(LOCK, path)
    process.stdout.readline()

    with pytest.raises(JournalError, match=r"journal\.db is locked"):
        SqliteJournal(path, patience=0.1)


# Full, read-only, not a journal


async def test_a_full_disk_is_told_and_nothing_is_lost_once_there_is_room(journal, path):
    await journal.write(begun())
    pages = stored(path, "PRAGMA page_count")[0]
    journal._db.execute(f"PRAGMA max_page_count = {pages}")
    journal.note(called(given="x" * 30000))
    await asyncio.sleep(LAG * 3)

    with pytest.raises(JournalError, match=r"journal\.db cannot grow .*free some space on its disk"):
        await journal.write(ended())

    journal._db.execute("PRAGMA max_page_count = 100000")
    await journal.write(ended())
    assert kinds(path) == ["begin", "call", "end"]
    assert intact(path)


async def test_what_fails_halfway_leaves_nothing_behind(journal, path):
    journal._db.execute(
        "CREATE TEMP TRIGGER no BEFORE INSERT ON run BEGIN SELECT raise(ABORT, 'not now'); END"
    )
    with pytest.raises(JournalError, match=r"journal\.db: .*not now"):
        await journal.write(begun("first"))
    assert kinds(path) == []

    journal._db.execute("DROP TRIGGER no")
    await journal.write(begun("second"))
    assert [row.run_id for row in journal.runs()] == ["second"]
    assert journal.records("first") == []


def test_a_folder_in_the_files_place_is_told(path):
    path.mkdir(parents=True)
    with pytest.raises(JournalError, match=r"journal\.db: Is a directory; it must be a file"):
        SqliteJournal(path)


def test_a_file_in_the_folders_place_is_told(path):
    path.parent.write_text("")
    with pytest.raises(JournalError, match=r"journal\.db: (File exists|Not a directory); .*HOOKLINE_HOME"):
        SqliteJournal(path)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_may_not_be_written_is_told(what):
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        folder.chmod(0o777)
        path = folder / "journal.db"
        said = as_nobody(path)
        assert said == "opened"
        (path if what == "file" else folder).chmod(0o444 if what == "file" else 0o555)

        said = as_nobody(path)
        assert said.startswith(f"JournalError: {path}")
        assert "may write" in said or "writable" in said
    finally:
        folder.chmod(0o777)
        shutil.rmtree(folder)


def as_nobody(path):
    """Opens the journal in a process that permissions bind, which root's are not; what came of it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            SqliteJournal(path).close()
            said = "opened"
        except BaseException as exc:
            said = f"{type(exc).__name__}: {exc}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as file:
        return file.read()


def test_a_file_that_is_no_database_is_told_and_left_alone(path):
    path.parent.mkdir()
    path.write_bytes(b"my notes\n" * 1000)
    with pytest.raises(JournalError, match=r"journal\.db is not a journal .*move it away"):
        SqliteJournal(path)
    assert path.read_bytes() == b"my notes\n" * 1000


def test_a_database_of_another_program_is_told_and_left_alone(path):
    path.parent.mkdir()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(
        JournalError, match=r"journal\.db is a database of some other program; .*HOOKLINE_HOME"
    ):
        SqliteJournal(path)
    assert stored(path, "SELECT name FROM sqlite_master") == ["mine"]


def test_a_damaged_file_is_told(opened, path):
    opened().close()
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\xff" * (len(raw) - 4096)
    path.write_bytes(raw)
    with pytest.raises(JournalError, match=r"journal\.db is damaged .*move it away"):
        SqliteJournal(path).runs()


def test_the_file_is_for_its_owner_only(journal, path):
    journal.note(called())
    assert path.parent.stat().st_mode & 0o777 == 0o700
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {"journal.db": 0o600, "journal.db-wal": 0o600, "journal.db-shm": 0o600}


# Versions

# As the first released version wrote it. Never to be changed: such files are out there.
VERSION_1 = """
CREATE TABLE run (
    run_id TEXT PRIMARY KEY, scope_id TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
    began REAL NOT NULL, ended REAL, status TEXT, error TEXT, source TEXT, boot_id TEXT, pid INTEGER, started TEXT
) WITHOUT ROWID;
CREATE INDEX run_began ON run (began);
CREATE TABLE record (
    seq INTEGER PRIMARY KEY, run_id TEXT NOT NULL, at REAL NOT NULL, calls INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE INDEX record_run ON record (run_id, calls);
CREATE TABLE question (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL, scope_id TEXT NOT NULL, asked REAL NOT NULL, body TEXT NOT NULL,
    verdict TEXT, text TEXT, said_by TEXT, rewrite TEXT, answered REAL
) WITHOUT ROWID;
CREATE INDEX question_run ON question (run_id);
CREATE TABLE chore (name TEXT PRIMARY KEY, done REAL NOT NULL) WITHOUT ROWID;
INSERT INTO chore VALUES ('prune', 0);
INSERT INTO run VALUES ('old', 's', 'run', 'greeter', 1, 2, 'failed', 'broke', 'f.yaml', 'boot', 7, '9');
INSERT INTO record (run_id, at, calls, body) VALUES ('old', 1, 0,
    '[["begin","s",null,"run","greeter",1,{"input":"hi"},{},{"hooks":[]},"f.yaml",["boot",7,"9"]]]');
INSERT INTO record (run_id, at, calls, body) VALUES ('old', 2, 1,
    '[["call","s","run.start","guard",1.5,0.25,"allow","why",{"a":1},null,"enforce",null,null,null,null,null],'
    || '["outcome","s","run.start",1.5,"allow",[["guard","allow","why"]],null,null,null],'
    || '["end","s","run",2,"failed",null,"broke"]]');
INSERT INTO question VALUES ('q', 'old', 's', 1.5, '["run.end",null,[["guard","ask","sure?"]],"value"]',
    'approve', 'yes', 'ann', null, 1.75);
PRAGMA user_version = 1;
"""


async def test_a_file_of_version_1_is_read_and_written(opened, path):
    path.parent.mkdir()
    db = sqlite3.connect(path)
    db.executescript(VERSION_1)
    db.close()

    journal = opened(keep_days=10**6)

    (row,) = journal.runs()
    assert (row.run_id, row.status, row.owner.pid, row.calls) == ("old", Status.FAILED, 7, 1)
    assert [type(record).__name__ for record in journal.records("old")] == [
        "Begun",
        "Called",
        "Decided",
        "Ended",
    ]
    assert journal.question("q").verdict == Verdict(VerdictKind.APPROVE, "yes", None, "ann")
    await journal.write(begun())
    assert [row.run_id for row in journal.unfinished()] == ["run"]


def test_todays_tables_are_those_of_version_1_and_its_migrations(journal, path):
    by_hand = sqlite3.connect(":memory:", isolation_level=None)
    by_hand.executescript(VERSION_1)
    migrate(by_hand, path)
    query = "SELECT name FROM sqlite_master ORDER BY name"
    assert stored(path, query) == [name for (name,) in by_hand.execute(query)]
    for table in ("run", "record", "message", "question", "chore", "content", "kept", "retry"):
        columns = f"SELECT name || type || \"notnull\" || pk FROM pragma_table_info('{table}')"
        assert stored(path, columns) == [column for (column,) in by_hand.execute(columns)]
    by_hand.close()


def test_a_file_of_a_newer_version_is_told_and_left_alone(opened, path):
    opened().close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    known = rf"journal\.db is of version 99, and .* versions up to {len(MIGRATIONS)}; update hookline"
    with pytest.raises(JournalError, match=known):
        SqliteJournal(path)
    assert stored(path, "PRAGMA user_version") == [99]


def test_only_the_steps_that_are_missing_are_taken():
    db = sqlite3.connect(":memory:", isolation_level=None)
    steps = [["CREATE TABLE a (x)", "INSERT INTO a VALUES (1)"], ["ALTER TABLE a ADD COLUMN y DEFAULT 5"]]

    migrate(db, Path("x"), steps[:1])
    migrate(db, Path("x"), steps)
    migrate(db, Path("x"), steps)

    assert db.execute("SELECT * FROM a").fetchall() == [(1, 5)]
    assert db.execute("PRAGMA user_version").fetchone() == (2,)
    db.close()


def test_steps_are_taken_whole_or_not_at_all():
    db = sqlite3.connect(":memory:", isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, Path("x"), [["CREATE TABLE a (x)"], ["CREATE TABLE b (x)", "nonsense"]])

    assert db.execute("SELECT name FROM sqlite_master").fetchall() == []
    assert db.execute("PRAGMA user_version").fetchone() == (0,)
    assert not db.in_transaction
    db.close()


# Several processes, and their end

WRITER = """
async def main():
    journal = SqliteJournal(sys.argv[1])
    mine = sys.argv[2]
    print("ready", flush=True)
    sys.stdin.read()
    await journal.write(begun(mine, "s"))
    for number in range(200):
        await journal.write(begun(mine, f"{number}"))
        journal.note(Called(mine, f"{number}", Point.TOOL_START, "h", 1.0, 0.1, HookAction.CONTINUE, *[None] * 3, "enforce", *[None] * 5))
        await journal.write(ended(mine, f"{number}"))
    await journal.write(ended(mine, "s"))
    journal.close()
    print("done", flush=True)
asyncio.run(main())
"""


def test_processes_that_write_at_once_lose_nothing(path, python, opened):
    writers = [python(WRITER, path, f"run-{number}") for number in range(3)]
    assert [writer.stdout.readline() for writer in writers] == ["ready\n"] * 3
    for writer in writers:
        writer.stdin.close()
    assert [writer.stdout.readline() for writer in writers] == ["done\n"] * 3

    journal = opened()
    assert [(row.calls, row.status) for row in journal.runs()] == [(200, Status.OK)] * 3
    for number in range(3):
        records = journal.records(f"run-{number}")
        assert len(records) == 602
        assert [type(record) for record in records[1:4]] == [Begun, Called, Ended]
        assert [record.scope_id for record in records if type(record) is Begun] == [
            "s",
            *map(str, range(200)),
        ]
    assert intact(path)


ANSWERER = """
journal = SqliteJournal(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
won = [number for number in range(50) if journal.answer(f"q{number}", Verdict(VerdictKind.APPROVE, by=sys.argv[2]))]
journal.close()
print(*won, flush=True)
"""


async def test_a_question_is_answered_by_one_process_only(path, python, journal):
    for number in range(50):
        await journal.ask(question(f"q{number}"))
    answerers = [python(ANSWERER, path, name) for name in ("ann", "bob")]
    assert [answerer.stdout.readline() for answerer in answerers] == ["ready\n"] * 2
    for answerer in answerers:
        answerer.stdin.close()
    won = [answerer.stdout.readline().split() for answerer in answerers]

    assert sorted(int(number) for one in won for number in one) == list(range(50))
    for name, numbers in zip(("ann", "bob"), won, strict=True):
        assert all(journal.question(f"q{number}").verdict.by == name for number in numbers)


KILLED = """
async def main():
    journal = SqliteJournal(sys.argv[1])
    await journal.write(begun("run", "s"))
    number = 0
    while True:
        await journal.write(begun("run", f"{number}"))
        print(f"begun {number}", flush=True)
        await journal.write(ended("run", f"{number}"))
        print(f"ended {number}", flush=True)
        number += 1
asyncio.run(main())
"""


@pytest.mark.parametrize("lines", [1, 2, 300])
def test_what_was_written_before_a_kill_is_there_and_the_file_is_whole(path, python, opened, lines):
    process = python(KILLED, path)
    told = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    told += process.stdout.readlines()
    process.wait()

    assert intact(path)
    journal = opened()
    words = {Begun: "begun", Ended: "ended"}
    there = {f"{words[type(record)]} {record.scope_id}\n" for record in journal.records("run")}
    assert {line for line in told if line.endswith("\n")} <= there
    assert [row.run_id for row in journal.unfinished()] == ["run"]


# Retention


async def test_pruning_makes_the_file_smaller(journal, path):
    for number in range(20):
        await journal.write(begun(f"run-{number}", at=time.time(), payload="x" * 60000))
        await journal.write(ended(f"run-{number}", at=time.time()))
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    before = path.stat().st_size

    assert journal.prune(keep_days=30, keep_bytes=200_000) > 15

    assert before > 1_000_000
    assert path.stat().st_size < 260_000
    assert intact(path)


async def test_a_file_made_without_incremental_vacuum_gets_smaller_too(opened, path):
    path.parent.mkdir()
    db = sqlite3.connect(path)
    db.executescript(VERSION_1)
    db.close()
    journal = opened(keep_days=10**6)
    await journal.write(begun(payload="x" * 60000))
    await journal.write(begun(scope_id="t", parent_id="s", scope=Scope.TOOL, payload="x" * 60000))
    await journal.write(ended())

    assert journal.prune(keep_days=0, keep_bytes=0) == 2
    assert path.stat().st_size < 90_000, "two payloads of 60,000 are gone"


async def test_records_without_a_beginning_go_when_they_are_old(journal):
    journal.note(called("stray"))
    journal.note(called("asking")._replace(at=1.0))
    await journal.ask(Question(
        id="q", run_id="asking", scope_id="s", point=Point.TOOL_START, tool=None, reasons=(), value=None, asked=1.0
    ))  # fmt: skip
    journal.note(called("fresh")._replace(at=time.time()))

    assert journal.prune(keep_days=30, keep_bytes=0) == 1
    assert journal.records("stray") == []
    assert len(journal.records("asking")) == 1
    assert len(journal.records("fresh")) == 1


async def test_opening_prunes_at_most_once_a_day(opened, path):
    first = opened()
    await first.write(begun("old"))
    await first.write(ended("old"))
    assert [row.run_id for row in opened().runs()] == ["old"]

    first._db.execute("UPDATE chore SET done = ? WHERE name = 'prune'", (time.time() - 90000,))
    assert opened().runs() == []

    await first.write(begun("old"))
    await first.write(ended("old"))
    assert [row.run_id for row in opened().runs()] == ["old"]


async def test_opening_a_locked_file_does_not_wait_to_prune(opened, path, python):
    first = opened()
    await first.write(begun("old"))
    await first.write(ended("old"))
    first._db.execute("UPDATE chore SET done = 0")
    process = python(LOCK, path)
    process.stdout.readline()

    assert [row.run_id for row in opened(patience=60).runs()] == ["old"]
