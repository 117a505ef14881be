"""The service with the real Codex: real hooks around it, issues in a folder, a model on loopback, no account."""

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path

import pytest

from hookline import MemoryJournal
from hookline.engine.context import Usage
from hookline.engine.pipeline import Recorder
from hookline.journal.masking import Mask
from hookline.journal.recovery import owner
from hookline.runners.local import LocalRunner
from hookline.symphony.hooks import AttemptSite, Outputs
from hookline.symphony.read import WatchedWorkflow
from hookline.symphony.run import SiteWorker, agent_of
from hookline.symphony.scheduler import CONTINUE_AFTER, FIRST_BACKOFF
from hookline.symphony.service import Service
from hookline.symphony.trackers.folder import FolderTracker
from hookline.symphony.workspace import WorkspaceRoot
from tests.fakes import FakeProvider
from tests.real.codex_cli import codex, codex_home, configure, shell, started

__all__ = ["codex", "codex_home"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

SECRET = "lin-api-4f6d1e7b9c"
WORKFLOW = """---
tracker: {{kind: folder}}
polling: {{interval_ms: 3600000}}
workspace: {{root: work}}
agent: {{max_turns: {max_turns}}}
codex:
  command: {command}
  approval_policy: {policy}
  thread_sandbox: danger-full-access
  read_timeout_ms: 60000
  turn_timeout_ms: {silence}
  stall_timeout_ms: {stall}
hooks:
  after_create: echo "after_create $SYMPHONY_ISSUE_IDENTIFIER" >> ../../log
  before_run: |
    echo "before_run ${{SYMPHONY_ATTEMPT-first}}" >> ../../log
    {before_run}
  after_run: echo "after_run $SYMPHONY_OUTCOME" >> ../../log
  before_remove: echo "before_remove $([ -e going ] && echo with the work)" >> ../../log
---
Do {{{{ issue.identifier }}}}: {{{{ issue.title }}}}
"""


class Board:
    """A folder of issues, the service on it, and Codex as its agent."""

    def __init__(self, folder, codex, home, provider, **settings):
        self.folder, self.provider = folder, provider
        configure(home, provider)
        (folder / "issues").mkdir()
        given = {"max_turns": 1, "policy": "never", "silence": 600_000, "stall": 0, "before_run": ":"}
        command = json.dumps(settings.pop("command", None) or started(codex))
        (folder / "WORKFLOW.md").write_text(WORKFLOW.format(**{**given, "command": command, **settings}))
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "CODEX_HOME": str(home),
            "MARK": str(folder),
            "LINEAR_API_KEY": SECRET,
            "ALSO_THE_KEY": SECRET,
        }
        self.workspace = folder / "work" / "ABC-1"
        self.sessions, self.retries = [], []

    def issue(self, state="Todo"):
        part = self.folder / "part"
        part.write_text(f"---\ntitle: Mend the fence\nstate: {state}\n---\n")
        part.rename(self.folder / "issues" / "ABC-1.md")

    def move(self, state):
        """Not the agent but somebody else moves it, and the service looks at once."""
        self.issue(state)
        self.service.refresh()

    def log(self):
        file = self.folder / "log"
        return file.read_text().splitlines() if file.exists() else []

    def outcomes(self):
        return [each.outcome for each in self.service.state.finished]

    async def __aenter__(self):
        names = frozenset({"LINEAR_API_KEY"})
        watched = WatchedWorkflow(str(self.folder / "WORKFLOW.md"), {})
        self.runner, self.journal = LocalRunner(), MemoryJournal()
        self.site = AttemptSite(
            current=lambda: watched.workflow,
            root=WorkspaceRoot(watched.workflow.root),
            runner=self.runner,
            environ=self.environ,
            recorder=Recorder(self.journal),
            secret_names=names,
            mask=Mask([SECRET]),
            outputs=Outputs(self.folder / "outputs"),
            owner=owner(),
        )
        tracker = FolderTracker(self.folder / "issues", watched.workflow.tracker.terminal_states)
        worker = SiteWorker(self.site, lambda workflow: agent_of(workflow, self.site))
        self.service = Service(watched, lambda _: tracker, worker, changed=self._look, mask=self.site.mask)
        self.running = asyncio.ensure_future(self.service.run())
        return self

    async def __aexit__(self, *_):
        self.service.stop()
        try:
            await asyncio.wait_for(self.running, 120)
        finally:
            await self.runner.close()
            self.site.root.close()
        assert self.alive() == [], "nothing that was started is left"

    def _look(self):
        for each in self.service.state.running.values():
            if each.session_id and each.session_id not in self.sessions:
                self.sessions.append(each.session_id)
        for retry in self.service.state.retries.values():
            if not retry.asked and retry not in self.retries:
                self.retries.append(retry)

    async def until(self, holds):
        ends = time.monotonic() + 300
        while not holds():
            assert not self.running.done(), self.running.result()
            assert time.monotonic() < ends, (self.service.state, self.log())
            await asyncio.sleep(0.02)

    def alive(self):
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and self._is_ours(pid)]

    def _is_ours(self, pid):
        try:
            return f"MARK={self.folder}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False


def moved(state):
    """The command with which the agent itself moves the issue."""
    return f"sed -i 's/^state: .*/state: {state}/' ../../issues/ABC-1.md"


def texts(provider):
    """What Codex sent to the model, request by request."""
    return [json.dumps(request.body, ensure_ascii=False) for request in provider.requests]


USAGE = {"input_tokens": 10, "output_tokens": 8, "total_tokens": 18}


@pytest.mark.rule("O20", "O26", "M55", "M56", "M59", "M67")
async def test_an_attempt_runs_its_hooks_around_codex_which_writes_a_file(codex, codex_home, tmp_path):
    work = shell(f"echo mended > fence.txt; echo agent >> ../../log; {moved('Review')}", **USAGE)
    with FakeProvider([work, {"text": "It is mended.", "usage": USAGE}]) as provider:
        board = Board(tmp_path, codex, codex_home, provider)
        board.issue()
        async with board:
            await board.until(board.outcomes)
            assert board.outcomes() == ["ok"]
            twice = Usage(input_tokens=20, output_tokens=16, total_tokens=36)
            assert board.service.state.tokens == twice
        assert (board.workspace / "fence.txt").read_text() == "mended\n"
        assert board.log() == ["after_create ABC-1", "before_run first", "agent", "after_run ok"]
        [session] = board.sessions
        thread, turn = session[:36], session[37:]
        first, second = provider.requests
        assert first.body["prompt_cache_key"] == second.body["prompt_cache_key"] == thread
        assert turn in str(first.headers)
        assert "Do ABC-1: Mend the fence" in texts(provider)[0]


@pytest.mark.rule("O8", "O16", "O18", "M21", "M22", "M47")
async def test_after_its_turns_an_issue_goes_on_in_its_workspace_with_before_run_again(
    codex, codex_home, tmp_path
):
    turns = ["one", "two", shell(moved("Review")), "three"]
    with FakeProvider(turns) as provider:
        board = Board(tmp_path, codex, codex_home, provider, max_turns=2)
        board.issue()
        async with board:
            await board.until(lambda: len(board.outcomes()) == 2)
            assert board.outcomes() == ["ok", "ok"]
            first = board.service.state.finished[0]
        asked = texts(provider)
    assert "one" in asked[1], "the second turn is in the same conversation"
    assert "Do ABC-1: Mend the fence" in asked[1]
    assert '"two"' not in asked[2], "the continuation is a new one"
    threads = [session[:36] for session in board.sessions]
    assert len(board.sessions) == 3
    assert threads[0] == threads[1] != threads[2]
    [retry] = [each for each in board.retries if each.error is None][:1]
    assert (retry.attempt, round(retry.due - first.at, 3)) == (1, CONTINUE_AFTER)
    assert board.log() == [
        "after_create ABC-1",
        "before_run first",
        "after_run ok",
        "before_run 1",
        "after_run ok",
    ]


async def test_no_program_of_a_repository_is_started_because_its_folder_is_worked_in(
    codex, codex_home, tmp_path
):
    server = '[mcp_servers.theirs]\ncommand = "touch"\nargs = ["../../theirs"]\n'
    (tmp_path / "brought.toml").write_text(server)
    brought = "mkdir -p .codex && cp ../../brought.toml .codex/config.toml"
    with FakeProvider(["one", shell(moved("Review")), "two"]) as provider:
        board = Board(tmp_path, codex, codex_home, provider, before_run=brought)
        before = (codex_home / "config.toml").read_text()
        board.issue()
        async with board:
            await board.until(lambda: len(board.outcomes()) == 2)
            assert board.outcomes() == ["ok", "ok"]
    assert "mcp_servers.theirs" in (board.workspace / ".codex" / "config.toml").read_text()
    assert not (tmp_path / "theirs").exists()
    assert (codex_home / "config.toml").read_text() == before


@pytest.mark.rule("O8", "O21", "M48", "M50", "M68")
async def test_a_turn_that_the_model_refuses_is_a_failure_with_backoff(codex, codex_home, tmp_path):
    with FakeProvider([{"status": 400, "error": "this model is out of order"}]) as provider:
        board = Board(tmp_path, codex, codex_home, provider)
        board.issue()
        async with board:
            await board.until(board.outcomes)
            [ended] = board.service.state.finished
            [retry] = board.service.state.retries.values()
    assert ended.outcome == "failed"
    assert "this model is out of order" in ended.error
    assert (retry.attempt, round(retry.due - ended.at, 3)) == (1, FIRST_BACKOFF)
    assert "this model is out of order" in retry.error
    assert board.log() == ["after_create ABC-1", "before_run first", "after_run failed"]


def busy(request):
    """Starts a command that does not end, and whatever comes back, the model has nothing to say."""
    last = request.body["input"][-1]["type"]
    command = "sleep 3600 & touch going; sleep 3600"
    return {"hang": True} if last == "function_call_output" else shell(command)


@pytest.mark.rule("O12", "M44", "M45", "W21")
async def test_a_cancelled_command_leaves_no_process_and_an_issue_that_is_over_no_workspace(
    codex, codex_home, tmp_path
):
    with FakeProvider([busy], repeat=True) as provider:
        board = Board(tmp_path, codex, codex_home, provider)
        going = board.workspace / "going"
        board.issue()
        async with board:
            await board.until(going.exists)
            assert len(board.alive()) > 3, "Codex, its shell and what that started"
            board.move("Backlog")
            await board.until(board.outcomes)
            assert board.alive() == []
            assert going.exists(), "the workspace is kept"
            assert board.log() == ["after_create ABC-1", "before_run first", "after_run cancelled"]
            going.unlink()
            board.move("Todo")
            await board.until(going.exists)
            board.move("Done")
            await board.until(lambda: not board.workspace.exists())
            assert board.alive() == []
            assert board.outcomes() == ["cancelled", "cancelled"]
    assert board.log()[3:] == ["before_run first", "after_run cancelled", "before_remove with the work"]


@pytest.mark.rule("O24", "M73", "W30")
async def test_the_trackers_secret_is_in_no_log_no_shell_of_the_agent_and_no_request(
    codex, codex_home, tmp_path, caplog
):
    caplog.set_level(logging.DEBUG)
    with FakeProvider([shell(f"env; {moved('Review')}"), "done"]) as provider:
        board = Board(tmp_path, codex, codex_home, provider, before_run="env; env >> ../../log")
        board.issue()
        async with board:
            await board.until(board.outcomes)
            records = repr([board.journal.records(each) for each in _runs(board.journal)])
        whole = str([(request.headers, request.body) for request in provider.requests])
    mark = f"MARK={tmp_path}"
    assert mark in "\n".join(board.log()), "the hook did print its environment"
    assert mark in whole, "and so did the agent's shell, to the model"
    assert any(mark in file.read_text() for file in (tmp_path / "outputs").iterdir())
    for text in (whole, caplog.text, records, *_texts_below(tmp_path), *_texts_below(codex_home)):
        assert SECRET not in text


def _runs(journal):
    return [row.run_id for row in journal.runs()]


def _texts_below(folder):
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    return [file.read_bytes().decode("latin-1") for file in files]


@pytest.mark.rule("O15", "O22", "M64", "M66")
async def test_what_codex_asks_a_person_is_declined_and_the_issue_waits(codex, codex_home, tmp_path):
    with FakeProvider([shell("touch made"), "done"]) as provider:
        board = Board(tmp_path, codex, codex_home, provider, policy="untrusted")
        board.issue()
        async with board:
            await board.until(lambda: board.service.state.parked)
            [parked] = board.service.state.parked.values()
            assert board.alive() == []
            assert board.outcomes() == ["input_required"]
    assert "touch made" in parked.why
    assert not (board.workspace / "made").exists()
    assert board.log()[-1] == "after_run failed"


@pytest.mark.rule("O22", "M65")
async def test_a_request_that_nobody_knows_is_answered_and_the_turn_goes_on(codex, codex_home, tmp_path):
    kept = tmp_path / "kept.jsonl"
    between = [sys.executable, Path(__file__).with_name("codex_proxy.py"), kept, "future/request"]
    with FakeProvider([shell(moved("Review")), "done"]) as provider:
        board = Board(tmp_path, codex, codex_home, provider, command=started(codex, *between))
        board.issue()
        async with board:
            await board.until(board.outcomes)
            assert board.outcomes() == ["ok"]
    messages = [json.loads(line) for line in kept.read_text().splitlines()]
    [answer] = [
        each["message"]
        for each in messages
        if each["from"] == "client" and each["message"].get("id") == "from-between"
    ]
    assert answer["error"]["code"] == -32601


@pytest.mark.rule("O11", "O21", "M51", "M61")
@pytest.mark.parametrize(
    ("limits", "outcome"),
    [({"silence": 3000}, "timed_out"), ({"stall": 10_000}, "stalled")],
    ids=["silence", "stall"],
)
async def test_a_model_that_falls_silent_passes_a_limit(codex, codex_home, tmp_path, limits, outcome):
    with FakeProvider([{"hang": True}], repeat=True) as provider:
        board = Board(tmp_path, codex, codex_home, provider, **limits)
        board.issue()
        async with board:
            await board.until(board.outcomes)
            assert board.alive() == []
            assert board.outcomes() == [outcome]
            [retry] = board.service.state.retries.values()
            assert retry.attempt == 1
        assert provider.requests, "it did ask"
    assert board.log() == ["after_create ABC-1", "before_run first", f"after_run {outcome}"]


@pytest.mark.rule("M90")
def test_where_codex_cannot_be_had_a_test_is_skipped_and_says_why(pytester, monkeypatch):
    root = Path(__file__).parents[2]
    pytester.makepyfile(
        test_it="from tests.real.codex_cli import codex\n\ndef test_it(codex):\n    assert False\n"
    )
    monkeypatch.setenv("HOOKLINE_TEST_CACHE", str(pytester.path / "cache"))
    monkeypatch.setenv("PATH", str(pytester.path))
    monkeypatch.setenv("PYTHONPATH", str(root))
    done = pytester.runpytest_subprocess("-rs", "-p", "no:cacheprovider")
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines(["*npm is not installed, so @openai/codex cannot be*"])
