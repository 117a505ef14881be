"""After a crash: what a run left owed is run or recorded as lost, by the next start that finds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from hookline.engine.context import Facts
from hookline.engine.hook import Hook
from hookline.engine.lifecycle import OpenScope, Owed, Run, owed
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Scope, Status
from hookline.engine.record import Begun, Ended, Journal, Owner, Record
from hookline.errors import HooklineError
from hookline.journal.owner import alive

__all__ = ["THERE", "Recovered", "recover"]

LOST = "lost: the process that held this run is gone"
AGAIN = f"{LOST}; its end hooks had begun, and were run again"
_RUN_AGAIN = frozenset({Scope.RUN, Scope.WORKSPACE})
_ELSEWHERE = frozenset({"symphony", "sympozium"})
"""Formats whose own programs end what was left of their runs."""
THERE = "kubernetes:"
"""What the source of a run begins with that works on a cluster: nothing of it is run here."""


class Recovered(NamedTuple):
    """What became of one run that nobody holds any more."""

    run_id: str
    name: str
    ran: int
    problem: str | None = None


async def recover(
    journal: Journal,
    me: Owner,
    hooks_of: Callable[[str], Iterable[Hook]],
    watch: Iterable[Callable[[Record], None]] = (),
) -> list[Recovered]:
    """End every run whose owner is dead: ends of runs and workspaces are run, inner ones recorded as lost.

    `hooks_of` finds a run's hooks again by its source. Where it cannot, the run stays owed, and that is told.
    """
    found: list[Recovered] = []
    for row in journal.unfinished():
        if row.owner is None or alive(row.owner) or (row.source or "").startswith(THERE):
            continue
        records = journal.records(row.run_id)
        if _format(records) in _ELSEWHERE or not journal.claim(row.run_id, row.owner, me):
            continue
        recorder = Recorder(journal, watch)
        ran, problem = 0, None
        for item in owed(records):
            hooks: tuple[Hook, ...] = ()
            if item.due and item.begun.scope in _RUN_AGAIN:
                try:
                    hooks = tuple(hooks_of(row.source)) if row.source else ()
                except HooklineError as exc:
                    problem = str(exc)
                    journal.claim(row.run_id, me, row.owner)
                    break
                if not row.source:
                    problem = "it was started from Python code, so its end hooks cannot be found again"
            ran += await _ended(recorder, item, hooks)
        found.append(Recovered(row.run_id, row.name, ran, problem))
    return found


def _format(records: Iterable[Record]) -> str | None:
    declared = (each.declaration for each in records if isinstance(each, Begun) and each.declaration)
    return next((each.get("format") for each in declared), None)


async def _ended(recorder: Recorder, item: Owed, hooks: tuple[Hook, ...]) -> int:
    begun = item.begun
    run = Run(id=begun.run_id, recorder=recorder)
    if not hooks:
        await recorder.write(
            Ended(begun.run_id, begun.scope_id, begun.scope, time.time(), Status.LOST, None, LOST)
        )
        return 0
    about = begun.about
    facts = Facts(
        workflow_id=about.get("workflow_id") or begun.name,
        run_id=begun.run_id,
        scope_id=begun.scope_id,
        attempt=about.get("attempt") or 1,
        agent=about.get("agent"),
        session_id=about.get("session_id"),
        user_id=about.get("user_id"),
    )
    pipeline = Pipeline(hooks, recorder)
    scope = OpenScope(run, pipeline, begun.scope, facts, name=begun.name)
    why = AGAIN if item.again else LOST
    await scope.leave({"error": why}, Status.LOST, error=why)
    return len(pipeline.at(f"{begun.scope}.end"))
