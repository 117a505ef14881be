"""Looking before anything runs: `hookline check`, `explain`, `try`, and `schema` for editors."""

from __future__ import annotations

import asyncio
import json as jsonlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from hookline.cli.frameworks import explained_for
from hookline.engine.context import Facts, HookContext, WorkflowContext
from hookline.engine.hook import Hook, Mode, settled_on_error
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point, Scope, Status, point_named
from hookline.engine.record import Begun, Called, Ended, Record
from hookline.engine.result import HookAction, Outcome
from hookline.errors import HooklineError, UsageError
from hookline.hookfile import read as native
from hookline.hookfile.attach import SUFFIXES
from hookline.hookfile.trust import distrusted, nearest
from hookline.journal.masking import Mask
from hookline.journal.view import Tree
from hookline.kagent.hooks import FOLDER, directory
from hookline.kagent.load import VARIABLE, hooks_folder
from hookline.kube.connect import KUBERNETES
from hookline.pyagent.load import Loaded, in_manifest, is_manifest, load, load_hooks, problems
from hookline.pyagent.run import (
    AGENT_HERE,
    FILE,
    IMAGES,
    hooks_of,
    set_environment,
    sound,
    sources_of,
    with_hooks,
)
from hookline.runners import Runner
from hookline.runners.local import LocalRunner
from hookline.runners.places import Place, known_place, runs_in
from hookline.systems import is_agentrun, is_workflow
from hookline.terminal import found_run, open_journal, out, print_json, secrets_of, show

__all__ = ["check", "explain", "schema", "try_"]

HOOKS = Annotated[list[str] | None, typer.Option(help="a file with more hooks")]
JSON = Annotated[bool, typer.Option("--json", help="for a program to read")]
ENV = Annotated[list[str] | None, typer.Option(help="NAME=VALUE, as `hookline run` would be given it")]
ENV_FILE = Annotated[Path | None, typer.Option(help="a file of NAME=VALUE lines")]


def check(
    files: Annotated[list[str], typer.Argument(help=FILE)],
    hooks: HOOKS = None,
    image: IMAGES = None,
    env: ENV = None,
    env_file: ENV_FILE = None,
    json: JSON = False,
) -> int:
    """Say every mistake in the files, with its place; exit 2 if there is one."""
    given = set_environment(env or [], env_file)
    found: list[str] = []
    more: list[Hook] = []
    for each in hooks or []:
        try:
            attached = load_hooks(each, LocalRunner())
        except HooklineError as exc:
            found.append(str(exc))
            continue
        more += attached.hooks
        found += [*map(str, attached.problems), *attached.notes, *attached.doubts]
    notes: list[str] = []
    for file in files:
        try:
            if is_workflow(file):
                from hookline.symphony.system import problems_of

                found += problems_of(file)
                continue
            if is_agentrun(file):
                from hookline.sympozium.system import problems_of_agentrun

                wrong, odd = problems_of_agentrun(file, given)
                found += wrong
                notes += odd
                continue
            if Path(file).suffix in SUFFIXES and not is_manifest(file):
                attached = load_hooks(file, LocalRunner())
                found += [*map(str, attached.problems), *attached.notes, *attached.doubts]
                notes += _unapproved(Path(file))
                continue
            targets, mistakes = in_manifest(file) if is_manifest(file) else ([file], [])
            found += mistakes
            for each in targets:
                loaded = load(each)
                notes += asyncio.run(_with_images(loaded, image, found))
                found += problems(loaded, more)
        except HooklineError as exc:
            found.append(str(exc))
    found, notes = list(dict.fromkeys(found)), list(dict.fromkeys(notes))
    if json:
        print_json({"files": files, "problems": found, "notes": notes})
    else:
        for text in (*notes, *found):
            out.print(text)
        count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
        out.print(count if found else f"{', '.join(files)}: nothing wrong")
    return 2 if found else 0


def _unapproved(file: Path) -> list[str]:
    """Told of the file that `hookline answer` finds from here; it is no mistake in it, and elsewhere may be so."""
    found = nearest(Path.cwd())
    if found is None or found.resolve() != file.resolve():
        return []
    why = distrusted(found, os.environ)
    return (
        [f"{file}: {why}, then: hookline trust; until then `hookline answer` runs none of it"] if why else []
    )


def explain(
    file: Annotated[str, typer.Argument(help=FILE)],
    hooks: HOOKS = None,
    for_: Annotated[str, typer.Option("--for", help="around an agent of this framework: adk")] = "",
    persona: Annotated[str, typer.Option(help="which member, of a pack")] = "",
    on: Annotated[
        str, typer.Option(help="where hooks would run: local, sandbox, container; kubernetes")
    ] = "",
    env: ENV = None,
    env_file: ENV_FILE = None,
    json: JSON = False,
) -> int:
    """Say which hooks run where, in which order, with what limits, from which source."""
    given = set_environment(env or [], env_file)
    if for_:
        return explained_for(for_, [file, *(hooks or ())], json=json)
    if is_workflow(file):
        from hookline.symphony.system import explain_workflow

        return explain_workflow(file, on=on, json=json)
    if is_agentrun(file) and on == KUBERNETES:
        from hookline.sympozium.cluster.runs import explain_there

        return explain_there(file, persona=persona, env=given, json=json)
    if is_agentrun(file):
        from hookline.sympozium.system import explain_agentrun

        return explain_agentrun(file, persona=persona, on=on, env=given, json=json)
    loaded = load(file)
    sound(loaded, model=False)
    place = Place(on=known_place(on or "local"))
    folder = (os.environ.get(VARIABLE) if place.is_here else None) or FOLDER
    live = _all_hooks(loaded, hooks, LocalRunner(), folder)
    rows = list(_rows(live, place.on))
    notes = [*place.told(AGENT_HERE, workspace=Path.cwd(), files=hooks or ()), *_notes(loaded, live, folder)]
    if json:
        declared = loaded.declaration.to_dict()
        print_json({"declaration": declared, "on": place.on, "hooks": rows, "notes": notes})
        return 0
    agent = loaded.declaration.agent
    assert agent is not None
    out.print(f"{loaded.source} ({loaded.declaration.format})")
    tools = ", ".join(agent.tools) or "no tools"
    out.print(f"agent {agent.name}, {agent.provider or '?'}/{agent.model or '?'}, {tools}")
    point = None
    for row in rows:
        if row["point"] != point:
            point = row["point"]
            out.print(f"\n{point}", style="bold")
        out.print(f"  {row['order']}. {_told(row, placed=bool(on))}")
        out.print(f"     {row['source']}", style="dim")
    if not rows:
        out.print("\nno hooks")
    for note in notes:
        out.print(f"\n{note}")
    return 0


def try_(
    point: Annotated[str, typer.Argument(help="a point such as tool.start; with --from also `all`")],
    file: Annotated[str, typer.Argument(help=FILE)],
    tool: Annotated[str, typer.Option(help="the tool, at tool points")] = "",
    input: Annotated[str, typer.Option(help="the payload, as JSON (or the agent's input as text)")] = "",
    output: Annotated[str, typer.Option(help="the output, as JSON or text, at end points")] = "",
    status: Annotated[str, typer.Option(help="how it ended, at end points")] = "ok",
    from_: Annotated[str, typer.Option("--from", help="take the events of this past run")] = "",
    hooks: HOOKS = None,
    image: IMAGES = None,
    json: JSON = False,
) -> int:
    """Say what the hooks would decide for one made-up event, with no agent; exit 1 if it is refused."""
    if is_workflow(file):
        from hookline.symphony.system import try_workflow

        return try_workflow(point, file, json=json)
    loaded = load(file)
    sound(loaded, quiet=json, model=False)
    sources = sources_of(loaded, image)
    runner = LocalRunner()
    more = hooks_of(hooks, runner)
    wanted = None if point == "all" else point_named(point)
    if from_:
        with open_journal() as journal:
            records = journal.records(found_run(journal, from_))
        events = [event for event in _events(records, loaded) if wanted is None or event.point == wanted]
        if not events:
            raise UsageError(f"that run has no event at {point}")
    elif wanted is None:
        raise UsageError("`all` goes with --from RUN")
    else:
        events = [_event(loaded, wanted, tool, input, output, status)]
    mask = Mask(secrets_of(os.environ))
    outcomes = asyncio.run(_fired(loaded, more, sources, events, mask, runner, json=json))
    refused = any(each.action in (HookAction.FAIL, HookAction.BLOCK) for each in outcomes)
    return 1 if refused else 0


def schema() -> int:
    """Print the JSON Schema of hookline.yaml, for editors."""
    sys.stdout.write(jsonlib.dumps(native.schema(), indent=2, ensure_ascii=False) + "\n")
    return 0


async def _fired(
    loaded: Loaded,
    more: list[Hook],
    sources: Mapping[str, str],
    events: list[HookContext],
    mask: Mask,
    runner: Runner,
    *,
    json: bool,
) -> list[Outcome]:
    try:
        async with with_hooks(loaded, runner, sources, quiet=True):
            return await _all_fired([*more, *loaded.agent.hooks()], events, mask, json=json)
    finally:
        await runner.close()


async def _with_images(loaded: Loaded, images: list[str] | None, found: list[str]) -> list[str]:
    """What is odd about a manifest; with its images at hand, commands that are not in them are found wrong."""
    made = loaded.manifest
    if made is None:
        return []
    made.attach(LocalRunner(), FOLDER, os.environ)
    sources = sources_of(loaded, [each for each in images or () if each.partition("=")[0] in made.refs])
    if not made.refs or not (sources or os.environ.get(VARIABLE)):
        unseen = [f"image {ref}: not looked into; give --image {ref}=SOURCE" for ref in made.refs]
        return [*made.notes, *unseen]
    async with hooks_folder(made, sources, os.environ, lambda _: None) as folder:
        found += made.doubts(folder, os.environ)
    return list(made.notes)


async def _all_fired(
    hooks: list[Hook], events: list[HookContext], mask: Mask, *, json: bool
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for event in events:
        calls: list[Record] = []
        tree = Tree(mask, width=max(out.width, 60))
        recorder = Recorder(None, [calls.append])
        outcome = await Pipeline(hooks, recorder).fire(event)
        outcomes.append(outcome)
        heading = f"{event.point}{f' {event.current_tool}' if event.current_tool else ''}"
        if json:
            text = mask.json(
                {
                    "point": event.point,
                    "tool": event.current_tool,
                    "calls": [call._asdict() for call in calls if isinstance(call, Called)],
                    "outcome": {**outcome._asdict(), "reason": outcome.reason},
                }
            )
            print_json(jsonlib.loads(text))
            continue
        out.print(heading, style="bold")
        for call in calls:
            for line in tree.lines(call):
                show(line, out)
        out.print(f"  = {_sentence(outcome, mask)}")
    return outcomes


def _sentence(outcome: Outcome, mask: Mask) -> str:
    if outcome.action is HookAction.CONTINUE:
        value = outcome.payload if outcome.output is None else outcome.output
        return f"goes on with {mask.json(value)}" if outcome.changed else "goes on unchanged"
    reason = f": {mask.text(outcome.reason)}" if outcome.reason else ""
    return f"{outcome.action}{reason}"


def _event(loaded: Loaded, point: Point, tool: str, payload: str, output: str, status: str) -> HookContext:
    if point.scope is Scope.TOOL and not tool:
        known = ", ".join(each.id for each in loaded.agent.tools) or "none"
        raise UsageError(f"which tool? --tool NAME; tools of {loaded.agent.id}: {known}")
    if status not in tuple(Status):
        raise UsageError(f"--status is {status!r}; known: {', '.join(Status)}")
    given: Any = _value(payload) if payload else {}
    if point.scope in (Scope.AGENT, Scope.RUN) and not isinstance(given, dict):
        given = {"input": given}
    if point.scope is Scope.AGENT and isinstance(given, dict) and "input" in given:
        known = cast("dict[str, Any]", given)
        given = {"prompt": known["input"], **known}
    ended = None if point.is_start else Status(status)
    return _context(loaded, point, tool or None, given, _value(output) if output else None, ended)


def _events(records: Iterable[Record], loaded: Loaded) -> Iterable[HookContext]:
    """The points that a recorded run went through, with what was given there."""
    begun: dict[str, Begun] = {}
    raw: dict[str, Any] = {}
    for record in records:
        if isinstance(record, Begun):
            begun[record.scope_id] = record
            point = Point.start_of(record.scope)
            yield _context(loaded, point, record.about.get("tool"), record.payload, None, None)
        elif isinstance(record, Called) and str(record.point).endswith(".end") and record.given is not None:
            raw.setdefault(record.scope_id, record.given)
        elif isinstance(record, Ended) and record.scope_id in begun and record.status is not Status.BLOCKED:
            start = begun[record.scope_id]
            output = raw.get(record.scope_id, record.output)
            tool = start.about.get("tool")
            yield _context(loaded, Point.end_of(record.scope), tool, start.payload, output, record.status)


def _context(
    loaded: Loaded, point: Point, tool: str | None, payload: Any, output: Any, status: Status | None
) -> HookContext:
    agent = loaded.agent
    kinds = {each.id: each.kind for each in agent.tools}
    if tool is not None and agent.servers:
        # What is none of its own tools can only be one of a server's.
        kinds.setdefault(tool, agent.servers[0].kind)
    kind = kinds.get(tool or "")
    facts = Facts(
        workflow_id=agent.id,
        point=point,
        run_id="try",
        scope_id="1",
        agent=agent.id,
        session_id="try",
        current_tool=tool,
        tool_kind=kind,
        status=status,
        workflow=WorkflowContext(workflow_id=agent.id, execution_id="try"),
        aliases={"prompt": "input"} if point is Point.AGENT_START else None,
    )
    return HookContext.of(facts, payload, output)


def _value(text: str) -> Any:
    stripped = text.lstrip()
    try:
        return jsonlib.loads(text)
    except jsonlib.JSONDecodeError as exc:
        if stripped.startswith(("{", "[")):
            raise UsageError(f"this is not JSON: {exc}: {text!r}") from None
        return text


def _all_hooks(loaded: Loaded, files: list[str] | None, runner: Runner, folder: str) -> list[Hook]:
    if loaded.manifest is not None:
        loaded.manifest.attach(runner, folder, os.environ)
    return [*hooks_of(files, runner), *loaded.agent.hooks()]


def _rows(hooks: list[Hook], on: str) -> Iterable[dict[str, Any]]:
    for point in Point:
        standing = [hook for hook in hooks if point in hook.points]
        for order, hook in enumerate(standing, 1):
            yield {
                "point": point,
                "order": order,
                "name": hook.name,
                "kind": hook.kind,
                "runs": runs_in(hook.kind, on),
                "match": hook.match_text,
                "timeout": hook.timeout,
                "on_error": settled_on_error(hook, point),
                "mode": hook.mode,
                "source": hook.source,
            }


def _told(row: dict[str, Any], *, placed: bool) -> str:
    limit = f"limit {row['timeout']:g} s" if row["timeout"] is not None else "no limit"
    match = f", for {row['match']}" if row["match"] else ""
    mode = "" if row["mode"] == Mode.ENFORCE else f", {row['mode']} only: its verdict does not count"
    mode = ", off" if row["mode"] == Mode.OFF else mode
    where = f" runs {row['runs']}" if placed else ""
    return f"{row['name']} ({row['kind']}){where}{match}, {limit}, if it breaks: {row['on_error']}{mode}"


def _notes(loaded: Loaded, hooks: list[Hook], folder: str) -> list[str]:
    held = [
        hook.name
        for hook in hooks
        if hook.mode is Mode.ENFORCE and hook.points & {Point.MODEL_END, Point.STEP_END, Point.AGENT_END}
    ]
    mask = Mask(secrets_of(os.environ))
    made = loaded.manifest
    notes = [f"image {ref} is {folder}/{directory(ref)}" for ref in (made.refs if made else ())]
    notes += [
        f"{server}: its tools are listed when a run begins; {mask.text(server.place)}"
        for server in loaded.agent.servers
    ]
    if not held:
        return notes
    names = ", ".join(dict.fromkeys(held))
    return [*notes, f"Streamed text is held back, because it may still be changed or refused by: {names}"]
