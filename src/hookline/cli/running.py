"""`hookline run`: runs an agent with all its hooks and shows the tree of scopes as it happens."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from hookline.agent.structured import as_text
from hookline.cli.terminal import (
    JournalApprover,
    TerminalApprover,
    err,
    open_journal,
    print_json,
    record_json,
    secrets_of,
    show,
)
from hookline.cli.tree import Tree
from hookline.compose import load, load_hooks
from hookline.errors import FileError, Skipped, UsageError
from hookline.hook import Hook
from hookline.journal import Journal, Record
from hookline.journal.masking import Mask
from hookline.journal.owner import owner
from hookline.lifecycle import Approver
from hookline.plain import plain
from hookline.recovery import recover
from hookline.runners import Runner
from hookline.runners.local import LocalRunner

__all__ = ["hooks_of", "run"]


def run(
    file: Annotated[str, typer.Argument(help="agent.py, agent.py:name or module:name")],
    input: Annotated[
        str, typer.Argument(help="what the agent is asked; - reads it from standard input")
    ] = "",
    hooks: Annotated[
        list[str] | None, typer.Option(help="a file with more hooks, for every agent of the run")
    ] = None,
    model: Annotated[str, typer.Option(help="another model: provider/name, or scripted/FILE")] = "",
    workspace: Annotated[
        Path | None, typer.Option(help="the folder that ready tools work in [default: the current one]")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="seconds for the whole run")] = None,
    session: Annotated[str | None, typer.Option(help="the session's id")] = None,
    user: Annotated[str | None, typer.Option(help="the user's id, for hooks to read")] = None,
    ask: Annotated[
        str, typer.Option(help="who answers questions: terminal, journal (hookline approve) or refuse")
    ] = "",
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, set before the file is loaded")] = None,
    env_file: Annotated[Path | None, typer.Option(help="a file of NAME=VALUE lines")] = None,
    json: Annotated[bool, typer.Option("--json", help="records as JSON lines on standard output")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="only the answer")] = False,
) -> int:
    """Run an agent with all its hooks."""
    _set_environment(env or [], env_file)
    loaded = load(file)
    runner = LocalRunner()
    more = hooks_of(hooks, runner)
    if model:
        loaded.agent.provider, _, loaded.agent.model = model.partition("/")
    given = sys.stdin.read() if input == "-" else input
    if not given:
        raise UsageError(f'say what the agent is asked: hookline run {file} "..."')
    mask = Mask(secrets_of(os.environ))
    watch = _watcher(mask, json=json, quiet=quiet)
    with open_journal() as journal:
        approver = _approver(ask, journal, mask)

        async def main() -> int:
            await _recover(journal, watch, quiet=quiet or json)
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
                    workspace=workspace or Path.cwd(),
                    source=loaded.source,
                    owner=owner(),
                )
            except Skipped as exc:
                _say(
                    json, {"record": "result", "run_id": exc.run_id, "skipped": exc.reason}, f"skipped: {exc}"
                )
                return 0
            finally:
                await loaded.agent.close()
                await runner.close()
            shown = plain(answer)
            _say(json, {"record": "result", **shown}, as_text(plain(answer.result)))
            return 0

        return _interruptible(main)


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


def _interruptible(main: Callable[[], Any]) -> int:
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


async def _recover(journal: Journal, watch: Callable[[Record], None] | None, *, quiet: bool) -> None:
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


def _watcher(mask: Mask, *, json: bool, quiet: bool) -> Callable[[Record], None] | None:
    if json:
        return lambda record: _json_line(record_json(record, mask))
    if quiet:
        return None
    tree = Tree(mask, width=max(err.width, 60))

    def watch(record: Record) -> None:
        for line in tree.lines(record):
            show(line, err)

    return watch


def _json_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _say(json: bool, value: dict[str, Any], text: str) -> None:
    if json:
        print_json(value)
    else:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _approver(word: str, journal: Journal, mask: Mask) -> Approver | None:
    word = word or ("terminal" if sys.stdin.isatty() else "refuse")
    if word == "terminal":
        return TerminalApprover(journal, err, mask)
    if word == "journal":
        return JournalApprover(journal, err)
    if word == "refuse":
        return None
    raise UsageError(f"--ask is {word!r}; known: terminal, journal, refuse")


def _set_environment(given: list[str], file: Path | None) -> None:
    if file is not None:
        try:
            lines = file.read_text().splitlines()
        except OSError as exc:
            raise FileError(exc.strerror or str(exc), file=file) from exc
        for number, line in enumerate(lines, 1):
            text = line.strip().removeprefix("export ")
            if not text or text.startswith("#"):
                continue
            name, equals, value = text.partition("=")
            if not equals or not name.strip().isidentifier():
                raise FileError(f"{line!r} is not NAME=VALUE", file=file, line=number)
            os.environ[name.strip()] = value.strip().strip("\"'")
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--env {pair!r} is not NAME=VALUE")
        os.environ[name] = value
