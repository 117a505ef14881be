"""The built-in agent as it is started beside the hooks, `python -m hookline.sympozium.run.program`.

It keeps the contract of Sympozium's runner: the task from TASK or /ipc/input/task.json; each tool call as files in
/ipc/tools; the result in /ipc/output/result.json and, between two markers, on standard output; then /ipc/done; and it
exits with 0 or 1. With HOOKLINE_RECORDS=1 it also prints what it begins and ends, as lines of `journal.stream`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hookline import files
from hookline.agent.sdk import Agent
from hookline.agent.tools import BASH_SECONDS
from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import Hook, OnError
from hookline.engine.plain import as_text, mapping, plain
from hookline.engine.point import Point
from hookline.engine.record import Record
from hookline.engine.result import CONTINUE, HookResult
from hookline.errors import HookBroke, HooklineError, UsageError
from hookline.files import output
from hookline.journal.masking import Mask
from hookline.journal.stream import Sender
from hookline.secrets import secrets_in
from hookline.sympozium.policy import permitted
from hookline.sympozium.run import folders
from hookline.terminal import err

_MODEL_KEYS = re.compile(r"(_API_KEY|_AUTH_TOKEN)$")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def main() -> int:
    output.take()
    given = dict(os.environ)
    ipc = Ipc(Path(given.get("IPC_DIR", "/ipc")))
    began = time.monotonic()
    skipped = ipc.skip()
    if skipped is not None:
        return ipc.ended({"status": "skipped", "response": skipped}, began)
    try:
        task = ipc.task(given)
        told = asyncio.run(_worked(task, given, ipc))
    except HooklineError as exc:
        return ipc.ended({"status": "error", "response": "", "error": str(exc)}, began)
    return ipc.ended({"status": "success", **told}, began)


async def _worked(task: str, given: Mapping[str, str], ipc: Ipc) -> dict[str, Any]:
    if given.get("DRY_RUN") == "true":
        return {"response": f"dry run of {given.get('INSTANCE_NAME', 'the agent')}: {task[:300]}"}
    agent = _agent(given)
    # The model has its key by now, and a command of the agent's needs none.
    for name in [name for name in os.environ if _MODEL_KEYS.search(name)]:
        del os.environ[name]
    ipc.write("output/status.json", {"phase": "running", "message": "", "toolId": ""})
    outside = Outside(ipc.path)
    await outside.open()
    try:
        asking = asking_hooks(outside, given.get(folders.RELAYED, ""))
        session = given.get("SESSION_KEY") or None
        watch = [outside.send]
        if given.get(folders.RECORDS) == "1":
            # Masked: others may read the log as well.
            watch.append(Sender(output.write, Mask(secrets_in(given))).scope)
        result = await agent.run(task, session_id=session, hooks=[*asking, ipc.calls], watch=watch)
    finally:
        await agent.close()
        await outside.close()
    usage = result.usage
    return {
        "response": as_text(plain(result.answer)),
        "metrics": {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens},
    }


def asking_hooks(outside: Outside, points: str) -> list[Hook]:
    """The agent's side: one hook at each of the points, which asks out there."""
    named = [Point(word) for word in points.split(",") if word]
    return [
        Hook(
            name="relayed",
            points=frozenset({point}),
            handler=outside,
            timeout=None,
            on_error=OnError.BLOCK if point.is_start else OnError.FAIL,
            source=f"{outside.ipc}/{folders.SOCKET}",
        )
        for point in named
    ]


class Outside:
    """The inner end of the socket. Lines go one after another: hooks of one point may not overtake each other."""

    def __init__(self, ipc: Path) -> None:
        self.ipc = ipc
        self._turn = asyncio.Lock()
        self._held: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._sender: Sender | None = None

    async def __call__(self, _ctx: WorkflowContext | None, context: HookContext, /) -> HookResult:
        line = json.dumps(context.to_dict(), default=str).encode() + b"\n"
        async with self._turn:
            try:
                reader, writer = self._held or await self._connection()
                writer.write(line)
                await writer.drain()
                answer = await reader.readline()
                return HookResult.from_dict(json.loads(answer))
            except (OSError, ValueError, HooklineError) as exc:
                raise HookBroke(f"the hooks outside could not be asked: {exc}", kind="not_started") from exc

    async def open(self) -> None:
        """Connect, so that records are sent; an agent works without, too."""
        with suppress(OSError):  # nobody listens
            await self._connection()

    def send(self, record: Record) -> None:
        """Send the beginning or end of a scope; for an agent's `watch`."""
        if self._sender is not None:
            self._sender.scope(record)

    async def close(self) -> None:
        """After everything is sent."""
        if self._held is None:
            return
        writer = self._held[1]
        with suppress(OSError):  # the listener is gone
            writer.close()
            await writer.wait_closed()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = folders.at_socket(self.ipc, socket.socket.connect)
        self._held = await asyncio.open_unix_connection(sock=sock, limit=folders.MOST_LINE)
        writer = self._held[1]
        self._sender = Sender(lambda line: writer.write(line.encode()))
        return self._held


def _agent(given: Mapping[str, str]) -> Agent:
    agent = Agent(
        id=given.get("AGENT_ID") or "default",
        provider=given.get("MODEL_PROVIDER", ""),
        model=given.get("MODEL_NAME", ""),
        provider_base_url=given.get("MODEL_BASE_URL") or None,
        system_prompt=given.get("SYSTEM_PROMPT") or None,
        tools=_tools(given),
        workspace=given.get("WORKSPACE", "/workspace"),
    )
    agent.environ = given
    agent.live_model()
    return agent


def _tools(given: Mapping[str, str]) -> list[str]:
    """The ready tools that the policy of the manifest allows."""
    if given.get("TOOLS_ENABLED", "true") != "true":
        return []
    return permitted(_words(given, "TOOL_POLICY_ALLOW"), _words(given, "TOOL_POLICY_DENY"))


def _words(given: Mapping[str, str], name: str) -> set[str]:
    return {word.strip() for word in given.get(name, "").split(",") if word.strip()}


class Ipc:
    """The folder /ipc, as the agent uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._calls = 0
        self._open: dict[str, str] = {}
        points = frozenset({Point.TOOL_START, Point.TOOL_END})
        self.calls = Hook(name="ipc", points=points, handler=self._called)

    def skip(self) -> str | None:
        """The reason in the skip marker, where a hook has left one."""
        try:
            text = (self.path / folders.SKIP).read_text(errors="replace")
        except OSError:
            return None
        return text.strip() or folders.NO_REASON

    def task(self, given: Mapping[str, str]) -> str:
        task = given.get("TASK", "")
        if not task:
            try:
                found = json.loads((self.path / "input/task.json").read_text())
                task = found.get("task", "")
            except (OSError, ValueError, AttributeError):
                task = ""
        task = as_text(task)
        if not task.strip():
            raise UsageError("there is no task: TASK is empty, and /ipc/input/task.json has none")
        return task

    def write(self, name: str, value: Any) -> None:
        """Write a whole file or none, since the folder may be watched."""
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        files.write_whole(place, json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "replace"))

    def ended(self, result: dict[str, Any], began: float) -> int:
        """Write the result to all its places; returns the exit code."""
        metrics = {"durationMs": round((time.monotonic() - began) * 1000), "toolCalls": self._calls}
        result = {**result, "metrics": {**result.get("metrics", {}), **metrics}}
        self.write(folders.RESULT, result)
        if result["status"] == "success":
            self.write("output/stream-0.json", {"type": "text", "content": result["response"], "index": 0})
        (self.path / "done").write_text("done")
        line = f"{folders.BEGIN}{json.dumps(result, separators=(',', ':'))}{folders.END}\n"
        output.write(f"\n{line}")
        if os.environ.get(folders.RECORDS) == "1":
            _leave(line)
        if output.fault:
            err.print(f"standard output cannot be written: {output.fault}")
        return 1 if result["status"] == "error" or output.fault else 0

    def _called(self, _ctx: WorkflowContext | None, context: HookContext, /) -> HookResult:
        call = context.call_id or ""
        if context.point == Point.TOOL_START:
            self._calls += 1
            # The model chose the call's id, and it becomes part of a file's name.
            name = self._open[call] = f"{self._calls}-{_UNSAFE.sub('_', call)[:100]}"
            self.write(f"tools/exec-request-{name}.json", _request(name, context))
        elif call in self._open:
            name = self._open.pop(call)
            self.write(f"tools/exec-result-{name}.json", _result(name, context))
        return CONTINUE


def _leave(line: str) -> None:
    """Leave the result with the container's end, too: a node may lose a log. The cluster keeps 4 KiB of it."""
    with suppress(OSError), open(os.open("/dev/termination-log", os.O_WRONLY), "w") as kept:
        kept.write(line)


def _request(name: str, context: HookContext) -> dict[str, Any]:
    given = mapping(context.current_payload)
    shell = context.tool_kind == "shell"
    return {
        "id": name,
        "command": given.get("command", "") if shell else context.current_tool,
        "args": [] if shell else [json.dumps(given, ensure_ascii=False)],
        "workDir": "/workspace",
        "timeout": given.get("timeout", BASH_SECONDS),
        "_meta": {"tool": context.current_tool, "kind": context.tool_kind},
    }


def _result(name: str, context: HookContext) -> dict[str, Any]:
    said = mapping(context.current_output)
    failed = context.status != "ok"
    shown = as_text(said.get("output", said.get("error")) if said else context.current_output)
    return {
        "id": name,
        "exitCode": said.get("exit_code", 1 if failed else 0),
        "stdout": "" if failed else shown,
        "stderr": shown if failed else "",
        "timedOut": context.status == "timed_out",
    }


if __name__ == "__main__":
    sys.exit(main())
