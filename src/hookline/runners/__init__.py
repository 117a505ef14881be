"""The protocol of runners: where the process of a hook runs. What to run is an order, how it went an ending.

Runners differ in what they can hold a process to; each says so as data, `Capabilities`. The functions on mounts say
where the places that an order names are on this machine, and what a process is told of them.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from typing import Protocol

from hookline.engine.classes import dataclass, field, replace
from hookline.errors import UsageError

OUTPUT_CAP = 1024 * 1024
"""Bytes kept of each output where nobody said otherwise."""
OWN_SIZE = 256 * 1024 * 1024
"""Bytes that /tmp, or another folder of its own, may hold where nobody said otherwise."""
_PLACE = re.compile(r"/[^\0]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder or file of this machine that a process finds at `target`; without a source, an empty one of its own.

    `variable` names the environment variable with its place as the process sees it: `target` where there is a file
    system of its own, else `source`. `size` is the most that an own one holds, in bytes.
    """

    target: str
    source: str | None = None
    read_only: bool = False
    variable: str | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if not _PLACE.fullmatch(self.target) or os.path.normpath(self.target) != self.target:
            raise UsageError(f"a mount's target is a whole path below /, without dots, not {self.target!r}")
        if self.source is not None and not _PLACE.fullmatch(self.source):
            raise UsageError(f"what is mounted at {self.target} must be a whole path, not {self.source!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A process to run.

    `env` is the whole environment; nothing is inherited beside it. `timeout` is in seconds and starts when the
    process does. With `background_keep` what the process leaves behind lives on until the runner is closed.

    `mounts`, `network` and `image` say what it needs to see; `cwd` is a place as the process sees it. What a runner
    does of that, its capabilities say. With `own_program` the image's program is run, and `argv` are its arguments.
    `file_size` is the most that any file it writes may hold, in bytes.
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
    """The output of a process: all of it, or its beginning and its end and how much it was."""

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
        """The same as text; what is no UTF-8 shows as U+FFFD."""
        return self.content.decode("utf-8", "replace")

    def last_lines(self, count: int = 5, width: int = 400) -> str:
        """The end of it, for a message."""
        text = self.content[-8192:].decode("utf-8", "replace")
        lines = [line.rstrip()[:width] for line in text.splitlines() if line.strip()]
        return "\n".join(lines[-count:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How it went. `not_started` says why it never ran, which must not be taken for running and failing."""

    exit_code: int | None = None
    signal: int | None = None
    stdout: Output = Output()
    stderr: Output = Output()
    seconds: float = 0.0
    passed_limit: bool = False
    not_started: str | None = None

    @property
    def exited(self) -> bool:
        """True if it ran and ended by itself in its time, so that its exit code means something."""
        return self.exit_code is not None and not self.passed_limit and self.not_started is None

    def last_lines(self, count: int = 5) -> str:
        """The end of its errors, or of its output where there are none, for a message."""
        return self.stderr.last_lines(count) or self.stdout.last_lines(count)

    def in_words(self, timeout: float | None = None) -> str:
        if self.not_started is not None:
            return f"could not start: {self.not_started}"
        if self.passed_limit:
            return "ran past its limit" if timeout is None else f"ran past its limit of {timeout:g} s"
        if self.signal is not None:
            return f"was killed by {_signal_name(self.signal)}"
        if self.exit_code is None:
            return "ended, but its exit code was lost; is SIGCHLD ignored in this process?"
        return f"exited with {self.exit_code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The things that a runner does with an order beyond running it."""

    name: str
    hides_files: bool
    hides_processes: bool
    cuts_network: bool
    uses_image: bool
    keeps_background: bool

    @property
    def isolates(self) -> tuple[str, ...]:
        held = {"files": self.hides_files, "processes": self.hides_processes, "network": self.cuts_network}
        return tuple(what for what, is_held in held.items() if is_held)

    def shortfalls(self, order: Order) -> list[str]:
        """A sentence for each thing that the order asks for and does not get here."""
        found: list[str] = []
        if not self.isolates:
            found.append(f"{self.name} isolates nothing: it sees all files, processes and the network")
        if order.image is not None and not self.uses_image:
            found.append(f"{self.name} does not pull image {order.image!r}; it runs this machine's programs")
        if not self.hides_files:
            found += [self._not_mounted(mount) for mount in order.mounts]
        if order.background_keep and not self.keeps_background:
            found.append(f"{self.name} ends what is left in the background")
        return found

    def _not_mounted(self, mount: Mount) -> str:
        if mount.source is None:
            return f"{self.name} has no {mount.target} of its own; it is this machine's"
        told = f"; ${mount.variable} names its place" if mount.variable else ""
        return f"{self.name} does not mount {mount.target}{told}"


class Runner(Protocol):
    """Where a process runs.

    Whatever the process does, `run` returns: past its limit, and when `run` is cancelled, the process and what it
    started are ended first. Waiting for a free place is not part of its limit.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def run(self, order: Order) -> Ending: ...

    async def close(self) -> None:
        """End everything that was started here, also what was kept in the background."""
        ...


def on_this_machine(order: Order) -> Order:
    """The order for a process that sees this machine's files: real places, told by environment variables."""
    told = {each.variable: each.source for each in order.mounts if each.variable and each.source}
    cwd = order.cwd and (source_of(order.mounts, order.cwd) or order.cwd)
    return replace(order, env={**order.env, **told}, cwd=cwd, mounts=())


def inside_variables(order: Order) -> dict[str, str]:
    """The variables that tell a process with a file system of its own where its mounts are."""
    return {each.variable: each.target for each in order.mounts if each.variable}


def own_mounts(order: Order) -> list[Mount]:
    """The mounts of a process with a file system of its own: the outer ones first, and a /tmp in any case."""
    tmp = () if any(each.target == "/tmp" for each in order.mounts) else (Mount(target="/tmp"),)
    return sorted((*tmp, *order.mounts), key=lambda each: len(each.target))


def missing_source(mount: Mount) -> str | None:
    """The reason why a mount cannot be made; None where its source is there, or it has none."""
    if mount.source is None or os.path.exists(mount.source):
        return None
    return f"the folder to mount at {mount.target} is not there: {mount.source!r}"


def source_of(mounts: Sequence[Mount], path: str) -> str | None:
    """The place on this machine that a process finds at `path`; None where no mount of this machine's is there."""
    path = os.path.normpath(path)
    above = [each for each in mounts if beneath(path, each.target)]
    if not above:
        return None
    nearest = max(above, key=lambda each: len(each.target))
    if nearest.source is None:
        return None
    return os.path.normpath(os.path.join(nearest.source, os.path.relpath(path, nearest.target)))


def beneath(path: str, folder: str) -> bool:
    """True if a path is that folder or in it, by its words alone."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
