"""`hookline run agent.py "question" --on kubernetes` against a real cluster: a Job there, its records here."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hookline import SqliteJournal
from hookline.engine.record import Begun, Called, Decided, Ended
from tests.kube.kubectl import Kubectl

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

AGENT = """\
import asyncio
import os
import sys

from hookline import Agent, HookResult, Scripted, hook, tool
from words import REFUSED

@hook
def known(ctx, hook_context):
    global ASKED
    ASKED = asked = hook_context.current_payload["input"]
    if asked == "fail":
        return HookResult.fail("not today")
    if asked == "skip":
        return HookResult.skip("nothing to do")
    return HookResult.continue_with()

@hook
def no_pushes(ctx, hook_context):
    if REFUSED in hook_context.current_payload["text"]:
        return HookResult.block("no pushes")
    return HookResult.continue_with()

@hook
def goodbye(ctx, hook_context):
    print("goodbye", hook_context.status, file=sys.stderr, flush=True)
    return HookResult.continue_with()

@tool
async def say(text: str) -> str:
    if ASKED == "fill":
        with open("/tmp/more-than-a-pod-may-have", "wb") as file:
            for _ in range(1100):
                file.write(bytes(2**20))
    if ASKED in ("wait", "die", "fill"):
        print("waiting now", file=sys.stderr, flush=True)
        if ASKED == "die":
            os._exit(9)
        await asyncio.sleep(600)
    return f"said {text} to {os.environ.get('TEAM', 'nobody')} with {len(os.environ.get('TOKEN', ''))} letters"

agent = Agent(
    id="speaker",
    model=Scripted([*({"tools": [{"name": "say", "arguments": {"text": each}}]} for each in ("push", "hello")), "done"]),
    tools=[say],
    on_start=known,
    on_tool_start=no_pushes,
    on_end=goodbye,
)
"""
LIMIT = 300.0


class There:
    """The command in a namespace of its own, with a journal of its own."""

    def __init__(self, kubectl: Kubectl, kubeconfig: str, image: str, folder: Path) -> None:
        self.kubectl, self.image, self.folder = kubectl, image, folder
        (folder / "agent.py").write_text(AGENT)
        (folder / "words.py").write_text('REFUSED = "push"\n')
        self.env = {**os.environ, "KUBECONFIG": kubeconfig, "HOOKLINE_HOME": str(folder / "home")}
        self.where = ["--on", "kubernetes", "--namespace", kubectl.name]

    def words(self, *words: str, image: str = "") -> list[str]:
        start = [sys.executable, "-m", "hookline", "run", str(self.folder / "agent.py"), *words]
        return [*start, *self.where, "--image", image or self.image]

    def __call__(self, *words: str, image: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words, image=image),
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def here(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**self.env, "HOOKLINE_HOME": str(self.folder / "home-here")}
        start = [sys.executable, "-m", "hookline", "run", str(self.folder / "agent.py"), *words]
        return subprocess.run(start, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)

    def start(self, *words: str, image: str = "", home: str = "home") -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words(*words, image=image),
            env={**self.env, "HOOKLINE_HOME": str(self.folder / home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def records(self, home: str = "home"):
        journal = SqliteJournal(self.folder / home / "journal.db")
        try:
            newest = journal.runs(limit=1)
            return journal.records(newest[0].run_id) if newest else []
        finally:
            journal.close()

    def until(self, holds) -> None:
        ends = time.monotonic() + LIMIT
        while not holds():
            assert time.monotonic() < ends, self.kubectl.well("get", "jobs,pods,secrets", "-o", "yaml")
            time.sleep(0.1)

    def left(self) -> list[str]:
        found = self.kubectl.get("jobs,pods,secrets")["items"]
        return [
            each["metadata"]["name"]
            for each in found
            if each.get("type") != "kubernetes.io/service-account-token"
        ]


@pytest.fixture
def there(kubeconfig, image, tmp_path):
    with Kubectl(kubeconfig, tmp_path / "kubectl").namespace() as kubectl:
        yield There(kubectl, kubeconfig, image, tmp_path)


def story(records):
    """What happened in which order, without times and names of this one run."""
    told = []
    for each in records:
        if isinstance(each, Begun):
            told.append(("begun", each.scope_id, each.scope, each.name))
        elif isinstance(each, Called):
            told.append(("called", str(each.point), each.hook, each.action, each.reason, each.changed))
        elif isinstance(each, Decided):
            told.append(("decided", str(each.point), each.action, each.reasons))
        else:
            told.append(("ended", each.scope_id, each.status, each.error))
    return [tuple("RUN" if value == records[0].run_id else value for value in each) for each in told]


def test_a_run_there_has_the_same_records_answer_and_exit_code_as_here_and_leaves_nothing(there):
    for asked, code in (("hello", 0), ("fail", 1), ("skip", 0)):
        far, near = there(asked), there.here(asked)
        assert (far.returncode, near.returncode) == (code, code), far.stderr
        assert far.stdout == near.stdout
        assert story(there.records()) == story(there.records("home-here"))
        assert len(story(there.records())) > 4
    assert "error: not today" in there("fail", "--quiet").stderr
    # Whoever's text it is, it is what the agent is asked, and no option.
    odd = subprocess.run(
        there.words("-"),
        env=there.env,
        input="--model=scripted/none",
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (odd.returncode, odd.stdout) == (0, "done\n"), odd.stderr
    there.until(lambda: there.left() == [])


def test_variables_and_secrets_get_there_and_progress_is_told_as_json_lines(there):
    there.kubectl.well(
        "create",
        given={
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "model-key"},
            "stringData": {"TOKEN": "s3cr3t-value"},
        },
    )
    done = there("hello", "--json", "--secret", "model-key", "--env", "TEAM=ops")
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["record"] for each in told].count("called") == 4
    assert told[-1]["record"] == "result"
    assert told[-1]["result"] == "done"
    assert "said hello to ops with 12 letters" in done.stdout
    assert "goodbye ok" in done.stderr


def test_ctrl_c_ends_the_run_with_its_end_hooks_in_the_pod(there):
    run = there.start("wait")
    there.until(lambda: there.records() != [])
    there.until(lambda: "waiting now" in run.stderr.readline())
    run.send_signal(signal.SIGINT)
    _, told = run.communicate(timeout=LIMIT)
    assert run.returncode == 130, told
    assert "goodbye cancelled" in told
    [ended] = [each for each in there.records() if isinstance(each, Ended) and each.scope == "run"]
    assert ended.status == "cancelled"
    there.until(lambda: there.left() == [])


def test_what_happens_to_a_pod_is_told_as_what_it_is(there):
    nowhere = there.start("hello", image="localhost:1/nobody/nothing:1", home="nowhere")
    pressed = there.start("fill", home="pressed")
    run = there.start("wait")
    there.until(lambda: there.records() != [])
    there.until(lambda: "waiting now" in run.stderr.readline())
    [begun] = [each for each in there.records() if isinstance(each, Begun) and each.parent_id is None]
    job = begun.source.removeprefix("kubernetes:").partition(" ")[0].partition("/")[2]
    there.kubectl.well(
        "delete", "pod", "--wait=false", "--force", "--grace-period=0", "-l", f"job-name={job}"
    )
    _, told = run.communicate(timeout=LIMIT)
    assert run.returncode == 1
    assert "the run was cut off: its pod was deleted" in told
    [ended] = [each for each in there.records() if isinstance(each, Ended) and each.scope == "run"]
    assert ended.status in ("lost", "cancelled")  # it may have had a moment to end by itself
    assert there("die").returncode == 9
    ended = [each for each in there.records() if isinstance(each, Ended) and each.scope in ("run", "agent")]
    assert {(each.status, each.error) for each in ended} == {("lost", "its program ended with 9 before it")}
    _, told = nowhere.communicate(timeout=LIMIT)
    assert nowhere.returncode == 1
    assert "the pod does not start yet: ImageNotPulled: the image 'localhost:1/nobody/nothing:1'" in told
    assert "the run never began: the image 'localhost:1/nobody/nothing:1' cannot be pulled" in told
    _, told = pressed.communicate(timeout=LIMIT)
    assert pressed.returncode == 1
    assert "the run was cut off: Evicted: Usage of EmptyDir volume" in told
    [ended] = [each for each in there.records("pressed") if isinstance(each, Ended) and each.scope == "run"]
    assert ended.status == "lost"
    assert ended.error.startswith("Evicted: ")
    there.until(lambda: there.left() == [])


def test_a_run_whose_command_was_killed_goes_on_and_is_in_the_journal_after_the_next_one(there):
    run = there.start("hello")
    there.until(lambda: there.records() != [])
    run.kill()
    run.communicate()
    journal = SqliteJournal(there.folder / "home" / "journal.db")
    try:
        [row] = journal.runs()
        # It may have come to its end before it was killed.
        known = len(journal.records(row.run_id))
        there.until(
            lambda: all(each["status"].get("succeeded") for each in there.kubectl.get("jobs")["items"])
        )
        after = there("hello")
        assert after.returncode == 0, after.stderr
        assert f"run {row.run_id} (speaker) has ended meanwhile" in after.stderr or row.ended is not None
        assert len(journal.records(row.run_id)) >= known
        assert journal.unfinished() == []
        first, second = (story(journal.records(each.run_id)) for each in journal.runs())
        assert first == second
    finally:
        journal.close()
    there.until(lambda: there.left() == [])
