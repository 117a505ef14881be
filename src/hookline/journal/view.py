"""A run as a tree of lines: scopes, and under each the hooks that were called, with their time and result.

Live progress and `hookline runs RUN` are the same lines, made of the same records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from hookline.engine.hook import Mode
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Begun, Called, Decided, Ended, Journal, Question, Record
from hookline.engine.result import HookAction, merged
from hookline.journal.masking import Mask

# The result of a hook in words, and the style of its line.
_SAID = {
    HookAction.CONTINUE: ("", "dim"),
    HookAction.ALLOW: ("allowed", "green"),
    HookAction.ANSWER: ("answered in its place", "yellow"),
    HookAction.ASK: ("asks", "yellow"),
    HookAction.BLOCK: ("blocked", "red"),
    HookAction.FAIL: ("failed the run", "bold red"),
    HookAction.SKIP: ("skipped the run", "yellow"),
}
_SHOWN = {Scope.RUN: "input", Scope.AGENT: "input", Scope.TOOL: None}
_QUIET = frozenset({Scope.SESSION, Scope.STEP, Scope.MODEL})
_IN_SECONDS = "kubernetes"
"""The times of a cluster are in whole seconds."""


class Line(NamedTuple):
    text: str
    style: str = ""


class Tree:
    """Turns records into lines, in order."""

    def __init__(self, mask: Mask | None = None, width: int = 80) -> None:
        self._mask = mask or Mask()
        self._width = width
        self._depth: dict[str, int] = {}
        self._began: dict[str, Begun] = {}
        self._told: set[str] = set()
        self._in_seconds = False

    def lines(self, record: Record) -> Iterator[Line]:
        if isinstance(record, Begun):
            yield self._begun(record)
        elif isinstance(record, Called):
            yield from self._called(record)
        elif isinstance(record, Decided):
            if record.note:
                depth = self._depth.get(record.scope_id, 0) + 1
                yield from self._wrapped(depth, f"note   {record.note}", "yellow")
        else:
            yield from self._ended(record)

    def open(self) -> Iterator[Line]:
        """A line for each scope that has not ended: it is not known how it went."""
        for scope_id, begun in self._began.items():
            if begun.scope not in _QUIET:
                yield self._line(self._depth[scope_id] + 1, f"= {_named(begun)}open", "yellow")

    def _begun(self, record: Begun) -> Line:
        depth = self._depth.get(record.parent_id or "", -1) + 1
        self._depth[record.scope_id] = depth
        self._began[record.scope_id] = record
        if record.parent_id is None:
            self._in_seconds = (record.declaration or {}).get("on") == _IN_SECONDS
        name = f" {record.run_id}" if record.scope is Scope.RUN else ""
        shown = ""
        if record.scope in _SHOWN:
            key, value = _SHOWN[record.scope], record.payload
            if key and isinstance(value, dict):
                value = cast("dict[str, Any]", value).get(key)
            shown = f"  {self._short(value)}" if value is not None else ""
        return self._line(depth, f"{record.scope} {record.name}{name}{shown}", "bold")

    def _called(self, record: Called) -> Iterator[Line]:
        depth = self._depth.get(record.scope_id, 0) + 1
        word = str(record.point).partition(".")[2] if isinstance(record.point, Point) else str(record.point)
        said, style, whole = self._said(record)
        begun = self._began.get(record.scope_id)
        tool = f" ({begun.name})" if begun is not None and begun.scope is Scope.TOOL and word == "end" else ""
        # For a hook that broke within its first second, a cluster does not report if it ran at all.
        unknown = self._in_seconds and not record.seconds and record.error is not None
        took = "" if unknown else self._took(record.seconds)
        text = f"{word:<5}  {record.hook}{tool}{took}{said}"
        yield from self._wrapped(depth, text, style) if whole else [self._line(depth, text, style)]
        for label, text in (("tells the model", record.tell_model), ("tells you", record.tell_user)):
            if text:
                yield from self._wrapped(depth + 1, f"{label}: {self._mask.text(text)}", "cyan")

    def _said(self, record: Called) -> tuple[str, str, bool]:
        """The result of a hook in words, its style, and True if it must not be cut."""
        past, style = _SAID[record.action]
        if record.error is not None:
            follows = "" if record.action is HookAction.CONTINUE else f", so it {past}"
            follows = follows if record.changed is None else ", so the output was withheld"
            return f"  broke: {self._mask.text(record.error)}{follows}", "bold magenta", True
        note = f"  ({record.note})" if record.note else ""
        if record.action is not HookAction.CONTINUE:
            reason = f": {self._mask.text(record.reason)}" if record.reason else ""
            observes = record.mode == Mode.OBSERVE
            verb = str(record.action) if observes else past
            return f"  {verb}{reason}{note}", "yellow" if observes else style, True
        if record.changed is not None:
            what = "input" if str(record.point).endswith("start") else "output"
            return f"  changed the {what}: {self._short(record.changed)}{note}", "yellow", False
        return note, "yellow" if note else style, True

    def _ended(self, record: Ended) -> Iterator[Line]:
        begun = self._began.pop(record.scope_id, None)
        depth = self._depth.pop(record.scope_id, 0)
        if record.scope in _QUIET and record.status in (Status.OK, Status.BLOCKED):
            return
        took = self._took(record.at - begun.at) if begun is not None else ""
        ok = record.status in (Status.OK, Status.ANSWERED, Status.SKIPPED)
        # An error is shown once, in the scope where it happened.
        tells = record.error is not None and record.error not in self._told and not ok
        error = f"  {self._mask.text(record.error)}" if tells and record.error else ""
        self._told.add(record.error or "")
        tells_itself = record.scope is Scope.TOOL and (ok or record.error is None)
        shown = f"  {self._short(record.output)}" if tells_itself else ""
        name = _named(begun) if begun is not None else ""
        yield self._line(depth + 1, f"= {name}{record.status}{took}{error}{shown}", "green" if ok else "red")

    def _took(self, seconds: float) -> str:
        return f"  {'under 1 s' if self._in_seconds and not seconds else duration(seconds)}"

    def _short(self, value: Any) -> str:
        text = self._mask.text(value) if isinstance(value, str) else self._mask.json(value)
        return " ".join(text.split())

    def _wrapped(self, depth: int, text: str, style: str) -> Iterator[Line]:
        import textwrap  # slow to load, and only for a long line

        indent = "  " * depth
        for line in textwrap.wrap(
            text,
            max(self._width, len(indent) + 30),
            initial_indent=indent,
            subsequent_indent=f"{indent}       ",
            break_long_words=False,
            break_on_hyphens=False,
        ):
            yield Line(line, style)

    def _line(self, depth: int, text: str, style: str) -> Line:
        whole = f"{'  ' * depth}{' '.join(text.splitlines())}"
        if len(whole) > self._width:
            whole = f"{whole[: self._width - 3]}..."
        return Line(whole, style)


def _named(begun: Begun) -> str:
    """The name for the line of an end, where that may stand far below its beginning: tools run at once, and what a
    foreign agent tells of is not nested."""
    return f"{begun.name} " if begun.scope is Scope.TOOL or "event" in begun.about else ""


def asked_in_json(question: Question | None, mask: Mask) -> dict[str, Any]:
    """The question that a run waits with, for a program: as whole as a person at a terminal sees it."""
    if question is None:
        return {}
    exact = mask.exact()
    value = json.loads(exact.json(question.value))
    told = {"id": question.id, "point": question.point, "tool": question.tool, "value": value}
    reasons = [{"hook": each.hook, "reason": mask.exact().text(each.text)} for each in question.reasons]
    hidden = question.hidden + exact.hidden
    return {"question": {**told, "reasons": reasons, "hidden": hidden, "digest": question.digest}}


def duration(seconds: float) -> str:
    """A duration for people to read."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min"


def moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def last_calls(journal: Journal, run_id: str, hook: str, most: int) -> tuple[list[Called], list[str], int]:
    """The last calls of a run, with what each was given; the hooks seen, and how many records were not read."""
    reach = 4 * most
    while True:
        page = journal.latest(run_id, reach)
        records = [*page.context, *page.records]
        called = list(with_given(records))[-reach:]
        wanted = [each for each in called if not hook or each.hook == hook][-most:]
        begun = {each.scope_id for each in records if isinstance(each, Begun)}
        if not page.earlier or (len(wanted) == most and all(each.scope_id in begun for each in wanted)):
            return wanted, [*dict.fromkeys(each.hook for each in called)], page.earlier
        reach *= 8


def with_given(records: Sequence[Record]) -> Iterator[Called]:
    """Every call with its input, taken from its scope and from earlier changes if the record does not have it."""
    began: dict[str, Any] = {}
    now: dict[str, dict[str, Any]] = {}
    for record, output in zip(records, _outputs(records), strict=True):
        if isinstance(record, Begun):
            # A foreign agent's scope may have the name of an earlier one.
            now.pop(record.scope_id, None)
            began[record.scope_id] = record.payload
        if not isinstance(record, Called):
            continue
        point, values = str(record.point), now.setdefault(record.scope_id, {})
        at_start = point.endswith(".start")
        first = began.get(record.scope_id) if at_start else output
        given = record.given if record.given is not None else values.get(point, first)
        yield record._replace(given=given)
        values[point] = given
        if record.changed is not None and record.mode == Mode.ENFORCE:
            values[point] = merged("changed", given, record.changed)


def _outputs(records: Sequence[Record]) -> list[Any]:
    """The output with which the scope of each record ended."""
    ahead: dict[str, Any] = {}
    found: list[Any] = []
    for record in reversed(records):
        if isinstance(record, Ended):
            ahead[record.scope_id] = record.output
        found.append(ahead.get(record.scope_id))
    return found[::-1]
