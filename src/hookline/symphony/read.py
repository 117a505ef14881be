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
import os
import time
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, cast

from hookline.errors import FileError, HooklineError
from hookline.source import FrontMatter, content_of, front_matter
from hookline.symphony.keys import WORKFLOW
from hookline.symphony.types import Workflow, WorkflowError, missing_for_dispatch, resolved
from hookline.table import Findings, Node

FILE = "WORKFLOW.md"

_WITHOUT_EFFECT = ("worker", "observability")


def workflow_file(given: str | PathLike[str] | None, cwd: str | PathLike[str]) -> str:
    """The file that was named, else WORKFLOW.md in the current folder."""
    return os.path.join(cwd, given) if given else os.path.join(cwd, FILE)


def read_workflow(file: str, *, strict: bool = False) -> Workflow:
    """The file that a command names, or the WORKFLOW.md of this folder, in this process's environment."""
    return read_file(workflow_file(file or None, os.getcwd()), os.environ, strict=strict)


def read_file(file: str | PathLike[str], env: Mapping[str, str], *, strict: bool = False) -> Workflow:
    """A file's content; one that cannot be read as a whole is a WorkflowError."""
    try:
        content = content_of(file, "a workflow")
    except FileError as exc:
        # Without a cause it could be opened, and is too big.
        kind = "missing_workflow_file" if exc.__cause__ else "workflow_parse_error"
        raise WorkflowError.of(exc, kind) from exc
    return read(content, file, env, strict=strict)


def read(
    text: str | bytes, file: str | PathLike[str], env: Mapping[str, str], *, strict: bool = False
) -> Workflow:
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
    found = WORKFLOW.read(node.with_value(known))
    found["root"] = _root(node, found.get("root", ""), env, whole)
    before = parts.body[: len(parts.body) - len(parts.body.lstrip())]
    workflow = Workflow(
        file=whole,
        prompt=parts.body.strip(),
        prompt_line=parts.body_line + before.count("\n"),
        warnings=tuple(findings.notes),
        problems=tuple(map(WorkflowError.of, findings.problems)),
        **found,
    )
    return workflow.checked() if strict else workflow


def _split(text: str | bytes, file: str | PathLike[str], findings: Findings) -> FrontMatter:
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
    value: str | None = resolved(given.strip(), env)
    if not value:
        if given.strip():
            node.doubt(f"{given} is not set; the default folder is used", "workspace", "root")
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

Stamp = tuple[int, int, int]


class WatchedWorkflow:
    """The last good workflow of a file, and the problem of the one on disk. The first one must be good."""

    def __init__(
        self,
        file: str,
        env: Mapping[str, str],
        *,
        strict: bool = False,
        told: Callable[[str], None] = lambda _: None,
        check: Callable[[Workflow], None] = lambda _: None,
    ) -> None:
        self.file = file
        self._env = env
        self._strict = strict
        self._told = told
        self._check = check
        self._stamp: Stamp | None = _stamp(file)
        self.text = ""
        """The file as it was when `workflow` was read of it."""
        self.workflow = self._read()
        self._content = _bytes(file)
        self.problem: str | None = None
        self.revision = 1
        for warning in self.workflow.warnings:
            told(str(warning))

    async def watch(self, changed: Callable[[], None]) -> None:
        """Look at the file every second; `changed` is called after each change, good or not."""
        while True:
            await asyncio.sleep(EVERY)
            if await asyncio.to_thread(self.look):
                changed()

    def look(self) -> bool:
        """Read the file if it has changed and nobody is writing it; True if anything is different now."""
        stamp = _stamp(self.file)
        if stamp == self._stamp:
            return False
        if stamp is not None and time.time() - stamp[0] / 1e9 < SETTLED:
            return False
        self._stamp = stamp
        content = _bytes(self.file)
        if content == self._content and self.problem is None:
            return False
        self._content = content
        try:
            workflow = self._read()
        except HooklineError as exc:
            return self._keep(str(exc))
        self.workflow, self.problem = workflow, None
        self.revision += 1
        for warning in workflow.warnings:
            self._told(str(warning))
        self._told(f"{self.file} was read again (revision {self.revision})")
        return True

    def _keep(self, problem: str) -> bool:
        if problem != self.problem:
            self.problem = problem
            self._told(f"{problem}; revision {self.revision} stays in force, and no new attempt begins")
        return True

    def _read(self) -> Workflow:
        content = None
        while True:
            workflow = read_file(self.file, self._env, strict=self._strict).checked()
            # A workflow that was read between two equal contents was read of this one.
            before, content = content, _bytes(self.file)
            if content == before:
                break
        missing = missing_for_dispatch(workflow)
        if missing:
            raise missing[0]
        self._check(workflow)
        self.text = (content or b"").decode("utf-8-sig")
        return workflow


def _stamp(file: str) -> Stamp | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _bytes(file: str) -> bytes | None:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError:
        return None
