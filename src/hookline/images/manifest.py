"""Manifests, indexes and platforms of images, read from the JSON of registries and layouts. Bytes in, values out."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hookline.errors import ImageError
from hookline.images.reference import is_digest

_OCI = "application/vnd.oci.image"
_DOCKER = "application/vnd.docker"
_INDEXES = (f"{_OCI}.index.v1+json", f"{_DOCKER}.distribution.manifest.list.v2+json")
_MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.distribution.manifest.v2+json")
_OLD = tuple(f"{_DOCKER}.distribution.manifest.v1+{end}" for end in ("json", "prettyjws"))
_CONFIGS = (f"{_OCI}.config.v1+json", f"{_DOCKER}.container.image.v1+json")
# The compression is recognised by content; the type only has to say that the layer is a file tree.
_LAYERS = frozenset(
    {
        *(f"{_OCI}.layer.v1.tar{end}" for end in ("", "+gzip", "+zstd")),
        *(f"{_OCI}.layer.nondistributable.v1.tar{end}" for end in ("", "+gzip", "+zstd")),
        *(f"{_DOCKER}.image.rootfs.diff.tar{end}" for end in ("", ".gzip", ".zstd")),
        f"{_DOCKER}.image.rootfs.foreign.diff.tar.gzip",
    }
)
ACCEPTED = (*_INDEXES, *_MANIFESTS)

_MACHINES = {
    "x86_64": ("amd64", None),
    "aarch64": ("arm64", "v8"),
    "arm64": ("arm64", "v8"),
    "armv7l": ("arm", "v7"),
    "armv6l": ("arm", "v6"),
    "i686": ("386", None),
    "i386": ("386", None),
    "ppc64le": ("ppc64le", None),
    "s390x": ("s390x", None),
    "riscv64": ("riscv64", None),
    "loongarch64": ("loong64", None),
}


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
    """A reference to a blob or manifest by its digest."""

    media_type: str
    digest: str
    size: int
    platform: Platform | None = None
    annotations: Mapping[str, Any] | None = None

    @property
    def named(self) -> str | None:
        """The tag of an image in a layout."""
        name = (self.annotations or {}).get("org.opencontainers.image.ref.name")
        return name if isinstance(name, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageManifest:
    config: Descriptor
    layers: tuple[Descriptor, ...]

    @property
    def has_image_config(self) -> bool:
        return self.config.media_type in _CONFIGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    manifests: tuple[Descriptor, ...]


def here() -> Platform:
    """The platform of this machine."""
    machine = os.uname().machine
    architecture, variant = _MACHINES.get(machine, (machine, None))
    return Platform(os="linux", architecture=architecture, variant=variant)


def manifest_or_index(content: bytes, what: str, media_type: str | None = None) -> ImageManifest | Index:
    """Reads a manifest or an index; `what` names it in errors, `media_type` is the type its sender declared."""
    value = json_object(content, what)
    kind = value.get("mediaType") or (media_type or "").partition(";")[0].strip()
    if value.get("schemaVersion") == 1 or kind in _OLD:
        raise ImageError(
            f"{what} is an old kind of manifest (schema 1), which cannot be checked;"
            " build or push the image again with a current tool"
        )
    if value.get("schemaVersion") != 2:
        raise ImageError(
            f"{what} is no image manifest: schemaVersion is {value.get('schemaVersion')!r}, not 2"
        )
    if kind in _INDEXES or (kind not in _MANIFESTS and "manifests" in value):
        return Index(manifests=_descriptors(value, "manifests", what))
    if kind not in _MANIFESTS and "layers" not in value:
        raise ImageError(f"{what} is neither an image manifest nor an index of them: its type is {kind!r}")
    layers = _descriptors(value, "layers", what)
    for layer in layers:
        _check_layer(layer, what)
    return ImageManifest(config=_descriptor(value.get("config"), f"{what}: config"), layers=layers)


def chosen(index: Index, platform: Platform, what: str) -> Descriptor:
    """The image in an index that is for `platform`."""
    fitting = [
        (rank, number, item)
        for number, item in enumerate(index.manifests)
        if (rank := _rank(item.platform, platform)) is not None
    ]
    if fitting:
        return min(fitting, key=lambda found: found[:2])[2]
    if len(index.manifests) == 1 and index.manifests[0].platform is None:
        return index.manifests[0]
    there = sorted({f"{item.platform}" for item in index.manifests if _is_real(item.platform)})
    raise ImageError(f"{what} has nothing for {platform}; it has: {', '.join(there) or 'no platform at all'}")


def config_platform(content: bytes, what: str) -> Platform | None:
    """The platform in an image's configuration, if there is one."""
    value = json_object(content, what)
    return _platform(value)


def fits(made_for: Platform | None, platform: Platform) -> bool:
    return made_for is None or _rank(made_for, platform) is not None


def diff_ids(content: bytes, what: str) -> tuple[str, ...]:
    """The digests of the unpacked layers, from an image's configuration."""
    rootfs: Any = json_object(content, what).get("rootfs")
    found: Any = cast("dict[str, Any]", rootfs).get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(found, list):
        raise ImageError(f"{what} lists no layers: rootfs.diff_ids is {found!r}")
    for item in cast("list[Any]", found):
        if not isinstance(item, str) or not is_digest(item):
            raise ImageError(f"{what}: rootfs.diff_ids has {item!r}, which is no digest")
    return tuple(cast("list[str]", found))


def json_object(content: bytes, what: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ImageError(f"{what} is not a JSON object; it begins with {content[:60]!r}")
    return cast("dict[str, Any]", value)


def digest_of(content: bytes, like: str = "sha256:") -> str:
    """The digest of some bytes, by the same algorithm as another digest."""
    algorithm = like.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def _rank(made_for: Platform | None, platform: Platform) -> int | None:
    """The rank of an image for a platform, 0 is best; None if it does not run there."""
    if made_for is None or (made_for.os, made_for.architecture) != (platform.os, platform.architecture):
        return None
    usual = {"arm64": "v8", "arm": "v7"}.get(platform.architecture)
    theirs, ours = made_for.variant or usual, platform.variant or usual
    if theirs == ours:
        return 0
    # A newer ARM runs what was made for an older one. Of amd64, v1 is what every machine runs.
    if platform.architecture == "arm" and theirs and ours:
        return None if theirs > ours else ord(ours[-1]) - ord(theirs[-1])
    return 1 if platform.architecture == "amd64" and theirs == "v1" else None


def _is_real(platform: Platform | None) -> bool:
    """False for attestations, which an index lists under an unknown platform."""
    return platform is not None and platform.os != "unknown"


def _check_layer(layer: Descriptor, what: str) -> None:
    if layer.media_type not in _LAYERS:
        raise ImageError(
            f"{what} is no image of files: it has a layer of type {layer.media_type!r};"
            " build the hooks as a container image, for example FROM scratch with COPY"
        )


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
    platform, annotations = item.get("platform"), item.get("annotations")
    return Descriptor(
        media_type=kind if isinstance(kind, str) else "",
        digest=digest,
        size=size,
        platform=_platform(platform),
        annotations=cast("dict[str, Any]", annotations) if isinstance(annotations, dict) else None,
    )


def _platform(value: Any) -> Platform | None:
    if not isinstance(value, dict):
        return None
    item = cast("dict[str, Any]", value)
    system, architecture, variant = (item.get(key) for key in ("os", "architecture", "variant"))
    if not isinstance(system, str) or not isinstance(architecture, str) or not system or not architecture:
        return None
    return Platform(
        os=system,
        architecture=architecture,
        variant=variant if isinstance(variant, str) and variant else None,
    )
