"""What the engine's tests make again and again: hooks, contexts, scopes, and a list of what was recorded."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hookline.engine.context import Facts, HookContext
from hookline.engine.hook import Handler, Hook, OnError
from hookline.engine.lifecycle import Approver, OpenScope, Run
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point, Scope
from hookline.engine.record import (
    Begun,
    Called,
    Decided,
    Ended,
    Journal,
    Question,
    Record,
    Verdict,
    VerdictKind,
)
from hookline.engine.result import HookResult, Outcome

R = TypeVar("R")
POINTS = tuple(Point)
STARTS = tuple(point for point in Point if point.endswith(".start"))
ENDS = tuple(point for point in Point if point.endswith(".end"))


def standing(*points: str, **fields: Any) -> Callable[[Handler], Hook]:
    """A live hook of an async (or quick sync) function, as a handler gives it to the engine."""

    def made(function: Handler) -> Hook:
        where = frozenset(Point(point) for point in points or POINTS)
        if fields.get("on_error"):
            fields["on_error"] = OnError(fields["on_error"])
        return Hook(
            **{"name": getattr(function, "__name__", "?"), "points": where, "handler": function, **fields}
        )

    return made


def saying(result: Any, *points: str, name: str = "says", **fields: Any) -> Hook:
    """A hook that gives always the same answer."""

    async def handler(_ctx: Any, _hook_context: HookContext) -> Any:
        return result

    return standing(*points, name=name, **fields)(handler)


def noting(seen: list[Any], *points: str, name: str = "notes", **fields: Any) -> Hook:
    """A hook that only writes down where it was called and what it was given."""

    async def handler(_ctx: Any, hook_context: HookContext) -> HookResult:
        start = str(hook_context.point).endswith(".start")
        seen.append(hook_context.current_payload if start else hook_context.current_output)
        return HookResult.continue_with()

    return standing(*points, name=name, **fields)(handler)


def context(point: str = "tool.start", payload: Any = None, output: Any = None, **facts: Any) -> HookContext:
    where = Point(point) if point in POINTS else point
    return HookContext.of(Facts(**{"workflow_id": "w", "point": where, **facts}), payload, output)


@dataclass
class Fired:
    """One firing: what it came to, and the records it left."""

    outcome: Outcome
    calls: list[Called]
    decided: list[Decided]

    @property
    def call(self) -> Called:
        assert len(self.calls) == 1, self.calls
        return self.calls[0]


async def fired(
    *hooks: Hook, point: str = "tool.start", payload: Any = None, output: Any = None, **facts: Any
) -> Fired:
    records: list[Record] = []
    pipeline = Pipeline(hooks, Recorder(watchers=[records.append]))
    outcome = await pipeline.fire(context(point, payload, output, **facts))
    return Fired(outcome, of(Called, records), of(Decided, records))


def of(kind: type[R], records: Iterable[Any]) -> list[R]:
    return [record for record in records if isinstance(record, kind)]


@dataclass
class Life:
    """A run with the same hooks around each of its scopes, and everything that was recorded of it."""

    hooks: tuple[Hook, ...] = ()
    approver: Approver | None = None
    end_grace: float = 10.0
    journal: Journal | None = None
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        recorder = Recorder(self.journal, [self.records.append])
        self.run = Run(id="r", recorder=recorder, approver=self.approver, end_grace=self.end_grace)

    def scope(self, scope: str = "tool", parent: OpenScope | None = None, **facts: Any) -> OpenScope:
        made = Facts(**{"workflow_id": "w", "run_id": "r", "scope_id": self.run.next_id(), **facts})
        return OpenScope(
            self.run,
            Pipeline(self.hooks, self.run.recorder),
            Scope(scope),
            made,
            name=f"a {scope}",
            parent=parent,
        )

    @property
    def story(self) -> list[str]:
        """The records in one line each: what a reader of the journal would see."""
        return [told(record) for record in self.records]

    @property
    def ended(self) -> Ended:
        (ended,) = of(Ended, self.records)
        return ended


def told(record: Record) -> str:
    if isinstance(record, Begun):
        return f"begin {record.scope}"
    if isinstance(record, Ended):
        return f"end {record.scope} {record.status}"
    if isinstance(record, Called):
        return f"{record.point} {record.hook}: {record.error_kind or record.action}"
    return f"{record.point} = {record.action}"


class Person:
    """An approver that always gives the same word, if it has one, and keeps what it was asked."""

    def __init__(self, verdict: Verdict | None = None) -> None:
        self.verdict = verdict
        self.asked: list[Question] = []

    async def __call__(self, question: Question) -> Verdict:
        self.asked.append(question)
        assert self.verdict is not None, "nobody should have been asked"
        return self.verdict


APPROVE = Verdict(VerdictKind.APPROVE, by="ann")
REJECT = Verdict(VerdictKind.REJECT, "not on a Friday", by="ann")


def rewrite(value: Any) -> Verdict:
    return Verdict(VerdictKind.REWRITE, value=value, by="ann")
