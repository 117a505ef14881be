"""Shared code of the providers' models: retries, and reading of answers.

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
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from hookline.agent.models import Reply, TextDelta
from hookline.engine.context import ToolCall, Usage
from hookline.errors import ModelFailed, UsageError
from hookline.http_client import PASSING, retry_after
from hookline.tasks import backoff

if TYPE_CHECKING:
    from ssl import SSLContext

# 409 is a lock that took too long; a retry does not help with the other 4xx but those of PASSING.
_LOCKED = 409

STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """The number of tries for one call, and the waits in between.

    The wait doubles from `wait` up to `longest_wait`, unless the provider sets it. If that is more than
    `longest_asked`, the call fails at once instead of waiting.
    """

    most: int = 3
    wait: float = 0.5
    longest_wait: float = 8.0
    longest_asked: float = 60.0
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep


class ProviderTrouble(Exception):
    """A failed try. `passing` if a retry may succeed; `cut` if an answer had begun."""

    def __init__(
        self, text: str, *, passing: bool = False, cut: bool = False, asked: float | None = None
    ) -> None:
        super().__init__(text)
        self.passing = passing
        self.cut = cut
        self.asked = asked


async def tried(
    ask: Callable[[], AsyncGenerator[TextDelta | Reply, None]], tries: Tries, who: str
) -> AsyncIterator[TextDelta | Reply]:
    """Streams the answer of `ask`; retries after passing trouble, as long as no text was yielded."""
    for number in count(1):
        given = 0
        try:
            async with aclosing(ask()) as parts:
                async for part in parts:
                    if isinstance(part, TextDelta):
                        given += len(part.text)
                    yield part
            return
        except ProviderTrouble as trouble:
            why = (
                f"the answer broke off after {given} characters: {trouble}"
                if given or trouble.cut
                else str(trouble)
            )
            if given or not trouble.passing:
                raise ModelFailed(f"{who}: {why}") from trouble
            if number >= tries.most:
                times = "once" if number == 1 else f"{number} times"
                raise ModelFailed(f"{who}: {why} (tried {times})") from trouble
            if trouble.asked is not None and trouble.asked > tries.longest_asked:
                raise ModelFailed(
                    f"{who}: {why} (it asks to wait {trouble.asked:.0f} s, longer than the {tries.longest_asked:.0f} s"
                    f" that are waited at most; tries so far: {number})"
                ) from trouble
            asked = trouble.asked
        await tries.pause(_pause(tries, number) if asked is None else asked)


def refused_with(status: int, text: str, headers: Mapping[str, str]) -> ProviderTrouble:
    """The trouble that an HTTP error is."""
    passing = status in PASSING or status == _LOCKED or status >= 500
    word = headers.get("x-should-retry")
    if word in ("true", "false"):
        passing = word == "true"
    return ProviderTrouble(f"{status}: {clipped(text)}", passing=passing, asked=retry_after(headers.get))


def whole(*, text: str, calls: tuple[ToolCall, ...], usage: Usage, stop_reason: str) -> Reply:
    """The reply, in our words; an answer with neither text nor tool call is trouble."""
    stop = STOP_REASONS.get(stop_reason, stop_reason)
    if not text and not calls:
        raise ProviderTrouble(f"answered with neither text nor a tool call (stop reason {stop_reason!r})")
    if calls and stop == "stop":
        stop = "tool_calls"
    return Reply(text=text or None, tool_calls=calls, usage=usage, stop_reason=stop)


def tool_call(id: str | None, name: str, raw: str) -> ToolCall:
    """The call that a model asked for; a tool without parameters may come with no arguments at all."""
    try:
        arguments: Any = json.loads(raw) if raw.strip() else {}
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = None
    known = cast("dict[str, Any] | None", arguments)
    return ToolCall(id=id or f"call_{uuid.uuid4().hex}", name=name, arguments=known, raw_arguments=raw)


def sent_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an earlier call for the provider, which accepts only an object."""
    arguments = call.get("arguments")
    if isinstance(arguments, Mapping):
        return dict(cast("Mapping[str, Any]", arguments))
    return {"not_json": str(call.get("raw_arguments") or arguments or "")}


def checked_url(provider: str, url: str | None) -> str | None:
    if url is None or url.startswith(("http://", "https://")):
        return url
    raise UsageError(f"provider {provider!r}: base url {url!r} must start with http:// or https://")


def clipped(text: str, most: int = 500) -> str:
    """The text as one short line for an error message: a proxy may answer with a page of HTML."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}..."


@cache
def tls() -> SSLContext:
    """The TLS context of the process: reading the certificates is the slowest part of making a client."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


def _pause(tries: Tries, number: int) -> float:
    # Jitter: many agents that were refused together should not retry together.
    return backoff(number, first=tries.wait, longest=tries.longest_wait, jitter=0.25)
