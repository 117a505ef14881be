"""Putting entries into a JSON text and taking them out again, without touching any other byte of it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(slots=True, kw_only=True)
class Node:
    """A value of the text: where it stands, and what is in it."""

    start: int
    end: int = 0
    opening: str = ""
    members: list[Member] = field(default_factory=list["Member"])

    def at(self, key: str) -> Node | None:
        """As readers of JSON have it: of a key that is there twice, the last."""
        return next((each.value for each in reversed(self.members) if each.key == key), None)


class Member(NamedTuple):
    """An element of a list, or a key with its value; `start` is where the key begins."""

    key: str | None
    start: int
    value: Node

    @property
    def end(self) -> int:
        return self.value.end


class Insertion(NamedTuple):
    """New text, and the place in the old text before which it goes."""

    at: int
    text: str


def nodes(text: str) -> Node:
    """The outermost value of a text that is known to be JSON."""
    root = Node(start=0)
    open_: list[Node] = [root]
    key: tuple[str, int] | None = None
    tokens = [(found.group(), found.start(), found.end()) for found in _TOKEN.finditer(text)]
    for index, (token, start, end) in enumerate(tokens):
        if token in ",:":
            continue
        if token in "}]":
            open_.pop().end = end
            continue
        if open_[-1].opening == "{" and key is None and tokens[index + 1][0] == ":":
            key = json.loads(token), start
            continue
        made = Node(start=start, end=end, opening=token if token in "{[" else "")
        open_[-1].members.append(Member(key[0] if key else None, key[1] if key else start, made))
        key = None
        if made.opening:
            open_.append(made)
    return root.members[0].value


def insertion(text: str, into: Node, entries: list[tuple[str | None, Any]]) -> Insertion:
    """The entries at the end of an object or a list, in the manner in which the text is written."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if into.members:
        last = into.members[-1]
        margin = _margin(text, last.start)
        if margin is None:
            return Insertion(last.end, "".join(f", {_line(text, *each)}" for each in entries))
        unit = _unit(text)
        shown = [_block(each, unit, newline + margin) for each in entries]
        return Insertion(last.end, "".join(f",{newline}{margin}{each}" for each in shown))
    if "\n" not in text.strip() and text.strip() != "{}":
        return Insertion(into.start + 1, ", ".join(_line(text, *each) for each in entries))
    outer = _indent(text, into.start)
    margin = outer + _unit(text)
    body = ",".join(f"{newline}{margin}{_block(each, _unit(text), newline + margin)}" for each in entries)
    closed = "\n" in text[into.start : into.end]
    return Insertion(into.start + 1, body if closed else body + newline + outer)


def inserted(text: str, insertions: Iterable[Insertion]) -> str:
    for at, new in sorted(insertions, reverse=True):
        text = text[:at] + new + text[at:]
    return text


def undone(text: str, insertions: Iterable[Insertion]) -> str:
    """The text as it was before `inserted`."""
    for at, new in sorted(insertions):  # each is back at its old place once those before it are gone
        assert text.startswith(new, at)
        text = text[:at] + text[at + len(new) :]
    return text


def removals(within: Node, gone: set[int]) -> list[tuple[int, int]]:
    """The stretches of text that members take with them, their commas and line breaks included."""
    members = within.members
    if len(gone) == len(members):
        return [(within.start + 1, within.end - 1)]
    first = min(set(range(len(members))) - gone)
    return [
        (members[index].start, members[index + 1].start)
        if index < first
        else (members[index - 1].end, members[index].end)
        for index in gone
    ]


def removed(text: str, stretches: Iterable[tuple[int, int]]) -> str:
    for start, end in sorted(stretches, reverse=True):
        text = text[:start] + text[end:]
    return text


def _block(entry: tuple[str | None, Any], unit: str, newline: str) -> str:
    key, value = entry
    shown = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline)
    return shown if key is None else f"{json.dumps(key)}: {shown}"


def _line(text: str, key: str | None, value: Any) -> str:
    tight = re.search(r'":\S', text) is not None
    shown = json.dumps(value, separators=(",", ":") if tight else None, ensure_ascii=False)
    return shown if key is None else f"{json.dumps(key)}:{'' if tight else ' '}{shown}"


def _margin(text: str, at: int) -> str | None:
    """The white space before what begins its line; None where something else begins it."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return before if "\n" in text[:at] and not before.strip() else None


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _unit(text: str) -> str:
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "
