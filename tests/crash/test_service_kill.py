"""`kill -9` of the service at random moments: no issue is lost, no hook forgotten, no process left, no half folder used."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from hookline import SqliteJournal
from hookline.engine.record import Ended

WORKFLOW = """---
tracker: {kind: folder}
polling: {interval_ms: 100}
workspace: {root: work}
agent: {kind: command, command: AGENT, max_turns: 1, max_retry_backoff_ms: 200, max_concurrent_agents: 6}
hooks:
  after_create: |
    echo "begin after_create $SYMPHONY_ISSUE_IDENTIFIER $HOOKLINE_RUN_ID" >> "$TRUTH"
    sleep 0.1; touch whole
    echo "end after_create $SYMPHONY_ISSUE_IDENTIFIER $HOOKLINE_RUN_ID" >> "$TRUTH"
  before_run: |
    test -e whole || echo "half $SYMPHONY_ISSUE_IDENTIFIER" >> "$TRUTH"
    echo "end before_run $SYMPHONY_ISSUE_IDENTIFIER $HOOKLINE_RUN_ID" >> "$TRUTH"
  after_run: |
    echo "begin after_run $SYMPHONY_ISSUE_IDENTIFIER $HOOKLINE_RUN_ID" >> "$TRUTH"
    sleep 0.05
    echo "end after_run $SYMPHONY_ISSUE_IDENTIFIER $HOOKLINE_RUN_ID" >> "$TRUTH"
  before_remove: |
    echo "begin before_remove $SYMPHONY_ISSUE_IDENTIFIER $HOOKLINE_RUN_ID" >> "$TRUTH"
    sleep 0.05
    echo "end before_remove $SYMPHONY_ISSUE_IDENTIFIER $HOOKLINE_RUN_ID" >> "$TRUTH"
---
{{ issue.title }}
"""
AGENT = """#!/bin/sh
sleep 0.2
echo x >> turns
if [ "$(wc -l < turns)" -ge 2 ]; then
  name=$(basename "$PWD")
  printf -- '---\\nstate: Done\\n---\\n' > "$ISSUES/.$name.part"
  mv "$ISSUES/.$name.part" "$ISSUES/$name.md"
fi
"""
LINE = re.compile(r"(begin|end) (\w+) (\S+) (\S+)")
LONGEST = 3.0


class Board:
    """A board and the services that come and go at it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.issues, self.truth = folder, folder / "issues", folder / "truth"
        self.issues.mkdir()
        agent = folder / "agent.sh"
        agent.write_text(AGENT)
        agent.chmod(0o755)
        (folder / "WORKFLOW.md").write_text(WORKFLOW.replace("AGENT", str(agent)))
        self.names: list[str] = []
        self.env = {
            **os.environ,
            "TRUTH": str(self.truth),
            "ISSUES": str(self.issues),
            "HOOKLINE_HOME": str(folder / "home"),
            "BOARD_MARK": str(folder),
        }

    def add(self, count: int) -> None:
        for _ in range(count):
            name = f"A-{len(self.names)}"
            self.names.append(name)
            (self.issues / f"{name}.md").write_text("---\nstate: Todo\n---\n")

    def serve(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "hookline", "serve", "-q"]
        return subprocess.Popen(command, cwd=self.folder, env=self.env, stderr=subprocess.PIPE)

    def done(self) -> bool:
        """Every issue is done, and its workspace gone."""
        texts = [(self.issues / f"{name}.md").read_text() for name in self.names]
        work = self.folder / "work"
        return all("Done" in text for text in texts) and not [
            each for each in work.iterdir() if not each.name.startswith(".")
        ]

    def lines(self) -> list[tuple[str, ...]]:
        text = self.truth.read_text() if self.truth.exists() else ""
        assert "half" not in text, "a workspace that was not ready was worked in"
        return [found.groups() for found in LINE.finditer(text)]

    def processes(self) -> list[str]:
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and self._is_ours(pid)]

    def _is_ours(self, pid: str) -> bool:
        try:
            mark = f"BOARD_MARK={self.folder}\0".encode()
            return mark in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False


def until(holds, why: str, limit: float = 90) -> None:
    ends = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < ends, why
        time.sleep(0.02)


@pytest.mark.rule("O14", "W19", "C3")
@pytest.mark.real
@pytest.mark.timeout(900)
def test_a_service_that_is_killed_again_and_again_loses_nothing(tmp_path, chance):
    board = Board(tmp_path)
    for _ in range(50):
        board.add(2)
        service = board.serve()
        before = len(board.lines())
        # From its first hook on, so that it is not killed while it only imports.
        until(partial(_has_begun, board, service, before), "no hook ran")
        time.sleep(chance.uniform(0, LONGEST) ** 2 / LONGEST)
        service.kill()
        service.communicate()
        until(lambda: not board.processes(), "processes were left behind")
    board.add(1)
    service = board.serve()
    until(board.done, "issues were lost")
    service.send_signal(signal.SIGTERM)
    _, told = service.communicate(timeout=60)
    assert service.returncode == 0, told.decode()
    assert not board.processes()
    _every_hook_was_run_once(board)


def _has_begun(board: Board, service: subprocess.Popen[bytes], before: int) -> bool:
    return len(board.lines()) > before or service.poll() is not None


def _every_hook_was_run_once(board: Board) -> None:
    """Twice only where the crash was between a hook's beginning and the record of its end; and then that is told."""
    lines = board.lines()
    begun = Counter((hook, run) for when, hook, _, run in lines if when == "begin")
    ended = Counter((hook, run) for when, hook, _, run in lines if when == "end")
    journal = SqliteJournal(board.folder / "home" / "journal.db")
    attempts = {run for when, hook, _, run in lines if (when, hook) == ("end", "before_run")}
    for run in attempts:
        assert ended["after_run", run] >= 1, f"after_run of {run} was forgotten"
    for (hook, run), count in begun.items():
        if hook == "after_create":
            assert count == 1, "a workspace is made anew under another run"
        elif count > 1:
            assert "was run again" in _ending(journal, run), f"{hook} of {run} ran {count} times, untold"
    # One that was cut off between its hook and its note is made again, so names are what must be complete.
    assert {name for when, hook, name, _ in lines if (when, hook) == ("end", "before_remove")} == set(
        board.names
    )
    assert journal.unfinished() == []
    journal.close()


def _ending(journal: SqliteJournal, run: str) -> str:
    return " ".join(f"{each.error} {each.output}" for each in journal.records(run) if isinstance(each, Ended))
