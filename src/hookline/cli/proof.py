"""The proof of `hookline install`: made-up calls through the entry that was written, as the client would start it.

They are about a folder of their own, with a hook file that has ready guards only, and with a journal of its own: none of
the user's hooks runs, and nothing of it is on record.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which
from typing import Any

from hookline.claude.clients import Client
from hookline.claude.entries import Handler, Settings
from hookline.claude.events import CALLERS, PROJECT_FOLDERS
from hookline.claude.tools import TOOLS
from hookline.cli.project import FIRST
from hookline.engine.point import Point
from hookline.hookfile.read import parse
from hookline.hookfile.trust import FILE, approve

REFUSED = f"echo > {FILE}"
"""A command that the ready guards refuse, or ask about."""
PASSED = "ls"
PROVED = f"a made-up `{REFUSED}` is refused or asked about, a made-up `{PASSED}` passes"
_LONGEST = 60


def prove(client: Client, settings: Settings, folder: Path) -> str | None:
    """The problem with the entry for tool calls; None if it refuses and lets pass as it should."""
    event = next(name for name, point in CALLERS[client.caller].items() if point is Point.TOOL_START)
    handler = next((each.handler for each in settings.entries() if each.event == event), None)
    if handler is None:
        return f"{settings.file} has no entry for {event}"
    with tempfile.TemporaryDirectory(prefix="hookline-proof-") as scratch:
        project, home = Path(scratch, "project"), Path(scratch, "home")
        project.mkdir()
        file = project / FILE
        file.write_text(FIRST)
        environ = _environ(client, project, home)
        approve(file, parse(FIRST, str(file)).hooks, environ)
        tool = next(name for name, tool in TOOLS[client.caller].items() if tool.kind == "shell")
        call = {
            "hook_event_name": event,
            "session_id": "proof",
            "cwd": str(project),
            "tool_name": tool,
            "tool_use_id": "proof",
        }
        for command, refused in ((REFUSED, True), (PASSED, False)):
            done = _asked(client, handler, {**call, "tool_input": {"command": command}}, folder, environ)
            if isinstance(done, str):
                return done
            if (_refuses(done) is refused) and (refused or done.returncode == 0):
                continue
            said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
            verb = "was not refused" if refused else "did not pass"
            hint = _hint(handler["command"], environ["PATH"])
            return f"a made-up `{command}` {verb} (exit code {done.returncode}): {said}{hint}"
    return None


def _hint(command: str, path: str) -> str:
    if "-m hookline answer" in command or which("hookline", path=path):
        return ""
    return (
        f"; outside of {sys.prefix} there is no hookline on the PATH: install it for your user, or use --user"
    )


def _environ(client: Client, project: Path, home: Path) -> dict[str, str]:
    """The environment of the client, without what only this process has: the programs of its virtual environment."""
    own = os.path.realpath(os.path.join(sys.prefix, "bin")) if sys.prefix != sys.base_prefix else ""
    path = [
        each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.realpath(each) != own
    ]
    variable = PROJECT_FOLDERS.get(client.caller)
    # Clients that have one set that of Claude Code too.
    names = {variable, PROJECT_FOLDERS["claude"]} if variable else ()
    return {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "HOOKLINE_HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        **dict.fromkeys(names, str(project)),
    }


def _asked(
    client: Client, handler: Handler, call: dict[str, Any], folder: Path, environ: dict[str, str]
) -> subprocess.CompletedProcess[str] | str:
    shell = [os.environ.get("SHELL") or "/bin/sh" if word == "$SHELL" else word for word in client.shell]
    try:
        return subprocess.run(
            [*shell, handler["command"]],
            cwd=folder,
            env=environ,
            input=json.dumps(call) + "\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST,
        )
    except subprocess.TimeoutExpired:
        return f"the entry did not answer within {_LONGEST} seconds"
    except OSError as exc:
        return f"{shell[0]} cannot be started: {exc.strerror}"


def _refuses(done: subprocess.CompletedProcess[str]) -> bool:
    if done.returncode == 2:
        return True
    try:
        said: Any = json.loads(done.stdout or "{}")
        word = said.get("decision") or said.get("hookSpecificOutput", {}).get("permissionDecision")
    except (ValueError, AttributeError):
        return False
    return word in ("deny", "block", "ask")
