"""The state of a run: written to disk before anything else is done, so that a crash forgets none of it; and as lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, cast

from hookline.engine.plain import typed
from hookline.engine.record import Ended, Record
from hookline.journal.view import Line, duration
from hookline.kube.pod_state import ContainerPhase, ContainerState, EndReason
from hookline.sympozium.lifecycle import Lifecycle
from hookline.sympozium.phases import (
    NO_REASON,
    WITHHELD,
    Phase,
    Seen,
    Stage,
    never_started,
    phase,
    post_run,
    pre_run,
    status,
)
from hookline.sympozium.run.folders import SKIP, Folder
from hookline.terminal import err, out, print_json

logger = logging.getLogger(__name__)

PHASE = "x.sympozium.phase"
"""The point of a note on a run's phase."""
_FILE = "seen.json"
_SKIP_BYTES = 4096
_STYLE = {"Failed": "red", "Succeeded": "green"}
_OF_STAGE = {Stage.PRE_RUN: ("pre_run", pre_run), Stage.POST_RUN: ("post_run", post_run)}


class RunState:
    """The observed state of one run. `shown` is its status, updated in place: the record of its end refers to it."""

    def __init__(
        self, folder: Folder, lifecycle: Lifecycle, tell: Callable[[Phase], None], seen: Seen | None = None
    ) -> None:
        self._folder = folder
        self._lifecycle = lifecycle
        self._tell = tell
        self.shown: dict[str, Any] = {}
        self.about: dict[str, Any] = {}
        """More fields of the status, such as the person who let an answer through."""
        self.seen = seen or Seen()
        self._due: list[Phase] = []
        self._phase = phase(lifecycle, self.seen) if seen is not None else None
        self._show()

    @property
    def phase(self) -> Phase:
        return phase(self._lifecycle, self.seen)

    def hook(self, stage: Stage, index: int, seen: ContainerState) -> None:
        """Keep the state of a hook. A phase that its end brings is reported by `tell_due`, after the record of the hook."""
        field, states = _OF_STAGE[stage]
        known = list(states(self._lifecycle, self.seen))
        known[index] = seen
        self.seen = replace(self.seen, **{field: tuple(known)})
        self._changed()
        if seen.state is not ContainerPhase.ENDED:
            self.tell_due()

    def change(self, **changes: Any) -> None:
        self.seen = replace(self.seen, **changes)
        self._changed()
        self.tell_due()

    def tell_due(self) -> None:
        """Report the phases that were not reported yet."""
        due, self._due = self._due, []
        for each in due:
            self._tell(each)

    def tell_besides(self, **about: Any) -> None:
        self.about |= about
        self._show()

    def give_up(self, stage: Stage) -> None:
        """Mark the waiting hooks of that stage as never started."""
        if stage is not Stage.POST_RUN:
            return
        never = never_started("interrupted before its turn")
        for index, known in enumerate(post_run(self._lifecycle, self.seen)):
            if known.state is ContainerPhase.WAITING:
                self.hook(stage, index, never)

    def settle(self, why: str) -> None:
        """Correct the state after the process was killed: all that was running has ended, and the rest never began."""
        seen = self.seen
        before = tuple(
            replace(each, state=ContainerPhase.ENDED, reason=EndReason.KILLED, detail=why)
            if each.state is ContainerPhase.RUNNING
            else each
            for each in seen.pre_run
        )
        # A postRun hook that was running is due again: it may not have got far.
        after = tuple(
            ContainerState() if each.state is ContainerPhase.RUNNING else each for each in seen.post_run
        )
        changes: dict[str, Any] = {"pre_run": before, "post_run": after}
        if seen.agent.state is ContainerPhase.RUNNING:
            changes["agent"] = replace(
                seen.agent, state=ContainerPhase.ENDED, reason=EndReason.KILLED, error=why
            )
        elif seen.agent.state is ContainerPhase.WAITING and seen.skip is None:
            through = len(before) == len(self._lifecycle.pre_run) and all(each.succeeded for each in before)
            skip = skip_marker(self._folder) if through else None
            changes |= {"stopped": why} if skip is None else {"skip": skip}
        self.change(**changes)

    def _changed(self) -> None:
        try:
            self._folder.write(_FILE, asdict(self.seen))
        except OSError as exc:
            # A full disk must not keep a hook from running, least of all one that cleans up.
            logger.warning("%s: its state cannot be kept: %s", self._folder.run_id, exc)
        self._show()
        if self._phase is None:
            self._phase = Phase.PENDING
            self._due.append(Phase.PENDING)
        if self.phase is not self._phase:
            self._phase = self.phase
            self._due.append(self._phase)

    def _show(self) -> None:
        # In place, since others hold a reference to it.
        self.shown.clear()
        self.shown.update(status(self._lifecycle, self.seen), **self.about)


def skip_marker(folder: Folder) -> str | None:
    """The reason in the skip marker, where a preRun hook has left one."""
    found = folder.left_in_ipc(SKIP, _SKIP_BYTES)
    if found is None:
        return None
    return found[:_SKIP_BYTES].decode("utf-8", "replace").strip() or NO_REASON


def last_seen(folder: Folder) -> Seen:
    """The state of a run as it was last written."""
    found = folder.read(_FILE)
    return typed(Seen, found) if isinstance(found, dict) else Seen()


def print_end(run_id: str, end: Phase, status: Mapping[str, Any], *, json: bool, where: str = "") -> int:
    """Print how a run ended; returns the exit code. `where` are the words that find a run on a cluster."""
    if json:
        print_json({"record": "result", "run_id": run_id, "status": status})
    elif end is Phase.SKIPPED:
        out.print(f"skipped: {status.get('result', '')}")
    elif end is Phase.SUCCEEDED:
        out.print(str(status.get("result") or ""))
    else:
        err.print(f"error: {status.get('error') or end} (hookline runs {run_id}{where})", style="red")
    # A run that succeeded and whose answer is held back must not be taken for one whose answer is out.
    well = end in (Phase.SUCCEEDED, Phase.SKIPPED) and status.get("gateVerdict") not in WITHHELD
    return 0 if well else 1


def status_lines(records: list[Record]) -> Iterator[Line]:
    """The phase of a recorded run, its conditions and how each hook ended."""
    over = [each.output for each in records if isinstance(each, Ended) and each.scope == "run"]
    if over and isinstance(over[-1], dict):
        yield from lines_of_status(cast("Mapping[str, Any]", over[-1]))


def lines_of_status(status: Mapping[str, Any]) -> Iterator[Line]:
    yield Line(
        f"phase  {status.get('phase', '?')}", f"bold {_STYLE.get(str(status.get('phase')), '')}".strip()
    )
    for key in ("error", "result", "exitCode", "gateVerdict", "workspace", "note"):
        if status.get(key) not in (None, ""):
            yield Line(f"  {key}  {_one_line(status[key])}")
    if isinstance(status.get("gate"), dict):
        gate = cast("Mapping[str, Any]", status["gate"])
        yield Line(f"  gate  {gate.get('action')} by {gate.get('by') or 'default'}")
    for each in cast("list[Mapping[str, Any]]", status.get("conditions") or []):
        yield Line(f"  condition  {each.get('type')}: {each.get('message')}", "magenta")
    for each in cast("list[Mapping[str, Any]]", status.get("hooks") or []):
        yield from _hook_lines(each)


def _hook_lines(told: Mapping[str, Any]) -> Iterator[Line]:
    code = f", exit code {told['exitCode']}" if "exitCode" in told else ""
    took = f", {duration(float(told['seconds']))}" if "seconds" in told else ""
    yield Line(f"  {told.get('stage')} {told.get('name')}  {told.get('state')}{code}{took}")
    if told.get("message"):
        yield Line(f"    {_one_line(told['message'])}", "magenta")
    for line in str(told.get("tail") or "").splitlines():
        yield Line(f"    | {line}", "dim")


def _one_line(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 300 else f"{text[:297]}..."
