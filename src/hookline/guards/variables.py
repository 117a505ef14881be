"""Shell variables as far as a text shows them: the values they are given, the expansions of `${...}`, and the texts that are printed.

A value is text; a part that is only known at run time is a hole in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from hookline.engine.stdlib import lazy_pattern
from hookline.guards.commands import HOLE, ShellCommand, Word, names, unescaped

# Builtins that store a text in a variable or function, which may be run later.
NAMES = names("set for read export declare typeset local readonly mapfile readarray printf select")
READERS = names("read mapfile readarray select")
MOST_POSITIONAL = 20

_PARAMETER = lazy_pattern(r"(!?)([A-Za-z_]\w*|[0-9]+|[@*])(?:\[([^\]]*)\])?(.*)", re.DOTALL)
_SLICE = lazy_pattern(r":\s*(\d{1,6})(?::\s*(\d{1,6}))?")
_FORMAT = lazy_pattern(r"%(?:%|-?\d{0,3}[sbqdc])")
_ECHO_OPTION = lazy_pattern(r"-[neE]+")


def given_values(command: ShellCommand) -> Iterator[tuple[str, Word]]:
    """The variables that a command gives a value."""
    yield from command.assigned
    name, words = command.program, command.words
    if name == "for" or name == "select":
        if len(words) > 3 and words[2].text == "in":
            for word in words[3:]:
                yield words[1].text, word
    elif name == "set":
        texts = [word.text for word in words[1:]]
        start = texts.index("--") + 2 if "--" in texts else 1
        given = [word for word in words[start:] if start > 1 or not word.text.startswith(("-", "+"))]
        for key, value in positional([word.text for word in given]).items():
            yield key, Word(value, "q" * len(value))
    elif name == "printf" and len(words) > 3 and words[1].text == "-v":
        value = formatted([word.text for word in words[3:]])
        yield words[2].text, Word(value, "q" * len(value))
    elif name == "read" and command.bodies:
        plain = [word.text for word in words[1:] if word.text.isidentifier()]
        pieces = command.bodies[0].split(None, len(plain) - 1) if plain else []
        for key, value in zip(plain, pieces, strict=False):
            yield key, Word(value, "q" * len(value))
    elif name in NAMES or name == "env":
        for word in words[1:]:
            key, sign, _ = word.text.partition("=")
            if sign and key.rstrip("+").isidentifier():
                yield key.rstrip("+"), word.after(len(key) + 1)


def values_in(commands: Iterable[ShellCommand], *, first: bool = False) -> dict[str, str]:
    """The last known value of each variable, or the first."""
    found: dict[str, str] = {}
    for command in commands:
        for name, word in given_values(command):
            if word.known and not (first and found.get(name)):
                found[name] = word.text
    return found


def assign(variables: dict[str, str], command: ShellCommand) -> None:
    """Gives the variables the values that a command gives them."""
    loops = command.program in ("for", "select")
    for name, word in given_values(command):
        if loops and name in variables:
            continue  # one of its values, and who reads has chosen
        before = variables.get(name, "") if name in command.added else ""
        variables[name] = (before + word.text)[-100_000:]


def positional(texts: Sequence[str]) -> dict[str, str]:
    """The variables `$1`, `$2` and so on, `$@` and `$*`, for some arguments."""
    return {
        **{str(at): text for at, text in enumerate(texts[:MOST_POSITIONAL], 1)},
        "@": " ".join(texts),
        "*": " ".join(texts),
    }


def expanded(content: str, variables: Mapping[str, str]) -> str | None:
    """The value of `${content}`; None if that cannot be known."""
    found = _PARAMETER.fullmatch(content)
    if found is None:
        return None
    indirect, name, index, operation = found.groups()
    if indirect:
        name = variables.get(name, "")
    value = variables.get(f"{name}[{index}]") if index is not None else None
    if value is None:
        value = variables.get(name)
        if value is not None and index is not None and index.isdigit():
            pieces = value.split()
            value = pieces[int(index)] if int(index) < len(pieces) else ""
    return _operated(value, operation, whole=name in "@*" or index in ("@", "*"))


def _operated(value: str | None, operation: str, *, whole: bool) -> str | None:
    sign, rest = operation[:1], operation[1:]
    if operation.startswith((":-", ":=", "-", "=")):
        return value or operation.lstrip(":")[1:]
    if operation.startswith((":+", "+")):
        return operation.lstrip(":")[1:] if value else ""
    if value is None or not operation:
        return value
    if sign == ":":
        cut = _SLICE.fullmatch(operation)
        if whole or cut is None:
            return value
        start = int(cut[1])
        return value[start : start + int(cut[2])] if cut[2] else value[start:]
    if sign in "^,":
        return value.upper() if sign == "^" else value.lower()
    if sign == "/":
        pattern, _, new = rest.lstrip("/#%").partition("/")
        return value.replace(pattern, new, -1 if rest.startswith("/") else 1) if pattern else value
    if sign in "#%":
        return _trimmed(value, rest.lstrip(sign), sign)
    return unescaped(value) if sign == "@" else None


def _trimmed(value: str, pattern: str, sign: str) -> str:
    if len(value) > 200:
        return HOLE
    for size in range(len(value) + 1):
        head, tail = (
            (value[:size], value[size:])
            if sign == "#"
            else (value[-size or len(value) :], value[: len(value) - size])
        )
        if fnmatchcase(head, pattern):
            return tail
    return value


def printed(command: ShellCommand) -> str:
    """The output of a command, as far as its text shows it."""
    words = [word.text for word in command.words[1:]]
    name = command.program
    if name == "printf" and words[:1] != ["-v"]:
        return formatted(words[1:] if words[:1] == ["--"] else words)
    if name == "echo":
        end, escapes = "\n", False
        while words and _ECHO_OPTION.fullmatch(words[0]):
            option = words.pop(0)
            end, escapes = ("" if "n" in option else end), escapes or "e" in option
        text = " ".join(words)
        return (unescaped(text) if escapes or "\\" in text else text) + end
    return "\n".join(command.bodies) + ("\n" if command.bodies else "")


def is_printed(command: ShellCommand) -> bool:
    """True if the output of a command is all in its text."""
    known = not command.fed and all(word.known for word in command.words)
    if command.program == "cat":
        bodies = command.bodies
        return (
            known
            and len(command.words) == 1
            and len(bodies) == len(command.redirects)
            and "$" not in "".join(bodies)
        )
    return known and not command.redirects and command.program in ("echo", "printf")


def formatted(words: Sequence[str]) -> str:
    """The output of printf for a format and arguments."""
    if not words:
        return ""
    form, values = unescaped(words[0]), list(words[1:])
    if not _FORMAT.search(form):
        return form
    made: list[str] = []
    while True:
        before = len(values)

        def fill(found: re.Match[str]) -> str:
            if found[0] == "%%":
                return "%"
            value = values.pop(0) if values else ""
            return unescaped(value) if found[0].endswith("b") else value

        made.append(_FORMAT.sub(fill, form))
        if not values or len(values) == before:
            return "".join(made)
