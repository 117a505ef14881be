"""Ready-made guards: hooks that refuse or mask what nearly everyone wants refused or masked. Attach them like any hook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.guards.hookline import protect_hookline as protect_hookline
    from hookline.guards.pushes import no_force_push as no_force_push
    from hookline.guards.pushes import no_force_push_unless as no_force_push_unless
    from hookline.guards.redact import mask_secrets as mask_secrets
    from hookline.guards.redact import redact_emails as redact_emails
    from hookline.guards.redact import redact_phones as redact_phones
    from hookline.guards.writes import no_writes_outside as no_writes_outside
    from hookline.guards.writes import no_writes_outside_of as no_writes_outside_of

# A module is loaded on first use: an answer needs one guard, and must start quickly.
_WHERE = {
    "protect_hookline": "hookline.guards.hookline",
    **dict.fromkeys(("no_force_push", "no_force_push_unless"), "hookline.guards.pushes"),
    **dict.fromkeys(("no_writes_outside", "no_writes_outside_of"), "hookline.guards.writes"),
    **dict.fromkeys(("mask_secrets", "redact_emails", "redact_phones"), "hookline.guards.redact"),
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'hookline.guards' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
