"""What an agent on a cluster does inside: in its place on the record, once, checked, and no part of anything else."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hookline import MemoryJournal, SqliteJournal
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Begun, Called, Decided, Ended, Journal, Record
from hookline.engine.result import HookAction
from hookline.journal.masking import Mask
from hookline.journal.stream import INSIDE, MARK, Sender, split_text
from hookline.kube.client import MOST_LOG_BYTES
from hookline.kube.logs import GONE
from hookline.kube.objects import AGENT_RUN, POD, ApiRefused, Kind, NotThere, Unreachable
from hookline.sympozium.cluster.controller import AgentRunController
from hookline.sympozium.cluster.follow import AgentLog, RunFollower
from hookline.sympozium.cluster.ledger import InnerRecords, Ledger
from hookline.sympozium.cluster.records import records_of, run_id_of
from tests.kube.memory_cluster import Node, Object, Play, copied
from tests.sympozium.cluster.scenes import gate, verdict
from tests.sympozium.cluster.test_controller import Watchable
from tests.sympozium.cluster.test_records import Broken, ended, until, watched
from tests.sympozium.cluster.world import SETTINGS, Scene, agent_run, answered, hook

BUILT_IN = replace(SETTINGS, agent_command="")
MODEL = {"provider": "scripted", "model": "/workspace/script.json"}


def lines_of(*records: Record) -> list[str]:
    """As an agent prints them."""
    lines: list[str] = []
    sender = Sender(lines.append)
    for each in records:
        sender.record(each)
    return lines


def begins(id: str, parent: str | None, scope: Scope, name: str = "1", payload: Any = None) -> Begun:
    return Begun("inner", id, parent, scope, name, time.time(), payload, {})


def ends(id: str, scope: Scope, output: Any = None) -> Ended:
    return Ended("inner", id, scope, time.time(), Status.OK, output, None)


OPENING: list[Record] = [
    begins("1", None, Scope.RUN),
    begins("2", "1", Scope.AGENT),
    begins("3", "2", Scope.STEP),
    begins("4", "3", Scope.MODEL, "scripted"),
    ends("4", Scope.MODEL, {"text": "the plan"}),
    begins("5", "3", Scope.TOOL, "bash", {"command": "echo very-secret"}),
]
CLOSING: list[Record] = [
    ends("5", Scope.TOOL, {"output": "very-secret"}),
    ends("3", Scope.STEP),
    ends("2", Scope.AGENT),
    ends("1", Scope.RUN),
]
LINES = lines_of(*OPENING, *CLOSING)
OPENED, CLOSED = LINES[: len(OPENING)], LINES[len(OPENING) :]
WORK = "".join(LINES)
BELOW = [
    ("begun", "step", "1"),
    ("begun", "model", "scripted"),
    ("ended", "model", "ok"),
    ("begun", "tool", "bash"),
    ("ended", "tool", "ok"),
    ("ended", "step", "ok"),
]
LOST = [*BELOW[:4], ("ended", "tool", "lost"), ("ended", "step", "lost")]


async def admitted(run: Object, lines: list[str]) -> list[Record]:
    """What is taken of the lines of a run's agent."""
    inside = InnerRecords(run, Mask())
    for each in lines:
        await inside.take(each)
    return inside.new()


def inner(records: list[Record]) -> list[tuple[str, str, str]]:
    found = [each for each in records if isinstance(each, Begun | Ended) and "." in each.scope_id]
    return [
        ("begun", each.scope, each.name) if isinstance(each, Begun) else ("ended", each.scope, each.status)
        for each in found
    ]


def notes(records: list[Record]) -> list[str | None]:
    return [each.note for each in records if isinstance(each, Decided) and each.point == INSIDE]


def is_running(state: Object) -> bool:
    return state.get("status", {}).get("phase") == "Running"


def scene(play: Play, **spec: Any) -> Scene:
    return Scene(run=agent_run(model=MODEL, **spec), plays={"agent": play}, settings=BUILT_IN)


def test_records_are_told_from_all_else_that_is_printed() -> None:
    text = f"at work\n{OPENED[0]}half a line{OPENED[1]}{MARK}not ours\n\n"
    others, lines = split_text(text)
    assert others == f"at work\nhalf a line\n{MARK}not ours\n\n"
    assert [f"{each}\n" for each in lines] == OPENED[:2]
    assert split_text("nothing\n") == ("nothing\n", [])


async def test_a_crashed_agent_whose_last_lines_are_records_is_told_with_its_own_last_words() -> None:
    made = await scene(Play(code=7, says=f"it broke\n{WORK}")).to_the_end()
    assert made.status["error"] == "agent exited with code 7: it broke"
    assert "very-secret" not in json.dumps(made.status)


async def test_records_are_no_part_of_an_answer_that_has_no_end_and_a_whole_one_is_found_among_them() -> None:
    made = await scene(Play(says=f"{WORK}{answered('yes')}")).to_the_end()
    assert made.status["result"] == "yes"
    made = await scene(Play(says=f"__SYMPOZIUM_RESULT__\n{WORK}")).to_the_end()
    assert "has no __SYMPOZIUM_END__" in made.status["error"] or "whole JSON" in made.status["error"]
    assert MARK not in json.dumps(made.status)


async def test_half_a_record_at_the_beginning_of_a_long_log_is_nobodys_last_word() -> None:
    fragment = "x" * MOST_LOG_BYTES
    made = await scene(Play(code=7, says=f"{fragment}\n{WORK}")).to_the_end()
    assert made.status["error"] == "agent exited with code 7"


async def test_an_agent_of_somebody_elses_is_not_made_to_tell() -> None:
    for settings, tells in ((BUILT_IN, True), (SETTINGS, False)):
        made = await Scene(run=agent_run(model=MODEL), settings=settings).to_the_end()
        assert ("HOOKLINE_RECORDS" in made.env("agent")) is tells


@asynccontextmanager
async def operated(journal: Journal, cluster: Watchable, play: Play) -> AsyncIterator[Node]:
    plays = {name: Play(seconds=0) for name in ("pre-a", "post-c", "prepare")}
    node = Node(cluster=cluster, plays={**plays, "agent": play})
    operator = AgentRunController(cluster, BUILT_IN, journal=journal)  # type: ignore[arg-type]
    working = asyncio.create_task(operator.run())
    try:
        yield node
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


def with_hooks(name: str, uid: str, **spec: Any) -> Object:
    hooks = {
        "preRun": [hook("a", env=[{"name": "API_TOKEN", "value": "very-secret"}])],
        "postRun": [hook("c")],
    }
    return agent_run(name, uid, model=MODEL, lifecycle=hooks, **spec)


async def kept(journal: Journal, cluster: Watchable, play: Play) -> list[Record]:
    """What an operator has written of one run."""
    async with operated(journal, cluster, play) as node:
        if not cluster.all(AGENT_RUN):
            cluster.add(with_hooks("one", "1"))
        await until(node, lambda: ended(journal) == ["one-1"])
    return journal.records("one-1")


async def test_the_operator_has_what_the_agent_did_in_its_place_and_masked(tmp_path: Path) -> None:
    journal, cluster = SqliteJournal(tmp_path / "journal.db"), Watchable()
    found = await kept(journal, cluster, Play(seconds=0, says=WORK + answered("yes")))
    journal.close()
    assert inner(found) == BELOW
    assert notes(found) == []
    assert "very-secret" not in repr(found)
    outer = [each for each in found if "." not in each.scope_id]
    (run,) = cluster.all(AGENT_RUN)
    assert outer == records_of(run)
    first = next(number for number, each in enumerate(found) if "." in each.scope_id)
    before, after = found[first - 1], found[first + len(BELOW)]
    assert isinstance(before, Decided)
    assert isinstance(after, Decided)
    assert (before.note, after.note) == ("phase Running", "phase PostRunning")
    assert found[first + len(BELOW) + 1] == next(each for each in outer if isinstance(each, Ended))
    assert WORK not in json.dumps(run)


async def test_after_a_restart_nothing_of_it_is_written_twice(tmp_path: Path) -> None:
    journal, cluster = SqliteJournal(tmp_path / "journal.db"), Watchable()
    play = Play(seconds=0, says=WORK + answered("yes"))
    once = await kept(journal, cluster, play)
    assert await kept(journal, cluster, play) == once
    journal.close()


async def test_an_operator_that_was_broken_off_between_two_of_them_goes_on_after_the_first() -> None:
    made = scene(Play(says=WORK + answered("yes")), lifecycle={"postRun": [hook("c")]})
    states = watched(made)
    await made.to_the_end()
    running = next(filter(is_running, states))
    lines = split_text(WORK)[1]

    async def rest() -> list[Record]:
        return await admitted(running, lines)

    for count in range(len(lines) + 1):
        journal = MemoryJournal()
        await Ledger(journal).take(running)
        await Ledger(journal).add(running, await admitted(running, lines[:count]))
        for _ in range(2):
            await Ledger(journal, alone=True).take(states[-1], rest)
        found = journal.records(run_id_of(running))
        assert inner(found) == BELOW, count
        assert [each for each in found if "." not in each.scope_id] == records_of(states[-1])


async def test_what_a_follower_that_left_did_not_hear_is_told_as_missing() -> None:
    made = scene(Play(says=WORK + answered("yes")))
    states = watched(made)
    await made.to_the_end()
    running = next(filter(is_running, states))
    journal = MemoryJournal()
    await Ledger(journal).take(running)
    for each in await admitted(running, OPENED):
        await Ledger(journal).add(running, [each])
    await Ledger(journal).take(states[-1])
    found = journal.records(run_id_of(running))
    assert inner(found) == LOST
    assert notes(found) == [
        "the rest of the agent's inner records is missing: its log was not read to the end"
    ]


async def test_a_journal_that_was_begun_after_the_log_was_read_says_that_it_has_no_inside(
    tmp_path: Path,
) -> None:
    cluster, play = Watchable(), Play(seconds=0, says=WORK + answered("yes"))
    await kept(MemoryJournal(), cluster, play)
    found = await kept(MemoryJournal(), cluster, play)
    assert inner(found) == []
    assert [str(note).partition(":")[0] for note in notes(found)] == ["the agent's inner records are missing"]


async def test_what_an_agent_that_died_left_open_is_lost_and_ends_before_it(tmp_path: Path) -> None:
    found = await kept(MemoryJournal(), Watchable(), Play(seconds=0, code=3, says="".join(OPENED)))
    assert inner(found) == LOST
    last = [each.scope for each in found if isinstance(each, Ended)]
    assert last[-4:] == [Scope.TOOL, Scope.STEP, Scope.AGENT, Scope.RUN]


FORGED = {
    "a hook's call": Called("inner", "1", Point.RUN_START, "guard", 1.0, 1.0, HookAction.ALLOW, None, None),
    "an outcome": Decided("inner", "1", Point.RUN_START, 1.0, HookAction.FAIL),
    "the end of the run here": Ended("inner", "9", Scope.RUN, 1.0, Status.FAILED, None, "forged"),
}


@pytest.mark.parametrize("record", FORGED.values(), ids=FORGED.keys())
async def test_a_line_that_claims_to_be_more_is_left_out_and_told(record: Record) -> None:
    says = "".join(lines_of(*OPENING, record, *CLOSING)) + answered("yes")
    cluster = Watchable()
    found = await kept(MemoryJournal(), cluster, Play(seconds=0, says=says))
    assert inner(found) == BELOW
    assert notes(found) == ["1 lines from the agent were not records and are left out"]
    outer = [each for each in found if "." not in each.scope_id and getattr(each, "point", "") != INSIDE]
    assert outer == records_of(cluster.all(AGENT_RUN)[0])


async def test_what_a_gate_may_hold_back_is_not_on_record_as_a_models_word() -> None:
    made = gate(verdict("reject", response="no"))
    states = watched(made)
    await made.to_the_end()
    running = next(filter(is_running, states))
    journal = MemoryJournal()
    found = await admitted(running, LINES)
    assert "the plan" in repr(found)
    await Ledger(journal).take(running)
    await Ledger(journal).add(running, found)
    stored = journal.records(run_id_of(running))
    assert inner(stored) == BELOW
    assert "the plan" not in repr(stored)


class Talking(Watchable):
    """With a log that can be followed: each time what is next of `times`, and at last what stands last there."""

    def __init__(self, *times: Any) -> None:
        super().__init__()
        self.times = list(times)
        self.forbidden = ""
        self.listed: set[str] = set()
        self.followed: set[str] = set()

    async def list(self, kind: Kind, *rest: Any) -> tuple[list[Object], str]:
        self.listed.add(kind.kind)
        if self.forbidden and kind is POD:
            raise ApiRefused(403, self.forbidden)
        return await super().list(kind, *rest)

    async def follow_log(self, pod: str, namespace: str, container: str) -> AsyncGenerator[str]:
        assert container == "agent"
        self.followed.add(pod)
        for each in self.times.pop(0) if len(self.times) > 1 else self.times[0]:
            if isinstance(each, Exception):
                raise each
            yield each.removesuffix("\n")


async def heard(cluster: Talking, settings: Any = BUILT_IN) -> tuple[list[str | None], str]:
    """What comes of a run whose agent has ended, while its pod is there."""
    made = Scene(run=agent_run(model=MODEL, cleanup="keep"), settings=settings, cluster=cluster)
    await made.to_the_end()
    took: list[str | None] = []
    async with asyncio.timeout(60):
        why = await AgentLog(cluster, made.run, took.append).read()  # type: ignore[arg-type]
    return took, why


async def test_a_log_is_heard_from_its_first_record_to_its_last() -> None:
    took, why = await heard(Talking(["at work\n", *OPENED, "bye\n"]))
    assert (took, why) == ([None, *(each.removesuffix("\n") for each in OPENED)], "")


async def test_where_the_connection_is_cut_all_come_again() -> None:
    cut = Unreachable("cut")
    took, why = await heard(Talking([*OPENED[:2], cut], OPENED))
    assert (took.count(None), len(took), why) == (2, 2 + 2 + len(OPENED), "")


LACKING = {
    "forbidden": (ApiRefused(403, "pods/log is forbidden"), "its log may not be read: pods/log is forbidden"),
    "gone": (NotThere(404, "pod not found"), GONE),
}


@pytest.mark.parametrize(("error", "why"), LACKING.values(), ids=LACKING.keys())
async def test_why_the_rest_is_not_heard_is_told(error: Exception, why: str) -> None:
    assert (await heard(Talking([*OPENED[:2], error])))[1] == why


async def test_who_may_not_list_pods_is_told_so() -> None:
    cluster = Talking([])
    cluster.forbidden = "pods is forbidden"
    assert await heard(cluster) == ([], "its pod cannot be looked up: pods is forbidden")


async def test_an_agent_of_somebody_elses_is_not_listened_to() -> None:
    assert await heard(Talking(OPENED), SETTINGS) == ([], "")


async def test_a_pod_that_only_has_the_labels_of_the_run_is_not_listened_to() -> None:
    cluster = Talking(OPENED)
    made = Scene(run=agent_run(model=MODEL, cleanup="keep"), settings=BUILT_IN, cluster=cluster)
    await made.to_the_end()
    [own] = cluster.all(POD)
    forged = copied(own)
    forged["metadata"] = {**forged["metadata"], "name": "stranger", "uid": "another", "ownerReferences": []}
    # The oldest of a run's pods is the one that counts.
    cluster.add(forged)["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    async with asyncio.timeout(60):
        await AgentLog(cluster, made.run, lambda _: None).read()  # type: ignore[arg-type]
    assert cluster.followed == {own["metadata"]["name"]}


class Slow(Talking):
    """A log that comes only when the run has ended, or never ends."""

    def __init__(self, *times: Any) -> None:
        super().__init__(*times)
        self.may = asyncio.Event()

    async def follow_log(self, pod: str, namespace: str, container: str) -> AsyncGenerator[str]:
        await self.may.wait()
        async for each in super().follow_log(pod, namespace, container):
            yield each


async def followed(cluster: Slow, journal: Journal, pause: float = 0, **spec: Any) -> Scene:
    """A run with its follower, who is there from the beginning and with `pause` sees each change; the log comes after
    the end."""
    made = Scene(run=agent_run(model=MODEL, cleanup="keep", **spec), settings=BUILT_IN, cluster=cluster)
    await made.until(lambda: made.now is not None)
    follow = RunFollower(cluster, copied(made.run), "", Mask(), journal, json=False, quiet=False)  # type: ignore[arg-type]
    following = asyncio.create_task(follow.ended())
    while not made.over:
        before = cluster.version
        await made.until(lambda before=before: made.over or cluster.version > before)
        await asyncio.sleep(pause)
    while not (waits := bool(follow._held)) and not following.done():
        await asyncio.sleep(0.002)
    assert waits is not following.done()
    cluster.may.set()
    async with asyncio.timeout(60):
        assert await following == 0
    return made


@pytest.mark.parametrize("pause", [0, 0.02], ids=["who sees the end only", "who sees each change"])
async def test_what_comes_after_the_agents_end_is_told_after_all_that_its_log_still_had(
    pause: float, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = MemoryJournal()
    hooks = {"postRun": [hook("c")]}
    made = await followed(Slow([*OPENED, *CLOSED]), journal, pause, lifecycle=hooks)
    found = journal.records(run_id_of(made.run))
    assert inner(found) == BELOW
    assert made.now is not None
    assert [each for each in found if "." not in each.scope_id] == records_of(made.now)
    scopes = [each.scope for each in found if isinstance(each, Ended)]
    assert scopes == [Scope.MODEL, Scope.TOOL, Scope.STEP, Scope.AGENT, Scope.RUN]
    shown = capsys.readouterr().err.split("\n")
    words = [
        "  agent default",
        "    step 1",
        "      tool bash",
        "        = bash ok",
        "    = ok",
        "  end    c",
    ]
    places = [next(n for n, line in enumerate(shown) if line.startswith(word)) for word in words]
    assert places == sorted(places)


async def test_who_hears_only_a_part_is_told_once_and_the_run_is_followed_to_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    journal = MemoryJournal()
    made = await followed(Slow([*OPENED, ApiRefused(403, "no more")]), journal)
    found = journal.records(run_id_of(made.run))
    assert inner(found) == LOST
    assert notes(found) == ["some of the agent's inner records are missing: its log may not be read: no more"]
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.count("inner records are missing: its log may not be read: no more") == 1


async def test_who_may_not_look_for_pods_is_told_once_however_often_the_run_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster, journal = Slow([]), MemoryJournal()
    cluster.forbidden = "pods is forbidden"
    made = await followed(cluster, journal, 0.02, lifecycle={"postRun": [hook("c"), hook("d")]})
    found = journal.records(run_id_of(made.run))
    text = "some of the agent's inner records are missing: its pod cannot be looked up: pods is forbidden"
    assert notes(found) == [text]
    assert isinstance(found[-1], Ended)
    assert " ".join(capsys.readouterr().err.split()).count(text) == 1


async def test_a_journal_that_fails_is_told_once_and_the_run_is_followed_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    journal = Broken()
    made = await followed(Slow([*OPENED, *CLOSED]), journal, 0.02, lifecycle={"postRun": [hook("c")]})
    assert made.over
    assert journal.tries == 1
    assert capsys.readouterr().err.count("no space left") == 1


async def test_nobody_waits_for_the_inside_of_a_dry_run() -> None:
    cluster, journal = Slow([]), MemoryJournal()
    cluster.forbidden = "nobody may look"
    made = await followed(cluster, journal, dryRun=True)
    assert notes(journal.records(run_id_of(made.run))) == []
    assert POD.kind not in cluster.listed
