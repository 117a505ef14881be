"""WORKFLOW.md as it is now: read again when it changes, kept as it was when the change is wrong."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Mapping

from hookline.errors import HooklineError
from hookline.symphony.read import read_file
from hookline.symphony.types import Workflow, missing_for_dispatch

EVERY = 1.0
"""Seconds between two looks at the file."""
SETTLED = 0.3
"""Seconds that a file has not been written to before it is read: an editor may write it in pieces."""

Stamp = tuple[int, int, int]


class Watched:
    """The last good workflow of a file, and what is wrong with the one on disk. The first one must be good."""

    def __init__(
        self,
        file: str,
        env: Mapping[str, str],
        *,
        strict: bool = False,
        told: Callable[[str], None] = lambda _: None,
        check: Callable[[Workflow], None] = lambda _: None,
    ) -> None:
        self.file = file
        self._env = env
        self._strict = strict
        self._told = told
        self._check = check
        self._stamp: Stamp | None = _stamp(file)
        self.text = ""
        """The file as it was when `workflow` was read of it."""
        self.workflow = self._read()
        self._content = _hash(file)
        self.problem: str | None = None
        self.revision = 1
        for warning in self.workflow.warnings:
            told(str(warning))

    async def watch(self, changed: Callable[[], None]) -> None:
        """Look again and again; `changed` is called after each change, good or not."""
        while True:
            await asyncio.sleep(EVERY)
            if await asyncio.to_thread(self.look):
                changed()

    def look(self, *, settled: float = SETTLED) -> bool:
        """Read the file if it has changed and rests; whether anything is different now."""
        stamp = _stamp(self.file)
        if stamp == self._stamp:
            return False
        if stamp is not None and time.time() - stamp[0] / 1e9 < settled:
            return False
        self._stamp = stamp
        content = _hash(self.file)
        if content == self._content and self.problem is None:
            return False
        self._content = content
        try:
            workflow = self._read()
        except HooklineError as exc:
            return self._keep(str(exc))
        self.workflow, self.problem = workflow, None
        self.revision += 1
        for warning in workflow.warnings:
            self._told(str(warning))
        self._told(f"{self.file} was read again (revision {self.revision})")
        return True

    def _keep(self, problem: str) -> bool:
        if problem != self.problem:
            self.problem = problem
            self._told(f"{problem}; revision {self.revision} stays in force, and nothing new is begun")
        return True

    def _read(self) -> Workflow:
        text = None
        while True:
            workflow = read_file(self.file, self._env, strict=self._strict).checked()
            # What was read between two equal texts was read of this one.
            before, text = text, _text(self.file)
            if text == before:
                break
        missing = missing_for_dispatch(workflow)
        if missing:
            raise missing[0]
        self._check(workflow)
        self.text = text or ""
        return workflow


def _stamp(file: str) -> Stamp | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _text(file: str) -> str | None:
    try:
        with open(file, encoding="utf-8-sig", newline="") as opened:
            return opened.read()
    except OSError:
        return None


def _hash(file: str) -> bytes | None:
    try:
        with open(file, "rb") as opened:
            return hashlib.sha256(opened.read()).digest()
    except OSError:
        return None
