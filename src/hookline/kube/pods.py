"""What all pods of ours keep to: no root, no capability, nothing written to the image; and what they take of a node."""

from __future__ import annotations

from typing import Any

__all__ = ["SAFE", "USER", "resources"]

Object = dict[str, Any]

SAFE: Object = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""For each container."""
USER: Object = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""For the whole pod."""


def resources(cpu: str, memory: str, *, most_cpu: str, most_memory: str) -> Object:
    """What is set aside for a container, and what it may take at most."""
    return {
        "requests": {"cpu": cpu, "memory": memory},
        "limits": {"cpu": most_cpu, "memory": most_memory},
    }
