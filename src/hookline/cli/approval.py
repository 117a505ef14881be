"""Approves a hook file after showing what it would run; shared by `init`, `install` and `trust`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from hookline.engine.hook import HookDeclaration
from hookline.errors import HooklineError
from hookline.hookfile.read import read
from hookline.hookfile.trust import approve
from hookline.terminal import out, print_json


class Report:
    """Lines for a person, or at the end one JSON value for a program."""

    def __init__(self, json: bool) -> None:
        self.json = json

    def __call__(self, text: str) -> None:
        if not self.json:
            out.print(text)

    def done(self, value: dict[str, Any]) -> int:
        if self.json:
            print_json(value)
        return 0


def approve_shown(file: Path, say: Report, *, broken: bool = False) -> dict[str, Any] | None:
    """Approve a file after showing what it would run; one with a mistake is not approved."""
    try:
        hooks = read(file, strict=True).hooks
    except HooklineError as exc:
        if not broken:
            raise
        say(f"not approved: {exc}")
        return None
    rows = [
        {"name": each.name, "points": [str(point) for point in each.points], "runs": _runs(each)}
        for each in hooks
    ]
    say(f"{file}:")
    for row in rows:
        say(f"  {row['name']} at {', '.join(row['points'])} runs {row['runs']}")
    if not rows:
        say("  no hooks")
    also = approve(file, hooks, os.environ)
    covered = f", with {', '.join(also)}" if also else ""
    say(f"approved{covered}; a change takes the approval away")
    return {"file": str(file), "hooks": rows, "also": also}


def _runs(hook: HookDeclaration) -> str:
    params = hook.params
    if hook.kind == "python":
        return f"{params.get('file') or params['module']}:{params['function']}"
    if hook.kind == "command":
        return shlex.join(params["argv"])
    return str(params["script"]).strip() if hook.kind == "shell" else str(params["url"])
