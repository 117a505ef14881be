"""The kinds of objects we know, and where the API server keeps each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias

from hookline.errors import UsageError

# An object as the API server gives and takes it.
Object: TypeAlias = dict[str, Any]


LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)


LONGEST_NAME = 63


class Kind(NamedTuple):
    """`plural` is the word in the address; `group` is empty for the oldest kinds."""

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


_RBAC = "rbac.authorization.k8s.io"

AGENT_RUN = Kind("AgentRun", "sympozium.ai", "v1alpha1", "agentruns")
AGENT = Kind("Agent", "sympozium.ai", "v1alpha1", "agents")
INSTANCE = Kind("SympoziumInstance", "sympozium.ai", "v1alpha1", "sympoziuminstances")
ENSEMBLE = Kind("Ensemble", "sympozium.ai", "v1alpha1", "ensembles")
PACK = Kind("PersonaPack", "sympozium.ai", "v1alpha1", "personapacks")
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
LEASE = Kind("Lease", "coordination.k8s.io", "v1", "leases")
DEFINITION = Kind(
    "CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False
)

_KNOWN = (
    AGENT_RUN,
    AGENT,
    INSTANCE,
    ENSEMBLE,
    PACK,
    SANDBOX,
    KAGENT,
    MODEL_CONFIG,
    REMOTE_MCP_SERVER,
    MCP_SERVER,
    JOB,
    DEPLOYMENT,
    POD,
    CLAIM,
    ACCOUNT,
    SERVICE,
    SECRET,
    CONFIG_MAP,
    EVENT,
    NAMESPACE,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    LEASE,
    DEFINITION,
)

# By `apiVersion` and `kind`, since `Agent` is a word of more than one group.
KINDS: Mapping[tuple[str, str], Kind] = {(known.api_version, known.kind): known for known in _KNOWN}


def kind_of(obj: Mapping[str, Any]) -> Kind:
    """Which kind an object says it is."""
    said = (str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    known = KINDS.get(said)
    if known is None:
        raise UsageError(f"unknown kind of object: apiVersion {said[0]!r}, kind {said[1]!r}{_meant(said[1])}")
    return known


def _meant(kind: str) -> str:
    same = [known for known in _KNOWN if known.kind == kind]
    if same:
        return f"; {kind} is known with apiVersion {' or '.join(repr(known.api_version) for known in same)}"
    near = get_close_matches(kind, [known.kind for known in _KNOWN], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
