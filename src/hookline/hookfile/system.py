"""hookline.yaml and .claude/settings.json as a system: they hold hooks and no agent, so they are only checked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from hookline.engine.hook import Hook, HookDeclaration
from hookline.errors import FileError
from hookline.hookfile.importer import is_ready_guard
from hookline.hookfile.trust import FILE
from hookline.options import CheckOptions, ExplainOptions, RunOptions, ServeOptions, TryOptions
from hookline.source import SUFFIXES
from hookline.terminal import Problem, problems_of

NAME = "a file of hooks"


def matches(target: str) -> bool:
    """A YAML or JSON file; those of other systems are told by their content before this is asked."""
    file = Path(target)
    return file.suffix in SUFFIXES and file.is_file()


def load(target: str) -> NoReturn:
    raise FileError(
        "this is not an agent; give a Python file with an Agent in it or a kagent Agent manifest"
        " (hook files go with --hooks)",
        file=Path(target),
    )


def problems(target: str, _options: CheckOptions, _hooks: Sequence[Hook]) -> list[Problem]:
    from hookline.hookfile.attach import load_hooks
    from hookline.hookfile.sources import is_approved

    others = _of_other_client(Path(target))
    if others is not None:
        return problems_of(others, (), target)
    approved = is_approved(target, os.environ)
    found = load_hooks(target, imports=approved)
    declared = found.declared
    unapproved = _unapproved(Path(target))
    if not approved and not unapproved:
        unapproved = [*_not_imported(declared)]
    notes = [*_names_few_have(declared), *unapproved, *_stale(Path(target), declared)]
    return [*problems_of((), notes, target), *found.all_problems(target)]


def _of_other_client(file: Path) -> list[FileError] | None:
    """The mistakes in the settings of a client whose hooks hookline does not run itself; None for any other file."""
    if file.suffix != ".json":
        return None
    from hookline.claude.clients import CLIENTS
    from hookline.claude.codex_trust import is_trusted
    from hookline.claude.entries import SWITCHES, Entry
    from hookline.claude.events import CALLERS, meant
    from hookline.claude.hooks import missing_command
    from hookline.claude.settings_file import load_json
    from hookline.source import text_of
    from hookline.table import Findings, Node

    place = Path(os.path.abspath(file))
    names = {(each.folder, each.settings): each for each in CLIENTS.values() if each.caller != "claude"}
    client = names.get((place.parent.name, place.name))
    if client is None:
        return None
    found = Findings()
    settings = Node.root(load_json(text_of(file), file)[0], found)
    for keys, value in SWITCHES:
        if (given := settings.inside(*keys)) is not None and given.value is value:
            given.wrong("no hook here runs", code="not-enforced")
    hooks = settings.inside("hooks")
    for event in hooks.of_mapping if hooks is not None else ():
        if event not in CALLERS[client.caller]:
            settings.wrong(
                f"is not an event of {client.title}; {meant(event, client.caller)}", "hooks", event
            )
            continue
        for index, group in enumerate(settings.child("hooks").child(event).items()):
            inside = group.inside("hooks")
            for position, handler in enumerate(inside.items() if inside is not None else ()):
                command = handler.of_mapping.get("command")
                absent = missing_command(("sh", "-c", command), None) if isinstance(command, str) else None
                if absent is not None:
                    handler.wrong(f"it could not start: {absent}", "command", code="missing-program")
                whole = {**group.of_mapping, **handler.of_mapping, "hooks": None}
                del whole["hooks"]
                entry = Entry(event, index, position, whole)
                if client.name == "codex" and not is_trusted(client.config(os.environ), place, entry):
                    told = "Codex was not told to trust this entry as it is, and leaves it out"
                    handler.wrong(f"{told}; for one of hookline: hookline install codex", code="not-approved")
    return found.problems


def _names_few_have(declared: Sequence[HookDeclaration]) -> Iterator[FileError]:
    """A note on each hook of ours that stands for a kind of tools by names that some callers do not have."""
    from hookline.claude.events import CALLERS
    from hookline.claude.tools import kind_meant

    for hook in declared:
        missing = [(caller, kind) for caller in CALLERS if (kind := kind_meant(hook.match, caller))]
        if missing and "event" not in hook.params:
            callers, kind = ", ".join(caller for caller, _ in missing), missing[0][1]
            said = f"hook {hook.name}: match {hook.match!r} fits no tool of {callers}"
            yield FileError.at(hook.source, f"{said}; match: kind:{kind} fits theirs too", code="no-match")


def _not_imported(declared: Sequence[HookDeclaration]) -> Iterator[FileError]:
    """A note on the first hook whose Python code was only read."""
    for hook in declared:
        if hook.kind == "python" and not is_ready_guard(hook.params):
            told = "its Python code was read, and not imported: the file is not approved (hookline trust)"
            yield FileError.at(hook.source, f"hook {hook.name}: {told}", code="not-approved")
            return


def _stale(file: Path, declared: Sequence[HookDeclaration]) -> list[str]:
    """Notes on clients that are not told to ask about all of a file's hooks, or not as they should be."""
    from hookline.claude.entries import stale

    if file.name != FILE:
        return []
    try:
        return list(stale(file.parent, declared, os.environ))
    except FileError as exc:
        return [f"hookline is not asked: {exc}"]


def _no_agent(options: ExplainOptions | TryOptions | RunOptions | ServeOptions) -> NoReturn:
    load(options.file)


explain = try_ = run = serve = _no_agent


def _unapproved(file: Path) -> list[FileError]:
    """A note on a file that would be found, and is not approved."""
    from hookline.hookfile.sources import found, unapproved

    same = (
        each
        for each in found([file.parent], os.environ)
        if os.path.realpath(each.file) == os.path.realpath(file)
    )
    return [note for each in same if (note := unapproved(each, os.environ))]
