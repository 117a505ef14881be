"""The protocol between the built-in agent and a model.

A model takes a `Request` and answers with a stream of `TextDelta` and, last, one `Reply`. Messages are
plain dicts in one neutral shape; each provider's module converts them:

    {"role": "user", "content": "..."}
    {"role": "assistant", "content": "..." or None, "tool_calls": [{"id": ..., "name": ..., "arguments": {...}}]}
    {"role": "tool", "tool_call_id": ..., "name": ..., "content": "..."}
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, runtime_checkable

from hookline.engine.context import ToolCall, Usage

__all__ = ["Model", "Reply", "Request", "TextDelta", "ToolSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """The description of a tool for a model; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything a provider needs for one call."""

    messages: tuple[Mapping[str, Any], ...]
    system: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    output_schema_name: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of streamed text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The whole answer: text, tool calls, token usage, stop reason."""

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    stop_reason: str = "stop"

    @classmethod
    def model_validate(cls, value: Mapping[str, Any]) -> Reply:
        """Rebuilds a reply from the plain form that hooks read and change."""
        calls = [_call(index, call) for index, call in enumerate(value.get("tool_calls") or ())]
        return cls(
            text=value.get("text"),
            tool_calls=tuple(calls),
            usage=Usage(**cast("dict[str, int]", value.get("usage") or {})),
            stop_reason=value.get("stop_reason") or "stop",
        )


@runtime_checkable
class Model(Protocol):
    """One model of one provider. A cut or refused answer raises ModelFailed; a Reply is always whole."""

    provider: str
    name: str

    def stream(self, request: Request) -> AsyncIterator[TextDelta | Reply]: ...

    async def close(self) -> None: ...


def _call(index: int, given: Mapping[str, Any]) -> ToolCall:
    arguments = given.get("arguments")
    return ToolCall(
        id=given.get("id") or f"call_{index + 1}",
        name=given["name"],
        arguments=arguments,
        raw_arguments=given.get("raw_arguments") or json.dumps(arguments),
    )
