"""An issue as a tracker tells it: the same fields for every tracker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["Blocker", "Issue"]


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
