"""The user's journal: its path, how commands open it, and the first record of another agent's event.

Light to import, because every call of another agent waits for `hookline answer`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.engine.point import Point, Scope
from hookline.engine.record import Begun
from hookline.journal.masking import storable
from hookline.secret_names import secrets_in

if TYPE_CHECKING:
    from hookline.engine.context import Facts
    from hookline.journal.sqlite import SqliteJournal


def default_path(environ: Mapping[str, str]) -> Path:
    """The journal in `$HOOKLINE_HOME`, else in hookline's folder in the user's state folder (`$XDG_STATE_HOME`)."""
    home = environ.get("HOOKLINE_HOME")
    folder = Path(home).expanduser() if home else xdg_folder(environ, "XDG_STATE_HOME", ".local/state")
    return folder / "journal.db"


def xdg_folder(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """hookline's folder in one of the user's folders; `default` is the path of that one in the home folder."""
    folder = environ.get(variable, "")
    if Path(folder).is_absolute():  # the XDG rules say to ignore any other
        return Path(folder) / "hookline"
    user = environ.get("HOME")
    return (Path(user) if user else Path.home()) / default / "hookline"


def opened_journal(secrets: Iterable[str] = ()) -> SqliteJournal:
    """The user's journal. `HOOKLINE_PAYLOADS=off` keeps inputs and outputs out of it."""
    from hookline.journal.sqlite import SqliteJournal  # not for who only asks where it is

    return SqliteJournal(
        default_path(os.environ),
        secrets=[*secrets_in(os.environ), *secrets],
        payloads=os.environ.get("HOOKLINE_PAYLOADS", "on") != "off",
    )


def open_journal(secrets: Iterable[str] = ()) -> closing[SqliteJournal]:
    """The same, closed at the end of a `with`."""
    return closing(opened_journal(secrets))


def begun(facts: Facts, event: str, caller: str, payload: Any) -> Begun:
    """The record of an event's beginning; it also names the run and the scope."""
    # An id may hold half a surrogate pair, and is then no key for a journal.
    run_id = storable(f"{caller}-{facts.session_id or os.getpid()}")
    scope_id = storable(f"{facts.call_id or event}-{time.time_ns():x}")
    scope = facts.point.scope if isinstance(facts.point, Point) else Scope.SESSION
    about = {"event": event, "tool": facts.current_tool, "agent": facts.agent}
    return Begun(run_id, scope_id, None, scope, facts.current_tool or event, time.time(), payload, about)
