"""ADK's side of it: the plugin, and the same as callbacks of one agent."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hookline.adapters.google_adk.callbacks import Life
from hookline.adapters.google_adk.hooks import Given
from hookline.adapters.google_adk.protocols import (
    CallbackContext,
    ForeignAgent,
    ForeignTool,
    Invocation,
    LlmRequest,
    LlmResponse,
    ToolContext,
)
from hookline.adapters.google_adk.state import cause
from hookline.engine.hook import Mode
from hookline.engine.lifecycle import Approver
from hookline.engine.point import Point, Scope
from hookline.engine.record import Journal, Record
from hookline.errors import UsageError

__all__ = ["Callbacks", "Plugin", "callbacks"]

logger = logging.getLogger(__name__)

_BEYOND_CALLBACKS = frozenset({Scope.RUN, Scope.SESSION, Scope.WORKSPACE})


class Plugin:
    """The methods of `HooklinePlugin`, which is this and ADK's `BasePlugin`.

    hooks: hook files (`hookline.yaml`, `.claude/settings.json`), functions with `@hook(on=...)`, `Hook` objects
    journal: where it is recorded; see `hookline.engine.record`
    approver: who answers `ask`; without one, ADK asks its client to confirm the call
    kinds: tool names to tool kinds (`{"deploy": "shell"}`), for `match: kind:shell`
    """

    def __init__(
        self,
        hooks: Given | Iterable[Given] = (),
        *,
        journal: Journal | None = None,
        watch: Iterable[Callable[[Record], None]] = (),
        approver: Approver | None = None,
        kinds: Mapping[str, str] | None = None,
        workspace: str | Path | None = None,
        name: str = "hookline",
    ) -> None:
        self.name = name
        self._life = Life(
            hooks, journal=journal, watch=watch, approver=approver, kinds=kinds, workspace=workspace
        )

    async def close_session(
        self, session_id: str, *, app_name: str | None = None, user_id: str | None = None
    ) -> None:
        """The conversation is over: its session.end hooks run."""
        await self._life.close_session(session_id, app_name=app_name, user_id=user_id)

    async def close(self) -> None:
        await self._life.close()

    async def on_user_message_callback(self, *, invocation_context: Invocation, user_message: Any) -> Any:
        return await self._life.message_given(invocation_context, user_message)

    async def before_run_callback(self, *, invocation_context: Invocation) -> Any:
        return await self._life.run_started(invocation_context)

    async def after_run_callback(self, *, invocation_context: Invocation) -> None:
        # ADK calls this while the caller's leaving is under way, and has no other word for it.
        left = isinstance(sys.exc_info()[1], GeneratorExit | asyncio.CancelledError)
        left = left or getattr(invocation_context, "is_aborted", False) is True
        await self._life.run_ended(invocation_context, asyncio.CancelledError() if left else None)

    async def on_run_error_callback(self, *, invocation_context: Invocation, error: Exception) -> None:
        await self._life.run_ended(invocation_context, cause(error))

    async def on_event_callback(self, *, invocation_context: Invocation, event: Any) -> Any:
        return self._life.happened(invocation_context, event)

    async def before_agent_callback(self, *, agent: ForeignAgent, callback_context: CallbackContext) -> Any:
        return await self._life.agent_started(agent, callback_context)

    async def after_agent_callback(self, *, agent: ForeignAgent, callback_context: CallbackContext) -> Any:
        return await self._life.agent_ended(callback_context)

    async def on_agent_error_callback(
        self, *, agent: ForeignAgent, callback_context: CallbackContext, error: Exception
    ) -> None:
        await self._life.agent_failed(callback_context, error)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> Any:
        return await self._life.model_asked(callback_context, llm_request)

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> Any:
        return await self._life.model_answered(callback_context, llm_response)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        await self._life.model_broke(callback_context, error)

    async def before_tool_callback(
        self, *, tool: ForeignTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> Any:
        return await self._life.tool_started(tool, tool_args, tool_context)

    async def after_tool_callback(
        self, *, tool: ForeignTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> Any:
        return await self._life.tool_finished(tool_context, result)

    async def on_tool_error_callback(
        self, *, tool: ForeignTool, tool_args: dict[str, Any], tool_context: ToolContext, error: BaseException
    ) -> Any:
        return await self._life.tool_broke(tool_context, error)


class Callbacks(dict[str, Callable[..., Any]]):
    """The callbacks of one or more agents, by the names that `LlmAgent(...)` takes them under."""

    def __init__(self, life: Life) -> None:
        self._life = life

        async def before_agent(callback_context: CallbackContext) -> Any:
            return await life.agent_started(_agent(callback_context), callback_context)

        async def after_agent(callback_context: CallbackContext) -> Any:
            return await life.agent_ended(callback_context)

        async def before_model(callback_context: CallbackContext, llm_request: LlmRequest) -> Any:
            return await life.model_asked(callback_context, llm_request)

        async def after_model(callback_context: CallbackContext, llm_response: LlmResponse) -> Any:
            return await life.model_answered(callback_context, llm_response)

        async def on_model_error(
            callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
        ) -> None:
            await life.model_broke(callback_context, error)

        async def before_tool(tool: ForeignTool, args: dict[str, Any], tool_context: ToolContext) -> Any:
            return await life.tool_started(tool, args, tool_context)

        async def after_tool(
            tool: ForeignTool, args: dict[str, Any], tool_context: ToolContext, tool_response: Any
        ) -> Any:
            return await life.tool_finished(tool_context, tool_response)

        async def on_tool_error(
            tool: ForeignTool, args: dict[str, Any], tool_context: ToolContext, error: BaseException
        ) -> Any:
            return await life.tool_broke(tool_context, error)

        super().__init__(
            before_agent_callback=before_agent,
            after_agent_callback=after_agent,
            before_model_callback=before_model,
            after_model_callback=after_model,
            on_model_error_callback=on_model_error,
            before_tool_callback=before_tool,
            after_tool_callback=after_tool,
            on_tool_error_callback=on_tool_error,
        )

    async def close(self) -> None:
        """End what is still open, and the processes of command hooks."""
        await self._life.close()


def callbacks(
    hooks: Given | Iterable[Given] = (),
    *,
    journal: Journal | None = None,
    watch: Iterable[Callable[[Record], None]] = (),
    approver: Approver | None = None,
    kinds: Mapping[str, str] | None = None,
    workspace: str | Path | None = None,
    only_what_fits: bool = False,
) -> Callbacks:
    """The hooks as an agent's callbacks: `LlmAgent(..., **callbacks("hookline.yaml"))`.

    ADK has no such callbacks for runs and sessions. A hook that stands there is refused, or only told of with
    `only_what_fits`; the plugin has them all.
    """
    life = Life(hooks, journal=journal, watch=watch, approver=approver, kinds=kinds, workspace=workspace)
    for hook in life.hooks:
        beyond = sorted(
            point for point in hook.points if isinstance(point, Point) and point.scope in _BEYOND_CALLBACKS
        )
        if not beyond or hook.mode is Mode.OFF:
            continue
        text = f"hook {hook.name} [{hook.source}] stands at {', '.join(beyond)}, which callbacks cannot reach"
        if not only_what_fits:
            raise UsageError(f"{text}; use HooklinePlugin, or only_what_fits=True to leave it out there")
        logger.warning("%s", text)
    return Callbacks(life)


def _agent(context: CallbackContext) -> Any:
    return getattr(context, "_invocation_context").agent  # noqa: B009
