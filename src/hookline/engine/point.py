"""The fourteen points of an agent's life: seven scopes, each with a start and an end; statuses and actions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from hookline.errors import UsageError, meant


class Scope(StrEnum):
    """The seven things that have a start and an end, outermost first."""

    WORKSPACE = "workspace"
    RUN = "run"
    SESSION = "session"
    AGENT = "agent"
    STEP = "step"
    MODEL = "model"
    TOOL = "tool"

    start: Point
    end: Point


class Point(StrEnum):
    """A point at which hooks are called."""

    WORKSPACE_START = "workspace.start"
    WORKSPACE_END = "workspace.end"
    RUN_START = "run.start"
    RUN_END = "run.end"
    SESSION_START = "session.start"
    SESSION_END = "session.end"
    AGENT_START = "agent.start"
    AGENT_END = "agent.end"
    STEP_START = "step.start"
    STEP_END = "step.end"
    MODEL_START = "model.start"
    MODEL_END = "model.end"
    TOOL_START = "tool.start"
    TOOL_END = "tool.end"

    scope: Scope
    is_start: bool

    def __new__(cls, value: str) -> Point:
        point = str.__new__(cls, value)
        point._value_ = value
        point.scope = Scope(value.partition(".")[0])
        point.is_start = value.endswith(".start")
        setattr(point.scope, "start" if point.is_start else "end", point)
        return point


KEYWORDS: Mapping[str, Point] = {
    "on_run_start": Point.RUN_START,
    "on_run_end": Point.RUN_END,
    "on_session_start": Point.SESSION_START,
    "on_session_end": Point.SESSION_END,
    "on_start": Point.AGENT_START,
    "on_end": Point.AGENT_END,
    "on_agent_step_start": Point.STEP_START,
    "on_agent_step_end": Point.STEP_END,
    "on_model_start": Point.MODEL_START,
    "on_model_end": Point.MODEL_END,
    "on_tool_start": Point.TOOL_START,
    "on_tool_end": Point.TOOL_END,
}
"""The keyword of an `Agent` for each point. Six are those of Polos; the others cover the points it does not have."""


class Status(StrEnum):
    """How the body of a scope ended, for its end hooks."""

    OK = "ok"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    ANSWERED = "answered"
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    LOST = "lost"


class HookAction(StrEnum):
    """The verdict of a result, from the mildest to the strictest. A word and its member compare equal."""

    CONTINUE = "continue"
    ALLOW = "allow"
    ANSWER = "answer"
    ASK = "ask"
    SKIP = "skip"
    BLOCK = "block"
    FAIL = "fail"


def points_in(points: Iterable[Point | str], scopes: Collection[Scope]) -> list[Point]:
    """Those of the points that are of these scopes, in order; an event of a client is of none."""
    return sorted(each for each in points if isinstance(each, Point) and each.scope in scopes)


def point_named(name: str) -> Point:
    """The point of a name; UsageError with a suggestion if there is none."""
    try:
        return Point(name)
    except ValueError:
        raise UsageError(f"unknown point {name!r}{meant(name, Point)}") from None
