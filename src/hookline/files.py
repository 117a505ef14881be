"""Files and folders: whole writes, locks, standard output, and work below a folder without following a link.

Names of folders are followed to the last one; the last one, and everything below it, is taken as it is: where a link
stands instead, it is not followed and the call fails.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, TextIO, cast

Path = str | os.PathLike[str]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking: a pipe without a writer must not hold us up.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOVALS = 3
PROC = "/proc"
_KEY = "key"
_KEY_BYTES = 32
_BLOCK = 64
_CODE = frozenset({".py", ".sh", ".bash", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua"})


def is_code(path: Path) -> bool:
    """True for a script or a program, there or not yet."""
    known = os.path.splitext(path)[1] in _CODE
    return known or (os.path.isfile(path) and os.access(path, os.X_OK))


_fixed: dict[str, bytes] = {}


def fix(path: Path, content: bytes) -> None:
    """From now on this is the content of a file to this process, whatever becomes of the file."""
    _fixed[os.path.abspath(path)] = content


def fixed(path: Path) -> bytes | None:
    """The content that a file has to this process; None if it is to be read."""
    return _fixed.get(os.path.abspath(path))


def private_folder(path: Path) -> None:
    """Make a folder, and those above it, unless it is there; only its owner may look into a new one."""
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def write_whole(
    path: Path, content: bytes, *, mode: int | None = None, sync: bool = False, dir_fd: int | None = None
) -> None:
    """Write a file such that everybody sees the old content or the new one, also after a crash.

    A link there is replaced, not followed. `sync` waits for the disk, so that it also holds after a power failure.
    """
    folder, name = os.path.split(path)
    new = os.path.join(folder, f".{name[:200]}.{os.urandom(8).hex()}~")
    fd = os.open(new, _NEW, 0o666, dir_fd=dir_fd)
    try:
        try:
            if mode is not None:
                os.fchmod(fd, mode)
            write_all(fd, content)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(new, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(new, dir_fd=dir_fd)
        raise


def write_all(fd: int, content: bytes) -> None:
    """Write all of it; the system may take less at a time."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


class StandardOutput:
    """Standard output of the program.

    Once it is taken, it is hookline's alone: whatever hooks and tools print, also from C or a child process, goes to
    standard error. A reader that has gone ends nothing; `fault` tells why anything else was not written.
    """

    def __init__(self) -> None:
        self._fd: int | None = None
        self.lost = False
        self.fault = ""

    def take(self) -> None:
        closed = fill_standard_files()
        sys.stdin = _stream(sys.stdin, 0, "r")
        sys.stdout = _stream(sys.stdout, 1, "w")
        sys.stderr = _stream(sys.stderr, 2, "w")
        self._fd = -1 if 1 in closed else os.dup(1)
        os.dup2(2, 1)

    def write(self, text: str) -> None:
        """Write a text at once."""
        if self._fd is None:  # hookline is a library here, and standard output is not its own
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            self.write_bytes(text.encode(sys.stdout.encoding, "backslashreplace"))

    def write_bytes(self, content: bytes) -> None:
        if self.lost:
            return
        try:
            write_all(1 if self._fd is None else self._fd, content)
        except BrokenPipeError:
            self.lost = True
        except OSError as exc:
            self.lost, self.fault = True, exc.strerror or str(exc)

    def isatty(self) -> bool:
        return sys.stdout.isatty() if self._fd is None else self._fd >= 0 and os.isatty(self._fd)


output = StandardOutput()


def fill_standard_files() -> list[int]:
    """Open those of the first three files that our parent closed, and return them.

    Else the next file that is opened would be taken for one of them, and be printed into."""
    closed = [fd for fd in range(3) if not _is_open(fd)]
    for _ in closed:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    return closed


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _stream(stream: TextIO | None, fd: int, mode: str) -> TextIO:
    """The stream, line by line; where the file was closed, Python has none."""
    if stream is None:
        return cast("TextIO", open(fd, mode, buffering=1, closefd=False))
    if isinstance(stream, io.TextIOWrapper) and mode == "w":
        cast("io.TextIOWrapper[Any]", stream).reconfigure(line_buffering=True)
    return cast("TextIO", stream)


def open_content(content: bytes) -> int:
    """An open anonymous file with this content, positioned at its start."""
    fd = os.memfd_create("hookline")
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def lock(fd: int, *, wait: bool = True, shared: bool = False) -> None:
    """Lock an open file or folder until it is closed or we die; BlockingIOError if it is taken and we do not wait."""
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(fd, how if wait else how | fcntl.LOCK_NB)


def open_lock(path: Path, dir_fd: int | None = None) -> int:
    """The descriptor of a file that is there for its lock, made if need be."""
    return os.open(path, _LOCK, 0o600, dir_fd=dir_fd)


@contextmanager
def locked_file(path: Path, *, wait: bool = True) -> Generator[int]:
    """A file that is there for its lock, locked."""
    with _closing(open_lock(path)) as fd:
        lock(fd, wait=wait)
        yield fd


@contextmanager
def locked_folder(path: Path, *, wait: bool = True, shared: bool = False) -> Generator[int]:
    """A folder, opened and locked."""
    with opened_folder(path) as fd:
        lock(fd, wait=wait, shared=shared)
        yield fd


def open_folder(path: Path, dir_fd: int | None = None) -> int:
    """A folder's descriptor."""
    return os.open(path, _FOLDER, dir_fd=dir_fd)


@contextmanager
def opened_folder(path: Path, dir_fd: int | None = None) -> Generator[int]:
    """A folder's descriptor, closed at the end."""
    with _closing(open_folder(path, dir_fd)) as fd:
        yield fd


def open_file(path: Path, dir_fd: int | None = None) -> int:
    """The descriptor of a file to read; the caller checks that it is a regular file."""
    return os.open(path, _FILE, dir_fd=dir_fd)


def read_own(path: Path) -> bytes:
    """The content of a file that only this user can have written; PermissionError if others can, or can read it."""
    fd = open_file(path)
    with open(fd, "rb") as file:
        _refuse_shared(fd, path)
        return file.read()


def _refuse_shared(fd: int, path: Path) -> None:
    known = os.fstat(fd)
    if not stat.S_ISREG(known.st_mode) or known.st_uid != os.geteuid() or known.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "is not the user's own", os.fspath(path))


def user_key(folder: Path) -> bytes:
    """The user's key in hookline's state folder, made at its first use; it never leaves this machine."""
    place = os.path.join(folder, _KEY)
    with suppress(FileNotFoundError):
        if len(key := read_own(place)) == _KEY_BYTES:
            return key
    private_folder(folder)
    with locked_file(place) as fd:
        _refuse_shared(fd, place)
        key = os.pread(fd, _KEY_BYTES, 0)
        if len(key) != _KEY_BYTES:
            key = os.urandom(_KEY_BYTES)
            os.pwrite(fd, key, 0)
            os.fsync(fd)
        return key


def keyed_digest(content: bytes, key: bytes) -> str:
    """The HMAC-SHA256 of a content; the module `hmac` takes too long to load where this is used."""
    padded = key.ljust(_BLOCK, b"\0")
    inner = sha256(bytes(each ^ 0x36 for each in padded) + content).digest()
    return sha256(bytes(each ^ 0x5C for each in padded) + inner).hexdigest()


@contextmanager
def _folder_of(name: str, top: Path) -> Generator[tuple[int, str]]:
    """The folder of a file below `top`, and the file's name in it.

    The folders are opened one by one, so that no link on the way leads out."""
    *above, last = name.split("/")
    fd = open_folder(top)
    try:
        for each in above:
            inner = open_folder(each, fd)
            os.close(fd)
            fd = inner
        yield fd, last
    finally:
        os.close(fd)


def read_below(top: Path, name: str, most: int) -> bytes:
    """A file below a folder that others write into: at most `most` bytes; OSError if it is no regular file."""
    with _folder_of(name, top) as (folder, last), _closing(open_file(last, folder)) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        with open(fd, "rb", closefd=False) as file:
            return file.read(most)


def unlink_below(top: Path, name: str) -> None:
    """Remove a file below a folder that others write into; OSError if it is a folder or not there."""
    with _folder_of(name, top) as (folder, last):
        os.unlink(last, dir_fd=folder)


def make_ours(path: Path, dir_fd: int | None = None) -> None:
    """Give a folder back the permissions that its deletion needs, whatever its owner took away."""
    with _closing(os.open(path, _HANDLE, dir_fd=dir_fd)) as fd:
        # An O_PATH handle, all that an unreadable folder gives, can only be changed by this detour.
        os.chmod(f"/proc/self/fd/{fd}", 0o700)


def remove_tree(path: Path, dir_fd: int | None = None) -> list[tuple[str, OSError]]:
    """Delete a folder with all that is in it, however deep and whoever may write there; links are not followed.

    Returns what could not be deleted, each with the reason.
    """
    left: list[tuple[str, OSError]] = []
    for _ in range(_REMOVALS):
        try:
            make_ours(path, dir_fd)
            with opened_folder(path, dir_fd) as top:
                left = _emptied(top)
            if not left:
                os.rmdir(path, dir_fd=dir_fd)
            return left
        except FileNotFoundError:
            return []
        except OSError as exc:
            left = [(os.fspath(path), exc)]
            if exc.errno != errno.ENOTEMPTY:
                break
            # Somebody is still writing into it.
    return left


def _emptied(top: int) -> list[tuple[str, OSError]]:
    """Delete what is in a folder. Folders of folders are moved up into it first: no depth is too deep then."""
    left: list[tuple[str, OSError]] = []
    waiting = _folders_left(top, top, left)
    while waiting:
        name = waiting.pop()
        before = len(left)
        try:
            make_ours(name, top)
            with opened_folder(name, top) as inner:
                waiting += _folders_left(inner, top, left)
            if len(left) == before:
                os.rmdir(name, dir_fd=top)
        except FileNotFoundError:
            pass
        except OSError as exc:
            left.append((name, exc))
    return left


def _folders_left(folder: int, top: int, left: list[tuple[str, OSError]]) -> list[str]:
    """Delete the files of a folder and move its folders to the top; their names there."""
    names: list[str] = []
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        try:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
                continue
            name = entry.name if folder == top else os.urandom(8).hex()
            if folder != top:
                make_ours(entry.name, folder)
                os.rename(entry.name, name, src_dir_fd=folder, dst_dir_fd=top)
            names.append(name)
        except FileNotFoundError:
            pass
        except OSError as exc:
            left.append((entry.name, exc))
    return names


@contextmanager
def _closing(fd: int) -> Generator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _own_sha256() -> Any:
    """Python's own and not OpenSSL's, which takes a tenth of `hookline answer` to load.

    The first name is from 3.12 on, the second before; one built without it has only `hashlib`.
    """
    for name in ("_sha2", "_sha256"):
        try:
            return import_module(name).sha256
        except ImportError:
            continue
    return import_module("hashlib").sha256


sha256 = _own_sha256()


def boot_id() -> str:
    """The id of this system since its last start; empty if the system has none."""
    try:
        with open(f"{PROC}/sys/kernel/random/boot_id", "rb") as file:
            return file.read().decode().strip()
    except OSError:
        return ""
