"""The protocol of coding agents: what works on an issue in its workspace, one turn after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hookline.errors import AgentFailed

__all__ = ["AgentSession", "CodingAgent", "Place", "Tokens", "Told", "TurnFailed"]


class TurnFailed(AgentFailed):
    """A coding agent could not start, or a turn of it did not end well. `kind` is one word for the record.

    Kinds: codex_not_found, invalid_workspace_cwd, response_timeout, turn_timeout, port_exit, response_error,
    turn_failed, turn_cancelled, turn_input_required.
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Tokens used so far by one session, never a difference."""

    input: int = 0
    output: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Something an agent said of itself while it works; that it said anything shows that it lives.

    Kinds: session_started, startup_failed, turn_completed, turn_failed, turn_cancelled, turn_ended_with_error,
    turn_input_required, approval_auto_approved, unsupported_tool_call, notification, other_message, malformed.
    """

    kind: str
    text: str = ""
    tokens: Tokens | None = None
    rate_limits: Mapping[str, Any] | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an agent works: the workspace, the whole environment, and who is told what it does."""

    workspace: str
    env: Mapping[str, str]
    tell: Callable[[Told], None]
    title: str = ""
    issue: Mapping[str, Any] | None = None


class AgentSession(Protocol):
    """One live conversation with an agent. Whatever it does, `close` leaves none of its processes behind."""

    @property
    def id(self) -> str: ...

    async def turn(self, prompt: str) -> str:
        """One turn; what the agent said at its end. A turn that did not end well is a TurnFailed."""
        ...

    async def close(self) -> None:
        """Interrupt what is going on and end the agent, in order: interrupt, close its input, TERM, KILL."""
        ...


class CodingAgent(Protocol):
    """One kind of agent with its settings."""

    async def open(self, place: Place) -> AgentSession: ...
