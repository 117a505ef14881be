"""MCP servers among an agent's tools: McpServer declares one, and transports carry its messages.

A transport is a command over stdio, streamable HTTP, or server-sent events. `agent.mcp` connects through them.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hookline.engine.hook import is_limit
from hookline.errors import UsageError, needs
from hookline.matcher import TOOL_KINDS

if TYPE_CHECKING:
    import httpx2
    from anyio.abc import ObjectReceiveStream, ObjectSendStream
    from mcp.shared.message import SessionMessage

    from hookline.runners import Ending
    from hookline.runners.local import Piped

LINE_CAP = 64 * 1024 * 1024
"""The largest message in bytes; a longer line is not MCP."""
TAIL = 4096
"""Bytes kept of a server's stderr."""
SECRET = 8
"""The least length of a value of `env` or `headers` that is masked in a server's output."""
_CHUNK = 65536
Streams = tuple[Any, Any]
"""The streams from which the library reads a server's messages and to which it writes its own."""
REFUSED_STATUS: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar(
    "hookline_mcp", default=None
)
"""Receives the HTTP status of a refused request, for the code that made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """An MCP server, by a `command` to start or a `url`, and which of its tools an agent uses.

    `tools` names those to use (all, if not given); a mapping also renames them. `start_timeout` limits starting and
    listing, `timeout` one call. A command inherits a few variables such as PATH and HOME, and gets `env`.
    """

    name: str
    command: str | None = None
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | os.PathLike[str] | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    transport: str = ""
    tools: Sequence[str] | Mapping[str, str] | None = None
    start_timeout: float = 30.0
    timeout: float | None = 60.0
    kind: str = "mcp"

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"an MCP server's name must be a non-empty text, not {self.name!r}")
        default = "stdio" if self.command is not None else "http"
        object.__setattr__(self, "transport", self.transport or default)
        for wrong in _wrongs(self):
            raise UsageError(f"{self}: {wrong}")

    def __str__(self) -> str:
        return f"MCP server {self.name!r}"

    def need_package(self) -> None:
        """Raise, with the command that installs it, if the library is not there."""
        with needs(str(self), "mcp"):
            import_module("mcp")

    @property
    def place(self) -> str:
        """Its command, or its URL without credentials and query."""
        if self.command is not None:
            return " ".join([self.command, *self.args])
        parts = urlsplit(self.url or "")
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def taken(self) -> Mapping[str, str] | None:
        """The tools to use: the server's name of each to the agent's; None for all."""
        if self.tools is None or isinstance(self.tools, Mapping):
            return self.tools
        return {name: name for name in self.tools}


def _wrongs(server: McpServer) -> Iterable[str]:
    """The mistakes in a declaration."""
    local = server.transport == "stdio"
    if (server.command is None) == (server.url is None):
        yield "give either a command to start or the url of one that runs"
    elif server.transport not in OPENERS:
        yield f"transport is {server.transport!r}; known: {', '.join(OPENERS)}"
    elif local != (server.command is not None):
        yield f"transport {server.transport!r} needs {'a command' if local else 'a url'}"
    elif local and not (server.command and isinstance(server.command, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
        yield f"command is {server.command!r}; give the program alone, and its arguments as args"
    elif not local and not str(server.url).startswith(("http://", "https://")):
        yield f"url is {server.url!r}; it begins with http:// or https://"
    if local and server.headers:
        yield "headers are for a url; a command takes args and env"
    if not local and (server.args or server.env or server.cwd is not None):
        yield "args, env and cwd are for a command; a url takes headers"
    for key in ("args", "tools"):
        words: Any = getattr(server, key) or ()
        if isinstance(words, str) or not all(isinstance(each, str) for each in words):
            yield f"{key} is {words!r}; give a list of words"
    for key in ("start_timeout", "timeout"):
        seconds: Any = getattr(server, key)
        if not is_limit(seconds) and not (seconds is None and key == "timeout"):
            yield f"{key} is {seconds!r}; give seconds greater than 0"
    ours = list((server.taken or {}).values())
    for name in ours:
        if ours.count(name) > 1:
            yield f"two of its tools would be called {name!r}"
    if server.kind not in TOOL_KINDS:
        yield f"kind is {server.kind!r}; known: {', '.join(TOOL_KINDS)}"


class ServerOutput:
    """The output of a server besides the protocol, whether it is over, and how its process ended."""

    def __init__(self, server: McpServer) -> None:
        self.over = asyncio.Event()
        self.process: Piped | None = None
        self._secrets = [*server.env.values(), *server.headers.values()]
        self._errors = bytearray()
        self._rubbish = ""

    def add_errors(self, part: bytes) -> None:
        self._errors += part
        del self._errors[:-TAIL]

    def add_rubbish(self, line: bytearray) -> None:
        self._rubbish = self._rubbish or line[:200].decode("utf-8", "replace").strip()

    @property
    def ending(self) -> Ending | None:
        """The ending of its process, if there is one and it ended by itself."""
        future = self.process.ending if self.process is not None else None
        return future.result() if future is not None and future.done() and not future.cancelled() else None

    @property
    def exited(self) -> bool:
        return self.ending is not None and self.ending.not_started is None

    def ended(self) -> str:
        return self.ending.in_words() if self.ending is not None else ""

    def words(self) -> str:
        """Its stderr and its output that was not MCP, as the end of a message."""
        told = f"; it printed what is not an MCP message: {self._rubbish!r}" if self._rubbish else ""
        from hookline.runners import Output  # an agent without a server starts without it

        said = Output(tail=bytes(self._errors), total=len(self._errors)).last_lines()
        told += f"; it said: {said}" if said else ""
        for secret in self._secrets:
            told = told.replace(secret, "***") if len(secret) >= SECRET else told
        return told


@asynccontextmanager
async def _stdio(server: McpServer, output: ServerOutput) -> AsyncGenerator[Streams, None]:
    """A command with one message per line. The library's own transport has no exit status and no line limit."""
    import anyio
    from mcp.client.stdio import get_default_environment

    from hookline.runners import Order
    from hookline.runners.local import piped

    assert server.command is not None
    order = Order(
        argv=(server.command, *server.args),
        cwd=os.fspath(server.cwd) if server.cwd is not None else None,
        env={**get_default_environment(), **server.env},
    )
    async with piped(order) as process:
        output.process = process
        inward, received = anyio.create_memory_object_stream[Any](0)
        sent, outward = anyio.create_memory_object_stream[Any](0)
        try:
            async with inward, received, sent, outward, anyio.create_task_group() as group:
                group.start_soon(_read_messages, process.stdout, inward, output)
                group.start_soon(_write_messages, process.stdin, outward, output)
                group.start_soon(_read_errors, process.stderr, output)
                try:
                    yield received, sent
                finally:
                    group.cancel_scope.cancel()
        finally:
            _take_errors(process.stderr, output)


async def _read_messages(fd: int, inward: ObjectSendStream[SessionMessage], output: ServerOutput) -> None:
    import anyio

    rest = bytearray()
    try:
        async with inward:
            while len(rest) <= LINE_CAP:
                await anyio.wait_readable(fd)
                part = os.read(fd, _CHUNK)
                rest += part
                if b"\n" in part:
                    *lines, rest = rest.split(b"\n")
                    for message in _messages(lines, output):
                        await inward.send(message)
                if not part:
                    break
            output.add_rubbish(rest)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # closing; nobody reads any more
    finally:
        output.over.set()


def _messages(lines: Iterable[bytearray], output: ServerOutput) -> Iterable[SessionMessage]:
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    for line in lines:
        try:
            yield SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            output.add_rubbish(line)


async def _write_messages(
    fd: int, outward: ObjectReceiveStream[SessionMessage], output: ServerOutput
) -> None:
    import anyio

    async for each in outward:
        text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
        left = memoryview(f"{text}\n".encode())
        while left:
            await anyio.wait_writable(fd)
            try:
                left = left[os.write(fd, left) :]
            except BlockingIOError:
                continue
            except OSError:
                output.over.set()
                return


async def _read_errors(fd: int, output: ServerOutput) -> None:
    import anyio

    part = b"-"
    while part:
        await anyio.wait_readable(fd)
        part = os.read(fd, _CHUNK)
        output.add_errors(part)


def _take_errors(fd: int, output: ServerOutput) -> None:
    """Reads the rest of stderr, at most 32 chunks of it."""
    for _ in range(32):
        try:
            output.add_errors(os.read(fd, _CHUNK))
        except BlockingIOError:
            return


@asynccontextmanager
async def _http(server: McpServer, _output: ServerOutput) -> AsyncGenerator[Streams, None]:
    from mcp.client.streamable_http import streamable_http_client

    assert server.url is not None
    async with (
        _http_client(server) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


@asynccontextmanager
async def _sse(server: McpServer, _output: ServerOutput) -> AsyncGenerator[Streams, None]:
    from mcp.client.sse import sse_client

    assert server.url is not None

    def client(*_: Any, **__: Any) -> httpx2.AsyncClient:
        return _http_client(server)

    async with sse_client(server.url, httpx_client_factory=client) as streams:
        yield streams


def _http_client(server: McpServer) -> httpx2.AsyncClient:
    import httpx2

    # No read timeout: a call has a limit of its own.
    limits = httpx2.Timeout(server.start_timeout, read=None)
    return httpx2.AsyncClient(
        headers=dict(server.headers), timeout=limits, event_hooks={"response": [_note_status]}
    )


async def _note_status(response: httpx2.Response) -> None:
    """Notes the HTTP status of a refusal, which the library's error lacks; a request runs in its sender's context."""
    answered = REFUSED_STATUS.get()
    if answered is not None:
        refused = [f"{response.status_code} {response.reason_phrase}"] if response.is_error else []
        answered[:] = refused


OPENERS = {"stdio": _stdio, "http": _http, "sse": _sse}
"""The transports by name: each opens the streams to a server."""
