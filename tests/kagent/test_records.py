"""What pods tell of their runs, in the operator's journal: whole after every break, nothing twice, nothing of others."""

import asyncio
import contextlib
import json
import logging
import math
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hookline import HookAction
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Begun, Called, Decided, Ended, Journal, Owner, Record
from hookline.engine.result import Reason
from hookline.journal.sqlite import MemoryJournal, SqliteJournal
from hookline.journal.stream import LONGEST, MARK, SERVING, Sender
from hookline.kagent import records as listening
from hookline.kagent.controller import condition_of
from hookline.kagent.records import Listener, Pace, PodRecords, source_of
from hookline.kube.client import Cluster
from hookline.kube.objects import KAGENT, ApiRefused, ClusterError, Unreachable
from tests.agent.test_a2a import sent, served
from tests.kagent.test_controller import Watchable, keeping
from tests.kagent.test_objects import MODEL, agent
from tests.kube.scripted_server import answer, chunked, scripted

LIMIT = 60.0
QUICK = Pace(pause=0.01, longest=0.05)
RUN, OTHER = "t0abcd-0a1b2c", "t0abce-0a1b2c"
Object = dict[str, Any]


def pod(name: str = "p-1", *, container: str = "c-1", running: bool = True, **status: Any) -> Object:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}} if running else ended
    told = {"name": "kagent", "containerID": container, "state": state}
    head = {"name": name, "namespace": "test", "uid": f"uid-of-{name}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": head,
        "status": {"phase": "Running", "containerStatuses": [told], **status},
    }


class Log:
    """What one container prints. Whoever follows it gets it from its beginning, until it breaks or ends."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.over: ClusterError | bool | None = None
        self.readers = 0

    def print(self, *lines: str) -> None:
        self.lines += lines

    async def read(self) -> AsyncGenerator[str, None]:
        self.readers += 1
        at = 0
        try:
            while True:
                while at < len(self.lines):
                    at += 1
                    yield self.lines[at - 1]
                if self.over is not None:
                    break
                await asyncio.sleep(0.005)
            if isinstance(self.over, ClusterError):
                raise self.over
        finally:
            self.readers -= 1


class LoudCluster(Watchable):
    """With logs, by the name of the pod; of a pod without one the server refuses it."""

    def __init__(self) -> None:
        super().__init__()
        self.loud: dict[str, Log] = {}
        self.asked: list[str] = []

    async def follow_log(self, pod: str, namespace: str | None, container: str) -> AsyncGenerator[str, None]:
        assert (namespace, container) == ("test", "kagent")
        self.asked.append(pod)
        if pod not in self.loud:
            raise ApiRefused(400, "container is waiting to start")
        async with contextlib.aclosing(self.loud[pod].read()) as lines:
            async for line in lines:
                yield line


class Process:
    """One process of a pod, which numbers what it prints."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._sender = Sender(lambda text: self.lines.append(text.removesuffix("\n")))

    def said(self, *records: Record) -> list[str]:
        before = len(self.lines)
        for each in records:
            self._sender.record(each)
        return self.lines[before:]

    def serving(self, since: float) -> list[str]:
        self._sender.say(SERVING, {"since": since})
        return self.lines[-1:]


def begun(run_id: str = RUN, scope_id: str = "1", at: float = 100.0, **more: Any) -> Begun:
    parent, scope = more.pop("parent", None), more.pop("scope", Scope.RUN)
    return Begun(run_id, scope_id, parent, scope, "hooks-agent", at, {"input": "hi"}, {"agent": "a"}, **more)


def called(run_id: str = RUN, at: float = 101.0) -> Called:
    return Called(
        run_id,
        "2",
        Point.TOOL_START,
        "security-hooks",
        at,
        0.1,
        HookAction.BLOCK,
        "no bash",
        {"tool": "bash"},
    )


def ended(run_id: str = RUN, scope_id: str = "1", at: float = 103.0, scope: Scope = Scope.RUN) -> Ended:
    return Ended(run_id, scope_id, scope, at, Status.OK, "done", None)


def whole(run_id: str = RUN) -> list[Record]:
    return [
        begun(run_id, owner=Owner("boot", 1, "7"), declaration={"format": "sympozium"}, source="agent.yaml"),
        begun(run_id, "2", 100.5, parent="1", scope=Scope.TOOL),
        called(run_id),
        Decided(
            run_id, "2", Point.TOOL_START, 101.5, HookAction.BLOCK, (Reason("h", HookAction.BLOCK, "no"),)
        ),
        ended(run_id, "2", 102.0, Scope.TOOL),
        ended(run_id),
    ]


@pytest.fixture(params=["memory", "sqlite"])
def journal(request, tmp_path) -> Iterator[Journal]:
    made: Journal = MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "journal.db")
    yield made
    made.close()


@contextlib.asynccontextmanager
async def listened(cluster: LoudCluster, journal: Journal, pods: list[Object], pace: Pace = QUICK):
    """Listens to the pods of the list while the block runs; `until` waits until something holds."""
    listener = Listener(cluster, journal, lambda: list(pods), pace=pace)
    task = asyncio.ensure_future(listener.run())

    async def until(holds: Callable[[], Any]) -> None:
        listener.wake()
        async with asyncio.timeout(LIMIT):
            while not holds():
                assert not task.done(), task.exception()
                await asyncio.sleep(0.01)

    try:
        yield until
    finally:
        task.cancel()
        await asyncio.wait({task})


def kinds(journal: Journal, run_id: str = RUN) -> list[str]:
    return [type(each).__name__ for each in journal.records(run_id)]


def row(journal: Journal, run_id: str = RUN) -> Any:
    return next((each for each in journal.runs() if each.run_id == run_id), None)


def is_ended(journal: Journal, run_id: str = RUN) -> bool:
    found = row(journal, run_id)
    return found is not None and found.ended is not None


ALL = ["Begun", "Begun", "Called", "Decided", "Ended", "Ended"]


async def test_a_run_of_a_pod_is_in_the_journal_as_one_of_this_machine_is(journal):
    cluster, process = LoudCluster(), Process()
    log = cluster.loud["p-1"] = Log("hooks-agent is served over A2A on port 8080")
    async with listened(cluster, journal, [pod()]) as until:
        first, *rest = process.said(*whole())
        # Somebody else's words without an end of their line.
        log.print(f"a tool says{first}", "more of it", *rest)
        await until(lambda: is_ended(journal))
        assert cluster.asked == ["p-1"]
    assert kinds(journal) == ALL
    found = row(journal)
    assert (found.name, found.status, found.calls) == ("hooks-agent", Status.OK, 1)
    assert journal.records(RUN)[2] == called()
    top = journal.records(RUN)[0]
    assert isinstance(top, Begun)
    assert (top.owner, top.declaration, top.source) == (None, None, "kubernetes:test/p-1#uid-of-p-1")
    assert log.readers == 0, "the connection ends with the listening"


async def test_a_connection_that_breaks_is_made_again_and_nothing_is_there_twice(journal, caplog):
    cluster, process = LoudCluster(), Process()
    records = whole()
    log = cluster.loud["p-1"] = Log(*process.said(*records[:3]))
    async with listened(cluster, journal, [pod()]) as until:
        await until(lambda: len(kinds(journal)) == 3)
        for broken in (Unreachable("the connection broke off"), True):
            before = len(cluster.asked)
            log.over = broken
            await until(lambda before=before: len(cluster.asked) > before + 1)
        log.over = None
        log.print(*process.said(*records[3:]))
        await until(lambda: is_ended(journal))
    assert kinds(journal) == ALL
    assert caplog.text == "", "that connections end is nothing to tell"


async def test_the_next_operator_reads_it_all_again_and_keeps_what_is_new(journal):
    cluster, process = LoudCluster(), Process()
    records = whole()
    log = cluster.loud["p-1"] = Log(*process.said(*records[:4]))
    async with listened(cluster, journal, [pod()]) as until:
        await until(lambda: len(kinds(journal)) == 4)
    log.print(*process.said(*records[4:]))
    async with listened(cluster, journal, [pod()]) as until:
        await until(lambda: is_ended(journal))
    assert kinds(journal) == ALL


async def test_a_container_that_is_started_anew_numbers_anew_and_what_the_one_before_left_is_lost(
    journal, caplog
):
    cluster, first, second = LoudCluster(), Process(), Process()
    log = cluster.loud["p-1"] = Log(*first.serving(50.0), *first.said(*whole()[:3]))
    pods = [pod()]
    async with listened(cluster, journal, pods) as until:
        await until(lambda: len(kinds(journal)) == 3)
        log.over = True
        cluster.loud["p-1"] = Log(*second.serving(200.0))
        pods[:] = [pod(container="c-2")]
        await until(lambda: is_ended(journal))
        cluster.loud["p-1"].print(*second.said(begun(OTHER, at=201.0), ended(OTHER, at=202.0)))
        await until(lambda: is_ended(journal, OTHER))
    found = row(journal)
    assert (found.status, found.error) == (Status.LOST, "lost: its container was started anew")
    assert [each.scope for each in journal.records(RUN) if isinstance(each, Ended)] == [Scope.TOOL, Scope.RUN]
    assert row(journal, OTHER).status is Status.OK
    assert "not in its log" not in caplog.text


async def test_what_the_new_process_ends_itself_is_not_lost(journal):
    """Its end hooks run after the start, and it says that it serves after that."""
    process = Process()
    told = PodRecords(journal, pod())
    lost = Ended(RUN, "1", Scope.RUN, 150.0, Status.LOST, None, "its end hooks were run")
    for line in [*Process().said(begun()), *process.said(lost), *process.serving(140.0)]:
        await told.take(line)
    assert row(journal).error == "its end hooks were run"
    assert kinds(journal) == ["Begun", "Ended"]


async def test_a_run_of_the_process_that_serves_stays_open_when_its_log_is_read_again(journal):
    process = Process()
    lines = [*process.serving(50.0), *process.said(begun())]
    for told in (PodRecords(journal, pod()), PodRecords(journal, pod())):
        for line in lines:
            await told.take(line)
    assert row(journal).ended is None


GONE = {
    "deleted": (lambda pods: pods.clear(), "lost: its pod was deleted"),
    "evicted": (
        lambda pods: pods[0]["status"].update(
            phase="Failed", reason="Evicted", message="low on memory", containerStatuses=[]
        ),
        "lost: Evicted: low on memory",
    ),
    "killed": (
        lambda pods: pods.__setitem__(0, pod(running=False, phase="Failed")),
        "lost: OOMKilled: it passed its memory limit",
    ),
}


@pytest.mark.parametrize(("go", "why"), GONE.values(), ids=GONE.keys())
async def test_a_run_whose_pod_is_lost_ends_so_with_what_the_pod_said_last(journal, go, why):
    cluster, process = LoudCluster(), Process()
    log = cluster.loud["p-1"] = Log(*process.said(*whole()[:2]))
    pods = [pod()]
    async with listened(cluster, journal, pods) as until:
        await until(lambda: len(kinds(journal)) == 2)
        go(pods)
        log.print(*process.said(called()))
        log.over = True
        await until(lambda: is_ended(journal))
        asked = len(cluster.asked)
        await asyncio.sleep(0.2)
        assert len(cluster.asked) == asked, "nobody reads the log of a pod that is over"
    assert kinds(journal) == ["Begun", "Begun", "Called", "Ended", "Ended"]
    assert (row(journal).status, row(journal).error) == (Status.LOST, why)


async def test_the_log_of_a_pod_that_is_gone_is_not_waited_for_for_ever(journal):
    cluster = LoudCluster()
    log = cluster.loud["p-1"] = Log(*Process().said(begun()))
    pods = [pod()]
    async with listened(cluster, journal, pods, QUICK._replace(last=0.05)) as until:
        await until(lambda: kinds(journal) == ["Begun"])
        pods.clear()
        await until(lambda: is_ended(journal))
    assert log.readers == 0
    assert row(journal).error == "lost: its pod was deleted"


async def test_a_run_whose_pod_went_while_no_operator_was_there_is_lost_and_no_other_is(journal):
    mine, theirs = begun(source=source_of(pod())), begun(OTHER, source="kubernetes:test/some-agentrun")
    for each in (mine, theirs):
        await journal.write(each)
    async with listened(LoudCluster(), journal, []) as until:
        await until(lambda: is_ended(journal))
    assert row(journal).status is Status.LOST
    assert row(journal, OTHER).ended is None


async def test_a_run_of_a_pod_that_ended_before_anybody_followed_it_is_lost(journal):
    evicted = {**pod(), "status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}}
    await journal.write(begun(source=source_of(evicted)))
    async with listened(LoudCluster(), journal, [evicted]) as until:
        await until(lambda: is_ended(journal))
    assert row(journal).error == "lost: Evicted: low on memory"


async def test_a_pod_writes_nothing_of_runs_that_it_did_not_begin(journal, caplog):
    agentrun = "nightly-1a2b3c4d"
    await journal.write(begun(agentrun, source="kubernetes:test/nightly"))
    await journal.write(begun(OTHER, source="/home/me/agent.py"))
    cluster, good, bad = LoudCluster(), Process(), Process()
    cluster.loud["p-1"] = Log(*good.said(begun()))
    pods = [pod()]
    async with listened(cluster, journal, pods) as until:
        await until(lambda: kinds(journal) == ["Begun"])
        forged = [
            *(ended(each) for each in (RUN, OTHER, agentrun)),
            *(begun(each, at=99.0) for each in (RUN, OTHER, agentrun)),
            *(called(each) for each in (RUN, OTHER, agentrun)),
            # None of that name is there yet, and a pod begins none.
            begun("tomorrow-1a2b3c4d"),
            called("t0abcf-0a1b2c"),
        ]
        last = "t0abdd-0a1b2c"
        cluster.loud["p-2"] = Log(*bad.said(*forged, begun(last), ended(last)))
        pods.append(pod("p-2"))
        await until(lambda: is_ended(journal, last))
    for each in (RUN, OTHER, agentrun):
        assert kinds(journal, each) == ["Begun"]
    assert {each.run_id for each in journal.runs()} == {RUN, OTHER, agentrun, last}
    warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [each for each in warned if "did not begin" in each] == [each for each in warned if "p-2" in each][
        :1
    ]
    assert any(each == "pod test/p-2: lines that were not records: 11" for each in warned)


RUBBISH = {
    "no JSON": "[0,",
    "no number": '["0","x",[]]',
    "a number that is none": "[1e999,null,[1,2]]",
    "no record": f'[0,"{RUN}",["other"]]',
    "nothing": f'[0,"{RUN}",null]',
    "a moment that is a text": f'[0,"{RUN}",["begin","1",null,"run","n","now",null,{{}}]]',
    "a moment beyond all": f'[0,"{RUN}",["begin","1",null,"run","n",1e14,null,{{}}]]',
    "a whole number beyond all": f'[0,"{RUN}",["begin","1",null,"run","n",{10**400},null,{{}}]]',
    "a name that is a list": f'[0,"{RUN}",["begin","1",null,"run",["n"],1,null,{{}}]]',
    "an about that is none": f'[0,"{RUN}",["begin","1",null,"run","n",1,null,7]]',
    "an owner that is none": f'[0,"{RUN}",["begin","1",null,"run","n",1,null,{{}},null,null,[1]]]',
    "a scope that is none": f'[0,"{RUN}",["begin","1",null,"galaxy","n",1,null,{{}}]]',
    "an id with a line": f'[0,"{RUN}",["begin","1\\n2",null,"run","n",1,null,{{}}]]',
    "a run with a path": '[0,"../../etc",["begin","1",null,"run","n",1,null,{}]]',
    "a deep one": f'[0,"{RUN}",{"[" * 100_000}',
    "a long one": f'[0,"{RUN}",["begin","1",null,"run","{"n" * LONGEST}",1,null,{{}}]]',
    "a word of nobody": None,
}


@pytest.mark.parametrize("text", RUBBISH.values(), ids=RUBBISH.keys())
async def test_rubbish_costs_the_line_and_nothing_else(journal, text):
    told = PodRecords(journal, pod())
    await told.take(MARK + (text or '[0,null,["other",{"since":"never"}]]'))
    assert journal.runs() == []
    assert told.intake.dropped == (text is not None)
    for line in Process().said(*whole()):
        await told.take(line)
    assert kinds(journal) == ALL


async def test_lines_that_are_missing_are_told_once_and_no_number_silences_what_comes_after(journal, caplog):
    process = Process()
    first, second, *rest = process.said(*whole())
    told = PodRecords(journal, pod())
    forged = f'{MARK}[999999,"{OTHER}",null]'
    for line in [first, *rest[:1], forged, *rest[1:]]:
        await told.take(line)
    assert kinds(journal) == ["Begun", "Called", "Decided", "Ended", "Ended"]
    assert told.intake.missing > 1
    for line in [first, second, *rest]:
        await told.take(line)
    assert sorted(kinds(journal)) == sorted(ALL), "what comes late is taken all the same"
    assert caplog.text.count("not in its log") == 1
    assert "pod test/p-1: records that are not in its log: 1" in caplog.text


async def test_what_a_second_process_lacks_is_seen_though_the_first_one_had_higher_numbers(journal, caplog):
    told = PodRecords(journal, pod())
    first, second = Process().said(*whole()), Process().said(begun(OTHER), called(OTHER), ended(OTHER))
    for line in [*first, *first, second[0], second[2]]:
        await told.take(line)
    assert told.intake.missing == 1
    assert "pod test/p-1: records that are not in its log: 1" in caplog.text
    assert kinds(journal, OTHER) == ["Begun", "Ended"]


async def test_a_log_that_was_rotated_away_is_told_and_the_rest_of_known_runs_is_kept(journal, caplog):
    process = Process()
    lines = process.said(*whole(), begun(OTHER), ended(OTHER))
    told = PodRecords(journal, pod())
    for line in lines[4:]:
        await told.take(line)
    assert kinds(journal) == [], "a run without its beginning is nobody's"
    assert kinds(journal, OTHER) == ["Begun", "Ended"]
    assert (told.intake.missing, told.intake.dropped) == (4, 2)
    assert "records that are not in its log: 4" in caplog.text


async def test_a_pod_cannot_fill_the_journal_for_all(journal, monkeypatch):
    monkeypatch.setattr(listening, "MOST_RECORDS", 5)
    told = PodRecords(journal, pod())
    for line in Process().said(begun(), *(called(at=101.0 + each) for each in range(10))):
        await told.take(line)
    assert (len(kinds(journal)), told.intake.dropped) == (5, 6)
    monkeypatch.setattr(listening, "MOST_BYTES", 1000)
    told = PodRecords(journal, pod())
    many = [f"t0abcd-{number:06x}" for number in range(100)]
    for line in Process().said(*(begun(each) for each in many)):
        await told.take(line)
    assert 1 < len(journal.runs()) < 20


async def test_known_runs_are_few_at_a_time_and_none_is_written_twice(journal):
    many = [f"t0abcd-{number:06x}" for number in range(3 * listening._RUNS)]
    process = Process()
    lines = [line for each in many for line in process.said(begun(each), ended(each))]
    told = PodRecords(journal, pod())
    for line in [*lines, *lines]:
        await told.take(line)
    assert {tuple(kinds(journal, each)) for each in many} == {("Begun", "Ended")}
    assert len(told._runs) == listening._RUNS


async def test_a_log_that_cannot_be_read_is_tried_with_pauses_and_told_once(caplog):
    journal, cluster = MemoryJournal(), LoudCluster()
    began = time.monotonic()
    async with listened(cluster, journal, [pod()], Pace(pause=0.05)) as until:
        await until(lambda: len(cluster.asked) >= 2)
        await asyncio.sleep(0.5)
        most = 2 + math.log2((time.monotonic() - began) / 0.05)
        assert len(cluster.asked) <= most, "each pause is twice the one before"
        assert caplog.text.count("records are not stored") == 1


async def test_a_container_that_ended_is_read_to_its_end_and_then_let_be_until_it_starts_anew():
    journal, cluster, process = MemoryJournal(), LoudCluster(), Process()
    log = cluster.loud["p-1"] = Log(*process.said(*whole()))
    log.over = True
    pods = [pod(running=False)]
    async with listened(cluster, journal, pods) as until:
        await until(lambda: is_ended(journal))
        await asyncio.sleep(0.3)
        assert cluster.asked == ["p-1"]
        cluster.loud["p-1"] = Log(*Process().said(begun(OTHER), ended(OTHER)))
        pods[:] = [pod(container="c-2")]
        await until(lambda: is_ended(journal, OTHER))


async def test_a_journal_that_cannot_be_written_loses_nothing_in_the_end(tmp_path, caplog):
    cluster = LoudCluster()
    cluster.loud["p-1"] = Log(*Process().said(*whole()))
    journal = SqliteJournal(tmp_path / "journal.db", patience=0.05)
    try:
        async with listened(cluster, journal, [pod()]) as until:
            with held(tmp_path / "journal.db"):
                await until(lambda: "records are not stored" in caplog.text)
            await until(lambda: is_ended(journal))
        assert kinds(journal) == ALL
    finally:
        journal.close()


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Another process writes to the journal, and does not come to an end."""
    code = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "db.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield


async def test_the_end_of_a_run_is_written_when_the_journal_can_be_again(tmp_path, caplog):
    cluster = LoudCluster()
    log = cluster.loud["p-1"] = Log(*Process().said(begun()))
    pods = [pod()]
    journal = SqliteJournal(tmp_path / "journal.db", patience=0.05)
    try:
        async with listened(cluster, journal, pods) as until:
            await until(lambda: kinds(journal) == ["Begun"])
            with held(tmp_path / "journal.db"):
                pods.clear()
                log.over = True
                await until(lambda: "not ended in the journal" in caplog.text)
            await until(lambda: is_ended(journal))
    finally:
        journal.close()


async def test_the_operator_listens_to_the_pods_of_the_agents_that_it_keeps():
    cluster, journal = LoudCluster(), MemoryJournal()
    cluster.add(json.loads(json.dumps(MODEL)))
    cluster.add(agent())
    other = agent("not-ours", hooks=[])
    cluster.add(other)
    labels = {"app": "kagent", "app.kubernetes.io/managed-by": "hookline"}
    process = Process()
    for name, said in {
        "hooks-agent": process.said(begun()),
        "not-ours": Process().said(begun(OTHER)),
    }.items():
        made = pod(f"{name}-1")
        made["metadata"]["labels"] = {**labels, "kagent": name}
        cluster.loud[f"{name}-1"] = Log(*said)
        cluster.add(made)
    async with keeping(cluster, journal=journal) as until:
        await until(lambda: kinds(journal) == ["Begun"])
        # It is not ours any more, and its pod still has something to tell.
        await cluster.patch(KAGENT, "hooks-agent", "test", {"spec": {"hooks": []}})
        await until(lambda: ("Deployment", "test", "hooks-agent") not in cluster.objects)
        cluster.touched(cluster.objects["Pod", "test", "hooks-agent-1"])
        log = cluster.loud["hooks-agent-1"]
        log.print(*process.said(called()))
        await until(lambda: kinds(journal) == ["Begun", "Called"])
        log.over = Unreachable("the connection broke off")
        await until(lambda: len(cluster.asked) > 1)
        log.over = None
        log.print(*process.said(called(at=102.0)))
        await until(lambda: kinds(journal) == ["Begun", "Called", "Called"])
        assert row(journal).ended is None
        cluster.objects.pop(("Pod", "test", "hooks-agent-1"))
        gone = pod("hooks-agent-1")
        gone["metadata"] |= {"labels": {**labels, "kagent": "hooks-agent"}}
        cluster.loud["hooks-agent-1"].over = True
        cluster.touched(gone)
        await until(lambda: is_ended(journal))
    assert set(cluster.asked) == {"hooks-agent-1"}
    assert row(journal).status is Status.LOST
    assert kinds(journal, OTHER) == []


def test_records_are_not_told_as_the_reason_of_a_crash():
    (line,) = Process().said(begun())
    crashed = pod(running=False)
    crashed["metadata"]["annotations"] = {}
    said = f"hookline: the model is gone\n{line}\n"
    crashed["status"]["containerStatuses"][0]["state"]["terminated"] = {"exitCode": 1, "message": said}
    made = {"metadata": {"generation": 1}, "spec": {"replicas": 1}}
    assert condition_of(made, [crashed]).message == "kagent ended with 1: hookline: the model is gone"
    cut = f'"output":"{"x" * 2048}"]]\nhookline: the model is gone\n'
    crashed["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = cut
    assert condition_of(made, [crashed]).message == "kagent ended with 1: hookline: the model is gone"


async def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path):
    parts = [b"x" * 2**20] * 20
    async with (
        scripted(tmp_path, chunked(*parts, b"y\nnext\n")) as (_, file),
        Cluster(file) as cluster,
    ):
        lines = [line async for line in cluster.follow_log("p", "test", "kagent")]
    assert [len(line) for line in lines] == [8 * 2**20, 4]


async def test_a_refused_log_of_a_real_server_is_an_error_of_the_cluster(tmp_path):
    refused = answer(400, {"message": "container is waiting to start"})
    async with scripted(tmp_path, refused) as (_, file), Cluster(file) as cluster:
        with pytest.raises(ApiRefused, match="waiting to start"):
            async for _ in cluster.follow_log("p", "test", "kagent"):
                pass


AGENT = """
from hookline import Agent, HookResult, Scripted

def check(ctx, hook):
    return HookResult.continue_with()

agent = Agent(id="py", model=Scripted(["Hello hush-hush-4711."]), on_start=[check])
"""


async def taken(text: str, journal: Journal) -> PodRecords:
    told = PodRecords(journal, pod())
    for line in text.split("\n"):
        await told.take(line)
    return told


@pytest.mark.parametrize("payloads", ["on", "off"])
async def test_an_agent_that_is_served_prints_its_records_where_it_is_asked_to(
    tmp_path, monkeypatch, payloads
):
    (tmp_path / "agent.py").write_text(AGENT)
    monkeypatch.setenv("HOOKLINE_RECORDS", "1")
    monkeypatch.setenv("HOOKLINE_PAYLOADS", payloads)
    monkeypatch.setenv("SOME_API_KEY", "hush-hush-4711")
    began = time.time()
    with served(tmp_path, "agent.py:agent") as address:
        task = sent(address, "say hello")
    printed = (tmp_path / "errors").read_text()
    journal = MemoryJournal()
    told = await taken(printed, journal)
    assert (told.intake.dropped, told.intake.missing) == (0, 0)
    assert f'{MARK}[0,null,["{SERVING}",' in printed
    run_id = task["artifacts"][0]["metadata"]["hookline"]["run_id"]
    with contextlib.closing(SqliteJournal(tmp_path / "home" / "journal.db")) as kept:
        there, here = kept.records(run_id), journal.records(run_id)
    first = there[0]
    assert isinstance(first, Begun)
    assert first.at >= began
    assert here == [first._replace(owner=None, declaration=None, source=source_of(pod())), *there[1:]]
    assert row(journal, run_id).status is Status.OK
    assert any(isinstance(each, Called) for each in here)
    assert "hush-hush-4711" not in printed
    assert ("say hello" in printed) == (payloads == "on")


def test_an_agent_that_is_served_prints_no_records_unasked(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    with served(tmp_path, "agent.py:agent") as address:
        sent(address, "say hello")
    assert MARK not in (tmp_path / "errors").read_text()


SLOW = """
import time
from hookline import Agent, HookResult, Scripted

def ends(ctx, hook):
    return HookResult.continue_with()

async def waits(ctx, hook):
    import asyncio
    print("it waits", flush=True)
    await asyncio.sleep(600)

agent = Agent(id="py", model=Scripted(["Hello."]), on_start=[waits], on_end=[ends])
"""


async def test_what_a_killed_process_left_is_ended_by_the_next_one_and_told_so(tmp_path, monkeypatch):
    (tmp_path / "agent.py").write_text(SLOW)
    monkeypatch.setenv("HOOKLINE_RECORDS", "1")
    monkeypatch.setenv("HOOKLINE_HOME", str(tmp_path / "home"))
    first, second = tmp_path / "first", tmp_path / "second"
    async with spawned(first) as until:
        found = await until(ADDRESS)
        asking = asyncio.create_task(asyncio.to_thread(_asked, found[0]))
        await until(re.compile(r"it waits"))
    await asking
    journal = MemoryJournal()
    await taken(first.read_text(), journal)
    (open_run,) = journal.unfinished()
    async with spawned(second) as until:
        await until(ADDRESS)
    told = await taken(second.read_text(), journal)
    assert (told.intake.dropped, told.intake.missing) == (0, 0)
    assert row(journal, open_run.run_id).status is Status.LOST
    assert "its container was started anew" not in str(row(journal, open_run.run_id).error)


ADDRESS = re.compile(r"http://\S+")


@contextlib.asynccontextmanager
async def spawned(log: Path):
    """`hookline serve` as a pod runs it, which is killed in the end; `until` finds something in its log."""
    words = [sys.executable, "-m", "hookline", "serve", "agent.py:agent", "--port=0"]
    with log.open("w") as printed:
        process = subprocess.Popen(words, cwd=log.parent, stdout=printed, stderr=printed)

    async def until(wanted: re.Pattern[str]) -> re.Match[str]:
        async with asyncio.timeout(LIMIT):
            while (found := wanted.search(log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                await asyncio.sleep(0.02)
        return found

    try:
        yield until
    finally:
        process.kill()
        process.wait(LIMIT)


def _asked(address: str) -> None:
    """Nobody answers to the end."""
    with contextlib.suppress(httpx.HTTPError):
        sent(address, "hi")
