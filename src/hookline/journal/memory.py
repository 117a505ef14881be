"""MemoryJournal: keeps its records in this process only; for tests, and for runs without a file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from hookline.engine.point import Scope
from hookline.engine.record import (
    Begun,
    Called,
    Decided,
    Ended,
    Owner,
    Question,
    Record,
    RunRow,
    Verdict,
    VerdictKind,
)
from hookline.errors import JournalError
from hookline.journal.encoding import CAP, Encoding, decoded, decoded_question
from hookline.journal.masking import Mask


@dataclass(slots=True)
class _Run:
    row: RunRow | None = None
    scope: Scope | None = None
    scope_id: str = ""
    lines: list[str] = field(default_factory=list[str])
    calls: int = 0


class MemoryJournal:
    """Masks and caps as the one in a file does, so that a test sees what a user will find."""

    def __init__(self, *, secrets: Iterable[str] = (), payloads: bool = True, cap: int = CAP) -> None:
        self._encoding = Encoding(Mask(secrets), payloads=payloads, cap=cap)
        self._runs: dict[str, _Run] = {}
        self._questions: dict[str, Question] = {}
        self._closed = False

    async def write(self, record: Begun | Ended) -> None:
        run = self._added(record)
        if isinstance(record, Begun):
            self._begin(run, record)
        elif run.row is not None and run.scope_id == record.scope_id:
            error = self._encoding.text(record.error)
            run.row = run.row._replace(ended=record.at, status=record.status, error=error)
            self._forget_rewrites(record.run_id)

    def note(self, record: Called | Decided) -> None:
        self._added(record).calls += isinstance(record, Called)

    async def ask(self, question: Question) -> None:
        self._open()
        point, tool, reasons, value = decoded_question(self._encoding.question(question))
        kept = question._replace(point=point, tool=tool, reasons=reasons, value=value, verdict=None)
        self._questions[question.id] = kept

    def answer(self, question_id: str, verdict: Verdict) -> bool:
        self._open()
        question = self._questions.get(question_id)
        if question is None or question.verdict is not None:
            return False
        text, by, rewrite = self._encoding.verdict(verdict)
        kept = Verdict(VerdictKind(verdict.kind), text, None if rewrite is None else json.loads(rewrite), by)
        self._questions[question_id] = question._replace(verdict=kept)
        return True

    def question(self, question_id: str) -> Question | None:
        self._open()
        return self._questions.get(question_id)

    def questions(self, run_id: str | None = None, *, pending: bool = True) -> list[Question]:
        self._open()
        return [
            question
            for question in sorted(self._questions.values(), key=lambda question: question.asked)
            if (run_id is None or question.run_id == run_id) and not (pending and question.verdict)
        ]

    def runs(self, *, limit: int = 50) -> list[RunRow]:
        return self._rows()[:limit]

    def records(self, run_id: str) -> list[Record]:
        self._open()
        run = self._runs.get(run_id, _Run())
        return [decoded(run_id, json.loads(line)) for line in run.lines]

    def find(self, prefix: str) -> list[str]:
        return [row.run_id for row in self._rows() if row.run_id.startswith(prefix)]

    def unfinished(self) -> list[RunRow]:
        return [row for row in reversed(self._rows()) if row.ended is None]

    def claim(self, run_id: str, old: Owner, new: Owner) -> bool:
        self._open()
        run = self._runs.get(run_id)
        if run is None or run.row is None or run.row.ended is not None or run.row.owner != old:
            return False
        run.row = run.row._replace(owner=new)
        return True

    def prune(self, *, keep_days: float, keep_bytes: int) -> int:
        gone = 0
        oldest = time.time() - keep_days * 86400
        finished = sorted((row.ended, row.run_id) for row in self._rows() if row.ended is not None)
        for ended, run_id in finished:
            if ended >= oldest and self._size() <= keep_bytes:
                break
            del self._runs[run_id]
            for question in [asked for asked in self._questions.values() if asked.run_id == run_id]:
                del self._questions[question.id]
            gone += 1
        return gone

    def flush(self) -> None:
        self._open()

    def close(self) -> None:
        self._closed = True

    def _open(self) -> None:
        if self._closed:
            raise JournalError("the journal in memory is closed")

    def _added(self, record: Record) -> _Run:
        self._open()
        run = self._runs.setdefault(record.run_id, _Run())
        run.lines.append(self._encoding.record(record))
        return run

    def _begin(self, run: _Run, record: Begun) -> None:
        before = run.row
        if record.scope is not Scope.RUN:
            # Another outermost scope (a workspace, an agent alone) only speaks for the run where there is none.
            taken = before is not None and (before.ended is None or run.scope is Scope.RUN)
            if record.parent_id is not None or taken:
                return
        run.scope, run.scope_id = record.scope, record.scope_id
        run.row = RunRow(
            run_id=record.run_id,
            name=self._encoding.text(record.name) or "",
            began=before.began if before else record.at,
            ended=None,
            status=None,
            error=None,
            source=self._encoding.text(record.source) or (before.source if before else None),
            owner=record.owner or (before.owner if before else None),
            calls=0,
        )

    def _forget_rewrites(self, run_id: str) -> None:
        for key, question in self._questions.items():
            if question.run_id == run_id and question.verdict is not None:
                self._questions[key] = question._replace(verdict=question.verdict._replace(value=None))

    def _rows(self) -> list[RunRow]:
        self._open()
        rows = [run.row._replace(calls=run.calls) for run in self._runs.values() if run.row is not None]
        return sorted(rows, key=lambda row: row.began, reverse=True)

    def _size(self) -> int:
        return sum(len(line.encode()) for run in self._runs.values() for line in run.lines)
