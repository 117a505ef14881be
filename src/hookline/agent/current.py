"""The current run, for agents that are started inside a tool and become part of that run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from hookline.engine.context import Facts
from hookline.engine.hook import Hook
from hookline.engine.lifecycle import OpenScope, Run
from hookline.engine.point import Point
from hookline.engine.record import Decided
from hookline.engine.result import HookAction

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HookCoverage:
    """The hooks of a run's agents, the names of those whose match fitted, and the tools called with their kinds."""

    hooks: dict[str, Hook] = field(default_factory=dict[str, Hook])
    matched: set[str] = field(default_factory=set[str])
    tools: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def note_unmatched(self, run: Run, workflow_id: str) -> None:
        """Records each hook whose match fitted no tool call: such a guard protects nothing."""
        if not run.recorder.on or not self.tools:
            return
        called = ", ".join(sorted(self.tools))
        # An earlier hook may have ended the walk, so a hook that was never called may still fit.
        calls = [Facts(workflow_id, current_tool=name, tool_kind=kind) for name, kind in self.tools.items()]
        for hook in self.hooks.values():
            if hook.match is None or hook.name in self.matched or any(map(hook.match, calls)):
                continue
            note = f"hook {hook.name}: match {hook.match_text!r} fitted no tool call of this run ({called})"
            run.recorder.note(Decided(run.id, "", Point.RUN_END, time.time(), HookAction.CONTINUE, note=note))


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRun:
    """The run, scope and settings that an agent started inside a tool belongs to."""

    run: Run
    hooks: tuple[Hook, ...]
    scope: OpenScope
    parents: tuple[str, ...]
    workspace: str | None
    session_id: str | None
    user_id: str | None
    seen: HookCoverage
    attempt: int
    root_workflow_id: str
    note: Callable[[str, str], None]
    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])


CURRENT_RUN: ContextVar[CurrentRun | None] = ContextVar("hookline_inside", default=None)
