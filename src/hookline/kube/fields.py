"""Access to plain objects that may lack any field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

Object = Mapping[str, Any]


def mapping(value: Any) -> Object:
    return cast("Object", value) if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Object]:
    """The mappings in a list."""
    return cast("list[Object]", value) if isinstance(value, list) else []


def within(obj: Object, *keys: str) -> Object:
    """The mapping below those keys, empty where there is none."""
    for key in keys:
        obj = mapping(obj.get(key))
    return obj


def owners(obj: Object) -> list[Object]:
    return items(within(obj, "metadata").get("ownerReferences"))


def is_owned(obj: Object, uid: str) -> bool:
    """True if the object names an owner with this uid."""
    return any(owner.get("uid") == uid for owner in owners(obj))


def bare(obj: Object) -> dict[str, Any]:
    """The part of an object that its user wrote: its kind, name and spec."""
    metadata = within(obj, "metadata")
    return {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "metadata": {key: metadata[key] for key in ("name", "namespace") if key in metadata},
        "spec": obj.get("spec"),
    }


def phase_of(run: Object) -> str:
    return str(within(run, "status").get("phase") or "")
