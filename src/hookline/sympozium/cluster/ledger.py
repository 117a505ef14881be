"""Runs on a cluster in a journal and on a screen: the records of their status, and the inner ones of their agents.

A `Ledger` writes the records of one run, each once, and `RunView` shows them, for the command that follows it;
`JournalWriter` is the operator's, which writes all runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hookline.engine.point import Point, Scope
from hookline.engine.record import Begun, Called, Decided, Ended, Journal, Record, RunRow
from hookline.engine.result import HookAction
from hookline.errors import JournalError
from hookline.journal.masking import Mask
from hookline.journal.recovery import end_as_lost, lost_ends
from hookline.journal.sqlite import KEEP_BYTES_OPERATOR, KEEP_DAYS, SqliteJournal
from hookline.journal.stream import BROKEN_OFF, MOST_BYTES, InnerScopes, Intake, OnceJournal, lacking
from hookline.journal.view import Line, Tree
from hookline.kube.objects import Fields, items, mapping, phase_of, within
from hookline.options import KUBERNETES
from hookline.sympozium.cluster import records
from hookline.sympozium.cluster.observation import has_ended
from hookline.sympozium.cluster.records import AGENT_SCOPE, RUN_SCOPE
from hookline.sympozium.phases import Stage
from hookline.sympozium.resolve import FORMAT
from hookline.sympozium.run.hooks import PHASE
from hookline.tasks import backoff

logger = logging.getLogger("hookline.kube")

GONE = "lost: the AgentRun is gone from the cluster, and how it ended is not known"
_UNFINISHED = "the rest of the agent's inner records is missing: its log was not read to the end"
_UNREAD = "the agent's inner records are missing: its log was not read for this journal"
_ANSWERS = frozenset({Scope.STEP, Scope.MODEL, Scope.AGENT})
"""Scopes whose output may be the agent's answer."""
_PRUNED_AFTER = 500
_LONGEST_PAUSE = 30.0
_HELD_BYTES = 32 * 1024 * 1024
"""The most lines of agents, in bytes, that are held until they are written."""
_AT_A_TIME = 50

Inside = Callable[[], Awaitable[list[Record]]]


class Ledger:
    """Writes the new records of runs on a cluster into a journal. `alone`: there is no other writer of them."""

    def __init__(self, journal: Journal, *, alone: bool = False) -> None:
        self._journal = journal
        self._alone = alone
        self._once = OnceJournal(journal, _key)
        self._whole: set[str] = set()

    async def take(self, run: Fields, inside: Inside | None = None) -> list[Record]:
        """Write the new records of a run, and return them. `inside` gives the inner records, once the agent has ended."""
        run_id = records.run_id_of(run)
        if run_id in self._whole:
            return []
        if not self._alone:
            self._once.forget(run_id)
        told = records.records_of(run)
        at = records.agents_end(told)
        if at is not None and (Ended, AGENT_SCOPE) not in self._once.keys(run_id):
            told[at:at] = await self._rest(run, inside)
        return await self._write(run_id, told)

    async def add(self, run: Fields, inside: Iterable[Record]) -> list[Record]:
        """Write inner records of an agent at work, and return the new ones. None is written after the agent's end.

        The journal is not read for each: there are too many of them."""
        run_id = records.run_id_of(run)
        if run_id in self._whole or (Ended, AGENT_SCOPE) in self._once.keys(run_id):
            return []
        return await self._write(run_id, [_let_out(record, run) for record in inside])

    async def lost(self, run_id: str) -> None:
        """End the open scopes of a run that is gone."""
        await self._write(run_id, lost_ends(self._journal.records(run_id), GONE))

    def forget(self, run_id: str) -> None:
        """Drop the cached keys of a run that is gone."""
        self._once.forget(run_id)
        self._whole.discard(run_id)

    async def _rest(self, run: Fields, inside: Inside | None) -> list[Record]:
        """The remaining inner records of a finished agent, with an end for each scope that it never closed."""
        run_id = records.run_id_of(run)
        rest = [_let_out(record, run) for record in await inside()] if inside else []
        open_now = lost_ends([*self._journal.records(run_id), *rest], BROKEN_OFF)
        ends = [each for each in open_now if each.scope_id.startswith(f"{AGENT_SCOPE}.")]
        note = [records.inside_note(run, _UNFINISHED)] if ends and inside is None else []
        return [*rest, *ends, *note]

    async def _write(self, run_id: str, told: Iterable[Record]) -> list[Record]:
        new = [record for record in told if await self._once.write(record)]
        if (Ended, RUN_SCOPE) in self._once.keys(run_id):
            self._once.forget(run_id)
            self._whole.add(run_id)
        return new


class InnerRecords:
    """The records from inside an agent, read from its log, on their way to the journal and the screen."""

    def __init__(self, run: Fields, mask: Mask) -> None:
        made = records.moment_of(within(run, "metadata").get("creationTimestamp"))
        self._scopes = InnerScopes(records.run_id_of(run), AGENT_SCOPE, mask, since=made)
        self._intake = Intake(self._keep, self._scopes.admit, trusted=False, most=MOST_BYTES)
        self._known: set[tuple[type, str]] = set()
        self._waiting: list[Record] = []
        self.over = bool(within(run, "spec").get("dryRun"))
        self.why = ""
        """The reason that the rest cannot be read."""

    async def take(self, line: str | None) -> None:
        """Take in a line of the log; None before all of them come again."""
        if line is None:
            self._scopes.again()
            self._intake.again()
        else:
            await self._intake.take(line)

    def new(self) -> list[Record]:
        """The records that came since the last call."""
        new, self._waiting = self._waiting, []
        return new

    def missing(self, run: Fields) -> list[str]:
        """Notes on the records that never come, once that is certain."""
        if not (self.over and records.would_tell(run) and records.agent_has_begun(run)):
            return []
        why = [f"some of the agent's inner records are missing: {self.why}"] if self.why else []
        return [*why, *self.lacking()]

    def lacking(self) -> list[str]:
        """Notes on the lines that are in no record."""
        return lacking(self._intake.dropped, self._intake.missing)

    async def _keep(self, record: Record) -> bool:
        key = (type(record), record.scope_id)
        if key in self._known:
            return False
        self._known.add(key)
        self._waiting.append(record)
        return True


class RunView:
    """A run on a cluster as the lines of any run: the records of its status, and notes on its other fields.
    `how_to_answer` is shown when the answer waits for a verdict."""

    def __init__(self, mask: Mask | None = None, *, width: int = 80, how_to_answer: str = "") -> None:
        self._mask = mask or Mask()
        self._tree = Tree(self._mask, width)
        self._how_to_answer = how_to_answer
        self._count = 0
        self._phase = ""
        self._noted: set[tuple[str, ...]] = set()

    def lines(self, run: Fields, inside: Iterable[Record] = ()) -> Iterator[Line]:
        """Lines for all that is new in the run; `inside` are the records from inside its agent, once that has ended."""
        told = records.records_of(run)
        new, self._count = told[self._count :], max(self._count, len(told))
        found = [(_place(each), each) for each in (*new, *inside) if getattr(each, "point", "") != PHASE]
        notes = [(place, _note(run, self._mask.text(text))) for place, text in self._notes(run)]
        for _, record in sorted([*found, *notes], key=lambda each: each[0]):
            # `hookline runs` finds it by the name that it has on the cluster.
            yield from self._tree.lines(record._replace(run_id=run["metadata"]["name"]))

    def inside(self, told: Iterable[Record]) -> Iterator[Line]:
        """Lines for records from inside the agent, while it is at work."""
        for each in told:
            yield from self._tree.lines(each)

    def _notes(self, run: Fields) -> Iterator[tuple[int, str]]:
        """Notes on the parts of the status that no record has, each once, with its place among the records."""
        status, now = within(run, "status"), phase_of(run)
        if now and now != self._phase:
            self._phase = now
            yield _PHASE_OVER if has_ended(run) else _PHASE, f"phase {now}"
        if status.get("gateDigest") and self._once("gate"):
            yield _GATE, f"the answer waits for a verdict{self._how_to_answer}"
        word = str(status.get("gateVerdict") or "")
        if word and self._once("verdict"):
            by = f" by {status['gateBy']}" if status.get("gateBy") else ""
            yield _GATE, f"gate {word}{by}"
        for each in items(status.get("conditions")):
            key = tuple(str(each.get(part)) for part in ("type", "reason", "message"))
            known_by_hooks = each.get("type") == "PostRunFailed"
            if each.get("status") == "True" and not known_by_hooks and self._once("condition", *key):
                yield _CONDITION, f"{each.get('type')}: {each.get('message')}"

    def _once(self, *what: str) -> bool:
        new = what not in self._noted
        self._noted.add(what)
        return new


class _DueRun(NamedTuple):
    """A run of which there is something to write; as it was last seen, where it is gone."""

    run: Fields
    gone: bool = False


class _AgentLines(NamedTuple):
    """The inner records of an agent, as the lines that it printed."""

    lines: list[str]
    mask: Mask
    size: int


class JournalWriter:
    """Writes the records of runs into a journal, in the background: the controller does not wait for it.

    A `built_in` agent prints inner records."""

    def __init__(self, journal: Journal, *, built_in: bool) -> None:
        self._journal = journal
        self._built_in = built_in
        self._kept: dict[str, _AgentLines] = {}
        self._ledger = Ledger(journal, alone=True)
        self._due: dict[str, _DueRun] = {}
        self._any = asyncio.Event()
        self._failures = 0
        self._ended = 0

    def note(self, before: Fields | None, after: Fields | None) -> None:
        """Queue a run that has changed, or is gone; of several changes only the last is written."""
        run = after or before
        if run is None or (before and after and before.get("status") == after.get("status")):
            return
        self._due[records.run_id_of(run)] = _DueRun(run, after is None)
        self._any.set()

    def keep_lines(self, run: Mapping[str, Any], lines: list[str], mask: Mask) -> None:
        """Keep the lines of an agent that has ended; its status comes after this."""
        size, run_id = sum(map(len, lines)), records.run_id_of(run)
        self._kept.pop(run_id, None)
        if self._built_in and sum(each.size for each in self._kept.values()) + size <= _HELD_BYTES:
            self._kept[run_id] = _AgentLines(lines, mask, size)

    async def run(self, runs: Sequence[Fields]) -> None:
        """Writes until it is cancelled. `runs` are those that are there: others that are open went unseen."""
        there = {records.run_id_of(run) for run in runs}
        await self._tried(self._end_others(there))
        while True:
            await self._any.wait()
            self._any.clear()
            while self._due:
                run_id = next(iter(self._due))
                await self._tried(self._write(run_id))
                # A thousand runs at once are written between other things.
                await asyncio.sleep(0)

    async def _end_others(self, there: set[str]) -> None:
        def is_gone(row: RunRow) -> bool:
            return row.run_id not in there and _is_on_cluster(self._journal.records(row.run_id))

        await end_as_lost(self._journal, GONE, is_gone)

    async def _write(self, run_id: str) -> None:
        now = self._due.pop(run_id)
        try:
            new = await self._ledger.take(now.run, lambda: self._inside(now.run))
            if now.gone:
                await self._ledger.lost(run_id)
                self._ledger.forget(run_id)
            if now.gone or any(map(records.is_agents_end, new)):
                self._kept.pop(run_id, None)
        except JournalError:
            self._due.setdefault(run_id, now)
            raise
        self._ended += any(map(records.is_runs_end, new))
        if self._ended >= _PRUNED_AFTER:
            self._ended = 0
            await self._prune()

    async def _inside(self, run: Fields) -> list[Record]:
        """The inner records that the agent printed; a note that they are missing, where its log was not read here."""
        heard = self._kept.get(records.run_id_of(run))
        if heard is None:
            return [records.inside_note(run, _UNREAD)] if self._built_in and records.would_tell(run) else []
        inside = InnerRecords(run, heard.mask)
        for number, line in enumerate(heard.lines):
            await inside.take(line)
            if number % _AT_A_TIME == 0:
                await asyncio.sleep(0)
        return [*inside.new(), *(records.inside_note(run, text) for text in inside.lacking())]

    async def _prune(self) -> None:
        if isinstance(self._journal, SqliteJournal):
            self._journal.flush()
            # The search for old records takes noticeably long.
            await asyncio.to_thread(_pruned, self._journal.path)

    async def _tried(self, written: Awaitable[None]) -> None:
        """Log once that the journal cannot be written, and try again; runs go on all the same."""
        try:
            await written
            self._failures = 0
        except JournalError as exc:
            if not self._failures:
                logger.warning("runs cannot be recorded, trying again: %s", exc)
            self._failures += 1
            await asyncio.sleep(backoff(self._failures, first=0.25, longest=_LONGEST_PAUSE))
        except Exception:
            # The outermost loop of the writer: a malformed status must not end the operator.
            logger.exception("a run cannot be recorded")


def _pruned(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.prune(keep_days=KEEP_DAYS, keep_bytes=KEEP_BYTES_OPERATOR)


def _let_out(record: Record, run: Fields) -> Record:
    """The record without an answer that a gate may hold back."""
    if isinstance(record, Ended) and record.scope in _ANSWERS and _may_be_gated(run):
        return record._replace(output=None)
    return record


def _may_be_gated(run: Fields) -> bool:
    written = within(run, "spec").get("lifecycle")
    if written is not None:
        return any(mapping(each).get("gate") for each in items(mapping(written).get("postRun")))
    # Its hooks are those of an agent that is not seen here.
    return any(told.get("stage") == Stage.POST_RUN for told in items(within(run, "status").get("hooks")))


def _is_on_cluster(told: Iterable[Record]) -> bool:
    declared = (each.declaration or {} for each in told if isinstance(each, Begun))
    return any((each.get("format"), each.get("on")) == (FORMAT, KUBERNETES) for each in declared)


def _key(record: Record) -> Hashable:
    """The key of a record; a run has at most one record with it."""
    if isinstance(record, Begun | Ended):
        return type(record), record.scope_id
    if isinstance(record, Called):
        return Called, record.scope_id, str(record.point), record.hook
    return Decided, record.scope_id, str(record.point), record.note


_BEFORE, _PHASE, _AGENT_OVER, _GATE, _AFTER, _CONDITION, _PHASE_OVER, _OVER = range(8)
"""The order of new lines at one change of a run."""


def _place(record: Record) -> int:
    if records.is_runs_end(record):
        return _OVER
    if records.is_agents_end(record):
        return _AGENT_OVER
    is_after = isinstance(record, Called) and record.point is Point.RUN_END
    return _AFTER if is_after else _BEFORE


def _note(run: Fields, text: str) -> Decided:
    return Decided(records.run_id_of(run), RUN_SCOPE, PHASE, time.time(), HookAction.CONTINUE, note=text)
