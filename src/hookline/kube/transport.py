"""Requests to an API server: tried again where that is safe, refusals as errors, long answers line by line.

lightkube's own watch is not used: it has no limit in time, and takes a line for ended at characters that JSON allows
inside a text.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter, deque
from collections.abc import AsyncGenerator, Mapping
from typing import Final, NamedTuple, TypeAlias, cast

import httpx2

from hookline.errors import UsageError
from hookline.http_client import PASSING, retry_after
from hookline.kube.errors import Conflict, Gone, NotThere, Refused, Unreachable
from hookline.kube.kinds import Kind, Object
from hookline.kube.kubeconfig import LOGIN_ERRORS, ClusterConfig, http_client
from hookline.tasks import backoff

# The server did nothing yet, so even a create may be tried again.
_UNTOUCHED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
# httpx2 does not turn every error of a TLS connection into one of its own.
_NO_ANSWER: Final = (httpx2.HTTPError, OSError)
_BY_STATUS: Final[Mapping[int, type[Refused]]] = {404: NotThere, 409: Conflict, 410: Gone}
_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))

Params: TypeAlias = dict[str, str]


class ApiRequest(NamedTuple):
    """One request; `counted` is its name in statistics, `line` its name in messages."""

    verb: str
    kind: Kind
    method: str
    path: str
    params: Params | None = None
    body: Object | None = None
    body_type: str = "application/json"
    subresource: str = ""

    @property
    def counted(self) -> str:
        return f"{self.verb} {self.kind.kind}{'/' if self.subresource else ''}{self.subresource}"

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


class Patience(NamedTuple):
    """`limit` is for a call with all its `tries`, in seconds; `pause` comes before the second try and then doubles."""

    limit: float = 30.0
    tries: int = 4
    pause: float = 0.2


PATIENCE: Final = Patience()


class Transport:
    """The connection to one API server. `calls` counts the requests that were sent, by verb and kind."""

    def __init__(self, config: ClusterConfig, patience: Patience) -> None:
        limit = patience.limit
        self.server = config.cluster.server
        self.calls: Counter[str] = Counter()
        self._limit = limit
        self._patience = patience
        times = httpx2.Timeout(limit, connect=min(5.0, limit), read=min(15.0, limit))
        self._http = http_client(config, times)

    async def close(self) -> None:
        await self._http.aclose()

    async def json(self, request: ApiRequest, *, again: bool = True) -> Object:
        """The object that is answered; `again` says that the request may be sent twice."""
        return object_of(await self.body(request, again=again), request)

    async def body(self, request: ApiRequest, *, most_bytes: int | None = None, again: bool = True) -> bytes:
        """The answer's body, or its last `most_bytes`."""
        try:
            async with asyncio.timeout(self._limit):
                return await self._try(request, most_bytes, again)
        except TimeoutError as error:
            raise Unreachable(f"{request.line}: no answer within {self._limit:g} s") from error

    async def lines(
        self, request: ApiRequest, *, quiet: float, longest: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The lines of an answer as they come, each up to `longest` bytes, until it ends in good order.

        A connection on which nothing came for `quiet` seconds is taken for dead."""
        try:
            async with asyncio.timeout(self._limit):
                answer = await self._send(request, httpx2.Timeout(self._limit, read=quiet))
        except TimeoutError as error:
            raise Unreachable(f"{request.line}: no answer within {self._limit:g} s") from error
        except _NO_ANSWER as error:
            raise self._no_answer(request, error) from error
        try:
            lines = _Lines(longest)
            async for chunk in answer.aiter_bytes():
                for line in lines.ended_by(chunk):
                    yield line
            if lines.rest:
                yield lines.rest
        except _NO_ANSWER as error:
            raise self._no_answer(request, error) from error
        finally:
            await answer.aclose()

    async def _try(self, request: ApiRequest, most_bytes: int | None, again: bool) -> bytes:
        _, tries, pause = self._patience
        for attempt in range(1, tries + 1):
            try:
                answer = await self._send(request)
                try:
                    return await _body(answer, most_bytes)
                finally:
                    await answer.aclose()
            except _Overloaded as error:
                trouble, wait = error, error.wait
                safe = again or error.status == 429
            except _NO_ANSWER as error:
                trouble, wait = self._no_answer(request, error), 0.0
                safe = again or isinstance(error, _UNTOUCHED)
            if not safe or attempt == tries:
                raise trouble
            spread = backoff(attempt, first=pause, longest=math.inf, jitter=0.5)
            await asyncio.sleep(max(spread, min(wait, 5.0)))
        raise UsageError(f"tries={tries!r}; at least 1 is needed")

    async def _send(self, request: ApiRequest, times: httpx2.Timeout | None = None) -> httpx2.Response:
        """The answer with its body unread; an error where its status says so."""
        self.calls[request.counted] += 1
        built = self._http.build_request(
            request.method,
            request.path,
            params=request.params,
            content=None if request.body is None else json.dumps(request.body).encode(),
            headers={"Content-Type": request.body_type} if request.body is not None else None,
            timeout=times or httpx2.USE_CLIENT_DEFAULT,
        )
        try:
            answer = await self._http.send(built, stream=True)
        except LOGIN_ERRORS as error:
            raise Unreachable(f"cannot log in at {self.server}: {type(error).__name__}: {error}") from error
        if answer.status_code in range(200, 300):
            return answer
        try:
            said = _said(await _body(answer, 2**16), answer.status_code)
        finally:
            await answer.aclose()
        if answer.status_code in PASSING:
            raise _Overloaded(request, answer, said)
        raise refusal(answer.status_code, said, request)

    def _no_answer(self, request: ApiRequest, error: Exception) -> Unreachable:
        return Unreachable(f"{request.line} at {self.server}: {str(error) or type(error).__name__}")


class _Overloaded(Unreachable):
    """The server is there and in trouble; it asked us to stay away for `wait` seconds."""

    def __init__(self, request: ApiRequest, answer: httpx2.Response, said: str) -> None:
        super().__init__(f"{request.line}: status {answer.status_code}: {said}")
        self.status = answer.status_code
        self.wait = retry_after(answer.headers.get) or 0.0


def refusal(status: int, said: str, request: ApiRequest) -> Refused | Unreachable:
    """The error that a status means."""
    if status not in range(400, 500):
        return Unreachable(f"{request.line}: status {status}: {said}")
    if status == 404 and request.verb in ("list", "watch"):
        # An empty namespace, or none, has an empty list: so it is the kind that is missing.
        said = f"the server knows no {request.kind.kind} of {request.kind.api_version}; is its definition installed?"
    return _BY_STATUS.get(status, Refused)(status, said, call=request.line)


def _said(body: bytes, status: int) -> str:
    """The server's own message, or the start of whatever it sent."""
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    if isinstance(told, dict):
        message = cast("Object", told).get("message")
        if isinstance(message, str) and message:
            return message
    return body[:300].decode(errors="replace").strip() or f"an empty answer with status {status}"


async def _body(answer: httpx2.Response, most_bytes: int | None) -> bytes:
    if most_bytes is None:
        return await answer.aread()
    kept: deque[bytes] = deque()
    size = 0
    async for chunk in answer.aiter_bytes():
        kept.append(chunk)
        size += len(chunk)
        while kept and size - len(kept[0]) >= most_bytes:
            size -= len(kept.popleft())
    # The rest of a character that was cut in two is no character.
    return b"".join(kept)[max(0, size - most_bytes) :].lstrip(_CONTINUATIONS)


def object_of(body: bytes, request: ApiRequest) -> Object:
    """The object in an answer."""
    try:
        obj = json.loads(body)
    except ValueError as error:
        raise Unreachable(f"{request.line}: the answer is not JSON: {body[:80]!r}") from error
    if not isinstance(obj, dict):
        raise Unreachable(f"{request.line}: the answer is no object: {body[:80]!r}")
    return cast("Object", obj)


class _Lines:
    """Bytes as they come, as lines; nothing but a newline ends one, and what is beyond `longest` is left out."""

    def __init__(self, longest: int | None = None) -> None:
        self._longest = longest
        self._size = 0
        self._parts: list[bytes] = []

    @property
    def rest(self) -> bytes:
        """What came after the last newline."""
        return b"".join(self._parts)

    def ended_by(self, chunk: bytes) -> list[bytes]:
        first, *rest = chunk.split(b"\n")
        self._add(first)
        if not rest:
            return []
        whole = [b"".join(self._parts), *rest[:-1]]
        self._parts, self._size = [], 0
        self._add(rest[-1])
        return whole

    def _add(self, part: bytes) -> None:
        kept = part if self._longest is None else part[: self._longest - self._size]
        if kept:
            self._parts.append(kept)
            self._size += len(kept)
