"""The folders of one run: `/workspace` and `/ipc` as its hooks and its agent see them.

They are below a folder that only the user can enter, together with what is needed to end the run after a crash. Who
holds that folder's lock is at work on the run; the system lets go of it when its process is gone, however that ended.

What a run leaves there is written by others: it is read without following a link, and no more of it than was asked for.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import itertools
import json
import os
import shutil
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hookline.engine.threads import Threads
from hookline.errors import HookBroke, HooklineError
from hookline.runners import Mount

KEPT = "kept"
CONTROL = "control"
IPC = (
    *("input", "output", "spawn", "tools", "messages", "schedules", "prompts", "context"),
    CONTROL,
)
"""What Sympozium's bridge makes beneath /ipc, and what its documents write into."""
TMP_SIZE = 256 * 1024 * 1024
_LOCK = ".lock"
_DEEPEST, _LONGEST = 100, 2000
_threads = Threads()
_Made = TypeVar("_Made")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FolderError(HooklineError):
    """The folders of a run cannot be made, held or removed."""


async def apart(work: Callable[[], _Made]) -> _Made:
    """In a thread, for a large folder takes long; to its end, also where we are cancelled meanwhile."""
    doing = asyncio.ensure_future(_threads.call(work, timeout=None))
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError as exc:
            cancelled = exc
    try:
        return doing.result()
    except HookBroke:
        return work()  # no thread to be had
    finally:
        if cancelled is not None:
            raise cancelled


class Home:
    """Where the folders of all runs are."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

    def make(self, run_id: str) -> Folder:
        """The folders of a new run, held by us."""
        with self._alone():
            path = self.path / run_id
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                raise FolderError(f"there is a run {run_id!r} already, at {path}") from None
            folder = Folder(path)
            folder.hold()
            try:
                folder.lay_out()
            except BaseException:
                folder.remove()
                raise
        return folder

    def left(self) -> list[Folder]:
        """The folders that nobody holds any more, each held from now on by us."""
        if not self.path.is_dir():
            return []
        with self._alone():
            found = [
                Folder(each) for each in sorted(self.path.iterdir()) if each.is_dir() and each.name != KEPT
            ]
            return [folder for folder in found if folder.hold()]

    def folder(self, run_id: str) -> Folder | None:
        """That run's folder, held by us; None where there is none, or somebody is at work on it."""
        path = self.path / run_id
        if not path.is_dir():
            return None
        with self._alone():
            folder = Folder(path)
            return folder if folder.hold() else None

    @contextmanager
    def _alone(self) -> Generator[None]:
        """While folders are made and taken over; between its making and its lock one looks as if it were left."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as exc:
            raise FolderError(f"the folder for runs cannot be used: {exc}") from exc
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


class Folder:
    """The folders of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.workspace = path / "workspace"
        self.ipc = path / "ipc"
        self.tmp = path / "tmp"
        self._fd = -1

    @property
    def run_id(self) -> str:
        return self.path.name

    def hold(self) -> bool:
        """Take its lock; False where somebody else has it, or it is gone."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def lay_out(self) -> None:
        """`context` and `control` exist beforehand: the documents write there without making them."""
        for each in (self.workspace / "context", *(self.ipc / name for name in IPC), self.tmp):
            each.mkdir(parents=True, exist_ok=True)

    def mounts(self, *, own_tmp: bool) -> tuple[Mount, ...]:
        """As a hook or the agent is given them. Without a file system of its own, /tmp is a folder of the run's."""
        tmp = None if own_tmp else str(self.tmp)
        return (
            Mount(target="/workspace", source=str(self.workspace), variable="WORKSPACE"),
            Mount(target="/ipc", source=str(self.ipc), variable="IPC_DIR"),
            Mount(target="/tmp", source=tmp, variable="TMPDIR", size=TMP_SIZE),
        )

    def write(self, name: str, value: Any) -> None:
        """One of our own notes, whole or not at all."""
        self.write_text(name, json.dumps(value))

    def write_text(self, name: str, text: str) -> None:
        part = self.path / f".{name}.part"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
        part.rename(self.path / name)

    def read(self, name: str) -> Any:
        """One of our own notes; None where it was not written."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8", errors="surrogatepass"))
        except (OSError, ValueError):
            return None

    def put(self, name: str, text: str) -> None:
        """A file beneath /ipc, before anybody else can be there."""
        (self.ipc / name).write_text(text, encoding="utf-8", errors="replace")

    def left_in_ipc(self, name: str, most: int) -> bytes | None:
        """What somebody wrote beneath /ipc: at most `most` bytes and one more; None where there is no such file."""
        fds: list[int] = []
        try:
            fds.append(os.open(self.ipc, _FLAGS | os.O_DIRECTORY))
            *folders, last = name.split("/")
            for each in folders:
                fds.append(os.open(each, _FLAGS | os.O_DIRECTORY, dir_fd=fds[-1]))
            fds.append(os.open(last, _FLAGS, dir_fd=fds[-1]))
            if not stat.S_ISREG(os.fstat(fds[-1]).st_mode):
                return None
            with open(fds[-1], "rb", closefd=False) as file:
                return file.read(most + 1)
        except OSError:
            return None
        finally:
            for fd in fds:
                os.close(fd)

    def drop_from_ipc(self, name: str) -> None:
        """Remove a file beneath /ipc, if it is there; whatever it is."""
        above, _, last = name.rpartition("/")
        try:
            fd = os.open(self.ipc / above, _FLAGS | os.O_DIRECTORY)
        except OSError:
            return
        try:
            os.unlink(last, dir_fd=fd)
        except OSError:
            pass  # none there, or a folder, which is no verdict
        finally:
            os.close(fd)

    def keep(self) -> Path:
        """Put the workspace where it stays, and remove the rest; where it is now."""
        place = self.path.parent / KEPT / self.run_id
        place.parent.mkdir(mode=0o700, exist_ok=True)
        if self.workspace.exists():
            self.workspace.rename(place)
        self.remove()
        return place

    def remove(self) -> None:
        """Everything of it; FolderError where something stays."""
        try:
            _remove(self.path)
        except OSError as exc:
            raise FolderError(f"{self.path} cannot be removed: {exc.strerror or exc}") from exc
        finally:
            self.let_go()

    def let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _remove(path: Path) -> None:
    """Also what its owner may not write into. Links are removed, not followed."""
    for _ in range(3):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as exc:
            # Somebody may still be writing, has taken our rights away, or made a path too long for the system.
            if exc.errno not in (errno.EACCES, errno.EPERM, errno.ENOTEMPTY, errno.ENAMETOOLONG):
                raise
            _open_up(path)
        except RecursionError:
            _open_up(path)
        else:
            return
    shutil.rmtree(path)


def _open_up(top: Path) -> None:
    """Make every folder ours to change, and bring to the top what is nested too deep to be removed where it is."""
    waiting, number = [(str(top), 0)], itertools.count()
    while waiting:
        folder, depth = waiting.pop()
        os.chmod(folder, 0o700)
        with os.scandir(folder) as entries:
            inner = [each.path for each in entries if each.is_dir(follow_symlinks=False)]
        for place in inner:
            deep = depth >= _DEEPEST or len(place) > _LONGEST
            moved = f"{top}/{os.urandom(8).hex()}.{next(number)}" if deep else place
            if deep:
                os.rename(place, moved)
            waiting.append((moved, 0 if deep else depth + 1))
