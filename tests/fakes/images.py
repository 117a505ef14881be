"""Images of hooks for tests, made from files in memory; no tool has to be installed.

image = MadeImage.of({"check.sh": "#!/bin/sh\\nexit 0\\n"})
image.write_layout(tmp_path / "layout", tag="v1")
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookline.images.manifest import here

_OCI = "application/vnd.oci.image"
INDEX = f"{_OCI}.index.v1+json"
MANIFEST = f"{_OCI}.manifest.v1+json"
_CONFIG = f"{_OCI}.config.v1+json"
_LAYER = f"{_OCI}.layer.v1.tar"
_PACKINGS = {b"\x1f\x8b": "+gzip", b"\x28\xb5": "+zstd"}

Entries = Mapping[str, str | bytes] | Sequence[tuple[tarfile.TarInfo, bytes]]


def tar_entry(
    name: str,
    content: str | bytes = b"",
    *,
    kind: bytes = tarfile.REGTYPE,
    mode: int = 0o755,
    target: str = "",
    **more: Any,
) -> tuple[tarfile.TarInfo, bytes]:
    """One entry of a layer, as odd as a test wants it; `more` are attributes of TarInfo."""
    info = tarfile.TarInfo(name)
    body = content.encode() if isinstance(content, str) else content
    info.type, info.mode, info.linkname, info.size = kind, mode, target, len(body)
    for key, value in more.items():
        setattr(info, key, value)
    return info, body


def layer(entries: Entries, *, format: int = tarfile.PAX_FORMAT) -> bytes:
    """A layer as a tar, not packed. Files by their names and texts are executable."""
    if isinstance(entries, Mapping):
        entries = [tar_entry(name, content) for name, content in entries.items()]
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as archive:
        for info, body in entries:
            archive.addfile(info, io.BytesIO(body))
    return file.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeImage:
    """A manifest or an index, and all that it refers to, by digest."""

    manifest: bytes
    blobs: Mapping[str, bytes]
    media_type: str = MANIFEST

    @classmethod
    def of(cls, *layers: Entries | bytes, platform: str | None = None, pack: Any = None) -> MadeImage:
        """An image of these layers; bytes are a layer as a tar. `pack` packs one, by default with gzip."""
        flat = [item if isinstance(item, bytes) else layer(item) for item in layers]
        packed = [(pack or _gzip)(item) for item in flat]
        system, architecture, *variant = (platform or f"{here()}").split("/")
        config = {
            "os": system,
            "architecture": architecture,
            **({"variant": variant[0]} if variant else {}),
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest(item) for item in flat]},
        }
        text = json.dumps(config).encode()
        value = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _descriptor(_CONFIG, text),
            "layers": [_descriptor(_LAYER + _PACKINGS.get(item[:2], ""), item) for item in packed],
        }
        return cls(
            manifest=json.dumps(value).encode(), blobs={digest(item): item for item in (text, *packed)}
        )

    @classmethod
    def index(cls, images: Mapping[str, MadeImage]) -> MadeImage:
        """An index of images by platform."""
        items: list[dict[str, Any]] = []
        blobs: dict[str, bytes] = {}
        for platform, image in images.items():
            system, architecture, *variant = platform.split("/")
            made_for = {"os": system, "architecture": architecture} | (
                {"variant": variant[0]} if variant else {}
            )
            items.append({**_descriptor(image.media_type, image.manifest), "platform": made_for})
            blobs |= {**image.blobs, image.digest: image.manifest}
        value = {"schemaVersion": 2, "mediaType": INDEX, "manifests": items}
        return cls(manifest=json.dumps(value).encode(), blobs=blobs, media_type=INDEX)

    @property
    def digest(self) -> str:
        return digest(self.manifest)

    def write_layout(self, folder: Path, tag: str | None = None) -> Path:
        """As an OCI layout, beside the images that are there already."""
        (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        for name, content in {**self.blobs, self.digest: self.manifest}.items():
            (folder / "blobs" / name.replace(":", "/")).write_bytes(content)
        listed = folder / "index.json"
        index: dict[str, Any] = (
            json.loads(listed.read_text()) if listed.exists() else {"schemaVersion": 2, "manifests": []}
        )
        named = {"annotations": {"org.opencontainers.image.ref.name": tag}} if tag else {}
        index["manifests"].append({**_descriptor(self.media_type, self.manifest), **named})
        listed.write_text(json.dumps(index))
        return folder


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest(content), "size": len(content)}


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)
