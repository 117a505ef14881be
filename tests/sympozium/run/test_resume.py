"""What a killed process left is ended as it should be, wherever it was: each moment, one by one."""

import time
from dataclasses import asdict, replace
from datetime import UTC, datetime

import pytest

from hookline.engine.point import Scope, Status
from hookline.engine.record import Begun, Ended, Owner
from hookline.kube.pod_state import ContainerPhase, ContainerState, EndReason
from hookline.sympozium.phases import AgentSeen, Seen
from hookline.sympozium.resolve import declaration, keep_request, spec_of
from hookline.sympozium.run.hooks import SEEN
from hookline.sympozium.run.local import recovered
from tests.sympozium.run.conftest import hook, lifecycle

GONE = Owner("another boot", 1, "1")
NOW = datetime.now(UTC)
WELL = ContainerState(state=ContainerPhase.ENDED, exit_code=0, started=NOW, seconds=0.1)
AT_WORK = ContainerState(state=ContainerPhase.RUNNING, started=NOW)
ANSWERED = AgentSeen(state=ContainerPhase.ENDED, exit_code=0, result="the answer", started=NOW, seconds=1.0)
SAY = 'echo "$HOOKLINE_STATUS $AGENT_EXIT_CODE $AGENT_RESULT" >> $TRUTH/'
SPEC = lifecycle(
    [hook("one", "touch $TRUTH/one"), hook("two", "touch $TRUTH/two")],
    [hook("three", f"{SAY}three"), hook("four", f"{SAY}four")],
)


async def left_behind(ground, seen, *, skip=None, begun=True, spec=SPEC):
    """The folder and the record of a run whose process is gone."""
    asked = ground.asked(spec)
    folder = ground.site.home.make("victim")
    keep_request(folder, asked)
    made = replace(spec_of(asked), name="victim")
    folder.write(SEEN, asdict(Seen(**seen)))
    (folder.workspace / "file").touch()
    if skip is not None:
        (folder.ipc / "control/skip").write_text(skip)
    if begun:
        await ground.journal.write(
            Begun(
                "victim", "1", None, Scope.RUN, "oncall", time.time(), {}, {},
                declaration(made).to_dict(), "run.yaml", GONE,
            )
        )  # fmt: skip
    folder.let_go()
    return folder


LOST = "lost: the process that held this run is gone"
MOMENTS = {
    "before the first hook": ({}, None, "Failed", ("1", LOST)),
    "while preRun is at work": ({"pre_run": (WELL, AT_WORK)}, None, "Failed", ("1", "preRun hook 'two'")),
    "after preRun": ({"pre_run": (WELL, WELL)}, None, "Failed", ("1", LOST)),
    "after preRun, which said skip": ({"pre_run": (WELL, WELL)}, "no news", "Skipped", None),
    "when it was skipped": ({"pre_run": (WELL, WELL), "skip": "no news"}, "no news", "Skipped", None),
    "between two preRun hooks, one said skip": ({"pre_run": (WELL,)}, "no news", "Failed", ("1", LOST)),
    "while the agent is at work": (
        {"pre_run": (WELL, WELL), "agent": AgentSeen(state=ContainerPhase.RUNNING, started=NOW)},
        None,
        "Failed",
        ("1", LOST),
    ),
    "when the agent has answered": ({"pre_run": (WELL, WELL), "agent": ANSWERED}, None, "Succeeded", ("0", "the answer")),
    "when the agent has failed": (
        {"pre_run": (WELL, WELL), "agent": replace(ANSWERED, exit_code=7, result="", error="no luck")},
        None,
        "Failed",
        ("7", "no luck"),
    ),
}  # fmt: skip


@pytest.mark.rule("sympozium 2.2", "sympozium B5")
@pytest.mark.parametrize(("seen", "skip", "phase", "told"), MOMENTS.values(), ids=MOMENTS.keys())
async def test_a_run_that_broke_off_ends_as_it_should(ground, seen, skip, phase, told):
    await left_behind(ground, seen, skip=skip)
    (ran,) = await recovered(ground.site)
    assert (ran.run_id, ran.phase) == ("victim", phase)
    for name in ("three", "four"):
        said = ground.said(name)
        assert (not said) if told is None else (f" {told[0]} {told[1]}" in said)
    assert not (ground.truth / "one").exists(), "preRun is not run again"
    (ended,) = (each for each in ground.journal.records("victim") if isinstance(each, Ended))
    assert ended.output["phase"] == phase
    assert ground.journal.unfinished() == []
    assert await recovered(ground.site) == []


@pytest.mark.rule("sympozium B7")
async def test_a_post_run_hook_that_had_ended_is_not_run_again_and_one_that_ran_is(ground):
    seen = {"pre_run": (WELL, WELL), "agent": ANSWERED, "post_run": (WELL, AT_WORK)}
    await left_behind(ground, seen)
    (ran,) = await recovered(ground.site)
    assert ran.phase == "Succeeded"
    assert ground.said("three") == ""
    assert ground.said("four").count("the answer") == 1
    assert [each["state"] for each in ran.status["hooks"]] == ["succeeded"] * 4


async def test_what_had_failed_before_the_crash_is_still_told(ground):
    bad = ContainerState(
        state=ContainerPhase.ENDED,
        exit_code=3,
        reason=EndReason.EXITED,
        started=NOW,
        seconds=0.1,
        tail="oops",
    )
    await left_behind(ground, {"pre_run": (WELL, WELL), "agent": ANSWERED, "post_run": (bad,)})
    (ran,) = await recovered(ground.site)
    assert "'three'" in ran.status["conditions"][0]["message"]
    assert ran.status["hooks"][2]["tail"] == "oops"


async def test_folders_without_a_run_are_removed_and_no_hook_is_run(ground):
    await left_behind(ground, {}, begun=False)
    assert await recovered(ground.site) == []
    assert ground.left() == []
    assert ground.said("three") == ""


async def test_folders_of_a_run_that_has_ended_are_removed_and_no_hook_is_run(ground):
    await left_behind(ground, {})
    await ground.journal.write(Ended("victim", "1", Scope.RUN, time.time(), Status.OK, {}, None))
    assert await recovered(ground.site) == []
    assert ground.left() == []
    assert ground.said("three") == ""


async def test_a_run_whose_folders_are_gone_is_ended_on_the_record_and_that_is_told(ground):
    folder = await left_behind(ground, {})
    folder.hold()
    folder.remove()
    (ran,) = await recovered(ground.site)
    assert "its folders are gone" in ran.problem
    assert ground.journal.unfinished() == []


async def test_a_run_whose_manifest_cannot_be_read_stays_owed_and_that_is_told(ground):
    folder = await left_behind(ground, {})
    (folder.path / "manifest.yaml").write_text("kind: [")
    (ran,) = await recovered(ground.site)
    assert "manifest.yaml" in ran.problem or "run.yaml" in ran.problem
    assert [row.run_id for row in ground.journal.unfinished()] == ["victim"]
    folder.hold()
    folder.remove()


async def test_a_secret_that_is_gone_meanwhile_keeps_only_its_own_hook_from_running(ground):
    ref = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "token"}}}
    spec = lifecycle(after=[hook("three", "true", env=[ref]), hook("four", f"{SAY}four")])
    await left_behind(ground, {"agent": ANSWERED}, spec=spec)
    (ran,) = await recovered(ground.site)
    assert ran.phase == "Succeeded"
    assert "no Secret 'gone'" in ran.status["conditions"][0]["message"]
    assert "the answer" in ground.said("four")
