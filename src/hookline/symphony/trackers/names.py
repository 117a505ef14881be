"""The trackers by name: what each takes for active and terminal, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookline.symphony.trackers import Tracker, TrackerError
from hookline.symphony.trackers.client import setting
from hookline.symphony.trackers.folder import FolderTracker
from hookline.symphony.trackers.github import GithubTracker
from hookline.symphony.trackers.linear import LinearTracker

_ACTIVE = ("Todo", "In Progress")
_TERMINAL = ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of tracker, as its users have to know it."""

    about: str
    active: tuple[str, ...]
    terminal: tuple[str, ...]
    identifier: str
    settings: tuple[str, ...]
    make: Callable[[Mapping[str, Any], Mapping[str, str], Path, Sequence[str]], Tracker]


def _folder(
    provider: Mapping[str, Any], env: Mapping[str, str], base: Path, terminal: Sequence[str]
) -> Tracker:
    path, _ = setting(provider, "path", env)
    return FolderTracker(base / Path(path or "issues").expanduser(), terminal)


_FOLDER = Kind(
    about="Markdown or YAML files in a folder, one an issue",
    active=_ACTIVE,
    terminal=_TERMINAL,
    identifier="the file's name, or its `identifier`",
    settings=("path",),
    make=_folder,
)
KINDS: Mapping[str, Kind] = {
    "folder": _FOLDER,
    "memory": _FOLDER,
    "linear": Kind(
        about="a project in Linear",
        active=_ACTIVE,
        terminal=_TERMINAL,
        identifier="ABC-123",
        settings=("project_slug", "api_key", "endpoint", "assignee"),
        make=lambda provider, env, _base, _terminal: LinearTracker(provider, env),
    ),
    "github": Kind(
        about="the issues of a GitHub repository",
        active=("open",),
        terminal=("closed",),
        identifier="GH-12",
        settings=("repository", "token", "endpoint", "assignee", "state_prefix"),
        make=lambda provider, env, _base, _terminal: GithubTracker(provider, env),
    ),
}


def tracker_of(
    kind: str, provider: Mapping[str, Any], env: Mapping[str, str], base: Path, terminal: Sequence[str]
) -> Tracker:
    """The tracker of this kind. Paths are taken from `base`."""
    known = KINDS.get(kind)
    if known is None:
        raise TrackerError(
            f"tracker.kind is {kind!r}; known: {', '.join(KINDS)}", kind="unsupported_tracker_kind"
        )
    return known.make(provider, env, base, terminal)
