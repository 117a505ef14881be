"""Code in other languages that would force a git push. It is not parsed: git, push and a force option near each other count."""

from __future__ import annotations

from hookline.engine.stdlib import lazy_pattern

# Interpreters, editors and builders that are given code or commands as text.
PROGRAMS = lazy_pattern(
    r"(?:python|perl|ruby|node|nodejs|php|deno|bun|lua|m?awk|gawk|nawk|osascript|tclsh|pwsh|g?make|vim?|nvim|ex|view|ed|emacs"
    r"|m4|dc|bc|gdb|sqlite3|expect|socat|less|man)[\d.]*"
)
_PUSH = lazy_pattern(r"\b(?:push|send-pack)\b")
_GIT = lazy_pattern(r"\bgit\b")
_FORCE = lazy_pattern(r"--force|--mirror|--delete|--prune|[\"'\s]-\w{0,4}[fd]|[\"'\s]\+")
_LIST_GOES_ON = lazy_pattern(r"([,(\[\\])[ \t]*\r?\n\s*")
_JOINED = lazy_pattern(r"\"[ \t]{0,8}\+?[ \t]{0,8}\"|'[ \t]{0,8}\+?[ \t]{0,8}'")
# Distance in characters from the word push within which git must precede and a force option must follow.
_NEAR = 80

# The commands of sed that run a text or write it to a file: `e` and `w`, behind an address or as a flag.
_SED_RUNS = lazy_pattern(r"(?:^|[;{}\n\d$/])\s*[ew]\s+\S|/[gpiImM\d]{0,9}[ew][gpiImM\d]{0,9}(?:\s|$|[;}])")
SED_RUNS_INPUT = lazy_pattern(r"\d*e|s(.).*\1.*\1[gpiImM\d]*e")


def forces(text: str) -> bool:
    """True if git, push and a force option are near each other in one line of code; a list may take several.

    Each push is examined by itself, so that the time is proportional to their number.
    """
    text = _JOINED.sub("", _LIST_GOES_ON.sub(r"\1 ", text))
    for push in _PUSH.finditer(text):
        start, end = push.span()
        before = text[max(0, start - _NEAR - 4) : start].rpartition("\n")[2]
        # A little longer, because the force option may begin at the last position.
        after = text[end : end + _NEAR + 10]
        found = _FORCE.search(after)
        near = found is not None and found.start() <= _NEAR and "\n" not in after[: found.start()]
        if near and _GIT.search(before):
            return True
    return False


def sed_forces(text: str) -> bool:
    """The same for a script of sed, which runs or writes a text only by some of its commands."""
    return _SED_RUNS.search(text) is not None and forces(text)
