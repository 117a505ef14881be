"""Python code that a user names: a file, a module, or one function of either."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hookline.errors import FileError, HooklineError
from hookline.files import fixed
from hookline.hookfile.content import is_approved

if TYPE_CHECKING:
    from hookline.engine.hook import HookDeclaration


def is_ready_guard(params: Mapping[str, Any]) -> bool:
    """True if an entry's `python:` names a guard of hookline's own."""
    return str(params.get("module", "")).startswith("hookline.guards")


def function_of(declared: HookDeclaration) -> Callable[..., Any]:
    """The function that an entry's `python:` names."""
    place, name = declared.params.get("file") or declared.params["module"], declared.params["function"]
    file = declared.source.rpartition(":")[0] or declared.source
    folder = Path(file).resolve().parent
    if is_approved(declared.source) and not is_ready_guard(declared.params):
        _refuse_unread(str(place), folder, declared)
    module, _, _ = imported(f"{place}:{name}", folder)
    function = getattr(module, name, None)
    if not callable(function):
        raise FileError.at(declared.source, f"there is no function {name!r} in {place}", key="python")
    return function


def look_at(declared: HookDeclaration) -> None:
    """Raise if the function that an entry's `python:` names is not there, as far as its text tells; nothing is imported."""
    import ast
    from importlib.machinery import PathFinder

    from hookline.source import text_of

    params, name = declared.params, declared.params["function"]
    folder = Path(declared.source.rpartition(":")[0] or declared.source).resolve().parent
    file = params.get("file") or _file_of(folder, params["module"])
    if file is None:
        first = params["module"].partition(".")[0]
        if (
            PathFinder.find_spec(first, [str(folder), *sys.path]) is None
            and first not in sys.builtin_module_names
        ):
            raise FileError("there is no such file, and no module of that name", file=params["module"])
        return
    try:
        tree = ast.parse(text_of(file), str(file))
    except SyntaxError as exc:
        raise _does_not_import(str(file), exc) from exc
    known = {
        word
        for node in ast.walk(tree)
        for word in (
            getattr(node, "name", None),
            getattr(node, "asname", None),
            node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None,
        )
    }
    if name not in known and "*" not in known:
        place = params.get("file") or params["module"]
        raise FileError.at(declared.source, f"there is no function {name!r} in {place}", key="python")


def _file_of(folder: Path, module: str) -> Path | None:
    path = folder.joinpath(*module.split("."))
    return next((each for each in (path / "__init__.py", path.with_suffix(".py")) if each.is_file()), None)


def _refuse_unread(place: str, folder: Path, declared: HookDeclaration) -> None:
    """Raise if code beside an approved hook file is not what was read when its content was compared."""
    from hookline.hookfile.loader import origin_of

    file = place if "file" in declared.params else origin_of(place, str(folder))
    if os.path.abspath(file).startswith(f"{folder}/") and fixed(file) is None and os.path.exists(file):
        raise FileError.at(declared.source, f"{file} is not what was approved", key="python")


def imported(target: str, folder: Path | None = None) -> tuple[ModuleType, str, str]:
    """The module that `target` names, how to name it again, and the attribute asked for, if any.

    A module by name is looked for beside the file that names it, else where we stand, and where Python looks.
    """
    place, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    path = Path(place)
    if path.suffix == ".py" or path.exists() or fixed(path) is not None:
        return _from_file(path), str(path.resolve()), name
    if "/" in place or "\\" in place:
        raise FileError("there is no such file", file=place)
    try:
        sys.path.insert(0, str(folder or Path.cwd()))
        if is_ready_guard({"module": place}):
            return importlib.import_module(place), place, name
        from hookline.hookfile.loader import approved_first

        with approved_first():
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
    if fixed(path) is None and not path.is_file():
        raise FileError("there is no such file" if not path.exists() else "this is not a file", file=path)
    if path.suffix != ".py":
        raise FileError("this format is not known; known: a Python file (.py) with an Agent in it", file=path)
    from importlib.util import module_from_spec, spec_from_file_location  # not for our own guards

    from hookline.hookfile.loader import ApprovedLoader, approved_first

    full = path.resolve() if fixed(path) is None else Path(os.path.abspath(path))
    name = f"hookline_file_{full.stem}_{abs(hash(str(full))):x}"
    spec = spec_from_file_location(name, full, loader=ApprovedLoader(name, str(full)))
    if spec is None or spec.loader is None:
        raise FileError("Python cannot import this file", file=path)
    module = module_from_spec(spec)
    sys.modules[name] = module
    # As `python agent.py` does it: a module beside the file can be imported by it.
    sys.path.insert(0, str(full.parent))
    try:
        with approved_first():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as exc:
        del sys.modules[name]
        raise _does_not_import(str(path), exc) from exc
    finally:
        sys.path.remove(str(full.parent))
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
