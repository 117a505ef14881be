"""What a command works with: the tracker and the agent that a WORKFLOW.md names, its site, and the log."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from hookline.engine.hook import Hook
from hookline.engine.pipeline import Recorder
from hookline.errors import HooklineError
from hookline.journal.home import default_path
from hookline.journal.masking import Mask
from hookline.journal.owner import owner
from hookline.runners import Runner
from hookline.symphony.agents import CodingAgent, Told
from hookline.symphony.agents.builtin import BuiltinAgent
from hookline.symphony.agents.codex import CodexAgent
from hookline.symphony.agents.command import CommandAgent
from hookline.symphony.agents.guard import Guard
from hookline.symphony.attempt import Attempt, Halt, outcome_of
from hookline.symphony.hooks import KEEP_BYTES, AttemptSite, Outputs
from hookline.symphony.service import AttemptEnd
from hookline.symphony.trackers import Tracker, TrackerError, setting
from hookline.symphony.trackers.folder import FolderTracker
from hookline.symphony.trackers.github import GithubTracker
from hookline.symphony.trackers.linear import LinearTracker
from hookline.symphony.types import TRACKERS, Issue, Workflow
from hookline.symphony.workspace import WorkspaceRoot, workspace_key
from hookline.symphony.workspace_run import remove_workspace


class SiteWorker:
    """Works at one site. `agent` makes the agent of a workflow."""

    def __init__(self, site: AttemptSite, agent: Callable[[Workflow], CodingAgent]) -> None:
        self._site = site
        self._agent = agent

    async def attempt(
        self,
        workflow: Workflow,
        tracker: Tracker,
        issue: Issue,
        number: int | None,
        tell: Callable[[Told], None],
        halt: Halt,
    ) -> AttemptEnd:
        agent = self._agent(workflow)
        attempt = Attempt(
            site=self._site, issue=issue, agent=agent, tracker=tracker, number=number, tell=tell, halt=halt
        )
        try:
            await attempt.run()
        except HooklineError as exc:
            return AttemptEnd(outcome=outcome_of(exc, halt), error=self._site.mask.text(str(exc), 2000))
        return AttemptEnd(outcome="ok")

    async def remove(self, workflow: Workflow, issue: Issue) -> None:
        await remove_workspace(self._site, issue)

    async def workspaces(self) -> frozenset[str]:
        return frozenset(each.identifier for each in self._site.root.listed())

    def path(self, identifier: str) -> str:
        return os.path.join(self._site.root.path, workspace_key(identifier))


def tracker_of(workflow: Workflow, env: Mapping[str, str]) -> Tracker:
    """The tracker that a workflow names. Paths are taken from the folder of its file."""
    kind, provider = workflow.tracker.kind, workflow.tracker.provider
    if kind == "linear":
        return LinearTracker(provider, env)
    if kind == "github":
        return GithubTracker(provider, env)
    if kind in ("folder", "memory"):
        path, _ = setting(provider, "path", env)
        folder = Path(workflow.folder) / Path(path or "issues").expanduser()
        return FolderTracker(folder, workflow.tracker.terminal_states)
    raise TrackerError(
        f"tracker.kind is {kind!r}; known: {', '.join(TRACKERS)}", kind="unsupported_tracker_kind"
    )


def secret_names(workflow: Workflow, env: Mapping[str, str]) -> frozenset[str]:
    """The variables with the tracker's secrets; where it cannot be made, those that its settings refer to."""
    try:
        return tracker_of(workflow, env).secret_names
    except TrackerError:
        return workflow.tracker.variables


def agent_of(workflow: Workflow, site: AttemptSite | None = None, guard: Guard | None = None) -> CodingAgent:
    """The agent that a workflow names. The hooks of a site stand around what the built-in one does; others get the
    `guard`."""
    agent, codex = workflow.agent, workflow.codex
    if agent.kind == "command":
        argv = guard.argv(agent.command) if guard else agent.command
        return CommandAgent(argv=argv, silence=codex.turn_timeout)
    if agent.kind == "builtin":
        return BuiltinAgent(
            model=agent.model,
            tools=agent.tools,
            silence=codex.turn_timeout,
            hooks=site.hooks if site else (),
            journal=site.recorder.journal if site else None,
        )
    return CodexAgent(
        command=codex.command,
        approval_policy=codex.approval_policy or "never",
        thread_sandbox=codex.thread_sandbox or "workspace-write",
        turn_sandbox_policy=codex.turn_sandbox_policy,
        turn_timeout=codex.turn_timeout,
        read_timeout=codex.read_timeout,
        secret_names=site.withheld_names if site else frozenset(),
        hooks=guard.events("codex") if guard else {},
    )


def site_of(
    current: Callable[[], Workflow],
    root: WorkspaceRoot,
    runner: Runner,
    recorder: Recorder,
    mask: Mask,
    *,
    hooks: tuple[Hook, ...] = (),
    keep_bytes: int = KEEP_BYTES,
) -> AttemptSite:
    """The site of a command: with its environment, and outputs that are kept beside its journal."""
    return AttemptSite(
        current=current,
        root=root,
        runner=runner,
        environ=dict(os.environ),
        recorder=recorder,
        secret_names=secret_names(current(), os.environ),
        mask=mask,
        outputs=Outputs(default_path(os.environ).parent / "outputs", keep_bytes=keep_bytes),
        owner=owner(),
        hooks=hooks,
    )


def log_masked(mask: Mask, *handlers: logging.Handler) -> None:
    """Hand the log of hookline, masked, to these handlers."""

    def masked(record: logging.LogRecord) -> bool:
        record.msg, record.args = mask.text(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = mask.text(logging.Formatter().formatException(record.exc_info))
        return True

    ours = logging.getLogger("hookline")
    ours.setLevel(logging.INFO)
    for handler in handlers:
        handler.addFilter(masked)
        ours.addHandler(handler)
