"""The record that the operator keeps of one run, and the status and events that users see of it.

The record has the run's manifests when it began, the objects made for it, and their state. It is one Secret beside the
run, written before anything that cannot be observed again is removed; after a crash the operator goes on from there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, cast

from hookline.engine.plain import utc_text
from hookline.errors import FileError
from hookline.kube.objects import bare, phase_of, within
from hookline.kube.pod_state import ContainerPhase, ContainerState, Stall, Workload
from hookline.sympozium.cluster.objects import is_sandboxed
from hookline.sympozium.lifecycle import ContainerHook
from hookline.sympozium.phases import Phase, Seen, Stage, digest, error, failure, gated, phase, status
from hookline.sympozium.read import parse
from hookline.sympozium.resolve import run_of, with_provider
from hookline.sympozium.run.state import seen_again
from hookline.sympozium.types import RunSpec

_HEEDED = ("agentSandbox", "imagePullSecrets")
"""Keys that have no effect on a user's machine, and have one on a cluster."""
FROZEN, STATE = "run.json", "state.json"
_TOO_EARLY = "the gate's verdict stood there before there was an answer, so it holds for none; take it away and give it again"
_LOST = "the workspace was removed from outside; the hooks that are left have an empty one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`void` is a verdict that was given before there was an answer; `lost` is since when the workspace is another."""

    frozen: str
    seen: Seen = Seen()
    agent: Workload | None = None
    post: tuple[Workload, ...] = ()
    uids: Mapping[str, str] = field(default_factory=dict[str, str])
    waiting: Stall | None = None
    void: str = ""
    lost: datetime | None = None
    closed: datetime | None = None
    """When the run was first found to have ended."""
    cut: int = 0
    """Bytes of an answer that was too long to be kept whole."""


def has_ended(run: Mapping[str, Any]) -> bool:
    return phase_of(run) in (Phase.SUCCEEDED, Phase.FAILED, Phase.SKIPPED)


def agent_name(run: Mapping[str, Any]) -> str:
    """The Agent or SympoziumInstance that a run names."""
    spec = within(run, "spec")
    return str(spec.get("agentRef") or spec.get("instanceRef") or "")


def frozen_of(run: Mapping[str, Any], instance: Mapping[str, Any] | None) -> str:
    """The manifests as they are now; later changes of them are for other runs."""
    return json.dumps([bare(each) for each in (run, instance) if each is not None], ensure_ascii=False)


@lru_cache(maxsize=512)
def spec_of(frozen: str) -> RunSpec:
    """The run of frozen manifests, with all that it takes from its instance; a FileError lists their problems."""
    documents = cast("list[dict[str, Any]]", json.loads(frozen))
    run = documents[0]
    name = f"{run.get('kind')} {run.get('metadata', {}).get('name')}"
    manifests = parse(json.dumps({"kind": "List", "items": documents}, ensure_ascii=False), name)
    if manifests.problems:
        raise FileError(problem_text(*manifests.problems), file=manifests.problems[0].file)
    return with_provider(run_of(manifests))


def written(record: Record) -> dict[str, str]:
    """The record as the texts of a Secret."""
    state = asdict(record)
    frozen = state.pop("frozen")
    return {FROZEN: frozen, STATE: json.dumps(state, ensure_ascii=False, default=datetime.isoformat)}


def read(texts: Mapping[str, str]) -> Record:
    """The record of the texts of a Secret."""
    state: dict[str, Any] = json.loads(texts[STATE])
    agent, waiting = state["agent"], state["waiting"]
    for key in ("lost", "closed"):
        if state.get(key):
            state[key] = datetime.fromisoformat(state[key])
    state |= {
        "seen": seen_again(state["seen"]),
        "agent": _made(agent) if agent else None,
        "post": tuple(_made(each) for each in state["post"]),
        "waiting": replace(Stall(**waiting), at=datetime.fromisoformat(waiting["at"])) if waiting else None,
    }
    # An operator of a newer version may have kept more.
    known = {each.name for each in fields(Record)}
    return Record(frozen=texts[FROZEN], **{key: value for key, value in state.items() if key in known})


def read_secret(secret: Mapping[str, Any]) -> Record:
    """The record in a Secret as the cluster gives it. A KeyError or ValueError says that it holds none."""
    return read({key: base64.b64decode(value).decode() for key, value in secret["data"].items()})


def _made(given: Mapping[str, Any]) -> Workload:
    values: dict[str, Any] = {**given, "positions": tuple(given["positions"])}
    return Workload(**values)


def problem_text(*problems: FileError) -> str:
    """The problems as one sentence; their lines are those of the object as the server has it, so they are left out."""
    return "; ".join(f"{each.key}: {each.message}" if each.key else each.message for each in problems)


def unheeded(run: RunSpec) -> list[FileError]:
    """One for each key of a run that has no effect, on a cluster either."""
    places = [place for key, place in run.elsewhere.items() if key not in _HEEDED]
    return [place.problem("has no effect: hookline's operator does not support it") for place in places]


class Note(NamedTuple):
    """One event: `Normal` or `Warning`, a word, and a sentence."""

    kind: str
    reason: str
    message: str


def shown(spec: RunSpec, record: Record) -> dict[str, Any]:
    """The status of a run, whole."""
    seen, lifecycle = record.seen, spec.hooks
    told = status(lifecycle, seen)
    kind = "sandboxName" if is_sandboxed(spec) else "jobName"
    waits = lifecycle.gate is not None and seen.agent.succeeded and gated(lifecycle, seen) is None
    more: dict[str, Any] = {
        # Of a run in which nothing began no container says when it ended.
        "completedAt": told.get("completedAt") or (utc_text(record.closed) if record.closed else None),
        kind: record.agent.name if record.agent else None,
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
    lifecycle, notes = spec.hooks, list[Note]()
    stages = (
        (Stage.PRE_RUN, lifecycle.pre_run, before.seen.pre_run, after.seen.pre_run),
        (Stage.POST_RUN, lifecycle.post_run, before.seen.post_run, after.seen.post_run),
    )
    for stage, hooks, known, seen in stages:
        notes += _hook_notes(stage, hooks, known, seen)
    if after.waiting and (before.waiting is None or before.waiting.reason != after.waiting.reason):
        notes.append(Note("Warning", after.waiting.reason, after.waiting.message))
    if after.lost and not before.lost:
        notes.append(Note("Warning", "WorkspaceLost", _LOST))
    if after.seen.verdict and not before.seen.verdict:
        by = after.seen.verdict.by or "someone who may change the AgentRun"
        notes.append(Note("Normal", "GateVerdict", f"{after.seen.verdict.action} by {by}"))
    if after.void and after.void != before.void:
        notes.append(Note("Warning", "VerdictTooEarly", _TOO_EARLY))
    was, now = phase(lifecycle, before.seen), phase(lifecycle, after.seen)
    if now is not was:
        why = error(lifecycle, after.seen)
        notes.append(Note("Warning" if why else "Normal", str(now), why or f"the run is {now}"))
    return tuple(notes)


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
            yield Note("Warning", "HookFailed", f"{stage} hook {hook.name} {failure(hook, now)}{took}")


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
