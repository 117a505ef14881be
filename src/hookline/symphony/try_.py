"""`hookline try` of a WORKFLOW.md: runs one of its hooks in a scratch workspace."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hookline.engine.context import Facts, HookContext
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point, Status, point_named
from hookline.engine.result import HookAction, Outcome
from hookline.errors import UsageError
from hookline.journal.masking import Mask
from hookline.options import TryOptions
from hookline.runners import Runner
from hookline.runners.local import LocalRunner
from hookline.secret_names import secrets_in
from hookline.symphony.hooks import Outputs, Scene, Scripts, workspace_hooks
from hookline.symphony.issue import Issue
from hookline.symphony.run import names_of_secrets, watchers
from hookline.symphony.types import POINTS, Workflow
from hookline.symphony.workspace import Root
from hookline.terminal import interruptible, out, print_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a hook decided, and all that it printed."""

    outcome: Outcome
    output: str


def try_hook(workflow: Workflow, options: TryOptions) -> int:
    """Run the hook of a point, and say what it printed and decided; 1 where it refused."""
    workflow = workflow.checked()
    mask = Mask(secrets_in(os.environ))
    names = names_of_secrets(workflow)

    async def main() -> int:
        runner = LocalRunner()
        try:
            done = await tried(
                workflow,
                point_named(options.point),
                runner=runner,
                environ=dict(os.environ),
                secret_names=names,
                mask=mask,
                recorder=Recorder(None, watchers(mask, json=options.json, quiet=False)),
            )
        finally:
            await runner.close()
        failed = done.outcome.action is not HookAction.CONTINUE
        if options.json:
            print_json({"point": options.point, "action": done.outcome.action, "output": done.output})
        else:
            sys.stdout.write(done.output)
            out.print(f"= {'fails' if failed else 'goes on'}")
        return 1 if failed else 0

    return interruptible(main)


async def tried(
    workflow: Workflow,
    point: Point,
    *,
    runner: Runner,
    environ: Mapping[str, str],
    secret_names: frozenset[str] = frozenset(),
    mask: Mask | None = None,
    recorder: Recorder | None = None,
    status: Status = Status.OK,
) -> Tried:
    """Run the hook of a point in a scratch workspace that is gone afterwards."""
    name = next((name for name, where in POINTS.items() if where is point), None)
    if name is None or getattr(workflow.hooks, name) is None:
        has = [f"{where} ({name})" for name, where in POINTS.items() if getattr(workflow.hooks, name)]
        raise UsageError(f"{workflow.file} has no hook at {point}; it has: {', '.join(has) or 'none'}")
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="hookline-try-")
    outputs = Outputs(Path(folder, "outputs"))
    scripts = Scripts(
        current=lambda: workflow.hooks,
        runner=runner,
        environ=environ,
        file=workflow.file,
        secret_names=secret_names,
        mask=mask or Mask(),
        outputs=outputs,
    )
    issue = Issue(id="try", identifier="TRY-1", title="A hook is tried", state="Todo")
    try:
        with Root(folder) as root:
            workspace = root.finish(root.begin(issue.identifier, run_id="try"))
            try:
                hooks = workspace_hooks(scripts, Scene(issue=issue, workspace=workspace, root=root))
                facts = Facts(
                    workflow_id=issue.identifier,
                    run_id="try",
                    scope_id="1",
                    point=point,
                    status=None if point.is_start else status,
                )
                outcome = await Pipeline(hooks, recorder).fire(HookContext.of(facts, {}, None))
            finally:
                await root.discard(workspace)
        kept = outputs.folder / f"try.{name}.log"
        return Tried(outcome=outcome, output=kept.read_text() if kept.exists() else "")
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
