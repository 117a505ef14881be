"""hookline: lifecycle hooks for AI agents.

The public names are here. Importing this module loads the engine only; an agent, its tools and its models
are loaded when they are first named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hookline.context import AgentConfig, HookContext, Step, ToolCall, ToolResult, Usage, WorkflowContext
from hookline.errors import (
    AgentFailed,
    FileError,
    HookBroke,
    HookFailed,
    HooklineError,
    JournalError,
    ModelFailed,
    Refused,
    RunEnded,
    RunTimedOut,
    Skipped,
    UsageError,
)
from hookline.hook import Hook, Mode, OnError, hook
from hookline.point import Point, Scope, Status
from hookline.result import HookAction, HookResult, Outcome

if TYPE_CHECKING:
    from hookline.agent.answer import AgentResult, Event, StreamResult
    from hookline.agent.models import Model, Reply, Request, TextDelta
    from hookline.agent.models.scripted import Scripted
    from hookline.agent.stop import (
        ExecutedToolConfig,
        HasTextConfig,
        MaxStepsConfig,
        MaxTokensConfig,
        StopConditionContext,
        executed_tool,
        has_text,
        max_steps,
        max_tokens,
        stop_condition,
    )
    from hookline.agent.tools import Tool, tool
    from hookline.journal.memory import MemoryJournal
    from hookline.journal.sqlite import SqliteJournal
    from hookline.pipeline import Pipeline
    from hookline.sdk import Agent

_LATER = {
    "Agent": "hookline.sdk",
    "AgentResult": "hookline.agent.answer",
    "Event": "hookline.agent.answer",
    "ExecutedToolConfig": "hookline.agent.stop",
    "HasTextConfig": "hookline.agent.stop",
    "MaxStepsConfig": "hookline.agent.stop",
    "MaxTokensConfig": "hookline.agent.stop",
    "MemoryJournal": "hookline.journal.memory",
    "Model": "hookline.agent.models",
    "Pipeline": "hookline.pipeline",
    "Reply": "hookline.agent.models",
    "Request": "hookline.agent.models",
    "Scripted": "hookline.agent.models.scripted",
    "SqliteJournal": "hookline.journal.sqlite",
    "StopConditionContext": "hookline.agent.stop",
    "StreamResult": "hookline.agent.answer",
    "TextDelta": "hookline.agent.models",
    "Tool": "hookline.agent.tools",
    "executed_tool": "hookline.agent.stop",
    "has_text": "hookline.agent.stop",
    "max_steps": "hookline.agent.stop",
    "max_tokens": "hookline.agent.stop",
    "stop_condition": "hookline.agent.stop",
    "tool": "hookline.agent.tools",
}

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentFailed",
    "AgentResult",
    "Event",
    "ExecutedToolConfig",
    "FileError",
    "HasTextConfig",
    "Hook",
    "HookAction",
    "HookBroke",
    "HookContext",
    "HookFailed",
    "HookResult",
    "HooklineError",
    "JournalError",
    "MaxStepsConfig",
    "MaxTokensConfig",
    "MemoryJournal",
    "Mode",
    "Model",
    "ModelFailed",
    "OnError",
    "Outcome",
    "Pipeline",
    "Point",
    "Refused",
    "Reply",
    "Request",
    "RunEnded",
    "RunTimedOut",
    "Scope",
    "Scripted",
    "Skipped",
    "SqliteJournal",
    "Status",
    "Step",
    "StopConditionContext",
    "StreamResult",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Usage",
    "UsageError",
    "WorkflowContext",
    "executed_tool",
    "has_text",
    "hook",
    "max_steps",
    "max_tokens",
    "stop_condition",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'hookline' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
