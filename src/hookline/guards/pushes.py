"""no_force_push: refuses commands that overwrite or remove commits on a remote, in any spelling of a shell.

The decision is `objection`, a pure function of the command. What it cannot know it refuses, and says so: a push with
an argument or a subcommand that is only known at run time, an unfinished text that mentions push.

Each `_check` function returns the objection to its part of the command, or None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import hook
from hookline.engine.result import CONTINUE, HookResult
from hookline.engine.stdlib import lazy_pattern, replace
from hookline.guards.code import PROGRAMS, forces, sed_forces
from hookline.guards.commands import (
    HOLE,
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
from hookline.guards.git import (
    DEEPEST,
    GITS,
    PUSHES,
    PushRules,
    aliases_in,
    check_added,
    check_git,
    check_push,
    in_option,
    mentions,
    quoted,
)
from hookline.guards.pipes import FEEDS, RUNS_FILE, check_handed, check_inner, is_hidden
from hookline.guards.shell import LONGEST, read
from hookline.guards.variables import NAMES, READERS, given_values, positional, printed, values_in


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
    rules = PushRules(allowed=frozenset(allowed), work=work, check=_check_text)
    try:
        if sum(map(len, command)) > LONGEST:
            raise TooMuch
        if isinstance(command, str):
            if _HARMLESS.fullmatch(command) and not _TELLING.search(command):
                return None
            return _check_text(command.replace(HOLE, "?").replace("\r\n", "\n"), rules)
        words = [word.replace(HOLE, "?") for word in command]
        return _check_commands((argument_list(words, work),), rules)
    except TooMuch as exc:
        return str(exc)


MOST_PROGRAMS = 20
PASSES = 3

# Nothing is quoted, expanded or matched in such a text, so that a push in it is written out.
_HARMLESS = lazy_pattern(r"[\w \t\n./:=,@%+;&|#-]*")
_TELLING = lazy_pattern(
    r"push|mirror|pack|git-|hub|alias|xargs|parallel|base|xxd|openssl|rev|[|]|GIT_|config", re.IGNORECASE
)
_DASHED = frozenset(f"git-{name}" for name in PUSHES)
_RUNNERS = GITS | _DASHED | SHELLS | {"eval"}
# The variables with a command that git, a shell or a pager runs.
_RUN_BY_GIT = lazy_pattern(
    r"GIT_\w*(?:EDITOR|PAGER|COMMAND|DIFF|SSH|ASKPASS)|(?:\w+_)?EDITOR|VISUAL|\w*PAGER|PROMPT_COMMAND|PS[0-4]|LESS(?:OPEN|CLOSE)"
)
# Programs that only print or compare their arguments.
TEXTS = names(
    "echo printf grep egrep fgrep rg ag ack cat man which whereis type help test [ [[ : true false "
    "touch mkdir ls head tail wc jq cd case for select alias export declare typeset local "
    "readonly set read"
)
# Programs that run a shell text passed as one argument.
RUNS_TEXT = names(
    "ssh scp su sudo doas script watch parallel env trap flock tmux screen nix-shell unbuffer runuser setpriv tar split rsync"
    " sort zip entr strace systemd-run busybox chroot nsenter at batch mapfile readarray complete compgen"
)
_OFTEN = lazy_pattern(r"-[0rtxnLP]{1,4}|-?[nLP]?\d{1,4}")
_PUSH = lazy_pattern(r"(?<![A-Za-z0-9])push(?![A-Za-z0-9])", re.IGNORECASE)
_IN_INDEX = ("[$(", "[`")


def _check_text(text: str, rules: PushRules) -> str | None:
    if rules.depth > DEEPEST:
        return "the command is nested too deep to be understood" if mentions(text) else None
    script = read(text, work=rules.work)
    reason = _check_commands(script.commands, rules)
    if reason is None and script.fault and mentions(text):
        reason = f"the command mentions push and cannot be understood ({script.fault})"
    values: dict[str, str] | None = None
    steps = 0
    for turn in range(PASSES if script.holes else 0):
        # Filling in variables can only find more; it lets nothing through that was refused without.
        known = {**rules.values, **values_in(script.commands, first=turn == PASSES - 1)}
        if reason is not None or known == values:
            break
        if steps and not known:
            rules.work.spend(steps)  # to read it once more would take as many, and find the same
            continue
        values, before = known, rules.work.left
        script = read(text, values, work=rules.work)
        rules.work.spend(len(values) // 16)
        reason = _check_commands(script.commands, replace(rules, values=values))
        steps = before - rules.work.left
    return reason


def _check_commands(commands: Sequence[ShellCommand], rules: PushRules) -> str | None:
    rules.work.spend(1 + 3 * len(commands) + rules.size)
    rules = replace(
        rules,
        named=rules.named or _name_push(commands, rules.values.values()),
        git_aliases={**rules.git_aliases, **aliases_in(commands)},
        shell_aliases={**rules.shell_aliases, **shell_aliases(commands)},
    )
    for command in commands:
        reason = _check_command(command, rules)
        if reason is not None:
            return reason
    return check_handed(commands, rules)


def _name_push(commands: Sequence[ShellCommand], given: Iterable[str]) -> bool:
    """True if a variable, or what a command reads, may hold a push."""
    values = [value for command in commands for _, value in command.assigned]
    texts = [value.bare for value in values]
    for command in commands:
        if command.program in NAMES:
            texts += [word.bare for word in command.words[1:]] + command.bodies
            values += command.words[1:]
        elif not command.words:
            texts += command.bodies
    if any(command.program in READERS for command in commands):
        texts += map(printed, commands)
    if any(is_hidden(value.inner) for value in values if value.inner):
        return True
    separated = any(name == "IFS" for command in commands for name, _ in command.assigned)
    return any(map(_PUSH.search, texts)) or (separated and any("push" in text for text in (*texts, *given)))


def _check_command(command: ShellCommand, rules: PushRules) -> str | None:
    for name, value in given_values(command):
        if name.startswith("GIT_CONFIG") and ("alias." in value.bare or _names_setting(value.bare.lower())):
            return f"{name} changes what git push does"
        if name.startswith("GIT_CONFIG") and (reason := rules.check_texts([value.text.lstrip("!")])):
            return reason
        if _RUN_BY_GIT.fullmatch(name) and (reason := rules.check_texts([value.text])):
            return reason
        if any(each in value.text for each in _IN_INDEX) and (reason := rules.check_texts([value.text])):
            return reason
    words, name = command.words, command.program
    if not words:
        return None
    if any(each in word.text for word in words for each in _IN_INDEX):
        # The index of an array is evaluated also where it is quoted.
        reason = rules.check_texts(
            word.text for word in words if any(each in word.text for each in _IN_INDEX)
        )
        if reason is not None:
            return reason
    if not words[0].known:
        return _check_unknown(words, rules)
    if name in ("command", "builtin") and any(word.program in RUNS_FILE for word in words[1:2]):
        return _check_program(words[1:], rules, command)
    if name in _RUNNERS or name in RUNS_FILE:
        return _check_program(words, rules, command)
    alias = rules.shell_aliases.get(words[0].text) or rules.shell_aliases.get(name)
    if alias is not None and rules.depth < DEEPEST:
        return rules.check(f"{alias} {quoted(words[1:])}", rules.deeper())
    if name == "alias":
        return rules.check_texts(word.text.partition("=")[2] for word in words[1:])
    if name in TEXTS:
        return None
    if PROGRAMS.fullmatch(name) or name == "sed":
        return _check_code(words, command)
    if name in RUNS_TEXT:
        texts = [text for word in words[1:] if " " in word.text for text in in_option(word.text)]
        reason = rules.check_texts([*texts, *command.bodies])
        if reason is not None:
            return reason
    return _check_wrapped(words, rules, command)


def _names_setting(text: str) -> bool:
    """True if the text contains a setting that makes a push overwrite; searching a pattern would take quadratic time."""
    at = text.find("remote.")
    return at >= 0 and any(text.find(end, at + 7) >= 0 for end in (".push", ".mirror"))


def _check_program(words: Sequence[Word], rules: PushRules, command: ShellCommand) -> str | None:
    name = words[0].program
    if name in _DASHED:
        return check_push(words[1:], rules)
    if name in GITS:
        return check_git(words[1:], rules)
    if name == "eval":
        text = " ".join(word.text for word in words[1:])
        if HOLE in text and rules.named and any(word.bare == "" for word in words[1:]):
            return "eval is given a text that is only known when it runs and may be a git push; write it out"
        return rules.check_texts([text]) or check_inner(words, rules)
    return _check_shell(words, rules, command)


def _check_wrapped(words: Sequence[Word], rules: PushRules, command: ShellCommand) -> str | None:
    """sudo, env, timeout, xargs, find, docker and other programs that run a command in their arguments."""
    if words[0].program in FEEDS and _only_prints(words):
        return None
    runners = [at for at, word in enumerate(words) if at and _is_runner(word, rules)]
    if len(runners) > MOST_PROGRAMS:
        return "the command names git or a shell too often to be understood"
    for at in runners:
        rules.work.spend(1 + len(words) // 4)
        if words[at].program in _RUNNERS:
            reason = _check_program(words[at:], rules, command)
        elif words[at].program in rules.shell_aliases and rules.depth < DEEPEST:
            alias = rules.shell_aliases[words[at].program]
            reason = rules.check(f"{alias} {quoted(words[at + 1 :])}", rules.deeper())
        else:
            reason = _check_code(words[at:], command)
        adds = any(word.program in FEEDS for word in words[:at])
        if reason is None and words[at].program in GITS and adds:
            reason = check_added(words[at + 1 :])
        if reason is not None:
            return reason
    return None


def _only_prints(words: Sequence[Word]) -> bool:
    """True if xargs, with options that say only how often, gives its words to a program that prints."""
    first = next((word for word in words[1:] if not _OFTEN.fullmatch(word.text)), words[0])
    return first.text in TEXTS


def _is_runner(word: Word, rules: PushRules) -> bool:
    name = word.program
    return name in _RUNNERS or name in rules.shell_aliases or PROGRAMS.fullmatch(name) is not None


def _check_unknown(words: Sequence[Word], rules: PushRules) -> str | None:
    """A command whose program is only known at run time."""
    name = program_name(words[0].bare)
    if name in GITS:
        return check_git(words[1:], rules)
    if name in _DASHED:
        return check_push(words[1:], rules)
    at = next((at for at, word in enumerate(words) if at and word.bare in PUSHES), None)
    if at is not None:
        return check_push(words[at + 1 :], rules)
    if rules.named:
        return "a program that is only known when it runs may be a git push; write it out"
    return check_inner(words, rules)


def _check_shell(words: Sequence[Word], rules: PushRules, command: ShellCommand) -> str | None:
    texts = command.bodies
    told, start = False, len(words)
    for at, word in enumerate(words[1:], 1):
        if word.text[:1] in ("-", "+") and not word.text.startswith("--"):
            told = told or "c" in word.text
            if word.text == "-s":
                start = min(start, at)
        elif told:
            texts.append(word.text)
            start = min(start, at + 1)
        elif word.text.startswith("--command="):
            texts.append(word.text.partition("=")[2])
        told = told or word.text == "--command"
    arguments = [word.text for word in words[start:]]
    rules.work.spend(len(arguments))
    given = {**positional(arguments[1:]), "0": arguments[0]} if arguments else {}
    before = {name: word.text for name, word in given_values(command) if word.known}
    inner = replace(rules, values={**rules.values, **before, **given})
    targets = [each.target for each in command.redirects]
    return inner.check_texts(texts) or check_inner([*words, *targets], rules)


def _check_code(words: Sequence[Word], command: ShellCommand) -> str | None:
    check = sed_forces if words[0].program == "sed" else forces
    inner = [printed(each) for word in words for each in word.inner]
    # Also what the code is given as arguments and in variables.
    inner += [" ".join(word.text for word in words[1:]), *(word.text for _, word in given_values(command))]
    if any(map(check, [*(word.text for word in words[1:]), *command.bodies, *inner])):
        return f"the code that {words[0].text} is given would force a git push"
    return None
