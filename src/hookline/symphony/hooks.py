"""The four hooks of WORKFLOW.md as hooks of the engine: shell scripts in the workspace, with the issue in variables.

A hook takes its script and limit when it starts: a changed file counts from the next hook on.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hookline import files
from hookline.engine.context import Facts, HookContext, WorkflowContext
from hookline.engine.hook import Hook
from hookline.engine.lifecycle import OpenScope, Run
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point, Scope
from hookline.engine.record import Owner
from hookline.engine.result import CONTINUE, HookResult
from hookline.engine.threads import Threads
from hookline.errors import HookBroke
from hookline.handlers.process import context_json, environment, with_variables
from hookline.hookfile.ends import hooks_again
from hookline.journal.masking import Mask
from hookline.journal.recovery import made_or_put_off
from hookline.journal.snapshot import snapshot, snapshot_of
from hookline.journal.sqlite import SqliteJournal
from hookline.runners import Ending, Order, Output, Runner
from hookline.secrets import without
from hookline.symphony.agents.guard import Guard
from hookline.symphony.read import DEFAULTS, Workflow
from hookline.symphony.settings import POINTS
from hookline.symphony.trackers import Issue
from hookline.symphony.workspace import Workspace, WorkspaceError, WorkspaceRoot

logger = logging.getLogger(__name__)

LOGGED = 2048
"""Bytes of a hook's output that the log and the journal have; the whole is in a file of its own."""
KEPT = 4 * 1024 * 1024
"""Bytes of a hook's output that the file has; of a longer one its beginning and its end."""
KEEP_SECONDS = 30 * 86400.0
KEEP_BYTES = 512 * 1024 * 1024
_TIDY = 3600.0
_MORE_GRACE = 5.0
_BIG = 64 * 1024
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PLAIN = re.compile(r"[\w./:@%+,-]+", re.ASCII)
_threads = Threads(cap=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The issue, workspace and attempt that a hook runs for.

    `attempt` is None the first time, then the number of the retry. `outcome` is for endings that are no status of the
    engine.
    """

    issue: Issue
    workspace: Workspace
    attempt: int | None = None
    outcome: Callable[[], str | None] = lambda: None


class Outputs:
    """The whole outputs of hooks, one file each, kept beside the journal for a while."""

    def __init__(self, folder: str | Path, *, keep_bytes: int = KEEP_BYTES) -> None:
        self.folder = Path(folder)
        self._keep_bytes = keep_bytes
        self._tidied = 0.0

    def keep(self, name: str, text: str) -> Path:
        """Write the file and return its path; OSError if it cannot be written."""
        files.private_folder(self.folder)
        now = time.time()
        if now - self._tidied > _TIDY:
            self._tidied = now
            self._tidy(now - KEEP_SECONDS)
        path = self.folder / name
        files.write_whole(path, text.encode("utf-8", "backslashreplace"), mode=0o600)
        return path

    def _tidy(self, oldest: float) -> None:
        """Remove files that are too old, and the oldest above the limit of size."""
        with os.scandir(self.folder) as entries:
            found = [(entry.stat(follow_symlinks=False), entry.path) for entry in entries if entry.is_file()]
        size = 0
        for about, path in sorted(found, key=lambda each: each[0].st_mtime, reverse=True):
            size += about.st_size
            if about.st_mtime < oldest or size > self._keep_bytes:
                Path(path).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSite:
    """Everything that the attempts of a service share; it also runs their hooks.

    `current` gives the current workflow; `hooks` are those of other files, and `guard` takes them to the agent.
    `secret_names` are variables that neither hooks nor agents get, nor any other variable with the same value.
    """

    current: Callable[[], Workflow]
    root: WorkspaceRoot
    runner: Runner
    environ: Mapping[str, str]
    recorder: Recorder = field(default_factory=Recorder)
    secret_names: frozenset[str] = frozenset()
    mask: Mask = field(default_factory=Mask)
    outputs: Outputs | None = None
    owner: Owner | None = None
    hooks: tuple[Hook, ...] = ()
    guard: Guard | None = None
    began: set[str] = field(default_factory=set[str])
    """The runs of the workspaces that were made here."""

    @property
    def withheld_names(self) -> frozenset[str]:
        """Variables that neither hooks nor agents are given; a file that was read again may name others."""
        return self.secret_names | self.current().tracker.secret_names

    @property
    def environment(self) -> dict[str, str]:
        """The service's own environment, without the tracker's secrets."""
        return without(self.environ, self.withheld_names)

    def keep(self, run_id: str, workspace: Workspace) -> None:
        """Keep the end hooks of other files for a run that begins here."""
        if isinstance(self.recorder.journal, SqliteJournal):
            self.recorder.journal.keep(run_id, snapshot(self.hooks, workspace=workspace.path))

    async def kept(self, run_id: str) -> tuple[Hook, ...]:
        """The end hooks of other files for a run that began in another process, as they were then."""
        journal = self.recorder.journal
        if not isinstance(journal, SqliteJournal):
            return self.hooks
        found = snapshot_of(journal, run_id)
        if found is None:
            return self.hooks
        return tuple(await made_or_put_off(journal, run_id, hooks_again(found)))

    def scope(
        self,
        kind: Scope,
        scene: Scene,
        run_id: str,
        *,
        hooks: bool = True,
        others: tuple[Hook, ...] | None = None,
    ) -> OpenScope:
        """The outermost scope of a run at a workspace, with the hooks of other files, then the four of WORKFLOW.md.

        Without `hooks` it is only put on record; `others` stand for the hooks of other files.
        """
        workspace, workflow = scene.workspace, self.current()
        number = (scene.attempt or 0) + 1
        # After a cancel a hook still has its own limit; what ends it earlier is a second cancel.
        run = Run(id=run_id, recorder=self.recorder, end_grace=workflow.hooks.timeout + _MORE_GRACE)
        facts = Facts(
            workflow_id=workspace.identifier,
            run_id=run_id,
            scope_id=run.next_id(),
            attempt=number,
            agent=workflow.agent.kind,
            workflow=WorkflowContext(
                workflow_id=workspace.identifier,
                execution_id=run_id,
                root_execution_id=run_id,
                root_workflow_id=workspace.identifier,
                retry_count=number - 1,
                created_at=time.time(),
                workspace=workspace.path,
                agent_id=workflow.agent.kind,
            ),
        )
        given = self.hooks if others is None else others
        around = (*given, *workspace_hooks(self, scene)) if hooks else ()
        return OpenScope(run, Pipeline(around, self.recorder), kind, facts, name=workspace.identifier)

    def payload(self, scene: Scene) -> dict[str, Any]:
        """Enough to find everything again after a crash; a description may be long, and is left out."""
        issue = scene.issue
        return {
            "issue": {
                "id": issue.id,
                "identifier": issue.identifier,
                "title": issue.title[:500],
                "state": issue.state,
                "url": issue.url,
            },
            "attempt": scene.attempt,
            "workspace": scene.workspace.path,
            "root": self.root.path,
        }

    async def run_script(self, name: str, scene: Scene, hook_context: HookContext) -> HookResult:
        """Run the current script of a hook, if there is one."""
        hooks = self.current().hooks
        script = hooks.given.get(name)
        if script is None:
            return CONTINUE
        path = scene.workspace.path
        about = issue_fields(scene.issue, hook=name, workspace=path, attempt=scene.attempt)
        logger.info("%s hook started", about)
        try:
            with self.root.opened(scene.workspace) as folder:
                order = Order(
                    argv=("sh", "-lc", without_secrets(script.text, self.withheld_names)),
                    cwd=folder,
                    env=self.script_environment(name, scene, hook_context),
                    stdin=context_json(hook_context),
                    timeout=hooks.timeout,
                    output_cap=KEPT,
                    merge_stderr=True,
                )
                ending = await self.runner.run(order)
        except WorkspaceError as exc:
            logger.warning("%s hook did not start: %s", about, exc)
            raise HookBroke(f"could not start: {exc}", kind="not_started") from exc
        except BaseException as exc:
            logger.warning("%s hook was ended: %s", about, type(exc).__name__)
            raise
        return await self._judged(ending, name, hooks.timeout, about, hook_context)

    def script_environment(self, name: str, scene: Scene, hook_context: HookContext) -> dict[str, str]:
        """The environment of a script: the service's own, with the issue in variables."""
        issue, workspace = scene.issue, scene.workspace
        ended = None if POINTS[name].is_start else scene.outcome() or hook_context.status
        told: Mapping[str, Any] = {
            "ISSUE_ID": issue.id,
            "ISSUE_IDENTIFIER": issue.identifier,
            "ISSUE_TITLE": issue.title,
            "ISSUE_STATE": issue.state,
            "ISSUE_URL": issue.url,
            "WORKSPACE": workspace.path,
            "WORKSPACE_KEY": workspace.key,
            "HOOK": name,
            "OUTCOME": ended,
        }
        known = {f"{prefix}_{key}": told[key] for prefix in ("HOOKLINE", "SYMPHONY") for key in told}
        env = with_variables(self.environment, {**known, "SYMPHONY_ATTEMPT": scene.attempt})
        env["SYMPHONY_WORKSPACE_PATH"] = env["PWD"] = workspace.path
        whole = environment(env, None, hook_context, workspace.path)
        if POINTS[name].scope is Scope.WORKSPACE:
            del whole["HOOKLINE_ATTEMPT"]
        return whole

    async def _judged(
        self, ending: Ending, name: str, timeout: float, about: str, hook_context: HookContext
    ) -> HookResult:
        text = await self._masked(ending)
        kept = await self._kept(f"{hook_context.run_id}.{name}.log", text)
        said = shortened(text)
        took = f"{ending.seconds:.3f}s"
        line = fields(duration=took, output=said or None, output_file=kept)
        if ending.exited and ending.exit_code == 0:
            logger.info("%s %s hook succeeded", about, fields(duration=took, output_file=kept))
            logger.debug("%s %s", about, line)
            return CONTINUE
        how = ending.in_words(timeout)
        if ending.passed_limit:
            verb, status = "timed out", fields(timeout_ms=round(timeout * 1000))
        else:
            verb, status = "failed", fields(status=_status(ending))
        logger.warning("%s %s %s hook %s: %s", about, status, line, verb, how)
        kind = "not_started" if ending.not_started else "timed_out" if ending.passed_limit else "exit"
        parts = (
            f"{how}: {said}" if said else how,
            f"whole output: {kept}" if kept else "",
            _advice(name, kind),
        )
        raise HookBroke("\n".join(part for part in parts if part), kind=kind)

    async def _masked(self, ending: Ending) -> str:
        """The output, masked before it is cut; a long one in a thread."""
        text = ending.stdout.text
        if len(text) < _BIG:
            return self.mask.text(text)
        return await _threads.call(self.mask.text, text, timeout=None)

    async def _kept(self, name: str, text: str) -> str | None:
        if self.outputs is None or not text:
            return None
        try:
            return str(await _threads.call(self.outputs.keep, name, text, timeout=None))
        except (OSError, HookBroke) as exc:
            logger.warning("the output of a hook cannot be kept in %s: %s", self.outputs.folder, exc)
            return None


def workspace_hooks(site: AttemptSite, scene: Scene) -> tuple[Hook, ...]:
    """The four hooks for one workspace. One without a script when its point comes is not called."""
    return tuple(_hook(site, scene, name, point) for name, point in POINTS.items())


def _hook(site: AttemptSite, scene: Scene, name: str, point: Point) -> Hook:
    async def handler(_ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
        return await site.run_script(name, scene, hook_context)

    workflow = site.current()
    script = workflow.hooks.given.get(name)
    return Hook(
        name=name,
        points=frozenset({point}),
        handler=handler,
        kind="shell",
        match=lambda _: name in site.current().hooks.given,
        timeout=workflow.hooks.timeout,
        on_error=DEFAULTS[point],
        source=f"{workflow.file}:{script.line}" if script else workflow.file,
        limits_itself=True,
    )


def without_secrets(script: str, names: Iterable[str]) -> str:
    """A script that first unsets these variables, as a login profile may export them again.

    It does so on its first line, so that line numbers in errors stay right.
    """
    known = " ".join(sorted(name for name in names if _VARIABLE.fullmatch(name)))
    return f"command unset {known} 2>/dev/null; {script}" if known else script


def shortened(text: str) -> str:
    """The beginning and the end of a text, at most `LOGGED` bytes and no half characters, with the number left out."""
    content = text.strip().encode("utf-8", "backslashreplace")
    if len(content) <= LOGGED:
        return content.decode()
    ends = content[: LOGGED // 2], content[-(LOGGED // 2) :]
    head, tail = (part.decode("utf-8", "ignore").encode() for part in ends)
    return Output(head=head, tail=tail, total=len(content)).text


def fields(**values: Any) -> str:
    """`key=value` for a log line; a value that is not a plain word is quoted, on one line."""
    return " ".join(f"{key}={_quoted(str(value))}" for key, value in values.items() if value is not None)


def issue_fields(issue: Issue, **values: Any) -> str:
    """The same, after those of an issue."""
    return fields(issue_id=issue.id, issue_identifier=issue.identifier, **values)


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return '"' + "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in escaped) + '"'


def _status(ending: Ending) -> str:
    if ending.not_started is not None:
        return "not_started"
    return str(ending.exit_code) if ending.exit_code is not None else f"signal {ending.signal}"


def _advice(name: str, kind: str) -> str:
    if kind == "timed_out":
        return (
            "Raise hooks.timeout_ms, make it quicker (a shallow clone, fewer steps), or look for a process or a"
            " network that hangs."
        )
    if name == "after_create":
        return (
            "Can it reach what it clones, may it write below workspace.root, is every tool it needs installed?"
            " Try it alone: hookline try workspace.start WORKFLOW.md"
        )
    return ""
