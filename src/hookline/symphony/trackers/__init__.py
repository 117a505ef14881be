"""The protocol of trackers, where issues come from, and an issue as a value. Two reads, nothing else.

Also what they share: a text or a secret of their settings, as it stands in the file or in a variable; and the HTTP
client of those behind an API, with one request, lists over several pages, and how long a server wants to be left alone.

The retry is in `symphony/service.py`: after a failed request it polls again, at the earliest after
`TrackerError.retry_after`. An issue that waits for its next attempt is asked for again by `symphony/scheduler.py`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from hookline.engine.plain import inner, parse_time
from hookline.errors import HooklineError, needs
from hookline.http_client import retry_after

TIMEOUT = 30.0
LARGEST = 32 * 1024 * 1024
"""Bytes of one answer."""
MOST = 10_000
"""Issues of one list."""
_NAME = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Another issue that this one waits for."""

    id: str | None = None
    identifier: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One issue. `identifier` is for people (ABC-123), `id` is the tracker's own."""

    id: str
    identifier: str
    title: str
    state: str
    native_ref: str | None = None
    description: str | None = None
    priority: int | None = None
    branch_name: str | None = None
    url: str | None = None
    assignee_id: str | None = None
    labels: tuple[str, ...] = ()
    blocked_by: tuple[Blocker, ...] = ()
    dispatchable: bool = True
    created_at: datetime | None = None
    updated_at: datetime | None = None


def issue_values(issue: Issue) -> dict[str, Any]:
    """An issue as a template and another process see it: plain values, moments as ISO 8601."""
    return json.loads(json.dumps(asdict(issue), default=datetime.isoformat))


class TrackerKind(NamedTuple):
    """A kind of tracker: the keys of its `provider`, the variable that has its secret, and the states of its issues where
    the file does not say."""

    settings: tuple[str, ...]
    secret: str = ""
    active: tuple[str, ...] = ("Todo", "In Progress")
    terminal: tuple[str, ...] = ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")


_FOLDER = TrackerKind(("path",))
TRACKERS: Mapping[str, TrackerKind] = {
    "folder": _FOLDER,
    "memory": _FOLDER,
    "linear": TrackerKind(("project_slug", "api_key", "endpoint", "assignee"), "LINEAR_API_KEY"),
    "github": TrackerKind(
        ("repository", "token", "endpoint", "assignee", "state_prefix"),
        "GITHUB_TOKEN",
        ("open",),
        ("closed",),
    ),
}


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


def reference(value: Any) -> str | None:
    """The variable that a value refers to, where its whole text is `$NAME`, with or without spaces around it."""
    found = _NAME.fullmatch(value.strip()) if isinstance(value, str) else None
    return found[1] if found else None


def references(value: Any) -> list[str]:
    """The variables that a value refers to, and everything in it."""
    items = list(cast("Mapping[str, Any]", value).values()) if isinstance(value, Mapping) else value
    if isinstance(items, list):
        return [name for item in cast("list[Any]", items) for name in references(item)]
    name = reference(value)
    return [name] if name else []


def setting(provider: Mapping[str, Any], key: str, env: Mapping[str, str], fallback: str = "") -> str | None:
    """A text of the tracker's settings, with `$NAME` looked up; `fallback` is the variable for one that is not there."""
    given = provider.get(key)
    if given is None:
        return env.get(fallback) or None
    if not isinstance(given, str):
        raise TrackerError(f"tracker.provider.{key} is {given!r}, not a text", kind="invalid_tracker_config")
    name = reference(given)
    if name is None:
        return given.strip() or None
    return env.get(name, env.get(fallback)) or None


def secret(
    provider: Mapping[str, Any], key: str, env: Mapping[str, str], fallback: str, *, called: str
) -> str:
    """The secret of a tracker; a TrackerError with the variables it may come from if there is none."""
    value = setting(provider, key, env, fallback)
    if value is None:
        names = {fallback, reference(provider.get(key)) or fallback}
        known = " or ".join(f"${name}" for name in sorted(names))
        raise TrackerError(f"there is no {called}; set {known}", kind="missing_tracker_secret")
    return value


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
