"""The three protocols that model providers are spoken to in, from their side: a turn in, the words of the wire out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from hookline.agent.models.script import ScriptTurn
from hookline.engine.context import ToolCall
from tests.fakes.gemini import Contents

FRAGMENT = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A turn, with what only the one request adds to it."""

    number: int
    model: str
    turn: ScriptTurn
    calls: tuple[ToolCall, ...]

    @property
    def text(self) -> str:
        return "".join(self.turn.pieces)


class Wire(Protocol):
    """One protocol. An event is the bytes of one server-sent event."""

    def events(self, answer: Answer, body: Mapping[str, Any]) -> Iterator[bytes]: ...

    def no_events(self, answer: Answer, body: Mapping[str, Any]) -> Iterator[bytes]:
        """A stream that ends well, with nothing in it."""
        ...

    def whole(self, answer: Answer) -> dict[str, Any]: ...

    def nothing(self, answer: Answer) -> dict[str, Any]:
        """A whole answer with nothing in it."""
        ...

    def error(self, status: int, message: str) -> dict[str, Any]: ...

    def complaint(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
        """Why the real provider would refuse this request, by the rules that a wrong conversion breaks."""
        ...


class Chat:
    """OpenAI's chat completions."""

    def events(self, answer: Answer, body: Mapping[str, Any]) -> Iterator[bytes]:
        yield self._chunk(answer, {"role": "assistant", "content": "" if answer.turn.pieces else None})
        for piece in answer.turn.pieces:
            yield self._chunk(answer, {"content": piece})
        for index, call in enumerate(answer.calls):
            function = {"name": call.name, "arguments": ""}
            first = {"index": index, "id": call.id, "type": "function", "function": function}
            yield self._chunk(answer, {"tool_calls": [first]})
            for piece in _fragments(call.raw_arguments):
                yield self._chunk(
                    answer, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                )
        yield self._chunk(answer, {}, finish_reason=self._stop(answer))
        yield from self._last(answer, body)

    def no_events(self, answer: Answer, body: Mapping[str, Any]) -> Iterator[bytes]:
        yield _sse({**self._head(answer, "chat.completion.chunk"), "choices": [], "usage": None})
        yield from self._last(answer, body)

    def _last(self, answer: Answer, body: Mapping[str, Any]) -> Iterator[bytes]:
        options: Any = body.get("stream_options") or {}
        if options.get("include_usage"):
            yield _sse(
                {**self._head(answer, "chat.completion.chunk"), "choices": [], "usage": self._usage(answer)}
            )
        yield b"data: [DONE]\n\n"

    def whole(self, answer: Answer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.raw_arguments},
                }
                for call in answer.calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._stop(answer), "logprobs": None}
        return {**self.nothing(answer), "choices": [choice]}

    def nothing(self, answer: Answer) -> dict[str, Any]:
        return {**self._head(answer, "chat.completion"), "choices": [], "usage": self._usage(answer)}

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind, code = CHAT_ERRORS.get(
            status, ("server_error" if status >= 500 else "invalid_request_error", None)
        )
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def complaint(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
        open_calls: set[str] = set()
        messages: list[Any] = body.get("messages") or []
        for number, message in enumerate(messages):
            if message["role"] == "tool":
                if message.get("tool_call_id") not in open_calls:
                    return (
                        f"messages[{number}]: a 'tool' message must follow the 'tool_calls' that it answers"
                    )
                open_calls.discard(message["tool_call_id"])
            elif open_calls:
                return f"messages[{number}]: these 'tool_call_id's have no answer: {', '.join(sorted(open_calls))}"
            calls: list[Any] = message.get("tool_calls") or []
            if not all(isinstance(call["function"]["arguments"], str) for call in calls):
                return f"messages[{number}]: 'arguments' must be a string"
            open_calls |= {call["id"] for call in calls}
        return None if messages else "'messages' is empty"

    def _chunk(self, answer: Answer, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _sse({**self._head(answer, "chat.completion.chunk"), "choices": [choice], "usage": None})

    def _head(self, answer: Answer, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{answer.number}",
            "object": kind,
            "created": 1_700_000_000,
            "model": answer.model,
        }

    def _stop(self, answer: Answer) -> str:
        return "tool_calls" if answer.calls else "stop"

    def _usage(self, answer: Answer) -> dict[str, Any]:
        usage = answer.turn.usage
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        }


class Messages:
    """Anthropic's messages."""

    def events(self, answer: Answer, body: Mapping[str, Any]) -> Iterator[bytes]:
        usage = answer.turn.usage
        started = {**self.nothing(answer), "stop_reason": None, "usage": self._usage(answer, 1)}
        yield _event("message_start", message=started)
        yield _event("ping")
        index = 0
        if answer.turn.pieces:
            pieces = ({"type": "text_delta", "text": piece} for piece in answer.turn.pieces)
            yield from self._block(index, {"type": "text", "text": ""}, pieces)
            index += 1
        for call in answer.calls:
            block: dict[str, Any] = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            pieces = (
                {"type": "input_json_delta", "partial_json": it}
                for it in ("", *_fragments(call.raw_arguments))
            )
            yield from self._block(index, block, pieces)
            index += 1
        stop = {"stop_reason": self._stop(answer), "stop_sequence": None}
        yield _event("message_delta", delta=stop, usage={"output_tokens": usage.output_tokens})
        yield _event("message_stop")

    def no_events(self, answer: Answer, body: Mapping[str, Any]) -> Iterator[bytes]:
        return self.events(replace(answer, turn=ScriptTurn(usage=answer.turn.usage), calls=()), body)

    def _block(self, index: int, block: dict[str, Any], deltas: Iterable[dict[str, Any]]) -> Iterator[bytes]:
        yield _event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)

    def whole(self, answer: Answer) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.turn.pieces else []
        for call in answer.calls:
            # Broken JSON has no place in an answer that is JSON as a whole.
            content.append(
                {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}}
            )
        return {**self.nothing(answer), "content": content}

    def nothing(self, answer: Answer) -> dict[str, Any]:
        return {
            "id": f"msg_{answer.number}",
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": [],
            "stop_reason": self._stop(answer),
            "stop_sequence": None,
            "usage": self._usage(answer, answer.turn.usage.output_tokens),
        }

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = MESSAGES_ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"}

    def complaint(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
        if not isinstance(body.get("max_tokens"), int):
            return "max_tokens: Field required"
        if headers.get("anthropic-version", "") >= "2026-10-21" and {"temperature", "top_p", "top_k"} & set(
            body
        ):
            return "temperature, top_p, top_k: not supported in this version of the API"
        messages: list[Any] = body.get("messages") or []
        if not messages or messages[0]["role"] != "user":
            return "messages: the first message must use the 'user' role"
        asked: set[str] = set()
        for number, message in enumerate(messages):
            if message["role"] == "system" and "anthropic-beta" in headers:
                continue  # Claude Code puts them between the others, and the API takes that from it
            if message["role"] not in ("user", "assistant"):
                return f"messages.{number}: unexpected role {message['role']!r}"
            blocks = _blocks(message.get("content"))
            if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
                return f"messages.{number}: text content blocks must contain non-whitespace text"
            answered = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
            if answered != asked:
                return f"messages.{number}: 'tool_use' ids {sorted(asked)} but 'tool_result' ids {sorted(answered)}"
            asked = {block["id"] for block in blocks if block["type"] == "tool_use"}
        return None

    def _stop(self, answer: Answer) -> str:
        return "tool_use" if answer.calls else "end_turn"

    def _usage(self, answer: Answer, output_tokens: int) -> dict[str, Any]:
        return {"input_tokens": answer.turn.usage.input_tokens, "output_tokens": output_tokens}


class Responses(Chat):
    """OpenAI's responses, which Codex speaks; its errors are those of chat completions."""

    def events(self, answer: Answer, body: Mapping[str, Any]) -> Iterator[bytes]:
        yield _event("response.created", response={"id": self._id(answer)})
        for index, item in enumerate(self._items(answer)):
            yield _event("response.output_item.added", output_index=index, item=item)
            if item["type"] == "message":
                for piece in answer.turn.pieces:
                    yield _event(
                        "response.output_text.delta", item_id=item["id"], output_index=index, delta=piece
                    )
            yield _event("response.output_item.done", output_index=index, item=item)
        yield _event("response.completed", response=self.whole(answer))

    def no_events(self, answer: Answer, body: Mapping[str, Any]) -> Iterator[bytes]:
        return self.events(replace(answer, turn=ScriptTurn(usage=answer.turn.usage), calls=()), body)

    def whole(self, answer: Answer) -> dict[str, Any]:
        return {**self.nothing(answer), "output": self._items(answer)}

    def nothing(self, answer: Answer) -> dict[str, Any]:
        usage = answer.turn.usage
        return {
            "id": self._id(answer),
            "object": "response",
            "status": "completed",
            "model": answer.model,
            "output": [],
            "usage": {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.total_tokens,
            },
        }

    def complaint(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
        asked: set[str] = set()
        answered: set[str] = set()
        items: list[Any] = body.get("input") or []
        for item in items:
            kind = item.get("type", "message")
            if kind.endswith("_call_output"):
                answered.add(item["call_id"])
            elif kind.endswith("_call") and "call_id" in item:
                asked.add(item["call_id"])
        if asked != answered:
            return f"No tool output found for function calls {sorted(asked ^ answered)}"
        return None if items else "'input' is empty"

    def _items(self, answer: Answer) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if answer.turn.pieces:
            text: dict[str, Any] = {"type": "output_text", "text": answer.text, "annotations": []}
            message = {"type": "message", "id": f"msg_{answer.number}", "role": "assistant"}
            items.append({**message, "status": "completed", "content": [text]})
        for call in answer.calls:
            named = {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.name}
            items.append({**named, "arguments": call.raw_arguments, "status": "completed"})
        return items

    def _id(self, answer: Answer) -> str:
        return f"resp_{answer.number}"


CHAT_ERRORS: Mapping[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}

MESSAGES_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

# By the end of the path, since each provider puts its own before it.
WIRES: Mapping[str, Wire] = {
    "/chat/completions": Chat(),
    "/v1/messages": Messages(),
    "/v1/responses": Responses(),
    ":generateContent": Contents(),
    ":streamGenerateContent": Contents(),
}


def _sse(value: Any, event: str | None = None) -> bytes:
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(value)}\n\n".encode()


def _event(kind: str, **values: Any) -> bytes:
    return _sse({"type": kind, **values}, event=kind)


def _fragments(text: str) -> list[str]:
    return [text[start : start + FRAGMENT] for start in range(0, len(text), FRAGMENT)]


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, list):
        return cast("list[dict[str, Any]]", content)
    return [{"type": "text", "text": content or ""}]
