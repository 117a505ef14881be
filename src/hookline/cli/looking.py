"""Looking before anything runs: `hookline check`, `explain`, and `try`."""

from __future__ import annotations

import asyncio
import json as jsonlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from hookline.attaching import SUFFIXES
from hookline.cli.running import hooks_of
from hookline.cli.terminal import found_run, open_journal, out, print_json, secrets_of, show
from hookline.cli.tree import Tree
from hookline.compose import Loaded, load, load_hooks, problems
from hookline.context import Facts, HookContext, WorkflowContext
from hookline.errors import HooklineError, UsageError
from hookline.hook import Hook, Mode, settled_on_error
from hookline.journal import Begun, Called, Ended, Record
from hookline.journal.masking import Mask
from hookline.pipeline import Pipeline, Recorder
from hookline.point import Point, Scope, Status, point_named
from hookline.result import HookAction, Outcome
from hookline.runners import Runner
from hookline.runners.local import LocalRunner

__all__ = ["check", "explain", "try_"]

HOOKS = Annotated[list[str] | None, typer.Option(help="a file with more hooks")]
JSON = Annotated[bool, typer.Option("--json", help="for a program to read")]


def check(
    files: Annotated[list[str], typer.Argument(help="agent.py, agent.py:name or module:name")],
    hooks: HOOKS = None,
    json: JSON = False,
) -> int:
    """Say every mistake in the files, with its place; exit 2 if there is one."""
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
    for file in files:
        try:
            if Path(file).suffix in SUFFIXES:
                attached = load_hooks(file, LocalRunner())
                found += [*map(str, attached.problems), *attached.notes, *attached.doubts]
                continue
            found += problems(load(file), more)
        except HooklineError as exc:
            found.append(str(exc))
    if json:
        print_json({"files": files, "problems": found})
    else:
        for text in found:
            out.print(text)
        count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
        out.print(count if found else f"{', '.join(files)}: nothing wrong")
    return 2 if found else 0


def explain(
    file: Annotated[str, typer.Argument(help="agent.py, agent.py:name or module:name")],
    hooks: HOOKS = None,
    json: JSON = False,
) -> int:
    """Say which hooks run where, in which order, with what limits, from which source."""
    loaded = load(file)
    live = _all_hooks(loaded, hooks, LocalRunner())
    rows = list(_rows(loaded, live))
    notes = _notes(loaded, live)
    if json:
        print_json({"declaration": loaded.declaration.to_dict(), "hooks": rows, "notes": notes})
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
        out.print(f"  {row['order']}. {_told(row)}")
        out.print(f"     {row['source']}", style="dim")
    if not rows:
        out.print("\nno hooks")
    for note in notes:
        out.print(f"\n{note}")
    return 0


def try_(
    point: Annotated[str, typer.Argument(help="a point such as tool.start; with --from also `all`")],
    file: Annotated[str, typer.Argument(help="agent.py, agent.py:name or module:name")],
    tool: Annotated[str, typer.Option(help="the tool, at tool points")] = "",
    input: Annotated[str, typer.Option(help="the payload, as JSON (or the agent's input as text)")] = "",
    output: Annotated[str, typer.Option(help="the output, as JSON or text, at end points")] = "",
    status: Annotated[str, typer.Option(help="how it ended, at end points")] = "ok",
    from_: Annotated[str, typer.Option("--from", help="take the events of this past run")] = "",
    hooks: HOOKS = None,
    json: JSON = False,
) -> int:
    """Say what the hooks would decide for one made-up event, with no agent; exit 1 if it is refused."""
    loaded = load(file)
    runner = LocalRunner()
    live = _all_hooks(loaded, hooks, runner)
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
    outcomes = asyncio.run(_fired(live, events, mask, runner, json=json))
    refused = any(each.action in (HookAction.FAIL, HookAction.BLOCK) for each in outcomes)
    return 1 if refused else 0


async def _fired(
    hooks: list[Hook], events: list[HookContext], mask: Mask, runner: Runner, *, json: bool
) -> list[Outcome]:
    try:
        return await _all_fired(hooks, events, mask, json=json)
    finally:
        await runner.close()


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
    kind = next((each.kind for each in agent.tools if each.id == tool), None)
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


def _all_hooks(loaded: Loaded, files: list[str] | None, runner: Runner) -> list[Hook]:
    return [*hooks_of(files, runner), *loaded.agent.hooks()]


def _rows(loaded: Loaded, hooks: list[Hook]) -> Iterable[dict[str, Any]]:
    for point in Point:
        standing = [hook for hook in hooks if point in hook.points]
        for order, hook in enumerate(standing, 1):
            yield {
                "point": point,
                "order": order,
                "name": hook.name,
                "kind": hook.kind,
                "match": hook.match_text,
                "timeout": hook.timeout,
                "on_error": settled_on_error(hook, point),
                "mode": hook.mode,
                "source": hook.source,
            }


def _told(row: dict[str, Any]) -> str:
    limit = f"limit {row['timeout']:g} s" if row["timeout"] is not None else "no limit"
    match = f", for {row['match']}" if row["match"] else ""
    mode = "" if row["mode"] == Mode.ENFORCE else f", {row['mode']} only: its verdict does not count"
    mode = ", off" if row["mode"] == Mode.OFF else mode
    return f"{row['name']} ({row['kind']}){match}, {limit}, if it breaks: {row['on_error']}{mode}"


def _notes(loaded: Loaded, hooks: list[Hook]) -> list[str]:
    held = [
        hook.name
        for hook in hooks
        if hook.mode is Mode.ENFORCE and hook.points & {Point.MODEL_END, Point.STEP_END, Point.AGENT_END}
    ]
    if not held:
        return []
    names = ", ".join(dict.fromkeys(held))
    return [f"Streamed text is held back, because it may still be changed or refused by: {names}"]
