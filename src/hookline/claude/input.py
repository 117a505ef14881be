"""The input of `hookline answer`: one JSON object on stdin, read strictly where a guard is asked."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from typing import Any, cast

from hookline.claude.events import refuses
from hookline.errors import UsageError

_DEEPEST = 100

Json = dict[str, Any]


def read(stdin: bytes, event: str = "", as_: str = "claude") -> Json:
    """The JSON object on stdin; UsageError if it is anything else, or if it could be read in two ways and a guard is asked.

    `event` counts where the object does not name its own.
    """
    twice: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> Json:
        whole = dict(pairs)
        if len(whole) < len(pairs):
            names = [name for name, _ in pairs]
            twice.extend(name for name in whole if names.count(name) > 1)
        return whole

    try:
        value: Any = json.loads(stdin.removeprefix(BOM_UTF8).decode(), object_pairs_hook=members)
    except UnicodeDecodeError as exc:
        raise UsageError(f"stdin is not UTF-8: {exc}; give the event as one JSON object") from exc
    except (ValueError, RecursionError) as exc:
        got = "is empty" if not stdin.strip() else f"is not JSON ({exc})"
        raise UsageError(f"stdin {got}; give the event as one JSON object") from exc
    if not isinstance(value, dict):
        raise UsageError(f"stdin has a JSON {_kind(value)}; give the event as one JSON object")
    payload = cast("Json", value)
    if "hook_event_name" in twice or refuses(str(payload.get("hook_event_name") or event), as_):
        wrong = f"the key {twice[0]!r} is there twice" if twice else _wrong_inside(payload)
        if wrong:
            raise UsageError(f"stdin cannot be trusted: {wrong}")
    return payload


def event_named_in(stdin: bytes) -> str:
    """The event that an input names which cannot be read; empty if it names none."""
    found = re.search(rb'"hook_event_name"\s*:\s*"(\w+)"', stdin)
    return found[1].decode("utf-8", "replace") if found else ""


def _wrong_inside(payload: Json) -> str | None:
    """The reason why a guard and the client behind it would read the payload in two ways; None if there is none."""
    waiting: list[tuple[Any, int]] = [(payload, 1)]
    while waiting:
        item, depth = waiting.pop()
        if depth > _DEEPEST:
            return f"it is nested deeper than {_DEEPEST} levels"
        if isinstance(item, dict):
            members = cast("Json", item)
            waiting += [(inner, depth + 1) for pair in members.items() for inner in pair]
        elif isinstance(item, list):
            waiting += [(inner, depth + 1) for inner in cast("list[Any]", item)]
        elif isinstance(item, str) and "\0" in item:
            return "there is a NUL character in it"
    return None


def _kind(value: Any) -> str:
    kinds = {"list": "array", "str": "string", "bool": "boolean", "int": "number", "float": "number"}
    return kinds.get(value.__class__.__name__, "null")
