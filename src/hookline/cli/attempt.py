"""`hookline attempt`: one attempt at an issue, as the program of a pod."""

from __future__ import annotations

from hookline.symphony.pod import AttemptOptions, attempt

COMMANDS = {"attempt": (AttemptOptions, attempt)}
