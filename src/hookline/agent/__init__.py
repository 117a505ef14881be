"""The built-in agent. Here is an agent in a file, ready to run: so `pyagent` runs, serves and explains every format."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline.errors import FileError, UsageError

if TYPE_CHECKING:
    from hookline.agent.sdk import Agent
    from hookline.runners import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An agent in Python as it is; a format whose hooks come later, or out of images, says so by its own class.

    `source` finds the file again. `problems` are mistakes: with one of them nothing is run. `warnings` cost a hook or
    a tool, not the agent. `secrets` are the values of the file that must not be shown, `refs` the images of all hooks,
    each once, in the order of the file. The model and tools of a file that is not `is_whole` come from the command line.
    """

    agent: Agent
    source: str
    problems: tuple[FileError, ...] = ()
    warnings: tuple[FileError, ...] = ()
    notes: tuple[FileError, ...] = ()
    secrets: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    is_whole: bool = True

    def check_model(self) -> None:
        """Raise a FileError that says why there is no model to ask, where the file can tell."""

    def take_model(self, provider: str, model: str) -> None:
        """Another model than the file's."""
        self.agent.provider, self.agent.model = provider, model

    def take_tools(self, names: Iterable[str]) -> None:
        """Ready tools besides the file's."""
        if list(names):
            raise UsageError("--tools is for manifests; a Python agent declares its tools in its file")

    def image_sources(self, images: Sequence[str]) -> dict[str, str]:
        """The source of each hook image, by `--image REF=SOURCE`."""
        found: dict[str, str] = {}
        for pair in images:
            ref, equals, source = pair.partition("=")
            if not equals or not ref or not source:
                raise UsageError(f"--image {pair!r} is not REF=SOURCE")
            if ref not in self.refs:
                known = ", ".join(self.refs) or "none"
                raise UsageError(
                    f"--image {pair!r}: no hook here has the image {ref!r}; images here: {known}"
                )
            # A path that is there is meant, also without ./ before it.
            found[ref] = os.path.abspath(source) if os.path.exists(source) else source
        return found

    def attach_unfetched(self, runner: Runner, *, here: bool) -> list[str]:
        """Attach the hooks to explain them, without fetching their images; notes on where those would be."""
        return []

    async def check_images(self, images: Sequence[str]) -> tuple[list[FileError], list[FileError | str]]:
        """Mistakes that show only in the images of hooks, and notes."""
        return [], []

    @asynccontextmanager
    async def live(
        self, runner: Runner, sources: Mapping[str, str], told: Callable[[str], None]
    ) -> AsyncGenerator[None]:
        """Makes all hooks live; what they need, such as images, is there while the block runs."""
        yield
