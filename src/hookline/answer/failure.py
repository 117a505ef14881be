"""What a foreign agent is told where hookline itself is in trouble: a refusal where something is about to start."""

from __future__ import annotations

import time

from hookline.claude.answer import CallerAnswer, trouble
from hookline.claude.events import point_of
from hookline.engine.context import Facts
from hookline.engine.point import Status
from hookline.engine.record import Decided, Ended
from hookline.engine.result import HookAction, Reason
from hookline.errors import HooklineError, JournalError
from hookline.journal.user import begun, open_journal


def troubled(exc: Exception, event: str, caller: str, facts: Facts | None) -> CallerAnswer:
    """What the caller is told of what went wrong here; to it a crash would be a yes."""
    if isinstance(exc, JournalError):
        return trouble(str(exc), event, caller)
    if isinstance(exc, HooklineError):
        return _kept_trouble(str(exc), event, caller, facts)
    import traceback

    traceback.print_exception(exc)
    message = f"a defect in hookline itself: {type(exc).__name__}: {exc}"
    return _kept_trouble(message, event, caller, facts)


def _kept_trouble(message: str, event: str, caller: str, facts: Facts | None) -> CallerAnswer:
    """What the caller is told where no hook could be asked; on record, as every answer is."""
    said = trouble(message, event, caller)
    facts = facts or Facts(caller, point_of(event, caller))
    refused = said.exit_code != 1
    action, status = (HookAction.BLOCK, Status.BLOCKED) if refused else (HookAction.CONTINUE, Status.FAILED)
    start = begun(facts, event, caller, None)
    reasons = (Reason("hookline", action, message),) if refused else ()
    ids = start.run_id, start.scope_id
    decided = Decided(*ids, facts.point, time.time(), action, reasons, note=f"no hook was asked: {message}")
    try:
        with open_journal() as journal:
            journal.put(start, decided, Ended(*ids, start.scope, time.time(), status, None, message))
    except Exception as exc:
        # The answer is owed, whatever becomes of its record.
        return said._replace(stderr=f"{said.stderr}hookline: not on record: {exc}\n")
    return said
