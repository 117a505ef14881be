"""Approvals of hook files: by repository, path and content, with the local files that each names.

A file that is found and not named may be somebody else's, so it runs only if its content was approved: by the user
once (`hookline trust`), or without a terminal by its digest in `$HOOKLINE_TRUST` or in `/etc/hookline/trusted`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hookline import files
from hookline.errors import FileError
from hookline.hookfile.content import Content, approve_contents, content_at
from hookline.journal import default_path

if TYPE_CHECKING:
    from hookline.engine.hook import HookDeclaration

FILE = "hookline.yaml"
MACHINE = Path("/etc/hookline")
"""The folder of the machine's own hook file and list of digests; no variable moves it, for an agent could set one."""
ROOT = 0
"""The user who may write there."""
TRUST = "HOOKLINE_TRUST"
"""The variable with digests of approved files, `sha256:...`, separated by commas."""
_CHUNK = 262_144


def nearest(start: Path, environ: Mapping[str, str]) -> Path | None:
    """The `hookline.yaml` in a folder, or the next one above it; also one that was approved there and is gone."""
    folder = Path(os.path.abspath(start))
    approved: set[str] | None = None
    for file in (each / FILE for each in (folder, *folder.parents)):
        if is_there(file):
            return file
        approved = _approved_places(environ) if approved is None else approved
        if approved and _place(file) in approved:
            return file
    return None


def is_expected(file: Path, environ: Mapping[str, str]) -> bool:
    """True if a file is there, or was approved at this place: whoever removes it does not switch it off."""
    return is_there(file) or _place(file) in _approved_places(environ)


def is_there(file: Path) -> bool:
    """False if nothing has this name. A broken link, a folder and what may not be seen count: reading them says why."""
    try:
        os.lstat(file)
    except OSError as exc:
        return not isinstance(exc, FileNotFoundError | NotADirectoryError)
    return True


def withdraw(file: Path, environ: Mapping[str, str]) -> bool:
    """Take back the approval of a file that is gone; False if there was none."""
    store, place = _store(environ), _place(file)
    known = remembered(store)
    left = {
        key: {tree: content for tree, content in trees.items() if place not in _places(key, tree)}
        for key, trees in known.items()
    }
    if left == known:
        return False
    remember(store, {key: trees for key, trees in left.items() if trees})
    return True


def _approved_places(environ: Mapping[str, str]) -> set[str]:
    known = remembered(_store(environ))
    return {place for key, trees in known.items() for tree in trees for place in _places(key, tree)}


def _places(key: str, tree: str) -> list[str]:
    """Where a file that was approved in a worktree may be; a colon in its name leaves several."""
    parts = key.split(":")
    return [os.path.join(tree, ":".join(parts[at:])) for at in range(len(parts))]


def _place(file: Path) -> str:
    return os.path.join(os.path.realpath(file.parent), file.name)


def approve(file: Path, hooks: tuple[HookDeclaration, ...], environ: Mapping[str, str]) -> list[str]:
    """From now on this content is the user's own word; returns the names of the other files that it covers.

    It replaces what was approved before in the same worktree; other worktrees of the repository keep theirs.
    """
    content = content_of(file, hooks)
    store = _store(environ)
    known = remembered(store)
    key, tree = _identity(file)
    others = {place: each for place, each in known.get(key, {}).items() if os.path.isdir(place)}
    remember(store, {**known, key: {**others, tree: content}})
    return [name for name, found in content.items() if found and name != file.name]


def content_digest(file: Path, hooks: tuple[HookDeclaration, ...]) -> str:
    """`sha256:...` of a file together with the local files that it names, wherever they are."""
    return _digest_of_all(content_of(file, hooks))


def _digest_of_all(content: Mapping[str, str | None]) -> str:
    return f"sha256:{digest(json.dumps(content, sort_keys=True).encode())}"


def refuse_distrusted(file: Path, environ: Mapping[str, str], *, option: str) -> None:
    """Raise, with the remedies, if a file that was found must not run; `option` is the one that names a file."""
    why = distrusted(file, environ)
    if why:
        import shlex  # only for a message

        name = shlex.quote(str(file))
        raise FileError(
            f"{why}, then: hookline trust {name}; or name it with {option}, or give {TRUST} the digest that"
            " `hookline trust --digest` prints",
            file=file,
        )


def distrusted(file: Path, environ: Mapping[str, str]) -> str | None:
    """Why a file that was found must not run yet; None if it may."""
    key, tree = _identity(file)
    known: dict[str, Any] = remembered(_store(environ)).get(key, {})
    reading = _Reading(file)
    found = {place: reading.changes(each) for place, each in known.items()}
    approved = next((place for place, changed in found.items() if not changed), None)
    if approved is not None or _is_listed(file, environ, reading):
        reading.approve(known[approved] if approved is not None else {})
        return None
    if not found:
        return "is not approved; look at it"
    if not is_there(file):
        return "was approved and is gone; put it back, or see that it should be gone"
    changed = found.get(tree) or next(iter(found.values()))
    return f"{', '.join(changed)} changed since it was approved; look at it"


def refuse_changed(file: Path, content: Any, environ: Mapping[str, str], *, option: str) -> None:
    """Raise if a file, or code that it names, has another content than this, and is not approved as it is."""
    reading = _Reading(file)
    if reading.changes(content):
        refuse_distrusted(file, environ, option=option)
    else:
        reading.approve(content)


class _Reading:
    """A hook file and the code that it names, each read once; names are from the folder that the file is found in."""

    def __init__(self, file: Path) -> None:
        self.file = Path(_place(file))
        self._given = file
        self._read: dict[str, Content | None] = {}

    def mark(self, name: str) -> str | None:
        found = self._at(name)
        return found and found.mark

    def _at(self, name: str) -> Content | None:
        place = os.path.normpath(self.file.parent / name)
        if place not in self._read:
            self._read[place] = content_at(place, own=place == str(self.file))
        return self._read[place]

    def changes(self, content: Any) -> list[str]:
        """The names of the files that have another content than this one, or are not there."""
        if not isinstance(content, dict) or self.file.name not in content:
            return [FILE]  # an older version wrote this, by path alone or by where a link leads
        approved = cast("dict[str, str | None]", content)
        return [name for name, mark in approved.items() if self.mark(name) != mark]

    def fix(self) -> None:
        """Have the hook file read as it was here."""
        if found := self._at(self.file.name):
            files.fix(self._given, found.text)
            files.fix(self.file, found.text)

    def content(self, hooks: tuple[HookDeclaration, ...]) -> dict[str, str | None]:
        names = [self.file.name, *named_files(self.file, hooks)]
        return {name: self.mark(name) for name in names}

    def approve(self, content: Any) -> None:
        """Have what was read here run, and nothing else."""
        self.fix()
        for name in content:
            self._at(name)
        others = {place: found for place, found in self._read.items() if place != str(self.file)}
        approve_contents(self._given, others)


def fix(file: Path) -> None:
    """Read a hook file: what is shown, hashed and parsed from now on is this."""
    reading = _Reading(file)
    reading.fix()
    _readings[os.path.abspath(file)] = reading


_readings: dict[str, _Reading] = {}


def named_files(file: Path, hooks: tuple[HookDeclaration, ...]) -> list[str]:
    """The code in a hook file's folder that its hooks name, also what is not there (yet), by names from the folder."""
    from hookline.hookfile.scripts import code_of  # slow to load, and not for who compares

    own, real = os.path.realpath(file.parent), os.path.dirname(os.path.realpath(file))
    found = {os.path.normpath(each) for hook in hooks for each in code_of(hook, real)}
    inside = {each for each in found if each.startswith(f"{real}/") and not os.path.isdir(each)}
    return sorted(os.path.relpath(each, own) for each in inside - {os.path.realpath(file)})


def content_of(file: Path, hooks: tuple[HookDeclaration, ...]) -> dict[str, str | None]:
    """The marks of a file and of the code that it names, by their names from its folder."""
    return (_readings.get(os.path.abspath(file)) or _Reading(file)).content(hooks)


def _is_listed(file: Path, environ: Mapping[str, str], reading: _Reading) -> bool:
    """True if the digest of a file is in the environment or in root's list."""
    listed = {word.strip() for word in environ.get(TRUST, "").split(",")}
    place = MACHINE / "trusted"
    if is_there(place):
        refuse_unowned(place)
        listed |= {line.partition("#")[0].strip() for line in place.read_text().splitlines()}
    if not any(listed):
        return False
    from hookline.hookfile.read import read  # slow to load, and only where there is a list

    reading.fix()
    return _digest_of_all(reading.content(read(file).checked().hooks)) in listed


def refuse_unowned(file: Path) -> None:
    """Raise unless a file of the machine, and its folder, can be changed by root alone."""
    for place in (file.parent, file):
        known = status_of(place)
        if known.st_uid != ROOT or known.st_mode & 0o022:
            raise FileError(f"{place} must belong to root, and be writable by nobody else", file=file)


def status_of(file: Path) -> os.stat_result:
    """The owner and mode of a file that is there; raises ours if it cannot be reached."""
    with can_be("read", file):
        return os.stat(file)


def _identity(file: Path) -> tuple[str, str]:
    """The repository of a file with its path there, which all worktrees share, and the folder of its worktree.

    Without a repository: its path, and its folder. A link is identified by its own place, not by that of its target.
    """
    place = Path(_place(file))
    for tree in place.parents:
        shared = _repository(tree / ".git")
        if shared is not None:
            return f"{shared}:{place.relative_to(tree)}", str(tree)
    return str(place), str(place.parent)


def _repository(git: Path) -> str | None:
    """The folder that all worktrees of a repository share, given the `.git` of one of them; None if there is none."""
    if git.is_dir():
        return os.path.realpath(git) if (git / "HEAD").is_file() else None
    try:
        own = (git.parent / git.read_text().removeprefix("gitdir:").strip()).resolve()
        shared = (own / (own / "commondir").read_text().strip()).resolve()
        # Anyone can write a `.git` that points to a repository; only the repository itself can point back.
        if own.parent != shared / "worktrees":
            return None
        return str(shared) if os.path.samefile(own / (own / "gitdir").read_text().strip(), git) else None
    except (OSError, ValueError):
        return None


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
    with can_be("written", store):
        files.private_folder(store.parent)
    written(store, json.dumps(value, indent=2).encode() + b"\n", mode=0o600)


def written(file: Path, content: bytes, *, mode: int | None = None) -> None:
    """Whole or not at all; a link stays a link, and the mode stays unless one is given."""
    full = file.resolve()
    with can_be("written", file):
        if mode is None and full.exists():
            mode = full.stat().st_mode & 0o7777
        files.write_whole(full, content, mode=mode, sync=True)


@contextmanager
def can_be(used: str, file: str | Path) -> Generator[None]:
    """Raise ours where the system does not let a file be read, written or made."""
    try:
        yield
    except OSError as exc:
        raise FileError(f"cannot be {used}: {exc.strerror}", file=file) from exc


def _store(environ: Mapping[str, str]) -> Path:
    return default_path(environ).with_name("trusted.json")


def digest_of(file: str | Path) -> str | None:
    """The digest of a file's content; None if there is no file."""
    if not os.path.isfile(file):
        return None
    found = files.sha256()
    with can_be("read", file), open(file, "rb") as opened:
        while part := opened.read(_CHUNK):
            found.update(part)
    return found.hexdigest()


def digest(content: bytes) -> str:
    return files.sha256(content).hexdigest()
