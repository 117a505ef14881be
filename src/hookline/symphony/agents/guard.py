"""The guard: the hooks of a service as hooks of the coding agent that it starts, so that they see its tool calls.

Such an agent runs a hook as a command. Here that is `hookline answer`, with the file the user named and the journal of
the service. No file is written: Codex gets its hooks with the thread, Claude Code as an argument. So the agent's own
configuration stays as it is, and nothing is left after a crash.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookline.claude.clients import Place, limit_of, or_refused, program
from hookline.claude.events import CALLERS, fails_closed
from hookline.engine.hook import Hook, Mode
from hookline.engine.point import Point, Scope, points_in
from hookline.hookfile.read import read
from hookline.hookfile.sources import is_machine
from hookline.hookfile.trust import content_of
from hookline.journal import default_path
from hookline.symphony.settings import AgentSettings

_OUTER = frozenset({Scope.WORKSPACE, Scope.RUN})
_ADVICE = "is hookline still where the service was started from?"

Listed = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Hooks by their file; under None those that another process cannot find. `home` has the journal.

    `contents` has for each file its digest and those of the code that it names: the agent may change them as it works.
    """

    files: Mapping[str | None, tuple[Hook, ...]]
    contents: Mapping[str, str]
    home: str

    def events(self, caller: str) -> dict[str, list[dict[str, Any]]]:
        """The commands for the agent to run, by its own names of events, in the form that Claude Code and Codex share.

        Only events with a hook are there; the others cost nothing.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        for event, point in _points(caller).items():
            standing = {
                file: hooks
                for file, listed in self.files.items()
                if file is not None and (hooks := [hook for hook in listed if point in hook.points])
            }
            if standing:
                # One command for all files: each hook sees what those before it changed.
                command = self._command(event, caller, standing)
                limit = limit_of([hook for hooks in standing.values() for hook in hooks])
                found[event] = [{"hooks": [{"type": "command", "command": command, "timeout": limit}]}]
        return found

    def argv(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The command of a command-line agent, with the guard in its arguments if it takes one."""
        if _why_not(argv) is not None:
            return argv
        # A repository may switch hooks off in the settings that it brings along; an argument counts for more.
        settings = {"disableAllHooks": False, "hooks": self.events("claude")}
        return (argv[0], "--settings", json.dumps(settings), *argv[1:])

    def blind(self, agent: AgentSettings) -> list[str]:
        """Warnings on hooks that do not see what this agent does, with the reason."""
        if agent.kind == "builtin":
            return []
        everyone = [hook for hooks in self.files.values() for hook in hooks]
        reason = _why_not(agent.command) if agent.kind == "command" else None
        if reason is not None:
            return [*_sentence(reason, everyone)]
        caller = "claude" if agent.kind == "command" else "codex"
        homeless = self.files.get(None, ())
        return [
            *_sentence(
                f"{caller} calls hooks in a separate process, which cannot find hooks given as Python objects",
                homeless,
            ),
            *_sentence(
                f"{caller} has no event for this",
                [hook for hook in everyone if hook not in homeless],
                frozenset(_points(caller).values()),
            ),
        ]

    def _command(self, event: str, caller: str, files: Iterable[str]) -> str:
        answer = [*program(Place.LOCAL), "answer", event, "--as", caller]
        named = [word for file in files for word in ("--file", file, "--content", self.contents[file])]
        words = ["env", f"HOOKLINE_HOME={self.home}", *answer, *named]
        return or_refused(words, _ADVICE) if fails_closed(event, caller) else shlex.join(words)


def guard_of(files: Sequence[str] | None, hooks: Iterable[Hook], environ: Mapping[str, str]) -> Guard | None:
    """The guard of these hook files and their hooks; None if there are no hooks."""
    names = [os.path.realpath(file) for file in files or () if os.path.isfile(file)]
    found: dict[str | None, list[Hook]] = {name: [] for name in names}
    for hook in hooks:
        if hook.mode is not Mode.OFF:
            place = os.path.realpath(hook.source.rpartition(":")[0])
            found.setdefault(place if place in found else None, []).append(hook)
    standing = {file: tuple(each) for file, each in found.items() if each}
    home = Path(os.path.abspath(default_path(environ))).parent
    contents = {name: json.dumps(_content(Path(name))) for name in names}
    return Guard(files=standing, contents=contents, home=str(home)) if standing else None


def _content(file: Path) -> Mapping[str, str | None]:
    if is_machine(file):
        return {}  # root's to change
    return content_of(file, read(file).checked().hooks if file.suffix in (".yaml", ".yml") else ())


def commands_in(events: Mapping[str, Any]) -> frozenset[str]:
    """The commands in the result of `Guard.events`; each is at one event only."""
    return frozenset(
        handler["command"] for groups in events.values() for group in groups for handler in group["hooks"]
    )


def trusted(listed: Listed, commands: frozenset[str]) -> dict[str, dict[str, Any]]:
    """The entries by which Codex trusts these commands and no other hook, from its list of hooks."""
    return {
        str(each["key"]): {"enabled": True, "trusted_hash": each["currentHash"]}
        for each in listed
        if each.get("command") in commands and "key" in each and "currentHash" in each
    }


def in_force(listed: Listed, commands: frozenset[str]) -> bool:
    """True if Codex will run every one of these commands."""
    running = {
        each.get("command")
        for each in listed
        if each.get("enabled") is True and each.get("trustStatus") in ("trusted", "managed")
    }
    return commands <= running


def _points(caller: str) -> dict[str, Point | str]:
    return {event: point or f"x.{caller}.{event}" for event, point in CALLERS[caller].items()}


def inner_points(hook: Hook) -> frozenset[Point | str]:
    """The points of a hook inside the agent's own work; the points of workspace and run are the service's."""
    return hook.points - set(points_in(hook.points, _OUTER))


def _why_not(argv: tuple[str, ...]) -> str | None:
    """The reason why a command-line agent cannot be given hooks; None if it can."""
    program = os.path.basename(argv[0])
    if program != "claude":
        better = "; agent.kind: codex can" if program == "codex" else ""
        return f"the agent {argv[0]!r} cannot be given hooks{better}"
    if any(word.partition("=")[0] == "--settings" for word in argv):
        return "agent.command already has --settings, and claude takes only one"
    return None


def _sentence(why: str, hooks: Iterable[Hook], asked: frozenset[Point | str] = frozenset()) -> Iterator[str]:
    """A warning on the hooks with an inner point that is not in `asked`, if there are any."""
    unseen = {hook.name: ", ".join(sorted(map(str, inner_points(hook) - asked))) for hook in hooks}
    named = ", ".join(f"{name} ({points})" for name, points in unseen.items() if points)
    if named:
        yield f"{why}, so these hooks see nothing of it: {named}"
