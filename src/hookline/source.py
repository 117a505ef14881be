"""YAML and JSON files with line numbers: plain values whose mappings and lists know where they were written.

Every file dialect reads through here, so that each complaint names its file and line. The values are those of
YAML 1.2: `on`, `off`, `yes` and `no` are words. Anchors, aliases and merges (`<<`) work; tags of other types,
a key written twice, an alias bomb and bottomless nesting are refused.
"""

import json
import re
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

from hookline.engine.stdlib import lazy_pattern
from hookline.errors import FileError
from hookline.files import fixed

MAX_BYTES = 4_000_000
MAX_DEPTH = 100
MAX_VALUES = 100_000
"""How many values a file may have, with aliases expanded."""

Trail = tuple[str | int, ...]
"""The keys and positions that lead to a value inside a document."""


SUFFIXES = (".yaml", ".yml", ".json")


class LinedDict(dict[str, Any]):
    """A mapping. `lines` has the line of each key."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


class LinedList(list[Any]):
    """A list. `lines` has the line of each item."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []


class Document(NamedTuple):
    """One document of a file. An empty one has the value None."""

    value: Any
    file: str
    line: int = 1

    def problem(self, message: str, trail: Trail = (), code: str = "") -> FileError:
        """The problem at the end of the trail, with its line and key."""
        line, key = line_of(self, trail), key_of(trail) or None
        return FileError(message, file=self.file, line=line, key=key, code=code)


class FrontMatter(NamedTuple):
    """A text file that may begin with YAML between two lines of `---`. `body_line` is where the rest begins."""

    document: Document
    body: str
    body_line: int


class Wrong(Exception):
    """A mistake in a value that is being read, and the trail from that value to its place."""

    def __init__(self, message: str, trail: Trail = ()) -> None:
        super().__init__(message)
        self.message = message
        self.trail = trail


def read(file: str | PathLike[str]) -> Document:
    """The one document of a YAML or JSON file."""
    return load(text_of(file), file)


def load(text: str, file: str | PathLike[str]) -> Document:
    """The one document of a text; a second one is refused, unless there is nothing in it."""
    found = [document for document in load_all(text, file) if document.value is not None]
    if len(found) > 1:
        raise FileError(
            "a second document begins here (after ---); this file has only one", file=file, line=found[1].line
        )
    return found[0] if found else Document(None, str(file))


def load_all(text: str, file: str | PathLike[str]) -> list[Document]:
    """Every document of a text; none where there is nothing but comments."""
    known = text.removeprefix("\ufeff")
    _refuse_unprintable(known, file)
    if str(file).endswith(".json"):
        known = _checked_json(known, file)
    return list(_Reader(known, str(file)).documents())


def front_matter(
    text: str, file: str | PathLike[str], *, unclosed: Callable[[FileError], None] | None = None
) -> FrontMatter:
    """The YAML between a first line `---` and the next one, and what follows it; without them all is body.

    If the closing line is missing, an error is raised, or passed to `unclosed`: then all of the file is front matter.
    """
    known = _NEWLINE.sub("\n", text.removeprefix("\ufeff"))
    first, *rest = known.split("\n")
    if first.rstrip() != "---":
        return FrontMatter(Document(None, str(file)), known, 1)
    end = next((number for number, line in enumerate(rest) if line.rstrip() == "---"), None)
    no_end = FileError(
        "the front matter that begins here has no end; close it with a line ---", file=file, line=1
    )
    if end is None and unclosed is None:
        raise no_end
    try:
        # The first line stays, empty: line numbers are those of the file.
        document = load("\n".join(["", *rest[:end], ""]), file)
    except FileError as exc:
        if end is not None:
            raise
        raise FileError(f"{no_end.message} ({exc.message})", file=file, line=1, key=exc.key) from exc
    if end is None:
        assert unclosed is not None
        unclosed(no_end)
        return FrontMatter(document, "", len(rest) + 1)
    return FrontMatter(document, "\n".join(rest[end + 1 :]), end + 3)


def file_and_name(target: str) -> tuple[Path, str]:
    """`agent.yaml:name` as its two parts; the name is empty where there is none."""
    place, _, name = target.rpartition(":")
    whole = not place or Path(target).exists()
    return (Path(target), "") if whole else (Path(place), name)


def text_of(file: str | PathLike[str], called: str = "a file of hooks") -> str:
    """A user's text file: UTF-8, with or without a byte order mark, not too big.

    If it cannot be opened, the error has its cause.
    """
    try:
        content = fixed(file)
        if content is None:
            with open(file, "rb") as opened:
                content = opened.read(MAX_BYTES + 1)
    except FileNotFoundError as exc:
        raise FileError("there is no such file", file=file) from exc
    except (OSError, ValueError) as exc:
        raise FileError(f"cannot be read: {getattr(exc, 'strerror', None) or exc}", file=file) from exc
    if len(content) > MAX_BYTES:
        raise FileError(f"is larger than {MAX_BYTES // 1_000_000} MB; this is not {called}", file=file)
    return _decoded(content, file)


def line_of(document: Document, trail: Trail = ()) -> int:
    """The line of what the trail leads to, or of the last thing on it that is there."""
    line, value = document.line, document.value
    for part in trail:
        try:
            line, value = value.lines[part], value[part]
        except (AttributeError, LookupError, TypeError):
            break
    return line


def key_of(trail: Trail) -> str:
    """A trail as it is shown: `hooks[2].timeout`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in trail).removeprefix(".")


def without_lines(value: Any) -> Any:
    """The same value of plain dicts and lists."""
    if isinstance(value, dict):
        return {key: without_lines(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [without_lines(item) for item in cast("list[Any]", value)]
    return value


class _Reader:
    """Makes values of the parser's events: depth and size are known before anything is built of them."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._events: Iterator[Any] = _events(text, file)
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._open: set[str] = set()
        self._trail: list[str | int] = []
        self._count = 0

    def documents(self) -> Iterator[Document]:
        for event in self._events:
            if type(event).__name__ == "DocumentStartEvent":
                self._anchors, self._open = {}, set()
                first = next(self._events)
                yield Document(self._value(first), self._file, _line(first))

    def _value(self, event: Any) -> Any:
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._aliased(event)
        self._counted(1, event)
        before = self._count
        if event.anchor:
            self._anchors.pop(event.anchor, None)
            self._open.add(event.anchor)
        if kind == "ScalarEvent":
            value = self._scalar(event)
        else:
            value = self._sequence(event) if kind == "SequenceStartEvent" else self._mapping(event)
        if event.anchor:
            self._open.discard(event.anchor)
            self._anchors[event.anchor] = value, self._count - before + 1
        return value

    def _scalar(self, event: Any) -> Any:
        if event.tag == _STR or (event.tag is None and not event.implicit[0]):
            return event.value
        if event.tag not in (None, "!", *_TAGS):
            raise self._wrong(f"the tag {_shown_tag(event.tag)} is not known; write the plain value", event)
        try:
            tag, value = _resolved(event.value)
        except ValueError:
            raise self._wrong("this number is too long", event) from None
        if event.tag in _TAGS and event.tag != tag:
            raise self._wrong(f"{event.value!r} is not of the type {_shown_tag(event.tag)}", event)
        return event.value if event.tag == "!" else value

    def _sequence(self, event: Any) -> LinedList:
        self._collection(event, _SEQ)
        found = LinedList()
        for item in self._until("SequenceEndEvent"):
            self._trail.append(len(found))
            found.lines.append(_line(item))
            found.append(self._value(item))
            self._trail.pop()
        return found

    def _mapping(self, event: Any) -> LinedDict:
        self._collection(event, _MAP)
        found = LinedDict()
        merged: list[LinedDict] = []
        for item in self._until("MappingEndEvent"):
            key, line = self._key(item), _line(item)
            self._trail.append(key)
            if key in found.lines:
                raise self._wrong(f"this key is given twice; first in line {found.lines[key]}", item)
            found.lines[key] = line
            value = self._value(next(self._events))
            if key == "<<" and not getattr(item, "style", "alias"):
                merged += self._merged(value, item)
            else:
                found[key] = value
            self._trail.pop()
        if "<<" not in found:
            found.lines.pop("<<", None)
        _merge(found, merged)
        return found

    def _key(self, event: Any) -> str:
        """Keys are text, as written: `on`, `1` and `null` too."""
        if type(event).__name__ == "AliasEvent":
            value = self._aliased(event)
            if isinstance(value, str):
                return value
        elif type(event).__name__ == "ScalarEvent":
            if event.tag not in (None, "!", _STR):
                raise self._wrong(f"a key has no tag; {_shown_tag(event.tag)} was written", event)
            self._counted(1, event)
            if event.anchor:
                self._anchors[event.anchor] = event.value, 1
            return event.value
        raise self._wrong("a key is text; this is a list or a mapping", event)

    def _merged(self, value: Any, event: Any) -> list[LinedDict]:
        given = cast("list[Any]", value if isinstance(value, LinedList) else [value])
        if not all(isinstance(each, LinedDict) for each in given):
            raise self._wrong("only a mapping, or a list of mappings, can be merged", event)
        return cast("list[LinedDict]", given)

    def _aliased(self, event: Any) -> Any:
        if event.anchor in self._open:
            raise self._wrong(f"*{event.anchor} is used inside its own anchor", event)
        if event.anchor not in self._anchors:
            raise self._wrong(
                f"nothing is named &{event.anchor} above; to write a text with a star, quote it: '*...'",
                event,
            )
        value, size = self._anchors[event.anchor]
        self._counted(size, event)
        return value

    def _collection(self, event: Any, tag: str) -> None:
        if event.tag not in (None, "!", tag):
            raise self._wrong(f"the tag {_shown_tag(event.tag)} is not known; leave it out", event)
        if len(self._trail) >= MAX_DEPTH:
            self._trail.clear()
            raise self._wrong(f"is nested more than {MAX_DEPTH} deep", event)

    def _counted(self, size: int, event: Any) -> None:
        self._count += size
        if self._count > MAX_VALUES:
            self._trail.clear()
            raise self._wrong(f"has more than {MAX_VALUES} values, with aliases expanded", event)

    def _until(self, end: str) -> Iterator[Any]:
        for event in self._events:
            if type(event).__name__ == end:
                return
            yield event

    def _wrong(self, message: str, event: Any) -> FileError:
        return FileError(message, file=self._file, line=_line(event), key=key_of(tuple(self._trail)) or None)


_PREFIX = "tag:yaml.org,2002:"
_STR, _SEQ, _MAP = (f"{_PREFIX}{word}" for word in ("str", "seq", "map"))
_NULL, _BOOL, _INT, _FLOAT = (f"{_PREFIX}{word}" for word in ("null", "bool", "int", "float"))
_TAGS = (_STR, _NULL, _BOOL, _INT, _FLOAT)

_WORDS: dict[str, tuple[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), (_NULL, None)),
    **dict.fromkeys(("true", "True", "TRUE"), (_BOOL, True)),
    **dict.fromkeys(("false", "False", "FALSE"), (_BOOL, False)),
    **{word: (_FLOAT, float("nan")) for word in (".nan", ".NaN", ".NAN")},
    **{
        f"{sign}{word}": (_FLOAT, float(f"{sign}inf"))
        for sign in ("", "+", "-")
        for word in (".inf", ".Inf", ".INF")
    },
}
_INTEGER = lazy_pattern(r"[-+]?[0-9]+", re.ASCII)
_BASED = {"0o": (lazy_pattern("0o[0-7]+"), 8), "0x": (lazy_pattern("0x[0-9a-fA-F]+"), 16)}
_DECIMAL = lazy_pattern(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)


def _resolved(text: str) -> tuple[str, Any]:
    """The type and value of a plain word, by the core schema of YAML 1.2."""
    known = _WORDS.get(text)
    if known is not None:
        return known
    if text[0] not in "+-.0123456789":
        return _STR, text
    if _INTEGER.fullmatch(text):
        return _INT, int(text)
    if _DECIMAL.fullmatch(text):
        return _FLOAT, float(text)
    form, base = _BASED.get(text[:2], (None, 10))
    return (_INT, int(text, base)) if form and form.fullmatch(text) else (_STR, text)


def _merge(found: LinedDict, merged: list[LinedDict]) -> None:
    """Keys of the mapping itself win over merged ones, then the first of those merged into it."""
    for source in merged:
        for key, value in source.items():
            if key not in found:
                found[key] = value
                found.lines[key] = source.lines[key]


def _events(text: str, file: str) -> Iterator[Any]:
    # Imported when a file is read: modules that only need the types do not load the parser.
    import yaml

    parser: Any = yaml
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from parser.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as exc:
        raise _not_yaml(exc, text, file) from exc
    except yaml.YAMLError as exc:
        raise FileError(f"this is not YAML: {' '.join(str(exc).split())}", file=file) from exc


_HINTS = {
    "mapping values are not allowed": "a second `: ` in one line, or an indentation that does not fit; quote a value that has `: ` in it",
    "cannot start any token": "a value that begins with @, ` or % must be quoted",
    "did not find expected alphabetic": "a value that begins with * or & must be quoted",
    "did not find expected <document start>": "there is more text after the end of the document",
    "did not find expected '-' indicator": "the indentation does not fit that of the list above",
    "did not find expected key": "the indentation does not fit that of the mapping above",
    "unknown escape character": "write a pattern in single quotes, where a backslash is only a backslash",
}
_INDENTED_BY_TAB = lazy_pattern(r" *\t")


def _not_yaml(exc: Any, text: str, file: str) -> FileError:
    mark: Any = exc.problem_mark or exc.context_mark
    problem: str = exc.problem or str(exc)
    rows = text.rstrip("\n").split("\n")
    # At the end of the text the parser stands in a line that is not there.
    line: int | None = min(mark.line + 1, len(rows)) if mark else None
    if line and _INDENTED_BY_TAB.match(rows[line - 1]):
        return FileError("a tab indents this line; YAML is indented with spaces", file=file, line=line)
    hint = next((hint for part, hint in _HINTS.items() if part in problem), None)
    began = ""
    if exc.context_mark and mark and exc.context_mark.line != mark.line:
        began = f" ({exc.context}, which began in line {exc.context_mark.line + 1})"
    return FileError(f"this is not YAML: {problem}{began}{f'; {hint}' if hint else ''}", file=file, line=line)


_NEWLINE = lazy_pattern(r"\r\n?")


def _decoded(content: bytes, file: str | PathLike[str]) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileError("this is UTF-16; save it as UTF-8", file=file)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise FileError(
            f"this is not UTF-8: the byte 0x{exc.object[exc.start]:02x}",
            file=file,
            line=content.count(b"\n", 0, exc.start) + 1,
        ) from None


# The few that are refused, and not all the others: a class of those takes milliseconds to compile.
_UNPRINTABLE = lazy_pattern("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def _refuse_unprintable(text: str, file: str | PathLike[str]) -> None:
    found = _UNPRINTABLE.search(text)
    if found:
        raise FileError(
            f"the character {found.group()!r} is not allowed in a file; write it as an escape, in double quotes",
            file=file,
            line=text.count("\n", 0, found.start()) + 1,
        )


_ESCAPE = lazy_pattern(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\.", re.DOTALL)


def _checked_json(text: str, file: str | PathLike[str]) -> str:
    """JSON in its own words, then as YAML reads it: a pair of surrogate escapes is one character there."""
    if not text.strip():
        return ""
    try:
        json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as exc:
        raise FileError(f"this is not JSON: {exc.msg}", file=file, line=exc.lineno) from None
    except ValueError as exc:
        raise FileError(f"this is not JSON: {exc}", file=file) from None
    except RecursionError:
        raise FileError(f"is nested more than {MAX_DEPTH} deep", file=file) from None
    return _ESCAPE.sub(_one_character, text)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number of JSON")


def _one_character(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[0]
    return chr(0x10000 + ((int(found[1], 16) - 0xD800) << 10) + int(found[2], 16) - 0xDC00)


def _line(event: Any) -> int:
    return event.start_mark.line + 1


def _shown_tag(tag: str) -> str:
    return f"!!{tag.removeprefix(_PREFIX)}" if tag.startswith(_PREFIX) else tag
