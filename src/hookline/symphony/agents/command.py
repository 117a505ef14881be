"""Any command-line agent, such as `claude -p` or `codex exec`: one process a turn.

The prompt is one argument, where the command has `{prompt}`, else it is on standard input. A process knows nothing
of the one before it, so later turns get the first prompt again. If the agent prints JSON lines, its answer and its
tokens are read from them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from hookline.errors import UsageError
from hookline.runners import Ending, Order, Output
from hookline.runners.child import Child, PopenChild, StandardFiles
from hookline.runners.local import LocalRunner
from hookline.symphony.agents import AgentPlace, AgentSession, LineBuffer, Tokens, TurnFailed, read_part

PROMPT = "{prompt}"
KEPT = 256 * 1024
"""Bytes of an agent's output that are kept, from its end."""
_OFTEN = 0.1
"""Seconds between two signs of life that are passed on."""
_ARGUMENT = 128 * 1024
"""Bytes of one argument that Linux takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAgent:
    """A command and how long, in seconds, it may be silent."""

    argv: tuple[str, ...]
    silence: float = 3600.0

    def __post_init__(self) -> None:
        if not self.argv:
            raise UsageError("a command-line agent needs a command, such as claude -p")

    async def open(self, place: AgentPlace) -> CommandSession:
        program = self.argv[0]
        found = shutil.which(
            os.path.join(place.workspace, program) if "/" in program else program, path=place.env.get("PATH")
        )
        if found is None:
            error = TurnFailed(
                f"the agent {program!r} was not found; is it installed and on PATH?", kind="codex_not_found"
            )
            place.report("startup_failed", str(error))
            raise error
        return CommandSession(self, place)


class CommandSession(AgentSession):
    """The turns of one attempt. No process outlives its turn."""

    def __init__(self, agent: CommandAgent, place: AgentPlace) -> None:
        super().__init__(place, agent.silence)
        self._agent = agent
        self._runner = LocalRunner(cap=1)
        self._first: str | None = None
        place.report("session_started", session_id=self.id)

    async def turn(self, prompt: str) -> str:
        whole = prompt if self._first is None else f"{self._first}\n\n{prompt}"
        self._first = self._first or prompt
        output = _AgentOutput(self._place, self._alive)
        try:
            return await self._taken(self._run(whole, output))
        finally:
            output.close()

    async def close(self) -> None:
        await super().close()
        await self._runner.close()

    async def _run(self, prompt: str, output: _AgentOutput) -> str:
        argv, stdin = _filled(self._agent.argv, prompt)
        order = Order(argv=argv, cwd=self._place.workspace, env=self._place.env, stdin=stdin)
        try:
            ending = await self._runner.run(order, output.start)
            output.read_rest()
        finally:
            output.close()
        self._tokens += output.tokens
        trouble = _trouble(argv[0], ending, output)
        if trouble is not None:
            raise trouble
        return output.answer()


def _filled(argv: tuple[str, ...], prompt: str) -> tuple[tuple[str, ...], bytes]:
    """The arguments and standard input with the prompt, which is never part of a shell's script."""
    text = prompt.replace("\0", "")
    content = text.encode("utf-8", "backslashreplace")
    if not any(PROMPT in word for word in argv):
        return argv, content
    if len(content) >= _ARGUMENT:
        raise TurnFailed(
            f"the prompt has {len(content)} bytes, too many for an argument; take {PROMPT} out of agent.command, then"
            " it is on standard input",
            kind="turn_failed",
        )
    return tuple(word.replace(PROMPT, content.decode()) for word in argv), b""


def _trouble(program: str, ending: Ending, output: _AgentOutput) -> TurnFailed | None:
    last = output.last_lines()
    why = f": {last}" if last else ""
    if ending.not_started is not None:
        return TurnFailed(f"the agent could not start: {ending.not_started}", kind="codex_not_found")
    if ending.exit_code != 0:
        return TurnFailed(f"the agent {program} {ending.in_words()}{why}", kind="port_exit")
    if output.failed:
        return TurnFailed(f"the agent says that it failed{why}", kind="turn_failed")
    return None


class _AgentOutput:
    """The output of a process while it runs; `alive` is called whenever it prints. Its pipes are ours, the rest is the
    runner's."""

    def __init__(self, place: AgentPlace, alive: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._place, self._alive = place, alive
        self._told = self._loop.time()
        self._kept: dict[int, bytearray] = {}
        self._open: set[int] = set()
        self._lines = LineBuffer()
        self._said: str | None = None
        self.tokens = Tokens()
        self.failed = False
        self._out, self._err = self._pipe(), self._pipe()
        self._reading = self._out[0], self._err[0]

    def start(self, order: Order, files: StandardFiles) -> Child:
        try:
            started = PopenChild(order, (files[0], self._out[1], self._err[1]))
        finally:
            self._close(self._out[1], self._err[1])
        for fd in self._reading:
            os.set_blocking(fd, False)
            self._kept[fd] = bytearray()
            self._loop.add_reader(fd, self._read, fd)
        return started

    def read_rest(self) -> None:
        for fd in self._reading:
            # A pipe holds a megabyte at most; who prints on for ever does not keep us.
            for _ in range(32):
                if fd not in self._open or fd not in self._kept or not self._read(fd):
                    break
        self._heed(self._lines.take())

    def close(self) -> None:
        self._close(*list(self._open))

    def answer(self) -> str:
        """The last message in its JSON lines, else its whole output."""
        if self._said is not None:
            return self._said
        return bytes(self._kept.get(self._reading[0], b"")).decode("utf-8", "replace").strip()

    def last_lines(self) -> str:
        for fd in reversed(self._reading):
            content = bytes(self._kept.get(fd, b""))
            lines = Output(head=content, total=len(content)).last_lines()
            if lines:
                return lines
        return ""

    def _read(self, fd: int) -> bool:
        """True if there may be more."""
        part = read_part(fd)
        if part is None:
            return False
        if not part:
            self._close(fd)
            return False
        kept = self._kept[fd]
        kept += part
        if len(kept) > 2 * KEPT:
            del kept[:-KEPT]
        self._alive()
        if fd == self._reading[0]:
            for line in self._lines.add(part):
                self._heed(line)
        now = self._loop.time()
        if now - self._told >= _OFTEN:
            self._told = now
            self._place.report("notification", _end_of(part))
        return True

    def _heed(self, line: bytes | None) -> None:
        """Read answer, failure and tokens from a JSON line of Claude Code or Codex."""
        if line is None or not line.startswith(b"{"):
            return
        try:
            value = json.loads(line)
        except ValueError:
            return
        if not isinstance(value, dict):
            return
        told = cast("dict[str, Any]", value)
        self._said = _answer_in(told) or self._said
        self.failed = self.failed or told.get("is_error") is True or told.get("type") == "turn.failed"
        usage = told.get("usage")
        if told.get("type") in ("result", "turn.completed") and isinstance(usage, dict):
            self.tokens += _tokens(cast("dict[str, Any]", usage))

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._open.update(ends)
        return ends

    def _close(self, *fds: int) -> None:
        for fd in fds:
            if fd in self._open:
                self._open.discard(fd)
                self._loop.remove_reader(fd)
                os.close(fd)


def _answer_in(told: Mapping[str, Any]) -> str | None:
    item = told.get("item")
    if told.get("type") == "result" and isinstance(told.get("result"), str):
        return told["result"]
    if isinstance(item, dict):
        inner = cast("dict[str, Any]", item)
        if inner.get("type") == "agent_message" and isinstance(inner.get("text"), str):
            return inner["text"]
    return None


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    numbers = [usage.get(name) for name in ("input_tokens", "output_tokens")]
    read, written = (each if type(each) is int and each >= 0 else 0 for each in numbers)
    return Tokens(input=read, output=written, total=read + written)


def _end_of(part: bytes) -> str:
    lines = part[-2000:].decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:500] if lines else ""
