"""Hooks around agents of Google's ADK, as a plugin or as callbacks.

    runner = InMemoryRunner(agent=agent, plugins=[HooklinePlugin("hookline.yaml")])
    agent = LlmAgent(..., **callbacks("hookline.yaml"))

`HooklinePlugin` loads google-adk when it is asked for; all else here can be used without it.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from hookline.adapters.google_adk.gaps import TESTED, Gap, gaps
from hookline.errors import UsageError

if TYPE_CHECKING:
    # ADK is not in the environment that hookline itself is checked in; in a user's it is, and there this is its class.
    from google.adk.plugins.base_plugin import (  # pyright: ignore[reportMissingImports]
        BasePlugin,  # pyright: ignore[reportUnknownVariableType]
    )

    from hookline.adapters.google_adk.plugin import Callbacks, Plugin, callbacks

    class HooklinePlugin(Plugin, BasePlugin):  # pyright: ignore[reportUntypedBaseClass]
        """The plugin, as type checkers see it."""


__all__ = ["TESTED", "Callbacks", "Gap", "HooklinePlugin", "callbacks", "gaps"]


def __getattr__(name: str) -> Any:
    if name == "HooklinePlugin":
        return _plugin()
    if name in __all__:
        return getattr(importlib.import_module("hookline.adapters.google_adk.plugin"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _plugin() -> type:
    """Our methods on ADK's own class, which its App checks for."""
    try:
        adk = importlib.import_module("google.adk.plugins.base_plugin")
    except ModuleNotFoundError as exc:
        raise UsageError(f"google-adk is not installed ({exc}); pip install 'hookline[adk]'") from exc
    ours = importlib.import_module("hookline.adapters.google_adk.plugin").Plugin
    return type("HooklinePlugin", (ours, adk.BasePlugin), {"__doc__": ours.__doc__, "__module__": __name__})
