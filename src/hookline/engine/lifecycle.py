"""Scopes: each one that begins also ends, on every path, and both are recorded.

An `OpenScope` is entered and left by one task (`around`) or from different callbacks (`start`, `left`).
If hooks ask for a person's decision, it asks for that and settles the outcome.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hookline.engine.context import Facts, HookContext, Step
from hookline.engine.effect import settled_by
from hookline.engine.hook import source_of
from hookline.engine.limit import GRACE
from hookline.engine.pipeline import Pipeline
from hookline.engine.point import HookAction, Point, Scope, Status
from hookline.engine.record import (
    HOLDS_ON_FAILED_START,
    LEAVING,
    RUN_AGAIN,
    Decided,
    Ended,
    Question,
    Recorder,
    Verdict,
    VerdictKind,
    begun,
    decided,
    end_is_due,
    new_run_id,
    nobodys_verdict,
)
from hookline.engine.result import Outcome, Reason
from hookline.errors import HookFailed, JournalError, Refused, RunTimedOut, Skipped, UsageError

END_GRACE = 10.0
"""Seconds that all end hooks of a run may take together after it was cancelled."""

END_REFUSALS = 8
"""How often in a row an agent's end may be refused; the next refusal is overruled, as Claude Code does."""

Approver = Callable[[Question], Awaitable[Verdict]]
"""Gets a person's verdict on a question. If nobody can be asked, there is no approver."""


class Run:
    """One run: its id, recorder, approver and scratch space."""

    __slots__ = ("_deadline", "_ids", "approver", "end_grace", "hurried", "id", "limit", "recorder", "state")

    def __init__(
        self,
        *,
        id: str | None = None,
        recorder: Recorder | None = None,
        approver: Approver | None = None,
        end_grace: float = END_GRACE,
    ) -> None:
        self.id = id or new_run_id()
        self.recorder = recorder or Recorder()
        self.approver = approver
        self.end_grace = end_grace
        self.state: dict[str, Any] = {}
        self.limit: asyncio.Timeout | None = None
        self.hurried = False
        """True after a second interruption: no more end hooks."""
        self._ids = itertools.count(1)
        self._deadline: float | None = None

    def next_id(self) -> str:
        return str(next(self._ids))

    async def ask(self, question: Question, approver: Approver | None = None) -> Verdict:
        """A person's verdict, on record with its question; a refusal where there is nobody to ask.

        Another `approver` than the run's may be given.
        """
        approver = approver or self.approver
        if approver is None:
            return nobodys_verdict(question)
        journal = self.recorder.journal
        if journal is not None:
            question = question._replace(digest=(await journal.ask(question)).digest)
        given: Any = approver(question)
        verdict = await given if hasattr(given, "__await__") else given
        is_verdict = isinstance(verdict, Verdict)
        if is_verdict and verdict.digest and verdict.digest != question.digest:
            verdict = Verdict(VerdictKind.REJECT, "the answer was to another input", by=verdict.by)
        if journal is not None:
            said = verdict if is_verdict else nobodys_verdict(question)
            journal.answer(question.id, said._replace(digest=question.digest))
        if not is_verdict:
            right = "give a hookline.engine.record.Verdict, as Verdict(VerdictKind.APPROVE)"
            raise UsageError(f"the approver [{source_of(approver)}] returned {verdict!r}; {right}")
        return verdict

    def interrupt(self) -> None:
        """From the first cancellation on, all end hooks together have `end_grace` seconds."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self.end_grace

    def resume(self) -> None:
        """Only a part was cancelled, such as a tool past its limit: the run goes on, without a deadline."""
        self._deadline = None

    def grace_left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    @property
    def timed_out(self) -> bool:
        return self.limit is not None and self.limit.expired()


@dataclass(slots=True, eq=False)
class OpenScope:
    """One scope of a run, from before its start hooks to after its end hooks.

    `steps` are those of the agent, which may add to them while the scope is open. `approver`: who is asked here, if not
    the run's.
    """

    run: Run
    pipeline: Pipeline
    scope: Scope
    facts: Facts
    name: str
    parent: OpenScope | None = None
    steps: Sequence[Step] = ()
    approver: Approver | None = field(default=None, init=False)
    outcome: Outcome | None = field(default=None, init=False)
    output: Any = field(default=None, init=False)
    """The output that it was left with, before its end hooks."""
    ended: bool = field(default=False, init=False)
    _due: bool = field(default=True, init=False)
    """True at first: a scope that is only left here was entered by another process, and its end is due."""
    _end_refusals: int = field(default=0, init=False)
    _payload: Any = field(default=None, init=False)

    async def enter(self, payload: Any, *, permission: str | None = None, **recorded: Any) -> Outcome:
        """Record the beginning and run the start hooks.

        `permission` is the reason to ask a person, unless a hook allows it. `recorded` are further fields of the
        record: `declaration`, `source`, `owner`.
        """
        self._due = self.scope in HOLDS_ON_FAILED_START
        self._payload = payload
        recorder = self.run.recorder
        if recorder.on:
            parent_id = self.parent.facts.scope_id if self.parent is not None else None
            entered = begun(self.run.id, parent_id, self.scope, self.name, self.facts, payload)
            await recorder.write(entered._replace(**recorded))
        facts = self.facts.at(self.scope.start, None, tuple(self.steps))
        outcome = await self.pipeline.fire(HookContext.of(facts, payload, None))
        if permission is not None and outcome.needs_permission:
            asked = Reason("permission", HookAction.ASK, permission)
            outcome = outcome._replace(action=HookAction.ASK, reasons=(*outcome.reasons, asked))
            self._note(facts, outcome, "needs permission")
        if outcome.action is HookAction.ASK:
            outcome = await self._settled(facts, outcome)
        self.outcome = outcome
        self._due = end_is_due(self.scope, outcome.action)
        return outcome

    async def leave(self, output: Any, status: Status = Status.OK, *, error: str | None = None) -> Outcome:
        """Run the end hooks, if they are due, and record the end; a second call does nothing.

        A block at an agent's end means that the agent is not finished: the scope then stays open. After END_REFUSALS
        of them it ends all the same, and well.
        """
        outcome = Outcome(output=output)
        if self.ended:
            return outcome
        self.output = output
        if self._due and self.run.hurried and self.pipeline.at(self.scope.end):
            error = _and(error, "its end hooks did not run")
        elif self._due:
            facts = self.facts.at(self.scope.end, status, tuple(self.steps))
            facts.end_refused = self._end_refusals > 0
            payload = self.outcome.payload if self.outcome is not None else self._payload
            self._mark_leaving()
            try:
                outcome = await self.pipeline.fire(HookContext.of(facts, payload, output))
                if outcome.action is HookAction.ASK:
                    outcome = await self._settled(facts, outcome)
            except asyncio.CancelledError:
                how = Status.CANCELLED if status in (Status.OK, Status.ANSWERED) else status
                await self._write_end(how, output, _and(error, "its end hooks were interrupted"))
                raise
        if outcome.action is HookAction.BLOCK and self.scope is Scope.AGENT and status is Status.OK:
            self._end_refusals += 1
            if self._end_refusals <= END_REFUSALS:
                return outcome
            outcome = self._overruled(outcome)
        if outcome.action is HookAction.FAIL:
            status, error = Status.FAILED, error or outcome.reason
        await self._write_end(status, outcome.output, error)
        return outcome

    async def start(self, payload: Any, **recorded: Any) -> Outcome:
        """Enter a scope that is left elsewhere; one that hooks refuse, skip or fail is closed again."""
        try:
            outcome = await self.enter(payload, **recorded)
            self.raise_if_over(outcome, self.scope.start)
        except GeneratorExit:
            raise
        except BaseException as exc:
            await self.left_after(exc)
            raise
        if outcome.action is HookAction.BLOCK:
            await self._write_end(Status.BLOCKED, None, outcome.reason)
        return outcome

    async def around(
        self,
        payload: Any,
        body: Callable[[Outcome], Awaitable[Any]],
        *,
        again: Callable[[Outcome], Awaitable[Any]] | None = None,
        **recorded: Any,
    ) -> Outcome:
        """Enter, run `body` unless a hook stopped it, leave on every path.

        A block in the returned outcome is a refusal for the caller to pass on. `again` continues an agent
        whose end was refused, and returns its next output.
        """
        outcome = await self.start(payload, **recorded)
        if self.ended:
            return outcome
        try:
            status = Status.ANSWERED if outcome.answered else Status.OK
            ending = await self.left(outcome.output if outcome.answered else await body(outcome), status)
            while ending.action is HookAction.BLOCK and again is not None and not self.ended:
                ending = await self.left(await again(ending))
            if not self.ended:
                await self._write_end(Status.BLOCKED, ending.output, ending.reason)
            return ending
        except GeneratorExit:
            raise
        except BaseException as exc:
            await self.left_after(exc)
            raise

    async def left(self, output: Any, status: Status = Status.OK) -> Outcome:
        """Leave from a task that goes on; raises if an end hook failed the run."""
        leaving = self.leave(output, status)
        end = self.scope.end
        if self._due and self.pipeline.at(end):
            ending = await self._waited_for(asyncio.ensure_future(leaving))
        else:
            ending = await leaving
        self.raise_if_over(ending, end)
        return ending

    async def left_after(
        self, exc: BaseException, *, output: Any = None, status: Status | None = None
    ) -> None:
        """Leave because of an exception. End hooks run in a task of their own; a second cancel ends them."""
        if isinstance(exc, asyncio.CancelledError):
            self.run.interrupt()
        text = str(exc) or type(exc).__name__
        shown = {"error": text} if output is None else output
        leaving = self.leave(shown, status or self.status_of(exc), error=text)
        await self._finish(asyncio.ensure_future(leaving))

    async def drop(self, why: str, status: Status | None = None, output: Any = None) -> None:
        """Close a scope without its end hooks, because its body never began."""
        self._due = False
        failed = self.outcome is not None and self.outcome.action is HookAction.FAIL
        await self.leave(output, status or (Status.FAILED if failed else Status.CANCELLED), error=why)

    def raise_if_over(self, outcome: Outcome, point: Point) -> None:
        """Raise if the outcome ends the whole run."""
        if outcome.action is HookAction.FAIL:
            raise HookFailed(
                outcome.reason or "Hook execution failed",
                point=point,
                hook=outcome.hook,
                tool=self.facts.current_tool,
            )
        if outcome.action is HookAction.SKIP:
            raise Skipped(outcome.reason or "skipped", point=point, hook=outcome.hook)

    def status_of(self, exc: BaseException) -> Status:
        """The status for the end hooks of a scope that an exception left."""
        if isinstance(exc, Skipped):
            return Status.SKIPPED
        if isinstance(exc, Refused):
            return Status.BLOCKED
        if isinstance(exc, RunTimedOut) or self.run.timed_out:
            return Status.TIMED_OUT
        if isinstance(exc, asyncio.CancelledError | KeyboardInterrupt):
            return Status.CANCELLED
        return Status.FAILED

    async def _waited_for(self, leaving: asyncio.Task[Outcome]) -> Outcome:
        """The outcome of end hooks that wait; if we are cancelled meanwhile, they get the grace period."""
        try:
            return await asyncio.shield(leaving)
        except asyncio.CancelledError:
            if not leaving.cancelled():
                self.run.interrupt()
                await self._finish(leaving)
            raise

    async def _finish(self, leaving: asyncio.Future[Outcome]) -> None:
        """Wait for end hooks, within the grace period after a cancellation; a second cancellation ends them."""
        try:
            try:
                await asyncio.wait({leaving}, timeout=self.run.grace_left())
            except asyncio.CancelledError:
                if self.run.grace_left() is None:
                    self.run.interrupt()
                    await asyncio.wait({leaving}, timeout=self.run.grace_left())
                else:
                    self.run.hurried = True
                raise
        finally:
            if not leaving.done():
                leaving.cancel()
                await asyncio.wait({leaving}, timeout=2 * GRACE)
        if leaving.done() and not leaving.cancelled():
            leaving.exception()  # a failed end hook must not hide why the scope is left

    def _mark_leaving(self) -> None:
        journal = self.run.recorder.journal
        if journal is None or self.scope not in RUN_AGAIN or not self.pipeline.at(self.scope.end):
            return
        journal.note(Decided(self.run.id, self.facts.scope_id, LEAVING, time.time(), HookAction.CONTINUE))
        with suppress(JournalError):  # on a full disk the end hooks are owed all the same
            journal.flush()

    async def _write_end(self, status: Status, output: Any, error: str | None) -> None:
        self.ended = True
        if self.run.recorder.on:
            await self.run.recorder.write(
                Ended(self.run.id, self.facts.scope_id, self.scope, time.time(), status, output, error)
            )

    def _overruled(self, outcome: Outcome) -> Outcome:
        """The outcome of an end that was refused too often: the agent ends, and that is told and on record."""
        told = f"its end was refused {END_REFUSALS + 1} times; it ends all the same, against hook {outcome.hook}: {outcome.reason}"
        self.remark(told)
        return outcome._replace(action=HookAction.CONTINUE, tell_user=(*outcome.tell_user, told))

    def remark(self, text: str) -> None:
        """Put a note on its end on record."""
        self._note(self.facts.at(self.scope.end), Outcome(), text)

    async def _settled(self, facts: Facts, outcome: Outcome) -> Outcome:
        """The outcome after a person's verdict, which is asked for and recorded."""
        verdict = await self.run.ask(self._question(facts, outcome), self.approver)
        settled = settled_by(verdict, outcome, is_start=facts.point == self.scope.start)
        self._note(facts, settled, verdict.in_words())
        if verdict.kind is not VerdictKind.REWRITE:
            return settled
        last = await self.pipeline.fire_last(HookContext.of(facts, settled.payload, settled.output))
        return last if last.stopped else settled._replace(payload=last.payload, output=last.output)

    def _question(self, facts: Facts, outcome: Outcome) -> Question:
        """The question of the hooks that ask at a point, with all their reasons and the final value."""
        side = "start" if facts.point == self.scope.start else "end"
        return Question(
            id=f"{self.run.id}.{facts.scope_id}.{side}",
            run_id=self.run.id,
            scope_id=facts.scope_id,
            point=facts.point,
            tool=facts.current_tool,
            reasons=tuple(reason for reason in outcome.reasons if reason.action is HookAction.ASK),
            value=outcome.payload if side == "start" else outcome.output,
            asked=time.time(),
        )

    def _note(self, facts: Facts, outcome: Outcome, note: str) -> None:
        if self.run.recorder.on:
            self.run.recorder.note(decided(self.run.id, facts, outcome, note))


def _and(error: str | None, more: str) -> str:
    return f"{error}; {more}" if error else more
