"""What a user gives the plugin, made live: hook files, functions, hooks; and what kind each of ADK's tools is of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hookline.adapters.google_adk.protocols import ForeignTool
from hookline.claude.tools import TOOLS
from hookline.engine.declaration import HookDeclaration
from hookline.engine.hook import Hook
from hookline.handlers.python import python_hook
from hookline.pyagent.load import load_hooks
from hookline.runners.local import LocalRunner

__all__ = ["Given", "declared", "kind_of", "live", "several"]

logger = logging.getLogger(__name__)

Given = str | Path | Hook | Callable[..., Any]
"""A hook file, a hook, or a function with `@hook(on=...)`."""

KINDS: Mapping[str, str] = {
    "list_files": "search",
    **{name: tool.kind for table in TOOLS.values() for name, tool in table.items()},
}
"""What tools of these names are, where nobody says otherwise."""

CLASSES: Mapping[str, str] = {
    "AgentTool": "agent",
    "TransferToAgentTool": "agent",
    "MCPTool": "mcp",
    "McpTool": "mcp",
    "ExecuteBashTool": "shell",
    "UrlContextTool": "web",
    "GoogleSearchTool": "web",
}
"""The same for classes of ADK's own, a tool of which may have any name."""


def kind_of(tool: ForeignTool, said: Mapping[str, str]) -> str:
    """What its owner says it is, else what its class or its name is known for."""
    return said.get(tool.name) or CLASSES.get(type(tool).__name__) or KINDS.get(tool.name, "other")


def several(given: Given | Iterable[Given]) -> list[Given]:
    return [given] if isinstance(given, str | Path | Hook) or callable(given) else list(given)


def live(given: Iterable[Given], runner: LocalRunner) -> tuple[Hook, ...]:
    found: list[Hook] = []
    for each in given:
        if isinstance(each, Hook):
            found.append(each)
        elif isinstance(each, str | Path):
            found += _of_file(each, runner)
        else:
            found.append(python_hook(each))
    return tuple(found)


def declared(hook: Hook) -> HookDeclaration:
    return HookDeclaration(
        name=hook.name,
        points=tuple(sorted(hook.points)),
        kind=hook.kind,
        match=hook.match_text,
        timeout=hook.timeout,
        on_error=hook.on_error,
        mode=hook.mode,
        source=hook.source,
    )


def _of_file(file: str | Path, runner: LocalRunner) -> list[Hook]:
    attached = load_hooks(str(file), runner)
    if attached.problems:
        raise attached.problems[0]
    for note in (*attached.notes, *attached.doubts):
        logger.warning("%s", note)
    return attached.hooks
