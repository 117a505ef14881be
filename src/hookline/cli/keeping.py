"""The user's journal, as the commands open it. Light to import, for `hookline answer` is on every call's way."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager

from hookline.journal.place import default_path
from hookline.journal.sqlite import SqliteJournal

__all__ = ["open_journal", "opened_journal", "secrets_of"]

_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "CREDENTIAL", "PRIVATE_KEY")


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """The values of variables whose names say that they are secret."""
    return [value for name, value in environ.items() if any(word in name.upper() for word in _SECRET_WORDS)]


def opened_journal(secrets: Iterable[str] = ()) -> SqliteJournal:
    """The user's journal. `HOOKLINE_PAYLOADS=off` keeps inputs and outputs out of it."""
    return SqliteJournal(
        default_path(os.environ),
        secrets=[*secrets_of(os.environ), *secrets],
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
