"""The arguments of git that change a remote: pushes, settings and aliases, and the programs that git runs.

Each `_check` function returns the objection to its part of the command, or None.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from hookline.engine.stdlib import dataclass, field, lazy_pattern, replace
from hookline.guards.commands import HOLE, OPEN, ShellCommand, StepBudget, Word, names

GITS = frozenset({"git", "hub"})
PUSHES = frozenset({"push", "send-pack", "http-push"})
# Subcommands that run a command they are given, with the options that give it; "" stands for any word.
_RUNS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("submodule", "bisect", "for-each-repo", "filter-branch", "subtree"), ("",)),
    **dict.fromkeys(("clone", "fetch", "pull", "ls-remote", "fetch-pack", "archive", "remote"), ("",)),
    "rebase": ("",),
    "difftool": ("",),
    "grep": ("-O", "--open-files-in-pager"),
    **dict.fromkeys(PUSHES, ("--receive-pack", "--exec", "ext::")),
}
_TAKES_VALUE = names(
    "-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env --attr-source"
)
_SIGNS = lazy_pattern(r"\\\n|['\"\\\ue000]")
_MIRROR_SETTING = lazy_pattern(r"remote\..*\.(?:push|mirror)")

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
DEEPEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRules:
    """The kinds of danger allowed, and the state known at a command: nesting, aliases, values, budget.

    `check` reads a nested shell text.
    """

    allowed: frozenset[str]
    work: StepBudget
    check: Callable[[str, PushRules], str | None]
    depth: int = 0
    named: bool = False
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    git_aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    shell_aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    def deeper(self) -> PushRules:
        return replace(self, depth=self.depth + 1)

    @property
    def size(self) -> int:
        """The number of steps for copying the aliases."""
        return (len(self.git_aliases) + len(self.shell_aliases) + len(self.values)) // 16

    def check_texts(self, texts: Iterable[str]) -> str | None:
        """The objection to the first of some nested shell texts that has one."""
        inner = self.deeper()
        return next((reason for text in texts if (reason := self.check(text, inner)) is not None), None)


def check_git(words: Sequence[Word], rules: PushRules) -> str | None:
    """The objection to git with these arguments."""
    rules.work.spend(1 + rules.size)
    aliases = dict(rules.git_aliases)
    at = 0
    while at < len(words) and words[at].start.startswith("-"):
        option = words[at].text
        takes = option in _TAKES_VALUE
        value = words[at + 1].text if takes and at + 1 < len(words) else option.partition("=")[2]
        if option == "-c" or option.startswith("--config-env"):
            name, _, setting = value.partition("=")
            if option != "-c":
                setting = rules.values.get(setting, HOLE)
            reason = _check_setting(name, setting, rules)
            if reason is not None:
                return reason
            aliases.update(alias_in(name, setting))
        at += 2 if takes else 1
    if at >= len(words):
        return None
    subcommand, rest = words[at], words[at + 1 :]
    if not subcommand.known or "{" in subcommand.text:
        return "git is given a subcommand that is only known when it runs; write it out"
    return _check_subcommand(subcommand.text, rest, replace(rules, git_aliases=aliases))


def _check_subcommand(name: str, rest: Sequence[Word], rules: PushRules) -> str | None:
    if name in rules.git_aliases and rules.depth < DEEPEST:
        others = {each: value for each, value in rules.git_aliases.items() if each != name}
        return _check_alias(rules.git_aliases[name], rest, replace(rules.deeper(), git_aliases=others))
    if name in PUSHES:
        return check_push(rest, rules)
    if name == "config":
        return _check_config(rest, rules)
    if name == "remote" and any(
        word.text.startswith("--mirror") and word.text != "--mirror=fetch" for word in rest
    ):
        return "a mirror remote makes every git push overwrite and remove branches"
    if name in _RUNS:
        return _check_run_by_git(name, rest, rules)
    return None


def _check_run_by_git(name: str, words: Sequence[Word], rules: PushRules) -> str | None:
    at = next((at for at, word in enumerate(words) if word.text in PUSHES), None)
    if at is not None and _RUNS[name] == ("",):
        return check_push(words[at + 1 :], rules)
    given = [word.text for word in words if " " in word.text and word.text.startswith(_RUNS[name])]
    return rules.check_texts(text for word in given for text in in_option(word))


def in_option(text: str) -> list[str]:
    """The texts that a word may hold for a program which runs one: itself, a value behind `=`, `::` or an option's letters."""
    if "push" not in text and HOLE not in text and "$" not in text:
        return []
    found = [text.replace("% ", "\\ ")]
    if text.startswith("-"):
        found += [text[at:] for at in range(2, 7)]
    rest = text
    for _ in range(3):
        rest = rest.partition("=")[2]
        found += [rest] if rest else []
    if text.startswith("ext::"):
        found.append(text[5:].replace("% ", " "))
    return found


def _check_alias(value: str, rest: Sequence[Word], rules: PushRules) -> str | None:
    command = value[1:] if value.startswith("!") else f"git {value}"
    return rules.check(f"{command} {quoted(rest)}", rules)


def _check_setting(name: str, value: str, rules: PushRules) -> str | None:
    low = name.lower()
    if names_mirror(low) and (low.endswith("mirror") or value.startswith(("+", ":", HOLE))):
        return f"the setting {name} makes git push overwrite or remove commits on the remote"
    if low.startswith("alias.") and value:
        if value == HOLE:
            return f"the alias {name} is only known when it runs; write it out"
        return _check_alias(value, (), rules.deeper())
    # An editor, a pager, a helper: git runs it.
    return rules.check_texts([value.removeprefix("!")]) if " " in value else None


def _check_config(words: Sequence[Word], rules: PushRules) -> str | None:
    """git config: a setting outlives the call, so any alias that pushes could hide later force-pushes."""
    texts = [word.text for word in words if not word.start.startswith("-")]
    for name, value in itertools.pairwise(texts):
        reason = _check_setting(name, value, rules)
        if reason is None and name.lower().startswith("alias.") and (mentions(value) or HOLE in value):
            reason = f"{name} would hide a git push from this guard"
        if reason is not None:
            return reason
    return None


def names_mirror(text: str) -> bool:
    """True for the name of a setting that makes a push overwrite."""
    return _MIRROR_SETTING.fullmatch(text) is not None


def mentions(text: str) -> bool:
    """True if the text has the word push in it, however it is quoted."""
    return "push" in _SIGNS.sub("", text)


def quoted(words: Iterable[Word]) -> str:
    """The words as shell text again."""
    import shlex  # few need it

    return " ".join(shlex.quote(word.text) if word.known else f'"{word.text}"' for word in words)


def check_push(words: Sequence[Word], rules: PushRules) -> str | None:
    """The objection to the arguments of git push."""
    for word in words:
        danger = _danger(word)
        if danger is not None and danger not in rules.allowed:
            return _REASONS[danger].format(word=repr(word.text.replace(HOLE, "$...")))
    return _check_run_by_git("push", words, rules) if any(" " in word.text for word in words) else None


def check_added(words: Iterable[Word]) -> str | None:
    """The objection to git under xargs, which adds arguments that are not known yet."""
    subcommand = next((word.text for word in words if not word.text.startswith("-")), None)
    if subcommand is None or subcommand in PUSHES or "{" in subcommand:
        return "git push is given arguments by xargs, which are only known when it runs"
    return None


def _danger(word: Word) -> str | None:
    """The key of _REASONS for one argument of git push, or None."""
    text, start = word.text, word.start
    if start != text:
        fixed = start.startswith("--") and "=" in start
        if OPEN in word.kinds or not start or (start[0] in "-+:" and not fixed):
            return "unknown"
    if text.startswith("--"):
        option = text.partition("=")[0]
        # git accepts abbreviations of long options; `--force` itself is no abbreviation of the longer ones.
        meant = [option] if option in _DANGERS else [name for name in _DANGERS if name.startswith(option)]
        return _DANGERS[meant[0]] if meant and option != "--" else None
    if text.startswith("-"):
        letters = text[1:].partition("o")[0]
        return "force" if "f" in letters else "delete" if "d" in letters else None
    if text.startswith("+"):
        return "force"
    return "delete" if text.startswith(":") and text != ":" else None


def aliases_in(commands: Iterable[ShellCommand]) -> dict[str, str]:
    """The aliases of git that the commands set."""
    found: dict[str, str] = {}
    for command in commands:
        texts = [word.text for word in command.words]
        if "config" in texts:
            for name, value in itertools.pairwise(texts):
                found.update(alias_in(name, value))
    return found


def alias_in(name: str, value: str) -> dict[str, str]:
    return {name[6:]: value} if name.lower().startswith("alias.") and value else {}
