"""`kill -9` at random moments: the journal opens clean, keeps what it promised, and says what is owed."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hookline import Scope, SqliteJournal, Status
from hookline.engine.record import Begun, Called, Ended, owed
from hookline.hookfile.ends import hooks_again
from hookline.journal.recovery import owner, recover

VICTIM = Path(__file__).with_name("victim.py")
LONGEST = 1.2
ROUNDS = 50


@pytest.mark.real
@pytest.mark.timeout(600)
def test_a_killed_run_leaves_a_clean_journal_that_knows_what_is_owed(tmp_path, chance):
    # One moment out of each equal part of a run's time, so that the first ones come early on any machine.
    part = LONGEST / ROUNDS
    killed = sum(
        _round(tmp_path / str(number), chance.uniform(number, number + 1) * part) for number in range(ROUNDS)
    )
    assert killed, "no victim was still alive when it was to be killed"


def _round(folder: Path, moment: float) -> bool:
    folder.mkdir()
    database, truth = folder / "journal.db", folder / "truth"
    environ = {**os.environ, "TRUTH": str(truth)}
    victim = subprocess.Popen([sys.executable, VICTIM, database], stdout=subprocess.PIPE, env=environ)
    assert victim.stdout is not None
    assert victim.stdout.readline() == b"ready\n"
    time.sleep(moment)
    victim.kill()
    code = victim.wait()
    victim.stdout.close()
    lines = [line.split() for line in truth.read_text().splitlines()] if truth.exists() else []

    with sqlite3.connect(database) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    opened.close()
    journal = SqliteJournal(database)
    runs = journal.runs()
    if not runs:
        assert not lines, "something ran before its beginning was recorded"
        journal.close()
        return code != 0
    records = journal.records(runs[0].run_id)
    _keeps_its_promise(records, lines)
    if runs[0].status is not None:
        assert owed(records) == []  # it was through before the kill
    else:
        _owed_is_right(records)
        _recovers(journal, runs[0].run_id, truth, VICTIM, environ)
    journal.close()
    return code != 0


def _keeps_its_promise(records, lines) -> None:
    begun = {record.scope_id: record for record in records if isinstance(record, Begun)}
    ended = {record.scope_id for record in records if isinstance(record, Ended)}
    called = {
        (record.point, record.scope_id, record.hook) for record in records if isinstance(record, Called)
    }
    hooks = [tuple(line[2:]) for line in lines if line[1] == "hook"]
    for point, scope_id, name in hooks:
        assert scope_id in begun, f"{name} ran at {point} before the beginning was recorded"
    # A beginning takes all notes before it along, whatever the clock says; and this run does one thing at a time.
    scopes = [scope_id for _, scope_id, _ in hooks]
    newest = max((scopes.index(scope_id) for scope_id in set(scopes)), default=0)
    for point, scope_id, name in hooks[:newest]:
        assert (point, scope_id, name) in called, f"{name} at {point} came before another scope, and is lost"
    bodies = sum(line[1] == "body" for line in lines)
    models = sum(line[1] == "model" for line in lines)
    tools = [record for record in begun.values() if record.scope is Scope.TOOL]
    assert len(tools) >= bodies, "a tool ran before its beginning was recorded"
    steps = [record for record in begun.values() if record.scope is Scope.STEP]
    assert len(steps) >= models
    # When the model was asked in a step, every step before it had been left, and that is on record.
    assert sum(record.scope_id in ended for record in steps) >= models - 1


def _owed_is_right(records) -> None:
    """An open scope is in what is owed; each lies inside the next; what encloses an open one is open."""
    found = owed(records)
    begun = {record.scope_id: record for record in records if isinstance(record, Begun)}
    ended = {record.scope_id for record in records if isinstance(record, Ended)}
    assert {item.begun.scope_id for item in found} == set(begun) - ended
    order = [item.begun.scope_id for item in found]
    for item in found:
        parent = item.begun.parent_id
        assert parent is None or order.index(parent) > order.index(item.begun.scope_id)
    by_scope = {item.begun.scope: item.due for item in found}
    asked = any(isinstance(r, Called) and r.point == "run.end" for r in records)
    assert by_scope.get(Scope.RUN) is not None, "the run itself was never ended"
    assert by_scope[Scope.RUN] or asked


def _recovers(journal, run_id, truth, victim, environ) -> None:
    os.environ["TRUTH"] = environ["TRUTH"]
    told = truth.read_text().count("run.end")
    due = [item.begun.scope for item in owed(journal.records(run_id)) if item.due]

    recovered = asyncio.run(recover(journal, owner(), hooks_again))
    assert [each.run_id for each in recovered] == [run_id]
    assert owed(journal.records(run_id)) == []
    ran = truth.read_text().count(f"run.end {run_id} lost")
    assert ran == (1 if Scope.RUN in due else 0)
    assert truth.read_text().count("run.end") == told + ran
    assert journal.unfinished() == []
    assert next(row.status for row in journal.runs()) in (Status.LOST, Status.OK)
    assert asyncio.run(recover(journal, owner(), hooks_again)) == []
