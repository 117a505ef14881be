"""What is to be done for a run now, of all that is there: one pure function, the same answer for the same world.

Nothing is remembered between two calls but the run's record. The operator makes what is to be made, keeps the record,
removes what is to be removed and writes the status, in that order; broken off anywhere, the next call goes on from what
it finds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from hookline.errors import FileError
from hookline.journal.masking import Mask
from hookline.kube.fields import owners, phase_of, within
from hookline.kube.job_state import NODE_LOST, Followed, Made, Slot, follow
from hookline.kube.pod_state import HookSeen, Reason, State, any_running
from hookline.sympozium.cluster import objects
from hookline.sympozium.cluster.objects import AGENT, POST, PRE, PREPARE, Owner, Settings
from hookline.sympozium.cluster.state import Record, frozen_of, spec_of
from hookline.sympozium.cluster.status import Note, failed_status, notes_of, shown
from hookline.sympozium.environment import cut
from hookline.sympozium.phases import AgentSeen, Phase, Seen, Stage, due, gate_settled, gated, phase, verdict
from hookline.sympozium.result import Result, ended, from_output
from hookline.sympozium.types import RUN_TIMEOUT, RunSpec
from hookline.times import parse_time, utc_text

Object = Mapping[str, Any]

FINALIZER = "hookline.dev/agentrun"
VERDICT = "sympozium.ai/gate-verdict"
MOST_KEPT = 256 * 1024
"""Bytes of an answer that are kept; an object of the cluster holds little more."""
TAIL_LINES = 20
_TAIL_BYTES = 2048
_AGENT_LINES = 500
_NO_INSTANCE = 60.0
_TRIES = 3
"""Jobs for the same hooks, where each one before was ended from outside and none of them had begun."""
_DELETED = "the run was deleted"


class Log(NamedTuple):
    """What a container said; `pod` is its pod's name, `uid` the pod's."""

    pod: str
    uid: str
    container: str
    lines: int | None


class Making(NamedTuple):
    """Something to make. `positions` are those of the postRun hooks in it; `part` says of which part of the run it is."""

    object: dict[str, Any]
    part: str = ""
    positions: tuple[int, ...] = ()


class Removal(NamedTuple):
    """Something to remove, which must be the one with that uid; without one, it must be the run's own."""

    kind: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All that is there of one run. `logs` are those that an earlier plan asked for; `refused` tells, by name, what the
    cluster would not make."""

    run: Object
    now: datetime
    settings: Settings
    record: Record | None = None
    instance: Object | None = None
    jobs: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    sandboxes: Sequence[Object] = ()
    claims: Sequence[Object] = ()
    logs: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    mask: Mask = field(default_factory=Mask)

    @property
    def owner(self) -> Owner:
        metadata = self.run["metadata"]
        return Owner(name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])

    @property
    def deleted(self) -> bool:
        return bool(self.run["metadata"].get("deletionTimestamp"))

    @property
    def held(self) -> bool:
        """Whether the run cannot go before we let it."""
        return FINALIZER in self.run["metadata"].get("finalizers", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do, in this order. With `logs`, those are to be read and the plan made again, with nothing done before."""

    logs: tuple[Log, ...] = ()
    hold: bool | None = None
    """Take (True) or let go of (False) the run's finalizer; the first step, or the last."""
    make: tuple[Making, ...] = ()
    record: Record | None = None
    remove: tuple[Removal, ...] = ()
    status: dict[str, Any] | None = None
    notes: tuple[Note, ...] = ()
    wake: datetime | None = None


def plan(world: World) -> Plan:
    if phase_of(world.run) in (Phase.SUCCEEDED, Phase.FAILED, Phase.SKIPPED):
        return _put_away(world)
    return _begun(world) if world.record is None else _Follow(world, world.record).plan()


def _begun(world: World) -> Plan:
    """A run of which nothing is known yet: it is looked at as a whole, and frozen as it is."""
    if world.deleted:
        return Plan(hold=False if world.held else None)
    frozen = frozen_of(world.run, world.instance)
    try:
        spec = spec_of(frozen)
    except FileError as exc:
        return _failed(world, f"{exc.key}: {exc.message}" if exc.key else exc.message)
    if spec.instance and world.instance is None:
        return _without_instance(world, spec.instance)
    if why := _cannot_be_run(spec, world.settings):
        return _failed(world, why)
    record = Record(frozen=frozen)
    kept = objects.record(world.owner, spec, {})
    if refused := world.refused.get(_name(kept)):
        return _failed(world, refused)
    unheard = [f"{key} has no effect here" for key in spec.elsewhere if key not in _HEARD]
    notes = [Note("Warning", "NotHeeded", text) for text in unheard]
    # Its first phase is told before anything can run, however late the next look is.
    return Plan(
        hold=None if world.held else True,
        record=record,
        status=shown(spec, record),
        notes=tuple(notes),
        wake=world.now,
    )


_HEARD = ("agentSandbox", "imagePullSecrets")


def _cannot_be_run(spec: RunSpec, settings: Settings) -> str:
    """What would go wrong for certain; empty where nothing would."""
    model = spec.model
    if spec.mode == "server":
        return "mode: server is not run here; hooks stand around runs with mode: task"
    if spec.sandbox and spec.sandbox.enabled and spec.sandbox.warm_pool:
        return "agentSandbox.warmPoolRef: a pod that runs already takes no hooks; leave it out"
    if not settings.agent_command and not spec.dry_run and not (model and model.model):
        ref = f"; {model.ref!r} is a Model, which is not read here" if model and model.ref else ""
        return f"no model is told for the built-in agent{ref}; write model: {{provider, model}}"
    if long := objects.too_long(spec):
        return f"{', '.join(long)}: a variable holds at most {objects.LONGEST_VARIABLE // 1024} KiB"
    return ""


def _without_instance(world: World, name: str) -> Plan:
    created = parse_time(world.run["metadata"]["creationTimestamp"])
    until = created + timedelta(seconds=_NO_INSTANCE)
    said = f"there is no Agent or SympoziumInstance {name!r} in {world.owner.namespace}"
    if until <= world.now:
        return _failed(world, said)
    status = {"phase": str(Phase.PENDING), "conditions": [_waiting_for("InstanceNotFound", said, created)]}
    return Plan(status=status, notes=(Note("Warning", "InstanceNotFound", said),), wake=until)


def _waiting_for(reason: str, message: str, at: datetime) -> dict[str, Any]:
    return {
        "type": "Waiting",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": utc_text(at),
    }


def _failed(world: World, why: str) -> Plan:
    return Plan(status=failed_status(why, world.now), notes=(Note("Warning", "Failed", why),), wake=world.now)


def _put_away(world: World) -> Plan:
    """A run that has ended: all that was made for it goes. With `cleanup: keep` its Jobs, with their logs, and its
    workspace stay as long as the run does."""
    if not world.held:
        return Plan()
    name = objects.names(world.owner.name)
    uids: Mapping[str, str] = world.record.uids if world.record else {}
    keep = within(world.run, "spec").get("cleanup") == "keep" and not world.deleted
    granted = [
        Removal(kind, name.account, uids.get(f"{kind}/{name.account}", ""))
        for kind in ("RoleBinding", "Role", "ServiceAccount")
        if _had_grants(world)
    ]
    # Pods before the claim that they hold.
    seen = (("Job", world.jobs), ("Sandbox", world.sandboxes), ("PersistentVolumeClaim", world.claims))
    rest = [] if keep else [Removal(kind, *_known(each)) for kind, found in seen for each in found]
    record = Removal("Secret", name.record, uids.get(f"Secret/{name.record}", ""))
    return Plan(remove=(*granted, *rest, record), hold=False)


def _had_grants(world: World) -> bool:
    # Not what is on record as made: we may have been broken off between the two.
    return world.record is None or bool(spec_of(world.record.frozen).hooks.rbac)


def _known(each: Object) -> tuple[str, str]:
    return each["metadata"]["name"], each["metadata"]["uid"]


class _Follow:
    """One look at a run that has begun."""

    def __init__(self, world: World, record: Record) -> None:
        self.world = world
        self.record = record
        self.spec: RunSpec = spec_of(record.frozen)
        self.seen: Seen = record.seen
        self.agent: Made | None = record.agent or self._unrecorded_agent()
        self.post: tuple[Made, ...] = (*record.post, *self._unrecorded_hooks())
        self.waiting = record.waiting
        self.lost = record.lost
        self.cut = record.cut
        self.void = record.void
        self.logs: list[Log] = []
        self.make: list[Making] = []
        self.remove: list[Removal] = []
        self.wakes: list[datetime] = []

    def plan(self) -> Plan:
        self.waiting = None
        unanswered = self._open and not self.post
        self._look_at_agent()
        self._hear_verdict(unanswered)
        for index, made in enumerate(self.post):
            if not made.over:
                self._look_at_hooks(index, made)
        if self.logs:
            return Plan(logs=tuple(self.logs))
        if self._unseen_running:
            # Who watches the run sees each phase, however short.
            status = {**within(self.world.run, "status"), "phase": str(Phase.RUNNING)}
            return Plan(status=status, wake=self.world.now)
        self._end_rest()
        self._go_on()
        record = replace(
            self.record,
            seen=self.seen,
            agent=self.agent,
            post=self.post,
            waiting=self.waiting,
            lost=self.lost,
            cut=self.cut,
            void=self.void,
            closed=self.record.closed
            or (self.world.now if phase(self.spec.hooks, self.seen).ended else None),
        )
        return Plan(
            make=tuple(self.make),
            record=record if record != self.record else None,
            remove=tuple(self.remove),
            status=shown(self.spec, record),
            notes=notes_of(self.spec, self.record, record),
            wake=min(self.wakes, default=None),
        )

    @property
    def _unseen_running(self) -> bool:
        """Whether the agent has run and ended since somebody last looked."""
        ran = self.seen.agent.state is State.ENDED and self.seen.agent.started is not None
        return ran and phase_of(self.world.run) in ("", Phase.PENDING)

    def _unrecorded_agent(self) -> Made | None:
        """What was made, and of which there is no record because we were broken off."""
        name = objects.names(self.world.owner.name)
        for each in (*self.world.jobs, *self.world.sandboxes):
            if each["metadata"]["name"] in (name.agent, name.sandbox):
                return Made(name=each["metadata"]["name"], uid=each["metadata"]["uid"])
        return None

    def _unrecorded_hooks(self) -> list[Made]:
        known = {each.uid for each in self.record.post}
        found = [
            Made(name=job["metadata"]["name"], uid=job["metadata"]["uid"], positions=positions)
            for job in self.world.jobs
            if (positions := objects.positions_of(job)) and job["metadata"]["uid"] not in known
        ]
        return sorted(found, key=lambda made: made.name)[:1]

    @property
    def _open(self) -> bool:
        """Whether the agent's part has still to end."""
        return phase(replace(self.spec.hooks, post_run=()), replace(self.seen, post_run=())) in (
            Phase.PENDING,
            Phase.RUNNING,
        )

    def _look_at_agent(self) -> None:
        agent = self.agent
        if not self._open:
            return
        if agent is None or agent.over:
            if self.world.deleted:
                self._never_begun(_DELETED)
            return
        hooks = self.spec.hooks.pre_run
        known = [*self.seen.pre_run, *(HookSeen() for _ in range(len(hooks) - len(self.seen.pre_run)))]
        slots = [
            Slot(container=PREPARE, seen=HookSeen()),
            *(
                Slot(container=f"{PRE}{hook.name}", seen=seen, timeout=hook.timeout)
                for hook, seen in zip(hooks, known, strict=True)
            ),
            Slot(container=AGENT, seen=_as_hook(self.seen.agent), timeout=self.spec.timeout or RUN_TIMEOUT),
        ]
        stop = (Reason.KILLED, _DELETED) if self.world.deleted else None
        found = self._followed(agent, slots, stop)
        prepared, *before, last = found.slots
        self.agent = found.made
        self.seen = replace(
            self.seen,
            pre_run=tuple(self._said(slot, found.pod) for slot in before),
            agent=self._answered(last, found.pod),
            stopped=self._stopped(found, prepared),
        )

    def _followed(self, made: Made, slots: Sequence[Slot], stop: tuple[Reason, str] | None) -> Followed:
        wholes = (*self.world.jobs, *self.world.sandboxes)
        whole = next((each for each in wholes if each["metadata"]["uid"] == made.uid), None)
        found = follow(
            made, whole, self.world.pods, slots, now=self.world.now, stop=stop, before=self.record.waiting
        )
        self.waiting = found.waiting
        if found.wake is not None:
            self.wakes.append(found.wake)
        return found

    def _stopped(self, found: Followed, prepared: Slot) -> str:
        """Why the run ends though its agent never began, where no hook before it says so itself."""
        before = found.slots[1:-1]
        if not found.made.over or found.slots[-1].seen.state is not State.WAITING:
            return ""
        if any(slot.seen.failed for slot in before):
            return ""
        if prepared.seen.failed:
            return self._unprepared(prepared, found.pod)
        return found.why or "its pod ended before the agent began"

    def _unprepared(self, prepared: Slot, pod: Object | None) -> str:
        said = self._said(prepared, pod)
        if said.reason is Reason.NOT_STARTED:
            return said.detail
        return f"the workspace could not be prepared: {said.tail or said.detail or f'exit code {said.exit_code}'}"

    def _end_rest(self) -> None:
        """What has to go and is still there; also what an earlier look was broken off before removing.

        A Sandbox goes in any case, before the hooks after it.
        """
        agent = self.agent
        gone = {made.uid for made in (agent, *self.post) if made is not None and self._has_to_go(made)}
        if agent is not None and agent.over and self._sandboxed:
            gone.add(agent.uid)
        for kind, found in (("Job", self.world.jobs), ("Sandbox", self.world.sandboxes)):
            left = [each for each in found if each["metadata"]["uid"] in gone and not _is_ending(each)]
            self.remove += [Removal(kind, *_known(each)) for each in left]
        for pod in self.world.pods:
            if not _is_ending(pod) and any(owner.get("uid") in gone for owner in owners(pod)):
                self.remove.append(Removal("Pod", *_known(pod)))

    @property
    def _sandboxed(self) -> bool:
        return bool(self.spec.sandbox and self.spec.sandbox.enabled)

    def _said(self, slot: Slot, pod: Object | None) -> HookSeen:
        """A hook with the last lines that it said, which are read when it has ended."""
        seen = slot.seen
        if seen.state is not State.ENDED or seen.reason is Reason.NOT_STARTED or pod is None:
            return seen
        if seen == self._before(slot.container):
            return seen
        text = self._log(pod, slot.container, TAIL_LINES)
        return replace(seen, tail=_tail(self.world.mask.text(text or seen.tail)))

    def _before(self, container: str) -> HookSeen | None:
        """What the record has of a hook."""
        both = (
            (PRE, self.spec.hooks.pre_run, self.record.seen.pre_run),
            (POST, self.spec.hooks.post_run, self.record.seen.post_run),
        )
        for prefix, hooks, seen in both:
            for hook, each in zip(hooks, seen, strict=False):
                if container == f"{prefix}{hook.name}":
                    return each
        return None

    def _log(self, pod: Object, container: str, lines: int | None) -> str:
        metadata = pod["metadata"]
        key = (metadata["uid"], container)
        if key not in self.world.logs:
            self.logs.append(Log(metadata["name"], metadata["uid"], container, lines))
            return ""
        return self.world.logs[key]

    def _answered(self, slot: Slot, pod: Object | None) -> AgentSeen:
        """The agent, with the answer that it left on its output."""
        seen, before = slot.seen, self.seen.agent
        if before.state is State.ENDED:
            return before
        if seen.state is not State.ENDED:
            return AgentSeen(state=seen.state, started=seen.started)
        # The built-in one prints what it does from its beginning on.
        lines = _AGENT_LINES if self.world.settings.agent_command else None
        text = "" if pod is None or seen.reason is Reason.NOT_STARTED else self._log(pod, AGENT, lines)
        result = from_output(text)
        if seen.detail and (result is None or not result.error):
            result = replace(result or Result(), status="error", error=seen.detail)
        code = seen.exit_code if seen.reason is Reason.EXITED else None
        found = ended(code, result, reason=seen.reason, tail=_tail(text))
        # Whoever may look at runs sees why one failed; its secrets are not for all of them.
        found = replace(found, error=self.world.mask.text(found.error))
        kept = _kept(found.result)
        if kept != found.result:
            self.cut = len(found.result.encode("utf-8", "replace"))
            found = replace(found, result=kept)
        return replace(found, started=seen.started, seconds=seen.seconds)

    def _has_to_go(self, made: Made) -> bool:
        """Also where its pod was deleted: the cluster would put another in its place, which begins anew."""
        stands = any(pod["metadata"]["uid"] == made.pod and not _is_ending(pod) for pod in self.world.pods)
        return made.ended or (made.over and not stands)

    def _hear_verdict(self, unanswered: bool) -> None:
        """A verdict that stood there before the answer was known was not given to it."""
        text = str(within(self.world.run, "metadata", "annotations").get(VERDICT, ""))
        if self.spec.hooks.gate is None:
            return
        if unanswered or not text:
            # One that is taken away and given again was given to what is there now.
            self.void = text
        elif text and text != self.void and gated(self.spec.hooks, self.seen) is None:
            self.seen = replace(self.seen, verdict=verdict(text))

    def _look_at_hooks(self, index: int, made: Made) -> None:
        hooks = self.spec.hooks.post_run
        known = [*self.seen.post_run, *(HookSeen() for _ in range(len(hooks) - len(self.seen.post_run)))]
        slots = [
            Slot(container=PREPARE, seen=HookSeen()),
            *(
                Slot(container=f"{POST}{hooks[n].name}", seen=known[n], timeout=hooks[n].timeout)
                for n in made.positions
            ),
        ]
        settled = self.spec.hooks.gate in made.positions and gate_settled(self.spec.hooks, self.seen)
        stop = (Reason.SETTLED, "") if settled else None
        if stop is None and self.world.deleted and self.spec.hooks.gate in made.positions:
            # Nobody waits any more for the answer that it holds.
            stop = (Reason.KILLED, _DELETED)
        found = self._followed(made, slots, stop)
        prepared, *after = found.slots
        for n, slot in zip(made.positions, after, strict=True):
            known[n] = self._said(slot, found.pod)
        # Where somebody ended the pod before the first hook began, they are tried again.
        if prepared.seen.failed and prepared.seen.reason is not Reason.KILLED:
            why = self._unprepared(prepared, found.pod)
            for n in made.positions:
                known[n] = _never(why)
        self.seen = replace(self.seen, post_run=tuple(known))
        self.post = (*self.post[:index], found.made, *self.post[index + 1 :])

    def _go_on(self) -> None:
        """Make what is due."""
        nothing = Seen(stopped=self.seen.stopped)
        if self.agent is None and self.seen == nothing and not self.seen.stopped:
            self._start()
        start = due(self.spec.hooks, self.seen)
        if self.agent is not None and not self.agent.over:
            if self.spec.hooks.post_run and self._nothing_begun:
                self._keep_claim()
            return
        if start is None or start.stage is not Stage.POST_RUN:
            return
        if not self.post or self.post[-1].over:
            if self._still_running():
                return
            self._after(start.position)
        self._keep_claim()

    @property
    def _nothing_begun(self) -> bool:
        """Whether neither a hook nor the agent has run, so that nothing can be in the workspace."""
        return all(each.state is State.WAITING for each in (*self.seen.pre_run, self.seen.agent))

    def _still_running(self) -> bool:
        """Whether something that was ended is not gone yet: hooks run one after another, never side by side."""
        if any(not _is_ending(each) for each in self.world.sandboxes):
            return True
        for pod in self.world.pods:
            ending = pod["metadata"].get("deletionTimestamp")
            until = parse_time(ending) + timedelta(seconds=NODE_LOST) if ending else None
            if until is not None and until <= self.world.now:
                continue
            if any_running(pod) or (ending is None and _is_removed(self.remove, pod)):
                self.wakes.append(until or self.world.now + timedelta(seconds=NODE_LOST))
                return True
        return False

    def _start(self) -> None:
        """The account, the claim and the Job; what the cluster refuses ends the run, since nothing was begun."""
        world, owner, spec = self.world, self.world.owner, self.spec
        wanted = [
            *(
                objects.grants(owner, spec, world.settings)
                if spec.hooks.rbac
                else [objects.shared_account(owner.namespace)]
            ),
            *([objects.claim(owner, spec, world.settings)] if spec.hooks.post_run else []),
            (objects.agent_sandbox if self._sandboxed else objects.agent_job)(owner, spec, world.settings),
        ]
        if spec.hooks.rbac and world.settings.shared_account:
            wanted.insert(0, objects.shared_account(owner.namespace))
        for each in wanted:
            if refused := world.refused.get(_name(each)):
                self._never_begun(refused)
                return
        self.make += [Making(each) for each in wanted[:-1]] + [Making(wanted[-1], Stage.AGENT)]

    def _never_begun(self, why: str) -> None:
        """Nothing was begun, so there is nothing that a hook could clean up."""
        never = tuple(_never("nothing was begun") for _ in self.spec.hooks.post_run)
        self.seen = replace(self.seen, stopped=why, post_run=never)

    def _after(self, position: int) -> None:
        """A further Job with the hooks that wait; the gate has one of its own, for the others see what it let out."""
        hooks = self.spec.hooks
        states = [*self.seen.post_run, *(HookSeen() for _ in hooks.post_run[len(self.seen.post_run) :])]
        waiting = [n for n in hooks.post_order if states[n].state is State.WAITING]
        positions = (position,) if hooks.post_run[position].gate else tuple(waiting)
        job = objects.post_job(
            self.world.owner, self.spec, self.world.settings, self.seen, positions, len(self.post) + 1
        )
        refused = self.world.refused.get(_name(job))
        if self.world.deleted and hooks.post_run[position].gate:
            refused = f"{_DELETED}, and nobody waits for its answer"
        if sum(made.positions == positions for made in self.post) >= _TRIES:
            refused = f"its pod was ended from outside {_TRIES} times before it began"
        if refused:
            for n in positions:
                states[n] = _never(refused)
            self.seen = replace(self.seen, post_run=tuple(states))
            self.wakes.append(self.world.now)
            return
        self.make.append(Making(job, Stage.POST_RUN, positions))

    def _keep_claim(self) -> None:
        """A claim that somebody removed is made again: the hooks that clean up do not need what was in it."""
        if any(not each["metadata"].get("deletionTimestamp") for each in self.world.claims):
            return
        claim = objects.claim(self.world.owner, self.spec, self.world.settings)
        if self.world.claims or _name(claim) in self.world.refused:
            self._free_claim()
            self.wakes.append(self.world.now + timedelta(seconds=2))
            return
        if not self._nothing_begun:
            self.lost = self.lost or self.world.now
        self.make.insert(0, Making(claim))

    def _free_claim(self) -> None:
        """A pod that has ended keeps its claim from going for as long as it is there, so its Job goes."""
        over = {made.uid for made in (self.agent, *self.post) if made is not None and made.over}
        left = [job for job in self.world.jobs if job["metadata"]["uid"] in over and not _is_ending(job)]
        found = [Removal("Job", *_known(job)) for job in left]
        self.remove += [each for each in found if each not in self.remove]


def _is_ending(each: Object) -> bool:
    return bool(each["metadata"].get("deletionTimestamp"))


def _is_removed(removals: Sequence[Removal], pod: Object) -> bool:
    return any(removal.uid == pod["metadata"]["uid"] for removal in removals)


def _name(wanted: Object) -> str:
    return f"{wanted['kind']}/{wanted['metadata']['name']}"


def _never(why: str) -> HookSeen:
    return HookSeen(state=State.ENDED, reason=Reason.NOT_STARTED, detail=why)


def _as_hook(seen: AgentSeen) -> HookSeen:
    return HookSeen(state=seen.state, exit_code=seen.exit_code, reason=seen.reason, started=seen.started)


def _kept(text: str) -> str:
    """The beginning of an answer that is too long; its size is that which it has in an object."""
    while (size := len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) - 2) > MOST_KEPT:
        text = cut(text, len(text.encode("utf-8", "replace")) * MOST_KEPT // size)
    return text


def _tail(text: str) -> str:
    lines = text.rstrip().splitlines()[-TAIL_LINES:]
    kept = "\n".join(lines).encode("utf-8", "replace")
    return kept[-_TAIL_BYTES:].decode("utf-8", "ignore")
