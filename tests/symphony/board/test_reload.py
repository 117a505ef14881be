"""WORKFLOW.md that changes under a running service."""

import asyncio
import os

import pytest

from hookline.symphony import read as reloading
from hookline.symphony.read import WatchedWorkflow, WorkflowError
from hookline.symphony.trackers import TrackerError

GOOD = "---\ntracker: {kind: folder}\nagent: {kind: command, command: cat}\n---\nWork on {{ issue.title }}.\n"


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "WORKFLOW.md"
    made.write_text(GOOD)
    return made


@pytest.fixture
def watched(file):
    return WatchedWorkflow(str(file), {})


def written(file, text):
    """Written a while ago, as far as the clock on the file says."""
    file.write_text(text)
    status = file.stat()
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns - 2_000_000_000))


@pytest.mark.rule("W31", "M2")
def test_a_change_is_there_at_the_next_look(file, watched, caplog):
    assert not watched.look()
    written(file, GOOD.replace("Work on", "Mend"))
    assert watched.look()
    assert watched.workflow.prompt == "Mend {{ issue.title }}."
    assert watched.revision == 2
    assert "was read again" in caplog.messages[-1]
    assert not watched.look()


INVALID = {
    "yaml": ("---\nhooks: [\n---\n", "WORKFLOW.md:2"),
    "a type": (GOOD.replace("---\nWork", "hooks: {timeout_ms: soon}\n---\nWork"), "timeout_ms"),
    "no tracker": ("---\nagent: {kind: command, command: cat}\n---\n", "tracker.kind"),
    "not a map": ("---\n- a\n---\n", "front matter is a list"),
}


@pytest.mark.rule("W33", "M3")
@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_change_keeps_the_last_good_one_and_is_told_once(file, watched, caplog, case):
    text, said = INVALID[case]
    written(file, text)
    assert watched.look()
    assert said in str(watched.problem)
    assert watched.workflow.prompt == "Work on {{ issue.title }}."
    assert sum(said in line for line in caplog.messages) == 1
    for _ in range(3):
        assert not watched.look()
    os.utime(file, ns=(0, 10**9))
    watched.look()
    assert sum(said in line for line in caplog.messages) == 1
    written(file, GOOD + "more\n")
    assert watched.look()
    assert watched.problem is None
    assert watched.workflow.prompt.endswith("more")


@pytest.mark.rule("W33")
def test_a_file_that_vanishes_is_an_invalid_change(file, watched):
    file.unlink()
    assert watched.look()
    assert "there is no such file" in str(watched.problem)
    assert watched.workflow.prompt == "Work on {{ issue.title }}."
    written(file, GOOD)
    assert watched.look()
    assert watched.problem is None


def test_a_file_that_is_being_written_is_not_read_yet(file, watched):
    file.write_text("")
    assert not watched.look()
    assert watched.workflow.prompt == "Work on {{ issue.title }}."
    written(file, GOOD.replace("Work on", "Mend"))
    assert watched.look()
    assert watched.workflow.prompt.startswith("Mend")


def test_a_file_that_is_only_touched_is_the_same(file, watched):
    os.utime(file, ns=(0, 10**9))
    assert not watched.look()
    assert watched.revision == 1


@pytest.mark.rule("W34", "M85", "M84")
@pytest.mark.parametrize("case", INVALID)
def test_the_first_one_must_be_good(file, case):
    file.write_text(INVALID[case][0])
    with pytest.raises(WorkflowError):
        WatchedWorkflow(str(file), {})


@pytest.mark.rule("W34")
def test_a_check_of_the_services_own_is_part_of_being_good(file):
    def check(workflow):
        if "forbidden" in workflow.prompt:
            raise TrackerError("no such tracker", kind="unsupported_tracker_kind")

    watched = WatchedWorkflow(str(file), {}, check=check)
    written(file, GOOD + "forbidden\n")
    assert watched.look()
    assert watched.problem == "no such tracker"


@pytest.mark.rule("W31")
async def test_somebody_looks_again_and_again(file, watched, monkeypatch):
    monkeypatch.setattr(reloading, "EVERY", 0.01)
    changed = asyncio.Event()
    task = asyncio.ensure_future(watched.watch(changed.set))
    written(file, GOOD + "more\n")
    await asyncio.wait_for(changed.wait(), 60)
    assert watched.workflow.prompt.endswith("more")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
