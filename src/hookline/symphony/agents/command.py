"""Any command-line agent, such as `claude -p` or `codex exec`: one process a turn.

The prompt is one argument, where the command has `{prompt}`, else it is on standard input. A process knows nothing
of the one before it, so later turns get the first prompt again. If the agent prints JSON lines, its answer and its
tokens are read from them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from typing import Any

from hookline.engine.context import Usage
from hookline.engine.plain import json_or_none, mapping
from hookline.runners import Ending, Order
from hookline.runners.local import LocalRunner
from hookline.symphony.agents import AgentPlace, AgentSession, LineBuffer, TurnFailed

PROMPT = "{prompt}"
KEPT = 256 * 1024
"""Bytes of an agent's output that are kept, of a longer one its beginning and its end."""
_OFTEN = 0.1
"""Seconds between two signs of life that are passed on."""
_ARGUMENT = 128 * 1024
"""Bytes of one argument that Linux takes."""


class CommandSession(AgentSession):
    """The turns of one attempt. No process outlives its turn."""

    def __init__(self, place: AgentPlace, *, argv: tuple[str, ...], silence: float) -> None:
        super().__init__(place, silence)
        self._argv = argv
        self._runner = LocalRunner(cap=1, on_output=self._heard)
        self._first: str | None = None
        self._report = _TurnReport()
        self._told_at = 0.0

    async def close(self) -> None:
        await super().close()
        await self._runner.close()

    async def _begin(self) -> None:
        program, place = self._argv[0], self._place
        found = shutil.which(
            os.path.join(place.workspace, program) if "/" in program else program, path=place.env.get("PATH")
        )
        if found is None:
            raise TurnFailed(
                f"the agent {program!r} was not found; is it installed and on PATH?", kind="codex_not_found"
            )
        place.report("session_started", session_id=self.id)

    async def _run(self, prompt: str) -> str:
        whole = prompt if self._first is None else f"{self._first}\n\n{prompt}"
        self._first = self._first or prompt
        argv, stdin = _filled(self._argv, whole)
        self._report = report = _TurnReport()
        self._told_at = asyncio.get_running_loop().time()
        ending = await self._runner.run(
            Order(argv=argv, cwd=self._place.workspace, env=self._place.env, stdin=stdin, output_cap=KEPT)
        )
        report.end()
        self._tokens += report.tokens
        _check_end(argv[0], ending, failed=report.failed)
        return ending.stdout.text.strip() if report.answer is None else report.answer

    def _heard(self, part: bytes, is_stdout: bool) -> None:
        self._alive()
        if is_stdout:
            self._report.add(part)
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= _OFTEN:
            self._told_at = now
            self._place.report("notification", _end_of(part))


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


def _check_end(program: str, ending: Ending, *, failed: bool) -> None:
    last = ending.last_lines()
    why = f": {last}" if last else ""
    if ending.not_started is not None:
        raise TurnFailed(f"the agent could not start: {ending.not_started}", kind="codex_not_found")
    if ending.exit_code != 0:
        raise TurnFailed(f"the agent {program} {ending.in_words()}{why}", kind="port_exit")
    if failed:
        raise TurnFailed(f"the agent says that it failed{why}", kind="turn_failed")


class _TurnReport:
    """Answer, failure and tokens in the JSON lines of Claude Code or Codex; without such lines there is no answer."""

    def __init__(self) -> None:
        self._lines = LineBuffer()
        self.answer: str | None = None
        self.tokens = Usage()
        self.failed = False

    def add(self, part: bytes) -> None:
        for line in self._lines.add(part):
            self._heed(line)

    def end(self) -> None:
        self._heed(self._lines.take())

    def _heed(self, line: bytes | None) -> None:
        if line is None or not line.startswith(b"{"):
            return
        told = json_or_none(line) or {}
        self.answer = _answer_in(told) or self.answer
        self.failed = self.failed or told.get("is_error") is True or told.get("type") == "turn.failed"
        if told.get("type") in ("result", "turn.completed"):
            self.tokens += _tokens(mapping(told.get("usage")))


def _answer_in(told: Mapping[str, Any]) -> str | None:
    item = mapping(told.get("item"))
    if told.get("type") == "result" and isinstance(told.get("result"), str):
        return told["result"]
    if item.get("type") == "agent_message" and isinstance(item.get("text"), str):
        return item["text"]
    return None


def _tokens(usage: Mapping[str, Any]) -> Usage:
    numbers = [usage.get(name) for name in ("input_tokens", "output_tokens")]
    read, written = (each if type(each) is int and each >= 0 else 0 for each in numbers)
    return Usage(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _end_of(part: bytes) -> str:
    lines = part[-2000:].decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:500] if lines else ""
