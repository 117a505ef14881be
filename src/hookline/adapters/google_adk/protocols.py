"""What we use of ADK's objects, as protocols: hookline is checked, and can be read, without ADK installed."""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast

__all__ = [
    "CallbackContext",
    "ForeignAgent",
    "ForeignSession",
    "ForeignTool",
    "Invocation",
    "LlmRequest",
    "LlmResponse",
    "ToolContext",
    "genai",
    "invocation_of",
    "of_adk",
]


class ForeignAgent(Protocol):
    """`google.adk.agents.BaseAgent`."""

    name: str
    parent_agent: ForeignAgent | None


class ForeignSession(Protocol):
    """`google.adk.sessions.Session`."""

    id: str
    app_name: str
    user_id: str
    events: list[Any]


class Invocation(Protocol):
    """`google.adk.agents.InvocationContext`: the runner's own, and one more for every agent at work."""

    invocation_id: str
    agent: Any
    session: ForeignSession
    user_content: Any
    run_config: Any

    def increment_llm_call_count(self) -> None: ...


class CallbackContext(Protocol):
    """What ADK hands to the callbacks of agents and models."""

    invocation_id: str


class ToolContext(CallbackContext, Protocol):
    """What ADK hands to the callbacks of tools."""

    function_call_id: str | None
    tool_confirmation: Any
    actions: Any

    def request_confirmation(self, *, hint: str | None = None, payload: Any = None) -> None: ...


class ForeignTool(Protocol):
    """`google.adk.tools.BaseTool`."""

    name: str
    is_long_running: bool


class LlmRequest(Protocol):
    """`google.adk.models.LlmRequest`."""

    contents: list[Any]
    config: Any
    tools_dict: dict[str, Any]
    model: str | None


class LlmResponse(Protocol):
    """`google.adk.models.LlmResponse`."""

    content: Any
    partial: bool | None
    usage_metadata: Any
    finish_reason: Any
    error_code: str | None
    error_message: str | None


def invocation_of(context: CallbackContext) -> Invocation:
    """The invocation a callback belongs to; its public getter makes a copy, and we need to know it again."""
    return cast("Invocation", getattr(context, "_invocation_context"))  # noqa: B009


def of_adk(module: str, name: str) -> Any:
    """A class of google-adk, which is loaded only by who uses it."""
    return getattr(importlib.import_module(f"google.adk.{module}"), name)


def genai() -> Any:
    """`google.genai.types`, the values that ADK speaks in."""
    return importlib.import_module("google.genai.types")
