"""How much an image may hold, counted while it is read, so that a bomb is stopped before it goes off."""

from __future__ import annotations

from dataclasses import dataclass

from hookline.errors import ImageError

_MIB = 1024 * 1024
# A small layer of mostly nothing packs very well, and harms nobody.
_FREE = 16 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`size` is all of an image unpacked, and also its layers as they are sent; `ratio` what packing may save."""

    size: int = 2048 * _MIB
    file: int = 1024 * _MIB
    entries: int = 200_000
    depth: int = 64
    ratio: int = 200


LIMITS = Limits()


class Meter:
    """Counts what one image holds, over all of its layers."""

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
        """`size` more bytes came out of a layer, `layer` altogether, of `packed` bytes that went in."""
        self._read += size
        self._check(self._read)
        if layer > _FREE + self.limits.ratio * packed:
            raise ImageError(
                f"unpacks to more than {self.limits.ratio} times its size, which no honest layer does"
            )

    def written(self, size: int) -> None:
        """Counted apart: a sparse file is small in its layer and large on the disk."""
        self._written += size
        self._check(self._written)

    def _check(self, size: int) -> None:
        if size > self.limits.size:
            raise ImageError(f"unpacks to more than {self.limits.size} bytes, which is the limit")
