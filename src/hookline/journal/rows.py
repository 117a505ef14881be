"""The statements of the journal's tables, and their rows as values."""

from __future__ import annotations

import json
from typing import Any

from hookline.engine.point import Status
from hookline.engine.record import Owner, Question, RunRow, Verdict, VerdictKind
from hookline.journal.encoding import decoded_question

MESSAGE = "INSERT INTO message (number, run_id, body) VALUES (?, ?, ?)"
MESSAGES = "SELECT number, body FROM message WHERE run_id = ? ORDER BY number"
RECORD = "INSERT INTO record (run_id, at, calls, body, records) VALUES (?, ?, ?, ?, ?)"
FROM_ITS_START = "SELECT seq, body FROM record WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?"
FROM_ITS_END = "SELECT seq, body FROM record WHERE run_id = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
COUNTED = "SELECT coalesce(sum(records), 0) FROM record WHERE run_id = ?"
# Rows of an earlier version, which did not say.
NOT_COUNTED = (
    "SELECT coalesce(sum(json_array_length(body)), 0) FROM record WHERE run_id = ? AND records IS NULL"
)
# A run is listed by its own scope; by another outermost scope (a workspace, an agent) if it has none. What a foreign agent
# began and nobody holds may never be told to have ended: there the newest counts.
BEGIN_RUN = """
    INSERT INTO run (run_id, scope_id, scope, name, began, source, format, boot_id, pid, started)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (run_id) DO UPDATE SET
        scope_id = excluded.scope_id, scope = excluded.scope, name = excluded.name,
        ended = NULL, status = NULL, error = NULL, source = coalesce(excluded.source, source),
        format = coalesce(excluded.format, format),
        started = CASE WHEN excluded.pid IS NULL THEN started ELSE excluded.started END,
        boot_id = CASE WHEN excluded.pid IS NULL THEN boot_id ELSE excluded.boot_id END,
        pid = coalesce(excluded.pid, pid)
    WHERE excluded.scope = 'run' OR (run.ended IS NOT NULL AND run.scope <> 'run')
        OR (run.pid IS NULL AND run.scope IN ('agent', 'model', 'tool'))
"""
END_RUN = "UPDATE run SET ended = ?, status = ?, error = ? WHERE run_id = ? AND scope_id = ?"
CLAIM_RUN = """
    UPDATE run SET boot_id = ?, pid = ?, started = ?
    WHERE run_id = ? AND ended IS NULL AND boot_id = ? AND pid = ? AND started = ?
"""
FORGET_REWRITES = """
    UPDATE question SET rewrite = NULL
    WHERE run_id = ?1 AND rewrite IS NOT NULL AND EXISTS (SELECT 1 FROM run WHERE run_id = ?1 AND scope_id = ?2)
"""
RUNS = """
    SELECT run_id, name, began, ended, status, error, source, boot_id, pid, started,
        (SELECT coalesce(sum(calls), 0) FROM record WHERE record.run_id = run.run_id)
    FROM run
"""
QUESTIONS = """
    SELECT id, run_id, scope_id, asked, body, code, verdict, text, said_by, rewrite, signature FROM question
"""
# A question asked again is open again: the answer to an earlier input does not count.
ASK = "INSERT OR REPLACE INTO question (id, run_id, scope_id, asked, body, code) VALUES (?, ?, ?, ?, ?, ?)"
ANSWER = """
    UPDATE question SET verdict = ?, text = ?, said_by = ?, rewrite = ?, signature = ?, answered = ?
    WHERE id = ? AND verdict IS NULL
"""


def run_of(row: tuple[Any, ...]) -> RunRow:
    run_id, name, began, ended, word, error, source, boot_id, pid, started, calls = row
    status = None if word is None else Status(word)
    owner = None if pid is None else Owner(boot_id, pid, started)
    return RunRow(run_id, name, began, ended, status, error, source, owner, calls)


def question_of(row: tuple[Any, ...]) -> Question:
    id, run_id, scope_id, asked, body, code, kind, text, by, rewrite, signature = row
    point, tool, reasons, value, digest, hidden = decoded_question(body)
    verdict = None
    if kind is not None:
        new = None if rewrite is None else json.loads(rewrite)
        verdict = Verdict(VerdictKind(kind), text, new, by, digest, signature or "")
    return Question(id, run_id, scope_id, point, tool, reasons, value, asked, verdict, digest, hidden, code)


def kept_question(question: Question, body: str) -> Question:
    """A question as it is read again, and shown to a person, from the text that is stored of it."""
    _, tool, reasons, value, digest, hidden = decoded_question(body)
    return question._replace(tool=tool, reasons=reasons, value=value, digest=digest, hidden=hidden)
