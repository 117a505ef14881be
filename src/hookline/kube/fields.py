"""Looks into plain objects whose form nobody vouches for."""

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


def phase_of(run: Object) -> str:
    return str(within(run, "status").get("phase") or "")
