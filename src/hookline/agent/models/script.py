"""Scripts: the answers of a model or a fake provider, turn by turn, for tests, demonstrations and work without a network.

A script is a list of turns. A turn is a text, a function that is given the request and returns a turn, or

    text:    what it says, or
    stream:  the same in pieces, which are handed out one by one
    tools:   the calls it asks for: name, arguments (a mapping, or a text for JSON that is broken), id
    usage:   input_tokens, output_tokens, total_tokens
    delay:   seconds before it answers
    error:   it fails with this message, after what it has said
    expect:  a regular expression that the last message must match
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from hookline.agent.models import Message, Reply, Request, TextDelta
from hookline.agent.models.provider import tool_call
from hookline.engine.context import ToolCall, Usage
from hookline.errors import FileError, ModelFailed, UsageError
from hookline.source import line_of, read
from hookline.table import meant

T = TypeVar("T")


class Scripted:
    """Answers with the turns of a script, in order. `requests` keeps all requests."""

    provider = "scripted"

    def __init__(self, turns: Sequence[Any], *, name: str = "scripted", repeat: bool = False) -> None:
        self.name = name
        self.requests: list[Request] = []
        self._script = TurnScript(turns, read_turn, repeat=repeat)

    @classmethod
    def of_file(cls, file: str | Path) -> Scripted:
        """The script in a YAML or JSON file: a list of turns, or a mapping with `turns` and `repeat`."""
        turns, repeat = read_file(Path(file))
        return cls(turns, name=str(file), repeat=repeat)

    async def stream(self, request: Request) -> AsyncIterator[TextDelta | Reply]:
        self.requests.append(request)
        turn = self._turn(request)
        if turn.delay:
            await asyncio.sleep(turn.delay)
        text = ""
        for piece in turn.pieces:
            text += piece
            yield TextDelta(text=piece)
        if turn.error is not None:
            raise ModelFailed(f"{self._who}: {turn.error}")
        if not text and not turn.tools:
            raise ModelFailed(f"{self._who}: answered with neither text nor a tool call")
        calls = self._script.calls(turn)
        stop_reason = "tool_calls" if calls else "stop"
        yield Reply(text=text or None, tool_calls=calls, usage=turn.usage, stop_reason=stop_reason)

    async def close(self) -> None:
        pass

    @property
    def _who(self) -> str:
        return f"{self.provider} model {self.name!r}"

    def _turn(self, request: Request) -> ScriptTurn:
        try:
            turn = self._script.next(request)
        except ScriptRanOut as exc:
            raise ModelFailed(f"{self._who}: {exc}") from exc
        last = request.messages[-1] if request.messages else None
        complaint = expected(turn, last)
        if complaint:
            raise ModelFailed(f"{self._who}: {complaint}")
        return turn


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A tool call in a script; `raw` is its arguments as JSON, or a text in place of them."""

    name: str
    raw: str = "{}"
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptTurn:
    """One answer of the script."""

    text: str | None = None
    stream: Iterable[str] | None = None
    tools: tuple[ScriptedCall, ...] = ()
    usage: Usage = Usage()
    delay: float = 0.0
    error: str | None = None
    expect: re.Pattern[str] | None = None

    @property
    def pieces(self) -> Iterable[str]:
        if self.stream is not None:
            return self.stream
        return (self.text,) if self.text else ()


class ScriptRanOut(Exception):
    """There was no turn left to give."""


class TurnScript(Generic[T]):
    """Hands out the turns one after another, and numbers the tool calls."""

    def __init__(self, turns: Sequence[Any], read_one: Callable[[Any], T], *, repeat: bool = False) -> None:
        if isinstance(turns, str | Mapping):
            raise UsageError(f"a script is a list of turns, not {type(turns).__name__}")
        self._turns = [
            turn if callable(turn) else _numbered(number, turn, read_one)
            for number, turn in enumerate(turns, start=1)
        ]
        self._read = read_one
        self._repeat = repeat and bool(self._turns)
        self._taken = 0
        self._calls = 0

    def next(self, request: Any) -> T:
        if self._taken >= len(self._turns) and not self._repeat:
            raise ScriptRanOut(f"the script ran out after {len(self._turns)} turns")
        number = self._taken % len(self._turns)
        self._taken += 1
        turn = self._turns[number]
        return _numbered(number + 1, turn(request), self._read) if callable(turn) else turn

    def calls(self, turn: ScriptTurn) -> tuple[ToolCall, ...]:
        return tuple(tool_call(call.id or self._id(), call.name, call.raw) for call in turn.tools)

    def _id(self) -> str:
        self._calls += 1
        return f"call_{self._calls}"


def expected(turn: ScriptTurn, last: Message | None) -> str | None:
    """The complaint about the last message if it does not match the turn's `expect`, else None."""
    if turn.expect is None:
        return None
    content = last.get("content") if last else None
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    if turn.expect.search(text):
        return None
    return f"expected the last message to match {turn.expect.pattern!r}, but it is {text[:200]!r}"


def read_turn(value: Any) -> ScriptTurn:
    """Reads one entry of a script; UsageError if it is wrong."""
    if isinstance(value, str):
        return ScriptTurn(text=value)
    if not isinstance(value, Mapping):
        raise UsageError(f"a turn is a text or a mapping, not {value!r}")
    given = cast("Mapping[str, Any]", value)
    known = [item.name for item in fields(ScriptTurn)]
    _check_keys(given, known)
    if not any(given.get(key) is not None for key in ("text", "stream", "tools", "error")):
        raise UsageError("a turn needs one of text, stream, tools, error")
    if given.get("text") is not None and given.get("stream") is not None:
        raise UsageError("a turn has either text or stream; stream is the text in pieces")
    return ScriptTurn(**{key: READ[key](key, item) for key, item in given.items() if item is not None})


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{key} must be a text, not {value!r}")
    return value


def _stream(key: str, value: Any) -> Iterable[str]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise UsageError(f"{key} must be a list of texts, not {value!r}")
    if isinstance(value, list | tuple):
        return tuple(
            _text(f"{key}[{number}]", piece) for number, piece in enumerate(cast("list[Any]", value))
        )
    return cast("Iterable[str]", value)


def _tools(key: str, value: Any) -> tuple[ScriptedCall, ...]:
    if not isinstance(value, list | tuple):
        raise UsageError(f"{key} must be a list of calls, not {value!r}")
    return tuple(_call(f"{key}[{number}]", call) for number, call in enumerate(cast("list[Any]", value)))


def _call(key: str, value: Any) -> ScriptedCall:
    if not isinstance(value, Mapping) or "name" not in value:
        raise UsageError(f"{key} must be a mapping with name and arguments, not {value!r}")
    given = cast("Mapping[str, Any]", value)
    _check_keys(given, ["name", "arguments", "id"], key)
    arguments: Any = given.get("arguments") or {}
    if not isinstance(arguments, str | Mapping):
        raise UsageError(f"{key}.arguments must be a mapping, or a text for broken JSON, not {arguments!r}")
    raw = arguments if isinstance(arguments, str) else _json(f"{key}.arguments", arguments)
    id = given.get("id")
    return ScriptedCall(name=_text(f"{key}.name", given["name"]), raw=raw, id=id and _text(f"{key}.id", id))


def _json(key: str, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError) as exc:
        raise UsageError(f"{key} cannot be written as JSON: {exc}") from exc


def _usage(key: str, value: Any) -> Usage:
    if isinstance(value, Usage):
        return value
    if not isinstance(value, Mapping):
        raise UsageError(f"{key} must be a mapping, not {value!r}")
    given = dict(cast("Mapping[str, Any]", value))
    _check_keys(given, [item.name for item in fields(Usage)], key)
    for name, number in given.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise UsageError(f"{key}.{name} must be a whole number, not {number!r}")
    total = given.get("input_tokens", 0) + given.get("output_tokens", 0)
    return Usage(**{"total_tokens": total, **given})


def _delay(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise UsageError(f"{key} must be seconds, not {value!r}")
    return float(value)


def _pattern(key: str, value: Any) -> re.Pattern[str]:
    try:
        return re.compile(_text(key, value))
    except re.error as exc:
        raise UsageError(f"{key} is not a regular expression: {exc}: {value!r}") from exc


READ: Mapping[str, Callable[[str, Any], Any]] = {
    "text": _text,
    "stream": _stream,
    "tools": _tools,
    "usage": _usage,
    "delay": _delay,
    "error": _text,
    "expect": _pattern,
}


def _check_keys(given: Mapping[str, Any], known: Sequence[str], where: str = "") -> None:
    for key in given:
        if key in known:
            continue
        raise UsageError(f"{where}{': ' if where else ''}unknown key {key!r}{meant(str(key), known)}")


def _numbered(number: int, turn: Any, read_one: Callable[[Any], T]) -> T:
    try:
        return read_one(turn)
    except UsageError as exc:
        raise UsageError(f"turn {number}: {exc}") from exc


def read_file(file: Path) -> tuple[list[Any], bool]:
    """The turns of a script in a YAML or JSON file, and whether it begins again after the last."""
    document = read(file)
    value = document.value
    given = cast("dict[str, Any]", value if isinstance(value, dict) else {"turns": value})
    try:
        _check_keys(given, ["turns", "repeat"])
    except UsageError as exc:
        raise FileError(str(exc), file=file) from exc
    turns, repeat = given.get("turns"), given.get("repeat", False)
    if not isinstance(turns, list):
        raise FileError(f"a script is a list of turns, not {turns!r}", file=file, key="turns")
    if not isinstance(repeat, bool):
        raise FileError(f"must be true or false, not {repeat!r}", file=file, key="repeat")
    checked = cast("list[Any]", turns)
    for index, turn in enumerate(checked):
        try:
            read_turn(turn)
        except UsageError as exc:
            line = line_of(document, ("turns", index) if given is value else (index,))
            raise FileError(str(exc), file=file, line=line, key=f"turn {index + 1}") from exc
    return checked, repeat
