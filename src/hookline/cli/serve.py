"""`hookline serve`."""

from __future__ import annotations

from hookline import systems
from hookline.options import ServeOptions

COMMANDS = {"serve": (ServeOptions, systems.serve)}
