"""A settings file as text: JSON read with line numbers, and edited without a change to any other byte."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable
from os import PathLike
from typing import Any, NamedTuple

from hookline.errors import FileError
from hookline.source import Document, LinedDict, LinedList, Trail

BOM = "\ufeff"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class JsonNode:
    """A value of the text: where it begins and ends, how it opens (`{` or `[`), and its members."""

    __slots__ = ("end", "members", "opening", "start")

    def __init__(self, start: int, end: int = 0, opening: str = "") -> None:
        self.start = start
        self.end = end
        self.opening = opening
        self.members: list[Member] = []

    def index(self, part: str | int) -> int:
        """The position of a member that is there, by its key or as it is."""
        if isinstance(part, int):
            return part
        return max(index for index, each in enumerate(self.members) if each.key == part)

    def at(self, key: str) -> JsonNode | None:
        """The value of a key; the last one of a key that is there twice, as readers of JSON have it."""
        return next((each.value for each in reversed(self.members) if each.key == key), None)


class Member(NamedTuple):
    """An element of a list, or a key with its value; `start` is where the key begins."""

    key: str | None
    start: int
    value: JsonNode

    @property
    def end(self) -> int:
        return self.value.end


class Insertion(NamedTuple):
    """New text, and the place in the old text before which it goes."""

    at: int
    text: str


def load_json(text: str, file: str | PathLike[str]) -> tuple[Document, list[tuple[Trail, int]]]:
    """A JSON document with line numbers, and the keys that come twice, of which the last one counts.

    Not read as YAML: that refuses some JSON (a colon on the next line, half a surrogate pair), and a key that comes
    twice anywhere. The agent whose file this is reads it, so its guards must not be lost here.
    """
    known = text.removeprefix(BOM)
    try:
        json.loads(known)
    except json.JSONDecodeError as exc:
        hint = "; the file is empty" if not known.strip() else ""
        told = f"not JSON: {exc.msg} at column {exc.colno}{hint}"
        raise FileError(told, file=file, line=exc.lineno) from None
    except (ValueError, RecursionError) as exc:
        raise FileError(f"not JSON that can be read: {exc}", file=file) from None
    value, line, twice = _with_lines(known)
    return Document(value, str(file), line), twice


def _with_lines(text: str) -> tuple[Any, int, list[tuple[Trail, int]]]:
    """The value of a text, its line, and the keys that come twice; without recursion, however deep it is nested."""
    breaks = [found.end() for found in re.finditer("\n", text)]

    def line_at(place: int) -> int:
        return bisect_right(breaks, place) + 1

    root = nodes(text)
    top = LinedList()
    twice: list[tuple[int, Trail]] = []
    waiting: list[tuple[LinedDict | LinedList, list[Member], Trail]]
    waiting = [(top, [Member(None, root.start, root)], ())]
    while waiting:
        within, members, trail = waiting.pop()
        for member in members:
            node, line = member.value, line_at(member.start)
            if node.opening:
                value = LinedDict() if node.opening == "{" else LinedList()
            else:
                value = json.loads(text[node.start : node.end])
            if isinstance(within, LinedDict):
                key = member.key or ""
                if key in within:
                    twice.append((member.start, (*trail[1:], key)))
                within[key] = value
                within.lines[key] = line
            else:
                key = len(within)
                within.append(value)
                within.lines.append(line)
            if isinstance(value, LinedDict | LinedList):
                waiting.append((value, node.members, (*trail, key)))
    return top[0], top.lines[0], [(trail, line_at(place)) for place, trail in sorted(twice)]


def nodes(text: str) -> JsonNode:
    """The outermost value of a text that is known to be JSON."""
    root = JsonNode(0)
    open_: list[JsonNode] = [root]
    key: tuple[str, int] | None = None
    tokens = [
        (found.group(), found.start(), found.end()) for found in _TOKEN.finditer(text, text.startswith(BOM))
    ]
    for index, (token, start, end) in enumerate(tokens):
        if token in ",:":
            continue
        if token in "}]":
            open_.pop().end = end
            continue
        if open_[-1].opening == "{" and key is None and tokens[index + 1][0] == ":":
            key = json.loads(token), start
            continue
        made = JsonNode(start, end, token if token in "{[" else "")
        open_[-1].members.append(Member(key[0] if key else None, key[1] if key else start, made))
        key = None
        if made.opening:
            open_.append(made)
    return root.members[0].value


def insertion(text: str, into: JsonNode, entries: list[tuple[str | None, Any]]) -> Insertion:
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
    if "\n" not in text.strip() and text.removeprefix(BOM).strip() != "{}":
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


def without(text: str, trail: Trail, *outer: Trail) -> str:
    """The text without what a trail leads to, its comma and line break included.

    Where nothing else stands beside that, it is removed with what is around it: what the first of `outer` leads to.
    """
    within = nodes(text)
    for part in trail[:-1]:
        within = within.members[within.index(part)].value
    members, index = within.members, within.index(trail[-1])
    if len(members) > 1:
        start = members[index - 1].end if index else members[0].start
        end = members[index].end if index else members[1].start
    elif outer:
        return without(text, *outer)
    else:
        start, end = within.start + 1, within.end - 1
    return text[:start] + text[end:]


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
