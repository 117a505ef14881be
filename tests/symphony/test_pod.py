"""`hookline attempt`, the program of a pod: what it does, what it sends, and what it leaves on the volume."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hookline.engine.context import Usage
from hookline.engine.plain import typed
from hookline.engine.record import Begun, Called, Decided, Ended
from hookline.journal.stream import LineReader, Message
from hookline.symphony.agents import AgentEvent
from hookline.symphony.trackers import Blocker, Issue, issue_values
from tests import forks
from tests.fakes.trackers import FakeLinear, linear_issue

LIMIT = 60.0
HOOKLINE = (sys.executable, "-m", "hookline")
ISSUE = Issue(id="i1", identifier="ABC-123", title="Mend it", state="Todo", description="Please.")
WORKFLOW = """\
---
tracker:
  kind: @TRACKER@
workspace: {root: $NOWHERE}
hooks:
  after_create: echo "after_create $SYMPHONY_ISSUE_IDENTIFIER" >> ../story
  before_run: echo "before_run $SYMPHONY_ATTEMPT" >> ../story
  after_run: echo "after_run $SYMPHONY_OUTCOME" >> ../story
  before_remove: echo before_remove >> ../story
agent:
  kind: command
  command: ["sh", "-c", AGENT]
  max_turns: 3
codex: {stall_timeout_ms: STALL}
---
Work on {{ issue.identifier }}: {{ issue.title }}
"""
FOLDER = "folder"
LINEAR = "linear\n  provider: {project_slug: p, api_key: $TRACKER_KEY, endpoint: URL}"


class Volume:
    """The volume of one workspace, and the pods that come to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "workspaces"
        self.root.mkdir()
        self.env = {**os.environ, "HOOKLINE_HOME": str(self.root / ".home~")}
        (folder / "issue.json").write_text(json.dumps(issue_values(ISSUE)))
        self.agent("echo I did it")

    def agent(self, script: str, *, tracker: str = FOLDER, stall: int = 300_000) -> None:
        text = WORKFLOW.replace("AGENT", json.dumps(script)).replace("@TRACKER@", tracker)
        (self.folder / "WORKFLOW.md").write_text(text.replace("STALL", str(stall)))

    def words(self, *more: str) -> list[str]:
        given = {"--file": "WORKFLOW.md", "--issue": "issue.json"}
        words = [word for name, file in given.items() for word in (name, str(self.folder / file))]
        return ["attempt", *words, "--root", str(self.root), *more]

    def pod(self, *more: str, prefix: tuple[str, ...] = ()) -> "Pod":
        words = self.words(*more)
        if not prefix:
            done = forks.run(words, cwd=self.folder, env=self.env)
        else:
            done = subprocess.run(
                [*prefix, *HOOKLINE, *words],
                env=self.env,
                cwd=self.folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT,
            )
        return Pod(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def at_work(self, *more: str):
        process = subprocess.Popen(
            [*HOOKLINE, *self.words(*more)],
            env=self.env,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            until(lambda: (self.root / "ABC-123/started").exists())
            yield process
        finally:
            process.kill()
            process.communicate(timeout=LIMIT)

    @property
    def story(self) -> list[str]:
        return (self.root / "story").read_text().splitlines()


class Pod:
    """How a pod ended, and what it sent."""

    def __init__(self, code: int, printed: str, told: str = "") -> None:
        self.code, self.err = code, told
        received = LineReader()
        self.got = [found for line in printed.split("\n") if (found := received.read(line)[0]) is not None]
        assert received.missing == 0
        self.records = [each for each in self.got if not isinstance(each, Message)]
        self.said = {each.word: each.value for each in self.got if isinstance(each, Message)}

    @property
    def ended(self):
        assert isinstance(self.got[-1], Message), self.err
        assert self.got[-1].word == "ended"
        return self.got[-1].value


def until(condition) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def outline(records) -> list[tuple]:
    """What happened, without what differs from one run to another."""
    return [
        (type(each).__name__, str(getattr(each, "scope", "")), str(getattr(each, "point", "")), *_more(each))
        for each in records
    ]


def _more(record):
    match record:
        case Begun():
            return record.name, record.about.get("attempt")
        case Called():
            return record.hook, str(record.action)
        case Decided():
            return (str(record.action),)
        case Ended():
            return str(record.status), record.error


@pytest.fixture
def volume(tmp_path):
    return Volume(tmp_path)


def test_an_issue_is_sent_whole():
    whole = Issue(
        id="1",
        identifier="ABC-1",
        title="t",
        state="Todo",
        labels=("a", "b"),
        blocked_by=(Blocker(id="2", identifier="ABC-2", state="Done"),),
        priority=2,
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
    )
    assert typed(Issue, json.loads(json.dumps(issue_values(whole)))) == whole


@pytest.mark.parametrize("tokens", [None, Usage(input_tokens=2, output_tokens=1, total_tokens=3)])
def test_an_event_is_sent_whole(tokens):
    whole = AgentEvent(
        kind="notification", text="t", tokens=tokens, rate_limits={"used": [5]}, session_id="s-1"
    )
    assert typed(AgentEvent, json.loads(json.dumps(asdict(whole)))) == whole


@pytest.mark.statement("SC47")
def test_pods_one_after_another_run_the_hooks_in_the_order_of_one_machine(volume):
    first, second = volume.pod("--mark", "a"), volume.pod("--number", "1", "--mark", "b")
    assert [first.ended["outcome"], second.ended["outcome"], first.code] == ["ok", "ok", 0], first.err
    gone = volume.pod("--remove")
    assert gone.ended == {"outcome": "ok"}
    assert volume.story == [
        "after_create ABC-123",
        "before_run ",
        "after_run ok",
        "before_run 1",
        "after_run ok",
        "before_remove",
    ]
    assert sorted(os.listdir(volume.root)) == [".home~", ".hookline~", "story"]


def test_what_a_pod_sends_is_what_a_run_on_this_machine_has_in_its_journal(volume, tmp_path):
    sent = volume.pod()
    here = tmp_path / "here"
    (here / "issues").mkdir(parents=True)
    (here / "issues/ABC-123.md").write_text("---\ntitle: Mend it\nstate: Todo\n---\nPlease.\n")
    text = (
        (tmp_path / "WORKFLOW.md")
        .read_text()
        .replace("$NOWHERE", "ws")
        .replace("max_turns: 3", "max_turns: 1")
    )
    (here / "WORKFLOW.md").write_text(text)
    env = {**os.environ, "HOOKLINE_HOME": str(here / "home")}
    words = [sys.executable, "-m", "hookline"]
    subprocess.run(
        [*words, "run", "WORKFLOW.md", "--issue", "ABC-123"],
        cwd=here,
        env=env,
        check=True,
        capture_output=True,
    )
    from hookline.journal.sqlite import SqliteJournal

    journal = SqliteJournal(here / "home/journal.db")
    try:
        local = [record for row in reversed(journal.runs()) for record in journal.records(row.run_id)]
    finally:
        journal.close()
    assert outline(sent.records) == outline(local)
    assert len(local) >= 7


def test_a_pod_that_was_killed_is_followed_by_one_that_sends_and_ends_what_it_left(volume):
    volume.agent("touch started; sleep 300")
    with volume.at_work("--mark", "a") as process:
        process.kill()
        printed, _ = process.communicate(timeout=LIMIT)
    before = Pod(-9, printed)
    volume.agent("echo I did it")
    after = volume.pod("--mark", "b")
    assert after.ended["outcome"] == "ok", after.err
    # What the first has sent comes again, also its run, which has an end now; calls of its last moment may lag.
    kept = [each for each in before.records if isinstance(each, Begun | Ended)]
    assert set(map(repr, kept)) <= set(map(repr, after.records))
    [lost] = [each for each in after.records if isinstance(each, Ended) and each.status == "lost"]
    assert lost.run_id in {each.run_id for each in before.records}
    assert volume.story == [
        "after_create ABC-123",
        "before_run ",
        "after_run lost",
        "before_run ",
        "after_run ok",
    ]


def test_an_attempt_that_a_lost_pod_had_begun_is_not_begun_by_another_in_its_place(volume):
    volume.agent("touch started; sleep 300")
    with volume.at_work("--mark", "a") as process:
        process.kill()
    again = volume.pod("--mark", "a")
    assert again.ended["outcome"] == "failed"
    assert "it is not started a second time" in again.ended["error"]
    assert volume.story == ["after_create ABC-123", "before_run ", "after_run lost"]


def test_sigterm_lets_after_run_run_and_tells_that_it_was_cancelled(volume):
    volume.agent("touch started; sleep 300")
    with volume.at_work() as process:
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=LIMIT)
    done = Pod(process.returncode, printed)
    assert (done.code, done.ended["outcome"]) == (143, "cancelled")
    assert volume.story[-1] == "after_run cancelled"
    assert [each.status for each in done.records if isinstance(each, Ended)] == ["cancelled"]


def test_an_agent_that_is_silent_is_ended_as_stalled_and_after_run_is_told(volume):
    volume.agent("sleep 300", stall=1000)
    done = volume.pod()
    assert (done.code, done.ended["outcome"]) == (1, "stalled")
    assert volume.story[-1] == "after_run stalled"


def test_what_the_agent_tells_is_sent(volume):
    done = volume.pod()
    told = [each.value for each in done.got if isinstance(each, Message) and each.word == "told"]
    assert [each["kind"] for each in told] == ["session_started", "turn_completed"]
    none = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    assert (told[-1]["text"], told[-1]["tokens"]) == ("I did it", none)


def test_all_since_a_time_is_sent_again(volume):
    first = volume.pod()
    assert volume.pod().records[0].run_id == first.records[0].run_id
    third = volume.pod("--since", str(time.time()))
    assert set(map(repr, first.records)) <= set(map(repr, third.records))


@pytest.mark.parametrize(("state", "turns"), [("Todo", 3), ("Done", 1)])
def test_a_tracker_over_the_network_is_asked_after_each_turn(volume, state, turns):
    with FakeLinear([linear_issue("ABC-123", state, id="i1")]) as linear:
        linear.key = "s3cr3t-of-the-tracker"
        volume.agent("echo ${TRACKER_KEY:-none} >> seen", tracker=LINEAR.replace("URL", linear.url))
        volume.env |= {"TRACKER_KEY": linear.key}
        done = volume.pod()
    assert (done.ended["outcome"], done.ended.get("turns")) == ("ok", turns), (done.ended, done.err)
    assert (volume.root / "ABC-123/seen").read_text().splitlines() == ["none"] * turns


def test_a_tracker_whose_key_is_in_no_secret_is_told_as_that(volume):
    volume.agent("true", tracker=LINEAR.replace("URL", "http://127.0.0.1:9"))
    done = volume.pod()
    assert done.ended["outcome"] == "failed"
    assert "Secrets that `hookline serve` is given" in done.ended["error"]


def test_secrets_are_masked_in_what_is_sent(volume):
    volume.env |= {"MY_TOKEN": "s3cr3t-value-of-mine"}
    volume.agent("echo s3cr3t-value-of-mine >&2; exit 3")
    done = volume.pod()
    assert "exited with 3" in done.ended["error"]
    assert "s3cr3t" not in "".join(map(repr, done.got)) + done.err


FILLED = """
set -e
folder=$1; shift
mount -t tmpfs -o size=2m tmpfs "$folder"
mkdir "$folder/.home~"
exec "$@"
"""


def test_a_full_volume_is_told_as_that(volume):
    apart = ("unshare", "-m" if os.getuid() == 0 else "-rm")
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts can be made here")
    volume.agent("head -c 8000000 /dev/zero > filling")
    done = volume.pod(prefix=(*apart, "sh", "-c", FILLED, "sh", str(volume.root)))
    assert "Traceback" not in done.err
    assert (done.ended["outcome"], done.ended["full"]) == ("failed", True), done.err
