"""The short way of `hookline answer`: an event that concerns no hook is recorded and let go at once.

It runs before and after every tool call of a foreign agent, and most of these concern no hook. So nothing slow is
imported here (no asyncio, dataclasses, yaml or pydantic), and the hook file is read from its compiled copy. Whatever
is not plain (a hook that is concerned, no copy, no approval, anything wrong) goes the long way, which decides alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hookline.cli.compiled import copy_of
from hookline.cli.keeping import opened_journal
from hookline.cli.trust import distrusted, nearest
from hookline.dialects.claude.events import CALLERS, EVENTS
from hookline.dialects.claude.payload import told_by
from hookline.journal import Begun, Called, Decided, Ended, Record
from hookline.journal.masking import storable
from hookline.point import Point, Scope, Status

if TYPE_CHECKING:
    from hookline.context import Facts

__all__ = ["LONG", "begun", "let_go", "stdin_given"]

LONG = "HOOKLINE_ANSWER_LONG"
"""The variable that has every call take the long way; for tests, which compare the two."""
_LONGEST = 4_000_000

Json = dict[str, Any]


class _Asked(NamedTuple):
    event: str
    caller: str
    file: str | None


def let_go(arguments: list[str]) -> bytes | None:
    """Ends the process where no hook is concerned; else what was read of stdin, for the long way."""
    asked = None if os.environ.get(LONG) else _asked(arguments)
    if asked is None:
        return None
    stdin = stdin_given()
    try:
        records = _records(asked, stdin)
        if records is not None:
            opened_journal().put(*records)
            # They are with the system. To close the file would write it to the disk, with the caller waiting.
            os._exit(0)
    except Exception:
        # Nothing was decided or kept yet; what this is about is for the long way to say, and it will.
        pass
    return stdin


def stdin_given() -> bytes:
    return sys.stdin.buffer.read() if sys.stdin is not None else b""  # pyright: ignore[reportUnnecessaryComparison]


def begun(facts: Facts, event: str, caller: str, payload: Any) -> Begun:
    """The record of an event's beginning; it also names the run and the scope."""
    # An id may hold half a surrogate pair, and is then no key for a journal.
    run_id = storable(f"{caller}-{facts.session_id or os.getpid()}")
    scope_id = storable(f"{facts.call_id or event}-{time.time_ns():x}")
    scope = facts.point.scope if isinstance(facts.point, Point) else Scope.SESSION
    about = {"event": event, "tool": facts.current_tool, "agent": facts.agent}
    return Begun(run_id, scope_id, None, scope, facts.current_tool or event, time.time(), payload, about)


def _asked(words: list[str]) -> _Asked | None:
    """What the words ask for, where they are of the usual kind; any other is for the real parser."""
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        key, value = (word, next(rest, "")) if word in ("--as", "--file") else ("event", word)
        if not value or value.startswith("-") or key in found:
            return None
        found[key] = value
    caller = found.get("--as", "claude")
    return _Asked(found.get("event", ""), caller, found.get("--file")) if caller in CALLERS else None


def _records(asked: _Asked, stdin: bytes) -> list[Record] | None:
    """What is to be kept of an event that concerns no hook; None where that cannot be told here."""
    payload = json.loads(stdin.decode("utf-8-sig"))
    event = str(payload.get("hook_event_name") or asked.event)
    if event not in CALLERS[asked.caller]:
        return None
    hooks = _hooks(asked.file, payload)
    told = told_by({**payload, "hook_event_name": event}, asked.caller)
    given, output = told.pop("current_payload"), told.pop("current_output")
    facts = cast("Facts", SimpleNamespace(**told))
    start = begun(facts, event, asked.caller, given)
    calls = None if hooks is None else _calls(hooks, facts, given, output, start)
    if calls is None:
        return None
    end = Ended(start.run_id, start.scope_id, start.scope, time.time(), Status.OK, output, None)
    return [start, *calls, end]


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


def _calls(hooks: list[Json], facts: Facts, given: Any, output: Any, start: Begun) -> list[Record] | None:
    """The walk of the pipeline over hooks that are not concerned; None where one is.

    A hook whose `match` does not fit is not asked. One whose `when` is not met is, and lets it go on.
    """
    standing = [hook for hook in hooks if facts.point in hook["points"] and hook["mode"] != "off"]
    context = SimpleNamespace(facts=facts, given=SimpleNamespace(payload=given, output=output))
    noted: list[Record] = []
    last = True
    for number, hook in enumerate(standing, 1):
        since = time.perf_counter()
        fits = _fits(hook, facts)
        if fits is False:
            continue
        if fits is None or hook["when"] is None or _met(hook["when"], context):
            return None
        last = number == len(standing)
        noted.append(_quiet(hook, facts, start, time.perf_counter() - since, last))
    if not last:
        continues = cast("Any", "continue")
        noted.append(Decided(start.run_id, start.scope_id, facts.point, time.time(), continues))
    return noted


def _fits(hook: Json, facts: Facts) -> bool | None:
    """Whether its event and its `match` fit; None where only the long way can tell."""
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
    from hookline.matching import pattern

    return pattern(match)(name)


def _met(when: Json, context: Any) -> bool:
    from hookline.dialects.condition import condition

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
