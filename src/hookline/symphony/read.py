"""Reads WORKFLOW.md of Symphony: YAML front matter for a service that works on issues, and its prompt in Markdown.

Nothing here starts, watches or asks anything. What is wrong is a problem with its line and key, and the field then has
its default; what is only odd is a warning.

`agent` has keys of our own beside Symphony's: `kind` (codex, command or builtin; codex if not given), `command` for
a command-line agent (`{prompt}` is where the prompt goes, else it is on standard input), and `model` and `tools` for
the built-in one. For every kind `codex.turn_timeout_ms` is how long a turn may be silent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from os import PathLike
from typing import Any, cast

from hookline.errors import FileError
from hookline.source import FrontMatter, content_of, front_matter
from hookline.symphony.keys import WORKFLOW
from hookline.symphony.types import Workflow, WorkflowError, resolved
from hookline.table import Findings, Node

FILE = "WORKFLOW.md"

_WITHOUT_EFFECT = ("worker", "observability")


def workflow_file(given: str | PathLike[str] | None, cwd: str | PathLike[str]) -> str:
    """The file that was named, else WORKFLOW.md in the current folder."""
    return os.path.join(cwd, given) if given else os.path.join(cwd, FILE)


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
    """A text's content. With `strict` the first problem is raised, and what is only tolerated is one."""
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
    """Front matter and body. Where the first has no end all of it is front matter, as Symphony reads it."""

    def unclosed(no_end: FileError) -> None:
        told = f"{no_end.message}; all of the file is taken for it, and there is no prompt"
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
