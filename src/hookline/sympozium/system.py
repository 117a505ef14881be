"""AgentRun manifests as a system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hookline.engine.hook import Hook
from hookline.errors import FileError
from hookline.options import (
    AGENTRUN,
    KUBERNETES,
    CheckOptions,
    ExplainOptions,
    RunOptions,
    ServeOptions,
    TryOptions,
)
from hookline.source import SUFFIXES, text_of
from hookline.terminal import Explained, Problem

if TYPE_CHECKING:
    from hookline.sympozium.read import RunManifests

NAME = AGENTRUN
HOOKS_STAY_OFF = (KUBERNETES,)
"""Places that hook files cannot be sent to: the operator makes pods of the manifest alone."""
_NO_AGENT = (
    "this is not an agent; give a Python file with an Agent in it or a kagent Agent manifest"
    " (hook files go with --hooks)"
)


def matches(target: str) -> bool:
    file = Path(target)
    if file.suffix not in SUFFIXES or not file.is_file():
        return False
    text = text_of(file)
    if "sympozium.ai" not in text and "lifecycle" not in text:
        return False
    from hookline.sympozium.read import is_sympozium

    return is_sympozium(text, file)


def load(target: str) -> RunManifests:
    from hookline.sympozium.read import parse

    return parse(text_of(target), target)


def problems(target: str, options: CheckOptions, _hooks: Sequence[Hook]) -> list[Problem]:
    from hookline.sympozium.check import problems_in

    others = [each for each in options.files if each != target and matches(each)]
    return problems_in(target, options.variables(), others)


def explain(options: ExplainOptions) -> Explained:
    from hookline.sympozium.check import explain_agentrun

    return explain_agentrun(options)


def try_(options: TryOptions) -> int:
    raise FileError(_NO_AGENT, file=Path(options.file))


def run(options: RunOptions) -> int:
    from hookline.sympozium.run.command import run_agentrun

    return run_agentrun(options)


def serve(options: ServeOptions) -> int:
    raise FileError(_NO_AGENT, file=Path(options.file))
