"""What a pod tells of its containers."""

from typing import Any

import pytest

from hookline.kube.pod_state import (
    ContainerPhase,
    EndReason,
    any_running,
    container_state,
    evicted,
    is_over,
    job_failure,
    trouble,
)

TIMES = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:04Z"}


def pod(*states: dict[str, Any], deleted: bool = False, **status: Any) -> dict[str, Any]:
    """A pod whose containers are called a, b, c."""
    listed = [{"name": name, "state": state} for name, state in zip("abc", states, strict=False)]
    head = {"deletionTimestamp": "2026-01-01T00:01:00Z"} if deleted else {}
    spec = {"initContainers": [{"name": name, "image": f"image-{name}"} for name in "abc"]}
    return {"metadata": head, "spec": spec, "status": {"initContainerStatuses": listed, **status}}


def ended(code: int = 0, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, **TIMES, **more}}


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
WAITING = {"waiting": {"reason": "PodInitializing"}}
PUT_AWAY = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}

SEEN = {
    "well": (pod(ended()), ContainerPhase.ENDED, 0, EndReason.EXITED, ""),
    "badly": (pod(ended(3)), ContainerPhase.ENDED, 3, EndReason.EXITED, ""),
    "for its memory": (
        pod(ended(137, reason="OOMKilled")),
        ContainerPhase.ENDED,
        137,
        EndReason.KILLED,
        "OOMKilled: it passed its memory limit",
    ),
    "not begun": (
        pod(ended(128, reason="StartError", message="no such file: /x")),
        ContainerPhase.ENDED,
        None,
        EndReason.NOT_STARTED,
        "no such file: /x",
    ),
    "with its pod": (
        pod(ended(137), deleted=True),
        ContainerPhase.ENDED,
        137,
        EndReason.KILLED,
        "its pod was deleted",
    ),
    "well in a pod that goes": (pod(ended(), deleted=True), ContainerPhase.ENDED, 0, EndReason.EXITED, ""),
    "put away": (
        pod(ended(137), **PUT_AWAY),
        ContainerPhase.ENDED,
        137,
        EndReason.KILLED,
        "Evicted: low on memory",
    ),
    "well before its pod was removed": (
        pod(ended(), ended(137), **PUT_AWAY),
        ContainerPhase.ENDED,
        0,
        EndReason.EXITED,
        "",
    ),
    "unknown": (
        pod(ended(137, reason="ContainerStatusUnknown")),
        ContainerPhase.ENDED,
        137,
        EndReason.KILLED,
        "ContainerStatusUnknown",
    ),
    "running": (pod(RUNNING), ContainerPhase.RUNNING, None, EndReason.EXITED, ""),
    "waiting": (pod(WAITING), ContainerPhase.WAITING, None, EndReason.EXITED, ""),
    "never told of": (pod(), ContainerPhase.WAITING, None, EndReason.EXITED, ""),
    "of a pod without a status": ({"metadata": {}}, ContainerPhase.WAITING, None, EndReason.EXITED, ""),
}


@pytest.mark.rule("sympozium 2.1", "sympozium C1")
@pytest.mark.parametrize("name", SEEN)
def test_how_a_container_ended_is_told_as_what_it_is(name: str) -> None:
    given, state, code, reason, detail = SEEN[name]
    seen = container_state(given, "a")
    assert (seen.state, seen.exit_code, seen.reason, seen.detail) == (state, code, reason, detail)
    if state is ContainerPhase.ENDED:
        assert seen.seconds == 4


def test_what_had_not_begun_when_its_pod_was_put_away_is_still_waiting() -> None:
    assert container_state(pod(ended(137), **PUT_AWAY), "b").state is ContainerPhase.WAITING
    assert evicted(pod(**PUT_AWAY)) == "Evicted: low on memory"
    assert evicted(pod(phase="Failed")) == ""


def test_nothing_runs_in_a_pod_that_has_ended_whatever_it_says_of_its_containers() -> None:
    assert any_running(pod(ended(), RUNNING))
    assert not any_running(pod(RUNNING, **PUT_AWAY))
    assert not any_running(pod(WAITING))


def waits(reason: str, message: str = "said") -> dict[str, Any]:
    return pod(ended(), {"waiting": {"reason": reason, "message": message}})


TROUBLES = {
    "ErrImagePull": ("ImageNotPulled", "b", 45),
    "ImagePullBackOff": ("ImageNotPulled", "b", 45),
    "InvalidImageName": ("ImageNotPulled", "b", 0),
    "ErrImageNeverPull": ("ImageNotPulled", "b", 0),
    "CreateContainerConfigError": ("CreateContainerConfigError", "b", 45),
    "CreateContainerError": ("CreateContainerError", "b", 45),
}


@pytest.mark.rule("sympozium 2.1")
@pytest.mark.parametrize("reason", TROUBLES)
def test_what_keeps_a_container_from_starting_has_its_name_and_our_patience(reason: str) -> None:
    found = trouble(waits(reason))
    assert found is not None
    assert (found.reason, found.container, found.patience) == TROUBLES[reason]
    assert "said" in found.message
    assert ("'image-b'" in found.message) == (found.reason == "ImageNotPulled")


def test_a_pod_without_a_place_is_waited_for_longer() -> None:
    no = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    found = trouble(pod(conditions=[no]))
    assert found is not None
    assert (found.reason, found.message, found.container, found.patience) == (
        "Unschedulable",
        "0/1 nodes",
        "",
        600,
    )
    assert trouble(pod(WAITING, conditions=[{**no, "status": "True"}])) is None


@pytest.mark.parametrize(
    ("conditions", "over", "why"),
    [
        ([], False, ""),
        ([{"type": "Complete", "status": "True"}], True, ""),
        ([{"type": "Failed", "status": "False"}], False, ""),
        (
            [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "m"}],
            True,
            "DeadlineExceeded: m",
        ),
    ],
)
def test_a_job_tells_whether_it_is_over_and_why(conditions: list[Any], over: bool, why: str) -> None:
    job = {"status": {"conditions": conditions}}
    assert (is_over(job), job_failure(job)) == (over, why)
