"""Who asks: a person at a terminal, or an agent that hookline guards.

A command that decides over guards is a person's. A process is an agent's if one of its ancestors has called
`hookline answer`, is a `hookline` that runs an agent, or was started with a variable that hookline or a client sets for
what it starts: an agent can clear its own environment, and not that of its ancestors. `hookline answer` notes its caller at every event, so this reads
`/proc` by itself: what runners have for that takes longer to load.
"""

import os
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hookline.errors import UsageError
from hookline.files import private_folder
from hookline.journal import default_path

SIGNS: Mapping[str, str] = {
    "HOOKLINE_TAG": "hookline",
    "CLAUDECODE": "Claude Code",
    "CODEX_THREAD_ID": "Codex",
    "CODEX_SANDBOX": "Codex",
    "CODEX_CI": "Codex",
    "GEMINI_CLI": "Gemini CLI",
    "QWEN_CODE": "Qwen Code",
}
"""The variables that an agent's processes are started with, and who sets them."""
_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish")
_BETWEEN = frozenset({*_SHELLS, "env", "nice", "nohup", "timeout", "stdbuf", "setsid", "sudo", "uv", "uvx"})
"""Programs that stand between a client and the hook that it calls."""
_KEPT = 30 * 86400.0
_HOLDERS = frozenset({"run", "serve", "attempt"})
"""The commands that have agents, tools and hooks inside them."""


class Process(NamedTuple):
    pid: int
    name: str
    parent: int
    session: int
    terminal: int
    started: str

    @property
    def note(self) -> str:
        """Its name in the folder of clients; a process id alone comes again."""
        return f"{self.pid}-{self.started}"


def note_client(environ: Mapping[str, str]) -> None:
    """Remember the agent that called this process, so that what it starts is known as its own."""
    client = _client()
    if client is None:
        return
    place = _clients(environ) / client.note
    if place.exists():
        return
    private_folder(place.parent.parent)
    private_folder(place.parent)
    for old in place.parent.iterdir():
        if old.stat().st_mtime < time.time() - _KEPT:
            old.unlink(missing_ok=True)
    place.touch(0o600)


def agent_above(environ: Mapping[str, str]) -> str | None:
    """The guarded agent that this process belongs to, in words; None if there is none."""
    for sign, whose in SIGNS.items():
        if environ.get(sign):
            return f"{sign} of {whose} is set"
    for each in _ancestors():
        if each.pid != os.getpid() and _holds_agent(each.pid):
            return f"process {each.pid} is a hookline that runs an agent"
        theirs = _variables(each.pid)
        # It was noted where its own variables say; an agent could set others for what it starts.
        if any((_clients(known) / each.note).exists() for known in (environ, theirs)):
            return f"{each.name}, process {each.pid}, calls `hookline answer`"
        for sign, whose in SIGNS.items():
            if sign in theirs:
                return f"process {each.pid} has {sign} of {whose}"
    return None


def missing_person(environ: Mapping[str, str]) -> str | None:
    """The reason why no person at a terminal calls this process; None if one does."""
    if agent := agent_above(environ):
        return f"it was called by an agent that hookline guards ({agent})"
    try:
        os.tcgetpgrp(0)  # of our own terminal only
    except OSError:
        return "stdin is not a terminal"
    # A process that its parent left behind keeps the terminal and loses its ancestors, by which an agent is known.
    if os.getsid(0) not in {each.pid for each in _ancestors()}:
        return "it does not descend from the shell of its terminal"
    return None


def need_person(command: str, environ: Mapping[str, str], otherwise: str) -> None:
    """Raise unless a person calls; `otherwise` names the ways that need none."""
    if why := missing_person(environ):
        raise UsageError(f"hookline {command} is for a person at a terminal, and {why}; {otherwise}")


def refuse_agent(command: str, environ: Mapping[str, str]) -> None:
    """Raise if an agent that hookline guards calls."""
    if agent := agent_above(environ):
        raise UsageError(
            f"hookline {command} is not for an agent that hookline guards ({agent});"
            " run it in a terminal of your own"
        )


def caller() -> str:
    """The place from which somebody calls this process: the terminal, and the program that started us."""
    parent = _process(os.getppid())
    program = f", from {parent.name} (process {parent.pid})" if parent is not None else ""
    return f"{os.ttyname(0) if os.isatty(0) else 'no terminal'}{program}"


def _clients(environ: Mapping[str, str]) -> Path:
    return default_path(environ).with_name("clients")


def _client() -> Process | None:
    """The nearest ancestor that is no shell or wrapper; None below the shell of a terminal, where a person typed."""
    ancestors = _ancestors()
    next(ancestors, None)
    for each in ancestors:
        if each.name not in _BETWEEN:
            return each
        if each.terminal and each.session == each.pid:
            return None
    return None


def _ancestors() -> Iterator[Process]:
    """This process, its parent, and so on up to the first."""
    pid = os.getpid()
    while pid and (found := _process(pid)) is not None:
        yield found
        pid = found.parent


def _process(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name stands in parentheses and may hold spaces and parentheses itself.
            head, _, rest = file.read().rpartition(b")")
    except OSError:
        return None
    fields = rest.split()
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return Process(pid, name, int(fields[1]), int(fields[3]), int(fields[4]), fields[19].decode())


def _holds_agent(pid: int) -> bool:
    """True for `hookline run` and the like, however it was started: what it starts may have neither tag nor note."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = os.fsdecode(file.read()).split("\0")
    except OSError:
        return False
    return any(os.path.basename(word) == "hookline" and after in _HOLDERS for word, after in pairwise(words))


def _variables(pid: int) -> dict[str, str]:
    """The variables that a process was started with."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = (each.partition("=") for each in os.fsdecode(file.read()).split("\0"))
            return {name: value for name, _, value in pairs}
    except OSError:
        return {}  # another user's
