"""The keys of WORKFLOW.md, by section: their meaning and their readers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from hookline.source import Wrong, without_lines
from hookline.symphony.types import (
    AGENTS,
    DEFAULT_TIMEOUT,
    POINTS,
    TRACKERS,
    AgentSettings,
    CodexSettings,
    HookScripts,
    PollingSettings,
    Script,
    ServerSettings,
    TrackerSettings,
)
from hookline.table import UNSET, InMapping, Key, Node, Table, meant, split_command, warn

_NUMBER = re.compile(r"[-+]?[0-9]+", re.ASCII)
_LONGEST_WAIT = 10 * 365 * 86400 * 1000
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_ONCE_BESIDE = ("endpoint", "api_key", "project_slug", "assignee")


class _Section(InMapping):
    """A section of the front matter, as a value of its class."""

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
        inner = dict(cast("Mapping[str, Any]", provider or {}))
        for key in _ONCE_BESIDE:
            if key in values:
                node.doubt(f"belongs under tracker.provider today; it is taken as {key} there", key)
                inner.setdefault(key, values.pop(key))
        return super().__call__(node.with_value({**values, "provider": inner}) if inner else node)


def _tracker(_: Node, values: dict[str, Any]) -> TrackerSettings:
    known = TRACKERS[values.get("kind") or "folder"]
    whole: dict[str, Any] = {"active_states": known.active, "terminal_states": known.terminal, **values}
    return TrackerSettings(**whole)


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


def _positive(wanted: str) -> Callable[[Node], int]:
    def read_number(node: Node) -> int:
        number = _whole(node.value, wanted)
        if number <= 0:
            raise Wrong(f"is {number}; give {wanted}, more than 0")
        return number

    return read_number


def _milliseconds(node: Node) -> float:
    number = _positive("milliseconds, as in 30000")(node)
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
    value = node.value
    if not isinstance(value, str):
        raise Wrong(f"is {_shown(value)}; give a shell script, as a block after `{node.trail[-1]}: |`")
    if "\0" in value:
        raise Wrong("has a NUL character in it, which no shell takes")
    return Script(text=value, line=node.location().line or 1) if value.strip() else UNSET


def _text_such_as(wanted: str) -> Callable[[Node], str]:
    def read_text(node: Node) -> str:
        if not isinstance(node.value, str) or not node.value.strip():
            raise Wrong(f"is {_shown(node.value)}; {wanted}")
        return node.value

    return read_text


_text = _text_such_as("give a text")


def _folder(node: Node) -> str:
    _needs(node, str, "give a folder, or $NAME for one in a variable")
    return node.value


def _texts(node: Node) -> tuple[str, ...]:
    _needs(node, list, "give a list of texts: [one, two]")
    for index, item in enumerate(node.of_list):
        if not isinstance(item, str):
            raise Wrong(
                f"is {_shown(item)}; give a text, in quotes if it looks like something else", (index,)
            )
    return tuple(item.strip() for item in node.of_list)


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
            found[state.strip().lower()] = _positive("a number")(node.child(state))
        except Wrong as exc:
            node.doubt(f"{exc.message}; it is left out", state)
    return found


def _argv(node: Node) -> tuple[str, ...]:
    if isinstance(node.value, list):
        words = _arguments(node.of_list)
    elif isinstance(node.value, str):
        words = _split_words(node.value)
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


def _arguments(items: list[Any]) -> tuple[str, ...]:
    for index, item in enumerate(items):
        if not isinstance(item, str):
            raise Wrong(f"is {_shown(item)}; put it in quotes", (index,))
    return tuple(items)


def _split_words(text: str) -> tuple[str, ...]:
    words, special = split_command(text, "; give a list of them")
    if special:
        raise Wrong(f'is started without a shell, so {special!r} has no effect; write ["sh", "-c", "..."]')
    return tuple(words)


def _port(node: Node) -> int:
    number = _whole(node.value, "a port, or 0 for any that is free")
    if not 0 <= number <= 65535:
        raise Wrong(f"is {number}; give a port from 0 (any that is free) to 65535")
    return number


def _anything(node: Node) -> Any:
    return without_lines(node.value)


_PLACED = {
    **{key: f"; did you mean hooks.{key}?" for key in (*POINTS, "timeout_ms")},
    "max_turns": "; did you mean agent.max_turns?",
}
"""Keys that stand in another section, wherever they are written instead."""


def _section(keys: Mapping[str, Key], **instead: str) -> Table:
    # Unknown keys are ignored by Symphony's own rule, so that newer files run; strict does not change that.
    hints = {key: f"; did you mean {hint}" for key, hint in instead.items()}
    return Table(keys, {**_PLACED, **hints}, unknown=warn, free="x-")


SECTIONS: Mapping[str, Table] = {
    "tracker": _section(
        {
            "kind": Key(_tracker_kind, "Which tracker: folder, memory, linear or github."),
            "provider": Key(_settings, "The tracker's own settings; `$NAME` stands for a variable."),
            "required_labels": Key(_labels, "Labels that an issue must have, all of them."),
            "active_states": Key(_texts, "States in which an issue is worked on."),
            "terminal_states": Key(
                _texts, "States in which an issue is closed and its workspace is removed."
            ),
        }
    ),
    "polling": _section(
        {"interval_ms": Key(_milliseconds, "How often the tracker is asked; 30000.", "interval")},
        interval="interval_ms? It is in milliseconds",
    ),
    "workspace": _section(
        {"root": Key(_folder, "The folder that holds the workspaces; a path or `$NAME`.")},
        path="root?",
        dir="root?",
    ),
    "hooks": _section(
        {
            "after_create": Key(_script, "Runs once, when a workspace was made; fatal."),
            "before_run": Key(_script, "Runs before each attempt; fatal to it."),
            "after_run": Key(_script, "Runs after each attempt, however it ended."),
            "before_remove": Key(_script, "Runs before a workspace is deleted."),
            "timeout_ms": Key(_hook_limit, "How long each of them may take; 60000.", "timeout"),
        },
        timeout="timeout_ms? It is in milliseconds",
        setup="after_create?",
        on_create="after_create?",
        pre_run="before_run?",
        post_run="after_run?",
        cleanup="before_remove?",
    ),
    "agent": _section(
        {
            "max_concurrent_agents": Key(_positive("a number"), "How many work at once; 10."),
            "max_turns": Key(_positive("a number"), "Turns in one attempt; 20."),
            "max_retry_backoff_ms": Key(
                _milliseconds, "The longest wait before a retry; 300000.", "max_retry_backoff"
            ),
            "max_concurrent_agents_by_state": Key(_by_state, "How many work at once on issues of a state."),
            "kind": Key(_agent_kind, "Which agent: codex, command or builtin."),
            "command": Key(_argv, "The command-line agent, one text or a list; {prompt} is the prompt."),
            "model": Key(_model, "The built-in agent's model: provider/name."),
            "tools": Key(_texts, "The built-in agent's tools; all that are ready if not given."),
        }
    ),
    "codex": _section(
        {
            "command": Key(
                _text_such_as("give a command, such as codex app-server"),
                "The shell command that starts Codex.",
            ),
            "approval_policy": Key(_anything, "Passed to Codex."),
            "thread_sandbox": Key(_anything, "Passed to Codex."),
            "turn_sandbox_policy": Key(_anything, "Passed to Codex."),
            "turn_timeout_ms": Key(_milliseconds, "How long a turn may be silent; 3600000.", "turn_timeout"),
            "read_timeout_ms": Key(_milliseconds, "How long a response may take; 5000.", "read_timeout"),
            "stall_timeout_ms": Key(
                _stall,
                "Silence after which an attempt counts as stalled; 300000, 0 for never.",
                "stall_timeout",
            ),
        }
    ),
    "server": _section(
        {
            "port": Key(_port, "The port of the service's state; 0 picks a free one."),
            "host": Key(_text, "The address it listens at; 127.0.0.1."),
        }
    ),
}
"""Every key that has an effect, by section."""

_CLASSES = {
    "polling": PollingSettings,
    "hooks": HookScripts,
    "agent": AgentSettings,
    "codex": CodexSettings,
    "server": ServerSettings,
}


def _made(name: str) -> Callable[[Node, dict[str, Any]], Any]:
    return lambda _, values: _CLASSES[name](**values)


_READERS: Mapping[str, InMapping] = {
    **{name: _Section(table, _made(name)) for name, table in SECTIONS.items()},
    "tracker": _TrackerSection(SECTIONS["tracker"], _tracker),
    "workspace": _Section(SECTIONS["workspace"], lambda _, values: values.get("root", UNSET)),
}
WORKFLOW = _section(
    {name: Key(read, field="root" if name == "workspace" else "") for name, read in _READERS.items()}
)
"""The front matter."""
