"""Models with OpenAI's chat completions API, through the `openai` client: OpenAI and compatible providers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from hookline.agent.models import COMPATIBLE, Message, Reply, Request, ToolSpec
from hookline.agent.models.provider import (
    AnswerReading,
    ClientModel,
    PartialCall,
    ProviderTrouble,
    field_of,
    sent_arguments,
)
from hookline.engine.context import Usage


class _ChatReading(AnswerReading):
    """The answer so far. Compatible providers leave fields out, so every field may be missing."""

    end = "a finish reason"
    refusing = "content_filter"
    unexplained = "stopped by the content filter"

    def __init__(self) -> None:
        super().__init__()
        self._chunks = 0
        self._choices = 0

    def add(self, event: Any) -> str:
        self._chunks += 1
        usage = field_of(event, "usage")
        if usage is not None:
            self.usage = _usage(usage)
        text = ""
        for choice in (field_of(event, "choices") or ())[:1]:
            self._choices += 1
            self.stop_reason = field_of(choice, "finish_reason") or self.stop_reason
            self.ended = self.stop_reason is not None
            delta: Any = field_of(choice, "delta")
            for piece in field_of(delta, "tool_calls") or ():
                self._add_call(piece)
            self.refusal += field_of(delta, "refusal") or ""
            content = field_of(delta, "content")
            text = content if isinstance(content, str) else ""
        return text

    def _add_call(self, piece: Any) -> None:
        index, id = field_of(piece, "index"), field_of(piece, "id")
        call = next((known for known in reversed(self.calls.values()) if known.index == index), None)
        # Some providers give all calls index 0 or none; then only a new id marks a new call.
        if call is None or (id and call.id and id != call.id):
            call = self.calls[len(self.calls)] = PartialCall(index=index)
        function = field_of(piece, "function")
        call.id = call.id or id
        call.name += field_of(function, "name") or ""
        call.arguments += field_of(function, "arguments") or ""

    def reply(self, text: str) -> Reply:
        if self._chunks and not self._choices:
            raise ProviderTrouble("answered with no choices")
        return super().reply(text)


class OpenAI(ClientModel):
    """A model behind chat completions."""

    package = "openai"
    client = "AsyncOpenAI"
    error = "OpenAIError"
    reading = _ChatReading

    def __init__(self, name: str, *, provider: str = "openai", **options: Any) -> None:
        super().__init__(name, provider=provider, **options)
        self._known = COMPATIBLE[provider]
        if provider != "openai":
            # OPENAI_ORG_ID and OPENAI_PROJECT_ID are not for other providers.
            self._client.organization = self._client.project = None

    async def _send(self, request: Request) -> Any:
        given: dict[str, Any] = {
            "model": self.name,
            "messages": _messages(request),
            "tools": [_tool(tool) for tool in request.tools] or None,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "response_format": _response_format(request),
            "stream_options": {"include_usage": True} if self._known.asks_usage else None,
            self._known.max_tokens_key: request.max_output_tokens,
            "extra_body": dict(request.extra) or None,
        }
        known = {key: value for key, value in given.items() if value is not None}
        return await self._client.chat.completions.create(**known, stream=True)


def _messages(request: Request) -> list[dict[str, Any]]:
    system = [{"role": "system", "content": request.system}] if request.system else []
    return [*system, *(_message(message) for message in request.messages)]


def _message(message: Message) -> dict[str, Any]:
    role = message["role"]
    if role == "tool":
        return {"role": "tool", "tool_call_id": message["tool_call_id"], "content": message["content"]}
    told: dict[str, Any] = {"role": role, "content": message.get("content")}
    calls = message.get("tool_calls")
    if calls:
        told["tool_calls"] = [_told_call(call) for call in calls]
    return told


def _told_call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(sent_arguments(call), ensure_ascii=False)
    return {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _response_format(request: Request) -> dict[str, Any] | None:
    if request.output_schema is None:
        return None
    # The provider refuses other characters in the name, and a strict schema with optional or extra properties.
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", request.output_schema_name or "output")[:64]
    schema = dict(request.output_schema)
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": _closed(schema)}}


def _closed(schema: Any) -> bool:
    """True if every object in the schema requires all its properties and allows no others."""
    if isinstance(schema, list):
        return all(_closed(item) for item in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return True
    known = cast("dict[str, Any]", schema)
    if known.get("type") == "object" or "properties" in known:
        properties: dict[str, Any] = known.get("properties") or {}
        if known.get("additionalProperties") is not False or set(known.get("required") or ()) != set(
            properties
        ):
            return False
    return all(_closed(value) for value in known.values())


def _usage(usage: Any) -> Usage:
    given = field_of(usage, "prompt_tokens") or 0
    answered = field_of(usage, "completion_tokens") or 0
    total = field_of(usage, "total_tokens") or given + answered
    return Usage(input_tokens=given, output_tokens=answered, total_tokens=total)
