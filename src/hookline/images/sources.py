"""The protocol of image sources, and the source that unpacks any image described by a manifest.

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
from hookline.images.layers import Unpacker
from hookline.images.manifest import (
    Descriptor,
    ImageManifest,
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
class FetchContext:
    """Settings for fetching one image; `check` raises if the fetch was cancelled.

    `told` is called with progress every `pause` seconds.
    """

    platform: Platform
    limits: Limits
    room: Path
    told: Callable[[str], None]
    pause: float
    check: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawManifest:
    """The bytes of a manifest or an index, with its digest."""

    digest: str
    content: bytes
    media_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedImage:
    """The manifest and layers of an unpacked image, for its record in the cache."""

    manifest: str | None = None
    layers: tuple[dict[str, Any], ...] = field(default=())


class ImageSource(Protocol):
    """One image in a folder, an archive or a registry."""

    def digest(self) -> str | None:
        """The digest of the image, which may take a request; None if it is only known after unpacking."""
        ...

    def unpack(self, into: Unpacker) -> UnpackedImage: ...


class BlobStore(Protocol):
    """Storage of manifests and blobs by digest. `label` names the image in messages."""

    label: str

    def known(self) -> str | None:
        """The digest of the image, if it is known without a request."""
        ...

    def top(self) -> RawManifest: ...

    def save(self, descriptor: Descriptor, to: Landing) -> None:
        """Writes the blob to `to`, perhaps only in part; the caller checks it."""
        ...


class ManifestSource:
    """An image whose manifest lists its layers by digest, from any store."""

    def __init__(self, store: BlobStore, context: FetchContext) -> None:
        self._store = store
        self._context = context
        self._top: RawManifest | None = None

    def digest(self) -> str:
        return self._store.known() or self._found().digest

    def unpack(self, into: Unpacker) -> UnpackedImage:
        digest, manifest = self._manifest()
        expected = self._expected(manifest)
        sizes = sum(layer.size for layer in manifest.layers)
        if sizes > self._context.limits.size:
            raise ImageError(
                f"{self._store.label} has {sizes} bytes of layers; the limit is {self._context.limits.size}"
            )
        for layer, diff_id in zip(manifest.layers, expected, strict=True):
            what = f"layer {layer.digest} of {self._store.label}"
            with landing(self._context.room, layer, what, self._context.told, self._context.pause) as (
                to,
                file,
            ):
                self._store.save(layer, to)
                to.check()
                file.seek(0)
                into.layer(file, what, diff_id)
        layers = tuple({"digest": layer.digest, "size": layer.size} for layer in manifest.layers)
        return UnpackedImage(manifest=digest, layers=layers)

    def _found(self) -> RawManifest:
        self._top = self._top or self._store.top()
        return self._top

    def _manifest(self) -> tuple[str, ImageManifest]:
        found = self._found()
        digest, content, media_type = found.digest, found.content, found.media_type
        for _ in range(_DEEPEST_INDEX):
            read = manifest_or_index(content, f"manifest of {self._store.label}", media_type)
            if isinstance(read, ImageManifest):
                return digest, read
            inner = chosen(read, self._context.platform, self._store.label)
            digest, media_type = inner.digest, inner.media_type
            content = _text(self._store, inner, f"manifest {digest} of {self._store.label}")
        raise ImageError(f"{self._store.label} has indexes more than {_DEEPEST_INDEX} deep")

    def _expected(self, manifest: ImageManifest) -> tuple[str | None, ...]:
        """The digests of the unpacked layers; None for each if the configuration is not one of an image."""
        if not manifest.has_image_config:
            return (None,) * len(manifest.layers)
        what = f"configuration of {self._store.label}"
        config = _text(self._store, manifest.config, what)
        check_platform(config, self._context.platform, self._store.label)
        found = diff_ids(config, what)
        if len(found) != len(manifest.layers):
            raise ImageError(f"{what} lists {len(found)} layers, and its manifest {len(manifest.layers)}")
        return found


def check_platform(config: bytes, platform: Platform, label: str) -> None:
    made_for = config_platform(config, f"configuration of {label}")
    if not fits(made_for, platform):
        raise ImageError(f"{label} is for another platform: it has {made_for}, and this is {platform}")


def _text(store: BlobStore, descriptor: Descriptor, what: str) -> bytes:
    if descriptor.size > LARGEST_TEXT:
        raise ImageError(f"{what} has {descriptor.size} bytes; {LARGEST_TEXT} are the limit")
    content = BytesIO()
    to = Landing(content, descriptor, what)
    store.save(descriptor, to)
    to.check()
    return content.getvalue()


def is_local(text: str) -> bool:
    """True if the text names an image on this machine, not in a registry."""
    return text.startswith((*LOCAL, *_PATHS)) or text in (".", "..") or text.endswith(_ARCHIVES)


def local_path(text: str, base: Path, home: str | None) -> Path:
    if text.startswith("~/") and home:
        return Path(home, text[2:])
    return base / text
