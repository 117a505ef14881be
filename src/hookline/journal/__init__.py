"""The record of runs; here the user's own journal: its path, and how commands open it.

Light to import, because every call of another agent waits for `hookline answer`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hookline.secrets import secrets_in

if TYPE_CHECKING:
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


def open_journal(secrets: Iterable[str] = ()) -> SqliteJournal:
    """The user's journal. `HOOKLINE_PAYLOADS=off` keeps inputs and outputs out of it."""
    from hookline.journal.sqlite import SqliteJournal  # not for who only asks where it is

    return SqliteJournal(
        default_path(os.environ),
        secrets=[*secrets_in(os.environ), *secrets],
        payloads=os.environ.get("HOOKLINE_PAYLOADS", "on") != "off",
    )
