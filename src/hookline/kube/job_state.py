"""The state of the containers of one Job or Sandbox, from the objects that are there and the state known before.

A pod runs its hooks one after another by itself. The rest is done here: the limit of each container, a pod that was
deleted, one that never starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from hookline.kube.fields import is_owned
from hookline.kube.pod_state import (
    ContainerPhase,
    ContainerState,
    Reason,
    Trouble,
    container_state,
    evicted,
    is_over,
    job_failure,
    trouble,
)
from hookline.times import parse_time

Object = Mapping[str, Any]

NO_POD = 60.0
"""Seconds for the cluster to make a pod of a Job."""
NODE_LOST = 60.0
"""Seconds after which a pod that was ended and does not go is taken for gone with its node."""
_STUCK = 600.0
_QUIET = 40.0
"""Seconds for which a pod that is being made is nothing to speak of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A Job or Sandbox that we made. `pod` is the uid of its pod, once seen; nothing more is expected of one that is
    `over`, and whatever still runs of one that is `ended` has to go."""

    name: str
    uid: str
    positions: tuple[int, ...] = ()
    pod: str = ""
    over: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Why a workload does not get on, and since when."""

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
    """The state of a workload and its containers; `wake` is when to look again at the latest."""

    made: Workload
    slots: tuple[Slot, ...]
    pod: Object | None = None
    waiting: Stall | None = None
    why: str = ""
    """Why it is over, where its containers do not say so."""
    wake: datetime | None = None

    @property
    def seen(self) -> tuple[ContainerState, ...]:
        return tuple(slot.seen for slot in self.slots)


def pod_of(made: Workload, pods: Sequence[Object]) -> Object | None:
    """The pod of a Job: the one that was seen first. Another in its place would begin anew, and does not count."""
    own = [pod for pod in pods if is_owned(pod, made.uid)]
    if made.pod:
        return next((pod for pod in own if pod["metadata"]["uid"] == made.pod), None)
    return min(own, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)


def follow(
    made: Workload,
    whole: Object | None,
    pods: Sequence[Object],
    slots: Sequence[Slot],
    *,
    now: datetime,
    stop: tuple[Reason, str] | None = None,
    before: Stall | None = None,
) -> WorkloadState:
    """`whole` is the Job or Sandbox, None where it is gone; with `stop` what still runs is ended for that reason."""
    pod = pod_of(made, pods)
    if pod is not None:
        # One that is being deleted: the cluster would put another in its place, which begins anew.
        ending = bool(pod["metadata"].get("deletionTimestamp"))
        made = replace(made, pod=pod["metadata"]["uid"], ended=made.ended or ending)
    known = [_looked(slot, pod) for slot in slots]
    if stop is not None:
        return _ended(made, known, pod, *stop, alive=True, now=now)
    if all(slot.seen.state is ContainerPhase.ENDED for slot in known) or any(
        slot.seen.failed for slot in known
    ):
        return WorkloadState(made=replace(made, over=True), slots=tuple(known), pod=pod)
    gone = _gone(made, whole, pod, now)
    if gone is not None:
        return _ended(made, known, pod, *gone, alive=whole is not None, now=now)
    for index, slot in enumerate(known):
        limit = _limit(slot)
        if limit is not None and limit <= now:
            late = replace(
                slot.seen, state=ContainerPhase.ENDED, reason=Reason.TIMED_OUT, seconds=slot.timeout
            )
            known[index] = replace(slot, seen=late)
            return WorkloadState(made=replace(made, over=True, ended=True), slots=tuple(known), pod=pod)
    return _waited(made, whole, pod, known, now, before)


def _looked(slot: Slot, pod: Object | None) -> Slot:
    if slot.seen.state is ContainerPhase.ENDED or pod is None:
        return slot
    now = container_state(pod, slot.container)
    # What ran once does not wait again, whatever a pod in trouble says of itself.
    return slot if now.state is ContainerPhase.WAITING else replace(slot, seen=now)


def _limit(slot: Slot) -> datetime | None:
    if slot.seen.state is not ContainerPhase.RUNNING or slot.seen.started is None or slot.timeout is None:
        return None
    return slot.seen.started + timedelta(seconds=slot.timeout)


def _gone(
    made: Workload, whole: Object | None, pod: Object | None, now: datetime
) -> tuple[Reason, str] | None:
    """The reason that a workload is over, where it is."""
    if whole is None and not made.ended:
        return Reason.KILLED, "it was deleted from outside before it had ended"
    failure = job_failure(whole) if whole is not None else ""
    if failure.startswith("DeadlineExceeded"):
        return Reason.TIMED_OUT, failure
    if pod is None:
        if made.pod or whole is None or is_over(whole):
            return Reason.KILLED, f"its pod was deleted{f' ({failure})' if failure else ''}"
        return None
    until = lost_at(pod)
    if until is not None:
        # Its containers are being ended; how they end is told before it goes, or by its going.
        return (Reason.KILLED, "its pod was deleted, and its node does not answer") if until <= now else None
    phase = pod.get("status", {}).get("phase")
    if phase in ("Failed", "Succeeded"):
        return Reason.KILLED, evicted(pod) or f"its pod ended as {phase}{f': {failure}' if failure else ''}"
    return None


def lost_at(pod: Object | None) -> datetime | None:
    """The moment from which a pod that was deleted counts as gone with its node."""
    ending = pod["metadata"].get("deletionTimestamp") if pod is not None else None
    return parse_time(ending) + timedelta(seconds=NODE_LOST) if ending else None


def _ended(
    made: Workload,
    slots: list[Slot],
    pod: Object | None,
    reason: Reason,
    detail: str,
    *,
    alive: bool,
    now: datetime,
) -> WorkloadState:
    """Ends the containers that ran, for that reason; those that had not begun stay as they are."""
    known: list[Slot] = []
    for slot in slots:
        seen = slot.seen
        if seen.state is ContainerPhase.RUNNING:
            seconds = round((now - seen.started).total_seconds(), 3) if seen.started else None
            seen = replace(seen, state=ContainerPhase.ENDED, reason=reason, detail=detail, seconds=seconds)
        known.append(replace(slot, seen=seen))
    return WorkloadState(made=replace(made, over=True, ended=alive), slots=tuple(known), pod=pod, why=detail)


def _waited(
    made: Workload,
    whole: Object | None,
    pod: Object | None,
    slots: list[Slot],
    now: datetime,
    before: Stall | None,
) -> WorkloadState:
    """A workload of which nothing has ended. A stall is reported, and after a while the container counts as not started."""
    found = _trouble(whole, pod, slots)
    limits = [limit for limit in (lost_at(pod), *map(_limit, slots)) if limit is not None]
    if found is None:
        return WorkloadState(made=made, slots=tuple(slots), pod=pod, wake=min(limits, default=None))
    same = before is not None and (before.reason, before.container) == (found.reason, found.container)
    at = found.since or (before.at if same and before is not None else now)
    told, until = at + timedelta(seconds=found.quiet), at + timedelta(seconds=found.patience)
    waiting = Stall(reason=found.reason, message=found.message, at=at, container=found.container)
    if now < until:
        return WorkloadState(
            made=made,
            slots=tuple(slots),
            pod=pod,
            waiting=waiting if told <= now else None,
            wake=min([*limits, until, *([told] if told > now else [])]),
        )
    index = next((n for n, slot in enumerate(slots) if slot.container == found.container), None)
    if index is None:
        index = next(n for n, slot in enumerate(slots) if slot.seen.state is not ContainerPhase.ENDED)
    never = ContainerState(state=ContainerPhase.ENDED, reason=Reason.NOT_STARTED, detail=found.message)
    slots[index] = replace(slots[index], seen=never)
    over = replace(made, over=True, ended=True)
    return WorkloadState(made=over, slots=tuple(slots), pod=pod, why=found.message)


def _trouble(whole: Object | None, pod: Object | None, slots: list[Slot]) -> Trouble | None:
    if pod is None:
        since = parse_time(whole["metadata"]["creationTimestamp"]) if whole else None
        said = "the cluster has made no pod of it"
        return Trouble("NoPod", said, patience=NO_POD, quiet=_QUIET, since=since)
    found = trouble(pod)
    if found is not None or any(slot.seen.state is ContainerPhase.RUNNING for slot in slots):
        return found
    ends = [
        slot.seen.started + timedelta(seconds=slot.seen.seconds)
        for slot in slots
        if slot.seen.started is not None and slot.seen.seconds is not None
    ]
    since = max([parse_time(pod["metadata"]["creationTimestamp"]), *ends])
    said = "its next container does not start; `kubectl describe pod` tells what it waits for"
    return Trouble("NotStarting", said, patience=_STUCK, quiet=_QUIET, since=since)
