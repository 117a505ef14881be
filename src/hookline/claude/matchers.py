"""Matchers of Claude Code's settings: names of tools and sources, and permission rules such as `Bash(git *)`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from hookline.claude.events import EVENTS, event_of
from hookline.claude.tools import TOOLS, names_in_claude, tool_named
from hookline.engine.context import Facts
from hookline.engine.hook import HookDeclaration, Matcher
from hookline.engine.plain import inner, mapping
from hookline.errors import UsageError, nearest
from hookline.matcher import pattern, searched

_PATHS = ("file_path", "path", "notebook_path")
_EXACT = re.compile(r"[A-Za-z0-9_]+(?:\s*[|,]\s*[A-Za-z0-9_]+)*\s*")
_RULE = re.compile(r"([A-Za-z][A-Za-z0-9_*-]*)(?:\((.*)\))?", re.DOTALL)


def exact_names(matcher: str) -> list[str]:
    """The names of a matcher that is a list of names; empty if it is a pattern."""
    text = matcher.strip()
    return re.split(r"\s*[|,]\s*", text) if _EXACT.fullmatch(text) else []


def whole_pattern(matcher: str | None) -> str | None:
    """A matcher as a pattern for whole names (rule 5); None if it matches all; UsageError if it is no pattern."""
    if matcher is None or matcher in ("", "*"):
        return None
    names = exact_names(matcher)
    return "|".join(names) if names else searched(matcher)


def selector(hook: HookDeclaration) -> Matcher:
    """The matcher of a hook of a settings file, by the event and the subject of its pattern."""
    event = hook.params["event"]
    fits = pattern(hook.match) if isinstance(hook.match, str) else None

    def match(facts: Facts) -> bool:
        return _event_in(facts) == event and (fits is None or any(map(fits, _subjects_of(facts, event))))

    return match


def _subjects_of(facts: Facts, event: str) -> Sequence[str]:
    """The texts of which one must fit the matcher of an event: a session's source, an agent's type or the like.

    A tool of another agent also has Claude's names.
    """
    subject = EVENTS[event].subject or ""
    if subject == "tool_name":
        return names_in_claude(facts.current_tool or "", facts.tool_kind)
    native: Any = facts.native
    if isinstance(native, dict):
        value = cast("dict[str, Any]", native).get(subject)
        value = value if isinstance(value, str) else ""
        return [value.rpartition("/")[2] if event == "FileChanged" else value]
    defaults = {"source": "startup", "reason": "other", "agent_type": facts.agent or ""}
    return [defaults.get(subject, "")]


def meant_tool(name: str) -> str | None:
    """A hint for a name that is almost a tool's; any other name may be an unknown tool."""
    tools = TOOLS["claude"]
    if name in tools:
        return None
    if name.startswith("mcp__"):
        return (
            f"to match every tool of that server write {name + '__.*'!r}" if name.count("__") == 1 else None
        )
    lower = {known.lower(): known for known in tools}
    if name.lower() in lower:
        return f"did you mean {lower[name.lower()]!r}?"
    begun = (known for known in tools if known.startswith(name))
    near = next(begun, None) or nearest(name, tools, 0.8)
    return f"did you mean {near!r}?" if near else None


def applies(rule: str, tool: str, given: Any) -> bool:
    """True if a permission rule matches a call: `Bash(git *)`, `Write(*.txt)`, `WebFetch(domain:x)`, `mcp__x__*`."""
    name, inner = rule_parts(rule)
    if not any(fnmatchcase(each, name) for each in names_in_claude(tool)):
        return False
    if inner is None or inner in ("", "*"):
        return True
    values = mapping(given)
    known = tool_named(tool)
    if known.kind == "shell":
        command = values.get(known.keys.get("command", "command"), "")
        return isinstance(command, str) and any(_fits_command(inner, part) for part in _commands(command))
    if inner.startswith("domain:"):
        host = re.sub(
            r"^[a-z]+://(?:[^/@]*@)?([^/:?#]*).*$", r"\1", str(values.get("url", "")), flags=re.I | re.S
        )
        wanted = inner.removeprefix("domain:").lower()
        return host.lower() == wanted or fnmatchcase(host.lower(), wanted)
    texts = [value for value in values.values() if isinstance(value, str)]
    path = values.get(known.keys.get("path", ""))
    return any(_fits_path(inner, text) for text in ([path] if isinstance(path, str) else texts))


def denied_by(rules: Iterable[str], facts: Facts, given: Any) -> str | None:
    """The first rule that matches a call of any client or of our own agent, whose tools are known by their kind."""
    values = mapping(given)
    path = next((values[key] for key in _PATHS if isinstance(values.get(key), str)), None)
    if path is not None:
        # As it was written, and where it leads: `x/../.env` is `.env`.
        values = {**values, "file_path": os.path.normpath(os.path.expanduser(path))}
    home, tool = os.path.expanduser("~"), facts.current_tool or ""
    for rule in rules:
        name, _ = rule_parts(rule)
        kind = tool_named(name).kind
        if kind == facts.tool_kind == "mcp" and not tool.startswith("mcp__"):
            # Our own agent's tools have no server in their names, so the rule is for the tool of any server.
            matches = fnmatchcase(tool, name.split("__", 2)[2] if name.count("__") > 1 else "*")
        else:
            named = name if kind == facts.tool_kind and kind != "other" else tool
            matches = applies(rule.replace("(~/", f"({home}/"), named, values)
        if matches:
            return rule
    return None


def rule_parts(rule: str) -> tuple[str, str | None]:
    """The pattern of a tool's name, and the text in brackets after it."""
    found = _RULE.fullmatch(rule.strip())
    if found is None:
        raise UsageError(f"{rule!r} is not a permission rule; write it like Bash(git *) or Write(*.txt)")
    return found.group(1), found.group(2)


def _commands(text: str) -> list[str]:
    """The whole line and each command in it: a hook had better run once too often than not at all."""
    parts = [part.strip(" \t(){}") for part in re.split(r"&&|\|\||[;|&\n]|\$\(|`", text)]
    return [text.strip(), *(part for part in parts if part)]


def _fits_command(inner: str, command: str) -> bool:
    if inner.endswith(":*"):
        start = inner.removesuffix(":*")
        return command == start or command.startswith(f"{start} ")
    # `git *` is also git alone.
    return fnmatchcase(command, inner) or (inner.endswith(" *") and command == inner[:-2])


def _fits_path(inner: str, path: str) -> bool:
    wanted = inner.removeprefix("./").replace("**/", "*").replace("**", "*")
    wanted = wanted.replace("//", "/", 1) if wanted.startswith("//") else wanted
    return fnmatchcase(path, wanted) or fnmatchcase(path, f"*/{wanted.lstrip('/')}")


def _event_in(facts: Facts) -> str | None:
    name = inner(facts.native, "hook_event_name")
    if isinstance(name, str) and name in EVENTS:
        return name
    try:
        return event_of(facts)
    except UsageError:
        return None
