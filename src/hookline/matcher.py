"""Patterns, compiled once: by RE2 where it can, by the `regex` module with a limit where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hookline.errors import UsageError

if TYPE_CHECKING:
    from hookline.engine.context import Facts
    from hookline.engine.hook import Matcher

TOOL_KINDS = ("shell", "read", "write", "search", "web", "mcp", "agent", "other")
REGEX_SECONDS = 0.05


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
    """True if the pattern fits the whole name; TimeoutError if that takes too long."""
    names = text.split("|")
    if all(each.isidentifier() for each in names):
        return frozenset(names).__contains__
    return _asking(text, "fullmatch", "match ")


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
