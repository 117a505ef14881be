"""Patterns for tool names, compiled once: RE2 where it can, the `regex` module with a limit where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import re2  # pyright: ignore[reportMissingTypeStubs]
import regex

from hookline.context import Facts
from hookline.errors import UsageError
from hookline.hook import Matcher

__all__ = ["TOOL_KINDS", "matcher", "pattern"]

TOOL_KINDS = ("shell", "read", "write", "search", "web", "mcp", "agent", "other")
REGEX_SECONDS = 0.05

_re2: Any = re2
_quiet: Any = _re2.Options()
_quiet.log_errors = False


def matcher(text: str) -> Matcher:
    """`bash|shell_.*` fits whole tool names; `kind:shell` fits every tool of that kind."""
    if text.startswith("kind:"):
        kinds = _kinds(text)
        return lambda facts: facts.tool_kind in kinds
    fits = pattern(text)
    known: dict[str, bool] = {}

    def match(facts: Facts) -> bool:
        name = facts.current_tool or ""
        found = known.get(name)
        if found is None:
            found = known[name] = fits(name)
        return found

    return match


def pattern(text: str) -> Callable[[str], bool]:
    """Whether a name fits the pattern as a whole."""
    try:
        compiled: Any = _re2.compile(text, _quiet)
        return lambda name: compiled.fullmatch(name) is not None
    except _re2.error:
        pass
    try:
        backtracking = regex.compile(text)
    except regex.error as exc:
        raise UsageError(f"match {text!r} is not a valid pattern: {exc}") from exc
    return lambda name: backtracking.fullmatch(name, timeout=REGEX_SECONDS) is not None


def _kinds(text: str) -> frozenset[str]:
    kinds = [kind.strip() for kind in text.removeprefix("kind:").split("|")]
    for kind in kinds:
        if kind not in TOOL_KINDS:
            raise UsageError(f"match {text!r}: unknown tool kind {kind!r}; known: {', '.join(TOOL_KINDS)}")
    return frozenset(kinds)
