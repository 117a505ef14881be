"""The folders of one run: `/workspace` and `/ipc` as its hooks and its agent see them.

They are below a folder that only the user can enter, together with what is needed to end the run after a crash. Who
holds that folder's lock is at work on the run; the system lets go of it when its process is gone, however that ended.

What a run leaves there is written by others: it is read without following a link, and no more of it than was asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hookline import files
from hookline.engine.threads import Threads
from hookline.errors import HookBroke, HooklineError
from hookline.runners import Mount
from hookline.tasks import finish

KEPT = "kept"
CONTROL = "control"
IPC = (
    *("input", "output", "spawn", "tools", "messages", "schedules", "prompts", "context"),
    CONTROL,
)
"""What Sympozium's bridge makes beneath /ipc, and what its documents write into."""
TMP_SIZE = 256 * 1024 * 1024
_LOCK = ".lock"
_threads = Threads()
_Made = TypeVar("_Made")


class FolderError(HooklineError):
    """The folders of a run cannot be made, held or removed."""


async def apart(work: Callable[[], _Made]) -> _Made:
    """In a thread, for a large folder takes long; to its end, also where we are cancelled meanwhile."""
    try:
        return await finish(_threads.call(work, timeout=None))
    except HookBroke:
        return work()  # no thread to be had


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
        with ExitStack() as stack:
            try:
                files.private_folder(self.path)
                stack.enter_context(files.locked_file(self.path / _LOCK))
            except OSError as exc:
                raise FolderError(f"the folder for runs cannot be used: {exc}") from exc
            yield


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
            fd = files.open_folder(self.path)
        except OSError:
            return False
        try:
            files.lock(fd, wait=False)
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
        files.write_whole(self.path / name, text.encode("utf-8", "surrogatepass"), mode=0o600)

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
        try:
            return files.read_below(self.ipc, name, most + 1)
        except OSError:
            return None

    def drop_from_ipc(self, name: str) -> None:
        """Remove a file beneath /ipc, if it is there; whatever it is."""
        try:
            files.unlink_below(self.ipc, name)
        except OSError:
            pass  # none there, or a folder, which is no verdict

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
        left = files.remove_tree(self.path)
        self.let_go()
        if left:
            exc = left[0][1]
            raise FolderError(f"{self.path} cannot be removed: {exc.strerror or exc}") from exc

    def let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
