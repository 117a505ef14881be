"""Hooks that are URLs: the same JSON is posted, and only a 2xx with a JSON object is an answer.

It is `http.client` in a thread of ours: one POST needs no library, and the base stays small. Proxies of the environment are
not used, and a redirect is followed only where it keeps the POST (307, 308) and stays at the same host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from functools import partial
from http.client import HTTPException, HTTPResponse
from urllib.parse import SplitResult, urlsplit

from hookline import http_client
from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import Handler
from hookline.engine.plain import json_or_none
from hookline.engine.result import HookResult
from hookline.engine.threads import Threads
from hookline.errors import HookBroke, UsageError
from hookline.handlers.process import Decode, Encode
from hookline.runners import OUTPUT_CAP, Ending, Output
from hookline.tasks import StopToken

_threads = Threads()
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection"})


def http_handler(
    url: str,
    *,
    decode: Decode,
    encode: Encode,
    headers: Mapping[str, str],
    variables: Collection[str],
    timeout: float | None,
) -> Handler:
    """A handler that posts to `url`; its hook is declared `limits_itself`.

    `$NAME` or `${NAME}` in a header's value is that variable of our environment, and only those that
    `variables` names may be used. The answer is decoded as that of a command that exited with 0 would be.
    """
    target = _checked(url)
    _check_headers(headers, variables)

    async def handler(_ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
        sent = {"Accept": "application/json", "Content-Type": "application/json", **_filled(headers)}
        stop = StopToken()
        posted = partial(_posted, target, encode(hook_context), sent, timeout, stop)
        try:
            body = await _threads.call(posted, timeout=timeout)
        except BaseException as exc:
            stop.stop()
            if isinstance(exc, HookBroke) and exc.kind == "timed_out":
                raise HookBroke(f"{url} ran past its limit of {timeout:g} s", kind="timed_out") from None
            raise
        return decode(Ending(exit_code=0, stdout=Output(head=body, total=len(body))), hook_context)

    return handler


def _posted(
    target: SplitResult,
    body: bytes,
    headers: Mapping[str, str],
    timeout: float | None,
    stop: StopToken,
) -> bytes:
    """The answer to one POST with its redirects."""
    # The limit is kept outside, for the whole; this only sees to it that the thread ends some time.
    patience = None if timeout is None else timeout + 1
    at = target
    for _ in range(http_client.MOST_REDIRECTS + 1):
        try:
            with http_client.exchange(
                "POST", at, headers=headers, body=body, stop=stop, connect=patience, silence=patience
            ) as response:
                answer = _read(response, at)
        except http_client.NotReached as exc:
            raise _not_started(f"{http_client.shown(at)} was not reached: {exc}") from exc
        except (OSError, HTTPException) as exc:
            raise _bad_answer(at, f"gave no complete answer: {f'{exc}' or type(exc).__name__}") from exc
        if isinstance(answer, bytes):
            return answer
        at = answer
    raise _bad_answer(target, f"redirects more than {http_client.MOST_REDIRECTS} times")


def _read(response: HTTPResponse, target: SplitResult) -> bytes | SplitResult:
    """The body of the answer, or where it sends us."""
    if 300 <= response.status < 400:
        return _redirected(target, response)
    if not 200 <= response.status < 300:
        said = response.read1(400).decode("utf-8", "replace").strip()
        more = f": {said}" if said else ""
        raise _bad_answer(target, f"answered {response.status} {response.reason}{more}")
    return _json_body(response, target)


def _json_body(response: HTTPResponse, target: SplitResult) -> bytes:
    body = response.read(OUTPUT_CAP + 1)
    if len(body) > OUTPUT_CAP:
        raise _bad_answer(target, f"answered with more than {OUTPUT_CAP} bytes")
    if response.length:
        raise _bad_answer(target, "broke off in its answer")
    if json_or_none(body) is None:
        kind = response.getheader("Content-Type") or "no content type"
        raise _bad_answer(target, f"answered {response.status} ({kind}), and not with a JSON object")
    return body


def _redirected(target: SplitResult, response: HTTPResponse) -> SplitResult:
    place = response.getheader("Location") or ""
    to = http_client.address(place, target)
    if to and response.status in (307, 308) and http_client.origin(to) == http_client.origin(target):
        return to
    told = "only a 307 or 308 to the same host is followed"
    raise _bad_answer(target, f"answered {response.status} and redirects to {place[:200]!r}; {told}")


def _bad_answer(target: SplitResult, text: str) -> HookBroke:
    return HookBroke(f"{http_client.shown(target)} {text}", kind="bad_answer")


def _not_started(text: str) -> HookBroke:
    return HookBroke(f"could not start: {text}", kind="not_started")


def _checked(url: str) -> SplitResult:
    try:
        target = urlsplit(url)
        port = target.port
    except ValueError as exc:
        raise UsageError(f"{url!r} is not a URL: {exc}") from None
    if target.scheme not in ("http", "https") or not target.hostname or port == 0:
        raise UsageError(f"{url!r} is not a URL to post to; write http://host/path or https://host/path")
    if target.username is not None:
        raise UsageError("a URL with a password in it is not used; give it as a header from a variable")
    if re.search(r"[^!-~]", url):
        raise UsageError(f"{url!r} has characters that a URL cannot have; write them as %XX")
    return target


def _check_headers(headers: Mapping[str, str], variables: Collection[str]) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
            raise UsageError(f"{name!r} is not a header that can be set")
        for match in _VARIABLE.finditer(value):
            wanted = match[1] or match[2]
            if wanted not in variables:
                raise UsageError(
                    f"header {name} uses ${wanted}, which is not among the variables named for it"
                )


def _filled(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers with their variables; no value is ever shown in an error."""
    filled: dict[str, str] = {}
    for name, value in headers.items():
        absent = [match[1] or match[2] for match in _VARIABLE.finditer(value)]
        absent = [wanted for wanted in absent if not os.environ.get(wanted)]
        if absent:
            raise _not_started(f"header {name} needs the variable {absent[0]}, which is not set")
        filled[name] = _VARIABLE.sub(lambda match: os.environ[match[1] or match[2]], value)
        if not filled[name].isprintable() or not filled[name].isascii():
            raise _not_started(f"header {name} would hold a line break or another character it cannot have")
    return filled
