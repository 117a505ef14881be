"""Facts about git: its subcommands and settings, and which arguments of git push overwrite or remove commits."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable

from hookline.guards.commands import HOLE, ShellCommand, Word, names
from hookline.secret_names import lazy_pattern

GITS = frozenset({"git", "hub"})
PUSHES = frozenset({"push", "send-pack", "http-push"})
DASHED = {f"git-{name}": name for name in PUSHES}
PUSH_IN_CODE = lazy_pattern(r"\b(?:push|send-pack)\b")
GIT_IN_CODE = lazy_pattern(r"\bgit\b")
FORCE_IN_CODE = lazy_pattern(r"--force|--mirror|--delete|--prune|[\"'\s]-\w{0,4}[fd]|[\"'\s]\+")
# Distance in characters from the word push within which git must precede and a force option must follow.
NEAR = 80
GIT_RUNS = names("submodule bisect rebase for-each-repo filter-branch")
TAKES_VALUE = names(
    "-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env --attr-source"
)
MIRROR_SETTING = lazy_pattern(r"remote\..*\.(?:push|mirror)", re.DOTALL)

_DANGERS = {
    "--force-with-lease": "lease",
    "--force-if-includes": "lease",
    "--force": "force",
    "--mirror": "mirror",
    "--prune": "prune",
    "--delete": "delete",
}
_REASONS = {
    "force": "git push {word} overwrites commits on the remote",
    "lease": "git push {word} overwrites commits on the remote",
    "mirror": "git push {word} overwrites and removes branches on the remote",
    "prune": "git push {word} removes branches from the remote",
    "delete": "git push {word} removes a branch or a tag from the remote",
    "unknown": "git push is given {word}, which is only known when it runs; write the branch and the options out",
}


def names_mirror_setting(text: str) -> bool:
    """True if the text contains a MIRROR_SETTING; searching that pattern would take quadratic time."""
    at = text.find("remote.")
    return at >= 0 and any(text.find(end, at + 7) >= 0 for end in (".push", ".mirror"))


def forces_in_code(text: str) -> bool:
    """True if git, push and a force option are near each other in one line of code.

    Each push is examined by itself, so that the time is proportional to their number.
    """
    for push in PUSH_IN_CODE.finditer(text):
        start, end = push.span()
        before = text[max(0, start - NEAR - 4) : start].rpartition("\n")[2]
        # A little longer, because the force option may begin at the last position.
        after = text[end : end + NEAR + 10]
        forces = FORCE_IN_CODE.search(after)
        near = forces is not None and forces.start() <= NEAR and "\n" not in after[: forces.start()]
        if near and GIT_IN_CODE.search(before):
            return True
    return False


def push_objection(words: Iterable[Word], allowed: Collection[str]) -> str | None:
    """The reason why git push must not run with these arguments, or None; `allowed` are kinds of danger."""
    for word in words:
        danger = _danger(word)
        if danger is not None and danger not in allowed:
            return _REASONS[danger].format(word=repr(word.text.replace(HOLE, "$...")))
    return None


def added_objection(words: Iterable[Word]) -> str | None:
    """The same for git under xargs, which adds arguments that are not known yet."""
    subcommand = next((word.text for word in words if not word.text.startswith("-")), None)
    if subcommand is None or subcommand in PUSHES or "{" in subcommand:
        return "git push is given arguments by xargs, which are only known when it runs"
    return None


def _danger(word: Word) -> str | None:
    """The key of _REASONS for one argument of git push, or None."""
    text, start = word.text, word.start
    if start != text:
        fixed = start.startswith("--") and "=" in start
        if word.may_split or not start or (start[0] in "-+:" and not fixed):
            return "unknown"
    if text.startswith("--"):
        option = text.partition("=")[0]
        # git accepts abbreviations of long options.
        return next(
            (told for name, told in _DANGERS.items() if len(option) > 2 and _fits(name, option)), None
        )
    if text.startswith("-"):
        letters = text[1:].partition("o")[0]
        return "force" if "f" in letters else "delete" if "d" in letters else None
    if text.startswith("+"):
        return "force"
    return "delete" if text.startswith(":") and text != ":" else None


def _fits(name: str, option: str) -> bool:
    if option == name:
        return True
    # `--force` itself is no abbreviation of the longer ones.
    return name.startswith(option) and option not in _DANGERS


def git_aliases(commands: Iterable[ShellCommand]) -> dict[str, str]:
    found: dict[str, str] = {}
    for command in commands:
        texts = [word.text for word in command.words]
        if "config" in texts:
            for name, value in itertools.pairwise(texts):
                found.update(alias_in(name, value))
    return found


def alias_in(name: str, value: str) -> dict[str, str]:
    return {name[6:]: value} if name.lower().startswith("alias.") and value else {}
