"""Patterns, compiled once: by RE2 where it can, by the `regex` module with a limit where it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from hookline.errors import UsageError

if TYPE_CHECKING:
    from hookline.engine.hook import Matcher

TOOL_KINDS = ("shell", "read", "write", "search", "web", "mcp", "agent", "other")
REGEX_SECONDS = 0.05


def matcher(wanted: str | Iterable[str]) -> Matcher:
    """`bash|shell_.*` fits whole tool names, `kind:shell` every tool of that kind; of several texts one must fit."""
    if not isinstance(wanted, str):
        each = [matcher(text) for text in wanted]
        return lambda facts: any(fits(facts) for fits in each)
    if wanted.startswith("kind:"):
        kinds = _kinds(wanted)
        return lambda facts: facts.tool_kind in kinds
    fits_name = pattern(wanted)
    return lambda facts: fits_name(facts.current_tool or "")


def pattern(text: str) -> Callable[[str], bool]:
    """True if the pattern fits the whole name; TimeoutError if that takes too long."""
    names = text.split("|")
    if all(each.isidentifier() for each in names):
        return frozenset(names).__contains__
    # Names return, with every call of a tool.
    return cache(_asking(text, "fullmatch", "match "))


def searched(text: str) -> str:
    """The pattern for whole names that contain what this one fits; UsageError if it is not a valid one."""
    # By itself first, so that the error shows the pattern as it was written.
    pattern(text)
    return f"(?s:.*)(?:{text})(?s:.*)"


def search(text: str) -> Callable[[str], bool]:
    """True if the pattern is found anywhere in the text; TimeoutError if that takes too long."""
    return _asking(text, "search")


def _asking(text: str, how: str, where: str = "") -> Callable[[str], bool]:
    # Slow to load, as regex below; most matchers are names, which need neither.
    import re2  # pyright: ignore[reportMissingTypeStubs]

    compiler: Any = re2
    options = compiler.Options()
    options.log_errors = False
    try:
        ask: Any = getattr(compiler.compile(text, options), how)
        return lambda name: ask(_encodable(name)) is not None
    except (compiler.error, UnicodeEncodeError):
        pass
    import regex

    try:
        slowly: Any = getattr(regex.compile(text), how)
    except regex.error as exc:
        raise UsageError(f"{where}{text!r} is not a valid pattern: {exc}") from exc
    return lambda name: slowly(name, timeout=REGEX_SECONDS) is not None


def _encodable(text: str) -> str:
    """Half a surrogate pair, which JSON can carry and UTF-8 cannot, becomes U+FFFD: RE2 reads UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)
    return text


def _kinds(text: str) -> frozenset[str]:
    kinds = [kind.strip() for kind in text.removeprefix("kind:").split("|")]
    for kind in kinds:
        if kind not in TOOL_KINDS:
            raise UsageError(f"match {text!r}: unknown tool kind {kind!r}; known: {', '.join(TOOL_KINDS)}")
    return frozenset(kinds)
