"""agent.py as a system: it is loaded, checked, explained, tried, run and served.

Agents of other formats are explained, tried, run and served here too, with a `load` that finds them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hookline.agent import Loaded
from hookline.agent.mcp_server import McpServer
from hookline.agent.sdk import Agent
from hookline.claude.answer import keeping_output
from hookline.engine.hook import Hook, Mode, OnError, annotation_fault, settled_on_error
from hookline.engine.point import Point
from hookline.errors import FileError, HooklineError
from hookline.hookfile.attach import hooks_of
from hookline.hookfile.importer import imported
from hookline.journal.masking import Mask
from hookline.options import (
    AGENT,
    KUBERNETES,
    CheckOptions,
    ExplainOptions,
    RunOptions,
    refuse_given,
    target_of,
)
from hookline.pyagent.run import (
    AGENT_HERE,
    Loader,
    known_tools,
    refuse_unsound,
    run_agent,
    serve_agent,
    try_agent,
)
from hookline.runners.child import missing_program
from hookline.runners.local import LocalRunner
from hookline.runners.places import Place, known_place, runs_in
from hookline.secrets import secrets_in
from hookline.terminal import Explained, ExplainedHook, Problem, problems_of

NAME = AGENT


def matches(target: str) -> bool:
    """A Python file or a module, with or without the name of an agent in it."""
    return bool(target)


def load(target: str) -> Loaded:
    """The agent of `agent.py`, `agent.py:name` or `module:name`."""
    module, where, name = imported(target)
    agents = {key: value for key, value in vars(module).items() if isinstance(value, Agent)}
    known = ", ".join(agents) or "none"
    if not name and len(agents) == 1:
        name = next(iter(agents))
    if not name:
        what = "there is no agent in it" if not agents else f"several agents are in it: {known}"
        raise FileError(f"{what}; name one, as in {where}:NAME", file=where)
    if name not in agents:
        what = f"there is no agent {name!r}"
        if hasattr(module, name):
            what = f"{name} is {type(getattr(module, name)).__name__}, not an Agent"
        raise FileError(f"{what}; agents here: {known}", file=where)
    return Loaded(agent=agents[name], source=f"{where}:{name}")


def problems(target: str, options: CheckOptions, hooks: Sequence[Hook]) -> list[Problem]:
    """Those of the agent; where a file has several and none is named, of each of them."""
    module, where, name = imported(target)
    agents = [key for key, value in vars(module).items() if isinstance(value, Agent)]
    if name or len(agents) < 2:
        return agent_problems(load(target), options, hooks)
    told = f"several agents are in it: {', '.join(agents)}; to run one, name it, as in {where}:NAME"
    found = [Problem.of(FileError(told, file=target, code="several-agents"), target)]
    for each in agents:
        source = f"{where}:{each}"
        found += agent_problems(Loaded(agent=getattr(module, each), source=source), options, hooks)
    return found


def agent_problems(loaded: Loaded, options: CheckOptions, hooks: Sequence[Hook]) -> list[Problem]:
    """Everything that is wrong with an agent of any format."""
    wrong, notes = asyncio.run(loaded.check_images(options.image))
    found = [*wrong, *_problems(loaded, (*hooks, *loaded.agent.hooks()))]
    return problems_of(found, notes, loaded.source)


def explain(options: ExplainOptions, load: Loader) -> Explained:
    """The agent's hooks by point, with limits, sources and notes."""
    loaded = load(options.file)
    refuse_unsound(loaded, model=False)
    # As it is in its file: before its hooks are attached.
    declaration = loaded.agent.declaration(loaded.source)
    place = Place(on=known_place(options.on or "local"))
    runner = LocalRunner()
    image_notes = loaded.attach_unfetched(runner, here=place.is_here)
    hooks = [*hooks_of(options.hooks, runner), *loaded.agent.hooks()]
    rows = list(hook_rows(hooks, place.on))
    notes = [
        *place.told(AGENT_HERE, workspace=Path.cwd(), files=options.hooks),
        *image_notes,
        *_notes(loaded, hooks),
    ]
    agent = declaration.agent
    assert agent is not None
    tools = ", ".join(agent.tools) or "no tools"
    return Explained(
        head=[
            f"{loaded.source} ({declaration.format})",
            f"agent {agent.name}, {agent.provider or '?'}/{agent.model or '?'}, {tools}",
        ],
        hooks=explained_hooks(rows, placed=bool(options.on)),
        notes=notes,
        value={"declaration": declaration.to_dict(), "on": place.on, "hooks": rows, "notes": notes},
    )


def run(options: RunOptions, load: Loader) -> int:
    target = target_of(options)
    if target is not None:
        from hookline.pyagent.cluster import run_there

        useless = ("network", "mount", "tools", "workspace", "code_to")
        refuse_given(options, useless, f"not with --on {KUBERNETES}")
        return run_there(options, target)
    refuse_given(options, ("namespace", "secret"), f"only with --on {KUBERNETES}")
    return run_agent(options, load)


serve, try_ = serve_agent, try_agent


def _problems(loaded: Loaded, hooks: Sequence[Hook]) -> Iterable[HooklineError]:
    """The mistakes of a file that loads, and the hooks without effect."""
    agent = loaded.agent
    # A server that is elsewhere has tools that nobody knows here.
    elsewhere = any(each.code == "not-in-file" for each in (*loaded.problems, *loaded.warnings))
    tools = None if elsewhere else known_tools(loaded)
    known = ", ".join(str(each.current_tool) for each in tools or ()) or "none"
    yield from (*loaded.problems, *loaded.warnings)
    for hook in hooks:
        if tools is not None and hook.match is not None and not any(map(hook.match, tools)):
            told = (
                f"hook {hook.name}: match {hook.match_text!r} fits no tool of {agent.id}; its tools: {known}"
            )
            yield FileError.at(hook.source, told, code="no-match")
    for hook in hooks:
        fault = annotation_fault(hook.handler) if hook.kind == "python" else None
        if fault is not None:
            yield FileError.at(hook.source, f"hook {hook.name}: {fault}", code="wrong-function")
    for hook in hooks:
        if hook.doubt:
            yield FileError.at(hook.source, f"hook {hook.name} {hook.doubt}", code="declared-elsewhere")
        if hook.mode is not Mode.ENFORCE:
            told = f"hook {hook.name}: its mode is {hook.mode}, so it refuses nothing"
            yield FileError.at(hook.source, told, code="not-enforced")
    for server in agent.servers:
        yield from _wrong_with(server, loaded.source)
    try:
        if loaded.is_whole:
            loaded.check_model()
            agent.live_model()
    except HooklineError as exc:
        yield exc


def _wrong_with(server: McpServer, source: str) -> Iterable[HooklineError]:
    """Reasons why the server cannot be used, as far as they show without starting it."""
    try:
        server.need_package()
    except HooklineError as exc:
        yield exc
    if server.command is None:
        return
    absent = missing_program([server.command, *server.args], str(server.cwd or "") or None, os.environ)
    if absent is not None:
        yield FileError.at(source, f"{server}: it could not start: {absent}", code="missing-program")


def hook_rows(hooks: Sequence[Hook], on: str = "local") -> Iterable[dict[str, Any]]:
    """Each hook at each of its points, in the order in which they run."""
    foreign = sorted({str(point) for hook in hooks for point in hook.points} - set(Point))
    for point in (*Point, *foreign):
        standing = [hook for hook in hooks if point in hook.points]
        for order, hook in enumerate(standing, 1):
            yield {
                "point": point,
                "order": order,
                "name": hook.name,
                "kind": hook.kind,
                "runs": runs_in(hook.kind, on),
                "match": hook.match_text,
                "when": hook.when_text,
                "timeout": hook.timeout,
                "on_error": settled_on_error(hook, point),
                "mode": hook.mode,
                "source": hook.source,
            }


def explained_hooks(rows: Iterable[dict[str, Any]], *, placed: bool = False) -> list[ExplainedHook]:
    """The rows for a reader; `placed` says where each hook runs."""
    return [
        ExplainedHook(
            str(row["point"]), f"{row['order']}. {_sentence(row, placed=placed)}", str(row["source"])
        )
        for row in rows
    ]


def _sentence(row: dict[str, Any], *, placed: bool) -> str:
    limit = f"limit {row['timeout']:g} s" if row["timeout"] is not None else "no limit"
    match = f", for {row['match']}" if row["match"] else ""
    match += f", when {row['when']}" if row["when"] else ""
    mode = "" if row["mode"] == Mode.ENFORCE else f", {row['mode']} only: its verdict does not count"
    mode = ", off" if row["mode"] == Mode.OFF else mode
    keeping = keeping_output(row["point"]) if row["on_error"] == OnError.WITHHOLD else []
    mode += f" ({', '.join(keeping)} cannot replace this output; there it is only told)" if keeping else ""
    where = f" runs {row['runs']}" if placed else ""
    return f"{row['name']} ({row['kind']}){where}{match}, {limit}, if it breaks: {row['on_error']}{mode}"


def _notes(loaded: Loaded, hooks: Sequence[Hook]) -> list[str]:
    held = [
        hook.name
        for hook in hooks
        if hook.mode is Mode.ENFORCE and hook.points & {Point.MODEL_END, Point.STEP_END, Point.AGENT_END}
    ]
    mask = Mask(secrets_in(os.environ))
    notes = [
        f"{server}: its tools are listed when a run begins; {mask.text(server.place)}"
        for server in loaded.agent.servers
    ]
    if not held:
        return notes
    names = ", ".join(dict.fromkeys(held))
    return [*notes, f"Streamed text is held back, because it may still be changed or refused by: {names}"]
