"""What is put on record of a run on a cluster: what a run on this machine has, in its order, and nothing twice."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hookline import MemoryJournal, SqliteJournal
from hookline.engine.point import Scope, Status
from hookline.engine.record import (
    Begun,
    Called,
    Decided,
    Ended,
    Journal,
    Question,
    Record,
    Verdict,
    VerdictKind,
)
from hookline.errors import JournalError
from hookline.hookfile.ends import hooks_again
from hookline.journal.recovery import owner, recover
from hookline.kube.objects import AGENT_RUN, CLAIM, JOB, POD, Kind
from hookline.runners.local import LocalRunner
from hookline.sympozium.cluster.controller import AgentRunController
from hookline.sympozium.cluster.ledger import GONE, Ledger
from hookline.sympozium.cluster.records import records_of, run_id_of
from hookline.sympozium.resolve import RunRequest
from hookline.sympozium.run.folders import Home
from hookline.sympozium.run.hooks import LocalSite
from hookline.sympozium.run.local import recovered, run
from hookline.sympozium.types import GROUP
from tests import forks
from tests.kube.memory_cluster import Node, Object, Play, copied
from tests.sympozium.cluster.scenes import SCENES, both, gate, scene, verdict
from tests.sympozium.cluster.test_controller import Watchable
from tests.sympozium.cluster.world import NAMESPACE, SETTINGS, Scene, agent_run, answered, hook

# The one whose verdict comes while it runs: on this machine a person gives it.
_WAITS = "a gate that approves and waits on"


def watched(made: Scene) -> list[Object]:
    """Each state of the run that somebody who looks at it could see."""
    states: list[Object] = []
    before = made.cluster.interrupt

    def noticed(number: int) -> None:
        now = made.now
        if now is not None and (not states or now.get("status") != states[-1].get("status")):
            states.append(copied(now))
        before(number)

    made.cluster.interrupt = noticed
    return states


async def interrupted(made: Scene, happens: Callable[[], None]) -> AsyncIterator[list[Object]]:
    """The states of a run to which that happens after its second change, after its third and so on: those from the turn
    on in which it happens. The turns before are the same each time, so they are played once."""
    states = watched(made)
    turns: list[tuple[int, Object, bytes]] = []
    made.before_turn = lambda: turns.append((made.cluster.version, states[-1], made.saved()))
    await made.to_the_end()
    grows(states)
    made.before_turn = lambda: None
    for number in range(2, made.cluster.version + 1):
        _, state, saved = next(turn for turn in reversed(turns) if turn[0] < number)
        made.back_to(saved)
        made.cluster.interrupt = lambda now, number=number: happens() if now == number else None
        states = watched(made)
        states.append(state)
        await made.to_the_end()
        yield states


def grows(states: list[Object]) -> list[Record]:
    """The records in the end; none of what was told before may be otherwise then."""
    told: list[Record] = []
    for state in states:
        now = records_of(state)
        assert now[: len(told)] == told, state.get("status")
        told = now
    return told


def shape(record: Record) -> tuple[Any, ...]:
    """A record without its times and texts."""
    if isinstance(record, Begun):
        return "begun", record.scope_id, record.parent_id, record.scope, record.about["agent"]
    if isinstance(record, Ended):
        return "ended", record.scope_id, record.scope, record.status, record.error is not None
    if isinstance(record, Decided):
        reasons = [(reason.hook, reason.action) for reason in record.reasons]
        return "decided", record.scope_id, str(record.point), record.action, reasons, record.note
    return (
        "called",
        record.scope_id,
        str(record.point),
        record.hook,
        record.action,
        record.error_kind,
        record.last,
    )


def script(play: Play, gates: bool) -> str:
    """What a container that plays so does, for a shell."""
    if play.evicted or play.reason == "OOMKilled":
        return "kill -9 $$"
    says = f"printf %s {shlex.quote(play.says)}; " if play.says else ""
    if gates and play.seconds is not None:
        says += '[ -z "$VERDICT" ] || printf %s "$VERDICT" > "$IPC_DIR/control/gate-verdict"; '
    return f"{says}{'sleep 600' if play.seconds is None else f'exit {play.code}'}"


def here(made: Scene) -> tuple[str, str]:
    """The manifest of a scene for this machine, and its agent's script."""
    spec = copied(made.run["spec"])
    for prefix, stage in (("pre", "preRun"), ("post", "postRun")):
        for each in spec["lifecycle"].get(stage, ()):
            play = made.plays.get(f"{prefix}-{each['name']}", Play())
            if not play.never:
                each["command"] = ["sh", "-c", script(play, each.get("gate", False))]
            if play.seconds is None and not each.get("gate"):
                each["timeout"] = "1s"
    agent = made.plays["agent"]
    if agent.seconds is None:
        spec["timeout"] = "1s"
    manifest = {**made.run, "metadata": {"name": "r"}, "spec": {**spec, "env": {"VERDICT": verdict_of(made)}}}
    return json.dumps(manifest), script(agent, gates=False)


def verdict_of(made: Scene) -> str:
    annotations = (made.now or {})["metadata"].get("annotations", {})
    return annotations.get("sympozium.ai/gate-verdict", "")


async def approves(question: Question) -> Verdict:
    return Verdict(VerdictKind.APPROVE, by="ada")


async def local_records(folder: Path, made: Scene, *, asks: bool) -> list[Record]:
    """Those of a run of the same manifest on this machine."""
    manifest, agent = here(made)
    journal, runner = MemoryJournal(), LocalRunner()
    site = LocalSite(
        home=Home(folder / "agentruns"),
        runner_of=lambda _: runner,
        agent_runner=runner,
        journal=journal,
        approver=approves if asks else None,
        owner=owner(),
        environ={"PATH": os.environ["PATH"], "HOME": str(folder)},
    )
    asked = RunRequest(file="run.yaml", text=manifest, on="local", agent_command=("sh", "-c", agent))
    try:
        done = await run(site, asked)
    finally:
        await runner.close()
    return journal.records(done.run_id)


@pytest.mark.parametrize("name", SCENES)
async def test_as_a_run_goes_on_its_records_only_grow_at_their_end(name: str) -> None:
    made = SCENES[name]()
    states = watched(made)
    await made.to_the_end()
    told = grows(states)
    assert isinstance(told[-1], Ended)
    assert told[-1].output["phase"] == made.status["phase"]
    assert [each.at for each in told] == sorted(each.at for each in told)


@pytest.mark.parametrize("name", SCENES)
async def test_in_the_end_they_are_those_of_a_run_on_this_machine(name: str, tmp_path: Path) -> None:
    made = await SCENES[name]().to_the_end()
    assert made.now is not None
    there = records_of(made.now)
    local = await local_records(tmp_path, made, asks=name == _WAITS)
    assert [shape(each) for each in there] == [shape(each) for each in local]


@pytest.mark.parametrize(
    "name",
    [
        "the second hook before fails",
        "the agent fails",
        "the agent takes too long",
        "the first hook after fails",
    ],
)
async def test_what_went_wrong_is_told_in_the_same_words(name: str, tmp_path: Path) -> None:
    made = await SCENES[name]().to_the_end()
    assert made.now is not None
    local = await local_records(tmp_path, made, asks=False)

    def said(records: list[Record]) -> list[str | None]:
        texts = [each.error for each in records if isinstance(each, Called | Ended)]
        # On this machine it is tried with a shorter limit.
        return [text and text.replace("limit of 30 s", "limit of 1 s") for text in texts]

    assert said(records_of(made.now)) == said(local)


@pytest.mark.parametrize(
    "name", ["hooks before and after", "a gate that says nothing", "in a sandbox", "no hooks"]
)
async def test_they_only_grow_where_the_run_is_deleted_at_any_step(name: str) -> None:
    made = SCENES[name]()
    async for states in interrupted(made, made.delete_run):
        grows(states)


@pytest.mark.parametrize("kind", [JOB, POD, CLAIM], ids=lambda kind: kind.kind)
async def test_they_only_grow_where_something_is_removed_by_hand_at_any_step(kind: Kind) -> None:
    made = both()
    async for states in interrupted(made, lambda: made.delete_all(kind)):
        assert isinstance(grows(states)[-1], Ended)


async def test_they_only_grow_where_the_gate_is_the_agents_so_that_the_run_does_not_name_it() -> None:
    """Its hooks stand as the agent has them then, and not the gate first."""
    made = gate(verdict())
    lifecycle = made.run["spec"].pop("lifecycle")
    made.run["spec"]["agentRef"] = "oncall"
    head = {"name": "oncall", "namespace": NAMESPACE}
    spec = {"agents": {"default": {"lifecycle": lifecycle}}}
    made.instance = {"apiVersion": GROUP, "kind": "Agent", "metadata": head, "spec": spec}
    states = watched(made)
    await made.to_the_end()
    told = grows(states)
    assert [each.hook for each in told if isinstance(each, Called)] == ["a", "c", "ask", "d"]
    assert made.ran.index("post-ask") < made.ran.index("post-c")


async def test_a_run_that_could_not_begin_has_no_agent_on_record() -> None:
    made = scene(postRun=[hook("c")])
    made.cluster.refused["Job"] = "no more than that"
    await made.to_the_end()
    assert made.now is not None
    told = records_of(made.now)
    assert [each.scope for each in told if isinstance(each, Begun)] == [Scope.RUN]
    assert isinstance(told[-1], Ended)
    assert told[-1].status is Status.FAILED
    assert "no more than that" in (told[-1].error or "")


async def test_what_a_gate_holds_back_is_on_no_record() -> None:
    made = gate(verdict("reject", response="no"))
    made.plays["agent"] = Play(says=answered("the secret plan"))
    made.node.plays["agent"] = made.plays["agent"]
    states = watched(made)
    await made.to_the_end()
    assert "the secret plan" not in repr([records_of(state) for state in states])
    assert made.status["result"] == "no"


def test_a_run_has_the_same_id_always_and_another_one_of_its_name_has_another() -> None:
    first, second = agent_run(uid="11112222-aaaa-4bbb"), agent_run(uid="33332222-aaaa-4bbb")
    assert run_id_of(first) == run_id_of(copied(first)) == "r-11112222"
    assert run_id_of(second) != run_id_of(first)


async def written(folder: Path, states: list[Object], *, alone: bool = False) -> list[Record]:
    """What a journal has that was told each of them, each time opened anew."""
    for state in states:
        journal = SqliteJournal(folder / "journal.db")
        await Ledger(journal, alone=alone).take(state)
        journal.close()
    journal = SqliteJournal(folder / "journal.db")
    found = journal.records(run_id_of(states[-1]))
    journal.close()
    return found


async def test_who_comes_back_after_any_break_writes_the_rest_and_nothing_twice(tmp_path: Path) -> None:
    made = SCENES["the second hook after hangs"]()
    states = watched(made)
    await made.to_the_end()
    whole = [shape(each) for each in records_of(states[-1])]
    for number in range(len(states)):
        folder = tmp_path / str(number)
        once = await written(folder, [states[0], states[number], states[-1], states[-1]])
        assert [shape(each) for each in once] == whole, number


async def test_of_two_that_write_of_one_run_each_leaves_to_the_other_what_it_has_written(
    tmp_path: Path,
) -> None:
    made = both()
    states = watched(made)
    await made.to_the_end()
    journals = [SqliteJournal(tmp_path / "journal.db") for _ in range(2)]
    ledgers = [Ledger(journal) for journal in journals]
    for number, state in enumerate(states):
        await ledgers[number % 2].take(state)
        journals[number % 2].flush()
    found = journals[0].records(run_id_of(states[-1]))
    for journal in journals:
        journal.close()
    assert [shape(each) for each in found] == [shape(each) for each in records_of(states[-1])]


async def test_a_run_that_is_gone_before_its_end_was_told_is_lost(tmp_path: Path) -> None:
    made = both()
    states = watched(made)
    await made.until(lambda: made.status.get("phase") == "Running" and "agent" in made.ran)
    journal = SqliteJournal(tmp_path / "journal.db")
    ledger = Ledger(journal)
    await ledger.take(states[-1])
    assert [row.run_id for row in journal.unfinished()] == [run_id_of(states[-1])]
    await ledger.lost(run_id_of(states[-1]))
    await ledger.lost(run_id_of(states[-1]))
    (row,) = journal.runs()
    ends = [each for each in journal.records(row.run_id) if isinstance(each, Ended)]
    journal.close()
    assert (row.status, row.error) == (Status.LOST, GONE)
    assert [each.scope for each in ends] == [Scope.AGENT, Scope.RUN]


async def test_no_start_on_this_machine_ends_a_run_that_is_on_a_cluster(tmp_path: Path) -> None:
    """Not by running its hooks here, and not by calling it lost, whoever began it and at whatever it is."""
    made = both()
    states = watched(made)
    await made.to_the_end()
    for number, state in enumerate(states[:-1]):
        journal, runner = SqliteJournal(tmp_path / f"{number}.db"), LocalRunner()
        await Ledger(journal).take(state)
        before = journal.records(run_id_of(state))
        site = LocalSite(
            home=Home(tmp_path / "agentruns"),
            runner_of=lambda _, runner=runner: runner,
            agent_runner=runner,
            journal=journal,
            owner=owner(),
        )
        assert await recovered(site) == []
        assert await recover(journal, owner(), hooks_again) == []
        assert journal.records(run_id_of(state)) == before
        await runner.close()
        journal.close()


@asynccontextmanager
async def operated(journal: Journal, cluster: Watchable) -> AsyncIterator[Node]:
    """An operator at work that keeps that journal."""
    quick = {name: Play(seconds=0) for name in ("pre-a", "post-c", "prepare")}
    node = Node(cluster=cluster, plays={**quick, "agent": Play(seconds=0, says=answered("yes"))})
    operator = AgentRunController(cluster, SETTINGS, journal=journal)  # type: ignore[arg-type]
    working = asyncio.create_task(operator.run())
    try:
        yield node
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


async def until(node: Node, holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends, node.cluster.all(AGENT_RUN)
        node.cluster.now = datetime.now(UTC)
        node.beat()
        await asyncio.sleep(0.002)


def ended(journal: Journal) -> list[str]:
    return sorted(row.run_id for row in journal.runs() if row.ended)


def with_hooks(name: str, uid: str) -> Object:
    return agent_run(name, uid, lifecycle={"preRun": [hook("a")], "postRun": [hook("c")]})


async def test_the_operator_keeps_every_run_and_after_a_restart_writes_nothing_twice(tmp_path: Path) -> None:
    cluster, journal = Watchable(), SqliteJournal(tmp_path / "journal.db")
    async with operated(journal, cluster) as node:
        cluster.add(with_hooks("one", "1"))
        await until(node, lambda: ended(journal) == ["one-1"])
    calls = len(cluster.calls)
    async with operated(journal, cluster) as node:
        cluster.add(with_hooks("two", "2"))
        await until(node, lambda: ended(journal) == ["one-1", "two-2"])
    for each in cluster.all(AGENT_RUN):
        assert journal.records(run_id_of(each)) == records_of(each)
    journal.close()
    assert not any("one" in call for call in cluster.calls[calls:])


async def test_an_operator_with_an_empty_journal_writes_all_runs_that_are_there_again(tmp_path: Path) -> None:
    cluster, first = Watchable(), SqliteJournal(tmp_path / "first.db")
    async with operated(first, cluster) as node:
        for number in range(3):
            cluster.add(with_hooks(f"r{number}", f"{number}"))
        await until(node, lambda: len(ended(first)) == 3)
    second = SqliteJournal(tmp_path / "second.db")
    async with operated(second, cluster) as node:
        await until(node, lambda: len(ended(second)) == 3)
    for run_id in ended(first):
        assert second.records(run_id) == first.records(run_id)
    first.close()
    second.close()


async def test_a_run_that_went_while_no_operator_was_there_is_told_as_lost(tmp_path: Path) -> None:
    cluster, journal = Watchable(), SqliteJournal(tmp_path / "journal.db")
    await Ledger(journal).take(with_hooks("one", "1"))
    async with operated(journal, cluster) as node:
        await until(node, lambda: ended(journal) == ["one-1"])
    (row,) = journal.runs()
    journal.close()
    assert row.status is Status.LOST


async def test_a_status_that_nobody_understands_costs_its_own_record_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, journal = Watchable(), SqliteJournal(tmp_path / "journal.db")
    cluster.add({**with_hooks("odd", "1"), "status": {"phase": "Failed", "hooks": ["what?"]}})
    late = {"phase": "Failed", "error": "why", "completedAt": "yesterday"}
    cluster.add({**with_hooks("late", "2"), "status": late})
    async with operated(journal, cluster) as node:
        cluster.add(with_hooks("one", "3"))
        await until(node, lambda: ended(journal) == ["late-2", "one-3"])
    journal.close()
    assert "a run cannot be recorded" in caplog.text


async def test_the_operators_journal_does_not_grow_for_ever(tmp_path: Path) -> None:
    """Runs of long ago go as more come; one that is open stays, however old."""
    done = await both().to_the_end()
    assert done.now is not None
    cluster, journal = Watchable(), SqliteJournal(tmp_path / "journal.db")
    async with operated(journal, cluster) as node:
        cluster.add(agent_run("stays", "0", agentRef="nobody"))
        for number in range(1, 501):
            old = copied(done.now)
            old["metadata"] |= {"name": f"r{number}", "uid": f"{number}"}
            cluster.add(old)
        await until(node, lambda: len(journal.find("r")) > 100)
        await until(node, lambda: len(journal.find("r")) < 100)
        await until(node, lambda: journal.find("stays") == ["stays-0"])
    journal.close()


class Broken(MemoryJournal):
    """One whose disk is full, until somebody makes room."""

    tries = 0
    room = False

    async def write(self, record: Begun | Ended) -> None:
        self.tries += 1
        if not self.room:
            raise JournalError("no space left")
        await super().write(record)


async def test_a_journal_that_cannot_be_written_keeps_no_run_from_its_hooks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, journal = Watchable(), Broken()
    async with operated(journal, cluster) as node:
        cluster.add(with_hooks("one", "1"))
        await until(node, lambda: cluster.all(AGENT_RUN)[0].get("status", {}).get("phase") == "Succeeded")
        # Also when nothing changes any more.
        before = journal.tries
        await until(node, lambda: journal.tries > before + 1)
        journal.room = True
        await until(node, lambda: ended(journal) == ["one-1"])
    assert journal.records("one-1") == records_of(cluster.all(AGENT_RUN)[0])
    assert "runs cannot be recorded, trying again: no space left" in caplog.text
    assert caplog.text.count("no space left") == 1


def command(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return forks.run(words, env={**os.environ, "HOOKLINE_HOME": str(folder)})


async def test_the_journal_shows_a_run_on_a_cluster_and_says_where_it_goes_on(tmp_path: Path) -> None:
    made = both()
    states = watched(made)
    await made.to_the_end()
    running = next(state for state in states if state.get("status", {}).get("phase") == "Running")
    await written(tmp_path, [running])
    assert re.search(r"r-run1 .*on kubernetes", command(tmp_path, "runs").stdout)
    shown = command(tmp_path, "runs", "r").stdout
    assert "start  b" in shown
    assert "`hookline runs r --on kubernetes --namespace team` fetches the rest" in " ".join(
        shown.split("\n")
    )
    refused = command(tmp_path, "approve", "r")
    assert refused.returncode == 2
    assert "r --on kubernetes --namespace team" in " ".join(refused.stderr.split())
    await written(tmp_path, [states[-1]])
    shown = command(tmp_path, "runs", "r").stdout
    assert "fetches the rest" not in shown
    assert "phase  Succeeded" in shown
