"""agent.py to an agent that is ready to run, and what is wrong with an agent of any format."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from hookline.agent.loaded import Loaded
from hookline.agent.mcp_server import McpServer
from hookline.agent.sdk import Agent
from hookline.engine.context import Facts
from hookline.engine.hook import Hook, Matcher, Mode
from hookline.errors import FileError, HooklineError
from hookline.hookfile.importer import imported
from hookline.runners.child import missing_script


def load(target: str) -> Loaded:
    """The agent of `agent.py`, `agent.py:name` or `module:name`."""
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


def problems(loaded: Loaded, hooks: Iterable[Hook] = ()) -> list[str]:
    """Everything that would go wrong, or would be without effect, although the file loads."""
    agent = loaded.agent
    tools = _known_tools(loaded)
    known = ", ".join(name for name, _ in tools or ()) or "none"
    found = [str(each) for each in (*loaded.problems, *loaded.warnings)]
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
        if loaded.is_whole:
            loaded.check_model()
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
    if not loaded.is_whole or any(each.taken is None for each in agent.servers):
        return None
    listed = [(name, each.kind) for each in agent.servers for name in (each.taken or {}).values()]
    return [*((tool.id, tool.kind) for tool in agent.tools), *listed]


def _fits(match: Matcher, tool: str, kind: str) -> bool:
    return match(Facts(workflow_id="", current_tool=tool, tool_kind=kind))
