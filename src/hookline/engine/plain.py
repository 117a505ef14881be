"""Values as plain data: for hooks, for what they return, and for the record.

A plain value is built of dicts, lists, strings, numbers, booleans and None. Models (pydantic) and
dataclasses are shown as dicts; `like` makes them from dicts again, with their own validation, and `typed` reads those
that were kept in a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from hookline.engine.shared import Copies, Shared
from hookline.engine.stdlib import lazy_pattern
from hookline.errors import HookBroke

if TYPE_CHECKING:
    import re
    from datetime import datetime

DEEPEST = 100
"""The levels to which JSON that others wrote may be nested."""
# Control codes of both sets but newline and tab, format characters (bidirectional ones, of no width, tags), line
# separators, blank letters, variation selectors, and halves of surrogate pairs.
_UNSEEN = lazy_pattern(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160"
    r"\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff"
    r"\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff]"
)
_ATOMS = frozenset[Any]({str, int, float, bool, type(None)})
_type: Any = type


def plain(value: Any) -> Any:
    """A copy for one hook, so that its changes reach nobody else."""
    kind = _type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {key: item if type(item) in _ATOMS else plain(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [item if type(item) in _ATOMS else plain(item) for item in value]
    if kind is Shared:
        return Copies(value, plain)
    return opened(value, plain, copied)


def as_text(value: Any) -> str:
    """A text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def visible(text: str) -> str:
    r"""The text with escapes (`\x1b`, `\u202e`) for what a terminal would obey or not show; newlines and tabs stay."""
    text = text.replace("\r\n", "\n")
    return text if _is_plain(text) else _UNSEEN.sub(_escape, text)


def visible_json(text: str) -> str:
    """The same for a JSON text, with the escapes of JSON: its values stay as they are."""
    return text if _is_plain(text) else _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _is_plain(text: str) -> bool:
    """True if nothing in a text needs an escape, as in most; it is known without a pattern."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode()


def finite(value: Any, instead: Callable[[float], Any]) -> Any:
    """A plain value with `instead` of each NaN and infinity in it, which JSON does not have."""
    if isinstance(value, float):
        from math import isfinite  # few values need it

        return value if isfinite(value) else instead(value)
    if isinstance(value, dict):
        return {key: finite(item, instead) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [finite(item, instead) for item in cast("list[Any]", value)]
    return value


def singles(value: Any) -> Iterator[Any]:
    """All of a plain value but its dicts and lists, the keys included; RecursionError if it is nested too deep."""
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if depth > DEEPEST:
            raise RecursionError
        if isinstance(item, dict):
            members = cast("dict[str, Any]", item)
            waiting += [(inner, depth + 1) for pair in members.items() for inner in pair]
        elif isinstance(item, list):
            waiting += [(inner, depth + 1) for inner in cast("list[Any]", item)]
        else:
            yield item


def strictly_plain(value: Any, name: str) -> Any:
    """A plain copy of what a hook returned; raises HookBroke, with the path, for what JSON cannot carry."""
    kind = _type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, dict):
        return {
            _key(key, name): strictly_plain(item, f"{name}[{key!r}]")
            for key, item in cast("dict[Any, Any]", value).items()
        }
    if isinstance(value, Copies):
        return value.settled(lambda item: strictly_plain(item, name))
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return [strictly_plain(item, f"{name}[{index}]") for index, item in enumerate(items)]
    return opened(value, lambda inner: strictly_plain(inner, name), lambda other: _refused(other, name))


def like(original: Any, changed: Any) -> Any:
    """`changed` in the type of `original`, validated again, if that is a model or a dataclass."""
    kind = _type(original)
    if kind in _ATOMS or kind is dict or kind is list or not isinstance(changed, Mapping):
        return changed
    if hasattr(kind, "model_validate"):
        return kind.model_validate(changed)
    if hasattr(kind, "__dataclass_fields__"):
        return kind(**changed)
    return cast("Any", changed)


def typed(kind: Any, given: Any) -> Any:
    """A plain value in the type that it was written from; the reverse of `asdict`.

    It knows dataclasses, enums, times, tuples and None. A field that the type does not have was written by a newer
    version, and is left out.
    """
    from dataclasses import is_dataclass
    from datetime import datetime
    from typing import get_args, get_type_hints

    if given is None or kind is datetime:
        return given and datetime.fromisoformat(given)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return cast("Any", kind)(**{key: typed(hints[key], given[key]) for key in given if key in hints})
    inner = [each for each in get_args(kind) if each not in (type(None), ...)]
    if isinstance(given, list):
        return tuple(typed(inner[0], each) for each in cast("list[Any]", given))
    if type(None) in get_args(kind):
        return typed(inner[0], given)
    return kind(given) if isinstance(kind, type) and issubclass(kind, Enum) else given


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one: what others send may lack any field."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def inner(value: Any, *keys: str) -> Any:
    """The value below these keys; None if there is none."""
    for key in keys:
        value = mapping(value).get(key)
    return value


def json_or_none(content: bytes | str) -> dict[str, Any] | None:
    """The object that a JSON text is; None if it is none."""
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def opened(value: Any, again: Callable[[Any], Any], other: Callable[[Any], Any]) -> Any:
    """A value that JSON does not know, opened by one layer: `again` gets its content, `other` what has none."""
    if isinstance(value, Enum):
        return again(value.value)
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return again(dict(cast("Mapping[Any, Any]", value)))
    if hasattr(_type(value), "model_dump"):
        return again(_dumped(value))
    if hasattr(_type(value), "__dataclass_fields__"):
        from dataclasses import fields  # slow to load, and loaded already where there is one

        return again({field.name: getattr(value, field.name) for field in fields(value)})
    return other(value)


def _dumped(model: Any) -> Any:
    try:
        return model.model_dump(mode="json")
    except Exception:
        # A field that JSON cannot carry; a hook that only reads must not fail because of it.
        return model.model_dump()


def copied(value: Any) -> Any:
    """A deep copy in the same types, if it can be copied."""
    import copy

    try:
        return copy.deepcopy(value)
    except Exception:
        # A lock, a socket: it cannot be copied; a hook that only reads must not fail because of it.
        return value


def _key(key: Any, name: str) -> str:
    if type(key) is not str:
        raise HookBroke(f"{name} has the key {key!r}; keys must be strings", kind="bad_answer")
    return key


def _refused(value: Any, name: str) -> Any:
    raise HookBroke(
        f"{name} is {type(value).__name__}, which JSON cannot carry; give dicts, lists, strings, numbers,"
        " booleans, None, dataclasses or pydantic models",
        kind="bad_answer",
    )


def cut(text: str, most: int) -> str:
    """The beginning of a text, at most so many bytes of UTF-8, never half a character; no variable can hold a NUL."""
    known = text.replace("\0", "").encode("utf-8", "replace")
    return known[:most].decode("utf-8", "ignore")


def utc_text(moment: datetime, *, timespec: str = "seconds") -> str:
    """A point in time as `2026-11-16T09:00:00Z`; with the timespec `microseconds` as `2026-11-16T09:00:00.000000Z`."""
    from datetime import UTC  # not needed to answer, which must start quickly

    return moment.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def parse_time(text: object) -> datetime:
    """The point in time that a text names, in UTC unless it says otherwise; ValueError if it names none."""
    from datetime import UTC, datetime

    moment = datetime.fromisoformat(str(text))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
