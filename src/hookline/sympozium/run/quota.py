"""How much the folders of a run may hold, so that no hook and no agent fills the machine.

The system itself holds each single file and, where a process has a /tmp of its own, that. What lies in folders that
hooks share is measured: while a process runs, and when it has ended. One that holds too much is ended with what it
started. So between two looks more can be written than is allowed, and it is not there for long.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hookline.engine.threads import Threads
from hookline.errors import HookBroke, UsageError
from hookline.runners import Ending, Order, Runner
from hookline.sympozium.run.folders import TMP_SIZE, Folder
from hookline.tasks import cancel_and_wait

WORKSPACE_SIZE = 1024**3
IPC_SIZE = 64 * 1024**2
LEAST_FREE = 128 * 1024**2
"""What stays free on the disk: a file that was removed and is still written to is seen there alone."""
_OPTION = {"/workspace": " (--workspace-size)"}
_ENTRY = 1024
"""What an entry counts at least: also a million empty files are too much for a disk."""
_PAUSE = 0.25
_SHARE = 10
"""A look takes no more of the time than one in so many."""
_MORE = 16
"""Where it is full already, a hook that tidies up may still add one part in so many."""
_UNITS = {
    "": 1,
    **{unit: 1000**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)(?:(|k|[MGTPE]|[KMGTPE]i)|[eE](\d{1,2}))")
_threads = Threads()


class DiskUsage(NamedTuple):
    """What the folders of a run were found to hold, by their name in the run, and what was free beside them."""

    held: Mapping[str, int]
    free: int


class Held(NamedTuple):
    """How a process ended; `overfull` says what there was too much of, where that is why."""

    ending: Ending
    overfull: str = ""


class Quota:
    """The folders of one run, with the most that each may hold."""

    def __init__(self, folder: Folder, workspace: int = WORKSPACE_SIZE) -> None:
        self._folder = folder
        self._workspace = workspace
        self._before: DiskUsage | None = None

    async def run(self, runner: Runner, order: Order) -> Held:
        """Run it, unless it takes up more than there is room for; then it is ended."""
        before = self._before or await self._look()
        self._before = None
        running = asyncio.ensure_future(runner.run(replace(order, file_size=self._workspace)))
        filling = asyncio.ensure_future(self._filled(before))
        try:
            await asyncio.wait({running, filling}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                return Held(Ending(), filling.result())
            ending = running.result()
            self._before = await self._look()
            return Held(ending, self._wrong(before, self._before))
        except GeneratorExit:
            running.cancel()
            filling.cancel()
            raise
        finally:
            await cancel_and_wait(running, filling)

    async def _filled(self, before: DiskUsage) -> str:
        pause, found = _PAUSE, ""
        while not found:
            await asyncio.sleep(pause)
            began = time.monotonic()
            found = self._wrong(before, await self._look())
            pause = max(_PAUSE, _SHARE * (time.monotonic() - began))
        return found

    async def _look(self) -> DiskUsage:
        try:
            return await _threads.call(self._looked, timeout=None)
        except HookBroke:
            return self._looked()  # no thread to be had

    def _looked(self) -> DiskUsage:
        folder = self._folder
        places = {"/workspace": folder.workspace, "/ipc": folder.ipc, "/tmp": folder.tmp}
        return DiskUsage({name: _held_in(str(place)) for name, place in places.items()}, _free(folder.path))

    def _wrong(self, before: DiskUsage, now: DiskUsage) -> str:
        return overfull({"/workspace": self._workspace, "/ipc": IPC_SIZE, "/tmp": TMP_SIZE}, before, now)


def overfull(most: Mapping[str, int], before: DiskUsage, now: DiskUsage) -> str:
    """What there is too much of; empty where there is room.

    What lay there before a process began is none of its doing: it must be able to tidy up.
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
    """What everything in it takes on the disk. A file with several names counts once; no link is followed."""
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
            continue  # gone meanwhile, or not to be looked into; the disk tells then
    return total


def _free(path: Path) -> int:
    try:
        disk = os.statvfs(path)
    except OSError:
        return sys.maxsize  # somebody has removed it, and then nothing is written there
    return disk.f_bavail * disk.f_frsize
