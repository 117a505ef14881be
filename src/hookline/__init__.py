"""hookline: lifecycle hooks for AI agents.

The public names are here. Importing this module loads nothing; each part is loaded when it is first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.agent.mcp_server import McpServer
    from hookline.agent.models import Model, Reply, Request, TextDelta
    from hookline.agent.models.script import Scripted
    from hookline.agent.run import StreamResult
    from hookline.agent.sdk import Agent
    from hookline.agent.spec import (
        AgentResult,
        Event,
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
    from hookline.engine.context import (
        AgentConfig,
        HookContext,
        Step,
        ToolCall,
        ToolResult,
        Usage,
        WorkflowContext,
    )
    from hookline.engine.hook import Hook, Mode, OnError, hook
    from hookline.engine.pipeline import Pipeline
    from hookline.engine.point import Point, Scope, Status
    from hookline.engine.result import HookAction, HookResult, Outcome
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
    from hookline.journal.sqlite import MemoryJournal, SqliteJournal

_NAMES = {
    "agent.mcp_server": "McpServer",
    "agent.models": "Model Reply Request TextDelta",
    "agent.models.script": "Scripted",
    "agent.run": "StreamResult",
    "agent.sdk": "Agent",
    "agent.spec": "AgentResult Event ExecutedToolConfig HasTextConfig MaxStepsConfig MaxTokensConfig"
    " StopConditionContext executed_tool has_text max_steps max_tokens stop_condition",
    "agent.tools": "Tool tool",
    "engine.context": "AgentConfig HookContext Step ToolCall ToolResult Usage WorkflowContext",
    "engine.hook": "Hook Mode OnError hook",
    "engine.pipeline": "Pipeline",
    "engine.point": "Point Scope Status",
    "engine.result": "HookAction HookResult Outcome",
    "errors": "AgentFailed FileError HookBroke HookFailed HooklineError JournalError"
    " ModelFailed Refused RunEnded RunTimedOut Skipped UsageError",
    "journal.sqlite": "MemoryJournal SqliteJournal",
}
"""The public names by the module that has them."""
_WHERE = {name: f"hookline.{module}" for module, names in _NAMES.items() for name in names.split()}

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
    "McpServer",
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
    if name not in _WHERE:
        raise AttributeError(f"module 'hookline' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
