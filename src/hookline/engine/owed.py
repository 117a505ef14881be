"""Which ends are due: pure functions of what the start hooks decided, and of the record.

A run in progress, the resume after a crash and everything that only has the record share them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hookline.engine.point import Point, Scope
from hookline.engine.record import Begun, Called, Decided, Ended, Record
from hookline.engine.result import HookAction

HOLDS_ON_FAILED_START = frozenset({Scope.RUN, Scope.SESSION})
"""Scopes whose end hooks run even where their start failed."""
LEAVING = "x.hookline.leaving"
"""Where it is on record that end hooks begin: after a crash they are known to run a second time."""


def end_is_due(scope: Scope, start: HookAction) -> bool:
    """True if a scope's end hooks have to run, by what its start hooks decided."""
    if start is HookAction.SKIP:
        return False
    if start in (HookAction.FAIL, HookAction.BLOCK, HookAction.ASK):
        # Where a person is still being asked, nothing has begun.
        return scope in HOLDS_ON_FAILED_START
    return True


class Owed(NamedTuple):
    """A scope that was begun and never ended. `due`: its end hooks have not run to their end, and should.

    `again`: they had begun when the record broke off, so some of them may run a second time.
    """

    begun: Begun
    due: bool
    again: bool = False


def owed(records: Iterable[Record]) -> list[Owed]:
    """What a record that breaks off leaves to be ended, innermost first."""
    begun: dict[str, Begun] = {}
    started: dict[str, HookAction] = {}
    starting: set[str] = set()
    ending: set[str] = set()
    leaving: set[str] = set()
    inhabited: set[str] = set()
    for record in records:
        key = record.scope_id
        if isinstance(record, Called) and record.last:
            record = Decided(record.run_id, key, record.point, record.at, HookAction.CONTINUE)
        if isinstance(record, Begun):
            begun[key] = record
            inhabited.add(record.parent_id or "")
        elif isinstance(record, Ended):
            begun.pop(key, None)
        elif record.point == LEAVING:
            leaving.add(key)
        elif key in begun and record.point == Point.start_of(begun[key].scope):
            if isinstance(record, Decided):
                started[key] = record.action
            else:
                starting.add(key)
        elif key in begun and isinstance(record, Decided) and _ends(record, begun[key].scope):
            ending.add(key)

    def due(key: str, scope: Scope) -> bool:
        if key in ending:
            return False
        if key in started:
            return end_is_due(scope, started[key])
        if scope in HOLDS_ON_FAILED_START or key in inhabited:
            return True
        # Nothing decided and nothing inside: while its start hooks were at work it had not begun.
        return key not in starting and scope is not Scope.WORKSPACE

    return [Owed(record, due(key, record.scope), key in leaving) for key, record in reversed(begun.items())]


def _ends(record: Decided, scope: Scope) -> bool:
    """True if the end hooks are through; an agent whose end was refused goes on, and its end comes again."""
    refused = scope is Scope.AGENT and record.action is HookAction.BLOCK
    return record.point == Point.end_of(scope) and not refused
