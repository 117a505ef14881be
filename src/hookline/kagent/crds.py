"""The CustomResourceDefinitions of kagent's kinds, for a cluster that has no kagent: an `Agent` with `spec.hooks`.

What is not described is kept as it was written, so that a manifest made for kagent is taken as it is.
"""

from __future__ import annotations

from typing import Any

from hookline.kagent.read_agent import MOST_HOOKS
from hookline.kagent.types import EVENTS, TYPE
from hookline.kube.kinds import KAGENT, MCP_SERVER, MODEL_CONFIG, REMOTE_MCP_SERVER, Kind

Schema = dict[str, Any]

_OPEN: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_COLUMNS = [
    {"name": word, "type": "string", "jsonPath": f'.status.conditions[?(@.type=="{word}")].status'}
    for word in ("Ready", "Accepted")
]
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def kagent_crds() -> list[dict[str, Any]]:
    """One definition for each kind that an agent is made of, as objects for the API server."""
    return [
        _definition(KAGENT, "An agent with its hooks.", _agent_spec(), [*_COLUMNS, _AGE]),
        _definition(MODEL_CONFIG, "A model that agents ask.", _OPEN, [_AGE]),
        _definition(REMOTE_MCP_SERVER, "An MCP server at an address.", _OPEN, [_AGE]),
        _definition(MCP_SERVER, "An MCP server that is a command.", _OPEN, [_AGE]),
    ]


def hooks_schema() -> Schema:
    """The field `spec.hooks`. Keys that an entry does not have are kept, so that they are told and not dropped."""
    words: dict[str, Schema] = {
        "ref": {
            "type": "string",
            "minLength": 1,
            "description": "The image that the command is in, such as ghcr.io/org/security-hooks:v1.0.",
        },
        "event": {
            "type": "string",
            "enum": list(EVENTS),
            "description": "What it is run at.",
        },
        "type": {"type": "string", "enum": [TYPE], "default": TYPE, "description": "How it is talked to."},
        "matcher": {
            "type": "string",
            "nullable": True,
            "description": "A regular expression that is searched in the tool's name; every tool where there is none.",
        },
        "command": {
            "type": "string",
            "minLength": 1,
            "description": "A program in the image, and its arguments.",
        },
    }
    return {
        "type": "array",
        "maxItems": MOST_HOOKS,
        "description": "Commands out of images that are run before and after tool calls and sessions.",
        "items": {**_OPEN, "required": ["ref", "event", "command"], "properties": words},
    }


def _agent_spec() -> Schema:
    return {
        **_OPEN,
        "properties": {
            "type": {"type": "string", "enum": ["Declarative", "BYO"], "default": "Declarative"},
            "description": {"type": "string", "nullable": True},
            "declarative": dict(_OPEN),
            "hooks": hooks_schema(),
        },
    }


def _definition(kind: Kind, about: str, spec: Schema, columns: list[Schema]) -> dict[str, Any]:
    whole: Schema = {
        "type": "object",
        "description": about,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": dict(_OPEN),
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "categories": ["kagent"],
            },
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": whole},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }
