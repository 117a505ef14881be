"""From references to folders: every source, a registry on loopback that misbehaves, and what a user is told."""

import asyncio
import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
import threading
import time
from types import SimpleNamespace

import pytest
import zstandard

from hookline.agent import Loaded
from hookline.errors import ImageError, UsageError
from hookline.http_client import is_loopback
from hookline.images.fetch import fetch
from hookline.images.layers import Limits
from hookline.images.manifest import FetchContext, Platform, here
from hookline.images.reference import Reference
from hookline.images.registry import RegistrySource
from hookline.tasks import StopToken
from tests.fakes.images import MadeImage, layer, tar_entry
from tests.fakes.registry import FakeRegistry

SCRIPT = "#!/bin/sh\nexit 0\n"
IMAGE = MadeImage.of({"check.sh": SCRIPT}, {"more/notes": "x"})


class Fetching:
    """Fetches into a cache of its own, in an environment without anybody's configuration."""

    def __init__(self, folder):
        self.folder = folder
        self.cache = folder / "cache"
        self.environ = {"HOME": str(folder / "home"), "PATH": os.environ["PATH"]}
        self.told = []

    async def __call__(self, *refs, **how):
        how = {"environ": self.environ, "base": self.folder, "told": self.told.append, "timeout": 60, **how}
        return await fetch(refs, cache=self.cache, **how)

    async def error(self, *refs, **how):
        with pytest.raises(ImageError) as told:
            await self(*refs, **how)
        self.check_nothing_left()
        return str(told.value)

    def check_nothing_left(self):
        assert not list((self.cache / "rooms").iterdir())
        assert not list((self.cache / "images").iterdir() if (self.cache / "images").exists() else ())


@pytest.fixture
def fetching(tmp_path):
    return Fetching(tmp_path)


@pytest.fixture
def registry():
    with FakeRegistry() as registry:
        registry.put("org/hooks", "v1", IMAGE)
        yield registry


@pytest.fixture
def ref(registry):
    return f"{registry.host}/org/hooks:v1"


def files(path):
    return {
        str(item.relative_to(path)): item.read_text() for item in sorted(path.rglob("*")) if item.is_file()
    }


ALL = {"check.sh": SCRIPT, "more/notes": "x"}


# Local sources: what writes one, and how it is named.


def plain_folder(folder):
    (folder / "src/more").mkdir(parents=True)
    (folder / "src/check.sh").write_text(SCRIPT)
    (folder / "src/check.sh").chmod(0o755)
    (folder / "src/more/notes").write_text("x")


def tar_of(folder, path, packed=bytes):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.add(folder, arcname=".")
    path.write_bytes(packed(file.getvalue()))


def saved(folder, path, *, links=False, target="../real/layer.tar"):
    """What `docker save` writes, of the old kind."""
    layers = [layer({"check.sh": SCRIPT}), layer({"more/notes": "x"})]
    ids = [f"sha256:{hashlib.sha256(item).hexdigest()}" for item in layers]
    config = json.dumps(
        {"os": "linux", "architecture": here().architecture, "rootfs": {"diff_ids": ids}}
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    entry = {"Config": name, "RepoTags": ["org/hooks:v1"], "Layers": ["a/layer.tar", "b/layer.tar"]}
    made = [
        tar_entry("a/layer.tar", layers[0]),
        tar_entry("real/layer.tar", layers[1]) if links else tar_entry("b/layer.tar", layers[1]),
        tar_entry(name, config),
        tar_entry("manifest.json", json.dumps([entry])),
    ]
    if links:
        made.append(tar_entry("b/layer.tar", kind=tarfile.SYMTYPE, target=target))
    path.write_bytes(layer(made))


def layout(folder):
    return IMAGE.write_layout(folder / "layout", tag="v1")


def zstd(flat):
    return zstandard.ZstdCompressor().compress(flat)


SOURCES = {
    "./src": plain_folder,
    "dir:src": plain_folder,
    "./layout": layout,
    "oci:layout": layout,
    "oci:layout:v1": layout,
    "image.tar": lambda folder: tar_of(layout(folder), folder / "image.tar"),
    "oci-archive:image": lambda folder: tar_of(layout(folder), folder / "image"),
    "oci-archive:image:v1": lambda folder: tar_of(layout(folder), folder / "image"),
    "image.tar.gz": lambda folder: tar_of(layout(folder), folder / "image.tar.gz", gzip.compress),
    "image.tgz": lambda folder: tar_of(layout(folder), folder / "image.tgz", gzip.compress),
    "image.tar.zst": lambda folder: tar_of(layout(folder), folder / "image.tar.zst", zstd),
    "./saved.tar": lambda folder: saved(folder, folder / "saved.tar"),
    "docker-archive:saved.tar": lambda folder: saved(folder, folder / "saved.tar", links=True),
    "docker-archive:saved.tar:org/hooks:v1": lambda folder: saved(folder, folder / "saved.tar"),
}


@pytest.mark.statement("KA13")
@pytest.mark.parametrize(("source", "write"), SOURCES.items(), ids=SOURCES.keys())
async def test_an_image_is_taken_from_every_kind_of_source(fetching, tmp_path, source, write):
    write(tmp_path)
    ref = "ghcr.io/org/hooks:v1"
    [got] = await fetching(ref, sources={ref: source})
    assert (got.ref, got.name, files(got.path)) == (ref, "hooks", ALL)
    assert os.access(got.path / "check.sh", os.X_OK)
    assert got.digest.startswith("sha256:")
    assert got.notes == ()
    assert not list((fetching.cache / "rooms").iterdir())


async def test_a_path_may_be_the_reference_itself(fetching, tmp_path):
    plain_folder(tmp_path)
    layout(tmp_path)
    found = await fetching("./src", str(tmp_path / "layout"))
    assert [got.name for got in found] == ["src", "layout"]


async def test_a_path_may_be_a_link(fetching, tmp_path):
    plain_folder(tmp_path)
    layout(tmp_path)
    (tmp_path / "hooks").symlink_to("src")
    (tmp_path / "image").symlink_to("layout")
    found = await fetching("./hooks", "oci:image")
    assert [files(got.path) for got in found] == [ALL, ALL]


async def test_another_image_than_the_pinned_one_is_told(fetching, tmp_path):
    plain_folder(tmp_path)
    layout(tmp_path)
    ref = f"ghcr.io/org/hooks@{IMAGE.digest}"
    [got] = await fetching(ref, sources={ref: "./layout"})
    assert got.notes == ()
    [got] = await fetching(ref, sources={ref: "./src"})
    assert got.notes == (f"is pinned, but another image is used instead: {got.digest} from ./src",)


async def test_a_plain_folder_is_another_image_once_it_was_edited(fetching, tmp_path):
    plain_folder(tmp_path)
    [before] = await fetching("./src")
    [again] = await fetching("./src")
    (tmp_path / "src/check.sh").write_text("changed")
    [after] = await fetching("./src")
    assert before == again
    assert before.digest != after.digest
    assert (files(before.path)["check.sh"], files(after.path)["check.sh"]) == (SCRIPT, "changed")


def broken_layout(change):
    def write(folder):
        path = layout(folder)
        change(path)

    return write


def first_layer(path):
    return path / "blobs" / json.loads(IMAGE.manifest)["layers"][0]["digest"].replace(":", "/")


def manifest(path):
    return path / "blobs" / IMAGE.digest.replace(":", "/")


def two_saved(folder):
    entry = {"Config": "c", "Layers": [], "RepoTags": ["a:1"]}
    text = json.dumps([entry, {**entry, "RepoTags": ["b:1"]}])
    (folder / "x.tar").write_bytes(layer({"manifest.json": text, "c": "{}"}))


def folder_with_link(folder):
    (folder / "src").mkdir()
    (folder / "src/l").symlink_to("/etc/passwd")


def skopeo_dir(folder):
    (folder / "src").mkdir()
    (folder / "src/version").write_text("Directory Transport Version: 1.1\n")


WRONG_SOURCES = {
    "nothing there": ("./nothing", lambda folder: None, "nothing'; an image here is a folder"),
    "nothing in the tar": ("x.tar", lambda folder: tar_of(folder, folder / "x.tar"), "without index.json and manifest.json"),
    "no tar": ("x.tar", lambda folder: (folder / "x.tar").write_bytes(b"what is this?" * 99), "cannot be read as a tar"),
    "half a packed tar": (
        "x.tgz",
        lambda folder: tar_of(layout(folder), folder / "x.tgz", lambda flat: gzip.compress(flat)[:300]),
        "cannot be read as a tar",
    ),
    "half a tar of zstd": (
        "x.tar.zst",
        lambda folder: tar_of(layout(folder), folder / "x.tar.zst", lambda flat: zstd(flat)[:200]),
        "x.tar.zst' cannot be read as a tar",
    ),
    "rubbish in zstd": ("x.tar", lambda folder: (folder / "x.tar").write_bytes(zstd(b"x")[:4] + b"rubbish" * 99), "x.tar': is broken: "),
    "a pipe": ("x.tar", lambda folder: os.mkfifo(folder / "x.tar"), "cannot be read as a tar"),
    "no layout": ("oci:src", plain_folder, "is not an OCI layout"),
    "a folder as an archive": ("oci-archive:src", plain_folder, "is a folder, and oci-archive: is for a tar"),
    "an archive as a folder": ("oci:x.tar", lambda folder: saved(folder, folder / "x.tar"), "is a file, and oci: is for a folder"),
    "skopeo's dir": ("./src", skopeo_dir, "what skopeo writes for dir:"),
    "a tag that is not there": ("oci:layout:v2", layout, "has v1; name one as oci:"),
    "several images": (
        "oci:layout",
        lambda folder: (layout(folder), MadeImage.of({"x": "y"}).write_layout(folder / "layout", tag="v2")),
        "has v1, v2; name one as",
    ),
    "a wrong digest": (
        "oci:layout",
        broken_layout(lambda path: first_layer(path).write_bytes(b"x" * first_layer(path).stat().st_size)),
        "has the wrong digest sha256:",
    ),
    "a layer too long": (
        "oci:layout",
        broken_layout(lambda path: first_layer(path).write_bytes(first_layer(path).read_bytes() + b"x")),
        "is longer than its",
    ),
    "a layer cut off": (
        "oci:layout",
        broken_layout(lambda path: first_layer(path).write_bytes(first_layer(path).read_bytes()[:-1])),
        "is cut off: ",
    ),
    "a missing layer": ("oci:layout", broken_layout(lambda path: first_layer(path).unlink()), "is missing: there is no blobs/sha256/"),
    "a missing manifest": (
        "oci:layout",
        broken_layout(lambda path: manifest(path).unlink()),
        "is missing",
    ),
    "a wrong manifest": (
        "oci:layout",
        broken_layout(lambda path: manifest(path).write_bytes(IMAGE.manifest.upper())),
        "has the wrong digest",
    ),
    "a manifest cut off": ("oci:layout", broken_layout(lambda path: manifest(path).write_text("{}")), "is cut off: 2 bytes of"),
    "no index": ("oci:layout", broken_layout(lambda path: (path / "index.json").unlink()), "index.json of"),
    "a broken index": ("oci:layout", broken_layout(lambda path: (path / "index.json").write_text("{")), "is not a JSON object"),
    "two saved": ("x.tar", two_saved, "must name one image, with Config and Layers; it has: a:1, b:1"),
    "a layer that is a link to itself": ("x.tar", lambda folder: saved(folder, folder / "x.tar", links=True, target="layer.tar"), "is missing: there is no b/layer.tar"),
    "a layer that is a link to nothing": ("x.tar", lambda folder: saved(folder, folder / "x.tar", links=True, target="no"), "is missing: there is no b/layer.tar"),
    "a link out of a plain folder": ("./src", folder_with_link, "'l': is a link to '/etc/passwd', which leads out of the folder"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "write", "said"), WRONG_SOURCES.values(), ids=WRONG_SOURCES.keys())
async def test_a_source_that_is_no_image_is_told_and_nothing_of_it_is_kept(
    fetching, tmp_path, source, write, said
):
    write(tmp_path)
    assert said in await fetching.error(source)


async def test_a_layer_of_docker_save_is_checked_by_its_unpacked_digest(fetching, tmp_path):
    saved(tmp_path, tmp_path / "x.tar")
    content = (tmp_path / "x.tar").read_bytes()
    (tmp_path / "x.tar").write_bytes(content.replace(b"exit 0", b"exit 1"))
    assert "unpacks to sha256:" in await fetching.error("x.tar")


async def test_the_tag_of_the_reference_picks_among_the_images_of_a_layout(fetching, tmp_path):
    layout(tmp_path)
    MadeImage.of({"other": "y"}).write_layout(tmp_path / "layout", tag="v2")
    for tag, expected in (("v1", ALL), ("v2", {"other": "y"})):
        ref = f"ghcr.io/org/hooks:{tag}"
        [got] = await fetching(ref, sources={ref: "oci:layout"})
        assert files(got.path) == expected


# The registry.


@pytest.mark.statement("KA13", "KA17")
@pytest.mark.rule("kagent 1.7")
async def test_the_same_reference_twice_is_fetched_once(fetching, registry, ref):
    registry.put("org/other", "v1", MadeImage.of({"other": "y"}))
    other = f"{registry.host}/org/other:v1"
    found = await fetching(ref, other, ref)
    assert [got.ref for got in found] == [ref, other]
    assert registry.paths("hooks/manifests") == ["/v2/org/hooks/manifests/v1"]
    assert len(registry.paths("hooks/blobs")) == 3


async def test_an_image_comes_from_a_registry_with_its_digest(fetching, ref):
    [got] = await fetching(ref)
    assert (got.name, got.digest, files(got.path)) == ("hooks", IMAGE.digest, ALL)


async def test_the_digests_of_all_layers_are_on_record(fetching, ref):
    [got] = await fetching(ref)
    record = json.loads((got.path.parent / "record.json").read_text())
    layers = [
        {"digest": item["digest"], "size": item["size"]} for item in json.loads(IMAGE.manifest)["layers"]
    ]
    assert {key: record[key] for key in ("ref", "digest", "manifest", "platform", "layers")} == {
        "ref": ref,
        "digest": IMAGE.digest,
        "manifest": IMAGE.digest,
        "platform": str(here()),
        "layers": layers,
    }


async def test_an_image_in_the_cache_cannot_be_written(fetching, ref):
    [got] = await fetching(ref)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (got.path, *got.path.rglob("*"))}
    assert modes == {0o555}


async def test_a_spoilt_image_in_the_cache_is_fetched_again(fetching, registry, ref):
    [got] = await fetching(ref)
    os.chmod(got.path / "check.sh", 0o755)
    (got.path / "check.sh").write_text("something else")
    fetching.told.clear()
    [again] = await fetching(ref)
    assert files(again.path) == ALL
    assert "was changed since it was unpacked; it is not used any more" in fetching.told[0]


HOSTS = {
    "127.0.0.1:5000": True,
    "127.9.9.9": True,
    "localhost": True,
    "localhost:5000": True,
    "[::1]:5000": True,
    "0.0.0.0:5000": False,
    "10.0.0.1": False,
    "localhost.example": False,
    "127.0.0.1.example": False,
    "ghcr.io": False,
    "registry:5000": False,
}


@pytest.mark.parametrize(("host", "expected"), HOSTS.items(), ids=HOSTS.keys())
def test_which_hosts_are_this_machine(host, expected):
    assert is_loopback(host) is expected


async def test_a_moving_tag_is_told_with_the_digest_that_was_taken(fetching, registry, ref):
    [got] = await fetching(ref)
    pinned = f"{registry.host}/org/hooks@{IMAGE.digest}"
    assert got.notes == (f"v1 is not pinned; it is {IMAGE.digest} now; to pin it, write {pinned}",)
    assert fetching.told == [f"{ref}: {got.notes[0]}"]


async def test_a_cached_image_costs_one_question_and_a_pinned_one_none(fetching, registry, ref):
    await fetching(ref)
    registry.asked.clear()
    await fetching(ref)
    assert registry.paths() == ["/v2/org/hooks/manifests/v1"]
    registry.asked.clear()
    [got] = await fetching(f"{registry.host}/org/hooks@{IMAGE.digest}")
    assert (registry.paths(), got.notes, files(got.path)) == ([], (), ALL)


async def test_a_tag_that_moved_gives_the_new_image(fetching, registry, ref):
    await fetching(ref)
    registry.put("org/hooks", "v1", MadeImage.of({"check.sh": "new"}))
    [got] = await fetching(ref)
    assert files(got.path) == {"check.sh": "new"}


async def test_a_tag_and_a_digest_asks_for_the_digest(fetching, registry):
    registry.put("org/hooks", "v1", MadeImage.of({"check.sh": "new"}))
    [got] = await fetching(f"{registry.host}/org/hooks:v1@{IMAGE.digest}")
    assert files(got.path) == ALL


async def test_a_source_may_be_another_registry(fetching, registry, ref):
    [got] = await fetching("ghcr.io/org/hooks:v1", sources={"ghcr.io/org/hooks:v1": ref})
    assert (got.ref, files(got.path)) == ("ghcr.io/org/hooks:v1", ALL)


async def test_sha512_is_known_too(fetching, registry):
    digest = f"sha512:{hashlib.sha512(IMAGE.manifest).hexdigest()}"
    registry.replace_manifest("org/hooks", digest, IMAGE.manifest, IMAGE.media_type)
    [got] = await fetching(f"{registry.host}/org/hooks@{digest}")
    assert (got.digest, files(got.path)) == (digest, ALL)


async def test_an_index_of_platforms_gives_the_image_for_this_one(fetching, registry):
    other = "linux/s390x" if here().architecture != "s390x" else "linux/amd64"
    index = MadeImage.index(
        {other: MadeImage.of({"f": "theirs"}, platform=other), f"{here()}": MadeImage.of({"f": "ours"})}
    )
    registry.put("org/many", "v1", index)
    [got] = await fetching(f"{registry.host}/org/many:v1")
    assert (got.digest, files(got.path)) == (index.digest, {"f": "ours"})
    mine = Platform(os="linux", architecture=other.partition("/")[2])
    [got] = await fetching(f"{registry.host}/org/many:v1", platform=mine)
    assert files(got.path) == {"f": "theirs"}


async def test_another_platform_is_told_with_those_there_are(fetching, registry):
    alien = MadeImage.of({"f": "x"}, platform="windows/amd64")
    registry.put("org/hooks", "index", MadeImage.index({"windows/amd64": alien, "plan9/386": alien}))
    registry.put("org/hooks", "single", alien)
    said = await fetching.error(f"{registry.host}/org/hooks:index")
    assert f"has nothing for {here()}; it has: plan9/386, windows/amd64" in said
    said = await fetching.error(f"{registry.host}/org/hooks:single")
    assert f"is for another platform: it has windows/amd64, and this is {here()}" in said


def without_layer(registry):
    registry.drop_blob(json.loads(IMAGE.manifest)["layers"][1]["digest"])


def wrong_layer(registry):
    digest = json.loads(IMAGE.manifest)["layers"][0]["digest"]
    size = json.loads(IMAGE.manifest)["layers"][0]["size"]
    registry.replace_blob(digest, b"x" * size)


def mixed(*others):
    """The layers of our image with the configuration of another."""
    other = MadeImage.of(*others)
    manifest = json.loads(IMAGE.manifest) | {"config": json.loads(other.manifest)["config"]}
    return MadeImage(manifest=json.dumps(manifest).encode(), blobs={**IMAGE.blobs, **other.blobs})


def schema_1(registry):
    kind = "application/vnd.docker.distribution.manifest.v1+prettyjws"
    registry.replace_manifest("org/hooks", "v1", b'{"schemaVersion": 1}', kind)


def wrong_named_digest(registry):
    registry.misbehave("manifests", headers={"Docker-Content-Digest": "sha256:" + "0" * 64})


def too_large(registry):
    manifest = json.loads(IMAGE.manifest)
    manifest["layers"][0]["size"] = 10**15
    registry.replace_manifest("org/hooks", "v1", json.dumps(manifest).encode(), IMAGE.media_type)


# What a registry does, and what is said about it.
TROUBLE = {
    "a missing image": (lambda r: r.replace_manifest("org/hooks", "v1", b"", "") or r.misbehave("manifests", status=404), "manifest of {ref} is missing: {host} does not have it: no luck"),
    "a missing layer": (without_layer, "is missing: {host} does not have it: blob unknown to registry"),
    "a wrong digest": (wrong_layer, "has the wrong digest sha256:"),
    "a wrong digest of the manifest": (wrong_named_digest, "manifest of {ref} has the wrong digest"),
    "another configuration": (lambda r: r.put("org/hooks", "v1", mixed({"a": "1"}, {"b": "2"})), "unpacks to sha256:"),
    "a configuration of fewer layers": (lambda r: r.put("org/hooks", "v1", mixed({"a": "1"})), "configuration of {ref} lists 1 layers, and its manifest 2"),
    "schema 1": (schema_1, "old kind of manifest (schema 1)"),
    "a layer beyond all limits": (too_large, "bytes of layers; the limit is"),
    "html for a manifest": (lambda r: r.misbehave("manifests", body="<html>Welcome</html>"), "{host} answered with text/html, not with a manifest; is it a registry? It begins with b'<html>Welcome"),
    "html for a layer": (lambda r: r.misbehave("blobs", body="<html>" + "x" * 2000), "is longer than its"),
    "always an error": (lambda r: r.misbehave("manifests", times=9, status=503), "{host} answered 503 Service Unavailable: no luck; gave up after 4 tries"),
    "always cut before anything": (lambda r: r.misbehave("blobs", times=99, cut=0), "cut the stream after 0 bytes; gave up after 4 tries"),
    "the manifest always cut": (lambda r: r.misbehave("manifests", times=9, cut=10), "manifest of {ref}"),
    "teapot": (lambda r: r.misbehave("manifests", status=418), "{host} answered 418"),
    "redirects in a circle": (lambda r: r.misbehave("blobs", times=99, location=f"{r.url}/v2/org/hooks/blobs/x"), "redirects more than 5 times"),
    "a redirect to no address": (lambda r: r.misbehave("blobs", location="http://h\xe4st/ x"), "which is not an address"),
    "a redirect to a wrong port": (lambda r: r.misbehave("blobs", location="http://host:99999/"), "which is not an address"),
    "a redirect to nowhere": (lambda r: r.misbehave("blobs", location="file:///etc/passwd"), "redirects to 'file:///etc/passwd', which is not an address"),
}  # fmt: skip


@pytest.mark.parametrize(("prepare", "said"), TROUBLE.values(), ids=TROUBLE.keys())
async def test_a_registry_in_trouble_is_told_and_nothing_of_it_is_used(
    fetching, registry, ref, prepare, said
):
    prepare(registry)
    assert said.format(ref=ref, host=registry.host) in await fetching.error(ref)


async def test_a_registry_that_is_down_is_told(fetching):
    with FakeRegistry() as registry:
        host = registry.host
    said = await fetching.error(f"{host}/org/hooks:v1")
    assert f"{host} was not reached: [Errno 111] Connection refused; gave up after 4 tries" in said


@pytest.mark.parametrize("ranges", [True, False], ids=["resumed", "begun again"])
async def test_a_stream_that_is_cut_is_gone_on_with(fetching, ranges):
    content = os.urandom(50_000)
    image = MadeImage.of({"big": content})
    size = json.loads(image.manifest)["layers"][0]["size"]
    with FakeRegistry(ranges=ranges) as registry:
        registry.put("org/hooks", "v1", image)
        registry.misbehave("blobs", cut=10_000_000)  # the configuration, whole
        registry.misbehave("blobs", cut=20_000)
        registry.misbehave("blobs", cut=25_000)
        [got] = await fetching(f"{registry.host}/org/hooks:v1")
        parts = [asked.headers.get("range") for asked in registry.asked if "blobs" in asked.path][1:]
    assert (got.path / "big").read_bytes() == content
    expected = [None, "bytes=20000-", "bytes=45000-"] if ranges else [None, "bytes=20000-", "bytes=25000-"]
    assert parts == expected
    assert size > 45_000


async def test_a_part_that_cannot_be_had_is_begun_again(fetching, registry, ref):
    registry.misbehave("blobs")
    registry.misbehave("blobs", cut=50)
    registry.misbehave("blobs", status=416)
    [got] = await fetching(ref)
    assert files(got.path) == ALL
    parts = [asked.headers.get("range") for asked in registry.asked if "blobs" in asked.path]
    assert parts == [None, None, "bytes=50-", None, None]


async def test_another_part_than_was_asked_for_is_not_used(fetching, registry, ref):
    registry.misbehave("blobs")
    registry.misbehave("blobs", cut=50)
    registry.misbehave("blobs", headers={"Content-Range": "bytes 0-1/2"})
    [got] = await fetching(ref)
    assert files(got.path) == ALL


async def test_what_passes_is_tried_again(fetching, registry, ref):
    registry.misbehave("manifests", status=503)
    registry.misbehave("manifests", status=429, headers={"Retry-After": "0"})
    registry.misbehave("blobs", status=502)
    [got] = await fetching(ref)
    assert files(got.path) == ALL


@pytest.mark.parametrize("how", ["hang", "drip"])
@pytest.mark.parametrize("kind", ["manifests", "blobs"])
async def test_a_registry_that_is_too_slow_is_ended_at_the_limit(fetching, registry, ref, kind, how):
    registry.misbehave(kind, times=99, **{how: True})
    threads = threading.active_count()
    said = await fetching.error(ref, timeout=0.5)
    assert said == f"{ref}: took longer than 0.5 s; nothing of it is used"
    # One more thread of ours may wait for the next image.
    assert await settled(lambda: threading.active_count() <= threads + 1)


def test_a_registry_that_falls_silent_is_tried_again_and_then_told(registry, ref, tmp_path):
    registry.misbehave("manifests", times=9, hang=True)
    context = FetchContext(
        environ={},
        base=tmp_path,
        room=tmp_path,
        stop=StopToken(),
        told=print,
        platform=here(),
        plain=(),
        limits=Limits(),
        pause=1,
    )
    source = RegistrySource(Reference.read(ref), context, silence=0.1)
    with pytest.raises(ImageError) as told:
        source.read_top()
    assert f"{registry.host} gave no complete answer: timed out; gave up after 4 tries" in str(told.value)
    assert len(registry.paths("manifests")) == 4


async def settled(holds):
    for _ in range(1000):
        if holds():
            return True
        await asyncio.sleep(0.01)
    return False


async def test_cancelling_ends_the_download_and_leaves_nothing(fetching, registry, ref):
    registry.misbehave("blobs", times=99, drip=True)
    task = asyncio.create_task(fetching(ref))
    assert await settled(lambda: registry.paths("blobs"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    fetching.check_nothing_left()


async def test_the_loop_goes_on_while_an_image_is_fetched(fetching, registry, ref):
    registry.misbehave("manifests", times=99, hang=True)
    beats = 0

    async def beat():
        nonlocal beats
        while True:
            await asyncio.sleep(0.001)
            beats += 1

    heart = asyncio.create_task(beat())
    await fetching.error(ref, timeout=0.5)
    heart.cancel()
    assert beats > 3


async def test_a_long_download_says_how_far_it_is(fetching, registry, ref):
    await fetching(ref, pause=0)
    size = json.loads(IMAGE.manifest)["layers"][0]
    assert f"layer {size['digest']} of {ref}: 0.0 MiB of 0.0 MiB" in fetching.told


async def test_plain_http_is_for_this_machine_and_for_those_that_are_named(fetching, registry):
    fetching.environ["http_proxy"] = registry.url
    [got] = await fetching("registry.example/org/hooks:v1", plain={"registry.example"})
    assert files(got.path) == ALL
    # Without that it is TLS, through the proxy for that; here nobody is at home.
    fetching.environ["https_proxy"] = "http://127.0.0.1:1"
    with pytest.raises(ImageError, match=r"registry.example was not reached through the proxy 127\.0\.0\.1"):
        await fetching("registry.example/org/hooks:v1")


async def test_a_registry_without_tls_is_not_talked_to_unless_it_is_named(fetching, registry):
    # The same server under a name that is not known to be this machine.
    port = registry.host.partition(":")[2]
    fetching.environ |= {"https_proxy": "http://127.0.0.1:1", "no_proxy": "x, 0.0.0.0"}
    said = await fetching.error(f"0.0.0.0:{port}/org/hooks:v1")
    assert "no encrypted connection" in said
    assert registry.asked == []


# Whole images that are dangerous, from a registry.
DANGEROUS = {
    "absolute paths": ([tar_entry("/etc/x", "1")], None),
    "..": ([tar_entry("../x", "1")], "'../x': has '..' in its path"),
    "a link out": ([tar_entry("l", kind=tarfile.SYMTYPE, target="../../etc")], "{ref}: 'l' is a link to '../../etc'"),
    "device nodes": ([tar_entry("sda", kind=tarfile.BLKTYPE)], None),
    "a zip bomb": ([tar_entry("zeros", bytes(30 * 1024 * 1024))], "unpacks to more than 200 times its size"),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "said"), DANGEROUS.values(), ids=DANGEROUS.keys())
async def test_a_dangerous_image_is_refused_or_made_harmless_and_told(fetching, registry, entries, said):
    registry.put("org/bad", "v1", MadeImage.of(entries))
    ref = f"{registry.host}/org/bad:v1"
    if said is None:
        [got] = await fetching(ref)
        assert "left out 1" in got.notes[-1]
        assert f"{ref}: {got.notes[-1]}" in fetching.told
    else:
        assert said.format(ref=ref) in await fetching.error(ref)


async def test_the_limits_of_the_caller_hold(fetching, registry, ref):
    assert "has more than 1 entries" in await fetching.error(ref, limits=Limits(entries=1))


async def test_a_layer_packed_with_zstd_is_read(fetching, registry):
    registry.put("org/hooks", "z", MadeImage.of({"f": "x"}, pack=zstd))
    [got] = await fetching(f"{registry.host}/org/hooks:z")
    assert files(got.path) == {"f": "x"}


# What is wrong before anything is fetched.


async def test_two_images_with_the_same_name_are_refused(fetching, registry, ref):
    with pytest.raises(UsageError, match="would both be the folder 'hooks'"):
        await fetching(ref, f"{registry.host}/org/hooks:v2")
    assert registry.asked == []


async def test_a_source_for_a_reference_that_nobody_uses_is_refused_with_a_hint(fetching):
    with pytest.raises(UsageError) as told:
        await fetching("ghcr.io/org/hooks:v1", sources={"ghcr.io/org/hook:v1": "./x"})
    assert str(told.value).endswith("which no hook uses; did you mean 'ghcr.io/org/hooks:v1'?")
    with pytest.raises(UsageError, match="they use: none"):
        await fetching(sources={"x": "./x"})


async def test_a_wrong_reference_is_told(fetching):
    with pytest.raises(UsageError, match="only lower-case letters"):
        await fetching("./nothing", "ghcr.io/Org/hooks:v1")
    with pytest.raises(UsageError, match="only lower-case letters"):
        await fetching("ghcr.io/org/hooks:v1", sources={"ghcr.io/org/hooks:v1": "ghcr.io/Org/hooks:v1"})


def test_the_option_names_a_reference_and_a_source():
    loaded = SimpleNamespace(refs=("ghcr.io/a/b:v1",))
    assert Loaded.image_sources(loaded, ["ghcr.io/a/b:v1=oci:x:v1"]) == {"ghcr.io/a/b:v1": "oci:x:v1"}
    for wrong in ("x", "=x", "x="):
        with pytest.raises(UsageError, match="is not REF=SOURCE"):
            Loaded.image_sources(loaded, [wrong])


async def test_nothing_to_fetch_is_nothing_done(fetching):
    assert await fetching() == []
    assert not fetching.cache.exists()


async def test_a_cache_that_cannot_be_written_is_told(fetching, tmp_path):
    (tmp_path / "cache").write_text("a file in its place")
    plain_folder(tmp_path)
    with pytest.raises(ImageError, match="the cache of images cannot be written"):
        await fetching("./src")


async def test_many_at_once_end_up_with_the_same_folder(fetching, registry, ref):
    found = await asyncio.gather(*(fetching(ref) for _ in range(8)))
    assert len({got.path for [got] in found}) == 1
    assert files(found[0][0].path) == ALL
    assert not list((fetching.cache / "rooms").iterdir())
    assert time.time() - found[0][0].path.stat().st_mtime < 600
