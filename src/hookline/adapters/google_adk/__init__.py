"""Hooks around agents of Google's ADK, as a plugin or as callbacks.

    runner = InMemoryRunner(agent=agent, plugins=[HooklinePlugin("hookline.yaml")])
    agent = LlmAgent(..., **callbacks("hookline.yaml"))

google-adk is loaded when `HooklinePlugin` is asked for or `callbacks` called; all else here can be used without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hookline.engine.point import Scope
from hookline.errors import needs

if TYPE_CHECKING:
    from hookline.adapters.google_adk.plugin import HooklinePlugin, HookSource

__all__ = ["TESTED", "AdkGap", "Callbacks", "HooklinePlugin", "callbacks", "gaps"]

TESTED = "2.13.0"
"""The release of google-adk that all of this was tried with."""


def __getattr__(name: str) -> Any:
    """Load `HooklinePlugin` when it is asked for: its base is a class of ADK, which its App checks for."""
    if name != "HooklinePlugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs("HooklinePlugin", "adk"):
        from hookline.adapters.google_adk.plugin import HooklinePlugin
    return HooklinePlugin


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
    `only_what_fits`; the plugin has them all. `settings` are the plugin's own: journal, watch, approver, kinds, workspace.
    `await close()` ends what is still open, and the processes of command hooks.
    """

    def __init__(
        self,
        hooks: HookSource | Iterable[HookSource] = (),
        *,
        only_what_fits: bool = False,
        **settings: Any,
    ) -> None:
        with needs("callbacks", "adk"):
            from hookline.adapters.google_adk.plugin import HooklinePlugin, check_reach
        plugin = HooklinePlugin(hooks, **settings)
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
    import yaml

    rows = yaml.safe_load(Path(__file__).with_name("gaps.yaml").read_text(encoding="utf-8"))
    return tuple(AdkGap(tuple(row["points"]), row["text"]) for row in rows)
