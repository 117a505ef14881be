"""`hookline check` and `hookline explain` of a WORKFLOW.md; nothing of it is run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

from hookline.options import ExplainOptions
from hookline.runners.places import Place, known_place, runs_in
from hookline.symphony.prompt import fault_of
from hookline.symphony.read import read_file, workflow_file
from hookline.symphony.types import Workflow, declaration, missing_for_dispatch
from hookline.terminal import Explained, ExplainedHook

AGENT_HERE = "the agent runs here, as do hooks in Python"


def read_workflow(file: str, *, strict: bool = False) -> Workflow:
    """The named file, or the WORKFLOW.md of this folder."""
    return read_file(workflow_file(file or None, Path.cwd()), os.environ, strict=strict)


def problems_of(workflow: Workflow) -> list[str]:
    """Everything that is wrong or odd in a WORKFLOW.md."""
    fault = fault_of(workflow)
    found = [
        *workflow.problems,
        *missing_for_dispatch(workflow),
        *([fault] if fault else []),
        *workflow.warnings,
    ]
    unset = sorted(name for name in workflow.tracker.variables if not os.environ.get(name))
    return [
        *map(str, found),
        *(f"{workflow.file}: tracker.provider: ${name} is not set" for name in unset),
        *_not_shell(workflow),
    ]


def _not_shell(workflow: Workflow) -> Generator[str]:
    for declared in declaration(workflow).hooks:
        # It only reads: with -n nothing is run.
        done = subprocess.run(
            ["sh", "-n"], input=declared.params["script"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            yield f"{declared.source}: hooks.{declared.name}: {done.stderr.strip()} (counted from the script's first line)"


def explain_workflow(workflow: Workflow, options: ExplainOptions) -> Explained:
    workflow = workflow.checked()
    declared = declaration(workflow)
    place = Place(on=known_place(options.on or "local"))
    notes = [*map(str, workflow.warnings), *place.told(AGENT_HERE)]
    hooks: list[ExplainedHook] = []
    for hook in declared.hooks:
        [point] = hook.points
        fails = "fails the attempt" if str(point).endswith(".start") else "is logged, and things go on"
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
