"""The hooks of `.claude/settings.json`: groups of handlers by event, as declarations.

A wrong entry is dropped and reported with its file and line; the others stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any, cast

from hookline.claude.events import EVENTS, meant, point_of
from hookline.claude.matchers import exact_names, meant_tool, rule_parts, whole_pattern
from hookline.claude.settings_file import load_json
from hookline.engine.hook import HookDeclaration, OnError, is_limit
from hookline.engine.point import Point
from hookline.errors import FileError, UsageError, nearest
from hookline.errors import meant as meant_word
from hookline.hookfile.read import HookFile
from hookline.source import Wrong, key_of, without_lines
from hookline.table import Findings, Key, Node, Reader, Table, unread

MILLISECONDS_FROM = 1000
LONGEST_SESSION_END = 60.0

Json = dict[str, Any]

_NEVER_BLOCKS = ("Stop", "SubagentStop", "TaskCompleted", "TeammateIdle")
_NOT_RUN = {
    "prompt": "a prompt hook asks a model",
    "agent": "an agent hook runs another agent",
    "mcp_tool": "an mcp_tool hook calls an MCP server",
}
_SHELLS = {
    "sh": ("sh", "-c"),
    "bash": ("bash", "-c"),
    "powershell": ("pwsh", "-NoProfile", "-Command"),
}


def declared(text: str, file: str | PathLike[str]) -> HookFile:
    """The hooks of a settings file, each command once for an event."""
    findings = Findings()
    found: list[HookDeclaration] = []
    settings = _settings(text, str(file), findings)
    if settings is not None:
        found = list(_hooks(settings))
        if settings.value.get("disableAllHooks") is True:
            _note(settings, "disableAllHooks is true; no hook here runs", "disableAllHooks")
            found = []
        found = [*_denied(settings), *found]
    hooks, repeated = once(found)
    return HookFile(hooks, tuple(findings.problems), (*findings.notes, *repeated))


def once(hooks: Iterable[HookDeclaration]) -> tuple[tuple[HookDeclaration, ...], tuple[FileError, ...]]:
    """Each command once for an event, whatever groups and files declare it, and a note for each repetition.

    It keeps its first position, and matches whatever one of its groups matches. Another limit does not make it
    another command.
    """
    found: dict[str, HookDeclaration] = {}
    notes: list[FileError] = []
    for hook in hooks:
        same = identity(hook)
        first = found.get(same)
        if first is None:
            found[same] = hook
            continue
        told = f"{hook.name} is declared already at {first.source}; it runs once"
        notes.append(FileError.at(hook.source, told, code="declared-twice"))
        strictest = OnError.BLOCK if OnError.BLOCK in (first.on_error, hook.on_error) else first.on_error
        found[same] = replace(first, match=_either(first.match, hook.match), on_error=strictest)
    return tuple(found.values()), tuple(notes)


def identity(hook: HookDeclaration) -> str:
    """The same text for the same command, for which its limit and its matcher do not count."""
    return json.dumps([hook.kind, dict(hook.params)], sort_keys=True, default=str)


def _either(one: Any, other: Any) -> str | None:
    if one is None or other is None:
        return None
    return str(one) if one == other else f"(?:{one})|(?:{other})"


def _settings(text: str, file: str, findings: Findings) -> Node | None:
    """The settings as a whole; None where they cannot be read."""
    try:
        document, twice = load_json(text, file)
    except FileError as exc:
        findings.problems.append(exc)
        return None
    settings = Node.root(document, findings)
    if not isinstance(document.value, dict):
        settings.wrong(f"is {_kind(document.value)}; it must be an object with 'hooks'")
        return None
    told = "is given twice; only the last one counts; merge them"
    for trail, line in twice:
        if trail[0] == "hooks":
            findings.problems.append(FileError(told, file=file, line=line, key=key_of(trail)))
    for key in settings.of_mapping:
        if key != "hooks" and nearest(key.lower(), ["hooks"], 0.8):
            settings.wrong("is not a key of this file; did you mean 'hooks'?", key)
    return settings


def _hooks(settings: Node) -> Iterator[HookDeclaration]:
    groups = settings.of_mapping.get("hooks", {})
    if not isinstance(groups, dict):
        settings.wrong(f"is {_kind(groups)}; it must be an object of events", "hooks")
        return
    for event in cast("Json", groups):
        listed = settings.child("hooks").child(event)
        if event not in EVENTS:
            listed.wrong(f"is not an event of Claude Code; {meant(event)}")
        elif not isinstance(listed.value, list):
            listed.wrong(f"is {_kind(listed.value)}; it must be a list of groups {_GROUP}")
        for group in listed.items() if event in EVENTS else ():
            yield from _in_group(event, group)


def _denied(settings: Node) -> Iterator[HookDeclaration]:
    """The rules of `permissions.deny` as one hook, which refuses the calls that a rule is for."""
    permissions = settings.of_mapping.get("permissions")
    if permissions is None:
        return
    if not isinstance(permissions, dict):
        settings.wrong(f"is {_kind(permissions)}; it must be an object with 'deny'", "permissions")
        return
    node = settings.child("permissions")
    if node.of_mapping.get("ask"):
        _note(node, "permissions.ask is not enforced here: no call is asked about because of it", "ask")
    listed = node.of_mapping.get("deny")
    if listed is not None and not isinstance(listed, list):
        node.wrong(f"is {_kind(listed)}; it must be a list of rules such as 'Bash(git push:*)'", "deny")
    rules: list[str] = []
    for each in node.child("deny").items() if isinstance(listed, list) else ():
        try:
            rule_parts(each.value if isinstance(each.value, str) else "")
            rules.append(str(each.value))
        except UsageError:
            each.wrong(f"is {each.value!r}; it must be a rule such as 'Bash(git push:*)' or 'Read(./.env)'")
    if rules:
        yield HookDeclaration(
            name="permissions.deny",
            points=(Point.TOOL_START,),
            kind="permissions",
            params={"event": "PreToolUse", "deny": rules},
            on_error=OnError.BLOCK,
            source=node.child("deny").source,
        )


def _in_group(event: str, group: Node) -> Iterator[HookDeclaration]:
    known = group.of_mapping
    if not isinstance(group.value, dict):
        group.wrong(f"is {_kind(group.value)}; it must be a group {_GROUP}")
        return
    if "hooks" not in known and ("command" in known or "type" in known):
        group.wrong(f'is a handler by itself; put it in a group {{"hooks": [...]}}, {_GROUP}')
        return
    _KEYS_OF_GROUP.read(group)
    handlers = known.get("hooks")
    if not isinstance(handlers, list):
        group.wrong(f"is {_kind(handlers)}; it must be a list of handlers", "hooks")
        return
    try:
        match = _match(event, group)
    except UsageError as exc:
        group.wrong(str(exc), "matcher")
        return
    for each in group.child("hooks").items():
        hook = _hook(event, match, each)
        if hook is not None:
            yield hook


def _hook(event: str, match: str | None, node: Node) -> HookDeclaration | None:
    """The hook of one handler; None where something is wrong with it."""
    if not isinstance(node.value, dict):
        node.wrong(f"is {_kind(node.value)}; it must be a handler {_HANDLER}")
        return None
    kind = node.of_mapping.get("type")
    if isinstance(kind, str) and kind in _NOT_RUN:
        node.wrong(f"{_NOT_RUN[kind]}, which hookline does not do in this version; it does not run")
        return None
    if not isinstance(kind, str) or kind not in _KINDS:
        node.wrong(f"type is {kind!r}; known: {', '.join(_KINDS)}")
        return None
    table, needed = _KINDS[kind]
    # A missing key that is needed is read like a null.
    values = table.read(node.with_value({needed: None, **node.of_mapping}))
    conditions = _conditions(event, node, values)
    if not node.is_sound:
        return None
    params = {"event": event, **_params(kind, node, values), **conditions}
    if not node.is_sound:
        return None
    return HookDeclaration(
        name=f"{event}: {_name(params)}{' (async)' if 'async' in params else ''}",
        points=(point_of(event),),
        kind=kind,
        params=params,
        match=match,
        timeout=_timeout(event, node, values),
        on_error=_on_error(event, node, values),
        source=node.source,
    )


def _note(node: Node, message: str, *inner: str | int) -> None:
    """Add a note on something odd; unlike for a problem, the message itself names the key."""
    node.findings.notes.append(node.location(*inner)._replace(key=None).problem(message))


def _odd_key(node: Node, name: str, table: Table) -> None:
    _note(node, f"{name!r} is not a key here and is ignored{meant_word(name, sorted(table.keys))}", name)


def _match(event: str, group: Node) -> str | None:
    matcher = group.of_mapping.get("matcher")
    if matcher is None:
        return None
    if not isinstance(matcher, str):
        raise UsageError(f"is {_kind(matcher)}; it must be a string such as 'Bash|Write'")
    if EVENTS[event].subject is None:
        if matcher not in ("", "*"):
            _note(group, f"{event} has nothing to match; the matcher {matcher!r} is ignored", "matcher")
        return None
    whole = whole_pattern(matcher)
    if whole is not None and EVENTS[event].subject == "tool_name":
        for name in exact_names(matcher):
            hint = meant_tool(name)
            if hint:
                _note(group, f"no tool of Claude Code is called {name!r}; {hint}", "matcher")
    return whole


def _conditions(event: str, node: Node, values: Json) -> Json:
    found: Json = {}
    if "if" in values:
        if EVENTS[event].subject != "tool_name":
            node.wrong(
                f"if is {values['if']!r}, but {event} has no tool call to test; the hook would never run"
            )
        try:
            rule_parts(values["if"])
        except UsageError as exc:
            node.wrong(str(exc))
        found["if"] = values["if"]
    if _is_async(values):
        found["async"] = True
    if "once" in node.of_mapping:
        _note(node, "once counts only in a skill; here it is ignored", "once")
    if values.get("asyncRewake"):
        _note(
            node,
            "asyncRewake wakes no agent here; the hook runs as with async, and its answer is only recorded",
            "asyncRewake",
        )
    if _is_async(values) and "timeout" in values:
        told = "a timeout is not kept for an async hook, which ends with the run at the latest"
        _note(node, told, "timeout")
    return found


def _timeout(event: str, node: Node, values: Json) -> float:
    value = values.get("timeout", EVENTS[event].timeout)
    if "timeout" in values and value >= MILLISECONDS_FROM:
        _note(
            node,
            f"timeout is {value:g} seconds ({value / 60:.0f} minutes); if these are milliseconds,"
            f" write {value / 1000:g}",
            "timeout",
        )
    if "timeout" in values and event == "SessionEnd" and value > LONGEST_SESSION_END:
        _note(node, f"timeout is {value:g}; a SessionEnd hook has at most 60 seconds", "timeout")
        return LONGEST_SESSION_END
    return float(value)


def _on_error(event: str, node: Node, values: Json) -> OnError:
    if values.get("onFailure") != "block":
        return OnError.CONTINUE
    if event in _NEVER_BLOCKS or _is_async(values):
        what = "an async hook" if event not in _NEVER_BLOCKS else event
        _note(node, f"onFailure does nothing for {what}", "onFailure")
        return OnError.CONTINUE
    return OnError.BLOCK


def _is_async(values: Json) -> bool:
    return values.get("async") is True or values.get("asyncRewake") is True


def _params(kind: str, node: Node, values: Json) -> Json:
    if kind == "http":
        return {
            "url": values["url"],
            "headers": values.get("headers", {}),
            "variables": values.get("allowedEnvVars", []),
        }
    if "args" in values:
        return {"argv": [values["command"], *values["args"]]}
    shell = node.of_mapping.get("shell", "sh")
    if not isinstance(shell, str) or shell not in _SHELLS:
        node.wrong(f"shell is {shell!r}; known: bash, powershell")
        return {}
    return {"argv": [*_SHELLS[shell], values["command"]], "command": values["command"]}


def _checked(fits: Callable[[Any], bool], wanted: str) -> Reader:
    """The value as it is, if it fits; else `wanted` says what would be right."""

    def read(node: Node) -> Any:
        value = without_lines(node.value)
        if not fits(value):
            raise Wrong(f"is {value!r}; {wanted}")
        return value

    return read


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[Any]", value))


def _are_headers(value: Any) -> bool:
    return isinstance(value, dict) and _are_texts(list(cast("Json", value).values()))


_HANDLER = '{"type": "command", "command": "..."}'
_GROUP = '{"matcher": "Bash", "hooks": [' + _HANDLER + "]}"


def _table(**read: Reader) -> Table:
    """The keys of a handler. Those of other types of handlers are known, and have no effect."""
    every = ("type", "once", "rewakeMessage", "statusMessage", "shell", *_OF_COMMAND, *_OF_REQUEST)
    readers = {**dict.fromkeys(every, unread), **_OF_EVERY, **read}
    keys = {name: Key(each) for name, each in readers.items()}
    return Table(keys, unknown=_odd_key, null="read", at_entry=True)


_flag = _checked(lambda value: isinstance(value, bool), "it must be true or false")
_OF_EVERY: Mapping[str, Reader] = {
    "timeout": _checked(
        lambda value: is_limit(value) and value < float("inf"), "give seconds greater than 0"
    ),
    "if": _checked(
        lambda value: isinstance(value, str), "it must be a permission rule such as 'Bash(git *)'"
    ),
    "async": _flag,
    "asyncRewake": _flag,
    "onFailure": _checked(lambda value: value in ("continue", "block", "ignore", "allow"), "known: block"),
}
_OF_COMMAND: Mapping[str, Reader] = {
    "command": _checked(
        lambda value: isinstance(value, str) and bool(value.strip()), "it must be the text of a command"
    ),
    "args": _checked(_are_texts, "it must be a list of strings"),
}
_OF_REQUEST: Mapping[str, Reader] = {
    "url": _checked(
        lambda value: isinstance(value, str) and value.startswith(("http://", "https://")),
        "it must start with http:// or https://",
    ),
    "headers": _checked(_are_headers, "it must be an object of strings"),
    "allowedEnvVars": _checked(_are_texts, "it must be a list of names"),
}
_KINDS = {"command": (_table(**_OF_COMMAND), "command"), "http": (_table(**_OF_REQUEST), "url")}
"""The keys of each type of handler, and the one that it needs."""
_KEYS_OF_GROUP = Table(
    dict.fromkeys(("matcher", "hooks", "description", "id"), Key(unread)), unknown=_odd_key
)


def _name(params: Json) -> str:
    text: str = params.get("command") or params.get("url") or " ".join(params["argv"])
    return text if len(text) <= 60 else f"{text[:57]}..."


_WORDS: Mapping[type, str] = {
    bool: "true or false",
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
}


def _kind(value: Any) -> str:
    return next((word for kind, word in _WORDS.items() if isinstance(value, kind)), "missing")
