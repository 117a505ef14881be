"""Recovery after a crash: finds the runs of dead processes, claims them and ends them.

The owner of a run is a process: the boot id of the machine, the pid and the start time. Each system brings what is
special about its runs; the common part is here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hookline.engine.context import Facts
from hookline.engine.hook import Hook
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Status
from hookline.engine.record import RUN_AGAIN, THERE, Begun, Ended, Journal, Owed, Owner, Record, RunRow, owed
from hookline.errors import HooklineError, UsageError
from hookline.files import boot_id

if TYPE_CHECKING:
    from hookline.journal.snapshot import Snapshot
    from hookline.journal.sqlite import SqliteJournal

LOST = "lost: the process that held this run is gone"
AGAIN = f"{LOST}; its end hooks had begun, and were run again"
PATIENCE = 15.0
"""Seconds that a start spends on the runs of dead processes; what is under way then is finished."""
PAUSE, LONGEST_PAUSE = 60.0, 86400.0
_ELSEWHERE = ("symphony", "sympozium")
"""Formats whose own programs recover their runs."""
# A clock that was set back must not put off a run for longer than the longest pause.
_DUE = """
    SELECT run_id, name, began, source, format, boot_id, pid, started FROM run LEFT JOIN retry USING (run_id)
    WHERE ended IS NULL AND pid IS NOT NULL AND (due IS NULL OR due <= ?1 OR due > ?2)
        AND (format IS NULL OR format NOT IN (?3, ?4)) AND (source IS NULL OR source NOT LIKE ?5)
    ORDER BY began
"""
_PUT_OFF = """
    INSERT INTO retry (run_id, tries, due) VALUES (?1, 1, ?2)
    ON CONFLICT (run_id) DO UPDATE SET tries = tries + 1, due = ?3 + min(?4 * (1 << min(tries, 20)), ?5)
"""


def owner() -> Owner:
    """This process as the owner of a run."""
    from hookline.runners.tags import start_time  # not loaded by `runs` where every run has ended

    pid = os.getpid()
    return Owner(boot_id(), pid, start_time(pid) or "")


def alive(owner: Owner) -> bool:
    """True if that very process still runs; its pid may have been reused."""
    from hookline.runners.tags import start_time

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
    """One recovered run of an agent: how many end hooks ran, or why its end is still owed.

    `note` says of an ended run which of its end hooks could not be run.
    """

    run_id: str
    name: str
    ran: int
    problem: str | None = None
    note: str | None = None


async def recover(
    journal: SqliteJournal,
    me: Owner,
    hooks_of: Callable[[Snapshot], Awaitable[Sequence[Hook]]],
    watch: Iterable[Callable[[Record], None]] = (),
    *,
    within: float = PATIENCE,
) -> list[Recovered]:
    """End every run of an agent whose owner is dead: run the end hooks of runs and workspaces, record the rest as lost.

    `hooks_of` makes the hooks that were kept. If it cannot, the run stays owed, with the problem, and is looked at
    again after a pause that doubles each time. What is not begun `within` these seconds is for the next start.
    """
    found: list[Recovered] = []
    recorder = Recorder(journal, watch)
    ends = time.monotonic() + within
    due = [row for row in _due(journal) if is_abandoned(row)]
    for number, row in enumerate(due):
        if time.monotonic() >= ends:
            rest = f"no time was left for it and {len(due) - number - 1} more"
            found.append(Recovered(row.run_id, row.name, 0, rest))
            break
        if row.owner is None or not journal.claim(row.run_id, row.owner, me):
            continue
        try:
            found.append(await _recovered(journal, recorder, row, hooks_of))
        except HooklineError as exc:
            journal.claim(row.run_id, me, row.owner)
            found.append(Recovered(row.run_id, row.name, 0, str(exc)))
    return found


def _due(journal: SqliteJournal) -> Iterator[RunRow]:
    """The unfinished runs of agents whose turn it is; their records are not read."""
    now = time.time()
    for row in journal.rows(_DUE, now, now + LONGEST_PAUSE, *_ELSEWHERE, f"{THERE}%"):
        run_id, name, began, source, format, *owner = row
        if format is None and format_of(journal.records(run_id)) in _ELSEWHERE:
            continue
        yield RunRow(run_id, name, began, None, None, None, source, Owner(*owner), 0)


async def _recovered(
    journal: SqliteJournal,
    recorder: Recorder,
    row: RunRow,
    hooks_of: Callable[[Snapshot], Awaitable[Sequence[Hook]]],
) -> Recovered:
    from hookline.journal.snapshot import snapshot_of

    kept, hooks, note, ran = snapshot_of(journal, row.run_id), (), None, 0
    left = owed(journal.records(row.run_id))
    if any(item.due and item.begun.scope in RUN_AGAIN for item in left):
        if kept is None:
            note = "its end hooks were not kept, so they cannot be run"
        elif kept.hooks:
            hooks = await made_or_put_off(journal, row.run_id, hooks_of(kept))
            note = kept.unknown
    for item in left:
        ran += await _ended(recorder, item, hooks, note)
    return Recovered(row.run_id, row.name, ran, note=note)


async def made_or_put_off(
    journal: SqliteJournal, run_id: str, made: Awaitable[Sequence[Hook]]
) -> Sequence[Hook]:
    """The hooks; where they cannot be made, or whoever waits for them gives up, the run waits for a while."""
    try:
        return await made
    except BaseException:
        put_off(journal, run_id)
        raise


def put_off(journal: SqliteJournal, run_id: str) -> None:
    """Let a run wait before it is looked at again: a minute, then twice as long each time, a day at most."""
    now = time.time()
    journal.changed(_PUT_OFF, (run_id, now + PAUSE, now, PAUSE, LONGEST_PAUSE))


def waits(journal: SqliteJournal, run_id: str) -> float:
    """The seconds until a run is looked at again."""
    found = journal.rows("SELECT due FROM retry WHERE run_id = ?", run_id)
    return max(0.0, found[0][0] - time.time()) if found else 0.0


async def drop(journal: SqliteJournal, run_id: str, by: str) -> None:
    """End a broken-off run for good, or one that nobody holds, as a workspace's; on record with the name of who did.

    Its end hooks are not run.
    """
    row = next((each for each in journal.unfinished() if each.run_id == run_id), None)
    if row is None:
        raise UsageError(f"run {run_id} has ended")
    if (row.source or "").startswith(THERE):
        raise UsageError(f"run {run_id} is on a cluster; end it there")
    if row.owner is not None and not (is_abandoned(row) and journal.claim(run_id, row.owner, owner())):
        raise UsageError(f"run {run_id} is not broken off: a process is at work on it")
    for each in lost_ends(journal.records(run_id), f"{LOST}; dropped by {by}, its end hooks were not run"):
        await journal.write(each)


async def _ended(recorder: Recorder, item: Owed, hooks: Sequence[Hook], note: str | None) -> int:
    begun = item.begun
    again = item.due and begun.scope in RUN_AGAIN
    if not again or not hooks:
        await recorder.write(lost_end(begun, f"{LOST}; {note}" if again and note else LOST))
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
    why = "; ".join(filter(None, (AGAIN if item.again else LOST, note)))
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
