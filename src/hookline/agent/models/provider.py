"""The shared half of the providers' models: the call of a vendor's client, its errors, retries, and the reply.

Retries happen only here; those of the vendors' clients are off. That way an answer that broke off before its first
piece of text can be requested again, and the error can give the number of tries.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from hookline.agent.models import Reply, Request, TextDelta
from hookline.engine.context import ToolCall, Usage
from hookline.engine.plain import json_or_none
from hookline.errors import ModelFailed, UsageError, needs
from hookline.http_client import PASSING, retry_after
from hookline.tasks import backoff

if TYPE_CHECKING:
    from ssl import SSLContext

# 409 is a lock that took too long; a retry does not help with the other 4xx but those of PASSING.
_LOCKED = 409

FIRST_WAIT = 0.5
LONGEST_WAIT = 8.0
"""Seconds: the wait between two tries doubles from the first up to this, unless the provider sets it."""
LONGEST_ASKED = 60.0
"""Seconds: a provider that asks for a longer wait is not waited for, and the call fails at once."""

STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


class ProviderTrouble(Exception):
    """A failed try. `passing` if a retry may succeed; `cut` if an answer had begun."""

    def __init__(
        self, text: str, *, passing: bool = False, cut: bool = False, asked: float | None = None
    ) -> None:
        super().__init__(text)
        self.passing = passing
        self.cut = cut
        self.asked = asked


@dataclass(slots=True, kw_only=True)
class PartialCall:
    """A tool call of which pieces have come, or one of a script; `at_once` are arguments that do not come in pieces."""

    index: int | None = None
    id: str | None = None
    name: str = ""
    arguments: str = ""
    at_once: dict[str, Any] | None = None

    def whole(self) -> ToolCall:
        if not self.arguments and self.at_once is not None:
            self.arguments = json.dumps(self.at_once, ensure_ascii=False)
        return tool_call(self.id, self.name, self.arguments)


class AnswerReading:
    """The answer so far, read event by event.

    `end` names what ends a stream, `refusing` the stop reason of a refusal, `unexplained` the text of one without a reason.
    """

    end: str
    refusing: str
    unexplained: str

    def __init__(self) -> None:
        self.calls: dict[int, PartialCall] = {}
        self.usage = Usage()
        self.stop_reason: str | None = None
        self.refusal = ""
        self.ended = False

    def add(self, event: Any) -> str:
        """Takes in one event; returns its text."""
        raise NotImplementedError

    def reply(self, text: str) -> Reply:
        """The answer with that text, in our words; raises ProviderTrouble if it is not whole, refused or empty."""
        if not self.ended:
            raise ProviderTrouble(f"the stream ended without {self.end}", passing=True, cut=True)
        if self.refusal or self.stop_reason == self.refusing:
            raise ProviderTrouble(f"refused to answer: {clipped(self.refusal) or self.unexplained}")
        reason = self.stop_reason or "stop"
        if not text and not self.calls:
            raise ProviderTrouble(f"answered with neither text nor a tool call (stop reason {reason!r})")
        stop = STOP_REASONS.get(reason, reason)
        if self.calls and stop == "stop":
            stop = "tool_calls"
        calls = tuple(call.whole() for call in self.calls.values())
        return Reply(text=text or None, tool_calls=calls, usage=self.usage, stop_reason=stop)


class ClientModel:
    """A model behind a vendor's client; both clients come from one generator and share their names.

    `package`, `client` and `error` name the library and its classes; `reading` reads its events. `timeout` is the
    longest silence, in seconds; `login` holds the key or the token for the client. A call is tried `tries` times, with
    a `pause` in between.
    """

    package: str
    client: str
    error: str
    reading: type[AnswerReading]

    def __init__(
        self,
        name: str,
        *,
        provider: str,
        base_url: str,
        timeout: float = 600.0,
        tries: int = 3,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
        **login: str | None,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise UsageError(
                f"provider {provider!r}: base url {base_url!r} must start with http:// or https://"
            )
        with needs(f"provider {provider!r}", self.package):
            self._http: Any = import_module("httpx2")
            self._library: Any = import_module(self.package)
        self.provider = provider
        self.name = name
        self._timeout = timeout
        self._tries = tries
        self._pause = pause
        self._client: Any = getattr(self._library, self.client)(
            base_url=base_url,
            timeout=self._http.Timeout(timeout, connect=min(timeout, 10.0)),
            max_retries=0,
            http_client=self._library.DefaultAsyncHttpxClient(verify=_tls()),
            **login,
        )

    async def stream(self, request: Request) -> AsyncIterator[TextDelta | Reply]:
        """Streams the answer; retries after passing trouble, as long as no text was yielded."""
        for number in count(1):
            given = 0
            try:
                async with aclosing(self._ask(request)) as parts:
                    async for part in parts:
                        given += len(part.text) if isinstance(part, TextDelta) else 0
                        yield part
                return
            except ProviderTrouble as trouble:
                broke_off = f"the answer broke off after {given} characters: " if given or trouble.cut else ""
                why = f"{self.provider} model {self.name!r}: {broke_off}{trouble}"
                if given or not trouble.passing:
                    raise ModelFailed(why) from trouble
                if number >= self._tries:
                    times = "once" if number == 1 else f"{number} times"
                    raise ModelFailed(f"{why} (tried {times})") from trouble
                wait = trouble.asked
                if wait is not None and wait > LONGEST_ASKED:
                    raise ModelFailed(
                        f"{why} (it asks to wait {wait:.0f} s, longer than the {LONGEST_ASKED:.0f} s"
                        f" that are waited at most; tries so far: {number})"
                    ) from trouble
            if wait is None:
                # Jitter: many agents that were refused together should not retry together.
                wait = backoff(number, first=FIRST_WAIT, longest=LONGEST_WAIT, jitter=0.25)
            await self._pause(wait)

    async def close(self) -> None:
        await self._client.close()

    async def _send(self, request: Request) -> Any:
        """The stream of events that the client returns."""
        raise NotImplementedError

    def _refusal(self, exc: Any) -> ProviderTrouble:
        """The trouble that the client's error for an HTTP status is."""
        return refused_with(exc.status_code, said(exc), exc.response.headers)

    async def _ask(self, request: Request) -> AsyncGenerator[TextDelta | Reply, None]:
        reading, pieces, begun, empty = self.reading(), list[str](), False, True
        try:
            stream = await self._send(request)
            begun = True
            async with stream:
                async for event in stream:
                    empty = False
                    text = reading.add(event)
                    if text:
                        pieces.append(text)
                        yield TextDelta(text=text)
        except (getattr(self._library, self.error), self._http.HTTPError) as exc:
            raise self._trouble(exc, begun=begun) from exc
        except (json.JSONDecodeError, UnicodeDecodeError) as exc:
            raise ProviderTrouble(f"answered with something that is not JSON: {clipped(str(exc))}") from exc
        content_type = stream.response.headers.get("content-type", "no content type")
        if empty and "text/event-stream" not in content_type:
            raise ProviderTrouble(f"answered with {content_type} where a stream of events was asked for")
        yield reading.reply("".join(pieces))

    def _trouble(self, exc: Exception, *, begun: bool) -> ProviderTrouble:
        """The trouble that an error of the client is. Errors of the transport may pass through it as they are."""
        library, http = self._library, self._http
        if isinstance(exc, library.APIStatusError):
            return self._refusal(exc)
        if isinstance(exc, library.APITimeoutError | http.TimeoutException):
            return ProviderTrouble(f"no answer within {self._timeout:g} s", passing=True, cut=begun)
        if isinstance(exc, library.APIConnectionError | http.HTTPError):
            where = "connection lost" if begun else f"cannot be reached at {self._client.base_url}"
            why = clipped(str(exc.__cause__ or exc))
            return ProviderTrouble(f"{where}: {why}", passing=True, cut=begun)
        if isinstance(exc, library.APIError):
            return ProviderTrouble(f"error in the middle of the answer: {clipped(said(exc))}", passing=True)
        return ProviderTrouble(clipped(str(exc)))


def refused_with(status: int, text: str, headers: Mapping[str, str]) -> ProviderTrouble:
    """The trouble that an HTTP error is."""
    passing = status in PASSING or status == _LOCKED or status >= 500
    word = headers.get("x-should-retry")
    if word in ("true", "false"):
        passing = word == "true"
    return ProviderTrouble(f"{status}: {clipped(text)}", passing=passing, asked=retry_after(headers.get))


def field_of(thing: Any, name: str) -> Any:
    """A field of an event that may be missing: the clients do not validate events, and not all providers send all."""
    return getattr(thing, name, None)


def tool_call(id: str | None, name: str, raw: str) -> ToolCall:
    """The call that a model asked for; a tool without parameters may come with no arguments at all."""
    arguments = json_or_none(raw) if raw.strip() else {}
    return ToolCall(id=id or f"call_{uuid.uuid4().hex}", name=name, arguments=arguments, raw_arguments=raw)


def sent_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an earlier call for the provider, which accepts only an object."""
    arguments = call.get("arguments")
    if isinstance(arguments, Mapping):
        return dict(cast("Mapping[str, Any]", arguments))
    return {"not_json": str(call.get("raw_arguments") or arguments or "")}


def said(exc: Any) -> str:
    """The provider's own message, without the text the client puts around it."""
    body: Any = exc.body
    if isinstance(body, Mapping):
        message = cast("Mapping[str, Any]", body).get("message")
        return str(message) if message else json.dumps(body, default=str)
    return str(body or exc.message)


def clipped(text: str, most: int = 500) -> str:
    """The text as one short line for an error message: a proxy may answer with a page of HTML."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}..."


@cache
def _tls() -> SSLContext:
    """The TLS context of the process: reading the certificates is the slowest part of making a client."""
    from httpx2 import create_ssl_context

    return create_ssl_context()
