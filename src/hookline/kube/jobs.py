"""A program of hookline's as a Job: what it is given and may do there, and the Job from its making to its end.

The Job comes first, and its Secret belongs to it: so whatever happens in between, nothing is left when the Job goes; its
pod waits for the Secret. Whoever tends a Job may go and another may come: a Job is known by its name, and its log is
read from the beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hookline.kube import objects
from hookline.kube.controller import Caches, Watch
from hookline.kube.logs import LogReader
from hookline.kube.objects import AlreadyThere, ClusterError, Fields, Object, child, with_head
from hookline.kube.pod_state import (
    ContainerPhase,
    ContainerState,
    EndReason,
    Slot,
    Workload,
    WorkloadState,
    follow,
    pod_of,
)
from hookline.tasks import cancel_and_wait, set_within

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

CONTAINER = "hookline"
GIVEN = "/given"
"""Where the files of a task are, to be read only."""
MOUNT = "/workspaces"
"""Where its volume is, if it has one."""
CLAIM_HOME = f"{MOUNT}/.home~"
"""Where the journal is on a volume; the sign at its end is in no name of a workspace."""
HOME = "/var/hookline"
JOB_LABEL = "hookline.dev/job"
COMPONENT_LABEL = "hookline.dev/component"
MANAGED = {"app.kubernetes.io/managed-by": "hookline"}
START_SECONDS = 900
"""Seconds that a Job may take besides the limits of its containers, before the cluster ends it by itself."""
LAST_LINES = 20.0
"""Seconds to wait for more of the log of a container that has ended."""
_RESOURCES = objects.resources("100m", "256Mi", most_cpu="2", most_memory="2Gi")
_OPENING = objects.resources("10m", "16Mi", most_cpu="500m", most_memory="64Mi")


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
    claim: str = ""
    timeout: float | None = None
    grace: float = 60.0
    """Seconds that its end hooks have when it is asked to end."""
    mark: str = ""
    """Tells this task's Secret from that of an earlier one of the same name, which goes a moment after its Job."""
    kept: int | None = None
    """Seconds for which the cluster keeps it when it is over, where nobody has removed it before."""
    open_claim_as_root: bool = False
    """For volumes that do not take the pod's group: a first container opens the volume's top folder, as root without
    any capability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How the program of a Job ended: by itself with `exit_code`, or without, and then `why` says what happened to it.

    `began` is False where it never started."""

    exit_code: int | None = None
    why: str = ""
    began: bool = True
    log_lost: bool = False
    """The log could not be read to its end."""


def job_of(task: Task) -> Object:
    labels = {
        JOB_LABEL: child(task.name, ""),
        COMPONENT_LABEL: task.component,
        **MANAGED,
        **task.labels,
    }
    notes = {"annotations": dict(task.notes)} if task.notes else {}
    limit = {} if task.timeout is None else {"activeDeadlineSeconds": int(task.timeout) + START_SECONDS}
    return {
        **with_head(objects.JOB, task.name, task.namespace, labels, **notes),
        "spec": {
            "backoffLimit": 0,
            **limit,
            **({} if task.kept is None else {"ttlSecondsAfterFinished": task.kept}),
            "template": {"metadata": {"labels": labels}, "spec": _pod(task)},
        },
    }


def secret_of(task: Task, job: Fields) -> Object:
    """The variables and files of the task, in a Secret that belongs to its Job."""
    owner = objects.owner_reference(objects.JOB, task.name, job["metadata"]["uid"], controller=False)
    labels = {JOB_LABEL: child(task.name, ""), **MANAGED}
    return {
        **with_head(objects.SECRET, _secret(task), task.namespace, labels, ownerReferences=[owner]),
        "type": "hookline.dev/task",
        "stringData": {
            **{f"file.{index}": text for index, text in enumerate(task.files.values())},
            **{f"env.{name}": value for name, value in task.env.items()},
        },
    }


def claim_spec(size: str, storage_class: str) -> Object:
    """A volume for one node at a time; with an empty class it is of the cluster's own."""
    return {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        **({"storageClassName": storage_class} if storage_class else {}),
    }


async def started(cluster: Cluster, task: Task) -> tuple[Object, bool]:
    """The Job of that name, with its Secret, and whether it was made just now; one that is there is taken as it is.

    One without a Secret was left by somebody who was killed right after making it. Nothing of it can have run."""
    while True:
        try:
            job = await cluster.create(job_of(task))
            await cluster.create(secret_of(task, job))
            return job, True
        except AlreadyThere:
            job = await cluster.get(objects.JOB, task.name, task.namespace)
        if job is not None and await _is_whole(cluster, task, job):
            return job, False
        if job is not None:
            await end(cluster, job)


async def _is_whole(cluster: Cluster, task: Task, job: Object) -> bool:
    """True if its Secret is there. That is asked with an empty one, with which no pod starts: who may make Secrets
    need not be able to read them."""
    volumes = job["spec"]["template"]["spec"]["volumes"]
    name = next(each["secret"]["secretName"] for each in volumes if each["name"] == "given")
    empty = secret_of(task, job)
    empty["metadata"]["name"] = name
    empty["stringData"] = {}
    try:
        await cluster.create(empty)
    except AlreadyThere:
        return True
    return False


async def end(cluster: Cluster, job: Object, *, at_once: bool = False) -> None:
    """Ask its program to end, with its end hooks, and its pod goes when that is done; or end it without them.

    One that is over is removed by this, with all that belongs to it."""
    metadata = job["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    await cluster.delete(objects.JOB, name, namespace, uid=metadata["uid"])
    if at_once:
        pods, _ = await cluster.list(objects.POD, namespace, {JOB_LABEL: child(name, "")})
        for pod in pods:
            head = pod["metadata"]
            await cluster.delete(objects.POD, head["name"], namespace, uid=head["uid"], grace=0)


@dataclass(eq=False)
class JobFollower:
    """Follows a Job until it is over. `printed` is awaited with each line of its log, from the first on, and records maybe
    again; `waits` is told what keeps its pod from starting. With `ending` set it is known that we ended it ourselves."""

    cluster: Cluster
    job: Object
    _: KW_ONLY
    printed: Callable[[str], Awaitable[None]]
    waits: Callable[[str], None] = lambda _: None
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        metadata = self.job["metadata"]
        self._name, self._namespace = str(metadata["name"]), str(metadata["namespace"])
        labels = f"{JOB_LABEL}={child(self._name, '')}"
        self._caches = Caches(
            self.cluster,
            (Watch(objects.JOB, labels), Watch(objects.POD, labels)),
            (self._namespace,),
            on_change=lambda kind, before, after: self._changed.set(),
        )
        made = Workload(name=self._name, uid=metadata["uid"])
        self._state = WorkloadState(made=made, slots=(Slot(container=CONTAINER, seen=ContainerState()),))
        self._reported = ""
        self._reading: tuple[LogReader, asyncio.Task[str]] | None = None

    async def ended(self) -> JobEnd:
        watching = [asyncio.ensure_future(each.run()) for each in self._caches.stores]
        asked = asyncio.ensure_future(self._wake_on_ending())
        try:
            await self._caches.synced()
            while True:
                self._changed.clear()
                self._look()
                made, wake = self._state.made, self._state.wake
                if made.over:
                    return await self._closed()
                if made.ended and not self.ending.is_set():
                    # Its pod is being deleted, and the cluster would put another in its place that begins anew.
                    with suppress(ClusterError):
                        await end(self.cluster, self.job)
                wait = None if wake is None else max((wake - datetime.now(UTC)).total_seconds(), 0.05)
                await set_within(self._changed, wait)
        finally:
            reading = [self._reading[1]] if self._reading else []
            await cancel_and_wait(*watching, asked, *reading)

    async def _wake_on_ending(self) -> None:
        await self.ending.wait()
        self._changed.set()

    def _look(self) -> None:
        before = self._state
        whole = self._caches.get(objects.JOB, self._namespace, self._name)
        if whole is not None and whole["metadata"]["uid"] != before.made.uid:
            whole = None
        pods = self._caches.all(objects.POD)
        # A pod whose Job somebody deleted still has its end hooks to run, and is followed to its end.
        orphan = whole is None and pod_of(before.made, pods) is not None
        made = replace(before.made, ended=before.made.ended or self.ending.is_set() or orphan)
        seen = follow(made, whole, pods, before.slots, now=datetime.now(UTC), before=before.waiting)
        self._state = seen
        if seen.seen[0].started is not None and self._reading is None and seen.pod is not None:
            pod = str(seen.pod["metadata"]["name"])
            log = LogReader(self.cluster, pod, self._namespace, CONTAINER, self.printed)
            self._reading = log, asyncio.ensure_future(log.read(self._has_ended))
        text = f"{seen.waiting.reason}: {seen.waiting.message}" if seen.waiting else ""
        if text and text != self._reported:
            self.waits(text)
        self._reported = text

    def _has_ended(self) -> bool:
        return self._state.made.over or self._state.seen[0].state is ContainerPhase.ENDED

    async def _read_on(self, log: LogReader, reading: asyncio.Task[str]) -> bool:
        """The rest of the log, for as long as some of it comes."""
        count = -1
        while not reading.done() and count < log.count:
            count = log.count
            await asyncio.wait({reading}, timeout=LAST_LINES)
        return reading.done() and not reading.result()

    async def _closed(self) -> JobEnd:
        complete = self._reading is None or await self._read_on(*self._reading)
        found = self._state.seen[0]
        by_itself = found.reason is EndReason.EXITED and found.exit_code is not None
        return JobEnd(
            exit_code=found.exit_code if by_itself else None,
            why="" if by_itself else found.detail or self._state.why or str(found.reason),
            began=found.started is not None,
            log_lost=found.started is not None and not complete,
        )


def _pod(task: Task) -> Object:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(task.grace),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": objects.USER,
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
        *([{"name": "claim", "mountPath": MOUNT}] if task.claim else []),
    ]
    return {
        "name": CONTAINER,
        "image": task.image,
        "imagePullPolicy": "IfNotPresent",
        # The cluster would read $(NAME) in an argument.
        "command": ["python3", "-P", "-m", "hookline", *(each.replace("$", "$$") for each in task.args)],
        "workingDir": MOUNT if task.claim else "/tmp",
        "envFrom": [{"secretRef": {"name": name}} for name in task.secrets],
        "env": [
            {"name": "HOME", "value": "/tmp"},
            {"name": "HOOKLINE_HOME", "value": CLAIM_HOME if task.claim else HOME},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            *refs,
        ],
        "volumeMounts": mounts,
        "securityContext": objects.SAFE,
        "resources": _RESOURCES,
    }


def _opening(task: Task) -> Object:
    code = f"import os; os.chmod({MOUNT!r}, 0o777)"
    return objects.container(
        "open",
        task.image,
        _OPENING,
        [{"name": "claim", "mountPath": MOUNT}],
        command=["python3", "-P", "-c", code],
        securityContext=objects.SAFE_ROOT,
    )


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
