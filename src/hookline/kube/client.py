"""The only module that talks to a cluster: plain objects in, plain objects out.

lightkube finds the server and says who we are (kubeconfig, certificates, programs that give tokens, the account of a
pod and its changing token); requests are made here with the HTTP client it prepares. Its own watch is not used: it has
no limit in time, and takes a line for ended at characters that JSON allows inside a text.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections import Counter, deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias, cast
from urllib.parse import quote

import httpx2
import yaml
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from hookline.errors import FileError, UsageError
from hookline.http_client import PASSING, retry_after
from hookline.kube.errors import AlreadyThere, Conflict, Gone, NotThere, Refused, Unreachable
from hookline.kube.kinds import POD, Kind, Object, kind_of
from hookline.tasks import backoff

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
WATCH_SECONDS: Final = 110
"""How long one watch lasts, so that a connection that died unseen is found within two minutes."""
MOST_LOG_BYTES: Final = 8 * 2**20

_MANAGER: Final = "hookline"
_PAGE: Final = 500
_MERGE: Final = "application/merge-patch+json"
# The server did nothing yet, so even a create may be tried again.
_UNTOUCHED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
# What a program that gives tokens, or the file that holds one, can do wrong.
_NO_LOGIN: Final = (ConfigError, FileNotFoundError, PermissionError, ValueError, KeyError)
# httpx2 does not turn every error of a TLS connection into one of its own.
_NO_ANSWER: Final = (httpx2.HTTPError, OSError)
_BY_STATUS: Final[Mapping[int, type[Refused]]] = {404: NotThere, 409: Conflict, 410: Gone}
_ENTRIES: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
_FILE_NAMES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))
_QUIET_LOG: Final = httpx2.Timeout(30.0, read=600.0)
"""A connection that died unseen is found after so long; who follows begins anew then."""
_NO_LOG: Final = "unable to retrieve container logs for "
"""How a kubelet says, with status 200, that the container is gone."""

Objects: TypeAlias = list[Object]
Params: TypeAlias = dict[str, str]


class _Call(NamedTuple):
    """One request, and how it is told and counted."""

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
    def told(self) -> str:
        return f"{self.method} {self.path}"


class Patience(NamedTuple):
    """`limit` is for a call with all its `tries`, in seconds; `pause` comes before the second try and then doubles."""

    limit: float = 30.0
    tries: int = 4
    pause: float = 0.2


PATIENCE: Final = Patience()


class Cluster:
    """One API server. `calls` counts the requests that were sent, by verb and kind."""

    def __init__(self, config: SingleConfig, *, patience: Patience = PATIENCE) -> None:
        limit = patience.limit
        self.namespace = config.namespace.strip()
        self.server = config.cluster.server
        self.user = config.context.user or ""
        self.calls: Counter[str] = Counter()
        self._limit = limit
        self._patience = patience
        times = httpx2.Timeout(limit, connect=min(5.0, limit), read=min(15.0, limit))
        self._watch_times = httpx2.Timeout(limit, read=WATCH_SECONDS + 15.0)
        self._http = _http(config, times)

    @classmethod
    def from_kubeconfig(
        cls,
        path: str | None = None,
        context: str | None = None,
        *,
        account: str = SERVICE_ACCOUNT,
        patience: Patience = PATIENCE,
    ) -> Cluster:
        """The cluster of the file, of $KUBECONFIG, of ~/.kube/config, or the one that this runs in as `account`."""
        return cls(_found(path, context, account), patience=patience)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        try:
            return await self._json(_Call("get", kind, "GET", self._path(kind, namespace, name)))
        except NotThere:
            return None

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Mapping[str, str] | str | None = None
    ) -> tuple[Objects, str]:
        """Everything of a kind, of all namespaces where none is given, and the version to watch from."""
        path = self._path(kind, namespace, everywhere=namespace is None)
        params = {"limit": str(_PAGE), **_selector(labels)}
        found: Objects = []
        version = ""
        while True:
            page = await self._json(_Call("list", kind, "GET", path, params))
            head = cast("Mapping[str, Any]", page.get("metadata") or {})
            version = version or str(head.get("resourceVersion") or "")
            # Objects in a list do not say what they are.
            items = cast("Objects", page.get("items") or [])
            found += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in items]
            if not head.get("continue"):
                return found, version
            params["continue"] = str(head["continue"])

    async def create(self, obj: Object) -> Object:
        kind = kind_of(obj)
        path = self._path(kind, _namespace_of(obj))
        params = {"fieldManager": _MANAGER}
        try:
            return await self._json(_Call("create", kind, "POST", path, params, obj), again=False)
        except Conflict as error:
            if not _exists(error):
                raise
            raise AlreadyThere(409, error.message, call=f"POST {path}") from error

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
        """Changes what `merge` names, `None` removes; a Conflict where `resource_version` is not the newest."""
        if resource_version:
            head = cast("Object", merge.get("metadata") or {})
            merge = {**merge, "metadata": {**head, "resourceVersion": resource_version}}
        path = self._path(kind, namespace, name, subresource)
        params = {"fieldManager": _MANAGER}
        return await self._json(_Call("patch", kind, "PATCH", path, params, merge, _MERGE, subresource))

    async def replace(self, obj: Object) -> Object:
        """Puts the object in place of the one it was made from; a Conflict where that was changed meanwhile."""
        kind = kind_of(obj)
        path = self._path(kind, _namespace_of(obj), str(obj["metadata"]["name"]))
        return await self._json(_Call("replace", kind, "PUT", path, {"fieldManager": _MANAGER}, obj))

    async def delete(
        self, kind: Kind, name: str, namespace: str | None = None, *, uid: str = "", grace: int | None = None
    ) -> bool:
        """Whether it is deleted, or will be; False where it was gone already, or is not the one with that `uid`."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        path = self._path(kind, namespace, name)
        try:
            await self._json(_Call("delete", kind, "DELETE", path, body=body))
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
        """The end of what a container printed; None where it has not started, or nothing of it is left."""
        params = {"container": container}
        if tail_lines is not None:
            params["tailLines"] = str(tail_lines)
        path = self._path(POD, namespace, pod, "log")
        try:
            printed = await self._bytes(_Call("log", POD, "GET", path, params), most_bytes=most_bytes)
        except Refused as error:
            if error.status in (400, 404):
                return None
            raise
        text = printed.decode(errors="replace")
        return None if text.startswith(_NO_LOG) else text

    async def follow_log(self, pod: str, namespace: str | None, container: str) -> AsyncGenerator[str, None]:
        """The lines that a container prints, from its first one until it has ended or the connection does.

        Of a line that is longer than a log may be, only the beginning comes."""
        params = {"container": container, "follow": "true"}
        call = _Call("log", POD, "GET", self._path(POD, namespace, pod, "log"), params)
        async with aclosing(self._streamed(call, _QUIET_LOG, MOST_LOG_BYTES)) as lines:
            async for line in lines:
                yield line.decode(errors="replace")

    async def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Mapping[str, str] | str | None = None,
        resource_version: str = "",
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """ADDED, MODIFIED, DELETED and BOOKMARK as they happen, until the server ends it in good order."""
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
            **_selector(labels),
        }
        if resource_version:
            params["resourceVersion"] = resource_version
        path = self._path(kind, namespace, everywhere=namespace is None)
        call = _Call("watch", kind, "GET", path, params)
        async with aclosing(self._streamed(call, self._watch_times)) as lines:
            async for line in lines:
                yield _event(line, call)

    def _path(
        self,
        kind: Kind,
        namespace: str | None,
        name: str | None = None,
        subresource: str = "",
        *,
        everywhere: bool = False,
    ) -> str:
        parts = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
        if kind.namespaced and not everywhere:
            parts += ["namespaces", namespace or self.namespace]
        parts.append(kind.plural)
        if name is not None:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        wrong = [part for part in parts if part in ("", ".", "..")]
        if wrong:
            raise UsageError(f"{wrong[0]!r} cannot be the name of a {kind.kind} or of its namespace")
        return "/".join(quote(part, safe="") for part in parts)

    async def _streamed(
        self, call: _Call, times: httpx2.Timeout, longest: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The lines of an answer as they come, each up to `longest` bytes, until it ends in good order."""
        try:
            async with asyncio.timeout(self._limit):
                answer = await self._sent(call, times)
        except TimeoutError as error:
            raise Unreachable(f"{call.told}: no answer within {self._limit:g} s") from error
        except _NO_ANSWER as error:
            raise self._no_answer(call, error) from error
        try:
            lines = _Lines(longest)
            async for chunk in answer.aiter_bytes():
                for line in lines.ended_by(chunk):
                    yield line
            if lines.rest:
                yield lines.rest
        except _NO_ANSWER as error:
            raise self._no_answer(call, error) from error
        finally:
            await answer.aclose()

    async def _json(self, call: _Call, *, again: bool = True) -> Object:
        return _object(await self._bytes(call, again=again), call)

    async def _bytes(self, call: _Call, *, most_bytes: int | None = None, again: bool = True) -> bytes:
        """The answer's body, tried as often as is allowed and sensible; its last `most_bytes`."""
        try:
            async with asyncio.timeout(self._limit):
                return await self._tried(call, most_bytes, again)
        except TimeoutError as error:
            raise Unreachable(f"{call.told}: no answer within {self._limit:g} s") from error

    async def _tried(self, call: _Call, most_bytes: int | None, again: bool) -> bytes:
        _, tries, pause = self._patience
        for attempt in range(1, tries + 1):
            try:
                answer = await self._sent(call)
                try:
                    return await _body(answer, most_bytes)
                finally:
                    await answer.aclose()
            except _Strained as error:
                trouble, wait = error, error.wait
                safe = again or error.status == 429
            except _NO_ANSWER as error:
                trouble, wait = self._no_answer(call, error), 0.0
                safe = again or isinstance(error, _UNTOUCHED)
            if not safe or attempt == tries:
                raise trouble
            spread = backoff(attempt, first=pause, longest=math.inf, jitter=0.5)
            await asyncio.sleep(max(spread, min(wait, 5.0)))
        raise UsageError(f"tries={tries!r}; at least 1 is needed")

    async def _sent(self, call: _Call, times: httpx2.Timeout | None = None) -> httpx2.Response:
        """The answer with its body unread; an error where its status says so."""
        self.calls[call.counted] += 1
        request = self._http.build_request(
            call.method,
            call.path,
            params=call.params,
            content=None if call.body is None else json.dumps(call.body).encode(),
            headers={"Content-Type": call.body_type} if call.body is not None else None,
            timeout=times or httpx2.USE_CLIENT_DEFAULT,
        )
        try:
            answer = await self._http.send(request, stream=True)
        except _NO_LOGIN as error:
            raise Unreachable(f"cannot log in at {self.server}: {type(error).__name__}: {error}") from error
        if answer.status_code in range(200, 300):
            return answer
        try:
            said = _said(await _body(answer, 2**16), answer.status_code)
        finally:
            await answer.aclose()
        if answer.status_code in PASSING:
            raise _Strained(call, answer, said)
        raise _refusal(answer.status_code, said, call)

    def _no_answer(self, call: _Call, error: Exception) -> Unreachable:
        return Unreachable(f"{call.told} at {self.server}: {str(error) or type(error).__name__}")


class _Strained(Unreachable):
    """The server is there and in trouble; `wait` is how long it asked us to."""

    def __init__(self, call: _Call, answer: httpx2.Response, said: str) -> None:
        super().__init__(f"{call.told}: status {answer.status_code}: {said}")
        self.status = answer.status_code
        self.wait = retry_after(answer.headers.get) or 0.0


def _refusal(status: int, said: str, call: _Call) -> Refused | Unreachable:
    if status not in range(400, 500):
        return Unreachable(f"{call.told}: status {status}: {said}")
    if status == 404 and call.verb in ("list", "watch"):
        # An empty namespace, or none, has an empty list: so it is the kind that is missing.
        said = (
            f"the server knows no {call.kind.kind} of {call.kind.api_version}; is its definition installed?"
        )
    return _BY_STATUS.get(status, Refused)(status, said, call=call.told)


def _said(body: bytes, status: int) -> str:
    """The server's own sentence, or the start of whatever it sent."""
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    if isinstance(told, dict):
        message = cast("Object", told).get("message")
        if isinstance(message, str) and message:
            return message
    return body[:300].decode(errors="replace").strip() or f"an empty answer with status {status}"


def _exists(error: Conflict) -> bool:
    """A create is refused with 409 for other reasons too, such as a quota that was being changed."""
    return "already exists" in error.message


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


def _object(body: bytes, call: _Call) -> Object:
    try:
        obj = json.loads(body)
    except ValueError as error:
        raise Unreachable(f"{call.told}: the answer is not JSON: {body[:80]!r}") from error
    if not isinstance(obj, dict):
        raise Unreachable(f"{call.told}: the answer is no object: {body[:80]!r}")
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


def _event(line: bytes, call: _Call) -> tuple[str, Object]:
    event = _object(line, call)
    word, obj = event.get("type"), event.get("object")
    if not isinstance(word, str) or not isinstance(obj, dict):
        raise Unreachable(f"{call.told}: not an event of a watch: {line[:80]!r}")
    obj = cast("Object", obj)
    if word == "ERROR":
        status = obj.get("code")
        said = str(obj.get("message") or "an error without a message")
        raise _refusal(status if isinstance(status, int) else 500, said, call)
    return word, obj


def _namespace_of(obj: Mapping[str, Any]) -> str | None:
    return cast("Mapping[str, Any]", obj.get("metadata") or {}).get("namespace")


def _selector(labels: Mapping[str, str] | str | None) -> Params:
    if not labels:
        return {}
    if not isinstance(labels, str):
        labels = ",".join(f"{key}={value}" for key, value in labels.items())
    return {"labelSelector": labels}


def _found(path: str | None, context: str | None, account: str) -> SingleConfig:
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


def _in_cluster(home: Path, context: str | None, account: str) -> SingleConfig:
    tried = f"$KUBECONFIG is not set, {home} is not there"
    if context:
        raise UsageError(f"no context {context!r}, since there is no kubeconfig: {tried}")
    try:
        config = KubeConfig.from_service_account(account).get()
    except (ConfigError, KeyError, OSError) as error:
        raise UsageError(
            f"no cluster found: {tried}, and this is no pod with a service account ({error}); "
            "name a kubeconfig, or set KUBECONFIG"
        ) from error
    return cast("SingleConfig", config)


def _read(files: list[Path], context: str | None) -> SingleConfig:
    """One context of the files, of which the first to name a thing wins, as for kubectl."""
    whole: Object = {key: [] for key in _ENTRIES}
    for file in files:
        for key, value in _yaml(file).items():
            if key in _ENTRIES:
                # Of two entries with one name lightkube takes the later.
                whole[key] = [*_placed(key, value, file), *whole[key]]
            elif value:
                whole.setdefault(key, value)
    try:
        config = cast("Any", KubeConfig).from_dict(whole, fname=files[0]).get(context)
    except ConfigError as error:
        known = ", ".join(sorted(str(entry.get("name")) for entry in whole["contexts"])) or "none"
        raise FileError(f"{error}; contexts: {known}", file=files[0]) from error
    except KeyError as error:
        raise FileError(f"no entry {error}, which the context names", file=files[0]) from error
    except (ValueError, TypeError) as error:
        raise FileError(f"not a kubeconfig: {error}", file=files[0]) from error
    return cast("SingleConfig", config)


def _yaml(file: Path) -> Object:
    try:
        read = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"cannot be read: {error}", file=file) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise FileError(f"not YAML: {getattr(error, 'problem', error)}", file=file, line=line) from error
    if not isinstance(read, dict):
        raise FileError("not a kubeconfig: a mapping with clusters, contexts and users is needed", file=file)
    return cast("Object", read)


def _placed(key: str, entries: Any, file: Path) -> Objects:
    """The entries with every file name seen from where they stand."""
    placed: Objects = []
    for entry in cast("list[Any]", entries or []):
        inner = cast("Object", entry).get(_ENTRIES[key]) if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or "name" not in entry or not isinstance(inner, dict):
            raise FileError(f"each entry needs a name and a mapping {_ENTRIES[key]!r}", file=file, key=key)
        inner = cast("Object", inner)
        files = {name: str(file.parent / inner[name]) for name in _FILE_NAMES if inner.get(name)}
        placed.append({**cast("Object", entry), _ENTRIES[key]: {**inner, **files}})
    return placed


def _http(config: SingleConfig, times: httpx2.Timeout) -> httpx2.AsyncClient:
    # lightkube wants a user even where the server asks for none.
    config = config if config.user else config._replace(user=User())
    try:
        return AsyncClient(config, ConnectionParams(timeout=times))
    except (ConfigError, OSError, ValueError, httpx2.InvalidURL) as error:
        what = f"context {config.context_name!r} cannot be used: {error}"
        raise (FileError(what, file=config.fname) if config.fname else UsageError(what)) from error
