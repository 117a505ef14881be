"""`hookline run`, `hookline serve` and `hookline try` of an agent: once to its answer, over A2A until it is stopped, or
only the hooks of one event."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from hookline.agent import Loaded
from hookline.engine.context import Facts, HookContext, WorkflowContext
from hookline.engine.hook import Hook
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.plain import as_text, plain
from hookline.engine.point import Point, Scope, Status, point_named
from hookline.engine.record import Begun, Called, Ended, Record
from hookline.engine.result import HookAction, Outcome
from hookline.errors import Skipped, UsageError, meant, needs
from hookline.files import output
from hookline.hookfile.approver import approver_of
from hookline.hookfile.attach import hooks_of
from hookline.hookfile.ends import hooks_again
from hookline.hookfile.person import agent_above
from hookline.journal import open_journal
from hookline.journal.masking import Mask
from hookline.journal.recovery import owner, recover, waits
from hookline.journal.sqlite import SqliteJournal
from hookline.journal.stream import SERVING, Sender
from hookline.journal.view import Tree
from hookline.options import RunOptions, ServeOptions, TryOptions
from hookline.runners import Runner
from hookline.runners.local import LocalRunner
from hookline.runners.places import place_of, usable
from hookline.secrets import secrets_in
from hookline.terminal import (
    err,
    found_run,
    interruptible,
    out,
    print_json,
    print_result,
    refuse_mistakes,
    show,
    value_of,
    warn,
    watcher,
)

PORT = 8080
AGENT_HERE = "the agent, its tools and hooks in Python run here"
RESULT = "result"
"""The message with the answer of a run in a pod."""

Loader = Callable[[str], Loaded]
"""Loads the agent of a file, or of the source of a run on record."""


def run_agent(options: RunOptions, load: Loader) -> int:
    """Run an agent with all its hooks, and show the tree of scopes as it happens."""
    loaded = _loaded(options, load)
    place, images = place_of(options.on, options.image, network=options.network, mounts=options.mount)
    sources = loaded.image_sources(images)
    folder = options.workspace or Path.cwd()
    runner = place.runner(workspace=folder, files=options.hooks)
    for text in () if options.quiet else place.told(AGENT_HERE, workspace=folder, files=options.hooks):
        warn(text)
    more = hooks_of(options.hooks, runner)
    given = asked(options)
    mask = Mask([*secrets_in(os.environ), *loaded.secrets])
    sender = Sender(output.write, mask) if options.records else None
    watch = sender.record if sender else watcher(mask, json=options.json, quiet=options.quiet)
    watchers = [watch] if watch else []
    with open_journal(loaded.secrets) as journal:
        approver = approver_of(options.ask, journal, mask, agent_above(os.environ), options.code_to)

        async def main() -> int:
            await _recover_others(journal, watchers, quiet=options.quiet or options.json)
            try:
                async with live(loaded, runner, sources, quiet=options.quiet):
                    try:
                        answer = await loaded.agent.run(
                            given,
                            session_id=options.session or None,
                            user_id=options.user or None,
                            timeout=options.timeout,
                            hooks=more,
                            journal=journal,
                            watch=watchers,
                            approver=approver,
                            workspace=folder,
                            source=loaded.source,
                            owner=owner(),
                        )
                    finally:
                        # The last use of a session: its end hooks need their images too.
                        await loaded.agent.close()
            except Skipped as exc:
                say({"run_id": exc.run_id, "skipped": exc.reason}, f"skipped: {exc}")
                return 0
            say(plain(answer), as_text(plain(answer.result)))
            if answer.stopped_by and answer.result is None:
                warn(answer.answer)
                return 1
            return 0

        def say(value: dict[str, Any], text: str) -> None:
            if sender is not None:
                sender.say(RESULT, {"value": value, "text": text})
            else:
                print_result(value, text, json=options.json)

        return interruptible(main)


def serve_agent(options: ServeOptions, load: Loader) -> int:
    """Serve an agent of any format behind A2A."""
    idle = options.session_idle
    if idle is not None and idle <= 0:
        raise UsageError(f"--session-idle is {idle:g}; give seconds greater than 0")
    with needs("serving an agent", "a2a"):
        from hookline import http_server
        from hookline.agent import a2a
    host = options.host or "127.0.0.1"
    token, told = http_server.token_for(host, options, terminal=err.is_terminal)
    loaded = _loaded(options, load)
    loaded.agent.live_model()
    for server in loaded.agent.servers:
        server.need_package()  # else it would be served, and every run would fail
    place, images = place_of("", options.image)
    sources = loaded.image_sources(images)
    runner = place.runner(workspace=Path.cwd(), files=options.hooks)
    more = hooks_of(options.hooks, runner)
    mask = Mask([*secrets_in(os.environ), *loaded.secrets])
    # For a pod whose operator reads the log: the same stream as all else, whose lines it cannot come between.
    sends = os.environ.get("HOOKLINE_RECORDS") == "1"
    payloads = os.environ.get("HOOKLINE_PAYLOADS", "on") != "off"
    write = partial(print, end="", file=sys.stderr, flush=True)
    sender = Sender(write, mask, payloads=payloads) if sends else None
    shown = watcher(mask, json=options.json, quiet=options.quiet)
    watchers = [*([shown] if shown else []), *([sender.record] if sender else [])]
    since = time.time()
    with open_journal(loaded.secrets) as journal:
        run: dict[str, Any] = {
            "hooks": more,
            "journal": journal,
            "watch": watchers,
            "workspace": Path.cwd(),
            "source": loaded.source,
            "owner": owner(),
        }

        async def main() -> int:
            await _recover_others(journal, watchers, quiet=options.quiet or options.json)
            if sender is not None:
                sender.say(SERVING, {"since": since})
            async with (
                live(loaded, runner, sources, quiet=options.quiet),
                a2a.serving(
                    loaded.agent,
                    host=host,
                    port=PORT if options.port is None else options.port,
                    url=options.url,
                    idle=idle or a2a.IDLE,
                    run=run,
                    mask=mask.text,
                    token=token,
                ) as (address, bound),
            ):
                agent = loaded.agent.id
                if options.json:
                    print_json({"record": "serving", "agent": agent, "url": address, "port": bound})
                else:
                    err.print(f"{agent} is served over A2A on port {bound}: {address}")
                if told:
                    warn(told)
                await asyncio.Event().wait()
            return 0

        return interruptible(main)


def try_agent(options: TryOptions, load: Loader) -> int:
    """Fire one made-up event, or those of a past run, without running the agent; 1 if any of them is refused."""
    loaded = load(options.file)
    refuse_unsound(loaded, quiet=options.json, model=False)
    sources = loaded.image_sources(options.image)
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


def asked(options: RunOptions) -> str:
    """The question of the command line, or of standard input."""
    given = sys.stdin.read() if options.input == "-" else options.input
    if not given:
        raise UsageError(f'INPUT is missing: hookline run {options.file} "..."')
    return given


def refuse_unsound(loaded: Loaded, *, quiet: bool = False, model: bool = True) -> None:
    """Print the problems and warnings of a file, and raise if it has problems."""
    for each in (*loaded.problems, *loaded.warnings, *(() if quiet else loaded.notes)):
        warn(str(each))
    refuse_mistakes(loaded.source, len(loaded.problems))
    if model:
        loaded.check_model()


@asynccontextmanager
async def live(
    loaded: Loaded, runner: Runner, sources: Mapping[str, str], *, quiet: bool
) -> AsyncGenerator[None]:
    """Makes all hooks of the agent live, with the progress of their images on standard error; closes the runner."""

    def told(text: str) -> None:
        if not quiet:
            err.print(text, style="dim")

    try:
        await usable(runner)
        async with loaded.live(runner, sources, told):
            yield
    finally:
        await runner.close()


def _loaded(options: RunOptions | ServeOptions, load: Loader) -> Loaded:
    """The agent of the file, with the model and the tools of the command line."""
    loaded = load(options.file)
    if options.model:
        provider, _, name = options.model.partition("/")
        loaded.take_model(provider, name)
    loaded.take_tools(name for each in options.tools for name in each.split(","))
    refuse_unsound(loaded, quiet=options.quiet, model=not options.model)
    return loaded


async def _recover_others(
    journal: SqliteJournal, watchers: Sequence[Callable[[Record], None]], *, quiet: bool
) -> None:
    """Run the end hooks of runs whose process died."""
    found = await recover(journal, owner(), hooks_again, watchers)
    for each in found:
        if each.problem:
            warn(
                f"run {each.run_id} ({each.name}) was interrupted, and its end hooks could not run: {each.problem};"
                f" tried again in {waits(journal, each.run_id):.0f} s or later, `hookline runs drop {each.run_id}`"
                " ends it without them"
            )
        elif each.note:
            warn(
                f"run {each.run_id} ({each.name}) was interrupted: {each.ran} end hooks were run now; {each.note}"
            )
        elif not quiet:
            warn(f"run {each.run_id} ({each.name}) was interrupted: {each.ran} end hooks were run now")


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
    names = [str(each.current_tool) for each in known_tools(loaded) or ()]
    if point.scope is Scope.TOOL and not options.tool:
        raise UsageError(f"--tool is missing; tools of {loaded.agent.id}: {', '.join(names) or 'none'}")
    if options.tool and names and options.tool not in names:
        raise UsageError(
            f"--tool: {loaded.agent.id} has no tool {options.tool!r}{meant(options.tool, names)}"
        )
    if options.status not in tuple(Status):
        raise UsageError(f"--status is {options.status!r}; known: {', '.join(Status)}")
    given: Any = value_of(options.input) if options.input else {}
    if point.scope is Scope.TOOL and not isinstance(given, dict):
        raise UsageError(f'--input is {given!r}; a tool\'s is a JSON object, as {{"command": "ls"}}')
    if point.scope in (Scope.AGENT, Scope.RUN) and not isinstance(given, dict):
        given = {"input": given}
    if point.scope is Scope.AGENT and isinstance(given, dict) and "input" in given:
        known = cast("dict[str, Any]", given)
        given = {"prompt": known["input"], **known}
    ended = None if point.is_start else Status(options.status)
    output = value_of(options.output) if options.output else None
    return _context(loaded, point, options.tool or None, given, output, ended)


def known_tools(loaded: Loaded) -> list[Facts] | None:
    """A call of each of the agent's tools; None if only a server or the command line knows them all."""
    agent = loaded.agent
    if not loaded.is_whole or any(each.taken is None for each in agent.servers):
        return None
    listed = [(name, each.kind) for each in agent.servers for name in (each.taken or {}).values()]
    known = [*((tool.id, tool.kind) for tool in agent.tools), *listed]
    return [Facts(workflow_id="", current_tool=name, tool_kind=kind) for name, kind in known]


def _past_events(records: Iterable[Record], loaded: Loaded) -> Iterable[HookContext]:
    """The points of a recorded run, with their payloads."""
    begun: dict[str, Begun] = {}
    raw: dict[str, Any] = {}
    for record in records:
        if isinstance(record, Begun):
            begun[record.scope_id] = record
            point = record.scope.start
            yield _context(loaded, point, record.about.get("tool"), record.payload, None, None)
        elif isinstance(record, Called) and str(record.point).endswith(".end") and record.given is not None:
            raw.setdefault(record.scope_id, record.given)
        elif isinstance(record, Ended) and record.scope_id in begun and record.status is not Status.BLOCKED:
            start = begun[record.scope_id]
            output = raw.get(record.scope_id, record.output)
            tool = start.about.get("tool")
            yield _context(loaded, record.scope.end, tool, start.payload, output, record.status)


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
