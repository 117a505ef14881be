"""The state as others see it: plain values for the API and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from hookline.symphony.agents import Tokens
from hookline.symphony.board.state import Finished, Parked, Retry, Running, State
from hookline.times import utc_text

Clock = Callable[[float], float]
"""From the state's own time to seconds since 1970."""


def snapshot(
    state: State, clock: Clock, now: float, workspace: Callable[[str], str], problem: str | None
) -> dict[str, Any]:
    """Everything, for `GET /api/v1/state`."""
    running = sum(now - each.since for each in state.running.values())
    return {
        "generated_at": _iso(clock(now)),
        "counts": {
            "running": len(state.running),
            "retrying": len(state.retries),
            "blocked": len(state.parked),
        },
        "running": [_running(each, clock, workspace) for each in state.running.values()],
        "retrying": [_retry(each, clock, workspace) for each in state.retries.values()],
        "blocked": [_parked(each, clock, workspace) for each in state.parked.values()],
        "finished": [_finished(each, clock) for each in state.finished],
        "codex_totals": {**_tokens(state.tokens), "seconds_running": round(state.seconds + running, 3)},
        "rate_limits": state.rate_limits,
        "configuration_error": problem,
    }


def one_issue(
    state: State, identifier: str, clock: Clock, workspace: Callable[[str], str]
) -> dict[str, Any] | None:
    """What is known of one issue; None where nothing is."""
    for status, part in (("running", state.running), ("retrying", state.retries), ("blocked", state.parked)):
        each = next((item for item in part.values() if item.issue.identifier == identifier), None)
        if each is not None:
            return _issue(status, each, clock, workspace, state)
    return None


def _issue(
    status: str,
    each: Running | Retry | Parked,
    clock: Clock,
    workspace: Callable[[str], str],
    state: State,
) -> dict[str, Any]:
    shown: Mapping[str, dict[str, Any] | None] = {
        "running": _running(each, clock, workspace) if isinstance(each, Running) else None,
        "retry": _retry(each, clock, workspace) if isinstance(each, Retry) else None,
        "blocked": _parked(each, clock, workspace) if isinstance(each, Parked) else None,
    }
    attempt = each.attempt if isinstance(each, Running | Retry) else None
    last = [item for item in state.finished if item.issue.id == each.issue.id]
    error = each.error if isinstance(each, Retry) else each.why if isinstance(each, Parked) else None
    return {
        "issue_identifier": each.issue.identifier,
        "issue_id": each.issue.id,
        "status": status,
        "workspace": {"path": workspace(each.issue.identifier)},
        "attempts": {"restart_count": max((attempt or 0) - 1, 0), "current_retry_attempt": attempt or 0},
        **shown,
        "recent_events": [_finished(item, clock) for item in last[-10:]],
        "last_error": error or next((item.error for item in reversed(last) if item.error), None),
    }


def _running(each: Running, clock: Clock, workspace: Callable[[str], str]) -> dict[str, Any]:
    return {
        **_about(each, workspace),
        "state": each.issue.state,
        "attempt": each.attempt,
        "session_id": each.session_id,
        "turn_count": each.turns,
        "last_message": each.said or None,
        "started_at": _iso(clock(each.since)),
        "last_event_at": _iso(clock(each.heard)),
        "stopping": each.ending,
        "tokens": _tokens(each.tokens),
    }


def _retry(each: Retry, clock: Clock, workspace: Callable[[str], str]) -> dict[str, Any]:
    due = _iso(clock(each.due))
    return {**_about(each, workspace), "attempt": each.attempt, "due_at": due, "error": each.error}


def _parked(each: Parked, clock: Clock, workspace: Callable[[str], str]) -> dict[str, Any]:
    since = _iso(clock(each.since))
    return {**_about(each, workspace), "state": each.issue.state, "error": each.why, "blocked_at": since}


def _finished(each: Finished, clock: Clock) -> dict[str, Any]:
    return {
        "issue_id": each.issue.id,
        "issue_identifier": each.issue.identifier,
        "at": _iso(clock(each.at)),
        "outcome": each.outcome,
        "error": each.error,
        "seconds": round(each.seconds, 3),
    }


def _about(each: Running | Retry | Parked, workspace: Callable[[str], str]) -> dict[str, Any]:
    return {
        "issue_id": each.issue.id,
        "issue_identifier": each.issue.identifier,
        "workspace_path": workspace(each.issue.identifier),
    }


def _tokens(tokens: Tokens) -> dict[str, int]:
    return {"input_tokens": tokens.input, "output_tokens": tokens.output, "total_tokens": tokens.total}


def _iso(seconds: float) -> str:
    return utc_text(datetime.fromtimestamp(seconds, UTC))
