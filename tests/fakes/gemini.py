"""Gemini's `generateContent` and `streamGenerateContent`, which Gemini CLI speaks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hookline.agent.models.script import ScriptTurn

if TYPE_CHECKING:
    from tests.fakes.wires import Answer

ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


class Contents:
    """The protocol has no ids of calls: an answer names the function, in the order of the calls."""

    def events(self, answer: Answer, body: Mapping[str, Any]) -> Iterator[bytes]:
        for piece in answer.turn.pieces:
            yield _event(self._chunk(answer, [{"text": piece}]))
        yield _event({**self._chunk(answer, self._calls(answer), "STOP"), **self._usage(answer)})

    def no_events(self, answer: Answer, body: Mapping[str, Any]) -> Iterator[bytes]:
        return self.events(replace(answer, turn=ScriptTurn(usage=answer.turn.usage), calls=()), body)

    def whole(self, answer: Answer) -> dict[str, Any]:
        parts = [*({"text": piece} for piece in answer.turn.pieces), *self._calls(answer)]
        return {**self._chunk(answer, parts, "STOP"), **self._usage(answer)}

    def nothing(self, answer: Answer) -> dict[str, Any]:
        return {**self._chunk(answer, []), "candidates": [], **self._usage(answer)}

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"code": status, "message": message, "status": ERRORS.get(status, "INTERNAL")}}

    def complaint(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
        asked: list[str] = []
        contents: list[Any] = body.get("contents") or []
        for number, content in enumerate(contents):
            if content.get("role", "user") not in ("user", "model"):
                return f"contents[{number}].role: please use a valid role: user, model"
            parts: list[Any] = content.get("parts") or []
            if not parts:
                return f"contents[{number}].parts: must not be empty"
            told = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
            if sorted(told) != sorted(asked):
                return f"contents[{number}]: the calls {asked} are answered by the responses {told}"
            asked = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        return None if contents else "contents: must not be empty"

    def _calls(self, answer: Answer) -> list[dict[str, Any]]:
        return [{"functionCall": {"name": call.name, "args": call.arguments or {}}} for call in answer.calls]

    def _chunk(
        self, answer: Answer, parts: list[dict[str, Any]], finish: str | None = None
    ) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        return {
            "candidates": [candidate],
            "modelVersion": answer.model,
            "responseId": f"fake-{answer.number}",
        }

    def _usage(self, answer: Answer) -> dict[str, Any]:
        usage = answer.turn.usage
        return {
            "usageMetadata": {
                "promptTokenCount": usage.input_tokens,
                "candidatesTokenCount": usage.output_tokens,
                "totalTokenCount": usage.total_tokens,
            }
        }


def _event(value: Any) -> bytes:
    return f"data: {json.dumps(value)}\r\n\r\n".encode()
