"""Whole writes, locks, and folders that others write into: with real processes, links and permissions."""

import errno
import hmac
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from hookline import files


def names(folder):
    return sorted(os.listdir(folder))


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def refused(call, *arguments, **options):
    """The number of the system's error."""
    try:
        call(*arguments, **options)
    except OSError as exc:
        return exc.errno
    return None


# Each is what stands there before, the mode that is asked for, and the mode that comes of it.
WRITES = {
    "new": (None, None, 0o644),
    "new and private": (None, 0o600, 0o600),
    "over another": (0o640, None, 0o644),
    "over another, private": (0o644, 0o600, 0o600),
}


@pytest.mark.parametrize(("before", "asked", "after"), WRITES.values(), ids=WRITES.keys())
@pytest.mark.parametrize("sync", [False, True])
def test_a_write_leaves_the_file_and_nothing_else(tmp_path, before, asked, after, sync):
    umask = os.umask(0o022)
    try:
        if before is not None:
            (tmp_path / "a").write_text("old")
            (tmp_path / "a").chmod(before)
        files.write_whole(tmp_path / "a", b"new", mode=asked, sync=sync)
    finally:
        os.umask(umask)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert mode(tmp_path / "a") == after
    assert names(tmp_path) == ["a"]


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "a").symlink_to("theirs")
    files.write_whole(tmp_path / "a", b"ours")
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_the_longest_name_can_be_written(tmp_path):
    with files.opened_folder(tmp_path) as fd:
        files.write_whole("a" * 255, b"new", dir_fd=fd)
    assert names(tmp_path) == ["a" * 255]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        files.write_whole(tmp_path / "a", b"new")
    assert names(tmp_path) == ["a"]


WRITER = """
import sys
from hookline import files
print("ready", flush=True)
while True:
    for letter in (b"a", b"b"):
        files.write_whole(sys.argv[1], letter * 3_000_000)
"""


def test_a_writer_killed_at_any_moment_leaves_the_old_or_the_new_whole(tmp_path):
    place = tmp_path / "file"
    place.write_bytes(b"a" * 3_000_000)
    for round in range(12):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, place], stdout=subprocess.PIPE)
        writer.stdout.readline()
        time.sleep(0.003 * round)
        writer.kill()
        writer.communicate()
        content = place.read_bytes()
        assert content in (b"a" * 3_000_000, b"b" * 3_000_000)


def test_a_private_folder_is_for_its_owner_alone_and_one_that_is_there_stays(tmp_path):
    files.private_folder(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700
    (tmp_path / "a" / "b").chmod(0o750)
    files.private_folder(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o750
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises((FileExistsError, NotADirectoryError)):
            files.private_folder(place)


HOLDER = """
import sys
from hookline import files
with files.locked_file(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path / "lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_lock_is_one_process_at_a_time(tmp_path, holder):
    with pytest.raises(BlockingIOError), files.locked_file(tmp_path / "lock", wait=False):
        pass
    holder.communicate()
    with files.locked_file(tmp_path / "lock", wait=False):
        pass


def test_a_lock_ends_with_its_process(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    with files.locked_file(tmp_path / "lock"):
        pass


def test_a_folders_lock_can_be_shared(tmp_path):
    with (
        files.opened_folder(tmp_path) as third,
        files.locked_folder(tmp_path, shared=True),
        files.locked_folder(tmp_path, shared=True, wait=False),
    ):
        assert refused(files.lock, third, wait=False) == errno.EAGAIN
    with files.locked_folder(tmp_path, wait=False):
        pass


@pytest.fixture
def below(tmp_path):
    """A folder that others write into, and a file outside of it that they want us to touch."""
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").write_bytes(b"inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"outside")
    (top / "last").symlink_to(tmp_path / "outside" / "file")
    (top / "middle").symlink_to(tmp_path / "outside")
    (top / "a" / "up").symlink_to("../../outside")
    os.mkfifo(top / "pipe")
    return top


def test_a_file_below_a_folder_is_read_and_no_more_of_it_than_asked_for(below):
    assert files.read_below(below, "a/b/file", 100) == b"inside"
    assert files.read_below(below, "a/b/file", 3) == b"ins"


NOT_READ = {
    "last": errno.ELOOP,
    "middle/file": errno.ENOTDIR,
    "a/up/file": errno.ENOTDIR,
    "pipe": errno.EINVAL,
    "a/b": errno.EINVAL,
    "missing": errno.ENOENT,
    "missing/file": errno.ENOENT,
    "a/b/file/x": errno.ENOTDIR,
}


@pytest.mark.parametrize(("name", "number"), NOT_READ.items())
def test_no_link_pipe_or_folder_below_is_read(below, name, number):
    assert refused(files.read_below, below, name, 100) == number


def test_a_link_below_is_removed_and_one_on_the_way_is_not_followed(below, tmp_path):
    files.unlink_below(below, "last")
    assert not os.path.lexists(below / "last")
    for name, number in {**NOT_READ, "a": errno.EISDIR}.items():
        if number not in (errno.ELOOP, errno.EINVAL):
            assert refused(files.unlink_below, below, name) == number
    assert (tmp_path / "outside" / "file").read_bytes() == b"outside"


def test_a_top_that_is_a_link_is_not_opened(below, tmp_path):
    (tmp_path / "link").symlink_to(below)
    assert refused(files.open_folder, tmp_path / "link") == errno.ENOTDIR


def test_a_tree_goes_with_links_read_only_folders_and_any_depth(below, tmp_path):
    fd = files.open_folder(below)
    for _ in range(1500):
        os.mkdir("deep-enough-for-any-path", dir_fd=fd)
        inner = files.open_folder("deep-enough-for-any-path", fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    (below / "a" / "b").chmod(0o500)
    (below / "a").chmod(0)
    assert files.remove_tree(below) == []
    assert names(tmp_path) == ["outside"]
    assert (tmp_path / "outside" / "file").read_bytes() == b"outside"


def test_removing_what_is_not_there_is_done_already(tmp_path):
    assert files.remove_tree(tmp_path / "missing") == []


def test_what_is_no_folder_is_not_removed_and_told(tmp_path):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        [(told, exc)] = files.remove_tree(tmp_path / name)
        assert told == str(tmp_path / name)
        assert exc.errno in (errno.ENOTDIR, errno.ELOOP)
    assert names(tmp_path) == ["file", "link"]


def test_a_users_key_is_made_once_and_is_private(tmp_path):
    folder = tmp_path / "state"
    key = files.user_key(folder)
    assert len(key) == 32
    assert files.user_key(folder) == key
    assert mode(folder / "key") == 0o600
    assert mode(folder) == 0o700
    assert files.user_key(tmp_path / "other") != key


def test_processes_that_ask_at_once_get_the_same_key(tmp_path):
    program = "import sys; from hookline.files import user_key; print(user_key(sys.argv[1]).hex())"
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "state")], stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    assert len({each.communicate()[0] for each in started}) == 1


def test_a_key_that_was_cut_off_is_made_anew(tmp_path):
    (tmp_path / "key").write_bytes(b"short")
    (tmp_path / "key").chmod(0o600)
    key = files.user_key(tmp_path)
    assert len(key) == 32
    assert files.user_key(tmp_path) == key


@pytest.mark.parametrize("kind", ["readable", "link", "folder"])
def test_a_key_that_others_may_know_is_no_key(tmp_path, kind):
    place = tmp_path / "key"
    if kind == "folder":
        place.mkdir()
    else:
        target = tmp_path / "theirs" if kind == "link" else place
        target.write_bytes(b"k" * 32)
        target.chmod(0o644 if kind == "readable" else 0o600)
        if kind == "link":
            place.symlink_to(target)
    assert refused(files.user_key, tmp_path) is not None


def test_a_keyed_digest_is_hmac_sha256():
    for key in (b"k", b"k" * 32, b"k" * 64):
        assert files.keyed_digest(b"content", key) == hmac.new(key, b"content", "sha256").hexdigest()
