"""The protocol of trackers: where issues come from. Two reads, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hookline.errors import HooklineError
from hookline.symphony.issue import Issue

__all__ = ["Tracker", "TrackerError"]


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
    def secret_names(self) -> frozenset[str]:
        """Environment variables that hold its secrets, which neither hooks nor agents are given."""
        ...

    @property
    def omitted(self) -> Sequence[str]:
        """What the last list left out because it could not be read, and why."""
        ...

    async def by_states(self, states: Sequence[str]) -> list[Issue]:
        """Every issue in one of these states, in the tracker's order. No state: no request, no issue."""
        ...

    async def by_ids(self, ids: Sequence[str]) -> list[Issue]:
        """These issues, whole; one that is not there any more is left out, one that cannot be read is an error."""
        ...

    async def close(self) -> None: ...
