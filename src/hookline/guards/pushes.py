"""no_force_push: refuses commands that overwrite or remove commits on a remote, in any spelling of a shell.

The decision is `objection`, a pure function of the command. What it cannot know it refuses, and says so: a push with
an argument or a subcommand that is only known at run time, an unfinished text that mentions push.

Each `_check` function returns the objection to its part of the command, or None.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import hook
from hookline.engine.result import CONTINUE, HookResult
from hookline.engine.stdlib import dataclass, field, lazy_pattern, replace
from hookline.guards.commands import (
    HOLE,
    OPEN,
    SHELLS,
    ShellCommand,
    StepBudget,
    TooMuch,
    Word,
    argument_list,
    asked,
    names,
    program_name,
    shell_aliases,
)
from hookline.guards.shell import LONGEST, read


def no_force_push_unless(
    *, lease: bool = False, delete: bool = False
) -> Callable[[WorkflowContext | None, HookContext], HookResult]:
    """`no_force_push` that allows `--force-with-lease`, or the removal of a named branch, or both."""

    @hook(on="tool.start", match="kind:shell", inline=True, name="no_force_push")
    def guard(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
        """Blocks a shell call that would force-push, mirror, prune or delete on a remote."""
        work = StepBudget()  # for all commands of one call
        for command in asked(hook_context.current_payload):
            reason = objection(command, lease=lease, delete=delete, work=work)
            if reason is not None:
                return HookResult.block(f"no force-push: {reason}")
        return CONTINUE

    return guard


no_force_push = no_force_push_unless()


def objection(
    command: str | Sequence[str], *, lease: bool = False, delete: bool = False, work: StepBudget | None = None
) -> str | None:
    """The reason why a shell text or argument list must not run, or None.

    `work` is the budget of steps; a command that takes more is too long to be read in full, and refused.
    """
    work = work or StepBudget()
    allowed = {kind for kind, allows in (("lease", lease), ("delete", delete)) if allows}
    rules = _PushRules(allowed=frozenset(allowed), work=work)
    try:
        if sum(map(len, command)) > LONGEST:
            raise TooMuch
        if isinstance(command, str):
            return _check_text(command.replace(HOLE, "?").replace("\r\n", "\n"), rules)
        words = [word.replace(HOLE, "?") for word in command]
        return _check_commands((argument_list(words, work),), rules)
    except TooMuch as exc:
        return str(exc)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PushRules:
    """The kinds of danger allowed, and the state known at a command: nesting, aliases, budget."""

    allowed: frozenset[str]
    work: StepBudget
    depth: int = 0
    named: bool = False
    git_aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    shell_aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    def deeper(self) -> _PushRules:
        return replace(self, depth=self.depth + 1)


_GITS = frozenset({"git", "hub"})
_PUSHES = frozenset({"push", "send-pack", "http-push"})
_DASHED = frozenset(f"git-{name}" for name in _PUSHES)
_PUSH_IN_CODE = lazy_pattern(r"\b(?:push|send-pack)\b")
_GIT_IN_CODE = lazy_pattern(r"\bgit\b")
_FORCE_IN_CODE = lazy_pattern(r"--force|--mirror|--delete|--prune|[\"'\s]-\w{0,4}[fd]|[\"'\s]\+")
_LIST_GOES_ON = lazy_pattern(r"([,(\[\\])[ \t]*\r?\n\s*")
# Distance in characters from the word push within which git must precede and a force option must follow.
_NEAR = 80
_GIT_RUNS = names("submodule bisect rebase for-each-repo filter-branch")
_TAKES_VALUE = names(
    "-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env --attr-source"
)
# The variables with a command that git runs.
_RUN_BY_GIT = lazy_pattern(r"GIT_\w*(?:EDITOR|PAGER|COMMAND|DIFF|SSH|ASKPASS)|EDITOR|VISUAL|PAGER")
# The files from which git takes what it runs, and what a push does.
_GITS_FILES = lazy_pattern(r"(?:^|/)(?:\.git/(?:hooks/.*|config|remotes/.*)|\.gitconfig)$")
_MIRROR_SETTING = lazy_pattern(r"remote\..*\.(?:push|mirror)", re.DOTALL)

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
MOST_PROGRAMS = 20
PASSES = 3

RUNS_FILE = SHELLS | {"source", "."}
_RUNNERS = _GITS | _DASHED | SHELLS | {"eval"}
# Programs that only print or compare their arguments.
TEXTS = names(
    "echo printf grep egrep fgrep rg ag ack cat man which whereis type help test [ [[ : true false "
    "touch mkdir ls head tail wc sed jq cd case for select alias export declare typeset local "
    "readonly set read"
)
# Programs that run a shell text passed as one argument.
RUNS_TEXT = names("ssh su sudo doas script watch parallel env trap flock tmux screen nix-shell unbuffer")
CODE = lazy_pattern(r"(?:python|perl|ruby|node|nodejs|php|deno|bun|lua|awk|gawk|osascript|tclsh|pwsh)[\d.]*")
# Builtins that store a text in a variable or function, which may be run later.
NAMES = names("set for read export declare typeset local readonly mapfile readarray printf select")
_PUSH = lazy_pattern(r"\bpush\b")
_SIGNS = lazy_pattern(r"\\\n|['\"\\\ue000]")


def _check_text(text: str, rules: _PushRules) -> str | None:
    if rules.depth > DEEPEST:
        return "the command is nested too deep to be understood" if _mentions(text) else None
    script = read(text, work=rules.work)
    reason = _check_commands(script.commands, rules)
    if reason is None and script.fault and _mentions(text):
        reason = f"the command mentions push and cannot be understood ({script.fault})"
    values: dict[str, str] = {}
    steps = 0
    for _ in range(PASSES if script.holes else 0):
        # Filling in variables can only find more; it lets nothing through that was refused without.
        given = (pair for command in script.commands for pair in _given_names(command))
        known = {**values, **{name: word.text for name, word in given if word.known}}
        if reason is not None or (values and known == values):
            break
        if steps and not known:
            rules.work.spend(steps)  # to read it once more would take as many, and find the same
            continue
        values, before = known, rules.work.left
        script = read(text, values, work=rules.work)
        reason = _check_commands(script.commands, rules)
        steps = before - rules.work.left
    return reason


def _given_names(command: ShellCommand) -> Iterable[tuple[str, Word]]:
    yield from command.assigned
    if command.program in NAMES or command.program == "env":
        for word in command.words[1:]:
            name, sign, _ = word.text.partition("=")
            if sign and name.isidentifier():
                yield name, word.after(len(name) + 1)


def _check_commands(commands: Sequence[ShellCommand], rules: _PushRules) -> str | None:
    rules.work.spend(1 + 2 * len(commands) + _size(rules))
    rules = replace(
        rules,
        named=rules.named or any(map(_names_push, commands)),
        git_aliases={**rules.git_aliases, **_git_aliases(commands)},
        shell_aliases={**rules.shell_aliases, **shell_aliases(commands)},
    )
    for command in commands:
        reason = _check_command(command, rules)
        if reason is not None:
            return reason
    return _check_fed(commands, rules)


def _size(rules: _PushRules) -> int:
    """The number of steps for copying the aliases."""
    return (len(rules.git_aliases) + len(rules.shell_aliases)) // 16


def _check_command(command: ShellCommand, rules: _PushRules) -> str | None:
    for name, value in _given_names(command):
        if name.startswith("GIT_CONFIG") and (
            "alias." in value.bare or _names_mirror_setting(value.bare.lower())
        ):
            return f"{name} changes what git push does"
        if _RUN_BY_GIT.fullmatch(name) and (reason := _check_texts([value.text], rules)):
            return reason
    words, name = command.words, command.program
    if not words:
        return None
    if not words[0].known:
        return _check_unknown(words, rules)
    if name in _RUNNERS or name in RUNS_FILE:
        return _check_program(words, rules, command)
    if words[0].text in rules.shell_aliases and rules.depth < DEEPEST:
        alias = rules.shell_aliases[words[0].text]
        return _check_text(f"{alias} {_quoted(words[1:])}", rules.deeper())
    if name == "alias":
        return _check_texts((word.text.partition("=")[2] for word in words[1:]), rules)
    if name in TEXTS:
        return None
    if CODE.fullmatch(name):
        return _check_code(words, command)
    if name in RUNS_TEXT:
        texts = [word.text for word in words[1:] if " " in word.text]
        reason = _check_texts([*texts, *command.bodies], rules)
        if reason is not None:
            return reason
    return _check_wrapped(words, rules, command)


def _check_program(words: Sequence[Word], rules: _PushRules, command: ShellCommand) -> str | None:
    name = words[0].program
    if name in _DASHED:
        return _check_push(words[1:], rules)
    if name in _GITS:
        return _check_git(words[1:], rules)
    if name == "eval":
        text = " ".join(word.text for word in words[1:])
        return _check_texts([text], rules) or _check_inner(words, rules)
    return _check_shell(words, rules, command)


def _check_wrapped(words: Sequence[Word], rules: _PushRules, command: ShellCommand) -> str | None:
    """sudo, env, timeout, xargs, find, docker and other programs that run a command in their arguments."""
    runners = [at for at, word in enumerate(words) if at and word.program in _RUNNERS]
    if len(runners) > MOST_PROGRAMS:
        return "the command names git or a shell too often to be understood"
    for at in runners:
        rules.work.spend(1 + len(words) // 4)
        reason = _check_program(words[at:], rules, command)
        adds = any(word.program in ("xargs", "parallel") for word in words[:at])
        if reason is None and words[at].program in _GITS and adds:
            reason = _check_added(words[at + 1 :])
        if reason is not None:
            return reason
    return None


def _check_unknown(words: Sequence[Word], rules: _PushRules) -> str | None:
    """A command whose program is only known at run time."""
    if program_name(words[0].bare) in _GITS:
        return _check_git(words[1:], rules)
    at = next((at for at, word in enumerate(words) if at and word.bare in _PUSHES), None)
    if at is not None:
        return _check_push(words[at + 1 :], rules)
    if rules.named:
        return "a program that is only known when it runs may be a git push; write it out"
    return _check_inner(words, rules)


def _check_inner(words: Sequence[Word], rules: _PushRules) -> str | None:
    """A command that runs the output of another, which is known if that is an echo."""
    # All words of one split text share its inner commands.
    rules.work.spend(sum(len(word.inner) for word in words))
    return _check_texts((text for word in words for inner in word.inner for text in _output(inner)), rules)


def _check_shell(words: Sequence[Word], rules: _PushRules, command: ShellCommand) -> str | None:
    texts = command.bodies
    told = False
    for word in words[1:]:
        if word.text[:1] in ("-", "+") and not word.text.startswith("--"):
            told = told or "c" in word.text
        elif told:
            texts.append(word.text)
        elif word.text.startswith("--command="):
            texts.append(word.text.partition("=")[2])
        told = told or word.text == "--command"
    return _check_texts(texts, rules) or _check_inner(words, rules)


def _check_code(words: Sequence[Word], command: ShellCommand) -> str | None:
    if any(map(_forces_in_code, [*(word.text for word in words[1:]), *command.bodies])):
        return f"the code that {words[0].text} is given would force a git push"
    return None


def _check_fed(commands: Sequence[ShellCommand], rules: _PushRules) -> str | None:
    """Texts that one command prints or writes to a file and a shell then runs."""
    files = [(at, _written(command)) for at, command in enumerate(commands)]
    written = {name: at for at, names in files for name in names}
    said: set[int] = set()
    for at in reversed(range(len(commands))):
        if commands[at].fed and any(word.program in SHELLS for word in commands[at].words):
            said.update(earlier for earlier in range(at) if not files[earlier][1])
            break
    for at, command in enumerate(commands):
        runs = command.program in RUNS_FILE
        files = [
            word.text for word in (command.words if runs else command.words[:1]) if runs or "/" in word.text
        ]
        for file in (*files, *(("makefile",) if command.program == "make" else ())):
            earlier = written.get(program_name(file), at)
            said.update([earlier] if earlier < at else [])
        own = next(filter(_GITS_FILES.search, _redirected(command)), None)
        if own is not None and any("push" in text.lower() for text in _output(command)):
            return f"{own} would hide a git push from this guard"
    texts = (text for at in sorted(said) for text in _output(commands[at]))
    return _check_texts(texts, rules)


def _written(command: ShellCommand) -> list[str]:
    return [program_name(target) for target in _redirected(command) if target and not target.isdigit()]


def _redirected(command: ShellCommand) -> list[str]:
    """The files that a command writes its output to."""
    targets = [redirect.target.text for redirect in command.redirects if ">" in redirect.sign]
    if command.words and command.words[0].text == "tee":
        targets += [word.text for word in command.words[1:]]
    return targets


def _output(command: ShellCommand) -> Iterable[str]:
    """The output of a command, as far as its text shows it."""
    if command.program in ("echo", "printf"):
        words = [word.text for word in command.words[1:]]
        while words and re.fullmatch(r"-[neE]+|--", words[0]):
            words.pop(0)
        yield " ".join(words).replace("\\n", "\n").replace("\\t", "\t")
    yield from command.bodies


def _check_git(words: Sequence[Word], rules: _PushRules) -> str | None:
    rules.work.spend(1 + _size(rules))
    aliases = dict(rules.git_aliases)
    at = 0
    while at < len(words) and words[at].start.startswith("-"):
        option = words[at].text
        takes = option in _TAKES_VALUE
        value = words[at + 1].text if takes and at + 1 < len(words) else option.partition("=")[2]
        if option == "-c" or option.startswith("--config-env"):
            name, _, setting = value.partition("=")
            reason = _check_setting(name, setting, rules)
            if reason is not None:
                return reason
            aliases.update(_alias_in(name, setting))
        at += 2 if takes else 1
    if at >= len(words):
        return None
    subcommand, rest = words[at], words[at + 1 :]
    if not subcommand.known or "{" in subcommand.text:
        return "git is given a subcommand that is only known when it runs; write it out"
    if subcommand.text in aliases and rules.depth < DEEPEST:
        return _check_alias(aliases.pop(subcommand.text), rest, replace(rules.deeper(), git_aliases=aliases))
    if subcommand.text in _PUSHES:
        return _check_push(rest, rules)
    if subcommand.text == "config":
        return _check_config(rest, rules)
    if subcommand.text == "remote" and any(
        word.text.startswith("--mirror") and word.text != "--mirror=fetch" for word in rest
    ):
        return "a mirror remote makes every git push overwrite and remove branches"
    if subcommand.text in _GIT_RUNS:
        return _check_run_by_git(rest, rules)
    return None


def _check_run_by_git(words: Sequence[Word], rules: _PushRules) -> str | None:
    at = next((at for at, word in enumerate(words) if word.text in _PUSHES), None)
    if at is not None:
        return _check_push(words[at + 1 :], rules)
    texts = [word.text.partition("=")[2] if word.text.startswith("--") else word.text for word in words]
    return _check_texts([text for text in texts if " " in text], rules)


def _check_alias(value: str, rest: Sequence[Word], rules: _PushRules) -> str | None:
    command = value[1:] if value.startswith("!") else f"git {value}"
    return _check_text(f"{command} {_quoted(rest)}", rules)


def _check_setting(name: str, value: str, rules: _PushRules) -> str | None:
    low = name.lower()
    if _MIRROR_SETTING.fullmatch(low) and (low.endswith("mirror") or value.startswith(("+", ":", HOLE))):
        return f"the setting {name} makes git push overwrite or remove commits on the remote"
    if low.startswith("alias.") and value:
        return _check_alias(value, (), rules.deeper())
    # An editor, a pager, a helper: git runs it.
    return _check_texts([value.removeprefix("!")], rules) if " " in value else None


def _check_config(words: Sequence[Word], rules: _PushRules) -> str | None:
    """git config: a setting outlives the call, so any alias that pushes could hide later force-pushes."""
    texts = [word.text for word in words if not word.start.startswith("-")]
    for name, value in itertools.pairwise(texts):
        reason = _check_setting(name, value, rules)
        if reason is None and name.lower().startswith("alias.") and (_mentions(value) or HOLE in value):
            reason = f"{name} would hide a git push from this guard"
        if reason is not None:
            return reason
    return None


def _names_push(command: ShellCommand) -> bool:
    values = [value.bare for _, value in command.assigned]
    if command.words and command.words[0].text in NAMES:
        values += [word.bare for word in command.words[1:]] + command.bodies
    return any(map(_PUSH.search, values))


def _quoted(words: Iterable[Word]) -> str:
    """The words as shell text again."""
    import shlex  # few need it

    return " ".join(shlex.quote(word.text) if word.known else f'"{word.text}"' for word in words)


def _mentions(text: str) -> bool:
    return "push" in _SIGNS.sub("", text)


def _check_texts(texts: Iterable[str], rules: _PushRules) -> str | None:
    """The objection to the first of some nested shell texts that has one."""
    inner = rules.deeper()
    return next((reason for text in texts if (reason := _check_text(text, inner)) is not None), None)


def _names_mirror_setting(text: str) -> bool:
    """True if the text contains a _MIRROR_SETTING; searching that pattern would take quadratic time."""
    at = text.find("remote.")
    return at >= 0 and any(text.find(end, at + 7) >= 0 for end in (".push", ".mirror"))


def _forces_in_code(text: str) -> bool:
    """True if git, push and a force option are near each other in one line of code; a list may take several.

    Each push is examined by itself, so that the time is proportional to their number.
    """
    text = _LIST_GOES_ON.sub(r"\1 ", text)
    for push in _PUSH_IN_CODE.finditer(text):
        start, end = push.span()
        before = text[max(0, start - _NEAR - 4) : start].rpartition("\n")[2]
        # A little longer, because the force option may begin at the last position.
        after = text[end : end + _NEAR + 10]
        forces = _FORCE_IN_CODE.search(after)
        near = forces is not None and forces.start() <= _NEAR and "\n" not in after[: forces.start()]
        if near and _GIT_IN_CODE.search(before):
            return True
    return False


def _check_push(words: Iterable[Word], rules: _PushRules) -> str | None:
    """The arguments of git push."""
    for word in words:
        danger = _danger(word)
        if danger is not None and danger not in rules.allowed:
            return _REASONS[danger].format(word=repr(word.text.replace(HOLE, "$...")))
    return None


def _check_added(words: Iterable[Word]) -> str | None:
    """The same for git under xargs, which adds arguments that are not known yet."""
    subcommand = next((word.text for word in words if not word.text.startswith("-")), None)
    if subcommand is None or subcommand in _PUSHES or "{" in subcommand:
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


def _git_aliases(commands: Iterable[ShellCommand]) -> dict[str, str]:
    found: dict[str, str] = {}
    for command in commands:
        texts = [word.text for word in command.words]
        if "config" in texts:
            for name, value in itertools.pairwise(texts):
                found.update(_alias_in(name, value))
    return found


def _alias_in(name: str, value: str) -> dict[str, str]:
    return {name[6:]: value} if name.lower().startswith("alias.") and value else {}
