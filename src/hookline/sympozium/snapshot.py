"""What was seen of a run as plain data and back, so that a crash forgets none of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, cast

from hookline.kube.pod_state import ContainerPhase, ContainerState, Reason
from hookline.sympozium.phases import AgentSeen, GateVerdict, Seen


def kept(seen: Seen) -> dict[str, Any]:
    return cast("dict[str, Any]", _plain(seen))


def seen_again(known: Mapping[str, Any]) -> Seen:
    said = known["verdict"]
    return Seen(
        pre_run=tuple(ContainerState(**_read(each)) for each in known["pre_run"]),
        agent=AgentSeen(**_read(known["agent"])),
        post_run=tuple(ContainerState(**_read(each)) for each in known["post_run"]),
        stopped=known["stopped"],
        skip=known["skip"],
        verdict=GateVerdict(**said) if said else None,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return [_plain(each) for each in cast("tuple[Any, ...]", value)]
    if isinstance(value, Seen | ContainerState | AgentSeen | GateVerdict):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _READ[key](value) if key in _READ and value is not None else value
        for key, value in given.items()
    }


_READ: Mapping[str, Callable[[Any], Any]] = {
    "state": ContainerPhase,
    "reason": Reason,
    "started": datetime.fromisoformat,
}
