"""Permission rules of Claude Code, as in a handler's `if`: `Bash(git *)`, `Write(*.txt)`, `mcp__x__*`."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any, cast

from hookline.claude.tools import tool_named
from hookline.errors import UsageError

_RULE = re.compile(r"([A-Za-z][A-Za-z0-9_*-]*)(?:\((.*)\))?", re.DOTALL)


def applies(rule: str, tool: str, given: Any) -> bool:
    """True if permission-rule text fits a call: `Bash(git *)`, `Write(*.txt)`, `WebFetch(domain:x)`, `mcp__x__*`."""
    name, inner = rule_parts(rule)
    if not fnmatchcase(tool, name):
        return False
    if inner is None or inner in ("", "*"):
        return True
    values = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
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


def rule_parts(rule: str) -> tuple[str, str | None]:
    """The pattern of a tool's name, and what stands in brackets behind it."""
    found = _RULE.fullmatch(rule.strip())
    if found is None:
        raise UsageError(f"{rule!r} is not a permission rule; write it like Bash(git *) or Write(*.txt)")
    return found.group(1), found.group(2)


def _commands(text: str) -> list[str]:
    """The whole line and each command in it: a hook runs rather once too often than not at all."""
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
