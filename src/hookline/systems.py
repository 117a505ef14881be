"""The table of systems: which one a file belongs to, and the module that knows it.

A command finds the system of its file and calls the function of that name. Each module is loaded only when a file
may be its own.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from hookline.engine.hook import Hook
from hookline.errors import UsageError
from hookline.hookfile import sources
from hookline.hookfile.sources import Source, line_of
from hookline.options import (
    AGENTRUN,
    CheckOptions,
    ExplainOptions,
    RunOptions,
    ServeOptions,
    TryOptions,
    refuse_foreign,
)
from hookline.secrets import withheld_from
from hookline.source import file_and_name
from hookline.terminal import Explained, Problem, err, print_json, warn

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

    def problems(self, target: str, options: CheckOptions, hooks: Sequence[Hook]) -> list[Problem]:
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


_WITHHELD = "not handed to tools, nor to hooks of hookline.yaml, unless their `env` names them: "


def name_of(target: str) -> str:
    """The system that a target belongs to."""
    return next(name for name in SYSTEMS if _module(name).matches(target))


def load_agent(target: str) -> Loaded:
    """The agent of a file in Python or of a manifest."""
    return _module(name_of(target)).load(target)


def problems(target: str, options: CheckOptions, hooks: Sequence[Hook]) -> list[Problem]:
    name = name_of(target)
    if name == "hookfile":
        return _module(name).problems(target, options, hooks)
    found = _problems_around(target, options)
    more = (_module("pyagent").agent_problems,) if name == "kagent" else ()
    own = _module(name).problems(target, options, hooks, *more)
    return [*found, *own]


def explain(options: ExplainOptions) -> Explained:
    name = name_of(options.file)
    held = _hold(options, name)
    explained = cast("Explained", _called("explain", name, options))
    if name not in AGENTS:
        explained = _with_files(explained, options)
    head = [*explained.head, line_of(held)] if held else explained.head
    withheld = withheld_from(os.environ)
    value = {**explained.value, "files": [each._asdict() for each in held]}
    if not withheld:
        return explained._replace(head=head, value=value)
    notes = [*explained.notes, _WITHHELD + ", ".join(withheld)]
    return explained._replace(head=head, notes=notes, value={**value, "withheld": withheld})


def try_(options: TryOptions) -> int:
    name = name_of(options.file)
    _tell(_hold(options, name), quiet=options.json)
    return _called("try_", name, options)


def run(options: RunOptions) -> int:
    name = name_of(options.file)
    module = _module(name)
    _refuse_foreign(options, name)
    refused = getattr(module, "NOT_ON", {}).get(options.on)
    if refused:
        raise UsageError(f"{options.file}: {refused}")
    held = _hold(options, name)
    if held and options.json:
        print_json({"record": "hooks", "files": [each._asdict() for each in held]})
    _tell(held, quiet=options.quiet or options.json or options.records)
    return _called("run", name, options)


def serve(options: ServeOptions) -> int:
    """Without a file it is the WORKFLOW.md of this folder."""
    name = name_of(options.file) if options.file else "symphony"
    _refuse_foreign(options, name)
    _tell(_hold(options, name), quiet=options.quiet)
    return _called("serve", name, options)


def _hold(options: ExplainOptions | TryOptions | RunOptions | ServeOptions, name: str) -> list[Source]:
    """Put the hook files that hold without being named before those of `--hooks`; all of them, in order."""
    if name == "hookfile":
        return []
    # A pod has what it was sent: it looks for nothing but the machine's file of its image.
    starts = None if getattr(options, "records", False) else [_folder(options.file)]
    held = sources.held(starts, os.environ, options.hooks, project=not options.no_project_hooks)
    on = getattr(options, "on", "")
    if on in getattr(_module(name), "HOOKS_STAY_OFF", ()):
        return _sent_without(held, on)
    options.hooks = tuple(each.file for each in held)
    return held


def _sent_without(held: list[Source], on: str) -> list[Source]:
    """The files for a place that hook files cannot be sent to: a project's would be off there, so it is refused."""
    for each in held:
        if each.level == sources.PROJECT:
            raise UsageError(
                f"{each.file} would not hold: hook files are not sent with {AGENTRUN} to {on}; --no-project-hooks runs"
                " it without"
            )
        if each.level in (sources.MACHINE, sources.USER):
            warn(f"{each} holds on this machine, and not for what runs on {on}")
    return [each for each in held if each.level in (sources.NAMED, sources.OMITTED)]


def _folder(target: str) -> Path:
    """The folder of a file; for a module, the current one."""
    return file_and_name(target)[0].parent


def _tell(held: list[Source], *, quiet: bool) -> None:
    if not quiet:
        err.print(line_of(held), style="dim")


def _with_files(explained: Explained, options: ExplainOptions) -> Explained:
    """A file explained, with the hooks of hook files before its own."""
    from hookline.hookfile.attach import hooks_of
    from hookline.pyagent.system import explained_hooks, hook_rows
    from hookline.runners.local import LocalRunner

    rows = list(hook_rows(hooks_of(options.hooks, LocalRunner()), options.on or "local"))
    hooks = [*explained_hooks(rows, placed=bool(options.on)), *explained.hooks]
    return explained._replace(hooks=hooks, value={**explained.value, "hooks": rows})


def _problems_around(target: str, options: CheckOptions) -> list[Problem]:
    """Everything wrong with the hook files that would hold without being named; an unapproved one is not loaded.

    They hold for many agents, so that a hook of theirs fits none of this one's tools is no mistake.
    """
    from hookline.hookfile.attach import load_hooks

    problems: list[Problem] = []
    named = {os.path.realpath(each) for each in (*options.hooks, *options.files)}
    for each in sources.found([_folder(target)], os.environ):
        omitted = each.level == sources.PROJECT and options.no_project_hooks
        if omitted or os.path.realpath(each.file) in named:
            continue
        note = sources.unapproved(each, os.environ)
        if note:
            problems.append(Problem.of(note, target))
        else:
            problems += load_hooks(each.file).all_problems(each.file)
    return problems


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
