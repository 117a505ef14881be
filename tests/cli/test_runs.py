import json
import sqlite3

import pytest


def test_runs_lists_what_was_run_newest_first(hookline):
    assert "no runs yet" in hookline("runs").stdout
    hookline("run", "agent.py", "x")
    hookline("run", "agent.py", "bad")
    rows = hookline("runs").stdout.splitlines()[1:]
    assert [row.split()[-1] for row in rows] == ["failed", "ok"]
    assert all(row.split()[1] == "guarded" for row in rows)
    data = [json.loads(line) for line in hookline("runs", "--json").stdout.splitlines()]
    assert [row["status"] for row in data] == ["failed", "ok"]
    assert data[1]["calls"] == 4


def test_a_run_is_shown_as_the_tree_that_was_seen_live(hookline):
    held, live = hookline("run", "agent.py", "x").stderr.split("\n", 1)
    assert held == "hooks: no hook file"
    assert hookline("runs", "last").stdout == live
    run_id = live.split()[2]
    assert hookline("runs", run_id[:8]).stdout == live
    records = [json.loads(line) for line in hookline("runs", run_id, "--json").stdout.splitlines()]
    assert records[0]["record"] == "begun"
    assert records[0]["source"].endswith("agent.py:agent")
    assert records[-1]["record"] == "ended"


def test_logs_tell_what_a_hook_was_given_and_said(hookline):
    hookline("run", "agent.py", "x")
    shown = hookline("logs", "last", "no_rm").stdout
    assert "no_rm at tool.start" in shown
    assert 'given: {"command":"rm x"}' in shown
    assert "said: block: nothing is deleted" in shown
    everything = [json.loads(line) for line in hookline("logs", "last", "--json").stdout.splitlines()]
    assert [call["hook"] for call in everything] == ["log", "stop_if_bad", "no_rm", "log"]
    assert [call["given"]["input"] for call in everything[:2]] == ["x", "x"]
    assert everything[3]["given"]["result"] == "kept it"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runs", "zzz"], "there is no run 'zzz' in the journal"),
        (["logs", "last", "nobody"], "hook 'nobody' was not called in that run; hooks called: log"),
        (["approve", "last"], "is not waiting for an answer"),
        (["reject"], "RUN is missing"),
    ],
)
def test_a_wrong_question_to_the_journal_is_told(hookline, words, said):
    hookline("run", "agent.py", "x")
    done = hookline(*words)
    assert done.returncode == 2
    assert said in done.stderr + done.stdout


def test_last_without_any_run_is_told(hookline):
    assert "there is no run in the journal yet" in hookline("runs", "last").stderr


def test_prune_drops_old_runs(hookline):
    hookline("run", "agent.py", "x")
    assert hookline("prune").stdout == "0 runs deleted\n"
    assert hookline("prune", "--days", "0").stdout == "1 run deleted\n"
    assert "no runs yet" in hookline("runs").stdout


def test_a_journal_of_a_newer_version_is_told(hookline):
    hookline("run", "agent.py", "x")
    database = sqlite3.connect(hookline.folder / "home" / "journal.db")
    database.execute("PRAGMA user_version = 99")
    database.close()
    done = hookline("run", "agent.py", "x")
    assert done.returncode == 2
    assert "journal.db" in done.stderr
    assert "99" in done.stderr


def test_a_journal_that_is_no_database_is_told(hookline):
    home = hookline.folder / "home"
    home.mkdir()
    (home / "journal.db").write_text("certainly not a database, and long enough to be read as a header" * 20)
    done = hookline("runs")
    assert done.returncode == 2
    assert "journal.db" in done.stderr
    assert "Traceback" not in done.stderr


def test_payloads_can_be_kept_out(hookline):
    hookline.environ["HOOKLINE_PAYLOADS"] = "off"
    hookline("run", "agent.py", "a remarkable input")
    stored = b"".join(path.read_bytes() for path in (hookline.folder / "home").iterdir())
    assert b"remarkable" not in stored
    assert b"no_rm" in stored
