"""Messages of a conversation, and the payloads and answers that hooks have changed or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from hookline.agent.current import Message
from hookline.agent.models import Reply
from hookline.engine.context import ToolCall
from hookline.engine.plain import as_text, plain
from hookline.engine.point import Point
from hookline.engine.result import Outcome
from hookline.errors import AgentFailed, Refused

MODEL_REFUSALS = 3
STEP_REFUSALS = 3


def text_message(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def assistant_message(reply: Reply) -> Message:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = [_call_entry(call) for call in reply.tool_calls]
    return message


def _call_entry(call: ToolCall) -> Message:
    if call.arguments is None:
        return {"id": call.id, "name": call.name, "arguments": None, "raw_arguments": call.raw_arguments}
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


REFUSALS = {
    Point.STEP_START: (STEP_REFUSALS, "the step", "This step was refused: {}"),
    Point.MODEL_START: (
        MODEL_REFUSALS,
        "the call of the model",
        "This request was refused: {}. Answer again.",
    ),
    Point.MODEL_END: (MODEL_REFUSALS, "the model's answer", "Your answer was refused: {}. Answer again."),
}
"""For each point the limit of refusals in a row, the name of the thing refused, and the text for the model."""


def refusal(refused: Outcome, point: Point, count: int) -> str:
    """The text for the model after a refusal; raises after too many."""
    limit, what, text = REFUSALS[point]
    if count > limit:
        raise Refused(
            f"{what} was refused {limit} times, last: {refused.reason}", point=point, hook=refused.hook
        )
    return text.format(refused.reason)


def mapping(payload: Any, point: Point) -> Mapping[str, Any]:
    """The payload after the start hooks; raises if it is no mapping any more."""
    if not isinstance(payload, Mapping):
        kind = type(payload).__name__
        raise AgentFailed(f"the hooks at {point} made the payload a {kind}; it must stay a mapping")
    return cast("Mapping[str, Any]", payload)


def messages_in(payload: Any, point: Point) -> list[Message]:
    """The messages in a payload after the start hooks."""
    messages = mapping(payload, point).get("messages")
    if not isinstance(messages, list) or not all(
        isinstance(each, Mapping) for each in cast("list[Any]", messages)
    ):
        raise AgentFailed(f"the hooks at {point} left no list of messages under 'messages' in the payload")
    return list(cast("list[Message]", messages))


def reply_from(output: Any) -> Reply:
    """The model's answer after the hooks: unchanged, changed as a mapping, or replaced by a text."""
    if isinstance(output, Reply):
        return output
    if isinstance(output, Mapping):
        return Reply.model_validate(plain(output))
    return Reply(text=as_text(plain(output)))
