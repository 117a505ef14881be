"""The protocol of runners: where the process of a hook runs. What to run is an order, how it went an ending."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["OUTPUT_CAP", "Ending", "Order", "Output", "Runner"]

OUTPUT_CAP = 1024 * 1024
"""Bytes kept of each output where nobody said otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to run.

    `env` is the whole environment; nothing is inherited beside it. `timeout` is in seconds and starts when the
    process does. With `background_keep` what the process leaves behind lives on until the runner is closed.
    """

    argv: tuple[str, ...]
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: bytes = b""
    timeout: float | None = None
    output_cap: int = OUTPUT_CAP
    merge_stderr: bool = False
    background_keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a process printed: all of it, or its beginning and its end and how much it was."""

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
        """Whether it ran and ended by itself in its time, so that its exit code means something."""
        return self.exit_code is not None and not self.passed_limit and self.not_started is None

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


class Runner(Protocol):
    """Where a process runs.

    Whatever the process does, `run` returns: past its limit, and when `run` is cancelled, the process and what it
    started are ended first. Waiting for a free place is not part of its limit.
    """

    async def run(self, order: Order) -> Ending: ...

    async def close(self) -> None:
        """End everything that was started here, also what was kept in the background."""
        ...


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
