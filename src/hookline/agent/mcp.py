"""MCP servers as tools of an agent: opened, listed, called and closed.

A context of the library must be left by the task that entered it, but runs come and go. So each open server has a task
of its own that opens it, waits, and closes it; calls can be made from any task.

The tools are listed for every run: no change on the server is missed, and a server that is gone is noticed before the
model is called. Only this module and `mcp_server` import the library, which may not be installed: this one is loaded
when a server is used.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar, cast

import mcp_types
from httpx2 import TransportError
from mcp import Client, MCPError
from pydantic import ValidationError

from hookline.agent.mcp_server import OPENERS, REFUSED_STATUS, McpServer, ServerOutput
from hookline.agent.tools import Tool
from hookline.engine.context import WorkflowContext
from hookline.engine.plain import as_text, mapping
from hookline.errors import AgentFailed, meant

logger = logging.getLogger(__name__)

ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Tool names that every model provider accepts."""
CLOSING = 10.0
"""Seconds a server has to close before its task is cancelled."""
SOON = 2.0
"""Seconds within which the task of a server at a URL notices a lost connection."""
_Answer = TypeVar("_Answer")


class Servers:
    """The open servers of one agent on one event loop."""

    def __init__(self, servers: Iterable[McpServer]) -> None:
        self._used = [_OpenServer(server) for server in servers]

    async def tools(self, own: Iterable[str]) -> dict[str, Tool]:
        """The tools they list now, in their order; `own` are the names of the agent's other tools."""
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
                        f" rename one of them, as in McpServer(tools={{{tool.id!r}: ...}})"
                    )
                owners[tool.id] = f"one of {used.server}"
                found[tool.id] = tool
        return found

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._used))


class _OpenServer:
    """One server: opened on first use, and again if the connection was lost."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
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
                raise AgentFailed(as_text(value) or f"{listed.name} failed without a reason")
            return value

        return Tool(
            id=ours,
            description=listed.description or listed.title or "",
            # Some providers refuse an object schema without properties.
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
        """The server's answer. A request that a lost session never received is sent once more in a new one.

        With `again` it is also repeated once if the server has ended, because repeating it does no harm.
        """
        kept = self._connection
        connection = await self._opened()
        try:
            return await connection.asked(question, limit)
        except _ConnectionLost as exc:
            if not (exc.unseen or (again and connection is kept)):
                raise
            logger.warning("%s; it is opened again", exc)
            await connection.close()
        return await (await self._opened()).asked(question, limit)

    async def _opened(self) -> _Connection:
        # One after the other: two processes of a server could compete for a lock or a port.
        while (connection := self._connection) is not None and connection.over:
            await connection.close()
            if self._connection is connection:
                self._connection = None
        if connection is None:
            connection = self._connection = _Connection(self.server)
        await connection.opened()
        return connection


class _ConnectionLost(AgentFailed):
    """The connection is gone; `unseen` if the server did not receive the request."""

    def __init__(self, message: str, *, unseen: bool = False) -> None:
        super().__init__(message)
        self.unseen = unseen


class _Connection:
    """One connection to a server, opened and closed by a task of its own."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._output = ServerOutput(server)
        self._client: Client | None = None
        self._trouble = ""
        self._ready = asyncio.Event()
        # In an empty context, not in that of the run that needs it first.
        self._task = asyncio.get_running_loop().create_task(
            self._owned(), name=f"{server}", context=contextvars.Context()
        )

    @property
    def over(self) -> bool:
        return bool(self._trouble) or (self._client is not None and self._output.over.is_set())

    async def opened(self) -> None:
        await self._ready.wait()
        if self._client is None:
            raise AgentFailed(self._trouble)

    async def asked(
        self, question: Callable[[Client], Awaitable[_Answer]], limit: float | None = None
    ) -> _Answer:
        assert self._client is not None
        answered: list[str] = []
        before = REFUSED_STATUS.set(answered)
        timer = asyncio.timeout(limit)
        try:
            async with timer:
                return await question(self._client)
        except TimeoutError:
            if not timer.expired():
                raise
            # The next caller must not wait for this connection again.
            self._end(f"{self._server} did not answer within {limit:g} s")
            raise AgentFailed(f"{self._trouble}{self._output.words()}") from None
        except MCPError as exc:
            raise await self._failed(exc, answered) from exc
        except (RuntimeError, ValidationError) as exc:
            raise AgentFailed(f"{self._server} answered what does not fit: {exc}") from exc
        finally:
            REFUSED_STATUS.reset(before)

    async def close(self) -> None:
        self._end(f"{self._server} was closed")
        try:
            if self._ready.is_set():
                await asyncio.wait({self._task}, timeout=CLOSING)
        finally:
            self._task.cancel()
        await asyncio.wait({self._task})

    async def _owned(self) -> None:
        """Opens the connection, waits until it is over, and closes it."""
        answered: list[str] = []
        REFUSED_STATUS.set(answered)
        why = "was closed"
        try:
            if not await self._held("auto"):
                await self._held("legacy")
            why = self._output.ended() or "closed the connection"
        except TimeoutError:
            why = f"did not answer within {self._server.start_timeout:g} s"
        except Exception as exc:
            leaf = _leaf(exc)
            why = (self._output.ended() if _is_closed(leaf) else "") or _in_words(
                leaf, answered, self._server
            )
        finally:
            self._end(f"{self._server} {why}{self._output.words()}")
            self._ready.set()

    async def _held(self, mode: str) -> bool:
        """Keeps the connection open until it is over; False if another try is worthwhile.

        The library first probes for the current protocol. Some programs exit if anything comes before `initialize`, so
        one that exited is started again with the old handshake.
        """
        self._output = ServerOutput(self._server)
        transport = OPENERS[self._server.transport](self._server, self._output)
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._server.start_timeout):
                    # No cache: the list is requested whenever it is needed.
                    client = Client(transport, mode=mode, cache=None)
                    self._client = await stack.enter_async_context(client)
                self._ready.set()
                await self._output.over.wait()
        except Exception as exc:
            if mode == "auto" and self._client is None and self._output.exited and _is_closed(_leaf(exc)):
                return False
            raise
        return True

    def _end(self, trouble: str) -> None:
        """Marks the connection as over; the first reason given is kept."""
        self._trouble = self._trouble or trouble
        self._output.over.set()

    async def _failed(self, exc: MCPError, answered: list[str]) -> AgentFailed:
        """The error to raise for one of the library: a lost session, a lost connection, or the server's own message."""
        if answered and answered[-1].startswith("404"):
            return _ConnectionLost(
                f"{self._server}: the session is lost ({answered[-1]}: {exc})", unseen=True
            )
        if answered or not _is_closed(exc):
            return AgentFailed(f"{self._server} {_in_words(exc, answered, self._server)}")
        # Its task will know the reason soon; but at a URL a single answer may break off on a live connection.
        await asyncio.wait({self._task}, timeout=CLOSING if self._server.command is not None else SOON)
        return _ConnectionLost(self._trouble or f"{self._server} {_in_words(exc, answered, self._server)}")


def _leaf(exc: Exception) -> Exception:
    """The first error inside a group, which a task group raises."""
    while isinstance(exc, ExceptionGroup):
        exc = cast("ExceptionGroup[Exception]", exc).exceptions[0]
    return exc


def _is_closed(exc: Exception) -> bool:
    """True if the error only says that the connection was closed."""
    return isinstance(exc, MCPError) and exc.code == mcp_types.CONNECTION_CLOSED


def _in_words(exc: Exception, answered: list[str], server: McpServer) -> str:
    """The text of an error of the library or its HTTP client, to follow the server's name."""
    place = "" if server.command is not None else f"({server.place}) "
    if answered:
        return f"{place}answered {answered[-1]}: {exc}"
    if isinstance(exc, TransportError):
        return f"{place}cannot be reached: {exc or type(exc).__name__}"
    return f"{place}failed: {exc or type(exc).__name__}"


async def _listed(client: Client) -> list[mcp_types.Tool]:
    """All pages of a server's list of tools."""
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
            raise RuntimeError(f"its list of tools repeats the page {cursor!r} forever")
        cursors.add(cursor)


def _chosen(server: McpServer, listed: Sequence[mcp_types.Tool]) -> list[tuple[str, mcp_types.Tool]]:
    """The selected tools with their names in the agent."""
    taken = server.taken
    found: dict[str, mcp_types.Tool] = {}
    for tool in listed:
        if taken is not None and tool.name not in taken:
            continue
        if tool.name in found:
            raise AgentFailed(f"{server} lists the tool {tool.name!r} twice; it cannot tell them apart")
        found[tool.name] = tool
    for name in taken or ():
        if name not in found:
            known = [tool.name for tool in listed]
            raise AgentFailed(
                f"{server} has no tool {name!r}{meant(name, known) if known else '; it has none'}"
            )
    named = [(taken[name] if taken is not None else name, tool) for name, tool in found.items()]
    for ours, tool in named:
        if not ACCEPTED.fullmatch(ours):
            raise AgentFailed(
                f"{server} has a tool called {ours!r}, a name that not every model takes (letters, digits, _ and -,"
                f" at most 64); give it another, as in McpServer(tools={{{tool.name!r}: ...}})"
            )
    return named


def value_of(result: mcp_types.CallToolResult) -> Any:
    """The value of a call: its text, its structured value, or both if they differ."""
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
    """A text as it is, other blocks with their type. Binary data is replaced by a note, because a model cannot read it."""
    if block.type == "text":
        return block.text
    shown = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    holder = shown.get("resource", shown)
    for key in ("data", "blob"):
        if isinstance(holder.get(key), str):
            holder[key] = f"left out: {len(holder[key])} characters of base64"
    return shown


def _unwrapped(structured: Any) -> Any:
    """The value inside `{"result": ...}`, with which a server wraps a value that is no object."""
    known = mapping(structured)
    return known["result"] if list(known) == ["result"] else structured


def _repeated(texts: list[str], inner: Any, structured: Any) -> bool:
    """True if the texts only repeat the structured value, for clients that do not support it."""
    if texts == [inner] or texts == [str(inner)]:
        return True
    try:
        values = [json.loads(text) for text in texts]
    except ValueError:
        values = texts
    return values in ([inner], [structured], inner)
