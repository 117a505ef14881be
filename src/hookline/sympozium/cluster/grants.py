"""What hooks may be granted: the rules of one role of the installation, `hookline-grantable`.

The API server keeps the operator from granting what it does not hold. It holds more than it may hand on, though: it
writes secrets and makes roles. So what a run asks for is held against that role before anything is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

Rules = Iterable[Mapping[str, Any]]


def beyond(wanted: Rules, grantable: Rules) -> list[str]:
    """What is wanted and not grantable, each as a few words; empty where all of it is."""
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
