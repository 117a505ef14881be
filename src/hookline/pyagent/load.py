"""From what a user names to something that runs: finds the file, knows its format, makes its hooks live."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hookline.agent.mcp_server import McpServer
from hookline.agent.sdk import Agent
from hookline.engine.context import Facts
from hookline.engine.declaration import Declaration
from hookline.engine.hook import Hook, Matcher, Mode, options_of
from hookline.errors import FileError, HooklineError
from hookline.handlers.python import python_hook
from hookline.hookfile.attach import SUFFIXES, Attached, attached
from hookline.hookfile.importer import function_of, imported
from hookline.kagent.load import Manifest, manifest
from hookline.kagent.read import is_kagent, read
from hookline.runners import Runner
from hookline.runners.lookup import missing_script
from hookline.source import text_of

__all__ = ["Loaded", "in_manifest", "is_manifest", "load", "load_hooks", "problems"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a file holds, ready to run. `source` is what finds it again; a `manifest` has its hooks attached first."""

    agent: Agent
    declaration: Declaration
    source: str
    manifest: Manifest | None = None


def load(target: str) -> Loaded:
    """`agent.py`, `agent.py:name`, `module:name`, or a kagent manifest: `agent.yaml`, `agent.yaml:name`."""
    file, named = _file_and_name(target)
    if file.suffix in SUFFIXES and file.is_file():
        return _of_manifest(file, named)
    module, where, name = imported(target)
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


def is_manifest(target: str) -> bool:
    """Whether a target is a file with objects of kagent's in it."""
    file, _ = _file_and_name(target)
    return file.suffix in SUFFIXES and file.is_file() and is_kagent(text_of(file), file)


def in_manifest(target: str) -> tuple[list[str], list[str]]:
    """The agents of a manifest that run here, each as a target, and every mistake in the file."""
    file, name = _file_and_name(target)
    found = read(file)
    runs = [f"{file}:{each.name}" for each in found.agents if each.type != "BYO"]
    return [target] if name or not runs else runs, [str(each) for each in found.problems]


def _file_and_name(target: str) -> tuple[Path, str]:
    place, _, name = target.rpartition(":")
    whole = not place or Path(target).exists()
    return (Path(target), "") if whole else (Path(place), name)


def _of_manifest(file: Path, name: str) -> Loaded:
    if not is_kagent(text_of(file), file):
        raise FileError(
            "this is no agent; known are a Python file with an Agent in it and a kagent Agent manifest"
            " (a file of hooks goes with --hooks)",
            file=file,
        )
    made = manifest(file, name, os.environ)
    source = f"{file.resolve()}:{made.agent.id}"
    return Loaded(agent=made.agent, declaration=made.agent.declaration(source), source=source, manifest=made)


def load_hooks(target: str, runner: Runner) -> Attached:
    """The hooks of a hook file: `hookline.yaml`, a `.claude/settings.json`, or Python functions with `@hook(on=...)`."""
    path = Path(target)
    if path.suffix in SUFFIXES:
        if not path.is_file():
            raise FileError("there is no such file", file=path)
        if is_manifest(target):
            raise FileError(
                f"this is an agent with its own hooks: hookline run {target}; given as hooks can be a"
                " hookline.yaml, a .claude/settings.json or a Python file",
                file=path,
            )
        return attached(path, runner, function_of)
    module, where, name = imported(target)
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


def problems(loaded: Loaded, hooks: Iterable[Hook] = ()) -> list[str]:
    """What would go wrong, or would be without effect, although the file loads."""
    agent, made = loaded.agent, loaded.manifest
    tools = _known_tools(loaded)
    known = ", ".join(name for name, _ in tools or ()) or "none"
    found = [str(each) for each in (*made.problems, *made.warnings)] if made else []
    found += [
        f"{hook.source}: hook {hook.name}: match {hook.match_text!r} fits no tool of {agent.id}; its tools: {known}"
        for hook in (*hooks, *agent.hooks())
        if tools is not None
        and hook.match is not None
        and not any(_fits(hook.match, name, kind) for name, kind in tools)
    ]
    found += [
        f"{hook.source}: hook {hook.name}: its mode is {hook.mode}, so it refuses nothing"
        for hook in (*hooks, *agent.hooks())
        if hook.mode is not Mode.ENFORCE
    ]
    found += [
        f"{loaded.source}: {server}: {wrong}" for server in agent.servers for wrong in _wrong_with(server)
    ]
    try:
        if made is None:
            agent.live_model()
        elif not made.plan.agent.fragment:
            made.check_model()
            agent.live_model()
    except FileError as exc:
        found.append(str(exc))
    except HooklineError as exc:
        found.append(f"{loaded.source}: {exc}")
    return found


def _wrong_with(server: McpServer) -> Iterable[str]:
    """Why its tools could not be had, as far as can be seen without starting it."""
    if find_spec("mcp") is None:
        yield "needs the mcp package: pip install 'hookline[mcp]'"
    if server.command is None:
        return
    absent = missing_script([server.command, *server.args], str(server.cwd or "") or None, os.environ)
    place = Path(server.cwd or ".") / server.command
    if absent is None and not ("/" in server.command and os.access(place, os.X_OK)):
        absent = None if shutil.which(server.command) else f"there is no program {server.command!r}"
    if absent is not None:
        yield f"it could not start: {absent}"


def _known_tools(loaded: Loaded) -> list[tuple[str, str]] | None:
    """The names and kinds of an agent's tools; None where only a server or the command line will tell."""
    agent = loaded.agent
    if loaded.manifest and loaded.manifest.plan.agent.fragment:
        return None
    if any(each.taken is None for each in agent.servers):
        return None
    listed = [(name, each.kind) for each in agent.servers for name in (each.taken or {}).values()]
    return [*((tool.id, tool.kind) for tool in agent.tools), *listed]


def _fits(match: Matcher, tool: str, kind: str) -> bool:
    return match(Facts(workflow_id="", current_tool=tool, tool_kind=kind))
