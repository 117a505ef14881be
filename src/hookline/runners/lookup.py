"""Why a command cannot start, looked up beforehand or told from the system's error.

`python3 missing.py` and `bash missing.sh` start well and then exit with 2 or 127, and 2 is a refusal in the protocol
of command hooks. So the script of a known interpreter is looked up first.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple


class _Interpreter(NamedTuple):
    """`no_script`: letters of options after which no script file follows; `takes`: options with a value behind."""

    no_script: str
    takes: frozenset[str]
    suffixes: tuple[str, ...] = ("",)
    on_path: bool = False


_SHELL = _Interpreter("cs", frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}), on_path=True)
_NODE = _Interpreter(
    "ep",
    frozenset({"-r", "--require", "--import", "-C", "--conditions", "--env-file", "--loader"}),
    ("", ".js", ".json", ".node"),
)
_INTERPRETERS = {
    "python": _Interpreter("cm", frozenset({"-W", "-X", "--check-hash-based-pycs"})),
    "pypy": _Interpreter("cm", frozenset({"-W", "-X"})),
    "sh": _SHELL,
    "bash": _SHELL,
    "dash": _SHELL,
    "ash": _SHELL,
    "ksh": _SHELL,
    "zsh": _SHELL,
    "node": _NODE,
    "nodejs": _NODE,
    "ruby": _Interpreter("e", frozenset({"-I", "-r", "-C", "-E"})),
    "perl": _Interpreter("eE", frozenset({"-I"})),
}
# What makes a text more than one command and its words. `$NAME` and `${NAME}` are known, other uses of $ are not.
_NOT_PLAIN = re.compile(r"[|&;<>()`*?\[\]~#!\n\\]|\$(?!\w|\{\w+\})|\$\d")
_NAME = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_VERSION = re.compile(r"[0-9.]+$")
_ASSIGNMENT = re.compile(r"\w+=")
# Options that end the interpreter at once, or where a file name means something else.
_NO_SCRIPT = frozenset({"-", "--eval", "--print", "--version", "--help", "--test", "--command", "-h", "-V"})


def missing_script(
    argv: Sequence[str],
    cwd: str | None,
    env: Mapping[str, str],
    exists: Callable[[str], bool] = os.path.exists,
) -> str | None:
    """What is wrong, where an interpreter is given a script that is not there; None also where that is unclear."""
    if len(argv) == 3 and argv[1] in ("-c", "-lc") and _INTERPRETERS.get(os.path.basename(argv[0])) is _SHELL:
        argv = _inside(argv[2], env)
    while argv and os.path.basename(argv[0]) == "env":
        argv = _behind_env(argv)
    if len(argv) < 2:
        return None
    name = os.path.basename(argv[0])
    interpreter = _INTERPRETERS.get(name) or _INTERPRETERS.get(_VERSION.sub("", name))
    script = _script(interpreter, argv) if interpreter else None
    if interpreter is None or script is None:
        return None
    place = os.path.join(cwd or os.getcwd(), script)
    if any(exists(place + suffix) for suffix in interpreter.suffixes):
        return None
    if interpreter.on_path and "/" not in script and _on_path(script, env):
        return None
    return f"{name} would run {script!r}, and there is no such file{_seen_from(script, cwd)}"


def script_of(argv: Sequence[str]) -> str | None:
    """The file that a known interpreter is given to run; None also where that is unclear."""
    name = os.path.basename(argv[0]) if argv else ""
    interpreter = _INTERPRETERS.get(name) or _INTERPRETERS.get(_VERSION.sub("", name))
    return _script(interpreter, argv) if interpreter else None


def why_not_started(argv: Sequence[str], cwd: str | None, exc: Exception) -> str:
    """The system's error as a sentence that says what would be right."""
    program = argv[0] if argv else ""
    code = exc.errno if isinstance(exc, OSError) else None
    if cwd is not None and not os.path.isdir(cwd):
        what = "is not a folder" if os.path.exists(cwd) else "does not exist"
        return f"its working folder {cwd!r} {what}"
    if code in (errno.ENOENT, errno.ENOTDIR):
        if "/" not in program:
            return f"{program!r} was not found; is it installed and on PATH?"
        if os.path.exists(os.path.join(cwd or "", program)):
            return f"{program!r} is there, but the interpreter that its first line names is not"
        return f"{program!r} does not exist{_seen_from(program, cwd)}"
    if code == errno.EACCES:
        if os.path.isdir(os.path.join(cwd or "", program)):
            return f"{program!r} is a folder"
        return f"{program!r} is not executable; chmod +x it, or name its interpreter"
    if code == errno.ENOEXEC:
        return f"{program!r} is no program: its first line names no interpreter; begin it with #!/bin/sh or the like"
    if code == errno.E2BIG:
        return "its arguments and environment are too long for this system"
    return f"{exc}"


def _on_path(script: str, env: Mapping[str, str]) -> bool:
    import shutil  # slow to load, and few commands are looked up so

    return shutil.which(script, path=env.get("PATH")) is not None


def _seen_from(path: str, cwd: str | None) -> str:
    return "" if os.path.isabs(path) else f" in {cwd or os.getcwd()!r}"


def _inside(text: str, env: Mapping[str, str]) -> list[str]:
    """The command that a shell would run, where the text is one plain command; else nothing."""
    words = [_filled(word, env) for word in _words(text)]
    if "$" in text and '"' not in text and any(not word or " " in word for word in words):
        return []  # the shell would split it further
    while words and (words[0] == "exec" or _ASSIGNMENT.match(words[0])):
        words.pop(0)
    return words


@lru_cache(maxsize=256)
def _words(text: str) -> tuple[str, ...]:
    if _NOT_PLAIN.search(text) or ("'" in text and "$" in text):
        return ()
    if text.isascii() and text.isprintable() and "'" not in text and '"' not in text:
        return tuple(text.split())  # as the next would, which is slow to load
    import shlex

    try:
        return tuple(shlex.split(text))
    except ValueError:
        return ()


def _filled(word: str, env: Mapping[str, str]) -> str:
    return _NAME.sub(lambda match: env.get(match[1] or match[2], ""), word)


def _behind_env(argv: Sequence[str]) -> Sequence[str]:
    """The command that `env` would run; nothing where it has options."""
    rest = list(argv[1:])
    while rest and _ASSIGNMENT.match(rest[0]):
        rest.pop(0)
    return [] if rest and rest[0].startswith("-") else rest


def _script(interpreter: _Interpreter, argv: Sequence[str]) -> str | None:
    words = iter(argv[1:])
    for word in words:
        if word == "--":
            return next(words, None)
        if not word.startswith(("-", "+")):
            return word
        if word in _NO_SCRIPT or _ends_options(interpreter, word):
            return None
        if word in interpreter.takes or (interpreter is _SHELL and word[-1] in "oO"):
            next(words, None)
        elif word.startswith("--") and "=" not in word and interpreter is _NODE:
            return None  # it may or may not take the next word
    return None


def _ends_options(interpreter: _Interpreter, word: str) -> bool:
    """Whether no script follows, as behind -c, also in a cluster such as -lc."""
    return not word.startswith("--") and any(letter in word for letter in interpreter.no_script)
