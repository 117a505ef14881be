"""`hookline install` and `uninstall`: hookline in the settings of a foreign agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hookline.cli.client_settings import (
    EVENTS,
    add_entries,
    command_for,
    read_settings,
    settings_file,
    take_entries_out,
)
from hookline.cli.hookfile import Report, approve_shown
from hookline.errors import UsageError
from hookline.hookfile.trust import FILE, nearest
from hookline.options import argument, flag, option

AGENTS = ("claude-code",)


@dataclass(kw_only=True, eq=False, repr=False)
class InstallOptions:
    agent: str = argument(f"the agent: {', '.join(AGENTS)}", required=True)
    project: Path | None = option("the project's folder [default: the current one]", None, kind="path")
    local: bool = flag("settings.local.json, which is yours alone")
    json: bool = flag("for a program to read")


def install(options: InstallOptions) -> int:
    folder = _project(options)
    report = Report(options.json)
    place = settings_file(folder, local=options.local)
    settings = read_settings(place)
    commands = {event: command_for(event) for event in EVENTS}
    missing = [event for event in EVENTS if not settings.has(event)]
    if missing:
        add_entries(settings, {event: commands[event] for event in missing})
        report(f"wrote {place}")
        for event in missing:
            report(f"  {event}: {commands[event]}")
    else:
        report(f"{place}: hookline is there already; nothing was changed")
    found = nearest(folder)
    approved = None
    if found is None:
        report(f"there is no {FILE} in {folder} or above it, so every call would be refused: hookline init")
    else:
        approved = approve_shown(found, report, broken=True)
    return report.done(
        {"file": str(place), "added": {event: commands[event] for event in missing}, "approved": approved}
    )


def uninstall(options: InstallOptions) -> int:
    folder = _project(options)
    report = Report(options.json)
    place = settings_file(folder, local=options.local)
    settings = read_settings(place)
    gone = [event for event in EVENTS if settings.has(event)]
    if gone:
        left = take_entries_out(settings)
        report(
            f"{place}: took out {', '.join(gone)}" if left else f"removed {place}, which held nothing else"
        )
    else:
        report(f"{place}: hookline is not there; nothing was changed")
    return report.done({"file": str(place), "removed": gone})


def _project(options: InstallOptions) -> Path:
    if options.agent not in AGENTS:
        raise UsageError(f"unknown agent {options.agent!r}; known: {', '.join(AGENTS)}")
    folder = options.project or Path.cwd()
    if not folder.is_dir():
        raise UsageError(f"--project {folder} is not a folder")
    return folder


COMMANDS = {"install": (InstallOptions, install), "uninstall": (InstallOptions, uninstall)}
