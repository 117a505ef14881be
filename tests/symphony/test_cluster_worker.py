"""Attempts and removals as Jobs, against a cluster in memory: what is made, read and left there."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hookline.engine.point import Scope, Status
from hookline.engine.record import Begun, Ended, Record
from hookline.errors import HooklineError
from hookline.journal.sqlite import MemoryJournal
from hookline.journal.stream import Sender
from hookline.kube.jobs import CONTAINER
from hookline.kube.objects import CLAIM, JOB, POD, SECRET, Kind, kind_of
from hookline.options import ServeOptions
from hookline.symphony.agents import AgentEvent
from hookline.symphony.attempt import Attempt
from hookline.symphony.cluster import ClusterWorker
from hookline.symphony.pod import ENDED, TOLD
from hookline.symphony.read import read_workflow, ready
from hookline.symphony.trackers import Issue, TrackerError
from tests.kagent.test_controller import Watchable
from tests.kube.memory_cluster import Object, written
from tests.symphony.scenes import until

NAMESPACE = "test"
ISSUE = Issue(id="i1", identifier="ABC-123", title="Mend it", state="Todo")
UNREAD = "hookline.dev/unread-since"
TEXT = """\
---
tracker: {kind: linear, provider: {project_slug: p, api_key: $KEY}}
workspace: {root: ws}
agent: {kind: command, command: cat, max_concurrent_agents: MOST}
---
Work on {{ issue.identifier }}.
"""


class Pods(Watchable):
    """A cluster whose pods do what a test says."""

    followed = 0
    """How often a log was asked for."""

    async def list(self, kind: Kind, namespace: str | None = None, labels: Any = None) -> Any:
        if isinstance(labels, dict):
            labels = ",".join(f"{key}={value}" for key, value in labels.items())
        return await super().list(kind, namespace, labels)

    async def follow_log(self, pod: str, namespace: str | None, container: str) -> AsyncGenerator[str, None]:
        assert (namespace, container) == (NAMESPACE, CONTAINER)
        uid = self.objects[(POD.kind, NAMESPACE, pod)]["metadata"]["uid"]
        self.followed += 1
        await until(lambda: (uid, container) in self.logs)
        # Not splitlines(): the mark of a record counts as the end of a line there.
        for line in self.logs[(uid, container)].rstrip("\n").split("\n"):
            yield line

    async def job(self) -> Object:
        """The Job that is there, once it is."""
        return (await until(lambda: self.all(JOB)))[0]

    def began(self, job: Object) -> Object:
        """Its pod, which runs."""
        head = job["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": head["name"], "uid": head["uid"]}
        metadata = {"name": f"{head['name']}-p", "namespace": NAMESPACE, "ownerReferences": [owner]}
        return self.add(
            {
                **POD.head,
                "metadata": {**metadata, "uid": f"pod-{head['uid']}", "labels": dict(head["labels"])},
                "spec": job["spec"]["template"]["spec"],
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        {"name": CONTAINER, "state": {"running": {"startedAt": written(self.now)}}}
                    ],
                },
            }
        )

    def ended(self, pod: Object, lines: str, code: int = 0) -> None:
        """It has printed these lines, and its program has ended."""
        now = written(self.now)
        self.logs[(pod["metadata"]["uid"], CONTAINER)] = lines
        over = {"exitCode": code, "startedAt": now, "finishedAt": now}
        pod["status"] = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": CONTAINER, "state": {"terminated": over}}],
        }
        self.touched(pod)

    def ran(self, job: Object, lines: str, code: int = 0) -> None:
        """Its pod has begun and ended."""
        self.ended(self.began(job), lines, code)


class Nobody:
    """A tracker that has no issue, or does not answer."""

    omitted = ()

    def __init__(self, error: str = "") -> None:
        self.error = error

    async def by_states(self, states: Any) -> list[Issue]:
        return []

    async def by_ids(self, ids: Any) -> list[Issue]:
        if self.error:
            raise TrackerError(self.error, kind="tracker_request")
        return []

    async def close(self) -> None: ...


class Ground:
    """A WORKFLOW.md, a cluster, a journal, and the services that work there one after another."""

    def __init__(self, folder: Path, most: int = 10) -> None:
        self.file = folder / "WORKFLOW.md"
        self.file.write_text(TEXT.replace("MOST", str(most)))
        self.cluster, self.journal = Pods(), MemoryJournal()
        self.cluster.now = datetime.now(UTC)  # a Job of long ago would be one that never got a pod
        self.workflow = ready(read_workflow(self.file, {}))

    def worker(self, **options: Any) -> ClusterWorker:
        given = ServeOptions(file=str(self.file), image=("i",), **options)
        return ClusterWorker(self.cluster, NAMESPACE, given, "some-id", self.journal)  # type: ignore[arg-type]

    @asynccontextmanager
    async def attempt(self, worker: ClusterWorker, issue: Issue = ISSUE, **more: Any):
        attempt = Attempt(issue=issue, tracker=None, **more)
        task = asyncio.ensure_future(worker.attempt(self.workflow, attempt))
        yield task
        task.cancel()
        await asyncio.wait({task})

    def given(self, job: Object) -> dict[str, str]:
        """The files that the pod of a Job is given, by their paths."""
        [given] = [
            each["secret"] for each in job["spec"]["template"]["spec"]["volumes"] if each["name"] == "given"
        ]
        data = self.cluster.objects[(SECRET.kind, NAMESPACE, given["secretName"])]["data"]
        return {each["path"]: base64.b64decode(data[each["key"]]).decode() for each in given["items"]}

    @property
    def claims(self) -> list[Object]:
        return self.cluster.all(CLAIM)


@pytest.fixture
def ground(tmp_path):
    made = Ground(tmp_path)
    yield made
    made.journal.close()


def sent(*said: Record | tuple[str, Any]) -> str:
    """What the program of a pod prints."""
    lines: list[str] = []
    sender = Sender(lines.append)
    for each in said:
        if isinstance(each, Begun | Ended):
            sender.record(each)
        else:
            sender.say(*each)  # type: ignore[misc]
    return "".join(lines)


def run(run_id: str = "r1") -> tuple[Begun, Ended]:
    begun = Begun(run_id, "1", None, Scope.RUN, "ABC-123", 100.0, {}, {})
    return begun, Ended(run_id, "1", Scope.RUN, 101.0, Status.OK, None, None)


OK = (ENDED, {"outcome": "ok"})


async def test_an_attempt_is_a_job_with_a_volume_and_its_records_are_in_the_journal(ground):
    heard: list[AgentEvent] = []
    worker = ground.worker(storage_size="2Gi", storage_class="fast", secret=("tracker",))
    async with ground.attempt(worker, number=2, tell=heard.append) as task:
        job = await ground.cluster.job()
        [claim] = ground.claims
        assert claim["spec"] == {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}},
            "storageClassName": "fast",
        }
        assert "ownerReferences" not in claim["metadata"]
        assert claim["metadata"]["labels"] == {
            "app.kubernetes.io/managed-by": "hookline",
            "hookline.dev/workflow": "some-id",
        }
        known = {"hookline.dev/issue": "ABC-123", "hookline.dev/issue-id": "i1"}
        assert known.items() <= claim["metadata"]["annotations"].items()
        assert UNREAD in claim["metadata"]["annotations"]
        assert job["metadata"]["annotations"] == known
        assert job["metadata"]["labels"]["hookline.dev/component"] == "attempt"
        command = job["spec"]["template"]["spec"]["containers"][0]["command"]
        assert command[4:13] == [
            *("attempt", "--file", "/given/WORKFLOW.md", "--issue", "/given/issue.json"),
            *("--source", str(ground.file), "--root", "/workspaces"),
        ]
        assert command[13:16] == ["--number", "2", "--mark"]
        files = ground.given(job)
        assert files["WORKFLOW.md"] == ground.file.read_text()
        assert json.loads(files["issue.json"])["identifier"] == "ABC-123"
        told = {"kind": "notification", "text": "works"}
        ground.cluster.ran(job, sent(run()[0], (TOLD, told), run()[1], OK))
        ended = await asyncio.wait_for(task, 30)
    assert (ended.outcome, ended.error) == ("ok", None)
    assert "works" in [each.text for each in heard]
    assert [type(each) for each in ground.journal.records("r1")] == [Begun, Ended]
    assert ground.cluster.all(JOB) == []
    assert UNREAD not in ground.claims[0]["metadata"]["annotations"]
    assert await worker.workspaces() == {"ABC-123"}
    name = ground.claims[0]["metadata"]["name"]
    assert worker.path("ABC-123") == f"{NAMESPACE}/{name}:/workspaces/ABC-123"


async def test_a_log_that_says_no_end_is_asked_for_again(ground, caplog):
    worker = ground.worker()
    async with ground.attempt(worker) as task:
        ground.cluster.ran(await ground.cluster.job(), "Traceback\nboom\n", code=1)
        ended = await asyncio.wait_for(task, 30)
    assert (ended.outcome, ended.error) == (
        "failed",
        "its program ended with 1 and did not say how: Traceback / boom",
    )
    assert "the log of its pod is incomplete" in caplog.text
    since = ground.claims[0]["metadata"]["annotations"][UNREAD]
    async with ground.attempt(worker) as task:
        job = await ground.cluster.job()
        assert job["spec"]["template"]["spec"]["containers"][0]["command"][-2:] == ["--since", since]
        ground.cluster.ran(job, sent(OK))
        assert (await asyncio.wait_for(task, 30)).outcome == "ok"
    assert UNREAD not in ground.claims[0]["metadata"]["annotations"]


async def test_an_attempt_that_is_cancelled_ends_its_job(ground):
    async with ground.attempt(ground.worker()) as task:
        pod = ground.cluster.began(await ground.cluster.job())
        await until(lambda: ground.cluster.followed)
        task.cancel()
        await until(lambda: not ground.cluster.all(JOB))
        assert not task.done()
        ground.cluster.ended(pod, sent((ENDED, {"outcome": "cancelled"})), code=143)
        await asyncio.wait({task})
        assert task.cancelled()
    assert UNREAD not in ground.claims[0]["metadata"]["annotations"]


async def test_a_removal_takes_the_volume_along_unless_it_failed(ground):
    worker, workflow = ground.worker(), ground.workflow
    await worker.remove(workflow, ISSUE)
    assert ground.cluster.all(JOB) == []
    async with ground.attempt(worker) as task:
        ground.cluster.ran(await ground.cluster.job(), sent(OK))
        await asyncio.wait_for(task, 30)
    failed = asyncio.ensure_future(worker.remove(workflow, ISSUE))
    job = await ground.cluster.job()
    assert job["metadata"]["name"] == f"{ground.claims[0]['metadata']['name']}-rm"
    assert job["metadata"]["labels"]["hookline.dev/component"] == "removal"
    assert "--remove" in job["spec"]["template"]["spec"]["containers"][0]["command"]
    ground.cluster.ran(job, sent((ENDED, {"outcome": "failed", "error": "no"})), code=1)
    with pytest.raises(HooklineError, match=r"no; the claim hookline-abc-123-\w+ stays"):
        await failed
    assert len(ground.claims) == 1
    ground.cluster.remove(ground.cluster.all(POD)[0])
    done = asyncio.ensure_future(worker.remove(workflow, ISSUE))
    ground.cluster.ran(await ground.cluster.job(), sent(OK))
    await done
    for pod in ground.cluster.all(POD):
        ground.cluster.remove(pod)
    assert await worker.workspaces() == frozenset()


async def test_the_next_service_reads_what_is_over_and_takes_up_what_is_not(ground):
    first = ground.worker()
    async with ground.attempt(first) as task:
        job = await ground.cluster.job()
        first.leave()
        task.cancel()
        await asyncio.wait({task})
    assert ground.cluster.all(JOB) == [job]
    second = ground.worker()
    await second.recover(ground.workflow, Nobody("down"))  # type: ignore[arg-type]
    async with ground.attempt(second) as task:
        ground.cluster.ran(job, sent(*run(), OK))
        assert (await asyncio.wait_for(task, 30)).outcome == "ok"
    await second.close()
    assert ground.cluster.all(JOB) == []
    assert [type(each) for each in ground.journal.records("r1")] == [Begun, Ended]


async def test_a_job_whose_issue_is_gone_is_ended_by_the_next_service(ground, caplog):
    caplog.set_level("INFO")
    first = ground.worker()
    async with ground.attempt(first) as task:
        pod = ground.cluster.began(await ground.cluster.job())
        first.leave()
        task.cancel()
        await asyncio.wait({task})
    second = ground.worker()
    await second.recover(ground.workflow, Nobody())  # type: ignore[arg-type]
    await until(lambda: not ground.cluster.all(JOB))
    ground.cluster.ended(pod, sent((ENDED, {"outcome": "cancelled"})), code=143)
    await until(lambda: UNREAD not in ground.claims[0]["metadata"]["annotations"])
    await second.close()
    assert "its issue is not eligible any more" in caplog.text


async def test_an_attempt_waits_while_those_of_an_earlier_service_take_all_slots(tmp_path):
    ground = Ground(tmp_path, most=1)
    first, heard = ground.worker(), []
    async with ground.attempt(first) as task:
        job = await ground.cluster.job()
        first.leave()
        task.cancel()
        await asyncio.wait({task})
    second = ground.worker()
    await second.recover(ground.workflow, Nobody("down"))  # type: ignore[arg-type]
    other = Issue(id="i2", identifier="ABC-9", title="Another", state="Todo")
    async with ground.attempt(second, other, tell=heard.append) as task:
        await until(lambda: any("an earlier service began" in each.text for each in heard))
        assert len(ground.cluster.all(JOB)) == 1
        ground.cluster.ran(job, sent(OK))
        await until(lambda: [kind_of(each) for each in ground.claims] == [CLAIM, CLAIM])
        ground.cluster.ran(await ground.cluster.job(), sent(OK))
        assert (await asyncio.wait_for(task, 30)).outcome == "ok"
    await second.close()
    ground.journal.close()


async def test_runs_on_a_volume_that_somebody_deleted_are_ended_as_lost(ground):
    worker = ground.worker()
    async with ground.attempt(worker) as task:
        ground.cluster.ran(await ground.cluster.job(), sent(run()[0]), code=1)
        await asyncio.wait_for(task, 30)
    assert [row.run_id for row in ground.journal.unfinished()] == ["r1"]
    for each in (*ground.cluster.all(POD), *ground.claims):
        ground.cluster.remove(each)
    async with ground.attempt(worker) as task:
        ground.cluster.ran(await ground.cluster.job(), sent(OK))
        assert (await asyncio.wait_for(task, 30)).outcome == "ok"
    [_, ended] = ground.journal.records("r1")
    assert (ended.status, ended.error) == (Status.LOST, "lost: the volume of its workspace was deleted")
