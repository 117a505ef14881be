"""Hook files and the code that they name, read once: what was hashed is what is parsed and run.

The text of an approved file, and that of its Python code, is taken from here and not read again. Scripts are opened by
their interpreters, by path; those are compared right before such a hook starts, and after it has ended.
"""

import os
import stat
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from hookline import files
from hookline.errors import FileError, HookBroke

if TYPE_CHECKING:
    from hookline.engine.context import HookContext, WorkflowContext
    from hookline.engine.hook import Handler
    from hookline.engine.result import HookResult

_KEPT = 4_000_000
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class Content(NamedTuple):
    """One reading of a file. `mark` is its digest, and where a link leads; `state` changes with every change to it."""

    mark: str
    state: tuple[int, ...]
    owner: int
    mode: int
    text: bytes


Contents = Mapping[str, Content | None]
"""Files by their path; None for one that is not there."""

_approved: dict[str, dict[str, Content | None]] = {}
"""The code that was approved with a hook file."""


def content_at(place: str, *, own: bool = False) -> Content | None:
    """One reading of a file; None if there is none.

    Of what a link leads to outside of its folder only the place counts, unless it is the hook file `own`: programs of the
    machine change with it.
    """
    try:
        fd = os.open(place, _READ)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise FileError(f"cannot be read: {exc.strerror}", file=place) from exc
    known, full, folder = os.fstat(fd), os.readlink(f"/proc/self/fd/{fd}"), os.path.dirname(place)
    if not stat.S_ISREG(known.st_mode):
        os.close(fd)
        return None
    with open(fd, "rb") as opened:
        text = b"" if full != place and not own and not _is_below(full, folder) else opened.read()
    mark = files.sha256(text).hexdigest() if text or own or full == place else ""
    if full != place:
        mark = f"{mark} -> {os.path.relpath(full, folder) if mark else full}"
    state = (known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns)
    return Content(mark, state, known.st_uid, known.st_mode, text)


def _is_below(full: str, folder: str) -> bool:
    return os.path.commonpath([full, folder]) == folder


def approve_contents(file: str | os.PathLike[str], contents: Contents) -> None:
    """From now on these are the contents of the code that a hook file names, whatever becomes of the files."""
    for place, content in contents.items():
        if content is not None and (len(content.text) <= _KEPT or place.endswith(".py")):
            files.fix(place, content.text)
    _approved[os.path.abspath(file)] = {
        place: content and content._replace(text=b"") for place, content in contents.items()
    }


def is_approved(source: str) -> bool:
    """True if a hook, by its `FILE:LINE`, is of a file whose content was approved, and not named by the user."""
    return file_of(source) in _approved


def file_of(source: str) -> str:
    return os.path.abspath(source.rpartition(":")[0] or source)


def guarded(handler: "Handler", source: str) -> "Handler":
    """The handler of a process that opens its code by path: what was not approved is not started, and not believed."""

    async def checked(ctx: "WorkflowContext | None", hook_context: "HookContext", /) -> "HookResult":
        known = _approved[file_of(source)]
        for place, content in known.items():
            found = content_at(place)
            if (found and found.mark) != (content and content.mark):
                raise HookBroke(f"not started: {place} changed since it was approved", kind="not_started")
            known[place] = found and found._replace(text=b"")
        result = await cast("Awaitable[HookResult]", handler(ctx, hook_context))
        for place, content in known.items():
            if _state(place) != (content and content.state):
                raise HookBroke(f"{place} was changed while the hook ran; its answer is not believed")
        return result

    return checked


def _state(place: str) -> tuple[int, ...] | None:
    try:
        known = os.stat(place)
    except OSError:
        return None
    if not stat.S_ISREG(known.st_mode):
        return None
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns
