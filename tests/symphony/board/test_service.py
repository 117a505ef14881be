"""The service on a board of files: real hooks in real workspaces, an agent that does as its issue says."""

import asyncio
import os
import time

import pytest

from hookline import HookResult, MemoryJournal, hook
from hookline.engine.pipeline import Recorder
from hookline.handlers.python import python_hook
from hookline.journal.masking import Mask
from hookline.journal.recovery import owner
from hookline.runners.local import LocalRunner
from hookline.symphony import read as reloading
from hookline.symphony.agents import AgentEvent, TurnFailed
from hookline.symphony.hooks import AttemptSite
from hookline.symphony.read import WatchedWorkflow
from hookline.symphony.run import SiteWorker
from hookline.symphony.service import Service
from hookline.symphony.trackers import TrackerError
from hookline.symphony.trackers.folder import FolderTracker
from hookline.symphony.workspace import WorkspaceRoot

WORKFLOW = """---
tracker:
  kind: folder
polling: {interval_ms: 50}
workspace: {root: work}
agent: {kind: command, command: unused, max_retry_backoff_ms: 10, max_turns: 2, MORE}
codex: {stall_timeout_ms: STALL}
hooks:
  after_create: echo "after_create $SYMPHONY_ISSUE_IDENTIFIER" >> ../../log
  before_run: echo "before_run $SYMPHONY_ISSUE_IDENTIFIER ${SYMPHONY_ATTEMPT-first}" >> ../../log
  after_run: echo "after_run $SYMPHONY_ISSUE_IDENTIFIER $SYMPHONY_OUTCOME" >> ../../log
  before_remove: echo "before_remove $SYMPHONY_ISSUE_IDENTIFIER" >> ../../log
---
{{ issue.title }}
"""


class Obedient:
    """An agent that does what its prompt, the issue's title, says. A public contract, in a few lines."""

    def __init__(self, board):
        self.board = board
        self.open_now = 0
        self.most = 0

    def __call__(self, place):
        return _Turns(self, place)


class _Turns:
    id = "s"

    def __init__(self, agent, place):
        self.agent, self.place = agent, place
        self.first = ""

    async def open(self):
        self.agent.open_now += 1
        self.agent.most = max(self.agent.most, self.agent.open_now)
        self.place.tell(AgentEvent(kind="session_started", session_id="s"))

    async def turn(self, prompt):
        self.first = self.first or prompt
        word, _, rest = self.first.partition(" ")
        if word == "fail":
            raise TurnFailed("as told", kind="turn_failed")
        if word == "ask":
            raise TurnFailed("which branch?", kind="turn_input_required")
        if word == "wait":
            await asyncio.sleep(3600)
        if word == "boom":
            raise ZeroDivisionError("a bug with s3cr3t-of-ours")
        if word == "leak":
            self.place.tell(AgentEvent(kind="notification", text="the key is s3cr3t-of-ours"))
            await asyncio.sleep(3600)
        if word == "done":
            self.agent.board.write(os.path.basename(self.place.workspace), rest or "done", state="Done")
        return "said"

    async def close(self):
        self.agent.open_now -= 1


class Board:
    def __init__(self, folder, *, more="max_concurrent_agents: 5", stall=0):
        self.folder = folder
        (folder / "issues").mkdir()
        self.file = folder / "WORKFLOW.md"
        self.file.write_text(WORKFLOW.replace("MORE", more).replace("STALL", str(stall)))
        self.tracker = FolderTracker(folder / "issues", ["Done"])
        self.hooks = ()
        self.service = None

    def write(self, name, title, state="Todo", **more):
        lines = [f"title: {title}", f"state: {state}", *(f"{key}: {value}" for key, value in more.items())]
        part = self.folder / "issues" / f".{name}.part"
        part.write_text("---\n" + "\n".join(lines) + "\n---\n")
        part.rename(self.folder / "issues" / f"{name}.md")

    def log(self):
        file = self.folder / "log"
        return file.read_text().splitlines() if file.exists() else []

    async def __aenter__(self):
        self.watched = WatchedWorkflow(str(self.file), {})
        self.runner = LocalRunner(cap=100)
        self.journal = MemoryJournal()
        self.site = AttemptSite(
            current=lambda: self.watched.workflow,
            root=WorkspaceRoot(self.watched.workflow.root),
            runner=self.runner,
            environ=dict(os.environ),
            recorder=Recorder(self.journal),
            owner=owner(),
            hooks=self.hooks,
        )
        self.agent = Obedient(self)
        worker = SiteWorker(self.site, lambda _: self.agent)
        mask = Mask(["s3cr3t-of-ours"])
        self.service = Service(self.watched, lambda _: self.tracker, worker, mask=mask)
        self.running = asyncio.ensure_future(self.service.run())
        return self

    async def __aexit__(self, *_):
        self.service.stop()
        try:
            await asyncio.wait_for(self.running, 60)
        finally:
            await self.runner.close()
            self.site.root.close()

    async def until(self, holds):
        """Wait for it, as long as the service runs."""
        ends = time.monotonic() + 60
        while not holds():
            assert not self.running.done(), self.running.result()
            assert time.monotonic() < ends, (self.service.state, self.log())
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(reloading, "EVERY", 0.02)
    monkeypatch.setattr("hookline.symphony.scheduler.CONTINUE_AFTER", 0.05)


@pytest.mark.rule("O2", "M21", "M22", "M23", "M24", "M45", "O13")
async def test_a_file_that_is_dropped_in_is_worked_on_until_it_is_done_and_cleaned_up(tmp_path):
    board = Board(tmp_path)
    # A poll in the middle could find the issue done before its agent has left.
    board.file.write_text(board.file.read_text().replace("interval_ms: 50", "interval_ms: 3600000"))
    async with board:
        board.write("A-1", "done")
        board.service.refresh()
        await board.until(lambda: len(board.log()) >= 4)
        await board.until(lambda: not (tmp_path / "work" / "A-1").exists())
    assert board.log() == [
        "after_create A-1",
        "before_run A-1 first",
        "after_run A-1 ok",
        "before_remove A-1",
    ]


@pytest.mark.rule("O8", "O16", "O18", "M47", "W20")
async def test_an_issue_that_stays_active_is_continued_in_the_same_workspace(tmp_path):
    async with Board(tmp_path) as board:
        board.write("A-1", "talk")
        await board.until(lambda: board.log().count("before_run A-1 1") >= 2)
    assert board.log()[:4] == [
        "after_create A-1",
        "before_run A-1 first",
        "after_run A-1 ok",
        "before_run A-1 1",
    ]
    assert board.log().count("after_create A-1") == 1


@pytest.mark.rule("O8", "M48", "W22")
async def test_a_failed_attempt_is_tried_again_and_told_its_outcome(tmp_path):
    async with Board(tmp_path) as board:
        board.write("A-1", "fail")
        await board.until(lambda: "before_run A-1 2" in board.log())
    assert "after_run A-1 failed" in board.log()
    assert any(each.error == "as told" for each in board.service.state.finished)


async def test_a_bug_in_an_agent_costs_its_attempt_and_not_the_service(tmp_path):
    async with Board(tmp_path) as board:
        board.write("A-1", "boom")
        board.write("A-2", "done")
        await board.until(lambda: "before_remove A-2" in board.log())
        await board.until(lambda: "after_run A-1 failed" in board.log())
        await board.until(lambda: any(each.error for each in board.service.state.finished))
    errors = [each.error for each in board.service.state.finished if each.issue.id == "A-1"]
    assert "ZeroDivisionError" in errors[0]
    assert "s3cr3t" not in str(board.service.snapshot())


@pytest.mark.rule("W30")
async def test_a_secret_that_an_agent_says_is_not_in_what_the_service_shows(tmp_path):
    async with Board(tmp_path) as board:
        board.write("A-1", "leak")
        await board.until(lambda: "the key is" in str(board.service.snapshot()))
        assert "s3cr3t" not in str(board.service.snapshot())
        assert "s3cr3t" not in str(board.service.issue("A-1"))


async def test_an_issue_that_a_hook_skips_is_no_failure_and_waits_for_a_change(tmp_path):
    @hook(on="run.start")
    def nothing(ctx, hook_context):
        return HookResult.skip("nothing to do here")

    board = Board(tmp_path)
    board.hooks = (python_hook(nothing),)
    async with board:
        board.write("A-1", "done")
        await board.until(lambda: board.service.state.parked)
        assert "nothing to do here" in board.service.snapshot()["blocked"][0]["error"]
        assert board.service.state.finished[0].outcome == "skipped"
        assert board.agent.most == 0
    assert board.log() == ["after_create A-1"], "nothing was begun, so there is nothing to end"


@pytest.mark.rule("O15")
async def test_an_agent_that_wants_a_person_is_shown_and_waits(tmp_path):
    async with Board(tmp_path) as board:
        board.write("A-1", "ask")
        await board.until(lambda: board.service.state.parked)
        shown = board.service.snapshot()
        assert shown["blocked"][0]["error"] == "which branch?"
        board.write("A-1", "done")
        await board.until(lambda: "before_remove A-1" in board.log())


@pytest.mark.rule("O6")
async def test_no_more_agents_work_than_there_are_slots(tmp_path):
    async with Board(
        tmp_path, more="max_concurrent_agents: 3, max_concurrent_agents_by_state: {todo: 2}"
    ) as board:
        for number in range(6):
            board.write(f"A-{number}", "done")
        await board.until(lambda: sum("before_remove" in line for line in board.log()) == 6)
        assert board.agent.most <= 2


async def test_a_place_that_becomes_free_is_filled_before_the_next_poll(tmp_path):
    board = Board(tmp_path, more="max_concurrent_agents: 1")
    board.file.write_text(board.file.read_text().replace("interval_ms: 50", "interval_ms: 3600000"))
    board.write("A-1", "done")
    board.write("A-2", "done")
    async with board:
        await board.until(lambda: "after_run A-2 ok" in board.log())


@pytest.mark.rule("O12", "M45", "W21", "C4")
async def test_an_issue_that_is_closed_under_its_agent_is_stopped_then_removed(tmp_path):
    async with Board(tmp_path) as board:
        board.write("A-1", "wait")
        await board.until(lambda: board.agent.open_now == 1)
        board.write("A-1", "wait", state="Done")
        await board.until(lambda: "before_remove A-1" in board.log())
    assert board.log()[-2:] == ["after_run A-1 cancelled", "before_remove A-1"]


@pytest.mark.rule("O12", "M44")
async def test_an_issue_that_is_put_back_is_stopped_and_its_workspace_stays(tmp_path):
    async with Board(tmp_path) as board:
        board.write("A-1", "wait")
        await board.until(lambda: board.agent.open_now == 1)
        board.write("A-1", "wait", state="Backlog")
        await board.until(lambda: "after_run A-1 cancelled" in board.log())
        await board.until(lambda: not board.service.state.running)
    assert (tmp_path / "work" / "A-1").is_dir()
    assert "before_remove A-1" not in board.log()


@pytest.mark.rule("O11", "M51", "C4")
async def test_a_stalled_agent_is_ended_told_and_tried_again(tmp_path):
    async with Board(tmp_path, stall=300) as board:
        board.write("A-1", "wait")
        await board.until(lambda: "before_run A-1 1" in board.log())
    assert "after_run A-1 stalled" in board.log()


@pytest.mark.rule("M86")
async def test_a_stop_ends_attempts_with_their_hooks_and_keeps_the_workspace(tmp_path):
    async with Board(tmp_path) as board:
        board.write("A-1", "wait")
        await board.until(lambda: board.agent.open_now == 1)
    assert board.log()[-1] == "after_run A-1 cancelled"
    assert (tmp_path / "work" / "A-1").is_dir()
    assert board.agent.open_now == 0


async def test_hooks_that_hang_hold_up_nobody_else(tmp_path):
    board = Board(tmp_path, more="max_concurrent_agents: 60")
    text = board.file.read_text().replace(
        "before_run: echo", 'before_run: case "$SYMPHONY_ISSUE_IDENTIFIER" in H-*) sleep 3600;; esac; echo'
    )
    board.file.write_text(text)
    async with board:
        for number in range(50):
            board.write(f"H-{number}", "done", priority=1)
        await board.until(lambda: len(board.service.state.running) == 50)
        board.write("A-1", "done")
        await board.until(lambda: "before_remove A-1" in board.log())
        assert not any(line.startswith("after_run H-") for line in board.log())


@pytest.mark.rule("W32", "W31")
async def test_a_new_script_counts_from_the_next_hook_on(tmp_path):
    async with Board(tmp_path) as board:
        board.write("A-1", "talk")
        await board.until(lambda: "after_run A-1 ok" in board.log())
        text = board.file.read_text().replace('echo "after_run', 'echo "new after_run')
        board.file.write_text(text)
        await board.until(lambda: "new after_run A-1 ok" in board.log())


@pytest.mark.rule("W33", "W34", "M3", "M76")
async def test_a_wrong_file_begins_nothing_new_and_a_right_one_goes_on(tmp_path, caplog):
    async with Board(tmp_path) as board:
        good = board.file.read_text()
        board.file.write_text(good.replace("interval_ms: 50", "interval_ms: soon"))
        await board.until(lambda: board.watched.problem)
        board.write("A-1", "done")
        for _ in range(3):
            await board.service.once()
        assert board.log() == []
        assert "interval_ms" in board.service.snapshot()["configuration_error"]
        assert sum("interval_ms" in line for line in caplog.messages) == 1
        board.file.write_text(good)
        await board.until(lambda: "before_remove A-1" in board.log())


class Down:
    """A tracker that answers only when it likes."""

    omitted = ()

    def __init__(self, inner):
        self.inner, self.down = inner, True
        self.closed = False

    async def by_states(self, states):
        return await self._asked(self.inner.by_states, states)

    async def by_ids(self, ids):
        return await self._asked(self.inner.by_ids, ids)

    async def _asked(self, ask, given):
        if self.down:
            raise TrackerError("it is down", kind="tracker_request")
        return await ask(given)

    async def close(self):
        self.closed = True


@pytest.mark.rule("O12", "O13", "M54")
async def test_a_tracker_that_is_down_is_told_and_asked_again(tmp_path):
    board = Board(tmp_path)
    board.tracker = Down(board.tracker)
    (tmp_path / "work" / "OLD-1").mkdir(parents=True)
    async with board:
        board.write("A-1", "wait")
        await board.until(lambda: board.service.problem)
        assert board.service.snapshot()["configuration_error"] == "it is down"
        board.tracker.down = False
        await board.until(lambda: board.agent.open_now == 1)
        board.tracker.down = True
        await board.until(lambda: board.service.problem)
        assert board.agent.open_now == 1, "what runs goes on"
    assert board.tracker.closed


@pytest.mark.rule("O13")
async def test_at_the_start_workspaces_of_finished_issues_are_removed(tmp_path):
    async with Board(tmp_path) as board:
        board.write("A-1", "talk")
        await board.until(lambda: "after_run A-1 ok" in board.log())
    (tmp_path / "issues" / "A-1.md").write_text("---\nstate: Done\n---\n")
    again = Board.__new__(Board)
    again.__dict__.update(board.__dict__)
    async with again:
        await again.until(lambda: "before_remove A-1" in again.log())
        await again.until(lambda: not (tmp_path / "work" / "A-1").exists())
    assert again.log().count("before_remove A-1") == 1


@pytest.mark.rule("O29")
async def test_a_refresh_is_a_look_now_and_two_are_one(tmp_path):
    board = Board(tmp_path)
    board.file.write_text(board.file.read_text().replace("interval_ms: 50", "interval_ms: 3600000"))
    async with board:
        await board.until(lambda: not board.service._polling and not board.service._look_now.is_set())
        board.write("A-1", "done")
        first = board.service.refresh()
        second = board.service.refresh()
        assert (first["coalesced"], second["coalesced"]) == (False, True)
        assert first["queued"] is True
        await board.until(lambda: "after_run A-1 ok" in board.log())


async def test_the_tracker_of_an_attempt_stays_open_when_the_file_names_another(tmp_path):
    board = Board(tmp_path)
    made = []

    def tracker_of(workflow):
        tracker = Down(FolderTracker(tmp_path / "issues", ["Done"]))
        tracker.down = False
        made.append(tracker)
        return tracker

    async with board:
        board.service._tracker_of = tracker_of
        board.service._trackers.clear()
        board.write("A-1", "wait")
        await board.until(lambda: board.agent.open_now == 1)
        board.file.write_text(
            # The issue stays wanted, so that its attempt goes on.
            board.file.read_text().replace(
                "kind: folder\n", "kind: folder\n  terminal_states: [Done, Dropped]\n"
            )
        )
        await board.until(lambda: len(made) == 2)
        assert not made[0].closed
    assert all(tracker.closed for tracker in made)
