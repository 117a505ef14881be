"""`hookline trust`: shows the hooks of a file and approves it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hookline.cli.approval import Report, approve_shown
from hookline.errors import UsageError
from hookline.hookfile.trust import FILE, nearest
from hookline.options import argument, flag


@dataclass(kw_only=True, eq=False, repr=False)
class TrustOptions:
    file: Path | None = argument(f"[default: the nearest {FILE} upward]", None, kind="path")
    json: bool = flag("for a program to read")


def trust(options: TrustOptions) -> int:
    found = options.file or nearest(Path.cwd())
    if found is None:
        raise UsageError(f"there is no {FILE} in {Path.cwd()} or above it; `hookline init` writes one")
    report = Report(options.json)
    return report.done({"approved": approve_shown(found, report)})


COMMANDS = {"trust": (TrustOptions, trust)}
