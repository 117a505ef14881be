"""The client of a cluster: plain objects in, plain objects out; its login, its requests, and its errors as messages.

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
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias, cast
from urllib.parse import quote

from hookline.engine.plain import json_or_none
from hookline.errors import FileError, HooklineError, UsageError, needs
from hookline.http_client import PASSING, retry_after
from hookline.kube.objects import (
    NO_LOG,
    POD,
    AlreadyThere,
    ApiRefused,
    Conflict,
    Gone,
    Kind,
    NotThere,
    Object,
    Unreachable,
    kind_of,
    within,
)
from hookline.options import Target
from hookline.source import read, without_lines
from hookline.tasks import backoff

with needs("Kubernetes", "kube"):
    import httpx2
    from lightkube.config.client_adapter import AsyncClient, ConnectionParams
    from lightkube.config.kubeconfig import KubeConfig, SingleConfig
    from lightkube.config.models import User
    from lightkube.core.exceptions import ConfigError

WATCH_SECONDS: Final = 110
"""How long one watch lasts, so that a dead connection is noticed within two minutes."""
MOST_LOG_BYTES: Final = 8 * 2**20
_OURS: Final = {"fieldManager": "hookline"}
_PAGE: Final = 500
_QUIET_LOG: Final = 600.0
"""Seconds without a line after which a log is followed again: its connection may be dead."""

Objects: TypeAlias = list[Object]
Labels: TypeAlias = Mapping[str, str] | str | None
_SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_HOME_CONFIG: Final = "~/.kube/config"
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
    """One request; `line` is its name in messages."""

    verb: str
    kind: Kind
    path: str
    params: Mapping[str, str] | None
    body: Object | None = None
    subresource: str = ""

    @property
    def method(self) -> str:
        return _METHODS.get(self.verb, "GET")

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


class Patience(NamedTuple):
    """`limit` is for a call with all its `tries`, in seconds; `pause` is before the second try and then doubles."""

    limit: float = 30.0
    tries: int = 4
    pause: float = 0.2


class Cluster:
    """One API server: that of the kubeconfig, of $KUBECONFIG, of ~/.kube/config, or the one that this runs in as `account`.

    `calls` counts the requests that were sent, by verb and kind.
    """

    def __init__(
        self,
        kubeconfig: str = "",
        context: str = "",
        *,
        account: str = _SERVICE_ACCOUNT,
        patience: Patience | None = None,
    ) -> None:
        config = _find_config(kubeconfig, context, account)
        self.namespace = config.namespace.strip()
        self.server = config.cluster.server
        self.user = config.context.user or ""
        self.calls: Counter[str] = Counter()
        self._patience = patience or Patience()
        self._http = _http_client(config, self._patience.limit)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._http.aclose()

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        try:
            return await self._json(self._request("get", kind, namespace, name))
        except NotThere:
            return None

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Labels = None
    ) -> tuple[Objects, str]:
        """Everything of a kind, of all namespaces where none is given, and the version to watch from."""
        params = {"limit": str(_PAGE), **_selector(labels)}
        found: Objects = []
        version = ""
        while True:
            page = await self._json(self._request("list", kind, namespace, params=params))
            head = within(page, "metadata")
            version = version or str(head.get("resourceVersion") or "")
            # Objects in a list have no apiVersion and kind.
            items = cast("Objects", page.get("items") or [])
            found += [{**kind.head, **item} for item in items]
            if not head.get("continue"):
                return found, version
            params["continue"] = str(head["continue"])

    async def create(self, obj: Object) -> Object:
        request = self._request("create", kind_of(obj), _namespace(obj), params=_OURS, body=obj)
        return await self._json(request)

    async def patch(
        self,
        kind: Kind,
        name: str,
        namespace: str | None,
        merge: Object,
        *,
        subresource: str = "",
        resource_version: str = "",
    ) -> Object:
        """Applies a merge patch, in which None removes; a Conflict if `resource_version` is not the newest."""
        if resource_version:
            head = within(merge, "metadata")
            merge = {**merge, "metadata": {**head, "resourceVersion": resource_version}}
        request = self._request("patch", kind, namespace, name, subresource, params=_OURS, body=merge)
        return await self._json(request)

    async def replace(self, obj: Object) -> Object:
        """Replaces an object; a Conflict if it was changed since this one was read."""
        name = str(obj["metadata"]["name"])
        request = self._request("replace", kind_of(obj), _namespace(obj), name, params=_OURS, body=obj)
        return await self._json(request)

    async def delete(
        self, kind: Kind, name: str, namespace: str | None = None, *, uid: str = "", grace: int | None = None
    ) -> bool:
        """True if it is deleted, or will be; False if it was gone already or has another `uid`."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            await self._json(self._request("delete", kind, namespace, name, body=body))
        except NotThere:
            return False
        except Conflict:
            if not uid:
                raise
            return False
        return True

    async def log(
        self,
        pod: str,
        namespace: str | None,
        container: str,
        *,
        tail_lines: int | None = None,
        most_bytes: int = MOST_LOG_BYTES,
    ) -> str | None:
        """The end of a container's log; None if it has not started or its log is gone."""
        params = {"container": container}
        if tail_lines is not None:
            params["tailLines"] = str(tail_lines)
        request = self._request("get", POD, namespace, pod, "log", params=params)
        try:
            printed = await self._body(request, most_bytes=most_bytes)
        except ApiRefused as error:
            if error.status in (400, 404):
                return None
            raise
        text = printed.decode(errors="replace")
        return None if text.startswith(NO_LOG) else text

    async def follow_log(self, pod: str, namespace: str | None, container: str) -> AsyncGenerator[str, None]:
        """The lines of a container's log from the first, until the container or the connection ends.

        A line that is longer than MOST_LOG_BYTES is cut."""
        params = {"container": container, "follow": "true"}
        request = self._request("get", POD, namespace, pod, "log", params=params)
        async with aclosing(self._lines(request, quiet=_QUIET_LOG, longest=MOST_LOG_BYTES)) as lines:
            async for line in lines:
                yield line.decode(errors="replace")

    async def watch(
        self, kind: Kind, namespace: str | None = None, labels: Labels = None, resource_version: str = ""
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """ADDED, MODIFIED, DELETED and BOOKMARK as they happen, until the server closes the watch."""
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
            **_selector(labels),
        }
        if resource_version:
            params["resourceVersion"] = resource_version
        request = self._request("watch", kind, namespace, params=params)
        async with aclosing(self._lines(request, quiet=WATCH_SECONDS + 15.0)) as lines:
            async for line in lines:
                yield _event(line, request)

    def _request(
        self,
        verb: str,
        kind: Kind,
        namespace: str | None,
        name: str | None = None,
        subresource: str = "",
        *,
        params: Mapping[str, str] | None = None,
        body: Object | None = None,
    ) -> ApiRequest:
        """A list or a watch without a namespace is of all; anything else is in the default one."""
        parts = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
        if kind.namespaced and (namespace is not None or verb not in ("list", "watch")):
            parts += ["namespaces", namespace or self.namespace]
        parts.append(kind.plural)
        if name is not None:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        wrong = [part for part in parts if part in ("", ".", "..")]
        if wrong:
            raise UsageError(f"{wrong[0]!r} cannot be the name of a {kind.kind} or of its namespace")
        path = "/".join(quote(part, safe="") for part in parts)
        return ApiRequest(verb, kind, path, params, body, subresource)

    async def _json(self, request: ApiRequest) -> Object:
        """The object of the answer."""
        return _object_of(await self._body(request), request)

    async def _body(self, request: ApiRequest, *, most_bytes: int | None = None) -> bytes:
        """The answer's body, or its last `most_bytes`."""
        async with self._in_time(request):
            return await self._try(request, most_bytes)

    async def _lines(
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
                    return await _read_body(answer, most_bytes)
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
        part = f"/{request.subresource}" if request.subresource else ""
        self.calls[f"{request.verb} {request.kind.kind}{part}"] += 1
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
            said = _said(await _read_body(answer, 2**16), answer.status_code)
        if answer.status_code in PASSING:
            raise _Overloaded(request, answer, said)
        raise _refusal(answer.status_code, said, request)

    def _no_answer(self, request: ApiRequest, error: Exception) -> Unreachable:
        return Unreachable(f"{request.line} at {self.server}: {str(error) or type(error).__name__}")


@asynccontextmanager
async def connected(target: Target) -> AsyncGenerator[Cluster]:
    """The cluster that a user names; its errors are raised with messages that say what to do."""
    async with Cluster(target.kubeconfig, target.context) as cluster:
        server, namespace = cluster.server, target.namespace or cluster.namespace
        try:
            yield cluster
        except NotThere as exc:
            if "namespaces " in exc.message:
                raise UsageError(
                    f"there is no namespace {namespace!r} on {server}; kubectl create namespace {namespace}"
                ) from exc
            raise UsageError(
                f"{server} has no AgentRuns installed ({exc.message}); install them:"
                " hookline crds | kubectl apply -f -"
            ) from exc
        except AlreadyThere as exc:
            raise UsageError(f"{exc.message}; give another --name, or none") from exc
        except ApiRefused as exc:
            if exc.status in (400, 422):
                raise UsageError(f"the cluster refused it: {exc.message}") from exc
            if exc.status == 403:
                raise HooklineError(f"you are not allowed to do this on {server}: {exc.message}") from exc
            if exc.status == 401:
                raise HooklineError(f"{server} did not accept your credentials: {exc.message}") from exc
            raise


def _namespace(obj: Object) -> str | None:
    return within(obj, "metadata").get("namespace")


def _event(line: bytes, request: ApiRequest) -> tuple[str, Object]:
    match _object_of(line, request):
        case {"type": "ERROR", "object": {**status}}:
            code, said = status.get("code"), status.get("message") or "an error without a message"
            raise _refusal(code if isinstance(code, int) else 500, str(said), request)
        case {"type": str(word), "object": {**obj}}:
            return word, obj
        case _:
            raise Unreachable(f"{request.line}: not an event of a watch: {line[:80]!r}")


def _selector(labels: Labels) -> dict[str, str]:
    if not labels:
        return {}
    if not isinstance(labels, str):
        labels = ",".join(f"{key}={value}" for key, value in labels.items())
    return {"labelSelector": labels}


def _find_config(path: str, context: str, account: str) -> SingleConfig:
    """The cluster of the file, of $KUBECONFIG, of ~/.kube/config, or the one that this runs in as `account`."""
    given = path or os.environ.get("KUBECONFIG") or ""
    names = given.split(os.pathsep) if given else [_HOME_CONFIG]
    files = [Path(os.path.expanduser(name)) for name in names if name]
    there = [file for file in files if file.is_file()]
    if there:
        return _read(there, context)
    if given:
        whose = "the given path" if path else "$KUBECONFIG"
        raise UsageError(f"no kubeconfig at {given!r}, which {whose} names")
    return _in_cluster(files[0], context, account)


def _http_client(config: SingleConfig, limit: float) -> httpx2.AsyncClient:
    """An HTTP client that logs in as the config says; a request may take `limit` seconds."""
    times = httpx2.Timeout(limit, connect=min(5.0, limit), read=min(15.0, limit))
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


class _Overloaded(Unreachable):
    """The server is in trouble; it asked us to wait for `wait` seconds."""

    def __init__(self, request: ApiRequest, answer: httpx2.Response, said: str) -> None:
        super().__init__(f"{request.line}: status {answer.status_code}: {said}")
        self.status = answer.status_code
        self.wait = retry_after(answer.headers.get) or 0.0


def _refusal(status: int, said: str, request: ApiRequest) -> ApiRefused | Unreachable:
    """The error for a status."""
    if status not in range(400, 500):
        return Unreachable(f"{request.line}: status {status}: {said}")
    if status == 404 and request.verb in ("list", "watch"):
        # An empty namespace, or none, has an empty list: so it is the kind that is missing.
        said = f"the server knows no {request.kind.kind} of {request.kind.api_version}; is its definition installed?"
    error = _BY_STATUS.get(status, ApiRefused)
    # 409 has other reasons too, such as a quota that was being changed.
    if error is Conflict and request.verb == "create" and "already exists" in said:
        error = AlreadyThere
    return error(status, said, call=request.line)


def _said(body: bytes, status: int) -> str:
    """The server's own message, or the start of the body."""
    match json_or_none(body):
        case {"message": str(message)} if message:
            return message
        case _:
            return body[:300].decode(errors="replace").strip() or f"an empty answer with status {status}"


async def _read_body(answer: httpx2.Response, most_bytes: int | None) -> bytes:
    if most_bytes is None:
        return await answer.aread()
    kept = bytearray()
    async for chunk in answer.aiter_bytes():
        kept += chunk
        del kept[: max(0, len(kept) - most_bytes)]
    # Drop the rest of a character that was cut in two.
    return bytes(kept).lstrip(_CONTINUATIONS)


def _object_of(body: bytes, request: ApiRequest) -> Object:
    """The object in an answer."""
    try:
        obj = json.loads(body)
    except ValueError as error:
        raise Unreachable(f"{request.line}: the answer is not JSON: {body[:80]!r}") from error
    if not isinstance(obj, dict):
        raise Unreachable(f"{request.line}: the answer is no object: {body[:80]!r}")
    return cast("Object", obj)
