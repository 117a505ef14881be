"""The status of a run on a cluster as the records that a run on this machine has.

As the status goes on, the list only grows at its end: a record that may still change is not in it yet. So a
reader may begin at any time, and after any break, and add the missing records to its journal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from hookline.engine.plain import parse_time
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import LEAVING, Begun, Called, Decided, Ended, Record
from hookline.engine.result import HookAction, Reason
from hookline.errors import FileError
from hookline.journal.stream import INSIDE
from hookline.kube.objects import Fields, items, mapping, phase_of, within
from hookline.options import KUBERNETES
from hookline.sympozium.cluster.observation import agent_name, frozen_of, has_ended, spec_of
from hookline.sympozium.phases import Phase, Stage
from hookline.sympozium.resolve import FORMAT
from hookline.sympozium.run.hooks import PHASE
from hookline.sympozium.types import RUN_TIMEOUT

RUN_SCOPE, AGENT_SCOPE = "1", "2"
_MARK = 8
_KINDS = ("timed_out", "not_started")
_LINES = 5
_TIMED_OUT = "timeout"
"""The error in the status of a run whose agent passed its limit."""


def run_id_of(run: Fields) -> str:
    """The name of the run and a part of its uid: a name may be given again once a run is gone."""
    metadata = within(run, "metadata")
    return f"{metadata.get('name')}-{str(metadata.get('uid')).replace('-', '')[:_MARK]}"


def records_of(run: Fields) -> list[Record]:
    """The records that are certain by now, in the order of a run on this machine."""
    found: list[Record] = []
    try:
        for record in _StatusReader(run).records():
            found.append(record)
    except _NotYet:
        pass
    return found


def agent_has_begun(run: Fields) -> bool:
    """True if the agent has begun; from then on its inner records have a place."""
    return any(map(_is_running, records_of(run)))


def agent_is_over(run: Fields) -> bool:
    return agents_end(records_of(run)) is not None


def is_agents_end(record: Record) -> bool:
    return isinstance(record, Ended) and record.scope_id == AGENT_SCOPE


def is_runs_end(record: Record) -> bool:
    return isinstance(record, Ended) and record.scope_id == RUN_SCOPE


def would_tell(run: Fields) -> bool:
    """True if a built-in agent would have inner records."""
    idle = phase_of(run) == Phase.SKIPPED or within(run, "spec").get("dryRun")
    return bool(within(run, "status").get("startedAt")) and not idle


def inside_note(run: Fields, text: str) -> Decided:
    """A note on inner records that are missing."""
    return Decided(run_id_of(run), AGENT_SCOPE, INSIDE, time.time(), HookAction.CONTINUE, note=text)


def _is_running(record: Record) -> bool:
    return isinstance(record, Decided) and (record.point, record.note) == (PHASE, f"phase {Phase.RUNNING}")


def agents_end(told: list[Record]) -> int | None:
    """The position of the first record after all that the agent did; None while there is none."""
    at = next((number for number, record in enumerate(told, 1) if _is_running(record)), len(told))
    return at if at < len(told) else None


class _NotYet(Exception):
    """The next record is not certain yet."""


class HookStatus(NamedTuple):
    """One hook of the status."""

    name: str
    state: str
    told: Fields

    @property
    def ended(self) -> bool:
        return self.state in ("succeeded", "failed")

    @property
    def failed(self) -> bool:
        return self.state == "failed"

    @property
    def started(self) -> float | None:
        return moment_of(self.told.get("startedAt"))

    @property
    def seconds(self) -> float:
        told = self.told.get("seconds")
        return float(told) if isinstance(told, int | float) else 0.0

    @property
    def error(self) -> str:
        """The error in the words of a runner on this machine."""
        code, why = self.told.get("exitCode"), str(self.told.get("message") or "failed")
        exited = self.told.get("reason") == "exited" and code is not None
        said = f"exited with {code}" if exited else why.removeprefix("failed: ")
        lines = [line for line in str(self.told.get("tail") or "").splitlines() if line.strip()]
        return f"{said}: {chr(10).join(lines[-_LINES:])}" if lines else said


class _StatusReader:
    """The status of one run, read from its beginning to its end."""

    def __init__(self, run: Fields) -> None:
        self.run = run
        self.id = run_id_of(run)
        self.metadata, self.spec, self.status = (within(run, key) for key in ("metadata", "spec", "status"))
        name = str(self.metadata.get("name"))
        self.about: dict[str, Any] = {
            "workflow_id": agent_name(run) or name,
            "agent": str(self.spec.get("agentId") or "default"),
            "session_id": str(self.spec.get("sessionKey") or name),
            "attempt": 1,
        }
        self.phase = phase_of(run)
        self.ended = has_ended(run)
        self.over = self.ended or self.phase == Phase.POST_RUNNING
        self.before = self._hooks(Stage.PRE_RUN)
        self.after = self._in_order(self._hooks(Stage.POST_RUN))
        self.ends_with_hooks = bool(self.after) and self.phase != Phase.SKIPPED
        self.at = moment_of(self.metadata.get("creationTimestamp")) or 0.0

    def records(self) -> Iterator[Record]:
        yield self._begun()
        if not self.ended and "hooks" not in self.status:
            raise _NotYet
        if self.before:
            yield self._phase(Phase.PENDING)
        yield from self._calls(Point.RUN_START, self.before)
        if self._through and self.before:
            yield self._decided(Point.RUN_START)
        if self._agent_began:
            yield from self._agent()
        else:
            yield from self._no_agent()
        if self.after:
            yield self._decided(LEAVING)
        if self.ends_with_hooks:
            yield from self._calls(Point.RUN_END, self.after)
        yield from self._end()

    @property
    def _through(self) -> bool:
        return all(hook.state == "succeeded" for hook in self.before)

    @property
    def _agent_began(self) -> bool:
        made = self.status.get("jobName") or self.status.get("sandboxName")
        return bool(made) and self._through and self.phase not in ("", Phase.PENDING)

    def _agent(self) -> Iterator[Record]:
        began = moment_of(self.status.get("startedAt"))
        if began is None and not self.over:
            raise _NotYet
        self._pass(began)
        agent, given = self.about["agent"], {"input": self.spec.get("task")}
        yield Begun(self.id, AGENT_SCOPE, RUN_SCOPE, Scope.AGENT, agent, self.at, given, self.about)
        if not self.before:
            yield self._phase(Phase.PENDING)
        yield self._phase(Phase.RUNNING)
        if not self.over:
            raise _NotYet
        yield self._left_phase()
        self._pass(self._agent_left())
        error = self._error
        output = {"error": error} if error else self._answer
        yield Ended(self.id, AGENT_SCOPE, Scope.AGENT, self.at, self._how, output, error)

    def _no_agent(self) -> Iterator[Record]:
        if not self.over:
            raise _NotYet
        if not self.before:
            yield self._phase(Phase.PENDING)
        yield self._left_phase()
        if self._broke is not None:
            yield self._decided(Point.RUN_START, self._broke)

    def _left_phase(self) -> Decided:
        """The phase that the agent's part ends with."""
        return self._phase(Phase.POST_RUNNING if self.ends_with_hooks else Phase(self.phase))

    def _agent_left(self) -> float:
        """When the first hook after it began; without one, when the run ended."""
        began = [hook.started for hook in self.after if hook.started is not None]
        if began and self.ends_with_hooks:
            return min(began)
        if not self.ended:
            raise _NotYet
        return moment_of(self.status.get("completedAt")) or self.at

    def _end(self) -> Iterator[Record]:
        if not self.ended:
            raise _NotYet
        if self.ends_with_hooks:
            yield self._phase(Phase(self.phase))
        self._pass(moment_of(self.status.get("completedAt")))
        broke = self._broke
        error = f"{broke.error} [hook {broke.name} at {Point.RUN_START}]" if broke else self._error
        output = {key: value for key, value in self.status.items() if key != "observedGeneration"}
        yield Ended(self.id, RUN_SCOPE, Scope.RUN, self.at, self._how, output, error)

    @property
    def _broke(self) -> HookStatus | None:
        return next((hook for hook in self.before if hook.failed), None)

    @property
    def _late(self) -> bool:
        return self.status.get("error") == _TIMED_OUT and self._agent_began

    @property
    def _how(self) -> Status:
        if self.phase == Phase.SKIPPED:
            return Status.SKIPPED
        if self.phase != Phase.FAILED and not self.status.get("error"):
            return Status.OK
        return Status.TIMED_OUT if self._late else Status.FAILED

    @property
    def _error(self) -> str | None:
        if self.phase == Phase.SKIPPED:
            return str(self.status.get("result") or "skipped")
        error = str(self.status.get("error") or "")
        return (_limit_passed(self.run) if self._late else error) or None

    @property
    def _answer(self) -> Fields:
        """The agent's output; without its text where there is a gate, which may hold it back or let out another."""
        gated = self.status.get("gateDigest") or self.status.get("gateVerdict")
        code = {"exit_code": self.status.get("exitCode", 0)}
        return code if gated else {"result": self.status.get("result", ""), **code}

    def _begun(self) -> Begun:
        name, namespace = str(self.metadata.get("name")), str(self.metadata.get("namespace"))
        return Begun(
            self.id,
            RUN_SCOPE,
            None,
            Scope.RUN,
            self.about["workflow_id"],
            self.at,
            {"input": self.spec.get("task"), "workspace": "/workspace"},
            self.about,
            declaration={
                "format": FORMAT,
                "on": KUBERNETES,
                "namespace": namespace,
                "name": name,
                "uid": self.metadata.get("uid"),
            },
            source=f"{KUBERNETES}:{namespace}/{name}",
        )

    def _calls(self, point: Point, hooks: list[HookStatus]) -> Iterator[Record]:
        for hook in hooks:
            if not hook.ended:
                if self.over and point is Point.RUN_START:
                    return  # the run ended before its turn
                raise _NotYet
            yield self._called(point, hook, last=point is Point.RUN_END and hook is hooks[-1])

    def _called(self, point: Point, hook: HookStatus, *, last: bool) -> Called:
        self._pass(hook.started and hook.started + hook.seconds)
        fails = hook.failed and point is Point.RUN_START
        error = hook.error if hook.failed else None
        reason = str(hook.told.get("reason"))
        kind = (reason if reason in _KINDS else "exit") if hook.failed else None
        return Called(
            self.id,
            RUN_SCOPE,
            point,
            hook.name,
            self.at,
            hook.seconds,
            HookAction.FAIL if fails else HookAction.CONTINUE,
            error if fails else None,
            None,
            error_kind=kind,
            error=error,
            last=last,
        )

    def _phase(self, now: Phase) -> Decided:
        return Decided(self.id, RUN_SCOPE, PHASE, self.at, HookAction.CONTINUE, note=f"phase {now}")

    def _decided(self, point: Point | str, broke: HookStatus | None = None) -> Decided:
        if broke is None:
            return Decided(self.id, RUN_SCOPE, point, self.at, HookAction.CONTINUE)
        said = Reason(broke.name, HookAction.FAIL, broke.error)
        return Decided(self.id, RUN_SCOPE, point, self.at, HookAction.FAIL, (said,))

    def _pass(self, moment: float | None) -> None:
        """Move the time on, never back: a cluster reports whole seconds, by more than one clock."""
        self.at = max(self.at, moment or 0.0)

    def _hooks(self, stage: Stage) -> list[HookStatus]:
        return [
            HookStatus(str(told.get("name")), str(told.get("state")), told)
            for told in items(self.status.get("hooks"))
            if told.get("stage") == stage
        ]

    def _in_order(self, hooks: list[HookStatus]) -> list[HookStatus]:
        """The gate first, where the run itself declares its hooks."""
        written = items(within(self.spec, "lifecycle").get("postRun"))
        gates = {mapping(each).get("name") for each in written if mapping(each).get("gate")}
        return sorted(hooks, key=lambda hook: hook.name not in gates)


def _limit_passed(run: Fields) -> str:
    try:
        spec = spec_of(frozen_of(run, None))
    except FileError:
        return "the agent passed its limit"
    limit = spec.timeout or (None if spec.instance else RUN_TIMEOUT)
    return f"the agent passed its limit{f' of {limit:g} s' if limit else ''}"


def moment_of(text: Any) -> float | None:
    """A time of the cluster in seconds; None where it is none."""
    try:
        return parse_time(text).timestamp()
    except ValueError:
        return None
