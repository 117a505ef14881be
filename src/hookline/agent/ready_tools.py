"""Ready tools, bound to the run's workspace folder: bash, read_file, write_file, edit_file, list_files."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hookline.agent.tools import Tool
from hookline.engine.context import WorkflowContext
from hookline.errors import AgentFailed, UsageError

__all__ = ["READY", "ready_tool"]

BASH_SECONDS = 120.0
OUTPUT_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
PIPE_BYTES = 1024 * 1024
LISTED = 1000


def ready_tool(name: str) -> Tool:
    """The ready tool of that name."""
    try:
        return READY[name]
    except KeyError:
        raise UsageError(f"there is no ready tool {name!r}; known: {', '.join(READY)}") from None


async def _bash(ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
    command, limit = _text(arguments, "command"), arguments.get("timeout", BASH_SECONDS)
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not limit > 0:
        raise AgentFailed(f"timeout is {limit!r}; give seconds greater than 0")
    kept = _Kept(OUTPUT_BYTES)
    process, pipe = _started(command, _folder(ctx))
    output = _Output(pipe, kept)
    try:
        async with asyncio.timeout(limit):
            await _exited(process)
    except TimeoutError:
        raise AgentFailed(
            f"the command ran past {limit:g} s and was ended; it had said: {output.text()}"
        ) from None
    finally:
        _end(process)
        output.close()
        await _exited(process)
        code = process.wait()
    return {"exit_code": code, "output": kept.text()}


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
        Tool(
            id="bash",
            description="Run a bash command in the workspace; gives its exit code and its output.",
            parameters=_schema(
                ("command",),
                command=("string", "the command"),
                timeout=("number", f"seconds, {BASH_SECONDS:g} if not given"),
            ),
            body=_bash,
            kind="shell",
        ),
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


class _Kept:
    """Head and tail of an output; what lies between is counted, not kept."""

    def __init__(self, cap: int) -> None:
        self._half = cap // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, piece: bytes) -> None:
        self._total += len(piece)
        room = self._half - len(self._head)
        if room > 0:
            self._head += piece[:room]
            piece = piece[room:]
        self._tail += piece
        del self._tail[: -self._half]

    def text(self) -> str:
        cut = self._total - len(self._head) - len(self._tail)
        middle = f"\n... {cut} bytes left out ...\n".encode() if cut > 0 else b""
        return bytes(self._head + middle + self._tail).decode(errors="replace")


class _Output:
    """Reads a pipe as it fills, and on closing what is in it by then; nobody waits for its end."""

    def __init__(self, pipe: int, kept: _Kept) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._kept = kept
        self._open = True
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(pipe, self._read)

    def text(self) -> str:
        self.close()
        return self._kept.text()

    def close(self) -> None:
        if not self._open:
            return
        # No more than a pipe holds: a child that was left behind may write faster than we read.
        for _ in range(PIPE_BYTES // READ_BYTES):
            if not self._open or not self._read():
                break
        self._shut()

    def _read(self) -> bool:
        try:
            piece = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return False
        if piece:
            self._kept.add(piece)
        else:
            self._shut()
        return bool(piece)

    def _shut(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)


def _started(command: str, folder: str) -> tuple[subprocess.Popen[bytes], int]:
    """The command at work and the pipe with its output; asyncio's own would not be ended whole if cancelled here."""
    ours, theirs = os.pipe()
    try:
        process = subprocess.Popen(
            # Many images have none.
            ["bash" if shutil.which("bash") else "sh", "-c", command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return process, ours


async def _exited(process: subprocess.Popen[bytes]) -> None:
    """Returns when it has; until it is waited for, its number and its group are nobody else's."""
    loop = asyncio.get_running_loop()
    exited: asyncio.Future[None] = loop.create_future()
    watched = os.pidfd_open(process.pid)

    def settle() -> None:
        loop.remove_reader(watched)
        if not exited.done():
            exited.set_result(None)

    loop.add_reader(watched, settle)
    try:
        await exited
    finally:
        loop.remove_reader(watched)
        os.close(watched)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is in its group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


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
