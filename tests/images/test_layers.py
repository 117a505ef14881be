"""Layers to a folder: what is kept, what is taken away, and everything that must not get out of it."""

import bz2
import gzip
import hashlib
import io
import os
import stat
import subprocess
import sys
import tarfile
from contextlib import nullcontext

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hookline.errors import ImageError
from hookline.images.layers import Limits, Unpacker
from tests.fakes.images import layer, tar_entry
from tests.images.awkward import FOLDER, HARD, LAYERS, LINK


def unpack(folder, *layers, **how):
    """The folder, and what had to be told."""
    folder.mkdir()
    with Unpacker(folder, **how) as unpacking:
        for number, content in enumerate(layers):
            packed = content if isinstance(content, bytes) else layer(content)
            unpacking.layer(io.BytesIO(packed), f"layer {number}")
        return unpacking.finish()


def shown(folder):
    """Every path with what it is: a text, a link's target, or a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        else:
            found[name] = "/" if path.is_dir() else path.read_text()
    return found


def test_files_folders_links_and_modes_are_kept(tmp_path):
    told = unpack(
        tmp_path / "x",
        [
            tar_entry("bin", kind=FOLDER, mode=0o750),
            tar_entry("bin/check.sh", "#!/bin/sh", mode=0o755),
            tar_entry("notes.txt", "read me", mode=0o640),
            tar_entry("latest", kind=LINK, target="bin/check.sh"),
            tar_entry("bin/same", kind=HARD, target="notes.txt"),
        ],
    )
    assert told == []
    assert shown(tmp_path / "x") == {
        "bin": "/",
        "bin/check.sh": "#!/bin/sh",
        "bin/same": "read me",
        "latest": "-> bin/check.sh",
        "notes.txt": "read me",
    }
    modes = {name: stat.S_IMODE((tmp_path / "x" / name).stat().st_mode) for name in ("bin", "notes.txt")}
    assert modes == {"bin": 0o550, "notes.txt": 0o440}
    assert (tmp_path / "x/bin/same").samefile(tmp_path / "x/notes.txt")


def test_the_time_of_a_file_is_kept_whatever_it_says(tmp_path):
    entries = [
        tar_entry("a", mtime=1234567890),
        tar_entry("b", mtime=0, pax_headers={"mtime": "nan"}),
        tar_entry("c", mtime=0, pax_headers={"mtime": "-1e300"}),
    ]
    unpack(tmp_path / "x", entries)
    assert [int((tmp_path / "x" / name).stat().st_mtime) for name in "abc"] == [1234567890, 0, 0]


def test_setuid_and_the_like_are_dropped(tmp_path):
    unpack(tmp_path / "x", [tar_entry("s", mode=0o6755), tar_entry("t", kind=FOLDER, mode=0o1777)])
    assert stat.S_IMODE((tmp_path / "x/s").stat().st_mode) == 0o555
    assert stat.S_IMODE((tmp_path / "x/t").stat().st_mode) == 0o555


def test_read_only_means_that_nothing_can_be_written_and_all_be_read(tmp_path):
    entries = [tar_entry("d", kind=FOLDER, mode=0o777), tar_entry("d/f", "x", mode=0o222)]
    unpack(tmp_path / "x", entries)
    modes = [stat.S_IMODE((tmp_path / "x" / name).stat().st_mode) for name in (".", "d", "d/f")]
    assert modes == [0o555, 0o555, 0o400]


def test_a_folder_nobody_may_enter_can_still_be_filled_by_later_layers(tmp_path):
    unpack(tmp_path / "x", [tar_entry("d", kind=FOLDER, mode=0o000)], {"d/f": "x"})
    assert stat.S_IMODE((tmp_path / "x/d").stat().st_mode) == 0o500
    os.chmod(tmp_path / "x/d", 0o700)
    assert shown(tmp_path / "x") == {"d": "/", "d/f": "x"}


@pytest.mark.parametrize(("layers", "expected"), LAYERS.values(), ids=LAYERS.keys())
def test_layers_add_up(tmp_path, layers, expected):
    unpack(tmp_path / "x", *layers)
    assert shown(tmp_path / "x") == expected


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_targets_of_both_formats(tmp_path, format):
    name, target = "n" * 150 + "/" + "m" * 150, "t" * 200
    entries = [tar_entry(name, "1"), tar_entry("l", kind=LINK, target=target)]
    unpack(tmp_path / "x", layer(entries, format=format))
    assert shown(tmp_path / "x") == {"n" * 150: "/", name: "1", "l": f"-> {target}"}


PACKINGS = {
    "gzip": gzip.compress,
    "gzip in several members": lambda flat: gzip.compress(flat[:700]) + gzip.compress(flat[700:]),
    "zstd": lambda flat: zstandard.ZstdCompressor().compress(flat),
    "zstd in several frames": lambda flat: b"".join(
        zstandard.ZstdCompressor().compress(part) for part in (flat[:700], flat[700:])
    ),
    "not packed": bytes,
}


@pytest.mark.parametrize("pack", PACKINGS.values(), ids=PACKINGS.keys())
def test_layers_of_every_packing(tmp_path, pack):
    unpack(tmp_path / "x", pack(layer({"f": "x" * 5000})))
    assert shown(tmp_path / "x") == {"f": "x" * 5000}


def test_sparse_files_are_read(tmp_path):
    # As GNU tar writes them: two blocks of data with nothing around and between them.
    info, body = tar_entry("s", b"A" * 512 + b"B" * 512, kind=tarfile.GNUTYPE_SPARSE)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    for number, (offset, size) in enumerate(((1024, 512), (4096, 512))):
        at = 386 + number * 24
        header[at : at + 24] = b"%011o\0%011o\0" % (offset, size)
    header[483:495] = b"%011o\0" % 8192
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    unpack(tmp_path / "x", bytes(header) + body + bytes(1024))
    content = (tmp_path / "x/s").read_bytes()
    assert len(content) == 8192
    assert (content[1024:1536], content[4096:4608], content.count(0)) == (b"A" * 512, b"B" * 512, 7168)


# What gets out of the tree or is no honest layer, and what is said about it.
REFUSED = {
    "..": ({"a/../../etc/passwd": "x"}, "'a/../../etc/passwd': has '..' in its path"),
    ".. at the end": ([tar_entry("a/..", kind=FOLDER)], "has '..' in its path"),
    "a link out": ([tar_entry("d/l", kind=LINK, target="../../etc")], "'d/l' is a link to '../../etc', which leads out"),
    "an absolute link out": ([tar_entry("l", kind=LINK, target="/../etc")], "'l' is a link to '../etc', which leads out"),
    "a link out by way of nothing": ([tar_entry("l", kind=LINK, target="no/../../etc")], "'l' is a link to 'no/../../etc'"),
    "a link out by way of another": (
        [tar_entry("deep/up", kind=LINK, target=".."), tar_entry("l", kind=LINK, target="deep/up/../etc")],
        "'l' is a link to 'deep/up/../etc', which leads out",
    ),
    "a file through a link out": (
        [tar_entry("l", kind=LINK, target="../out"), tar_entry("l/f", "x")],
        "'l/f': leads out of the image",
    ),
    "a hard link out": ([tar_entry("h", kind=HARD, target="../../etc/passwd")], "'h': has '..' in its path"),
    "a hard link through a link out": (
        [tar_entry("l", kind=LINK, target=".."), tar_entry("h", kind=HARD, target="l/x")],
        "'h': leads out of the image",
    ),
    "a hard link to nothing": ([tar_entry("h", kind=HARD, target="gone")], "'h': is a hard link to 'gone': there is no such"),
    "a hard link to a folder": (
        [tar_entry("d", kind=FOLDER), tar_entry("h", kind=HARD, target="d")],
        "'h': is a hard link to 'd': there is no such file",
    ),
    "a hard link to itself": ([tar_entry("h", "x"), tar_entry("h", kind=HARD, target="h")], "'h': is a link to itself"),
    "a whiteout of the folder above": ({"d/.wh...": ""}, "is a whiteout that names no file"),
    "a whiteout without a name": ({"d/.wh.": ""}, "is a whiteout that names no file"),
    "the root as a file": ([tar_entry("./", "x")], "'./': the root of the image is not a folder in it"),
    "a link to no name": ([tar_entry("l", kind=LINK, target="")], "'l': is a link to ''"),
    "a zero byte": ([tar_entry("x", pax_headers={"path": "a\0b"})], "has a zero byte in its path"),
    "a name too long for the disk": ({"n" * 300: ""}, "File name too long"),
    "a path through links in a circle": (
        [
            tar_entry("a", kind=LINK, target="b"),
            tar_entry("b", kind=LINK, target="a"),
            tar_entry("a/f", "x"),
        ],
        "'a/f': could not be written or read: its links form a loop",
    ),
    "a kind that is not known": ([tar_entry("v", kind=b"V")], "'v': is of a kind that is not known in layers: b'V'"),
    "no tar": (b"this is not a tar at all" * 100, "layer 0: is broken: "),
    "half a gzip": (gzip.compress(layer({"f": "x" * 9000}))[:60], "layer 0: "),
    "bzip2": (bz2.compress(layer({"f": "x"})), "layer 0: is broken: "),
    "cut in a file": (layer({"f": "x" * 9000})[:5000], "'f': is broken: unexpected end of data"),
    "rubbish between entries": (layer({"f": "x"})[:1024] + b"rubbish " * 64 + layer({"g": "y"}), "has a broken header"),
    "half a header": (layer({"f": "x"})[:1024] + layer({"g": "y"})[:100], "has a broken header"),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_honest_layer_is_refused_by_name(tmp_path, entries, said):
    (tmp_path / "out").mkdir()
    with pytest.raises(ImageError) as told:
        unpack(tmp_path / "x", entries)
    assert said in str(told.value)
    assert not list((tmp_path / "out").iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"x", "out"}


def test_absolute_paths_stay_inside_and_are_told(tmp_path):
    told = unpack(tmp_path / "x", {"/etc/passwd": "mine"})
    assert shown(tmp_path / "x") == {"etc": "/", "etc/passwd": "mine"}
    assert told == ["left out 1 leading '/' of paths, such as '/etc/passwd'"]


def test_device_nodes_and_pipes_are_left_out_and_told(tmp_path):
    told = unpack(
        tmp_path / "x",
        [
            tar_entry("dev/sda", kind=tarfile.BLKTYPE, devmajor=8),
            tar_entry("dev/null", kind=tarfile.CHRTYPE),
            tar_entry("dev/pipe", kind=tarfile.FIFOTYPE),
            tar_entry("f", "x"),
        ],
    )
    assert shown(tmp_path / "x") == {"f": "x"}
    assert told == ["left out 2 device nodes, such as 'dev/sda'", "left out 1 pipes, such as 'dev/pipe'"]


def test_a_whiteout_through_a_link_takes_nothing_away_outside(tmp_path):
    (tmp_path / "keep").write_text("x")
    with pytest.raises(ImageError, match="leads out"):
        unpack(tmp_path / "x", [tar_entry("l", kind=LINK, target="..")], {"l/.wh.keep": ""})
    assert (tmp_path / "keep").read_text() == "x"


def test_a_link_that_somebody_puts_there_meanwhile_is_not_followed(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "out").mkdir()
    with Unpacker(tmp_path / "x") as unpacking:
        unpacking.layer(io.BytesIO(layer({"d/f": "1"})), "first")
        (tmp_path / "x/d/f").unlink()
        (tmp_path / "x/d").rmdir()
        (tmp_path / "x/d").symlink_to(tmp_path / "out")
        # As everywhere in the tree, an absolute link starts at its root, where there is no such folder yet.
        unpacking.layer(io.BytesIO(layer({"d/g": "2"})), "second")
    assert not list((tmp_path / "out").iterdir())


# A bomb, small limits, and what is said.
BOMBS = {
    "all in all": ({"a": "x" * 6000, "b": "x" * 6000}, Limits(size=10_000), "unpacks to more than 10000 bytes"),
    "one file": ({"a": "x" * 6000}, Limits(file=5000), "'a' has 6000 bytes; a single file may have 5000"),
    "how many": ({f"f{n}": "" for n in range(11)}, Limits(entries=10), "more than 10 entries; 'f10' is one too many"),
    "how deep": ({"d/" * 11 + "f": ""}, Limits(depth=10), "folders more than 10 deep"),
    "how many folders that nobody listed": (
        {f"{n}/" * 9 + "f": "" for n in range(2)},
        Limits(entries=15),
        "more than 15 entries; '1/1/1/1/1' is one too many",
    ),
    "a header": (
        [tar_entry("x", pax_headers={"comment": "c" * 2_000_000})],
        Limits(),
        "has a header of 20",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "limits", "said"), BOMBS.values(), ids=BOMBS.keys())
def test_a_limit_is_kept_while_reading(tmp_path, entries, limits, said):
    with pytest.raises(ImageError) as told:
        unpack(tmp_path / "x", entries, limits=limits)
    assert said in str(told.value)


@pytest.mark.parametrize(
    "pack", [gzip.compress, lambda flat: zstandard.ZstdCompressor().compress(flat)], ids=["gzip", "zstd"]
)
def test_a_zip_bomb_is_stopped_by_how_well_it_is_packed(tmp_path, pack):
    bomb = pack(layer({"zeros": bytes(40 * 1024 * 1024)}))
    with pytest.raises(ImageError, match="unpacks to more than 200 times its size"):
        unpack(tmp_path / "x", bomb)
    assert sum(path.stat().st_size for path in (tmp_path / "x").iterdir()) < 30 * 1024 * 1024


def test_a_sparse_bomb_is_stopped_by_what_it_would_write(tmp_path):
    info, body = tar_entry("s", b"A" * 512, kind=tarfile.GNUTYPE_SPARSE)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"%011o\0%011o\0" % (0, 512)
    header[483:495] = b"%011o\0" % (6 * 1024**3)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises(ImageError, match="'s' has 6442450944 bytes; a single file may have"):
        unpack(tmp_path / "x", bytes(header) + body + bytes(1024))


def odd_header(kind, size):
    """A header whose size is any number, which the library would not write."""
    info, _ = tar_entry("odd", kind=kind)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = size.to_bytes(12, "big", signed=True)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (tarfile.REGTYPE, "'odd': has a size of -512 bytes"),
        (tarfile.GNUTYPE_SPARSE, "has an entry that points backwards"),
        (tarfile.GNUTYPE_LONGNAME, "has a header of -512 bytes"),
        (tarfile.XHDTYPE, "has a header of -512 bytes"),
    ],
)
def test_an_entry_with_a_size_below_zero_does_not_make_us_read_for_ever(tmp_path, kind, said):
    first = layer({"f": "x"})[:1024]
    with pytest.raises(ImageError) as told:
        unpack(tmp_path / "x", first + odd_header(kind, -512) + bytes(2048))
    assert ("has a broken header" if the_library_sees_it() else said) in str(told.value)


def the_library_sees_it():
    """Whether this release refuses such a header, which it then takes for the end of the archive."""
    try:
        with tarfile.open(fileobj=io.BytesIO(odd_header(tarfile.REGTYPE, -512) + bytes(1024))) as archive:
            archive.getmembers()
    except tarfile.ReadError:
        return True
    return False


def test_the_digest_of_the_unpacked_layer_is_checked(tmp_path):
    flat = layer({"f": "1"})
    digest = f"sha256:{hashlib.sha256(flat).hexdigest()}"
    for name, expected in (("right", digest), ("wrong", "sha512:" + "0" * 128)):
        (tmp_path / name).mkdir()
        with (
            Unpacker(tmp_path / name) as unpacking,
            pytest.raises(ImageError, match="not to sha512:000") if name == "wrong" else nullcontext(),
        ):
            unpacking.layer(io.BytesIO(gzip.compress(flat)), "layer", expected)


WITHOUT = """
import io, sys
from pathlib import Path
sys.modules["zstandard"] = None  # as where the extra is not installed
from hookline.images.layers import Unpacker
with Unpacker(Path(sys.argv[1])) as unpacking:
    unpacking.layer(io.BytesIO(sys.stdin.buffer.read()), "layer")
"""


def test_without_the_extra_zstd_is_told_with_what_to_install(tmp_path):
    packed = zstandard.ZstdCompressor().compress(layer({"f": "x"}))
    command = [sys.executable, "-c", WITHOUT, tmp_path]
    done = subprocess.run(command, input=packed, capture_output=True, check=False)
    assert b"layer: is packed with zstd; to read that, pip install 'hookline[images]'" in done.stderr
    done = subprocess.run(command, input=gzip.compress(layer({"f": "x"})), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


names = st.sampled_from(
    ["a", "b", "a/b", "b/a", "a/b/c", "l", "l/a", "l/../a", "/a", ".wh.a", "a/.wh..wh..opq", "..", "l/l"]
)
targets = st.sampled_from(
    ["a", "b", "..", "../..", "/", "/a/b", "a/../..", "l/..", "l/../..", "../l", "/../a", "."]
)
kinds = st.sampled_from([tarfile.REGTYPE, LINK, HARD, FOLDER])


@given(st.lists(st.lists(st.tuples(names, kinds, targets), max_size=8), max_size=3))
def test_whatever_a_layer_holds_nothing_gets_out(tmp_path_factory, layers):
    root = tmp_path_factory.mktemp("fuzz")
    (root / "a").write_text("outside")
    made = [
        [tar_entry(name, kind=kind, target=target) for name, kind, target in entries] for entries in layers
    ]
    inside = root / "x" / "y"
    inside.parent.mkdir()
    try:
        unpack(inside, *made)
    except ImageError:
        return
    finally:
        assert sorted(path.name for path in root.iterdir()) == ["a", "x"]
        assert [path.name for path in inside.parent.iterdir()] == ["y"]
        assert (root / "a").read_text() == "outside"
    for path in inside.rglob("*"):
        try:
            assert path.resolve().is_relative_to(inside.resolve())
        except (RuntimeError, OSError):
            assert path.is_symlink()  # in a circle
