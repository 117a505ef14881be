"""From what a user names to something that runs: finds the file, knows its format, makes its hooks live."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from hookline.agent.tools import Tool
from hookline.attaching import SUFFIXES, Attached, attached
from hookline.context import Facts
from hookline.declaration import Declaration, HookDeclaration
from hookline.errors import FileError, HooklineError
from hookline.handlers.python import python_hook
from hookline.hook import Hook, Matcher, Mode, options_of
from hookline.runners import Runner
from hookline.sdk import Agent

__all__ = ["Loaded", "load", "load_hooks", "problems"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a file holds, ready to run. `source` is what finds it again."""

    agent: Agent
    declaration: Declaration
    source: str


def load(target: str) -> Loaded:
    """`agent.py`, `agent.py:name` or `module:name`."""
    module, where, name = _imported(target)
    agents = {key: value for key, value in vars(module).items() if isinstance(value, Agent)}
    known = ", ".join(agents) or "none"
    if name:
        agent = agents.get(name)
        if agent is None:
            found = (
                f"{name} is {type(getattr(module, name)).__name__}, not an Agent"
                if hasattr(module, name)
                else ""
            )
            raise FileError(f"{found or f'there is no agent {name!r}'}; agents here: {known}", file=where)
    elif len(agents) == 1:
        name, agent = next(iter(agents.items()))
    else:
        what = "there is no agent in it" if not agents else f"several agents are in it: {known}"
        raise FileError(f"{what}; name one, as in {where}:NAME", file=where)
    source = f"{where}:{name}"
    return Loaded(agent=agent, declaration=agent.declaration(source), source=source)


def load_hooks(target: str, runner: Runner) -> Attached:
    """The hooks of a hook file: `hookline.yaml`, a `.claude/settings.json`, or Python functions with `@hook(on=...)`."""
    path = Path(target)
    if path.suffix in SUFFIXES:
        if not path.is_file():
            raise FileError("there is no such file", file=path)
        return attached(path, runner, _function)
    module, where, name = _imported(target)
    found: list[Hook] = []
    for key, value in vars(module).items():
        if callable(value) and options_of(value).on and (not name or key == name):
            found.append(python_hook(value))
    if not found:
        which = f"no hook {name!r}" if name else "no hook"
        raise FileError(
            f"there is {which} in it that says its points; write @hook(on='tool.start')", file=where
        )
    return Attached(found, [], [], [])


def _function(declared: HookDeclaration) -> Callable[..., Any]:
    """The function that an entry's `python:` names."""
    params = declared.params
    file, _, line = declared.source.rpartition(":")
    place = f"{params.get('file') or params['module']}:{params['function']}"
    module, _, _ = _imported(place, Path(file or declared.source).resolve().parent)
    function = getattr(module, params["function"], None)
    if not callable(function):
        raise FileError(
            f"there is no function {params['function']!r} in {params.get('file') or params['module']}",
            file=file or declared.source,
            line=int(line) if line.isdigit() else None,
            key="python",
        )
    return function


def _imported(target: str, folder: Path | None = None) -> tuple[ModuleType, str, str]:
    """The module that `target` names, how to name it again, and the attribute asked for, if any.

    A module by name is looked for beside the file that names it, else where we stand, and where Python looks.
    """
    place, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    path = Path(place)
    if path.suffix == ".py" or path.exists():
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
    full = path.resolve()
    name = f"hookline_file_{full.stem}_{abs(hash(str(full))):x}"
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise FileError("Python cannot import this file", file=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # As `python agent.py` does it: a module beside the file can be imported by it.
    sys.path.insert(0, str(full.parent))
    try:
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
    full = str(Path(where).resolve())
    lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == full]
    text = str(exc) if isinstance(exc, HooklineError) else f"{type(exc).__name__}: {exc}"
    return FileError(f"does not import: {text}", file=where, line=lines[-1] if lines else None)


def problems(loaded: Loaded, hooks: Iterable[Hook] = ()) -> list[str]:
    """What would go wrong, or would be without effect, although the file loads."""
    agent = loaded.agent
    known = ", ".join(tool.id for tool in agent.tools) or "none"
    found = [
        f"{hook.source}: hook {hook.name}: match {hook.match_text!r} fits no tool of {agent.id}; its tools: {known}"
        for hook in (*hooks, *agent.hooks())
        if hook.match is not None and not any(_fits(hook.match, tool) for tool in agent.tools)
    ]
    found += [
        f"{hook.source}: hook {hook.name}: its mode is {hook.mode}, so it refuses nothing"
        for hook in (*hooks, *agent.hooks())
        if hook.mode is not Mode.ENFORCE
    ]
    try:
        agent.live_model()
    except HooklineError as exc:
        found.append(f"{loaded.source}: {exc}")
    return found


def _fits(match: Matcher, tool: Tool) -> bool:
    return match(Facts(workflow_id="", current_tool=tool.id, tool_kind=tool.kind))
