"""Images by their manifests: what their JSON says, and the source that unpacks one, with every blob checked."""

from __future__ import annotations

import hashlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol, cast

from hookline.engine.plain import inner, json_or_none
from hookline.errors import ImageError
from hookline.images.layers import Limits, Unpacker
from hookline.images.reference import is_digest
from hookline.tasks import StopToken

PAUSE = 3.0
"""Seconds before the first progress message of a download, and between two of them."""

_OCI = "application/vnd.oci.image"
_DOCKER = "application/vnd.docker"
_INDEXES = (f"{_OCI}.index.v1+json", f"{_DOCKER}.distribution.manifest.list.v2+json")
_MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.distribution.manifest.v2+json")
_OLD = tuple(f"{_DOCKER}.distribution.manifest.v1+{end}" for end in ("json", "prettyjws"))
_CONFIGS = (f"{_OCI}.config.v1+json", f"{_DOCKER}.container.image.v1+json")
# The compression is recognised by content; the type only shows that the layer is a file tree.
_LAYERS = frozenset(
    {
        *(f"{_OCI}.layer.v1.tar{end}" for end in ("", "+gzip", "+zstd")),
        *(f"{_OCI}.layer.nondistributable.v1.tar{end}" for end in ("", "+gzip", "+zstd")),
        *(f"{_DOCKER}.image.rootfs.diff.tar{end}" for end in ("", ".gzip", ".zstd")),
        f"{_DOCKER}.image.rootfs.foreign.diff.tar.gzip",
    }
)
ACCEPTED = (*_INDEXES, *_MANIFESTS)

_NAME_KEY = "org.opencontainers.image.ref.name"
LARGEST_TEXT = 4 * 1024 * 1024
_DEEPEST_INDEX = 4

_MACHINES = {
    "x86_64": ("amd64", None),
    "aarch64": ("arm64", "v8"),
    "arm64": ("arm64", "v8"),
    "armv7l": ("arm", "v7"),
    "armv6l": ("arm", "v6"),
    "i686": ("386", None),
    "i386": ("386", None),
    "loongarch64": ("loong64", None),
}
"""Architecture and variant of each machine whose name is not its architecture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """The platform an image is built for, in the terms of Go (GOOS, GOARCH)."""

    os: str
    architecture: str
    variant: str | None = None

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A reference to a blob or manifest by its digest; `named` is the tag of an image in a layout."""

    media_type: str
    digest: str
    size: int
    platform: Platform | None = None
    named: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageManifest:
    config: Descriptor
    layers: tuple[Descriptor, ...]


@dataclass(eq=False)
class Landing:
    """The target of a download; `at` is the number of bytes present, `most` the highest number so far."""

    file: IO[bytes]
    descriptor: Descriptor
    what: str
    told: Callable[[str], None] | None = None
    pause: float = PAUSE

    def __post_init__(self) -> None:
        self.most = 0
        self._due = time.monotonic() + self.pause
        self.restart()

    def restart(self) -> None:
        """Discards the bytes so far, because the download cannot be resumed."""
        self.file.seek(0)
        self.file.truncate()
        self._hash = hashlib.new(self.descriptor.digest.partition(":")[0])
        self.at = 0

    def write(self, chunk: bytes) -> None:
        self.at += len(chunk)
        if self.at > self.descriptor.size:
            raise ImageError(f"{self.what} is longer than its {self.descriptor.size} bytes")
        self._hash.update(chunk)
        try:
            self.file.write(chunk)
        except OSError as exc:
            raise ImageError(f"{self.what} could not be written: {exc.strerror or exc}") from exc
        self.most = max(self.most, self.at)
        if self.told is not None and time.monotonic() >= self._due:
            self._due = time.monotonic() + self.pause
            self.told(f"{self.what}: {_mib(self.at)} of {_mib(self.descriptor.size)}")

    @property
    def whole(self) -> bool:
        return self.at == self.descriptor.size

    def check(self) -> None:
        if not self.whole:
            raise ImageError(
                f"{self.what} is cut off: {self.at} bytes of {self.descriptor.size}; it is not used"
            )
        found = f"{self._hash.name}:{self._hash.hexdigest()}"
        if found != self.descriptor.digest:
            raise ImageError(
                f"{self.what} has the wrong digest {found}, not {self.descriptor.digest}; it is not used"
            )
        self.file.flush()


def here() -> Platform:
    """The platform of this machine."""
    machine = os.uname().machine
    architecture, variant = _MACHINES.get(machine, (machine, None))
    return Platform(os="linux", architecture=architecture, variant=variant)


def manifest_or_index(
    content: bytes, what: str, media_type: str | None = None
) -> ImageManifest | Sequence[Descriptor]:
    """Reads a manifest, or the manifests of an index; `what` names it in errors, `media_type` is the type its sender declared."""
    value = json_object(content, what)
    kind = value.get("mediaType") or (media_type or "").partition(";")[0].strip()
    if value.get("schemaVersion") == 1 or kind in _OLD:
        raise ImageError(
            f"{what} is an old kind of manifest (schema 1), which cannot be checked;"
            " build or push the image again with a current tool"
        )
    if value.get("schemaVersion") != 2:
        raise ImageError(
            f"{what} is not an image manifest: schemaVersion is {value.get('schemaVersion')!r}, not 2"
        )
    if kind in _INDEXES or (kind not in _MANIFESTS and "manifests" in value):
        return _descriptors(value, "manifests", what)
    if kind not in _MANIFESTS and "layers" not in value:
        raise ImageError(f"{what} is neither an image manifest nor an index of them: its type is {kind!r}")
    layers = _descriptors(value, "layers", what)
    foreign = [layer.media_type for layer in layers if layer.media_type not in _LAYERS]
    if foreign:
        raise ImageError(
            f"{what} is not an image of files: it has a layer of type {foreign[0]!r};"
            " build the hooks as a container image, for example FROM scratch with COPY"
        )
    return ImageManifest(config=_descriptor(value.get("config"), f"{what}: config"), layers=layers)


def chosen(index: Sequence[Descriptor], platform: Platform, what: str) -> Descriptor:
    """The image in an index that is for `platform`."""
    ranks = {item: rank for item in index if (rank := _rank(item.platform, platform)) is not None}
    if ranks:
        return min(ranks, key=ranks.__getitem__)
    if len(index) == 1 and index[0].platform is None:
        return index[0]
    # An index lists attestations under an unknown platform.
    real = (item.platform for item in index if item.platform and item.platform.os != "unknown")
    there = sorted(map(str, set(real)))
    raise ImageError(f"{what} has nothing for {platform}; it has: {', '.join(there) or 'no platform at all'}")


def layer_digests(config: bytes, platform: Platform, label: str, count: int) -> tuple[str, ...]:
    """The digests of the unpacked layers, from the configuration of an image that has `count` and is for `platform`."""
    what = f"configuration of {label}"
    value = json_object(config, what)
    made_for = _platform(value)
    if made_for is not None and _rank(made_for, platform) is None:
        raise ImageError(f"{label} is for another platform: it has {made_for}, and this is {platform}")
    match value:
        case {"rootfs": {"diff_ids": [*digests]}}:
            pass
        case _:
            raise ImageError(f"{what} lists no layers: there is no list rootfs.diff_ids")
    for item in digests:
        if not isinstance(item, str) or not is_digest(item):
            raise ImageError(f"{what}: rootfs.diff_ids has {item!r}, which is not a digest")
    if len(digests) != count:
        raise ImageError(f"{what} lists {len(digests)} layers, and its manifest {count}")
    return tuple(digests)


def json_object(content: bytes, what: str) -> dict[str, Any]:
    value = json_or_none(content)
    if value is None:
        raise ImageError(f"{what} is not a JSON object; it begins with {content[:60]!r}")
    return value


def digest_of(content: bytes, like: str = "sha256:") -> str:
    """The digest of some bytes, by the same algorithm as another digest."""
    algorithm = like.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchContext:
    """The settings for fetching one image. `told` gets warnings and, every `pause` seconds, progress.

    Relative paths start at `base`; `plain` are registries that may be used without TLS; `room` is a folder for files in
    between.
    """

    environ: Mapping[str, str]
    base: Path
    room: Path
    stop: StopToken
    told: Callable[[str], None]
    platform: Platform
    plain: Collection[str]
    limits: Limits
    pause: float


class ImageSource(Protocol):
    """One image in a folder, an archive or a registry."""

    def digest(self) -> str | None:
        """The digest of the image, which may take a request; None if it is only known after unpacking."""
        ...

    def unpack(self, into: Unpacker) -> Mapping[str, Any]:
        """Unpacks the image; returns its manifest and layers, for its record in the cache."""
        ...


@dataclass(eq=False)
class ManifestSource(ABC):
    """An image whose manifest lists its layers by digest. `label` names it in messages."""

    label: str
    context: FetchContext

    @abstractmethod
    def read_top(self) -> tuple[Descriptor, bytes]:
        """Reads the manifest or index of the image."""

    @abstractmethod
    def save(self, to: Landing) -> None:
        """Writes the blob of a landing into it, perhaps only in part; the caller checks it."""

    @cached_property
    def top(self) -> tuple[Descriptor, bytes]:
        return self.read_top()

    def digest(self) -> str:
        return self.top[0].digest

    def unpack(self, into: Unpacker) -> Mapping[str, Any]:
        digest, manifest = self._manifest()
        expected = self._expected(manifest)
        sizes = sum(layer.size for layer in manifest.layers)
        if sizes > self.context.limits.size:
            raise ImageError(
                f"{self.label} has {sizes} bytes of layers; the limit is {self.context.limits.size}"
            )
        for layer, diff_id in zip(manifest.layers, expected, strict=True):
            what = f"layer {layer.digest} of {self.label}"
            with TemporaryFile(dir=self.context.room) as file:
                self._land(Landing(file, layer, what, self.context.told, self.context.pause))
                file.seek(0)
                into.layer(file, what, diff_id)
        layers = [{"digest": layer.digest, "size": layer.size} for layer in manifest.layers]
        return {"manifest": digest, "layers": layers}

    def text(self, descriptor: Descriptor, what: str) -> bytes:
        """The content of a small blob."""
        what = f"{what} of {self.label}"
        if descriptor.size > LARGEST_TEXT:
            raise ImageError(f"{what} has {descriptor.size} bytes; {LARGEST_TEXT} are the limit")
        content = BytesIO()
        self._land(Landing(content, descriptor, what))
        return content.getvalue()

    def _land(self, to: Landing) -> None:
        self.save(to)
        to.check()

    def _manifest(self) -> tuple[str, ImageManifest]:
        descriptor, content = self.top
        for _ in range(_DEEPEST_INDEX):
            read = manifest_or_index(content, f"manifest of {self.label}", descriptor.media_type)
            if isinstance(read, ImageManifest):
                return descriptor.digest, read
            descriptor = chosen(read, self.context.platform, self.label)
            content = self.text(descriptor, f"manifest {descriptor.digest}")
        raise ImageError(f"{self.label} has indexes more than {_DEEPEST_INDEX} deep")

    def _expected(self, manifest: ImageManifest) -> tuple[str | None, ...]:
        """The digests of the unpacked layers; None for each if the configuration is not one of an image."""
        count = len(manifest.layers)
        if manifest.config.media_type not in _CONFIGS:
            return (None,) * count
        config = self.text(manifest.config, "configuration")
        return layer_digests(config, self.context.platform, self.label, count)


def _rank(made_for: Platform | None, platform: Platform) -> int | None:
    """The rank of an image for a platform, 0 is best; None if it does not run there."""
    if made_for is None or (made_for.os, made_for.architecture) != (platform.os, platform.architecture):
        return None
    usual = {"arm64": "v8", "arm": "v7"}.get(platform.architecture)
    theirs, ours = made_for.variant or usual, platform.variant or usual
    if theirs == ours:
        return 0
    # A newer ARM runs programs for an older one. Every amd64 machine runs v1.
    if platform.architecture == "arm" and theirs and ours:
        return None if theirs > ours else ord(ours[-1]) - ord(theirs[-1])
    return 1 if platform.architecture == "amd64" and theirs == "v1" else None


def _descriptors(value: Mapping[str, Any], key: str, what: str) -> tuple[Descriptor, ...]:
    items: Any = value.get(key)
    if not isinstance(items, list):
        raise ImageError(f"{what}: {key} is not a list")
    return tuple(
        _descriptor(item, f"{what}: {key}[{number}]")
        for number, item in enumerate(cast("Sequence[Any]", items))
    )


def _descriptor(value: Any, what: str) -> Descriptor:
    if not isinstance(value, dict):
        raise ImageError(f"{what} is not an object")
    item = cast("dict[str, Any]", value)
    kind, digest, size = (item.get(key) for key in ("mediaType", "digest", "size"))
    if not isinstance(digest, str) or not is_digest(digest):
        raise ImageError(f"{what} has no digest that can be checked (sha256 or sha512): {digest!r}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ImageError(f"{what} has no size: {size!r}")
    named = inner(item, "annotations", _NAME_KEY)
    return Descriptor(
        media_type=kind if isinstance(kind, str) else "",
        digest=digest,
        size=size,
        platform=_platform(item.get("platform")),
        named=named if isinstance(named, str) else None,
    )


def _platform(value: Any) -> Platform | None:
    match value:
        case {"os": str(system), "architecture": str(architecture)} if system and architecture:
            variant = value.get("variant")
            known = variant if isinstance(variant, str) and variant else None
            return Platform(os=system, architecture=architecture, variant=known)
        case _:
            return None


def _mib(size: int) -> str:
    return f"{size / (1024 * 1024):.1f} MiB"
