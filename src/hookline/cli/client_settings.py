"""hookline in Claude Code's settings: the entries that ask `hookline answer`, added and taken out byte for byte."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple, cast

from hookline.claude.settings_text import (
    BOM,
    Insertion,
    JsonNode,
    inserted,
    insertion,
    load_json,
    nodes,
    removals,
    removed,
    undone,
)
from hookline.errors import FileError
from hookline.hookfile.trust import digest, remember, remembered, written
from hookline.journal import default_path
from hookline.source import Document

EVENTS = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SessionStart", "SessionEnd")
"""The events of which `hookline answer` is asked."""


def settings_file(folder: Path, *, local: bool) -> Path:
    return folder / ".claude" / ("settings.local.json" if local else "settings.json")


def command_for(event: str) -> str:
    # -P: what lies in the agent's folder must not be imported in place of hookline or the standard library.
    program = "hookline" if shutil.which("hookline") else f"{shlex.quote(sys.executable)} -P -m hookline"
    return f"{program} answer {event}"


def _is_ours(handler: Any, event: str) -> bool:
    command = cast("dict[str, Any]", handler).get("command") if isinstance(handler, dict) else None
    return isinstance(command, str) and bool(
        re.fullmatch(rf"(?:hookline|.*\S (?:-P )?-m hookline) answer {event}", command)
    )


class Settings(NamedTuple):
    """A settings file as text and as a value; `text` is None if there is no file."""

    file: Path
    text: str | None
    value: dict[str, Any]

    def groups(self, event: str) -> list[Any]:
        return self.value.get("hooks", {}).get(event, [])

    def has(self, event: str) -> bool:
        return any(self.ours(group, event) for group in self.groups(event))

    def ours(self, group: Any, event: str) -> set[int]:
        """Which handlers of a group are those that `install` writes."""
        handlers: Any = cast("dict[str, Any]", group).get("hooks") if isinstance(group, dict) else None
        listed = cast("list[Any]", handlers) if isinstance(handlers, list) else []
        return {index for index, each in enumerate(listed) if _is_ours(each, event)}


def read_settings(file: Path) -> Settings:
    try:
        text = file.read_bytes().decode()
    except FileNotFoundError:
        return Settings(file, None, {})
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise FileError("is not UTF-8; it was not changed", file=file, line=line) from exc
    except OSError as exc:
        raise FileError(f"cannot be read: {exc.strerror}", file=file) from exc
    try:
        document, _ = load_json(text, file)
    except FileError as exc:
        raise FileError(f"{exc.message}; it was not changed", file=file, line=exc.line) from exc
    return Settings(file, text, _checked(document))


def _checked(document: Document) -> dict[str, Any]:
    """The settings, if hooks can be added to them."""
    value: Any = document.value
    if not isinstance(value, dict):
        raise document.problem("must be an object; it was not changed")
    known = cast("dict[str, Any]", value)
    hooks = known.get("hooks", {})
    if not isinstance(hooks, dict):
        raise document.problem("must be an object of events; it was not changed", ("hooks",))
    for event in EVENTS:
        if not isinstance(cast("dict[str, Any]", hooks).get(event, []), list):
            raise document.problem("must be a list of groups; it was not changed", ("hooks", event))
    return known


def add_entries(settings: Settings, commands: dict[str, str]) -> None:
    """Write the settings with the commands in them, and remember what was put where."""
    folder = settings.file.parent
    made_folder = not folder.exists()
    try:
        folder.mkdir(exist_ok=True)
    except OSError as exc:
        raise FileError(f"cannot be made: {exc.strerror}", file=folder) from exc
    before = "{}\n" if settings.text is None else settings.text
    insertions = _insertions(before, commands)
    after = inserted(before, insertions)
    written(settings.file, after.encode())
    store = _store()
    note = {
        "after": digest([after.encode()]),
        "insertions": insertions,
        "made_file": settings.text is None,
        "made_folder": made_folder,
    }
    remember(store, {**remembered(store), str(settings.file.resolve()): note})


def _insertions(text: str, commands: dict[str, str]) -> list[Insertion]:
    root = nodes(text)
    groups = {
        event: {"hooks": [{"type": "command", "command": command}]} for event, command in commands.items()
    }
    hooks = root.at("hooks")
    if hooks is None:
        new = {event: [group] for event, group in groups.items()}
        return [insertion(text, root, [("hooks", new)])]
    known = {event: hooks.at(event) for event in groups}
    found = [insertion(text, node, [(None, groups[event])]) for event, node in known.items() if node]
    absent: list[tuple[str | None, Any]] = [
        (event, [groups[event]]) for event, node in known.items() if node is None
    ]
    return found + ([insertion(text, hooks, absent)] if absent else [])


def take_entries_out(settings: Settings) -> bool:
    """Write the settings without what `install` added; False if the file is gone with it."""
    store, key = _store(), str(settings.file.resolve())
    notes = remembered(store)
    note = notes.pop(key, {})
    text = settings.text or ""
    if note.get("after") == digest([text.encode()]):
        text = undone(text, [Insertion(at, new) for at, new in note["insertions"]])
    # Entries that are left were added by an earlier install, or the file was changed since.
    text = _without_ours(settings._replace(text=text, value=json.loads(text.removeprefix(BOM))))
    left = not (note.get("made_file") and json.loads(text.removeprefix(BOM)) == {})
    if left:
        written(settings.file, text.encode())
    else:
        settings.file.unlink()
        if note.get("made_folder") and not any(settings.file.parent.iterdir()):
            settings.file.parent.rmdir()
    if note:
        remember(store, notes)
    return left


def _without_ours(settings: Settings) -> str:
    """The text without our handlers, and without what is empty then: the group, the event, `hooks`."""
    text = settings.text or ""
    root = nodes(text)
    hooks = root.at("hooks")
    if hooks is None:
        return text
    stretches: list[tuple[int, int]] = []
    empty: set[int] = set()
    for index, member in enumerate(hooks.members):
        if member.key in EVENTS and member.value is hooks.at(member.key):
            cut, whole = _cut(settings, member.key, member.value)
            stretches += [] if whole else cut
            empty |= {index} if whole else set()
    if empty and len(empty) == len(hooks.members):
        stretches = removals(root, {index for index, each in enumerate(root.members) if each.value is hooks})
    elif empty:
        stretches += removals(hooks, empty)
    return removed(text, stretches)


def _cut(settings: Settings, event: str, listed: JsonNode) -> tuple[list[tuple[int, int]], bool]:
    """The stretches to take out of an event's list, and True if nothing is left of it."""
    stretches: list[tuple[int, int]] = []
    empty: set[int] = set()
    for index, (group, node) in enumerate(zip(settings.groups(event), listed.members, strict=True)):
        ours = settings.ours(group, event)
        handlers = node.value.at("hooks")
        if not ours or handlers is None:
            continue
        if len(ours) == len(handlers.members):
            empty.add(index)
        else:
            stretches += removals(handlers, ours)
    if empty and len(empty) == len(listed.members):
        return [], True
    return stretches + (removals(listed, empty) if empty else []), False


def _store() -> Path:
    return default_path(os.environ).with_name("installed.json")
