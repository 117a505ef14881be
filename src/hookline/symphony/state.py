"""The schedule as values: the state, the events that change it, and the actions that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hookline.symphony.agents import Tokens, Told
from hookline.symphony.types import Issue, Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The configuration of scheduling. Names of states and labels are in lower-case letters."""

    active: frozenset[str]
    terminal: frozenset[str]
    required_labels: tuple[str, ...] = ()
    slots: int = 10
    slots_by_state: Mapping[str, int] = field(default_factory=dict[str, int])
    max_backoff: float = 300.0
    stall_after: float | None = 300.0
    dispatch: bool = True
    """False while the configuration on disk is invalid: what runs is looked after, nothing new is begun."""


def rules_of(workflow: Workflow, *, dispatch: bool = True) -> Rules:
    """The scheduling rules of a workflow."""
    tracker, agent = workflow.tracker, workflow.agent
    return Rules(
        active=frozenset(state.strip().lower() for state in tracker.active_states),
        terminal=frozenset(state.strip().lower() for state in tracker.terminal_states),
        required_labels=tuple(label.strip().lower() for label in tracker.required_labels),
        slots=agent.max_concurrent_agents,
        slots_by_state=agent.max_concurrent_agents_by_state,
        max_backoff=agent.max_retry_backoff,
        stall_after=workflow.codex.stall_timeout,
        dispatch=dispatch,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One attempt under way. `ending` is why it is being stopped; it keeps its slot until it has ended."""

    issue: Issue
    attempt: int | None
    generation: int
    since: float
    heard: float
    session_id: str | None = None
    said: str = ""
    turns: int = 0
    tokens: Tokens = Tokens()
    ending: str | None = None
    stalled: bool = False
    clean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """An issue that waits for its next attempt. `asked` is set while the tracker is asked about it."""

    issue: Issue
    attempt: int
    due: float
    error: str | None = None
    asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """An issue whose agent wants a person, or that a hook skipped. It holds no slot; any change in the tracker frees it."""

    issue: Issue
    why: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An attempt that ended, for people to see."""

    issue: Issue
    outcome: str
    error: str | None
    at: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All of it. `claimed` are issues that the tracker is asked about once more before their first attempt."""

    running: Mapping[str, Running] = field(default_factory=dict[str, Running])
    claimed: Mapping[str, Issue] = field(default_factory=dict[str, Issue])
    retries: Mapping[str, Retry] = field(default_factory=dict[str, Retry])
    parked: Mapping[str, Parked] = field(default_factory=dict[str, Parked])
    cleaning: Mapping[str, Issue] = field(default_factory=dict[str, Issue])
    finished: tuple[Finished, ...] = ()
    tokens: Tokens = Tokens()
    seconds: float = 0.0
    rate_limits: Mapping[str, Any] | None = None
    generation: int = 0
    stopping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """The tracker was asked for the issues in active states."""

    issues: tuple[Issue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The tracker was asked about issues that are to start: `found` by id, or why it could not be asked."""

    asked: tuple[str, ...]
    found: Mapping[str, Issue]
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """The tracker was asked about what is running or parked. A tracker that did not answer is no event."""

    asked: tuple[str, ...]
    found: Mapping[str, Issue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time went by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """An agent gave a sign of life."""

    id: str
    generation: int
    told: Told = Told(kind="notification")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """An attempt has ended, its hooks included. Outcomes: ok, failed, timed_out, cancelled, stalled, skipped,
    input_required."""

    id: str
    generation: int
    outcome: str
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """At the start: issues in terminal states that still have a workspace."""

    issues: tuple[Issue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """A workspace is gone, or could not be removed; either way nobody works on that now."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The service is to end: attempts are cancelled, nothing new begins."""


Event = Polled | Looked | Refreshed | Ticked | Heard | Finish | Swept | Cleaned | Stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTracker:
    """Ask the tracker about these ids, and tell it as `Looked`."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    """Begin an attempt; its end is told as `Finish` with the same generation."""

    issue: Issue
    attempt: int | None
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAttempt:
    """Cancel the attempt of this generation; its end hooks run, then it is told as `Finish`."""

    id: str
    generation: int
    why: str
    outcome: str = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveWorkspace:
    """Remove the issue's workspace, with its hook, and tell it as `Cleaned`."""

    issue: Issue


Action = AskTracker | StartAttempt | StopAttempt | RemoveWorkspace
