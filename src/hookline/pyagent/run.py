"""`hookline run`: runs an agent with all its hooks and shows the tree of scopes as it happens."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from hookline.agent.output_schema import as_text
from hookline.engine.hook import Hook
from hookline.engine.lifecycle import Approver
from hookline.engine.plain import plain
from hookline.engine.record import Journal, Record
from hookline.errors import FileError, Skipped, UsageError
from hookline.journal.masking import Mask
from hookline.journal.owner import owner
from hookline.journal.recovery import recover
from hookline.journal.stream import Sender
from hookline.journal.view import Tree
from hookline.kagent.load import Manifest, hooks_folder
from hookline.pyagent.load import Loaded, load, load_hooks
from hookline.runners import Runner
from hookline.runners.places import place_of, usable
from hookline.terminal import (
    JournalApprover,
    TerminalApprover,
    err,
    open_journal,
    print_json,
    record_json,
    secrets_of,
    show,
)

__all__ = [
    "AGENT_HERE",
    "FILE",
    "IMAGES",
    "RESULT",
    "approver_of",
    "hooks_of",
    "interruptible",
    "recover_others",
    "run_agent",
    "say_result",
    "set_environment",
    "sound",
    "sources_of",
    "take",
    "watcher",
    "with_hooks",
]

AGENT_HERE = "the agent, its tools and hooks in Python run here"
RESULT = "result"
"""The word under which a run that was sent elsewhere tells its answer."""
FILE = "agent.py or a kagent agent.yaml (with :name where it has several), or module:name"
IMAGES = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        help="REF=SOURCE: where a hook image comes from, a path or another reference;"
        " NAME: what hooks run in with --on container, and pods with --on kubernetes",
    ),
]


def run_agent(
    file: str,
    input: str,
    *,
    hooks: list[str] | None,
    model: str,
    image: list[str] | None,
    on: str,
    network: bool,
    mounts: list[str] | None,
    tools: list[str] | None,
    workspace: Path | None,
    timeout: float | None,
    session: str | None,
    user: str | None,
    ask: str,
    json: bool,
    quiet: bool,
    records: bool = False,
) -> int:
    """An agent in Python or a kagent manifest, run with all its hooks. `records` are for who has sent it here."""
    loaded = load(file)
    take(loaded, model, tools or [])
    sound(loaded, quiet=quiet, model=not model)
    place, images = place_of(on, image, network=network, mounts=mounts)
    sources = sources_of(loaded, images)
    folder = workspace or Path.cwd()
    runner = place.runner(workspace=folder, files=hooks or ())
    for text in () if quiet else place.told(AGENT_HERE, workspace=folder, files=hooks or ()):
        err.print(text, style="yellow")
    more = hooks_of(hooks, runner)
    given = sys.stdin.read() if input == "-" else input
    if not given:
        raise UsageError(f'say what the agent is asked: hookline run {file} "..."')
    secrets = loaded.manifest.secrets if loaded.manifest else ()
    mask = Mask([*secrets_of(os.environ), *secrets])
    sender = Sender(_printed, mask) if records else None
    watch = sender.record if sender else watcher(mask, json=json, quiet=quiet)
    with open_journal(secrets) as journal:
        approver = approver_of(ask, journal, mask)

        async def main() -> int:
            await recover_others(journal, watch, quiet=quiet or json)
            try:
                await usable(runner)
                async with with_hooks(loaded, runner, sources, quiet=quiet):
                    try:
                        answer = await loaded.agent.run(
                            given,
                            session_id=session,
                            user_id=user,
                            timeout=timeout,
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
                say_result(value, text, json=json)

        return interruptible(main)


def sources_of(loaded: Loaded, images: Sequence[str] | None) -> dict[str, str]:
    """What `--image` says: the source of each image that a hook of the file names."""
    refs = loaded.manifest.refs if loaded.manifest else ()
    found: dict[str, str] = {}
    for pair in images or ():
        ref, equals, source = pair.partition("=")
        if not equals or not ref or not source:
            raise UsageError(f"--image {pair!r} is not REF=SOURCE")
        if ref not in refs:
            known = ", ".join(refs) or "none"
            raise UsageError(f"--image {pair!r}: no hook here has the image {ref!r}; images here: {known}")
        # What is there is meant, also without ./ before it.
        found[ref] = os.path.abspath(source) if os.path.exists(source) else source
    return found


def sound(loaded: Loaded, *, quiet: bool = False, model: bool = True) -> None:
    """Tell what is wrong with a manifest. A mistake may be a guard that would be off, so nothing runs then."""
    made = loaded.manifest
    if made is None:
        return
    for text in (*map(str, made.problems), *map(str, made.warnings), *(() if quiet else made.notes)):
        err.print(text, style="yellow")
    if made.problems:
        count = len(made.problems)
        raise UsageError(
            f"{loaded.source} has {'a mistake' if count == 1 else f'{count} mistakes'}; nothing was run"
        )
    if model:
        made.check_model()


@asynccontextmanager
async def with_hooks(
    loaded: Loaded, runner: Runner, sources: Mapping[str, str], *, quiet: bool = False
) -> AsyncGenerator[None]:
    """With the hooks of a manifest live; their images are here until then and no longer."""
    made = loaded.manifest
    if made is None:
        yield
        return

    def told(text: str) -> None:
        if not quiet:
            err.print(text, style="dim")

    async with hooks_folder(made, sources, os.environ, told) as folder:
        made.attach(runner, folder, os.environ)
        yield


def take(loaded: Loaded, model: str, tools: Sequence[str]) -> None:
    """The model and the tools of the command line."""
    made: Manifest | None = loaded.manifest
    if model:
        provider, _, name = model.partition("/")
        if made is not None:
            made.take_model(provider, name)
        loaded.agent.provider, loaded.agent.model = provider, name
    if tools and made is None:
        raise UsageError("--tools goes with a manifest; a Python agent has its tools in its file")
    if made is not None:
        made.take_tools(name for each in tools for name in each.split(","))


def hooks_of(files: list[str] | None, runner: Runner) -> list[Hook]:
    """The hooks of every file. A wrong entry of ours is a guard that would be off, so nothing runs then;
    of a foreign file only that entry is dropped, as its own tool would, and it is told."""
    found: list[Hook] = []
    for file in files or []:
        attached = load_hooks(file, runner)
        for text in (*map(str, attached.problems), *attached.notes):
            err.print(text, style="yellow")
        if attached.problems and not file.endswith(".json"):
            count = len(attached.problems)
            raise UsageError(
                f"{file} has {'a mistake' if count == 1 else f'{count} mistakes'}; nothing was run"
            )
        for hook in attached.hooks:
            twin = next((other for other in found if other.name == hook.name), None)
            if twin is not None:
                err.print(
                    f"hook {hook.name} is in {twin.source} and in {hook.source}; it runs twice",
                    style="yellow",
                )
        found += attached.hooks
    return found


def interruptible(main: Callable[[], Any]) -> int:
    """The first Ctrl-C or SIGTERM cancels the run and lets its end hooks finish; the next one ends those."""

    async def guarded() -> int:
        task = asyncio.ensure_future(main())
        loop = asyncio.get_running_loop()
        count = 0

        def interrupt() -> None:
            nonlocal count
            count += 1
            if count == 1:
                err.print("interrupted: end hooks are running; once more ends them too", style="yellow")
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt)
        try:
            return await task
        except asyncio.CancelledError:
            return 130

    return asyncio.run(guarded())


async def recover_others(journal: Journal, watch: Callable[[Record], None] | None, *, quiet: bool) -> None:
    """Run the end hooks that runs owe which broke off with their program."""

    def hooks_of(source: str) -> Any:
        return load(source).agent.hooks()

    for each in await recover(journal, owner(), hooks_of, [watch] if watch else []):
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


def watcher(mask: Mask, *, json: bool, quiet: bool) -> Callable[[Record], None] | None:
    if json:
        return lambda record: _printed(record_json(record, mask) + "\n")
    if quiet:
        return None
    tree = Tree(mask, width=max(err.width, 60))

    def watch(record: Record) -> None:
        for line in tree.lines(record):
            show(line, err)

    return watch


def _printed(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def say_result(value: dict[str, Any], text: str, *, json: bool) -> None:
    """The last line of a run, for a program or for a person."""
    if json:
        print_json({"record": "result", **value})
    else:
        _printed(text + "\n")


def approver_of(word: str, journal: Journal, mask: Mask) -> Approver | None:
    word = word or ("terminal" if sys.stdin.isatty() else "refuse")
    if word == "terminal":
        return TerminalApprover(journal, err, mask)
    if word == "journal":
        return JournalApprover(journal, err)
    if word == "refuse":
        return None
    raise UsageError(f"--ask is {word!r}; known: terminal, journal, refuse")


def set_environment(given: list[str], file: Path | None) -> dict[str, str]:
    """Set what the command line and its file of variables say; what that was."""
    found = _variables(file) if file is not None else {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--env {pair!r} is not NAME=VALUE")
        found[name] = value
    os.environ.update(found)
    return found


def _variables(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text().splitlines()
    except OSError as exc:
        raise FileError(exc.strerror or str(exc), file=file) from exc
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise FileError(f"{line!r} is not NAME=VALUE", file=file, line=number)
        found[name.strip()] = value.strip().strip("\"'")
    return found
