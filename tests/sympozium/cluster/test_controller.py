"""Of a run that is over or gone the operator keeps nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from hookline.kube.objects import AGENT_RUN, JOB, SECRET, Kind
from hookline.sympozium.cluster.controller import AgentRunController
from tests.kube.memory_cluster import Node, Object, Play, PretendCluster, copied
from tests.sympozium.cluster.world import ENDS, NAMESPACE, SETTINGS, agent_run, answered, hook

HOOKS = {
    "preRun": [hook("a", env=[{"name": "API_TOKEN", "value": "very-secret"}])],
    "postRun": [hook("c"), hook("d", timeout="24h")],
    "rbac": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
}


class Watchable(PretendCluster):
    """The cluster in memory with its history, so that it can be listed and watched."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[int, str, Object]] = []

    async def list(self, kind: Kind, *_: Any) -> tuple[list[Object], str]:
        return copied(self.all(kind)), str(self.version)

    async def watch(
        self, kind: Kind, namespace: str | None, labels: Any, resource_version: str
    ) -> AsyncIterator[tuple[str, Object]]:
        at = 0
        while True:
            for number, word, obj in self.history[at:]:
                if number > int(resource_version) and obj["kind"] == kind.kind:
                    yield word, copied(obj)
                at += 1
            await asyncio.sleep(0.005)

    def _changed(self, have: Object) -> None:
        super()._changed(have)
        head = have["metadata"]
        here = self.objects.get((have["kind"], head["namespace"], head["name"])) is have
        self.history.append((self.version, "MODIFIED" if here else "DELETED", copied(have)))


class Ground:
    """An operator at work in a cluster in memory, whose clock is the real one."""

    def __init__(self, **settings: Any) -> None:
        self.cluster = Watchable()
        quick = {name: Play(seconds=0, says="hello") for name in ("pre-a", "post-c", "post-d", "prepare")}
        self.node = Node(
            cluster=self.cluster, plays={**quick, "agent": Play(seconds=0, says=answered("yes"))}
        )
        self.operator = AgentRunController(self.cluster, replace(SETTINGS, **settings))  # type: ignore[arg-type]

    def add(self, name: str, uid: str, **spec: Any) -> None:
        self.cluster.add(agent_run(name, uid, **spec))

    def run(self, name: str) -> Object | None:
        return self.cluster.objects.get((AGENT_RUN.kind, NAMESPACE, name))

    def delete(self, name: str) -> None:
        run = self.run(name)
        assert run is not None
        self.cluster.remove(run)

    def kept(self) -> dict[str, Any]:
        """All that it remembers besides its copies of what is there."""
        holders = (self.operator, self.operator._applier)
        every = [pair for holder in holders for pair in vars(holder).items()]
        return {
            name: value
            for name, value in every
            if isinstance(value, dict | set) and value and name != "_stores"
        }

    def over(self) -> bool:
        return all(
            run.get("status", {}).get("phase") in ENDS and not run["metadata"].get("finalizers")
            for run in self.cluster.all(AGENT_RUN)
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        ends = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < ends, (self.kept(), self.cluster.all(AGENT_RUN))
            self.cluster.now = datetime.now(UTC)
            self.node.beat()
            await asyncio.sleep(0.002)


@asynccontextmanager
async def ground(**settings: Any) -> AsyncIterator[Ground]:
    made = Ground(**settings)
    working = asyncio.create_task(made.operator.run())
    try:
        await made.until(made.operator.ready.is_set)
        yield made
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


async def forgotten(made: Ground) -> None:
    await made.until(lambda: not made.kept() and not made.cluster.left())


async def test_of_runs_that_have_ended_nothing_is_kept() -> None:
    async with ground() as made:
        for number in range(5):
            made.add(f"r{number}", f"run-{number}", lifecycle=HOOKS)
        made.add("wrong", "run-wrong", mode="server")
        await made.until(lambda: bool(made.kept().get("_masks")) and "_records" in made.kept())
        await made.until(made.over)
        await forgotten(made)


@pytest.mark.rule("sympozium 1.17.22")
@pytest.mark.parametrize("spec", [{"mode": "server"}, {"lifecycle": HOOKS}], ids=["never begun", "ended"])
async def test_only_so_many_ended_runs_are_kept_and_one_at_work_always(spec: dict[str, Any]) -> None:
    async with ground(max_run_history=2) as made:
        made.node.plays["pre-waits"] = Play(seconds=None)
        made.add("at-work", "run-0", lifecycle={"preRun": [hook("waits")]})
        await made.until(lambda: "pre-waits" in made.node.ran)
        for number in range(1, 6):
            made.add(f"r{number}", f"run-{number}", **spec)
        names = {"r4", "r5"}
        ended = [f"r{number}" for number in range(1, 6)]
        await made.until(lambda: {name for name in ended if made.run(name)} == names)
        assert made.run("at-work") is not None


@pytest.mark.parametrize("sort", ["no hooks", "hooks", "no instance"])
async def test_of_runs_that_are_deleted_before_they_have_ended_nothing_is_kept(sort: str) -> None:
    spec = {"no hooks": {}, "hooks": {"lifecycle": HOOKS}, "no instance": {"agentRef": "nobody"}}[sort]
    async with ground() as made:
        made.node.asleep = True
        for number in range(3):
            made.add(f"r{number}", f"run-{number}", **spec)
        await made.until(lambda: len(made.kept().get("_timers", ())) == 3)
        for number in range(3):
            made.delete(f"r{number}")
        made.node.asleep = False
        await made.until(lambda: made.cluster.all(AGENT_RUN) == [])
        await forgotten(made)


async def test_a_hook_that_waits_for_a_day_leaves_no_timer_behind_when_it_is_removed() -> None:
    async with ground() as made:
        made.node.plays["post-d"] = Play(seconds=None)
        made.add("r", "run-1", lifecycle=HOOKS)
        await made.until(lambda: "post-d" in made.node.ran and "_timers" in made.kept())
        made.node.plays["post-d"] = Play(seconds=0)
        for job in made.cluster.all(JOB):
            made.cluster.remove(job)
        await made.until(made.over)
        await forgotten(made)


async def test_another_run_of_the_same_name_starts_with_nothing_of_the_first() -> None:
    async with ground() as made:
        made.node.asleep = True
        made.add("r", "run-1", lifecycle=HOOKS)
        await made.until(lambda: "run-1" in made.kept().get("_records", ()))
        # Somebody takes our mark off by hand, and the run goes without us.
        run = made.run("r")
        assert run is not None
        run["metadata"]["finalizers"] = []
        made.delete("r")
        made.add("r", "run-2", lifecycle=HOOKS)
        await made.until(lambda: list(made.kept().get("_records", ())) == ["run-2"])
        made.node.asleep = False
        await made.until(made.over)
        await forgotten(made)


async def test_a_record_that_somebody_removed_is_written_again() -> None:
    async with ground() as made:
        made.node.plays["agent"] = Play(seconds=None, says=answered("yes"))
        made.add("r", "run-1", lifecycle=HOOKS)
        await made.until(lambda: "agent" in made.node.ran)
        for secret in made.cluster.all(SECRET):
            made.cluster.remove(secret)
        made.node.plays["agent"] = Play(seconds=0)
        await made.until(made.over)
        run = made.run("r")
        assert run is not None
        assert run["status"]["phase"] == "Succeeded"
        assert [each["state"] for each in run["status"]["hooks"]] == ["succeeded"] * 3
        await forgotten(made)
