"""One answer for one event: a client may have an entry of hookline in several settings files, and asks them together."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from fcntl import LOCK_EX, LOCK_NB, lockf
from typing import TYPE_CHECKING

from hookline.claude.scope import begun, has_own_id
from hookline.engine.record import Called, Decided
from hookline.hookfile.trust import digest
from hookline.journal import default_path, open_journal

if TYPE_CHECKING:
    from hookline.engine.context import Facts


def answered_elsewhere(facts: Facts, event: str, caller: str, files: Iterable[str]) -> bool:
    """True if another process was asked about the same call, prompt or end at the same time, and has answered.

    The first takes a lock for as long as it lives; whoever finds it taken waits, and then goes by the record: one that
    was killed has left none. An id alone is not enough, for a model may give the same one to its next call: a record
    from before this process began is of another call, or of the last time that the agent would have stopped.
    """
    if not has_own_id(facts):
        return False
    began, start = time.time(), begun(facts, event, caller, None)
    about = "\0".join([start.run_id, start.scope_id, event, *files])
    place = int(digest([about.encode()])[:15], 16)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    lock = os.open(default_path(os.environ).with_name("answers.lock"), flags, 0o600)
    try:
        lockf(lock, LOCK_EX | LOCK_NB, 1, place)
        return False
    except BlockingIOError:
        lockf(lock, LOCK_EX, 1, place)
    with open_journal() as journal:
        kept = journal.records(start.run_id)
    return any(
        (each.scope_id, each.point) == (start.scope_id, facts.point) and each.at >= began
        for each in kept
        if isinstance(each, Decided) or (isinstance(each, Called) and each.last)
    )
