"""Recovery after a crash: finds the runs of dead processes, claims them and ends them.

The owner of a run is a process: the boot id of the machine, the pid and the start time. Each system brings what is
special about its runs; the common part is here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from hookline.engine.context import Facts
from hookline.engine.hook import Hook
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Status
from hookline.engine.record import RUN_AGAIN, THERE, Begun, Ended, Journal, Owed, Owner, Record, RunRow, owed
from hookline.errors import HooklineError

LOST = "lost: the process that held this run is gone"
AGAIN = f"{LOST}; its end hooks had begun, and were run again"
_ELSEWHERE = frozenset({"symphony", "sympozium"})
"""Formats whose own programs recover their runs."""


def owner() -> Owner:
    """This process as the owner of a run."""
    from hookline.runners.tags import boot_id, start_time  # not loaded by `runs` where every run has ended

    pid = os.getpid()
    return Owner(boot_id(), pid, start_time(pid) or "")


def alive(owner: Owner) -> bool:
    """True if that very process still runs; its pid may have been reused."""
    from hookline.runners.tags import boot_id, start_time

    if owner.boot_id != boot_id():
        return False
    if not owner.started:
        return _answers(owner.pid)
    return start_time(owner.pid) == owner.started


def lost_end(begun: Begun, why: str) -> Ended:
    """The end of a scope whose process is gone."""
    at = max(time.time(), begun.at)
    return Ended(begun.run_id, begun.scope_id, begun.scope, at, Status.LOST, None, why)


def lost_ends(records: Iterable[Record], why: str) -> list[Ended]:
    """An end for each open scope in the records of a run, innermost first."""
    return [lost_end(each.begun, why) for each in owed(records)]


async def end_as_lost(journal: Journal, why: str, is_lost: Callable[[RunRow], bool]) -> list[RunRow]:
    """End the unfinished runs for which `is_lost` is true, in the record only; returns them."""
    found = [row for row in journal.unfinished() if is_lost(row)]
    for row in found:
        for each in lost_ends(journal.records(row.run_id), why):
            await journal.write(each)
    return found


def is_abandoned(row: RunRow) -> bool:
    """True if the owner of the run is gone."""
    return row.owner is not None and not alive(row.owner)


def claim_abandoned(
    journal: Journal, me: Owner | None, is_mine: Callable[[RunRow, Sequence[Record]], bool]
) -> Iterator[tuple[RunRow, Sequence[Record]]]:
    """Claim the runs of dead owners that `is_mine` accepts, one by one, so that nobody else ends them."""
    for row in journal.unfinished():
        if row.owner is None or me is None or not is_abandoned(row):
            continue
        records = journal.records(row.run_id)
        if is_mine(row, records) and journal.claim(row.run_id, row.owner, me):
            yield row, records


def format_of(records: Iterable[Record]) -> str | None:
    """The format of the declaration in the records of a run."""
    declared = (each.declaration for each in records if isinstance(each, Begun) and each.declaration)
    return next((each.get("format") for each in declared), None)


class Recovered(NamedTuple):
    """One recovered run of an agent: how many end hooks ran, or why its end is still owed."""

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
    """End every run of an agent whose owner is dead: run the end hooks of runs and workspaces, record the rest as lost.

    `hooks_of` finds the hooks of a run again by its source. If it cannot, the run stays owed, with the problem.
    """
    found: list[Recovered] = []
    recorder = Recorder(journal, watch)
    for row, records in claim_abandoned(journal, me, _is_an_agents):
        ran, problem = 0, None
        for item in owed(records):
            hooks: tuple[Hook, ...] = ()
            if item.due and item.begun.scope in RUN_AGAIN:
                try:
                    hooks = tuple(hooks_of(row.source)) if row.source else ()
                except HooklineError as exc:
                    problem = str(exc)
                    if row.owner is not None:
                        journal.claim(row.run_id, me, row.owner)
                    break
                if not row.source:
                    problem = "it was started from Python code, so its end hooks cannot be found again"
            ran += await _ended(recorder, item, hooks)
        found.append(Recovered(row.run_id, row.name, ran, problem))
    return found


def _is_an_agents(row: RunRow, records: Sequence[Record]) -> bool:
    return not (row.source or "").startswith(THERE) and format_of(records) not in _ELSEWHERE


async def _ended(recorder: Recorder, item: Owed, hooks: tuple[Hook, ...]) -> int:
    begun = item.begun
    if not hooks:
        await recorder.write(lost_end(begun, LOST))
        return 0
    # Commands that only look up the owner of a run need no event loop, and should start quickly.
    from hookline.engine.lifecycle import OpenScope, Run

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
    scope = OpenScope(Run(id=begun.run_id, recorder=recorder), pipeline, begun.scope, facts, name=begun.name)
    why = AGAIN if item.again else LOST
    await scope.leave({"error": why}, Status.LOST, error=why)
    return len(pipeline.at(f"{begun.scope}.end"))


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True
