"""HTTP with the standard library, in a thread that can be stopped; and rules for every HTTP client of hookline.

The rules: which statuses are worth a retry, how long a server asks to wait, and what counts as the same host. A secret
goes only to its own host, never along a redirect to another.
"""

from __future__ import annotations

import math
import re
import socket
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

from hookline.tasks import StopToken

# Programs that only use the rules must start quickly.
if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse
    from ssl import SSLContext

MOST_REDIRECTS = 5
PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that are worth a retry: the server is in trouble or too busy."""

_PORTS = {"http": 80, "https": 443}
_PRINTABLE = re.compile(r"[!-~]+")


class NotReached(ConnectionError):
    """There is no connection, so nothing was sent; its cause says why."""


class WrongProxy(ValueError):
    """The environment names a proxy that cannot be used."""


@contextmanager
def exchange(
    method: str,
    url: SplitResult,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    stop: StopToken,
    connect: float | None,
    silence: float | None,
    proxy: SplitResult | None = None,
) -> Generator[HTTPResponse]:
    """One request and its answer, both ended when the work is stopped; no redirect is followed.

    `connect` and `silence` are seconds: to reach the server, and without a byte of it. Raises NotReached, OSError or
    HTTPException.
    """
    stop.check()
    connection = _connection(url, proxy, connect)
    try:
        try:
            connection.connect()
        except OSError as exc:
            raise NotReached(f"{exc}") from exc
        sock = connection.sock
        sock.settimeout(silence)
        with stop.ending(lambda: _shut(sock)):
            connection.request(method, _path(url, proxy), body, dict(headers))
            # Closed by itself: one that says its connection ends with it is no longer the connection's.
            with connection.getresponse() as response:
                yield response
    finally:
        connection.close()


def address(text: str, base: SplitResult | None = None) -> SplitResult | None:
    """The URL that a server or a user names; None if it is not a valid HTTP URL."""
    if not _PRINTABLE.fullmatch(text):
        return None
    try:
        url = urlsplit(urljoin(base.geturl(), text) if base else text)
        return url if url.scheme in _PORTS and url.hostname and url.port != 0 else None
    except ValueError:
        return None


def origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    """Scheme, host and port: a secret for one URL may go to every URL of the same origin."""
    return url.scheme, url.hostname, url.port or _PORTS.get(url.scheme)


def shown(url: SplitResult) -> str:
    """The URL without its query, which may hold a secret or a signature."""
    return url._replace(query="", fragment="").geturl()


def retry_after(header: Callable[[str], str | None]) -> float | None:
    """The seconds that a server asks to wait, by its headers; None if it does not say."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(header(name) or "") / unit
        except ValueError:
            continue
        return max(0.0, seconds) if math.isfinite(seconds) else None
    from email.utils import parsedate_to_datetime

    try:
        when = parsedate_to_datetime(header("retry-after") or "")
    except ValueError:
        return None
    return max(0.0, when.timestamp() - time.time())


def proxy_for(url: SplitResult, environ: Mapping[str, str]) -> SplitResult | None:
    """The proxy that the environment names; never for this machine itself."""
    text = environ.get(f"{url.scheme}_proxy") or environ.get(f"{url.scheme.upper()}_PROXY")
    if not text or is_loopback(url.netloc):
        return None
    host = url.hostname or ""
    for spared in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").split(","):
        name = spared.strip().lstrip(".").lower()
        if name and (name == "*" or host == name or host.endswith(f".{name}")):
            return None
    proxy = urlsplit(text if "://" in text else f"http://{text}")
    if proxy.scheme != "http" or not proxy.hostname or proxy.username:
        raise WrongProxy(f"the proxy for {url.scheme} cannot be used; write it as http://host:port")
    return proxy


def is_loopback(host: str) -> bool:
    """True if a host, with or without its port, is this machine."""
    from ipaddress import ip_address

    name = urlsplit(f"//{host}").hostname or ""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _connection(url: SplitResult, proxy: SplitResult | None, timeout: float | None) -> HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection

    host, port = url.hostname or "", url.port
    through = (proxy.hostname or "", proxy.port or 80) if proxy else None
    if url.scheme == "http":
        return HTTPConnection(*(through or (host, port)), timeout=timeout)
    connection = HTTPSConnection(*(through or (host, port)), timeout=timeout, context=_tls())
    if through:
        connection.set_tunnel(host, port or _PORTS["https"])
    return connection


def _path(url: SplitResult, proxy: SplitResult | None) -> str:
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    return f"http://{url.netloc}{path}" if proxy and url.scheme == "http" else path


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


@cache
def _tls() -> SSLContext:
    import ssl

    return ssl.create_default_context()
