"""The entries of hookline in a client's settings: found, added, and removed without a change to any other byte."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from hookline.claude.clients import CLIENTS, Client, Place, limit_of
from hookline.claude.events import CALLERS, point_of
from hookline.claude.settings_file import (
    BOM,
    Insertion,
    inserted,
    insertion,
    load_json,
    nodes,
    undone,
    without,
)
from hookline.engine.hook import HookDeclaration
from hookline.engine.plain import inner, mapping
from hookline.errors import FileError
from hookline.hookfile.trust import can_be, digest, remember, remembered, written
from hookline.journal import default_path
from hookline.source import Document

Handler = dict[str, Any]
_EVENTS = frozenset(event for events in CALLERS.values() for event in events)
# Also the lines of earlier versions: without the shell around them, and without options.
_LINE = r"(?:/bin/sh -c .* )?(?:hookline|.*\S (?:-P )?-m hookline) answer {event}(?: --as \w+| --once| --within \d+)*"


SWITCHES: tuple[tuple[tuple[str, ...], bool], ...] = (
    (("allowManagedHooksOnly",), True),
    (("disableAllHooks",), True),
    (("hooksConfig", "enabled"), False),
    (("features", "hooks"), False),
)
"""The settings with which a client asks no hook, and the value that says so."""


class Entry(NamedTuple):
    """A handler of hookline: its event, the position of its group there, and its own in that group."""

    event: str
    group: int
    position: int
    handler: Handler


class Settings(NamedTuple):
    """A settings file as text; `text` is None if there is no file."""

    file: Path
    text: str | None

    def entries(self) -> list[Entry]:
        """The entries of hookline in this file."""
        return _entries_in(self.text or "{}")


def read_settings(file: Path) -> Settings:
    """The settings in a file; the error names the line where hooks could not be added to them."""
    text = read_text(file)
    if text is None:
        return Settings(file, None)
    try:
        document, _ = load_json(text, file)
    except FileError as exc:
        raise FileError(f"{exc.message}; it was not changed", file=file, line=exc.line) from exc
    _check(document)
    return Settings(file, text)


def read_text(file: Path) -> str | None:
    """The text of a file, line ends and all; None if there is no file."""
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise FileError("is not UTF-8; it was not changed", file=file, line=line) from exc
    except OSError as exc:
        raise FileError(f"cannot be read: {exc.strerror}", file=file) from exc


def _check(document: Document) -> None:
    """Raise where hooks cannot be added to the settings."""
    value: Any = document.value
    if not isinstance(value, dict):
        raise document.problem("must be an object; it was not changed")
    hooks = cast("dict[str, Any]", value).get("hooks", {})
    if not isinstance(hooks, dict):
        raise document.problem("must be an object of events; it was not changed", ("hooks",))
    for event, groups in cast("dict[str, Any]", hooks).items():
        if event in _EVENTS and not isinstance(groups, list):
            raise document.problem("must be a list of groups; it was not changed", ("hooks", event))


def wanted(
    client: Client, place: Place, hooks: Sequence[HookDeclaration], settings: Settings
) -> dict[str, Handler]:
    """The entries that these settings need for the hooks that hold, by event."""
    points = {point for hook in hooks for point in hook.points}
    limit = limit_of(hooks)
    if place in (Place.USER, Place.MANAGED):
        # Hooks of other projects may need what is there.
        points |= {point_of(each.event, client.caller) for each in settings.entries()}
        limit = max(
            [limit, *(_seconds(client, each) for each in settings.entries() if each.event != "SessionEnd")]
        )
    return {event: client.handler(event, place, limit) for event in client.events(points)}


def stale(folder: Path, hooks: Sequence[HookDeclaration], environ: Mapping[str, str]) -> Iterator[str]:
    """Notes on settings whose entries are not enough for these hooks, are not asked, or would let a call pass."""
    for client in CLIENTS.values():
        for place in Place:
            file = client.file(place, folder, environ)
            if file is None or not file.is_file():
                continue
            settings = read_settings(file)
            had = {each.event: each for each in settings.entries()}
            lacking = [
                event
                for event, handler in wanted(client, place, hooks, settings).items()
                if event not in had
                or _seconds(client, had[event]) < handler["timeout"] // client.ticks
                or ("/bin/sh" in handler["command"]) > ("/bin/sh" in had[event].handler["command"])
            ]
            if had and (why := switched_off(client, place, folder, environ)):
                yield why
            if had and lacking:
                again = f"hookline install {client.words(place)}"
                yield f"{file}: the entries of hookline do not do for {', '.join(lacking)}; run: {again}"


def switched_off(client: Client, place: Place, folder: Path, environ: Mapping[str, str]) -> str | None:
    """The reason why a client asks none of the hooks in the settings of a place; None if it does."""
    strongest_first = (Place.MANAGED, Place.LOCAL, Place.PROJECT, Place.USER)
    for keys, off in SWITCHES:
        only_managed = keys[0] == "allowManagedHooksOnly"
        if only_managed and place is Place.MANAGED:
            continue
        # Root's entries run whatever a user's settings say.
        for other in strongest_first[:1] if only_managed or place is Place.MANAGED else strongest_first:
            file = client.file(other, folder, environ)
            if file is not None and client.name == "codex":
                file = file.with_name("config.toml")
            value = _setting(file, keys) if file is not None else None
            if value is off:
                return f"{file}: {'.'.join(keys)} is {json.dumps(off)}, so {client.title} asks no hook"
            if value is not None:
                break
    return None


def _setting(file: Path, keys: tuple[str, ...]) -> Any:
    """A value in the settings; None if it is not there, or the file cannot be read, which the client says itself."""
    try:
        text = read_text(file)
        if text is None:
            return None
        if file.suffix == ".toml":
            import tomllib  # slow to load, and only Codex has such a file

            value: Any = tomllib.loads(text)
        else:
            value = load_json(text or "{}", file)[0].value
    except (FileError, ValueError):
        return None
    return inner(value, *keys)


def _seconds(client: Client, entry: Entry) -> int:
    limit = entry.handler.get("timeout")
    return int(limit) // client.ticks if isinstance(limit, int | float) else 0


def add_entries(settings: Settings, handlers: Mapping[str, Handler]) -> Settings:
    """Write the settings with these entries in them, in place of any that were there, and remember how to undo that."""
    file, note = settings.file, note_of(settings.file)
    before = "{}\n" if settings.text is None else _without_entries(settings, note)
    insertions = _insertions(before, handlers)
    after = inserted(before, insertions)
    made_folder = make_folder(file.parent)
    written(file, after.encode())
    keep_note(
        file,
        {
            "after": digest(after.encode()),
            "insertions": insertions,
            "made_file": settings.text is None or bool(note.get("made_file")),
            "made_folder": made_folder or bool(note.get("made_folder")),
        },
    )
    return Settings(file, after)


def make_folder(folder: Path) -> bool:
    """True if it was not there."""
    if folder.exists():
        return False
    with can_be("made", folder):
        folder.mkdir(parents=True)
    return True


def _insertions(text: str, handlers: Mapping[str, Handler]) -> list[Insertion]:
    root = nodes(text)
    groups = {event: {"hooks": [handler]} for event, handler in handlers.items()}
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
    note = note_of(settings.file)
    text = _without_entries(settings, note)
    left = not (note.get("made_file") and json.loads(text.removeprefix(BOM)) == {})
    put_back(settings.file, text if left else None, note)
    keep_note(settings.file, None)
    return left


def put_back(file: Path, text: str | None, note: Mapping[str, Any]) -> None:
    """Write a file as it is without us; None removes it, and the folder that was made for it."""
    if text is not None:
        written(file, text.encode())
        return
    file.unlink()
    if note.get("made_folder") and not any(file.parent.iterdir()):
        file.parent.rmdir()


def note_of(file: Path, about: str = "") -> dict[str, Any]:
    """The note of `install` on what it did to a file; `about` names another note than that on the file itself."""
    return remembered(_store()).get(f"{file.resolve()}{about}", {})


def keep_note(file: Path, note: Mapping[str, Any] | None, about: str = "") -> None:
    """Remember what was done to a file; None forgets it."""
    store, key = _store(), f"{file.resolve()}{about}"
    notes = remembered(store)
    had = notes.pop(key, None)
    if note is not None:
        notes[key] = dict(note)
    if note is not None or had is not None:
        remember(store, notes)


def _without_entries(settings: Settings, note: Mapping[str, Any]) -> str:
    """The text without our handlers, and without what is empty then: the group, the event, `hooks`."""
    text = settings.text or ""
    if note.get("after") == digest(text.encode()):
        text = undone(text, [Insertion(at, new) for at, new in note["insertions"]])
    # Entries that are left were added by an earlier install, or the file was changed since.
    while entries := _entries_in(text):
        event, group, position, _ = entries[-1]
        whole = ("hooks", event, group, "hooks", position)
        text = without(text, whole, whole[:3], whole[:2], whole[:1])
    return text


def _entries_in(text: str) -> list[Entry]:
    hooks = mapping(json.loads(text.removeprefix(BOM)).get("hooks"))
    return [
        Entry(event, index, position, handler)
        for event, groups in hooks.items()
        if event in _EVENTS
        for index, group in enumerate(groups)
        for position, handler in enumerate(_handlers_in(group))
        if _is_ours(inner(handler, "command"), event)
    ]


def _handlers_in(group: Any) -> list[Any]:
    handlers = inner(group, "hooks")
    return cast("list[Any]", handlers) if isinstance(handlers, list) else []


def _is_ours(command: Any, event: str) -> bool:
    """True for the command of a handler that `install` writes."""
    return isinstance(command, str) and bool(re.fullmatch(_LINE.format(event=event), command, re.DOTALL))


def _store() -> Path:
    return default_path(os.environ).with_name("installed.json")
