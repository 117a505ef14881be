"""The plan for a run, with the status and the events that users see of it: one pure function of all that is there.

Nothing is remembered between two calls but the run's record. The operator creates objects, writes the record, removes
objects and writes the status, in that order; if it is interrupted anywhere, the next plan goes on from what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from hookline.engine.plain import parse_time, utc_text
from hookline.errors import FileError
from hookline.kube import objects
from hookline.kube.objects import Fields, Kind, is_ending, is_owned, kind_of, phase_of, within
from hookline.kube.pod_state import NODE_LOST, ContainerPhase, ContainerState, Workload, any_running, lost_at
from hookline.sympozium import phases
from hookline.sympozium.check import unheeded, unrunnable
from hookline.sympozium.cluster import observation
from hookline.sympozium.cluster.objects import FOLLOWED, is_sandboxed, names
from hookline.sympozium.cluster.observation import DELETED, Log, Observer, Record, World
from hookline.sympozium.phases import Phase, Seen, Stage
from hookline.sympozium.policy import left_to_agent
from hookline.sympozium.types import ContainerHook, RunSpec

_NOT_THERE = 60.0
"""Seconds that a run waits for its agent, and for the policy of that, to be there."""
_LOG_KEPT = 10.0
"""Seconds that the log of an ended run is kept for `hookline run`: that sees the end no sooner than the operator does."""
_TRIES = 3
"""Jobs for the same hooks, where each one before was ended from outside and none of them had begun."""
_TOO_EARLY = "the gate's verdict stood there before there was an answer, so it holds for none; take it away and give it again"
_LOST = "the workspace was removed from outside; the hooks that are left have an empty one"


class Note(NamedTuple):
    """One event: `Normal` or `Warning`, a word, and a sentence."""

    kind: str
    reason: str
    message: str


class Removal(NamedTuple):
    """An object to remove, which must be the one with that uid; without one, it must be the run's own."""

    kind: Kind
    name: str
    uid: str = ""

    @classmethod
    def of(cls, each: Fields) -> Removal:
        return cls(kind_of(each), each["metadata"]["name"], each["metadata"]["uid"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps, in this order. Where there are `logs`, they are read and the plan is made again, with nothing done before."""

    logs: tuple[Log, ...] = ()
    hold: bool | None = None
    """Take (True) or let go of (False) the run's finalizer; the first step, or the last."""
    make: tuple[dict[str, Any], ...] = ()
    record: Record | None = None
    remove: tuple[Removal, ...] = ()
    status: dict[str, Any] | None = None
    notes: tuple[Note, ...] = ()
    wake: datetime | None = None


def plan(world: World) -> Plan:
    if observation.has_ended(world.run):
        return _put_away(world)
    if world.record is None:
        return _begun(world)
    step = _Next(world, world.record)
    step.look()
    if step.logs:
        return Plan(logs=tuple(step.logs))
    agent = step.now.seen.agent
    ran = agent.state is ContainerPhase.ENDED and agent.started is not None
    if ran and phase_of(world.run) in ("", Phase.PENDING):
        # Clients that watch the run see each phase, however short.
        status = {**within(world.run, "status"), "phase": str(Phase.RUNNING)}
        return Plan(status=status, wake=world.now)
    return step.plan()


def _begun(world: World) -> Plan:
    """The plan for a run that has no record yet: it is checked as a whole, and frozen as it is."""
    if world.deleted:
        return Plan(hold=False if observation.is_held(world.run) else None)
    frozen = observation.frozen_of(world.run, world.instance, world.policy)
    try:
        spec = observation.spec_of(frozen)
    except FileError as exc:
        return _failed(world, observation.problem_text(exc))
    if spec.instance and world.instance is None:
        return _waiting(world, "InstanceNotFound", f"Agent or SympoziumInstance {spec.instance!r}")
    if spec.policy and world.policy is None:
        return _waiting(world, "PolicyNotFound", f"SympoziumPolicy {spec.policy!r}")
    if why := unrunnable(spec, builtin=not world.settings.agent_command):
        return _failed(world, why)
    record = Record(frozen=frozen)
    if refused := world.refused.get(f"{objects.SECRET.kind}/{names(spec.name).record}"):
        return _failed(world, refused)
    remarks = observation.manifests_of(frozen).remarks
    told = [observation.problem_text(each) for each in (*remarks, *unheeded(spec))]
    told += left_to_agent(spec) if world.settings.agent_command else ()
    notes = [Note("Warning", "NotHeeded", each) for each in told]
    # The first phase is shown before anything can run, however late the next plan is.
    return Plan(
        hold=None if observation.is_held(world.run) else True,
        record=record,
        status=shown(spec, record),
        notes=tuple(notes),
        wake=world.now,
    )


def _waiting(world: World, reason: str, what: str) -> Plan:
    """The plan for a run that lacks an object which may be made a moment later."""
    created = parse_time(world.head["creationTimestamp"])
    until = created + timedelta(seconds=_NOT_THERE)
    said = f"there is no {what} in {world.head['namespace']}"
    if until <= world.now:
        return _failed(world, said)
    status = {
        "phase": str(Phase.PENDING),
        "conditions": [phases.condition("Waiting", reason, said, created)],
    }
    return Plan(status=status, notes=(Note("Warning", reason, said),), wake=until)


def _failed(world: World, why: str) -> Plan:
    """The plan for a run that could not begin."""
    status = {"phase": str(Phase.FAILED), "error": why, "completedAt": utc_text(world.now)}
    return Plan(status=status, notes=(Note("Warning", "Failed", why),), wake=world.now)


def _put_away(world: World) -> Plan:
    """The plan for a run that has ended: all that was created for it goes. With `cleanup: keep` its Jobs, with their logs, and its
    workspace stay as long as the run does."""
    if not observation.is_held(world.run):
        return Plan()
    until = _kept_until(world)
    if until is not None and world.now < until:
        return Plan(wake=until)
    own = names(world.head["name"])
    uids: Mapping[str, str] = world.record.uids if world.record else {}
    keep = within(world.run, "spec").get("cleanup") == "keep" and not world.deleted
    # Not by the recorded objects: we may have been interrupted between creating and recording.
    had_grants = world.record is None or bool(observation.spec_of(world.record.frozen).hooks.rbac)
    granted = (objects.ROLE_BINDING, objects.ROLE, objects.ACCOUNT) if had_grants else ()
    # Pods before the claim that they hold.
    seen = () if keep else (*world.jobs, *world.sandboxes, *world.claims)
    remove = (
        *(Removal(kind, own.account, uids.get(f"{kind.kind}/{own.account}", "")) for kind in granted),
        *map(Removal.of, seen),
        Removal(objects.SECRET, own.record, uids.get(f"{objects.SECRET.kind}/{own.record}", "")),
    )
    return Plan(remove=remove, hold=False)


def _kept_until(world: World) -> datetime | None:
    """The time until which somebody may still read the log of a run that has ended; None if nobody follows it."""
    ended = within(world.run, "status").get("completedAt")
    followed = FOLLOWED in within(world.head, "labels") and not world.deleted
    return parse_time(ended) + timedelta(seconds=_LOG_KEPT) if followed and ended else None


class _Next(Observer):
    """The next steps of a run that has begun, by its observed state."""

    def __init__(self, world: World, record: Record) -> None:
        super().__init__(world, record)
        self.objects = world.objects(self.spec)
        self.make: list[dict[str, Any]] = []
        self.remove: list[Removal] = []

    def plan(self) -> Plan:
        self._end_rest()
        self._go_on()
        if self.now.closed is None and phases.phase(self.spec.hooks, self.now.seen).ended:
            self.now = replace(self.now, closed=self.world.now)
        return Plan(
            make=tuple(self.make),
            record=self.now if self.now != self.record else None,
            remove=tuple(self.remove),
            status=shown(self.spec, self.now),
            notes=notes_of(self.spec, self.record, self.now),
            wake=min(self.wakes, default=None),
        )

    def _end_rest(self) -> None:
        """Removes workloads that have to go; also those that an earlier plan was interrupted before removing.

        A Sandbox goes in any case, before the hooks after it.
        """
        agent = self.now.agent
        gone = {made.uid for made in self.now.workloads if self._must_be_removed(made)}
        if agent is not None and agent.over and is_sandboxed(self.spec):
            gone.add(agent.uid)
        workloads = (*self.world.jobs, *self.world.sandboxes)
        left = [each for each in workloads if each["metadata"]["uid"] in gone]
        left += [pod for pod in self.world.pods if any(is_owned(pod, uid) for uid in gone)]
        self.remove += [Removal.of(each) for each in left if not is_ending(each)]

    def _must_be_removed(self, made: Workload) -> bool:
        """Also where its pod was deleted: the cluster would put another in its place, which begins anew."""
        stands = any(pod["metadata"]["uid"] == made.pod and not is_ending(pod) for pod in self.world.pods)
        return made.ended or (made.over and not stands)

    def _go_on(self) -> None:
        """Creates whatever is due."""
        if self.now.agent is None and self.now.seen == Seen():
            self._start()
        agent, post = self.now.agent, self.now.post
        waiting = phases.due(self.spec.hooks, self.now.seen)
        if agent is not None and not agent.over:
            if self.spec.hooks.post_run and self._nothing_begun:
                self._keep_claim()
            return
        if not waiting:
            return
        if not post or post[-1].over:
            if self._still_running():
                return
            self._after(waiting)
        self._keep_claim()

    @property
    def _nothing_begun(self) -> bool:
        """True if neither a hook nor the agent has run, so that nothing can be in the workspace."""
        seen = self.now.seen
        return all(each.state is ContainerPhase.WAITING for each in (*seen.pre_run, seen.agent))

    def _still_running(self) -> bool:
        """True if something that was ended is not gone yet: hooks run one after another, never side by side."""
        if any(not is_ending(each) for each in self.world.sandboxes):
            return True
        for pod in self.world.pods:
            until = lost_at(pod)
            if until is not None and until <= self.world.now:
                continue
            if any_running(pod) or (until is None and Removal.of(pod) in self.remove):
                self.wakes.append(until or self.world.now + timedelta(seconds=NODE_LOST))
                return True
        return False

    def _start(self) -> None:
        """Creates the account, the claim and the Job; a refusal ends the run, since nothing was begun."""
        wanted = self.objects.first()
        for each in wanted:
            if refused := self.world.refused.get(_name(each)):
                self.now = replace(self.now, seen=observation.never_begun(self.spec, self.now.seen, refused))
                return
        self.make += wanted

    def _after(self, waiting: tuple[int, ...]) -> None:
        """Creates a Job with the hooks that wait; the gate has one of its own, since the others see the text that it let out."""
        hooks, seen, post = self.spec.hooks, self.now.seen, self.now.post
        has_gate = hooks.gate in waiting
        positions = waiting[:1] if has_gate else waiting
        job = self.objects.post_job(seen, positions, len(post) + 1)
        refused = self.world.refused.get(_name(job))
        if self.world.deleted and has_gate:
            refused = f"{DELETED}, so its answer is not needed"
        if sum(made.positions == positions for made in post) >= _TRIES:
            refused = f"its pod was ended from outside {_TRIES} times before it began"
        if refused:
            states = list(phases.post_run(hooks, seen))
            for n in positions:
                states[n] = phases.never_started(refused)
            self.now = replace(self.now, seen=replace(seen, post_run=tuple(states)))
            self.wakes.append(self.world.now)
            return
        self.make.append(job)

    def _keep_claim(self) -> None:
        """Creates a removed claim again: the hooks that clean up do not need its content."""
        if any(not is_ending(each) for each in self.world.claims):
            return
        claim = self.objects.claim()
        if self.world.claims or _name(claim) in self.world.refused:
            self._free_claim()
            self.wakes.append(self.world.now + timedelta(seconds=2))
            return
        if not self._nothing_begun:
            self.now = replace(self.now, lost=self.now.lost or self.world.now)
        self.make.insert(0, claim)

    def _free_claim(self) -> None:
        """A pod that has ended keeps its claim from going for as long as it is there, so its Job goes."""
        over = {made.uid for made in self.now.workloads if made.over}
        left = [job for job in self.world.jobs if job["metadata"]["uid"] in over and not is_ending(job)]
        self.remove += [each for each in map(Removal.of, left) if each not in self.remove]


def _name(wanted: Fields) -> str:
    return f"{wanted['kind']}/{wanted['metadata']['name']}"


def shown(spec: RunSpec, record: Record) -> dict[str, Any]:
    """The status of a run, whole."""
    seen, lifecycle = record.seen, spec.hooks
    told = phases.status(lifecycle, seen)
    kind = "sandboxName" if is_sandboxed(spec) else "jobName"
    waits = lifecycle.gate is not None and seen.agent.succeeded and phases.gated(lifecycle, seen) is None
    more: dict[str, Any] = {
        # Of a run in which nothing began no container says when it ended.
        "completedAt": told.get("completedAt") or (utc_text(record.closed) if record.closed else None),
        kind: record.agent.name if record.agent else None,
        "postRunJobName": record.post[-1].name if record.post else None,
        "gateDigest": phases.digest(seen.agent.result) if waits else None,
        "gateBy": seen.verdict.by if seen.verdict and seen.verdict.by else None,
        "conditions": [*told.get("conditions", ()), *_conditions(record)] or None,
    }
    return {**told, **{key: value for key, value in more.items() if value is not None}}


def notes_of(spec: RunSpec, before: Record, after: Record) -> tuple[Note, ...]:
    """The events for the changes between two records."""
    lifecycle = spec.hooks
    hooks = zip(
        phases.hook_states(lifecycle, before.seen), phases.hook_states(lifecycle, after.seen), strict=True
    )
    notes = [
        _hook_note(stage, hook, now)
        for (stage, hook, was), (_, _, now) in hooks
        if now.state is ContainerPhase.ENDED and was.state is not ContainerPhase.ENDED
    ]
    if after.waiting and (before.waiting is None or before.waiting.reason != after.waiting.reason):
        notes.append(Note("Warning", after.waiting.reason, after.waiting.message))
    if after.lost and not before.lost:
        notes.append(Note("Warning", "WorkspaceLost", _LOST))
    if after.seen.verdict and not before.seen.verdict:
        by = after.seen.verdict.by or "someone who may change the AgentRun"
        notes.append(Note("Normal", "GateVerdict", f"{after.seen.verdict.action} by {by}"))
    if after.void and after.void != before.void:
        notes.append(Note("Warning", "VerdictTooEarly", _TOO_EARLY))
    was, now = phases.phase(lifecycle, before.seen), phases.phase(lifecycle, after.seen)
    if now is not was:
        why = phases.error(lifecycle, after.seen)
        notes.append(Note("Warning" if why else "Normal", str(now), why or f"the run is {now}"))
    return tuple(notes)


def _hook_note(stage: Stage, hook: ContainerHook, seen: ContainerState) -> Note:
    took = f" after {seen.seconds:g} s" if seen.seconds is not None else ""
    if seen.succeeded:
        return Note("Normal", "HookSucceeded", f"{stage} hook {hook.name} succeeded{took}")
    return Note("Warning", "HookFailed", f"{stage} hook {hook.name} {phases.failure(hook, seen)}{took}")


def _conditions(record: Record) -> Iterator[dict[str, Any]]:
    if record.waiting is not None:
        yield phases.condition("Waiting", record.waiting.reason, record.waiting.message, record.waiting.at)
    if record.lost is not None:
        yield phases.condition("WorkspaceLost", "ClaimDeleted", _LOST, record.lost)
    if record.cut and record.seen.agent.started is not None:
        kept = len(record.seen.agent.result.encode("utf-8", "replace"))
        said = f"the answer has {record.cut} bytes, of which the first {kept} are kept"
        yield phases.condition("ResultCut", "TooLong", said, record.seen.agent.started)
