"""Hooks of the command line around the steps and tools of an agent that works elsewhere.

The agent's process asks over a socket in /ipc, one line of JSON for each point; the hooks run out here, where their
files are, and their answer goes back as one line. Whoever cannot be asked has not said yes: the agent's side takes a
line that does not come for a hook that broke.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hookline.context import HookContext, WorkflowContext
from hookline.errors import AgentFailed, HookBroke, HooklineError
from hookline.hook import Hook, OnError
from hookline.lifecycle import OpenScope
from hookline.pipeline import Pipeline
from hookline.plain import plain
from hookline.point import Point, Scope
from hookline.result import HookAction, HookResult, Outcome

__all__ = ["VARIABLE", "asking_hooks", "inner_points", "relayed"]

SOCKET = "hooks.sock"
VARIABLE = "HOOKLINE_RELAYED"
"""Names the points, with commas between, at which the agent's process has to ask."""
LONGEST = 64 * 1024 * 1024
_OUTSIDE = frozenset({Scope.WORKSPACE, Scope.RUN, Scope.AGENT})
"""These scopes are out here anyway."""


def inner_points(hooks: Iterable[Hook]) -> tuple[Point, ...]:
    """The points inside the agent's work at which these hooks stand."""
    points = {point for hook in hooks for point in hook.points if isinstance(point, Point)}
    return tuple(sorted(point for point in points if point.scope not in _OUTSIDE))


@asynccontextmanager
async def relayed(ipc: Path, hooks: tuple[Hook, ...], scope: OpenScope) -> AsyncGenerator[None]:
    """Answer for the hooks as long as the agent works; its records are those of `scope`."""
    if not inner_points(hooks):
        yield
        return
    pipeline = Pipeline(hooks, scope.run.recorder)

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await _answered(pipeline, scope, line)).encode() + b"\n")
                await writer.drain()
        except (ValueError, ConnectionError):
            pass  # no line of ours, or gone: the other side takes it for what it is
        finally:
            writer.close()

    server = await asyncio.start_unix_server(served, sock=_bound(ipc), limit=LONGEST)
    async with server:
        yield


def asking_hooks(ipc: Path, points: str) -> list[Hook]:
    """The agent's side: one hook at each of the points, which asks out there."""
    named = [Point(word) for word in points.split(",") if word]
    asking = _Asking(ipc)
    return [
        Hook(
            name="relayed",
            points=frozenset({point}),
            handler=asking,
            timeout=None,
            on_error=OnError.BLOCK if point.is_start else OnError.FAIL,
            source=f"{ipc}/{SOCKET}",
        )
        for point in named
    ]


class _Asking:
    """A line for each call, one after another: hooks of one point may not overtake each other."""

    def __init__(self, ipc: Path) -> None:
        self._ipc = ipc
        self._turn = asyncio.Lock()
        self._held: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __call__(self, _ctx: WorkflowContext | None, context: HookContext, /) -> HookResult:
        line = json.dumps(context.to_dict(), default=str).encode() + b"\n"
        async with self._turn:
            try:
                if self._held is None:
                    self._held = await asyncio.open_unix_connection(sock=_connected(self._ipc), limit=LONGEST)
                reader, writer = self._held
                writer.write(line)
                await writer.drain()
                answer = await reader.readline()
                return HookResult.from_dict(json.loads(answer))
            except (OSError, ValueError, HooklineError) as exc:
                raise HookBroke(f"the hooks outside could not be asked: {exc}", kind="not_started") from exc


async def _answered(pipeline: Pipeline, scope: OpenScope, line: bytes) -> dict[str, Any]:
    given: Mapping[str, Any] = json.loads(line)
    try:
        # Whose run and scope it is, we know better than whoever writes to the socket.
        about = {**given, "run_id": scope.run.id, "scope_id": scope.facts.scope_id}
        context = HookContext.from_dict(about)
    except (HooklineError, TypeError, ValueError) as exc:
        return HookResult.fail(f"not a context: {exc}").to_dict()
    return plain(_result(context, await pipeline.fire(context)).to_dict())


def _result(context: HookContext, outcome: Outcome) -> HookResult:
    """All that the hooks said, as the word of one."""
    if outcome.answered:
        return HookResult.answer(plain(outcome.output))
    is_start = isinstance(context.point, Point) and context.point.is_start
    changes = outcome.changed and outcome.action in (HookAction.CONTINUE, HookAction.ALLOW, HookAction.ASK)
    return HookResult(
        action=outcome.action,
        error_message=outcome.reason or None,
        modified_payload=plain(outcome.payload) if changes and is_start else None,
        modified_output=plain(outcome.output) if changes and not is_start else None,
        replace=True,
        tell_model="\n".join(outcome.tell_model) or None,
        tell_user="\n".join(outcome.tell_user) or None,
    )


def _bound(ipc: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # A preRun hook may have left something of that name.
        (ipc / SOCKET).unlink(missing_ok=True)
        _at(ipc, made.bind)
    except OSError as exc:
        made.close()
        raise AgentFailed(
            f"the agent could not ask the hooks out here: /ipc/{SOCKET}: {exc.strerror}"
        ) from exc
    return made


def _connected(ipc: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _at(ipc, made.connect)
    except OSError:
        made.close()
        raise
    return made


def _at(ipc: Path, does: Any) -> None:
    """By way of an open folder: the whole path may be longer than a socket's may be."""
    fd = os.open(ipc, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        does(f"/proc/self/fd/{fd}/{SOCKET}")
    finally:
        os.close(fd)
