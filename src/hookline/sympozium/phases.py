"""The phase of an AgentRun and its next step, as functions of its observed state: one decision here and on a cluster.

Nothing is kept between two calls: the caller passes the state that it observed, and starts what is due.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from hookline.engine.plain import as_text, json_or_none, utc_text
from hookline.engine.record import Verdict, VerdictKind
from hookline.kube.pod_state import ContainerPhase, ContainerState, EndReason
from hookline.sympozium.types import ContainerHook, Lifecycle

NO_VERDICT = "Response blocked: gate hook did not return a verdict"
REJECTED = "Response blocked by policy"
WITHHELD = frozenset({"rejected", "timeout", "error"})
"""The words of a gate that keeps the answer back and lets no other text out for it."""


class Phase(StrEnum):
    """Where a run is. It only moves down this list; the last three are ends."""

    PENDING = "Pending"
    RUNNING = "Running"
    POST_RUNNING = "PostRunning"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SKIPPED = "Skipped"

    @property
    def ended(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.SKIPPED)


class Stage(StrEnum):
    """The two lists of hooks: those before the agent, and those after it."""

    PRE_RUN = "preRun"
    POST_RUN = "postRun"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSeen(ContainerState):
    """The observed state of the agent. `skipped` is its reason, where it said that there is nothing to do."""

    result: str = ""
    error: str = ""
    skipped: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def succeeded(self) -> bool:
        ended = self.state is ContainerPhase.ENDED and self.reason is EndReason.EXITED
        return ended and self.exit_code == 0 and not self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """The word of a gate hook or a person on an answer. With a `digest` it holds for that answer only."""

    action: str
    response: str | None = None
    reason: str = ""
    by: str = ""
    digest: str = ""

    def holds_for(self, answer: str) -> bool:
        return self.action in _VERDICTS and self.digest in ("", digest(answer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The observed state of a run. Hooks stand in the order of the file; those not listed are waiting.

    `stopped` says why a run is to end before its agent began (its limit, a cancel); once the agent runs, its own end
    says so. `skip` is what stands in the skip marker, looked at when preRun is through.
    """

    pre_run: tuple[ContainerState, ...] = ()
    agent: AgentSeen = AgentSeen()
    post_run: tuple[ContainerState, ...] = ()
    stopped: str = ""
    skip: str | None = None
    verdict: GateVerdict | None = None


def never_started(why: str) -> ContainerState:
    return ContainerState(state=ContainerPhase.ENDED, reason=EndReason.NOT_STARTED, detail=why)


class Gated(NamedTuple):
    """The outcome of a gate: its word for the status, and the text that goes out."""

    label: str
    result: str


def phase(lifecycle: Lifecycle, seen: Seen) -> Phase:
    end = outcome(lifecycle, seen)
    if end is None:
        return Phase.PENDING if seen.agent.state is ContainerPhase.WAITING else Phase.RUNNING
    is_open = any(each.state is not ContainerPhase.ENDED for each in post_run(lifecycle, seen))
    return Phase.POST_RUNNING if is_open and end is not Phase.SKIPPED else end


def outcome(lifecycle: Lifecycle, seen: Seen) -> Phase | None:
    """How the agent's part ended, hooks before it included; None while that is open."""
    before = pre_run(lifecycle, seen)
    if any(each.state is ContainerPhase.RUNNING for each in (*before, seen.agent)):
        return None
    if any(each.failed for each in before):
        return Phase.FAILED
    if seen.agent.state is ContainerPhase.ENDED:
        if seen.agent.skipped is not None:
            return Phase.SKIPPED
        return Phase.SUCCEEDED if seen.agent.succeeded else Phase.FAILED
    if seen.stopped:
        return Phase.FAILED
    through = all(each.succeeded for each in before)
    return Phase.SKIPPED if through and seen.skip is not None else None


def pre_run(lifecycle: Lifecycle, seen: Seen) -> tuple[ContainerState, ...]:
    """The state of each preRun hook, also of those that were not seen yet."""
    return _filled(seen.pre_run, len(lifecycle.pre_run))


def post_run(lifecycle: Lifecycle, seen: Seen) -> tuple[ContainerState, ...]:
    """The state of each postRun hook, also of those that were not seen yet."""
    return _filled(seen.post_run, len(lifecycle.post_run))


def hook_states(lifecycle: Lifecycle, seen: Seen) -> list[tuple[Stage, ContainerHook, ContainerState]]:
    """Every hook with its stage and its state, in the order of the file."""
    before = zip(lifecycle.pre_run, pre_run(lifecycle, seen), strict=True)
    after = zip(lifecycle.post_run, post_run(lifecycle, seen), strict=True)
    return [
        *((Stage.PRE_RUN, hook, each) for hook, each in before),
        *((Stage.POST_RUN, hook, each) for hook, each in after),
    ]


def due(lifecycle: Lifecycle, seen: Seen) -> tuple[int, ...]:
    """Positions of the postRun hooks that wait for their turn, as they are run; none while anything else runs or is due."""
    before, after = pre_run(lifecycle, seen), post_run(lifecycle, seen)
    is_busy = any(each.state is ContainerPhase.RUNNING for each in (*before, seen.agent, *after))
    if is_busy or outcome(lifecycle, seen) in (None, Phase.SKIPPED):
        return ()
    return tuple(index for index in lifecycle.post_order if after[index].state is ContainerPhase.WAITING)


def error(lifecycle: Lifecycle, seen: Seen) -> str:
    """Why a run failed; empty where it did not."""
    if outcome(lifecycle, seen) is not Phase.FAILED:
        return ""
    failed = _failed(lifecycle.pre_run, pre_run(lifecycle, seen))
    if failed:
        return f"preRun hook {failed[0]}"
    if seen.agent.state is ContainerPhase.WAITING:
        return seen.stopped
    return seen.agent.error or _AGENT_ENDED[seen.agent.reason].format(code=seen.agent.exit_code)


def exit_code(lifecycle: Lifecycle, seen: Seen) -> int:
    """The exit code for postRun hooks: the agent's own; 1 if it failed without one, or never ran."""
    if outcome(lifecycle, seen) is not Phase.FAILED:
        return 0
    return seen.agent.exit_code or 1


def result_for_hooks(lifecycle: Lifecycle, seen: Seen, hook: ContainerHook) -> str:
    """The result for a postRun hook: the answer itself for the gate, the text that the gate let out for the others.

    Of a run that failed it is the answer if there is one, else why.
    """
    if outcome(lifecycle, seen) is Phase.FAILED:
        return seen.agent.result or error(lifecycle, seen)
    let_out = gated(lifecycle, seen)
    return seen.agent.result if hook.gate or let_out is None else let_out.result


def conditions(lifecycle: Lifecycle, seen: Seen) -> tuple[dict[str, Any], ...]:
    """At most one: `PostRunFailed`, which names every postRun hook that failed."""
    after = post_run(lifecycle, seen)
    failed = _failed(lifecycle.post_run, after)
    if not failed:
        return ()
    ends = [end for each in after if each.failed and (end := _end(each)) is not None]
    said = f"postRun hooks failed: {'; '.join(failed)}"
    return (condition("PostRunFailed", "PostRunJobFailed", said, min(ends, default=None)),)


def condition(kind: str, reason: str, message: str, at: datetime | None) -> dict[str, Any]:
    """An entry of `conditions` in the status of a run."""
    told = {"type": kind, "status": "True", "reason": reason, "message": message}
    return told if at is None else {**told, "lastTransitionTime": utc_text(at)}


def verdict(text: str) -> GateVerdict | None:
    """The annotation of a gate hook. A text that is no JSON of that form, or has another action, is no verdict."""
    found = json_or_none(text) or {}
    action, response = found.get("action"), found.get("response")
    if not isinstance(action, str) or action not in _VERDICTS or not isinstance(response, str | None):
        return None
    reason, by, bound = (str(found.get(key) or "") for key in ("reason", "by", "digest"))
    return GateVerdict(action=action, response=response, reason=reason, by=by, digest=bound)


def verdict_of(word: Verdict) -> GateVerdict:
    """A person's verdict on an answer. The text that they gave instead of it, or their reason, is what goes out."""
    if word.kind is VerdictKind.REWRITE:
        return GateVerdict(action="rewrite", response=as_text(word.value), by=word.by)
    if word.kind is VerdictKind.REJECT:
        return GateVerdict(action="reject", response=word.text or None, reason=word.text, by=word.by)
    return GateVerdict(action="approve", by=word.by)


def gated(lifecycle: Lifecycle, seen: Seen) -> Gated | None:
    """The outcome of the run's gate; None if it has none, is not through, or there is no answer to hold.

    A verdict on another answer than this one is none.
    """
    index, said, answer = lifecycle.gate, seen.verdict, seen.agent.result
    if index is None or outcome(lifecycle, seen) is not Phase.SUCCEEDED:
        return None
    hook = post_run(lifecycle, seen)[index]
    if hook.state is not ContainerPhase.ENDED:
        return None
    if said is not None and said.holds_for(answer):
        label, instead = _VERDICTS[said.action]
        if instead is None:
            return Gated(label, answer)
        return Gated(label, said.response if said.response is not None else instead)
    if lifecycle.gate_default == "allow":
        return Gated("allowed-by-default", answer)
    return Gated("timeout" if hook.succeeded else "error", NO_VERDICT)


def gate_settled(lifecycle: Lifecycle, seen: Seen) -> bool:
    """True if the gate hook still runs though its verdict is in: it, and only it, may be ended (as `settled`)."""
    index, said = lifecycle.gate, seen.verdict
    if index is None or said is None or not said.holds_for(seen.agent.result):
        return False
    return post_run(lifecycle, seen)[index].state is ContainerPhase.RUNNING


def published(lifecycle: Lifecycle, seen: Seen) -> str | None:
    """The text that may go out: nothing before the agent succeeded and the gate, if there is one, is through."""
    if outcome(lifecycle, seen) is not Phase.SUCCEEDED:
        return None
    if lifecycle.gate is None:
        return seen.agent.result
    let_out = gated(lifecycle, seen)
    return let_out.result if let_out else None


def digest(text: str) -> str:
    """The digest of an answer, which a verdict on it is bound to."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def status(lifecycle: Lifecycle, seen: Seen) -> dict[str, Any]:
    """The status of a run in Sympozium's words, with one entry for each hook besides."""
    now = phase(lifecycle, seen)
    end = outcome(lifecycle, seen)
    let_out = gated(lifecycle, seen)
    times = [*pre_run(lifecycle, seen), seen.agent, *post_run(lifecycle, seen)]
    begun = [each.started for each in times if each.started is not None]
    ends = [over for each in times if (over := _end(each)) is not None]
    skipped = seen.agent.skipped if seen.agent.skipped is not None else seen.skip
    told: dict[str, Any] = {
        "phase": str(now),
        "startedAt": utc_text(min(begun)) if begun else None,
        "completedAt": utc_text(max(ends)) if ends and now.ended else None,
        "result": skipped if end is Phase.SKIPPED else published(lifecycle, seen),
        "error": error(lifecycle, seen) or None,
        "exitCode": exit_code(lifecycle, seen) if end and end is not Phase.SKIPPED else None,
        "tokenUsage": dict(seen.agent.usage) or None,
        "gateVerdict": let_out.label if let_out else None,
        "conditions": list(conditions(lifecycle, seen)) or None,
        "hooks": [_told(*each) for each in hook_states(lifecycle, seen)],
    }
    return {key: value for key, value in told.items() if value is not None}


_VERDICTS: Mapping[str, tuple[str, str | None]] = {
    "approve": ("approved", None),
    "reject": ("rejected", REJECTED),
    "rewrite": ("rewritten", ""),
}
"""The word of each for the status, and what goes out where the verdict has no text; None is the answer itself."""
_ENDED: Mapping[EndReason, str] = {
    EndReason.EXITED: "exit code {code}",
    EndReason.TIMED_OUT: "passed its limit of {limit:g} s",
    EndReason.NOT_STARTED: "could not start",
    EndReason.KILLED: "was ended from outside",
    EndReason.SETTLED: "was ended when the verdict was in",
    EndReason.OVERFULL: "wrote too much",
}
_AGENT_ENDED: Mapping[EndReason, str] = {
    EndReason.EXITED: "agent exited with code {code}",
    EndReason.TIMED_OUT: "timeout",
    EndReason.NOT_STARTED: "agent could not start",
    EndReason.KILLED: "agent was ended from outside",
    EndReason.SETTLED: "agent was ended",
    EndReason.OVERFULL: "agent wrote too much",
}


def _filled(seen: tuple[ContainerState, ...], count: int) -> tuple[ContainerState, ...]:
    return (*seen, *[ContainerState()] * (count - len(seen)))


def _failed(hooks: tuple[ContainerHook, ...], seen: tuple[ContainerState, ...]) -> list[str]:
    return [
        f"{hook.name!r} {failure(hook, each)}" for hook, each in zip(hooks, seen, strict=True) if each.failed
    ]


def failure(hook: ContainerHook, seen: ContainerState) -> str:
    """How a hook failed: its exit code, or why it has none."""
    text = _ENDED[seen.reason].format(code=seen.exit_code, limit=hook.timeout)
    return f"failed: {text}{f' ({seen.detail})' if seen.detail else ''}"


def _told(stage: Stage, hook: ContainerHook, seen: ContainerState) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": hook.name,
        "stage": str(stage),
        "state": _state(seen),
        "exitCode": seen.exit_code,
        "reason": str(seen.reason) if seen.failed else None,
        "message": failure(hook, seen) if seen.failed else None,
        "startedAt": utc_text(seen.started) if seen.started else None,
        "seconds": seen.seconds,
        "tail": seen.tail or None,
    }
    return {key: value for key, value in told.items() if value is not None}


def _state(seen: ContainerState) -> str:
    if seen.state is ContainerPhase.ENDED:
        return "succeeded" if seen.succeeded else "failed"
    return str(seen.state)


def _end(seen: ContainerState) -> datetime | None:
    if seen.state is not ContainerPhase.ENDED or seen.started is None or seen.seconds is None:
        return None
    return seen.started + timedelta(seconds=seen.seconds)
