"""A program of hookline's as a Job: what it is given, and what it may do there, as plain objects.

Nothing is asked and nothing is made here. The Job comes first, and its Secret belongs to it: so whatever happens in
between, nothing is left when the Job goes; its pod waits for the Secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hookline.kube.pods import SAFE, SAFE_ROOT, USER, child, owner_reference, resources

Object = dict[str, Any]

CONTAINER = "hookline"
GIVEN = "/given"
"""Where the files of a task are, to be read only."""
CLAIM = "/workspaces"
"""Where its volume is, if it has one."""
CLAIM_HOME = f"{CLAIM}/.home~"
"""Where the journal is on a volume; the sign at its end is in no name of a workspace."""
HOME = "/var/hookline"
JOB_LABEL = "hookline.dev/job"
MANAGED = {"app.kubernetes.io/managed-by": "hookline"}
START_SECONDS = 900
"""Seconds that a Job may take besides the limits of its containers, before the cluster ends it by itself."""
_RESOURCES = resources("100m", "256Mi", most_cpu="2", most_memory="2Gi")
_OPENING = resources("10m", "16Mi", most_cpu="500m", most_memory="64Mi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`args` follow `python3 -m hookline`. `env` and `files` (names below GIVEN) travel in a Secret of the task's own;
    `secrets` are the user's Secrets, all of whose keys become variables; `claim` is an existing claim's name."""

    name: str
    namespace: str
    image: str
    args: tuple[str, ...]
    component: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: tuple[str, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    claim: str = ""
    timeout: float | None = None
    grace: float = 60.0
    """Seconds that its end hooks have when it is asked to end."""
    account: str = ""
    mark: str = ""
    """Tells this task's Secret from that of an earlier one of the same name, which goes a moment after its Job."""
    kept: int | None = None
    """Seconds for which the cluster keeps it when it is over, where nobody has removed it before."""
    open_claim_as_root: bool = False
    """For volumes that do not take the pod's group: a first container opens the volume's top folder, as root without
    any capability."""


def job_of(task: Task) -> Object:
    labels = {
        JOB_LABEL: child(task.name, ""),
        "hookline.dev/component": task.component,
        **MANAGED,
        **task.labels,
    }
    metadata: Object = {"name": task.name, "namespace": task.namespace, "labels": labels}
    if task.notes:
        metadata["annotations"] = dict(task.notes)
    limit = {} if task.timeout is None else {"activeDeadlineSeconds": int(task.timeout) + START_SECONDS}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            **limit,
            **({} if task.kept is None else {"ttlSecondsAfterFinished": task.kept}),
            "template": {"metadata": {"labels": labels}, "spec": _pod(task)},
        },
    }


def secret_of(task: Task, job: Mapping[str, Any]) -> Object:
    """What the task is given, as a part of its Job."""
    owner = owner_reference("batch/v1", "Job", task.name, job["metadata"]["uid"], controller=False)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": _secret(task),
            "namespace": task.namespace,
            "labels": {JOB_LABEL: child(task.name, ""), **MANAGED},
            "ownerReferences": [owner],
        },
        "type": "hookline.dev/task",
        "stringData": {
            **{f"file.{index}": text for index, text in enumerate(task.files.values())},
            **{f"env.{name}": value for name, value in task.env.items()},
        },
    }


def claim_of(
    name: str,
    namespace: str,
    *,
    size: str,
    storage_class: str = "",
    labels: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
) -> Object:
    """A volume that outlives the Jobs that use it."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**MANAGED, **(labels or {})},
            "annotations": dict(notes or {}),
        },
        "spec": claim_spec(size, storage_class),
    }


def claim_spec(size: str, storage_class: str = "") -> Object:
    return {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        **({"storageClassName": storage_class} if storage_class else {}),
    }


def _pod(task: Task) -> Object:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(task.grace),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": USER,
        **({"serviceAccountName": task.account} if task.account else {}),
        **({"imagePullSecrets": [{"name": each} for each in task.pull_secrets]} if task.pull_secrets else {}),
        **({"initContainers": [_opening(task)]} if task.claim and task.open_claim_as_root else {}),
        "containers": [_container(task)],
        "volumes": _volumes(task),
    }


def _container(task: Task) -> Object:
    refs = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": _secret(task), "key": f"env.{name}"}}}
        for name in task.env
    ]
    mounts: list[Object] = [
        {"name": "given", "mountPath": GIVEN, "readOnly": True},
        {"name": "home", "mountPath": HOME},
        {"name": "tmp", "mountPath": "/tmp"},
        *([{"name": "claim", "mountPath": CLAIM}] if task.claim else []),
    ]
    return {
        "name": CONTAINER,
        "image": task.image,
        "imagePullPolicy": "IfNotPresent",
        # The cluster would read $(NAME) in an argument.
        "command": ["python3", "-P", "-m", "hookline", *(each.replace("$", "$$") for each in task.args)],
        "workingDir": CLAIM if task.claim else "/tmp",
        "envFrom": [{"secretRef": {"name": name}} for name in task.secrets],
        "env": [
            {"name": "HOME", "value": "/tmp"},
            {"name": "HOOKLINE_HOME", "value": CLAIM_HOME if task.claim else HOME},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            *refs,
        ],
        "volumeMounts": mounts,
        "securityContext": SAFE,
        "resources": _RESOURCES,
    }


def _opening(task: Task) -> Object:
    code = f"import os; os.chmod({CLAIM!r}, 0o777)"
    return {
        "name": "open",
        "image": task.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-P", "-c", code],
        "volumeMounts": [{"name": "claim", "mountPath": CLAIM}],
        "securityContext": SAFE_ROOT,
        "resources": _OPENING,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _volumes(task: Task) -> list[Object]:
    items = [{"key": f"file.{index}", "path": path} for index, path in enumerate(task.files)]
    # Named so that the pod waits for the Secret, also where it holds no file.
    given: Object = {"secretName": _secret(task), **({"items": items} if items else {})}
    return [
        {"name": "given", "secret": given},
        {"name": "home", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        *([{"name": "claim", "persistentVolumeClaim": {"claimName": task.claim}}] if task.claim else []),
    ]


def _secret(task: Task) -> str:
    return child(task.name, f"-given-{task.mark}" if task.mark else "-given", 253)
