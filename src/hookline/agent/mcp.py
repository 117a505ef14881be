"""MCP servers as tools of an agent: opened, listed, called and closed.

The library's contexts must be left by the task that entered them, and a run comes and goes. So each server in use has
a task of its own that opens it, waits, and closes it; calls are made from anywhere.

The tools are listed anew for every run: a change on the server is never missed, and one that is gone is found out
before the model is asked. This module alone names the library, which may not be installed.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import json
import logging
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from hookline.agent.mcp_server import McpServer
from hookline.agent.output_schema import as_text
from hookline.agent.tools import Tool
from hookline.engine.context import WorkflowContext
from hookline.errors import AgentFailed, UsageError
from hookline.runners import Ending, Order, Output

if TYPE_CHECKING:
    import httpx2
    import mcp_types
    from anyio.abc import ObjectReceiveStream, ObjectSendStream
    from mcp import Client, MCPError
    from mcp.shared.message import SessionMessage

logger = logging.getLogger(__name__)

ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of tools that every model provider takes."""
LINE_CAP = 64 * 1024 * 1024
"""Bytes of one message; whoever prints more without a line's end does not speak MCP."""
TAIL = 4096
"""Bytes kept of what it says beside the protocol."""
SECRET = 8
"""Characters from which on a value of `env` or `headers` is hidden where a server repeats it."""
CLOSING = 10.0
"""Seconds that a server has to be closed in good order before its task is cancelled."""
SOON = 2.0
"""Seconds in which the task of a server at a URL finds out that the connection is gone."""
_CHUNK = 65536
Streams = tuple[Any, Any]
"""What the library reads a server's messages from, and what it writes its own to."""
_Answer = TypeVar("_Answer")
_ANSWERED: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("hookline_mcp", default=None)
"""Where the HTTP status of a refusal is noted for whoever asked."""


class Process(Protocol):
    """A started command: our ends of its pipes, not blocking, and how it ended."""

    @property
    def stdin(self) -> int: ...

    @property
    def stdout(self) -> int: ...

    @property
    def stderr(self) -> int: ...

    @property
    def ending(self) -> asyncio.Future[Ending]: ...


Start = Callable[[Order], AbstractAsyncContextManager[Process]]
"""Starts a command, and leaves nothing of it behind."""


class Servers:
    """The servers of one agent, in use on one event loop."""

    def __init__(self, servers: Iterable[McpServer], start: Start) -> None:
        self._used = [_Used(server, start) for server in servers]

    async def tools(self, own: Iterable[str]) -> dict[str, Tool]:
        """What they list now, in their order; `own` are the names that the agent's other tools have."""
        owners: dict[str, str] = dict.fromkeys(own, "a tool of the agent itself")
        found: dict[str, Tool] = {}
        listings = await asyncio.gather(*(each.tools() for each in self._used), return_exceptions=True)
        for used, listed in zip(self._used, listings, strict=True):
            if isinstance(listed, BaseException):
                raise listed
            for tool in listed:
                if tool.id in owners:
                    raise AgentFailed(
                        f"two tools are called {tool.id!r}: one of {used.server}, and {owners[tool.id]};"
                        f" give one another name, as in McpServer(tools={{{tool.id!r}: ...}})"
                    )
                owners[tool.id] = f"one of {used.server}"
                found[tool.id] = tool
        return found

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._used))


class _Used:
    """One server in use: opened when it is needed, and again where the connection was lost."""

    def __init__(self, server: McpServer, start: Start) -> None:
        self.server = server
        self._start = start
        self._connection: _Connection | None = None

    async def tools(self) -> list[Tool]:
        listed = await self._asked(_listed, self.server.start_timeout, again=True)
        return [self._tool(ours, tool) for ours, tool in _chosen(self.server, listed)]

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _tool(self, ours: str, listed: mcp_types.Tool) -> Tool:
        async def body(_ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
            result = await self._asked(lambda client: client.call_tool(listed.name, arguments))
            value = value_of(result)
            if result.is_error:
                raise AgentFailed(as_text(value) or f"{listed.name} failed and does not say why")
            return value

        return Tool(
            id=ours,
            description=listed.description or listed.title or "",
            # Some providers refuse an object that does not say its properties.
            parameters={"type": "object", "properties": {}, **listed.input_schema},
            body=body,
            kind=self.server.kind,
            timeout=self.server.timeout,
        )

    async def _asked(
        self,
        question: Callable[[Client], Awaitable[_Answer]],
        limit: float | None = None,
        *,
        again: bool = False,
    ) -> _Answer:
        """The server's answer. A lost session never saw the question, so that is asked in a new one, once.

        With `again` it is also asked once more where the server has ended, for asking twice does no harm.
        """
        kept = self._connection
        connection = await self._opened()
        try:
            return await connection.asked(question, limit)
        except _Lost as exc:
            if not (exc.unseen or (again and connection is kept)):
                raise
            logger.warning("%s; it is opened again", exc)
            await connection.close()
        return await (await self._opened()).asked(question, limit)

    async def _opened(self) -> _Connection:
        # One after the other: there are never two processes of a server that may hold a lock or a port.
        while (connection := self._connection) is not None and connection.over:
            await connection.close()
            if self._connection is connection:
                self._connection = None
        if connection is None:
            connection = self._connection = _Connection(self.server, self._start)
        await connection.opened()
        return connection


class _Lost(AgentFailed):
    """The connection is gone. `unseen`: and the server did not take the question up."""

    def __init__(self, message: str, *, unseen: bool = False) -> None:
        super().__init__(message)
        self.unseen = unseen


class _Connection:
    """One server opened once, by a task that also closes it."""

    def __init__(self, server: McpServer, start: Start) -> None:
        _check_installed(server)
        self._server = server
        self._start = start
        self._heard = _Heard(server)
        self._client: Client | None = None
        self._trouble = ""
        self._ready = asyncio.Event()
        # Not in the context of the run that happens to need it first.
        self._task = asyncio.get_running_loop().create_task(
            self._owned(), name=f"{server}", context=contextvars.Context()
        )

    @property
    def over(self) -> bool:
        return bool(self._trouble) or (self._client is not None and self._heard.over.is_set())

    async def opened(self) -> None:
        await self._ready.wait()
        if self._client is None:
            raise AgentFailed(self._trouble)

    async def asked(
        self, question: Callable[[Client], Awaitable[_Answer]], limit: float | None = None
    ) -> _Answer:
        from mcp import MCPError
        from pydantic import ValidationError

        assert self._client is not None
        answered: list[str] = []
        before = _ANSWERED.set(answered)
        timer = asyncio.timeout(limit)
        try:
            async with timer:
                return await question(self._client)
        except TimeoutError:
            if not timer.expired():
                raise
            # Whoever comes next shall not wait for this one again.
            self._end(f"{self._server} did not answer within {limit:g} s")
            raise AgentFailed(f"{self._trouble}{self._heard.words()}") from None
        except MCPError as exc:
            raise await self._failed(exc, answered) from exc
        except (RuntimeError, ValidationError) as exc:
            raise AgentFailed(f"{self._server} answered what does not fit: {exc}") from exc
        finally:
            _ANSWERED.reset(before)

    async def close(self) -> None:
        self._end(f"{self._server} was closed")
        try:
            if self._ready.is_set():
                await asyncio.wait({self._task}, timeout=CLOSING)
        finally:
            self._task.cancel()
        await asyncio.wait({self._task})

    async def _owned(self) -> None:
        """Open it, wait until it is over, close it."""
        answered: list[str] = []
        _ANSWERED.set(answered)
        why = "was closed"
        try:
            if not await self._held("auto"):
                await self._held("legacy")
            why = self._heard.ended() or "closed the connection"
        except TimeoutError:
            why = f"did not answer within {self._server.start_timeout:g} s"
        except Exception as exc:
            leaf = _leaf(exc)
            why = (self._heard.ended() if _is_closed(leaf) else "") or _in_words(leaf, answered, self._server)
        finally:
            self._end(f"{self._server} {why}{self._heard.words()}")
            self._ready.set()

    async def _held(self, mode: str) -> bool:
        """Open until it is over; False where it is worth another try.

        The library first asks whether a server speaks the protocol of today. There are programs that end when anything
        comes before `initialize`, so one that ended is started again and asked in the old way.
        """
        self._heard = _Heard(self._server)
        transport = _OPENED[self._server.transport](self._server, self._start, self._heard)
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._server.start_timeout):
                    self._client = await stack.enter_async_context(_client(transport, mode))
                self._ready.set()
                await self._heard.over.wait()
        except Exception as exc:
            if mode == "auto" and self._client is None and self._heard.exited and _is_closed(_leaf(exc)):
                return False
            raise
        return True

    def _end(self, trouble: str) -> None:
        """The first to know says why."""
        self._trouble = self._trouble or trouble
        self._heard.over.set()

    async def _failed(self, exc: MCPError, answered: list[str]) -> AgentFailed:
        """What an error of the library means: a lost session, a lost connection, or the server's own word."""
        if answered and answered[-1].startswith("404"):
            return _Lost(f"{self._server}: the session is lost ({answered[-1]}: {exc})", unseen=True)
        if answered or not _is_closed(exc):
            return AgentFailed(f"{self._server} {_in_words(exc, answered, self._server)}")
        # Its task knows more, in a moment; but at a URL one answer may break off where the connection does not.
        await asyncio.wait({self._task}, timeout=CLOSING if self._server.command is not None else SOON)
        return _Lost(self._trouble or f"{self._server} {_in_words(exc, answered, self._server)}")


class _Heard:
    """What a server let us hear beside the protocol, whether it is over, and how its process ended."""

    def __init__(self, server: McpServer) -> None:
        self.over = asyncio.Event()
        self.process: Process | None = None
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
        """How its process ended, where there is one and it did so by itself."""
        future = self.process.ending if self.process is not None else None
        return future.result() if future is not None and future.done() and not future.cancelled() else None

    @property
    def exited(self) -> bool:
        return self.ending is not None and self.ending.not_started is None

    def ended(self) -> str:
        return self.ending.in_words() if self.ending is not None else ""

    def words(self) -> str:
        """What it printed and where that was not the protocol, for the end of a message."""
        told = f"; it printed what is no MCP message: {self._rubbish!r}" if self._rubbish else ""
        said = Output(tail=bytes(self._errors), total=len(self._errors)).last_lines()
        told += f"; it said: {said}" if said else ""
        for secret in self._secrets:
            told = told.replace(secret, "***") if len(secret) >= SECRET else told
        return told


def _check_installed(server: McpServer) -> None:
    """Say what to install where the library is not there."""
    try:
        importlib.import_module("mcp")
    except ImportError as exc:
        raise UsageError(f"{server} needs the mcp package ({exc}): pip install 'hookline[mcp]'") from exc


def _client(transport: AbstractAsyncContextManager[Streams], mode: str) -> Client:
    from mcp import Client

    # Nothing is kept of a list: it is asked for where it is needed.
    return Client(transport, mode=mode, cache=None)


def _leaf(exc: Exception) -> Exception:
    """The first that went wrong; what passes a task group comes out as a group."""
    while isinstance(exc, ExceptionGroup):
        exc = cast("ExceptionGroup[Exception]", exc).exceptions[0]
    return exc


def _is_closed(exc: Exception) -> bool:
    """Whether it only says that the other side is gone."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(exc, MCPError) and exc.code == CONNECTION_CLOSED


def _in_words(exc: Exception, answered: list[str], server: McpServer) -> str:
    """An error of the library or of what it uses, to follow the server's name."""
    from httpx2 import TransportError

    place = "" if server.command is not None else f"({server.place}) "
    if answered:
        return f"{place}answered {answered[-1]}: {exc}"
    if isinstance(exc, TransportError):
        return f"{place}cannot be reached: {exc or type(exc).__name__}"
    return f"{place}failed: {exc or type(exc).__name__}"


@asynccontextmanager
async def _stdio(server: McpServer, start: Start, heard: _Heard) -> AsyncGenerator[Streams, None]:
    """A command, one message a line. The library's own would not tell us how it ended, nor bound a line."""
    import anyio
    from mcp.client.stdio import get_default_environment

    assert server.command is not None
    order = Order(
        argv=(server.command, *server.args),
        cwd=os.fspath(server.cwd) if server.cwd is not None else None,
        env={**get_default_environment(), **server.env},
    )
    async with start(order) as process:
        heard.process = process
        inward, received = anyio.create_memory_object_stream[Any](0)
        sent, outward = anyio.create_memory_object_stream[Any](0)
        try:
            async with inward, received, sent, outward, anyio.create_task_group() as group:
                group.start_soon(_read_messages, process.stdout, inward, heard)
                group.start_soon(_write_messages, process.stdin, outward, heard)
                group.start_soon(_read_errors, process.stderr, heard)
                try:
                    yield received, sent
                finally:
                    group.cancel_scope.cancel()
        finally:
            _take_errors(process.stderr, heard)


async def _read_messages(fd: int, inward: ObjectSendStream[SessionMessage], heard: _Heard) -> None:
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
                    for message in _messages(lines, heard):
                        await inward.send(message)
                if not part:
                    break
            heard.add_rubbish(rest)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # we are closing, and nobody listens
    finally:
        heard.over.set()


def _messages(lines: Iterable[bytearray], heard: _Heard) -> Iterable[SessionMessage]:
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    for line in lines:
        try:
            yield SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            heard.add_rubbish(line)


async def _write_messages(fd: int, outward: ObjectReceiveStream[SessionMessage], heard: _Heard) -> None:
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
                heard.over.set()
                return


async def _read_errors(fd: int, heard: _Heard) -> None:
    import anyio

    part = b"-"
    while part:
        await anyio.wait_readable(fd)
        part = os.read(fd, _CHUNK)
        heard.add_errors(part)


def _take_errors(fd: int, heard: _Heard) -> None:
    """What is still there; whoever writes on for ever does not keep us."""
    for _ in range(32):
        try:
            heard.add_errors(os.read(fd, _CHUNK))
        except BlockingIOError:
            return


@asynccontextmanager
async def _http(server: McpServer, _start: Start, _heard: _Heard) -> AsyncGenerator[Streams, None]:
    from mcp.client.streamable_http import streamable_http_client

    assert server.url is not None
    async with (
        _http_client(server) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


@asynccontextmanager
async def _sse(server: McpServer, _start: Start, _heard: _Heard) -> AsyncGenerator[Streams, None]:
    from mcp.client.sse import sse_client

    assert server.url is not None

    def client(*_: Any, **__: Any) -> httpx2.AsyncClient:
        return _http_client(server)

    async with sse_client(server.url, httpx_client_factory=client) as streams:
        yield streams


def _http_client(server: McpServer) -> httpx2.AsyncClient:
    import httpx2

    # A call may take as long as it is allowed to; its own limit ends it.
    limits = httpx2.Timeout(server.start_timeout, read=None)
    return httpx2.AsyncClient(
        headers=dict(server.headers), timeout=limits, event_hooks={"response": [_note_status]}
    )


async def _note_status(response: httpx2.Response) -> None:
    """The library tells a refusal by HTTP as an error without its number; requests keep their sender's context."""
    answered = _ANSWERED.get()
    if answered is not None:
        refused = [f"{response.status_code} {response.reason_phrase}"] if response.is_error else []
        answered[:] = refused


_OPENED = {"stdio": _stdio, "http": _http, "sse": _sse}


async def _listed(client: Client) -> list[mcp_types.Tool]:
    """Every page of the list."""
    found: list[mcp_types.Tool] = []
    cursors: set[str | None] = {None}
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            return found
        if cursor in cursors:
            raise RuntimeError(f"its list of tools comes back to the page {cursor!r} for ever")
        cursors.add(cursor)


def _chosen(server: McpServer, listed: Sequence[mcp_types.Tool]) -> list[tuple[str, mcp_types.Tool]]:
    """The tools to take with the names they have here."""
    taken = server.taken
    found: dict[str, mcp_types.Tool] = {}
    for tool in listed:
        if taken is not None and tool.name not in taken:
            continue
        if tool.name in found:
            raise AgentFailed(
                f"{server} lists the tool {tool.name!r} twice; which one is meant cannot be known"
            )
        found[tool.name] = tool
    for name in taken or ():
        if name not in found:
            raise AgentFailed(_not_listed(server, name, listed))
    named = [(taken[name] if taken is not None else name, tool) for name, tool in found.items()]
    for ours, tool in named:
        if not ACCEPTED.fullmatch(ours):
            raise AgentFailed(
                f"{server} has a tool called {ours!r}, a name that not every model takes (letters, digits, _ and -,"
                f" at most 64); give it another, as in McpServer(tools={{{tool.name!r}: ...}})"
            )
    return named


def _not_listed(server: McpServer, name: str, listed: Sequence[mcp_types.Tool]) -> str:
    known = [tool.name for tool in listed]
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; its tools: {', '.join(known) or 'none'}"
    return f"{server} has no tool {name!r}{hint}"


def value_of(result: mcp_types.CallToolResult) -> Any:
    """What a call gave: its text, its structured value, or both where neither says what the other does."""
    parts = [_part(block) for block in result.content]
    texts = [part for part in parts if isinstance(part, str)]
    bare = "\n".join(texts) if len(texts) == len(parts) else parts
    structured = result.structured_content
    if structured is None:
        return bare
    if not parts:
        return structured
    inner = _unwrapped(structured)
    if len(texts) == len(parts) and _repeated(texts, inner, structured):
        return inner
    return {"structured": structured, "content": parts}


def _part(block: mcp_types.ContentBlock) -> Any:
    """A text as it is; anything else with its type. Bytes are named and left out: a model could not read them."""
    if block.type == "text":
        return block.text
    shown = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    holder = shown.get("resource", shown)
    for key in ("data", "blob"):
        if isinstance(holder.get(key), str):
            holder[key] = f"left out: {len(holder[key])} characters of base64"
    return shown


def _unwrapped(structured: Any) -> Any:
    """The value of a server that had to make an object of one that is none."""
    if isinstance(structured, dict) and list(cast("dict[str, Any]", structured)) == ["result"]:
        return cast("dict[str, Any]", structured)["result"]
    return cast("Any", structured)


def _repeated(texts: list[str], inner: Any, structured: Any) -> bool:
    """Whether the texts only say the structured value once more, for clients that know no other."""
    if texts == [inner] or texts == [str(inner)]:
        return True
    try:
        values = [json.loads(text) for text in texts]
    except ValueError:
        values = texts
    return values in ([inner], [structured], inner)
