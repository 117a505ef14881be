"""WORKFLOW.md as a system. What a command needs is loaded when it is called."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hookline.engine.hook import Hook
from hookline.errors import FileError
from hookline.options import WORKFLOW, CheckOptions, ExplainOptions, RunOptions, ServeOptions, TryOptions
from hookline.terminal import Explained, ExplainedHook, Problem, problems_of

if TYPE_CHECKING:
    from hookline.symphony.read import Workflow

NAME = WORKFLOW


def matches(target: str) -> bool:
    """Markdown is a WORKFLOW.md."""
    return Path(target).suffix.lower() == ".md"


def load(target: str) -> Workflow:
    from hookline.symphony.read import read_workflow

    return read_workflow(target)


def problems(target: str, _options: CheckOptions, _hooks: Sequence[Hook]) -> list[Problem]:
    """Everything that is wrong or odd in a WORKFLOW.md."""
    from hookline.symphony.prompt import fault_of
    from hookline.symphony.read import missing_for_dispatch

    workflow = load(target)
    fault = fault_of(workflow)
    unset = (
        FileError(f"${name} is not set", file=workflow.file, key="tracker.provider", code="unset-variable")
        for name in sorted(workflow.tracker.variables)
        if not os.environ.get(name)
    )
    wrong = (*workflow.problems, *missing_for_dispatch(workflow), *([fault] if fault else []))
    return problems_of(wrong, (*workflow.warnings, *unset, *_not_shell(workflow)), target)


def _not_shell(workflow: Workflow) -> Generator[FileError]:
    from hookline.claude.hooks import script_fault
    from hookline.symphony.read import declaration

    for declared in declaration(workflow).hooks:
        fault = script_fault(("sh", "-c", declared.params["script"]))
        if fault is not None:
            yield FileError.at(str(declared.source), f"hooks.{declared.name}: {fault}", code="shell-syntax")


def explain(options: ExplainOptions) -> Explained:
    from hookline.runners.places import Place, known_place, runs_in
    from hookline.symphony.read import AGENT_HERE, declaration

    workflow = load(options.file).checked()
    declared = declaration(workflow)
    place = Place(on=known_place(options.on or "local"))
    notes = [*map(str, workflow.warnings), *place.told(AGENT_HERE)]
    hooks: list[ExplainedHook] = []
    for hook in declared.hooks:
        [point] = hook.points
        fails = "fails the attempt" if str(point).endswith(".start") else "is only logged"
        where = f"runs {runs_in(hook.kind, place.on)}, " if options.on else ""
        text = f"{hook.name}  {where}limit {hook.timeout:g} s; a failure {fails}"
        hooks.append(ExplainedHook(str(point), text, str(hook.source)))
    return Explained(
        head=[
            f"{workflow.file} ({declared.format}), agent {workflow.agent.kind}, workspaces in {workflow.root}"
        ],
        hooks=hooks,
        notes=notes,
        value={"declaration": declared.to_dict(), "on": place.on, "notes": notes},
    )


def try_(options: TryOptions) -> int:
    from hookline.symphony.run import try_hook

    return try_hook(load(options.file), options)


def run(options: RunOptions) -> int:
    from hookline.symphony.run import run_one_issue

    return run_one_issue(options)


def serve(options: ServeOptions) -> int:
    from hookline.symphony.serve import serve_workflow

    return serve_workflow(options)
