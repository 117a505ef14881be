"""The events of Claude Code, Codex, Gemini CLI, Qwen Code and kagent, and the forms of answer that each takes, as data."""

from collections.abc import Mapping
from typing import NamedTuple

from hookline.engine.context import Facts
from hookline.engine.point import Point, Status
from hookline.errors import UsageError, nearest


class ClaudeEvent(NamedTuple):
    """One event: its point, the field its matcher is tested against, the keys of an answer it reads.

    `refusal` is the effect of a refusal: `block` refuses, `end` stops the run, `show` only informs the user.
    `text` is the use of plain output: `context` goes to the model, `path` is the answer, else it is a log.
    """

    point: Point | None = None
    subject: str | None = None
    reads: tuple[str, ...] = ()
    refusal: str = "show"
    text: str = "log"
    timeout: float = 600.0


_PERMISSION = ("permissionDecision", "permissionDecisionReason")

EVENTS: Mapping[str, ClaudeEvent] = {
    "PreToolUse": ClaudeEvent(
        Point.TOOL_START, "tool_name", (*_PERMISSION, "updatedInput", "additionalContext"), "block"
    ),
    "PostToolUse": ClaudeEvent(
        Point.TOOL_END,
        "tool_name",
        ("additionalContext", "updatedToolOutput", "updatedMCPToolOutput", "classifierContext"),
        "block",
    ),
    "PostToolUseFailure": ClaudeEvent(Point.TOOL_END, "tool_name", ("additionalContext",), "block"),
    "PostToolBatch": ClaudeEvent(reads=("additionalContext",), refusal="end"),
    "PermissionRequest": ClaudeEvent(None, "tool_name", ("decision",), "block"),
    "PermissionDenied": ClaudeEvent(None, "tool_name", ("retry",)),
    "UserPromptSubmit": ClaudeEvent(
        Point.AGENT_START,
        None,
        ("additionalContext", "sessionTitle", "suppressOriginalPrompt"),
        "block",
        "context",
        30.0,
    ),
    "UserPromptExpansion": ClaudeEvent(
        None, "command_name", ("additionalContext", "suppressOriginalPrompt"), "block", "context"
    ),
    "MessageDisplay": ClaudeEvent(reads=("displayContent",), timeout=10.0),
    "SessionStart": ClaudeEvent(
        Point.SESSION_START,
        "source",
        ("additionalContext", "initialUserMessage", "sessionTitle", "watchPaths", "reloadSkills"),
        text="context",
    ),
    "SessionEnd": ClaudeEvent(Point.SESSION_END, "reason", timeout=1.5),
    "Setup": ClaudeEvent(None, "trigger", ("additionalContext",)),
    "Stop": ClaudeEvent(Point.AGENT_END, None, ("additionalContext",), "block"),
    "StopFailure": ClaudeEvent(None, "error"),
    "SubagentStart": ClaudeEvent(Point.AGENT_START, "agent_type", ("additionalContext",)),
    "SubagentStop": ClaudeEvent(Point.AGENT_END, "agent_type", ("additionalContext",), "block"),
    "PreCompact": ClaudeEvent(None, "trigger", (), "block"),
    "PostCompact": ClaudeEvent(None, "trigger"),
    "PreModelSwitch": ClaudeEvent(None, "to_model", _PERMISSION, "block", timeout=30.0),
    "PostModelSwitch": ClaudeEvent(None, "to_model", ("additionalContext",), timeout=30.0),
    "Notification": ClaudeEvent(None, "notification_type", ("additionalContext",)),
    "Elicitation": ClaudeEvent(None, "mcp_server_name", ("action", "content"), "block"),
    "ElicitationResult": ClaudeEvent(None, "mcp_server_name", ("action", "content"), "block"),
    "TaskCreated": ClaudeEvent(refusal="block"),
    "TaskCompleted": ClaudeEvent(refusal="block"),
    "TeammateIdle": ClaudeEvent(refusal="block"),
    "ConfigChange": ClaudeEvent(None, "source", (), "block"),
    "InstructionsLoaded": ClaudeEvent(None, "load_reason"),
    "CwdChanged": ClaudeEvent(reads=("watchPaths",)),
    "FileChanged": ClaudeEvent(None, "file_path", ("watchPaths",)),
    "DirectoryAdded": ClaudeEvent(None, "source"),
    "WorktreeCreate": ClaudeEvent(reads=("worktreePath",), refusal="end", text="path"),
    "WorktreeRemove": ClaudeEvent(),
}
"""All 33 events of Claude Code 2.1."""

PROJECT_FOLDERS = {"claude": "CLAUDE_PROJECT_DIR", "gemini": "GEMINI_PROJECT_DIR", "qwen": "QWEN_PROJECT_DIR"}
"""The variable with the folder that a client was started in; the folder of Codex' events is that one."""


def _same(*names: str) -> dict[str, Point | None]:
    """Events that mean what those of Claude Code with these names do."""
    return {name: EVENTS[name].point for name in names}


CALLERS: Mapping[str, Mapping[str, Point | None]] = {
    "claude": {name: event.point for name, event in EVENTS.items()},
    "codex": {
        **_same(
            "SessionStart", "SessionEnd", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse"
        ),
        "PreModelRequest": Point.MODEL_START,
        "PostModelRequest": Point.MODEL_END,
        **_same("Stop"),
        "Interrupt": None,
        **_same("SubagentStart", "SubagentStop", "PreCompact", "PostCompact"),
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
    "kagent": _same("PreToolUse", "PostToolUse", "SessionStart", "SessionEnd"),
    "qwen": {
        **_same("PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "UserPromptSubmit"),
        **_same("UserPromptExpansion", "SessionStart", "SessionEnd", "MessageDisplay", "Stop", "StopFailure"),
        **_same("SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Notification"),
        **_same("PermissionRequest", "PermissionDenied", "InstructionsLoaded"),
        **dict.fromkeys(("SessionDelete", "TodoCreated", "TodoCompleted")),
    },
}
"""The events of each caller with their points; None passes through as `x.<caller>.<Name>`."""


class AnswerForm(NamedTuple):
    """The answers that one event of one caller accepts.

    `refuse` is the form of a refusal: permission, decision, deny, behavior, exit, stop, context, action; None if
    there is none. `change` is the key for a changed input or output; `reason` there means that the reason of a
    refusal replaces the output. `go_on`: a refusal means "go on working", or leaves the client stuck.
    """

    refuse: str | None = None
    change: str | None = None
    stop: bool = True
    ask: bool = False
    allow: bool = False
    context: bool = False
    user: bool = True
    go_on: bool = False


_CLAUDE: Mapping[str, AnswerForm] = {
    "PreToolUse": AnswerForm("permission", "updatedInput", ask=True, allow=True, context=True),
    "PostToolUse": AnswerForm("decision", "updatedToolOutput", context=True),
    "PostToolUseFailure": AnswerForm("context", context=True),
    "PostToolBatch": AnswerForm("stop", context=True),
    "PermissionRequest": AnswerForm("behavior", "updatedInput", allow=True),
    "UserPromptSubmit": AnswerForm("decision", context=True),
    "UserPromptExpansion": AnswerForm("decision", context=True),
    "MessageDisplay": AnswerForm(None, "displayContent"),
    "SessionStart": AnswerForm("stop", context=True),
    "Setup": AnswerForm("stop", context=True),
    "Stop": AnswerForm("decision", go_on=True),
    "SubagentStart": AnswerForm("stop", context=True),
    "SubagentStop": AnswerForm("decision", go_on=True),
    "PreCompact": AnswerForm("exit", go_on=True),
    "PreModelSwitch": AnswerForm("permission", ask=True, allow=True),
    "PostModelSwitch": AnswerForm(context=True),
    "Notification": AnswerForm(context=True),
    "Elicitation": AnswerForm("action"),
    "ElicitationResult": AnswerForm("action"),
    "TaskCreated": AnswerForm("exit"),
    "TaskCompleted": AnswerForm("exit", go_on=True),
    "TeammateIdle": AnswerForm("exit", go_on=True),
    "ConfigChange": AnswerForm("exit"),
    "WorktreeCreate": AnswerForm("exit"),
}


def _as_claude(*names: str) -> dict[str, AnswerForm]:
    """Events that take the answers that those of Claude Code with these names take."""
    return {name: _CLAUDE[name] for name in names}


FORMS: Mapping[str, Mapping[str, AnswerForm]] = {
    "claude": _CLAUDE,
    "codex": {
        "PreToolUse": AnswerForm("permission", "updatedInput", stop=False, context=True),
        "PostToolUse": AnswerForm("decision", "reason", context=True),
        "PermissionRequest": AnswerForm("behavior", stop=False, allow=True),
        **_as_claude("UserPromptSubmit", "SessionStart", "Stop", "SubagentStart", "SubagentStop"),
        "PreCompact": AnswerForm("stop", go_on=True),
        "PostCompact": AnswerForm("stop", go_on=True),
    },
    "gemini": {
        "BeforeTool": AnswerForm("deny", "tool_input", ask=True, context=True),
        "AfterTool": AnswerForm("deny", "reason", context=True),
        "BeforeAgent": AnswerForm("deny", context=True),
        "AfterAgent": AnswerForm("deny", go_on=True),
        "BeforeModel": AnswerForm("deny", "llm_request"),
        "AfterModel": AnswerForm("deny", "llm_response"),
        "BeforeToolSelection": AnswerForm(),
        "SessionStart": AnswerForm(stop=False, context=True),
        "SessionEnd": AnswerForm(stop=False),
        "PreCompress": AnswerForm(stop=False),
        "Notification": AnswerForm(stop=False),
    },
    "kagent": {
        "PreToolUse": AnswerForm("decision", allow=True, stop=False, user=False),
    },
    # Qwen Code 0.24 documents `updatedInput`, and does not use it.
    "qwen": {
        "PreToolUse": AnswerForm("permission", ask=True, context=True),
        "PostToolUse": AnswerForm("decision", context=True),
        "PostToolUseFailure": AnswerForm("context", context=True),
        "PostToolBatch": AnswerForm("decision", context=True),
        "PermissionRequest": AnswerForm("behavior", allow=True),
        **_as_claude("UserPromptSubmit", "UserPromptExpansion", "SessionStart", "Stop"),
        **_as_claude("SubagentStart", "SubagentStop", "Notification"),
        "TodoCreated": AnswerForm("decision"),
        "TodoCompleted": AnswerForm("decision", go_on=True),
    },
}
"""The answers each caller accepts at each event; at any other event it reads none."""
_NO_ANSWER = AnswerForm(stop=False, user=False)
_UNKNOWN = AnswerForm("exit", stop=False, user=False)
"""Of an event that is not in the tables: every client takes exit code 2 for a refusal where it takes one at all."""

CODEX_MODEL = ("PreModelRequest", "PostModelRequest")
"""The events of a model call in Codex: it tells which model and how it went, and takes no answer."""

NAMES: Mapping[Point, str] = {
    Point.TOOL_START: "PreToolUse",
    Point.TOOL_END: "PostToolUse",
    Point.AGENT_START: "UserPromptSubmit",
    Point.AGENT_END: "Stop",
    Point.SESSION_START: "SessionStart",
    Point.SESSION_END: "SessionEnd",
}
"""Claude Code's default event for each point."""

FAILED = frozenset({Status.FAILED, Status.TIMED_OUT, Status.CANCELLED, Status.LOST})
"""How a tool call ends that Claude Code reports with PostToolUseFailure."""

_NESTED = {Point.AGENT_START: "SubagentStart", Point.AGENT_END: "SubagentStop"}


def point_of(event: str, as_: str = "claude") -> Point | str:
    """The point of an event: one of the fourteen, or `x.<caller>.<Name>`."""
    return known_caller(as_).get(event) or f"x.{as_}.{event}"


def event_of(facts: Facts) -> str:
    """Claude Code's event for the given facts; a native event keeps its name."""
    point = facts.point
    if not isinstance(point, Point):
        return str(point).rpartition(".")[2]
    if facts.parents and point in _NESTED:
        return _NESTED[point]
    if point is Point.TOOL_END and facts.status in FAILED:
        return "PostToolUseFailure"
    if point not in NAMES:
        raise UsageError(
            f"Claude Code has no event for {point}; its events stand at {', '.join(sorted(NAMES))}"
        )
    return NAMES[point]


def form_of(event: str, as_: str) -> AnswerForm:
    known = known_caller(as_)
    return FORMS[as_].get(event, _NO_ANSWER if event in known else _UNKNOWN)


def fails_closed(event: str, as_: str) -> bool:
    """True if a client must refuse at this event where hookline cannot be asked."""
    form = form_of(event, as_)
    return form.refuse is not None and not form.go_on


def refuses(event: str, as_: str = "claude") -> bool:
    """True if a guard that broke, and trouble of our own, is a refusal at this event: it fails closed and is no end.

    At an end the thing has happened, and `on_error` says what becomes of its output.
    An event of another client counts as there; one that nobody knows, if its name is that of something about to begin.
    """
    theirs = caller_of(event, as_)
    if theirs is not None:
        point = CALLERS[theirs][event]
        return fails_closed(event, theirs) and (point is None or point.is_start)
    lower = event.lower()
    if not event.isidentifier() or lower.startswith(("pre", "before")):
        return True
    gates = [name.lower() for caller, forms in FORMS.items() for name in forms if refuses(name, caller)]
    return not lower.startswith(("post", "after")) and nearest(lower, gates, 0.8) is not None


def caller_of(event: str, as_: str) -> str | None:
    """The caller if it has the event, else the first other that has it; None if nobody knows it."""
    return next((caller for caller in (as_, *CALLERS) if event in CALLERS[caller]), None)


def known_caller(as_: str) -> Mapping[str, Point | None]:
    try:
        return CALLERS[as_]
    except KeyError:
        raise UsageError(f"unknown caller {as_!r}; known: {', '.join(CALLERS)}") from None


def meant(name: str, as_: str = "claude") -> str:
    """The end of a message about an unknown event: a suggestion, or the list of known ones."""
    names = CALLERS[as_]
    lower = {known.lower(): known for known in names}
    near = nearest(name.lower().replace("_", ""), lower, 0.7)
    if near:
        return f"did you mean {lower[near]!r}?"
    for other, theirs in CALLERS.items():
        if name in theirs:
            return f"{name} is an event of {other}"
    return f"known: {', '.join(names)}"
