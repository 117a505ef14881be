"""Unpacks the layers of an image into one folder: in order, with whiteouts, under limits, never outside of it.

Files, folders, hard and symbolic links are kept, read-only and without setuid and the like. The current user owns them.
Devices and pipes are left out, with a note.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from hookline import files
from hookline.errors import ImageError
from hookline.images.tree import ImageTree

_MIB = 1024 * 1024
_CHUNK = 256 * 1024
# Long names have headers of their own, each of which is read in one piece.
_LONGEST_HEADER = _MIB
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_AUFS = ".wh..wh."
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_LARGEST_WINDOW = 128 * _MIB
# A small layer of zeros compresses very well and does no harm.
_FREE = 16 * _MIB
_BROKEN = (tarfile.TarError, ValueError, TypeError, LookupError, ArithmeticError, EOFError, zlib.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`size` limits both the unpacked image and its compressed layers; `ratio` is the highest compression ratio."""

    size: int = 2048 * _MIB
    file: int = 1024 * _MIB
    entries: int = 200_000
    depth: int = 64
    ratio: int = 200


LIMITS = Limits()


@dataclass(eq=False)
class Meter:
    """Counts the entries and bytes of one image, over all of its layers, so that a decompression bomb is stopped in time."""

    limits: Limits
    entries: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def entry(self, name: str, size: int) -> None:
        self.entries += 1
        if self.entries > self.limits.entries:
            raise ImageError(f"has more than {self.limits.entries} entries; {name!r} is one too many")
        if size > self.limits.file:
            raise ImageError(f"{name!r} has {size} bytes; a single file may have {self.limits.file}")

    def read(self, size: int, layer: int, packed: int) -> None:
        """Counts `size` more bytes of a layer; `layer` is its total so far, from `packed` compressed bytes."""
        self.bytes_read += size
        self._check(self.bytes_read)
        if layer > _FREE + self.limits.ratio * packed:
            raise ImageError(
                f"unpacks to more than {self.limits.ratio} times its size, which only a malicious layer does"
            )

    def written(self, size: int) -> None:
        """Counts bytes written to disk; apart from `read`, because a sparse file is small in its layer."""
        self.bytes_written += size
        self._check(self.bytes_written)

    def _check(self, size: int) -> None:
        if size > self.limits.size:
            raise ImageError(f"unpacks to more than {self.limits.size} bytes, which is the limit")


class Unpacker:
    """Fills one folder. `check` is called between the pieces and raises if the fetch was cancelled."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: Limits = LIMITS,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._meter = meter = Meter(limits)
        self._tree = ImageTree(folder, depth=limits.depth, unlisted=lambda name: meter.entry(name, 0))
        self._check = check
        self._left_out: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def __enter__(self) -> Unpacker:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._tree.close()

    def layer(self, file: IO[bytes], what: str, diff_id: str | None = None) -> None:
        """Applies one layer over the earlier ones; `diff_id` is the digest its unpacked content must have."""
        with _named(what):
            self._tree.next_layer()
            with unpacked(file) as source:
                stream = _LayerStream(source, file, self._meter, diff_id, self._check)
                self._apply(stream)
                stream.end()

    def copy(self, folder: Path) -> None:
        """Copies a plain folder as it is."""
        with _named(f"{folder}"), files.opened_folder(folder) as fd:
            self._copy(fd, ())

    def finish(self, what: str = "image") -> list[str]:
        """Completes the folder after its last layer; returns notes on everything that was left out."""
        with _named(what):
            self._tree.finish()
        return [
            f"left out {count} {what}, such as {self._examples[what]!r}"
            for what, count in sorted(self._left_out.items())
        ]

    def _apply(self, stream: _LayerStream) -> None:
        with tarfile.TarFile(fileobj=cast("Any", stream), mode="r") as archive:
            for member in archive:
                self._check()
                self._meter.entry(member.name, member.size)
                with _named(repr(member.name)):
                    self._entry(archive, member)
        stream.check_end()

    def _entry(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        if member.size < 0:
            raise ImageError(f"has a size of {member.size} bytes")
        if member.name.startswith("/"):
            self._note("leading '/' of paths", member.name)
        names = _names(member.name)
        mode = member.mode & 0o777
        if any(name.startswith(_AUFS) and name != _OPAQUE for name in names):
            return  # internal files of the aufs file system
        if names and names[-1].startswith(_WHITEOUT):
            self._white_out(names)
        elif member.isdir():
            self._tree.folder(names, mode)
        elif member.issym():
            self._tree.link(names, _target(member.linkname))
        elif member.islnk():
            self._hard_link(names, member.linkname)
        elif member.isreg():
            self._tree.file(names, mode, member.mtime, self._content(archive.extractfile(member)))
        elif member.isdev():
            self._note("pipes" if member.isfifo() else "device nodes", member.name)
        else:
            raise ImageError(f"is of a kind that is not known in layers: {member.type!r}")

    def _white_out(self, names: tuple[str, ...]) -> None:
        hidden = names[-1].removeprefix(_WHITEOUT)
        if names[-1] == _OPAQUE:
            self._tree.white_out(names[:-1])
        elif hidden in ("", ".", ".."):
            raise ImageError("is a whiteout that names no file")
        else:
            self._tree.white_out(names[:-1], hidden)

    def _hard_link(self, names: tuple[str, ...], target: str) -> None:
        other = _names(_target(target))
        if not other:
            raise ImageError(f"is a hard link to {target!r}, which is a folder")
        try:
            self._tree.hard_link(names, other)
        except OSError as exc:
            raise ImageError(f"is a hard link to {target!r}: {exc.strerror}") from exc

    def _content(self, file: IO[bytes] | None) -> Iterator[bytes]:
        written = 0
        for chunk in chunks(file, self._check) if file is not None else ():
            self._meter.written(len(chunk))
            written += len(chunk)
            if written > self._meter.limits.file:
                raise ImageError(f"has more than {self._meter.limits.file} bytes")
            yield chunk

    def _note(self, what: str, example: str) -> None:
        self._left_out[what] += 1
        self._examples.setdefault(what, example)

    def _copy(self, fd: int, names: tuple[str, ...]) -> None:
        for name in sorted(os.listdir(fd)):
            self._check()
            path = (*names, name)
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            self._meter.entry("/".join(path), found.st_size if stat.S_ISREG(found.st_mode) else 0)
            with _named(repr("/".join(path))):
                self._copy_one(fd, name, path, found)

    def _copy_one(self, fd: int, name: str, path: tuple[str, ...], found: os.stat_result) -> None:
        mode = stat.S_IMODE(found.st_mode) & 0o777
        if stat.S_ISDIR(found.st_mode):
            self._tree.folder(path, mode)
            with files.opened_folder(name, fd) as inner:
                self._copy(inner, path)
        elif stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=fd)
            if target.startswith("/"):
                raise ImageError(f"is a link to {target!r}, which leads out of the folder; make it relative")
            self._tree.link(path, target)
        elif stat.S_ISREG(found.st_mode):
            inner = files.open_file(name, fd)
            with open(inner, "rb", buffering=0) as file:
                self._tree.file(path, mode, found.st_mtime, self._content(file))
        else:
            self._note("pipes, sockets or device nodes", "/".join(path))


def chunks(file: IO[bytes], check: Callable[[], None]) -> Iterator[bytes]:
    """The rest of a file in pieces, with `check` called before each."""
    while chunk := file.read(_CHUNK):
        check()
        yield chunk


@contextmanager
def unpacked(file: IO[bytes]) -> Generator[IO[bytes]]:
    """The decompressed content of a file; gzip and zstd are recognised by the first bytes."""
    magic = file.read(4)
    file.seek(-len(magic), os.SEEK_CUR)
    if magic.startswith(_GZIP):
        with gzip.GzipFile(fileobj=file, mode="rb") as source:
            yield cast("IO[bytes]", source)
    elif magic == _ZSTD:
        with _zstd(file) as source:
            yield source
    else:
        yield file


@dataclass(eq=False)
class _LayerStream:
    """The decompressed bytes of a layer: read forward only, counted, and hashed if its digest is known."""

    source: IO[bytes]
    packed: IO[bytes]
    meter: Meter
    digest: str | None
    check: Callable[[], None]

    def __post_init__(self) -> None:
        self._began = self.packed.tell()
        self._hash = hashlib.new(self.digest.partition(":")[0]) if self.digest else None
        self._at = 0
        self._last = b""

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _LONGEST_HEADER:
            raise ImageError(f"has a header of {size} bytes")
        parts: list[bytes] = []
        while size and (part := self.source.read(min(size, _CHUNK))):
            self._count(part)
            parts.append(part)
            size -= len(part)
        self._last = b"".join(parts)
        return self._last

    def tell(self) -> int:
        return self._at

    def seek(self, position: int) -> None:
        if position < self._at:
            raise ImageError("has an entry that points backwards")
        while self._at < position:
            self.check()
            if not self.read(min(position - self._at, _CHUNK)):
                raise ImageError("ends in the middle of an entry")

    def check_end(self) -> None:
        """Raises if the archive ends in a broken header, which tarfile takes for its end."""
        if self._last.strip(b"\0"):
            raise ImageError("has a broken header, so that what follows it cannot be read")

    def end(self) -> None:
        """Reads the bytes after the archive, which the digest covers too, and compares the digest."""
        while self.read(_CHUNK):
            self.check()
        if self._hash is not None and self.digest != f"{self._hash.name}:{self._hash.hexdigest()}":
            raise ImageError(f"unpacks to {self._hash.name}:{self._hash.hexdigest()}, not to {self.digest}")

    def _count(self, part: bytes) -> None:
        self._at += len(part)
        self.meter.read(len(part), self._at, self.packed.tell() - self._began)
        if self._hash is not None:
            self._hash.update(part)


@contextmanager
def _zstd(file: IO[bytes]) -> Generator[IO[bytes]]:
    try:
        import zstandard
    except ImportError as exc:
        raise ImageError("is packed with zstd; to read that, pip install 'hookline[images]'") from exc
    try:
        unpacker = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
        with unpacker.stream_reader(file, read_across_frames=True, closefd=False) as source:
            yield cast("IO[bytes]", source)
    except zstandard.ZstdError as exc:
        raise ImageError(f"is broken: {exc}") from exc


@contextmanager
def _named(what: str) -> Generator[None]:
    """Prefixes errors with a name, once per level."""
    try:
        yield
    except ImageError as exc:
        raise ImageError(f"{what}: {exc}") from exc
    except OSError as exc:
        raise ImageError(f"{what}: could not be written or read: {exc.strerror or exc}") from exc
    except _BROKEN as exc:
        raise ImageError(f"{what}: is broken: {exc}") from exc


def _names(path: str) -> tuple[str, ...]:
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if ".." in names:
        raise ImageError("has '..' in its path, which could lead out of the image")
    if "\0" in path:
        raise ImageError("has a zero byte in its path")
    return names


def _target(text: str) -> str:
    if not text or "\0" in text:
        raise ImageError(f"is a link to {text!r}")
    return text
