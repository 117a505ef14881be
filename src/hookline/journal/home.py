"""Where the journal lives unless somebody says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def default_path(environ: Mapping[str, str]) -> Path:
    """`$HOOKLINE_HOME`, else hookline's folder in the user's state folder (`$XDG_STATE_HOME`)."""
    home = environ.get("HOOKLINE_HOME")
    if home:
        return Path(home).expanduser() / "journal.db"
    state = environ.get("XDG_STATE_HOME", "")
    if Path(state).is_absolute():  # what is not, the XDG rules say to ignore
        return Path(state) / "hookline" / "journal.db"
    user = environ.get("HOME")
    return (Path(user) if user else Path.home()) / ".local" / "state" / "hookline" / "journal.db"
