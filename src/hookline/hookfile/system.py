"""hookline.yaml and .claude/settings.json as a system: they hold hooks and no agent, so they are only checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hookline.engine.hook import Hook
from hookline.errors import FileError
from hookline.options import CheckOptions, ExplainOptions, RunOptions, ServeOptions, TryOptions
from hookline.source import SUFFIXES
from hookline.terminal import Problems

NAME = "a file of hooks"


def matches(target: str) -> bool:
    """A YAML or JSON file; those of other systems are told by their content before this is asked."""
    file = Path(target)
    return file.suffix in SUFFIXES and file.is_file()


def load(target: str) -> NoReturn:
    raise FileError(
        "this is not an agent; give a Python file with an Agent in it or a kagent Agent manifest"
        " (hook files go with --hooks)",
        file=Path(target),
    )


def problems(target: str, _options: CheckOptions, _hooks: Sequence[Hook]) -> Problems:
    from hookline.hookfile.attach import load_hooks

    return Problems(load_hooks(target).all_problems(), _unapproved(Path(target)))


def _no_agent(options: ExplainOptions | TryOptions | RunOptions | ServeOptions) -> NoReturn:
    load(options.file)


explain = try_ = run = serve = _no_agent


def _unapproved(file: Path) -> list[str]:
    """A note on a file that would be found, and is not approved."""
    from hookline.hookfile.sources import found, unapproved

    same = (
        each
        for each in found([file.parent], os.environ)
        if os.path.realpath(each.file) == os.path.realpath(file)
    )
    return [note for each in same if (note := unapproved(each, os.environ))]
