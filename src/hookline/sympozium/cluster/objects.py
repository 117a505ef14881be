"""The objects of one AgentRun in a cluster: its record, its claim, its Jobs and their pods, its accounts and roles.

Pure: a run and its settings in, plain objects out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hookline.kube import objects
from hookline.kube.jobs import MANAGED, START_SECONDS, claim_spec
from hookline.kube.objects import Kind, Object, child, container, owner_reference, resources, with_head
from hookline.options import OperatorOptions, words_of
from hookline.sympozium import environment
from hookline.sympozium.environment import LONGEST_VARIABLE, Environment
from hookline.sympozium.phases import Seen
from hookline.sympozium.run.folders import RECORDS
from hookline.sympozium.types import RUN_TIMEOUT, ContainerHook, RunSpec, Value

SHARED_ACCOUNT = "sympozium-agent"
"""The account of a namespace's runs, which may do nothing."""
RUN_LABEL = "sympozium.ai/agent-run"
FOLLOWED = "hookline.dev/run"
"""The label by which `hookline run` follows a run: its own name."""
FOR_RUNS = {"hookline.dev/for-runs": "true"}
"""The label of Secrets that runs may name, where the installation wants it."""
AGENT, PREPARE, DONE = "agent", "prepare", "done"
PRE, POST = "pre-", "post-"
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
_TOKEN_VOLUME: Object = {
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


class Names(NamedTuple):
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


def is_sandboxed(run: RunSpec) -> bool:
    """True if the agent's pod is a Sandbox's, and not a Job's."""
    return run.sandbox is not None and run.sandbox.enabled


def positions_of(job: Mapping[str, Any]) -> tuple[int, ...]:
    """The positions of the postRun hooks in a follow-up Job; none for another one."""
    text = job["metadata"].get("annotations", {}).get(_POSITIONS)
    return tuple(json.loads(text)) if text else ()


def value_object(name: str, value: Value) -> Object:
    """A variable as a container lists it."""
    if isinstance(value, str):
        return {"name": name, "value": value}
    ref: Object = {"name": value.name, "key": value.key}
    if value.optional:
        ref["optional"] = True
    return {"name": name, "valueFrom": {"secretKeyRef": ref}}


class RunObjects:
    """Makes the objects of one run, as the operator's settings have them. They belong to the AgentRun with that uid."""

    def __init__(self, run: RunSpec, uid: str, settings: OperatorOptions) -> None:
        self._run, self._settings = run, settings
        self._owner = owner_reference(objects.AGENT_RUN, run.name, uid)
        self._names = names(run.name)

    def record(self, kept: Mapping[str, str]) -> Object:
        """The Secret with the operator's record of a run and the task for its pods; it is read by no other."""
        return {
            **self._head(objects.SECRET, self._names.record, "record"),
            "type": "hookline.dev/run",
            "stringData": {"task.json": environment.task_input(self._run), **kept},
        }

    def first(self) -> list[Object]:
        """All that is made when the run begins, in this order: accounts and rights, the claim, and last the agent."""
        shared = self._settings.shared_account or not self._run.hooks.rbac
        return [
            *([self.shared_account()] if shared else []),
            *self.grants(),
            *([self.claim()] if self._run.hooks.post_run else []),
            self.agent_sandbox() if is_sandboxed(self._run) else self.agent_job(),
        ]

    def shared_account(self) -> Object:
        """The account of a namespace's runs. It belongs to no run, and is never removed."""
        head = with_head(objects.ACCOUNT, SHARED_ACCOUNT, self._run.namespace, MANAGED)
        return {**head, "automountServiceAccountToken": False}

    def grants(self) -> list[Object]:
        """The objects that grant the hooks what `lifecycle.rbac` says: an account of the run's own, unless accounts are
        shared, with a role that is bound to it."""
        if not self._run.hooks.rbac:
            return []
        name = self._names.account
        account = {**self._head(objects.ACCOUNT, name, "lifecycle"), "automountServiceAccountToken": False}
        rules: list[Object] = [
            {"apiGroups": list(each.api_groups), "resources": list(each.resources), "verbs": list(each.verbs)}
            for each in self._run.hooks.rbac
        ]
        role = {**self._head(objects.ROLE, name, "lifecycle"), "rules": rules}
        subject = {"kind": "ServiceAccount", "name": self._account, "namespace": self._run.namespace}
        binding: Object = {
            **self._head(objects.ROLE_BINDING, name, "lifecycle"),
            "roleRef": {"apiGroup": objects.ROLE.group, "kind": objects.ROLE.kind, "name": name},
            "subjects": [subject],
        }
        return [*([] if self._settings.shared_account else [account]), role, binding]

    def claim(self) -> Object:
        """The volume that agent and postRun hooks share."""
        return {
            **self._head(objects.CLAIM, self._names.claim, "workspace"),
            "spec": claim_spec(self._settings.workspace_size, self._settings.storage_class),
        }

    def agent_job(self) -> Object:
        """The Job with the preRun hooks, in their order, and the agent."""
        limits = [*(hook.timeout for hook in self._run.hooks.pre_run), self._run.timeout or RUN_TIMEOUT]
        return self._job(self._names.agent, "agent-run", limits, self._agent_template())

    def agent_sandbox(self) -> Object:
        """The same pod as a Sandbox."""
        labels = {"sympozium.ai/agent-sandbox": "true"}
        template = self._agent_template()
        if self._run.sandbox and self._run.sandbox.runtime_class:
            template["spec"]["runtimeClassName"] = self._run.sandbox.runtime_class
        template["metadata"]["labels"] |= labels
        made = self._head(objects.SANDBOX, self._names.sandbox, "agent-run")
        made["metadata"]["labels"] |= labels
        return {**made, "spec": {"podTemplate": template, "replicas": 1}}

    def post_job(self, seen: Seen, positions: Sequence[int], number: int) -> Object:
        """A follow-up Job with those postRun hooks, by their positions in the file, one after another."""
        hooks = [self._run.hooks.post_run[index] for index in positions]
        containers = [self._hook(POST, hook, seen) for hook in hooks]
        done = container(DONE, self._settings.image, _OWN_RESOURCES, [], command=["true"])
        spec = self._pod(containers, done)
        name = child(self._run.name, "-postrun" if number == 1 else f"-postrun-{number}")
        template: Object = {"metadata": {"labels": self._labels("post-run")}, "spec": spec}
        job = self._job(name, "post-run", [hook.timeout for hook in hooks], template)
        job["metadata"]["annotations"] = {_POSITIONS: json.dumps(list(positions))}
        return job

    def _agent_template(self) -> Object:
        run, settings = self._run, self._settings
        hooks = [self._hook(PRE, hook) for hook in run.hooks.pre_run]
        variables = _variables(environment.for_agent(run))
        builtin = ["python3", "-P", "-m", "hookline.sympozium.run.program"]
        agent = container(
            AGENT,
            settings.agent_image or settings.image,
            _AGENT_RESOURCES,
            self._mounts(),
            command=words_of(settings.agent_command, "--agent-command") or builtin,
            workingDir="/workspace",
            # A text that no variable can hold is in /ipc/input/task.json.
            env=[
                {"name": "HOME", "value": "/tmp"},
                {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
                *([] if settings.agent_command else [{"name": RECORDS, "value": "1"}]),
                *(each for each in variables if len(each.get("value", "").encode()) <= LONGEST_VARIABLE),
            ],
        )
        labels = {**self._labels("agent-run"), "sympozium.ai/role": "agent"}
        return {"metadata": {"labels": labels}, "spec": self._pod(hooks, agent)}

    def _pod(self, hooks: list[Object], last: Object) -> Object:
        """A pod of hooks, one after another, and the container that comes after them."""
        run, granted = self._run, bool(self._run.hooks.rbac)
        for each in hooks if granted else ():
            each["volumeMounts"].append({"name": "token", "mountPath": _TOKEN, "readOnly": True})
        pulls = [{"name": name} for name in run.image_pull_secrets]
        return {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 10,
            "serviceAccountName": self._account,
            # The agent has no token; hooks that were granted something have one of their own.
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": objects.USER,
            **({"imagePullSecrets": pulls} if pulls else {}),
            "initContainers": [self._prepare(), *hooks],
            "containers": [last],
            "volumes": [*self._volumes(), *([_TOKEN_VOLUME] if granted else [])],
        }

    def _hook(self, prefix: str, hook: ContainerHook, seen: Seen | None = None) -> Object:
        env = environment.for_hook(self._run, hook, seen)
        argv, split = environment.unread(hook, env), len(hook.command)
        return container(
            f"{prefix}{hook.name}",
            hook.image,
            _HOOK_RESOURCES,
            self._mounts(),
            imagePullPolicy=hook.pull_policy,
            **({"command": list(argv[:split])} if hook.command else {}),
            **({"args": list(argv[split:])} if hook.args else {}),
            env=[*_PLACES, *_variables(env)],
        )

    def _prepare(self) -> Object:
        """Ours, before all others: makes the folders that the seed's hooks write to, and leaves the task."""
        lasting = bool(self._run.hooks.post_run)
        places = (f"{_VOLUME}/workspace", f"{_VOLUME}/ipc") if lasting else ("/workspace", "/ipc")
        mounts: list[Object] = [
            {"name": "record", "mountPath": _RECORD, "readOnly": True},
            *([{"name": "workspace", "mountPath": _VOLUME}] if lasting else self._mounts()),
        ]
        program = ["python3", "-P", "-m", "hookline.sympozium.cluster.prepare", f"{_RECORD}/task.json"]
        more: Object = {"securityContext": objects.SAFE_ROOT} if self._settings.prepare_as_root else {}
        image = self._settings.image
        return container(PREPARE, image, _OWN_RESOURCES, mounts, command=[*program, *places], **more)

    def _mounts(self) -> list[Object]:
        """With postRun hooks both folders are parts of the one volume that lasts."""
        lasting = self._run.hooks.post_run
        parts: list[Object] = [
            {"name": "workspace", "mountPath": f"/{each}", "subPath": each}
            if lasting
            else {"name": each, "mountPath": f"/{each}"}
            for each in ("workspace", "ipc")
        ]
        return [*parts, {"name": "tmp", "mountPath": "/tmp"}]

    def _volumes(self) -> list[Object]:
        lasting: list[Object] = [
            {"name": "workspace", "persistentVolumeClaim": {"claimName": self._names.claim}},
        ]
        passing: list[Object] = [
            {"name": "workspace", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "ipc", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        ]
        task: Object = {
            "secretName": self._names.record,
            "items": [{"key": "task.json", "path": "task.json"}],
        }
        return [
            *(lasting if self._run.hooks.post_run else passing),
            {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
            {"name": "record", "secret": task},
        ]

    def _job(self, name: str, component: str, limits: Sequence[float], template: Object) -> Object:
        return {
            **self._head(objects.JOB, name, component),
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": int(sum(limits)) + START_SECONDS,
                "template": template,
            },
        }

    @property
    def _account(self) -> str:
        """The name of the account that the pods of the run have."""
        own = self._run.hooks.rbac and not self._settings.shared_account
        return self._names.account if own else SHARED_ACCOUNT

    def _head(self, kind: Kind, name: str, component: str) -> Object:
        labels = self._labels(component)
        return with_head(kind, name, self._run.namespace, labels, ownerReferences=[self._owner])

    def _labels(self, component: str) -> dict[str, str]:
        instance = self._run.instance
        return {
            RUN_LABEL: self._run.name,
            "sympozium.ai/component": component,
            **({"sympozium.ai/instance": child(instance, "")} if instance else {}),
            "app.kubernetes.io/part-of": "sympozium",
            **MANAGED,
        }


def _variables(env: Environment) -> list[Object]:
    """The variables as a container lists them: `$` is doubled in fixed ones, or the cluster would expand it."""
    fixed = [value_object(name, value.replace("$", "$$")) for name, value in env.fixed.items()]
    return [*fixed, *(value_object(name, value) for name, value in env.given.items())]
