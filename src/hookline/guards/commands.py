"""The commands in the input of a shell tool, under any of the keys that agents use, as a text or a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

KEYS = ("command", "cmd", "script", "shell_command", "commands", "argv", "code", "chars", "stdin", "input")
ARGUMENTS = ("args", "arguments")
FOLDERS = ("cwd", "workdir", "working_directory", "dir")


def asked(payload: Any) -> Iterator[str | list[str]]:
    """Each command in a tool's input: a text for a shell, or a list of arguments."""
    if isinstance(payload, Mapping):
        given = cast("Mapping[str, Any]", payload)
        known = [key for key in KEYS if given.get(key)]
        # If the tool uses another key for its command, all values are searched.
        for key in known or [key for key in given if key not in FOLDERS]:
            if key == "commands" and isinstance(given[key], list):
                for item in cast("list[Any]", given[key]):
                    yield from asked(item)
            yield from _with_arguments(given[key], given) if known else asked(given[key])
    elif isinstance(payload, str):
        yield payload
    elif isinstance(payload, list):
        yield from _listed(cast("list[Any]", payload))


def _with_arguments(value: Any, given: Mapping[str, Any]) -> Iterator[str | list[str]]:
    more = next((given[key] for key in ARGUMENTS if given.get(key)), None)
    if not isinstance(value, str) or more is None:
        yield from asked(value)
        return
    words: list[Any] = cast("list[Any]", more) if isinstance(more, list) else [more]
    yield [value, *map(str, words)]
    yield " ".join([value, *map(str, words)])


def _listed(items: list[Any]) -> Iterator[str | list[str]]:
    if not all(isinstance(item, str | int | float) for item in items):
        for item in items:
            yield from asked(item)
        return
    words = [str(item) for item in items]
    yield words
    if any(" " in words[0] or word in ("&&", "||", ";", "|", "&") for word in words[:1] + words):
        # The list may hold lines, or one text in pieces, instead of arguments.
        yield "\n".join(words)
        yield " ".join(words)
