"""The connection to an API server: its configuration, the login, and requests.

lightkube reads the same configuration as kubectl (kubeconfig, certificates, programs that give tokens, the account of a
pod and its changing token) and prepares the HTTP client. Nothing else of it is used: its watch has no time limit, and
splits lines at characters that JSON allows inside a text. Requests are retried if that is safe, refusals become errors,
and long answers are read line by line.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
from collections import Counter, deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from hookline.errors import FileError, UsageError
from hookline.http_client import PASSING, retry_after
from hookline.kube.objects import ApiRefused, Conflict, Gone, Kind, NotThere, Object, Unreachable
from hookline.source import read, without_lines
from hookline.tasks import backoff

try:
    import httpx2
    from lightkube.config.client_adapter import AsyncClient, ConnectionParams
    from lightkube.config.kubeconfig import KubeConfig, SingleConfig
    from lightkube.config.models import User
    from lightkube.core.exceptions import ConfigError
except ImportError as exc:
    raise UsageError(f"Kubernetes needs more packages ({exc}): pip install 'hookline[kube]'") from exc


SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_ENTRIES: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
_FILE_NAMES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_LOGIN_ERRORS: Final = (ConfigError, FileNotFoundError, PermissionError, ValueError, KeyError)
"""Raised by a request if a program or file that should give a token does not."""
# The server has not received the request, so even a create may be retried.
_UNTOUCHED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
# httpx2 does not wrap every error of a TLS connection.
_NO_ANSWER: Final = (httpx2.HTTPError, OSError)
_BY_STATUS: Final[Mapping[int, type[ApiRefused]]] = {404: NotThere, 409: Conflict, 410: Gone}
_METHODS: Final = {"create": "POST", "patch": "PATCH", "replace": "PUT", "delete": "DELETE"}
_BODIES: Final = {"patch": "application/merge-patch+json"}
_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))


class ApiRequest(NamedTuple):
    """One request; `counted` is its name in statistics, `line` its name in messages."""

    verb: str
    kind: Kind
    path: str
    params: Mapping[str, str]
    body: Object | None = None
    subresource: str = ""

    @property
    def method(self) -> str:
        return _METHODS.get(self.verb, "GET")

    @property
    def counted(self) -> str:
        return f"{self.verb} {self.kind.kind}{'/' if self.subresource else ''}{self.subresource}"

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


class Patience(NamedTuple):
    """`limit` is for a call with all its `tries`, in seconds; `pause` is before the second try and then doubles."""

    limit: float = 30.0
    tries: int = 4
    pause: float = 0.2


PATIENCE: Final = Patience()


def find_config(path: str, context: str, account: str) -> SingleConfig:
    """The cluster of the file, of $KUBECONFIG, of ~/.kube/config, or the one that this runs in as `account`."""
    given = path or os.environ.get("KUBECONFIG") or ""
    if given:
        whose = "the given path" if path else "$KUBECONFIG"
        files = [Path(os.path.expanduser(part)) for part in given.split(os.pathsep) if part]
        there = [file for file in files if file.is_file()]
        if not there:
            raise UsageError(f"no kubeconfig at {given!r}, which {whose} names")
        return _read(there, context)
    home = Path(os.path.expanduser("~/.kube/config"))
    if home.is_file():
        return _read([home], context)
    return _in_cluster(home, context, account)


def _http_client(config: SingleConfig, times: httpx2.Timeout) -> httpx2.AsyncClient:
    """An HTTP client that logs in as the config says."""
    # lightkube needs a user even if the server needs none.
    config = config if config.user else config._replace(user=User())
    try:
        return AsyncClient(config, ConnectionParams(timeout=times))
    except (ConfigError, OSError, ValueError, httpx2.InvalidURL) as error:
        what = f"context {config.context_name!r} cannot be used: {error}"
        raise (FileError(what, file=config.fname) if config.fname else UsageError(what)) from error


def _in_cluster(home: Path, context: str, account: str) -> SingleConfig:
    tried = f"$KUBECONFIG is not set, {home} is not there"
    if context:
        raise UsageError(f"no context {context!r}, since there is no kubeconfig: {tried}")
    try:
        config = KubeConfig.from_service_account(account).get()
    except (ConfigError, KeyError, OSError) as error:
        raise UsageError(
            f"no cluster found: {tried}, and this is not a pod with a service account ({error}); "
            "name a kubeconfig, or set KUBECONFIG"
        ) from error
    return cast("SingleConfig", config)


def _read(files: list[Path], context: str) -> SingleConfig:
    """One context of the files; of entries with the same name the first wins, as for kubectl."""
    whole: Object = {key: [] for key in _ENTRIES}
    for file in files:
        given = without_lines(read(file).value)
        if not isinstance(given, dict):
            raise FileError(
                "not a kubeconfig: a mapping with clusters, contexts and users is needed", file=file
            )
        for key, value in cast("Object", given).items():
            if key in _ENTRIES:
                # lightkube takes the last of two entries with the same name.
                whole[key] = [*_entries(key, value, file), *whole[key]]
            elif value:
                whole.setdefault(key, value)
    try:
        config = cast("Any", KubeConfig).from_dict(whole, fname=files[0]).get(context or None)
    except ConfigError as error:
        known = ", ".join(sorted(str(entry.get("name")) for entry in whole["contexts"])) or "none"
        raise FileError(f"{error}; contexts: {known}", file=files[0]) from error
    except KeyError as error:
        raise FileError(f"no entry {error}, which the context names", file=files[0]) from error
    except (ValueError, TypeError) as error:
        raise FileError(f"not a kubeconfig: {error}", file=files[0]) from error
    return cast("SingleConfig", config)


def _entries(key: str, entries: Any, file: Path) -> list[Object]:
    """The entries, with file names resolved against the folder of their file."""
    found: list[Object] = []
    for entry in cast("list[Any]", entries or []):
        inner = cast("Object", entry).get(_ENTRIES[key]) if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or "name" not in entry or not isinstance(inner, dict):
            raise FileError(f"each entry needs a name and a mapping {_ENTRIES[key]!r}", file=file, key=key)
        inner = cast("Object", inner)
        files = {name: str(file.parent / inner[name]) for name in _FILE_NAMES if inner.get(name)}
        found.append({**cast("Object", entry), _ENTRIES[key]: {**inner, **files}})
    return found


class Transport:
    """The connection to one API server. `calls` counts the requests that were sent, by verb and kind."""

    def __init__(self, config: SingleConfig, patience: Patience) -> None:
        self.server = config.cluster.server
        self.calls: Counter[str] = Counter()
        self._patience = patience
        limit = patience.limit
        times = httpx2.Timeout(limit, connect=min(5.0, limit), read=min(15.0, limit))
        self._http = _http_client(config, times)

    async def close(self) -> None:
        await self._http.aclose()

    async def json(self, request: ApiRequest) -> Object:
        """The object of the answer."""
        return object_of(await self.body(request), request)

    async def body(self, request: ApiRequest, *, most_bytes: int | None = None) -> bytes:
        """The answer's body, or its last `most_bytes`."""
        async with self._in_time(request):
            return await self._try(request, most_bytes)

    async def lines(
        self, request: ApiRequest, *, quiet: float, longest: int = sys.maxsize
    ) -> AsyncGenerator[bytes, None]:
        """The lines of an answer as they arrive, each cut to `longest` bytes, until the server closes it.

        A connection without a byte for `quiet` seconds counts as dead."""
        try:
            async with self._in_time(request):
                answer = await self._send(request, httpx2.Timeout(self._patience.limit, read=quiet))
            line = bytearray()
            async with aclosing(answer):
                async for chunk in answer.aiter_bytes():
                    *ended, rest = chunk.split(b"\n")
                    for part in ended:
                        line += part[: longest - len(line)]
                        yield bytes(line)
                        line.clear()
                    line += rest[: longest - len(line)]
            if line:
                yield bytes(line)
        except _NO_ANSWER as error:
            raise self._no_answer(request, error) from error

    @asynccontextmanager
    async def _in_time(self, request: ApiRequest) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._patience.limit):
                yield
        except TimeoutError as error:
            raise Unreachable(f"{request.line}: no answer within {self._patience.limit:g} s") from error

    async def _try(self, request: ApiRequest, most_bytes: int | None) -> bytes:
        # A create without an answer may have been done.
        again = request.verb != "create"
        _, tries, pause = self._patience
        attempt = 0
        while True:
            attempt += 1
            try:
                async with aclosing(await self._send(request)) as answer:
                    return await _body(answer, most_bytes)
            except _Overloaded as error:
                trouble, wait = error, error.wait
                safe = again or error.status == 429
            except _NO_ANSWER as error:
                trouble, wait = self._no_answer(request, error), 0.0
                safe = again or isinstance(error, _UNTOUCHED)
            if not safe or attempt >= tries:
                raise trouble
            spread = backoff(attempt, first=pause, longest=math.inf, jitter=0.5)
            await asyncio.sleep(max(spread, min(wait, 5.0)))

    async def _send(self, request: ApiRequest, times: httpx2.Timeout | None = None) -> httpx2.Response:
        """The answer with its body unread; raises an error for its status."""
        self.calls[request.counted] += 1
        built = self._http.build_request(
            request.method,
            request.path,
            params=request.params,
            content=None if request.body is None else json.dumps(request.body).encode(),
            headers=None
            if request.body is None
            else {"Content-Type": _BODIES.get(request.verb, "application/json")},
            timeout=times or httpx2.USE_CLIENT_DEFAULT,
        )
        try:
            answer = await self._http.send(built, stream=True)
        except _LOGIN_ERRORS as error:
            raise Unreachable(f"cannot log in at {self.server}: {type(error).__name__}: {error}") from error
        if answer.status_code in range(200, 300):
            return answer
        async with aclosing(answer):
            said = _said(await _body(answer, 2**16), answer.status_code)
        if answer.status_code in PASSING:
            raise _Overloaded(request, answer, said)
        raise refusal(answer.status_code, said, request)

    def _no_answer(self, request: ApiRequest, error: Exception) -> Unreachable:
        return Unreachable(f"{request.line} at {self.server}: {str(error) or type(error).__name__}")


class _Overloaded(Unreachable):
    """The server is in trouble; it asked us to wait for `wait` seconds."""

    def __init__(self, request: ApiRequest, answer: httpx2.Response, said: str) -> None:
        super().__init__(f"{request.line}: status {answer.status_code}: {said}")
        self.status = answer.status_code
        self.wait = retry_after(answer.headers.get) or 0.0


def refusal(status: int, said: str, request: ApiRequest) -> ApiRefused | Unreachable:
    """The error for a status."""
    if status not in range(400, 500):
        return Unreachable(f"{request.line}: status {status}: {said}")
    if status == 404 and request.verb in ("list", "watch"):
        # An empty namespace, or none, has an empty list: so it is the kind that is missing.
        said = f"the server knows no {request.kind.kind} of {request.kind.api_version}; is its definition installed?"
    return _BY_STATUS.get(status, ApiRefused)(status, said, call=request.line)


def _said(body: bytes, status: int) -> str:
    """The server's own message, or the start of the body."""
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    match told:
        case {"message": str(message)} if message:
            return message
        case _:
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
    # Drop the rest of a character that was cut in two.
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
