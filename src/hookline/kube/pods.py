"""Security, resources, names and owners that all our pods share: no root, no capability, nothing written to the image."""

from __future__ import annotations

import hashlib
from typing import Any

from hookline.kube.kinds import LONGEST_NAME

Object = dict[str, Any]

SAFE: Object = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""For each container."""
SAFE_ROOT: Object = {**SAFE, "runAsUser": 0, "runAsNonRoot": False}
"""For one that opens a volume which does not take the pod's group: root, and without any capability."""
USER: Object = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""For the whole pod."""


def child(name: str, suffix: str, longest: int = LONGEST_NAME) -> str:
    """`name` with a suffix, never longer than that: what is cut off is told apart by a digest of the whole."""
    if len(name) + len(suffix) <= longest:
        return f"{name}{suffix}"
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: longest - len(suffix) - len(mark) - 1].rstrip('-.')}-{mark}{suffix}"


def resources(cpu: str, memory: str, *, most_cpu: str, most_memory: str) -> Object:
    """The resources that are set aside for a container, and the most it may take."""
    return {
        "requests": {"cpu": cpu, "memory": memory},
        "limits": {"cpu": most_cpu, "memory": most_memory},
    }


def owner_reference(api_version: str, kind: str, name: str, uid: str, *, controller: bool = True) -> Object:
    """The owner that an object belongs to, and goes with."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": controller,
        "blockOwnerDeletion": False,
    }
