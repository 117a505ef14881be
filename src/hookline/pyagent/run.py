"""`hookline run` of an agent: runs it with all its hooks and shows the tree of scopes as it happens."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hookline.agent.loaded import Loaded, image_sources
from hookline.engine.plain import as_text, plain
from hookline.engine.record import Journal, Record
from hookline.errors import Skipped, UsageError
from hookline.hookfile.attach import hooks_of
from hookline.journal.masking import Mask
from hookline.journal.recovery import owner, recover
from hookline.journal.stream import Sender
from hookline.journal.user import open_journal
from hookline.options import RunOptions
from hookline.runners.places import place_of, usable
from hookline.secret_names import secrets_in
from hookline.terminal import (
    approver_of,
    err,
    interruptible,
    print_result,
    refuse_mistakes,
    watcher,
)

AGENT_HERE = "the agent, its tools and hooks in Python run here"
RESULT = "result"
"""The word under which a run that was sent elsewhere tells its answer."""

Loader = Callable[[str], Loaded]
"""Finds the agent of a run that broke off, by its source."""


def run_agent(loaded: Loaded, options: RunOptions, loader: Loader) -> int:
    """Run an agent with all its hooks."""
    take(loaded, options.model, options.tools)
    refuse_unsound(loaded, quiet=options.quiet, model=not options.model)
    place, images = place_of(options.on, options.image, network=options.network, mounts=options.mount)
    sources = image_sources(loaded, images)
    folder = options.workspace or Path.cwd()
    runner = place.runner(workspace=folder, files=options.hooks)
    for text in () if options.quiet else place.told(AGENT_HERE, workspace=folder, files=options.hooks):
        err.print(text, style="yellow")
    more = hooks_of(options.hooks, runner)
    given = sys.stdin.read() if options.input == "-" else options.input
    if not given:
        raise UsageError(f'say what the agent is asked: hookline run {options.file} "..."')
    mask = Mask([*secrets_in(os.environ), *loaded.secrets])
    sender = Sender(_printed, mask) if options.records else None
    watch = sender.record if sender else watcher(mask, json=options.json, quiet=options.quiet)
    with open_journal(loaded.secrets) as journal:
        approver = approver_of(options.ask, journal, mask)

        async def main() -> int:
            await recover_others(journal, watch, loader, quiet=options.quiet or options.json)
            try:
                await usable(runner)
                async with loaded.live(runner, sources, progress(quiet=options.quiet)):
                    try:
                        answer = await loaded.agent.run(
                            given,
                            session_id=options.session or None,
                            user_id=options.user or None,
                            timeout=options.timeout,
                            hooks=more,
                            journal=journal,
                            watch=[watch] if watch else [],
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
            finally:
                await runner.close()
            say(plain(answer), as_text(plain(answer.result)))
            return 0

        def say(value: dict[str, Any], text: str) -> None:
            if sender is not None:
                sender.say(RESULT, {"value": value, "text": text})
            else:
                print_result(value, text, json=options.json)

        return interruptible(main)


def take(loaded: Loaded, model: str, tools: Sequence[str]) -> None:
    """The model and the tools of the command line."""
    if model:
        provider, _, name = model.partition("/")
        loaded.take_model(provider, name)
    loaded.take_tools(name for each in tools for name in each.split(","))


def refuse_unsound(loaded: Loaded, *, quiet: bool = False, model: bool = True) -> None:
    """Print what is wrong with a file, and raise where nothing may be run."""
    for text in (*map(str, loaded.problems), *map(str, loaded.warnings), *(() if quiet else loaded.notes)):
        err.print(text, style="yellow")
    refuse_mistakes(loaded.source, len(loaded.problems))
    if model:
        loaded.check_model()


def progress(*, quiet: bool) -> Callable[[str], None]:
    """Prints how far the images of hooks are."""

    def told(text: str) -> None:
        if not quiet:
            err.print(text, style="dim")

    return told


async def recover_others(
    journal: Journal, watch: Callable[[Record], None] | None, loader: Loader, *, quiet: bool
) -> None:
    """Run the end hooks that runs owe which broke off with their program."""
    found = await recover(
        journal, owner(), lambda source: loader(source).agent.hooks(), [watch] if watch else []
    )
    for each in found:
        if each.problem:
            err.print(
                f"run {each.run_id} ({each.name}) broke off and still owes its end: {each.problem}",
                style="yellow",
            )
        elif not quiet:
            err.print(
                f"run {each.run_id} ({each.name}) had broken off: {each.ran} end hooks were run",
                style="yellow",
            )


def _printed(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
