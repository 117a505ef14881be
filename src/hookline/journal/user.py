"""The user's journal, as the commands open it, and the first record of an event that a foreign agent tells of.

Light to import, for `hookline answer` is on every call's way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hookline.engine.point import Point, Scope
from hookline.engine.record import Begun
from hookline.journal.home import default_path
from hookline.journal.masking import storable
from hookline.journal.sqlite import SqliteJournal
from hookline.secret_names import secrets_in

if TYPE_CHECKING:
    from hookline.engine.context import Facts


def opened_journal(secrets: Iterable[str] = ()) -> SqliteJournal:
    """The user's journal. `HOOKLINE_PAYLOADS=off` keeps inputs and outputs out of it."""
    return SqliteJournal(
        default_path(os.environ),
        secrets=[*secrets_in(os.environ), *secrets],
        payloads=os.environ.get("HOOKLINE_PAYLOADS", "on") != "off",
    )


@contextmanager
def open_journal(secrets: Iterable[str] = ()) -> Generator[SqliteJournal]:
    """The same, closed at the end."""
    journal = opened_journal(secrets)
    try:
        yield journal
    finally:
        journal.close()


def begun(facts: Facts, event: str, caller: str, payload: Any) -> Begun:
    """The record of an event's beginning; it also names the run and the scope."""
    # An id may hold half a surrogate pair, and is then no key for a journal.
    run_id = storable(f"{caller}-{facts.session_id or os.getpid()}")
    scope_id = storable(f"{facts.call_id or event}-{time.time_ns():x}")
    scope = facts.point.scope if isinstance(facts.point, Point) else Scope.SESSION
    about = {"event": event, "tool": facts.current_tool, "agent": facts.agent}
    return Begun(run_id, scope_id, None, scope, facts.current_tool or event, time.time(), payload, about)
