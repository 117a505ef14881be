"""The HTTP client of trackers behind an API: one request, lists over several pages, and when to retry.

A request that failed is not retried here: `symphony/service.py` asks again at its next poll, at the earliest after
`TrackerError.retry_after`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from importlib import import_module
from typing import Any, NamedTuple, cast

from hookline.engine.plain import inner, parse_time
from hookline.errors import needs
from hookline.http_client import retry_after
from hookline.symphony.trackers import Issue, TrackerError

TIMEOUT = 30.0
LARGEST = 32 * 1024 * 1024
"""Bytes of one answer."""
MOST = 10_000
"""Issues of one list."""


class Answer(NamedTuple):
    """A response with its body, parsed as JSON."""

    status: int
    body: Any
    headers: Mapping[str, str]


class WebTracker:
    """A tracker behind an HTTP API on one host, with the headers of every request. `name` is for messages."""

    timeout = TIMEOUT

    def __init__(self, name: str, base: str, headers: Mapping[str, str]) -> None:
        self.name = name
        self.base = base.rstrip("/")
        self.omitted: tuple[str, ...] = ()
        self._headers = dict(headers)
        self._client: Any = None
        with needs(name, "orchestrator"):
            self._http: Any = import_module("httpx2")

    async def ask(self, method: str, path: str, *, given: Any = None, fine: tuple[int, ...] = ()) -> Answer:
        """The response, if its status is 2xx or in `fine`; a TrackerError otherwise."""
        httpx2 = self._http
        url = path if path.startswith(("http://", "https://")) else f"{self.base}{path}"
        if self._client is None:
            # Never to another host: the headers have the secret in them.
            self._client = httpx2.AsyncClient(
                headers=self._headers, timeout=self.timeout, follow_redirects=False, trust_env=True
            )
        try:
            async with self._client.stream(method, url, json=given) as response:
                content = await self._content(response)
                return self._answer(response.status_code, content, response.headers, fine)
        except httpx2.TimeoutException as exc:
            raise TrackerError(
                f"{self.name} did not answer in {self.timeout:g} s", kind="tracker_request"
            ) from exc
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            why = str(exc) or type(exc).__name__
            raise TrackerError(f"{self.name} was not reached: {why}", kind="tracker_request") from exc

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def listed(
        self,
        first: str,
        size: int,
        page: Callable[[str], Awaitable[tuple[Iterable[Any], str | None]]],
        read: Callable[[Any], Issue],
    ) -> list[Issue]:
        """The issues of all pages, each of which leads to the next one; those that cannot be read are `omitted`."""
        found: list[Issue] = []
        omitted: list[str] = []
        after: str | None = first
        for _ in range(MOST // size):
            nodes, after = await page(after)
            for node in nodes:
                try:
                    found.append(read(node))
                except TrackerError as exc:
                    omitted.append(str(exc))
            if after is None:
                self.omitted = tuple(omitted)
                return found
        raise TrackerError(f"{self.name} has more than {MOST} issues", kind="tracker_pagination")

    async def _content(self, response: Any) -> bytes:
        content = bytearray()
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > LARGEST:
                raise TrackerError(f"{self.name} answered more than {LARGEST} bytes", kind="tracker_response")
        return bytes(content)

    def _answer(
        self, status: int, content: bytes, headers: Mapping[str, str], fine: tuple[int, ...]
    ) -> Answer:
        try:
            body = json.loads(content) if content else None
        except ValueError:
            body = None
            if 200 <= status < 300:
                shown = content[:80].decode("utf-8", "replace")
                raise TrackerError(
                    f"{self.name} answered no JSON: {shown!r}", kind="tracker_response"
                ) from None
        if 200 <= status < 300 or status in fine:
            return Answer(status, body, headers)
        wait = retry_seconds(headers)
        if status == 429 or (status == 403 and wait is not None):
            raise TrackerError(
                f"{self.name} has had too many requests (HTTP {status})",
                kind="tracker_rate_limited",
                retry_after=wait,
            )
        said = _message(body)
        raise TrackerError(
            f"{self.name} answered HTTP {status}{f': {said}' if said else ''}", kind="tracker_status"
        )


def retry_seconds(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait before a retry, from Retry-After or the reset of a rate limit; None if the server does not say."""
    asked = retry_after(headers.get)
    if asked is not None or headers.get("retry-after") is not None:
        return asked
    if headers.get("x-ratelimit-remaining") != "0":
        return None
    reset = headers.get("x-ratelimit-reset", "")
    return max(float(reset) - time.time(), 0.0) if reset.isdigit() else None


def list_in(value: Any, *keys: str) -> list[Any]:
    """The list below these keys of an answer; empty if there is none."""
    found = inner(value, *keys)
    return cast("list[Any]", found) if isinstance(found, list) else []


def labels_in(listed: Iterable[Any]) -> tuple[str, ...]:
    """The names of labels, which are texts or have a `name`."""
    names = (inner(label, "name") if isinstance(label, dict) else label for label in listed)
    return tuple(name.strip().lower() for name in names if isinstance(name, str) and name.strip())


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def time_or_none(value: Any) -> datetime | None:
    """The time, None if it cannot be read: it only decides an order."""
    if not isinstance(value, str):
        return None
    try:
        return parse_time(value)
    except ValueError:
        return None


def _message(body: Any) -> str:
    first = next(iter(list_in(body, "errors")), None)
    said = inner(body, "message") or (inner(first, "message") if isinstance(first, dict) else first)
    return str(said)[:200] if said else ""
