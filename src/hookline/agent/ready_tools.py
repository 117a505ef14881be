"""Ready tools, bound to the run's workspace folder: bash, read_file, write_file, edit_file, list_files."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hookline.agent.tools import Tool
from hookline.engine.context import WorkflowContext
from hookline.errors import AgentFailed, UsageError
from hookline.runners import Ending, Order, Runner
from hookline.runners.local import LocalRunner

BASH_SECONDS = 120.0
OUTPUT_BYTES = 64 * 1024
LISTED = 1000


def ready_tool(name: str) -> Tool:
    """The ready tool of that name."""
    try:
        return READY[name]
    except KeyError:
        raise UsageError(f"there is no ready tool {name!r}; known: {', '.join(READY)}") from None


def bash_tool(runner: Runner | None = None, env: Mapping[str, str] | None = None) -> Tool:
    """The tool `bash`, on that runner and with that environment.

    Without a runner each call has one of its own, and nothing that the command started outlives the call. Without an
    environment it has ours.
    """

    async def body(ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
        command, limit = _text(arguments, "command"), arguments.get("timeout", BASH_SECONDS)
        if not isinstance(limit, int | float) or isinstance(limit, bool) or not limit > 0:
            raise AgentFailed(f"timeout is {limit!r}; give seconds greater than 0")
        variables = dict(os.environ if env is None else env)
        # Many images have no bash.
        shell = "bash" if shutil.which("bash", path=variables.get("PATH")) else "sh"
        order = Order(
            # With its name given, the runner does not look for missing scripts: a model is told the shell's own words.
            argv=(shell, "-c", command, shell),
            cwd=_folder(ctx),
            env=variables,
            timeout=float(limit),
            output_cap=OUTPUT_BYTES,
            merge_stderr=True,
        )
        ending = await (_run_alone(order) if runner is None else runner.run(order))
        if ending.passed_limit:
            raise AgentFailed(
                f"the command ran past {limit:g} s and was ended; it had said: {ending.stdout.text}"
            )
        if ending.signal is None and ending.exit_code is None:
            raise AgentFailed(f"the command {ending.in_words()}")
        code = ending.exit_code if ending.signal is None else -ending.signal
        return {"exit_code": code, "output": ending.stdout.text}

    return Tool(
        id="bash",
        description="Run a bash command in the workspace; gives its exit code and its output.",
        parameters=_schema(
            ("command",),
            command=("string", "the command"),
            timeout=("number", f"seconds, {BASH_SECONDS:g} if not given"),
        ),
        body=body,
        kind="shell",
    )


async def _run_alone(order: Order) -> Ending:
    runner = LocalRunner(cap=1)
    try:
        return await runner.run(order)
    finally:
        await runner.close()


async def _read_file(ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
    path = _inside(ctx, _text(arguments, "path"))
    text = await asyncio.to_thread(_read, path)
    if "offset" in arguments or "limit" in arguments:
        first = int(arguments.get("offset") or 1) - 1
        lines = text.splitlines(keepends=True)
        text = "".join(lines[first : first + int(arguments.get("limit") or len(lines))])
    return text


async def _write_file(ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
    path, content = _inside(ctx, _text(arguments, "path")), _text(arguments, "content")
    await asyncio.to_thread(_write, path, content)
    return f"wrote {len(content.encode())} bytes to {arguments['path']}"


async def _edit_file(ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
    path, old = _inside(ctx, _text(arguments, "path")), _text(arguments, "old")
    new = _text(arguments, "new")
    text = await asyncio.to_thread(_read, path, "strict")
    count = text.count(old) if old else 0
    if count != 1:
        raise AgentFailed(f"`old` stands {count} times in {arguments['path']}; it must stand exactly once")
    await asyncio.to_thread(_write, path, text.replace(old, new))
    return f"edited {arguments['path']}"


async def _list_files(ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
    folder = _inside(ctx, str(arguments.get("path") or "."))
    glob = str(arguments.get("glob") or "*")
    if ".." in Path(glob).parts or Path(glob).is_absolute():
        raise AgentFailed(f"glob {glob!r} leads out of the folder")
    return await asyncio.to_thread(_listed, folder, glob, _root(ctx))


def _schema(required: tuple[str, ...], **properties: tuple[str, str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            name: {"type": kind, "description": text} for name, (kind, text) in properties.items()
        },
        "required": list(required),
    }


_PATH = ("string", "a path inside the workspace")

READY: Mapping[str, Tool] = {
    made.id: made
    for made in (
        bash_tool(),
        Tool(
            id="read_file",
            description="Read a text file of the workspace.",
            parameters=_schema(
                ("path",),
                path=_PATH,
                offset=("integer", "first line, from 1"),
                limit=("integer", "how many lines"),
            ),
            body=_read_file,
            kind="read",
        ),
        Tool(
            id="write_file",
            description="Write a text file of the workspace, making folders as needed.",
            parameters=_schema(("path", "content"), path=_PATH, content=("string", "the whole new content")),
            body=_write_file,
            kind="write",
        ),
        Tool(
            id="edit_file",
            description="Replace one passage of a text file; it must stand there exactly once.",
            parameters=_schema(
                ("path", "old", "new"),
                path=_PATH,
                old=("string", "the passage as it stands"),
                new=("string", "what takes its place"),
            ),
            body=_edit_file,
            kind="write",
        ),
        Tool(
            id="list_files",
            description="List files of the workspace.",
            parameters=_schema((), path=_PATH, glob=("string", "a pattern such as **/*.py")),
            body=_list_files,
            kind="search",
        ),
    )
}


def _folder(ctx: WorkflowContext) -> str:
    return ctx.workspace or os.getcwd()


def _root(ctx: WorkflowContext) -> Path:
    return Path(_folder(ctx)).resolve()


def _listed(folder: Path, glob: str, root: Path) -> list[str]:
    if not folder.is_dir():
        raise AgentFailed(f"there is no folder {folder.name!r} there")
    # A pattern may go through a link that leads out.
    found = sorted(path for path in folder.glob(glob) if path.parent.resolve().is_relative_to(root))
    names = [f"{path.relative_to(root)}{'/' if path.is_dir() else ''}" for path in found[:LISTED]]
    return names if len(found) <= LISTED else [*names, f"... {len(found) - LISTED} more"]


def _inside(ctx: WorkflowContext, name: str) -> Path:
    root = _root(ctx)
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise AgentFailed(f"path {name!r} leads out of the workspace")
    return path


def _read(path: Path, errors: str = "replace") -> str:
    if not path.is_file():
        raise AgentFailed(f"there is no file {path.name!r} there")
    try:
        # Line ends as they are: what is read is what `old` of an edit is compared with.
        with path.open(encoding="utf-8", errors=errors, newline="") as file:
            return file.read()
    except UnicodeDecodeError as exc:
        raise AgentFailed(f"{path.name!r} is not UTF-8 text: {exc}") from None


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(content)


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise AgentFailed(f"argument {name!r} must be a string, not {type(value).__name__}")
    return value
