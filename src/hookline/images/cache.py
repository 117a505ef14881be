"""Unpacked images, kept by digest and platform, read-only.

An image is unpacked in a room of its own and renamed into place when it is whole, so that a half one is never found. Where
two processes have the same image, the first rename stands and both use it. Each entry has a list of what is in it; one
that does not fit its list any more is not used.

A folder that is being used or filled is locked (flock), so that pruning leaves it alone, and a lock ends with its
process.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hookline import files
from hookline.errors import ImageError
from hookline.images.tree import TreeEntry, listing, removed
from hookline.journal.user import xdg_folder

KEEP_DAYS = 30.0
KEEP_BYTES = 4 * 1024**3

_LATELY = 3600.0
"""Seconds. What was used or begun within them is never pruned: it may be about to be locked."""

_TREE = "tree"
_RECORD = "record.json"
_KEY = re.compile(r"[a-z0-9.-]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A whole image. `record` is what was written when it was unpacked."""

    path: Path
    record: Mapping[str, Any]

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self.record.get("notes") or ())


class UnpackRoom:
    """A folder of its own for one image that is being unpacked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = path / "entry" / _TREE
        self.tree.mkdir(parents=True, mode=0o700)


class Cache:
    """A folder with one folder per image; made when the first is fetched. `told` is called for broken ones."""

    def __init__(self, folder: Path, told: Callable[[str], None] = lambda _text: None) -> None:
        self._told = told
        self._images = folder / "images"
        self._rooms = folder / "rooms"

    def find(self, key: str) -> Entry | None:
        """An image that is there and whole, which counts as a use of it; a broken one is removed."""
        path = self._images / _checked(key)
        record = _record(path)
        if record is None and not path.exists():
            return None
        if record is None or not _is_whole(path / _TREE, record):
            self._told(f"the image in {path} was changed since it was unpacked; it is not used any more")
            self._drop(path)
            return None
        try:
            os.utime(path)
        except OSError:
            pass  # a cache that we may only read
        return Entry(path=path / _TREE, record=record)

    @contextmanager
    def room(self) -> Generator[UnpackRoom]:
        """A place to unpack, gone afterwards unless it was kept."""
        path = self._rooms / uuid.uuid4().hex
        try:
            path.mkdir(parents=True, mode=0o700)
        except OSError as exc:
            raise ImageError(f"the cache of images cannot be written: {path.parent}: {exc.strerror}") from exc
        with files.locked_folder(path):
            try:
                yield UnpackRoom(path)
            finally:
                removed(path)

    def keep(self, room: UnpackRoom, key: str, about: Mapping[str, Any]) -> Entry:
        """Puts a filled room into place, unless another process was faster."""
        path = self._images / _checked(key)
        entries = listing(room.tree)
        record = {
            **about,
            "made": time.time(),
            "bytes": sum(entry.size for entry in entries),
            "entries": [list(entry) for entry in entries],
        }
        (room.tree.parent / _RECORD).write_text(json.dumps(record), encoding="utf-8")
        _sync(room.path)
        self._images.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(room.tree.parent, path)
        except OSError as exc:
            found = self.find(key)
            if found is None:
                raise ImageError(f"the image could not be put into the cache: {exc}") from exc
            return found
        return Entry(path=path / _TREE, record=record)

    def prune(self, *, keep_days: float = KEEP_DAYS, keep_bytes: int = KEEP_BYTES) -> int:
        """Drops the images that were used longest ago until both hold, and what crashes left behind; how many went."""
        now = time.time()
        for room in _folders(self._rooms):
            if now - _used(room) > _LATELY:
                self._remove(room)
        used = sorted((_used(path), path) for path in _folders(self._images))
        sizes = {path: int((_record(path) or {}).get("bytes") or 0) for _, path in used}
        total, gone = sum(sizes.values()), 0
        for at, path in used:
            if now - at <= _LATELY or (now - at <= keep_days * 86400 and total <= keep_bytes):
                continue
            if self._drop(path):
                total -= sizes[path]
                gone += 1
        return gone

    def _drop(self, path: Path) -> bool:
        """Renames an entry out of the way at once, then removes it; False if it is in use."""
        aside = self._rooms / uuid.uuid4().hex
        try:
            with files.locked_folder(path, wait=False):
                self._rooms.mkdir(parents=True, exist_ok=True)
                os.rename(path, aside)
                removed(aside)
        except OSError:
            return False
        return True

    def _remove(self, room: Path) -> None:
        try:
            with files.locked_folder(room, wait=False):
                removed(room)
        except OSError:
            pass  # in use, or removed by another process


@contextmanager
def in_use(path: Path) -> Generator[None]:
    """Holds an entry, so that no process prunes it meanwhile."""
    with ExitStack() as stack:
        try:
            stack.enter_context(files.locked_folder(path.parent, shared=True))
            os.stat(path)  # it may have been on its way out when we got the lock
        except OSError:
            raise ImageError(f"the image in {path} was removed meanwhile; fetch it again") from None
        yield


def default_folder(environ: Mapping[str, str]) -> Path:
    """`$HOOKLINE_HOME/images`, else hookline's folder in the user's cache folder (`$XDG_CACHE_HOME`)."""
    home = environ.get("HOOKLINE_HOME")
    if home:
        return Path(home).expanduser() / "images"
    return xdg_folder(environ, "XDG_CACHE_HOME", ".cache")


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key) or key.startswith("."):
        raise ImageError(f"{key!r} is not a name of a cached image")
    return key


def _record(path: Path) -> dict[str, Any] | None:
    try:
        value: Any = json.loads((path / _RECORD).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _is_whole(tree: Path, record: Mapping[str, Any]) -> bool:
    """Names, kinds, modes, sizes and times; contents are not read again."""
    try:
        return listing(tree) == [TreeEntry(*entry) for entry in record.get("entries") or ()]
    except (OSError, TypeError):
        return False


def _folders(folder: Path) -> Iterator[Path]:
    try:
        yield from list(folder.iterdir())
    except FileNotFoundError:
        pass


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()  # just gone


def _sync(folder: Path) -> None:
    """Syncs the whole file system at once; file by file, a large image would take minutes."""
    with files.opened_folder(folder) as fd:
        try:
            ctypes.CDLL(None).syncfs(fd)
        except (OSError, AttributeError):
            os.sync()
