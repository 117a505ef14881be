"""Where in a run we are: what an agent that is started from within a tool needs to be part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from hookline.engine.hook import Hook
from hookline.engine.lifecycle import OpenScope, Run

__all__ = ["INSIDE", "Inside", "Message", "Seen"]

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run met: the hooks of its agents, those whose match fitted, the tools called and their kinds."""

    hooks: dict[str, Hook] = field(default_factory=dict[str, Hook])
    matched: set[str] = field(default_factory=set[str])
    tools: dict[str, str | None] = field(default_factory=dict[str, str | None])


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """Where in a run we are; an agent that is started here belongs to it."""

    run: Run
    hooks: tuple[Hook, ...]
    scope: OpenScope
    parents: tuple[str, ...]
    workspace: str | None
    session_id: str | None
    user_id: str | None
    seen: Seen
    attempt: int
    root_workflow_id: str
    note: Callable[[str, str], None]
    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])


INSIDE: ContextVar[Inside | None] = ContextVar("hookline_inside", default=None)
