"""Commands of hooks, looked at before they are run: is the program there, and does its shell read the script?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from hookline.claude.clients import asked_by
from hookline.runners.child import inside_shell, missing_program

_OF_SHELLS = (
    " . : alias bg break builtin case cd command continue declare echo eval exec exit export false fc fg for function"
    " getopts hash if jobs kill let local popd printf pushd pwd read readonly return select set shift shopt source test"
    " time times trap true type typeset ulimit umask unalias unset until wait while { "
)
"""Words that a shell knows itself."""


def missing_command(argv: Sequence[str], cwd: str | None, env: Mapping[str, str] = os.environ) -> str | None:
    """An error text if there is no such program or script; also for the one plain command of `sh -c TEXT`, or behind
    the shell of an entry that `hookline install` writes."""
    absent = missing_program(argv, cwd, env)
    words = None if absent is not None else inside_shell(argv, env)
    if words == []:
        words = asked_by(argv[2])
    if not words or f" {words[0]} " in _OF_SHELLS:
        return absent
    return missing_program(words, cwd, env)


def script_fault(argv: Sequence[str]) -> str | None:
    """The mistake that the shell of `sh -c TEXT` finds in the text when it only reads it; None if there is none."""
    if inside_shell(argv, {}) != []:
        return None  # no script, or one plain command
    import subprocess  # slow to load, and few files have a script

    try:
        done = subprocess.run([argv[0], "-n"], input=argv[2], capture_output=True, text=True, check=False)
    except OSError:
        return None  # that it is not there is told of the program
    if not done.returncode:
        return None
    return f"{argv[0]} -n: {done.stderr.strip()} (counted from the script's first line)"
