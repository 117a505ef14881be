"""An AgentRun at the terminal, here and on a cluster: its status as lines, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from hookline.engine.record import Ended, Record
from hookline.journal.view import Line, duration
from hookline.kube.objects import items, mapping
from hookline.sympozium.phases import WITHHELD, Phase
from hookline.terminal import err, out, print_json

_STYLE = {"Failed": "red", "Succeeded": "green"}


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
    if gate := mapping(status.get("gate")):
        yield Line(f"  gate  {gate.get('action')} by {gate.get('by') or 'default'}")
    for each in items(status.get("conditions")):
        yield Line(f"  condition  {each.get('type')}: {each.get('message')}", "magenta")
    for each in items(status.get("hooks")):
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
