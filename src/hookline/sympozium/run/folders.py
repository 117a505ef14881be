"""The folders of one run, `/workspace` and `/ipc` as its hooks and its agent see them, and how much they may hold.

They are below a folder that only the user can enter, together with the files that end the run after a crash. The
process that holds the lock of that folder works on the run; the system releases the lock when the process is gone.

Files beneath /ipc are written by others: they are read without following links, and only up to a given size.

The system itself limits each single file and, where a process has a /tmp of its own, that. The folders that hooks share
are measured, while a process runs and when it has ended. A process that fills one is ended with its children. So between
two measurements more can be written than is allowed, but not for long.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from hookline import files
from hookline.engine.threads import Threads
from hookline.errors import HookBroke, HooklineError, UsageError
from hookline.runners import Ending, Mount, Order, Runner
from hookline.sympozium.cluster.prepare import FOLDERS
from hookline.tasks import cancel_and_wait, finish

KEPT = "kept"
CONTROL = "control"
SKIP = f"{CONTROL}/skip"
"""The skip marker, beneath /ipc."""
NO_REASON = "preRun hook requested skip"
"""The reason of a skip marker that has none of its own."""
RESULT = "output/result.json"
"""The result of the agent, beneath /ipc; or on its standard output, between these two."""
BEGIN, END = "__SYMPOZIUM_RESULT__", "__SYMPOZIUM_END__"
SOCKET = "hooks.sock"
"""The socket in /ipc over which the built-in agent asks hooks out here."""
RECORDS = "HOOKLINE_RECORDS"
"""The variable that makes the built-in agent print its inner records, where it is 1."""
RELAYED = "HOOKLINE_RELAYED"
"""The variable with the points, with commas between, at which the built-in agent has to ask."""
MOST_LINE = 64 * 1024 * 1024
TMP_SIZE = 256 * 1024 * 1024
WORKSPACE_SIZE = 1024**3
IPC_SIZE = 64 * 1024**2
LEAST_FREE = 128 * 1024**2
"""Bytes that stay free on the disk: a file that was removed and is still written to is seen there alone."""
_OPTION = {"/workspace": " (--workspace-size)"}
_ENTRY = 1024
"""The least that an entry counts, in bytes: a million empty files are too much for a disk, too."""
_PAUSE = 0.25
_SHARE = 10
"""Measuring takes at most this fraction of the time, one in ten."""
_MORE = 16
"""In a folder that is full already, a hook that cleans up may still add one part in sixteen."""
_UNITS = {
    "": 1,
    **{unit: 1000**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)(?:(|k|[MGTPE]|[KMGTPE]i)|[eE](\d{1,2}))")
_LOCK = ".lock"
_SKIP_BYTES = 4096
_threads = Threads()
_Made = TypeVar("_Made")


class FolderError(HooklineError):
    """The folders of a run cannot be made, held or removed."""


async def apart(work: Callable[[], _Made]) -> _Made:
    """Run in a thread, since a large folder takes long; to its end, also where we are cancelled meanwhile."""
    return await finish(_in_thread(work))


async def _in_thread(work: Callable[[], _Made]) -> _Made:
    try:
        return await _threads.call(work, timeout=None)
    except HookBroke:
        return work()  # no thread is available


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
        """The folder of a run, held by us; None if there is none, or somebody is at work on it."""
        path = self.path / run_id
        if not path.is_dir():
            return None
        with self._alone():
            folder = Folder(path)
            return folder if folder.hold() else None

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Hold the lock on all folders: one that is made and not locked yet would look abandoned."""
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
        self._lock = ExitStack()

    @property
    def run_id(self) -> str:
        return self.path.name

    def hold(self) -> bool:
        """Take its lock; False where somebody else has it, or it is gone."""
        try:
            self._lock.enter_context(files.locked_folder(self.path, wait=False))
        except OSError:
            return False
        return True

    def lay_out(self) -> None:
        """`context` and `control` exist beforehand: the documents write there without making them."""
        for each in (self.workspace / "context", *(self.ipc / name for name in FOLDERS), self.tmp):
            each.mkdir(parents=True, exist_ok=True)

    def mounts(self, *, own_tmp: bool) -> tuple[Mount, ...]:
        """The mounts of a hook or the agent. Without a file system of its own, /tmp is a folder of the run."""
        tmp = None if own_tmp else str(self.tmp)
        return (
            Mount(target="/workspace", source=str(self.workspace), variable="WORKSPACE"),
            Mount(target="/ipc", source=str(self.ipc), variable="IPC_DIR"),
            Mount(target="/tmp", source=tmp, variable="TMPDIR", size=TMP_SIZE),
        )

    def write(self, name: str, value: Any) -> None:
        """Write one of our own files, whole or not at all."""
        self.write_text(name, json.dumps(value, default=str))

    def write_text(self, name: str, text: str) -> None:
        files.write_whole(self.path / name, text.encode("utf-8", "surrogatepass"), mode=0o600)

    def read(self, name: str) -> dict[str, Any] | None:
        """Read one of our own files; None where it was not written."""
        try:
            found: Any = json.loads((self.path / name).read_text(encoding="utf-8", errors="surrogatepass"))
        except (OSError, ValueError):
            return None
        return cast("dict[str, Any]", found) if isinstance(found, dict) else None

    def left_in_ipc(self, name: str, most: int) -> bytes | None:
        """A file that somebody wrote beneath /ipc: at most `most` bytes and one more; None if there is no such file."""
        try:
            return files.read_below(self.ipc, name, most + 1)
        except OSError:
            return None

    def skip_reason(self) -> str | None:
        """The reason in the skip marker, where a preRun hook has left one."""
        found = self.left_in_ipc(SKIP, _SKIP_BYTES)
        if found is None:
            return None
        return found[:_SKIP_BYTES].decode("utf-8", "replace").strip() or NO_REASON

    def drop_from_ipc(self, name: str) -> None:
        """Remove a file beneath /ipc, if it is there; whatever it is."""
        with suppress(OSError):  # none there, or a folder, which is no verdict
            files.unlink_below(self.ipc, name)

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
        self._lock.close()


def at_socket(ipc: Path, join: Callable[[socket.socket, str], None]) -> socket.socket:
    """The socket in /ipc, bound or connected through an open folder: the whole path may be too long for a socket."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with files.opened_folder(ipc) as fd:
            join(made, f"/proc/self/fd/{fd}/{SOCKET}")
    except OSError:
        made.close()
        raise
    return made


class DiskUsage(NamedTuple):
    """The bytes in each folder of a run, by its name in the run, and those that are free on the disk."""

    held: Mapping[str, int]
    free: int


class Held(NamedTuple):
    """How a process ended; `overfull` says which folder was too full, where that is the reason."""

    ending: Ending
    overfull: str = ""


class Quota:
    """The folders of one run, with the most that each may hold."""

    def __init__(self, folder: Folder, workspace: int = WORKSPACE_SIZE) -> None:
        self._folder = folder
        self._most = {"/workspace": workspace, "/ipc": IPC_SIZE, "/tmp": TMP_SIZE}
        self._before: DiskUsage | None = None

    async def run(self, runner: Runner, order: Order) -> Held:
        """Run it, unless it takes up more than there is room for; then it is ended."""
        before = self._before or await self._look()
        self._before = None
        running = asyncio.ensure_future(runner.run(replace(order, file_size=self._most["/workspace"])))
        filling = asyncio.ensure_future(self._filled(before))
        try:
            await asyncio.wait({running, filling}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                return Held(Ending(), filling.result())
            ending = running.result()
            self._before = await self._look()
            return Held(ending, overfull(self._most, before, self._before))
        finally:
            await cancel_and_wait(running, filling)

    async def _filled(self, before: DiskUsage) -> str:
        pause, found = _PAUSE, ""
        while not found:
            await asyncio.sleep(pause)
            began = time.monotonic()
            found = overfull(self._most, before, await self._look())
            pause = max(_PAUSE, _SHARE * (time.monotonic() - began))
        return found

    async def _look(self) -> DiskUsage:
        return await _in_thread(self._looked)

    def _looked(self) -> DiskUsage:
        folder = self._folder
        places = {"/workspace": folder.workspace, "/ipc": folder.ipc, "/tmp": folder.tmp}
        return DiskUsage({name: _held_in(str(place)) for name, place in places.items()}, _free(folder.path))


def overfull(most: Mapping[str, int], before: DiskUsage, now: DiskUsage) -> str:
    """Which folder holds too much; empty if there is room.

    Files from before a process are not counted against it: it must be able to clean up.
    """
    for name, limit in most.items():
        if now.held[name] > max(
            limit, before.held[name] + limit // _MORE if before.held[name] > limit else 0
        ):
            return f"{name} holds {shown(now.held[name])}; at most {shown(limit)}{_OPTION.get(name, '')}"
    if now.free < LEAST_FREE and now.free < before.free - LEAST_FREE // _MORE:
        return (
            f"the disk of /workspace is nearly full: {shown(now.free)} are free; at least {shown(LEAST_FREE)}"
        )
    return ""


def in_bytes(text: str) -> int:
    """A quantity as Kubernetes writes it."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is not None:
        number, unit, power = found.groups()
        whole = int(float(number) * (10 ** int(power) if power else _UNITS[unit]))
        if 0 < whole < 2**63:
            return whole
    raise UsageError(f"--workspace-size is {text!r}; give bytes, or a quantity such as 512Mi or 2Gi")


def shown(size: int) -> str:
    """A size as a person reads it."""
    number, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    text = f"{number:.1f}".removesuffix(".0")
    return f"{text} {unit}"


def _held_in(folder: str) -> int:
    """The bytes on disk of everything in a folder. A file with several names counts once; no link is followed."""
    total, seen, waiting = 0, set[int](), [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    about = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif about.st_nlink > 1:
                        if about.st_ino in seen:
                            continue
                        seen.add(about.st_ino)
                    total += max(about.st_blocks * 512, _ENTRY)
        except OSError:
            continue  # removed meanwhile, or unreadable; free space on the disk is checked besides
    return total


def _free(path: Path) -> int:
    try:
        disk = os.statvfs(path)
    except OSError:
        return sys.maxsize  # it was removed, so nothing is written there
    return disk.f_bavail * disk.f_frsize
