"""An AgentRun's status as lines: what `hookline runs RUN` adds to the tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from hookline.engine.record import Begun, Ended, Record
from hookline.journal.view import Line, duration

_STYLE = {"Failed": "red", "Succeeded": "green"}


def status_lines(records: list[Record]) -> Iterator[Line]:
    """The phase of a recorded run, its conditions and how each hook ended."""
    status = _status_in(records)
    if status is not None:
        yield from lines_of_status(status)


def lines_of_status(status: Mapping[str, Any]) -> Iterator[Line]:
    yield Line(
        f"phase  {status.get('phase', '?')}", f"bold {_STYLE.get(str(status.get('phase')), '')}".strip()
    )
    for key in ("error", "result", "exitCode", "gateVerdict", "workspace", "note"):
        if status.get(key) not in (None, ""):
            yield Line(f"  {key}  {_one_line(status[key])}")
    if isinstance(status.get("gate"), dict):
        gate = cast("Mapping[str, Any]", status["gate"])
        yield Line(f"  gate  {gate.get('action')} by {gate.get('by') or 'nobody'}")
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


def _status_in(records: list[Record]) -> Mapping[str, Any] | None:
    begun = next((each for each in records if isinstance(each, Begun) and each.scope == "run"), None)
    if begun is None or (begun.declaration or {}).get("format") != "sympozium":
        return None
    over = [each.output for each in records if isinstance(each, Ended) and each.scope == "run"]
    found = over[-1] if over else None
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else None


def _one_line(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 300 else f"{text[:297]}..."
