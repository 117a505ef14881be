"""The record that the operator keeps of one run, and how it is brought up to date with the state of its containers.

The record has the run's manifests when it began, the objects made for it, and their state. It is one Secret beside the
run, written before anything that cannot be observed again is removed; after a crash the operator goes on from there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, cast

from hookline.engine.plain import cut, plain, typed
from hookline.errors import FileError
from hookline.journal.masking import Mask
from hookline.kube import pod_state
from hookline.kube.objects import Fields, bare, is_ending, phase_of, within
from hookline.kube.pod_state import ContainerPhase, ContainerState, EndReason, Slot, Workload, WorkloadState
from hookline.options import OperatorOptions
from hookline.sympozium import phases
from hookline.sympozium.cluster import objects
from hookline.sympozium.cluster.objects import RunObjects
from hookline.sympozium.phases import AgentSeen, Phase, Seen
from hookline.sympozium.policy import POLICY_REF
from hookline.sympozium.read import RunManifests, parse
from hookline.sympozium.resolve import run_of, with_provider
from hookline.sympozium.run.agent import ended, from_output
from hookline.sympozium.types import RUN_TIMEOUT, ContainerHook, RunSpec

FINALIZER = "hookline.dev/agentrun"
VERDICT = "sympozium.ai/gate-verdict"
MOST_KEPT = 256 * 1024
"""Bytes of an answer that are kept; an object of the cluster holds little more."""
FROZEN, STATE = "run.json", "state.json"
"""The parts of the Secret that keeps the record."""
TAIL_LINES = 20
DELETED = "the run was deleted"
ANSWER_LOST = "the agent ended well, and its answer is lost: the cluster did not keep the end of its log"
_TAIL_BYTES = 2048
_AGENT_LINES = 500


class Log(NamedTuple):
    """A log to read, or its last `lines`; `pod` is the pod's name, `uid` the pod's."""

    pod: str
    uid: str
    container: str
    lines: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`void` is a verdict that was given before there was an answer; `lost` is since when the workspace is another."""

    frozen: str
    seen: Seen = Seen()
    agent: Workload | None = None
    post: tuple[Workload, ...] = ()
    uids: Mapping[str, str] = field(default_factory=dict[str, str])
    waiting: pod_state.Stall | None = None
    void: str = ""
    lost: datetime | None = None
    closed: datetime | None = None
    """When the run was first found to have ended."""
    cut: int = 0
    """Bytes of an answer that was too long to be kept whole."""

    @property
    def workloads(self) -> list[Workload]:
        """The agent's and those of the hooks after it, as far as they were made."""
        return [made for made in (self.agent, *self.post) if made is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All that is there of one run. `logs` are those that an earlier plan asked for; `refused` has, by name, the reasons
    for which objects could not be created."""

    run: Fields
    now: datetime
    settings: OperatorOptions
    record: Record | None = None
    instance: Fields | None = None
    policy: Fields | None = None
    jobs: Sequence[Fields] = ()
    pods: Sequence[Fields] = ()
    sandboxes: Sequence[Fields] = ()
    claims: Sequence[Fields] = ()
    logs: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    mask: Mask = field(default_factory=Mask)

    @property
    def head(self) -> Fields:
        """The metadata of the run: its name, namespace and uid."""
        return self.run["metadata"]

    @property
    def deleted(self) -> bool:
        return is_ending(self.run)

    def objects(self, spec: RunSpec) -> RunObjects:
        return RunObjects(spec, self.head["uid"], self.settings)


def has_ended(run: Mapping[str, Any]) -> bool:
    return phase_of(run) in (Phase.SUCCEEDED, Phase.FAILED, Phase.SKIPPED)


def agent_name(run: Mapping[str, Any]) -> str:
    """The Agent or SympoziumInstance that a run names."""
    spec = within(run, "spec")
    return str(spec.get("agentRef") or spec.get("instanceRef") or "")


def policy_name(instance: Mapping[str, Any] | None) -> str:
    """The SympoziumPolicy that an agent or a pack refers to."""
    return str(within(instance or {}, "spec").get(POLICY_REF) or "")


def frozen_of(run: Mapping[str, Any], *others: Mapping[str, Any] | None) -> str:
    """The manifests of the run, its agent and its policy as they are now; later changes of them are for other runs."""
    return json.dumps([bare(each) for each in (run, *others) if each is not None], ensure_ascii=False)


def manifests_of(frozen: str) -> RunManifests:
    documents = cast("list[dict[str, Any]]", json.loads(frozen))
    run = documents[0]
    name = f"{run.get('kind')} {run.get('metadata', {}).get('name')}"
    return parse(json.dumps({"kind": "List", "items": documents}, ensure_ascii=False), name)


@lru_cache(maxsize=512)
def spec_of(frozen: str) -> RunSpec:
    """The run of frozen manifests, with all that it takes from its instance; a FileError lists their problems."""
    manifests = manifests_of(frozen)
    if manifests.problems:
        raise FileError(problem_text(*manifests.problems), file=manifests.problems[0].file)
    return with_provider(run_of(manifests))


def written(record: Record) -> dict[str, str]:
    """The record as the texts of a Secret."""
    state = plain(record)
    frozen = state.pop("frozen")
    return {FROZEN: frozen, STATE: json.dumps(state, ensure_ascii=False, default=datetime.isoformat)}


def read(texts: Mapping[str, str]) -> Record:
    """The record of the texts of a Secret."""
    return typed(Record, {"frozen": texts[FROZEN], **json.loads(texts[STATE])})


def read_secret(secret: Mapping[str, Any]) -> Record:
    """The record in a Secret as the cluster gives it. A KeyError or ValueError says that it holds none."""
    return read({key: base64.b64decode(value).decode() for key, value in secret["data"].items()})


def problem_text(*problems: FileError) -> str:
    """The problems as one sentence; their lines are those of the object as the server has it, so they are left out."""
    return "; ".join(f"{each.key}: {each.message}" if each.key else each.message for each in problems)


def is_held(run: Fields) -> bool:
    """True if our finalizer keeps the run from going."""
    return FINALIZER in run["metadata"].get("finalizers", ())


def workload_of(made: Fields) -> Workload:
    """A Job or Sandbox of a run as its record has it."""
    metadata = made["metadata"]
    return Workload(name=metadata["name"], uid=metadata["uid"], positions=objects.positions_of(made))


def never_begun(spec: RunSpec, seen: Seen, why: str) -> Seen:
    """A run of which nothing was begun, so that there is nothing that a hook could clean up."""
    never = tuple(phases.never_started("nothing was begun") for _ in spec.hooks.post_run)
    return replace(seen, stopped=why, post_run=never)


class Observer:
    """The record of a run that has begun, brought up to date with the state of its pods.

    Where there are `logs`, they have to be read first; `wakes` are the moments at which something passes its limit.
    """

    def __init__(self, world: World, record: Record) -> None:
        self.world = world
        self.record = record
        self.spec = spec_of(record.frozen)
        self.now = replace(
            record,
            agent=record.agent or self._unrecorded_agent(),
            post=(*record.post, *self._unrecorded_hooks()),
            waiting=None,
        )
        self.logs: list[Log] = []
        self.wakes: list[datetime] = []

    def look(self) -> None:
        unanswered = self._open and not self.now.post
        self._look_at_agent()
        self._hear_verdict(unanswered)
        for index, made in enumerate(self.now.post):
            if not made.over:
                self._look_at_hooks(index, made)

    def _see(self, seen: Seen) -> None:
        self.now = replace(self.now, seen=seen)

    def _unrecorded_agent(self) -> Workload | None:
        """The agent's Job or Sandbox that was created, and not recorded because we were interrupted."""
        own = objects.names(self.world.head["name"])
        made = (*self.world.jobs, *self.world.sandboxes)
        found = (each for each in made if each["metadata"]["name"] in (own.agent, own.sandbox))
        return next(map(workload_of, found), None)

    def _unrecorded_hooks(self) -> list[Workload]:
        known = {each.uid for each in self.record.post}
        made = map(workload_of, self.world.jobs)
        found = [each for each in made if each.positions and each.uid not in known]
        return sorted(found, key=lambda each: each.name)[:1]

    @property
    def _open(self) -> bool:
        """True if the agent's part has not ended."""
        return phases.outcome(self.spec.hooks, self.now.seen) is None

    def _look_at_agent(self) -> None:
        agent, seen = self.now.agent, self.now.seen
        if not self._open:
            return
        if agent is None or agent.over:
            if self.world.deleted:
                self._see(never_begun(self.spec, seen, DELETED))
            return
        hooks, known = self.spec.hooks.pre_run, phases.pre_run(self.spec.hooks, seen)
        last = Slot(container=objects.AGENT, seen=seen.agent, timeout=self.spec.timeout or RUN_TIMEOUT)
        stop = (EndReason.KILLED, DELETED) if self.world.deleted else None
        found = self._followed(agent, [*_slots(objects.PRE, hooks, known), last], stop)
        prepared, *before, last = found.slots
        seen = replace(
            seen,
            pre_run=tuple(self._said(slot, found.pod, was) for slot, was in zip(before, known, strict=True)),
            agent=self._answered(last, found.pod),
            stopped=self._stopped(found, prepared),
        )
        self.now = replace(self.now, agent=found.made, seen=seen)

    def _followed(
        self, made: Workload, slots: Sequence[Slot], stop: tuple[EndReason, str] | None
    ) -> WorkloadState:
        wholes = (*self.world.jobs, *self.world.sandboxes)
        whole = next((each for each in wholes if each["metadata"]["uid"] == made.uid), None)
        found = pod_state.follow(
            made, whole, self.world.pods, slots, now=self.world.now, stop=stop, before=self.record.waiting
        )
        self.now = replace(self.now, waiting=found.waiting)
        if found.wake is not None:
            self.wakes.append(found.wake)
        return found

    def _stopped(self, found: WorkloadState, prepared: Slot) -> str:
        """Why the run ends though its agent never began, where no hook before it is the reason."""
        before = found.slots[1:-1]
        if not found.made.over or found.slots[-1].seen.state is not ContainerPhase.WAITING:
            return ""
        if any(slot.seen.failed for slot in before):
            return ""
        if prepared.seen.failed:
            return self._unprepared(prepared, found.pod)
        return found.why or "its pod ended before the agent began"

    def _unprepared(self, prepared: Slot, pod: Fields | None) -> str:
        said = self._said(prepared, pod, ContainerState())
        if said.reason is EndReason.NOT_STARTED:
            return said.detail
        return f"the workspace could not be prepared: {said.tail or said.detail or f'exit code {said.exit_code}'}"

    def _said(self, slot: Slot, pod: Fields | None, before: ContainerState) -> ContainerState:
        """The state of a hook with the last lines of its log, which are read when it has ended."""
        seen = slot.seen
        if seen.state is not ContainerPhase.ENDED or seen.reason is EndReason.NOT_STARTED or pod is None:
            return seen
        if seen == before:
            return seen
        text = self._log(pod, slot.container, TAIL_LINES)
        return replace(seen, tail=_tail(self.world.mask.text(text or seen.tail)))

    def _log(self, pod: Fields, container: str, lines: int | None) -> str:
        metadata = pod["metadata"]
        key = (metadata["uid"], container)
        if key not in self.world.logs:
            self.logs.append(Log(metadata["name"], metadata["uid"], container, lines))
            return ""
        return self.world.logs[key]

    def _answered(self, slot: Slot, pod: Fields | None) -> AgentSeen:
        """The state of the agent, with the answer that it printed."""
        seen, before = slot.seen, self.now.seen.agent
        if before.state is ContainerPhase.ENDED:
            return before
        if seen.state is not ContainerPhase.ENDED:
            return AgentSeen(state=seen.state, started=seen.started)
        # The built-in agent prints its records from the beginning on, and always a result.
        builtin = not self.world.settings.agent_command
        text, lines = "", None if builtin else _AGENT_LINES
        if pod is not None and seen.reason is not EndReason.NOT_STARTED:
            text = self._log(pod, objects.AGENT, lines)
        code = seen.exit_code if seen.reason is EndReason.EXITED else None
        result = from_output(text) or (from_output(seen.tail) if builtin else None)
        detail = ANSWER_LOST if builtin and code == 0 and result is None else seen.detail
        found = ended(code, result, reason=seen.reason, detail=detail, tail=_tail(text))
        # The error is visible to all who may read AgentRuns; the secrets are not for all of them.
        found = replace(found, error=self.world.mask.text(found.error))
        kept = _kept(found.result)
        if kept != found.result:
            self.now = replace(self.now, cut=len(found.result.encode("utf-8", "replace")))
            found = replace(found, result=kept)
        return replace(found, started=seen.started, seconds=seen.seconds)

    def _hear_verdict(self, unanswered: bool) -> None:
        """Takes the gate's verdict; one that was there before the answer was known does not count."""
        text = str(within(self.world.run, "metadata", "annotations").get(VERDICT, ""))
        hooks, now = self.spec.hooks, self.now
        if hooks.gate is None:
            return
        if unanswered or not text:
            # One that is removed and given again counts for the present answer.
            self.now = replace(now, void=text)
        elif text != now.void and phases.gated(hooks, now.seen) is None:
            self._see(replace(now.seen, verdict=phases.verdict(text)))

    def _look_at_hooks(self, index: int, made: Workload) -> None:
        lifecycle, hooks = self.spec.hooks, self.spec.hooks.post_run
        known = list(phases.post_run(lifecycle, self.now.seen))
        slots = _slots(objects.POST, [hooks[n] for n in made.positions], [known[n] for n in made.positions])
        stop = None
        if lifecycle.gate in made.positions:
            if phases.gate_settled(lifecycle, self.now.seen):
                stop = (EndReason.SETTLED, "")
            elif self.world.deleted:
                # The answer that it holds back is not needed any more.
                stop = (EndReason.KILLED, DELETED)
        found = self._followed(made, slots, stop)
        prepared, *after = found.slots
        for n, slot in zip(made.positions, after, strict=True):
            known[n] = self._said(slot, found.pod, known[n])
        # Where the pod was deleted before the first hook began, they are tried again.
        if prepared.seen.failed and prepared.seen.reason is not EndReason.KILLED:
            why = self._unprepared(prepared, found.pod)
            for n in made.positions:
                known[n] = phases.never_started(why)
        self._see(replace(self.now.seen, post_run=tuple(known)))
        post = self.now.post
        self.now = replace(self.now, post=(*post[:index], found.made, *post[index + 1 :]))


def _slots(prefix: str, hooks: Sequence[ContainerHook], known: Sequence[ContainerState]) -> list[Slot]:
    """The containers of a pod up to its last hook."""
    return [
        Slot(container=objects.PREPARE, seen=ContainerState()),
        *(
            Slot(container=f"{prefix}{hook.name}", seen=seen, timeout=hook.timeout)
            for hook, seen in zip(hooks, known, strict=True)
        ),
    ]


def _kept(text: str) -> str:
    """The beginning of an answer that is too long; its size is that which it has in an object."""
    while (size := len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) - 2) > MOST_KEPT:
        text = cut(text, len(text.encode("utf-8", "replace")) * MOST_KEPT // size)
    return text


def _tail(text: str) -> str:
    lines = text.rstrip().splitlines()[-TAIL_LINES:]
    kept = "\n".join(lines).encode("utf-8", "replace")
    return kept[-_TAIL_BYTES:].decode("utf-8", "ignore")
