"""The table of systems: which one a file belongs to, and the module that knows it.

A command finds the system of its file and calls the function of that name. Each module is loaded only when a file
may be its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from hookline.engine.hook import Hook
from hookline.errors import UsageError
from hookline.options import (
    CheckOptions,
    ExplainOptions,
    RunOptions,
    ServeOptions,
    TryOptions,
    refuse_foreign,
)
from hookline.terminal import Explained, Problems

if TYPE_CHECKING:
    from hookline.agent import Loaded


class System(Protocol):
    """A module that knows one kind of file."""

    NAME: str
    """The name of such a file in messages."""

    def matches(self, target: str) -> bool:
        """True if the target is such a file; `agent.py:name` is a target too."""
        ...

    def load(self, target: str) -> Any:
        """The file as a value of the system's own."""
        ...

    def problems(self, target: str, options: CheckOptions, hooks: Sequence[Hook]) -> Problems:
        """Every mistake in the file; nothing of it is run. `hooks` are those of the command line."""
        ...

    def explain(self, options: ExplainOptions) -> Explained: ...

    def try_(self, options: TryOptions) -> int:
        """Fire a made-up event; 1 if it is refused."""
        ...

    def run(self, options: RunOptions) -> int: ...

    def serve(self, options: ServeOptions) -> int: ...


SYSTEMS = ("symphony", "sympozium", "kagent", "hookfile", "pyagent")
"""In the order in which they are tried for a file; the last one takes every file that is left."""

AGENTS = ("kagent", "pyagent")
"""Those that load an agent; `pyagent` runs, serves and explains what either of them has loaded."""


def name_of(target: str) -> str:
    """The system that a target belongs to."""
    return next(name for name in SYSTEMS if _module(name).matches(target))


def load_agent(target: str) -> Loaded:
    """The agent of a file in Python or of a manifest."""
    return _module(name_of(target)).load(target)


def problems(target: str, options: CheckOptions, hooks: Sequence[Hook]) -> Problems:
    name = name_of(target)
    more = (_module("pyagent").agent_problems,) if name == "kagent" else ()
    return _module(name).problems(target, options, hooks, *more)


def explain(options: ExplainOptions) -> Explained:
    return _called("explain", name_of(options.file), options)


def try_(options: TryOptions) -> int:
    return _called("try_", name_of(options.file), options)


def run(options: RunOptions) -> int:
    name = name_of(options.file)
    module = _module(name)
    _refuse_foreign(options, name)
    refused = getattr(module, "NOT_ON", {}).get(options.on)
    if refused:
        raise UsageError(f"{options.file}: {refused}")
    return _called("run", name, options)


def serve(options: ServeOptions) -> int:
    """Without a file it is the WORKFLOW.md of this folder."""
    name = name_of(options.file) if options.file else "symphony"
    _refuse_foreign(options, name)
    return _called("serve", name, options)


def _refuse_foreign(options: RunOptions | ServeOptions, name: str) -> None:
    # A file of hooks is refused itself, whatever options are given with it.
    if name != "hookfile":
        refuse_foreign(options, _module(name).NAME)


def _called(function: str, name: str, options: Any) -> Any:
    if name in AGENTS:
        return getattr(_module("pyagent"), function)(options, load_agent)
    return getattr(_module(name), function)(options)


def _module(name: str) -> Any:
    return cast("Any", importlib.import_module(f"hookline.{name}.system"))
