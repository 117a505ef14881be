"""What a service works with: the workspaces of its root, and the agent that its file names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from hookline.engine.hook import Hook
from hookline.engine.record import Journal
from hookline.errors import HooklineError
from hookline.symphony.agents import CodingAgent, Told
from hookline.symphony.agents.builtin import BuiltinAgent
from hookline.symphony.agents.codex import CodexAgent
from hookline.symphony.agents.command import CommandAgent
from hookline.symphony.agents.guard import Guard
from hookline.symphony.attempt import Site, Stop, attempt, outcome_of, removed
from hookline.symphony.board.service import Ended, rules_of
from hookline.symphony.board.state import eligible
from hookline.symphony.issue import Issue
from hookline.symphony.trackers import Tracker
from hookline.symphony.trackers.names import tracker_of as tracker_named
from hookline.symphony.types import Workflow
from hookline.symphony.workspace import workspace_key


class SiteWorker:
    """Works at one site. `agent` makes the agent of a workflow."""

    def __init__(self, site: Site, agent: Callable[[Workflow], CodingAgent]) -> None:
        self._site = site
        self._agent = agent

    async def attempt(
        self,
        workflow: Workflow,
        tracker: Tracker,
        issue: Issue,
        number: int | None,
        tell: Callable[[Told], None],
        halt: Stop,
    ) -> Ended:
        async def refresh(before: Issue) -> Issue | None:
            found = await tracker.by_ids([before.id])
            return found[0] if found else None

        rules = rules_of(workflow)
        try:
            await attempt(
                self._site,
                issue,
                self._agent(workflow),
                refresh=refresh,
                wanted=lambda found: eligible(found, rules),
                number=number,
                tell=tell,
                stop=halt,
            )
        except HooklineError as exc:
            return Ended(outcome=outcome_of(exc, halt), error=self._site.mask.text(str(exc), 2000))
        return Ended(outcome="ok")

    async def remove(self, workflow: Workflow, issue: Issue) -> None:
        workspace = self._site.root.find(workspace_key(issue.identifier))
        if workspace is not None:
            await removed(self._site, workspace, issue)

    async def workspaces(self) -> frozenset[str]:
        return frozenset(each.identifier for each in self._site.root.listed())

    def path(self, identifier: str) -> str:
        return os.path.join(self._site.root.path, workspace_key(identifier))


def tracker_of(workflow: Workflow, env: Mapping[str, str]) -> Tracker:
    """The tracker that a workflow names."""
    tracker = workflow.tracker
    return tracker_named(
        tracker.kind or "", tracker.provider, env, Path(workflow.folder), tracker.terminal_states
    )


def secret_names(workflow: Workflow, env: Mapping[str, str]) -> frozenset[str]:
    """The variables with the tracker's secrets, which neither hooks nor agents are given."""
    return tracker_of(workflow, env).secret_names


def agent_of(
    workflow: Workflow,
    secrets: frozenset[str] = frozenset(),
    hooks: tuple[Hook, ...] = (),
    journal: Journal | None = None,
    guard: Guard | None = None,
) -> CodingAgent:
    """The agent that a workflow names. `hooks` stand around what the built-in one does; others get the `guard`."""
    agent, codex = workflow.agent, workflow.codex
    if agent.kind == "command":
        argv = guard.argv(agent.command) if guard else agent.command
        return CommandAgent(argv=argv, silence=codex.turn_timeout)
    if agent.kind == "builtin":
        return BuiltinAgent(
            model=agent.model, tools=agent.tools, silence=codex.turn_timeout, hooks=hooks, journal=journal
        )
    return CodexAgent(
        command=codex.command,
        approval_policy=codex.approval_policy or "never",
        thread_sandbox=codex.thread_sandbox or "workspace-write",
        turn_sandbox_policy=codex.turn_sandbox_policy,
        turn_timeout=codex.turn_timeout,
        read_timeout=codex.read_timeout,
        secret_names=secrets,
        hooks=guard.events("codex") if guard else {},
    )
