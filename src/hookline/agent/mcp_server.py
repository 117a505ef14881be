"""McpServer: the declaration of an MCP server among an agent's tools. `agent.mcp` connects to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from hookline.errors import UsageError

TRANSPORTS = ("stdio", "http", "sse")


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
            raise UsageError(f"an MCP server's name is a word of its own, not {self.name!r}")
        default = "stdio" if self.command is not None else "http"
        object.__setattr__(self, "transport", self.transport or default)
        wrong = next(iter(_wrongs(self)), None)
        if wrong is not None:
            raise UsageError(f"{self}: {wrong}")

    def __str__(self) -> str:
        return f"MCP server {self.name!r}"

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
    from hookline.matcher import TOOL_KINDS

    local = server.transport == "stdio"
    if (server.command is None) == (server.url is None):
        yield "give either a command to start or the url of one that runs"
    elif server.transport not in TRANSPORTS:
        yield f"transport is {server.transport!r}; known: {', '.join(TRANSPORTS)}"
    elif local != (server.command is not None):
        yield f"transport {server.transport!r} goes with {'a command' if local else 'a url'}"
    elif local and not server.command:
        yield "command is empty"
    elif not local and urlsplit(server.url or "").scheme not in ("http", "https"):
        yield f"url is {server.url!r}; it begins with http:// or https://"
    if local and server.headers:
        yield "headers go with a url; a command takes args and env"
    if not local and (server.args or server.env or server.cwd is not None):
        yield "args, env and cwd go with a command; a url takes headers"
    for key in ("args", "tools"):
        if isinstance(getattr(server, key), str):
            yield f"{key} is {getattr(server, key)!r}; give a list of words"
    for key in ("start_timeout", "timeout"):
        seconds: Any = getattr(server, key)
        if not _is_limit(seconds) and not (seconds is None and key == "timeout"):
            yield f"{key} is {seconds!r}; give seconds greater than 0"
    ours = list((server.taken or {}).values())
    for name in ours:
        if ours.count(name) > 1:
            yield f"two of its tools would be called {name!r}"
    if server.kind not in TOOL_KINDS:
        yield f"kind is {server.kind!r}; known: {', '.join(TOOL_KINDS)}"


def _is_limit(seconds: Any) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0
