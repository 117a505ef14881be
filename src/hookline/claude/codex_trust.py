"""Codex' trust in hooks: it runs an entry of a user or a project only if the user's configuration has its hash."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from hookline.claude.entries import (
    Entry,
    Handler,
    Settings,
    keep_note,
    make_folder,
    note_of,
    put_back,
    read_text,
)
from hookline.errors import FileError
from hookline.hookfile.trust import digest, written

_ABOUT = ":trust"


def trust(settings: Settings, config: Path) -> bool:
    """Have Codex trust the entries of hookline in a file; False if it does already."""
    file = settings.file.resolve()
    tables = [_table(_key(file, each), each) for each in settings.entries()]
    before = read_text(config)
    text = before or ""
    if all(table in text for _, table in tables):
        return False
    note = note_of(file, _ABOUT)
    text = _without(text, str(note.get("text", "")), [key for key, _ in tables])
    new = ("\n" if text and not text.endswith("\n") else "") + "".join(table for _, table in tables)
    _check(config, text + new)
    made = {"made_folder": make_folder(config.parent) or bool(note.get("made_folder"))}
    written(config, (text + new).encode())
    keep_note(file, {"text": new, "made_file": before is None or bool(note.get("made_file")), **made}, _ABOUT)
    return True


def forget(settings: Settings, config: Path) -> None:
    """Take the trust in the entries of hookline in a file back; call it while they are still there."""
    file, text = settings.file.resolve(), read_text(config)
    if text is None:
        return
    note = note_of(file, _ABOUT)
    keys = [_key(file, each) for each in settings.entries()]
    left = _without(text, str(note.get("text", "")), keys)
    if left != text:
        put_back(config, left if left or not note.get("made_file") else None, note)
    keep_note(file, None, _ABOUT)


def is_trusted(config: Path, file: Path, entry: Entry) -> bool:
    """True if Codex runs this entry of a file; another one that stands in its place is left out."""
    try:
        hooks: Any = tomllib.loads(read_text(config) or "").get("hooks", {})
        known = hooks.get("state", {}).get(_key(file.resolve(), entry), {})
        # How it hashes an entry of another kind is not known here.
        own = set(entry.handler) == {"type", "command", "timeout"}
        right = hash_of(entry.event, entry.handler) if own else known["trusted_hash"]
        return known.get("enabled") is not False and known["trusted_hash"] == right
    except (tomllib.TOMLDecodeError, AttributeError, KeyError):
        return False


def hash_of(event: str, handler: Handler) -> str:
    """The hash of an entry without a matcher, as `hooks/list` of Codex 0.166 has it."""
    known = {key: handler[key] for key in ("command", "timeout", "type")}
    whole = {"event_name": _snake(event), "hooks": [{"async": False, **known}]}
    text = json.dumps(whole, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return f"sha256:{digest(text.encode())}"


def _key(file: Path, entry: Entry) -> str:
    return f"{file}:{_snake(entry.event)}:{entry.group}:{entry.position}"


def _table(key: str, entry: Entry) -> tuple[str, str]:
    head = f"[hooks.state.{json.dumps(key, ensure_ascii=False)}]"
    return key, f'{head}\nenabled = true\ntrusted_hash = "{hash_of(entry.event, entry.handler)}"\n'


def _without(text: str, added: str, keys: list[str]) -> str:
    """The text without what was added, or where Codex has changed it since, without the tables of these keys."""
    if added and added in text:
        return text.replace(added, "", 1)
    for key in keys:
        head = re.escape(f"[hooks.state.{json.dumps(key, ensure_ascii=False)}]")
        text = re.sub(rf"^{head}[ \t]*\r?\n(?:(?!\[).*(?:\n|\Z))*", "", text, flags=re.MULTILINE)
    return text


def _check(config: Path, text: str) -> None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise FileError(f"the trust in hookline's entries cannot be added to it: {exc}", file=config) from exc


def _snake(event: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
