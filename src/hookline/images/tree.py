"""A folder that is filled and walked through file descriptors only, so that no link and no race leads out of it.

Paths are resolved as in a container: an absolute link starts at the root of the tree. A path that climbs above that
root is refused; so is every link that does, once the tree is complete.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hookline import files
from hookline.errors import ImageError

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40  # as many as the kernel follows
_LATEST = 2**33
_WRITABLE = 0o222

Names = tuple[str, ...]


class OpenFolder(NamedTuple):
    """An open folder of a tree, with its path after all links were resolved."""

    fd: int
    names: Names


class TreeEntry(NamedTuple):
    """One entry of a finished tree, with enough detail to detect changes."""

    path: str
    kind: str
    mode: int
    size: int
    mtime: int
    target: str


class ImageTree:
    """A tree while it is filled, read-only at the end; `depth` limits how deep its folders may be nested.

    `unlisted` is called with each folder that has no entry of its own and is made because of its content.
    """

    def __init__(self, folder: Path, *, depth: int, unlisted: Callable[[str], None]) -> None:
        self._root = files.open_folder(folder)
        self._depth = depth
        self._unlisted = unlisted
        self._modes: dict[Names, int] = {(): 0o755}
        self._upper: set[Names] = set()
        self._absolute: dict[Names, str] = {}

    def close(self) -> None:
        os.close(self._root)

    def next_layer(self) -> None:
        """Begins a layer: whiteouts in it remove only entries of earlier layers."""
        self._upper.clear()

    def folder(self, names: Names, mode: int) -> None:
        if not names:
            self._modes[()] = mode
            return
        with self._place(names[:-1]) as place:
            name = names[-1]
            if not stat.S_ISDIR(_mode(place.fd, name)):
                self._make(place, name)
            self._modes[(*place.names, name)] = mode
            self._upper.add((*place.names, name))

    def file(self, names: Names, mode: int, mtime: float, chunks: Iterable[bytes]) -> None:
        with self._cleared(names) as (place, name):
            fd = os.open(name, _NEW_FILE, 0o600, dir_fd=place.fd)
            with open(fd, "wb", buffering=0) as file:
                for chunk in chunks:
                    files.write_all(file.fileno(), chunk)
                os.fchmod(fd, mode & ~_WRITABLE | 0o400)
                _date(fd, mtime)

    def link(self, names: Names, target: str) -> None:
        """Adds a symbolic link; an absolute one is made relative to the root of the tree."""
        with self._cleared(names) as (place, name):
            if target.startswith("/"):
                self._absolute[(*place.names, name)] = target
                target = "../" * len(place.names) + target.lstrip("/") or "."
            os.symlink(target, name, dir_fd=place.fd)

    def hard_link(self, names: Names, other: Names) -> None:
        with self._place(other[:-1], make=False) as source:
            found = _mode(source.fd, other[-1])
            if not found or stat.S_ISDIR(found):
                raise FileNotFoundError(errno.ENOENT, "there is no such file to link to")
            known = self._absolute.get((*source.names, other[-1]))
            if known is not None and stat.S_ISLNK(found):
                # The relative target is valid only in its own folder.
                self.link(names, known)
                return
            with self._cleared(names, spare=(*source.names, other[-1])) as (place, name):
                os.link(other[-1], name, src_dir_fd=source.fd, dst_dir_fd=place.fd, follow_symlinks=False)

    def white_out(self, names: Names, entry: str | None = None) -> None:
        """Removes an entry of earlier layers in a folder, or all of them."""
        try:
            with self._place(names, make=False) as place:
                for name in os.listdir(place.fd) if entry is None else [entry]:
                    self._take_away(place, name)
        except (FileNotFoundError, NotADirectoryError):
            pass  # nothing there, nothing to remove

    def finish(self) -> None:
        """Sets the modes of the folders and checks the targets of the links, once all entries are there."""
        with self._place(()) as root:
            self._finish(root)

    def _finish(self, place: OpenFolder) -> None:
        for name in os.listdir(place.fd):
            mode = _mode(place.fd, name)
            if stat.S_ISLNK(mode):
                self._check_link(place, name)
            elif stat.S_ISDIR(mode):
                with _opened(place, name) as inner:
                    self._finish(inner)
        mode = self._modes.get(place.names, 0o755)
        os.fchmod(place.fd, mode & ~_WRITABLE | 0o500)

    def _check_link(self, place: OpenFolder, name: str) -> None:
        target = os.readlink(name, dir_fd=place.fd)
        try:
            if _climbs(target, len(place.names)):
                raise _LeadsOut
            with self._place((*place.names, *target.split("/")), make=False):
                pass
        except _LeadsOut:
            shown = "/".join((*place.names, name))
            raise ImageError(f"{shown!r} is a link to {target!r}, which leads out of the image") from None
        except OSError:
            pass  # The target is a file or missing; neither leads out.

    def _take_away(self, place: OpenFolder, name: str) -> bool:
        """Removes an entry of earlier layers; False if some of it stays, because this layer brought it."""
        path = (*place.names, name)
        found = _mode(place.fd, name)
        if stat.S_ISDIR(found):
            with _opened(place, name) as inner:
                gone = [self._take_away(inner, child) for child in os.listdir(inner.fd)]
            if all(gone) and path not in self._upper:
                os.rmdir(name, dir_fd=place.fd)
                return True
            return False
        if path in self._upper:
            return False
        if found:
            os.unlink(name, dir_fd=place.fd)
        return True

    @contextmanager
    def _cleared(self, names: Names, spare: Names | None = None) -> Generator[tuple[OpenFolder, str]]:
        """The folder for a new entry and its name in it; an existing entry of that name is removed."""
        if not names:
            raise ImageError("the root of the image is not a folder in it")
        with self._place(names[:-1]) as place:
            path = (*place.names, names[-1])
            if path == spare:
                raise ImageError("is a link to itself")
            _remove(place.fd, names[-1])
            self._absolute.pop(path, None)
            yield place, names[-1]
            self._upper.add(path)

    @contextmanager
    def _place(self, names: Names, *, make: bool = True) -> Generator[OpenFolder]:
        steps = [OpenFolder(os.dup(self._root), ())]
        try:
            self._follow(steps, deque(names), make)
            yield steps[-1]
        finally:
            for step in steps:
                os.close(step.fd)

    def _follow(self, steps: list[OpenFolder], todo: deque[str], make: bool) -> None:
        links = 0
        while todo:
            name = todo.popleft()
            if name == "..":
                _back(steps)
            elif name not in ("", "."):
                target = self._step(steps, name, make)
                links += target is not None
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, "its links form a loop")
                if target is not None:
                    while target.startswith("/") and len(steps) > 1:
                        _back(steps)
                    todo.extendleft(reversed(target.split("/")))

    def _step(self, steps: list[OpenFolder], name: str, make: bool) -> str | None:
        """Opens the next folder; returns the target if it is a link instead."""
        place = steps[-1]
        found = _mode(place.fd, name)
        if stat.S_ISLNK(found):
            return os.readlink(name, dir_fd=place.fd)
        if not stat.S_ISDIR(found) and make:
            self._unlisted("/".join((*place.names, name)))
            self._make(place, name)
        if len(steps) > self._depth:
            raise ImageError(f"has folders more than {self._depth} deep")
        steps.append(OpenFolder(files.open_folder(name, place.fd), (*place.names, name)))
        return None

    def _make(self, place: OpenFolder, name: str) -> None:
        _remove(place.fd, name)
        os.mkdir(name, 0o700, dir_fd=place.fd)
        path = (*place.names, name)
        self._modes[path] = 0o755
        self._upper.add(path)
        self._absolute.pop(path, None)


class _LeadsOut(ImageError):
    """A path climbs above the root of the tree."""

    def __init__(self) -> None:
        super().__init__("leads out of the image")


def listing(folder: Path) -> list[TreeEntry]:
    """Every entry below a folder, sorted; links are not followed."""
    with files.opened_folder(folder) as fd:
        return sorted(_listed(OpenFolder(fd, ())))


def removed(folder: Path) -> None:
    """Removes a folder with all its content, read-only or not."""
    with files.opened_folder(folder.parent) as fd:
        _remove(fd, folder.name)


def _listed(place: OpenFolder) -> Iterator[TreeEntry]:
    for name in os.listdir(place.fd):
        found = os.stat(name, dir_fd=place.fd, follow_symlinks=False)
        path = "/".join((*place.names, name))
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISDIR(found.st_mode):
            yield TreeEntry(path, "folder", mode, 0, 0, "")
            with _opened(place, name) as inner:
                yield from _listed(inner)
        elif stat.S_ISLNK(found.st_mode):
            yield TreeEntry(path, "link", 0, 0, 0, os.readlink(name, dir_fd=place.fd))
        else:
            kind = "file" if stat.S_ISREG(found.st_mode) else "other"
            yield TreeEntry(path, kind, mode, found.st_size, found.st_mtime_ns, "")


@contextmanager
def _opened(place: OpenFolder, name: str) -> Generator[OpenFolder]:
    with files.opened_folder(name, place.fd) as fd:
        yield OpenFolder(fd, (*place.names, name))


def _back(steps: list[OpenFolder]) -> None:
    if len(steps) == 1:
        raise _LeadsOut
    os.close(steps.pop().fd)


def _mode(fd: int, name: str) -> int:
    """The mode of an entry, without following links; 0 if there is none."""
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _remove(fd: int, name: str) -> None:
    found = _mode(fd, name)
    if not found:
        return
    if not stat.S_ISDIR(found):
        os.unlink(name, dir_fd=fd)
        return
    left = files.remove_tree(name, fd)
    if left:
        raise left[0][1]


def _date(fd: int, mtime: float) -> None:
    # The time in an archive may be any number; NaN becomes the epoch.
    seconds = min(max(mtime, 0), _LATEST) if mtime == mtime else 0
    os.utime(fd, (seconds, seconds))


def _climbs(target: str, depth: int) -> bool:
    for name in target.split("/"):
        if name == "..":
            depth -= 1
        elif name not in ("", "."):
            depth += 1
        if depth < 0:
            return True
    return False
