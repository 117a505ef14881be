"""A file that is being fetched: hashed and counted as it comes, and only good when both are as announced."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hookline.errors import ImageError
from hookline.images.manifest import Descriptor

PAUSE = 3.0
"""Seconds before a download is worth a word, and between two of them."""


class Landing:
    """The target of a download; `at` is the number of bytes present, `most` the highest number so far."""

    def __init__(
        self,
        file: IO[bytes],
        descriptor: Descriptor,
        what: str,
        told: Callable[[str], None] | None = None,
        pause: float = PAUSE,
    ) -> None:
        self.at = 0
        self.most = 0
        self.what = what
        self._file = file
        self._descriptor = descriptor
        self._told = told
        self._pause = pause
        self._due = time.monotonic() + pause
        self.restart()

    def restart(self) -> None:
        """Discards the bytes so far, because the download cannot be resumed."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.new(self._descriptor.digest.partition(":")[0])
        self.at = 0

    def write(self, chunk: bytes) -> None:
        self.at += len(chunk)
        if self.at > self._descriptor.size:
            raise ImageError(f"{self.what} is longer than its {self._descriptor.size} bytes")
        self._hash.update(chunk)
        try:
            self._file.write(chunk)
        except OSError as exc:
            raise ImageError(f"{self.what} could not be written: {exc.strerror or exc}") from exc
        self.most = max(self.most, self.at)
        if self._told is not None and time.monotonic() >= self._due:
            self._due = time.monotonic() + self._pause
            self._told(f"{self.what}: {_mib(self.at)} of {_mib(self._descriptor.size)}")

    @property
    def whole(self) -> bool:
        return self.at == self._descriptor.size

    def check(self) -> None:
        if not self.whole:
            raise ImageError(
                f"{self.what} is cut off: {self.at} bytes of {self._descriptor.size}; it is not used"
            )
        found = f"{self._hash.name}:{self._hash.hexdigest()}"
        if found != self._descriptor.digest:
            raise ImageError(
                f"{self.what} has the wrong digest {found}, not {self._descriptor.digest}; it is not used"
            )
        self._file.flush()


@contextmanager
def landing(
    room: Path, descriptor: Descriptor, what: str, told: Callable[[str], None], pause: float
) -> Generator[tuple[Landing, IO[bytes]]]:
    """A landing in a file of its own, which is gone afterwards."""
    path = room / "blob"
    try:
        with path.open("w+b") as file:
            yield Landing(file, descriptor, what, told, pause), file
    finally:
        path.unlink(missing_ok=True)


def _mib(size: int) -> str:
    return f"{size / (1024 * 1024):.1f} MiB"
