"""The CustomResourceDefinitions of Sympozium's kinds, in the words of today and those before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hookline.kube.kinds import KINDS, LONGEST_NAME
from hookline.sympozium.cluster.schema import (
    NAME,
    Schema,
    agent_spec,
    pack_spec,
    run_spec,
    run_status,
    status,
)
from hookline.sympozium.read import HEAD_KEYS
from hookline.sympozium.types import GROUP


class Column(NamedTuple):
    """What `kubectl get` shows. One with a `priority` is shown with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    description: str = ""


class Defined(NamedTuple):
    short: str
    description: str
    spec: Callable[[], Schema]
    status: Callable[[], Schema]
    columns: tuple[Column, ...] = ()


_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_MODEL = Column("Model", ".spec.agents.default.model")
_ENABLED = Column("Enabled", ".spec.enabled", "boolean")
_MEMBERS = Column("Members", ".status.personaCount", "integer")

DEFINED: dict[str, Defined] = {
    "AgentRun": Defined(
        "ar",
        "One run of an agent, with containers before and after it.",
        run_spec,
        run_status,
        (
            Column("Phase", ".status.phase", description="where the run is"),
            Column("Agent", ".spec.agentRef", description="whose lifecycle and model it takes"),
            Column("Exit", ".status.exitCode", "integer", description="of the agent"),
            Column("Gate", ".status.gateVerdict", description="what the gate came to"),
            _AGE,
            Column("Error", ".status.error", priority=1, description="why it failed"),
        ),
    ),
    "Agent": Defined("agt", "An agent, of which runs are made.", agent_spec, status, (_MODEL, _AGE)),
    "SympoziumInstance": Defined(
        "szi", "An agent; today's name of the kind is Agent.", agent_spec, status, (_MODEL, _AGE)
    ),
    "Ensemble": Defined(
        "ens",
        "Agents that are made together, once it is enabled.",
        lambda: pack_spec(enabled=False),
        lambda: _pack_status(),
        (_ENABLED, _MEMBERS, _AGE),
    ),
    "PersonaPack": Defined(
        "pp",
        "Agents that are made together; today's name of the kind is Ensemble.",
        lambda: pack_spec(enabled=True),
        lambda: _pack_status(),
        (_ENABLED, _MEMBERS, _AGE),
    ),
}


def crds() -> list[dict[str, Any]]:
    """One definition for each kind, as objects for the API server."""
    return [_definition(kind, defined) for kind, defined in DEFINED.items()]


def _definition(kind: str, defined: Defined) -> dict[str, Any]:
    known = KINDS[GROUP, kind]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{known.plural}.{known.group}"},
        "spec": {
            "group": known.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": known.plural,
                "singular": kind.lower(),
                "shortNames": [defined.short],
                "categories": [known.group.partition(".")[0]],
            },
            "versions": [
                {
                    "name": known.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _whole(defined)},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(each) for each in defined.columns],
                }
            ],
        },
    }


def _whole(defined: Defined) -> Schema:
    # The server gives objects of ours names like any other; as labels they must be shorter.
    name: Schema = {"type": "string", "pattern": NAME, "maxLength": LONGEST_NAME}
    parts: dict[str, Schema] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {"name": name}},
        "spec": defined.spec(),
        "status": defined.status(),
    }
    return {
        "type": "object",
        "description": defined.description,
        "required": ["spec"],
        "properties": {key: parts[key] for key in HEAD_KEYS},
    }


def _pack_status() -> Schema:
    made = status()
    made["properties"] |= {
        "personaCount": {"type": "integer", "format": "int32", "description": "How many agents it makes."},
        "installedPersonas": {
            "type": "array",
            "items": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {"name": {"type": "string"}, "instanceName": {"type": "string"}},
            },
        },
    }
    return made


def _column(column: Column) -> dict[str, Any]:
    made: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        made["description"] = column.description
    return {**made, "priority": column.priority} if column.priority else made
