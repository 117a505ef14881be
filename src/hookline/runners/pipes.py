"""A process that is talked with while it runs: its pipes are the caller's, everything else is the LocalRunner's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from hookline.runners import Ending, Order
from hookline.runners.local import LocalRunner, Pipes, Started, popened

__all__ = ["PATIENCE", "Piped", "piped"]

PATIENCE = 2.0
"""Seconds that a process has to go by itself once its input is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piped:
    """Our ends of its pipes, not blocking, and how it ended or why it never started."""

    stdin: int
    stdout: int
    stderr: int
    ending: asyncio.Future[Ending]


@asynccontextmanager
async def piped(order: Order, patience: float = PATIENCE) -> AsyncGenerator[Piped, None]:
    """The process, started. At the end its input is closed, and what then stays is ended with all that it started."""
    runner = LocalRunner(cap=1)
    pipes = _Pipes()
    ending = asyncio.ensure_future(runner.run(order, pipes.start))
    # Where it never started, whoever reads from it must come to an end too.
    ending.add_done_callback(lambda _: pipes.close(*pipes.theirs))
    try:
        yield Piped(stdin=pipes.stdin, stdout=pipes.stdout, stderr=pipes.stderr, ending=ending)
    finally:
        pipes.close(pipes.stdin)
        try:
            await asyncio.wait({ending}, timeout=patience)
        finally:
            ending.cancel()
            try:
                await runner.close()
                await asyncio.wait({ending})
            finally:
                pipes.close(*pipes.open)


class _Pipes:
    """Three pipes, of which a process gets the other ends."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        try:
            inward, self.stdin = self._pipe()
            self.stdout, outward = self._pipe()
            self.stderr, errors = self._pipe()
        except OSError:
            self.close(*self.open)
            raise
        self.theirs: Pipes = (inward, outward, errors)
        for fd in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(fd, False)

    def start(self, order: Order, env: Mapping[str, str], number: str, _: Pipes) -> Started:
        try:
            return popened(order, env, number, self.theirs)
        finally:
            self.close(*self.theirs)

    def close(self, *fds: int) -> None:
        """Each of them once: its number may be another file's by then."""
        for fd in fds:
            if fd in self.open:
                self.open.discard(fd)
                os.close(fd)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self.open.update(ends)
        return ends
