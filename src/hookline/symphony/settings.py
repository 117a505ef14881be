"""The settings of WORKFLOW.md: a class for each section, whose fields have their key, reader and default."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, cast

from hookline.engine.point import Point
from hookline.errors import meant
from hookline.secrets import INHERIT
from hookline.source import Wrong, without_lines
from hookline.symphony.trackers import TRACKERS, references
from hookline.table import UNSET, InMapping, Key, Node, Table, split_command, unread, warn

POINTS: Mapping[str, Point] = {
    "after_create": Point.WORKSPACE_START,
    "before_run": Point.RUN_START,
    "after_run": Point.RUN_END,
    "before_remove": Point.WORKSPACE_END,
}
"""The four hooks, and where they stand."""
AGENTS = ("codex", "command", "builtin")
DEFAULT_TIMEOUT = 60.0
"""Seconds for a hook where the file does not say, or says zero or less."""

_NUMBER = re.compile(r"[-+]?[0-9]+", re.ASCII)
_LONGEST_WAIT = 10 * 365 * 86400 * 1000
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_ONCE_BESIDE = ("endpoint", "api_key", "project_slug", "assignee")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A shell script and the line of its key."""

    text: str
    line: int


def _shown(value: Any) -> str:
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, Mapping) else repr(value)


def _needs(node: Node, kind: type, wanted: str) -> None:
    if not isinstance(node.value, kind):
        raise Wrong(f"is {_shown(node.value)}; {wanted}")


def _whole(value: Any, wanted: str) -> int:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) and len(value) < 20:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Wrong(f"is {_shown(value)}; give {wanted}")
    return value


def _positive(node: Node, wanted: str = "a number") -> int:
    number = _whole(node.value, wanted)
    if number <= 0:
        raise Wrong(f"is {number}; give {wanted}, more than 0")
    return number


def _milliseconds(node: Node) -> float:
    number = _positive(node, "milliseconds, as in 30000")
    if number > _LONGEST_WAIT:
        raise Wrong(f"is {number}, which is more than ten years; give milliseconds, as in 30000")
    return number / 1000


def _hook_limit(node: Node) -> float:
    number = _whole(node.value, "milliseconds, as in 60000")
    if number > 0:
        return _milliseconds(node)
    node.doubt(f"is {number}; a limit is more than 0, so the default of {DEFAULT_TIMEOUT * 1000:.0f} holds")
    return DEFAULT_TIMEOUT


def _stall(node: Node) -> float | None:
    number = _whole(node.value, "milliseconds, as in 300000, or 0 for no limit")
    return _milliseconds(node) if number > 0 else None


def _script(node: Node) -> Script:
    _needs(node, str, f"give a shell script, as a block after `{node.trail[-1]}: |`")
    value: str = node.value
    if "\0" in value:
        raise Wrong("has a NUL character in it, which no shell takes")
    return Script(text=value, line=node.location().line or 1) if value.strip() else UNSET


def _text(node: Node, wanted: str = "give a text") -> str:
    if not isinstance(node.value, str) or not node.value.strip():
        raise Wrong(f"is {_shown(node.value)}; {wanted}")
    return node.value


def _folder(node: Node) -> str:
    _needs(node, str, "give a folder, or $NAME for one in a variable")
    return node.value


def _items(node: Node) -> tuple[str, ...]:
    for index, item in enumerate(node.of_list):
        if not isinstance(item, str):
            raise Wrong(
                f"is {_shown(item)}; give a text, in quotes if it looks like something else", (index,)
            )
    return tuple(node.of_list)


def _texts(node: Node) -> tuple[str, ...]:
    _needs(node, list, "give a list of texts: [one, two]")
    return tuple(item.strip() for item in _items(node))


def _handed_on(node: Node) -> tuple[str, ...] | str:
    return INHERIT if node.value == INHERIT else _texts(node)


def _labels(node: Node) -> tuple[str, ...]:
    labels = tuple(label.lower() for label in _texts(node))
    if "" in labels:
        node.doubt("has a blank label, which no issue has: nothing will be worked on", labels.index(""))
    return labels


def _tracker_kind(node: Node) -> str:
    kind = _text(node).strip()
    if kind not in TRACKERS:
        known = kind in ("jira", "asana", "gitlab")
        hint = f"; not in this version; known: {', '.join(TRACKERS)}" if known else meant(kind, TRACKERS)
        raise Wrong(f"unknown tracker {kind!r}{hint}")
    return kind


def _agent_kind(node: Node) -> str:
    kind = _text(node).strip()
    if kind not in AGENTS:
        raise Wrong(f"unknown agent {kind!r}{meant(kind, AGENTS)}")
    return kind


def _model(node: Node) -> str:
    model = _text(node).strip()
    provider, _, name = model.partition("/")
    if not provider or not name:
        raise Wrong(f"is {model!r}; give provider/name, such as openai/gpt-5")
    return model


def _settings(node: Node) -> dict[str, Any]:
    _needs(node, Mapping, "give keys and values")
    return {key: without_lines(item) for key, item in node.of_mapping.items() if item is not None}


def _by_state(node: Node) -> dict[str, int]:
    """Limits by state in lower case. A wrong entry is skipped: the overall limit holds there."""
    _needs(node, Mapping, "give a number for each state, as in `In Progress: 3`")
    found: dict[str, int] = {}
    for state in node.of_mapping:
        try:
            found[state.strip().lower()] = _positive(node.child(state))
        except Wrong as exc:
            node.doubt(f"{exc.message}; it is left out", state)
    return found


def _argv(node: Node) -> tuple[str, ...]:
    if isinstance(node.value, list):
        words = _items(node)
    elif isinstance(node.value, str):
        split, special = split_command(node.value, "; give a list of them")
        words = tuple(split)
        if special:
            raise Wrong(
                f'is started without a shell, so {special!r} has no effect; write ["sh", "-c", "..."]'
            )
    else:
        raise Wrong(f"is {_shown(node.value)}; give a command, or a list of its arguments")
    if not words or not words[0].strip():
        raise Wrong("names no program")
    if any("\0" in word for word in words):
        raise Wrong("has a NUL character in it")
    if os.path.basename(words[0]) in _SHELLS and any("{prompt}" in word for word in words[1:3]):
        raise Wrong(
            'would make the prompt part of a script; write ["sh", "-c", "... \\"$1\\"", "sh", "{prompt}"]'
        )
    return words


def _port(node: Node) -> int:
    number = _whole(node.value, "a port, or 0 for any that is free")
    if not 0 <= number <= 65535:
        raise Wrong(f"is {number}; give a port from 0 (any that is free) to 65535")
    return number


def _anything(node: Node) -> Any:
    return without_lines(node.value) or UNSET


def _key(default: Any, read: Callable[[Node], Any], doc: str, unit: str = "") -> Any:
    """A field of a section, which is read from the key of its name, with the unit at its end."""
    made: Any = {"default_factory": dict} if default == {} else {"default": default}
    return field(**made, metadata={"read": read, "doc": doc, "unit": unit})


def _seconds(default: float, doc: str, read: Callable[[Node], Any] = _milliseconds) -> Any:
    return _key(default, read, doc, "_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSettings:
    """The source of issues. `provider` is the tracker's own; a `$NAME` in it is still that (see `references`)."""

    kind: str | None = _key(None, _tracker_kind, "Which tracker: folder, memory, linear or github.")
    provider: Mapping[str, Any] = _key(
        {}, _settings, "The tracker's own settings; `$NAME` stands for a variable."
    )
    required_labels: tuple[str, ...] = _key((), _labels, "Labels that an issue must have, all of them.")
    active_states: tuple[str, ...] = _key(
        TRACKERS["folder"].active, _texts, "States in which an issue is worked on."
    )
    terminal_states: tuple[str, ...] = _key(
        TRACKERS["folder"].terminal,
        _texts,
        "States in which an issue is closed and its workspace is removed.",
    )

    @property
    def variables(self) -> frozenset[str]:
        """The environment variables that `provider` refers to."""
        return frozenset(references(self.provider))

    @property
    def secret_names(self) -> frozenset[str]:
        """The variables that may hold its secrets, which neither hooks nor agents are given."""
        return (self.variables | {TRACKERS[self.kind or "folder"].secret}) - {""}


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingSettings:
    interval: float = _seconds(30.0, "How often the tracker is asked; 30000.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSettings:
    root: str = _key("", _folder, "The folder that holds the workspaces; a path or `$NAME`.")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookScripts:
    """The four scripts, and the seconds that each may take."""

    after_create: Script | None = _key(None, _script, "Runs once, when a workspace was made; fatal.")
    before_run: Script | None = _key(None, _script, "Runs before each attempt; fatal to it.")
    after_run: Script | None = _key(None, _script, "Runs after each attempt, however it ended.")
    before_remove: Script | None = _key(None, _script, "Runs before a workspace is deleted.")
    timeout: float = _seconds(DEFAULT_TIMEOUT, "How long each of them may take; 60000.", _hook_limit)

    @property
    def given(self) -> dict[str, Script]:
        """The scripts that the file has, by the name of their hook."""
        return {name: script for name in POINTS if (script := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The agent: its kind, how many work at once, and for how long."""

    max_concurrent_agents: int = _key(10, _positive, "How many work at once; 10.")
    max_turns: int = _key(20, _positive, "Turns in one attempt; 20.")
    max_retry_backoff: float = _seconds(300.0, "The longest wait before a retry; 300000.")
    max_concurrent_agents_by_state: Mapping[str, int] = _key(
        {}, _by_state, "How many work at once on issues of a state."
    )
    kind: str = _key("codex", _agent_kind, "Which agent: codex, command or builtin.")
    command: tuple[str, ...] = _key(
        (), _argv, "The command-line agent, one text or a list; {prompt} is the prompt."
    )
    model: str = _key("", _model, "The built-in agent's model: provider/name.")
    tools: tuple[str, ...] | None = _key(
        None, _texts, "The built-in agent's tools; all that are ready if not given."
    )
    env: tuple[str, ...] | str = _key((), _handed_on, "Keys that its shell is handed: names, or inherit.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexSettings:
    """Settings that are passed to Codex, and its limits in seconds. Without `stall_timeout` no attempt counts as stalled."""

    command: str = _key(
        "codex app-server",
        partial(_text, wanted="give a command, such as codex app-server"),
        "The shell command that starts Codex.",
    )
    approval_policy: Any = _key("never", _anything, "Passed to Codex.")
    thread_sandbox: Any = _key("workspace-write", _anything, "Passed to Codex.")
    turn_sandbox_policy: Any = _key(None, _anything, "Passed to Codex.")
    turn_timeout: float = _seconds(3600.0, "How long a turn may be silent; 3600000.")
    read_timeout: float = _seconds(5.0, "How long a response may take; 5000.")
    stall_timeout: float | None = _seconds(
        300.0, "Silence after which an attempt counts as stalled; 300000, 0 for never.", _stall
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The address of the service's API; without a port there is none, and 0 is any free one."""

    port: int | None = _key(None, _port, "The port of the service's state; 0 picks a free one.")
    host: str = _key("127.0.0.1", _text, "The address it listens at; 127.0.0.1.")


_PLACED = {
    **{key: f"; did you mean hooks.{key}?" for key in (*POINTS, "timeout_ms")},
    "max_turns": "; did you mean agent.max_turns?",
}
"""Keys that stand in another section, wherever they are written instead."""


def _table(keys: Mapping[str, Key], instead: Mapping[str, str]) -> Table:
    # Unknown keys are ignored by Symphony's own rule, so that newer files run; strict does not change that.
    return Table(keys, {**_PLACED, **instead}, unknown=warn, free="x-")


class _Section(InMapping):
    """A section of the front matter, as a value of its class. `instead` has the right key for a wrong one."""

    def __init__(self, settings: type, make: Callable[..., Any] | None = None, **instead: str) -> None:
        hints = {wrong: f"; did you mean {right}?" for wrong, right in instead.items()}
        keys: dict[str, Key] = {}
        for each in fields(settings):
            key = f"{each.name}{each.metadata['unit']}"
            keys[key] = Key(each.metadata["read"], each.metadata["doc"], each.name)
            if key != each.name:
                hints[each.name] = f"; did you mean {key}? It is in milliseconds"
        super().__init__(_table(keys, hints), lambda _, values: (make or settings)(**values))

    def __call__(self, node: Node) -> Any:
        _needs(node, Mapping, f"give keys and values: {', '.join(self.table.keys)}")
        return super().__call__(node)


class _TrackerSection(_Section):
    """The tracker. Its own settings used to be beside `kind`, and are moved below `provider`."""

    def __call__(self, node: Node) -> Any:
        values = dict(node.of_mapping)
        provider = values.get("provider")
        if provider is not None and not isinstance(provider, Mapping):
            return super().__call__(node)
        if provider:
            known = TRACKERS.get(str(values.get("kind") or "folder"), TRACKERS["folder"])
            _table(dict.fromkeys(known.settings, Key(unread)), {}).read(node.child("provider"))
        inner = dict(cast("Mapping[str, Any]", provider or {}))
        for key in _ONCE_BESIDE:
            if key in values:
                told = f"belongs under tracker.provider today; it is taken as {key} there"
                node.doubt(told, key, code="legacy-key")
                inner.setdefault(key, values.pop(key))
        return super().__call__(node.with_value({**values, "provider": inner}) if inner else node)


def _tracker(**given: Any) -> TrackerSettings:
    known = TRACKERS[given.get("kind") or "folder"]
    states: dict[str, Any] = {"active_states": known.active, "terminal_states": known.terminal}
    return TrackerSettings(**{**states, **given})


_SECTIONS: Mapping[str, _Section] = {
    "tracker": _TrackerSection(TrackerSettings, _tracker),
    "polling": _Section(PollingSettings),
    "workspace": _Section(WorkspaceSettings, path="root", dir="root"),
    "hooks": _Section(
        HookScripts,
        setup="after_create",
        on_create="after_create",
        pre_run="before_run",
        post_run="after_run",
        cleanup="before_remove",
    ),
    "agent": _Section(AgentSettings),
    "codex": _Section(CodexSettings),
    "server": _Section(ServerSettings),
}
FRONT_MATTER = _table({name: Key(section) for name, section in _SECTIONS.items()}, {})
"""The sections of the file, each read as a value of its class."""
