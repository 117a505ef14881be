"""WORKFLOW.md as a system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hookline.engine.hook import Hook
from hookline.options import WORKFLOW, CheckOptions, ExplainOptions, RunOptions, ServeOptions, TryOptions
from hookline.symphony.types import Workflow
from hookline.terminal import Explained, Problems

NAME = WORKFLOW


def matches(target: str) -> bool:
    """Markdown is a WORKFLOW.md."""
    return Path(target).suffix.lower() == ".md"


def load(target: str) -> Workflow:
    from hookline.symphony.check import read_workflow

    return read_workflow(target)


def problems(target: str, _options: CheckOptions, _hooks: Sequence[Hook]) -> Problems:
    from hookline.symphony.check import problems_of

    return Problems(problems_of(load(target)))


def explain(options: ExplainOptions) -> Explained:
    from hookline.symphony.check import explain_workflow

    return explain_workflow(load(options.file), options)


def try_(options: TryOptions) -> int:
    from hookline.symphony.try_ import try_hook

    return try_hook(load(options.file), options)


def run(options: RunOptions) -> int:
    from hookline.symphony.run import run_one_issue

    return run_one_issue(options)


def serve(options: ServeOptions) -> int:
    from hookline.symphony.serve import serve_workflow

    return serve_workflow(options)
