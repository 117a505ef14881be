"""The state of containers, read from their pod, and of the Job or Sandbox of the pod.

Objects in, values out. Messages of the kubelet and the scheduler are passed on unchanged. A pod runs its hooks one after
another by itself; this module handles the limit of each container, a deleted pod, and one that never starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from hookline.engine.plain import parse_time
from hookline.kube.objects import Fields, is_ending, is_owned, items, mapping, phase_of, within

NO_POD = 60.0
"""Seconds for the cluster to create the pod of a Job."""
NODE_LOST = 60.0
"""Seconds after which a deleted pod that is still there counts as lost with its node."""
_QUIET = 40.0
"""Seconds in which a pod that does not start yet is not reported."""
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_AT_ONCE = ("InvalidImageName", "ErrImageNeverPull")
"""Reasons that do not pass by waiting."""
_MINUTE = 45.0
_LONG = 600.0
_SOON = 10.0


class ContainerPhase(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class EndReason(StrEnum):
    """Why something ended.

    `settled`: a gate hook was ended because its verdict was in. `overfull`: it wrote too much.
    """

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    NOT_STARTED = "not_started"
    KILLED = "killed"
    SETTLED = "settled"
    OVERFULL = "overfull"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """State of one container. `tail` are its last lines of output; `detail` explains the reason."""

    state: ContainerPhase = ContainerPhase.WAITING
    exit_code: int | None = None
    reason: EndReason = EndReason.EXITED
    detail: str = ""
    started: datetime | None = None
    seconds: float | None = None
    tail: str = ""

    @property
    def succeeded(self) -> bool:
        exited_well = self.reason is EndReason.EXITED and self.exit_code == 0
        return self.state is ContainerPhase.ENDED and (exited_well or self.reason is EndReason.SETTLED)

    @property
    def failed(self) -> bool:
        return self.state is ContainerPhase.ENDED and not self.succeeded


class Trouble(NamedTuple):
    """Why a pod does not start. `container` is empty if the whole pod waits; `patience` is how long we wait, in seconds.

    It is reported after `quiet` seconds, counted from `since`, or from when it was first seen.
    """

    reason: str
    message: str
    container: str = ""
    patience: float = _MINUTE
    quiet: float = 0.0
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A Job or Sandbox of ours. `pod` is the uid of its pod, once seen. One that is `over` needs no more attention; of one
    that is `ended`, running containers have to be removed."""

    name: str
    uid: str
    positions: tuple[int, ...] = ()
    pod: str = ""
    over: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Why a workload makes no progress, and since when."""

    reason: str
    message: str
    at: datetime
    container: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One container in the order of its pod, with its limit and its last known state."""

    container: str
    seen: ContainerState
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadState:
    """The state of a workload and its containers; `wake` is when to check again at the latest."""

    made: Workload
    slots: tuple[Slot, ...]
    pod: Fields | None = None
    waiting: Stall | None = None
    why: str = ""
    """Why it is over, if that does not show in its containers."""
    wake: datetime | None = None

    @property
    def seen(self) -> tuple[ContainerState, ...]:
        return tuple(slot.seen for slot in self.slots)


def container_state(pod: Fields, name: str) -> ContainerState:
    """The state of one container of a pod; it has ended only when the kubelet reports that."""
    state = within(status_of(pod, name), "state")
    ended, running = mapping(state.get("terminated")), mapping(state.get("running"))
    if ended:
        return _end_state(pod, name, ended)
    if running:
        return ContainerState(state=ContainerPhase.RUNNING, started=parse_time(running.get("startedAt")))
    return ContainerState()


def status_of(pod: Fields, container: str) -> Fields:
    """The kubelet's status of a container; empty before there is one."""
    return next((each for each in statuses_of(pod) if each.get("name") == container), mapping(None))


def statuses_of(pod: Fields) -> list[Fields]:
    """The kubelet's status of each container, init containers first."""
    status = within(pod, "status")
    return [*items(status.get("initContainerStatuses")), *items(status.get("containerStatuses"))]


def trouble(pod: Fields) -> Trouble | None:
    """The reason that a pod does not start, if there is one."""
    if unscheduled := _condition(pod, "PodScheduled", "False"):
        reason = str(unscheduled.get("reason") or "Unschedulable")
        said = str(unscheduled.get("message") or "no node can take it")
        at = unscheduled.get("lastTransitionTime")
        # A claim that is just being bound is not reported.
        since = parse_time(at) if isinstance(at, str) else None
        return Trouble(reason, said, patience=_LONG, quiet=_SOON if since else 0.0, since=since)
    for status in statuses_of(pod):
        waiting = within(status, "state", "waiting")
        reason, name = str(waiting.get("reason") or ""), str(status.get("name"))
        said = str(waiting.get("message") or "")
        if reason in _IMAGE:
            patience = 0.0 if reason in _AT_ONCE else _MINUTE
            message = f"the image {_image(pod, name)!r} cannot be pulled: {said or reason}"
            return Trouble("ImageNotPulled", message, name, patience)
        if reason.startswith("Create") and reason.endswith("Error"):
            return Trouble(reason, said or reason, name)
    return None


def any_running(pod: Fields) -> bool:
    if has_ended(pod):
        return False
    return any(within(status, "state").get("running") is not None for status in statuses_of(pod))


def has_ended(pod: Fields) -> bool:
    return phase_of(pod) in ("Failed", "Succeeded")


def is_over(job: Fields) -> bool:
    """True if a Job has ended, successfully or not."""
    return bool(_condition(job, "Complete", "True") or _condition(job, "Failed", "True"))


def job_failure(job: Fields) -> str:
    """Why a Job failed, as the cluster reports it; empty if it did not."""
    failed = _condition(job, "Failed", "True")
    return f"{failed.get('reason')}: {failed.get('message')}" if failed else ""


def evicted(pod: Fields) -> str:
    """Why a pod was evicted, as the cluster reports it; the state of its containers may never be reported again."""
    status = within(pod, "status")
    if status.get("phase") != "Failed" or not status.get("reason"):
        return ""
    return f"{status['reason']}: {status.get('message') or 'its pod was evicted'}"


def pod_of(made: Workload, pods: Sequence[Fields]) -> Fields | None:
    """The pod of a Job: the one that was seen first. A replacement would start again, and is ignored."""
    own = [pod for pod in pods if is_owned(pod, made.uid)]
    if made.pod:
        return next((pod for pod in own if pod["metadata"]["uid"] == made.pod), None)
    return min(own, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)


def follow(
    made: Workload,
    whole: Fields | None,
    pods: Sequence[Fields],
    slots: Sequence[Slot],
    *,
    now: datetime,
    stop: tuple[EndReason, str] | None = None,
    before: Stall | None = None,
) -> WorkloadState:
    """The next state. `whole` is the Job or Sandbox, None if it is gone; `stop` ends running containers for a reason."""
    pod = pod_of(made, pods)
    if pod is not None:
        # The cluster would replace a deleted pod by another one, which starts again.
        made = replace(made, pod=pod["metadata"]["uid"], ended=made.ended or is_ending(pod))
    state = WorkloadState(made=made, slots=tuple(_looked(slot, pod) for slot in slots), pod=pod)
    if stop is not None:
        return _ended(state, *stop, alive=True, now=now)
    all_ended = all(seen.state is ContainerPhase.ENDED for seen in state.seen)
    if all_ended or any(seen.failed for seen in state.seen):
        return replace(state, made=replace(made, over=True))
    gone = _gone(state, whole, now)
    if gone is not None:
        return _ended(state, *gone, alive=whole is not None, now=now)
    for index, slot in enumerate(state.slots):
        limit = _limit(slot)
        if limit is not None and limit <= now:
            late = replace(slot.seen, reason=EndReason.TIMED_OUT, seconds=slot.timeout)
            return _cut_short(state, index, late)
    return _waited(state, whole, now, before)


def _looked(slot: Slot, pod: Fields | None) -> Slot:
    if slot.seen.state is ContainerPhase.ENDED or pod is None:
        return slot
    now = container_state(pod, slot.container)
    # A container that ran does not wait again, whatever a broken pod reports.
    return slot if now.state is ContainerPhase.WAITING else replace(slot, seen=now)


def _limit(slot: Slot) -> datetime | None:
    if slot.seen.state is not ContainerPhase.RUNNING or slot.seen.started is None or slot.timeout is None:
        return None
    return slot.seen.started + timedelta(seconds=slot.timeout)


def _gone(state: WorkloadState, whole: Fields | None, now: datetime) -> tuple[EndReason, str] | None:
    """The reason why a workload is over, or None."""
    made, pod = state.made, state.pod
    if whole is None and not made.ended:
        return EndReason.KILLED, "it was deleted before it ended"
    failure = job_failure(whole) if whole is not None else ""
    if failure.startswith("DeadlineExceeded"):
        return EndReason.TIMED_OUT, failure
    if pod is None:
        if made.pod or whole is None or is_over(whole):
            return EndReason.KILLED, f"its pod was deleted{f' ({failure})' if failure else ''}"
        return None
    until = lost_at(pod)
    if until is not None:
        # Its containers are being ended; their end is reported before the pod is gone, or by that.
        return (
            (EndReason.KILLED, "its pod was deleted, and its node does not answer") if until <= now else None
        )
    if has_ended(pod):
        as_phase = f"its pod ended as {phase_of(pod)}{f': {failure}' if failure else ''}"
        return EndReason.KILLED, evicted(pod) or as_phase
    return None


def lost_at(pod: Fields | None) -> datetime | None:
    """The time from which a deleted pod counts as lost with its node."""
    ending = pod["metadata"].get("deletionTimestamp") if pod is not None else None
    return parse_time(ending) + timedelta(seconds=NODE_LOST) if ending else None


def _ended(
    state: WorkloadState, reason: EndReason, detail: str, *, alive: bool, now: datetime
) -> WorkloadState:
    """Ends the running containers for that reason; those that have not started stay as they are."""
    slots: list[Slot] = []
    for slot in state.slots:
        seen = slot.seen
        if seen.state is ContainerPhase.RUNNING:
            seconds = round((now - seen.started).total_seconds(), 3) if seen.started else None
            seen = replace(seen, state=ContainerPhase.ENDED, reason=reason, detail=detail, seconds=seconds)
        slots.append(replace(slot, seen=seen))
    made = replace(state.made, over=True, ended=alive)
    return replace(state, made=made, slots=tuple(slots), why=detail)


def _cut_short(state: WorkloadState, index: int, seen: ContainerState, why: str = "") -> WorkloadState:
    """Ends the workload because of one container; the others have to be removed."""
    slots = list(state.slots)
    slots[index] = replace(slots[index], seen=replace(seen, state=ContainerPhase.ENDED))
    return replace(state, made=replace(state.made, over=True, ended=True), slots=tuple(slots), why=why)


def _waited(state: WorkloadState, whole: Fields | None, now: datetime, before: Stall | None) -> WorkloadState:
    """A workload without an ended container. A stall is reported, and later its container counts as not started."""
    found = _trouble(whole, state)
    limits = [limit for limit in (lost_at(state.pod), *map(_limit, state.slots)) if limit is not None]
    if found is None:
        return replace(state, wake=min(limits, default=None))
    same = before is not None and (before.reason, before.container) == (found.reason, found.container)
    at = found.since or (before.at if same and before is not None else now)
    told, until = at + timedelta(seconds=found.quiet), at + timedelta(seconds=found.patience)
    if now < until:
        stall = Stall(reason=found.reason, message=found.message, at=at, container=found.container)
        wake = min([*limits, until, *([told] if told > now else [])])
        return replace(state, waiting=stall if told <= now else None, wake=wake)
    index = next((n for n, slot in enumerate(state.slots) if slot.container == found.container), None)
    if index is None:
        index = next(n for n, seen in enumerate(state.seen) if seen.state is not ContainerPhase.ENDED)
    never = ContainerState(reason=EndReason.NOT_STARTED, detail=found.message)
    return _cut_short(state, index, never, found.message)


def _trouble(whole: Fields | None, state: WorkloadState) -> Trouble | None:
    pod = state.pod
    if pod is None:
        since = parse_time(whole["metadata"]["creationTimestamp"]) if whole else None
        said = "the cluster has created no pod for it"
        return Trouble("NoPod", said, patience=NO_POD, quiet=_QUIET, since=since)
    found = trouble(pod)
    if found is not None or any(seen.state is ContainerPhase.RUNNING for seen in state.seen):
        return found
    ends = [
        seen.started + timedelta(seconds=seen.seconds)
        for seen in state.seen
        if seen.started is not None and seen.seconds is not None
    ]
    since = max([parse_time(pod["metadata"]["creationTimestamp"]), *ends])
    said = "its next container does not start; `kubectl describe pod` shows what it waits for"
    return Trouble("NotStarting", said, patience=_LONG, quiet=_QUIET, since=since)


def _end_state(pod: Fields, name: str, ended: Fields) -> ContainerState:
    code, why, said = ended.get("exitCode"), ended.get("reason"), str(ended.get("message") or "").strip()
    began, end = ended.get("startedAt"), ended.get("finishedAt")
    started = parse_time(began) if began else None
    seconds = (parse_time(end) - started).total_seconds() if started and end else None
    reason, detail = EndReason.EXITED, ""
    if why == "OOMKilled":
        reason, detail = EndReason.KILLED, "OOMKilled: it passed its memory limit"
    elif why in ("StartError", "ContainerCannotRun"):
        reason, detail = EndReason.NOT_STARTED, said or why
    elif evicted(pod) and not _passed(pod, name):
        reason, detail = EndReason.KILLED, evicted(pod)
    elif is_ending(pod) and code in (137, 143):
        reason, detail = EndReason.KILLED, "its pod was deleted"
    elif why == "ContainerStatusUnknown":
        reason, detail = EndReason.KILLED, said or why
    return ContainerState(
        state=ContainerPhase.ENDED,
        exit_code=code if isinstance(code, int) and reason is not EndReason.NOT_STARTED else None,
        reason=reason,
        detail=detail,
        started=started,
        seconds=seconds,
        tail=said,
    )


def _passed(pod: Fields, name: str) -> bool:
    """True if a later container has begun, so that this one ended by itself."""
    statuses = statuses_of(pod)
    later = statuses[statuses.index(status_of(pod, name)) + 1 :]
    return any(within(each, "state").keys() & {"running", "terminated"} for each in later)


def _condition(obj: Fields, type: str, status: str) -> Fields:
    """The condition of that type, if it has that status; else empty."""
    conditions = items(within(obj, "status").get("conditions"))
    found = (each for each in conditions if (each.get("type"), each.get("status")) == (type, status))
    return next(found, mapping(None))


def _image(pod: Fields, name: str) -> str:
    spec = within(pod, "spec")
    both = [*items(spec.get("initContainers")), *items(spec.get("containers"))]
    return next((str(each.get("image")) for each in both if each.get("name") == name), "")
