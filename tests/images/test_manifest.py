"""Manifests, indexes and platforms: tables."""

import json

import pytest

from hookline.errors import ImageError
from hookline.images.manifest import (
    Descriptor,
    ImageManifest,
    Platform,
    chosen,
    here,
    layer_digests,
    manifest_or_index,
)

DIGEST = "sha256:" + "0" * 64
CONFIG = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": DIGEST, "size": 2}
LAYER = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": DIGEST, "size": 3}


def platform(text):
    system, architecture, *variant = text.split("/")
    return Platform(os=system, architecture=architecture, variant=variant[0] if variant else None)


def index(*platforms):
    return [
        Descriptor(
            media_type=text or "none", digest=DIGEST, size=1, platform=platform(text) if text else None
        )
        for text in platforms
    ]


def test_a_manifest_of_either_kind_is_read():
    for kind, layer in (
        ("application/vnd.oci.image.manifest.v1+json", LAYER),
        (
            "application/vnd.docker.distribution.manifest.v2+json",
            {**LAYER, "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip"},
        ),
    ):
        text = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": CONFIG, "layers": [layer, layer]})
        read = manifest_or_index(text.encode(), "it")
        assert isinstance(read, ImageManifest)
        assert (read.config.size, [layer.size for layer in read.layers]) == (2, [3, 3])


def test_an_index_is_known_by_its_type_or_by_what_it_has():
    body = {
        "schemaVersion": 2,
        "manifests": [{**LAYER, "platform": {"os": "linux", "architecture": "amd64"}}],
    }
    bare = manifest_or_index(json.dumps(body).encode(), "it")
    docker = "application/vnd.docker.distribution.manifest.list.v2+json"
    typed = manifest_or_index(json.dumps(body).encode(), "it", f"{docker}; charset=utf-8")
    assert not isinstance(bare, ImageManifest)
    assert bare == typed
    assert str(bare[0].platform) == "linux/amd64"


GOOD = {"schemaVersion": 2, "config": CONFIG, "layers": [LAYER]}
WRONG = {
    "html": (b"<html>hello</html>", "is not a JSON object; it begins with b'<html>"),
    "a list": ([], "is not a JSON object"),
    "schema 1": ({"schemaVersion": 1, "fsLayers": []}, "old kind of manifest (schema 1)"),
    "no version": ({}, "schemaVersion is None, not 2"),
    "something else": ({"schemaVersion": 2, "mediaType": "x/y"}, "neither an image manifest nor an index"),
    "no list of layers": ({**GOOD, "layers": "x"}, "it: layers is not a list"),
    "no config": ({**GOOD, "config": None}, "it: config is not an object"),
    "no digest": ({**GOOD, "layers": [{**LAYER, "digest": "md5:0"}]}, "layers[0] has no digest that can be checked"),
    "no size": ({**GOOD, "layers": [{**LAYER, "size": -1}]}, "layers[0] has no size: -1"),
    "size as a word": ({**GOOD, "layers": [{**LAYER, "size": True}]}, "layers[0] has no size: True"),
    "an artifact": (
        {**GOOD, "layers": [{**LAYER, "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip"}]},
        "not an image of files: it has a layer of type 'application/vnd.cncf.helm",
    ),
    "deep": (b"[" * 100_000, "is not a JSON object"),
}  # fmt: skip


@pytest.mark.parametrize(("value", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_is_no_manifest_is_told(value, said):
    with pytest.raises(ImageError) as told:
        manifest_or_index(value if isinstance(value, bytes) else json.dumps(value).encode(), "it")
    assert said in str(told.value)


# this machine, what there is, which is taken
CHOICES = {
    "the same": ("linux/amd64", ["linux/arm64", "linux/amd64", "windows/amd64"], "linux/amd64"),
    "the first of two": ("linux/amd64", ["linux/amd64", "linux/amd64"], "linux/amd64"),
    "v8 needs no word": ("linux/arm64/v8", ["linux/arm64"], "linux/arm64"),
    "v8 said": ("linux/arm64", ["linux/arm64/v8"], "linux/arm64/v8"),
    "the variant": ("linux/arm/v7", ["linux/arm/v6", "linux/arm/v7"], "linux/arm/v7"),
    "an older variant runs": ("linux/arm/v7", ["linux/arm/v5", "linux/arm/v6"], "linux/arm/v6"),
    "beside attestations": ("linux/amd64", ["unknown/unknown", "linux/amd64"], "linux/amd64"),
    "only one, for anything": ("linux/amd64", [None], "none"),
}


@pytest.mark.parametrize(("ours", "there", "taken"), CHOICES.values(), ids=CHOICES.keys())
def test_the_image_for_this_machine_is_chosen(ours, there, taken):
    assert chosen(index(*there), platform(ours), "it").media_type == taken


@pytest.mark.parametrize(
    ("ours", "there", "listed"),
    [
        ("linux/amd64", ["linux/arm64", "windows/amd64", "unknown/unknown"], "linux/arm64, windows/amd64"),
        ("linux/arm/v6", ["linux/arm/v7"], "linux/arm/v7"),
        ("linux/amd64", ["linux/amd64/v3"], "linux/amd64/v3"),
        ("linux/amd64", [], "no platform at all"),
    ],
)
def test_another_platform_is_an_error_that_lists_which_there_are(ours, there, listed):
    with pytest.raises(ImageError) as told:
        chosen(index(*there), platform(ours), "it")
    assert str(told.value) == f"it has nothing for {ours}; it has: {listed}"


def test_this_machine_has_a_platform():
    assert here().os == "linux"
    assert chosen(index(f"{here()}"), here(), "it").media_type == f"{here()}"


def test_a_configuration_says_what_it_is_for_and_lists_its_layers():
    layers = {"rootfs": {"diff_ids": [DIGEST]}}
    text = json.dumps({"os": "linux", "architecture": "arm", "variant": "v6", **layers})
    assert layer_digests(text.encode(), platform("linux/arm/v6"), "it", 1) == (DIGEST,)
    assert layer_digests(json.dumps(layers).encode(), here(), "it", 1) == (DIGEST,)
    with pytest.raises(
        ImageError, match="it is for another platform: it has linux/arm/v6, and this is linux/amd64"
    ):
        layer_digests(text.encode(), platform("linux/amd64"), "it", 1)
    with pytest.raises(ImageError, match="configuration of it lists 1 layers, and its manifest 2"):
        layer_digests(text.encode(), platform("linux/arm/v6"), "it", 2)
    for wrong in ({}, {"rootfs": {}}, {"rootfs": {"diff_ids": ["x"]}}):
        with pytest.raises(ImageError, match=r"rootfs\.diff_ids"):
            layer_digests(json.dumps(wrong).encode(), here(), "it", 1)
