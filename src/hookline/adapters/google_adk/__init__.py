"""Hooks around agents of Google's ADK, as a plugin or as callbacks.

    runner = InMemoryRunner(agent=agent, plugins=[HooklinePlugin("hookline.yaml")])
    agent = LlmAgent(..., **callbacks("hookline.yaml"))

`HooklinePlugin` loads google-adk when it is asked for; all else here can be used without it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hookline.adapters.google_adk.plugin import HookSource, Plugin, check_reach
from hookline.engine.lifecycle import Approver
from hookline.engine.point import Scope
from hookline.engine.record import Journal, Record
from hookline.errors import needs

if TYPE_CHECKING:
    # ADK is not in the environment that hookline itself is checked in; in a user's it is, and there this is its class.
    from google.adk.plugins.base_plugin import (  # pyright: ignore[reportMissingImports]
        BasePlugin,  # pyright: ignore[reportUnknownVariableType]
    )

    class HooklinePlugin(Plugin, BasePlugin):  # pyright: ignore[reportUntypedBaseClass]
        """The plugin, as type checkers see it."""


__all__ = ["TESTED", "AdkGap", "Callbacks", "HooklinePlugin", "callbacks", "gaps"]

TESTED = "2.13.0"
"""The release of google-adk that all of this was tried with."""


def __getattr__(name: str) -> Any:
    """Make `HooklinePlugin`: our methods on ADK's own class, which its App checks for."""
    if name != "HooklinePlugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs("HooklinePlugin", "adk"):
        adk = importlib.import_module("google.adk.plugins.base_plugin")
    made = type(name, (Plugin, adk.BasePlugin), {"__doc__": Plugin.__doc__, "__module__": __name__})
    globals()[name] = made
    return made


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
    """The hooks as callbacks of one or more agents, by the names that `LlmAgent(...)` takes them under.

    ADK has no such callbacks for runs and sessions. A hook that stands there is refused, or only told of with
    `only_what_fits`; the plugin has them all. `await close()` ends what is still open, and the processes of command hooks.
    """

    def __init__(
        self,
        hooks: HookSource | Iterable[HookSource] = (),
        *,
        journal: Journal | None = None,
        watch: Iterable[Callable[[Record], None]] = (),
        approver: Approver | None = None,
        kinds: Mapping[str, str] | None = None,
        workspace: str | Path | None = None,
        only_what_fits: bool = False,
    ) -> None:
        plugin = Plugin(
            hooks, journal=journal, watch=watch, approver=approver, kinds=kinds, workspace=workspace
        )
        check_reach(
            plugin.hooks,
            {Scope.RUN, Scope.SESSION, Scope.WORKSPACE},
            "which callbacks cannot reach",
            "use HooklinePlugin, or only_what_fits=True to leave it out there",
            lambda _: not only_what_fits,
        )
        super().__init__({name: _renamed(getattr(plugin, name)) for name in AGENT_CALLBACKS})
        self.close = plugin.close


def _renamed(method: Callable[..., Any]) -> Callable[..., Any]:
    async def callback(*args: Any, **named: Any) -> Any:
        return await method(*args, **{PLUGIN_NAMES.get(name, name): each for name, each in named.items()})

    return callback


callbacks = Callbacks
"""`LlmAgent(..., **callbacks("hookline.yaml"))`"""


class AdkGap(NamedTuple):
    """One path that is not, or not wholly, hooked. `points` are those it concerns."""

    points: tuple[str, ...]
    text: str


def gaps() -> tuple[AdkGap, ...]:
    """Paths that ADK lets nobody hook, as data: `hookline explain --for adk` prints them, and so does the guide."""
    rows = (row.split(" | ") for row in _GAPS.strip().splitlines())
    return tuple(AdkGap(tuple(points.split(", ")), text) for points, text in rows)


_GAPS = """
workspace.start, workspace.end | ADK has no workspaces; a hook that stands there alone never runs.
tool.start, tool.end | Tools that the model's provider runs itself (Google Search, URL context, code execution in Gemini) never reach ADK's tool callbacks.
tool.start, tool.end | Code that a `code_executor` runs from a model's answer is no tool call. model.end sees the text with the code in it before it runs, and a hook there can refuse it.
tool.end | A long-running tool: tool.end sees what the call returned at once, often nothing. Its real result comes later in a message of the client's, which is no tool call; model.start sees it.
tool.end | Where a plugin after hookline, or a before_tool_callback of the agent's own, answers in the tool's place without asking a person, ADK does not say that the tool never ran: tool.end runs on that answer.
tool.start, tool.end, model.start, model.end, agent.start, agent.end | A plugin before hookline in the list that answers for itself keeps every later plugin from being called. Put hookline first; then its tool.start hooks also run in call order before any tool of the step does.
tool.end | A tool that raises ends its step at once, as ADK has it: its tool.end does not wait for the tools beside it, which are cancelled and told so.
agent.start, agent.end, model.start, model.end, tool.start, tool.end | What goes on inside `AgentTool(..., include_plugins=False)`, or in an agent on another server (A2A), is without the plugin; only the call of it is hooked.
tool.start | `ask` inside an AgentTool is a refusal unless hookline has an approver: ADK cannot take up again what an AgentTool paused.
agent.start, model.start, run.end | `ask` here needs hookline's approver; ADK's own confirmation is for tools only.
agent.end | What an agent said has been shown when agent.end runs. A changed output comes as one more event after it; a block ends the run with an error, for ADK cannot send an agent back to work.
run.end | A changed output is on record and reaches nobody: ADK takes no answer from after_run.
agent.end | An agent that hands over to another is ended when the run is, not when it hands over: ADK calls nothing then.
step.end | A step is over when the next request is made or the agent ends; ADK has no callback after the tools. A changed step is on record only.
session.end | ADK does not say when a conversation is over: call `plugin.close_session(id)`, or close the runner. ADK gives a plugin 5 seconds to close.
step.start, step.end, model.start, model.end | Live mode (`run_live`) has no model calls to stand around: a run there is refused while a hook is to enforce something at these points.
tool.end | Live mode: the tool.end of a tool that streams sees that it was started, not what it sends.
tool.start, tool.end | Nodes of a workflow that are plain functions call no callback; nodes that are tools or agents do. `ask` at a tool node is a refusal unless hookline has an approver.
tool.start, tool.end, model.start | Writing to memory services, compaction of the history, and artifacts that ADK saves by itself call no callback.
run.start, run.end, session.start, session.end | `callbacks(...)` on an agent: ADK has no callback there for runs and sessions, nor for an agent that raises; such an agent's end is run with the next turn, or by `close()`.
"""
