"""The client of a cluster: plain objects in, plain objects out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final, Self, TypeAlias, cast
from urllib.parse import quote

from hookline.errors import UsageError
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
    ClusterConfig,
    Params,
    Patience,
    Transport,
    find_config,
    object_of,
    refusal,
)

WATCH_SECONDS: Final = 110
"""How long one watch lasts, so that a dead connection is noticed within two minutes."""
MOST_LOG_BYTES: Final = 8 * 2**20

_MANAGER: Final = "hookline"
_PAGE: Final = 500
_MERGE: Final = "application/merge-patch+json"
_QUIET_LOG: Final = 600.0
"""Seconds without a line after which a log is followed again: its connection may be dead."""

Objects: TypeAlias = list[Object]


class Cluster:
    """One API server. `calls` counts the requests that were sent, by verb and kind."""

    def __init__(self, config: ClusterConfig, *, patience: Patience = PATIENCE) -> None:
        self.namespace = config.namespace.strip()
        self.server = config.cluster.server
        self.user = config.context.user or ""
        self._transport = Transport(config, patience)
        self.calls = self._transport.calls

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
        return cls(find_config(path, context, account), patience=patience)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        try:
            return await self._transport.json(ApiRequest("get", kind, self._path(kind, namespace, name)))
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
            page = await self._transport.json(ApiRequest("list", kind, path, params))
            head = within(page, "metadata")
            version = version or str(head.get("resourceVersion") or "")
            # Objects in a list have no apiVersion and kind.
            items = cast("Objects", page.get("items") or [])
            found += [{**kind.head, **item} for item in items]
            if not head.get("continue"):
                return found, version
            params["continue"] = str(head["continue"])

    async def create(self, obj: Object) -> Object:
        kind = kind_of(obj)
        path = self._path(kind, within(obj, "metadata").get("namespace"))
        params = {"fieldManager": _MANAGER}
        try:
            return await self._transport.json(ApiRequest("create", kind, path, params, obj))
        except Conflict as error:
            # 409 has other reasons too, such as a quota that was being changed.
            if "already exists" not in error.message:
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
        """Applies a merge patch, in which None removes; a Conflict if `resource_version` is not the newest."""
        if resource_version:
            head = within(merge, "metadata")
            merge = {**merge, "metadata": {**head, "resourceVersion": resource_version}}
        path = self._path(kind, namespace, name, subresource)
        params = {"fieldManager": _MANAGER}
        return await self._transport.json(ApiRequest("patch", kind, path, params, merge, _MERGE, subresource))

    async def replace(self, obj: Object) -> Object:
        """Replaces an object; a Conflict if it was changed since this one was read."""
        kind = kind_of(obj)
        path = self._path(kind, within(obj, "metadata").get("namespace"), str(obj["metadata"]["name"]))
        return await self._transport.json(ApiRequest("replace", kind, path, {"fieldManager": _MANAGER}, obj))

    async def delete(
        self, kind: Kind, name: str, namespace: str | None = None, *, uid: str = "", grace: int | None = None
    ) -> bool:
        """True if it is deleted, or will be; False if it was gone already or has another `uid`."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        path = self._path(kind, namespace, name)
        try:
            await self._transport.json(ApiRequest("delete", kind, path, body=body))
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
        path = self._path(POD, namespace, pod, "log")
        try:
            printed = await self._transport.body(ApiRequest("log", POD, path, params), most_bytes=most_bytes)
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
        request = ApiRequest("log", POD, self._path(POD, namespace, pod, "log"), params)
        async with aclosing(
            self._transport.lines(request, quiet=_QUIET_LOG, longest=MOST_LOG_BYTES)
        ) as lines:
            async for line in lines:
                yield line.decode(errors="replace")

    async def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Mapping[str, str] | str | None = None,
        resource_version: str = "",
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
        path = self._path(kind, namespace, everywhere=namespace is None)
        request = ApiRequest("watch", kind, path, params)
        async with aclosing(self._transport.lines(request, quiet=WATCH_SECONDS + 15.0)) as lines:
            async for line in lines:
                yield _event(line, request)

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


def _event(line: bytes, request: ApiRequest) -> tuple[str, Object]:
    event = object_of(line, request)
    word, obj = event.get("type"), event.get("object")
    if not isinstance(word, str) or not isinstance(obj, dict):
        raise Unreachable(f"{request.line}: not an event of a watch: {line[:80]!r}")
    obj = cast("Object", obj)
    if word == "ERROR":
        status = obj.get("code")
        said = str(obj.get("message") or "an error without a message")
        raise refusal(status if isinstance(status, int) else 500, said, request)
    return word, obj


def _selector(labels: Mapping[str, str] | str | None) -> Params:
    if not labels:
        return {}
    if not isinstance(labels, str):
        labels = ",".join(f"{key}={value}" for key, value in labels.items())
    return {"labelSelector": labels}
