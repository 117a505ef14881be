"""The status of a run, its conditions, and the events that `kubectl describe` lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from hookline.kube.pod_state import ContainerPhase, ContainerState, Reason
from hookline.sympozium.cluster import objects
from hookline.sympozium.cluster.state import Record
from hookline.sympozium.lifecycle import ContainerHook
from hookline.sympozium.phases import Phase, Stage, digest, error, gated, phase, status
from hookline.sympozium.types import RunSpec
from hookline.times import utc_text

_ENDED = {
    Reason.TIMED_OUT: "passed its limit",
    Reason.NOT_STARTED: "could not start",
    Reason.KILLED: "was ended from outside",
    Reason.SETTLED: "was ended when the verdict was in",
}


class Note(NamedTuple):
    """One event: `Normal` or `Warning`, a word, and a sentence."""

    kind: str
    reason: str
    message: str


def shown(spec: RunSpec, record: Record) -> dict[str, Any]:
    """The status of a run, whole."""
    seen, lifecycle = record.seen, spec.hooks
    told = status(lifecycle, seen)
    name = objects.names(spec.name)
    sandboxed = bool(spec.sandbox and spec.sandbox.enabled)
    waits = lifecycle.gate is not None and seen.agent.succeeded and gated(lifecycle, seen) is None
    more: dict[str, Any] = {
        # Of a run in which nothing began no container says when it ended.
        "completedAt": told.get("completedAt") or (utc_text(record.closed) if record.closed else None),
        "jobName": record.agent.name if record.agent and not sandboxed else None,
        "sandboxName": name.sandbox if record.agent and sandboxed else None,
        "postRunJobName": record.post[-1].name if record.post else None,
        "gateDigest": digest(seen.agent.result) if waits else None,
        "gateBy": seen.verdict.by if seen.verdict and seen.verdict.by else None,
        "conditions": [*told.get("conditions", ()), *_conditions(record)] or None,
    }
    return {**told, **{key: value for key, value in more.items() if value is not None}}


def failed_status(why: str, now: datetime) -> dict[str, Any]:
    """The status of a run that could not begin."""
    return {"phase": str(Phase.FAILED), "error": why, "completedAt": utc_text(now)}


def notes_of(spec: RunSpec, before: Record, after: Record) -> tuple[Note, ...]:
    """The events for the changes between two records."""
    return tuple(_notes(spec, before, after))


def _notes(spec: RunSpec, before: Record, after: Record) -> Iterator[Note]:
    lifecycle = spec.hooks
    stages = (
        (Stage.PRE_RUN, lifecycle.pre_run, before.seen.pre_run, after.seen.pre_run),
        (Stage.POST_RUN, lifecycle.post_run, before.seen.post_run, after.seen.post_run),
    )
    for stage, hooks, known, seen in stages:
        yield from _hook_notes(stage, hooks, known, seen)
    if after.waiting and (before.waiting is None or before.waiting.reason != after.waiting.reason):
        yield Note("Warning", after.waiting.reason, after.waiting.message)
    if after.lost and not before.lost:
        yield Note("Warning", "WorkspaceLost", _LOST)
    if after.seen.verdict and not before.seen.verdict:
        by = after.seen.verdict.by or "somebody who may change the AgentRun"
        yield Note("Normal", "GateVerdict", f"{after.seen.verdict.action} by {by}")
    if after.void and after.void != before.void:
        yield Note("Warning", "VerdictTooEarly", _TOO_EARLY)
    was, now = phase(lifecycle, before.seen), phase(lifecycle, after.seen)
    if now is not was:
        why = error(lifecycle, after.seen)
        yield Note("Warning" if why else "Normal", str(now), why or f"the run is {now}")


def _hook_notes(
    stage: Stage,
    hooks: Sequence[ContainerHook],
    known: Sequence[ContainerState],
    seen: Sequence[ContainerState],
) -> Iterator[Note]:
    for index, (hook, now) in enumerate(zip(hooks, seen, strict=False)):
        was = known[index].state if index < len(known) else ContainerPhase.WAITING
        if now.state is not ContainerPhase.ENDED or was is ContainerPhase.ENDED:
            continue
        took = f" after {now.seconds:g} s" if now.seconds is not None else ""
        if now.succeeded:
            yield Note("Normal", "HookSucceeded", f"{stage} hook {hook.name} succeeded{took}")
        else:
            how = _ENDED.get(now.reason, f"exited with {now.exit_code}")
            detail = f": {now.detail}" if now.detail else ""
            yield Note("Warning", "HookFailed", f"{stage} hook {hook.name} {how}{took}{detail}")


_TOO_EARLY = "the gate's verdict stood there before there was an answer, so it holds for none; take it away and give it again"
_LOST = "the workspace was removed from outside; the hooks that are left have an empty one"


def _conditions(record: Record) -> Iterator[dict[str, Any]]:
    if record.waiting is not None:
        yield condition("Waiting", record.waiting.reason, record.waiting.message, record.waiting.at)
    if record.lost is not None:
        yield condition("WorkspaceLost", "ClaimDeleted", _LOST, record.lost)
    if record.cut and record.seen.agent.started is not None:
        kept = len(record.seen.agent.result.encode("utf-8", "replace"))
        said = f"the answer has {record.cut} bytes, of which the first {kept} are kept"
        yield condition("ResultCut", "TooLong", said, record.seen.agent.started)


def condition(kind: str, reason: str, message: str, at: datetime) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": utc_text(at),
    }
