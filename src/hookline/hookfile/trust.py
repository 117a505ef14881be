"""Approvals of hook files: by repository, path and content, with the local files that each names.

A file that is found and not named may be somebody else's, so it runs only if its content was approved: by the user
once (`hookline trust`), or without a terminal by its digest in `$HOOKLINE_TRUST` or in `/etc/hookline/trusted`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hookline import files
from hookline.errors import FileError
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
    return [name for name, found in content.items() if found and name != file.resolve().name]


def content_digest(file: Path, hooks: tuple[HookDeclaration, ...]) -> str:
    """`sha256:...` of a file together with the local files that it names, wherever they are."""
    return f"sha256:{digest(json.dumps(content_of(file, hooks), sort_keys=True).encode())}"


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
    folder = file.resolve().parent
    found = {place: changes(folder, each) for place, each in known.items()}
    if [] in found.values() or _is_listed(file, environ):
        return None
    if not found:
        return "is not approved; look at it"
    if not is_there(file):
        return "was approved and is gone; put it back, or see that it should be gone"
    changed = found.get(tree) or next(iter(found.values()))
    return f"{', '.join(changed)} changed since it was approved; look at it"


def changes(folder: Path, content: Any) -> list[str]:
    """The names of the files that have another content than this one, or are not there."""
    if not isinstance(content, dict):
        return [FILE]  # an older version wrote this, by path alone
    approved = cast("dict[str, str | None]", content)
    return [name for name, found in approved.items() if digest_of(folder / name) != found]


def named_files(file: Path, hooks: tuple[HookDeclaration, ...]) -> list[str]:
    """The code in a hook file's folder that its hooks name, also what is not there (yet), by names from the folder."""
    full = file.resolve()
    return sorted(set(_named(full.parent, hooks)) - {full.name})


def content_of(file: Path, hooks: tuple[HookDeclaration, ...]) -> dict[str, str | None]:
    """The digests of a file and of the code that it names, by their names from its folder."""
    full = file.resolve()
    names = [full.name, *named_files(full, hooks)]
    return {name: digest_of(full.parent / name) for name in names}


def _is_listed(file: Path, environ: Mapping[str, str]) -> bool:
    """True if the digest of a file is in the environment or in root's list."""
    listed = {word.strip() for word in environ.get(TRUST, "").split(",")}
    place = MACHINE / "trusted"
    if is_there(place):
        refuse_unowned(place)
        listed |= {line.partition("#")[0].strip() for line in place.read_text().splitlines()}
    if not any(listed):
        return False
    from hookline.hookfile.read import read  # slow to load, and only where there is a list

    return content_digest(file, read(file).checked().hooks) in listed


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


def _named(folder: Path, hooks: tuple[HookDeclaration, ...]) -> Iterator[str]:
    for hook in hooks:
        yield from (os.path.relpath(full, folder) for full in scripts(folder, hook).values())


def scripts(folder: Path, hook: HookDeclaration) -> dict[str, str]:
    """The code in a folder that a hook names, by the word that names it."""
    start = Path(hook.params.get("cwd") or folder)
    found = {word: Path(os.path.realpath(start / word)) for word in _words(hook)}
    # Interpreters and other programs of the machine change with it, and are not the repository's. What a hook
    # only reads or writes is left out: its own log would take its approval away.
    return {
        word: str(full)
        for word, full in found.items()
        if full.is_relative_to(folder) and not os.path.isdir(full) and files.is_code(full)
    }


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
