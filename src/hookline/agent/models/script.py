"""Scripts: the answers of a scripted model or a fake provider, turn by turn.

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

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from hookline.agent.models.retry import tool_call
from hookline.engine.context import ToolCall, Usage
from hookline.errors import FileError, UsageError

T = TypeVar("T")


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

    def __init__(self, turns: Sequence[Any], read: Callable[[Any], T], *, repeat: bool = False) -> None:
        if isinstance(turns, str | Mapping):
            raise UsageError(f"a script is a list of turns, not {type(turns).__name__}")
        self._turns = [
            turn if callable(turn) else _numbered(number, turn, read) for number, turn in _from_one(turns)
        ]
        self._read = read
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


def expected(turn: ScriptTurn, last: Mapping[str, Any] | None) -> str | None:
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
        raise UsageError(f"{key} is no regular expression: {exc}: {value!r}") from exc


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
        near = get_close_matches(str(key), known, n=1)
        hint = f", did you mean {near[0]!r}?" if near else ";"
        raise UsageError(f"{where}{': ' if where else ''}unknown key {key!r}{hint} known: {', '.join(known)}")


def _from_one(turns: Sequence[Any]) -> Iterable[tuple[int, Any]]:
    return enumerate(turns, start=1)


def _numbered(number: int, turn: Any, read: Callable[[Any], T]) -> T:
    try:
        return read(turn)
    except UsageError as exc:
        raise UsageError(f"turn {number}: {exc}") from exc


def read_file(file: Path) -> tuple[list[Any], bool]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise FileError(f"cannot be read: {exc}", file=file) from exc
    value = _json_value(file, text) if file.suffix == ".json" else _yaml_value(file, text)
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
    for number, turn in _from_one(checked):
        try:
            read_turn(turn)
        except UsageError as exc:
            raise FileError(str(exc), file=file, line=_line(text, number), key=f"turn {number}") from exc
    return checked, repeat


def _json_value(file: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise FileError(f"is not JSON: {exc.msg}", file=file, line=exc.lineno) from exc


def _yaml_value(file: Path, text: str) -> Any:
    import yaml

    try:
        return yaml.load(text, Loader=_loader())
    except yaml.YAMLError as exc:
        mark: Any = getattr(exc, "problem_mark", None)
        why = getattr(exc, "problem", None) or str(exc)
        raise FileError(f"is not YAML: {why}", file=file, line=mark.line + 1 if mark else None) from exc


def _line(text: str, number: int) -> int | None:
    """The line of a turn in the file; JSON is read as YAML, of which it is a subset."""
    import yaml

    try:
        node = cast("Any", yaml).compose(text, Loader=_loader())
    except yaml.YAMLError:
        return None
    if node.tag.endswith(":map"):
        node = next(value for key, value in node.value if key.value == "turns")
    return node.value[number - 1].start_mark.line + 1


def _loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
