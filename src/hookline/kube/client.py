"""The client of a cluster: plain objects in, plain objects out; and its errors as messages for a user."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import Final, Self, TypeAlias, cast
from urllib.parse import quote

from hookline.errors import HooklineError, UsageError
from hookline.kube.objects import (
    NO_LOG,
    POD,
    AlreadyThere,
    ApiRefused,
    Conflict,
    Kind,
    NotThere,
    Object,
    Unreachable,
    kind_of,
    within,
)
from hookline.kube.transport import (
    PATIENCE,
    SERVICE_ACCOUNT,
    ApiRequest,
    Patience,
    Transport,
    find_config,
    object_of,
    refusal,
)
from hookline.options import Target

WATCH_SECONDS: Final = 110
"""How long one watch lasts, so that a dead connection is noticed within two minutes."""
MOST_LOG_BYTES: Final = 8 * 2**20

_OURS: Final = {"fieldManager": "hookline"}
_NONE: Final = MappingProxyType[str, str]({})
_PAGE: Final = 500
_QUIET_LOG: Final = 600.0
"""Seconds without a line after which a log is followed again: its connection may be dead."""

Objects: TypeAlias = list[Object]
Labels: TypeAlias = Mapping[str, str] | str | None


class Cluster:
    """One API server: that of the kubeconfig, of $KUBECONFIG, of ~/.kube/config, or the one that this runs in as `account`.

    `calls` counts the requests that were sent, by verb and kind.
    """

    def __init__(
        self,
        kubeconfig: str = "",
        context: str = "",
        *,
        account: str = SERVICE_ACCOUNT,
        patience: Patience = PATIENCE,
    ) -> None:
        config = find_config(kubeconfig, context, account)
        self.namespace = config.namespace.strip()
        self.server = config.cluster.server
        self.user = config.context.user or ""
        self._transport = Transport(config, patience)
        self.calls = self._transport.calls

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._transport.close()

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        try:
            return await self._transport.json(self._request("get", kind, namespace, name))
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
            page = await self._transport.json(self._request("list", kind, namespace, params=params))
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
        try:
            return await self._transport.json(request)
        except Conflict as error:
            # 409 has other reasons too, such as a quota that was being changed.
            if "already exists" not in error.message:
                raise
            raise AlreadyThere(409, error.message, call=request.line) from error

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
        return await self._transport.json(request)

    async def replace(self, obj: Object) -> Object:
        """Replaces an object; a Conflict if it was changed since this one was read."""
        name = str(obj["metadata"]["name"])
        request = self._request("replace", kind_of(obj), _namespace(obj), name, params=_OURS, body=obj)
        return await self._transport.json(request)

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
            await self._transport.json(self._request("delete", kind, namespace, name, body=body))
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
            printed = await self._transport.body(request, most_bytes=most_bytes)
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
        async with aclosing(
            self._transport.lines(request, quiet=_QUIET_LOG, longest=MOST_LOG_BYTES)
        ) as lines:
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
        async with aclosing(self._transport.lines(request, quiet=WATCH_SECONDS + 15.0)) as lines:
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
        params: Mapping[str, str] = _NONE,
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


@asynccontextmanager
async def connected(target: Target) -> AsyncGenerator[Cluster]:
    """The cluster that a user names; its errors are raised with messages that say what to do."""
    async with Cluster(target.kubeconfig, target.context) as cluster:
        with _told(cluster, target.namespace or cluster.namespace):
            yield cluster


@contextmanager
def _told(cluster: Cluster, namespace: str) -> Generator[None]:
    try:
        yield
    except NotThere as exc:
        if "namespaces " in exc.message:
            raise UsageError(
                f"there is no namespace {namespace!r} on {cluster.server}; kubectl create namespace {namespace}"
            ) from exc
        raise UsageError(
            f"{cluster.server} has no AgentRuns installed ({exc.message}); install them:"
            " hookline crds | kubectl apply -f -"
        ) from exc
    except AlreadyThere as exc:
        raise UsageError(f"{exc.message}; give another --name, or none") from exc
    except ApiRefused as exc:
        if exc.status in (400, 422):
            raise UsageError(f"the cluster refused it: {exc.message}") from exc
        if exc.status == 403:
            raise HooklineError(f"you are not allowed to do this on {cluster.server}: {exc.message}") from exc
        if exc.status == 401:
            raise HooklineError(f"{cluster.server} did not accept your credentials: {exc.message}") from exc
        raise


def _namespace(obj: Object) -> str | None:
    return within(obj, "metadata").get("namespace")


def _event(line: bytes, request: ApiRequest) -> tuple[str, Object]:
    match object_of(line, request):
        case {"type": "ERROR", "object": {**status}}:
            code, said = status.get("code"), status.get("message") or "an error without a message"
            raise refusal(code if isinstance(code, int) else 500, str(said), request)
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
