"""One run with its state, and the hooks of its manifest as hooks of the engine: exit code 0 goes on, anything else broke."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from hookline.engine.context import Facts, HookContext, WorkflowContext
from hookline.engine.hook import Hook
from hookline.engine.lifecycle import Approver, Run
from hookline.engine.pipeline import Recorder
from hookline.engine.plain import plain
from hookline.engine.point import Point, Status
from hookline.engine.record import Begun, Called, Decided, Ended, Owner, Question, Record
from hookline.engine.result import CONTINUE, HookAction, HookResult, Reason
from hookline.errors import FileError, HookBroke
from hookline.handlers.process import WORKSPACE, broke, context_json, environment, with_last_lines
from hookline.journal.masking import Mask
from hookline.journal.sqlite import SqliteJournal
from hookline.kube.pod_state import ContainerPhase, ContainerState, EndReason
from hookline.runners import Ending, Mount, Order, Runner
from hookline.sympozium import phases
from hookline.sympozium.environment import Environment, command_of, for_hook
from hookline.sympozium.phases import GateVerdict, Phase, Seen, Stage
from hookline.sympozium.resolve import ON_ERROR, POINTS, RunRequest, secret_values
from hookline.sympozium.run.folders import CONTROL, NO_REASON, SKIP, Folder, Held, Home, Quota
from hookline.sympozium.types import ContainerHook, RunSpec
from hookline.tasks import cancel_and_wait

logger = logging.getLogger(__name__)

PHASE = "x.sympozium.phase"
"""The point of a note on a run's phase."""
SEEN = "seen.json"
"""The file in a run's folder with its state, so that a crash forgets none of it."""
CANCELLED = "cancelled"
VERDICT = f"{CONTROL}/gate-verdict"
"""The file beneath /ipc with the verdict of a gate hook, as JSON with `action`, `response` and `reason`."""
_VERDICT_BYTES = 1024 * 1024
_TAIL = 2048
_MORE_GRACE = 5.0
_LIKE_HERE = ("PATH", "LANG", "LC_ALL", "TZ")
_OF_STAGE = {Stage.PRE_RUN: ("pre_run", phases.pre_run), Stage.POST_RUN: ("post_run", phases.post_run)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSite:
    """All that the runs of one command share. `runner_of` gives the runner for an image's pull policy."""

    home: Home
    runner_of: Callable[[str], Runner]
    agent_runner: Runner
    journal: SqliteJournal
    owner: Owner
    watchers: tuple[Callable[[Record], None], ...] = ()
    approver: Approver | None = None
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    hooks: tuple[Hook, ...] = ()
    masked: tuple[str, ...] = ()
    """Values that are secret besides those of each run."""


class Ground:
    """One run, as its hooks and its agent use it, and its observed state, which is on disk before anything else is done.

    `kept` is the state that a killed process left. `shown` is the status, updated in place: the record of the run's end
    refers to it.
    """

    def __init__(
        self, site: LocalSite, asked: RunRequest, spec: RunSpec, folder: Folder, kept: Seen | None = None
    ) -> None:
        self.site = site
        self.asked = asked
        self.spec = spec
        self.folder = folder
        self.quota = Quota(folder, asked.workspace_size)
        self.seen = kept or Seen()
        self._phase = None if kept is None else self.phase
        self.shown: dict[str, Any] = {}
        self._about: dict[str, Any] = {}
        self.recorder = _PhaseRecorder(site, self.tell_phase)
        grace = sum(hook.timeout for hook in spec.hooks.post_run) + _MORE_GRACE
        self.run = Run(id=folder.run_id, recorder=self.recorder, approver=site.approver, end_grace=grace)
        self.scope_id = self.run.next_id()
        self.secrets = asked.known_secrets(site.environ)
        self.mask = Mask([*site.masked, *secret_values(asked, spec, site.environ)])
        self.show()

    def mounts(self, runner: Runner) -> tuple[Mount, ...]:
        return (*self.asked.mounts, *self.folder.mounts(own_tmp=runner.capabilities.isolates))

    def variables(self, env: Environment, runner: Runner) -> dict[str, str]:
        """The variables of a process. PATH, HOME and the like are set where it runs in no image, which has its own."""
        can, environ = runner.capabilities, self.site.environ
        found: dict[str, str] = {}
        if not can.uses_image:
            found = {name: environ[name] for name in _LIKE_HERE if name in environ}
            found["HOME"] = "/tmp" if can.isolates else environ.get("HOME", "/")
        return {**found, **env.resolved(self.secrets)}

    @property
    def phase(self) -> Phase:
        return phases.phase(self.spec.hooks, self.seen)

    def change(self, **changes: Any) -> None:
        self._keep(replace(self.seen, **changes))
        self.tell_phase()

    def see_hook(self, stage: Stage, index: int, seen: ContainerState) -> None:
        """Keep the state of a hook. A phase that its end brings is recorded after the hook."""
        field, states = _OF_STAGE[stage]
        known = list(states(self.spec.hooks, self.seen))
        known[index] = seen
        self._keep(replace(self.seen, **{field: tuple(known)}))
        if seen.state is not ContainerPhase.ENDED:
            self.tell_phase()

    def _keep(self, seen: Seen) -> None:
        self.seen = seen
        try:
            self.folder.write(SEEN, plain(seen))
        except OSError as exc:
            # A full disk must not keep a hook from running, least of all one that cleans up.
            logger.warning("%s: its state cannot be kept: %s", self.folder.run_id, exc)
        self.show()

    def show(self, **about: Any) -> None:
        """Update the status; `about` are further fields of it, such as the person who let an answer through."""
        self._about |= about
        # In place, since others hold a reference to it.
        self.shown.clear()
        self.shown.update(phases.status(self.spec.hooks, self.seen), **self._about)

    def tell_phase(self) -> None:
        """Record the phase as a note, where it is a new one; the first is Pending, however short."""
        if self.seen == Seen():
            return
        for now in (self._phase or Phase.PENDING, self.phase):
            if now is not self._phase:
                self._phase = now
                self.note(PHASE, f"phase {now}")

    def note(self, point: str, text: str) -> None:
        """Put a sentence on the record of the run."""
        at = self.scope_id
        self.recorder.note(Decided(self.run.id, at, point, time.time(), HookAction.CONTINUE, note=text))


class _PhaseRecorder(Recorder):
    """Records one run with its phases: a phase that a hook's end brings comes after the hook."""

    __slots__ = ("_tell_phase",)

    def __init__(self, site: LocalSite, tell_phase: Callable[[], None]) -> None:
        super().__init__(site.journal, site.watchers)
        self._tell_phase = tell_phase

    def note(self, record: Called | Decided) -> None:
        super().note(record)
        if isinstance(record, Called):
            self._tell_phase()

    async def write(self, record: Begun | Ended) -> None:
        self._tell_phase()
        await super().write(record)


def container_hooks(ground: Ground) -> tuple[Hook, ...]:
    """The hooks that have not ended yet, in the order in which they run, with the one for the skip marker."""
    lifecycle = ground.spec.hooks
    known = phases.post_run(lifecycle, ground.seen)
    left = [index for index in lifecycle.post_order if known[index].state is not ContainerPhase.ENDED]
    return (
        *(_hook(ground, Stage.PRE_RUN, index, hook) for index, hook in enumerate(lifecycle.pre_run)),
        _skip(ground),
        *(_hook(ground, Stage.POST_RUN, index, lifecycle.post_run[index]) for index in left),
    )


def reason_of(held: Held) -> tuple[EndReason, str]:
    """Why a process ended, with details."""
    ending, overfull = held
    if overfull:
        return EndReason.OVERFULL, overfull
    if ending.not_started is not None:
        return EndReason.NOT_STARTED, ending.not_started
    if ending.passed_limit:
        return EndReason.TIMED_OUT, ""
    if ending.exit_code is None:
        return EndReason.KILLED, ending.in_words()
    return EndReason.EXITED, ""


def _hook(ground: Ground, stage: Stage, index: int, spec: ContainerHook) -> Hook:
    return Hook(
        name=spec.name,
        points=frozenset({POINTS[stage]}),
        handler=_ContainerHandler(ground, stage, index, spec),
        kind="container",
        match=None if stage is Stage.PRE_RUN else lambda facts: facts.status is not Status.SKIPPED,
        timeout=spec.timeout,
        on_error=ON_ERROR[stage],
        source=str(spec.place),
        limits_itself=True,
    )


def _skip(ground: Ground) -> Hook:
    """The last hook at run.start: skips the run where a preRun hook left the skip marker."""

    def there(_facts: Facts) -> bool:
        reason = ground.folder.skip_reason()
        if reason is not None:
            ground.change(skip=ground.mask.text(reason))
        return reason is not None

    def skip(_ctx: WorkflowContext | None, _context: HookContext, /) -> HookResult:
        return HookResult.skip(ground.seen.skip or NO_REASON)

    return Hook(
        name="skip marker",
        points=frozenset({Point.RUN_START}),
        handler=skip,
        match=there,
        source=f"/ipc/{SKIP}",
    )


class _ContainerHandler:
    """One hook's container, started when the engine calls it."""

    def __init__(self, ground: Ground, stage: Stage, index: int, spec: ContainerHook) -> None:
        self.ground = ground
        self.stage = stage
        self.index = index
        self.spec = spec

    async def __call__(self, _ctx: WorkflowContext | None, context: HookContext, /) -> HookResult:
        ground, began = self.ground, datetime.now(UTC)
        ground.see_hook(self.stage, self.index, ContainerState(state=ContainerPhase.RUNNING, started=began))
        seen = _over(began, EndReason.NOT_STARTED, "hookline itself could not run it")
        try:
            held = await self._ran(context)
            if held is None:
                seen = _over(began, EndReason.SETTLED, "a person has decided")
                return CONTINUE
            reason, detail = reason_of(held)
            ending = held.ending
            seen = ContainerState(
                state=ContainerPhase.ENDED,
                exit_code=ending.exit_code if ending.exited else None,
                reason=reason,
                detail=ground.mask.text(detail),
                started=began,
                seconds=seconds_since(began) if held.overfull else round(ending.seconds, 3),
                tail=self._tail(ending),
            )
            return self._judged(held)
        except asyncio.CancelledError:
            seen = _over(began, EndReason.KILLED, CANCELLED)
            self._give_up_rest()
            raise
        except FileError as exc:
            seen = _over(began, EndReason.NOT_STARTED, str(exc))
            raise HookBroke(f"could not start: {exc}", kind="not_started") from exc
        finally:
            ground.see_hook(self.stage, self.index, seen)

    async def _ran(self, context: HookContext) -> Held | None:
        """How the process ended; None where a gate was ended because a person had decided meanwhile."""
        runner = self.ground.site.runner_of(self.spec.pull_policy)
        order = self._order(runner, context)
        if not order.argv and not order.own_program:
            why = (
                f"it has no command; that of its image {self.spec.image!r} is only known with --on container"
            )
            return Held(Ending(not_started=why))
        if self.spec.gate and phases.exit_code(self.ground.spec.hooks, self.ground.seen) == 0:
            return await self._gated(runner, order)
        return await self.ground.quota.run(runner, order)

    async def _gated(self, runner: Runner, order: Order) -> Held | None:
        """Run the gate hook and ask a person at the same time; the first verdict stands, and the other is cancelled."""
        ground = self.ground
        # The agent may have left one there, which must not count.
        ground.folder.drop_from_ipc(VERDICT)
        running = asyncio.ensure_future(ground.quota.run(runner, order))
        asking = asyncio.ensure_future(self._asked())
        try:
            await asyncio.wait({running, asking}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                self._take(asking.result())
            if phases.gate_settled(ground.spec.hooks, ground.seen):
                return None
            held = await running
            self._take(self._own_verdict())
            if ground.seen.verdict is None:
                self._take(await asking)
            return held
        finally:
            await cancel_and_wait(running, asking)

    async def _asked(self) -> GateVerdict | None:
        """Ask a person for the verdict on the answer; None where there is no person to ask."""
        ground = self.ground
        if ground.run.approver is None:
            return None
        question = Question(
            id=f"{ground.run.id}.{ground.scope_id}.gate",
            run_id=ground.run.id,
            scope_id=ground.scope_id,
            point=Point.RUN_END,
            tool=None,
            reasons=(Reason(self.spec.name, HookAction.ASK, "the answer waits for a verdict"),),
            value=ground.seen.agent.result,
            asked=time.time(),
        )
        return phases.verdict_of(await ground.run.ask(question))

    def _own_verdict(self) -> GateVerdict | None:
        found = self.ground.folder.left_in_ipc(VERDICT, _VERDICT_BYTES)
        said = phases.verdict(found.decode("utf-8", "replace")) if found is not None else None
        return None if said is None else replace(said, by=said.by or f"hook {self.spec.name}")

    def _take(self, said: GateVerdict | None) -> None:
        if said is None:
            return
        ground = self.ground
        ground.change(verdict=replace(said, digest=phases.digest(ground.seen.agent.result)))
        ground.show(gate={"action": said.action, "by": said.by, "reason": said.reason})

    def _order(self, runner: Runner, context: HookContext) -> Order:
        ground, spec = self.ground, self.spec
        env = for_hook(ground.spec, spec, ground.seen if self.stage is Stage.POST_RUN else None)
        variables = ground.variables(env, runner)
        words = command_of(spec, env, variables)
        own = not spec.command and runner.capabilities.uses_image
        return Order(
            argv=words if spec.command or own else (),
            own_program=own,
            cwd=WORKSPACE,
            env=environment(variables, None, context, WORKSPACE),
            stdin=context_json(context),
            timeout=spec.timeout,
            merge_stderr=True,
            mounts=ground.mounts(runner),
            network=ground.asked.network,
            image=spec.image,
        )

    def _judged(self, held: Held) -> HookResult:
        ending, overfull = held
        if not overfull and ending.exited and ending.exit_code == 0:
            return CONTINUE
        trouble = None if overfull else broke(ending, self.spec.timeout)
        if trouble is not None:
            raise HookBroke(self.ground.mask.text(str(trouble)), kind=trouble.kind)
        said = f"wrote too much: {overfull}" if overfull else ending.in_words()
        raise HookBroke(self.ground.mask.text(with_last_lines(said, ending)), kind="exit")

    def _tail(self, ending: Ending) -> str:
        """The last lines of the output, masked before they are cut."""
        text = self.ground.mask.text(ending.stdout.text)
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        return "\n".join(lines[-5:])[-_TAIL:]

    def _give_up_rest(self) -> None:
        """After a cancellation no other hook is called: the postRun hooks that wait never start."""
        if self.stage is Stage.PRE_RUN:
            return
        never = phases.never_started("interrupted before its turn")
        for index, known in enumerate(phases.post_run(self.ground.spec.hooks, self.ground.seen)):
            if known.state is ContainerPhase.WAITING:
                self.ground.see_hook(self.stage, index, never)


def _over(began: datetime, reason: EndReason, detail: str) -> ContainerState:
    return ContainerState(
        state=ContainerPhase.ENDED, reason=reason, detail=detail, started=began, seconds=seconds_since(began)
    )


def seconds_since(began: datetime) -> float:
    return round((datetime.now(UTC) - began).total_seconds(), 3)
