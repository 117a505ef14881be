"""`hookline run` and `hookline serve` of an agent: once to its answer, or over A2A until it is stopped, with all its hooks."""

from __future__ import annotations

import asyncio
import json as json_
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from hookline.agent.file import Loaded, image_sources
from hookline.engine.plain import as_text, plain
from hookline.engine.record import Journal, Record
from hookline.errors import Skipped, UsageError
from hookline.hookfile.attach import hooks_of
from hookline.journal.encoding import Encoding, decoded
from hookline.journal.masking import Mask
from hookline.journal.recovery import owner, recover
from hookline.journal.stream import SERVING, Sender
from hookline.journal.user import open_journal
from hookline.options import RunOptions, ServeOptions
from hookline.runners import Runner
from hookline.runners.places import place_of, usable
from hookline.secret_names import secrets_in
from hookline.terminal import (
    approver_of,
    err,
    interruptible,
    print_json,
    print_result,
    refuse_mistakes,
    warn,
    watcher,
)

PORT = 8080
AGENT_HERE = "the agent, its tools and hooks in Python run here"
RESULT = "result"
"""The word under which a run that was sent elsewhere tells its answer."""

Loader = Callable[[str], Loaded]
"""Finds the agent of a file, also of a run that broke off, by its source."""


def run_agent(options: RunOptions, load: Loader) -> int:
    """Run an agent with all its hooks, and show the tree of scopes as it happens."""
    loaded = _loaded(options, load)
    place, images = place_of(options.on, options.image, network=options.network, mounts=options.mount)
    sources = image_sources(loaded, images)
    folder = options.workspace or Path.cwd()
    runner = place.runner(workspace=folder, files=options.hooks)
    for text in () if options.quiet else place.told(AGENT_HERE, workspace=folder, files=options.hooks):
        warn(text)
    more = hooks_of(options.hooks, runner)
    given = asked(options)
    mask = Mask([*secrets_in(os.environ), *loaded.secrets])
    sender = Sender(partial(_write, sys.stdout), mask) if options.records else None
    watch = sender.record if sender else watcher(mask, json=options.json, quiet=options.quiet)
    watchers = [watch] if watch else []
    with open_journal(loaded.secrets) as journal:
        approver = approver_of(options.ask, journal, mask)

        async def main() -> int:
            await _recover_others(journal, watchers, load, quiet=options.quiet or options.json)
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
    if find_spec("a2a") is None:
        raise UsageError("serving an agent needs the a2a-sdk: pip install 'hookline[a2a]'")
    loaded = _loaded(options, load)
    loaded.agent.live_model()
    place, images = place_of("", options.image)
    sources = image_sources(loaded, images)
    runner = place.runner(workspace=Path.cwd(), files=options.hooks)
    more = hooks_of(options.hooks, runner)
    mask = Mask([*secrets_in(os.environ), *loaded.secrets])
    # For a pod whose operator reads the log: the same stream as all else, whose lines it cannot come between.
    sends = os.environ.get("HOOKLINE_RECORDS") == "1"
    sender = Sender(partial(_write, sys.stderr), mask) if sends else None
    shown = watcher(mask, json=options.json, quiet=options.quiet)
    watchers = [*([shown] if shown else []), *([_recording(sender, mask)] if sender else [])]
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
            from hookline.agent import a2a

            await _recover_others(journal, watchers, load, quiet=options.quiet or options.json)
            if sender is not None:
                sender.say(SERVING, {"since": since})
            async with (
                live(loaded, runner, sources, quiet=options.quiet),
                a2a.serving(
                    loaded.agent,
                    host=options.host or "127.0.0.1",
                    port=PORT if options.port is None else options.port,
                    url=options.url,
                    idle=idle or a2a.IDLE,
                    run=run,
                    mask=mask.text,
                ) as (address, bound),
            ):
                agent = loaded.agent.id
                if options.json:
                    print_json({"record": "serving", "agent": agent, "url": address, "port": bound})
                else:
                    err.print(f"{agent} is served over A2A on port {bound}: {address}")
                await asyncio.Event().wait()
            return 0

        return interruptible(main)


def asked(options: RunOptions) -> str:
    """The question of the command line, or of standard input."""
    given = sys.stdin.read() if options.input == "-" else options.input
    if not given:
        raise UsageError(f'INPUT is missing: hookline run {options.file} "..."')
    return given


def refuse_unsound(loaded: Loaded, *, quiet: bool = False, model: bool = True) -> None:
    """Print what is wrong with a file, and raise where nothing may be run."""
    for text in (*map(str, loaded.problems), *map(str, loaded.warnings), *(() if quiet else loaded.notes)):
        warn(text)
    refuse_mistakes(loaded.source, len(loaded.problems))
    if model:
        loaded.check_model()


@asynccontextmanager
async def live(
    loaded: Loaded, runner: Runner, sources: Mapping[str, str], *, quiet: bool
) -> AsyncGenerator[None]:
    """Makes all hooks of the agent live, and tells how far their images are; at the end the runner is closed."""

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
    journal: Journal, watchers: Sequence[Callable[[Record], None]], loader: Loader, *, quiet: bool
) -> None:
    """Run the end hooks that runs owe which broke off with their program."""
    found = await recover(journal, owner(), lambda source: loader(source).agent.hooks(), watchers)
    for each in found:
        if each.problem:
            warn(
                f"run {each.run_id} ({each.name}) broke off, and its end hooks could not run: {each.problem}"
            )
        elif not quiet:
            warn(f"run {each.run_id} ({each.name}) had broken off: {each.ran} end hooks were run")


def _recording(sender: Sender, mask: Mask) -> Callable[[Record], None]:
    """Sends what the journal here keeps, and no more."""
    if os.environ.get("HOOKLINE_PAYLOADS", "on") != "off":
        return sender.record
    bare = Encoding(mask, payloads=False)
    return lambda record: sender.record(decoded(record.run_id, json_.loads(bare.record(record))))


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()
