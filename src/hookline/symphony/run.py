"""`hookline run WORKFLOW.md --issue`: one attempt at one issue, without a service."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hookline.engine.pipeline import Recorder
from hookline.engine.record import Record
from hookline.errors import Skipped, UsageError
from hookline.hookfile.attach import hooks_of
from hookline.journal.masking import Mask
from hookline.journal.recovery import owner
from hookline.journal.user import default_path, open_journal
from hookline.options import RunOptions
from hookline.runners.places import Place, place_of, usable
from hookline.secret_names import secrets_in
from hookline.symphony.agents import CodingAgent, Told
from hookline.symphony.agents.guard import Guard, guard_of
from hookline.symphony.attempt import Attempted, Site, Stop, attempt, recovered, removed
from hookline.symphony.board.service import rules_of
from hookline.symphony.board.state import eligible
from hookline.symphony.check import AGENT_HERE, read_workflow
from hookline.symphony.hooks import Outputs
from hookline.symphony.issue import Issue
from hookline.symphony.trackers import Tracker, TrackerError
from hookline.symphony.types import Workflow
from hookline.symphony.worker import agent_of, secret_names, tracker_of
from hookline.symphony.workspace import Root, workspace_key
from hookline.terminal import err, interruptible, print_json, print_line, watcher


def run_one_issue(options: RunOptions) -> int:
    """One attempt at one issue of a WORKFLOW.md, with all its hooks."""
    file, issue, hooks = options.file, options.issue, options.hooks
    if not issue:
        raise UsageError(
            f"which issue? hookline run {file} --issue ABC-123; hookline serve {file} works on all of them"
        )
    workflow = read_workflow(file, strict=options.strict).checked()
    for warning in workflow.warnings:
        err.print(str(warning), style="yellow")
    place, others = place_of(options.on, options.image, network=options.network, mounts=options.mount)
    if others:
        raise UsageError(
            f"--image {others[0]!r}: REF=SOURCE is for a kagent manifest, and this is a WORKFLOW.md"
        )
    for text in () if options.quiet else place.told(AGENT_HERE, files=hooks):
        err.print(text, style="yellow")
    mask = Mask(secrets_in(os.environ))
    watch = watchers(mask, json=options.json, quiet=options.quiet)
    with open_site(workflow, mask, watch, holder=f"hookline run {file}", place=place, files=hooks) as site:
        given = tuple(hooks_of(hooks, site.runner))
        guard = guard_of(hooks, given, os.environ)
        for line in guard.blind(workflow.agent) if guard else ():
            err.print(line, style="yellow")
        return interruptible(lambda: _attempted(replace(site, hooks=given), issue, guard, json=options.json))


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
            print_line(f"skipped: {exc}")
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
        print_line(text)
    return 0


@contextmanager
def open_site(
    workflow: Workflow,
    mask: Mask,
    watch: list[Callable[[Record], None]],
    *,
    holder: str,
    place: Place | None = None,
    files: Sequence[str] = (),
) -> Generator[Site]:
    """The workspaces of a workflow, locked for one command, with the journal that keeps what happens there."""
    with open_journal() as journal, Root(workflow.root, holder=holder) as root:
        yield Site(
            current=lambda: workflow,
            root=root,
            runner=(place or Place()).runner(each_of=root.path, files=files),
            environ=dict(os.environ),
            recorder=Recorder(journal, watch),
            secret_names=names_of_secrets(workflow),
            mask=mask,
            outputs=Outputs(default_path(os.environ).parent / "outputs"),
            owner=owner(),
        )


def names_of_secrets(workflow: Workflow) -> frozenset[str]:
    """Also where the tracker itself could not be used, which a hook alone does not need."""
    try:
        return secret_names(workflow, os.environ)
    except TrackerError:
        return workflow.tracker.variables


def watchers(mask: Mask, *, json: bool, quiet: bool) -> list[Callable[[Record], None]]:
    watch = watcher(mask, json=json, quiet=quiet)
    if watch is None:
        return []
    # Whoever sees the records needs no log lines beside them.
    logging.getLogger("hookline.symphony").addHandler(logging.NullHandler())
    return [watch]


async def run_issue(
    site: Site,
    tracker: Tracker,
    agent: CodingAgent,
    identifier: str,
    *,
    tell: Callable[[Told], None] = lambda _: None,
    stop: Stop | None = None,
) -> Attempted | None:
    """One attempt at one issue, whoever would be next. An issue that is over has its workspace removed: None."""
    workflow = site.current()
    issue = await issue_named(tracker, workflow, identifier)
    if is_terminal(issue, workflow):
        await _cleaned(site, issue)
        return None
    rules = rules_of(workflow)

    async def refresh(before: Issue) -> Issue | None:
        found = await tracker.by_ids([before.id])
        return found[0] if found else None

    done = await attempt(
        site,
        issue,
        agent,
        refresh=refresh,
        wanted=lambda found: eligible(found, rules),
        tell=tell,
        stop=stop,
    )
    if done.issue is not None and is_terminal(done.issue, workflow):
        await _cleaned(site, done.issue)
    return done


async def issue_named(tracker: Tracker, workflow: Workflow, identifier: str) -> Issue:
    """The issue of that name, in whatever state it is."""
    states = (*workflow.tracker.active_states, *workflow.tracker.terminal_states)
    found = await tracker.by_states(states)
    for issue in found:
        if identifier in (issue.identifier, issue.id):
            return issue
    # It may be in a state that the file does not name.
    others = await tracker.by_ids([identifier])
    if others:
        return others[0]
    known = [issue.identifier for issue in found]
    near = difflib.get_close_matches(identifier, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known[:10]) or 'none'}"
    raise UsageError(f"there is no issue {identifier!r}{hint}")


def is_terminal(issue: Issue, workflow: Workflow) -> bool:
    return issue.state.strip().lower() in {state.lower() for state in workflow.tracker.terminal_states}


async def _cleaned(site: Site, issue: Issue) -> None:
    workspace = site.root.find(workspace_key(issue.identifier))
    if workspace is not None:
        await removed(site, workspace, issue)
