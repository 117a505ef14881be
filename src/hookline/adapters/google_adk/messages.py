"""ADK's contents, requests and responses as the messages and replies that hooks see, and back.

A hook may change any part of a message. A message that is unchanged goes back as the parts it came from, so that
nothing is lost that a message has no place for (thoughts, images, signatures).
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from hookline.agent.models import Message, Reply, assistant_message, mapping, messages_in, text_message
from hookline.engine.plain import as_text, plain
from hookline.engine.point import Point
from hookline.errors import AgentFailed

ROLES = {"user": "user", "assistant": "model", "tool": "user", "system": "user"}
STOP_REASONS = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "filtered"}
TOKENS = {
    "input_tokens": "prompt_token_count",
    "output_tokens": "candidates_token_count",
    "total_tokens": "total_token_count",
}
SETTINGS = {
    "system": "system_instruction",
    "temperature": "temperature",
    "top_p": "top_p",
    "max_output_tokens": "max_output_tokens",
}
"""Keys of a `model.start` payload, each with its field of a request's config."""


class ContentSlice(NamedTuple):
    """One message as hooks see it, with its parts and the content that they came from, if any."""

    message: Message
    parts: tuple[Any, ...]
    content: Any = None


def google_module(name: str) -> Any:
    """A module of google-adk or google-genai, which are not in the environment that hookline itself is checked in."""
    return importlib.import_module(f"google.{name}")


def text_of(content: Any) -> str:
    """The text of a content, without the thoughts of a model."""
    return _text(getattr(content, "parts", None) or ())


def text_content(text: str, role: str = "user") -> Any:
    return _content(role, [{"text": text}])


def with_text(content: Any, text: str) -> Any:
    """The same content with another text; parts that are no text stay."""
    others = [part for part in content.parts or () if not part.text]
    return _content(content.role, [{"text": text}, *others])


class AdkRequest:
    """One request of ADK to its model, with the messages of hooks put in.

    ADK builds every request anew from its own record. `told` are the messages that stay in an agent's requests, with
    their places; `always` stand before all others; `rewritten` are inputs of the user with the texts in their place.
    """

    def __init__(
        self, raw: Any, told: list[tuple[int, str]], always: Iterable[str], rewritten: Mapping[str, str]
    ) -> None:
        self.raw = raw
        self._told = told
        self._contents: list[Any] = raw.contents
        self._length = len(self._contents)
        self._read: tuple[list[int], list[ContentSlice]] = ([], [])
        for index, each in enumerate(self._contents) if rewritten else ():
            text = text_of(each)
            if each.role == "user" and text in rewritten:
                self._contents[index] = with_text(each, rewritten[text])
        for index, text in reversed([*((0, text) for text in always), *told]):
            self._contents.insert(min(index, self._length), text_content(text))

    def tell(self, texts: Collection[str]) -> None:
        """Add messages to this request, and at the same place to those that follow."""
        self.tell_once(texts)
        self._told.extend((self._length, text) for text in texts)

    def tell_once(self, texts: Collection[str]) -> None:
        self._contents.extend(text_content(text) for text in texts)

    def shown(self) -> list[ContentSlice]:
        """Its messages as hooks see them; a long history is read once."""
        now = [id(each) for each in self._contents]
        if self._read[0] != now:
            self._read = (now, slices(self._contents))
        return self._read[1]

    def settings(self) -> dict[str, Any]:
        """The payload of `model.start` beside the messages."""
        config = self.raw.config
        return {
            **{key: getattr(config, field, None) for key, field in SETTINGS.items()},
            "system": _system(getattr(config, "system_instruction", None)),
            "tools": list(self.raw.tools_dict),
        }

    def change(self, before: Mapping[str, Any], after: Any, point: Point) -> None:
        """Write the changes that hooks at `step.start` or `model.start` made in the payload into the request."""
        changed = mapping(after, point)
        config = self.raw.config
        for key, field in SETTINGS.items():
            if key in before and changed.get(key) != before[key]:
                setattr(config, field, changed.get(key))
        kept = changed.get("tools") or ()
        for name in [name for name in before.get("tools", ()) if name not in kept]:
            self.raw.tools_dict.pop(name, None)
            for tool in config.tools or ():
                declared = getattr(tool, "function_declarations", None)
                if declared:
                    tool.function_declarations = [each for each in declared if each.name != name]
        self._contents[:] = _contents(messages_in(changed, point), self.shown())


def slices(contents: Iterable[Any]) -> list[ContentSlice]:
    """Every message of a request, in order. A content that answers several calls is a message for each."""
    found: list[ContentSlice] = []
    for content in contents:
        parts = tuple(content.parts or ())
        if content.role == "model":
            found.append(ContentSlice(_assistant(parts), parts, content))
            continue
        answers = [part for part in parts if part.function_response is not None]
        for part in answers:
            found.append(ContentSlice(_tool_result(part.function_response), (part,), content))
        rest = tuple(part for part in parts if part.function_response is None)
        if rest or not answers:
            found.append(ContentSlice(text_message("user", _text(rest)), rest, content))
    return found


def _contents(messages: Sequence[Message], shown: Sequence[ContentSlice]) -> list[Any]:
    """The contents for the messages after the hooks; unchanged ones have the same parts."""
    in_place = len(messages) == len(shown)
    unused = list(shown)
    contents: list[tuple[str, list[Any]]] = []
    before: ContentSlice | None = None
    for index, message in enumerate(messages):
        found = next((each for each in unused if each.message == message), None)
        if found is not None:
            unused.remove(found)
        else:
            found = _written(message, shown[index].parts if in_place else ())
        if before is not None and _same_content(before, found):
            contents[-1][1].extend(found.parts)
        else:
            role = getattr(found.content, "role", None) or ROLES[found.message.get("role") or "user"]
            contents.append((role, list(found.parts)))
        before = found
    return [_content(role, parts) for role, parts in contents]


def _same_content(one: ContentSlice, other: ContentSlice) -> bool:
    """True if both come from the same content, or are answers to calls that stand together."""
    if one.content is not None and one.content is other.content:
        return True
    return one.message.get("role") == other.message.get("role") == "tool"


def _written(message: Message, was: Iterable[Any]) -> ContentSlice:
    """The slice of a message that a hook wrote; parts in its place that no message shows are kept."""
    role = str(message.get("role") or "user")
    if role not in ROLES:
        raise AgentFailed(f"a hook left a message with the role {role!r}; known: {', '.join(ROLES)}")
    if role == "tool":
        answer = {
            "id": message.get("tool_call_id"),
            "name": message.get("name"),
            "response": {"result": message.get("content")},
        }
        return ContentSlice(message, ({"function_response": answer},))
    kept = (part for part in was if part.function_call is None and not part.text)
    return ContentSlice(message, (*_parts(message), *kept))


def _parts(message: Message) -> list[Any]:
    """The text of a message and the calls in it, as parts."""
    text = as_text(plain(message.get("content") or ""))
    parts: list[Any] = [{"text": text}] if text else []
    for each in message.get("tool_calls") or ():
        args: Any = each.get("arguments") or {}
        parts.append({"function_call": {"id": each.get("id"), "name": each.get("name"), "args": args}})
    return parts


def _assistant(parts: Sequence[Any]) -> Message:
    calls = [part.function_call for part in parts if part.function_call is not None]
    message: dict[str, Any] = {"role": "assistant", "content": _text(parts) or None}
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": dict(call.args or {})} for call in calls
        ]
    return message


def _tool_result(answer: Any) -> Message:
    given = cast("dict[str, Any]", plain(answer.response) or {})
    bare = given["result"] if list(given) == ["result"] else given
    return {"role": "tool", "tool_call_id": answer.id, "name": answer.name, "content": as_text(bare)}


def _system(instruction: Any) -> str | None:
    if instruction is None or isinstance(instruction, str):
        return instruction
    if hasattr(instruction, "parts"):
        return text_of(instruction)
    if isinstance(instruction, list):
        return "\n".join(_system(each) or "" for each in cast("list[Any]", instruction))
    return getattr(instruction, "text", None)


def reply_of(response: Any) -> Reply:
    """A model's answer as hooks see it."""
    said = _assistant(getattr(response.content, "parts", None) or ())
    calls, usage = said.get("tool_calls"), response.usage_metadata
    reason = getattr(response.finish_reason, "name", None) or "STOP"
    return Reply.model_validate(
        {
            "text": said["content"],
            "tool_calls": calls,
            "usage": {key: getattr(usage, name, None) or 0 for key, name in TOKENS.items()},
            "stop_reason": "tool_calls" if calls else STOP_REASONS.get(reason, reason.lower()),
        }
    )


def response_for(reply: Reply, original: Any = None) -> Any:
    """ADK's response for a reply; parts of the original that are neither text nor call stay."""
    before = getattr(original.content, "parts", None) or () if original is not None else ()
    kept = [part for part in before if part.function_call is None and (not part.text or part.thought)]
    content = _content("model", [*kept, *_parts(assistant_message(reply))])
    if original is None:
        return google_module("adk.models").LlmResponse(content=content)
    return original.model_copy(update={"content": content})


def _text(parts: Iterable[Any]) -> str:
    return "".join(part.text for part in parts if part.text and not getattr(part, "thought", None))


def _content(role: str, parts: list[Any]) -> Any:
    """A content as ADK has it; a part of it may be given as a dict."""
    return google_module("genai.types").Content(role=role, parts=parts)
