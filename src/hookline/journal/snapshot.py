"""The end hooks of a run as they were at its start: kept with its beginning, so that a crash takes none of them.

Of Python and of scripts the content of the file that is named is kept, the same content once for all runs; what that file
imports or starts is not. Variables with secret names are kept by name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hookline.engine.point import Scope
from hookline.errors import JournalError, UsageError
from hookline.files import fixed
from hookline.journal.masking import Mask
from hookline.options import GIVEN
from hookline.secrets import secret_words

if TYPE_CHECKING:
    from hookline.engine.hook import Hook

ENDS = frozenset({Scope.RUN.end, Scope.WORKSPACE.end})
"""The points whose hooks the next start calls after a crash."""
_DATA = ""
"""The name of the data among the contents; each other name is the path of a file."""
_KEEP = "INSERT OR IGNORE INTO content (digest, body) VALUES (?, ?)"
_NAME = "INSERT OR REPLACE INTO kept (run_id, name, digest) VALUES (?, ?, ?)"
_KEPT = "SELECT name, kept.digest, body FROM kept LEFT JOIN content USING (digest) WHERE run_id = ?"


class Rows(Protocol):
    """A journal that can be asked in SQL."""

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]: ...


class Snapshot(NamedTuple):
    """The end hooks of a run, and what they need.

    `how` in a hook says how it is made again; it is null where that was known only to the process that is gone.
    `modules` are the paths of modules that are named by name, `contents` those of files and modules.
    """

    hooks: Sequence[Mapping[str, Any]]
    modules: Mapping[str, str]
    cwd: str
    workspace: str | None
    env: Mapping[str, str | None]
    contents: Mapping[str, bytes]

    @property
    def unknown(self) -> str | None:
        """A sentence about the hooks that cannot be made again; None if there are none."""
        names = ", ".join(each["name"] for each in self.hooks if each["how"] is None)
        told = "given as functions of Python code that cannot be found again, so not run"
        return f"end hooks {told}: {names}" if names else None

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of its hooks: those of this process, and those that the run was given."""
        missing = [name for name, value in self.env.items() if value is None and name not in environ]
        if missing:
            told = "which is not kept because it may be a secret"
            raise UsageError(
                f"it was started with --env {', '.join(missing)}, {told}; set it and start again"
            )
        return {**environ, **{name: value for name, value in self.env.items() if value is not None}}


def snapshot(
    hooks: Iterable[Hook],
    own: Iterable[Hook] = (),
    *,
    source: str | None = None,
    workspace: str | None = None,
) -> dict[str, bytes]:
    """The contents to keep for a run: of `hooks` that it was given, and of an agent's `own`, found by its source."""
    listed = [_entry(each, each.again() if each.again else None) for each in _ending(hooks)]
    known = source if source and _file(source.rpartition(":")[0]) else None
    listed += [
        _entry(each, {"agent": known, "index": index} if known else None)
        for index, each in enumerate(_ending(own))
    ]
    named = {place: file for each in listed for place in _places(each["how"]) if (file := _file(place))}
    data = {
        "hooks": listed,
        "modules": {place: file for place, file in named.items() if place != file},
        "cwd": os.getcwd() if listed else "",
        "workspace": workspace if listed else None,
        "env": {name: _public(name, value) for name, value in GIVEN.items()} if listed else {},
    }
    import json

    contents = {_DATA: json.dumps(data, sort_keys=True).encode()}
    scripts = [file for each in listed for file in _scripts(each["how"])]
    for file in (*named.values(), *scripts):
        try:
            contents[file] = fixed(file) or Path(file).read_bytes()
        except OSError:
            continue  # what is there later is looked at then
    return contents


def kept(run_id: str, contents: Mapping[str, bytes]) -> list[tuple[str, tuple[Any, ...]]]:
    """The statements that keep the contents for a run."""
    digests = {name: _digest(body) for name, body in contents.items()}
    return [
        *((_KEEP, (digests[name], body)) for name, body in contents.items()),
        *((_NAME, (run_id, name, digest)) for name, digest in digests.items()),
    ]


def snapshot_of(journal: Rows, run_id: str) -> Snapshot | None:
    """The snapshot of a run; None if none was kept."""
    contents: dict[str, bytes] = {}
    for name, digest, body in journal.rows(_KEPT, run_id):
        if body is None or _digest(body) != digest:
            raise JournalError(f"what was kept for the end hooks of {run_id} is damaged")
        contents[name] = body
    if _DATA not in contents:
        return None
    import json

    return Snapshot(**json.loads(contents.pop(_DATA)), contents=contents)


def _ending(hooks: Iterable[Hook]) -> Iterator[Hook]:
    # Background calls ended with the process that began them.
    return (each for each in hooks if each.points & ENDS and each.kind != "background")


def _entry(hook: Hook, how: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "name": hook.name,
        "points": sorted(hook.points & ENDS),
        "kind": hook.kind,
        "timeout": hook.timeout,
        "on_error": hook.on_error,
        "mode": hook.mode,
        "source": hook.source,
        "how": how,
    }


def _places(how: Mapping[str, Any] | None) -> Iterator[str]:
    """The files and modules that a hook is made of."""
    if how is None:
        return
    if "agent" in how:
        yield how["agent"].rpartition(":")[0]
    elif how["declared"]["kind"] == "python":
        params = how["declared"]["params"]
        yield params.get("file") or params["module"]


def _scripts(how: Mapping[str, Any] | None) -> Iterable[str]:
    """The scripts that a hook starts."""
    return () if how is None else how.get("scripts", {}).values()


def _file(place: str) -> str | None:
    """The Python file of a path or a module; None for what is neither, and for hookline's own."""
    if place.endswith(".py"):
        return place
    file = getattr(sys.modules.get(place), "__file__", None) or ""
    return file if file.endswith(".py") and place.partition(".")[0] != "hookline" else None


def _public(name: str, value: str) -> str | None:
    """The value of a variable; None if it may be a secret."""
    return None if secret_words(name) or Mask().text(value) != value else value


def _digest(body: bytes) -> str:
    import hashlib  # slow to load, and only for runs

    return hashlib.sha256(body).hexdigest()
