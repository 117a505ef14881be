"""The objects of one AgentRun in a cluster: its record, its claim, its Jobs and their pods; `grants` has its rights.

Pure: a run and its settings in, plain objects out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hookline.kube.jobs import START_SECONDS, claim_spec
from hookline.kube.pods import SAFE, SAFE_ROOT, USER, child, owner_reference, resources
from hookline.sympozium.environment import Environment, after_run, before_run, for_agent, task_input, unread
from hookline.sympozium.lifecycle import ContainerHook
from hookline.sympozium.phases import Seen, exit_code, result_for_hooks
from hookline.sympozium.types import GROUP, RUN_TIMEOUT, RunSpec

Object = dict[str, Any]

MANAGER = "hookline"
ACCOUNT = "sympozium-agent"
"""The account of a namespace's runs, which may do nothing."""
RUN_LABEL = "sympozium.ai/agent-run"
SANDBOX_API = "agents.x-k8s.io/v1alpha1"
AGENT, PREPARE, DONE = "agent", "prepare", "done"
PRE, POST = "pre-", "post-"
LONGEST_VARIABLE = 100 * 1024
RECORDS = "HOOKLINE_RECORDS"
"""Has the built-in agent print what it does, for the record."""
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
_RECORD = "/var/run/hookline"
_VOLUME = "/volume"
_POSITIONS = "hookline.dev/hooks"
_PLACES: list[Object] = [
    {"name": "WORKSPACE", "value": "/workspace"},
    {"name": "IPC_DIR", "value": "/ipc"},
]
"""The same names as where the paths are others, so that one script fits everywhere."""
_HOOK_RESOURCES = resources("100m", "128Mi", most_cpu="500m", most_memory="512Mi")
_AGENT_RESOURCES = resources("100m", "128Mi", most_cpu="2", most_memory="1Gi")
_OWN_RESOURCES = resources("10m", "32Mi", most_cpu="500m", most_memory="128Mi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the operator. `image` is hookline's own, and the agent's where no other is given."""

    image: str
    agent_image: str = ""
    agent_command: tuple[str, ...] = ()
    shared_account: bool = False
    """Bind `lifecycle.rbac` to the namespace's account, as the seed writes it, instead of one of the run's own."""
    workspace_size: str = "1Gi"
    storage_class: str = ""
    max_run_history: int = 50
    prepare_as_root: bool = False
    """For volumes that do not take the pod's group (host paths, some NFS): our first container makes the folders as
    root, without any capability; hooks and agent stay what they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The AgentRun that all objects of a run belong to, and go with."""

    name: str
    namespace: str
    uid: str

    @property
    def reference(self) -> Object:
        return owner_reference(GROUP, "AgentRun", self.name, self.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of a run's objects."""

    record: str
    claim: str
    account: str
    agent: str
    sandbox: str


def names(run: str) -> Names:
    return Names(
        record=child(run, "-record", 253),
        claim=child(run, "-workspace", 253),
        account=child(f"sympozium-lifecycle-{run}", "", 253),
        agent=child(run, ""),
        sandbox=child(f"sb-{run}", ""),
    )


def record(owner: Owner, run: RunSpec, kept: Mapping[str, str]) -> Object:
    """The Secret with the operator's record of a run and the task for its pods; nobody else reads it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata_of(owner, run, names(owner.name).record, "record"),
        "type": "hookline.dev/run",
        "stringData": {"task.json": task_input(run), **kept},
    }


def claim(owner: Owner, run: RunSpec, settings: Settings) -> Object:
    """The volume that agent and postRun hooks share."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata_of(owner, run, names(owner.name).claim, "workspace"),
        "spec": claim_spec(settings.workspace_size, settings.storage_class),
    }


def agent_job(owner: Owner, run: RunSpec, settings: Settings) -> Object:
    """The Job with the preRun hooks, in their order, and the agent."""
    limits = [*(hook.timeout for hook in run.hooks.pre_run), run.timeout or RUN_TIMEOUT]
    return _job(
        owner, run, names(owner.name).agent, "agent-run", limits, _agent_template(owner, run, settings)
    )


def agent_sandbox(owner: Owner, run: RunSpec, settings: Settings) -> Object:
    """The same pod as a Sandbox."""
    labels = {"sympozium.ai/agent-sandbox": "true"}
    template = _agent_template(owner, run, settings)
    if run.sandbox and run.sandbox.runtime_class:
        template["spec"]["runtimeClassName"] = run.sandbox.runtime_class
    template["metadata"]["labels"] |= labels
    metadata = metadata_of(owner, run, names(owner.name).sandbox, "agent-run")
    metadata["labels"] |= labels
    return {
        "apiVersion": SANDBOX_API,
        "kind": "Sandbox",
        "metadata": metadata,
        "spec": {"podTemplate": template, "replicas": 1},
    }


def post_job(
    owner: Owner,
    run: RunSpec,
    settings: Settings,
    seen: Seen,
    positions: Sequence[int],
    number: int,
) -> Object:
    """A follow-up Job with those postRun hooks, by their positions in the file, one after another."""
    code = exit_code(run.hooks, seen)
    hooks = [run.hooks.post_run[index] for index in positions]
    containers = [
        _hook(
            run,
            hook,
            POST,
            after_run(run, hook, exit_code=code, result=result_for_hooks(run.hooks, seen, hook)),
        )
        for hook in hooks
    ]
    done = _own(settings, DONE, ["true"], [])
    spec = _pod(owner, run, settings, [_prepare(run, settings), *containers], [done])
    name = child(owner.name, "-postrun" if number == 1 else f"-postrun-{number}")
    template: Object = {"metadata": {"labels": _labels(owner, run, "post-run")}, "spec": spec}
    job = _job(owner, run, name, "post-run", [hook.timeout for hook in hooks], template)
    job["metadata"]["annotations"] = {_POSITIONS: json.dumps(list(positions))}
    return job


def too_long(run: RunSpec) -> list[str]:
    """The variables, apart from the task, that no process could be started with."""
    given = for_agent(run)
    texts = [*given.fixed.items(), *given.given.items(), *_hook_texts(run)]
    return sorted(
        {
            name
            for name, text in texts
            if name != "TASK"
            and isinstance(text, str)
            and len(text.encode("utf-8", "replace")) > LONGEST_VARIABLE
        }
    )


def _hook_texts(run: RunSpec) -> list[tuple[str, Any]]:
    hooks = (*run.hooks.pre_run, *run.hooks.post_run)
    return [pair for hook in hooks for pair in hook.env.items()]


def positions_of(job: Mapping[str, Any]) -> tuple[int, ...]:
    """The positions of the postRun hooks in a follow-up Job; none for another one."""
    text = job["metadata"].get("annotations", {}).get(_POSITIONS)
    return tuple(json.loads(text)) if text else ()


def _agent_template(owner: Owner, run: RunSpec, settings: Settings) -> Object:
    hooks = [_hook(run, hook, PRE, before_run(run, hook)) for hook in run.hooks.pre_run]
    variables = _variables(for_agent(run))
    agent: Object = {
        "name": AGENT,
        "image": settings.agent_image or settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(settings.agent_command) or ["python3", "-P", "-m", "hookline.sympozium.run.program"],
        "workingDir": "/workspace",
        # A text that no variable can hold is in /ipc/input/task.json.
        "env": [
            {"name": "HOME", "value": "/tmp"},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            *([] if settings.agent_command else [{"name": RECORDS, "value": "1"}]),
            *(each for each in variables if len(each.get("value", "").encode()) <= LONGEST_VARIABLE),
        ],
        "volumeMounts": _mounts(run),
        "securityContext": SAFE,
        "resources": _AGENT_RESOURCES,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    spec = _pod(owner, run, settings, [_prepare(run, settings), *hooks], [agent])
    labels = {**_labels(owner, run, "agent-run"), "sympozium.ai/role": "agent"}
    return {"metadata": {"labels": labels}, "spec": spec}


def _pod(
    owner: Owner, run: RunSpec, settings: Settings, before: list[Object], containers: list[Object]
) -> Object:
    granted = bool(run.hooks.rbac)
    for each in before if granted else ():
        if each["name"] != PREPARE:
            each["volumeMounts"].append({"name": "token", "mountPath": _TOKEN, "readOnly": True})
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 10,
        "serviceAccountName": account_of(owner, run, settings),
        # The agent has no token; hooks that were granted something have one of their own.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": USER,
        **(
            {"imagePullSecrets": [{"name": name} for name in run.image_pull_secrets]}
            if run.image_pull_secrets
            else {}
        ),
        "initContainers": before,
        "containers": containers,
        "volumes": [*_volumes(owner, run), *([_token_volume()] if granted else [])],
    }


def _hook(run: RunSpec, hook: ContainerHook, prefix: str, environment: Environment) -> Object:
    argv, split = unread(hook, environment), len(hook.command)
    return {
        "name": f"{prefix}{hook.name}",
        "image": hook.image,
        "imagePullPolicy": hook.pull_policy,
        **({"command": list(argv[:split])} if hook.command else {}),
        **({"args": list(argv[split:])} if hook.args else {}),
        "env": [*_PLACES, *_variables(environment)],
        "volumeMounts": _mounts(run),
        "securityContext": SAFE,
        "resources": _HOOK_RESOURCES,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _prepare(run: RunSpec, settings: Settings) -> Object:
    """Ours, before all others: makes the folders that the seed's hooks write to, and leaves the task."""
    lasting = bool(run.hooks.post_run)
    places = (f"{_VOLUME}/workspace", f"{_VOLUME}/ipc") if lasting else ("/workspace", "/ipc")
    mounts: list[Object] = [
        {"name": "record", "mountPath": _RECORD, "readOnly": True},
        *([{"name": "workspace", "mountPath": _VOLUME}] if lasting else _mounts(run)),
    ]
    command = ["python3", "-P", "-m", "hookline.sympozium.cluster.prepare", f"{_RECORD}/task.json", *places]
    made = _own(settings, PREPARE, command, mounts)
    made["terminationMessagePolicy"] = "FallbackToLogsOnError"
    if settings.prepare_as_root:
        made["securityContext"] = SAFE_ROOT
    return made


def _own(settings: Settings, name: str, command: list[str], mounts: list[Object]) -> Object:
    return {
        "name": name,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "volumeMounts": mounts,
        "securityContext": SAFE,
        "resources": _OWN_RESOURCES,
    }


def _mounts(run: RunSpec) -> list[Object]:
    """With postRun hooks both folders are parts of the one volume that lasts."""
    if not run.hooks.post_run:
        parts: list[Object] = [
            {"name": "workspace", "mountPath": "/workspace"},
            {"name": "ipc", "mountPath": "/ipc"},
        ]
    else:
        parts = [
            {"name": "workspace", "mountPath": "/workspace", "subPath": "workspace"},
            {"name": "workspace", "mountPath": "/ipc", "subPath": "ipc"},
        ]
    return [*parts, {"name": "tmp", "mountPath": "/tmp"}]


def _volumes(owner: Owner, run: RunSpec) -> list[Object]:
    name = names(owner.name)
    lasting: list[Object] = [
        {"name": "workspace", "persistentVolumeClaim": {"claimName": name.claim}},
    ]
    passing: list[Object] = [
        {"name": "workspace", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "ipc", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
    ]
    task: Object = {"secretName": name.record, "items": [{"key": "task.json", "path": "task.json"}]}
    return [
        *(lasting if run.hooks.post_run else passing),
        {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
        {"name": "record", "secret": task},
    ]


def _token_volume() -> Object:
    return {
        "name": "token",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {
                    "downwardAPI": {
                        "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
                    }
                },
            ]
        },
    }


def _variables(environment: Environment) -> list[Object]:
    """The variables as a container lists them: `$` is doubled in fixed ones, or the cluster would expand it."""
    listed: list[Object] = [
        {"name": name, "value": value.replace("$", "$$")} for name, value in environment.fixed.items()
    ]
    for name, value in environment.given.items():
        if isinstance(value, str):
            listed.append({"name": name, "value": value})
            continue
        ref: Object = {"name": value.name, "key": value.key}
        if value.optional:
            ref["optional"] = True
        listed.append({"name": name, "valueFrom": {"secretKeyRef": ref}})
    return listed


def _job(
    owner: Owner, run: RunSpec, name: str, component: str, limits: Sequence[float], template: Object
) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata_of(owner, run, name, component),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(sum(limits)) + START_SECONDS,
            "template": template,
        },
    }


def account_of(owner: Owner, run: RunSpec, settings: Settings) -> str:
    """The name of the account that the pods of a run have."""
    own = run.hooks.rbac and not settings.shared_account
    return names(owner.name).account if own else ACCOUNT


def _labels(owner: Owner, run: RunSpec, component: str) -> dict[str, str]:
    return {
        RUN_LABEL: owner.name,
        "sympozium.ai/component": component,
        **({"sympozium.ai/instance": child(run.instance, "")} if run.instance else {}),
        "app.kubernetes.io/part-of": "sympozium",
        "app.kubernetes.io/managed-by": MANAGER,
    }


def metadata_of(owner: Owner, run: RunSpec, name: str, component: str) -> Object:
    return {
        "name": name,
        "namespace": owner.namespace,
        "labels": _labels(owner, run, component),
        "ownerReferences": [owner.reference],
    }
