"""An issue as a tracker tells it: the same fields for every tracker."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Another issue that this one waits for."""

    id: str | None = None
    identifier: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One issue, whole. `identifier` is what people call it (ABC-123), `id` what the tracker does."""

    id: str
    identifier: str
    title: str
    state: str
    native_ref: str | None = None
    description: str | None = None
    priority: int | None = None
    branch_name: str | None = None
    url: str | None = None
    assignee_id: str | None = None
    labels: tuple[str, ...] = ()
    blocked_by: tuple[Blocker, ...] = ()
    dispatchable: bool = True
    created_at: datetime | None = None
    updated_at: datetime | None = None


_TIMES = ("created_at", "updated_at")


def issue_text(issue: Issue) -> str:
    """An issue for another process, whole."""
    return json.dumps(asdict(issue), default=datetime.isoformat)


def issue_from(text: str) -> Issue:
    """The issue that was written so; a ValueError, TypeError or KeyError where it is none."""
    told: dict[str, Any] = json.loads(text)
    times = {name: datetime.fromisoformat(told[name]) for name in _TIMES if told.get(name)}
    blockers = tuple(Blocker(**each) for each in told.get("blocked_by") or ())
    lists = {"labels": tuple(told.get("labels") or ()), "blocked_by": blockers}
    found: dict[str, Any] = {**told, **times, **lists}
    return Issue(**found)
