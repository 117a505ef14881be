"""examples/symphony as a newcomer starts it: a board of files, an agent that needs no model."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "symphony"


class Board:
    """A copy of the example, and its service."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "board"
        shutil.copytree(EXAMPLE, self.folder)
        self.env = {**os.environ, "HOOKLINE_HOME": str(folder / "home"), "COLUMNS": "80"}

    def only(self, *names: str) -> None:
        for file in (self.folder / "issues").iterdir():
            if file.stem not in names:
                file.unlink()

    @contextmanager
    def served(self, *words: str):
        with (
            (self.folder / "out").open("wb") as out,
            (self.folder / "err").open("wb") as err,
            subprocess.Popen(
                [sys.executable, "-m", "hookline", "serve", *words],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            ) as service,
        ):
            try:
                yield service
            finally:
                service.send_signal(signal.SIGTERM)
                service.wait(60)

    def until(self, claim, service) -> None:
        deadline = time.monotonic() + 120
        while not claim():
            assert service.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def issue(self, name: str) -> str:
        return (self.folder / "issues" / f"{name}.md").read_text()

    def story(self, name: str = "") -> list[str]:
        file = self.folder / "story.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.removeprefix(f"{name} ") for line in lines if line.startswith(name)]

    def workspaces(self) -> list[str]:
        folder = self.folder / "workspaces"
        return (
            [file.name for file in folder.iterdir() if not file.name.startswith(".")]
            if folder.exists()
            else []
        )

    def over(self, *names: str) -> bool:
        done = all("state: Done" in self.issue(name) for name in names)
        return (
            done and all((self.folder / "done" / name).exists() for name in names) and not self.workspaces()
        )

    def said(self) -> str:
        return (self.folder / "err").read_text()


@pytest.fixture
def board(tmp_path):
    return Board(tmp_path)


LIFECYCLE = [
    "after_create",
    "before_run",
    "agent",
    "after_run ok",
    "before_run",
    "agent",
    "after_run ok",
    "before_remove",
]


@pytest.mark.statement("SC1", "SC4", "SC5", "SC10", "SC12", "SC16", "SC26", "SC27", "SC47", "SW1", "SW2")
@pytest.mark.rule("M83", "M86", "O30")
def test_abc_123_runs_twice_in_one_workspace_and_is_cleaned_up_when_it_is_done(board):
    board.only("ABC-123")
    with board.served() as service:  # no file is named: the one in this folder
        board.until(lambda: board.over("ABC-123"), service)
    assert service.returncode == 0, board.said()
    assert board.story("ABC-123") == LIFECYCLE
    kept = board.folder / "done" / "ABC-123"
    assert (kept / "announcement.txt").read_text() == "Version 1.4 is out.\n"
    assert (kept / "NOTES.md").read_text() == "# Write the announcement\n4 announcement.txt\n"
    assert board.issue("ABC-123").count("- [x]") == 2


def test_a_hook_that_the_agent_cannot_be_given_is_warned_of_once_in_all_attempts(board):
    board.only("ABC-123")
    (board.folder / "more.yaml").write_text("hooks:\n  - {name: look, on: tool.start, command: ['true']}\n")
    with board.served("WORKFLOW.md", "--hooks", "more.yaml") as service:
        board.until(lambda: board.over("ABC-123"), service)
    assert board.story("ABC-123") == LIFECYCLE
    assert board.said().count("see nothing of it: look (tool.start)") == 1


@pytest.mark.statement("SC7", "SC11", "SC17")
def test_the_whole_board_is_worked_off_with_a_retry_and_one_issue_after_the_other_it_waits_for(board):
    with board.served("WORKFLOW.md", "--json") as service:
        board.until(lambda: board.over("ABC-123", "ABC-124", "ABC-125"), service)
    story = board.story()
    assert board.story("ABC-123") == LIFECYCLE
    assert board.story("ABC-125") == [
        "after_create",
        *("before_run", "agent", "after_run failed"),
        *("before_run", "agent", "after_run ok"),
        "before_remove",
    ]
    last_of_123 = max(number for number, line in enumerate(story) if line == "ABC-123 agent")
    assert story.index("ABC-124 after_create") > last_of_123
    states = [json.loads(line) for line in (board.folder / "out").read_text().splitlines()]
    assert {each["issue_identifier"] for each in states[-1]["finished"]} == {"ABC-123", "ABC-124", "ABC-125"}


@pytest.mark.statement("SW26", "SW27")
def test_a_file_that_is_dropped_in_is_a_new_issue_and_its_hooks_are_in_the_log(board, tmp_path):
    board.only()
    with board.served("WORKFLOW.md") as service:
        board.until(lambda: (board.folder / "workspaces").exists(), service)
        part = board.folder / "issues" / ".part"
        part.write_text("---\nstate: Todo\n---\n# Say hello\n- [ ] `echo hello > hello.txt`\n")
        part.rename(board.folder / "issues" / "NEW-1.md")
        board.until(lambda: board.over("NEW-1"), service)
    assert (board.folder / "done/NEW-1/hello.txt").read_text() == "hello\n"
    for log in (board.said(), (tmp_path / "home/logs/serve.log").read_text()):
        lines = [line for line in log.splitlines() if "issue_identifier=NEW-1" in line]
        for hook in ("after_create", "before_run", "after_run", "before_remove"):
            assert any(f"hook={hook}" in line and "hook succeeded" in line for line in lines), hook


@pytest.mark.statement("SC28", "SC26")
def test_what_was_finished_while_nobody_looked_is_cleaned_up_at_the_next_start(board):
    board.only()
    idle = board.folder / "issues" / "OLD-1.md"
    idle.write_text("---\nstate: Todo\n---\n# Try in vain\n- [ ] `false`\n")
    with board.served() as service:
        board.until(lambda: "after_run failed" in board.story("OLD-1"), service)
    assert board.workspaces() == ["OLD-1"]
    idle.write_text("---\nstate: Done\n---\n# Try in vain\n")
    before = board.story("OLD-1")
    assert "before_remove" not in before
    with board.served() as service:
        board.until(lambda: not board.workspaces(), service)
    assert board.story("OLD-1") == [*before, "before_remove"]


def test_a_secret_that_an_agent_prints_is_masked_where_the_state_is_shown(board):
    board.only("ABC-123")
    board.env["SOME_API_KEY"] = "s3cr3t-of-somebody"
    file = board.folder / "WORKFLOW.md"
    chatty = 'while :; do echo "the key is $SOME_API_KEY"; sleep 0.2; done'
    command = json.dumps(["sh", "-c", chatty])
    file.write_text(file.read_text().replace("command: python3 ../../agent.py", f"command: {command}"))
    with board.served("--json") as service:
        board.until(lambda: "the key is" in (board.folder / "out").read_text(), service)
    assert "s3cr3t-of-somebody" not in (board.folder / "out").read_text()


@pytest.mark.rule("M78")
def test_a_log_that_cannot_be_written_stops_nobody(board, tmp_path):
    board.only("ABC-124")
    (board.folder / "issues" / "ABC-123.md").write_text("---\nstate: Done\n---\n# Announced\n")
    (tmp_path / "home" / "logs").mkdir(parents=True)
    (tmp_path / "home" / "logs" / "serve.log").symlink_to("/dev/full")
    with board.served("--quiet") as service:
        board.until(lambda: (board.folder / "done" / "ABC-124").exists(), service)
        board.until(lambda: not board.workspaces(), service)
    assert service.returncode == 0, board.said()
    assert board.story("ABC-124")[-2:] == ["after_run ok", "before_remove"]


@pytest.mark.rule("M80")
def test_whoever_watched_may_go_and_the_work_goes_on(board):
    board.only("ABC-123")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        service = subprocess.Popen(
            [sys.executable, "-m", "hookline", "serve", "--json", "--quiet"],
            cwd=board.folder,
            env=board.env,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
        )
    finally:
        os.close(writer)
    with service:
        try:
            (board.folder / "err").touch()
            board.until(lambda: board.over("ABC-123"), service)
        finally:
            service.send_signal(signal.SIGTERM)
            said = service.communicate(timeout=60)[1]
    assert board.story("ABC-123") == LIFECYCLE
    assert b"Traceback" not in said, said.decode()


@pytest.mark.rule("M85", "M87", "O30")
def test_a_service_that_cannot_begin_says_why_in_one_line_and_exits_2(board):
    file = board.folder / "WORKFLOW.md"
    file.write_text(file.read_text().replace("kind: folder", "kind: foldr"))
    done = subprocess.run(
        [sys.executable, "-m", "hookline", "serve"],
        cwd=board.folder,
        env=board.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "tracker.kind" in done.stderr
    assert "did you mean folder?" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


@pytest.mark.rule("M84", "M87", "O30")
@pytest.mark.parametrize("words", [[], ["other.md"]])
def test_a_file_that_is_not_there_is_an_error(board, words):
    (board.folder / "WORKFLOW.md").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "hookline", "serve", *words],
        cwd=board.folder,
        env=board.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert (words or ["WORKFLOW.md"])[0] in done.stderr
    assert "there is no such file" in done.stderr.replace("\n", " ")
