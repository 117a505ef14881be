"""Points in time as other programs write them: ISO 8601 in UTC, with a Z at the end."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_text(moment: datetime, *, timespec: str = "seconds") -> str:
    """A point in time as `2026-11-16T09:00:00Z`; with the timespec `microseconds` as `2026-11-16T09:00:00.000000Z`."""
    return moment.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def parse_time(text: object) -> datetime:
    """The point in time that a text names, in UTC unless it says otherwise; ValueError if it names none."""
    moment = datetime.fromisoformat(str(text))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
