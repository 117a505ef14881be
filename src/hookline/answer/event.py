"""One event of a foreign agent: asked of its hooks, put on record, told. The same on each way of `hookline answer`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from hookline.claude.answer import CallerAnswer, answer
from hookline.claude.events import CALLERS, meant
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Status
from hookline.engine.record import Begun, Decided, Ended, Journal
from hookline.engine.result import HookAction, Outcome
from hookline.journal.user import begun

if TYPE_CHECKING:
    from hookline.engine.context import HookContext
    from hookline.engine.hook import Hook


async def recorded(
    journal: Journal,
    hooks: list[Hook],
    payload: dict[str, Any],
    event: str,
    context: HookContext,
    caller: str,
) -> CallerAnswer:
    """The hooks' answer in the caller's words."""
    facts = context.facts
    start = begun(facts, event, caller, context.given.payload)
    facts.run_id, facts.scope_id = start.run_id, start.scope_id
    await journal.write(start)
    pipeline = Pipeline(hooks, Recorder(journal))
    outcome = await pipeline.fire(context)
    said = answer(outcome, event, caller, given=payload)
    notes = [f"lost: {lost}" for lost in said.lost]
    if event not in CALLERS[caller] and not pipeline.at(facts.point):
        unknown = f"{event!r} is no event of {caller} that is known here, and no hook stands at {facts.point}"
        notes.append(f"{unknown}; {meant(event, caller)}")
        said = said._replace(stderr=f"{said.stderr}hookline: {notes[-1]}\n")
    for note in notes:
        journal.note(
            Decided(start.run_id, start.scope_id, facts.point, time.time(), outcome.action, note=note)
        )
    await journal.write(_ended(start, outcome))
    return said


def tell(said: CallerAnswer) -> int:
    """Write it where the caller reads; the exit code that goes with it."""
    # Half a surrogate pair, which an event may carry and UTF-8 may not, becomes the escape that JSON has for it.
    sys.stdout.buffer.write(said.stdout.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
    sys.stderr.write(said.stderr)
    return said.exit_code


def _ended(start: Begun, outcome: Outcome) -> Ended:
    refused = outcome.action in (HookAction.BLOCK, HookAction.FAIL)
    status = Status.BLOCKED if refused else Status.OK
    reason = outcome.reason or None
    return Ended(start.run_id, start.scope_id, start.scope, time.time(), status, outcome.output, reason)
