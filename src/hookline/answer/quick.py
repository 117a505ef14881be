"""The short way of `hookline answer`: an event that concerns no hook is recorded and let go at once.

It runs before and after every tool call of a foreign agent, and most of these concern no hook. So nothing slow is
imported here (no asyncio, dataclasses, yaml or pydantic), and the hook file is read from its compiled copy. Where a
hook is concerned, `event` asks it; whatever is not plain (another kind of hook, no copy, no approval, anything
wrong) goes the long way, which decides alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hookline.claude.events import CALLERS, EVENTS
from hookline.claude.payload import told_by
from hookline.engine.point import Status
from hookline.engine.record import Begun, Called, Decided, Ended, Record
from hookline.hookfile.compiler import copy_of
from hookline.hookfile.trust import distrusted, nearest
from hookline.journal.user import begun, opened_journal

if TYPE_CHECKING:
    from hookline.engine.context import Facts

LONG = "HOOKLINE_ANSWER_LONG"
"""The variable that has every call take the long way; for tests, which compare the two."""
_LONGEST = 4_000_000

Json = dict[str, Any]


class _Asked(NamedTuple):
    event: str
    caller: str
    file: str | None


class _Happened(NamedTuple):
    """One event, the hooks of its file, and what the event says, by the names of a context."""

    event: str
    payload: Json
    hooks: list[Json]
    facts: Facts
    given: Any
    output: Any


def let_go(arguments: list[str]) -> bytes | None:
    """End the process where the short way can answer; else what was read of stdin, for the long way."""
    asked = None if os.environ.get(LONG) else _asked(arguments)
    if asked is None:
        return None
    stdin = stdin_given()
    try:
        happened = _happened(asked, stdin)
        answer = None if happened is None else _answer(happened, asked.caller)
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


def _happened(asked: _Asked, stdin: bytes) -> _Happened | None:
    """The event and the hooks of its file; None where that cannot be told here."""
    payload = json.loads(stdin.removeprefix(b"\xef\xbb\xbf").decode())
    event = str(payload.get("hook_event_name") or asked.event)
    if event not in CALLERS[asked.caller]:
        return None
    hooks = _hooks(asked.file, payload)
    if hooks is None:
        return None
    told = told_by({**payload, "hook_event_name": event}, asked.caller)
    given, output = told.pop("current_payload"), told.pop("current_output")
    return _Happened(event, payload, hooks, cast("Facts", SimpleNamespace(**told)), given, output)


def _answer(happened: _Happened, caller: str) -> Callable[[], None] | None:
    """Answers, once it is called; None where only the long way can."""
    facts = happened.facts
    standing = [hook for hook in happened.hooks if facts.point in hook["points"] and hook["mode"] != "off"]
    rows = [(hook, _fits(hook, facts)) for hook in standing]
    if any(fitting is None for _, fitting in rows):
        return None
    start = begun(facts, happened.event, caller, happened.given)
    calls = _calls(rows, happened, start)
    if calls is None:
        if not all(hook["plain"] for hook, fitting in rows if fitting):
            return None
        from hookline.answer.event import answer_of_plain

        return answer_of_plain(rows, happened.payload, happened.event, caller)
    end = Ended(start.run_id, start.scope_id, start.scope, time.time(), Status.OK, happened.output, None)
    opened_journal().put(start, *calls, end)
    # They are with the system. To close the file would write it to the disk, with the caller waiting.
    os._exit(0)


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


def _calls(rows: list[tuple[Json, bool | None]], happened: _Happened, start: Begun) -> list[Record] | None:
    """The walk of the pipeline over hooks that are not concerned; None where one is.

    A hook whose `match` does not fit is not asked. One whose `when` is not met is, and lets it go on.
    """
    facts = happened.facts
    given = SimpleNamespace(payload=happened.given, output=happened.output)
    context = SimpleNamespace(facts=facts, given=given)
    noted: list[Record] = []
    last = True
    for number, (hook, fitting) in enumerate(rows, 1):
        since = time.perf_counter()
        if not fitting:
            continue
        if hook["when"] is None or _met(hook["when"], context):
            return None
        last = number == len(rows)
        noted.append(_quiet(hook, facts, start, time.perf_counter() - since, last))
    if not last:
        continues = cast("Any", "continue")
        noted.append(Decided(start.run_id, start.scope_id, facts.point, time.time(), continues))
    return noted


def _fits(hook: Json, facts: Facts) -> bool | None:
    """True if its event and its `match` fit; None where only the long way can tell."""
    event = cast("Json", facts.native)["hook_event_name"]
    if hook["event"] is not None:
        if event not in EVENTS:
            return None  # another tool's name for the same, perhaps
        if event != hook["event"]:
            return False
        if EVENTS[event].subject != "tool_name":
            return None
    name = facts.current_tool or ""
    if hook["match"] is None:
        return True
    return any(_fits_one(each, name, facts.tool_kind) for each in hook["match"]) if name.isascii() else None


def _fits_one(match: str, name: str, kind: str | None) -> bool:
    if match.startswith("kind:"):
        return kind in [each.strip() for each in match.removeprefix("kind:").split("|")]
    names = match.split("|")
    if all(each.isidentifier() for each in names):
        return name in names
    from hookline.matcher import pattern

    return pattern(match)(name)


def _met(when: Json, context: Any) -> bool:
    from hookline.hookfile.condition import condition

    return condition(when)(context)


def _quiet(hook: Json, facts: Facts, start: Begun, seconds: float, last: bool) -> Called:
    """The record of a hook that lets things go on."""
    return Called(
        start.run_id,
        start.scope_id,
        facts.point,
        hook["name"],
        time.time(),
        seconds,
        cast("Any", "continue"),
        None,
        None,
        mode=hook["mode"],
        last=last,
    )
