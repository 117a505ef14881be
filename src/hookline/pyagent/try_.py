"""`hookline try`: fires one made-up event, or those of a past run, and says what the hooks decide; no agent runs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from typing import Any, cast

from hookline.agent.file import Loaded, image_sources
from hookline.engine.context import Facts, HookContext, WorkflowContext
from hookline.engine.hook import Hook
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point, Scope, Status, point_named
from hookline.engine.record import Begun, Called, Ended, Record
from hookline.engine.result import HookAction, Outcome
from hookline.errors import UsageError
from hookline.hookfile.attach import hooks_of
from hookline.journal.masking import Mask
from hookline.journal.user import open_journal
from hookline.journal.view import Tree
from hookline.options import TryOptions
from hookline.pyagent.run import live, refuse_unsound
from hookline.runners.local import LocalRunner
from hookline.secret_names import secrets_in
from hookline.terminal import found_run, out, print_json, show


def try_agent(loaded: Loaded, options: TryOptions) -> int:
    """Exit code 1 if any of the events is refused."""
    refuse_unsound(loaded, quiet=options.json, model=False)
    sources = image_sources(loaded, options.image)
    runner = LocalRunner()
    more = hooks_of(options.hooks, runner)
    events = _wanted_events(loaded, options)
    mask = Mask(secrets_in(os.environ))

    async def main() -> list[Outcome]:
        async with live(loaded, runner, sources, quiet=True):
            return await _fired([*more, *loaded.agent.hooks()], events, mask, as_json=options.json)

    outcomes = asyncio.run(main())
    refused = any(each.action in (HookAction.FAIL, HookAction.BLOCK) for each in outcomes)
    return 1 if refused else 0


def _wanted_events(loaded: Loaded, options: TryOptions) -> list[HookContext]:
    point = None if options.point == "all" else point_named(options.point)
    if options.past_run:
        with open_journal() as journal:
            records = journal.records(found_run(journal, options.past_run))
        events = [event for event in _past_events(records, loaded) if point is None or event.point == point]
        if not events:
            raise UsageError(f"that run has no event at {options.point}")
        return events
    if point is None:
        raise UsageError("`all` needs --from RUN")
    return [_event(loaded, point, options)]


async def _fired(hooks: list[Hook], events: list[HookContext], mask: Mask, *, as_json: bool) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for event in events:
        calls: list[Record] = []
        tree = Tree(mask, width=max(out.width, 60))
        recorder = Recorder(None, [calls.append])
        outcome = await Pipeline(hooks, recorder).fire(event)
        outcomes.append(outcome)
        heading = f"{event.point}{f' {event.current_tool}' if event.current_tool else ''}"
        if as_json:
            text = mask.json(
                {
                    "point": event.point,
                    "tool": event.current_tool,
                    "calls": [call._asdict() for call in calls if isinstance(call, Called)],
                    "outcome": {**outcome._asdict(), "reason": outcome.reason},
                }
            )
            print_json(json.loads(text))
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


def _event(loaded: Loaded, point: Point, options: TryOptions) -> HookContext:
    if point.scope is Scope.TOOL and not options.tool:
        known = ", ".join(each.id for each in loaded.agent.tools) or "none"
        raise UsageError(f"--tool is missing; tools of {loaded.agent.id}: {known}")
    if options.status not in tuple(Status):
        raise UsageError(f"--status is {options.status!r}; known: {', '.join(Status)}")
    given: Any = _value(options.input) if options.input else {}
    if point.scope in (Scope.AGENT, Scope.RUN) and not isinstance(given, dict):
        given = {"input": given}
    if point.scope is Scope.AGENT and isinstance(given, dict) and "input" in given:
        known = cast("dict[str, Any]", given)
        given = {"prompt": known["input"], **known}
    ended = None if point.is_start else Status(options.status)
    output = _value(options.output) if options.output else None
    return _context(loaded, point, options.tool or None, given, output, ended)


def _past_events(records: Iterable[Record], loaded: Loaded) -> Iterable[HookContext]:
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
        # A name that is none of its own tools can only be one of a server's.
        kinds.setdefault(tool, agent.servers[0].kind)
    facts = Facts(
        workflow_id=agent.id,
        point=point,
        run_id="try",
        scope_id="1",
        agent=agent.id,
        session_id="try",
        current_tool=tool,
        tool_kind=kinds.get(tool or ""),
        status=status,
        workflow=WorkflowContext(workflow_id=agent.id, execution_id="try"),
        aliases={"prompt": "input"} if point is Point.AGENT_START else None,
    )
    return HookContext.of(facts, payload, output)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        if text.lstrip().startswith(("{", "[")):
            raise UsageError(f"this is not JSON: {exc}: {text!r}") from None
        return text
