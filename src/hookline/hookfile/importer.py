"""Python code that a user names: a file, a module, or one function of either."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hookline.errors import FileError, HooklineError

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from hookline.engine.hook import HookDeclaration

CONTENTS: dict[str, bytes] = {}
"""The contents of files as they were when a run began, by path, in a process that calls its end hooks after a crash."""


def is_ready_guard(params: Mapping[str, Any]) -> bool:
    """True if an entry's `python:` names a guard of hookline's own."""
    return str(params.get("module", "")).startswith("hookline.guards")


def function_of(declared: HookDeclaration) -> Callable[..., Any]:
    """The function that an entry's `python:` names."""
    place, name = declared.params.get("file") or declared.params["module"], declared.params["function"]
    file = declared.source.rpartition(":")[0] or declared.source
    module, _, _ = imported(f"{place}:{name}", Path(file).resolve().parent)
    function = getattr(module, name, None)
    if not callable(function):
        raise FileError.at(declared.source, f"there is no function {name!r} in {place}", key="python")
    return function


def imported(target: str, folder: Path | None = None) -> tuple[ModuleType, str, str]:
    """The module that `target` names, how to name it again, and the attribute asked for, if any.

    A module by name is looked for beside the file that names it, else where we stand, and where Python looks.
    """
    place, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    path = Path(place)
    if path.suffix == ".py" or path.exists():
        if place in CONTENTS:
            return _loaded(path, place, _name_of(place), kept_spec(_name_of(place), place)), place, name
        return _from_file(path), str(path.resolve()), name
    if "/" in place or "\\" in place:
        raise FileError("there is no such file", file=place)
    try:
        sys.path.insert(0, str(folder or Path.cwd()))
        return importlib.import_module(place), place, name
    except ModuleNotFoundError as exc:
        if exc.name == place.partition(".")[0]:
            raise FileError("there is no such file, and no module of that name", file=place) from None
        raise _does_not_import(place, exc) from exc
    except (Exception, SystemExit) as exc:
        raise _does_not_import(place, exc) from exc
    finally:
        sys.path.pop(0)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileError("there is no such file" if not path.exists() else "this is not a file", file=path)
    if path.suffix != ".py":
        raise FileError("this format is not known; known: a Python file (.py) with an Agent in it", file=path)
    from importlib.util import spec_from_file_location  # not for our own guards

    full = str(path.resolve())
    name = _name_of(full)
    return _loaded(path, full, name, spec_from_file_location(name, full))


def kept_spec(name: str, file: str) -> ModuleSpec | None:
    """How a module is loaded from the content that was kept of its file."""
    from importlib.abc import SourceLoader
    from importlib.util import spec_from_file_location

    class Kept(SourceLoader):
        def get_filename(self, fullname: str) -> str:
            return file

        def get_data(self, path: str) -> bytes:
            return CONTENTS[file] if path == file else Path(path).read_bytes()

    return spec_from_file_location(name, file, loader=Kept()) if file in CONTENTS else None


def _name_of(full: str) -> str:
    return f"hookline_file_{Path(full).stem}_{abs(hash(full)):x}"


def _loaded(path: Path, full: str, name: str, spec: ModuleSpec | None) -> ModuleType:
    from importlib.util import module_from_spec

    if spec is None or spec.loader is None:
        raise FileError("Python cannot import this file", file=path)
    module = module_from_spec(spec)
    sys.modules[name] = module
    # As `python agent.py` does it: a module beside the file can be imported by it.
    beside = str(Path(full).parent)
    sys.path.insert(0, beside)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as exc:
        del sys.modules[name]
        raise _does_not_import(str(path), exc) from exc
    finally:
        sys.path.remove(beside)
    return module


def _does_not_import(where: str, exc: BaseException) -> FileError:
    """The user's own line, not ours: the last frame that lies in the file."""
    if isinstance(exc, SyntaxError) and exc.filename:
        return FileError(f"does not import: {exc.msg}", file=exc.filename, line=exc.lineno)
    import traceback

    full = str(Path(where).resolve())
    lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == full]
    text = str(exc) if isinstance(exc, HooklineError) else f"{type(exc).__name__}: {exc}"
    return FileError(f"does not import: {text}", file=where, line=lines[-1] if lines else None)
