"""Texts that one command of a shell text hands to another, which runs them: by a pipe, a file, xargs or a substitution.

Each `_check` function returns the objection to its part of the command, or None.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from hookline.engine.stdlib import lazy_pattern
from hookline.guards.code import PROGRAMS, SED_RUNS_INPUT, forces
from hookline.guards.commands import HOLE, SHELLS, ShellCommand, Word, names, program_name
from hookline.guards.git import PushRules, quoted
from hookline.guards.variables import printed

RUNS_FILE = SHELLS | {"source", "."}
FEEDS = names("xargs parallel")
HIDDEN = "the command runs a text that is decoded or put together when it runs; write it out"

_DECODERS = names("base64 base32 basenc xxd uudecode openssl")
_CHANGERS = names("tr sed rev cut paste fold fmt column tac sort uniq head tail")
_COPIES = names("cp mv ln install")
# The files from which git takes what it runs, and what a push does; and those that a shell runs when it starts.
_GITS_FILES = lazy_pattern(r"(?:^|/)(?:\.git/(?:hooks/.*|config|remotes/.*)|\.gitconfig)$")
_STARTS = lazy_pattern(
    r"(?:^|/)\.(?:bashrc|profile|bash_profile|bash_login|bash_aliases|zshrc|zshenv|zprofile)$"
)
# Words by which git or a shell takes settings or commands from a file.
_NAMES_FILE = lazy_pattern(
    r"(?i:(?:^|.*=)(?:include\w*\..*path|core\.hookspath)|(?:GIT_CONFIG_(?:GLOBAL|SYSTEM)|GIT_DIR|HOME|XDG_CONFIG_HOME)$)"
)
_RUNS_VALUE = names(
    "BASH_ENV ENV GIT_SSH GIT_ASKPASS GIT_EDITOR GIT_PAGER GIT_PROXY_COMMAND GIT_EXTERNAL_DIFF EDITOR VISUAL"
)
# A text of settings or of a script that would push by force.
_FORCING = lazy_pattern(
    r"(?:\b|\\[nt])push\b[^\n]{0,200}?(?:--(?:force|mirror|delete|prune)|\s-\w{0,9}[fd]|\s:\w|\+)|\bmirror\b|=\s*!?(?:git )?push\b",
    re.IGNORECASE,
)
_FROM_ELSEWHERE = lazy_pattern(r"/dev/(?:stdin|fd/\d+)|/proc/self/fd/\d+")
_REPLACED = lazy_pattern(r"-[Ii](.*)")


def check_handed(commands: Sequence[ShellCommand], rules: PushRules) -> str | None:
    """The objection to the texts that are handed on among the commands and run."""
    rules.work.spend(1 + sum(1 + len(each.words) // 4 for each in commands))
    texts = list(map(_output, commands))
    if len(commands) == 1 and not texts[0]:
        return None
    return (
        _check_pipes(commands, texts, rules)
        or _check_added_words(commands, texts, rules)
        or _check_files(commands, texts, rules)
    )


def _output(command: ShellCommand) -> str:
    """The output of a command, or the texts that it is given as files, as far as they show."""
    if command.program in ("echo", "printf") or not any(word.inner for word in command.words):
        return printed(command)
    return printed(command) + "".join(printed(each) for word in command.words for each in word.inner)


def is_hidden(commands: Sequence[ShellCommand]) -> bool:
    """True if what the commands of a pipe print is decoded, or changed from a text that is written out."""
    programs = {each.program for each in commands}
    if not _DECODERS.isdisjoint(programs):
        return True
    changed = not _CHANGERS.isdisjoint(programs) or any(map(PROGRAMS.fullmatch, programs))
    return changed and any(printed(each).replace(HOLE, "").strip() for each in commands)


def _runs(command: ShellCommand) -> str:
    """Its shell or interpreter: `shell`, `code` or empty."""
    for word in command.words:
        name = word.program
        if name in RUNS_FILE:
            return "shell"
        if PROGRAMS.fullmatch(name) or (
            name == "sed" and any(SED_RUNS_INPUT.fullmatch(each.text) for each in command.words)
        ):
            return "shell" if name == "sed" else "code"
    return ""


def _takes_input(command: ShellCommand, *, any_pipe: bool) -> bool:
    if command.fed or command.program == "coproc" or any(each.sign == "<&" for each in command.redirects):
        return True
    if any(_FROM_ELSEWHERE.fullmatch(word.text) for word in command.words):
        return True
    # In a group or a branch that reads a pipe.
    alone = command.words[-1].program in SHELLS or command.words[-1].text.startswith("-")
    return alone and len(command.words) < 4 and any_pipe


def _check_pipes(commands: Sequence[ShellCommand], texts: Sequence[str], rules: PushRules) -> str | None:
    any_pipe = any(each.fed or (each.program == "exec" and each.redirects) for each in commands)
    last: dict[str, int] = {}
    for at, command in enumerate(commands):
        kind = _runs(command) if command.words else ""
        if not kind or not _takes_input(command, any_pipe=any_pipe):
            continue
        pipe = pipe_of(commands, at)
        rules.work.spend(len(pipe))
        if kind == "shell" and is_hidden(pipe[:-1]):
            return HIDDEN
        if kind == "shell" and any(forces(word.text) for each in pipe[:-1] for word in each.words):
            return "the text that a shell is given would force a git push"
        last[kind] = max(last.get(kind, 0), len(commands) if command.program == "coproc" else at)
    for kind, end in last.items():
        said = [texts[each] for each in range(end) if texts[each] and _is_said(commands, each)]
        if reason := _check_said(said, kind, rules):
            return reason
    return None


def _is_said(commands: Sequence[ShellCommand], at: int) -> bool:
    """True if the output of a command does not all go to a file."""
    return not written_files(commands[at]) or (at + 1 < len(commands) and commands[at + 1].fed)


def _check_said(said: Sequence[str], kind: str, rules: PushRules) -> str | None:
    """The objection to texts that are run together or each by itself."""
    whole = "".join(said)
    if forces(whole):
        return "the text that is run would force a git push"
    if kind == "code":
        return None
    return rules.check_texts([whole, *(said if len(said) > 1 else ())])


def pipe_of(commands: Sequence[ShellCommand], at: int) -> list[ShellCommand]:
    """The commands of the pipe that ends with this one."""
    start = at
    while start and commands[start].fed:
        start -= 1
    return [*commands[start : at + 1]]


def _check_added_words(
    commands: Sequence[ShellCommand], texts: Sequence[str], rules: PushRules
) -> str | None:
    """xargs and parallel, which add the words that they read to a command."""
    for at, command in enumerate(commands):
        start = next((i for i, word in enumerate(command.words) if word.program in FEEDS), None)
        if start is None:
            continue
        words = command.words[start + 1 :]
        inner = [printed(each) for word in command.words for each in word.inner]
        said = " ".join([*texts[: at + 1], *inner]).replace("\0", " ").replace("\n", " ").strip()
        rules.work.spend(at + len(said) // 16)
        if not said or not ("push" in said or any("push" in word.text for word in words)):
            continue
        reason = rules.check_texts([f"{quoted(words)} {said}", *_replaced(words, said)])
        if reason is not None:
            return reason
    return None


def _replaced(words: Sequence[Word], said: str) -> Iterator[str]:
    marks = {found[1] or "{}" for word in words if (found := _REPLACED.fullmatch(word.text))}
    marks |= {after.text for word, after in itertools.pairwise(words) if word.text == "-I"}
    for mark in sorted(marks - {""})[:4]:
        yield quoted(words).replace(mark, said)[:10_000]


def _check_files(commands: Sequence[ShellCommand], texts: Sequence[str], rules: PushRules) -> str | None:
    """Files that one command writes, and another runs or git reads."""
    written: dict[str, list[int]] = {}
    for at, command in enumerate(commands):
        targets = written_files(command)
        for target in targets:
            written.setdefault(program_name(target), []).append(at)
        plain = [word.text for word in command.words[1:] if not word.text.startswith("-")]
        if command.program in _COPIES and len(plain) > 1:
            sources = [each for name in plain[:-1] for each in written.get(program_name(name), ())]
            sources += [at] if command.fed or texts[at] else []
            written.setdefault(program_name(plain[-1]), []).extend(sources)
            targets = [plain[-1]] if sources else []
        elif command.program == "sed":
            targets = plain
        if any(map(_GITS_FILES.search, targets)) and any(
            map(_FORCING.search, [*(texts[: at + 1]), *(word.text for word in command.words)])
        ):
            return f"{next(filter(_GITS_FILES.search, targets))} would hide a git push from this guard"
        if any(map(_STARTS.search, targets)) and (reason := rules.check_texts(texts[: at + 1])):
            return reason
    if not written:
        return None
    if any(map(_reads_settings, commands)) and any(map(_FORCING.search, texts)):
        return "git would take settings or hooks with a push from a file that is written here"
    for at in range(len(commands)):
        for name in _run_files(commands, at, written):
            producers = [each for index in written[name] for each in _producers(commands, texts, index)]
            rules.work.spend(len(producers))
            pipes = [commands[each] for each in producers]
            if any(map(_changes, pipe_of(commands, at)[:-1])) or (
                is_hidden(pipes) and any(map(_changes, pipes))
            ):
                return HIDDEN
            if reason := _check_said([texts[each] for each in producers], "shell", rules):
                return reason
    return None


def _changes(command: ShellCommand) -> bool:
    return command.program in _CHANGERS | _DECODERS


def _reads_settings(command: ShellCommand) -> bool:
    named = [name for name, _ in command.assigned] + [word.text.partition("=")[0] for word in command.words]
    return any(map(_NAMES_FILE.match, named))


def _producers(commands: Sequence[ShellCommand], texts: Sequence[str], at: int) -> list[int]:
    """The commands whose output a command writes to a file: its pipe; for a group or `exec`, all that print."""
    if not commands[at].words:
        return [each for each in range(at) if texts[each]]
    if commands[at].program == "exec":
        return [each for each in range(len(commands)) if texts[each]]
    return [*range(at - len(pipe_of(commands, at)) + 1, at + 1)]


def _run_files(commands: Sequence[ShellCommand], at: int, written: dict[str, list[int]]) -> Iterator[str]:
    """The written files that a command runs."""
    command = commands[at]
    values = [word for name, word in command.assigned if name in _RUNS_VALUE]
    named = [*values, *command.words[:1]]
    if command.words and (_runs(command) or command.program in ("eval", *FEEDS) or command.words[0].inner):
        # Also what a substitution reads, and what the commands before it in a pipe do.
        read = [word for each in pipe_of(commands, at) for word in each.words]
        inner = [each for word in read for each in word.inner]
        named += [*read, *(each.target for each in command.redirects if each.sign in ("<", "<>"))]
        for each in inner:
            named += [*each.words, *(redirect.target for redirect in each.redirects)]
    for word in named:
        name = program_name(word.text)
        if name in written:
            yield name
        elif any(letter in name for letter in "*?["):
            yield from (each for each in [*written][:20] if fnmatchcase(each, name))
    if command.program == "make" and "makefile" in written:
        yield "makefile"
    if command.program == "git":
        yield from (f"git-{word.text}" for word in command.words[1:] if f"git-{word.text}" in written)


def written_files(command: ShellCommand) -> list[str]:
    """The files that a command writes its output to."""
    targets = [
        each.target.text
        for each in command.redirects
        if ">" in each.sign and (each.sign != ">&" or each.target.known)
    ]
    if command.program == "tee":
        targets += [word.text for word in command.words[1:]]
    if command.program == "dd":
        targets += [word.text[3:] for word in command.words[1:] if word.text.startswith("of=")]
    return [each for each in targets if each and not each.isdigit()]


def check_inner(words: Iterable[Word], rules: PushRules) -> str | None:
    """A command that runs the output of another, which is known if that is an echo."""
    # All words of one split text share its inner commands.
    words = [word for word in words if word.inner]
    rules.work.spend(2 * sum(len(word.inner) for word in words))
    for word in words:
        if is_hidden(word.inner):
            return HIDDEN
    return rules.check_texts(filter(None, (printed(inner) for word in words for inner in word.inner)))
