"""hookline: lifecycle hooks for AI agents.

The public names are here. Importing this module loads nothing; each part is loaded when it is first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.agent.mcp_server import McpServer as McpServer
    from hookline.agent.models import Model as Model
    from hookline.agent.models import Reply as Reply
    from hookline.agent.models import Request as Request
    from hookline.agent.models import TextDelta as TextDelta
    from hookline.agent.models.script import Scripted as Scripted
    from hookline.agent.run import StreamResult as StreamResult
    from hookline.agent.sdk import Agent as Agent
    from hookline.agent.spec import AgentResult as AgentResult
    from hookline.agent.spec import Event as Event
    from hookline.agent.stop import ExecutedToolConfig as ExecutedToolConfig
    from hookline.agent.stop import HasTextConfig as HasTextConfig
    from hookline.agent.stop import MaxStepsConfig as MaxStepsConfig
    from hookline.agent.stop import MaxTokensConfig as MaxTokensConfig
    from hookline.agent.stop import StopConditionContext as StopConditionContext
    from hookline.agent.stop import executed_tool as executed_tool
    from hookline.agent.stop import has_text as has_text
    from hookline.agent.stop import max_steps as max_steps
    from hookline.agent.stop import max_tokens as max_tokens
    from hookline.agent.stop import stop_condition as stop_condition
    from hookline.agent.tools import Tool as Tool
    from hookline.agent.tools import tool as tool
    from hookline.engine.context import AgentConfig as AgentConfig
    from hookline.engine.context import HookContext as HookContext
    from hookline.engine.context import Step as Step
    from hookline.engine.context import ToolCall as ToolCall
    from hookline.engine.context import ToolResult as ToolResult
    from hookline.engine.context import Usage as Usage
    from hookline.engine.context import WorkflowContext as WorkflowContext
    from hookline.engine.hook import Hook as Hook
    from hookline.engine.hook import Mode as Mode
    from hookline.engine.hook import OnError as OnError
    from hookline.engine.hook import hook as hook
    from hookline.engine.pipeline import Pipeline as Pipeline
    from hookline.engine.point import Point as Point
    from hookline.engine.point import Scope as Scope
    from hookline.engine.point import Status as Status
    from hookline.engine.result import HookAction as HookAction
    from hookline.engine.result import HookResult as HookResult
    from hookline.engine.result import Outcome as Outcome
    from hookline.errors import AgentFailed as AgentFailed
    from hookline.errors import FileError as FileError
    from hookline.errors import HookBroke as HookBroke
    from hookline.errors import HookFailed as HookFailed
    from hookline.errors import HooklineError as HooklineError
    from hookline.errors import JournalError as JournalError
    from hookline.errors import ModelFailed as ModelFailed
    from hookline.errors import Refused as Refused
    from hookline.errors import RunEnded as RunEnded
    from hookline.errors import RunTimedOut as RunTimedOut
    from hookline.errors import Skipped as Skipped
    from hookline.errors import UsageError as UsageError
    from hookline.journal.sqlite import MemoryJournal as MemoryJournal
    from hookline.journal.sqlite import SqliteJournal as SqliteJournal

_NAMES = {
    "agent.mcp_server": "McpServer",
    "agent.models": "Model Reply Request TextDelta",
    "agent.models.script": "Scripted",
    "agent.run": "StreamResult",
    "agent.sdk": "Agent",
    "agent.spec": "AgentResult Event",
    "agent.stop": "ExecutedToolConfig HasTextConfig MaxStepsConfig MaxTokensConfig StopConditionContext"
    " executed_tool has_text max_steps max_tokens stop_condition",
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

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'hookline' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
