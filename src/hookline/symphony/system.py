"""WORKFLOW.md by hand: one issue (`hookline run`), one hook (`hookline try`), and `hookline workspace list|rm`."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hookline.engine.pipeline import Recorder
from hookline.engine.point import point_named
from hookline.engine.record import Record
from hookline.engine.result import HookAction
from hookline.errors import Skipped, UsageError
from hookline.journal.home import default_path
from hookline.journal.masking import Mask
from hookline.journal.owner import owner
from hookline.pyagent.run import hooks_of, interruptible, watcher
from hookline.runners.local import LocalRunner
from hookline.runners.places import Place, known_place, place_of, runs_in, usable
from hookline.symphony.agents.guard import Guard, guard_of
from hookline.symphony.attempt import Site, recovered, removed
from hookline.symphony.hooks import Outputs
from hookline.symphony.prompt import fault_of
from hookline.symphony.read import Workflow, declaration, missing_for_dispatch, read_file, workflow_file
from hookline.symphony.run import run_issue, tried
from hookline.symphony.trackers import TrackerError
from hookline.symphony.worker import agent_of, secret_names, tracker_of
from hookline.symphony.workspace import Root, Workspace
from hookline.terminal import err, open_journal, out, print_json, secrets_of

__all__ = ["explain_workflow", "problems_of", "run_workflow", "try_workflow", "workspace"]

workspace = typer.Typer(help="The workspaces of a WORKFLOW.md.", no_args_is_help=True, rich_markup_mode=None)
FILE = Annotated[str, typer.Option("--file", help="WORKFLOW.md [default: the one in this folder]")]
AGENT_HERE = "the agent runs here, as do hooks in Python"
JSON = Annotated[bool, typer.Option("--json", help="for a program to read")]


def problems_of(file: str) -> list[str]:
    """Everything that is wrong or odd in a WORKFLOW.md, for `hookline check`; nothing of it is run."""
    workflow = _read(file)
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


def run_workflow(
    file: str,
    issue: str,
    *,
    hooks: list[str] | None = None,
    strict: bool = False,
    on: str = "",
    image: list[str] | None = None,
    network: bool = False,
    mounts: list[str] | None = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """One attempt at one issue of a WORKFLOW.md, with all its hooks."""
    if not issue:
        raise UsageError(
            f"which issue? hookline run {file} --issue ABC-123; hookline serve {file} works on all of them"
        )
    workflow = _read(file, strict=strict).checked()
    for warning in workflow.warnings:
        err.print(str(warning), style="yellow")
    place, others = place_of(on, image, network=network, mounts=mounts)
    if others:
        raise UsageError(
            f"--image {others[0]!r}: REF=SOURCE is for a kagent manifest, and this is a WORKFLOW.md"
        )
    for text in () if quiet else place.told(AGENT_HERE, files=hooks or ()):
        err.print(text, style="yellow")
    mask = Mask(secrets_of(os.environ))
    watch = _watchers(mask, json=json, quiet=quiet)
    with _site(workflow, mask, watch, holder=f"hookline run {file}", place=place, files=hooks or ()) as site:
        given = tuple(hooks_of(hooks, site.runner))
        guard = guard_of(hooks, given, os.environ)
        for line in guard.blind(workflow.agent) if guard else ():
            err.print(line, style="yellow")
        return interruptible(lambda: _attempted(replace(site, hooks=given), issue, guard, json=json))


def explain_workflow(file: str, *, on: str = "", json: bool = False) -> int:
    """Which hook stands where, for how long, and what a failure of it means."""
    workflow = _read(file).checked()
    declared = declaration(workflow)
    place = Place(on=known_place(on or "local"))
    notes = [*map(str, workflow.warnings), *place.told(AGENT_HERE)]
    if json:
        print_json({"declaration": declared.to_dict(), "on": place.on, "notes": notes})
        return 0
    out.print(
        f"{workflow.file} ({declared.format}), agent {workflow.agent.kind}, workspaces in {workflow.root}"
    )
    for hook in declared.hooks:
        [point] = hook.points
        fails = "fails the attempt" if str(point).endswith(".start") else "is logged, and things go on"
        out.print(f"\n{point}", style="bold")
        where = f"runs {runs_in(hook.kind, place.on)}, " if on else ""
        out.print(f"  {hook.name}  {where}limit {hook.timeout:g} s; a failure {fails}")
        out.print(f"     {hook.source}", style="dim")
    if not declared.hooks:
        out.print("\nno hooks")
    for note in notes:
        out.print(f"\n{note}")
    return 0


def try_workflow(point: str, file: str, *, json: bool = False) -> int:
    """Run the hook of a point in a scratch workspace, and say what it printed and decided; 1 where it refused."""
    workflow = _read(file).checked()
    mask = Mask(secrets_of(os.environ))
    names = _secret_names(workflow)

    async def main() -> int:
        runner = LocalRunner()
        try:
            done = await tried(
                workflow,
                point_named(point),
                runner=runner,
                environ=dict(os.environ),
                secret_names=names,
                mask=mask,
                recorder=Recorder(None, _watchers(mask, json=json, quiet=False)),
            )
        finally:
            await runner.close()
        failed = done.outcome.action is not HookAction.CONTINUE
        if json:
            print_json({"point": point, "action": done.outcome.action, "output": done.output})
        else:
            sys.stdout.write(done.output)
            out.print(f"= {'fails' if failed else 'goes on'}")
        return 1 if failed else 0

    return interruptible(main)


@workspace.command("list")
def list_(file: FILE = "", json: JSON = False) -> int:
    """List the workspaces below the root, with the issue of each and when it was made."""
    workflow = _read(file).checked()
    if not os.path.isdir(workflow.root):
        found: list[Workspace] = []
    else:
        with Root(workflow.root, lock=False) as root:
            found = root.listed()
    if json:
        print_json([_row(each) for each in found])
        return 0
    for each in found:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.created)) if each.created else "?"
        half = "" if each.state == "ready" else f"  ({each.state}: left in the middle)"
        out.print(f"{each.key}  {each.identifier}  {since}  {each.path}{half}")
    if not found:
        out.print(f"no workspaces in {workflow.root}")
    return 0


@workspace.command("rm")
def rm(
    key: Annotated[str, typer.Argument(help="the workspace's key, as `hookline workspace list` shows it")],
    file: FILE = "",
) -> int:
    """Run `before_remove` and delete a workspace."""
    workflow = _read(file).checked()
    mask = Mask(secrets_of(os.environ))
    with _site(
        workflow, mask, _watchers(mask, json=False, quiet=False), holder="hookline workspace rm"
    ) as site:
        found = site.root.find(key) or next(
            (each for each in site.root.listed() if each.identifier == key), None
        )
        if found is None:
            known = ", ".join(each.key for each in site.root.listed()) or "none"
            raise UsageError(f"there is no workspace {key!r} in {site.root.path}; there: {known}")
        code = interruptible(lambda: _removed(site, found))
    if code == 0:
        out.print(f"removed {found.path}")
    return code


async def _removed(site: Site, found: Workspace) -> int:
    try:
        await removed(site, found)
    finally:
        await site.runner.close()
    return 0


async def _attempted(site: Site, identifier: str, guard: Guard | None, *, json: bool) -> int:
    workflow = site.current()
    tracker = tracker_of(workflow, os.environ)
    try:
        await usable(site.runner)
        for line in await recovered(site):
            err.print(f"what a killed process left could not be finished: {line}", style="yellow")
        agent = agent_of(workflow, site.secret_names, site.hooks, site.recorder.journal, guard)
        done = await run_issue(site, tracker, agent, identifier)
    except Skipped as exc:
        if json:
            print_json({"run_id": exc.run_id, "skipped": exc.reason})
        else:
            _line(f"skipped: {exc}")
        return 0
    finally:
        await tracker.close()
        await site.runner.close()
    if done is None:
        shown: dict[str, Any] = {"removed": identifier}
        text = f"{identifier} is over; its workspace is removed"
    else:
        shown = {"run_id": done.run_id, "turns": done.turns, "why": done.why, "text": done.text}
        text = done.text.rstrip()
    if json:
        print_json(shown)
    else:
        _line(text)
    return 0


@contextmanager
def _site(
    workflow: Workflow,
    mask: Mask,
    watch: list[Callable[[Record], None]],
    *,
    holder: str,
    place: Place | None = None,
    files: Sequence[str] = (),
) -> Generator[Site]:
    with open_journal() as journal, Root(workflow.root, holder=holder) as root:
        yield Site(
            current=lambda: workflow,
            root=root,
            runner=(place or Place()).runner(each_of=root.path, files=files),
            environ=dict(os.environ),
            recorder=Recorder(journal, watch),
            secret_names=_secret_names(workflow),
            mask=mask,
            outputs=Outputs(default_path(os.environ).parent / "outputs"),
            owner=owner(),
        )


def _secret_names(workflow: Workflow) -> frozenset[str]:
    """Also where the tracker itself could not be used, which a hook alone does not need."""
    try:
        return secret_names(workflow, os.environ)
    except TrackerError:
        return workflow.tracker.variables


def _read(file: str, *, strict: bool = False) -> Workflow:
    return read_file(workflow_file(file or None, Path.cwd()), os.environ, strict=strict)


def _watchers(mask: Mask, *, json: bool, quiet: bool) -> list[Callable[[Record], None]]:
    watch = watcher(mask, json=json, quiet=quiet)
    if watch is None:
        return []
    # Whoever sees the records needs no log lines beside them.
    logging.getLogger("hookline.symphony").addHandler(logging.NullHandler())
    return [watch]


def _line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _row(each: Workspace) -> dict[str, Any]:
    return {
        "key": each.key,
        "identifier": each.identifier,
        "issue_id": each.issue_id,
        "path": each.path,
        "created": each.created,
        "state": each.state,
    }
