"""The protocol of runners, which run the processes of hooks: an `Order` says what to run, an `Ending` how it ended.

Runners differ in how far they isolate a process; each declares that as `Capabilities`. The functions on mounts map the
paths that a process sees to paths of this machine, and to its environment variables.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Protocol

from hookline.engine.stdlib import dataclass, field, lazy_pattern, replace
from hookline.errors import UsageError

OUTPUT_CAP = 1024 * 1024
"""Bytes kept of each output by default."""
CHUNK = 65536
"""Bytes read of an output at a time."""
OWN_SIZE = 256 * 1024 * 1024
"""Bytes that /tmp, or another folder of the process's own, may hold by default."""
_PLACE = lazy_pattern(r"/[^\0]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder or file of this machine that a process finds at `target`; without a source, an empty folder of its own.

    `variable` names the environment variable that holds its path as the process sees it: `target` if the process has
    a file system of its own, else `source`. `size` limits a folder of its own, in bytes.
    """

    target: str
    source: str | None = None
    read_only: bool = False
    variable: str | None = None
    size: int = OWN_SIZE

    def __post_init__(self) -> None:
        if not _PLACE.fullmatch(self.target) or os.path.normpath(self.target) != self.target:
            raise UsageError(f"a mount's target is a whole path below /, without dots, not {self.target!r}")
        if self.source is not None and not _PLACE.fullmatch(self.source):
            raise UsageError(f"what is mounted at {self.target} must be a whole path, not {self.source!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A process to run.

    `env` is the whole environment; nothing else is inherited. `timeout` is in seconds and starts with the process.
    With `background_keep` the processes that it leaves behind live on until the runner is closed.

    `mounts`, `network` and `image` are what the process needs; the capabilities of a runner say which of them it
    provides. `cwd` is a path as the process sees it. With `own_program` the image's program is run, and `argv` are its
    arguments. `file_size` limits each file that the process writes, in bytes.
    """

    argv: tuple[str, ...]
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: bytes = b""
    timeout: float | None = None
    output_cap: int = OUTPUT_CAP
    merge_stderr: bool = False
    background_keep: bool = False
    mounts: tuple[Mount, ...] = ()
    network: bool = False
    image: str | None = None
    own_program: bool = False
    file_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The output of a process: all of it, or its beginning, its end and its total size."""

    head: bytes = b""
    tail: bytes = b""
    total: int = 0

    @property
    def whole(self) -> bool:
        return len(self.head) + len(self.tail) == self.total

    @property
    def content(self) -> bytes:
        """The bytes that were kept, with a line where some are missing."""
        if self.whole:
            return self.head + self.tail
        missing = self.total - len(self.head) - len(self.tail)
        return b"%b\n... %d bytes left out ...\n%b" % (self.head, missing, self.tail)

    @property
    def text(self) -> str:
        """The content as text; bytes that are not UTF-8 become U+FFFD."""
        return self.content.decode("utf-8", "replace")

    def last_lines(self, count: int = 5, width: int = 400) -> str:
        """The last lines, for a message."""
        text = self.content[-8192:].decode("utf-8", "replace")
        lines = [line.rstrip()[:width] for line in text.splitlines() if line.strip()]
        return "\n".join(lines[-count:])


class Capture:
    """The beginning and the end of an output; the part in between is only counted."""

    __slots__ = ("_head", "_room_at_end", "_room_at_start", "_tail", "_total")

    def __init__(self, cap: int) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._room_at_end = cap // 2
        self._room_at_start = cap - self._room_at_end
        self._total = 0

    def add(self, part: bytes) -> None:
        self._total += len(part)
        free = self._room_at_start - len(self._head)
        if free > 0:
            self._head += part[:free]
            part = part[free:]
        self._tail += part
        if len(self._tail) > 2 * self._room_at_end + CHUNK:
            self._cut()

    def output(self) -> Output:
        self._cut()
        return Output(head=bytes(self._head), tail=bytes(self._tail), total=self._total)

    def _cut(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._room_at_end)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a process ended. `not_started` is the reason if it never ran, which differs from running and failing.

    `stopped` is true if its runner was closed before it was done: whatever its exit code is then, it is no answer.
    """

    exit_code: int | None = None
    signal: int | None = None
    stdout: Output = Output()
    stderr: Output = Output()
    seconds: float = 0.0
    passed_limit: bool = False
    stopped: bool = False
    not_started: str | None = None

    @property
    def exited(self) -> bool:
        """True if the process ran and exited by itself within its limit, so that its exit code means something."""
        ended_by_us = self.passed_limit or self.stopped
        return self.exit_code is not None and not ended_by_us and self.not_started is None

    def last_lines(self, count: int = 5) -> str:
        """The last lines of stderr, or of stdout if stderr is empty, for a message."""
        return self.stderr.last_lines(count) or self.stdout.last_lines(count)

    def in_words(self, timeout: float | None = None) -> str:
        if self.not_started is not None:
            return f"could not start: {self.not_started}"
        if self.passed_limit:
            return "ran past its limit" if timeout is None else f"ran past its limit of {timeout:g} s"
        if self.stopped:
            return "was stopped before it was done"
        if self.signal is not None:
            return f"was killed by {_signal_name(self.signal)}"
        if self.exit_code is None:
            return "ended, but its exit code was lost; is SIGCHLD ignored in this process?"
        return f"exited with {self.exit_code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The parts of an order that a runner honours.

    A runner that isolates hides this machine's files and processes, and cuts off the network.
    """

    name: str
    isolates: bool
    uses_image: bool
    keeps_background: bool

    def shortfalls(self, order: Order) -> list[str]:
        """A sentence for each part of the order that this runner does not honour."""
        found: list[str] = []
        if not self.isolates:
            found.append(f"{self.name} isolates nothing: it sees all files, processes and the network")
            found += [self._not_mounted(mount) for mount in order.mounts]
        if order.image is not None and not self.uses_image:
            found.append(f"{self.name} does not pull image {order.image!r}; it runs this machine's programs")
        if order.background_keep and not self.keeps_background:
            found.append(f"{self.name} ends what is left in the background")
        return found

    def _not_mounted(self, mount: Mount) -> str:
        if mount.source is None:
            return f"{self.name} has no {mount.target} of its own; it is this machine's"
        told = f"; ${mount.variable} names its place" if mount.variable else ""
        return f"{self.name} does not mount {mount.target}{told}"


class Runner(Protocol):
    """Runs processes.

    `run` returns whatever the process does. At the limit, and when `run` is cancelled, the process and all that it
    started are ended first. Waiting for a free slot does not count towards the limit.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def run(self, order: Order) -> Ending: ...

    async def close(self) -> None:
        """End every process of this runner, including those kept in the background."""
        ...


def on_this_machine(order: Order) -> Order:
    """The order for a process that sees this machine's files: real paths, and variables that name them."""
    told = {each.variable: each.source for each in order.mounts if each.variable and each.source}
    cwd = order.cwd and (source_of(order.mounts, order.cwd) or order.cwd)
    return replace(order, env={**order.env, **told}, cwd=cwd, mounts=())


def inside_variables(order: Order) -> dict[str, str]:
    """The variables that name the mounts of a process with a file system of its own."""
    return {each.variable: each.target for each in order.mounts if each.variable}


def own_mounts(order: Order) -> list[Mount]:
    """The mounts of a process with a file system of its own: outer ones first, and always a /tmp."""
    tmp = () if any(each.target == "/tmp" for each in order.mounts) else (Mount(target="/tmp"),)
    return sorted((*tmp, *order.mounts), key=lambda each: len(each.target))


def missing_source(order: Order) -> str | None:
    """The reason why one of the mounts cannot be made; None if every source exists."""
    for mount in order.mounts:
        if mount.source is not None and not os.path.exists(mount.source):
            return f"the folder to mount at {mount.target} is not there: {mount.source!r}"
    return None


def source_of(mounts: Sequence[Mount], path: str) -> str | None:
    """The path on this machine that a process finds at `path`; None if no mount with a source covers it."""
    path = os.path.normpath(path)
    above = [each for each in mounts if beneath(path, each.target)]
    if not above:
        return None
    nearest = max(above, key=lambda each: len(each.target))
    if nearest.source is None:
        return None
    return os.path.normpath(os.path.join(nearest.source, os.path.relpath(path, nearest.target)))


def beneath(path: str, folder: str) -> bool:
    """True if a path is that folder or inside it, without looking at the file system."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
