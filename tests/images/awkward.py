"""Images that are easy to get wrong: their layers, and the tree that they add up to."""

import tarfile

from tests.fakes.images import tar_entry

LINK, HARD, FOLDER = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE

# What two or three layers add up to.
LAYERS = {
    "a later file replaces": ([{"f": "1"}, {"f": "2"}], {"f": "2"}),
    "a later entry of the same layer replaces": (
        [[tar_entry("f", "1"), tar_entry("f", "2")]],
        {"f": "2"},
    ),
    "a whiteout takes away a file": ([{"d/f": "1", "g": "2"}, {"d/.wh.f": ""}], {"d": "/", "g": "2"}),
    "a whiteout takes away a folder": ([{"d/e/f": "1"}, {".wh.d": ""}], {}),
    "a whiteout of nothing": ([{"f": "1"}, {"no/.wh.such": ""}], {"f": "1"}),
    "a whiteout hides only what is below": (
        [{"f": "1"}, [tar_entry("f", "2"), tar_entry(".wh.f")]],
        {"f": "2"},
    ),
    "an opaque folder": (
        [{"d/a": "1", "d/e/b": "2"}, {"d/c": "3", "d/.wh..wh..opq": ""}],
        {"d": "/", "d/c": "3"},
    ),
    "an opaque folder keeps what its own layer has deep inside": (
        [{"d/e/a": "1"}, {"d/e/b": "2", "d/.wh..wh..opq": ""}],
        {"d": "/", "d/e": "/", "d/e/b": "2"},
    ),
    "an opaque folder keeps an empty one of its own layer": (
        [{"d/e/a": "1"}, [tar_entry("d/e", kind=FOLDER), tar_entry("d/.wh..wh..opq")]],
        {"d": "/", "d/e": "/"},
    ),
    "a whiteout and the thing again": ([{"f": "1"}, {".wh.f": ""}, {"f": "3"}], {"f": "3"}),
    "metadata of aufs": ([{".wh..wh.aufs": "", ".wh..wh.plnk/1.2": "", "f": "1"}], {"f": "1"}),
    "a file becomes a folder": ([{"x": "1"}, [tar_entry("x", kind=FOLDER), tar_entry("x/y", "2")]], {"x": "/", "x/y": "2"}),
    "a file becomes a folder nobody listed": ([{"x": "1"}, {"x/y": "2"}], {"x": "/", "x/y": "2"}),
    "a folder becomes a file": ([{"x/y/z": "1"}, {"x": "2"}], {"x": "2"}),
    "a folder becomes a link": (
        [{"x/y": "1", "z": "3"}, [tar_entry("x", kind=LINK, target="z")]],
        {"x": "-> z", "z": "3"},
    ),
    "a link becomes a file, and where it led is left alone": (
        [[tar_entry("f", "1"), tar_entry("l", kind=LINK, target="f")], {"l": "2"}],
        {"f": "1", "l": "2"},
    ),
    "a hard link becomes a file, and the other is left alone": (
        [[tar_entry("f", "1"), tar_entry("h", kind=HARD, target="f")], {"h": "2"}],
        {"f": "1", "h": "2"},
    ),
    "a hard link to a file of a layer below": (
        [{"d/f": "1"}, [tar_entry("h", kind=HARD, target="d/f")]],
        {"d": "/", "d/f": "1", "h": "1"},
    ),
    "a path through a link of a layer below": (
        [[tar_entry("usr/lib/a", "1"), tar_entry("lib", kind=LINK, target="usr/lib")], {"lib/b": "2"}],
        {"lib": "-> usr/lib", "usr": "/", "usr/lib": "/", "usr/lib/a": "1", "usr/lib/b": "2"},
    ),
    "a path through an absolute link": (
        [[tar_entry("usr/lib/a", "1"), tar_entry("opt/lib", kind=LINK, target="/usr/lib")], {"opt/lib/b": "2"}],
        {"opt": "/", "opt/lib": "-> ../usr/lib", "usr": "/", "usr/lib": "/", "usr/lib/a": "1", "usr/lib/b": "2"},
    ),
    "an absolute link leads to the same place of the image": (
        [[tar_entry("bin/busybox", "b"), tar_entry("usr/bin/ls", kind=LINK, target="/bin/busybox")]],
        {"bin": "/", "bin/busybox": "b", "usr": "/", "usr/bin": "/", "usr/bin/ls": "-> ../../bin/busybox"},
    ),
    "a hard link to an absolute link": (
        [
            [
                tar_entry("t", "x"),
                tar_entry("a", kind=LINK, target="/t"),
                tar_entry("d/e/h", kind=HARD, target="a"),
            ]
        ],
        {"a": "-> t", "d": "/", "d/e": "/", "d/e/h": "-> ../../t", "t": "x"},
    ),
    "a link that leads nowhere": ([[tar_entry("l", kind=LINK, target="/proc/mounts")]], {"l": "-> proc/mounts"}),
    "a link to the root": ([[tar_entry("d/l", kind=LINK, target="/")]], {"d": "/", "d/l": "-> ../"}),
    "links in a circle": (
        [[tar_entry("a", kind=LINK, target="b"), tar_entry("b", kind=LINK, target="a")]],
        {"a": "-> b", "b": "-> a"},
    ),
    "names with ./ and a root of its own": (
        [[tar_entry("./", kind=FOLDER, mode=0o700), tar_entry("./d/./f", "1")]],
        {"d": "/", "d/f": "1"},
    ),
    "long names": ([{"d" * 120 + "/" + "f" * 200: "1"}], {"d" * 120: "/", "d" * 120 + "/" + "f" * 200: "1"}),
    "names that are no UTF-8": ([{"f\udcff": "1"}], {"f\udcff": "1"}),
    "no entries at all": ([[]], {}),
}  # fmt: skip
