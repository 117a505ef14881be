"""Reads WORKFLOW.md of Symphony, and again when it changes.

It has YAML front matter for a service that works on issues, and its prompt in Markdown.

A mistake is a problem with its line and key, and the field then has its default; something that is only odd is a
warning.

`agent` has keys of our own beside Symphony's: `kind` (codex, command or builtin; codex if not given), `command` for
a command-line agent (`{prompt}` is where the prompt goes, else it is on standard input), and `model` and `tools` for
the built-in one. For every kind `codex.turn_timeout_ms` is how long a turn may be silent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from typing import Any, cast

from hookline.engine.hook import Declaration, HookDeclaration, OnError
from hookline.engine.point import Point
from hookline.errors import FileError, HooklineError, needs
from hookline.source import FrontMatter, front_matter, text_of
from hookline.symphony.settings import (
    FRONT_MATTER,
    POINTS,
    AgentSettings,
    CodexSettings,
    HookScripts,
    PollingSettings,
    ServerSettings,
    TrackerSettings,
    WorkspaceSettings,
)
from hookline.symphony.trackers import TRACKERS, reference
from hookline.table import Findings, Node

logger = logging.getLogger(__name__)

FILE = "WORKFLOW.md"

AGENT_HERE = "the agent runs here, as do hooks in Python"
"""A note where hooks are to run elsewhere."""
DEFAULTS: Mapping[Point, OnError] = {
    point: OnError.FAIL if point.is_start else OnError.CONTINUE for point in Point
}
"""The consequence of a broken hook of this file, by point."""
_WITHOUT_EFFECT = ("worker", "observability")


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
class Workflow:
    """One WORKFLOW.md as it was read: its whole text, and what that says. Paths are absolute; a prompt begins in
    `prompt_line`."""

    file: str
    text: str = ""
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


def ready(workflow: Workflow) -> Workflow:
    """The workflow itself; raises its first problem, or the first thing that an attempt needs and is missing."""
    for missing in missing_for_dispatch(workflow.checked()):
        raise missing
    with needs("a WORKFLOW.md", "orchestrator"):
        import_module("liquid")  # found missing in the middle, every attempt would fail and be made again
    return workflow


def missing_for_dispatch(workflow: Workflow) -> tuple[WorkflowError, ...]:
    """Errors for the settings that an attempt needs and the file leaves out."""
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
            for name, script in workflow.hooks.given.items()
        ),
    )


def workflow_file(given: str | PathLike[str] | None) -> str:
    """The file that was named, else WORKFLOW.md in the current folder."""
    return os.path.join(os.getcwd(), given or FILE)


def read_workflow(
    given: str | PathLike[str], env: Mapping[str, str] = os.environ, *, strict: bool = False
) -> Workflow:
    """The content of the file that was named; one that cannot be read as a whole is a WorkflowError."""
    file = workflow_file(given)
    return read(_text(file), file, env, strict=strict)


def _text(file: str | PathLike[str]) -> str:
    try:
        return text_of(file, "a workflow")
    except FileError as exc:
        # Without a cause it could be opened, and is no text or too big.
        kind = "missing_workflow_file" if exc.__cause__ else "workflow_parse_error"
        raise WorkflowError.of(exc, kind) from exc


def read(text: str, file: str | PathLike[str], env: Mapping[str, str], *, strict: bool = False) -> Workflow:
    """A text's content. With `strict` a doubt is a problem too, and the first problem is raised."""
    findings = Findings(strict=strict)
    parts = _split(text, file, findings)
    value: Any = parts.document.value
    if value is not None and not isinstance(value, Mapping):
        what = "a list" if isinstance(value, list) else f"one value, {value!r}"
        raise WorkflowError(
            f"the front matter is {what}; write keys and values, as in `hooks:`",
            kind="workflow_front_matter_not_a_map",
            file=file,
            line=parts.document.line,
        )
    whole = os.path.abspath(file)
    node = Node.root(parts.document._replace(file=whole), findings)
    _refuse_workers(node)
    known = {key: item for key, item in node.of_mapping.items() if key not in _WITHOUT_EFFECT}
    found = FRONT_MATTER.read(node.with_value(known))
    workspace: WorkspaceSettings = found.pop("workspace", WorkspaceSettings())
    root = _root(node, workspace.root, env, whole)
    before = parts.body[: len(parts.body) - len(parts.body.lstrip())]
    workflow = Workflow(
        file=whole,
        text=text,
        prompt=parts.body.strip(),
        prompt_line=parts.body_line + before.count("\n"),
        root=root,
        warnings=tuple(findings.notes),
        problems=tuple(map(WorkflowError.of, findings.problems)),
        **found,
    )
    return workflow.checked() if strict else workflow


def _split(text: str, file: str | PathLike[str], findings: Findings) -> FrontMatter:
    """Front matter and body. Without an end all of the file is front matter, as Symphony reads it."""

    def unclosed(no_end: FileError) -> None:
        told = f"{no_end.message}; the whole file is read as front matter, and there is no prompt"
        findings.doubt(FileError(told, file=file, line=1))

    try:
        return front_matter(text, file, unclosed=unclosed)
    except FileError as exc:
        raise WorkflowError.of(exc, "workflow_parse_error") from exc


def _refuse_workers(node: Node) -> None:
    worker = node.of_mapping.get("worker")
    if isinstance(worker, Mapping) and cast("Mapping[str, Any]", worker).get("ssh_hosts"):
        # Work that was meant for another machine must not quietly be done on this one.
        node.wrong("workers over SSH are not in this version; take it out to run here", "worker", "ssh_hosts")


def _root(node: Node, given: str, env: Mapping[str, str], file: str) -> str:
    """The folder of the workspaces as an absolute path; the default also where its variable is not set."""
    default = os.path.join(env.get("TMPDIR") or "/tmp", "symphony_workspaces")
    name = reference(given)
    value = env.get(name) if name else given.strip()
    if not value:
        if name:
            told = f"{given} is not set; the default folder is used"
            node.doubt(told, "workspace", "root", code="unset-variable")
        return default
    if "\0" in value:
        node.wrong("has a NUL character in it", "workspace", "root")
        return default
    if value == "~" or value.startswith("~/"):
        value = (env.get("HOME") or os.path.expanduser("~")) + value[1:]
    elif value.startswith("~"):
        value = os.path.expanduser(value)
    return os.path.normpath(os.path.join(os.path.dirname(file), value))


EVERY = 1.0
"""Seconds between two looks at the file."""
SETTLED = 0.3
"""Seconds that a file has not been written to before it is read: an editor may write it in pieces."""


class WatchedWorkflow:
    """The last good workflow of a file, and the problem of the one on disk. The first one must be good."""

    def __init__(
        self,
        file: str,
        env: Mapping[str, str],
        *,
        strict: bool = False,
        check: Callable[[Workflow], None] = lambda _: None,
    ) -> None:
        self.file = file
        self._env = env
        self._strict = strict
        self._check = check
        self._text: str | None = _text(file)
        self.workflow = self._read(self._text)
        self.problem: str | None = None
        self.revision = 1

    async def watch(self, changed: Callable[[], None]) -> None:
        """Look at the file every second; `changed` is called after each change, good or not."""
        while True:
            await asyncio.sleep(EVERY)
            if await asyncio.to_thread(self.look):
                changed()

    def look(self) -> bool:
        """Read the file if it has changed and nobody is writing it; True if anything is different now."""
        with suppress(OSError):  # a file that is gone has changed
            if time.time() - os.stat(self.file).st_mtime < SETTLED:
                return False
        text = None
        try:
            text = _text(self.file)
            if text == self._text:
                return False
            self.workflow = self._read(text)
        except HooklineError as exc:
            if str(exc) == self.problem:
                return False
            self.problem = str(exc)
            logger.warning("%s; revision %s stays in force, and no new attempt begins", exc, self.revision)
            return True
        finally:
            self._text = text
        self.problem = None
        self.revision += 1
        logger.warning("%s was read again (revision %s)", self.file, self.revision)
        return True

    def _read(self, text: str) -> Workflow:
        workflow = ready(read(text, self.file, self._env, strict=self._strict))
        self._check(workflow)
        for warning in workflow.warnings:
            logger.warning("%s", warning)
        return workflow
