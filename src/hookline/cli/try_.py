"""`hookline try`."""

from __future__ import annotations

from hookline import systems
from hookline.options import TryOptions

COMMANDS = {"try": (TryOptions, systems.try_)}
