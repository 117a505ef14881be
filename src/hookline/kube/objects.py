"""Plain objects of a cluster: kinds, access to fields, common parts, objects in manifests of users, and errors.

ClusterError
 +-- ApiRefused     the server refused; its message names the field or the right
 |    +-- NotThere      the object to change, or its kind or namespace, does not exist
 |    +-- AlreadyThere  an object of that name exists
 |    +-- Conflict      it was changed since it was read, or has another uid
 |    +-- Gone          the version to watch from, or the token of a list, is too old: list again
 +-- Unreachable    no answer, or none about the request; it may work later
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import Any, NamedTuple, TypeAlias, cast

from hookline.engine.plain import inner, mapping
from hookline.errors import FileError, HooklineError, UsageError, nearest
from hookline.source import Document, line_of, load_all
from hookline.table import Findings, Key, Node, Table, open_table, pairs, text, unread

# An object as the API server gives and takes it.
Object: TypeAlias = dict[str, Any]
# An object, or a part of one, that is only read.
Fields: TypeAlias = Mapping[str, Any]

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
LONGEST_NAME = 63
SYSTEM = frozenset({"kube-system", "kube-public", "kube-node-lease"})
"""Namespaces of the cluster itself, in which nothing is done."""
NO_LOG = ("rpc error: code = NotFound", "unable to retrieve container logs for ")
"""How a kubelet says, with status 200 and in place of a log, that the container is gone."""

SAFE: Object = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""For each container of ours: no capability, and nothing written to the image."""
SAFE_ROOT: Object = {**SAFE, "runAsUser": 0, "runAsNonRoot": False}
"""For a container that opens a volume which ignores the pod's group: root, without any capability."""
USER: Object = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""For the whole pod."""


class Kind(NamedTuple):
    """`plural` is the name in the URL; `group` is empty for the core kinds."""

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def head(self) -> Object:
        """The fields apiVersion and kind."""
        return {"apiVersion": self.api_version, "kind": self.kind}


_RBAC = "rbac.authorization.k8s.io"

AGENT_RUN = Kind("AgentRun", "sympozium.ai", "v1alpha1", "agentruns")
AGENT = Kind("Agent", "sympozium.ai", "v1alpha1", "agents")
INSTANCE = Kind("SympoziumInstance", "sympozium.ai", "v1alpha1", "sympoziuminstances")
ENSEMBLE = Kind("Ensemble", "sympozium.ai", "v1alpha1", "ensembles")
PACK = Kind("PersonaPack", "sympozium.ai", "v1alpha1", "personapacks")
POLICY = Kind("SympoziumPolicy", "sympozium.ai", "v1alpha1", "sympoziumpolicies")
SANDBOX = Kind("Sandbox", "agents.x-k8s.io", "v1alpha1", "sandboxes")
KAGENT = Kind("Agent", "kagent.dev", "v1alpha2", "agents")
MODEL_CONFIG = Kind("ModelConfig", "kagent.dev", "v1alpha2", "modelconfigs")
REMOTE_MCP_SERVER = Kind("RemoteMCPServer", "kagent.dev", "v1alpha2", "remotemcpservers")
MCP_SERVER = Kind("MCPServer", "kagent.dev", "v1alpha1", "mcpservers")
JOB = Kind("Job", "batch", "v1", "jobs")
DEPLOYMENT = Kind("Deployment", "apps", "v1", "deployments")
POD = Kind("Pod", "", "v1", "pods")
CLAIM = Kind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims")
ACCOUNT = Kind("ServiceAccount", "", "v1", "serviceaccounts")
SERVICE = Kind("Service", "", "v1", "services")
SECRET = Kind("Secret", "", "v1", "secrets")
CONFIG_MAP = Kind("ConfigMap", "", "v1", "configmaps")
EVENT = Kind("Event", "", "v1", "events")
NAMESPACE = Kind("Namespace", "", "v1", "namespaces", namespaced=False)
ROLE = Kind("Role", _RBAC, "v1", "roles")
ROLE_BINDING = Kind("RoleBinding", _RBAC, "v1", "rolebindings")
CLUSTER_ROLE = Kind("ClusterRole", _RBAC, "v1", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = Kind("ClusterRoleBinding", _RBAC, "v1", "clusterrolebindings", namespaced=False)
NETWORK_POLICY = Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies")
LEASE = Kind("Lease", "coordination.k8s.io", "v1", "leases")
DEFINITION = Kind(
    "CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False
)

_KNOWN = tuple(each for each in list(globals().values()) if isinstance(each, Kind))
# By `apiVersion` and `kind`, since more than one group has a kind `Agent`.
KINDS: Mapping[tuple[str, str], Kind] = {(known.api_version, known.kind): known for known in _KNOWN}


class ClusterError(HooklineError):
    """A request to the cluster failed."""


class ApiRefused(ClusterError):
    """`status` is the HTTP status, `message` that of the server."""

    def __init__(self, status: int, message: str, *, call: str = "") -> None:
        super().__init__(f"{call}: {message}" if call else message)
        self.status = status
        self.message = message


class NotThere(ApiRefused):
    """404, unless the caller expects it."""


class AlreadyThere(ApiRefused):
    """409 of a create."""


class Conflict(ApiRefused):
    """409 of a change: read the object again and decide again."""


class Gone(ApiRefused):
    """410: the known version is too old to continue from."""


class Unreachable(ClusterError):
    """No connection, no answer in time, an invalid answer, or a server in trouble (5xx, 429)."""


def kind_of(obj: Fields) -> Kind:
    """The kind of an object, by its apiVersion and kind."""
    said = (str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    known = KINDS.get(said)
    if known is None:
        raise UsageError(f"unknown kind of object: apiVersion {said[0]!r}, kind {said[1]!r}{_meant(said[1])}")
    return known


def _meant(kind: str) -> str:
    same = [known for known in _KNOWN if known.kind == kind]
    if same:
        return f"; {kind} is known with apiVersion {' or '.join(repr(known.api_version) for known in same)}"
    near = nearest(kind, (known.kind for known in _KNOWN))
    return f"; did you mean {near!r}?" if near else ""


def items(value: Any) -> list[Fields]:
    """The mappings in a list."""
    return cast("list[Fields]", value) if isinstance(value, list) else []


def within(obj: Fields, *keys: str) -> Fields:
    """The mapping below those keys, empty where there is none."""
    return mapping(inner(obj, *keys))


def owners(obj: Fields) -> list[Fields]:
    return items(within(obj, "metadata").get("ownerReferences"))


def is_owned(obj: Fields, uid: str) -> bool:
    """True if the object names an owner with this uid."""
    return any(owner.get("uid") == uid for owner in owners(obj))


def is_ending(obj: Fields) -> bool:
    """True if the object was deleted; it stays until all that holds it lets go."""
    return bool(within(obj, "metadata").get("deletionTimestamp"))


def bare(obj: Fields) -> Object:
    """The user's part of an object: kind, name and spec."""
    metadata = within(obj, "metadata")
    return {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "metadata": {key: metadata[key] for key in ("name", "namespace") if key in metadata},
        "spec": obj.get("spec"),
    }


def phase_of(run: Fields) -> str:
    return str(within(run, "status").get("phase") or "")


def child(name: str, suffix: str, longest: int = LONGEST_NAME) -> str:
    """`name` with a suffix, at most `longest` characters: a name that is cut gets a digest of the whole."""
    if len(name) + len(suffix) <= longest:
        return f"{name}{suffix}"
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: longest - len(suffix) - len(mark) - 1].rstrip('-.')}-{mark}{suffix}"


def resources(cpu: str, memory: str, *, most_cpu: str, most_memory: str) -> Object:
    """The requests and limits of a container."""
    return {
        "requests": {"cpu": cpu, "memory": memory},
        "limits": {"cpu": most_cpu, "memory": most_memory},
    }


def container(name: str, image: str, sizes: Object, mounts: list[Object], **more: Any) -> Object:
    """A container of ours, with its resources and volumes; `more` are further fields."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "volumeMounts": mounts,
        "securityContext": SAFE,
        "resources": sizes,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **more,
    }


def with_head(kind: Kind, name: str, namespace: str, labels: Fields, **more: Any) -> Object:
    """An object without its content; `more` are further fields of its metadata."""
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels), **more}
    return {**kind.head, "metadata": metadata}


def owner_reference(kind: Kind, name: str, uid: str, *, controller: bool = True) -> Object:
    """A reference to the owner, with which the object is deleted."""
    return {
        **kind.head,
        "name": name,
        "uid": uid,
        "controller": controller,
        "blockOwnerDeletion": False,
    }


def holds_objects(
    content: str, file: str | PathLike[str], group: str, is_fragment: Callable[[Any], bool]
) -> bool:
    """True if a user's file has an object of the group (`kagent.dev/`), or the part of one that has its hooks."""
    try:
        documents = load_all(content, file)
    except FileError:
        return re.search(rf"^apiVersion:\s*['\"]?{re.escape(group)}", content, re.MULTILINE) is not None
    return any(
        api_version(each.value).startswith(group) or is_fragment(each.value) for each in objects_in(documents)
    )


def objects_in(documents: list[Document]) -> Iterator[Document]:
    """Each object of a user's file by itself, also those of a `List`."""
    for document in documents:
        given = mapping(document.value)
        listed = given.get("items")
        if given.get("kind") != "List" or not isinstance(listed, list):
            yield document
            continue
        for index, item in enumerate(cast("list[Any]", listed)):
            yield Document(item, document.file, line_of(document, ("items", index)))


def named_objects(
    documents: list[Document],
    findings: Findings,
    *,
    kinds: Iterable[str],
    is_apart: Callable[[Any], bool],
    is_read: Callable[[Node, str], bool],
    names: Callable[[str, Node], tuple[str, str]] | None = None,
) -> Iterator[tuple[Node, str, str, str]]:
    """Each object of a user's file that `is_read`, with its kind, name and namespace; mistakes go to the findings.

    An object that `is_apart`, such as one without its head, comes without them.
    """
    seen: dict[tuple[str, str, str], str] = {}
    for document in objects_in(documents):
        value: Any = document.value
        node = Node.root(document, findings)
        if not isinstance(value, Mapping):
            if value is not None:
                node.wrong("is not an object; it must have apiVersion and kind")
            continue
        if is_apart(value):
            if (metadata := node.mapping("metadata")) is not None:
                METADATA.read(metadata)
            yield node, "", "", ""
            continue
        kind = node.get("kind", text, needed=f"it is one of {', '.join(kinds)}")
        if not kind or not is_read(node, kind):
            continue
        metadata = node.mapping("metadata")
        if metadata is None:
            node.wrong("metadata is missing; write metadata: {name: ...}")
            continue
        METADATA.read(metadata)
        name, namespace = (names or _names)(kind, metadata)
        first = seen.setdefault((kind, namespace, name), node.source)
        if first != node.source:
            node.wrong(f"the {kind} {name!r} is in {first} already", "metadata", "name")
        elif name:
            yield node, kind, name, namespace


def _known(*keys: str, **instead: str) -> Table:
    return open_table(dict.fromkeys(keys, Key(unread)), instead)


def head(**instead: str) -> Table:
    """The keys of an object; `instead` has hints for wrong ones. What is below them is read by itself."""
    return _known("apiVersion", "kind", "metadata", "spec", "status", **instead)


METADATA = _known(
    *("name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences"),
    *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "selfLink"),
    *("deletionGracePeriodSeconds", "managedFields"),
)
_CORE = _known("apiVersion", "kind", "metadata", "type", "immutable", "data", "stringData", "binaryData")


def _names(kind: str, metadata: Node) -> tuple[str, str]:
    name = metadata.get("name", text, needed="every object has a name")
    return name, metadata.get("namespace", text) or "default"


def spec_of(node: Node, parts: str) -> Node | None:
    """The mapping `spec` of an object; `parts` says what belongs there, where it is missing."""
    if "spec" not in node:
        node.wrong(f"spec is missing; it has {parts}")
    return node.mapping("spec")


def is_foreign(node: Node, kind: str, api: str, group: str) -> bool:
    """True if an object is not of the group, which is noted."""
    if api and not api.startswith(group):
        node.note(f"is a {kind} of {api}, which is not supported here")
    return not api.startswith(group)


def api_version(value: Any) -> str:
    given = mapping(value).get("apiVersion")
    return given if isinstance(given, str) else ""


def core_values(node: Node) -> dict[str, str]:
    """The texts of a ConfigMap, or of a Secret, plain and in base64."""
    _CORE.read(node)
    if node.value.get("kind") == "ConfigMap":
        return node.get("data", pairs, {})
    found: dict[str, str] = node.get("stringData", pairs, {})
    for key, value in node.get("data", pairs, {}).items():
        try:
            found.setdefault(key, base64.b64decode(value, validate=True).decode())
        except (binascii.Error, UnicodeDecodeError):
            node.wrong("is not text in base64; write it plainly under stringData", "data", key)
    return found
