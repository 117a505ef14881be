"""The protocol of coding agents, which work on an issue in its workspace, turn after turn.

Also what they share: a session whose turns have a limit on silence, and a conversation with a process in lines of JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from hookline.engine.context import Usage
from hookline.engine.plain import inner, json_or_none, mapping
from hookline.errors import AgentFailed
from hookline.runners import Output
from hookline.runners.local import Piped
from hookline.tasks import cancel_and_wait

LONGEST_LINE = 10 * 1024 * 1024
_CHUNK = 65536
_KEPT_OF_ERRORS = 16384
_TURN_ENDS = ("turn_failed", "turn_cancelled", "turn_input_required")

Message = Mapping[str, Any]


class TurnFailed(AgentFailed):
    """A coding agent could not start, or a turn of it did not end well. `kind` is one word for the record.

    Kinds: codex_not_found, invalid_workspace_cwd, response_timeout, turn_timeout, port_exit, response_error,
    turn_failed, turn_cancelled, turn_input_required.
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """One event of an agent at work; any event shows that it is alive.

    `tokens` are those used so far by its session, never a difference.

    Kinds: session_started, startup_failed, turn_completed, turn_failed, turn_cancelled, turn_ended_with_error,
    turn_input_required, approval_auto_approved, unsupported_tool_call, notification, other_message, malformed.
    """

    kind: str
    text: str = ""
    tokens: Usage | None = None
    rate_limits: Mapping[str, Any] | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlace:
    """The workspace that an agent works in, its whole environment, and a callback for its events."""

    workspace: str
    env: Mapping[str, str]
    tell: Callable[[AgentEvent], None]

    def report(self, kind: str, text: str = "", **more: Any) -> None:
        """Tell an event of this kind."""
        self.tell(AgentEvent(kind=kind, text=text, **more))


class AgentSession(ABC):
    """One conversation with an agent. Its turns are tasks of their own, each of which has to give a sign of life
    every `silence` seconds. Whatever it does, also if it could not begin, `close` leaves none of its processes behind."""

    def __init__(self, place: AgentPlace, silence: float) -> None:
        self.id = secrets.token_hex(6)
        self._place = place
        self._silence = silence
        self._heard_at = 0.0
        self._going: asyncio.Task[str] | None = None
        self._tokens = Usage()

    @abstractmethod
    async def _begin(self) -> None:
        """Start the agent, up to where it can take a turn."""

    @abstractmethod
    async def _run(self, prompt: str) -> str:
        """The work of one turn, and its answer."""

    async def open(self) -> None:
        """Start the agent; an error if it does not start."""
        try:
            await self._begin()
        except Exception as exc:
            self._place.report("startup_failed", str(exc))
            raise

    async def close(self) -> None:
        """Interrupt what is going on and end the agent, in order: interrupt, close its input, TERM, KILL."""
        if self._going is not None and not self._going.done():
            await cancel_and_wait(self._going, insist=True)

    def _alive(self) -> None:
        """The agent gave a sign of life."""
        self._heard_at = asyncio.get_running_loop().time()

    async def turn(self, prompt: str) -> str:
        """Take one turn, and return the agent's last message. A turn that did not end well is a TurnFailed.

        Past the limit of silence it is cancelled and waited for; cancelled ourselves, we end it first as well.
        """
        loop = asyncio.get_running_loop()
        self._alive()
        self._going = turn = loop.create_task(self._run(prompt))
        try:
            while not turn.done():
                left = self._heard_at + self._silence - loop.time()
                if left <= 0:
                    why = f"the agent sent nothing for {self._silence:g} s"
                    raise TurnFailed(why, kind="turn_timeout")
                await asyncio.wait({turn}, timeout=left)
            if turn.cancelled():
                raise TurnFailed("the turn was ended", kind="turn_cancelled")
            said = turn.result()
        except BaseException as exc:
            await cancel_and_wait(turn, insist=True)
            if isinstance(exc, TurnFailed):
                kind = exc.kind if exc.kind in _TURN_ENDS else "turn_ended_with_error"
                self._place.report(kind, str(exc))
            raise
        self._place.report("turn_completed", said[-500:], tokens=self._tokens, session_id=self.id)
        return said


CodingAgent = Callable[[AgentPlace], AgentSession]
"""One kind of agent with its settings: makes a session, which is then opened."""


class LineBuffer:
    """Splits a stream of bytes into lines. A line of more than ten megabytes is None."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._too_long = False

    def add(self, part: bytes) -> Iterator[bytes | None]:
        """The lines that this part completes."""
        *whole, rest = part.split(b"\n")
        for piece in whole:
            self._grow(piece)
            yield self.take()
        self._grow(rest)

    def take(self) -> bytes | None:
        """The current line, whole or not; the next one begins."""
        line = None if self._too_long else bytes(self._line)
        self._line.clear()
        self._too_long = False
        return line

    def _grow(self, piece: bytes) -> None:
        if len(self._line) + len(piece) > LONGEST_LINE:
            self._too_long = True
            self._line.clear()
        if not self._too_long:
            self._line += piece


class Conversation:
    """JSON-RPC with a process over its pipes. `heard` gets its notifications; `asked` answers its requests.

    A line that is longer than ten megabytes or no JSON object is skipped; `odd` gets a text about it.
    """

    def __init__(
        self,
        process: Piped,
        *,
        heard: Callable[[str, Message], None],
        asked: Callable[[str, Message], Message],
        odd: Callable[[str], None],
    ) -> None:
        self._process = process
        self._heard, self._asked, self._odd = heard, asked, odd
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._lines = LineBuffer()
        self._errors = bytearray()
        self._unsent = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        for fd in (process.stdout, process.stderr):
            self._loop.add_reader(fd, self._read, fd)

    async def request(self, method: str, params: Mapping[str, Any], timeout: float) -> Message:
        """The result of a request; a TurnFailed if it is refused or not there within `timeout` seconds."""
        number = next(self._ids)
        answer: asyncio.Future[Message] = self._loop.create_future()
        self._waiting[number] = answer
        try:
            self._send({"id": number, "method": method, "params": params})
            await asyncio.wait({answer, self.ended}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return _result(method, answer.result())
            if self.ended.done():
                raise self.gone()
            raise TurnFailed(f"{method} was not answered in {timeout:g} s", kind="response_timeout")
        finally:
            del self._waiting[number]

    def note(self, method: str) -> None:
        """Send a notification."""
        self._send({"method": method})

    def gone(self) -> TurnFailed:
        """The error for a process that ended in the middle of a turn."""
        said = Output(head=bytes(self._errors), total=len(self._errors)).last_lines()
        return TurnFailed(f"the agent's process has ended{f': {said}' if said else ''}", kind="port_exit")

    def close(self) -> None:
        """Stop listening; the process itself is ended by whoever started it."""
        for fd in (self._process.stdout, self._process.stderr):
            self._loop.remove_reader(fd)
        self._loop.remove_writer(self._process.stdin)
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _send(self, message: Mapping[str, Any]) -> None:
        self._unsent += json.dumps(message).encode() + b"\n"
        self._write()

    def _write(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._process.stdin, self._unsent)]
        except BlockingIOError:
            self._loop.add_writer(self._process.stdin, self._write)
            return
        except OSError:
            # It has closed its input; its end is noticed where its output is read.
            self._unsent.clear()
        self._loop.remove_writer(self._process.stdin)

    def _read(self, fd: int) -> None:
        try:
            part = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._loop.remove_reader(fd)
        if fd == self._process.stderr:
            self._errors += part
            del self._errors[:-_KEPT_OF_ERRORS]
        elif part:
            for line in self._lines.add(part):
                self._take(line)
        else:
            self._end()

    def _take(self, line: bytes | None) -> None:
        if line is None:
            self._odd(f"a line of more than {LONGEST_LINE} bytes was left out")
            return
        if not line.strip():
            return
        message = json_or_none(line)
        if message is not None:
            self._take_message(message)
        else:
            self._odd(f"a line that is not a message: {line[:200].decode('utf-8', 'replace')!r}")

    def _take_message(self, message: Message) -> None:
        method, given = message.get("method"), mapping(message.get("params"))
        # Its requests have numbers of their own, which may be the same as ours: what has a method is no answer.
        if not isinstance(method, str):
            waiting = self._waiting.get(cast("int", message.get("id")))
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif "id" in message:
            self._send({"id": message["id"], **self._asked(method, given)})
        else:
            self._heard(method, given)


def _result(method: str, answer: Message) -> Message:
    error = answer.get("error")
    if error is not None:
        said = inner(error, "message") if isinstance(error, dict) else error
        raise TurnFailed(f"{method} was refused: {said}", kind="response_error")
    return mapping(answer.get("result"))
