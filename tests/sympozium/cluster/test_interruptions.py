"""Whatever is broken off or taken away, and whenever: the run comes to its end, no hook is lost, nothing is left."""

from datetime import timedelta
from typing import Any

import pytest

from hookline.kube.objects import CLAIM, JOB, POD, SANDBOX, Kind, Unreachable
from tests.kube.memory_cluster import START, Crash, PretendCluster
from tests.sympozium.cluster.scenes import SCENES, both
from tests.sympozium.cluster.world import ENDS, Scene

# Hundreds of runs in one test, on a machine that may have much else to do.
# Thousands of whole runs: crash rounds, though they need no cluster.
pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

OURS = ("create", "patch", "delete")
# What a restart may cost.
SLACK = timedelta(seconds=5)


def ending(scene: Scene) -> dict[str, Any]:
    """All that must be the same, however a run came there."""
    status = scene.status
    told = ("phase", "result", "error", "exitCode", "gateVerdict", "gateBy", "completedAt")
    return {
        **{key: status.get(key) for key in told},
        "hooks": [
            (each["name"], each["state"], each.get("reason"), each.get("exitCode"), each.get("tail"))
            for each in status["hooks"]
        ],
        "conditions": sorted((each["type"], each["message"]) for each in status.get("conditions", ())),
        "ran": scene.ran,
        "left": scene.cluster.left(),
        "phases": scene.cluster.phases,
    }


async def undisturbed(name: str) -> tuple[Scene, list[int]]:
    """How it goes by itself, and the numbers of the changes that the operator made."""
    scene = SCENES[name]()
    ours: list[int] = []
    seen = 0

    def noticed(number: int) -> None:
        nonlocal seen
        calls = scene.cluster.calls
        if len(calls) > seen and calls[-1].startswith(OURS):
            ours.append(number)
        seen = len(calls)

    scene.cluster.interrupt = noticed
    await scene.to_the_end()
    return scene, ours


@pytest.mark.rule("sympozium 2.2", "sympozium 1.17.20", "sympozium B9")
@pytest.mark.parametrize("name", SCENES)
async def test_an_operator_that_dies_after_any_step_goes_on_as_if_it_had_not(name: str) -> None:
    whole, ours = await undisturbed(name)
    assert whole.cluster.left() == []
    for number in ours:
        scene = SCENES[name]()

        def dies(now: int, number: int = number) -> None:
            if now == number:
                raise Crash

        scene.cluster.interrupt = dies
        await scene.to_the_end()
        assert scene.crashes == 2, "it did not die"
        assert ending(scene) == ending(whole), f"after step {number}: {scene.cluster.calls}"
        assert scene.cluster.now - START <= whole.cluster.now - START + SLACK, f"late after step {number}"


@pytest.mark.rule("sympozium 2.2")
@pytest.mark.parametrize("name", SCENES)
async def test_an_operator_that_forgets_everything_between_two_looks_ends_the_same(name: str) -> None:
    whole, _ = await undisturbed(name)
    scene = SCENES[name]()
    scene.forgetful = True
    await scene.to_the_end()
    assert ending(scene) == ending(whole)


@pytest.mark.rule("sympozium 2.2")
@pytest.mark.parametrize("name", ["the second hook after hangs", "in a sandbox"])
async def test_an_answer_that_is_lost_on_its_way_changes_nothing(name: str) -> None:
    whole, ours = await undisturbed(name)
    for number in ours:
        scene = SCENES[name]()

        def lost(now: int, number: int = number) -> None:
            if now == number:
                raise Unreachable("no answer within 30 s")

        scene.cluster.interrupt = lost
        await scene.to_the_end()
        got, wanted = ending(scene), ending(whole)
        assert {**got, "completedAt": None} == {**wanted, "completedAt": None}, f"at step {number}"


async def ended_without(name: str, kind: Kind, number: int) -> Scene | None:
    """The run, where somebody removed all of a kind after that change; None where there was nothing to remove."""
    scene = SCENES[name]()
    hit: list[bool] = []

    def removes(now: int) -> None:
        if now == number:
            hit.append(bool(scene.cluster.all(kind)))
            scene.delete_all(kind)

    scene.cluster.interrupt = removes
    await scene.to_the_end()
    return scene if hit == [True] else None


def is_sound(scene: Scene, number: int) -> None:
    """Every hook after the run was through or is told as not, none was through twice, and nothing is left."""
    hooks = [each for each in scene.status["hooks"] if each["stage"] == "postRun"]
    for each in hooks:
        through = scene.node.through.count(f"post-{each['name']}")
        assert through <= 1, f"{each['name']} was through twice after step {number}"
        assert each["state"] in ("succeeded", "failed"), (number, each)
        assert through == 1 or each["state"] == "failed" or each["name"] == "ask", (number, each)
        assert each.get("reason") != "not_started", (number, each)
    assert scene.status["phase"] in ENDS
    assert scene.node.through.count("agent") <= 1
    assert (scene.status["phase"] == "Succeeded") == (scene.status.get("result") is not None)
    assert scene.status["phase"] == "Succeeded" or scene.status["error"], number
    assert "completedAt" in scene.status
    assert scene.cluster.left() == [], number


@pytest.mark.rule("sympozium 2.2", "sympozium 2.3", "sympozium B5", "sympozium B7", "sympozium B9")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("hooks before and after", JOB),
        ("hooks before and after", POD),
        ("hooks before and after", CLAIM),
        ("a gate that approves and waits on", JOB),
        ("a gate that approves and waits on", POD),
        ("in a sandbox", POD),
        ("in a sandbox", SANDBOX),
    ],
)
async def test_what_is_removed_by_hand_at_any_step_costs_no_hook_after_the_run(name: str, kind: Kind) -> None:
    whole, _ = await undisturbed(name)
    tried = 0
    for number in range(2, whole.cluster.version + 1):
        scene = await ended_without(name, kind, number)
        if scene is not None:
            tried += 1
            is_sound(scene, number)
            if kind is CLAIM:
                assert (scene.status["phase"] == "Succeeded") == ("agent" in scene.ran), number
    assert tried > 5


@pytest.mark.rule("sympozium 2.1", "sympozium 1.13", "sympozium B5", "sympozium 1.17.12")
@pytest.mark.parametrize(
    "name", ["hooks before and after", "a gate that says nothing", "in a sandbox", "no hooks"]
)
async def test_a_run_deleted_at_any_step_has_its_hooks_run_and_then_goes(name: str) -> None:
    whole, _ = await undisturbed(name)
    for number in range(2, whole.cluster.version + 1):
        scene = SCENES[name]()

        def deleted(now: int, number: int = number, scene: Scene = scene) -> None:
            if now == number:
                scene.delete_run()

        scene.cluster.interrupt = deleted
        await scene.to_the_end()
        begun = any(call.startswith(("create Job", "create Sandbox")) for call in scene.cluster.calls)
        # The gate is not needed: nobody waits for the answer that it would hold.
        ran, after = (
            [each for each in known.ran if each.startswith("post-") and each != "post-ask"]
            for known in (scene, whole)
        )
        assert scene.now is None or scene.status["phase"] in ENDS
        assert ran == (after if begun else []), number
        assert scene.cluster.left() == [], number


async def test_hooks_whose_pod_somebody_always_removes_are_given_up_and_told() -> None:
    scene = both()

    def removes(number: int) -> None:
        if any(name.startswith("Job/r-postrun") for name in scene.cluster.made[-1:]):
            for job in [job for job in scene.cluster.all(JOB) if "postrun" in job["metadata"]["name"]]:
                scene.cluster.made.append("gone")
                scene.cluster.remove(job)

    scene.cluster.interrupt = removes
    await scene.to_the_end()
    assert scene.status["phase"] == "Succeeded"
    assert "3 times" in scene.conditions["PostRunFailed"]["message"]
    assert scene.cluster.left() == []


def test_the_cluster_in_memory_takes_the_calls_that_the_real_one_takes() -> None:
    from inspect import signature

    from hookline.kube.client import Cluster

    for name in ("get", "create", "patch", "delete"):
        assert list(signature(getattr(Cluster, name)).parameters) == list(
            signature(getattr(PretendCluster, name)).parameters
        )
