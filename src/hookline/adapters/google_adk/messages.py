"""ADK's contents, requests and responses in the words that hooks know, and back.

What a hook did not change goes back as the object it came from, so that nothing is lost which our words have no
name for (thoughts, images, signatures).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hookline.adapters.google_adk.protocols import LlmRequest, LlmResponse, genai, of_adk
from hookline.agent.models import Reply
from hookline.agent.output_schema import as_text
from hookline.engine.context import ToolCall, Usage
from hookline.engine.plain import plain
from hookline.engine.point import Point
from hookline.errors import AgentFailed

__all__ = [
    "Piece",
    "change_request",
    "content",
    "contents",
    "held_back",
    "pieces",
    "reply_from",
    "reply_of",
    "request_payload",
    "response",
    "text_of",
    "with_text",
]

Message = Mapping[str, Any]
ROLES = {"user": "user", "assistant": "model", "tool": "user", "system": "user"}
STOP_REASONS = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "filtered"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One message as hooks see it, with the parts it stands for and the place of the content they came from."""

    message: Message
    role: str
    parts: tuple[Any, ...]
    origin: int | None = None


def text_of(content: Any) -> str:
    """The text in a content; what a model thought aloud is not part of what it said."""
    return "".join(_texts(getattr(content, "parts", None) or ()))


def content(text: str, role: str = "user") -> Any:
    types = genai()
    return types.Content(role=role, parts=[types.Part(text=text)])


def with_text(original: Any, text: str) -> Any:
    """The same content with another text; what is not text stays."""
    types = genai()
    others = [part for part in original.parts or () if not part.text]
    return types.Content(role=original.role, parts=[types.Part(text=text), *others])


def pieces(contents: Iterable[Any]) -> list[Piece]:
    """Every message of a request, in order."""
    return [piece for index, each in enumerate(contents) for piece in _pieces(each, index)]


def contents(messages: Sequence[Message], before: Sequence[Piece], original: Sequence[Any]) -> list[Any]:
    """The contents for messages that hooks left; those that are as before are the very objects."""
    in_place = len(messages) == len(before)
    unused = list(before)
    found: list[Piece] = []
    for index, message in enumerate(messages):
        same = next((piece for piece in unused if piece.message == message), None)
        if same is not None:
            unused.remove(same)
        found.append(same or _made(message, before[index] if in_place else None))
    return [_grouped(group, original) for group in _groups(found)]


def request_payload(request: LlmRequest, messages: Sequence[Message]) -> dict[str, Any]:
    """What `model.start` shows of a request."""
    config = request.config
    return {
        "messages": list(messages),
        "system": _system(getattr(config, "system_instruction", None)),
        "tools": list(request.tools_dict),
        "temperature": getattr(config, "temperature", None),
        "top_p": getattr(config, "top_p", None),
        "max_output_tokens": getattr(config, "max_output_tokens", None),
    }


def change_request(request: LlmRequest, before: Mapping[str, Any], after: Any) -> None:
    """Write into ADK's request what the hooks changed in its payload."""
    if not isinstance(after, Mapping):
        kind = type(after).__name__
        raise AgentFailed(
            f"the hooks at {Point.MODEL_START} made the payload a {kind}; it must stay a mapping"
        )
    changed = cast("Mapping[str, Any]", after)
    if changed.get("system") != before["system"]:
        request.config.system_instruction = changed.get("system")
    for key in ("temperature", "top_p", "max_output_tokens"):
        if changed.get(key) != before[key]:
            setattr(request.config, key, changed.get(key))
    kept = set(changed.get("tools") or ())
    for name in [name for name in before["tools"] if name not in kept]:
        request.tools_dict.pop(name, None)
        for tool in request.config.tools or ():
            declared = getattr(tool, "function_declarations", None)
            if declared:
                tool.function_declarations = [each for each in declared if each.name != name]


def reply_of(response: LlmResponse) -> Reply:
    """A model's answer as hooks see it."""
    parts = getattr(response.content, "parts", None) or ()
    calls = [part.function_call for part in parts if part.function_call is not None]
    usage = response.usage_metadata
    reason = getattr(response.finish_reason, "name", None) or "STOP"
    return Reply(
        text="".join(_texts(parts)) or None,
        tool_calls=tuple(_call(call, index) for index, call in enumerate(calls)),
        usage=Usage(
            input_tokens=getattr(usage, "prompt_token_count", None) or 0,
            output_tokens=getattr(usage, "candidates_token_count", None) or 0,
            total_tokens=getattr(usage, "total_token_count", None) or 0,
        ),
        stop_reason="tool_calls" if calls else STOP_REASONS.get(reason, reason.lower()),
    )


def reply_from(output: Any) -> Reply:
    """The answer after the hooks: as it was, its plain form changed, or a text in its place."""
    if isinstance(output, Reply):
        return output
    if isinstance(output, Mapping):
        return Reply.model_validate(plain(output))
    return Reply(text=as_text(plain(output)))


def response(reply: Reply, original: LlmResponse | None = None) -> Any:
    """ADK's response for a reply; what is neither text nor call in the original stays."""
    types = genai()
    kept = [
        part
        for part in (getattr(original.content, "parts", None) or () if original is not None else ())
        if part.function_call is None and (not part.text or part.thought)
    ]
    calls = [
        types.Part(function_call=types.FunctionCall(id=call.id, name=call.name, args=call.arguments or {}))
        for call in reply.tool_calls
    ]
    said = [types.Part(text=reply.text)] if reply.text else []
    whole = types.Content(role="model", parts=[*kept, *said, *calls])
    if original is None:
        return of_adk("models", "LlmResponse")(content=whole)
    return cast("Any", original).model_copy(update={"content": whole})


def held_back() -> Any:
    """A piece of a stream with nothing in it, in the place of one that a hook may still change."""
    return of_adk("models", "LlmResponse")(partial=True)


def _texts(parts: Iterable[Any]) -> list[str]:
    return [part.text for part in parts if part.text and not getattr(part, "thought", None)]


def _call(call: Any, index: int) -> ToolCall:
    arguments = dict(call.args or {})
    return ToolCall(
        id=call.id or f"call_{index + 1}",
        name=call.name,
        arguments=arguments,
        raw_arguments=json.dumps(arguments, default=str),
    )


def _pieces(content: Any, index: int) -> list[Piece]:
    parts = tuple(content.parts or ())
    role = content.role or "user"
    if role == "model":
        return [Piece(message=_assistant(parts), role=role, parts=parts, origin=index)]
    answers = [part for part in parts if part.function_response is not None]
    found = [
        Piece(message=_answered(part.function_response), role=role, parts=(part,), origin=index)
        for part in answers
    ]
    rest = tuple(part for part in parts if part.function_response is None)
    if rest or not answers:
        message = {"role": "user", "content": "".join(_texts(rest))}
        found.append(Piece(message=message, role=role, parts=rest, origin=index))
    return found


def _assistant(parts: Sequence[Any]) -> Message:
    calls = [part.function_call for part in parts if part.function_call is not None]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(_texts(parts)) or None}
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": dict(call.args or {})} for call in calls
        ]
    return message


def _answered(answer: Any) -> Message:
    given = cast("dict[str, Any]", plain(answer.response) or {})
    bare = given["result"] if list(given) == ["result"] else given
    return {"role": "tool", "tool_call_id": answer.id, "name": answer.name, "content": as_text(bare)}


def _made(message: Message, was: Piece | None) -> Piece:
    """The piece for a message that a hook wrote; what stood in its place keeps what our words do not show."""
    if not isinstance(message, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] a hook wrote it
        raise AgentFailed(
            f"a hook left {type(message).__name__} among the messages; each is a mapping with a role"
        )
    types = genai()
    role = str(message.get("role") or "user")
    if role not in ROLES:
        raise AgentFailed(f"a hook left a message with the role {role!r}; known: {', '.join(ROLES)}")
    if role == "tool":
        answer = types.FunctionResponse(
            id=message.get("tool_call_id"),
            name=message.get("name"),
            response={"result": message.get("content")},
        )
        return Piece(message=message, role="user", parts=(types.Part(function_response=answer),))
    text = as_text(plain(message.get("content") or ""))
    said = (types.Part(text=text),) if text else ()
    calls = tuple(
        types.Part(
            function_call=types.FunctionCall(
                id=call.get("id"), name=call.get("name"), args=call.get("arguments") or {}
            )
        )
        for call in message.get("tool_calls") or ()
    )
    kept = tuple(part for part in was.parts if part.function_call is None and not part.text) if was else ()
    return Piece(message=message, role=ROLES[role], parts=(*said, *calls, *kept))


def _groups(found: Iterable[Piece]) -> list[list[Piece]]:
    """Pieces that make one content: those from the same one, and answers to calls that stand together."""
    groups: list[list[Piece]] = []
    for piece in found:
        last = groups[-1][-1] if groups else None
        together = last is not None and (
            (piece.origin is not None and piece.origin == last.origin)
            or piece.message.get("role") == last.message.get("role") == "tool"
        )
        if together:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _grouped(group: Sequence[Piece], original: Sequence[Any]) -> Any:
    parts = [part for piece in group for part in piece.parts]
    origin = group[0].origin
    if origin is not None and list(original[origin].parts or ()) == parts:
        return original[origin]
    return genai().Content(role=group[0].role, parts=parts)


def _system(instruction: Any) -> str | None:
    if instruction is None or isinstance(instruction, str):
        return instruction
    if hasattr(instruction, "parts"):
        return text_of(instruction)
    if isinstance(instruction, list):
        return "\n".join(_system(each) or "" for each in cast("list[Any]", instruction))
    return getattr(instruction, "text", None)
