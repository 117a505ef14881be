"""The operator: the objects that its installation needs, and the program that runs several controllers.

The objects are its account, the least rights, and the Deployment. Of several operators, the one that holds the lease acts.

`hookline operator manifest` prints them. tools/chart.py makes the Helm chart of the same objects; only its values are
written by hand.

The operator can grant to hooks (`lifecycle.rbac`) the rights of the role `hookline-grantable` and no more. It holds that
role for this purpose alone; the API server lets nobody grant rights that they do not hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from hookline.errors import JournalError, UsageError
from hookline.kube import objects
from hookline.kube.objects import LABEL, LONGEST_NAME, SAFE, SYSTEM, Kind, Object
from hookline.options import Installation, OperatorOptions, option_name, words_of
from hookline.source import read, without_lines
from hookline.tasks import run_interruptible

if TYPE_CHECKING:
    from hookline.engine.record import Journal
    from hookline.kube.client import Cluster
    from hookline.kube.controller import Controller

logger = logging.getLogger("hookline.kube")

NAME = "hookline-operator"
GRANTABLE_NAME = "hookline-grantable"
OWN_RUN = "hookline.dev/own-run"
"""Stands in that role for the name of the AgentRun that the rights are granted to; no object can have this name."""
PORT = 8080
USER = 65532
"""The user id of the operator's process, which owns no file of the image."""
HOME = "/var/lib/hookline"
"""The folder of its journal."""
LABELS = {"app.kubernetes.io/name": "hookline", "app.kubernetes.io/component": "operator"}

_SIZE = re.compile(r"[0-9]+(\.[0-9]+)?([EPTGMk]|[EPTGMK]i)?")
_LOOK = ("get", "list", "watch")
_OURS = (objects.AGENT_RUN, objects.AGENT, objects.INSTANCE, objects.ENSEMBLE, objects.PACK)


def _rule(kinds: Iterable[Kind], verbs: Sequence[str], part: str = "") -> Object:
    known = tuple(kinds)
    return {
        "apiGroups": sorted({kind.group for kind in known}),
        "resources": [f"{kind.plural}{part}" for kind in known],
        "verbs": list(verbs),
    }


RULES: tuple[Object, ...] = (
    _rule(_OURS, _LOOK),
    _rule([objects.AGENT_RUN], ("patch",)),
    _rule(_OURS, ("get", "patch", "update"), "/status"),
    _rule(_OURS, ("patch", "update"), "/finalizers"),
    _rule([objects.POLICY], _LOOK),
    # For the members of packs, and for pruning the history.
    _rule([objects.AGENT], ("create", "update", "delete")),
    _rule([objects.AGENT_RUN], ("delete",)),
    _rule([objects.JOB], (*_LOOK, "create", "delete", "patch")),
    _rule([objects.CLAIM], (*_LOOK, "create", "delete", "patch")),
    _rule([objects.POD], (*_LOOK, "delete")),
    _rule([objects.POD], ("get",), "/log"),
    _rule([objects.EVENT], ("create", "patch")),
    _rule([objects.ACCOUNT], ("get", "create", "delete")),
    _rule([objects.ROLE, objects.ROLE_BINDING], ("get", "create", "delete")),
    # The role is read at each grant, so that a change takes effect at once.
    {**_rule([objects.CLUSTER_ROLE], ("get",)), "resourceNames": [GRANTABLE_NAME]},
    # By name only: whoever may list or watch secrets may read them all at once. The names are made of those of runs, so
    # that no role can have them.
    _rule([objects.SECRET], ("get", "create", "patch", "delete")),
    _rule([objects.SANDBOX], (*_LOOK, "create", "delete")),
)
"""The operator's rights in the namespaces that it works in."""
GRANTABLE: tuple[Object, ...] = (
    _rule([objects.CONFIG_MAP], (*_LOOK, "create", "update", "patch", "delete")),
    _rule([objects.AGENT_RUN], _LOOK),
    # For the verdict of a run's own gate.
    {**_rule([objects.AGENT_RUN], ("patch",)), "resourceNames": [OWN_RUN]},
)
"""The rights that it may grant to hooks, and holds for that alone."""
KAGENT_RULES: tuple[Object, ...] = (
    _rule([objects.KAGENT, objects.MODEL_CONFIG, objects.REMOTE_MCP_SERVER, objects.MCP_SERVER], _LOOK),
    _rule([objects.KAGENT], ("get", "patch", "update"), "/status"),
    _rule([objects.DEPLOYMENT], (*_LOOK, "create", "update", "delete")),
    _rule([objects.SERVICE, objects.ACCOUNT], ("get", "create", "patch", "delete")),
    _rule([objects.NETWORK_POLICY], ("get", "create", "update", "delete")),
    _rule([objects.SECRET], ("get", "create", "update", "delete")),
    _rule([objects.POD], _LOOK),
)
"""Its further rights for kagent's agents."""
LEADING = (_rule([objects.LEASE], ("get", "create", "update", "patch")),)


_CRDS = {"sympozium": "sympozium/cluster/crds.yaml", "kagent": "kagent/crds.yaml"}
"""The file with the definitions of each system's kinds."""


OPTIONS: Mapping[str, str] = {
    **{each.name: option_name(each.name, {}) for each in fields(OperatorOptions)},
    "watch": "--namespace",
}
"""The operator's option for each setting: a flag, one for each of several, or none for an empty text."""


def check(options: OperatorOptions, namespaces: Sequence[str] = ()) -> None:
    """Raise UsageError for a setting that no operator can work with, or a namespace that none works in."""
    if namespaces and options.all_namespaces:
        raise UsageError("--all-namespaces is given, and namespaces too; leave one of them out")
    if system := sorted(SYSTEM.intersection(namespaces)):
        raise UsageError(f"{system[0]!r} is a namespace of the cluster itself; the operator works in others")
    if not options.image:
        raise UsageError(
            "--image is missing; give hookline's own image, built from deploy/Containerfile,"
            " such as registry.example/hookline:1.0"
        )
    for what, image in {"image": options.image, "agent image": options.agent_image}.items():
        if any(map(str.isspace, image)):
            raise UsageError(f"the {what} is {image!r}; give one such as registry.example/hookline:1.0")
    if not _SIZE.fullmatch(options.workspace_size):
        raise UsageError(f"the size of a workspace is {options.workspace_size!r}; write it like 1Gi")
    words_of(options.agent_command, "--agent-command")


def crds(system: str = "sympozium") -> list[Object]:
    """The CustomResourceDefinitions of a system, with the aliases of the file expanded."""
    return without_lines(read(Path(__file__).parents[1] / _CRDS[system]).value["items"])


def all_objects(settings: Installation, grantable: Sequence[Object] = GRANTABLE) -> list[Object]:
    """All objects in the order in which they can be applied, after those of `crds`."""
    watched = settings.watch or (() if settings.all_namespaces else (settings.namespace,))
    check(settings, watched)
    for name in (settings.namespace, *settings.watch):
        if not LABEL.fullmatch(name) or len(name) > LONGEST_NAME:
            raise UsageError(f"{name!r} is not a name of a namespace; such as hookline-system")
    return [
        _namespace(settings),
        _named(objects.ACCOUNT, NAME, settings.namespace),
        *_granted(settings, NAME, RULES, watched),
        *_granted(settings, GRANTABLE_NAME, grantable, watched),
        *(_granted(settings, f"{NAME}-kagent", KAGENT_RULES, watched) if settings.kagent else []),
        *_role(settings, f"{NAME}-leading", LEADING, settings.namespace),
        _deployment(settings),
    ]


def arguments(settings: Installation) -> list[str]:
    """The operator's own command line."""
    words = ["operator"]
    for field, option in OPTIONS.items():
        value = getattr(settings, field)
        if isinstance(value, bool):
            words += [option] if value else []
        elif isinstance(value, tuple):
            words += [word for each in cast("tuple[str, ...]", value) for word in (option, each)]
        elif value != "":
            words += [option, str(value)]
    return [*words, "--port", str(PORT)]


def _granted(
    settings: Installation, name: str, rules: Sequence[Object], watched: Sequence[str]
) -> list[Object]:
    """A role for each watched namespace; for none, one that holds in all."""
    places = watched or ("",)
    return [each for namespace in places for each in _role(settings, name, rules, namespace)]


def _role(settings: Installation, name: str, rules: Sequence[Object], namespace: str = "") -> list[Object]:
    """The role and its binding to the operator; without a namespace they hold in all."""
    role, binding = (
        (objects.ROLE, objects.ROLE_BINDING)
        if namespace
        else (objects.CLUSTER_ROLE, objects.CLUSTER_ROLE_BINDING)
    )
    return [
        {**_named(role, name, namespace), "rules": [dict(rule) for rule in rules]},
        {
            **_named(binding, name, namespace),
            "roleRef": {"apiGroup": role.group, "kind": role.kind, "name": name},
            "subjects": [{"kind": objects.ACCOUNT.kind, "name": NAME, "namespace": settings.namespace}],
        },
    ]


def _namespace(settings: Installation) -> Object:
    made = _named(objects.NAMESPACE, settings.namespace)
    # Newer servers enforce this standard for every pod of the namespace.
    made["metadata"]["labels"] |= {"pod-security.kubernetes.io/enforce": "restricted"}
    return made


def _deployment(settings: Installation) -> Object:
    pod: Object = {
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": _apart(),
        "containers": [_container(settings)],
        # The journal may be lost: it is rebuilt from the existing runs.
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
            {"name": "journal", "emptyDir": {"sizeLimit": "512Mi"}},
        ],
    }
    return {
        **_named(objects.DEPLOYMENT, NAME, settings.namespace),
        "spec": {
            "replicas": settings.replicas,
            "selector": {"matchLabels": dict(LABELS)},
            "template": {"metadata": {"labels": dict(LABELS)}, "spec": pod},
        },
    }


def _container(settings: Installation) -> Object:
    return {
        "name": "operator",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "hookline"],
        "args": arguments(settings),
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "HOOKLINE_HOME", "value": HOME}],
        "ports": [{"name": "http", "containerPort": PORT}],
        "livenessProbe": {**_probe("/healthz"), "initialDelaySeconds": 10, "periodSeconds": 20},
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": SAFE,
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "journal", "mountPath": HOME},
        ],
    }


def _apart() -> Object:
    """Spreads the replicas over the nodes, if there are enough."""
    term = {"labelSelector": {"matchLabels": dict(LABELS)}, "topologyKey": "kubernetes.io/hostname"}
    return {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]
        }
    }


def _probe(path: str) -> Object:
    return {"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": 5}


def _named(kind: Kind, name: str, namespace: str = "") -> Object:
    within = {"namespace": namespace} if namespace else {}
    return {**kind.head, "metadata": {"name": name, "labels": dict(LABELS), **within}}


Controllers: TypeAlias = "Callable[[Cluster, Journal | None], Sequence[Controller]]"
"""Makes the controllers of an operator, each time that it gets the lease."""


async def serve(
    cluster: Cluster,
    controllers: Controllers,
    *,
    lease_namespace: str = "",
    lease_seconds: int = 15,
    port: int = 0,
    journal: Journal | None = None,
) -> None:
    """Waits for the lease and runs the controllers while it is held, until cancelled."""
    from hookline.kube.lease import Lease

    lease = Lease(
        cluster,
        lease_namespace or cluster.namespace or "default",
        NAME,
        duration=lease_seconds,
        every=lease_seconds / 3,
        patience=lease_seconds * 2 / 3,
    )
    acting: list[Controller] = []

    async def act() -> None:
        acting[:] = controllers(cluster, journal)
        try:
            async with asyncio.TaskGroup() as group:
                for each in acting:
                    group.create_task(each.run())
        finally:
            acting.clear()

    def is_ready() -> bool:
        # An operator that waits for the lease is ready to take over.
        return all(each.ready.is_set() for each in acting)

    async with _probes(port, is_ready):
        await lease.hold(act)


@contextlib.asynccontextmanager
async def _probes(port: int, is_ready: Callable[[], bool]) -> AsyncGenerator[None]:
    """Serves `/healthz` and `/readyz`, for the kubelet."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                line = await reader.readline()
            path = line.split(b" ")[1:2]
            well = path == [b"/healthz"] or (path == [b"/readyz"] and is_ready())
            known = path in ([b"/healthz"], [b"/readyz"])
            word = b"200 OK" if well else b"503 Service Unavailable" if known else b"404 Not Found"
            writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % word)
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", port)
    async with server:
        yield


def main(controllers: Controllers, *, port: int, journal: Path) -> int:
    """Serves until a signal, then returns 130. `journal` is the file that runs are recorded in."""
    from hookline.kube.client import Cluster

    opened: Journal | None = None

    async def work() -> int:
        async with Cluster() as cluster:
            await serve(cluster, controllers, port=port, journal=opened)
        return 0

    with contextlib.ExitStack() as stack:
        try:
            from hookline.journal.sqlite import KEEP_BYTES_OPERATOR, SqliteJournal

            opened = stack.enter_context(SqliteJournal(journal, keep_bytes=KEEP_BYTES_OPERATOR))
        except JournalError as exc:
            # Runs and their hooks work without it.
            logger.warning("runs are not recorded: %s", exc)
        return run_interruptible(work)
