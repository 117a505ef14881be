"""Getting started: `hookline init`, `install` and `uninstall` for a foreign agent, and `trust`."""

from __future__ import annotations

import json as jsonlib
import os
import re
import shlex
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import typer

from hookline.cli.json_edit import Insertion, Node, inserted, insertion, nodes, removals, removed, undone
from hookline.engine.declaration import HookDeclaration
from hookline.errors import FileError, HooklineError, UsageError
from hookline.hookfile import read as native
from hookline.hookfile.trust import FILE, approve, nearest, remember, remembered, written
from hookline.journal.home import default_path
from hookline.terminal import out, print_json

__all__ = ["init", "install", "trust", "uninstall"]

EVENTS = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SessionStart", "SessionEnd")
AGENTS = ("claude-code",)
FIRST = """\
# The hooks of this project, for every agent that hookline runs or answers for.
# Check it with `hookline check hookline.yaml`. After a change, approve it again with `hookline trust`.
version: 1
hooks:
  # A ready guard: refuses a git push that would overwrite what others have pushed.
  - name: no-force-push
    on: tool.start          # before a tool is called; tool.end is after it
    match: kind:shell       # every tool that runs commands, whatever the agent calls it
    python: hookline.guards:no_force_push

  # A script of your own: any exit code but 0 refuses the call.
  # - name: tests-before-push
  #   on: tool.start
  #   match: kind:shell
  #   when: {input.command: {contains: git push}}   # no process starts for other calls
  #   shell: make test
  #   timeout: 5m
  #   on_error: block
"""

AGENT = Annotated[str, typer.Argument(help=f"the agent: {', '.join(AGENTS)}")]
PROJECT = Annotated[Path | None, typer.Option(help="the project's folder [default: the current one]")]
LOCAL = Annotated[bool, typer.Option("--local", help="settings.local.json, which is yours alone")]
JSON = Annotated[bool, typer.Option("--json", help="for a program to read")]


def init(
    file: Annotated[Path, typer.Argument(help="the file to write")] = Path(FILE), json: JSON = False
) -> int:
    """Write a first hookline.yaml."""
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"{file} would not be known as a hook file; its name must end in .yaml")
    try:
        with open(file, "x", encoding="utf-8") as opened:
            opened.write(FIRST)
    except FileExistsError:
        raise FileError("is there already; it was not changed", file=file) from None
    except OSError as exc:
        raise FileError(f"cannot be written: {exc.strerror}", file=file) from exc
    say = _Said(json)
    say(f"wrote {file}")
    approved = _approved(file, say)
    say("next: hookline install claude-code")
    return say.done({"wrote": str(file), "approved": approved})


def install(agent: AGENT, project: PROJECT = None, local: LOCAL = False, json: JSON = False) -> int:
    """Add hookline to an agent's settings, so that it asks `hookline answer`."""
    folder = _project(agent, project)
    say = _Said(json)
    place = _place(folder, local)
    settings = _settings(place)
    commands = {event: _command(event) for event in EVENTS}
    missing = [event for event in EVENTS if not settings.has(event)]
    if missing:
        _install(settings, {event: commands[event] for event in missing})
        say(f"wrote {place}")
        for event in missing:
            say(f"  {event}: {commands[event]}")
    else:
        say(f"{place}: hookline is there already; nothing was changed")
    found = nearest(folder)
    approved = None
    if found is None:
        say(f"there is no {FILE} in {folder} or above it, so every call would be refused: hookline init")
    else:
        approved = _approved(found, say, broken=True)
    return say.done(
        {"file": str(place), "added": {event: commands[event] for event in missing}, "approved": approved}
    )


def uninstall(agent: AGENT, project: PROJECT = None, local: LOCAL = False, json: JSON = False) -> int:
    """Take out of an agent's settings what `install` added, and nothing else."""
    folder = _project(agent, project)
    say = _Said(json)
    place = _place(folder, local)
    settings = _settings(place)
    gone = [event for event in EVENTS if settings.has(event)]
    if gone:
        left = _uninstall(settings)
        say(f"{place}: took out {', '.join(gone)}" if left else f"removed {place}, which held nothing else")
    else:
        say(f"{place}: hookline is not there; nothing was changed")
    return say.done({"file": str(place), "removed": gone})


def trust(
    file: Annotated[Path | None, typer.Argument(help=f"[default: the nearest {FILE} upward]")] = None,
    json: JSON = False,
) -> int:
    """Show the hooks of a file and approve it, so that `hookline answer` runs them where it finds them."""
    found = file or nearest(Path.cwd())
    if found is None:
        raise UsageError(f"there is no {FILE} in {Path.cwd()} or above it; `hookline init` writes one")
    say = _Said(json)
    return say.done({"approved": _approved(found, say)})


class _Said:
    """Lines for a person, or at the end one JSON value for a program."""

    def __init__(self, json: bool) -> None:
        self.json = json

    def __call__(self, text: str) -> None:
        if not self.json:
            out.print(text)

    def done(self, value: dict[str, Any]) -> int:
        if self.json:
            print_json(value)
        return 0


def _approved(file: Path, say: _Said, *, broken: bool = False) -> dict[str, Any] | None:
    """Approves a file after showing what it would run; one with a mistake is not approved."""
    try:
        hooks = native.read(file, strict=True).hooks
    except HooklineError as exc:
        if not broken:
            raise
        say(f"not approved: {exc}")
        return None
    rows = [
        {"name": each.name, "points": [str(point) for point in each.points], "runs": _runs(each)}
        for each in hooks
    ]
    say(f"{file}:")
    for row in rows:
        say(f"  {row['name']} at {', '.join(row['points'])} runs {row['runs']}")
    if not rows:
        say("  no hooks")
    also = approve(file, hooks, os.environ)
    covered = f", with {', '.join(also)}" if also else ""
    say(f"approved{covered}; a change takes the approval away")
    return {"file": str(file), "hooks": rows, "also": also}


def _runs(hook: HookDeclaration) -> str:
    params = hook.params
    if hook.kind == "python":
        return f"{params.get('file') or params['module']}:{params['function']}"
    if hook.kind == "command":
        return shlex.join(params["argv"])
    return str(params["script"]).strip() if hook.kind == "shell" else str(params["url"])


def _project(agent: str, project: Path | None) -> Path:
    if agent not in AGENTS:
        raise UsageError(f"unknown agent {agent!r}; known: {', '.join(AGENTS)}")
    folder = project or Path.cwd()
    if not folder.is_dir():
        raise UsageError(f"--project {folder} is not a folder")
    return folder


def _place(folder: Path, local: bool) -> Path:
    return folder / ".claude" / ("settings.local.json" if local else "settings.json")


def _command(event: str) -> str:
    # -P: what lies in the agent's folder must not be imported in place of hookline or the standard library.
    program = "hookline" if shutil.which("hookline") else f"{shlex.quote(sys.executable)} -P -m hookline"
    return f"{program} answer {event}"


def _is_ours(handler: Any, event: str) -> bool:
    command = cast("dict[str, Any]", handler).get("command") if isinstance(handler, dict) else None
    return isinstance(command, str) and bool(
        re.fullmatch(rf"(?:hookline|.*\S (?:-P )?-m hookline) answer {event}", command)
    )


class _Settings(NamedTuple):
    """A settings file as text, and as what the text says; `text` is None where there is no file."""

    file: Path
    text: str | None
    value: dict[str, Any]

    def groups(self, event: str) -> list[Any]:
        return self.value.get("hooks", {}).get(event, [])

    def has(self, event: str) -> bool:
        return any(self.ours(group, event) for group in self.groups(event))

    def ours(self, group: Any, event: str) -> set[int]:
        """Which handlers of a group are those that `install` writes."""
        handlers: Any = cast("dict[str, Any]", group).get("hooks") if isinstance(group, dict) else None
        listed = cast("list[Any]", handlers) if isinstance(handlers, list) else []
        return {index for index, each in enumerate(listed) if _is_ours(each, event)}


def _settings(file: Path) -> _Settings:
    try:
        text = file.read_bytes().decode()
    except FileNotFoundError:
        return _Settings(file, None, {})
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise FileError("is not UTF-8; it was not changed", file=file, line=line) from exc
    except OSError as exc:
        raise FileError(f"cannot be read: {exc.strerror}", file=file) from exc
    try:
        value: Any = jsonlib.loads(text.removeprefix("\ufeff"))
    except jsonlib.JSONDecodeError as exc:
        told = f"not JSON: {exc.msg} at column {exc.colno}; it was not changed"
        raise FileError(told, file=file, line=exc.lineno) from exc
    except RecursionError as exc:
        raise FileError("is nested too deeply to be read; it was not changed", file=file) from exc
    return _Settings(file, text, _checked(value, file, text))


def _checked(value: Any, file: Path, text: str) -> dict[str, Any]:
    """The settings, if hooks can be added to them."""

    def wrong(what: str, key: str | None, wanted: str) -> FileError:
        at = text.rfind(f'"{what}"')
        line = text.count("\n", 0, at) + 1 if at >= 0 else 1
        return FileError(f"must be {wanted}; it was not changed", file=file, line=line, key=key)

    if not isinstance(value, dict):
        raise wrong("", None, "an object")
    known = cast("dict[str, Any]", value)
    hooks = known.get("hooks", {})
    if not isinstance(hooks, dict):
        raise wrong("hooks", "hooks", "an object of events")
    for event in EVENTS:
        if not isinstance(cast("dict[str, Any]", hooks).get(event, []), list):
            raise wrong(event, f"hooks.{event}", "a list of groups")
    return known


def _install(settings: _Settings, commands: dict[str, str]) -> None:
    """Writes the settings with the commands in them, and remembers what was put where."""
    folder = settings.file.parent
    made_folder = not folder.exists()
    try:
        folder.mkdir(exist_ok=True)
    except OSError as exc:
        raise FileError(f"cannot be made: {exc.strerror}", file=folder) from exc
    before = "{}\n" if settings.text is None else settings.text
    insertions = _insertions(before, commands)
    after = inserted(before, insertions)
    written(settings.file, after.encode())
    store = _store()
    note = {
        "after": _digest(after),
        "insertions": insertions,
        "made_file": settings.text is None,
        "made_folder": made_folder,
    }
    remember(store, {**remembered(store), str(settings.file.resolve()): note})


def _insertions(text: str, commands: dict[str, str]) -> list[Insertion]:
    root, shift = _root(text)
    text = text[shift:]
    groups = {
        event: {"hooks": [{"type": "command", "command": command}]} for event, command in commands.items()
    }
    hooks = root.at("hooks")
    if hooks is None:
        new = {event: [group] for event, group in groups.items()}
        found = [insertion(text, root, [("hooks", new)])]
    else:
        known = {event: hooks.at(event) for event in groups}
        found = [insertion(text, node, [(None, groups[event])]) for event, node in known.items() if node]
        absent: list[tuple[str | None, Any]] = [
            (event, [groups[event]]) for event, node in known.items() if node is None
        ]
        found += [insertion(text, hooks, absent)] if absent else []
    return [Insertion(at + shift, new) for at, new in found]


def _uninstall(settings: _Settings) -> bool:
    """Writes the settings without what `install` added; False if the file is gone with it."""
    store, key = _store(), str(settings.file.resolve())
    notes = remembered(store)
    note = notes.pop(key, {})
    text = settings.text or ""
    if note.get("after") == _digest(text):
        text = undone(text, [Insertion(at, new) for at, new in note["insertions"]])
    # What is still there was added by an earlier install, or the file was changed since.
    text = _without_ours(settings._replace(text=text, value=jsonlib.loads(text.removeprefix("\ufeff"))))
    left = not (note.get("made_file") and jsonlib.loads(text.removeprefix("\ufeff")) == {})
    if left:
        written(settings.file, text.encode())
    else:
        settings.file.unlink()
        if note.get("made_folder") and not any(settings.file.parent.iterdir()):
            settings.file.parent.rmdir()
    if note:
        remember(store, notes)
    return left


def _without_ours(settings: _Settings) -> str:
    """Our handlers gone, and what is empty without them: the group, the event, `hooks`."""
    text = settings.text or ""
    root, shift = _root(text)
    hooks = root.at("hooks")
    if hooks is None:
        return text
    stretches: list[tuple[int, int]] = []
    empty: set[int] = set()
    for index, member in enumerate(hooks.members):
        if member.key in EVENTS and member.value is hooks.at(member.key):
            cut, whole = _cut(settings, member.key, member.value)
            stretches += [] if whole else cut
            empty |= {index} if whole else set()
    if empty and len(empty) == len(hooks.members):
        stretches = removals(root, {index for index, each in enumerate(root.members) if each.value is hooks})
    elif empty:
        stretches += removals(hooks, empty)
    return text[:shift] + removed(text[shift:], stretches)


def _cut(settings: _Settings, event: str, listed: Node) -> tuple[list[tuple[int, int]], bool]:
    """What to take out of an event's list, and whether that is all of it."""
    stretches: list[tuple[int, int]] = []
    empty: set[int] = set()
    for index, (group, node) in enumerate(zip(settings.groups(event), listed.members, strict=True)):
        ours = settings.ours(group, event)
        handlers = node.value.at("hooks")
        if not ours or handlers is None:
            continue
        if len(ours) == len(handlers.members):
            empty.add(index)
        else:
            stretches += removals(handlers, ours)
    if empty and len(empty) == len(listed.members):
        return [], True
    return stretches + (removals(listed, empty) if empty else []), False


def _root(text: str) -> tuple[Node, int]:
    """The outermost object, and how far it is moved by a byte order mark."""
    shift = 1 if text.startswith("\ufeff") else 0
    return nodes(text[shift:]), shift


def _store() -> Path:
    return default_path(os.environ).with_name("installed.json")


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
