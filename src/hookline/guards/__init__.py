"""Ready guards: hooks for what nearly everyone wants refused or hidden. Attach them like any hook of your own."""

from __future__ import annotations

from hookline.guards.contacts import redact_emails, redact_phones
from hookline.guards.pushes import no_force_push, no_force_push_unless
from hookline.guards.secrets import mask_secrets
from hookline.guards.writes import no_writes_outside, no_writes_outside_of

__all__ = [
    "mask_secrets",
    "no_force_push",
    "no_force_push_unless",
    "no_writes_outside",
    "no_writes_outside_of",
    "redact_emails",
    "redact_phones",
]
