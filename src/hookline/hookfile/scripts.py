"""The code beside a hook file that its hooks name, found by what the words of a command are used for.

A program, the script of an interpreter and a file that a shell reads are code, with or without a suffix and before they
are there; other words are only if they look like code. What is named by a variable or a pattern, what code imports or
starts itself, and the files of `make` are not found.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from hookline import files
from hookline.guards.commands import SHELLS, ShellCommand, StepBudget, TooMuch, Word, argument_list, names
from hookline.guards.shell import read
from hookline.runners.child import script_of

if TYPE_CHECKING:
    from hookline.engine.hook import HookDeclaration

_BEFORE = names(
    "env exec command builtin nohup nice ionice timeout time stdbuf setsid sudo doas xargs flock chronic unbuffer"
    " strace busybox uv uvx npx pnpm yarn poetry pipenv pdm hatch bundle run bunx"
)
"""Programs that start the program which is named behind them."""
_TAKE_A_WORD = names(
    "-u -n -k -s -g -C -c -p -I -L -P -d -E -a -w --user --signal --kill-after --chdir --adjustment"
)
_RUN_A_FILE = names(
    "deno bun tsx ts-node php lua luajit rscript tclsh wish osascript pwsh powershell groovy java julia"
)
_INTERPRETERS = names("python pypy node nodejs ruby perl") | _RUN_A_FILE
_FROM_A_FILE = {**dict.fromkeys(("awk", "gawk", "mawk", "sed", "jq", "make", "gmake"), ("-f", "--file"))}
_DEEPEST = 8


def code_of(hook: HookDeclaration, folder: str) -> Iterator[str]:
    """The paths of the code that a hook names; also of what is no file, or is elsewhere."""
    params = hook.params
    start = os.path.normpath(os.path.join(folder, params.get("cwd") or ""))
    if hook.kind == "python":
        if "file" in params:
            yield os.path.join(folder, params["file"])
        else:
            yield from _module(folder, params.get("module", ""))
    elif hook.kind in ("command", "shell"):
        try:
            budget = StepBudget()
            found = (
                read(params["script"], work=budget).commands
                if hook.kind == "shell"
                else (argument_list(params["argv"], budget),)
            )
            yield from _in_commands(found, [start], budget, 0)
        except TooMuch:
            words = str(params.get("script") or " ".join(params["argv"])).split()
            yield from (os.path.join(start, word) for word in words)


def scripts_of(hook: HookDeclaration, folder: str) -> dict[str, str]:
    """The files of code in a folder that a command or script names, by the word that does; by their path where none is it."""
    start = os.path.join(folder, hook.params.get("cwd") or "")
    words = hook.params.get("argv") or hook.params.get("script", "").split()
    spelled = {os.path.realpath(os.path.join(start, word)): word for word in words}
    found = {os.path.realpath(each) for each in code_of(hook, folder)}
    inside = {
        each for each in found if each.startswith(f"{os.path.realpath(folder)}/") and os.path.isfile(each)
    }
    return {spelled.get(each, each): each for each in sorted(inside)}


def _module(folder: str, name: str) -> Iterator[str]:
    """The files of a module, with those of the packages around it."""
    path = folder
    for part in name.split("."):
        path = os.path.join(path, part)
        yield os.path.join(path, "__init__.py")
    yield f"{path}.py"


def _in_commands(
    commands: Iterable[ShellCommand], starts: list[str], budget: StepBudget, depth: int
) -> Iterator[str]:
    before: Sequence[str] = ()
    for command in commands:
        words = _words(command.words)
        if command.program in ("cd", "pushd") and len(words) > 1 and words[1]:
            starts.append(os.path.normpath(os.path.join(starts[-1], words[1])))
            continue
        named = [*_run(words), *(word for word in words if word and _looks_like_code(word, starts))]
        read_in = [each.target.text for each in command.redirects if each.sign == "<" and each.target.known]
        if (command.fed or read_in) and _reads_code(words):
            named += [*read_in, *(before[1:] if command.fed else ())]
        yield from (os.path.join(start, word) for start in starts for word in named)
        for text in _texts(words, command) if depth < _DEEPEST else ():
            yield from _in_commands(read(text, work=budget).commands, starts, budget, depth + 1)
        before = words


def _words(words: Iterable[Word]) -> list[str]:
    """The texts of words; empty where one is known only at run time."""
    return [word.text if word.known else "" for word in words]


def _looks_like_code(word: str, starts: Iterable[str]) -> bool:
    return any(files.is_code(os.path.join(start, word)) for start in starts)


def _behind(words: Sequence[str]) -> Sequence[str]:
    """The command that is started in the end, without what stands before it."""
    while words and os.path.basename(words[0]) in _BEFORE:
        at = 1
        while at < len(words) and (
            words[at].startswith("-")
            or "=" in words[at]
            or words[at].rstrip("smhd").replace(".", "").isdigit()
        ):
            at += 2 if words[at] in _TAKE_A_WORD else 1
        words = words[at:]
    return words


def _run(words: Sequence[str]) -> Iterator[str]:
    """The words that name the program, and the code that it is given."""
    words = _behind(words)
    if not words:
        return
    program = os.path.basename(words[0])
    if "/" in words[0]:
        yield words[0]
    if program in (".", "source"):
        yield from words[1:2]
    elif program.startswith(("python", "pypy")) and "-m" in words[:-1]:
        yield from _module("", words[words.index("-m") + 1])
        yield os.path.join(words[words.index("-m") + 1].replace(".", "/"), "__main__.py")
    elif program in _FROM_A_FILE:
        for word, after in itertools.pairwise(words):
            if word in _FROM_A_FILE[program]:
                yield after
    elif program.lower() in _RUN_A_FILE:
        yield from [word for word in words[1:] if word != "run" and not word.startswith("-")][:1]
    elif script := script_of(words):
        yield script


def _reads_code(words: Sequence[str]) -> bool:
    """True for an interpreter that reads its code from its input."""
    words = _behind(words)
    program = os.path.basename(words[0]).rstrip("0123456789.") if words else ""
    return (program in SHELLS or program in _INTERPRETERS) and all(
        word.startswith("-") and set(word).isdisjoint("cem") for word in words[1:]
    )


def _texts(words: Sequence[str], command: ShellCommand) -> Iterator[str]:
    """The texts that a shell is given to run: by `-c`, by `eval`, and on its input."""
    words = _behind(words)
    if not words:
        return
    if words[0] == "eval":
        yield " ".join(words[1:])
    elif os.path.basename(words[0]) in SHELLS:
        options = [at for at, word in enumerate(words) if word.startswith("-") and word.endswith("c")]
        yield from (words[at + 1] for at in options if at + 1 < len(words))
        yield from command.bodies
