"""How the containers of one Job or Sandbox fare, of what is there now and what was known before.

A pod runs its hooks one after another by itself. What it cannot do is looked after here: the limit of each container,
a pod that was deleted, one that never starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from hookline.kube.fields import owners
from hookline.kube.pod_state import (
    HookSeen,
    Reason,
    State,
    Trouble,
    container_seen,
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
class Made:
    """A Job or Sandbox of the run's. `pod` is the uid of the pod that was seen of it; nothing is expected of one `over`,
    and what still runs of one `ended` has to go."""

    name: str
    uid: str
    positions: tuple[int, ...] = ()
    pod: str = ""
    over: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """Something that holds since then: what keeps a pod from starting, say."""

    reason: str
    message: str
    at: datetime
    container: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One container in the order of its pod, its limit, and what was last known of it."""

    container: str
    seen: HookSeen
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """How they fare now; `wake` is when to look again at the latest."""

    made: Made
    slots: tuple[Slot, ...]
    pod: Object | None = None
    waiting: Since | None = None
    why: str = ""
    """Why it is over, where its containers do not say so."""
    wake: datetime | None = None

    @property
    def seen(self) -> tuple[HookSeen, ...]:
        return tuple(slot.seen for slot in self.slots)


def pod_of(made: Made, pods: Sequence[Object]) -> Object | None:
    """The pod of a Job: the one that was seen first. Another in its place would begin anew, and does not count."""
    own = [pod for pod in pods if any(owner.get("uid") == made.uid for owner in owners(pod))]
    if made.pod:
        return next((pod for pod in own if pod["metadata"]["uid"] == made.pod), None)
    return min(own, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)


def follow(
    made: Made,
    whole: Object | None,
    pods: Sequence[Object],
    slots: Sequence[Slot],
    *,
    now: datetime,
    stop: tuple[Reason, str] | None = None,
    before: Since | None = None,
) -> Followed:
    """`whole` is the Job or Sandbox, None where it is gone; with `stop` what still runs is ended for that reason."""
    pod = pod_of(made, pods)
    if pod is not None:
        # One that is being deleted: the cluster would put another in its place, which begins anew.
        ending = bool(pod["metadata"].get("deletionTimestamp"))
        made = replace(made, pod=pod["metadata"]["uid"], ended=made.ended or ending)
    known = [_looked(slot, pod) for slot in slots]
    if stop is not None:
        return _ended(made, known, pod, *stop, alive=True, now=now)
    if all(slot.seen.state is State.ENDED for slot in known) or any(slot.seen.failed for slot in known):
        return Followed(made=replace(made, over=True), slots=tuple(known), pod=pod)
    gone = _gone(made, whole, pod, now)
    if gone is not None:
        return _ended(made, known, pod, *gone, alive=whole is not None, now=now)
    for index, slot in enumerate(known):
        limit = _limit(slot)
        if limit is not None and limit <= now:
            late = replace(slot.seen, state=State.ENDED, reason=Reason.TIMED_OUT, seconds=slot.timeout)
            known[index] = replace(slot, seen=late)
            return Followed(made=replace(made, over=True, ended=True), slots=tuple(known), pod=pod)
    return _waited(made, whole, pod, known, now, before)


def _looked(slot: Slot, pod: Object | None) -> Slot:
    if slot.seen.state is State.ENDED or pod is None:
        return slot
    now = container_seen(pod, slot.container)
    # What ran once does not wait again, whatever a pod in trouble says of itself.
    return slot if now.state is State.WAITING else replace(slot, seen=now)


def _limit(slot: Slot) -> datetime | None:
    if slot.seen.state is not State.RUNNING or slot.seen.started is None or slot.timeout is None:
        return None
    return slot.seen.started + timedelta(seconds=slot.timeout)


def _gone(made: Made, whole: Object | None, pod: Object | None, now: datetime) -> tuple[Reason, str] | None:
    """Why nothing more will come of it, where that is so."""
    if whole is None and not made.ended:
        return Reason.KILLED, "it was deleted from outside before it had ended"
    failure = job_failure(whole) if whole is not None else ""
    if failure.startswith("DeadlineExceeded"):
        return Reason.TIMED_OUT, failure
    if pod is None:
        if made.pod or whole is None or is_over(whole):
            return Reason.KILLED, f"its pod was deleted{f' ({failure})' if failure else ''}"
        return None
    until = _lost_at(pod)
    if until is not None:
        # Its containers are being ended; how they end is told before it goes, or by its going.
        return (Reason.KILLED, "its pod was deleted, and its node does not answer") if until <= now else None
    phase = pod.get("status", {}).get("phase")
    if phase in ("Failed", "Succeeded"):
        return Reason.KILLED, evicted(pod) or f"its pod ended as {phase}{f': {failure}' if failure else ''}"
    return None


def _lost_at(pod: Object | None) -> datetime | None:
    """When a pod that was ended should be gone by all means."""
    ending = pod["metadata"].get("deletionTimestamp") if pod is not None else None
    return parse_time(ending) + timedelta(seconds=NODE_LOST) if ending else None


def _ended(
    made: Made,
    slots: list[Slot],
    pod: Object | None,
    reason: Reason,
    detail: str,
    *,
    alive: bool,
    now: datetime,
) -> Followed:
    """What ran is ended for that reason; what had not begun waits on."""
    known: list[Slot] = []
    for slot in slots:
        seen = slot.seen
        if seen.state is State.RUNNING:
            seconds = round((now - seen.started).total_seconds(), 3) if seen.started else None
            seen = replace(seen, state=State.ENDED, reason=reason, detail=detail, seconds=seconds)
        known.append(replace(slot, seen=seen))
    return Followed(made=replace(made, over=True, ended=alive), slots=tuple(known), pod=pod, why=detail)


def _waited(
    made: Made,
    whole: Object | None,
    pod: Object | None,
    slots: list[Slot],
    now: datetime,
    before: Since | None,
) -> Followed:
    """Nothing has ended. Where it does not get on, that is told, and after a while the container counts as not started."""
    found = _trouble(whole, pod, slots)
    limits = [limit for limit in (_lost_at(pod), *map(_limit, slots)) if limit is not None]
    if found is None:
        return Followed(made=made, slots=tuple(slots), pod=pod, wake=min(limits, default=None))
    same = before is not None and (before.reason, before.container) == (found.reason, found.container)
    at = found.since or (before.at if same and before is not None else now)
    told, until = at + timedelta(seconds=found.quiet), at + timedelta(seconds=found.patience)
    waiting = Since(reason=found.reason, message=found.message, at=at, container=found.container)
    if now < until:
        return Followed(
            made=made,
            slots=tuple(slots),
            pod=pod,
            waiting=waiting if told <= now else None,
            wake=min([*limits, until, *([told] if told > now else [])]),
        )
    index = next((n for n, slot in enumerate(slots) if slot.container == found.container), None)
    if index is None:
        index = next(n for n, slot in enumerate(slots) if slot.seen.state is not State.ENDED)
    never = HookSeen(state=State.ENDED, reason=Reason.NOT_STARTED, detail=found.message)
    slots[index] = replace(slots[index], seen=never)
    over = replace(made, over=True, ended=True)
    return Followed(made=over, slots=tuple(slots), pod=pod, why=found.message)


def _trouble(whole: Object | None, pod: Object | None, slots: list[Slot]) -> Trouble | None:
    if pod is None:
        since = parse_time(whole["metadata"]["creationTimestamp"]) if whole else None
        said = "the cluster has made no pod of it"
        return Trouble("NoPod", said, patience=NO_POD, quiet=_QUIET, since=since)
    found = trouble(pod)
    if found is not None or any(slot.seen.state is State.RUNNING for slot in slots):
        return found
    ends = [
        slot.seen.started + timedelta(seconds=slot.seen.seconds)
        for slot in slots
        if slot.seen.started is not None and slot.seen.seconds is not None
    ]
    since = max([parse_time(pod["metadata"]["creationTimestamp"]), *ends])
    said = "its next container does not start; `kubectl describe pod` tells what it waits for"
    return Trouble("NotStarting", said, patience=_STUCK, quiet=_QUIET, since=since)
