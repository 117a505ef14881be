"""The rights of a run: its accounts and roles, and the limit of what hooks may be granted.

That limit is the rules of one role of the installation, `hookline-grantable`.
The API server keeps the operator from granting what it does not hold. It holds more than it may hand on, though: it
writes secrets and makes roles. So the rules of a run are held against that role before anything is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from hookline.sympozium.cluster.objects import (
    ACCOUNT,
    MANAGER,
    Owner,
    Settings,
    account_of,
    metadata_of,
    names,
)
from hookline.sympozium.types import RunSpec

Object = dict[str, Any]

Rules = Iterable[Mapping[str, Any]]


def shared_account(namespace: str) -> Object:
    """The account of a namespace's runs. It belongs to no run, and is never removed."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": ACCOUNT,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": MANAGER},
        },
        "automountServiceAccountToken": False,
    }


def account(owner: Owner, run: RunSpec) -> Object:
    """The account of the run's own."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata_of(owner, run, names(owner.name).account, "lifecycle"),
        "automountServiceAccountToken": False,
    }


def grants(owner: Owner, run: RunSpec, settings: Settings) -> list[Object]:
    """The objects that grant the hooks what `lifecycle.rbac` says."""
    if not run.hooks.rbac:
        return []
    name = names(owner.name).account
    api = "rbac.authorization.k8s.io"
    role: Object = {
        "apiVersion": f"{api}/v1",
        "kind": "Role",
        "metadata": metadata_of(owner, run, name, "lifecycle"),
        "rules": [
            {
                "apiGroups": list(rule.api_groups),
                "resources": list(rule.resources),
                "verbs": list(rule.verbs),
            }
            for rule in run.hooks.rbac
        ],
    }
    binding: Object = {
        "apiVersion": f"{api}/v1",
        "kind": "RoleBinding",
        "metadata": metadata_of(owner, run, name, "lifecycle"),
        "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
        "subjects": [
            {
                "kind": "ServiceAccount",
                "name": account_of(owner, run, settings),
                "namespace": owner.namespace,
            }
        ],
    }
    own = [] if settings.shared_account else [account(owner, run)]
    return [*own, role, binding]


def beyond(wanted: Rules, grantable: Rules) -> list[str]:
    """The rights that are wanted and not grantable, each as a few words."""
    held = [rule for rule in grantable if not rule.get("resourceNames")]
    return [
        _named(*each)
        for rule in wanted
        for each in product(*(_words(rule, key) for key in _KEYS))
        if not any(_covers(have, each) for have in held)
    ]


_KEYS = ("apiGroups", "resources", "verbs")


def _words(rule: Mapping[str, Any], key: str) -> Sequence[str]:
    return [str(word) for word in rule.get(key) or ()]


def _covers(rule: Mapping[str, Any], wanted: tuple[str, ...]) -> bool:
    return all(
        word in allowed or "*" in allowed
        for word, allowed in zip(wanted, (_words(rule, key) for key in _KEYS), strict=True)
    )


def _named(group: str, resource: str, verb: str) -> str:
    return f"{verb} {resource}{f' of {group}' if group else ''}"
