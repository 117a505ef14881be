"""The events of Claude Code and of the tools that speak its protocol, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from hookline.engine.point import Point, Status
from hookline.errors import UsageError

if TYPE_CHECKING:
    from hookline.engine.context import Facts


class Event(NamedTuple):
    """One event: where it stands, what its matcher is tested against, what it reads of an answer.

    `refusal` says what a refusal comes to: `block` refuses, `end` stops the run, `show` only tells the user.
    `text` says what plain output comes to: `context` is for the model, `path` is the answer, else it is a log.
    """

    point: Point | None = None
    subject: str | None = None
    reads: tuple[str, ...] = ()
    refusal: str = "show"
    text: str = "log"
    timeout: float = 600.0


_PERMISSION = ("permissionDecision", "permissionDecisionReason")

EVENTS: Mapping[str, Event] = {
    "PreToolUse": Event(
        Point.TOOL_START, "tool_name", (*_PERMISSION, "updatedInput", "additionalContext"), "block"
    ),
    "PostToolUse": Event(
        Point.TOOL_END,
        "tool_name",
        ("additionalContext", "updatedToolOutput", "updatedMCPToolOutput", "classifierContext"),
        "block",
    ),
    "PostToolUseFailure": Event(Point.TOOL_END, "tool_name", ("additionalContext",), "block"),
    "PostToolBatch": Event(reads=("additionalContext",), refusal="end"),
    "PermissionRequest": Event(None, "tool_name", ("decision",), "block"),
    "PermissionDenied": Event(None, "tool_name", ("retry",)),
    "UserPromptSubmit": Event(
        Point.AGENT_START,
        None,
        ("additionalContext", "sessionTitle", "suppressOriginalPrompt"),
        "block",
        "context",
        30.0,
    ),
    "UserPromptExpansion": Event(
        None, "command_name", ("additionalContext", "suppressOriginalPrompt"), "block", "context"
    ),
    "MessageDisplay": Event(reads=("displayContent",), timeout=10.0),
    "SessionStart": Event(
        Point.SESSION_START,
        "source",
        ("additionalContext", "initialUserMessage", "sessionTitle", "watchPaths", "reloadSkills"),
        text="context",
    ),
    "SessionEnd": Event(Point.SESSION_END, "reason", timeout=1.5),
    "Setup": Event(None, "trigger", ("additionalContext",)),
    "Stop": Event(Point.AGENT_END, None, ("additionalContext",), "block"),
    "StopFailure": Event(None, "error"),
    "SubagentStart": Event(Point.AGENT_START, "agent_type", ("additionalContext",)),
    "SubagentStop": Event(Point.AGENT_END, "agent_type", ("additionalContext",), "block"),
    "PreCompact": Event(None, "trigger", (), "block"),
    "PostCompact": Event(None, "trigger"),
    "PreModelSwitch": Event(None, "to_model", _PERMISSION, "block", timeout=30.0),
    "PostModelSwitch": Event(None, "to_model", ("additionalContext",), timeout=30.0),
    "Notification": Event(None, "notification_type", ("additionalContext",)),
    "Elicitation": Event(None, "mcp_server_name", ("action", "content"), "block"),
    "ElicitationResult": Event(None, "mcp_server_name", ("action", "content"), "block"),
    "TaskCreated": Event(refusal="block"),
    "TaskCompleted": Event(refusal="block"),
    "TeammateIdle": Event(refusal="block"),
    "ConfigChange": Event(None, "source", (), "block"),
    "InstructionsLoaded": Event(None, "load_reason"),
    "CwdChanged": Event(reads=("watchPaths",)),
    "FileChanged": Event(None, "file_path", ("watchPaths",)),
    "DirectoryAdded": Event(None, "source"),
    "WorktreeCreate": Event(reads=("worktreePath",), refusal="end", text="path"),
    "WorktreeRemove": Event(),
}
"""All 33 of Claude Code 2.1."""

CALLERS: Mapping[str, Mapping[str, Point | None]] = {
    "claude": {name: event.point for name, event in EVENTS.items()},
    "codex": {
        "SessionStart": Point.SESSION_START,
        "SessionEnd": Point.SESSION_END,
        "UserPromptSubmit": Point.AGENT_START,
        "PreToolUse": Point.TOOL_START,
        "PermissionRequest": None,
        "PostToolUse": Point.TOOL_END,
        "Stop": Point.AGENT_END,
        "Interrupt": None,
        "SubagentStart": Point.AGENT_START,
        "SubagentStop": Point.AGENT_END,
        "PreCompact": None,
        "PostCompact": None,
    },
    "gemini": {
        "SessionStart": Point.SESSION_START,
        "SessionEnd": Point.SESSION_END,
        "BeforeAgent": Point.AGENT_START,
        "AfterAgent": Point.AGENT_END,
        "BeforeModel": Point.MODEL_START,
        "AfterModel": Point.MODEL_END,
        "BeforeToolSelection": None,
        "BeforeTool": Point.TOOL_START,
        "AfterTool": Point.TOOL_END,
        "PreCompress": None,
        "Notification": None,
    },
    "kagent": {
        "PreToolUse": Point.TOOL_START,
        "PostToolUse": Point.TOOL_END,
        "SessionStart": Point.SESSION_START,
        "SessionEnd": Point.SESSION_END,
    },
}
"""Who may ask, the events each has, and where they stand; None passes through as `x.<caller>.<Name>`."""

NAMES: Mapping[Point, str] = {
    Point.TOOL_START: "PreToolUse",
    Point.TOOL_END: "PostToolUse",
    Point.AGENT_START: "UserPromptSubmit",
    Point.AGENT_END: "Stop",
    Point.SESSION_START: "SessionStart",
    Point.SESSION_END: "SessionEnd",
}
"""What Claude Code calls a point, where nothing more is known."""

_NESTED = {Point.AGENT_START: "SubagentStart", Point.AGENT_END: "SubagentStop"}
_FAILED = frozenset({Status.FAILED, Status.TIMED_OUT, Status.CANCELLED, Status.LOST})


def point_of(event: str, as_: str = "claude") -> Point | str:
    """Where an event stands: one of the fourteen points, or under its own name."""
    return known_caller(as_).get(event) or f"x.{as_}.{event}"


def event_of(facts: Facts) -> str:
    """Claude Code's event for what happened; an event of its own keeps its name."""
    point = facts.point
    if not isinstance(point, Point):
        return str(point).rpartition(".")[2]
    if facts.parents and point in _NESTED:
        return _NESTED[point]
    if point is Point.TOOL_END and facts.status in _FAILED:
        return "PostToolUseFailure"
    if point not in NAMES:
        raise UsageError(
            f"Claude Code has no event for {point}; its events stand at {', '.join(sorted(NAMES))}"
        )
    return NAMES[point]


def known_caller(as_: str) -> Mapping[str, Point | None]:
    try:
        return CALLERS[as_]
    except KeyError:
        raise UsageError(f"unknown caller {as_!r}; known: {', '.join(CALLERS)}") from None


def meant(name: str, as_: str = "claude") -> str:
    """The end of a message about an unknown event: what was meant, or all there are."""
    from difflib import get_close_matches  # only for a message; answering must start quickly

    names = CALLERS[as_]
    lower = {known.lower(): known for known in names}
    near = get_close_matches(name.lower().replace("_", ""), lower, n=1, cutoff=0.7)
    if near:
        return f"did you mean {lower[near[0]]!r}?"
    for other, theirs in CALLERS.items():
        if name in theirs:
            return f"{name} is an event of {other}"
    return f"known: {', '.join(names)}"
