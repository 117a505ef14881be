"""Ready-made guards: hooks that refuse or mask what nearly everyone wants refused or masked. Attach them like any hook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.guards.hookline import protect_hookline
    from hookline.guards.pushes import no_force_push, no_force_push_unless
    from hookline.guards.redact import mask_secrets, redact_emails, redact_phones
    from hookline.guards.writes import no_writes_outside, no_writes_outside_of

__all__ = [
    "mask_secrets",
    "no_force_push",
    "no_force_push_unless",
    "no_writes_outside",
    "no_writes_outside_of",
    "protect_hookline",
    "redact_emails",
    "redact_phones",
]

# A module is loaded on first use: an answer needs one guard, and must start quickly.
_WHERE = {
    "protect_hookline": "hookline.guards.hookline",
    **dict.fromkeys(("no_force_push", "no_force_push_unless"), "hookline.guards.pushes"),
    **dict.fromkeys(("no_writes_outside", "no_writes_outside_of"), "hookline.guards.writes"),
    **dict.fromkeys(("mask_secrets", "redact_emails", "redact_phones"), "hookline.guards.redact"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'hookline.guards' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
