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
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from hookline.agent.models import Message, Reply, Request, TextDelta
from hookline.agent.models.provider import PartialCall, tool_call
from hookline.engine.context import ToolCall, Usage
from hookline.errors import ModelFailed, UsageError
from hookline.source import Document, Wrong, read
from hookline.table import Findings, InList, InMapping, Key, Node, Table, flag, number, text, texts

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
class ScriptTurn:
    """One answer of the script."""

    text: str | None = None
    stream: Iterable[str] | None = None
    tools: tuple[PartialCall, ...] = ()
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
        return tuple(tool_call(call.id or self._id(), call.name, call.arguments) for call in turn.tools)

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
    """Reads one turn of a script; UsageError if it is wrong."""
    findings = Findings()
    turn = _turn(Node.root(Document(value, ""), findings))
    for wrong in findings.problems:
        raise UsageError(f"{wrong.key}: {wrong.message}" if wrong.key else wrong.message)
    return turn


def read_file(file: Path) -> tuple[list[Any], bool]:
    """The turns of a script in a YAML or JSON file, and True if it begins again after the last."""
    node = Node.root(read(file), Findings())
    given: dict[str, Any] = {"turns": _turns(node)} if isinstance(node.value, list) else SCRIPT.read(node)
    for wrong in node.findings.problems:
        raise wrong
    return given["turns"], given.get("repeat", False)


def _turn(node: Node) -> ScriptTurn:
    if isinstance(node.value, str):
        return ScriptTurn(text=node.value)
    if not isinstance(node.value, Mapping):
        node.wrong(f"is {node.value!r}; a turn is a text or a mapping")
        return ScriptTurn()
    turn = ScriptTurn(**TURN.read(node))
    if not any(key in node for key in ("text", "stream", "tools", "error")):
        node.wrong("a turn needs one of text, stream, tools, error")
    if "text" in node and "stream" in node:
        node.wrong("a turn has either text or stream; stream is the text in pieces")
    return turn


def _turns(node: Node) -> list[Any]:
    if not isinstance(node.value, list):
        raise Wrong(f"is {node.value!r}; a script is a list of turns")
    for index in range(len(node.of_list)):
        _turn(node.child(index))
    return node.of_list


def _stream(node: Node) -> Iterable[str]:
    value: Any = node.value
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise Wrong(f"is {value!r}; give a list of texts")
    return texts(_listed(node)) if isinstance(value, list | tuple) else cast("Iterable[str]", value)


def _listed(node: Node) -> Node:
    """A tuple, which a script in Python may have, as a list."""
    value: Any = node.value
    return node.with_value([*cast("tuple[Any, ...]", value)]) if isinstance(value, tuple) else node


def _tools(node: Node) -> tuple[PartialCall, ...]:
    return CALLS(_listed(node))


def _arguments(node: Node) -> str:
    """The arguments as JSON."""
    if isinstance(node.value, str):
        return node.value
    if not isinstance(node.value, Mapping):
        raise Wrong(f"is {node.value!r}; give a mapping, or a text for JSON that is broken")
    try:
        return json.dumps(node.of_mapping, ensure_ascii=False)
    except (TypeError, ValueError) as exc:
        raise Wrong(f"cannot be written as JSON: {exc}") from exc


def _usage(node: Node) -> Usage:
    return node.value if isinstance(node.value, Usage) else USAGE(node)


def _count(node: Node) -> int:
    if isinstance(node.value, bool) or not isinstance(node.value, int) or node.value < 0:
        raise Wrong(f"is {node.value!r}; give a whole number")
    return node.value


def _delay(node: Node) -> float:
    seconds = number(node)
    if not 0 <= seconds < float("inf"):
        raise Wrong(f"is {node.value!r}; give seconds")
    return seconds


def _pattern(node: Node) -> re.Pattern[str]:
    try:
        return re.compile(text(node))
    except re.error as exc:
        raise Wrong(f"{node.value!r} is not a regular expression: {exc}") from exc


CALLS = InList(
    Table(
        {
            "name": Key(text, needed="it names the tool"),
            "arguments": Key(_arguments),
            "id": Key(text),
        }
    ),
    lambda _, given: replace(PartialCall(arguments="{}"), **given),
    each="- name: TOOL",
)
USAGE = InMapping(
    Table({each.name: Key(_count) for each in fields(Usage)}),
    lambda _, given: Usage(**{"total_tokens": sum(given.values()), **given}),
)
TURN = Table(
    {
        "text": Key(text),
        "stream": Key(_stream),
        "tools": Key(_tools),
        "usage": Key(_usage),
        "delay": Key(_delay),
        "error": Key(text),
        "expect": Key(_pattern),
    }
)
SCRIPT = Table({"turns": Key(_turns, needed="a script is a list of turns"), "repeat": Key(flag)})


def _numbered(number: int, turn: Any, read_one: Callable[[Any], T]) -> T:
    try:
        return read_one(turn)
    except UsageError as exc:
        raise UsageError(f"turn {number}: {exc}") from exc
