"""no_force_push: refuses what would overwrite or remove commits on a remote, in any spelling a shell knows.

Deciding is `objection`, a pure function of the command. What it cannot know it refuses, and says so: a push with
an argument that is made when the command runs, a subcommand that is, a text that mentions push and has no end.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hookline.engine.classes import dataclass, field, replace
from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import hook
from hookline.engine.result import CONTINUE, HookResult
from hookline.guards.commands import asked
from hookline.guards.patterns import compiled_later
from hookline.guards.shell import HOLE, LONGEST, Command, TooMuch, Word, Work, names, read, word_of


@hook(on="tool.start", match="kind:shell", inline=True, name="no_force_push")
def no_force_push(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
    """Blocks a shell call that would force-push, mirror, prune or delete on a remote."""
    return _answer(hook_context, _Rules())


def no_force_push_unless(
    *, lease: bool = False, delete: bool = False
) -> Callable[[WorkflowContext | None, HookContext], HookResult]:
    """`no_force_push` that lets `--force-with-lease` through, or the removal of a named branch, or both."""
    rules = _Rules(lease=lease, delete=delete)

    @hook(on="tool.start", match="kind:shell", inline=True, name="no_force_push")
    def guard(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
        return _answer(hook_context, rules)

    return guard


def objection(
    command: str | Sequence[str], *, lease: bool = False, delete: bool = False, work: Work | None = None
) -> str | None:
    """Why this shell text or argument list must not run, or None where nothing speaks against it.

    `work` is what the decision may take; a command that takes more is too long to be read in full, and refused.
    """
    return _objection(command, _Rules(lease=lease, delete=delete, work=work or Work()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """What is let through, and what is known where a command stands."""

    lease: bool = False
    delete: bool = False
    depth: int = 0
    named: bool = False
    work: Work = field(default_factory=Work)
    git_aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    shell_aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    def deeper(self) -> _Rules:
        return replace(self, depth=self.depth + 1)


def _answer(hook_context: HookContext, rules: _Rules) -> HookResult:
    # The steps are counted over all that one call is asked to run.
    rules = replace(rules, work=Work())
    for command in asked(hook_context.current_payload):
        reason = _objection(command, rules)
        if reason is not None:
            return HookResult.block(f"no force-push: {reason}")
    return CONTINUE


def _objection(command: str | Sequence[str], rules: _Rules) -> str | None:
    try:
        if sum(map(len, command)) > LONGEST:
            raise TooMuch
        if isinstance(command, str):
            return _of_text(command.replace(HOLE, "?").replace("\r\n", "\n"), rules)
        rules.work.spend(len(command))
        words = tuple(word_of(word.replace(HOLE, "?")) for word in command)
        return _of_commands((Command(words=words),), rules)
    except TooMuch as exc:
        return str(exc)


DEEPEST = 8
MOST_PROGRAMS = 20
PASSES = 3

SHELLS = names("sh bash dash zsh ksh mksh ash fish rbash")
RUNS_FILE = SHELLS | {"source", "."}
GITS = frozenset({"git", "hub"})
PUSHES = frozenset({"push", "send-pack", "http-push"})
DASHED = {f"git-{name}": name for name in PUSHES}
# They only show or compare their words.
TEXTS = names(
    "echo printf grep egrep fgrep rg ag ack cat man which whereis type help test [ [[ : true false "
    "touch mkdir ls head tail wc sed jq cd case for select alias export declare typeset local "
    "readonly set read"
)
# They run a text that they are given in one word.
RUNS_TEXT = names("ssh su sudo doas script watch parallel env trap flock tmux screen nix-shell unbuffer")
CODE = compiled_later(
    r"(?:python|perl|ruby|node|nodejs|php|deno|bun|lua|awk|gawk|osascript|tclsh|pwsh)[\d.]*"
)
PUSH_IN_CODE = compiled_later(r"\b(?:push|send-pack)\b")
GIT_IN_CODE = compiled_later(r"\bgit\b")
FORCE_IN_CODE = compiled_later(r"--force|--mirror|--delete|--prune|[\"'\s]-\w{0,4}[fd]|[\"'\s]\+")
# So far from the word push is looked for git before it, and for what forces after it.
NEAR = 80
# They give variables and functions what is run later.
NAMES = names("set for read export declare typeset local readonly mapfile readarray printf select")
GIT_RUNS = names("submodule bisect rebase for-each-repo filter-branch")
TAKES_VALUE = names(
    "-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env --attr-source"
)
_PUSH = compiled_later(r"\bpush\b")
_SIGNS = compiled_later(r"\\\n|['\"\\\ue000]")
_MIRROR = compiled_later(r"remote\..*\.(?:push|mirror)", re.DOTALL)

_DANGERS = {
    "--force-with-lease": "lease",
    "--force-if-includes": "lease",
    "--force": "force",
    "--mirror": "mirror",
    "--prune": "prune",
    "--delete": "delete",
}
_SAID = {
    "force": "git push {word} overwrites commits on the remote",
    "lease": "git push {word} overwrites commits on the remote",
    "mirror": "git push {word} overwrites and removes branches on the remote",
    "prune": "git push {word} removes branches from the remote",
    "delete": "git push {word} removes a branch or a tag from the remote",
    "unknown": "git push is given {word}, which is only known when it runs; write the branch and the options out",
}


def _of_text(text: str, rules: _Rules) -> str | None:
    if rules.depth > DEEPEST:
        return "the command is nested too deep to be understood" if _mentions(text) else None
    script = read(text, work=rules.work)
    reason = _of_commands(script.commands, rules)
    if reason is None and script.fault and _mentions(text):
        reason = f"the command mentions push and cannot be understood ({script.fault})"
    values: dict[str, str] = {}
    for _ in range(PASSES if script.holes else 0):
        # Filling in variables can only find more; it lets nothing through that was refused without.
        known = {**values, **_values(script.commands)}
        if reason is not None or (values and known == values):
            break
        values = known
        script = read(text, values, work=rules.work)
        reason = _of_commands(script.commands, rules)
    return reason


def _values(commands: Iterable[Command]) -> dict[str, str]:
    return {name: word.text for command in commands for name, word in _given_names(command) if word.known}


def _given_names(command: Command) -> Iterable[tuple[str, Word]]:
    yield from command.assigned
    if command.words and command.words[0].text in NAMES:
        for word in command.words[1:]:
            name, sign, _ = word.text.partition("=")
            if sign and name.isidentifier():
                yield name, word.after(len(name) + 1)


def _of_commands(commands: Sequence[Command], rules: _Rules) -> str | None:
    rules.work.spend(1 + 2 * len(commands) + _size(rules))
    rules = replace(
        rules,
        named=rules.named or any(map(_names_push, commands)),
        git_aliases={**rules.git_aliases, **_git_aliases(commands)},
        shell_aliases={**rules.shell_aliases, **_shell_aliases(commands)},
    )
    for command in commands:
        reason = _of_command(command, rules)
        if reason is not None:
            return reason
    return _of_fed(commands, rules)


def _size(rules: _Rules) -> int:
    """What it takes to hand the aliases on."""
    return (len(rules.git_aliases) + len(rules.shell_aliases)) // 16


def _of_command(command: Command, rules: _Rules) -> str | None:
    for name, value in command.assigned:
        if name.startswith("GIT_CONFIG") and ("alias." in value.bare or _names_mirror(value.bare.lower())):
            return f"{name} changes what git push does"
    return _of_words(command.words, rules, command)


def _names_mirror(text: str) -> bool:
    """Whether a setting of _MIRROR stands anywhere in it; a search for that pattern would begin at each `remote.`."""
    at = text.find("remote.")
    return at >= 0 and any(text.find(end, at + 7) >= 0 for end in (".push", ".mirror"))


def _of_words(words: Sequence[Word], rules: _Rules, command: Command | None = None) -> str | None:
    if not words:
        return None
    name = _program(words[0])
    if not words[0].known:
        return _of_unknown(words, rules)
    if name in GITS or name in DASHED or name in SHELLS or name in ("eval", "source", "."):
        return _of_program(words, rules, command)
    if words[0].text in rules.shell_aliases and rules.depth < DEEPEST:
        rest = " ".join(_quoted(word) for word in words[1:])
        return _of_text(f"{rules.shell_aliases[words[0].text]} {rest}", rules.deeper())
    if name == "alias":
        values = [word.text.partition("=")[2] for word in words[1:]]
        return _first(values, lambda value: _of_text(value, rules.deeper()))
    if name in TEXTS:
        return None
    if CODE.fullmatch(name):
        return _of_code(words, command)
    if name in RUNS_TEXT:
        texts = [word.text for word in words[1:] if " " in word.text]
        texts += _bodies(command)
        reason = _first(texts, lambda text: _of_text(text, rules.deeper()))
        if reason is not None:
            return reason
    return _of_wrapped(words, rules, command)


def _of_program(words: Sequence[Word], rules: _Rules, command: Command | None) -> str | None:
    name = _program(words[0])
    if name in DASHED:
        return _of_push(words[1:], rules)
    if name in GITS:
        return _of_git(words[1:], rules)
    if name == "eval":
        return _of_text(" ".join(word.text for word in words[1:]), rules.deeper()) or _of_inner(words, rules)
    return _of_shell(words, rules, command)


def _of_wrapped(words: Sequence[Word], rules: _Rules, command: Command | None) -> str | None:
    """sudo, env, timeout, xargs, find, docker and all others that run what stands in their words."""
    runners = [at for at, word in enumerate(words) if at and _runs(word)]
    if len(runners) > MOST_PROGRAMS:
        return "the command names git or a shell too often to be understood"
    for at in runners:
        rules.work.spend(1 + len(words) // 4)
        reason = _of_program(words[at:], rules, command)
        if reason is None and _program(words[at]) in GITS and _adds_words(words[:at]):
            reason = _of_more(words[at + 1 :])
        if reason is not None:
            return reason
    return None


def _runs(word: Word) -> bool:
    name = _program(word)
    return name in GITS or name in DASHED or name in SHELLS or name == "eval"


def _adds_words(words: Sequence[Word]) -> bool:
    return any(_program(word) in ("xargs", "parallel") for word in words)


def _of_more(words: Sequence[Word]) -> str | None:
    """git under xargs, which adds words that nobody knows yet."""
    subcommand = next((word.text for word in words if not word.text.startswith("-")), None)
    if subcommand is None or subcommand in PUSHES or "{" in subcommand:
        return "git push is given arguments by xargs, which are only known when it runs"
    return None


def _of_unknown(words: Sequence[Word], rules: _Rules) -> str | None:
    """The program itself is only known when it runs."""
    if _program_name(words[0].bare) in GITS:
        return _of_git(words[1:], rules)
    at = next((at for at, word in enumerate(words) if at and word.bare in PUSHES), None)
    if at is not None:
        return _of_push(words[at + 1 :], rules)
    if rules.named:
        return "a program that is only known when it runs may be a git push; write it out"
    return _of_inner(words, rules)


def _of_inner(words: Sequence[Word], rules: _Rules) -> str | None:
    """The output of a command is run; where it is an echo, that is known."""
    # All words that one text split into have its commands.
    rules.work.spend(sum(len(word.inner) for word in words))
    return _first(
        (text for word in words for inner in word.inner for text in _output(inner)),
        lambda text: _of_text(text, rules.deeper()),
    )


def _of_shell(words: Sequence[Word], rules: _Rules, command: Command | None) -> str | None:
    texts = _bodies(command)
    told = False
    for word in words[1:]:
        if word.text[:1] in ("-", "+") and not word.text.startswith("--"):
            told = told or "c" in word.text
        elif told:
            texts.append(word.text)
        elif word.text.startswith("--command="):
            texts.append(word.text.partition("=")[2])
        told = told or word.text == "--command"
    return _first(texts, lambda text: _of_text(text, rules.deeper())) or _of_inner(words, rules)


def _bodies(command: Command | None) -> list[str]:
    """What a command is given to read in its own text: here-documents and here-strings."""
    given = command.redirects if command is not None else ()
    return [each.body or each.target.text for each in given if each.body or each.sign == "<<<"]


def _of_code(words: Sequence[Word], command: Command | None) -> str | None:
    texts = [word.text for word in words[1:]]
    texts += _bodies(command)
    if any(map(_forces_in_code, texts)):
        return f"the code that {words[0].text} is given would force a git push"
    return None


def _forces_in_code(text: str) -> bool:
    """Whether git, push and what forces stand near one another in a line. Each push is looked at alone, so that a
    long text takes as long as it has pushes."""
    for push in PUSH_IN_CODE.finditer(text):
        start, end = push.span()
        before = text[max(0, start - NEAR - 4) : start].rpartition("\n")[2]
        # A little more, for what forces may begin at the last place where it counts.
        after = text[end : end + NEAR + 10]
        forces = FORCE_IN_CODE.search(after)
        near = forces is not None and forces.start() <= NEAR and "\n" not in after[: forces.start()]
        if near and GIT_IN_CODE.search(before):
            return True
    return False


def _of_fed(commands: Sequence[Command], rules: _Rules) -> str | None:
    """What one command says or writes and a shell then runs."""
    files = [(at, _written(command)) for at, command in enumerate(commands)]
    written = {name: at for at, names in files for name in names}
    said: set[int] = set()
    for at in reversed(range(len(commands))):
        if commands[at].fed and any(_program(word) in SHELLS for word in commands[at].words):
            said.update(earlier for earlier in range(at) if not files[earlier][1])
            break
    for at, command in enumerate(commands):
        runs = bool(command.words) and _program(command.words[0]) in RUNS_FILE
        for word in command.words if runs else command.words[:1]:
            if runs or "/" in word.text:
                earlier = written.get(_program_name(word.text), at)
                said.update([earlier] if earlier < at else [])
    texts = (text for at in sorted(said) for text in _output(commands[at]))
    return _first(texts, lambda text: _of_text(text, rules.deeper()))


def _written(command: Command) -> list[str]:
    targets = [redirect.target.text for redirect in command.redirects if ">" in redirect.sign]
    if command.words and command.words[0].text == "tee":
        targets += [word.text for word in command.words[1:]]
    return [_program_name(target) for target in targets if target and not target.isdigit()]


def _output(command: Command) -> Iterable[str]:
    """What a command prints, as far as its own text has it."""
    if command.words and _program(command.words[0]) in ("echo", "printf"):
        words = [word.text for word in command.words[1:]]
        while words and re.fullmatch(r"-[neE]+|--", words[0]):
            words.pop(0)
        yield " ".join(words).replace("\\n", "\n")
    yield from _bodies(command)


def _of_git(words: Sequence[Word], rules: _Rules) -> str | None:
    rules.work.spend(1 + _size(rules))
    aliases = dict(rules.git_aliases)
    at = 0
    while at < len(words) and words[at].start.startswith("-"):
        option = words[at].text
        takes = option in TAKES_VALUE
        value = words[at + 1].text if takes and at + 1 < len(words) else option.partition("=")[2]
        if option == "-c" or option.startswith("--config-env"):
            reason = _of_setting(*_setting(value), rules)
            if reason is not None:
                return reason
            aliases.update(_alias(*_setting(value)))
        at += 2 if takes else 1
    if at >= len(words):
        return None
    subcommand, rest = words[at], words[at + 1 :]
    if not subcommand.known or "{" in subcommand.text:
        return "git is given a subcommand that is only known when it runs; write it out"
    if subcommand.text in aliases and rules.depth < DEEPEST:
        return _of_alias(aliases.pop(subcommand.text), rest, replace(rules.deeper(), git_aliases=aliases))
    if subcommand.text in PUSHES:
        return _of_push(rest, rules)
    if subcommand.text == "config":
        return _of_config(rest, rules)
    if subcommand.text == "remote" and any(
        word.text.startswith("--mirror") and word.text != "--mirror=fetch" for word in rest
    ):
        return "a mirror remote makes every git push overwrite and remove branches"
    if subcommand.text in GIT_RUNS:
        return _of_run_by_git(rest, rules)
    return None


def _of_run_by_git(words: Sequence[Word], rules: _Rules) -> str | None:
    at = next((at for at, word in enumerate(words) if word.text in PUSHES), None)
    texts = [word.text.partition("=")[2] if word.text.startswith("--") else word.text for word in words]
    texts = [text for text in texts if " " in text]
    if at is not None:
        return _of_push(words[at + 1 :], rules)
    return _first(texts, lambda text: _of_text(text, rules.deeper()))


def _of_alias(value: str, rest: Sequence[Word], rules: _Rules) -> str | None:
    more = " ".join(_quoted(word) for word in rest)
    return _of_text(f"{value[1:]} {more}" if value.startswith("!") else f"git {value} {more}", rules)


def _of_setting(name: str, value: str, rules: _Rules) -> str | None:
    low = name.lower()
    if _MIRROR.fullmatch(low) and (low.endswith("mirror") or value.startswith(("+", ":", HOLE))):
        return f"the setting {name} makes git push overwrite or remove commits on the remote"
    if low.startswith("alias.") and value:
        return _of_alias(value, (), rules.deeper())
    return None


def _of_config(words: Sequence[Word], rules: _Rules) -> str | None:
    """A setting outlives the call, so an alias that pushes at all would hide later force-pushes."""
    texts = [word.text for word in words if not word.start.startswith("-")]
    for name, value in itertools.pairwise(texts):
        reason = _of_setting(name, value, rules)
        if reason is None and name.lower().startswith("alias.") and (_mentions(value) or HOLE in value):
            reason = f"{name} would hide a git push from this guard"
        if reason is not None:
            return reason
    return None


def _of_push(words: Sequence[Word], rules: _Rules) -> str | None:
    for word in words:
        danger = _danger(word)
        allowed = (danger == "lease" and rules.lease) or (danger == "delete" and rules.delete)
        if danger is not None and not allowed:
            return _SAID[danger].format(word=repr(word.text.replace(HOLE, "$...")))
    return None


def _danger(word: Word) -> str | None:
    """Which word of the table above fits one argument of git push, if any."""
    text, start = word.text, word.start
    if start != text:
        fixed = start.startswith("--") and "=" in start
        if word.may_split or not start or (start[0] in "-+:" and not fixed):
            return "unknown"
    if text.startswith("--"):
        option = text.partition("=")[0]
        # git takes the beginning of a long option for the whole.
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
    # `--force` itself is no short form of the longer ones.
    return name.startswith(option) and option not in _DANGERS


def _git_aliases(commands: Iterable[Command]) -> dict[str, str]:
    found: dict[str, str] = {}
    for command in commands:
        texts = [word.text for word in command.words]
        if "config" in texts:
            for name, value in itertools.pairwise(texts):
                found.update(_alias(name, value))
    return found


def _alias(name: str, value: str) -> dict[str, str]:
    return {name[6:]: value} if name.lower().startswith("alias.") and value else {}


def _setting(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _shell_aliases(commands: Iterable[Command]) -> dict[str, str]:
    return {
        name: value
        for command in commands
        if command.words and command.words[0].text == "alias"
        for word in command.words[1:]
        for name, sign, value in [word.text.partition("=")]
        if sign
    }


def _names_push(command: Command) -> bool:
    values = [value.bare for _, value in command.assigned]
    if command.words and command.words[0].text in NAMES:
        values += [word.bare for word in command.words[1:]] + _bodies(command)
    return any(map(_PUSH.search, values))


def _program(word: Word) -> str:
    return _program_name(word.text)


def _program_name(text: str) -> str:
    return text.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")


def _quoted(word: Word) -> str:
    import shlex  # few need it

    return shlex.quote(word.text) if word.known else f'"{word.text}"'


def _mentions(text: str) -> bool:
    return "push" in _SIGNS.sub("", text)


def _first(texts: Iterable[Any], judge: Callable[[Any], str | None]) -> str | None:
    return next((reason for text in texts if (reason := judge(text)) is not None), None)
