"""How the containers of one Job fare, of what is there and what was known."""

from datetime import timedelta
from typing import Any

import pytest

from hookline.kube.pod_state import (
    ContainerPhase,
    ContainerState,
    EndReason,
    Slot,
    Workload,
    WorkloadState,
    follow,
    pod_of,
)
from tests.kube.memory_cluster import START, written
from tests.kube.test_pod_state import RUNNING, WAITING, ended, pod

MADE = Workload(name="r", uid="job-1")
JOB = {"metadata": {"uid": "job-1", "creationTimestamp": written(START)}}
OWNER = {"ownerReferences": [{"uid": "job-1"}], "creationTimestamp": written(START)}


def of_job(given: dict[str, Any], uid: str = "pod-1", **head: Any) -> dict[str, Any]:
    given["metadata"] |= {"uid": uid, "name": uid, **OWNER, **head}
    return given


def followed(
    *pods: dict[str, Any], seconds: float = 1, made: Workload = MADE, job: Any = JOB, **more: Any
) -> WorkloadState:
    slots = [Slot(container=name, seen=ContainerState(), timeout=300) for name in "ab"]
    return follow(made, job, pods, slots, now=START + timedelta(seconds=seconds), **more)


def states(found: WorkloadState) -> list[str]:
    return [
        str(each.reason) if each.state is ContainerPhase.ENDED else str(each.state) for each in found.seen
    ]


@pytest.mark.rule("sympozium B3")
def test_a_container_past_its_limit_is_timed_out_and_has_to_go() -> None:
    found = followed(of_job(pod(ended(), RUNNING)), seconds=299)
    assert (states(found), found.made.over) == (["exited", "running"], False)
    assert found.wake == START + timedelta(seconds=300)
    found = followed(of_job(pod(ended(), RUNNING)), seconds=300)
    assert states(found) == ["exited", "timed_out"]
    assert found.made.over
    assert found.made.ended


def test_a_container_that_failed_ends_the_pod_by_itself() -> None:
    found = followed(of_job(pod(ended(2), WAITING)))
    assert states(found) == ["exited", "waiting"]
    assert found.made.over
    assert not found.made.ended


@pytest.mark.rule("sympozium 2.2")
def test_a_pod_in_the_place_of_another_does_not_count() -> None:
    first = of_job(pod(ended(1)), "pod-1")
    second = of_job(pod(RUNNING), "pod-2", creationTimestamp=written(START + timedelta(seconds=9)))
    assert pod_of(MADE, [second, first]) is first
    known = Workload(name="r", uid="job-1", pod="pod-1")
    assert pod_of(known, [second]) is None
    found = followed(second, made=known)
    assert found.why == "its pod was deleted"
    assert found.made.ended
    assert states(found) == ["waiting", "waiting"]


@pytest.mark.rule("sympozium 2.2", "sympozium B7")
def test_a_job_that_is_gone_ends_what_ran_and_leaves_what_had_not_begun() -> None:
    found = followed(of_job(pod(RUNNING, WAITING)), job=None)
    assert states(found) == ["killed", "waiting"]
    assert found.made.over
    assert found.seen[0].detail == "it was deleted before it ended"


def test_a_pod_that_is_being_deleted_is_followed_to_its_end_and_its_job_goes_at_once() -> None:
    going = of_job(pod(RUNNING, WAITING), deletionTimestamp=written(START + timedelta(seconds=10)))
    found = followed(going)
    assert (states(found), found.made.over, found.made.ended) == (["running", "waiting"], False, True)
    assert found.wake == START + timedelta(seconds=70)
    still = followed(going, made=found.made, job=None)
    assert not still.made.over
    lost = followed(going, made=found.made, job=None, seconds=70)
    assert states(lost) == ["killed", "waiting"]
    assert "does not answer" in lost.seen[0].detail
    assert states(followed(made=found.made, job=None)) == ["waiting", "waiting"]


def test_a_pod_that_was_put_away_ends_what_was_known_to_run() -> None:
    slots = [
        Slot(container="a", seen=ContainerState(state=ContainerPhase.RUNNING, started=START)),
        Slot(container="b", seen=ContainerState()),
    ]
    gone = of_job(pod(phase="Failed", reason="Evicted", message="low on memory"))
    found = follow(MADE, JOB, [gone], slots, now=START)
    assert states(found) == ["killed", "waiting"]
    assert found.why == "Evicted: low on memory"


def test_a_job_past_the_clusters_own_limit_is_timed_out() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
    found = followed(of_job(pod(RUNNING)), job={**JOB, "status": {"conditions": [failed]}})
    assert found.seen[0].reason is EndReason.TIMED_OUT


def test_who_asks_for_an_end_gets_it_for_that_reason() -> None:
    found = followed(of_job(pod(ended(), RUNNING)), stop=(EndReason.SETTLED, ""))
    assert states(found) == ["exited", "settled"]
    assert found.made.ended


@pytest.mark.parametrize(
    ("seconds", "told", "over"), [(1, False, False), (41, True, False), (601, True, True)]
)
def test_a_pod_that_does_not_start_is_told_after_a_while_and_given_up_later(
    seconds: float, told: bool, over: bool
) -> None:
    found = followed(of_job(pod(WAITING)), seconds=seconds)
    assert (found.waiting is not None or over, found.made.over) == (told, over)
    assert over or found.wake is not None


def test_a_trouble_is_counted_from_when_it_was_first_seen_also_after_a_restart() -> None:
    stuck = of_job(pod({"waiting": {"reason": "ErrImagePull", "message": "no route"}}))
    first = followed(stuck, seconds=10)
    assert first.waiting is not None
    assert first.wake == START + timedelta(seconds=55)
    backing_off = of_job(pod({"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}))
    then = followed(backing_off, seconds=54, before=first.waiting)
    assert not then.made.over
    assert then.waiting is not None
    assert then.waiting.at == first.waiting.at
    last = followed(stuck, seconds=55, before=then.waiting)
    assert states(last) == ["not_started", "waiting"]
