"""The clients that `hookline install` knows: where each has its settings, and how it calls hookline so that it fails closed.

To a client a hook that cannot start, dies or runs past its limit is none, and the call goes on. So an entry is a line of
shell that refuses in all these cases: exit code 2, with the reason on stderr.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from hookline.claude.events import CALLERS, fails_closed, point_of
from hookline.engine.hook import Hook, HookDeclaration
from hookline.engine.point import Point, Scope
from hookline.errors import UsageError

SHORTEST_LIMIT = 600
"""Seconds that a client waits for a hook at least; what a hook may take is limited by hookline itself."""
LONGEST_LIMIT = 24 * 3600
_MORE = 30.0
_EARLIER = 10
# No variable has a name: Gemini CLI and Qwen Code fill in those of their own environment. $0 is the advice.
_OR_REFUSED = '"$@" && exit 0; set -- $?; [ $1 -eq 2 ] || echo "hookline could not be asked: exit code $1; $0" >&2; exit 2'


class Place(StrEnum):
    """Whose settings: everyone's who has the repository, mine in it, mine everywhere, everyone's on the machine."""

    PROJECT = "project"
    LOCAL = "local"
    USER = "user"
    MANAGED = "managed"


class Client(NamedTuple):
    """A client: its settings files, its limits, its means to fail closed.

    `ticks` is its unit of limits in a second, `session_end` the most seconds that it waits for hooks at its end.
    `home` is the variable that names another folder than `folder` in the user's home; `managed_variable` the one that
    names another file of root's than `managed`. `shell` is how it starts the command of an entry; `$SHELL` stands for
    the user's. `off` is where it asks no hook and its calls go on, which `hookline check` finds in its settings.
    """

    name: str
    caller: str
    title: str
    managed: str
    shell: tuple[str, ...]
    off: str
    settings: str = "settings.json"
    ticks: int = 1
    local: str | None = None
    home: str = ""
    managed_variable: str = ""
    session_end: int = 60
    on_failure: bool = False
    trust: str = ""

    @property
    def folder(self) -> str:
        """The folder of its settings, in a project and in the user's home."""
        return f".{self.caller}"

    def words(self, place: Place) -> str:
        """The arguments of `hookline install` that name the settings of a place."""
        return self.name if place is Place.PROJECT else f"{self.name} --{place}"

    def file(self, place: Place, project: Path, environ: Mapping[str, str]) -> Path | None:
        """The settings file of a place; None if the client has none there."""
        if place is Place.PROJECT:
            return project / self.folder / self.settings
        if place is Place.LOCAL:
            return project / self.folder / self.local if self.local else None
        if place is Place.MANAGED:
            return Path(environ.get(self.managed_variable) or self.managed)
        return self.user_folder(environ) / self.settings

    def user_folder(self, environ: Mapping[str, str]) -> Path:
        named = environ.get(self.home)
        return Path(named) if named else Path(environ.get("HOME") or Path.home()) / self.folder

    def config(self, environ: Mapping[str, str]) -> Path:
        """The file in which Codex keeps its trust in hooks."""
        return self.user_folder(environ) / "config.toml"

    def events(self, points: Iterable[Point | str]) -> list[str]:
        """The events to subscribe to, given the points at which hooks stand.

        Each costs a process a time. Those of a tool, an agent or a session are always there, so that a hook that is
        added later is asked; those of a model call (of each piece of its answer) and those that are none of the
        fourteen points only where a hook stands at them.
        """
        standing = set(points)
        found: list[str] = []
        for event, point in CALLERS[self.caller].items():
            always = point is not None and point.scope is not Scope.MODEL
            if always or point_of(event, self.caller) in standing:
                found.append(event)
        return found

    def handler(self, event: str, place: Place, limit: int) -> dict[str, Any]:
        """The entry for one event, which refuses where hookline cannot be asked."""
        limit = min(limit, self.session_end) if event == "SessionEnd" else limit
        words = [*program(place), "answer", event]
        if self.caller != "claude":
            words += ["--as", self.caller]
        words.append("--once")
        handler: dict[str, Any] = {
            "type": "command",
            "command": shlex.join(words),
            "timeout": limit * self.ticks,
        }
        if fails_closed(event, self.caller):
            words += ["--within", str(limit - _EARLIER)]
            handler["command"] = or_refused(words, self._advice(place))
            if self.on_failure:
                handler["onFailure"] = "block"
        return handler

    def _advice(self, place: Place) -> str:
        # The same for all settings that are one user's: Claude Code runs the same line once.
        if place is Place.PROJECT:
            remedy = "install it with: pip install hookline"
            return f"{remedy}; or remove its entries from {self.folder}/{self.settings}"
        again = f"hookline install {self.name} with --local, --user or --managed, as before"
        return f"repair it with: {again}; or remove its entries from the settings of {self.title}"


CLIENTS: Mapping[str, Client] = {
    each.name: each
    for each in (
        Client(
            name="claude-code",
            caller="claude",
            title="Claude Code",
            local="settings.local.json",
            home="CLAUDE_CONFIG_DIR",
            managed="/etc/claude-code/managed-settings.json",
            managed_variable="CLAUDE_CODE_MANAGED_SETTINGS_PATH",
            on_failure=True,
            shell=("/bin/sh", "-c"),
            off="asks no hook where disableAllHooks is set",
        ),
        Client(
            name="codex",
            caller="codex",
            title="Codex",
            settings="hooks.json",
            home="CODEX_HOME",
            managed="/etc/codex/hooks.json",
            session_end=3,
            shell=("$SHELL", "-c"),
            trust="Codex reads this file only in a folder that you trust; it asks when it starts there",
            off="leaves out an entry that was changed or misspelt after it was trusted",
        ),
        Client(
            name="gemini",
            caller="gemini",
            title="Gemini CLI",
            managed="/etc/gemini-cli/settings.json",
            managed_variable="GEMINI_CLI_SYSTEM_SETTINGS_PATH",
            ticks=1000,
            shell=("bash", "-c"),
            trust="Gemini CLI reads this file only in a folder that you trust, if folder trust is on",
            off="asks no hook where hooksConfig.enabled is false",
        ),
        Client(
            name="qwen",
            caller="qwen",
            title="Qwen Code",
            home="QWEN_HOME",
            managed="/etc/qwen-code/settings.json",
            managed_variable="QWEN_CODE_SYSTEM_SETTINGS_PATH",
            # Seconds below 1000 are read as such by newer versions only; milliseconds by all.
            ticks=1000,
            shell=("bash", "-c"),
            trust="Qwen Code reads this file only in a folder that you trust, if folder trust is on",
            off="asks no hook where disableAllHooks is set",
        ),
    )
}


def client_named(name: str) -> Client:
    if name not in CLIENTS:
        raise UsageError(f"unknown agent {name!r}; known: {', '.join(CLIENTS)}")
    return CLIENTS[name]


def program(place: Place) -> list[str]:
    """The words that start hookline: by its name where others read the settings too, else this very one."""
    # -P: what lies in the agent's folder must not be imported in place of hookline or the standard library.
    return ["hookline"] if place is Place.PROJECT else [sys.executable, "-P", "-m", "hookline"]


def or_refused(words: Sequence[str], advice: str) -> str:
    """The command that runs the words, and refuses where they could not be run or did not answer."""
    return shlex.join(["/bin/sh", "-c", _OR_REFUSED, advice, *words])


def asked_by(command: str) -> list[str]:
    """The words that a command of `or_refused` runs; none if it is another command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return words[4:] if words[2:3] == [_OR_REFUSED] else []


def limit_of(hooks: Iterable[Hook | HookDeclaration]) -> int:
    """Seconds that are enough for all of them, one after another."""
    limits = [LONGEST_LIMIT if hook.timeout is None else hook.timeout for hook in hooks]
    return min(max(math.ceil(sum(limits) + _MORE), SHORTEST_LIMIT), LONGEST_LIMIT)
