"""Which hook files the user has approved: each by its place and its content, with the local files that it names.

`hookline answer` runs what it finds in a folder that may be somebody else's, so it asks here first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hookline import files
from hookline.errors import FileError, UsageError
from hookline.journal import default_path

if TYPE_CHECKING:
    from hookline.engine.hook import HookDeclaration

FILE = "hookline.yaml"
_CHUNK = 262_144
_SUFFIXES = frozenset({".py", ".sh", ".bash", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua"})


def nearest(start: Path) -> Path | None:
    """The `hookline.yaml` in a folder, or the next one above it."""
    folder = start.absolute()
    return next((each / FILE for each in (folder, *folder.parents) if (each / FILE).is_file()), None)


def approve(file: Path, hooks: tuple[HookDeclaration, ...], environ: Mapping[str, str]) -> list[str]:
    """From now on this content is the user's own word; returns the names of the other files that it covers."""
    full = file.resolve()
    names = [full.name, *sorted(set(_named(full.parent, hooks)) - {full.name})]
    content = {name: digest_of(full.parent / name) for name in names}
    store = _store(environ)
    remember(store, {**remembered(store), str(full): content})
    return [name for name in names[1:] if content[name]]


def trusted(start: Path, environ: Mapping[str, str]) -> Path:
    """The nearest file, if it may run; the error says what to do where it may not, or is not there."""
    file = nearest(start)
    if file is None:
        folder = start.absolute()
        raise UsageError(f"there is no {FILE} in {folder} or above it; write one, or name it with --file")
    why = distrusted(file, environ)
    if why:
        import shlex  # only for a message

        raise FileError(f"{why}, then: hookline trust {shlex.quote(str(file))}", file=file)
    return file


def distrusted(file: Path, environ: Mapping[str, str]) -> str | None:
    """Why a file that was found must not run yet; None if it may."""
    full = file.resolve()
    content = remembered(_store(environ)).get(str(full))
    if not content:
        return "is not approved; look at it"
    changed = [name for name, digest in content.items() if digest_of(full.parent / name) != digest]
    return f"{', '.join(changed)} changed since it was approved; look at it" if changed else None


def remembered(store: Path) -> dict[str, Any]:
    """The content of one of hookline's own small JSON files, by the path of the user's file."""
    try:
        value: Any = json.loads(store.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise FileError(
            f"cannot be read: {exc}; remove it, and approve your files again", file=store
        ) from exc
    if not isinstance(value, dict) or not all(
        isinstance(each, dict) for each in cast("dict[str, Any]", value).values()
    ):
        raise FileError("is not hookline's; remove it, and approve your files again", file=store)
    return cast("dict[str, Any]", value)


def remember(store: Path, value: Mapping[str, Any]) -> None:
    try:
        files.private_folder(store.parent)
    except OSError as exc:
        raise FileError(f"cannot be written: {exc.strerror}", file=store) from exc
    written(store, json.dumps(value, indent=2).encode() + b"\n", mode=0o600)


def written(file: Path, content: bytes, *, mode: int | None = None) -> None:
    """Whole or not at all; a link stays a link, and the mode stays unless one is given."""
    full = file.resolve()
    try:
        if mode is None and full.exists():
            mode = full.stat().st_mode & 0o7777
        files.write_whole(full, content, mode=mode, sync=True)
    except OSError as exc:
        raise FileError(f"cannot be written: {exc.strerror}", file=file) from exc


def _store(environ: Mapping[str, str]) -> Path:
    return default_path(environ).with_name("trusted.json")


def _named(folder: Path, hooks: tuple[HookDeclaration, ...]) -> Iterator[str]:
    """The code in the folder that the hooks name, also what is not there (yet), as names from the folder."""
    for hook in hooks:
        start = Path(hook.params.get("cwd") or folder)
        for word in _words(hook):
            full = Path(os.path.realpath(start / word))
            # Interpreters and other programs of the machine change with it, and are not the repository's.
            if full.is_relative_to(folder) and not os.path.isdir(full) and _is_code(full):
                yield str(full.relative_to(folder))


def _words(hook: HookDeclaration) -> list[str]:
    params = hook.params
    if hook.kind == "python":
        module = str(params.get("module", "")).replace(".", "/")
        return [params["file"]] if "file" in params else [f"{module}.py", f"{module}/__init__.py"]
    if hook.kind == "command":
        return list(params["argv"])
    if hook.kind != "shell":
        return []
    import shlex

    try:
        return shlex.split(params["script"], comments=True)
    except ValueError:
        return str(params["script"]).split()


def _is_code(file: Path) -> bool:
    """Not what a hook only reads or writes: its own log would take its approval away."""
    return file.suffix in _SUFFIXES or (os.path.isfile(file) and os.access(file, os.X_OK))


def digest_of(file: str | Path) -> str | None:
    """The digest of a file's content; None if there is no file."""
    if not os.path.isfile(file):
        return None
    try:
        with open(file, "rb") as opened:
            return digest(iter(lambda: opened.read(_CHUNK), b""))
    except OSError as exc:
        raise FileError(f"cannot be read: {exc.strerror}", file=file) from exc


def digest(parts: Iterable[bytes]) -> str:
    """The SHA-256 of all the parts as one content."""
    found = _sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


def _own_sha256() -> Any:
    """Python's own and not OpenSSL's, which takes a tenth of `hookline answer` to load.

    The first name is from 3.12 on, the second before; one built without it has only `hashlib`.
    """
    for name in ("_sha2", "_sha256"):
        try:
            return import_module(name).sha256
        except ImportError:
            continue
    return import_module("hashlib").sha256


_sha256 = _own_sha256()
