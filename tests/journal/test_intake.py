"""Whoever takes another process's records into a journal: one suite, run for each of them.

Records of steps and tools are looked at, which all of them keep. A run and its agent are on record elsewhere for those
that take what an AgentRun's agent does inside.
"""

import asyncio
import re
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from hookline import HookAction, MemoryJournal
from hookline.engine.context import Facts
from hookline.engine.lifecycle import OpenScope, Run
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Begun, Called, Decided, Ended, Journal, Record
from hookline.journal.masking import Mask
from hookline.journal.stream import INSIDE, Sender, lacking
from hookline.kagent.records import PodRecords
from hookline.kube.jobs import JobEnd
from hookline.pyagent.cluster import RunStream
from hookline.symphony.jobs import AttemptStream
from hookline.sympozium.cluster.ledger import InnerRecords, JournalWriter, Ledger
from hookline.sympozium.run.agent import relayed
from hookline.sympozium.run.folders import SOCKET

RUN = "t0abcd-0a1b2c"
SECRET = "very-secret-word"
POD = {"metadata": {"name": "p-1", "namespace": "test", "uid": "u"}}
LOOKED_AT = (Scope.STEP, Scope.TOOL)


def begun(id: str, parent: str | None, scope: Scope, payload: Any = None) -> Begun:
    return Begun(RUN, id, parent, scope, str(scope), time.time(), payload, {})


def ended(id: str, scope: Scope, output: Any = None) -> Ended:
    return Ended(RUN, id, scope, time.time(), Status.OK, output, None)


OPENING = [
    begun("1", None, Scope.RUN, {"input": "hi"}),
    begun("2", "1", Scope.AGENT),
    begun("3", "2", Scope.STEP),
    begun("4", "3", Scope.TOOL, {"command": SECRET}),
]
CLOSING = [
    ended("4", Scope.TOOL, {"output": SECRET}),
    ended("3", Scope.STEP),
    ended("2", Scope.AGENT),
    ended("1", Scope.RUN),
]
WHOLE = [("Begun", "step"), ("Begun", "tool"), ("Ended", "tool", "ok"), ("Ended", "step", "ok")]
LOST = [*WHOLE[:2], ("Ended", "tool", "lost"), ("Ended", "step", "lost")]


def lines_of(*records: Record, mask: Mask | None = None) -> list[str]:
    lines: list[str] = []
    sender = Sender(lambda text: lines.append(text.removesuffix("\n")), mask)
    for each in records:
        sender.record(each)
    return lines


class User(Protocol):
    """Somebody who takes in the lines of one process. A new one on the same journal is the next after a crash."""

    trusted: bool
    """What the other process says is taken at its word."""
    replays: bool
    """Its lines can be read again from the first on."""
    ends: bool
    """What a dead process left open is ended here, and not by the next process of its kind."""

    def __init__(self, journal: Journal, folder: Path) -> None: ...

    async def take(self, *lines: str) -> None: ...

    async def again(self) -> None: ...

    async def over(self) -> None:
        """The other process is gone."""
        ...

    def missing(self) -> int: ...


class OfARun:
    """`hookline run agent.py --on kubernetes`."""

    trusted, replays, ends = True, True, True

    def __init__(self, journal: Journal, folder: Path) -> None:
        self.stream = RunStream(journal, "kubernetes:a/b at c", None, quiet=True)

    async def take(self, *lines: str) -> None:
        for each in lines:
            await self.stream.printed(each)

    async def again(self) -> None: ...

    async def over(self) -> None:
        await self.stream.closed(JobEnd(why="its pod was deleted"))

    def missing(self) -> int:
        return self.stream._intake.missing  # pyright: ignore[reportPrivateUsage]


class OfAnAttempt:
    """`hookline serve WORKFLOW.md --on kubernetes`, whose next pod ends what the one before left."""

    trusted, replays, ends = True, True, False

    def __init__(self, journal: Journal, folder: Path) -> None:
        self.stream = AttemptStream(journal, "test/claim")

    async def take(self, *lines: str) -> None:
        for each in lines:
            await self.stream.printed(each)

    async def again(self) -> None: ...

    async def over(self) -> None:
        self.stream.flush()

    def missing(self) -> int:
        return self.stream.intake.missing


class OfAPod:
    """The operator, for the pod of a kagent Agent."""

    trusted, replays, ends = False, True, True

    def __init__(self, journal: Journal, folder: Path) -> None:
        self.records = PodRecords(journal, POD)

    async def take(self, *lines: str) -> None:
        for each in lines:
            await self.records.take(each)

    async def again(self) -> None:
        self.records.intake.again()

    async def over(self) -> None:
        await self.records.lost("its pod was deleted")

    def missing(self) -> int:
        return self.records.intake.missing


class OfAnAgentHere:
    """The relay of an AgentRun on this machine. What was sent on its socket does not come again."""

    trusted, replays, ends = False, False, True

    def __init__(self, journal: Journal, folder: Path) -> None:
        self.journal, self.folder = journal, folder
        self.stack = AsyncExitStack()
        self.ends_of_socket: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def take(self, *lines: str) -> None:
        if self.ends_of_socket is None:
            recorder = Recorder(self.journal)
            facts = Facts(workflow_id="w", run_id=RUN, scope_id="2")
            run = Run(id=RUN, recorder=recorder)
            scope = OpenScope(run, Pipeline((), recorder), Scope.AGENT, facts, name="default")
            await self.stack.enter_async_context(relayed(self.folder, (), scope, Mask([SECRET])))
            self.ends_of_socket = await asyncio.open_unix_connection(self.folder / SOCKET)
        _, writer = self.ends_of_socket
        writer.write("".join(f"{each}\n" for each in lines).encode())
        await writer.drain()

    async def again(self) -> None: ...

    async def over(self) -> None:
        if self.ends_of_socket is not None:
            reader, writer = self.ends_of_socket
            writer.write_eof()
            await reader.read()
            writer.close()
        await self.stack.aclose()

    def missing(self) -> int:
        return noted(self.journal, RUN)


def agent_run(phase: str = "Running", **status: Any) -> dict[str, Any]:
    """An AgentRun whose record has the id of the run here."""
    name, _, uid = RUN.rpartition("-")
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 60))
    return {
        "metadata": {"name": name, "namespace": "test", "uid": uid, "creationTimestamp": made},
        "spec": {"task": "look"},
        "status": {"phase": phase, "hooks": [], "jobName": name, "startedAt": made, **status},
    }


def noted(journal: Journal, run_id: str) -> int:
    """How many lines never came, as the notes on a run tell it."""
    notes = [each.note or "" for each in journal.records(run_id) if isinstance(each, Decided)]
    found = [re.match(r"(\d+) records .* were not received", note) for note in notes]
    return sum(int(each[1]) for each in found if each)


class OfAFollower:
    """`hookline run agentrun.yaml --on kubernetes`, which reads the log of the run's agent."""

    trusted, replays, ends = False, True, True

    def __init__(self, journal: Journal, folder: Path) -> None:
        self.journal = journal
        self.ledger, self.inner = Ledger(journal), InnerRecords(agent_run(), Mask([SECRET]))

    async def take(self, *lines: str) -> None:
        await self.ledger.take(agent_run())
        for each in lines:
            await self.inner.take(each)
        await self.ledger.add(agent_run(), self.inner.new())

    async def again(self) -> None:
        await self.inner.take(None)

    async def over(self) -> None:
        self.inner.over = True
        await self.ledger.take(agent_run("Succeeded", completedAt="2030-01-01T00:00:00Z"))

    def missing(self) -> int:
        told = [
            re.match(r"(\d+) records .* were not received", text) for text in self.inner.missing(agent_run())
        ]
        return sum(int(each[1]) for each in told if each)


class OfTheOperator:
    """The operator, for an AgentRun: it reads the whole log when the agent has ended."""

    trusted, replays, ends = False, True, True

    def __init__(self, journal: Journal, folder: Path) -> None:
        self.journal = journal
        self.writer = JournalWriter(journal, built_in=True)
        self.lines: list[str] = []

    async def take(self, *lines: str) -> None:
        self.lines += lines

    async def again(self) -> None:
        self.lines.clear()

    async def over(self) -> None:
        run = agent_run("Succeeded", completedAt="2030-01-01T00:00:00Z")
        self.writer.keep_lines(run, self.lines, Mask([SECRET]))
        self.writer.note(None, run)
        writing = asyncio.create_task(self.writer.run([run]))
        async with asyncio.timeout(30):
            while self.journal.unfinished() or not self.journal.records(RUN):
                await asyncio.sleep(0.005)
        writing.cancel()
        await asyncio.wait({writing})

    def missing(self) -> int:
        return noted(self.journal, RUN)


USERS = [OfARun, OfAnAttempt, OfAPod, OfAnAgentHere, OfAFollower, OfTheOperator]
REPLAYED = [each for each in USERS if each.replays]


def kept(journal: Journal) -> list[tuple[str, ...]]:
    found = [each for each in journal.records(RUN) if isinstance(each, Begun | Ended)]
    return [
        ("Begun", each.scope) if isinstance(each, Begun) else ("Ended", each.scope, each.status)
        for each in found
        if each.scope in LOOKED_AT
    ]


@pytest.fixture
def journal() -> Journal:
    return MemoryJournal()


def lines_for(kind: type[User], *records: Record) -> list[str]:
    """As that user's process sends them: who is not asked for its secrets masks them itself."""
    masks_here = kind in (OfAnAgentHere, OfAFollower, OfTheOperator)
    return lines_of(*records, mask=None if masks_here else Mask([SECRET]))


@pytest.mark.parametrize("kind", USERS)
async def test_each_record_is_kept_once_and_masked(kind: type[User], journal: Journal, tmp_path: Path):
    user = kind(journal, tmp_path)
    await user.take(*lines_for(kind, *OPENING, *CLOSING))
    await user.over()
    assert kept(journal) == WHOLE
    assert user.missing() == 0
    assert SECRET not in repr([each for each in journal.records(RUN) if each.scope_id != "1"])


@pytest.mark.parametrize("kind", [each for each in USERS if each is not OfAnAgentHere])
async def test_what_others_print_between_is_told_apart(kind: type[User], journal: Journal, tmp_path: Path):
    lines = lines_for(kind, *OPENING, *CLOSING)
    user = kind(journal, tmp_path)
    # The second of them did not end their line.
    await user.take(*lines[:4], "somebody else prints this", f"and this {lines[4]}", *lines[5:])
    await user.over()
    assert kept(journal) == WHOLE
    assert user.missing() == 0


@pytest.mark.parametrize("kind", USERS)
async def test_a_doubled_line_is_kept_once(kind: type[User], journal: Journal, tmp_path: Path):
    user = kind(journal, tmp_path)
    await user.take(*(line for each in lines_for(kind, *OPENING, *CLOSING) for line in (each, each)))
    await user.over()
    assert kept(journal) == WHOLE


@pytest.mark.parametrize("kind", REPLAYED)
@pytest.mark.parametrize("count", range(9))
async def test_read_again_from_the_start_after_a_break_nothing_is_there_twice_or_missing(
    kind: type[User], count: int, journal: Journal, tmp_path: Path
):
    lines = lines_for(kind, *OPENING, *CLOSING)
    user = kind(journal, tmp_path)
    await user.take(*lines[:count])
    await user.again()
    await user.take(*lines)
    await user.over()
    assert kept(journal) == WHOLE
    assert user.missing() == 0


@pytest.mark.parametrize("kind", REPLAYED)
@pytest.mark.parametrize("count", range(9))
async def test_who_was_killed_in_the_middle_is_followed_by_one_that_keeps_the_rest(
    kind: type[User], count: int, journal: Journal, tmp_path: Path
):
    lines = lines_for(kind, *OPENING, *CLOSING)
    await kind(journal, tmp_path).take(*lines[:count])
    user = kind(journal, tmp_path)
    await user.take(*lines)
    await user.over()
    assert kept(journal) == WHOLE


@pytest.mark.parametrize("kind", REPLAYED)
async def test_a_line_that_was_cut_is_taken_when_it_comes_whole(
    kind: type[User], journal: Journal, tmp_path: Path
):
    lines = lines_for(kind, *OPENING, *CLOSING)
    user = kind(journal, tmp_path)
    await user.take(*lines[:4], lines[4][: len(lines[4]) // 2])
    await user.again()
    await user.take(*lines)
    await user.over()
    assert kept(journal) == WHOLE
    assert user.missing() == 0


@pytest.mark.parametrize("kind", USERS)
async def test_lines_that_never_came_are_counted(kind: type[User], journal: Journal, tmp_path: Path):
    lines = lines_for(kind, *OPENING, *CLOSING)
    user = kind(journal, tmp_path)
    await user.take(*lines[:3], *lines[5:])
    await user.over()
    assert kept(journal) == [WHOLE[0], WHOLE[3]]
    assert user.missing() == 2


@pytest.mark.parametrize("kind", USERS)
async def test_lines_out_of_order_are_kept_once_or_told_as_missing(
    kind: type[User], journal: Journal, tmp_path: Path
):
    lines = lines_for(kind, *OPENING, *CLOSING)
    lines[4], lines[5] = lines[5], lines[4]
    user = kind(journal, tmp_path)
    await user.take(*lines)
    await user.over()
    found = kept(journal)
    assert len(found) == len(set(found))
    assert set(found) <= {*WHOLE, *LOST}
    assert sorted(found) == sorted(WHOLE) or user.missing() > 0


@pytest.mark.parametrize("kind", [each for each in USERS if each.ends])
async def test_what_a_dead_process_left_open_is_ended_as_lost(
    kind: type[User], journal: Journal, tmp_path: Path
):
    user = kind(journal, tmp_path)
    await user.take(*lines_for(kind, *OPENING))
    await user.over()
    assert kept(journal) == LOST


RUBBISH = ["", "\x1e", "\x1e{}", "\x1e[1]", '\x1e[0,"r",["strange"]]', f"\x1e[0,{'[' * 100_000}"]


@pytest.mark.parametrize("kind", [each for each in USERS if each is not OfAnAgentHere])
async def test_rubbish_costs_its_line_and_nothing_else(kind: type[User], journal: Journal, tmp_path: Path):
    user = kind(journal, tmp_path)
    await user.take(*RUBBISH, *lines_for(kind, *OPENING, *CLOSING), *RUBBISH)
    await user.over()
    assert kept(journal) == WHOLE


FORGED = [
    Called(RUN, "4", Point.TOOL_START, "guard", 1.0, 0.1, HookAction.ALLOW, None, None),
    Decided(RUN, "4", Point.TOOL_START, 1.0, HookAction.FAIL),
    ended("9", Scope.TOOL),
    begun("9", "nobody", Scope.TOOL),
    begun("../9", "2", Scope.TOOL),
]


@pytest.mark.parametrize("kind", [OfAnAgentHere, OfAFollower, OfTheOperator])
async def test_what_an_agent_may_not_say_of_itself_is_left_out(
    kind: type[User], journal: Journal, tmp_path: Path
):
    user = kind(journal, tmp_path)
    await user.take(*lines_for(kind, *OPENING, *FORGED, *CLOSING))
    await user.over()
    assert kept(journal) == WHOLE
    said = [each for each in journal.records(RUN) if isinstance(each, Called | Decided)]
    assert not any(each.point == Point.TOOL_START for each in said)


@pytest.mark.parametrize("kind", [OfAPod])
async def test_a_pod_says_nothing_of_runs_that_it_did_not_begin(
    kind: type[User], journal: Journal, tmp_path: Path
):
    await journal.write(OPENING[0]._replace(source="/home/me/agent.py"))
    await kind(journal, tmp_path).take(*lines_for(kind, *OPENING, *CLOSING))
    assert kept(journal) == []


def test_what_is_lacking_is_told_in_words():
    assert lacking(0, 0) == []
    assert lacking(2, 3) == [
        "2 lines from the agent were not records and are left out",
        "3 records from the agent were not received and are not in the journal",
    ]
    assert INSIDE.startswith("x.")
