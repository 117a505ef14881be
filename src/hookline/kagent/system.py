"""kagent's manifests as a system: agents are loaded here, and run by the system of agents in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hookline.engine.hook import Hook
from hookline.errors import FileError
from hookline.options import AGENT, KUBERNETES, CheckOptions
from hookline.source import SUFFIXES, file_and_name, text_of
from hookline.terminal import Problem, problems_of

if TYPE_CHECKING:
    from hookline.agent import Loaded

NAME = AGENT
NOT_ON = {
    KUBERNETES: "a kagent Agent is applied with kubectl where `hookline operator --kagent` works, and answers"
    " over A2A there; hookline run takes it to a sandbox or a container"
}
"""Where `hookline run` cannot run it, and why."""


def matches(target: str) -> bool:
    file, _ = file_and_name(target)
    if file.suffix not in SUFFIXES or not file.is_file():
        return False
    text = text_of(file)
    if "kagent.dev" not in text and "spec" not in text:
        return False
    from hookline.kagent.read import is_kagent

    return is_kagent(text, file)


def load(target: str) -> Loaded:
    """The agent of `agent.yaml`, or of `agent.yaml:name`."""
    from hookline.kagent.load import manifest

    file, name = file_and_name(target)
    return manifest(file, name)


def problems(
    target: str,
    options: CheckOptions,
    hooks: Sequence[Hook],
    agent_problems: Callable[[Loaded, CheckOptions, Sequence[Hook]], list[Problem]],
) -> list[Problem]:
    """Every mistake in the file, and the problems of each of its agents that can run here."""
    from hookline.kagent.read import read

    file, name = file_and_name(target)
    found = read(file)
    runs = [f"{file}:{each.name}" for each in found.agents if each.type != "BYO"]
    wrong = problems_of(found.problems, found.notes, target)
    try:
        for each in [target] if name or not runs else runs:
            wrong += agent_problems(load(each), options, hooks)
    except FileError as exc:
        wrong.append(Problem.of(exc, target))
    return wrong
