"""Anthropic's models, through the `anthropic` client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hookline.agent.models import Message, Request, ToolSpec
from hookline.agent.models.provider import (
    AnswerReading,
    ClientModel,
    PartialCall,
    ProviderTrouble,
    field_of,
    refused_with,
    said,
    sent_arguments,
)
from hookline.engine.context import Usage
from hookline.errors import UsageError

# The API requires a limit, which includes thinking; all its current models can write this much.
MAX_TOKENS = 16384

# The last API version that accepts temperature and top_p; the client uses a later one, which refuses them.
SAMPLING_VERSION = "2023-06-01"

# An error inside a stream comes after status 200, so only its type tells what it is.
STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}

COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


class _MessageReading(AnswerReading):
    """The answer so far; blocks other than text and tool calls, such as thinking, are ignored."""

    end = "message_stop"
    refusing = "refusal"
    unexplained = "no explanation given"

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, int] = {}

    def add(self, event: Any) -> str:
        index, block, delta = (
            field_of(event, "index"),
            field_of(event, "content_block"),
            field_of(event, "delta"),
        )
        match field_of(event, "type"), field_of(block, "type") or field_of(delta, "type"):
            case "content_block_start", "text":
                return field_of(block, "text") or ""
            case "content_block_delta", "text_delta":
                return field_of(delta, "text") or ""
            case "content_block_start", "tool_use":
                self.calls[index] = PartialCall(
                    id=field_of(block, "id"),
                    name=field_of(block, "name") or "",
                    at_once=field_of(block, "input") or {},
                )
            case "content_block_delta", "input_json_delta" if index in self.calls:
                self.calls[index].arguments += field_of(delta, "partial_json") or ""
            case "message_start", _:
                self._count(field_of(field_of(event, "message"), "usage"))
            case "message_delta", _:
                self.stop_reason = field_of(delta, "stop_reason") or self.stop_reason
                if self.stop_reason == self.refusing:
                    self.refusal = field_of(field_of(delta, "stop_details"), "explanation") or ""
                self._count(field_of(event, "usage"))
            case "message_stop", _:
                self.ended = True
            case _:
                pass
        return ""

    def _count(self, usage: Any) -> None:
        """Keeps the last count of each kind, because the counts are cumulative."""
        for key in COUNTS:
            number = field_of(usage, key)
            if number is not None:
                self._counts[key] = number
        answered = self._counts.get("output_tokens", 0)
        total = sum(self._counts.values())
        self.usage = Usage(input_tokens=total - answered, output_tokens=answered, total_tokens=total)


class Anthropic(ClientModel):
    """A model behind the messages API."""

    package = "anthropic"
    client = "AsyncAnthropic"
    error = "AnthropicError"
    reading = _MessageReading

    async def _send(self, request: Request) -> Any:
        told = {"temperature": request.temperature, "top_p": request.top_p}
        sampling = {key: value for key, value in told.items() if value is not None}
        given: dict[str, Any] = {
            "model": self.name,
            "max_tokens": request.max_output_tokens or MAX_TOKENS,
            "system": request.system or None,
            "messages": _messages(request.messages),
            "tools": [_tool(tool) for tool in request.tools] or None,
            "output_config": self._output_config(request.output_schema),
            "extra_body": {**sampling, **request.extra} or None,
            "extra_headers": {"anthropic-version": SAMPLING_VERSION} if sampling else None,
        }
        known = {key: value for key, value in given.items() if value is not None}
        return await self._client.messages.create(**known, stream=True)

    def _output_config(self, schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if schema is None:
            return None
        try:
            # Constraints that the provider cannot enforce move into the descriptions.
            known = self._library.transform_schema(dict(schema))
        except (ValueError, AssertionError) as exc:
            raise UsageError(f"provider 'anthropic' cannot take this output schema: {exc}") from exc
        return {"format": {"type": "json_schema", "schema": known}}

    def _refusal(self, exc: Any) -> ProviderTrouble:
        status = exc.status_code if exc.status_code >= 400 else STATUS.get(exc.type or "", 500)
        return refused_with(status, exc.api_message or said(exc), exc.response.headers)


def _messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """The messages in the two roles of the API; tool results belong to the user, those of one step to one message."""
    told: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _blocks(message)
        if told and told[-1]["role"] == role:
            told[-1]["content"].extend(blocks)
        elif blocks:
            told.append({"role": role, "content": blocks})
    return told


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    if message["role"] == "tool":
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}]
    # An empty block of text is refused.
    blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if content and content.strip() else []
    for call in message.get("tool_calls") or ():
        blocks.append(
            {"type": "tool_use", "id": call["id"], "name": call["name"], "input": sent_arguments(call)}
        )
    return blocks


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
