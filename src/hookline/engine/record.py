"""The journal: four kinds of record, the protocol of what stores them, and the ends that they leave due.

`Begun` and `Ended` bracket a scope; `Called` is one hook; `Decided` is the outcome of a point. Watchers of a run get the
same records, as they happen.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from hookline.engine.context import Facts
from hookline.engine.point import HookAction, Point, Scope, Status
from hookline.engine.result import Outcome, Reason

THERE = "kubernetes:"
"""The prefix of the source of a run on a cluster: nothing of it is run here."""
HOLDS_ON_FAILED_START = frozenset({Scope.RUN, Scope.SESSION})
"""Scopes whose end hooks run even if their start failed."""
RUN_AGAIN = frozenset({Scope.RUN, Scope.WORKSPACE})
"""Scopes whose end hooks the next start runs after a crash."""
LEAVING = "x.hookline.leaving"
"""The point of the record that end hooks begin: after a crash they are known to run a second time."""


class Owner(NamedTuple):
    """The process that holds a run; a pid alone may have been reused."""

    boot_id: str
    pid: int
    started: str


class Begun(NamedTuple):
    """A scope was entered. `about` holds its names (agent, tool, call id, session, ...).

    A run's own record also has `declaration`, `source` and `owner`, so that its end can be run after a crash.
    """

    run_id: str
    scope_id: str
    parent_id: str | None
    scope: Scope
    name: str
    at: float
    payload: Any
    about: dict[str, Any]
    declaration: dict[str, Any] | None = None
    source: str | None = None
    owner: Owner | None = None


class Called(NamedTuple):
    """One hook was called.

    `given` is left out if the hook only continued (the record of the scope has it), or if it is what the hook before
    left behind. `last`: no hook of the point did more than continue, so no outcome follows.
    """

    run_id: str
    scope_id: str
    point: Point | str
    hook: str
    at: float
    seconds: float
    action: HookAction
    reason: str | None
    given: Any
    changed: Any = None
    mode: str = "enforce"
    error_kind: str | None = None
    error: str | None = None
    note: str | None = None
    tell_model: str | None = None
    tell_user: str | None = None
    last: bool = False


class Decided(NamedTuple):
    """The outcome of a point whose hooks did more than continue."""

    run_id: str
    scope_id: str
    point: Point | str
    at: float
    action: HookAction
    reasons: tuple[Reason, ...] = ()
    payload: Any = None
    output: Any = None
    note: str | None = None


def decided(run_id: str, facts: Facts, outcome: Outcome, note: str | None = None) -> Decided:
    """The record of an outcome, with the current time."""
    return Decided(
        run_id,
        facts.scope_id,
        facts.point,
        time.time(),
        outcome.action,
        outcome.reasons,
        outcome.payload if outcome.changed else None,
        outcome.output if outcome.changed else None,
        note,
    )


def begun(run_id: str, parent_id: str | None, scope: Scope, name: str, facts: Facts, payload: Any) -> Begun:
    """The record of the beginning of a scope, with the current time."""
    about: dict[str, Any] = {
        "workflow_id": facts.workflow_id,
        "agent": facts.agent,
        "parents": list(facts.parents),
        "session_id": facts.session_id,
        "user_id": facts.user_id,
        "attempt": facts.attempt,
        "step": facts.step,
        "tool": facts.current_tool,
        "tool_kind": facts.tool_kind,
        "call_id": facts.call_id,
    }
    known = {key: value for key, value in about.items() if value not in (None, [])}
    return Begun(run_id, facts.scope_id, parent_id, scope, name, time.time(), payload, known)


class Ended(NamedTuple):
    """A scope was left."""

    run_id: str
    scope_id: str
    scope: Scope
    at: float
    status: Status
    output: Any
    error: str | None


Record = Begun | Called | Decided | Ended


def joined(records: Iterable[Record]) -> Iterator[Record]:
    """The records with one beginning for each scope, also where its start and its end were told by two processes.

    A beginning that `joins` an open scope is left out; one that says what the scope `was` gives it a second name.
    """
    names: dict[str, str] = {}
    unfinished: set[str] = set()
    for record in records:
        key = names.get(record.scope_id, record.scope_id)
        if isinstance(record, Begun):
            was = record.about.get("was")
            if was in unfinished:
                names[record.scope_id] = was
                continue
            if key in unfinished and record.about.get("joins"):
                continue
            unfinished.add(key)
        elif isinstance(record, Ended):
            unfinished.discard(key)
            names.pop(record.scope_id, None)
        yield record if key == record.scope_id else record._replace(scope_id=key)


class VerdictKind(StrEnum):
    """The answers that a person can give to a question."""

    APPROVE = "approve"
    REJECT = "reject"
    REWRITE = "rewrite"


_PAST = {VerdictKind.APPROVE: "approved", VerdictKind.REJECT: "rejected", VerdictKind.REWRITE: "rewritten"}


class Verdict(NamedTuple):
    """A person's decision. `value` is the new input (or output) of a rewrite.

    `by` says who gave it and from where. With a `digest` it is for the question with that digest alone. One from another
    terminal has a `signature` by the question's code.
    """

    kind: VerdictKind
    text: str = ""
    value: Any = None
    by: str = ""
    digest: str = ""
    signature: str = ""

    def in_words(self) -> str:
        return f"{_PAST[self.kind]} by {self.by}" if self.by else _PAST[self.kind]


class Question(NamedTuple):
    """Something a person has to decide, with all reasons and the final input.

    From a journal, the input is without the secrets that were known: stars stand in their place, `hidden` in number.
    `digest` is that of the true input; `code` that of the code which an answer from another terminal needs, None if none
    was shown.
    """

    id: str
    run_id: str
    scope_id: str
    point: Point | str
    tool: str | None
    reasons: tuple[Reason, ...]
    value: Any
    asked: float
    verdict: Verdict | None = None
    digest: str = ""
    hidden: int = 0
    code: str | None = None


def nobodys_verdict(question: Question) -> Verdict:
    """The verdict if nobody can be asked: a refusal."""
    why = "; ".join(reason.text for reason in question.reasons if reason.text)
    asking = f"a person has to decide ({why})" if why else "a person has to decide"
    return Verdict(VerdictKind.REJECT, f"{asking}, and nobody is there to answer", by="default")


class RunRow(NamedTuple):
    """One run, as a list of runs shows it."""

    run_id: str
    name: str
    began: float
    ended: float | None
    status: Status | None
    error: str | None
    source: str | None
    owner: Owner | None
    calls: int


class Page(NamedTuple):
    """The last records of a run. `context` are some before them, with the scopes that they stand in; `earlier` counts
    all that are before them."""

    context: list[Record]
    records: list[Record]
    earlier: int


@runtime_checkable
class Journal(Protocol):
    """Keeps records. `write` returns when they would survive the end of this process; `note` may lag 50 ms."""

    async def write(self, record: Begun | Ended) -> None: ...

    def note(self, record: Called | Decided) -> None: ...

    async def ask(self, question: Question) -> Question:
        """Keep a question; returned as a person is to see it, with the keyed digest of what is asked about."""
        ...

    def answer(self, question_id: str, verdict: Verdict, code: tuple[Question, bytes] | None = None) -> bool:
        """False if the question is no longer open, or about another input; the first answer stands.

        With `code`, the question as it was shown and the key of its code, the answer is signed.
        """
        ...

    def question(self, question_id: str) -> Question | None: ...

    def questions(self, run_id: str | None = None, *, pending: bool = True) -> list[Question]: ...

    def runs(self, *, limit: int = 50) -> list[RunRow]: ...

    def records(self, run_id: str) -> list[Record]: ...

    def each(self, run_id: str) -> Iterator[Record]:
        """The records one by one, while the journal is open."""
        ...

    def latest(self, run_id: str, most: int) -> Page:
        """The last records of a run, read while the journal is open, without reading all before them."""
        ...

    def find(self, prefix: str) -> list[str]:
        """The ids of the runs that start with `prefix`, newest first."""
        ...

    def unfinished(self) -> list[RunRow]:
        """Runs with a beginning and no end; the caller checks if their owner is alive."""
        ...

    def claim(self, run_id: str, old: Owner, new: Owner) -> bool:
        """Take over an unfinished run from its owner; False if it has another owner by now."""
        ...

    def prune(self, *, keep_days: float, keep_bytes: int) -> int:
        """Remove the oldest finished runs until both limits are met; the number of removed runs."""
        ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Recorder:
    """Passes each record to the journal and to the watchers."""

    __slots__ = ("journal", "on", "watchers")

    def __init__(
        self, journal: Journal | None = None, watchers: Iterable[Callable[[Record], None]] = ()
    ) -> None:
        self.journal = journal
        self.watchers = tuple(watchers)
        self.on = journal is not None or bool(self.watchers)

    def note(self, record: Called | Decided) -> None:
        if self.journal is not None:
            self.journal.note(record)
        if self.watchers:
            self._show(record)

    async def write(self, record: Begun | Ended) -> None:
        if self.journal is not None:
            await self.journal.write(record)
        if self.watchers:
            self._show(record)

    def _show(self, record: Record) -> None:
        for watch in self.watchers:
            try:
                watch(record)
            except Exception:
                # A watcher must not keep a hook from running, least of all one that cleans up.
                self.watchers = tuple(each for each in self.watchers if each is not watch)
                import logging  # slow to load, and seldom needed

                told = "%s: a watcher raised and is not called again"
                logging.getLogger(__name__).warning(told, record.run_id, exc_info=True)


def end_is_due(scope: Scope, start: HookAction) -> bool:
    """True if the end hooks of a scope have to run, given the outcome of its start hooks."""
    if start is HookAction.SKIP:
        return False
    if start in (HookAction.FAIL, HookAction.BLOCK, HookAction.ASK):
        # While a person is being asked, nothing has begun.
        return scope in HOLDS_ON_FAILED_START
    return True


class Owed(NamedTuple):
    """A scope that was begun and never ended. `due`: its end hooks have not run to their end, and should.

    `again`: they had begun when the record broke off, so some of them may run a second time.
    """

    begun: Begun
    due: bool
    again: bool = False


def owed(records: Iterable[Record]) -> list[Owed]:
    """The scopes that an incomplete record leaves open, innermost first."""
    unfinished: dict[str, Begun] = {}
    started: dict[str, HookAction] = {}
    starting: set[str] = set()
    ending: set[str] = set()
    leaving: set[str] = set()
    inhabited: set[str] = set()
    for record in records:
        key = record.scope_id
        if isinstance(record, Called) and record.last:
            record = Decided(record.run_id, key, record.point, record.at, HookAction.CONTINUE)
        if isinstance(record, Begun):
            unfinished[key] = record
            inhabited.add(record.parent_id or "")
        elif isinstance(record, Ended):
            unfinished.pop(key, None)
        elif record.point == LEAVING:
            leaving.add(key)
        elif key in unfinished and record.point == unfinished[key].scope.start:
            if isinstance(record, Decided):
                started[key] = record.action
            else:
                starting.add(key)
        elif key in unfinished and isinstance(record, Decided) and _ends(record, unfinished[key].scope):
            ending.add(key)

    def due(key: str, scope: Scope) -> bool:
        if key in ending:
            return False
        if key in started:
            return end_is_due(scope, started[key])
        if scope in HOLDS_ON_FAILED_START or key in inhabited:
            return True
        # No outcome and nothing inside: its start hooks were still running.
        return key not in starting and scope is not Scope.WORKSPACE

    return [
        Owed(record, due(key, record.scope), key in leaving) for key, record in reversed(unfinished.items())
    ]


def _ends(record: Decided, scope: Scope) -> bool:
    """True if the end hooks are finished; an agent whose end was refused goes on, and ends again later."""
    refused = scope is Scope.AGENT and record.action is HookAction.BLOCK
    return record.point == scope.end and not refused


def new_run_id() -> str:
    """Short, typeable, and in the order of time."""
    return f"{_base36(int(time.time()))}-{os.urandom(3).hex()}"


def _base36(number: int) -> str:
    higher = _base36(number // 36) if number >= 36 else ""
    return higher + "0123456789abcdefghijklmnopqrstuvwxyz"[number % 36]
