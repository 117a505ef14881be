"""A run on a cluster as lines, in the look of one on this machine: made of its status, each time that it changes."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from hookline.journal.masking import Mask
from hookline.journal.view import Line, duration
from hookline.sympozium.phases import Phase, Stage

__all__ = ["ENDED", "Progress", "phase_in", "status_in"]

Object = Mapping[str, Any]

ENDED = (Phase.SUCCEEDED, Phase.FAILED, Phase.SKIPPED)
_WORDS = {Stage.PRE_RUN: "start", Stage.POST_RUN: "end"}
_TOLD_BY_HOOKS = "PostRunFailed"
_OVER = ("succeeded", "failed")
_HOW = {Phase.SUCCEEDED: ("ok", "green"), Phase.SKIPPED: ("skipped", "green")}


class Progress:
    """Each thing that happens is told once. `how_to_answer` is told when the answer waits for a verdict."""

    def __init__(
        self,
        mask: Mask | None = None,
        *,
        width: int = 80,
        how_to_answer: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._mask = mask or Mask()
        self._width = width
        self._how_to_answer = how_to_answer
        self._clock = clock
        self._began: float | None = None
        self._agent: float | None = None
        self._seen_running = False
        self._phase = ""
        self._told: set[tuple[str, ...]] = set()

    def lines(self, run: Object, inside: Iterable[Line] = ()) -> Iterator[Line]:
        """What is new in the run as it is now; `inside` is what its agent did before it ended."""
        if self._began is None:
            self._began = self._clock()
            name = run["metadata"]["name"]
            yield self._line(0, f"run {name} {name}{self._task(run)}", "bold")
        status, now = status_in(run), phase_in(run)
        self._seen_running = self._seen_running or now == Phase.RUNNING
        changed, self._phase = now != self._phase and bool(now), now
        yield from self._hooks(status, Stage.PRE_RUN)
        if changed and self._agent is None and _has_run(now) and self._once("agent"):
            self._agent = self._clock()
            yield self._line(1, f"agent {run['spec'].get('agentId') or 'default'}{self._task(run)}", "bold")
        yield from inside
        if changed and now not in ENDED:
            yield self._note(f"phase {now}")
        yield from self._agent_ended(status, now)
        yield from self._gate(status)
        yield from self._hooks(status, Stage.POST_RUN)
        yield from self._conditions(status)
        if changed and now in ENDED:
            yield self._note(f"phase {now}")
            how, style = _HOW.get(Phase(now), ("failed", "red"))
            why = f"  {self._mask.text(str(status['error']))}" if status.get("error") else ""
            yield from self._wrapped(1, f"= {how}  {duration(self._clock() - self._began)}{why}", style)

    def _hooks(self, status: Object, stage: Stage) -> Iterator[Line]:
        for told in cast("list[Object]", status.get("hooks") or []):
            key = (stage, str(told.get("name")))
            if told.get("stage") != stage or told.get("state") not in _OVER or key in self._told:
                continue
            self._told.add(key)
            yield from self._hook(told, stage)

    def _hook(self, told: Object, stage: Stage) -> Iterator[Line]:
        seconds = told.get("seconds")
        # A cluster tells whole seconds.
        took = "" if seconds is None else f"  {duration(seconds) if seconds else 'under 1 s'}"
        text = f"{_WORDS[stage]:<5}  {told.get('name')}{took}"
        if told.get("state") == "succeeded":
            yield self._line(1, text, "dim")
            return
        last = next(iter(reversed(str(told.get("tail") or "").split("\n"))), "").strip()
        said = str(told.get("message") or "failed").removeprefix("failed: ")
        why = self._mask.text(f"{said}{f': {last}' if last else ''}")
        follows = ", so it failed the run" if stage is Stage.PRE_RUN else ""
        yield from self._wrapped(1, f"{text}  broke: {why}{follows}", "bold magenta")

    def _agent_ended(self, status: Object, now: str) -> Iterator[Line]:
        if self._agent is None or now == Phase.RUNNING:
            return
        took, self._agent = self._clock() - self._agent, None
        # A run that was seen only when its agent had ended does not tell how long that took.
        shown = f"  {duration(took)}" if self._seen_running else ""
        well = status.get("exitCode", 0) == 0 and now != Phase.FAILED
        why = f"  {self._mask.text(str(status['error']))}" if status.get("error") and not well else ""
        how, style = ("ok", "green") if well else ("failed", "red")
        yield from self._wrapped(2, f"= {how}{shown}{why}", style)

    def _gate(self, status: Object) -> Iterator[Line]:
        if status.get("gateDigest") and self._once("gate"):
            yield from self._wrapped(
                1, f"note   the answer waits for a verdict{self._how_to_answer}", "yellow"
            )
        word = str(status.get("gateVerdict") or "")
        if word and self._once("verdict"):
            by = f" by {status['gateBy']}" if status.get("gateBy") else ""
            yield self._note(f"gate {word}{by}")

    def _conditions(self, status: Object) -> Iterator[Line]:
        for each in cast("list[Object]", status.get("conditions") or []):
            key = ("condition", *(str(each.get(part)) for part in ("type", "reason", "message")))
            if each.get("status") == "True" and each.get("type") != _TOLD_BY_HOOKS and key not in self._told:
                self._told.add(key)
                text = self._mask.text(f"note   {each.get('type')}: {each.get('message')}")
                yield from self._wrapped(1, text, "yellow")

    def _once(self, what: str) -> bool:
        new = (what,) not in self._told
        self._told.add((what,))
        return new

    def _task(self, run: Object) -> str:
        task = run["spec"].get("task")
        text = task if isinstance(task, str) else self._mask.json(task) if task else ""
        return f"  {' '.join(self._mask.text(text).split())}" if text else ""

    def _note(self, text: str) -> Line:
        return self._line(1, f"note   {text}", "yellow")

    def _line(self, depth: int, text: str, style: str) -> Line:
        whole = f"{'  ' * depth}{text}"
        return Line(whole if len(whole) <= self._width else f"{whole[: self._width - 3]}...", style)

    def _wrapped(self, depth: int, text: str, style: str) -> Iterator[Line]:
        indent = "  " * depth
        for line in textwrap.wrap(
            text,
            max(self._width, len(indent) + 30),
            initial_indent=indent,
            subsequent_indent=f"{indent}       ",
            break_long_words=False,
            break_on_hyphens=False,
        ):
            yield Line(line, style)


def _has_run(phase: str) -> bool:
    """Whether the agent has begun for certain; a run that failed may have done so before it."""
    return phase in (Phase.RUNNING, Phase.SUCCEEDED)


def status_in(run: Object) -> Object:
    found = run.get("status")
    return cast("Object", found) if isinstance(found, Mapping) else {}


def phase_in(run: Object) -> str:
    return str(status_in(run).get("phase") or "")
