"""Where images come from, as one protocol, and what is done with the two kinds that say what they hold by digests.

A source is named by a path, by a path with one of skopeo's prefixes, or by a reference to a registry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

from hookline.errors import ImageError
from hookline.images.download import Landing, landing
from hookline.images.layers import Unpacking
from hookline.images.manifest import (
    Descriptor,
    Manifest,
    Platform,
    chosen,
    config_platform,
    diff_ids,
    fits,
    manifest_or_index,
)
from hookline.images.quota import Limits
from hookline.images.reference import LOCAL

_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst")
_PATHS = ("/", "./", "../", "~/")
LARGEST_TEXT = 4 * 1024 * 1024
_DEEPEST_INDEX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What holds for fetching one image: `check` raises where nobody waits any more.

    `told` gets progress, a word every `pause` seconds.
    """

    platform: Platform
    limits: Limits
    room: Path
    told: Callable[[str], None]
    pause: float
    check: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A manifest or an index, and how it is known."""

    digest: str
    content: bytes
    media_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What was unpacked, for the record."""

    manifest: str | None = None
    layers: tuple[dict[str, Any], ...] = field(default=())


class Source(Protocol):
    """One image somewhere."""

    def digest(self) -> str | None:
        """How it is known, which may have to be asked for; None where that is only seen by unpacking it."""
        ...

    def unpack(self, into: Unpacking) -> Image: ...


class Store(Protocol):
    """Keeps manifests and blobs by their digests. `label` names the image there."""

    label: str

    def known(self) -> str | None:
        """The digest of the image, where it is known without asking."""
        ...

    def top(self) -> Found: ...

    def save(self, descriptor: Descriptor, to: Landing) -> None:
        """Writes it there, perhaps not whole; who asked checks that."""
        ...


class Described:
    """An image whose manifest lists its layers by digest, in whatever store."""

    def __init__(self, store: Store, order: Order) -> None:
        self._store = store
        self._order = order
        self._top: Found | None = None

    def digest(self) -> str:
        return self._store.known() or self._found().digest

    def unpack(self, into: Unpacking) -> Image:
        digest, manifest = self._manifest()
        expected = self._expected(manifest)
        sizes = sum(layer.size for layer in manifest.layers)
        if sizes > self._order.limits.size:
            raise ImageError(
                f"{self._store.label} has {sizes} bytes of layers; the limit is {self._order.limits.size}"
            )
        for layer, diff_id in zip(manifest.layers, expected, strict=True):
            what = f"layer {layer.digest} of {self._store.label}"
            with landing(self._order.room, layer, what, self._order.told, self._order.pause) as (
                to,
                file,
            ):
                self._store.save(layer, to)
                to.check()
                file.seek(0)
                into.layer(file, what, diff_id)
        layers = tuple({"digest": layer.digest, "size": layer.size} for layer in manifest.layers)
        return Image(manifest=digest, layers=layers)

    def _found(self) -> Found:
        self._top = self._top or self._store.top()
        return self._top

    def _manifest(self) -> tuple[str, Manifest]:
        found = self._found()
        digest, content, media_type = found.digest, found.content, found.media_type
        for _ in range(_DEEPEST_INDEX):
            read = manifest_or_index(content, f"manifest of {self._store.label}", media_type)
            if isinstance(read, Manifest):
                return digest, read
            inner = chosen(read, self._order.platform, self._store.label)
            digest, media_type = inner.digest, inner.media_type
            content = _text(self._store, inner, f"manifest {digest} of {self._store.label}")
        raise ImageError(f"{self._store.label} has indexes more than {_DEEPEST_INDEX} deep")

    def _expected(self, manifest: Manifest) -> tuple[str | None, ...]:
        """The digests of the unpacked layers, where the image's configuration is one that says so."""
        if not manifest.has_image_config:
            return (None,) * len(manifest.layers)
        what = f"configuration of {self._store.label}"
        config = _text(self._store, manifest.config, what)
        check_platform(config, self._order.platform, self._store.label)
        found = diff_ids(config, what)
        if len(found) != len(manifest.layers):
            raise ImageError(f"{what} lists {len(found)} layers, and its manifest {len(manifest.layers)}")
        return found


def check_platform(config: bytes, platform: Platform, label: str) -> None:
    made_for = config_platform(config, f"configuration of {label}")
    if not fits(made_for, platform):
        raise ImageError(f"{label} is for another platform: it has {made_for}, and this is {platform}")


def _text(store: Store, descriptor: Descriptor, what: str) -> bytes:
    if descriptor.size > LARGEST_TEXT:
        raise ImageError(f"{what} has {descriptor.size} bytes; {LARGEST_TEXT} are the limit")
    content = BytesIO()
    to = Landing(content, descriptor, what)
    store.save(descriptor, to)
    to.check()
    return content.getvalue()


def is_local(text: str) -> bool:
    """Whether this names something on this machine, and not in a registry."""
    return text.startswith((*LOCAL, *_PATHS)) or text in (".", "..") or text.endswith(_ARCHIVES)


def local_path(text: str, base: Path, home: str | None) -> Path:
    if text.startswith("~/") and home:
        return Path(home, text[2:])
    return base / text
