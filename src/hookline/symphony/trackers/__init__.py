"""The protocol of trackers, where issues come from, and an issue as a value. Two reads, nothing else.

Also the settings that all of them have: a text or a secret, as it stands in the file or in a variable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from hookline.errors import HooklineError

_NAME = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Another issue that this one waits for."""

    id: str | None = None
    identifier: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One issue. `identifier` is for people (ABC-123), `id` is the tracker's own."""

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


def issue_values(issue: Issue) -> dict[str, Any]:
    """An issue as a template and another process see it: plain values, moments as ISO 8601."""
    return json.loads(json.dumps(asdict(issue), default=datetime.isoformat))


class TrackerKind(NamedTuple):
    """A kind of tracker: the keys of its `provider`, the variable that has its secret, and the states of its issues where
    the file does not say."""

    settings: tuple[str, ...]
    secret: str = ""
    active: tuple[str, ...] = ("Todo", "In Progress")
    terminal: tuple[str, ...] = ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")


_FOLDER = TrackerKind(("path",))
TRACKERS: Mapping[str, TrackerKind] = {
    "folder": _FOLDER,
    "memory": _FOLDER,
    "linear": TrackerKind(("project_slug", "api_key", "endpoint", "assignee"), "LINEAR_API_KEY"),
    "github": TrackerKind(
        ("repository", "token", "endpoint", "assignee", "state_prefix"),
        "GITHUB_TOKEN",
        ("open",),
        ("closed",),
    ),
}


class TrackerError(HooklineError):
    """A tracker could not be read. `kind` is one word for the record.

    Kinds: unsupported_tracker_kind, invalid_tracker_config, missing_tracker_secret, tracker_request, tracker_status,
    tracker_response, tracker_pagination, tracker_rate_limited.
    """

    def __init__(self, message: str, *, kind: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after
        """Seconds that the tracker asked us to wait."""


class Tracker(Protocol):
    """One tracker, with its settings fixed when it was made."""

    @property
    def omitted(self) -> Sequence[str]:
        """Issues that the last list left out because they could not be read, and why."""
        ...

    async def by_states(self, states: Sequence[str]) -> list[Issue]:
        """Every issue in one of these states, in the tracker's order. No state: no request, no issue."""
        ...

    async def by_ids(self, ids: Sequence[str]) -> list[Issue]:
        """These issues, whole; one that is not there any more is left out, one that cannot be read is an error."""
        ...

    async def close(self) -> None: ...


def reference(value: Any) -> str | None:
    """The variable that a value refers to, where its whole text is `$NAME`, with or without spaces around it."""
    found = _NAME.fullmatch(value.strip()) if isinstance(value, str) else None
    return found[1] if found else None


def setting(provider: Mapping[str, Any], key: str, env: Mapping[str, str], fallback: str = "") -> str | None:
    """A text of the tracker's settings, with `$NAME` looked up; `fallback` is the variable for one that is not there."""
    given = provider.get(key)
    if given is None:
        return env.get(fallback) or None
    if not isinstance(given, str):
        raise TrackerError(f"tracker.provider.{key} is {given!r}, not a text", kind="invalid_tracker_config")
    name = reference(given)
    if name is None:
        return given.strip() or None
    return env.get(name, env.get(fallback)) or None


def secret(
    provider: Mapping[str, Any], key: str, env: Mapping[str, str], fallback: str, *, called: str
) -> str:
    """The secret of a tracker; a TrackerError with the variables it may come from if there is none."""
    value = setting(provider, key, env, fallback)
    if value is None:
        names = {fallback, reference(provider.get(key)) or fallback}
        known = " or ".join(f"${name}" for name in sorted(names))
        raise TrackerError(f"there is no {called}; set {known}", kind="missing_tracker_secret")
    return value
