"""`hookline serve WORKFLOW.md --on kubernetes` on a real cluster: workspaces are volumes, attempts are Jobs."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from hookline.engine.point import Scope
from hookline.engine.record import Begun, Called, Ended
from hookline.journal.sqlite import SqliteJournal
from hookline.kube.objects import CLAIM, JOB, LEASE, POD
from tests.fakes.trackers import FakeLinear, linear_issue
from tests.kube.fixtures import BUSYBOX
from tests.kube.kubectl import Kubectl
from tests.kube.outside import outside_of_the_cluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

LIMIT = 240.0
KEY = "s3cr3t-of-the-tracker"
WORKFLOW = """\
---
tracker:
  kind: linear
  provider: {project_slug: p, api_key: $TRACKER_KEY, endpoint: $TRACKER_URL}
polling: {interval_ms: INTERVAL}
workspace: {root: ws}
hooks:
  after_create: |
    STORY "after_create $SYMPHONY_ISSUE_IDENTIFIER ${TRACKER_KEY:-unset}"
    touch made
  before_run: STORY "before_run $SYMPHONY_ATTEMPT"
  after_run: |
    STORY "after_run $SYMPHONY_OUTCOME"
    AFTER
  before_remove: STORY "before_remove $(ls)"
agent:
  kind: command
  command: ["sh", "-c", AGENT]
  max_turns: 2
  max_concurrent_agents: 1
  max_retry_backoff_ms: 1000
---
Work on {{ issue.identifier }}: {{ issue.title }}
"""


@pytest.fixture(scope="module")
def outside():
    with outside_of_the_cluster() as made:
        yield made


class Board:
    """A tracker, a WORKFLOW.md, and the services that work on it."""

    def __init__(self, folder: Path, outside, cluster, namespace, kubeconfig, image) -> None:
        self.folder, self.outside, self.cluster, self.namespace = folder, outside, cluster, namespace
        self.linear = FakeLinear([linear_issue("ABC-123", id="i1")])
        self.linear.key = KEY
        outside.registry = self.linear  # what pods ask at /v2/
        self.words = [
            *(sys.executable, "-m", "hookline", "serve", "WORKFLOW.md", "--on", "kubernetes"),
            *("--namespace", namespace, "--open-volume-as-root", "--secret", "tracker", "--image", image),
        ]
        self.env = {
            **os.environ,
            "KUBECONFIG": kubeconfig,
            "HOOKLINE_HOME": str(folder / "home"),
            "TRACKER_KEY": KEY,
            "TRACKER_URL": self.linear.url,
        }
        self.log = folder / "log"

    async def prepare(self, agent: str, *, after: str = "", interval: int = 1000) -> None:
        story = f"wget -q -O /dev/null {self.outside.url}/{self.namespace} --post-data"
        text = WORKFLOW.replace("STORY", story).replace("AFTER", after)
        text = text.replace("INTERVAL", str(interval))
        (self.folder / "WORKFLOW.md").write_text(text.replace("AGENT", json.dumps(agent)))
        await self.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "tracker", "namespace": self.namespace},
                "stringData": {"TRACKER_KEY": KEY, "TRACKER_URL": f"{self.outside.url}/v2/graphql"},
            }
        )

    def hold(self, name: str) -> str:
        return f"wget -q -O /dev/null {self.outside.url}/hold/{self.namespace}/{name}"

    def is_held(self, name: str) -> bool:
        return (self.namespace, name) in self.outside.held

    def release(self, name: str) -> None:
        self.outside.release(self.namespace, name)

    def set_state(self, state: str) -> None:
        self.linear.issues[0] = linear_issue("ABC-123", state, id="i1")

    @contextmanager
    def service(self, *more: str):
        with open(self.log, "a") as log:
            process = subprocess.Popen(
                [*self.words, *more],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait(LIMIT)

    async def settled(self) -> None:
        """Until the node knows that all its pods run: what is ended before that may be ended a minute later."""
        deadline = time.monotonic() + LIMIT
        while any(each["status"]["phase"] == "Pending" for each in (await self.pods())):
            assert time.monotonic() < deadline

    async def pods(self) -> list:
        return (await self.cluster.list(POD, self.namespace))[0]

    def stopped(self, process) -> None:
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0, self.log.read_text()

    def until(self, holds) -> None:
        deadline = time.monotonic() + LIMIT
        while not holds():
            assert time.monotonic() < deadline, (self.story, self.log.read_text())
            time.sleep(0.1)

    def until_logged(self, *words: str) -> None:
        self.until(lambda: any(all(word in line for word in words) for line in self.lines))

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    @property
    def story(self) -> list[str]:
        return [each.body for each in self.outside.asked if each.path == f"/{self.namespace}"]

    def records(self) -> dict[str, list]:
        """Of every run in the journal of the service, the oldest first."""
        journal = SqliteJournal(self.folder / "home/journal.db")
        try:
            return {row.run_id: journal.records(row.run_id) for row in reversed(journal.runs())}
        finally:
            journal.close()

    def called(self) -> list[str]:
        calls = [each for run in self.records().values() for each in run if isinstance(each, Called)]
        return [each.hook for each in sorted(calls, key=lambda each: each.at)]

    def attempts(self) -> list[list]:
        runs = self.records().values()
        return [run for run in runs if isinstance(run[0], Begun) and run[0].scope is Scope.RUN]

    async def left(self) -> list[str]:
        kinds = (JOB, CLAIM)
        found = [await self.cluster.list(kind, self.namespace) for kind in kinds]
        return [each["metadata"]["name"] for objects, _ in found for each in objects]


@pytest.fixture
def board(tmp_path, outside, cluster, namespace, kubeconfig, image):
    made = Board(tmp_path, outside, cluster, namespace, kubeconfig, image)
    yield made
    made.linear.close()


ORDER = [
    "after_create ABC-123 unset",
    "before_run ",
    "after_run ok",
    "before_run 1",
    "after_run ok",
    "before_remove made",
]


@pytest.mark.statement("SC47")
async def test_the_hooks_of_an_issue_run_in_the_order_they_have_on_one_machine(board):
    turn = "n=$(cat n || echo 0); echo $((n+1)) > n"
    await board.prepare(f'{turn}; test "$PWD" = /workspaces/ABC-123 && {board.hold("$n")}', interval=600_000)
    with board.service("--port", "0") as process:
        # Two turns of the first attempt: the tracker, asked by the pod, says that there is more to do.
        board.until(lambda: board.is_held("0"))
        [address] = re.findall(r"the state is at (http://\S+)", board.log.read_text())
        with urllib.request.urlopen(address, timeout=LIMIT) as answer:
            [running] = json.load(answer)["running"]
        assert running["issue_identifier"] == "ABC-123"
        assert running["workspace_path"].endswith(":/workspaces/ABC-123"), running
        board.release("0")
        board.release("1")
        board.until(lambda: board.is_held("2"))
        board.set_state("Done")
        board.release("2")
        board.until(lambda: board.story[-1].startswith("before_remove"))
        deadline = time.monotonic() + LIMIT
        while await board.left():
            assert time.monotonic() < deadline, await board.left()
        board.stopped(process)
    assert board.story == [*ORDER[:-1], "before_remove made\nn"]
    runs = board.records()
    assert [run[-1].status for run in runs.values()] == ["ok"] * 3
    assert board.called() == [each.split()[0] for each in board.story]
    whole = board.attempts()[0]
    assert [type(each).__name__ for each in whole] == ["Begun", "Called", "Decided", "Called", "Ended"]
    assert (whole[0].name, whole[-1].output["turns"]) == ("ABC-123", 2)
    shown = subprocess.run(
        [sys.executable, "-m", "hookline", "runs", whole[0].run_id],
        env=board.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "before_run" in shown.stdout
    assert "after_run" in shown.stdout
    assert KEY not in board.log.read_text() + json.dumps(board.story)


async def test_a_service_that_is_killed_is_followed_by_one_that_takes_up_its_attempt(board):
    await board.prepare(f"{board.hold('turn')}; echo done")
    with board.service() as first:
        board.until(lambda: board.is_held("turn"))
        other = subprocess.run(
            board.words,
            cwd=board.folder,
            env={**board.env, "HOOKLINE_HOME": str(board.folder / "other")},
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )
        assert (other.returncode, "works on this in the namespace" in other.stderr) == (2, True), other.stderr
        first.kill()
        first.wait(LIMIT)
    with board.service():
        board.until_logged("continues from an earlier service")
        # The first service logged one into the same file; an attempt that ends before the second looks is not taken up.
        board.until(lambda: sum("an attempt begins" in line for line in board.lines) == 2)
        board.release("turn")
        board.until_logged("outcome=ok", "an attempt ended")
    assert board.story[:3] == ORDER[:3]
    assert board.story.count("before_run ") == 1
    first_run = board.attempts()[0]
    assert [type(each).__name__ for each in first_run] == ["Begun", "Called", "Decided", "Called", "Ended"]
    assert first_run[-1].status == "ok"


async def test_a_place_that_an_attempt_of_a_killed_service_takes_is_not_given_to_another_issue(board):
    await board.prepare(f"{board.hold('$(basename $PWD)')}; echo done")
    with board.service() as process:
        board.until(lambda: board.is_held("ABC-123"))
    process.wait(LIMIT)
    board.linear.issues.append(linear_issue("ABC-99", id="i2", priority=1))
    with board.service("--json") as process:
        board.until_logged("waits for an attempt that an earlier service began")
        assert len((await board.cluster.list(JOB, board.namespace))[0]) == 1
        board.set_state("Done")
        board.release("ABC-123")
        board.until(lambda: board.is_held("ABC-99"))
        await board.settled()
        board.stopped(process)
    assert board.story.index("after_run ok") < board.story.index("after_create ABC-99 unset")


async def test_what_ended_while_no_service_looked_on_is_read_and_cleaned_up_by_the_next(board):
    await board.prepare(f"{board.hold('turn')}; echo done")
    with board.service() as process:
        board.until(lambda: board.is_held("turn"))
    process.wait(LIMIT)
    board.set_state("Done")
    board.release("turn")
    deadline = time.monotonic() + LIMIT
    while not (await board.cluster.list(JOB, board.namespace))[0][0]["status"].get("succeeded"):
        assert time.monotonic() < deadline
    with board.service() as process:
        deadline = time.monotonic() + LIMIT
        while await board.left():
            assert time.monotonic() < deadline, board.log.read_text()
        board.stopped(process)
    assert board.story == [*ORDER[:3], "before_remove made"]
    assert board.called() == ["after_create", "before_run", "after_run", "before_remove"]
    assert all(isinstance(run[-1], Ended) for run in board.records().values())


async def test_a_pod_that_is_lost_is_told_as_that_and_what_it_owed_is_run_again_by_the_next(board):
    # Its pod has no time for an after_run that hangs.
    hang = f"test -e hung || {{ touch hung; {board.hold('after')}; }}"
    await board.prepare(
        f"if test -e hung; then {board.hold('second')}; else {board.hold('turn')}; fi", after=hang
    )
    with board.service() as process:
        board.until(lambda: board.is_held("turn"))
        await board.settled()
        [pod] = await board.pods()
        await board.cluster.delete(POD, pod["metadata"]["name"], board.namespace, grace=1)
        board.until_logged("outcome=failed", "its pod was deleted", "an attempt ended")
        board.until(lambda: board.is_held("second"))
        await board.settled()
        # Stopped in the middle, it ends its attempt with its hooks.
        board.stopped(process)
    assert board.story == [
        *ORDER[:2],
        "after_run cancelled",
        "after_run lost",
        "before_run 1",
        "after_run cancelled",
    ]
    lost, cancelled = board.attempts()
    assert lost[-1].status == "lost"
    assert "after_run had begun in a process that is gone, and was run again" in lost[-1].error
    assert cancelled[-1].status == "cancelled"
    jobs, _ = await board.cluster.list(JOB, board.namespace)
    assert (jobs, len(await board.left())) == ([], 1)


async def test_a_pod_that_its_node_puts_away_is_told_as_that(board):
    await board.prepare(f"head -c 1200000000 /dev/zero > /tmp/more-than-a-pod-may-have; {board.hold('turn')}")
    with board.service():
        board.until_logged("Evicted: Usage of EmptyDir volume", "an attempt ended")
    assert board.story[:2] == ORDER[:2]


@pytest.fixture
def small_volume(kubeconfig, namespace, tmp_path):
    """A class of storage with one volume of 4 MiB: a file system of its own on the node, made by a pod that may."""
    kubectl, place = Kubectl(kubeconfig, tmp_path / "kubectl", namespace), f"/tmp/hookline-{namespace}"

    def on_the_node(name, script):
        container = {
            "name": "mounts",
            "image": BUSYBOX,
            "securityContext": {"privileged": True},
            "command": ["nsenter", "-t", "1", "-m", "sh", "-ec", script],
        }
        spec = {"restartPolicy": "Never", "hostPID": True, "containers": [container]}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        kubectl.well("create", given=made)
        ends = time.monotonic() + LIMIT
        while (phase := kubectl.get("pod", name)["status"].get("phase")) not in ("Succeeded", "Failed"):
            assert time.monotonic() < ends
            time.sleep(0.2)
        assert phase == "Succeeded", kubectl.well("logs", name)

    on_the_node("mounts", f"mkdir {place}; mount -t tmpfs -o size=4m,mode=777 none {place}")
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": namespace,
        "hostPath": {"path": place},
    }
    kubectl.well(
        "create",
        given={
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": namespace},
            "spec": volume,
        },
    )
    yield namespace
    kubectl.well("delete", "jobs,pods,pvc", "--all")
    kubectl.well("delete", "pv", namespace)
    on_the_node("unmounts", f"umount {place}; rmdir {place}")


async def test_a_volume_that_is_full_is_told_as_that(board, small_volume):
    await board.prepare("head -c 8000000 /dev/zero > more-than-it-holds")
    with board.service("--storage-class", small_volume):
        board.until_logged("the workspace's volume is full (claim hookline-abc-123-", "an attempt ended")
    assert board.story[:2] == ORDER[:2]


async def test_an_image_that_cannot_be_had_is_told(board):
    await board.prepare("true")
    board.words[-1] = "localhost/nowhere:1"
    with board.service("--json"):
        board.until_logged(
            "WARNING", "its pod does not start", "the image 'localhost/nowhere:1' cannot be pulled"
        )
        # The same in the state, for whoever looks there.
        board.until_logged('"last_message"', "the image 'localhost/nowhere:1' cannot be pulled")
    assert board.story == []


async def test_a_secret_that_is_not_there_is_told(board):
    await board.prepare("true")
    with board.service("--secret", "nowhere"):
        board.until_logged(
            "its pod does not start", "CreateContainerConfigError", 'secret "nowhere" not found'
        )
    assert board.story == []


async def test_a_volume_that_somebody_deleted_is_made_anew_and_told(board):
    await board.prepare(f"if test -e turn; then {board.hold('turn')}; fi; touch turn")
    with board.service() as process:
        board.until(lambda: board.is_held("turn"))
        await board.settled()
        board.stopped(process)
    [[claim], _] = await board.cluster.list(CLAIM, board.namespace)
    await board.cluster.delete(CLAIM, claim["metadata"]["name"], board.namespace)
    with board.service() as process:
        board.until_logged("the volume of its workspace was deleted", "after_create runs again")
        board.until(lambda: board.story.count(ORDER[0]) == 2)
        await board.settled()
        board.stopped(process)
    workspace = next(run for run in board.records().values() if run[0].scope is Scope.WORKSPACE)
    assert (workspace[-1].status, workspace[-1].error) == (
        "lost",
        "lost: the volume of its workspace was deleted",
    )
    assert (await board.cluster.list(LEASE, board.namespace))[0][0]["spec"]["holderIdentity"] == ""
