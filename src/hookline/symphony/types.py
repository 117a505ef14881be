"""WORKFLOW.md of Symphony and an issue of its tracker as values, with the defaults of every field."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from os import PathLike
from typing import Any, cast

from hookline.engine.hook import Declaration, HookDeclaration, OnError
from hookline.engine.point import Point
from hookline.errors import FileError

POINTS: Mapping[str, Point] = {
    "after_create": Point.WORKSPACE_START,
    "before_run": Point.RUN_START,
    "after_run": Point.RUN_END,
    "before_remove": Point.WORKSPACE_END,
}
"""The four hooks, and where they stand."""
DEFAULTS: Mapping[Point, OnError] = {
    point: OnError.FAIL if point.is_start else OnError.CONTINUE for point in Point
}
"""The consequence of a broken hook of this file, by point."""
AGENTS = ("codex", "command", "builtin")
AGENT_HERE = "the agent runs here, as do hooks in Python"
"""A note where hooks are to run elsewhere."""
DEFAULT_TIMEOUT = 60.0
"""Seconds for a hook where the file does not say, or says zero or less."""

_NAME = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerKind:
    """The profile of a kind of tracker, for its users."""

    about: str
    identifier: str
    settings: tuple[str, ...]
    active: tuple[str, ...] = ("Todo", "In Progress")
    terminal: tuple[str, ...] = ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")


_FOLDER = TrackerKind(
    about="Markdown or YAML files in a folder, one an issue",
    identifier="the file's name, or its `identifier`",
    settings=("path",),
)
TRACKERS: Mapping[str, TrackerKind] = {
    "folder": _FOLDER,
    "memory": _FOLDER,
    "linear": TrackerKind(
        about="a project in Linear",
        identifier="ABC-123",
        settings=("project_slug", "api_key", "endpoint", "assignee"),
    ),
    "github": TrackerKind(
        about="the issues of a GitHub repository",
        identifier="GH-12",
        settings=("repository", "token", "endpoint", "assignee", "state_prefix"),
        active=("open",),
        terminal=("closed",),
    ),
}


class WorkflowError(FileError):
    """WORKFLOW.md is wrong. `kind` is one word for the record.

    Kinds: missing_workflow_file, workflow_parse_error, workflow_front_matter_not_a_map, invalid_workflow_config,
    template_parse_error, template_render_error.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        file: str | PathLike[str],
        line: int | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(message, file=file, line=line, key=key)
        self.kind = kind

    @classmethod
    def of(
        cls, problem: FileError, kind: str = "invalid_workflow_config", *, more: str = ""
    ) -> WorkflowError:
        """The same problem with its kind."""
        message = f"{problem.message}{more}"
        return cls(message, kind=kind, file=problem.file, line=problem.line, key=problem.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSettings:
    """The source of issues. `provider` is the tracker's own; a `$NAME` in it is still that (see `resolved`)."""

    kind: str | None = None
    provider: Mapping[str, Any] = field(default_factory=dict[str, Any])
    required_labels: tuple[str, ...] = ()
    active_states: tuple[str, ...] = _FOLDER.active
    terminal_states: tuple[str, ...] = _FOLDER.terminal

    @property
    def variables(self) -> frozenset[str]:
        """The environment variables that `provider` refers to."""
        return frozenset(_variables(self.provider))


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingSettings:
    interval: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A shell script and the line of its key."""

    text: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HookScripts:
    """The four scripts, and the seconds that each may take."""

    after_create: Script | None = None
    before_run: Script | None = None
    after_run: Script | None = None
    before_remove: Script | None = None
    timeout: float = DEFAULT_TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The agent: its kind, how many work at once, and for how long."""

    max_concurrent_agents: int = 10
    max_turns: int = 20
    max_retry_backoff: float = 300.0
    max_concurrent_agents_by_state: Mapping[str, int] = field(default_factory=dict[str, int])
    kind: str = "codex"
    command: tuple[str, ...] = ()
    model: str = ""
    tools: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexSettings:
    """Settings that are passed to Codex, and its limits in seconds. Without `stall_timeout` no attempt counts as stalled."""

    command: str = "codex app-server"
    approval_policy: Any = None
    thread_sandbox: Any = None
    turn_sandbox_policy: Any = None
    turn_timeout: float = 3600.0
    read_timeout: float = 5.0
    stall_timeout: float | None = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The address of the service's API; without a port there is none, and 0 is any free one."""

    port: int | None = None
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """One WORKFLOW.md as it was read. Paths are absolute; a prompt begins in `prompt_line`."""

    file: str
    prompt: str = ""
    prompt_line: int = 1
    root: str = ""
    tracker: TrackerSettings = TrackerSettings()
    polling: PollingSettings = PollingSettings()
    hooks: HookScripts = HookScripts()
    agent: AgentSettings = AgentSettings()
    codex: CodexSettings = CodexSettings()
    server: ServerSettings = ServerSettings()
    warnings: tuple[FileError, ...] = ()
    problems: tuple[WorkflowError, ...] = ()

    @property
    def folder(self) -> str:
        return os.path.dirname(self.file)

    def checked(self) -> Workflow:
        """The workflow itself; raises its first problem, if it has one."""
        if not self.problems:
            return self
        first, *rest = self.problems
        more = f" (and {len(rest)} more: hookline check {first.file})" if rest else ""
        raise WorkflowError.of(first, first.kind, more=more) from first


def missing_for_dispatch(workflow: Workflow) -> tuple[WorkflowError, ...]:
    """Errors for the settings that a service needs and the file leaves out."""
    found: list[tuple[str, str]] = []
    if workflow.tracker.kind is None:
        found.append(("tracker.kind", f"is missing; give one of {', '.join(TRACKERS)}"))
    if workflow.agent.kind == "command" and not workflow.agent.command:
        found.append(("agent.command", 'is missing; give the program of the agent, such as "claude -p"'))
    if workflow.agent.kind == "builtin" and not workflow.agent.model:
        found.append(("agent.model", "is missing; give provider/name, such as openai/gpt-5"))
    return tuple(
        WorkflowError(message, kind="invalid_workflow_config", file=workflow.file, key=key)
        for key, message in found
    )


def declaration(workflow: Workflow) -> Declaration:
    """The hooks of the file, for `explain` and for the record of a run."""
    scripts = {name: cast("Script | None", getattr(workflow.hooks, name)) for name in POINTS}
    return Declaration(
        format="symphony",
        source=workflow.file,
        hooks=tuple(
            HookDeclaration(
                name=name,
                points=(POINTS[name],),
                kind="shell",
                params={"script": script.text, "shell": ["sh", "-lc"]},
                timeout=workflow.hooks.timeout,
                on_error=DEFAULTS[POINTS[name]],
                source=f"{workflow.file}:{script.line}",
            )
            for name, script in scripts.items()
            if script is not None
        ),
    )


def resolved(value: Any, env: Mapping[str, str]) -> Any:
    """A value whose whole text is `$NAME` as that variable's value; None where it is unset or empty."""
    name = reference(value)
    return value if name is None else env.get(name) or None


def reference(value: Any) -> str | None:
    """The variable that a value refers to, where its whole text is `$NAME`."""
    found = _NAME.fullmatch(value) if isinstance(value, str) else None
    return found[1] if found else None


def _variables(value: Any) -> Sequence[str]:
    if isinstance(value, Mapping):
        return [name for item in cast("Mapping[str, Any]", value).values() for name in _variables(item)]
    if isinstance(value, list):
        return [name for item in cast("list[Any]", value) for name in _variables(item)]
    name = reference(value)
    return [name] if name else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Another issue that this one waits for."""

    id: str | None = None
    identifier: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One issue. `identifier` is for people (ABC-123), `id` is the tracker's own."""

    id: str
    identifier: str
    title: str
    state: str
    native_ref: str | None = None
    description: str | None = None
    priority: int | None = None
    branch_name: str | None = None
    url: str | None = None
    assignee_id: str | None = None
    labels: tuple[str, ...] = ()
    blocked_by: tuple[Blocker, ...] = ()
    dispatchable: bool = True
    created_at: datetime | None = None
    updated_at: datetime | None = None


_TIMES = ("created_at", "updated_at")


def issue_values(issue: Issue) -> dict[str, Any]:
    """An issue as a template, an agent and another process see it: plain values, moments as ISO 8601."""
    return json.loads(json.dumps(asdict(issue), default=datetime.isoformat))


def issue_from(text: str) -> Issue:
    """The issue of these values, as JSON; a ValueError, TypeError or KeyError if they are none."""
    told: dict[str, Any] = json.loads(text)
    times = {name: datetime.fromisoformat(told[name]) for name in _TIMES if told.get(name)}
    blockers = tuple(Blocker(**each) for each in told.get("blocked_by") or ())
    lists = {"labels": tuple(told.get("labels") or ()), "blocked_by": blockers}
    found: dict[str, Any] = {**told, **times, **lists}
    return Issue(**found)
