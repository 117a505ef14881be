"""Every command but `answer`. Only this module turns an error into an exit code."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import NamedTuple, get_type_hints

from hookline.errors import FileError, HooklineError, JournalError, RunEnded, UsageError, nearest
from hookline.files import output

FAILED, WRONG, INTERRUPTED = 1, 2, 130
ABOUT = (
    "Lifecycle hooks for AI agents: your code before and after an agent's run, work, steps and tool calls."
)


class Command(NamedTuple):
    """A command: its function, whose module is loaded only when it is called, and its line in `hookline --help`.

    The function has one parameter; the annotation of that is the class of the command's options.
    """

    function: str
    about: str


COMMANDS = {
    "run": Command("cli.file:run", "Run an agent with all its hooks."),
    "check": Command(
        "cli.file:check",
        "Report every mistake and warning in the files, with its line; exit 2 for a mistake.",
    ),
    "explain": Command(
        "cli.file:explain",
        "Show which hooks run at which point, in which order, with what limits, from which file.",
    ),
    "try": Command(
        "systems:try_",
        "Show what the hooks would decide for a made-up event, without an agent; exit 1 if they refuse it.",
    ),
    "schema": Command("cli.project:print_schema", "Print the JSON Schema of hookline.yaml, for editors."),
    "serve": Command(
        "systems:serve",
        "Work on the issues of a tracker, each in its own workspace, or serve an agent over A2A, until stopped.",
    ),
    "attempt": Command(
        "symphony.pod:attempt",
        "Make one attempt at an issue; the pods of `hookline serve --on kubernetes` run this.",
    ),
    "operator": Command(
        "cli.operator:start",
        "Run the Kubernetes operator for AgentRuns, agents and packs of Sympozium, until stopped.",
    ),
    "operator manifest": Command(
        "cli.operator:manifest", "Print the manifests of an installation, for `kubectl apply -f -`."
    ),
    "crds": Command(
        "cli.operator:print_crds", "Print the CustomResourceDefinitions, for `kubectl apply -f -`."
    ),
    "workspace list": Command(
        "cli.workspace:list_workspaces",
        "List the workspaces of a WORKFLOW.md, with their issues and creation times.",
    ),
    "workspace rm": Command("cli.workspace:remove_workspace", "Run `before_remove` and delete a workspace."),
    "runs": Command("cli.runs:runs", "List the runs in the journal or on a cluster, or show one as a tree."),
    "runs drop": Command(
        "cli.runs:drop_run", "End a run that was broken off for good, without its end hooks; on record."
    ),
    "logs": Command("cli.runs:logs", "Show the input and the result of every hook call of a run."),
    "approve": Command("cli.verdict:approve", "Approve what a run is waiting for."),
    "reject": Command("cli.verdict:reject", "Reject what a run is waiting for."),
    "rewrite": Command("cli.verdict:rewrite", "Approve what a run is waiting for, with a different input."),
    "prune": Command("cli.runs:prune", "Delete old runs from the journal; unfinished runs are kept."),
    "init": Command("cli.project:init", "Write a first hookline.yaml."),
    "install": Command(
        "cli.install:install",
        "Add hookline to the settings of an agent, so that it calls `hookline answer`, and prove that it does.",
    ),
    "uninstall": Command(
        "cli.install:uninstall", "Remove from an agent's settings what `install` added, and nothing else."
    ),
    "trust": Command(
        "cli.project:trust",
        "Show the hooks of a file and approve it; `hookline answer` runs a hookline.yaml that it finds only if it is approved.",
    ),
}


def call(words: Sequence[str]) -> int:
    """Run the command that the words name; its exit code."""
    name, rest = _named(words)
    if not name:
        _print_help(*words[:1])
        return 0 if "--help" in words else WRONG
    from hookline.cli.parser import parse

    command = COMMANDS[name]
    module, _, called = command.function.partition(":")
    function = getattr(importlib.import_module(f"hookline.{module}"), called)
    kind = next(iter(get_type_hints(function).values()))
    options = parse(kind, rest, name, command.about)
    return 0 if options is None else function(options)


def _named(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command that is called and the words after it; an empty name where help is wanted."""
    if not words or words[0] == "--help":
        return "", ()
    two = " ".join(words[:2])
    if two in COMMANDS:
        return two, words[2:]
    first = words[0]
    if first in COMMANDS:
        return first, words[1:]
    group = _group(first)
    if group and words[1:2] in ([], ["--help"]):
        return "", ()
    if group:
        raise UsageError(
            f"hookline {first} {words[1]}: known are {', '.join(each.split()[1] for each in group)}"
        )
    if first.startswith("-"):
        raise UsageError(f"there is no option {first} before a command (hookline --help)")
    near = nearest(first, [*COMMANDS, "answer"])
    hint = f"; did you mean {near!r}?" if near else ""
    raise UsageError(f"there is no command {first!r}{hint} (hookline --help)")


def _group(first: str) -> list[str]:
    """The commands of two words that begin with this one: `operator manifest`."""
    return [name for name in COMMANDS if name.startswith(f"{first} ")]


def _print_help(group: str = "") -> None:
    """The commands with a line each; those of one group where it is named."""
    import shutil
    import textwrap

    names = list(COMMANDS) if group in ("", "--help") else _group(group)
    inner = "" if group in ("", "--help") else f"{group} "
    room = max(map(len, names)) + 4
    width = max(shutil.get_terminal_size().columns, 40)
    lines = [f"usage: hookline {inner}COMMAND [OPTIONS] [ARGUMENTS]", ""]
    lines += [*([] if inner else [*textwrap.wrap(ABOUT, width), ""]), "commands:"]
    for name in names:
        head, *more = textwrap.wrap(COMMANDS[name].about, width - room)
        lines += [f"  {name}".ljust(room) + head, *(" " * room + each for each in more)]
    lines += ["", f"hookline {inner}COMMAND --help shows the help of a command."]
    output.write("\n".join(lines) + "\n")


def main(words: Sequence[str]) -> int:
    """Exit 0 done or skipped, 1 failed or refused, 2 wrong use or wrong file, 130 interrupted."""
    output.take()
    code = _called(words)
    if output.fault:
        _print_error(f"standard output cannot be written: {output.fault}")
    return code or (FAILED if output.fault else 0)


def _called(words: Sequence[str]) -> int:
    try:
        return call(words)
    except HooklineError as exc:
        where = f" (hookline runs {exc.run_id})" if isinstance(exc, RunEnded) and exc.run_id else ""
        _print_error(f"{exc}{where}")
        return WRONG if isinstance(exc, UsageError | FileError | JournalError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except FileNotFoundError:
        if _has_folder():
            raise
        _print_error("the current folder was deleted; change to another one")
        return WRONG


def _print_error(text: str) -> None:
    from hookline.terminal import err

    err.print(f"error: {text}", style="red")


def _has_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True
