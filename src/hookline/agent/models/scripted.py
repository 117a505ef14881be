"""A model that answers from a script: for tests, demonstrations and work without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from hookline.agent.models import Reply, Request, TextDelta
from hookline.agent.models.script import ScriptRanOut, ScriptTurn, TurnScript, expected, read_file, read_turn
from hookline.errors import ModelFailed


class Scripted:
    """Answers with the turns of a script, in order. `requests` keeps all requests."""

    provider = "scripted"

    def __init__(self, turns: Sequence[Any], *, name: str = "scripted", repeat: bool = False) -> None:
        self.name = name
        self.requests: list[Request] = []
        self._script = TurnScript(turns, read_turn, repeat=repeat)

    @classmethod
    def of_file(cls, file: str | Path) -> Scripted:
        """The script in a YAML or JSON file: a list of turns, or a mapping with `turns` and `repeat`."""
        turns, repeat = read_file(Path(file))
        return cls(turns, name=str(file), repeat=repeat)

    async def stream(self, request: Request) -> AsyncIterator[TextDelta | Reply]:
        self.requests.append(request)
        turn = self._turn(request)
        if turn.delay:
            await asyncio.sleep(turn.delay)
        text = ""
        for piece in turn.pieces:
            text += piece
            yield TextDelta(text=piece)
        if turn.error is not None:
            raise ModelFailed(f"{self._who}: {turn.error}")
        if not text and not turn.tools:
            raise ModelFailed(f"{self._who}: answered with neither text nor a tool call")
        calls = self._script.calls(turn)
        stop_reason = "tool_calls" if calls else "stop"
        yield Reply(text=text or None, tool_calls=calls, usage=turn.usage, stop_reason=stop_reason)

    async def close(self) -> None:
        pass

    @property
    def _who(self) -> str:
        return f"{self.provider} model {self.name!r}"

    def _turn(self, request: Request) -> ScriptTurn:
        try:
            turn = self._script.next(request)
        except ScriptRanOut as exc:
            raise ModelFailed(f"{self._who}: {exc}") from exc
        last = request.messages[-1] if request.messages else None
        complaint = expected(turn, last)
        if complaint:
            raise ModelFailed(f"{self._who}: {complaint}")
        return turn
