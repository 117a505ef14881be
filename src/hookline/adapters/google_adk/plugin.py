"""ADK's callbacks as our points: the plugin, and the same as callbacks of one agent.

ADK tells of a run's end only when it went well (`after_run`) or raised (`on_run_error`); of an agent's end not when
it handed over to another, nor when the caller left. Whatever is still open when the outer one ends is ended first.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hookline.adapters.google_adk.messages import adk_class, text_content, text_of, with_text
from hookline.adapters.google_adk.runs import HookSource, OpenRuns, invocation_of
from hookline.adapters.google_adk.tools import BODY, AdkCall, cause
from hookline.claude.events import TOOLS
from hookline.engine.hook import Hook, Mode
from hookline.engine.lifecycle import Approver
from hookline.engine.plain import as_text, plain
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Journal, Record
from hookline.engine.result import HookAction
from hookline.errors import Skipped, UsageError

logger = logging.getLogger(__name__)

TOOL_CLASSES: Mapping[str, str] = {
    "AgentTool": "agent",
    "TransferToAgentTool": "agent",
    "MCPTool": "mcp",
    "McpTool": "mcp",
    "ExecuteBashTool": "shell",
    "UrlContextTool": "web",
    "GoogleSearchTool": "web",
}
"""Kinds of ADK's own tools by their class, for they may have any name."""
TOOL_NAMES: Mapping[str, str] = {
    "list_files": "search",
    **{name: tool.kind for table in TOOLS.values() for name, tool in table.items()},
}
"""Kinds of other tools by their usual names."""


class Plugin(OpenRuns):
    """The methods of `HooklinePlugin`, which is this and ADK's `BasePlugin`.

    hooks: hook files (`hookline.yaml`, `.claude/settings.json`), functions with `@hook(on=...)`, `Hook` objects
    journal: where it is recorded; see `hookline.engine.record`
    approver: who answers `ask`; without one, ADK asks its client to confirm the call
    kinds: tool names to tool kinds (`{"deploy": "shell"}`), for `match: kind:shell`
    """

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> Any:
        """Begin a run; a content takes the message's place."""
        run = await self._begin(invocation_context, user_message)
        outcome, text = run.scope.outcome, text_of(user_message)
        if run.outer is not None or outcome is None or not outcome.changed or not text:
            return None
        new = _input(outcome.payload, Point.RUN_START)
        return with_text(user_message, new) if new != text else None

    async def before_run_callback(self, *, invocation_context: Any) -> Any:
        """Begin the session, and the run where it came without a message; a content ends the run with it."""
        run = self._run_of(invocation_context) or await self._begin(
            invocation_context, invocation_context.user_content
        )
        if run.status is Status.SKIPPED:
            return text_content(run.result or "", "model")
        if _is_live(invocation_context):
            # There ADK asks its model callbacks about scraps, in no order of calls; no guard may rest on that.
            _check_reach(
                self.hooks,
                {Scope.STEP, Scope.MODEL},
                "which live mode does not have",
                "take it out, or set its mode to observe",
                lambda hook: hook.mode is Mode.ENFORCE,
            )
        if run.outer is None:
            try:
                await self._open_session(run)
            except asyncio.CancelledError as exc:
                # ADK tells its plugins nothing of a run that is cancelled before its first agent.
                await self._end_run(run, exc)
                raise
        return None

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        # ADK calls this while the caller's leaving is under way, and has no other word for it.
        left = isinstance(sys.exc_info()[1], GeneratorExit | asyncio.CancelledError)
        left = left or getattr(invocation_context, "is_aborted", False) is True
        await self._end_run(self._run_of(invocation_context), asyncio.CancelledError() if left else None)

    async def on_run_error_callback(self, *, invocation_context: Any, error: Exception) -> None:
        await self._end_run(self._run_of(invocation_context), cause(error))

    async def on_event_callback(self, *, invocation_context: Any, event: Any) -> Any:
        """Take note of what an agent said; an event carries what hooks have for the user."""
        run = self._run_of(invocation_context)
        if run is None:
            return None
        text = text_of(event.content) if event.content else ""
        if text and not event.partial:
            run.texts[event.author] = text
            if event.is_final_response():
                run.result = text
        if not run.notices or run.outer is not None:
            return None
        notices, run.notices[:] = list(run.notices), []
        known = dict(event.custom_metadata or {})
        return event.model_copy(update={"custom_metadata": {**known, "hookline": {"notices": notices}}})

    async def before_agent_callback(self, callback_context: Any, agent: Any = None) -> Any:
        """Begin an agent's work; a content stands in for it."""
        invocation = invocation_of(callback_context)
        at_work = await self._take_up(invocation)
        run = at_work.run
        original = text_of(invocation.user_content)
        given = run.rewritten.get(original, original)
        streaming = str(getattr(invocation.run_config, "streaming_mode", "")).lower().endswith("sse")
        payload: dict[str, Any] = {
            "input": given,
            "prompt": given,
            "streaming": streaming,
            "provider_kwargs": {},
        }
        at_work.over = True
        try:
            outcome = await run.start(at_work.scope, payload)
        except Skipped as exc:
            if not at_work.outermost:
                raise
            run.status = Status.SKIPPED
            return text_content(exc.reason, "model")
        except asyncio.CancelledError as exc:
            if at_work.parent is None:
                # ADK ends a cancelled run without another word; with its outermost agent, the run is over.
                await self._end_run(run, exc)
            raise
        if outcome.action is HookAction.BLOCK:
            if at_work.outermost:
                run.status = Status.BLOCKED
            return text_content(f"refused: {outcome.reason}", "model")
        at_work.in_next_request.extend(outcome.tell_model)
        if outcome.answered:
            ending = await run.end(at_work.scope, outcome.output, Status.ANSWERED)
            return text_content(as_text(plain(ending.output)), "model")
        at_work.over = False
        new = _input(outcome.payload, Point.AGENT_START)
        if new != given:
            run.rewritten[original] = new
        return None

    async def after_agent_callback(self, callback_context: Any, agent: Any = None) -> Any:
        """End an agent's work; a content comes after all that it said."""
        at_work = self._agent_of(callback_context)
        if at_work is None:
            return None
        run = at_work.run
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            cancelled = asyncio.CancelledError()
            await (at_work.end(cancelled) if at_work.parent is not None else self._end_run(run, cancelled))
            return None
        ending = await at_work.end()
        if run.implied and at_work.parent is None and all(agent.over for agent in run.agents.values()):
            await self._end_run(run)
        if ending is None or not ending.changed:
            return None
        return text_content(as_text(plain(getattr(ending.output, "result", ending.output))), "model")

    async def on_agent_error_callback(self, *, agent: Any, callback_context: Any, error: Exception) -> None:
        at_work = self._agent_of(callback_context)
        if at_work is not None:
            await at_work.end(cause(error))

    async def before_model_callback(self, callback_context: Any, llm_request: Any) -> Any:
        if _is_live(invocation_of(callback_context)):
            return None
        return await (await self._at_work(callback_context)).request_made(llm_request)

    async def after_model_callback(self, callback_context: Any, llm_response: Any) -> Any:
        if _is_live(invocation_of(callback_context)):
            return None
        return await (await self._at_work(callback_context)).response_received(llm_response)

    async def on_model_error_callback(
        self, callback_context: Any, llm_request: Any, error: Exception
    ) -> None:
        await (await self._at_work(callback_context)).model_failed(cause(error))

    async def before_tool_callback(self, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> Any:
        at_work = await self._at_work(tool_context)
        name, kind_of_class = tool.name, TOOL_CLASSES.get(type(tool).__name__)
        kind = self._kinds.get(name) or kind_of_class or TOOL_NAMES.get(name, "other")
        at_work.run.tools[name] = kind
        # ADK makes a bare BaseTool in the place of a name that no tool has, and tells the model.
        known = type(tool) is not adk_class("tools.base_tool", "BaseTool")
        call_id = tool_context.function_call_id or None
        facts = {"current_tool": name, "tool_kind": kind, "call_id": call_id}
        scope = at_work.open(Scope.TOOL, name=name, hooks=known, **facts)
        if known:
            return await AdkCall(at_work, scope, tool_args, tool_context).start()
        await scope.enter(dict(tool_args))
        await scope.leave(None, Status.FAILED, error=f"there is no tool {name!r}")
        return None

    async def after_tool_callback(self, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> Any:
        call = _call_of(tool_context)
        return await call.finish(result) if call is not None else None

    async def on_tool_error_callback(
        self, tool: Any, tool_args: Any, tool_context: Any, error: BaseException
    ) -> Any:
        call = _call_of(tool_context)
        return await call.fail(error) if call is not None else None


AGENT_CALLBACKS = (
    "before_agent_callback",
    "after_agent_callback",
    "before_model_callback",
    "after_model_callback",
    "on_model_error_callback",
    "before_tool_callback",
    "after_tool_callback",
    "on_tool_error_callback",
)
PLUGIN_NAMES = {"args": "tool_args", "tool_response": "result"}
"""Parameters of an agent's callbacks that a plugin's call by other names."""


class Callbacks(dict[str, Callable[..., Any]]):
    """The callbacks of one or more agents, by the names that `LlmAgent(...)` takes them under."""

    def __init__(self, plugin: Plugin) -> None:
        super().__init__({name: _renamed(getattr(plugin, name)) for name in AGENT_CALLBACKS})
        self._plugin = plugin

    async def close(self) -> None:
        """End what is still open, and the processes of command hooks."""
        await self._plugin.close()


def callbacks(
    hooks: HookSource | Iterable[HookSource] = (),
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
    plugin = Plugin(hooks, journal=journal, watch=watch, approver=approver, kinds=kinds, workspace=workspace)
    _check_reach(
        plugin.hooks,
        {Scope.RUN, Scope.SESSION, Scope.WORKSPACE},
        "which callbacks cannot reach",
        "use HooklinePlugin, or only_what_fits=True to leave it out there",
        lambda _: not only_what_fits,
    )
    return Callbacks(plugin)


def _renamed(method: Callable[..., Any]) -> Callable[..., Any]:
    async def callback(*args: Any, **named: Any) -> Any:
        return await method(*args, **{PLUGIN_NAMES.get(name, name): each for name, each in named.items()})

    return callback


def _check_reach(
    hooks: Iterable[Hook], scopes: set[Scope], why: str, remedy: str, is_refused: Callable[[Hook], bool]
) -> None:
    """Refuse, or tell of, every hook that stands where it is never called."""
    for hook in hooks:
        points = sorted(each for each in hook.points if isinstance(each, Point) and each.scope in scopes)
        if not points or hook.mode is Mode.OFF:
            continue
        text = f"hook {hook.name} [{hook.source}] stands at {', '.join(points)}, {why}"
        if is_refused(hook):
            raise UsageError(f"{text}; {remedy}")
        logger.warning("%s", text)


def _call_of(context: Any) -> AdkCall | None:
    """The call of ours that a callback after its body is for; none where it was refused or answered."""
    call = BODY.get()
    return call if call is not None and call.context is context else None


def _is_live(invocation: Any) -> bool:
    return getattr(invocation, "live_request_queue", None) is not None


def _input(payload: Any, point: Point) -> str:
    given: Any = payload.get("input") if isinstance(payload, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] a hook made it
    if given is None:
        raise UsageError(f"the hooks at {point} left no 'input' in the payload")
    return as_text(plain(given))
