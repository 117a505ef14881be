"""The cache: whole or not there, safe for many processes at once, kept for a while."""

import json
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hookline.errors import ImageError
from hookline.images.fetch import Cache, Fetched, default_folder, in_use, shown

DAY = 86400.0


def filled(cache, key, content="x"):
    with cache.room() as tree:
        (tree / "d").mkdir()
        (tree / "d/f").write_text(content)
        (tree / "l").symlink_to("d/f")
        os.chmod(tree / "d/f", 0o444)
        os.chmod(tree / "d", 0o555)
        return cache.keep(tree, key, {"ref": "r"})


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def test_what_was_kept_is_found_with_its_record(cache):
    assert cache.find("a") is None
    kept = filled(cache, "a")
    found = cache.find("a")
    assert found.path == kept.path
    assert (found.path / "d/f").read_text() == "x"
    assert (found.record["ref"], found.record["bytes"]) == ("r", 1)


def test_a_room_that_was_not_kept_is_gone(cache, folder):
    def half():
        with cache.room() as tree:
            (tree / "half").write_text("x")
            os.chmod(tree, 0o500)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert not list((folder / "rooms").iterdir())


SPOILING = {
    "a file is changed": lambda path: rewrite(path / "tree/d/f", "y"),
    "a file is gone": lambda path: remove(path / "tree/d/f"),
    "a file is new": lambda path: (path / "tree/new").write_text("x"),
    "a file may be run": lambda path: os.chmod(path / "tree/d/f", 0o755),
    "a link leads elsewhere": lambda path: relink(path / "tree/l", "/etc/passwd"),
    "the tree is gone": lambda path: (path / "tree").rename(path / "elsewhere"),
    "the record is cut": lambda path: rewrite(path / "record.json", '{"entries": ['),
    "the record is gone": lambda path: (path / "record.json").unlink(),
    "the record is another's": lambda path: rewrite(path / "record.json", '{"entries": [[1]]}'),
}


def rewrite(path, text):
    os.chmod(path, 0o644)
    path.write_text(text)


def remove(path):
    os.chmod(path.parent, 0o755)
    path.unlink()


def relink(path, target):
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize("spoil", SPOILING.values(), ids=SPOILING.keys())
def test_an_entry_that_is_not_what_it_was_is_not_used_and_taken_away(cache, folder, spoil):
    filled(cache, "a")
    spoil(folder / "images/a")
    assert cache.find("a") is None
    assert not (folder / "images/a").exists()
    assert filled(cache, "a").path.is_dir()
    assert cache.find("a") is not None


def test_the_second_to_keep_the_same_uses_the_first(cache, folder):
    first = filled(cache, "a", "first")
    second = filled(cache, "a", "second")
    assert (second.path / "d/f").read_text() == "first"
    assert first.path == second.path
    assert not list((folder / "rooms").iterdir())


def race(folder, number, barrier, found):
    barrier.wait()
    entry = filled(Cache(folder), "a", str(number))
    found.put((entry.path / "d/f").read_text())


def test_many_processes_at_once_all_use_the_same(cache, folder):
    context = multiprocessing.get_context("spawn")
    barrier, found = context.Barrier(4), context.Queue()
    racing = [context.Process(target=race, args=(folder, number, barrier, found)) for number in range(4)]
    for process in racing:
        process.start()
    texts = {found.get(timeout=60) for _ in racing}
    for process in racing:
        process.join()
    assert len(texts) == 1
    assert {(cache.find("a").path / "d/f").read_text()} == texts


KILLED = """
import os, signal, sys
from pathlib import Path
from hookline.images.fetch import Cache
with Cache(Path(sys.argv[1])).room() as tree:
    (tree / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_never_found_and_pruned_later(cache, folder):
    done = subprocess.run([sys.executable, "-c", KILLED, folder], check=False)
    assert done.returncode == -signal.SIGKILL
    [left] = (folder / "rooms").iterdir()
    assert not (folder / "images").exists()
    cache.prune()
    assert left.exists()  # it may still be at work, for all we know by its age
    age(left, DAY)
    cache.prune()
    assert not left.exists()


def test_a_room_that_is_in_use_is_not_pruned_however_old(cache, folder):
    with cache.room() as tree:
        age(tree.parents[1], 99 * DAY)
        Cache(folder).prune()
        assert tree.is_dir()


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_images_not_used_for_long_go_and_others_stay(cache, folder):
    for name, days in (("new", 1), ("old", 31), ("held", 31), ("just", 0)):
        entry = filled(cache, name)
        age(folder / "images" / name, days * DAY)
        if name == "held":
            held = entry
    with in_use(held.path):
        assert cache.prune() == 1
    assert sorted(path.name for path in (folder / "images").iterdir()) == ["held", "just", "new"]
    assert cache.prune() == 1
    assert cache.prune(keep_days=0) == 1
    assert [path.name for path in (folder / "images").iterdir()] == ["just"]


def test_the_oldest_go_until_the_size_fits(cache, folder):
    for number, name in enumerate(("d", "c", "b", "a")):
        filled(cache, name, "x" * 100)
        age(folder / "images" / name, (number + 1) * DAY)
    assert cache.prune(keep_bytes=250) == 2
    assert sorted(path.name for path in (folder / "images").iterdir()) == ["c", "d"]


def test_finding_an_image_counts_as_using_it(cache, folder):
    filled(cache, "a")
    age(folder / "images/a", 99 * DAY)
    cache.find("a")
    assert cache.prune() == 0


@pytest.mark.parametrize("key", ["", "..", "a/b", ".hidden", "a\nb"])
def test_a_key_cannot_lead_out_of_the_cache(cache, key):
    with pytest.raises(ImageError, match="is not a name of a cached image"):
        cache.find(key)


# variables -> where the cache is
PLACES = {
    "hookline's home": ({"HOOKLINE_HOME": "/h", "XDG_CACHE_HOME": "/x", "HOME": "/u"}, "/h/images"),
    "the user's cache": ({"XDG_CACHE_HOME": "/x", "HOME": "/u"}, "/x/hookline"),
    "a relative one is ignored": ({"XDG_CACHE_HOME": "x", "HOME": "/u"}, "/u/.cache/hookline"),
    "the usual": ({"HOME": "/u"}, "/u/.cache/hookline"),
}


@pytest.mark.parametrize(("environ", "expected"), PLACES.values(), ids=PLACES.keys())
def test_the_cache_has_a_place_of_its_own(environ, expected):
    assert default_folder(environ) == Path(expected)


# What a run is shown.


def fetched(cache, ref, name, content="x"):
    entry = filled(cache, name, content)
    return Fetched(ref=ref, name=name, digest="sha256:0", path=entry.path)


def test_a_run_sees_its_images_by_name_and_the_folder_is_gone_afterwards(cache, tmp_path):
    images = [fetched(cache, "x/a:1", "a", "1"), fetched(cache, "x/b:1", "b", "2")]
    with shown(images, tmp_path / "run/hooks") as folder:
        assert folder == tmp_path / "run/hooks"
        assert [(folder / name / "d/f").read_text() for name in "ab"] == ["1", "2"]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o555
        assert stat.S_IMODE((folder / "a/d").stat().st_mode) == 0o555
    assert not folder.exists()
    assert (images[0].path / "d/f").read_text() == "1"


def test_the_folder_is_gone_also_where_the_run_failed(cache, tmp_path):
    with pytest.raises(ZeroDivisionError), shown([fetched(cache, "x/a:1", "a")], tmp_path / "hooks"):
        raise ZeroDivisionError
    assert not (tmp_path / "hooks").exists()


def test_a_folder_that_is_there_already_is_left_alone(cache, tmp_path):
    (tmp_path / "hooks").mkdir()
    with pytest.raises(ImageError, match="is there already"), shown([], tmp_path / "hooks"):
        pass
    assert (tmp_path / "hooks").is_dir()


def test_an_image_that_a_run_sees_is_not_pruned(cache, folder, tmp_path):
    image = fetched(cache, "x/a:1", "a")
    age(folder / "images/a", 99 * DAY)
    with shown([image], tmp_path / "hooks") as hooks:
        assert cache.prune() == 0
        assert (hooks / "a/d/f").read_text() == "x"
    assert cache.prune() == 1


def test_an_image_that_is_gone_is_told(cache, tmp_path, folder):
    image = fetched(cache, "x/a:1", "a")
    age(folder / "images/a", 99 * DAY)
    cache.prune()
    with pytest.raises(ImageError, match="was removed meanwhile"), shown([image], tmp_path / "hooks"):
        pass


def test_the_record_of_an_entry_says_what_is_in_it(cache, folder):
    filled(cache, "a")
    record = json.loads((folder / "images/a/record.json").read_text())
    assert [entry[:2] for entry in record["entries"]] == [["d", "folder"], ["d/f", "file"], ["l", "link"]]
