"""The protocol of trackers: where issues come from. Two reads, nothing else.

A request that failed is not retried here: the service asks again at its next poll, at the earliest after
`TrackerError.retry_after`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, cast

from hookline.engine.plain import parse_time
from hookline.errors import HooklineError
from hookline.http_client import retry_after
from hookline.symphony.types import Issue, reference


class TrackerError(HooklineError):
    """A tracker could not be read. `kind` is one word for the record.

    Kinds: unsupported_tracker_kind, invalid_tracker_config, missing_tracker_secret, tracker_request, tracker_status,
    tracker_response, tracker_pagination, tracker_rate_limited.
    """

    def __init__(self, message: str, *, kind: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after
        """Seconds that the tracker asked us to wait."""


class Tracker(Protocol):
    """One tracker, with its settings fixed when it was made."""

    @property
    def secret_names(self) -> frozenset[str]:
        """Environment variables that hold its secrets, which neither hooks nor agents are given."""
        ...

    @property
    def omitted(self) -> Sequence[str]:
        """Issues that the last list left out because they could not be read, and why."""
        ...

    async def by_states(self, states: Sequence[str]) -> list[Issue]:
        """Every issue in one of these states, in the tracker's order. No state: no request, no issue."""
        ...

    async def by_ids(self, ids: Sequence[str]) -> list[Issue]:
        """These issues, whole; one that is not there any more is left out, one that cannot be read is an error."""
        ...

    async def close(self) -> None: ...


TIMEOUT = 30.0
LARGEST = 32 * 1024 * 1024
"""Bytes of one answer."""


class Answer(NamedTuple):
    """A response with its body, parsed as JSON."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Api:
    """An HTTP client for one host, with the headers of every request. `name` is for messages."""

    def __init__(self, name: str, base: str, headers: Mapping[str, str], *, timeout: float = TIMEOUT) -> None:
        self.name = name
        self.base = base.rstrip("/")
        self._headers = dict(headers)
        self._timeout = timeout
        self._client: Any = None

    async def ask(self, method: str, path: str, *, given: Any = None, fine: tuple[int, ...] = ()) -> Answer:
        """The response, if its status is 2xx or in `fine`; a TrackerError otherwise."""
        import httpx2

        url = path if path.startswith(("http://", "https://")) else f"{self.base}{path}"
        if self._client is None:
            # Never to another host: the headers have the secret in them.
            self._client = httpx2.AsyncClient(
                headers=self._headers, timeout=self._timeout, follow_redirects=False, trust_env=True
            )
        try:
            async with self._client.stream(method, url, json=given) as response:
                content = await self._content(response)
                return self._answer(response.status_code, content, response.headers, fine)
        except httpx2.TimeoutException as exc:
            raise TrackerError(
                f"{self.name} did not answer in {self._timeout:g} s", kind="tracker_request"
            ) from exc
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            why = str(exc) or type(exc).__name__
            raise TrackerError(f"{self.name} was not reached: {why}", kind="tracker_request") from exc

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

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


def setting(
    provider: Mapping[str, Any], key: str, env: Mapping[str, str], *, fallback: str = ""
) -> tuple[str | None, frozenset[str]]:
    """A text of the tracker's settings, with `$NAME` looked up, and the variables it may have come from."""
    given = provider.get(key)
    names = frozenset({fallback} if fallback else ())
    if given is None:
        return (env.get(fallback) or None, names) if fallback else (None, names)
    if not isinstance(given, str):
        raise TrackerError(f"tracker.provider.{key} is {given!r}, not a text", kind="invalid_tracker_config")
    name = reference(given.strip())
    if name is None:
        return given.strip() or None, names
    return env.get(name, env.get(fallback)) or None, names | {name}


def secret(
    provider: Mapping[str, Any], key: str, env: Mapping[str, str], *, fallback: str, called: str
) -> tuple[str, frozenset[str]]:
    """The secret of a tracker and the variables it may have come from; a TrackerError if there is none."""
    value, names = setting(provider, key, env, fallback=fallback)
    if value is None:
        known = " or ".join(f"${name}" for name in sorted(names))
        raise TrackerError(f"there is no {called}; set {known}", kind="missing_tracker_secret")
    return value, names


def retry_seconds(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait before a retry, from Retry-After or the reset of a rate limit; None if the server does not say."""
    asked = retry_after(headers.get)
    if asked is not None or headers.get("retry-after") is not None:
        return asked
    if headers.get("x-ratelimit-remaining") != "0":
        return None
    reset = headers.get("x-ratelimit-reset", "")
    return max(float(reset) - time.time(), 0.0) if reset.isdigit() else None


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
    if not isinstance(body, dict):
        return ""
    known = cast("dict[str, Any]", body)
    errors = known.get("errors")
    first = cast("list[Any]", errors)[0] if isinstance(errors, list) and errors else None
    said = known.get("message") or (
        cast("dict[str, Any]", first).get("message") if isinstance(first, dict) else first
    )
    return str(said)[:200] if said else ""
