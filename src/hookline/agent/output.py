"""The output of an agent: the whole answer, a stream of events that ends with it, and the schema of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from hookline.engine.context import ToolResult, Usage

if TYPE_CHECKING:
    from pydantic import ValidationError


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """An agent's answer to one input. `stopped_by` names the condition that ended it early, if one did."""

    agent_run_id: str
    result: Any
    tool_results: tuple[ToolResult, ...] = ()
    total_steps: int = 0
    usage: Usage = Usage()
    result_schema: str | None = None
    session_id: str | None = None
    stopped_by: str | None = None
    notices: tuple[str, ...] = ()

    @classmethod
    def model_validate(cls, value: Mapping[str, Any]) -> AgentResult:
        """Rebuilds a result from the plain form that hooks read and change."""
        given = dict(value)
        given["tool_results"] = tuple(ToolResult(**item) for item in given.get("tool_results") or ())
        given["usage"] = Usage(**cast("dict[str, int]", given.get("usage") or {}))
        given["notices"] = tuple(given.get("notices") or ())
        return cls(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a stream.

    `type`: agent_start, step_start, text_delta, tool_call, tool_start, tool_finish, notice, agent_finish,
    agent_error. The last event of a stream is always one of the last two.
    """

    type: str
    agent: str
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


class StreamResult:
    """A run in progress. Iterate `events` or `text_chunks`, or await `text()` or `result()`."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Task[AgentResult] | None = None

    def follow(self, task: asyncio.Task[AgentResult]) -> None:
        self._task = task
        task.add_done_callback(lambda _: self._queue.put_nowait(None))

    def emit(self, event: Event) -> None:
        self._queue.put_nowait(event)

    @property
    async def events(self) -> AsyncIterator[Event]:
        while (event := await self._queue.get()) is not None:
            yield event
        self._queue.put_nowait(None)
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.exception()  # reported by the last event

    @property
    async def text_chunks(self) -> AsyncIterator[str]:
        async for event in self.events:
            if event.type == "text_delta":
                yield event.text
        if self._task is not None and not self._task.cancelled():
            await self._task

    async def text(self) -> str:
        """The whole text; raises if the run failed, so that a partial answer is not taken for a whole one."""
        return "".join([piece async for piece in self.text_chunks])

    async def result(self) -> AgentResult:
        if self._task is None:
            raise RuntimeError("the stream was not started")
        return await asyncio.shield(self._task)

    @property
    def done(self) -> bool:
        """True if the run and its end hooks are over."""
        return self._task is not None and self._task.done()

    def cancel(self) -> None:
        """Cancels the run; its end hooks still run."""
        if self._task is not None:
            self._task.cancel()


class DoesNotFit(ValueError):
    """An answer that does not match the schema; the message is for the model."""


class OutputSchema:
    """A pydantic model class, or any type that pydantic can check."""

    def __init__(self, kind: Any) -> None:
        from pydantic import TypeAdapter

        self.kind = kind
        self.name: str = getattr(kind, "__name__", str(kind))
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)

    @property
    def json_schema(self) -> dict[str, Any]:
        return self._adapter.json_schema()

    def read(self, text: str | None) -> Any:
        """The answer as a value; code fences around it are ignored."""
        return self._checked(lambda: self._adapter.validate_json(_bare(text or "")))

    def check(self, value: Any) -> Any:
        """Validates a value with which a hook replaced the answer."""
        return self._checked(lambda: self._adapter.validate_python(value))

    def _checked(self, read: Any) -> Any:
        from pydantic import ValidationError

        try:
            return read()
        except ValidationError as exc:
            raise DoesNotFit(f"the answer does not fit {self.name}: {faults(exc, 'answer')}") from None


def _bare(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```"):
        body = stripped[3:-3]
        first, _, rest = body.partition("\n")
        return rest if first.strip().isalpha() or not first.strip() else body
    return stripped


def faults(exc: ValidationError, whole: str = "") -> str:
    """The mistakes that pydantic found, each with its place; `whole` names the value itself."""
    found = [(".".join(map(str, error["loc"])), error["msg"]) for error in exc.errors(include_url=False)]
    return "; ".join(f"{place or whole}: {text}" for place, text in found)
