"""Declarations: what a file says, as pure data. `compose` makes it live, `explain` prints it, a run keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hookline.engine.hook import DEFAULT_TIMEOUT, Mode, OnError
from hookline.engine.plain import plain
from hookline.engine.point import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDeclaration:
    """One hook: where it stands, of which kind it is (python, command, shell, ...) and that kind's parameters."""

    name: str
    points: tuple[Point | str, ...]
    kind: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    match: str | tuple[str, ...] | None = None
    when: Mapping[str, Any] | None = None
    timeout: float | None = DEFAULT_TIMEOUT
    on_error: OnError | None = None
    mode: Mode = Mode.ENFORCE
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDeclaration:
    """The agent that the hooks stand around; inner agents are those that are its tools."""

    name: str
    provider: str = ""
    model: str = ""
    system_prompt: str | None = None
    tools: tuple[str, ...] = ()
    hooks: tuple[HookDeclaration, ...] = ()
    agents: tuple[AgentDeclaration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One file's whole content. `hooks` hold for every agent in the run."""

    format: str
    source: str
    agent: AgentDeclaration | None = None
    hooks: tuple[HookDeclaration, ...] = ()
    timeout: float | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return plain(self)
