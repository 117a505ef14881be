"""Makes an image of a folder, as an OCI layout on disk: one layer with its files at the root, as `FROM scratch` does.

python examples/kagent/make_layout.py examples/kagent/security-hooks layout
hookline run examples/kagent/agent.yaml "tidy up" --image ghcr.io/org/security-hooks:v1.0=oci:layout ...
"""

import gzip
import hashlib
import io
import json
import platform
import sys
import tarfile
from pathlib import Path

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
MEDIA = "application/vnd.oci.image."


def layout(folder, target, *, tag):
    """Writes the layout; returns the digest of its manifest."""
    blobs = Path(target, "blobs/sha256")
    blobs.mkdir(parents=True)
    layer = packed(Path(folder))
    squeezed = gzip.compress(layer, mtime=0)
    config = {
        "architecture": MACHINES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}manifest.v1+json",
        "config": written(blobs, "config.v1+json", json.dumps(config).encode()),
        "layers": [written(blobs, "layer.v1.tar+gzip", squeezed)],
    }
    top = written(blobs, "manifest.v1+json", json.dumps(manifest).encode())
    named = {**top, "annotations": {"org.opencontainers.image.ref.name": tag}}
    Path(target, "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))
    Path(target, "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    return top["digest"]


def packed(folder):
    """The folder's files as a tar, the same for the same content."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for file in sorted(folder.rglob("*")):
            member = tar.gettarinfo(file, arcname=str(file.relative_to(folder)))
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = ""
            tar.addfile(member, io.BytesIO(file.read_bytes()) if member.isfile() else None)
    return content.getvalue()


def written(blobs, kind, content):
    """A blob under its digest, and how a manifest names it."""
    name = hashlib.sha256(content).hexdigest()
    (blobs / name).write_bytes(content)
    return {"mediaType": MEDIA + kind, "digest": f"sha256:{name}", "size": len(content)}


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: make_layout.py FOLDER LAYOUT")
    print(layout(sys.argv[1], sys.argv[2], tag="v1.0"))
