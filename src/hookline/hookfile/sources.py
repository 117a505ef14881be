"""Which hook files hold for a command: the machine's, the user's, the project's, then those that it names.

The machine's file cannot be loosened from below: no option leaves it out, and its hooks have the last word.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import hook
from hookline.engine.result import HookResult
from hookline.errors import FileError
from hookline.files import fix
from hookline.hookfile import trust
from hookline.hookfile.content import content_at
from hookline.journal import xdg_folder

MACHINE, USER, PROJECT, NAMED, OMITTED = "machine", "user", "project", "named", "omitted"


class Source(NamedTuple):
    """A hook file, or a module with hooks, and where it comes from."""

    file: str
    level: str

    def __str__(self) -> str:
        if self.level == OMITTED:
            return "not the project's (--no-project-hooks)"
        return f"{self.file} ({self.level})"


def found(starts: Iterable[str | Path] | None, environ: Mapping[str, str]) -> list[Source]:
    """The files that hold without being named; the project's is the nearest to the first folder that has one.

    Without folders to start from, only the machine's. A file of the machine or the user that somebody else could have
    written is refused.
    """
    listed: list[Source] = []
    machine = machine_file()
    if trust.is_there(machine):
        trust.refuse_unowned(machine)
        listed.append(Source(str(machine), MACHINE))
    if starts is None:
        return listed
    user = user_file(environ)
    if trust.is_expected(user, environ):
        _refuse_others(user)
        listed.append(Source(str(user), USER))
    project = next(filter(None, (trust.nearest(Path(start), environ) for start in starts)), None)
    if project is not None:
        listed.append(Source(str(project), PROJECT))
    return _each_once(listed)


def machine_file() -> Path:
    """The machine's own hook file, which holds for all its users."""
    return trust.MACHINE / trust.FILE


def user_file(environ: Mapping[str, str]) -> Path:
    """The user's own hook file, which holds in every folder."""
    return xdg_folder(environ, "XDG_CONFIG_HOME", ".config") / trust.FILE


def held(
    starts: Iterable[str | Path] | None,
    environ: Mapping[str, str],
    named: Iterable[str] = (),
    *,
    project: bool = True,
    option: str = "--hooks",
) -> list[Source]:
    """The files that hold, in order, each once. One that is found and named counts as named.

    A project's file that is found and not approved is refused. Without `project` it is left out, which is on record.
    `option` is the one that names a file.
    """
    last = [Source(file, NAMED) for file in named]
    names = {os.path.realpath(each.file) for each in last}
    first: list[Source] = []
    for each in found(starts, environ):
        if each.level != PROJECT:
            first.append(each)
        elif project and os.path.realpath(each.file) not in names:
            trust.refuse_distrusted(Path(each.file), environ, option=option)
            first.append(each)
    omitted = () if project else (Source(OMISSION, OMITTED),)
    return _each_once([*first, *omitted, *last])


def line_of(held: Iterable[Source]) -> str:
    """The files that hold, for a reader."""
    return f"hooks: {', '.join(map(str, held)) or 'no hook file'}"


def unapproved(source: Source, environ: Mapping[str, str]) -> FileError | None:
    """A note on a project's file that is not approved; that is no mistake in it."""
    why = trust.distrusted(Path(source.file), environ) if source.level == PROJECT else None
    told = f"{why}, then: hookline trust; until then nothing that it holds for runs"
    return FileError(told, file=source.file, code="not-approved") if why else None


def is_approved(file: str | Path, environ: Mapping[str, str]) -> bool:
    """True for a file whose code may be loaded to look at it: the machine's, the user's, or one that was approved."""
    own = {os.path.realpath(machine_file()), os.path.realpath(user_file(environ))}
    return os.path.realpath(file) in own or trust.distrusted(Path(file), environ) is None


def is_machine(file: str | Path) -> bool:
    """True for the machine's own file, whose hooks are asked again after later ones changed something."""
    return os.path.realpath(file) == os.path.realpath(machine_file())


def texts_to_send(file: Path) -> dict[str, str]:
    """The texts of a hook file and of the local files that it names, by their names from its folder; its own is first."""
    from hookline.hookfile.read import read  # slow to load, and only for a cluster
    from hookline.source import text_of

    full = file.resolve()
    named = trust.named_files(full, read(full).checked().hooks) if full.suffix in (".yaml", ".yml") else ()
    here = (name for name in named if (full.parent / name).is_file())
    return {name: text_of(full.parent / name) for name in (full.name, *here)}


@hook(on="run.start", inline=True)
def no_project_hooks(_ctx: WorkflowContext | None, _context: HookContext) -> HookResult:
    """Puts on record that the project's hook file was left out."""
    return HookResult.continue_with(tell_user="the project's hook file does not hold: --no-project-hooks")


OMISSION = f"{__name__}:{no_project_hooks.__name__}"
"""Stands among the hook files of a run in place of the project's file."""


def _each_once(listed: Iterable[Source]) -> list[Source]:
    known: dict[str, Source] = {}
    for each in listed:
        known.setdefault(os.path.realpath(each.file), each)
    return list(known.values())


def _refuse_others(file: Path) -> None:
    found = content_at(os.path.abspath(file), own=True)
    if found is None:
        trust.status_of(file)  # raises where nothing is there; what else it is is said where it is read
        return
    if found.owner not in (os.geteuid(), trust.ROOT) or found.mode & 0o002:
        raise FileError("must belong to you, and be writable by nobody else", file=file)
    fix(file, found.text)
