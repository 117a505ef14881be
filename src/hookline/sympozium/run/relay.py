"""Hooks of the command line around the steps and tools of an agent that works elsewhere, and its records.

The agent's process asks over a socket in /ipc, one line of JSON for each point; the hooks run out here, where their
files are, and their answer goes back as one line. Whoever cannot be asked has not said yes: the agent's side takes a
line that does not come for a hook that broke. What it begins and ends comes the same way, in the format of
`journal.stream`, and gets no answer.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hookline import files
from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import Hook, OnError
from hookline.engine.lifecycle import OpenScope
from hookline.engine.pipeline import Pipeline
from hookline.engine.plain import plain
from hookline.engine.point import Point, Scope
from hookline.engine.record import Begun, Decided, Ended, Record
from hookline.engine.result import HookAction, HookResult, Outcome
from hookline.errors import AgentFailed, HookBroke, HooklineError
from hookline.journal.intake import INSIDE, MOST_BYTES, InnerScopes, Intake, lacking
from hookline.journal.masking import Mask
from hookline.journal.stream import MARK, Sender
from hookline.tasks import cancel_and_wait

SOCKET = "hooks.sock"
VARIABLE = "HOOKLINE_RELAYED"
"""Names the points, with commas between, at which the agent's process has to ask."""
LONGEST = 64 * 1024 * 1024
_LAST_LINES = 5.0
"""Seconds to read what an agent that is over has left in the socket."""
_OUTSIDE = frozenset({Scope.WORKSPACE, Scope.RUN, Scope.AGENT})
"""These scopes are out here anyway."""


def inner_points(hooks: Iterable[Hook]) -> tuple[Point, ...]:
    """The points inside the agent's work at which these hooks stand."""
    points = {point for hook in hooks for point in hook.points if isinstance(point, Point)}
    return tuple(sorted(point for point in points if point.scope not in _OUTSIDE))


@asynccontextmanager
async def relayed(
    ipc: Path, hooks: tuple[Hook, ...], scope: OpenScope, mask: Mask | None = None
) -> AsyncGenerator[None]:
    """Answer for the hooks as long as the agent works, and take down what it does below `scope`."""
    relay = _Relay(Pipeline(hooks, scope.run.recorder), scope, mask)
    try:
        listening = _bound(ipc)
    except AgentFailed as exc:
        if inner_points(hooks):
            raise
        relay.note(f"the agent's own records are missing: {exc}")
        yield
        return
    server = await asyncio.start_unix_server(relay.served, sock=listening, limit=LONGEST)
    try:
        async with server:
            yield
            await relay.over()
    finally:
        await relay.ended()


class _Relay:
    """The outer end of the socket."""

    def __init__(self, pipeline: Pipeline, scope: OpenScope, mask: Mask | None) -> None:
        self._pipeline = pipeline
        self._scope = scope
        self._scopes = InnerScopes(scope.run.id, scope.facts.scope_id, mask)
        self._intakes: list[Intake] = []
        self._serving: set[asyncio.Task[None]] = set()

    async def served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        # Each connection has numbers of its own; a tool inside may open one too.
        intake = Intake(self._write, self._scopes.admit, trusted=False, most=MOST_BYTES)
        self._intakes.append(intake)
        try:
            while line := await reader.readline():
                if line.startswith(MARK.encode()):
                    await intake.take(line.decode(errors="replace"))
                    continue
                writer.write(json.dumps(await self._answered(line)).encode() + b"\n")
                await writer.drain()
        except (ValueError, ConnectionError):
            pass  # no line of ours, or gone: the other side takes it for what it is
        finally:
            writer.close()

    async def over(self) -> None:
        """The agent is gone; what it has sent is still read."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=_LAST_LINES)

    async def ended(self) -> None:
        await cancel_and_wait(*self._serving)
        for each in self._scopes.left():
            await self._scope.run.recorder.write(each)
        for text in lacking(
            sum(each.dropped for each in self._intakes), sum(each.missing for each in self._intakes)
        ):
            self.note(text)

    def note(self, text: str) -> None:
        run = self._scope.run
        if run.recorder.on:
            at = self._scope.facts.scope_id
            run.recorder.note(Decided(run.id, at, INSIDE, time.time(), HookAction.CONTINUE, note=text))

    async def _write(self, record: Record, _size: int) -> bool:
        if isinstance(record, Begun | Ended) and self._scope.run.recorder.on:
            await self._scope.run.recorder.write(record)
        return True

    async def _answered(self, line: bytes) -> dict[str, Any]:
        given: Mapping[str, Any] = json.loads(line)
        try:
            # Whose run and scope it is, we know better than whoever writes to the socket.
            at = self._scopes.here(given.get("scope_id"))
            context = HookContext.from_dict({**given, "run_id": self._scope.run.id, "scope_id": at})
        except (HooklineError, AttributeError, TypeError, ValueError) as exc:
            return HookResult.fail(f"not a context: {exc}").to_dict()
        return plain(_result(context, await self._pipeline.fire(context)).to_dict())


def asking_hooks(outside: Outside, points: str) -> list[Hook]:
    """The agent's side: one hook at each of the points, which asks out there."""
    named = [Point(word) for word in points.split(",") if word]
    return [
        Hook(
            name="relayed",
            points=frozenset({point}),
            handler=outside,
            timeout=None,
            on_error=OnError.BLOCK if point.is_start else OnError.FAIL,
            source=f"{outside.ipc}/{SOCKET}",
        )
        for point in named
    ]


class Outside:
    """The inner end of the socket. Lines go one after another: hooks of one point may not overtake each other."""

    def __init__(self, ipc: Path) -> None:
        self.ipc = ipc
        self._turn = asyncio.Lock()
        self._held: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._sender = Sender(self._send)

    async def __call__(self, _ctx: WorkflowContext | None, context: HookContext, /) -> HookResult:
        line = json.dumps(context.to_dict(), default=str).encode() + b"\n"
        async with self._turn:
            try:
                reader, writer = self._held or await self._connection()
                writer.write(line)
                await writer.drain()
                answer = await reader.readline()
                return HookResult.from_dict(json.loads(answer))
            except (OSError, ValueError, HooklineError) as exc:
                raise HookBroke(f"the hooks outside could not be asked: {exc}", kind="not_started") from exc

    async def open(self) -> None:
        """From now on records are sent, if anybody takes them; an agent works without, too."""
        try:
            await self._connection()
        except OSError:
            pass  # nobody listens

    def told(self, record: Record) -> None:
        """Send what was begun or ended; for an agent's `watch`."""
        if self._held is not None:
            self._sender.scope(record)

    def _send(self, line: str) -> None:
        if self._held is not None:
            self._held[1].write(line.encode())

    async def close(self) -> None:
        """After everything is sent."""
        if self._held is None:
            return
        writer = self._held[1]
        try:
            writer.close()
            await writer.wait_closed()
        except OSError:
            pass  # who listened is gone

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._held = await asyncio.open_unix_connection(sock=_connected(self.ipc), limit=LONGEST)
        return self._held


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
    with files.opened_folder(ipc) as fd:
        does(f"/proc/self/fd/{fd}/{SOCKET}")
