"""The HTTP server of an agent and of the board: its limits, and who may ask it.

A client that is slow, huge or one of many holds up no other: a request has a limit of size and of time, and of too many
connections the one that keeps the server waiting longest is closed. A web page is refused, whatever address it asks, and
beyond this machine a client needs a token.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import secrets
import socket
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from hookline.errors import UsageError
from hookline.options import ServeOptions

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_GRACE = 5
_SHORTEST_TOKEN = 16
_SAME_SITE = (None, b"none", b"same-origin")


class Limits(NamedTuple):
    """Of one server. `seconds` is how long it waits for a client: for a whole request, or until an answer is read."""

    body: int = 2**20
    values: int = 2000
    """In JSON: the A2A library needs up to 60 µs for each, in which nothing else is answered."""
    head: int = 2**14
    headers: int = 100
    connections: int = 100
    seconds: float = 30.0


LIMITS = Limits()
Refusal = tuple[int, str, str]
"""A status, and a code and a sentence for the client."""


def token_for(host: str, options: ServeOptions, *, terminal: bool) -> tuple[str, str]:
    """The token that clients need, "" for none, and what the user has to be told about it.

    A token is made only where a person reads it; in a log it would be known to whoever reads that.
    """
    if options.token_file is not None:
        if options.no_token:
            raise UsageError("--token-file and --no-token: give one of them")
        return _read_token(options), ""
    if _is_loopback(host):
        return "", ""
    if options.no_token:
        return "", f"--no-token: whoever reaches {host or 'this machine'} can use this server"
    if not terminal:
        raise UsageError(
            f"{host or 'every address'} is not only this machine: give a file with the token that clients must send"
            " (--token-file), or --no-token"
        )
    token = secrets.token_urlsafe(32)
    return token, f"clients must send this as their bearer token:\n  {token}"


def _read_token(options: ServeOptions) -> str:
    assert options.token_file is not None
    try:
        token = options.token_file.read_text().strip()
    except (OSError, ValueError) as exc:
        raise UsageError(
            f"--token-file {options.token_file}: {getattr(exc, 'strerror', None) or exc}"
        ) from exc
    if len(token) < _SHORTEST_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        raise UsageError(
            f"--token-file {options.token_file}: a token has at least {_SHORTEST_TOKEN} printable characters and no"
            " space"
        )
    return token


def listen(host: str, port: int) -> socket.socket:
    """A socket that clients can connect to at once, before the server accepts them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if not 0 <= port <= 65535:
        # `create_server` would leave its socket open.
        raise UsageError(f"cannot listen on {host}:{port}: port must be 0-65535")
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as exc:
        raise UsageError(f"cannot listen on {host}:{port}: {exc.strerror or exc}") from exc


@asynccontextmanager
async def serving(
    app: ASGIApp,
    listener: socket.socket,
    *,
    token: str = "",
    public: Collection[str] = (),
    names: Collection[str] = (),
    limits: Limits = LIMITS,
) -> AsyncGenerator[uvicorn.Server]:
    """Serves while the block runs. `public` paths need no token; `names` are further names of a server on loopback."""
    here = _is_loopback(listener.getsockname()[0])
    guarded = _Guarded(app, token, public, {"localhost", *names} if here else None, limits)
    server = uvicorn.Server(
        uvicorn.Config(
            guarded,
            http=type("_Limited", (_Connection,), {"limits": limits}),
            h11_max_incomplete_event_size=limits.head,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
        )
    )
    # The caller handles signals.
    server.capture_signals = nullcontext  # pyright: ignore[reportAttributeAccessIssue]
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield server
    finally:
        server.should_exit = True
        await asyncio.wait({task})
        listener.close()


class _Guarded:
    """The application behind its limits; `names` are the hosts that it answers to, or None for any."""

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        public: Collection[str],
        names: Collection[str] | None,
        limits: Limits,
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._public = public
        self._names = names
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refused(scope)
        body = b"" if refused else await _body(receive, self._limits.body)
        if body is None:
            return
        refused = refused or self._too_large(len(body), body)
        if refused:
            await _refuse(send, *refused)
        else:
            await self._app(scope, _given(body, receive), send)

    def _refused(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        size = len(scope["raw_path"]) + sum(len(name) + len(value) for name, value in scope["headers"])
        if len(scope["headers"]) > self._limits.headers or size > self._limits.head:
            most = f"{self._limits.headers} headers and {self._limits.head} bytes in them"
            return 431, "too_many_headers", f"a request has at most {most}"
        if b"origin" in headers or headers.get(b"sec-fetch-site") not in _SAME_SITE:
            return 403, "foreign_origin", "requests from web pages are refused; send them from a program"
        if self._names is not None and not _is_named(headers.get(b"host", b""), self._names):
            return 403, "foreign_host", "this server does not have the name in the header Host"
        sent = headers.get(b"authorization", b"").partition(b" ")
        known = sent[0].lower() == b"bearer" and hmac.compare_digest(sent[2].strip(), self._token)
        if self._token and not known and scope["path"] not in self._public:
            return 401, "unauthorized", "send the server's token: Authorization: Bearer TOKEN"
        return self._too_large(int(headers.get(b"content-length", b"0")))

    def _too_large(self, size: int, body: bytes = b"") -> Refusal | None:
        if size > self._limits.body:
            return 413, "too_large", f"a request has at most {self._limits.body} bytes"
        if not _has_at_most(self._limits.values, body):
            return 413, "too_many_values", f"a message has at most {self._limits.values} values"
        return None


class _Connection(H11Protocol):
    """One client, which is closed when it keeps the server waiting."""

    limits: Limits
    since: float
    """When the waiting began."""
    timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self.since = self.loop.time()
        self.timer = self.loop.call_later(self.limits.seconds, self._look)
        if len(self.connections) > self.limits.connections:
            waiting = [each for each in self._others() if each.waits]
            min(waiting, key=_Connection.began, default=self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self.since = self.loop.time()
        super().pause_writing()

    @property
    def waits(self) -> bool:
        """True while the client has to do something: send the rest of a request, or read its answer."""
        cycle = self.cycle
        return not cycle or cycle.more_body or cycle.response_complete or self.flow.write_paused

    def began(self) -> float:
        return self.since

    def _others(self) -> Iterator[_Connection]:
        for each in self.connections:
            if isinstance(each, _Connection) and each is not self and not each.transport.is_closing():
                yield each

    def _look(self) -> None:
        left = self.since + self.limits.seconds - self.loop.time() if self.waits else self.limits.seconds
        if left <= 0:
            self.transport.abort()
        else:
            self.timer = self.loop.call_later(left, self._look)


async def _body(receive: Receive, most: int) -> bytes | None:
    """The whole body, or its beginning if it is longer than `most`; None if the client is gone."""
    parts: list[bytes] = []
    size = 0
    while size <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if not message.get("more_body", False):
            break
    return b"".join(parts)


def _given(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives this body first."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def given() -> Message:
        return first.pop() if first else await receive()

    return given


def _has_at_most(most: int, body: bytes) -> bool:
    """True if JSON has no more values than that; what is no JSON has none."""
    if sum(map(body.count, (b",", b"[", b"{"))) <= most:
        return True
    try:
        left: list[Any] = [json.loads(body)]
    except RecursionError:
        return False
    except ValueError:
        return True
    count = 0
    while left and count <= most:
        value = left.pop()
        count += 1
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return count <= most


async def _refuse(send: Send, status: int, code: str, message: str) -> None:
    said = json.dumps({"error": {"code": code, "message": message}}).encode()
    headers: list[Any] = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers += [(b"content-length", b"%d" % len(said))]
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": said})


def _is_named(header: bytes, names: Collection[str]) -> bool:
    try:
        name = urlsplit(f"//{header.decode('ascii')}").hostname or ""
    except ValueError:
        return False
    return name in names or _is_loopback(name)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
