"""The short way of `hookline answer`: the hooks of an approved file, from its compiled copy.

It runs before and after every tool call of a foreign agent, so nothing slow is imported here (no asyncio, dataclasses,
yaml or pydantic). `event` asks the hooks by the real pipeline, without an event loop. Whatever is not plain (another
kind of hook, no copy, no approval, anything wrong) goes the long way, which decides alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hookline.claude.events import CALLERS
from hookline.hookfile.compiler import copy_of
from hookline.hookfile.trust import distrusted, nearest

LONG = "HOOKLINE_ANSWER_LONG"
"""The variable that has every call take the long way; for tests, which compare the two."""
_LONGEST = 4_000_000

Json = dict[str, Any]


class _Asked(NamedTuple):
    event: str
    caller: str
    file: str | None


def let_go(arguments: list[str]) -> bytes | None:
    """End the process where the short way can answer; else what was read of stdin, for the long way."""
    asked = None if os.environ.get(LONG) else _asked(arguments)
    if asked is None:
        return None
    stdin = stdin_given()
    try:
        answer = _answer(asked, stdin)
    except Exception:
        # Nothing was decided or kept yet; what this is about is for the long way to say, and it will.
        answer = None
    if answer is not None:
        answer()
    return stdin


def stdin_given() -> bytes:
    return sys.stdin.buffer.read() if sys.stdin is not None else b""  # pyright: ignore[reportUnnecessaryComparison]


def _asked(words: list[str]) -> _Asked | None:
    """The options in the words, where they are of the usual kind; any other is for the real parser."""
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        key, value = (word, next(rest, "")) if word in ("--as", "--file") else ("event", word)
        if not value or value.startswith("-") or key in found:
            return None
        found[key] = value
    caller = found.get("--as", "claude")
    return _Asked(found.get("event", ""), caller, found.get("--file")) if caller in CALLERS else None


def _answer(asked: _Asked, stdin: bytes) -> Callable[[], None] | None:
    """Answers, once it is called; None where only the long way can."""
    payload = json.loads(stdin.removeprefix(b"\xef\xbb\xbf").decode())
    event = str(payload.get("hook_event_name") or asked.event)
    if event not in CALLERS[asked.caller]:
        return None
    rows = _hooks(asked.file, payload)
    if rows is None:
        return None
    from hookline.answer.event import answer_of_copy  # not needed where there is no copy

    return answer_of_copy(rows, payload, event, asked.caller)


def _hooks(named: str | None, payload: Json) -> list[Json] | None:
    if named is not None:
        file = Path(named)
    else:
        found = nearest(Path(str(payload.get("cwd") or os.getcwd())))
        if found is None or distrusted(found, os.environ):
            return None
        file = found
    if file.suffix not in (".yaml", ".yml", ".json") or not file.is_file():
        return None
    with open(file, "rb") as opened:
        content = opened.read(_LONGEST)
    return copy_of(file, content, os.environ)
