"""`hookline install` and `uninstall`: hookline in the settings of another agent."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookline.claude.clients import CLIENTS, Client, Place, client_named
from hookline.claude.codex_trust import forget, trust
from hookline.claude.entries import (
    Handler,
    Settings,
    add_entries,
    keep_note,
    make_folder,
    note_of,
    put_back,
    read_settings,
    switched_off,
    take_entries_out,
    wanted,
)
from hookline.claude.events import fails_closed
from hookline.cli.project import FIRST, Report, approve_found
from hookline.cli.proof import PROVED, prove
from hookline.errors import UsageError
from hookline.hookfile.person import need_person
from hookline.hookfile.read import parse, read
from hookline.hookfile.sources import found, machine_file, user_file
from hookline.hookfile.trust import FILE, approve, digest, digest_of, nearest, withdraw, written
from hookline.options import argument, flag, option

_WIDER = {
    Place.PROJECT: (Place.MANAGED, Place.USER, Place.LOCAL),
    Place.LOCAL: (Place.MANAGED, Place.USER, Place.PROJECT),
    Place.USER: (Place.MANAGED,),
    Place.MANAGED: (),
}
"""The places whose entries hold wherever those of a place would."""


@dataclass(kw_only=True, eq=False, repr=False)
class InstallOptions:
    agent: str = argument(f"the agent: {', '.join(CLIENTS)}", required=True)
    project: Path | None = option("the project's folder [default: the current one]", None)
    local: bool = flag("use your own settings in the project, which are not shared (claude-code)")
    user: bool = flag("use your own settings for all projects, with a hook file of your own")
    managed: bool = flag("use the settings of this machine, for all its users, with a hook file; as root")
    json: bool = flag("print JSON")


@dataclass(kw_only=True, frozen=True, slots=True)
class _Target:
    """The settings that are meant."""

    client: Client
    place: Place
    folder: Path
    file: Path

    @property
    def config(self) -> Path | None:
        """The file that has to trust entries in these settings; None if there is no such thing."""
        if self.client.name != "codex" or self.place is Place.MANAGED:
            return None
        return self.client.config(os.environ)


def install(options: InstallOptions) -> int:
    target, report = _target(options), Report(options.json)
    settings, elsewhere = read_settings(target.file), _elsewhere(target)
    wrote = _write_hook_file(target, report)
    # A file that cannot be read has none here; that is said where it is approved, or at the first call.
    hooks = [hook for source in found([target.folder], os.environ) for hook in read(source.file).hooks]
    needed = wanted(target.client, target.place, hooks, settings)
    had = [(each.event, each.handler) for each in settings.entries()]
    # Where wider settings have it, this file is left alone, so that everything runs once.
    alone = bool(elsewhere) and not had
    changed = dict(each for each in needed.items() if each not in had)
    if not alone and (changed or len(had) != len(needed)):
        settings = add_entries(settings, needed)
        report(f"wrote {target.file}")
        _tell_events(target, changed, report)
    elif had:
        report(f"{target.file}: hookline is installed already; nothing was changed")
    for place, other in elsewhere.items():
        report(_told_elsewhere(target, place, other, alone=alone))
    if target.config and not alone and trust(settings, target.config):
        report(f"wrote {target.config}: Codex trusts these entries")
    if target.place is Place.PROJECT and target.client.trust:
        report(f"note: {target.client.trust}")
    if target.place is not Place.MANAGED:
        found_by = f"hookline check {shlex.quote(str(target.file))}"
        report(f"note: {target.client.title} {target.client.off}; its calls go on then: {found_by} finds it")
    approved = _approved(target, report)
    off = switched_off(target.client, target.place, target.folder, os.environ)
    problem = off or prove(
        target.client, next(iter(elsewhere.values())) if alone else settings, target.folder
    )
    report(f"NOT PROVED: {problem}" if problem else f"proved through that entry: {PROVED}")
    report.done(
        {
            "file": str(target.file),
            "added": {} if alone else {event: each["command"] for event, each in changed.items()},
            "elsewhere": [str(other.file) for other in elsewhere.values()],
            "hook_file": wrote,
            "approved": approved,
            "proof": {"proved": problem is None, "problem": problem},
        }
    )
    return 1 if problem else 0


def _tell_events(target: _Target, changed: dict[str, Handler], report: Report) -> None:
    closed = [event for event in changed if fails_closed(event, target.client.caller)]
    others = [event for event in changed if event not in closed]
    if closed:
        report(f"  asked, and refused where hookline cannot be asked: {', '.join(closed)}")
    if others:
        report(f"  asked: {', '.join(others)}")


def uninstall(options: InstallOptions) -> int:
    target, report = _target(options), Report(options.json)
    settings = read_settings(target.file)
    need_person("uninstall", os.environ, f"without one, edit {settings.file} by hand")
    gone = list(dict.fromkeys(each.event for each in settings.entries()))
    if gone:
        if target.config:
            forget(settings, target.config)
        left = take_entries_out(settings)
        place = target.file
        report(f"{place}: removed {', '.join(gone)}" if left else f"removed {place}, which held nothing else")
    else:
        report(f"{target.file}: hookline is not installed; nothing was changed")
    removed = _remove_hook_file(target, report) if gone else None
    return report.done({"file": str(target.file), "removed": gone, "hook_file": removed})


def _target(options: InstallOptions) -> _Target:
    client = client_named(options.agent)
    folder = options.project or Path.cwd()
    if not folder.is_dir():
        raise UsageError(f"--project {folder} is not a folder")
    given = [each for each in Place if getattr(options, each) and each is not Place.PROJECT]
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} are two places; give one")
    place = given[0] if given else Place.PROJECT
    file = client.file(place, folder, os.environ)
    if file is None:
        raise UsageError(f"{client.title} has no settings of your own in a project; use --user")
    if place is Place.MANAGED and os.geteuid() != 0:
        raise UsageError(f"--managed writes {file}, which is for root alone; run it as root")
    return _Target(client=client, place=place, folder=folder, file=file)


def _elsewhere(target: _Target) -> dict[Place, Settings]:
    """Other settings with entries of hookline that the client reads wherever it reads these."""
    others: dict[Place, Settings] = {}
    for place in _WIDER[target.place]:
        file = target.client.file(place, target.folder, os.environ)
        if file is not None and file.resolve() != target.file.resolve():
            settings = read_settings(file)
            if settings.entries():
                others[place] = settings
    return others


def _told_elsewhere(target: _Target, place: Place, other: Settings, *, alone: bool) -> str:
    there = f"hookline is in {other.file}, which {target.client.title} reads as well"
    if alone:
        return f"{target.file}: not changed, because {there}; everything runs once"
    remove = f"hookline uninstall {target.client.words(target.place)}"
    return f"{there}: a call that both ask about is answered once; to have one entry: {remove}"


def _hook_file(target: _Target) -> tuple[Path, str] | None:
    """The hook file that belongs to settings for all projects, and whose hooks are in it; None for other settings."""
    if target.place is Place.USER:
        return user_file(os.environ), "all your projects"
    return (machine_file(), "this machine") if target.place is Place.MANAGED else None


def _write_hook_file(target: _Target, report: Report) -> str | None:
    file, whose = _hook_file(target) or (None, "")
    if file is None or file.exists():
        return None
    text = FIRST.replace("The hooks of this project", f"The hooks of {whose}")
    content = text.encode()
    made_folder = make_folder(file.parent)
    if made_folder:
        file.parent.chmod(0o755)
    written(file, content, mode=0o644)
    keep_note(file, {"after": digest(content), "made_folder": made_folder})
    if target.place is Place.USER:
        # It needs no approval; that it had one tells, where it is gone, that it was there.
        approve(file, parse(text, str(file)).hooks, os.environ)
    report(f"wrote {file}, which holds in every folder")
    return str(file)


def _remove_hook_file(target: _Target, report: Report) -> str | None:
    """Remove the hook file that `install` wrote, unless it was changed, or the settings of another client need it."""
    file, _ = _hook_file(target) or (None, "")
    if file is None or not file.exists() or not (note := note_of(file)):
        return None
    others = (each.file(target.place, target.folder, os.environ) for each in CLIENTS.values())
    needed = next((other for other in others if other and read_settings(other).entries()), None)
    if needed or digest_of(file) != note["after"]:
        report(f"{file} stays: {f'{needed} needs it' if needed else 'it was changed after it was written'}")
        return None
    put_back(file, None, note)
    keep_note(file, None)
    withdraw(file, os.environ)
    report(f"removed {file}")
    return str(file)


def _approved(target: _Target, report: Report) -> dict[str, Any] | None:
    """Approve the project's file, if a person says so; those of the user and the machine need no approval."""
    file = nearest(target.folder, os.environ)
    if file is not None and target.place in (Place.PROJECT, Place.LOCAL):
        return approve_found(file, report)
    if not found([target.folder], os.environ):
        nowhere = f"there is no {FILE} in {target.folder} or above it, and none of yours or this machine's"
        report(f"{nowhere}, so every call is refused; write one with: hookline init")
    return None
