"""Very long records and very many processes at once: a journal is opened at once, and says nothing that is not so."""

import json
import logging
import os
import re
import sqlite3
import subprocess
import time

import pytest

from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Begun, Called, Ended
from hookline.engine.result import HookAction
from hookline.journal import history
from hookline.journal.sqlite import SqliteJournal
from tests.command import hookline  # noqa: F401

AT_ONCE = 40
TOOLS = 4_000


def records_of(number):
    """The records of one tool call, in a step of its own."""
    step, tool = f"step{number}", f"tool{number}"
    given = {"command": f"ls {number}"}
    yield Begun("big", step, "agent", Scope.STEP, str(number), 1.0, None, {})
    yield Begun("big", tool, step, Scope.TOOL, "bash", 1.0, given, {})
    yield Called("big", tool, Point.TOOL_START, "guard", 1.0, 0.1, HookAction.CONTINUE, None, None, last=True)
    yield Ended("big", tool, Scope.TOOL, 1.0, Status.OK, f"file {number}", None)
    yield Ended("big", step, Scope.STEP, 1.0, Status.OK, None, None)


@pytest.fixture
def big(hookline):  # noqa: F811
    """The journal of a run with 20,002 records."""
    path = hookline.folder / "home" / "journal.db"
    with SqliteJournal(path) as journal:
        for id, parent, scope in (("run", None, Scope.RUN), ("agent", "run", Scope.AGENT)):
            entry = journal._entry(Begun("big", id, parent, scope, "big", time.time(), {"input": "go"}, {}))
            journal._batch.append(entry)
            journal.flush()
        for number in range(TOOLS):
            journal._batch += [journal._entry(each) for each in records_of(number)]
            if number % 4 == 3:
                journal.flush()
    return path


def test_a_long_run_is_not_read_as_a_whole_to_show_its_end(hookline, big, monkeypatch):  # noqa: F811
    shown = hookline("runs", "last").stdout.splitlines()
    assert "19002 earlier records are not shown; --limit 20002 shows all" in shown[0]
    assert "file 3999" in shown[-3]
    assert len(shown) < 2000

    calls = hookline("logs", "last", "guard").stdout.splitlines()
    assert 'given: {"command":"ls 3999"}' in calls[-3]
    assert "earlier records" in calls[-1]

    read = []
    decoded = history.decoded
    monkeypatch.setattr(history, "decoded", lambda *given: read.append(given) or decoded(*given))
    with SqliteJournal(big) as journal:
        page = journal.latest("big", 1000)
    assert (len(page.records), page.earlier) == (1000, 19_002)
    assert len(read) < 2500


def test_every_record_of_a_long_run_can_be_had(hookline, big):  # noqa: F811
    records = [json.loads(line) for line in hookline("runs", "last", "--json").stdout.splitlines()]
    assert len(records) == 5 * TOOLS + 2
    assert records[-2]["output"] == f"file {TOOLS - 1}"
    last = hookline("runs", "last", "--json", "--limit", "7").stdout.splitlines()
    assert [json.loads(line) for line in last] == records[-7:]
    tree = hookline("runs", "last", "--limit", str(len(records))).stdout.splitlines()
    assert "earlier" not in tree[0]
    assert sum("file " in line for line in tree) == TOOLS
    calls = [json.loads(line) for line in hookline("logs", "last", "--json").stdout.splitlines()]
    assert [each["given"]["command"] for each in calls] == [f"ls {number}" for number in range(TOOLS)]


def test_the_end_of_a_long_run_stands_in_its_scopes(hookline, big):  # noqa: F811
    page, whole = (
        hookline("runs", "last", "--limit", limit).stdout.splitlines() for limit in ("1000", "20002")
    )
    assert len(page) > 500
    assert page[-500:] == whole[-500:]


def test_the_records_of_an_earlier_version_are_counted(hookline, big):  # noqa: F811
    with sqlite3.connect(big) as db:
        db.execute("UPDATE record SET records = NULL WHERE seq % 2")
    db.close()
    assert "19002 earlier records" in hookline("runs", "last").stdout


def test_many_answers_at_once_lose_nothing_and_are_not_locked_out(hookline):  # noqa: F811
    (hookline.folder / "hookline.yaml").write_text(
        "hooks: [{name: guard, on: tool.start, shell: 'exit 0'}]\n"
    )
    event = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash"}
    answer = ("answer", "--as", "claude", "--file", "hookline.yaml")
    asked = []
    for number in range(AT_ONCE):
        process = hookline.start(*answer, stdin=-1)
        told = {**event, "tool_use_id": f"t{number}", "tool_input": {"command": f"ls {number}"}}
        asked.append((process, json.dumps({**told, "cwd": str(hookline.folder)})))
    for process, told in asked:
        process.stdin.write(told)
        process.stdin.close()
    for process, _ in asked:
        assert (process.wait(), process.stderr.read()) == (0, "")
        process.stdout.close()
        process.stderr.close()

    with SqliteJournal(hookline.folder / "home" / "journal.db") as journal:
        (run,) = journal.runs()
        records = journal.records(run.run_id)
    assert sum(isinstance(each, Begun) for each in records) == AT_ONCE
    assert sum(isinstance(each, Called) for each in records) == AT_ONCE


def test_an_answer_does_not_end_before_its_last_record_is_stored(hookline):  # noqa: F811
    for name in ("begun", "go"):
        os.mkfifo(hookline.folder / name)
    (hookline.folder / "hookline.yaml").write_text(
        "hooks: [{name: guard, on: tool.start, shell: 'echo > begun; read go < go'}]\n"
    )
    event = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "t"}

    def begun():
        process = hookline.start("answer", "--as", "claude", "--file", "hookline.yaml", stdin=-1)
        process.stdin.write(
            json.dumps({**event, "tool_input": {"command": "ls"}, "cwd": str(hookline.folder)})
        )
        process.stdin.close()
        (hookline.folder / "begun").read_text()
        return process

    # Later calls take the short way, by a compiled copy.
    with begun() as first:
        (hookline.folder / "go").write_text("\n")
        assert first.wait() == 0
    process = begun()
    path = hookline.folder / "home" / "journal.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    (hookline.folder / "go").write_text("\n")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    other.execute("COMMIT")
    other.close()
    with process:
        assert (process.wait(), process.stderr.read()) == (0, "")
    with SqliteJournal(path) as journal:
        assert [
            each.hook for each in journal.records(journal.runs()[0].run_id) if isinstance(each, Called)
        ] == ["guard", "guard"]


def test_an_answer_waits_for_others_that_write_and_loses_nothing(tmp_path, caplog):
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with caplog.at_level(logging.WARNING):
            for record in records_of(1):
                if isinstance(record, Called):
                    journal.note(record)
        other.execute("COMMIT")
        other.close()
        assert not re.search("locked", caplog.text)
        assert [type(each) for each in journal.records("big")] == [Called]
