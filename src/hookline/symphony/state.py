"""The state of the service: as values, and as others see it: as JSON, over HTTP on loopback, drawn on a terminal."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hookline.engine.plain import utc_text
from hookline.errors import UsageError
from hookline.symphony.agents import Tokens
from hookline.symphony.trackers import Issue
from hookline.tasks import cancel_and_wait

_SHOWN = 8
"""Lines of the log below the table."""


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
    """An issue whose agent needs a person, or that a hook skipped. It holds no slot, until it changes in the tracker."""

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
    """The whole schedule. `claimed` are issues that are read once more before their first attempt."""

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
    paused: bool = False
    """True while the configuration on disk is invalid: what runs is looked after, nothing new is begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTracker:
    """Ask the tracker about these ids, and pass the answer to `looked`."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    """Begin an attempt; its end goes to `finished` with the same generation."""

    issue: Issue
    attempt: int | None
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAttempt:
    """Cancel the attempt of this generation; its end hooks run, then its end goes to `finished`."""

    id: str
    generation: int
    why: str
    outcome: str = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveWorkspace:
    """Remove the issue's workspace, with its hook, and report that to `cleaned`."""

    issue: Issue


Action = AskTracker | StartAttempt | StopAttempt | RemoveWorkspace


_STATUSES = {Running: "running", Retry: "retrying", Parked: "blocked"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateView:
    """A state as plain values. `clock` turns its time into seconds since 1970, `workspace` an identifier into a path."""

    state: State
    clock: Callable[[float], float]
    workspace: Callable[[str], str]

    def snapshot(self, now: float, problem: str | None) -> dict[str, Any]:
        """Everything, for `GET /api/v1/state`."""
        state = self.state
        running = sum(now - each.since for each in state.running.values())
        return {
            "generated_at": self.time(now),
            "counts": {
                "running": len(state.running),
                "retrying": len(state.retries),
                "blocked": len(state.parked),
            },
            "running": [self._running(each) for each in state.running.values()],
            "retrying": [self._retry(each) for each in state.retries.values()],
            "blocked": [self._parked(each) for each in state.parked.values()],
            "finished": [self._finished(each) for each in state.finished],
            "codex_totals": {**_tokens(state.tokens), "seconds_running": round(state.seconds + running, 3)},
            "rate_limits": state.rate_limits,
            "configuration_error": problem,
        }

    def issue(self, identifier: str) -> dict[str, Any] | None:
        """One issue, for `GET /api/v1/ABC-123`; None if it is neither running, waiting nor blocked."""
        state = self.state
        for each in (*state.running.values(), *state.retries.values(), *state.parked.values()):
            if each.issue.identifier == identifier:
                return self._issue(each)
        return None

    def time(self, at: float) -> str:
        """A moment of the state as ISO 8601."""
        return utc_text(datetime.fromtimestamp(self.clock(at), UTC))

    def _issue(self, each: Running | Retry | Parked) -> dict[str, Any]:
        attempt = 0 if isinstance(each, Parked) else each.attempt or 0
        error = each.why if isinstance(each, Parked) else each.error if isinstance(each, Retry) else None
        last = [item for item in self.state.finished if item.issue.id == each.issue.id]
        return {
            "issue_identifier": each.issue.identifier,
            "issue_id": each.issue.id,
            "status": _STATUSES[type(each)],
            "workspace": {"path": self.workspace(each.issue.identifier)},
            "attempts": {"restart_count": max(attempt - 1, 0), "current_retry_attempt": attempt},
            "running": self._running(each) if isinstance(each, Running) else None,
            "retry": self._retry(each) if isinstance(each, Retry) else None,
            "blocked": self._parked(each) if isinstance(each, Parked) else None,
            "recent_events": [self._finished(item) for item in last[-10:]],
            "last_error": error or next((item.error for item in reversed(last) if item.error), None),
        }

    def _running(self, each: Running) -> dict[str, Any]:
        return {
            **self._about(each),
            "state": each.issue.state,
            "attempt": each.attempt,
            "session_id": each.session_id,
            "turn_count": each.turns,
            "last_message": each.said or None,
            "started_at": self.time(each.since),
            "last_event_at": self.time(each.heard),
            "stopping": each.ending,
            "tokens": _tokens(each.tokens),
        }

    def _retry(self, each: Retry) -> dict[str, Any]:
        due = self.time(each.due)
        return {**self._about(each), "attempt": each.attempt, "due_at": due, "error": each.error}

    def _parked(self, each: Parked) -> dict[str, Any]:
        since = self.time(each.since)
        return {**self._about(each), "state": each.issue.state, "error": each.why, "blocked_at": since}

    def _finished(self, each: Finished) -> dict[str, Any]:
        return {
            "issue_id": each.issue.id,
            "issue_identifier": each.issue.identifier,
            "at": self.time(each.at),
            "outcome": each.outcome,
            "error": each.error,
            "seconds": round(each.seconds, 3),
        }

    def _about(self, each: Running | Retry | Parked) -> dict[str, Any]:
        return {
            "issue_id": each.issue.id,
            "issue_identifier": each.issue.identifier,
            "workspace_path": self.workspace(each.issue.identifier),
        }


def _tokens(tokens: Tokens) -> dict[str, int]:
    return {"input_tokens": tokens.input, "output_tokens": tokens.output, "total_tokens": tokens.total}


@asynccontextmanager
async def serving(app: Any, host: str, port: int) -> AsyncGenerator[int, None]:
    """Serves while the block runs; yields the port."""
    import uvicorn

    listener = _listener(host, port)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    # The service has its own way with signals, and a server that takes them over would hide the first one from it.
    server.capture_signals = nullcontext  # pyright: ignore[reportAttributeAccessIssue]
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        await asyncio.wait({task}, timeout=5)
        await cancel_and_wait(task)
        listener.close()


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # From here on a client can connect, also before the server has got to accept it.
        listener.listen(128)
    except (OSError, OverflowError) as exc:
        listener.close()
        why = getattr(exc, "strerror", None) or exc
        raise UsageError(f"cannot listen on {host}:{port}: {why}") from exc
    return listener


def api(
    state: Callable[[], dict[str, Any]],
    issue: Callable[[str], dict[str, Any] | None],
    refresh: Callable[[], dict[str, Any]],
) -> Any:
    """The service as an ASGI application: its state, one issue, and a poll on request."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def show_state(_request: Request) -> JSONResponse:
        return JSONResponse(state())

    async def show_issue(request: Request) -> JSONResponse:
        name = request.path_params["identifier"]
        if name == "refresh":
            raise HTTPException(405)
        found = issue(name)
        if found is None:
            return error(404, "issue_not_found", f"no issue {name!r} is running, waiting or blocked")
        return JSONResponse(found)

    async def look_now(_request: Request) -> JSONResponse:
        return JSONResponse(refresh(), status_code=202)

    async def failed(_request: Request, exc: Exception) -> JSONResponse:
        status = exc.status_code if isinstance(exc, HTTPException) else 500
        known = {
            404: ("not_found", "not found"),
            405: ("method_not_allowed", "method not allowed"),
        }
        return error(status, *known.get(status, ("internal_error", "internal error")))

    def error(status: int, code: str, message: str) -> JSONResponse:
        return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)

    return Starlette(
        routes=[
            Route("/api/v1/state", show_state, methods=["GET"]),
            Route("/api/v1/refresh", look_now, methods=["POST"]),
            Route("/api/v1/{identifier:path}", show_issue, methods=["GET"]),
        ],
        exception_handlers={HTTPException: failed, 500: failed},
    )


class LastLines(logging.Handler):
    """The last lines of the log, for the picture below the table."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        self.lines = [*self.lines, f"{clock} {record.getMessage()}"][-_SHOWN:]


class Picture:
    """The state on a terminal, drawn in place."""

    def __init__(self, last: LastLines, file: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._last = last
        self._file = file
        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=False)
        self._live.start()

    def __call__(self, state: dict[str, Any]) -> None:
        self._live.update(_drawn(state, self._last.lines, self._file), refresh=True)

    def close(self) -> None:
        self._live.stop()


def _drawn(state: dict[str, Any], lines: list[str], file: str) -> Any:
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

    counts = state["counts"]
    head = Text(
        f"{file}: {counts['running']} running, {counts['retrying']} waiting, {counts['blocked']} blocked",
        style="bold",
    )
    table = Table(box=None, pad_edge=False, expand=False)
    for column in ("issue", "now", "what"):
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for each in state["running"]:
        now = "stopping" if each["stopping"] else f"running, turn {each['turn_count'] + 1}"
        table.add_row(each["issue_identifier"], now, each["last_message"] or "")
    for each in state["blocked"]:
        table.add_row(each["issue_identifier"], "blocked", each["error"] or "")
    for each in state["retrying"]:
        table.add_row(each["issue_identifier"], f"waits until {each['due_at'][11:19]}", each["error"] or "")
    for each in state["finished"][-5:]:
        table.add_row(each["issue_identifier"], each["outcome"], each["error"] or f"{each['seconds']:.1f} s")
    parts: list[RenderableType] = [head, table]
    if state["configuration_error"]:
        parts.append(Text(str(state["configuration_error"]), style="red"))
    parts += [Text(line, style="dim", overflow="ellipsis", no_wrap=True) for line in lines]
    return Group(*parts)
