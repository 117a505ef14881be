"""The state of each container of a pod, and what keeps the pod from starting.

Pods in, values out. Messages of the kubelet and the scheduler are passed on in their own words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from hookline.kube.fields import items, mapping
from hookline.times import parse_time

Object = Mapping[str, Any]

_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_AT_ONCE = ("InvalidImageName", "ErrImageNeverPull")
"""Waiting does not help."""
_NONE: Object = {}
_MINUTE = 45.0
_LONG = 600.0
_SOON = 10.0


class ContainerPhase(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class Reason(StrEnum):
    """Why something ended.

    `settled`: a gate hook that was ended because its verdict was in. `overfull`: what it wrote was too much.
    """

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    NOT_STARTED = "not_started"
    KILLED = "killed"
    SETTLED = "settled"
    OVERFULL = "overfull"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """State of one container. `tail` are its last lines of output; `detail` says more about the reason."""

    state: ContainerPhase = ContainerPhase.WAITING
    exit_code: int | None = None
    reason: Reason = Reason.EXITED
    detail: str = ""
    started: datetime | None = None
    seconds: float | None = None
    tail: str = ""

    @property
    def succeeded(self) -> bool:
        exited_well = self.reason is Reason.EXITED and self.exit_code == 0
        return self.state is ContainerPhase.ENDED and (exited_well or self.reason is Reason.SETTLED)

    @property
    def failed(self) -> bool:
        return self.state is ContainerPhase.ENDED and not self.succeeded


class Trouble(NamedTuple):
    """Why a pod does not start. `container` is empty where the whole pod waits; we wait for `patience` seconds.

    It is shown after `quiet` seconds, counted from `since`, or from when it was first seen.
    """

    reason: str
    message: str
    container: str = ""
    patience: float = _MINUTE
    quiet: float = 0.0
    since: datetime | None = None


def container_state(pod: Object, name: str) -> ContainerState:
    """The state of one container of a pod; it has ended only when the kubelet says so."""
    state = mapping(_status(pod, name).get("state"))
    ended, running = mapping(state.get("terminated")), mapping(state.get("running"))
    if ended:
        return _ended(pod, name, ended)
    if running:
        return ContainerState(state=ContainerPhase.RUNNING, started=parse_time(running.get("startedAt")))
    return ContainerState()


def trouble(pod: Object) -> Trouble | None:
    """The reason that a pod does not start, if there is one."""
    for condition in items(mapping(pod.get("status")).get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            reason = str(condition.get("reason") or "Unschedulable")
            said = str(condition.get("message") or "no node takes it")
            at = condition.get("lastTransitionTime")
            # A claim that is just being bound is nothing to speak of.
            since = parse_time(at) if isinstance(at, str) else None
            return Trouble(reason, said, patience=_LONG, quiet=_SOON if since else 0.0, since=since)
    for status in _statuses(pod):
        waiting = mapping(mapping(status.get("state")).get("waiting"))
        reason, name = str(waiting.get("reason") or ""), str(status.get("name"))
        said = str(waiting.get("message") or "")
        if reason in _IMAGE:
            patience = 0.0 if reason in _AT_ONCE else _MINUTE
            message = f"the image {_image(pod, name)!r} cannot be had: {said or reason}"
            return Trouble("ImageNotPulled", message, name, patience)
        if reason.startswith("Create") and reason.endswith("Error"):
            return Trouble(reason, said or reason, name)
    return None


def any_running(pod: Object) -> bool:
    if mapping(pod.get("status")).get("phase") in ("Failed", "Succeeded"):
        return False
    return any(mapping(status.get("state")).get("running") is not None for status in _statuses(pod))


def is_over(job: Object) -> bool:
    """True if a Job has ended, successfully or not."""
    return any(
        each.get("type") in ("Complete", "Failed") and each.get("status") == "True"
        for each in items(mapping(job.get("status")).get("conditions"))
    )


def job_failure(job: Object) -> str:
    """Why a Job failed, in the cluster's words; empty where it did not."""
    for each in items(mapping(job.get("status")).get("conditions")):
        if each.get("type") == "Failed" and each.get("status") == "True":
            return f"{each.get('reason')}: {each.get('message')}"
    return ""


def evicted(pod: Object) -> str:
    """Why a pod was evicted, in the cluster's words; the state of its containers may never be reported again."""
    status = mapping(pod.get("status"))
    if status.get("phase") != "Failed" or not status.get("reason"):
        return ""
    return f"{status['reason']}: {status.get('message') or 'its pod was put away'}"


def _ended(pod: Object, name: str, ended: Object) -> ContainerState:
    code, why = ended.get("exitCode"), str(ended.get("reason") or "")
    began, end = ended.get("startedAt"), ended.get("finishedAt")
    started = parse_time(began) if began else None
    seconds = (parse_time(end) - started).total_seconds() if started and end else None
    reason, detail = Reason.EXITED, ""
    said = str(ended.get("message") or "").strip()
    if why == "OOMKilled":
        reason, detail = Reason.KILLED, "OOMKilled: it passed its memory limit"
    elif why in ("StartError", "ContainerCannotRun"):
        reason, detail = Reason.NOT_STARTED, said or why
    elif evicted(pod) and not _passed(pod, name):
        reason, detail = Reason.KILLED, evicted(pod)
    elif pod.get("metadata", {}).get("deletionTimestamp") and code in (137, 143):
        reason, detail = Reason.KILLED, "its pod was deleted"
    elif why == "ContainerStatusUnknown":
        reason, detail = Reason.KILLED, said or why
    return ContainerState(
        state=ContainerPhase.ENDED,
        exit_code=code if isinstance(code, int) and reason is not Reason.NOT_STARTED else None,
        reason=reason,
        detail=detail,
        started=started,
        seconds=seconds,
        tail=said,
    )


def _passed(pod: Object, name: str) -> bool:
    """True if a later container has begun, so that this one ended by itself."""
    names = [each.get("name") for each in _statuses(pod)]
    later = _statuses(pod)[names.index(name) + 1 :]
    return any(mapping(each.get("state")).keys() & {"running", "terminated"} for each in later)


def _status(pod: Object, name: str) -> Object:
    return next((each for each in _statuses(pod) if each.get("name") == name), _NONE)


def _statuses(pod: Object) -> list[Object]:
    status = mapping(pod.get("status"))
    return [*items(status.get("initContainerStatuses")), *items(status.get("containerStatuses"))]


def _image(pod: Object, name: str) -> str:
    spec = mapping(pod.get("spec"))
    both = [*items(spec.get("initContainers")), *items(spec.get("containers"))]
    return next((str(each.get("image")) for each in both if each.get("name") == name), "")
