"""What a run shows of itself."""

from dataclasses import replace

import pytest

from hookline.kube.pod_state import ContainerPhase, ContainerState, EndReason, Stall, Workload
from hookline.sympozium.cluster.observation import Record, World, frozen_of, spec_of
from hookline.sympozium.cluster.plan import notes_of, plan, shown
from hookline.sympozium.phases import AgentSeen, GateVerdict, Seen
from tests.kube.memory_cluster import START
from tests.sympozium.cluster.world import SETTINGS, agent_run, hook

FROZEN = frozen_of(agent_run(lifecycle={"preRun": [hook("a")], "postRun": [hook("c"), hook("d")]}), None)
SPEC = spec_of(FROZEN)
EMPTY = Record(frozen=FROZEN)
GOOD = ContainerState(state=ContainerPhase.ENDED, exit_code=0, started=START, seconds=1)
BAD = ContainerState(state=ContainerPhase.ENDED, exit_code=3, started=START, seconds=2, tail="no bucket")
ANSWER = AgentSeen(state=ContainerPhase.ENDED, exit_code=0, result="yes", started=START, seconds=4)
DONE = replace(EMPTY, seen=Seen(pre_run=(GOOD,), agent=ANSWER, post_run=(BAD, GOOD)))


@pytest.mark.statement("SZ35", "SZ36")
@pytest.mark.rule("sympozium 1.12", "sympozium C1", "sympozium 1.17.8", "sympozium B15")
def test_the_status_tells_of_every_hook_and_one_condition_names_those_that_failed() -> None:
    made = (Workload(name="r-postrun", uid="1"), Workload(name="r-postrun-2", uid="2"))
    told = shown(SPEC, replace(DONE, agent=Workload(name="r", uid="0"), post=made))
    assert (told["phase"], told["result"], told["exitCode"]) == ("Succeeded", "yes", 0)
    assert (told["jobName"], told["postRunJobName"]) == ("r", "r-postrun-2")
    assert told["hooks"][1] == {
        "name": "c",
        "stage": "postRun",
        "state": "failed",
        "exitCode": 3,
        "reason": "exited",
        "message": "failed: exit code 3",
        "startedAt": "2026-01-01T00:00:00Z",
        "seconds": 2,
        "tail": "no bucket",
    }
    (condition,) = told["conditions"]
    assert (condition["type"], condition["reason"]) == ("PostRunFailed", "PostRunJobFailed")
    assert condition["message"] == "postRun hooks failed: 'c' failed: exit code 3"


def test_what_it_waits_for_what_was_lost_and_what_was_cut_are_conditions_of_their_own() -> None:
    since = Stall(reason="ImageNotPulled", message="no such image", at=START)
    told = shown(SPEC, replace(DONE, waiting=since, lost=START, cut=10**6))
    found = {each["type"]: each for each in told["conditions"]}
    assert list(found) == ["PostRunFailed", "Waiting", "WorkspaceLost", "ResultCut"]
    assert found["Waiting"]["reason"] == "ImageNotPulled"
    assert found["ResultCut"]["message"] == "the answer has 1000000 bytes, of which the first 3 are kept"
    times = [each["lastTransitionTime"] for each in found.values()]
    assert times == ["2026-01-01T00:00:02Z", *["2026-01-01T00:00:00Z"] * 3]
    assert "conditions" not in shown(SPEC, EMPTY)


def test_a_run_in_which_nothing_began_says_when_it_ended_all_the_same() -> None:
    never = ContainerState(
        state=ContainerPhase.ENDED, reason=EndReason.NOT_STARTED, detail="nothing was begun"
    )
    stopped = replace(EMPTY, seen=Seen(stopped="no rights", post_run=(never, never)), closed=START)
    told = shown(SPEC, stopped)
    assert (told["phase"], told["error"], told["completedAt"]) == (
        "Failed",
        "no rights",
        "2026-01-01T00:00:00Z",
    )
    refused = plan(World(run=agent_run(mode="server"), now=START, settings=SETTINGS)).status
    assert refused == {
        "phase": "Failed",
        "error": "mode: server is not supported here; only runs with mode: task have hooks",
        "completedAt": "2026-01-01T00:00:00Z",
    }


@pytest.mark.rule("sympozium X3", "sympozium 1.14")
def test_an_answer_that_waits_at_a_gate_is_shown_by_its_digest_only() -> None:
    frozen = frozen_of(agent_run(lifecycle={"postRun": [hook("ask", gate=True)]}), None)
    spec = spec_of(frozen)
    waiting = Record(frozen=frozen, seen=Seen(agent=ANSWER))
    told = shown(spec, waiting)
    assert "result" not in told
    assert len(told["gateDigest"]) == 64
    said = GateVerdict(action="reject", by="ada")
    through = replace(waiting, seen=Seen(agent=ANSWER, post_run=(GOOD,), verdict=said))
    told = shown(spec, through)
    assert (told["gateVerdict"], told["gateBy"], told["result"]) == (
        "rejected",
        "ada",
        "Response blocked by policy",
    )
    assert "gateDigest" not in told
    notes = {each.reason: each.message for each in notes_of(spec, waiting, through)}
    assert notes["GateVerdict"] == "reject by ada"


@pytest.mark.rule("sympozium C1")
def test_events_tell_what_has_changed_and_nothing_twice() -> None:
    notes = notes_of(SPEC, EMPTY, DONE)
    assert [(each.kind, each.reason, each.message) for each in notes] == [
        ("Normal", "HookSucceeded", "preRun hook a succeeded after 1 s"),
        ("Warning", "HookFailed", "postRun hook c failed: exit code 3 after 2 s"),
        ("Normal", "HookSucceeded", "postRun hook d succeeded after 1 s"),
        ("Normal", "Succeeded", "the run is Succeeded"),
    ]
    assert notes_of(SPEC, DONE, DONE) == ()


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (EndReason.TIMED_OUT, "passed its limit of 300 s"),
        (EndReason.NOT_STARTED, "could not start"),
        (EndReason.KILLED, "was ended from outside"),
    ],
)
def test_an_event_says_how_a_hook_failed(reason: EndReason, words: str) -> None:
    seen = Seen(pre_run=(ContainerState(state=ContainerPhase.ENDED, reason=reason, detail="because"),))
    (note, ended) = notes_of(SPEC, EMPTY, replace(EMPTY, seen=seen))
    assert note.message == f"preRun hook a failed: {words} (because)"
    assert (ended.kind, ended.reason) == ("Warning", "PostRunning")
