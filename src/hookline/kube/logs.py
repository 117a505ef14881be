"""Read a pod's log to its end: followed line by line, and read again from its beginning after every break."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline.journal.stream import MARK
from hookline.kube.objects import NO_LOG, ApiRefused, ClusterError, NotThere

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

GONE = "its pod was gone before its log could be read to the end"
_PAUSE = 1.0
_FORBIDDEN = 403
_AT_ONCE = 200


@dataclass(eq=False)
class LogReader:
    """The log of one container. `take` is awaited with each line before the next is read.

    `again` is called before each reading. When the log is read again, only lines with records are taken a second time:
    records are numbered, so that none is lost of a log whose beginning was rotated away."""

    cluster: Cluster
    pod: str
    namespace: str
    container: str
    take: Callable[[str], Awaitable[object]]
    again: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        self._whole = False
        self.count = 0
        """Number of lines so far."""
        self.line_number = 0
        """Number of lines over the last connection."""

    async def read_once(self) -> None:
        """Follow the log over one connection, until the server closes it."""
        self.line_number = 0
        lost = False
        self.again()
        async with aclosing(self.cluster.follow_log(self.pod, self.namespace, self.container)) as lines:
            async for line in lines:
                lost = line.startswith(NO_LOG)
                if not lost:
                    await self._line(line)
        self._whole = self._whole or not lost

    async def read(
        self,
        is_over: Callable[[], bool],
        pause: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(_PAUSE),
    ) -> str:
        """Follow the log until it has ended and its container `is_over`, with a pause before each new connection.

        Returns why it could not be read to its end; empty if it was."""
        refused = False
        while True:
            try:
                await self.read_once()
            except NotThere:
                return "" if self._whole else GONE
            except ApiRefused as exc:
                # Another status than 403 may be of a container that has not started yet.
                if exc.status == _FORBIDDEN or (refused and is_over()):
                    return "" if self._whole else f"its log may not be read: {exc.message}"
                refused = True
            except ClusterError:
                self._whole = False
            # The log may end before its container: a proxy may close the connection.
            if self._whole and is_over():
                return ""
            await pause()

    async def _line(self, line: str) -> None:
        self.line_number += 1
        if self.line_number > self.count or MARK in line:
            self._whole = False
            await self.take(line)
        self.count = max(self.count, self.line_number)
        if self.line_number % _AT_ONCE == 0:
            # A long log arrives faster than it is handled: let other tasks run.
            await asyncio.sleep(0)
