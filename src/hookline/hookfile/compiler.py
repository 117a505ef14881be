"""Compiled copies of hook files: what `hookline answer` needs of one, so that most calls need no parser.

A copy is only a shortcut. It is believed where it is the user's own, carries the user's key, and was made by this
hookline of this very content in this very place; else the file itself is read, and a new copy written. Deleting one is
harmless.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hookline import files
from hookline.errors import FileError
from hookline.hookfile.content import content_at
from hookline.hookfile.importer import is_ready_guard
from hookline.hookfile.trust import digest, digest_of
from hookline.journal import default_path

if TYPE_CHECKING:
    from hookline.engine.hook import Hook, HookDeclaration
    from hookline.hookfile.attach import Attached

VERSION = "0.1.0"
"""Of hookline itself; the metadata of the package has the same, and takes longer to read than all the rest."""

# In a checkout the version stays while these change.
_MADE_BY = (
    "hookfile/attach.py",
    "hookfile/compiler.py",
    "claude/events.py",
    "claude/matchers.py",
    "claude/settings.py",
    "claude/settings_file.py",
    "claude/tools.py",
    "hookfile/condition.py",
    "hookfile/content.py",
    "hookfile/keys.py",
    "hookfile/read.py",
    "engine/hook.py",
    "handlers/http.py",
    "handlers/python.py",
    "source.py",
    "table.py",
    "matcher.py",
)

_NOT_PLAIN = ("async", "if", "background", "warm", "preload")

Json = dict[str, Any]


def copy_of(file: Path, content: bytes, environ: Mapping[str, str]) -> list[Json] | None:
    """The hooks of a file with this content, in order; None where no copy can be believed."""
    try:
        body = _signed(file, environ)
        if body is None:
            return None
        copy = cast("Json", json.loads(body))
        unchanged = all(_is_still(name, mark) for name, mark in copy["code"].items())
        return copy["hooks"] if copy["key"] == _key(file, content) and unchanged else None
    except (OSError, ValueError, FileError):
        return None


def is_forged(file: Path, environ: Mapping[str, str]) -> bool:
    """True if there is a copy of a file that does not carry the user's key."""
    try:
        return _signed(file, environ) is None
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _signed(file: Path, environ: Mapping[str, str]) -> bytes | None:
    """The body of a copy; None if it does not carry the user's key."""
    place = copy_place(file, environ)
    mark, _, body = files.read_own(place).partition(b"\n")
    key = files.user_key(place.parent.parent)
    return body if mark == files.keyed_digest(body, key).encode() else None


def _is_still(name: str, mark: str | None) -> bool:
    """True if a Python file has this content, which then is what will be imported."""
    known = files.fixed(name)
    if known is None:
        found = content_at(name, own=True)
        known = found and found.text
        if known is not None:
            files.fix(name, known)
    return (None if known is None else digest(known)) == mark


def keep_copy(file: Path, content: bytes, found: Attached, environ: Mapping[str, str]) -> None:
    """Write the copy of a file whose hooks were made live without a complaint."""
    code = _code(found.declared)
    if code is None:
        return
    made = [hook for hook in found.hooks if hook.kind != "background"]
    rows = [_row(each, hook) for each, hook in zip(found.declared, made, strict=True)]
    body = json.dumps({"key": _key(file, content), "code": code, "hooks": rows}).encode()
    place = copy_place(file, environ)
    try:
        mark = files.keyed_digest(body, files.user_key(place.parent.parent))
        files.private_folder(place.parent)
        files.write_whole(place, mark.encode() + b"\n" + body, mode=0o600, sync=True)
    except OSError:
        pass  # then the next call takes the long way too


def copy_place(file: Path, environ: Mapping[str, str]) -> Path:
    """One for each hook file, whatever its content is by now."""
    name = digest(os.fsencode(file.resolve()))[:32]
    return default_path(environ).with_name("compiled") / f"{name}.json"


def _key(file: Path, content: bytes) -> str:
    root = Path(__file__).parents[1]
    sources = [(each.st_mtime_ns, each.st_size) for each in (os.stat(root / name) for name in _MADE_BY)]
    whole = [VERSION, sources, os.fsdecode(file.resolve()), digest(content)]
    return digest(json.dumps(whole).encode())


def _row(declared: HookDeclaration, hook: Hook) -> Json:
    """The matchers of a hook as data, and the parameters of its handler if they are plain."""
    from hookline.engine.hook import settled_on_error  # only to write

    plain = _is_plain(declared, hook)
    return {
        "name": hook.name,
        "points": [str(point) for point in hook.points],
        "mode": str(hook.mode),
        "match": hook.match_text if declared.match is None else declared.match,
        "when": declared.when,
        "kind": declared.kind,
        "plain": plain,
        "params": {key: value for key, value in declared.params.items() if plain or key == "event"},
        "timeout": declared.timeout,
        "inline": not hook.limits_itself,
        "source": declared.source,
        "same": hook.same,
        "follows": {str(point): str(settled_on_error(hook, point)) for point in hook.points},
    }


def _is_plain(declared: HookDeclaration, hook: Hook) -> bool:
    """True if the hook can be called without an event loop: a process, or a sync function."""
    params = declared.params
    if declared.kind == "python":
        # One that limits itself is sync, and called in a thread. An inline one could be anything, but for our own.
        return hook.limits_itself or is_ready_guard(params)
    return declared.kind in ("command", "shell") and not any(params.get(key) for key in _NOT_PLAIN)


def _code(declared: Iterable[HookDeclaration]) -> dict[str, str | None] | None:
    """The Python files that the hooks were loaded from, whose mistakes are the file's too; None where one is unknown."""
    found: dict[str, str | None] = {}
    for each in declared:
        if each.kind != "python":
            continue
        module = sys.modules.get(each.params.get("module", ""))
        place = each.params.get("file") or getattr(module, "__file__", None)
        if place is None:
            return None
        known = files.fixed(os.path.realpath(place))
        found[os.path.realpath(place)] = digest_of(place) if known is None else digest(known)
    return found
