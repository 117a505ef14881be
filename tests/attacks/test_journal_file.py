"""The journal's disk is full, its file is taken away, the clock jumps: what is owed is done, and nothing is deleted."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hookline.engine.point import Scope, Status
from hookline.engine.record import Begun, Ended
from hookline.journal.database import Reading
from hookline.journal.sqlite import SqliteJournal
from tests.command import hookline  # noqa: F401

HOOKLINE = Path(sys.executable).with_name("hookline")
DAY = 86400.0
YEAR = 365 * DAY
NOW = 1_800_000_000.0

AGENT = """
import os, shutil, subprocess, sys
from pathlib import Path
from hookline import Agent, HookResult, Scripted, hook, tool

HOME = Path(os.environ["HOOKLINE_HOME"])

@hook
def owed(ctx, context):
    Path("ended").write_text("the end hook ran")
    return HookResult.continue_with()

@tool
def fill(ctx) -> str:
    with open(HOME.parent / "filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 512)
        except OSError:
            return "y" * 30000

@tool
def delete(ctx) -> str:
    for file in HOME.glob("journal.db*"):
        file.unlink()
    return "deleted"

@tool
def replace(ctx) -> str:
    HOME.rename(HOME.with_name("away"))
    subprocess.run([sys.executable, "-m", "hookline", "runs"], check=True, stdout=subprocess.DEVNULL)
    return "replaced"

def agent_of(made):
    turns = [{"tools": [{"name": made.id, "arguments": {}}]}, "done"]
    return Agent(id="writer", model=Scripted(turns), tools=[made], on_run_end=[owed])

full, deleted, replaced = agent_of(fill), agent_of(delete), agent_of(replace)
plain = Agent(id="after", model=Scripted(["done"]))
"""


@pytest.fixture
def folder(hookline):  # noqa: F811
    (hookline.folder / "agent.py").write_text(AGENT)
    return hookline.folder


def test_a_full_disk_keeps_no_end_hook_from_running(hookline, folder):  # noqa: F811
    disk = folder / "disk"
    disk.mkdir()
    hookline.environ["HOOKLINE_HOME"] = str(disk / "home")
    script = f"""
        mount -t tmpfs -o size=1m tmpfs {disk} || exit 90
        {HOOKLINE} run agent.py:plain go || exit 91
        {HOOKLINE} run agent.py:full go && exit 92
        [ -e ended ] || exit 93
        {HOOKLINE} runs || exit 94
        rm {disk}/filler
        {HOOKLINE} run agent.py:plain go || exit 95
        {HOOKLINE} runs --json > {folder}/runs.json
    """
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]

    done = subprocess.run(
        [*alone, "sh", "-c", script],
        cwd=folder,
        env=hookline.environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "free some space on its disk" in done.stderr
    listed = [json.loads(line) for line in (folder / "runs.json").read_text().splitlines()]
    assert [(each["name"], each["status"]) for each in listed] == [
        ("after", "ok"),
        ("writer", "lost"),
        ("after", "ok"),
    ]


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_run_does_not_go_on_in_a_journal_that_nobody_can_find(hookline, folder, how):  # noqa: F811
    done = hookline("run", f"agent.py:{how}", "go")

    assert done.returncode == 0
    assert (folder / "ended").exists()
    assert "was deleted or replaced while it was used" in done.stderr
    (run,) = [json.loads(line) for line in hookline("runs", "--json").stdout.splitlines()]
    assert (run["name"], run["status"]) == ("writer", "ok")
    records = [json.loads(line) for line in hookline("runs", "last", "--json").stdout.splitlines()]
    begun = [each for each in records if each["record"] == "begun"]
    ended = [each for each in records if each["record"] == "ended"]
    assert {each["scope_id"] for each in ended} <= {each["scope_id"] for each in begun}
    assert {"run", "session", "agent", "step", "tool"} <= {each["scope"] for each in begun}
    with sqlite3.connect(folder / "home" / "journal.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


class Clocks:
    """Clocks that a test sets: the time of day, and the system's own seconds."""

    def __init__(self):
        self.time, self.boot_id, self.up = NOW, "first", 1000.0

    def __call__(self):
        return Reading(self.time, self.boot_id, self.up)

    def live(self, days):
        self.time += days * DAY
        self.up += days * DAY


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def days(tmp_path, clocks):
    """Opens the journal on a day, writes a run that ends at once, and lists the names of all runs."""

    async def one(name):
        with SqliteJournal(tmp_path / "journal.db", clocks=clocks) as journal:
            await journal.write(Begun(name, "s", None, Scope.RUN, name, clocks.time, None, {}))
            await journal.write(Ended(name, "s", Scope.RUN, clocks.time, Status.OK, None, None))
            return {row.name for row in journal.runs()}

    return one


def reboot(clocks):
    clocks.boot_id, clocks.up = f"{clocks.boot_id}, again", 10.0


async def test_runs_are_deleted_for_their_age_by_a_clock_that_is_right(days, clocks):
    await days("old")
    for _ in range(6):
        clocks.live(6)
        assert "old" in await days("new") or clocks.time > NOW + 30 * DAY
    assert await days("newest") == {"new", "newest"}


@pytest.mark.parametrize("jump", [10 * YEAR, 29 * DAY, -10 * YEAR, 40 * DAY])
@pytest.mark.parametrize("also", ["", "rebooted"])
async def test_a_clock_that_jumps_deletes_nothing(days, clocks, jump, also):
    if also and jump == 29 * DAY:
        jump = 31 * DAY
    await days("first")
    clocks.live(1)
    await days("second")
    clocks.time += jump
    if also:
        reboot(clocks)
    for day in range(28):
        clocks.live(1)
        assert {"first", "second"} <= await days(f"day {day}")
    clocks.time -= jump
    for day in range(2):
        clocks.live(1)
        assert {"first", "second"} <= await days(f"day {day} again")


async def test_a_clock_that_was_set_right_deletes_again_in_the_end(days, clocks):
    await days("first")
    clocks.live(1)
    clocks.time += 10 * YEAR
    for day in range(29):
        clocks.live(1)
        assert "first" in await days(f"day {day}")
    clocks.live(3)
    assert "first" not in await days("last")


def test_prune_deletes_nothing_by_a_clock_that_jumped(hookline, folder):  # noqa: F811
    hookline("run", "agent.py:plain", "go")
    with sqlite3.connect(folder / "home" / "journal.db") as db:
        # As it stands if the clock jumped by ten years since.
        db.execute("UPDATE run SET began = began - ?1, ended = ended - ?1", (10 * YEAR,))
        db.execute("UPDATE chore SET done = done - ? WHERE name = 'clock'", (10 * YEAR,))
    db.close()

    done = hookline("prune")

    assert done.stdout == "0 runs deleted\n"
    assert "the clock jumped" in done.stderr
    assert len(hookline("runs", "--json").stdout.splitlines()) == 1
    assert hookline("prune", "--days", "0").stdout == "1 run deleted\n"


def test_prune_deletes_what_is_old_by_all_clocks(hookline, folder):  # noqa: F811
    hookline("run", "agent.py:plain", "go")
    with sqlite3.connect(folder / "home" / "journal.db") as db:
        db.execute("UPDATE run SET ended = ?", (time.time() - 31 * DAY,))
    db.close()

    assert hookline("prune").stdout == "1 run deleted\n"
