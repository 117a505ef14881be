"""A kagent `Agent` as plain objects of a cluster: its configuration, its account, its pods and its address.

Pure: an agent and the objects that it refers to in, objects out, without a request to the cluster.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hookline.errors import FileError
from hookline.images.reference import directory_name
from hookline.kagent.agent import (
    FOLDER,
    FOLDER_VARIABLE,
    PROVIDERS,
    AgentManifest,
    AgentManifests,
    ValueFrom,
    planned,
    runtime_config,
)
from hookline.kagent.read import ClusterManifests, Find, parse
from hookline.kube import objects
from hookline.kube.objects import KAGENT, LONGEST_NAME, Fields, Kind, Object, bare, items, mapping, within

MANAGER = "hookline"
LABEL = "kagent"
CONFIG_HASH = "kagent.dev/config-hash"
APPLIED = "hookline.dev/applied"
"""The digest of an object as it was applied; if it differs from the digest of the wanted one, the object is updated."""
HOOKS_INIT, CONTAINER = "hooks-init", "kagent"
PORT = 8080
CARD = "/.well-known/agent-card.json"
_FILE = "agent.yaml"
_CONFIG, _LOGINS, _STATE = "/config", "/logins", "/var/hookline"
_HOOKS_VOLUME = "kagent-hooks"
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_GRACE = 60
"""Seconds for a pod to end its runs with their end hooks: enough for two hooks that use their whole limit."""
_RESOURCES = objects.resources("100m", "384Mi", most_cpu="2", most_memory="1Gi")
_INIT_RESOURCES = objects.resources("10m", "64Mi", most_cpu="1", most_memory="512Mi")
_PASSED_ON = ("nodeSelector", "tolerations", "affinity")
"""Keys of `deployment` for scheduling, copied into the pod."""
_TAKEN = frozenset(
    {
        "replicas",
        "imagePullSecrets",
        "labels",
        "annotations",
        "env",
        "resources",
        "serviceAccountName",
        *_PASSED_ON,
    }
)
_NOT_TAKEN = {
    "image": "pods run hookline's own image",
    "imageRegistry": "pods run hookline's own image",
    "imagePullPolicy": "it is IfNotPresent for hookline's own image",
    "securityContext": "hookline sets what its pods may do",
    "podSecurityContext": "hookline sets what its pods may do",
    "volumes": "a pod has only the volumes that hookline adds",
    "volumeMounts": "a pod has only the volumes that hookline adds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """Settings for the pods of all agents. `image` is hookline's own; `plain` are registries without TLS; `accounts` are
    those that an Agent may name, `clients` the namespaces whose pods may talk to it, besides its own."""

    image: str
    plain: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """With `problems` there are no objects; `notes` are about tools and settings that are left out."""

    objects: tuple[Object, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def has_hooks(agent: Fields) -> bool:
    return bool(within(agent, "spec").get("hooks"))


def compiled(agent: Fields, find: Find, pods: Pods) -> Compiled:
    """The Secret, ServiceAccount, NetworkPolicy, Deployment and Service of an agent, in the order of their creation."""
    import yaml

    gathered = ClusterManifests(agent, find)
    written = [{**bare(each), "spec": within(each, "spec")} for each in gathered.objects]
    text = yaml.dump_all(
        written, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, explicit_start=True
    )
    read = parse(text, _FILE)
    problems = [*gathered.problems, *map(_without_line, read.problems)]
    chosen = next((each for each in read.agents if each.name == agent["metadata"]["name"]), None)
    if chosen is not None:
        problems += _wrong(chosen, read)
    if problems or chosen is None:
        return Compiled(problems=tuple(problems), notes=tuple(gathered.notes))
    made = _Objects(agent, chosen, read, pods, text)
    if problem := made.foreign_account():
        return Compiled(problems=(problem,), notes=tuple(gathered.notes))
    # Those on the deployment are for one machine; `made` has what is left out of it here.
    ignored = [each for each in read.notes if "spec.declarative.deployment" not in str(each.key)]
    notes = [*gathered.notes, *map(_without_line, (*ignored, *read.broken)), *made.notes()]
    return Compiled(objects=made.all(), notes=tuple(notes))


def _wrong(agent: AgentManifest, read: AgentManifests) -> Iterator[str]:
    """Mistakes in a valid manifest that keep it from working in a cluster."""
    if not _NAME.fullmatch(agent.name) or len(agent.name) > LONGEST_NAME:
        yield (
            f"metadata.name: {agent.name!r} cannot be the name of a Service; at most {LONGEST_NAME} lower-case letters,"
            " digits and '-', a letter first"
        )
    if agent.type == "BYO":
        yield "spec.type: hooks cannot run around an agent of the type BYO, which is a program of its own"
    folders: dict[str, str] = {}
    for ref in _refs(read):
        first = folders.setdefault(directory_name(ref), ref)
        if first != ref:
            yield (
                f"spec.hooks: {ref!r} and {first!r} would both be the folder {directory_name(ref)!r};"
                " give the images distinct names"
            )
    for model in read.models:
        if model.provider not in PROVIDERS:
            yield (
                f"the ModelConfig {model.name!r}: {model.provider} is not supported here;"
                f" known: {', '.join(PROVIDERS)}"
            )


@dataclass(frozen=True, slots=True)
class _Objects:
    """The objects of one valid agent. `text` is the file that its pods read."""

    given: Fields
    agent: AgentManifest
    read: AgentManifests
    pods: Pods
    text: str

    def all(self) -> tuple[Object, ...]:
        account = objects.ACCOUNT, {"automountServiceAccountToken": False}
        return tuple(
            self._applied(kind, content)
            for kind, content in (
                (objects.SECRET, {"type": "Opaque", "stringData": self._configuration()}),
                *([] if self._wishes.get("serviceAccountName") else [account]),
                (objects.NETWORK_POLICY, {"spec": self._network()}),
                (objects.DEPLOYMENT, {"spec": self._deployment()}),
                (objects.SERVICE, {"spec": self._service()}),
            )
        )

    def foreign_account(self) -> str:
        """The mistake of an agent that names an account which the installation does not give; pods have its token."""
        stated = self._wishes.get("serviceAccountName")
        if not stated or stated in self.pods.accounts:
            return ""
        return (
            f"spec.declarative.deployment.serviceAccountName: {stated!r} is none of the accounts that Agents may name; add"
            " it with --kagent-account (in the chart: kagentAccounts)"
        )

    def notes(self) -> Iterator[str]:
        for key in self._wishes:
            if key in _NOT_TAKEN:
                yield f"spec.declarative.deployment.{key}: is ignored: {_NOT_TAKEN[key]}"
            elif key not in _TAKEN:
                yield f"spec.declarative.deployment.{key}: is ignored here"
        if (self._wishes.get("replicas") or 1) != 1:
            yield (
                "spec.declarative.deployment.replicas: a conversation is known to one pod only;"
                " send all messages of one context to the same"
            )

    @property
    def _wishes(self) -> Fields:
        return within(self.given, "spec", "declarative", "deployment")

    @property
    def _url(self) -> str:
        return f"http://{self.agent.name}.{self.agent.namespace}:{PORT}"

    def _configuration(self) -> dict[str, str]:
        # Without any variables: values of other Secrets and of ConfigMaps are not copied.
        config = runtime_config(planned(self.read, self.agent, {}))
        card: Object = {
            "name": self.agent.name.replace("-", "_"),
            "description": self.agent.description,
            "url": self._url,
            "version": "",
            "capabilities": {"streaming": True, "pushNotifications": False, "stateTransitionHistory": True},
            "defaultInputModes": ["text"],
            "defaultOutputModes": ["text"],
            "skills": [],
        }
        return {"config.json": json.dumps(config), "agent-card.json": json.dumps(card), _FILE: self.text}

    def _deployment(self) -> Object:
        pod = self._pod()
        digest = _digest({"configuration": self._configuration(), "pod": pod})
        annotations = {**_texts(self._wishes.get("annotations")), CONFIG_HASH: digest}
        labels = {**_texts(self._wishes.get("labels")), **self._labels()}
        return {
            "replicas": self._wishes.get("replicas", 1),
            "selector": {"matchLabels": self._selector()},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
        }

    def _pod(self) -> Object:
        stated = str(self._wishes.get("serviceAccountName") or "")
        logins = [str(each.get("name") or "") for each in items(self._wishes.get("imagePullSecrets"))]
        refs = _refs(self.read)
        return {
            "serviceAccountName": stated or self.agent.name,
            # Only an account that the user chose gets a token.
            "automountServiceAccountToken": bool(stated),
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": _GRACE,
            "securityContext": objects.USER,
            **({"imagePullSecrets": [{"name": name} for name in logins]} if logins else {}),
            **{key: self._wishes[key] for key in _PASSED_ON if self._wishes.get(key)},
            **({"initContainers": [self._init(refs, logins)]} if refs else {}),
            "containers": [self._container(bool(refs))],
            "volumes": self._volumes(bool(refs), logins),
        }

    def _init(self, refs: Sequence[str], logins: Sequence[str]) -> Object:
        words = ["python3", "-P", "-m", "hookline.kagent.fetch", "--into", FOLDER]
        for host in self.pods.plain:
            words += ["--plain", host]
        for index in range(len(logins)):
            words += ["--login", f"{_LOGINS}/{index}/config.json"]
        words += [f"{ref}={directory_name(ref)}" for ref in refs]
        mounts: list[Object] = [
            {"name": _HOOKS_VOLUME, "mountPath": FOLDER},
            {"name": "tmp", "mountPath": "/tmp"},
        ]
        mounts += [
            {"name": f"login-{index}", "mountPath": f"{_LOGINS}/{index}", "readOnly": True}
            for index in range(len(logins))
        ]
        return objects.container(
            HOOKS_INIT,
            self.pods.image,
            _INIT_RESOURCES,
            mounts,
            # The cluster would expand $(NAME).
            command=[word.replace("$", "$$") for word in words],
            env=[{"name": "HOME", "value": "/tmp"}, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
        )

    def _container(self, hooks: bool) -> Object:
        words = ["python3", "-P", "-m", "hookline", "serve", f"{_CONFIG}/{_FILE}:{self.agent.name}"]
        words += ["--host", "0.0.0.0", "--port", str(PORT), "--no-token", "--url", self._url]
        probe: Object = {"httpGet": {"path": CARD, "port": "http"}, "timeoutSeconds": 15}
        mounts: list[Object] = [
            {"name": "config", "mountPath": _CONFIG, "readOnly": True},
            *([{"name": _HOOKS_VOLUME, "mountPath": FOLDER, "readOnly": True}] if hooks else []),
            {"name": "state", "mountPath": _STATE},
            {"name": "tmp", "mountPath": "/tmp"},
        ]
        return objects.container(
            CONTAINER,
            self.pods.image,
            self._wishes.get("resources") or _RESOURCES,
            mounts,
            command=words,
            workingDir="/tmp",
            env=self._env(hooks),
            ports=[{"name": "http", "containerPort": PORT}],
            readinessProbe={**probe, "periodSeconds": 5},
            # A start may take long on a busy node.
            startupProbe={**probe, "periodSeconds": 5, "failureThreshold": 60},
            livenessProbe={**probe, "periodSeconds": 30, "failureThreshold": 4},
        )

    def _env(self, hooks: bool) -> list[Object]:
        """The agent's own variables, then the values that its objects refer to, then hookline's own, which win."""
        ours: dict[str, Object] = {
            "HOME": {"value": "/tmp"},
            "HOOKLINE_HOME": {"value": _STATE},
            "HOOKLINE_RECORDS": {"value": "1"},
            "PYTHONDONTWRITEBYTECODE": {"value": "1"},
            "KAGENT_NAMESPACE": {"valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            "KAGENT_NAME": {"value": self.agent.name},
            **({FOLDER_VARIABLE: {"value": FOLDER}} if hooks else {}),
        }
        values = {each.variable: _reference(each) for each in _values(self.read)}
        asked = {
            str(each["name"]): {key: value for key, value in each.items() if key != "name"}
            for each in items(self._wishes.get("env"))
        }
        return [{"name": name, **value} for name, value in {**asked, **values, **ours}.items()]

    def _volumes(self, hooks: bool, logins: Sequence[str]) -> list[Object]:
        # Optional: the kubelet ignores a missing login too.
        item = [{"key": ".dockerconfigjson", "path": "config.json"}]
        return [
            {"name": "config", "secret": {"secretName": self.agent.name}},
            *([{"name": _HOOKS_VOLUME, "emptyDir": {"sizeLimit": "2Gi"}}] if hooks else []),
            {"name": "state", "emptyDir": {"sizeLimit": "256Mi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
            *(
                {"name": f"login-{index}", "secret": {"secretName": name, "items": item, "optional": True}}
                for index, name in enumerate(logins if hooks else ())
            ),
        ]

    def _network(self) -> Object:
        """Who may talk to the agent, which asks for no token: pods of its namespace and of the clients'."""
        clients: list[Object] = [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
            for name in self.pods.clients
        ]
        ports: list[Object] = [{"protocol": "TCP", "port": PORT}]
        return {
            "podSelector": {"matchLabels": self._selector()},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {}}, *clients], "ports": ports}],
        }

    def _service(self) -> Object:
        return {
            "type": "ClusterIP",
            "selector": self._selector(),
            "ports": [{"name": "http", "port": PORT, "targetPort": PORT}],
        }

    def _selector(self) -> dict[str, str]:
        return {"app": "kagent", LABEL: self.agent.name}

    def _labels(self) -> dict[str, str]:
        return {
            **self._selector(),
            "app.kubernetes.io/managed-by": MANAGER,
            "app.kubernetes.io/name": self.agent.name,
            "app.kubernetes.io/part-of": "kagent",
        }

    def _applied(self, kind: Kind, content: Object) -> Object:
        """An object of the agent with a digest of itself, to detect later that another one is wanted."""
        uid = str(self.given["metadata"].get("uid") or "")
        owner = objects.owner_reference(KAGENT, self.agent.name, uid)
        name, namespace = self.agent.name, self.agent.namespace
        head = objects.with_head(kind, name, namespace, self._labels(), ownerReferences=[owner])
        made = {**head, **content}
        made["metadata"]["annotations"] = {APPLIED: _digest(made)}
        return made


def _refs(read: AgentManifests) -> list[str]:
    """The images of all hooks, each once, in the order of the file; also those of agents that are tools."""
    return list(dict.fromkeys(spec.ref for each in read.agents for spec in each.hooks))


def _values(read: AgentManifests) -> list[ValueFrom]:
    """The values in ConfigMaps and Secrets that the objects refer to, each once."""
    found: list[str | ValueFrom | None] = [each.key for each in read.models]
    for agent in read.agents:
        found += [agent.system_message, *agent.env.values()]
        found += [value for tool in agent.tools for value in tool.headers.values()]
    found += [value for server in read.servers for value in server.headers.values()]
    known = {each.variable: each for each in found if isinstance(each, ValueFrom)}
    return list(known.values())


def _reference(value: ValueFrom) -> Object:
    word = "secretKeyRef" if value.kind == "Secret" else "configMapKeyRef"
    return {"valueFrom": {word: {"name": value.name, "key": value.key}}}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(each) for key, each in mapping(value).items()}


def _without_line(problem: FileError) -> str:
    """The problem without its line: the user has never seen the file."""
    return f"{problem.key}: {problem.message}" if problem.key else problem.message
