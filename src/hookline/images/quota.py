"""Limits on the size of an image, counted while it is read, so that a decompression bomb is stopped in time."""

from __future__ import annotations

from dataclasses import dataclass

from hookline.errors import ImageError

_MIB = 1024 * 1024
# A small layer of zeros compresses very well and does no harm.
_FREE = 16 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`size` limits both the unpacked image and its compressed layers; `ratio` is the highest compression ratio."""

    size: int = 2048 * _MIB
    file: int = 1024 * _MIB
    entries: int = 200_000
    depth: int = 64
    ratio: int = 200


LIMITS = Limits()


class Meter:
    """Counts the entries and bytes of one image, over all of its layers."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.entries = 0
        self._read = 0
        self._written = 0

    def entry(self, name: str, size: int) -> None:
        self.entries += 1
        if self.entries > self.limits.entries:
            raise ImageError(f"has more than {self.limits.entries} entries; {name!r} is one too many")
        if size > self.limits.file:
            raise ImageError(f"{name!r} has {size} bytes; a single file may have {self.limits.file}")

    def read(self, size: int, layer: int, packed: int) -> None:
        """Counts `size` more bytes of a layer; `layer` is its total so far, from `packed` compressed bytes."""
        self._read += size
        self._check(self._read)
        if layer > _FREE + self.limits.ratio * packed:
            raise ImageError(
                f"unpacks to more than {self.limits.ratio} times its size, which no honest layer does"
            )

    def written(self, size: int) -> None:
        """Counts bytes written to disk; apart from `read`, because a sparse file is small in its layer."""
        self._written += size
        self._check(self._written)

    def _check(self, size: int) -> None:
        if size > self.limits.size:
            raise ImageError(f"unpacks to more than {self.limits.size} bytes, which is the limit")
