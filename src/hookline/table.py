"""The table reader: which keys a mapping in a user's file may have, and what reads each of them.

A `Table` reads a mapping into plain values. Every mistake is reported with its file, line and key, and drops only the
entry that is wrong; an unknown key is reported with a suggestion. The same table gives the JSON Schema for
editors and the paths of its keys, by which tests hold the schema of a CustomResourceDefinition to it.

A reader is given a `Node`: a value and where it stands. It returns what the value means, or `UNSET` for the
default. It raises `Wrong` for what is wrong with the value as a whole, and calls `node.wrong` where it can go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from hookline.errors import FileError, meant
from hookline.source import Document, Trail, Wrong

_DURATION_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_GO_DURATION = re.compile(rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(_DURATION_UNITS)})", re.ASCII)

UNSET: Any = object()
"""A reader returns this for a value that counts as not given."""


class Location(NamedTuple):
    """Where something stands in a file."""

    file: str
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def problem(self, message: str, code: str = "") -> FileError:
        return FileError(message, file=self.file, line=self.line, key=self.key, code=code)


class Findings:
    """The problems of a file, and notes on oddities. With `strict` a doubt is a problem too."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.problems: list[FileError] = []
        self.notes: list[FileError] = []

    def doubt(self, warning: FileError) -> None:
        self.notes.append(warning)
        if self.strict:
            self.problems.append(warning)


class Node:
    """A value in a file while it is read. `wanted` says what would be right, where the table does."""

    __slots__ = ("_before", "_document", "findings", "trail", "value", "wanted")

    def __init__(
        self, document: Document, value: Any, trail: Trail, findings: Findings, wanted: str = ""
    ) -> None:
        self.value = value
        self.trail = trail
        self.findings = findings
        self.wanted = wanted
        self._document = document
        self._before = len(findings.problems)

    @classmethod
    def root(cls, document: Document, findings: Findings) -> Node:
        """The whole document."""
        return cls(document, document.value, (), findings)

    def __contains__(self, key: str) -> bool:
        """True if the key is given and not null."""
        return self.of_mapping.get(key) is not None

    @property
    def of_mapping(self) -> Mapping[str, Any]:
        """The value as a mapping, empty where it is none."""
        value: Any = self.value
        return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}

    @property
    def of_list(self) -> list[Any]:
        """The value as a list, empty where it is none."""
        value: Any = self.value
        return cast("list[Any]", value) if isinstance(value, list) else []

    @property
    def is_sound(self) -> bool:
        """True if nothing was found wrong since this node began to be read."""
        return len(self.findings.problems) == self._before

    @property
    def source(self) -> str:
        """File and line, as hooks name where they come from."""
        return str(self.location())

    def problem(self, message: str, *inner: str | int, code: str = "") -> FileError:
        return self._document.problem(message, (*self.trail, *inner), code)

    def location(self, *inner: str | int) -> Location:
        found = self.problem("", *inner)
        return Location(found.file, found.line, found.key)

    def wrong(self, message: str, *inner: str | int, code: str = "") -> None:
        self.findings.problems.append(self.problem(message, *inner, code=code))

    def note(self, message: str, *inner: str | int, code: str = "") -> None:
        self.findings.notes.append(self.problem(message, *inner, code=code))

    def doubt(self, message: str, *inner: str | int, code: str = "") -> None:
        """A note, which is a problem too in strict mode."""
        self.findings.doubt(self.problem(message, *inner, code=code))

    def with_value(self, value: Any) -> Node:
        """The same place with another value."""
        return Node(self._document, value, self.trail, self.findings, self.wanted)

    def child(self, key: str | int, wanted: str = "") -> Node:
        inner = self.value[key]
        return Node(self._document, inner, (*self.trail, key), self.findings, wanted)

    def inside(self, *keys: str) -> Node | None:
        """The value of a key, of a key inside that, and so on; None where one of them is not given."""
        found = self
        for key in keys:
            if key not in found.of_mapping:
                return None
            found = found.child(key)
        return found

    def items(self) -> Iterator[Node]:
        """Each item of the list, none where there is no list. Made one by one: a node is sound on its own."""
        for index in range(len(self.of_list)):
            yield self.child(index)

    def mapping(self, key: str) -> Node | None:
        """The mapping under a key; None if there is none, and any other value is reported."""
        if key not in self:
            return None
        child = self.child(key)
        if isinstance(child.value, Mapping):
            return child
        child.wrong(f"is {child.value!r}; it must be a mapping")
        return None

    def get(self, key: str, read: Reader, default: Any = "", *, needed: str = "") -> Any:
        """One key by itself; the default where it is not given or wrong. `needed` says why it must be there."""
        found = Table({key: Key(read, needed=needed)}, unknown=ignore).read(self)
        return found.get(key, default)


Reader = Callable[[Node], Any]


class Key(NamedTuple):
    """One key of a table.

    `doc` is a sentence for people; `field` the name of its value where that is another. `needed` says what it is for,
    and that it must be there. `today` is the present name of a key that was renamed; only one of the two may stand.
    `shape` is its JSON Schema. `inner` is the table of what is below, where the reader does not say.
    """

    read: Reader
    doc: str = ""
    field: str = ""
    needed: str = ""
    today: str = ""
    shape: Mapping[str, Any] = {}
    inner: Table | None = None

    @property
    def below(self) -> Table | None:
        return self.inner or getattr(self.read, "table", None)


def refuse(node: Node, name: str, table: Table) -> None:
    """Every unknown key is a problem."""
    node.wrong(f"unknown key{table.hint(name)}", name, code="unknown-key")


def refuse_slips(node: Node, name: str, table: Table) -> None:
    """A key that looks like a slip is a problem; any other may be of a newer version, and is only noted."""
    if name in table.instead or "did you mean" in table.hint(name):
        refuse(node, name, table)
    else:
        node.note("this key is not known here and has no effect", name, code="unknown-key")


def warn(node: Node, name: str, table: Table) -> None:
    """An unknown key is only noted."""
    node.note(f"unknown key, which has no effect{table.hint(name)}", name, code="unknown-key")


def ignore(node: Node, name: str, table: Table) -> None:
    """Unknown keys are left to another table."""


class Table(NamedTuple):
    """The keys that a mapping may have, and how others are reported.

    `instead` has wrong names whose spelling does not resemble the right one, each with its hint. Keys that begin with
    `free` are the user's own. A null is a key that is not given, or is `wrong`, or is `read` like any
    value. A mistake is reported at its key, or with the key's name at the entry (`at_entry`).
    """

    keys: Mapping[str, Key]
    instead: Mapping[str, str] = {}
    unknown: Callable[[Node, str, Table], None] = refuse
    free: str = ""
    null: Literal["unset", "wrong", "read"] = "unset"
    at_entry: bool = False

    def read(self, node: Node) -> dict[str, Any]:
        """The valid values by their fields; problems are reported in the order of the file."""
        given = node.of_mapping
        values: dict[str, Any] = {}
        for name in given:
            key = self.keys.get(name)
            if key is not None:
                values[name] = self._value(node, name, key)
            elif not self.free or not name.startswith(self.free):
                self.unknown(node, name, self)
        for name, key in self.keys.items():
            if key.needed and name not in given:
                node.wrong(f"{name} is missing; {key.needed}")
        found: dict[str, Any] = {}
        for name, key in self.keys.items():
            field, value = key.field or name, values.get(name, UNSET)
            if value is not UNSET:
                # Of two keys for one field the first of the table counts, unless it is empty.
                found[field] = found.get(field) or value
        return found

    def _value(self, node: Node, name: str, key: Key) -> Any:
        child = node.child(name, key.needed)
        if key.today and child.value is not None and key.today in node:
            child.wrong(f"is the old name of {key.today}, which is given too; give one of them")
        try:
            if child.value is None and self.null != "read":
                return self._null(key)
            return key.read(child)
        except Wrong as exc:
            if self.at_entry:
                node.wrong(f"{name} {exc.message}")
            else:
                child.wrong(exc.message, *exc.trail)
            return UNSET

    def _null(self, key: Key) -> Any:
        if self.null == "wrong":
            raise Wrong(f"has no value; {spoken(key.doc)}")
        if key.needed:
            raise Wrong(f"is None; {key.needed}")
        return UNSET

    def hint(self, name: str) -> str:
        """The key that was probably meant by an unknown one."""
        return self.instead.get(name) or meant(name, self.keys)

    def paths(self) -> Iterator[str]:
        """Every key with those below it, as `lifecycle.preRun.name`; positions in lists are left out."""
        for name, key in self.keys.items():
            yield name
            if key.below is not None:
                yield from (f"{name}.{path}" for path in key.below.paths())

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the mapping."""
        needed = [name for name, key in self.keys.items() if key.needed]
        own = {f"^{self.free}": {"description": "Yours; not read. A place for anchors."}}
        return {
            "type": "object",
            **({"required": needed} if needed else {}),
            "additionalProperties": False,
            **({"patternProperties": own} if self.free else {}),
            "properties": {
                name: {**({"description": key.doc} if key.doc else {}), **key.shape}
                for name, key in self.keys.items()
            },
        }


open_table = partial(Table, unknown=refuse_slips)
"""A table of a format whose newer versions may have more keys: of unknown ones only slips are problems."""


class InMapping:
    """Reads a mapping by a table; `make` turns its values into one of ours, and may find it wrong as a whole."""

    def __init__(self, table: Table, make: Callable[[Node, dict[str, Any]], Any]) -> None:
        self.table = table
        self._make = make

    def __call__(self, node: Node) -> Any:
        if not isinstance(node.value, Mapping):
            raise Wrong(f"is {node.value!r}; it must be a mapping")
        return self._make(node, self.table.read(node))


class InList(InMapping):
    """Reads a list of mappings, of which those that are wrong are left out. `each` shows how one begins."""

    def __init__(
        self, table: Table, make: Callable[[Node, dict[str, Any]], Any], each: str, most: int | None = None
    ) -> None:
        super().__init__(table, make)
        self._each = each
        self._most = most

    def __call__(self, node: Node) -> tuple[Any, ...]:
        if not isinstance(node.value, list):
            raise Wrong(f"is not a list; begin each with `{self._each}`")
        found: list[Any] = []
        for index, item in enumerate(node.of_list):
            if not isinstance(item, Mapping):
                node.wrong(f"is {item!r}; it must be a mapping (`{self._each}`)", index)
                continue
            made = super().__call__(node.child(index))
            if made is not None and (self._most is None or index < self._most):
                found.append(made)
        return tuple(found)


def text(node: Node) -> str:
    """A text, which is not blank where it is needed."""
    value = node.value
    if not isinstance(value, str) or (node.wanted and not value.strip()):
        raise Wrong(f"is {value!r}; {node.wanted or 'give a text, in quotes if it looks like a number'}")
    return value


def filled(node: Node) -> str:
    """A text; an empty one counts as not given."""
    return text(node) or UNSET


def texts(node: Node) -> tuple[str, ...]:
    if not isinstance(node.value, list):
        raise Wrong(f"is {node.value!r}; it must be a list")
    items = node.of_list
    for index, item in enumerate(items):
        if not isinstance(item, str):
            node.wrong(f"is {item!r}; give a text, in quotes", index)
    return tuple(item for item in items if isinstance(item, str))


def number(node: Node) -> float:
    """A number, which may be given as a text."""
    try:
        if isinstance(node.value, bool):
            raise ValueError
        return float(node.value)
    except (TypeError, ValueError):
        raise Wrong(f"is {node.value!r}; give a number") from None


def flag(node: Node) -> bool:
    if not isinstance(node.value, bool):
        raise Wrong(f"is {node.value!r}; give true or false")
    return node.value


def word(*known: str, called: str = "word") -> Reader:
    """One word of a closed list; an empty text is one that is not given."""

    def read(node: Node) -> str:
        found = text(node)
        if found and found not in known:
            raise Wrong(f"unknown {called} {found!r}{meant(found, known)}")
        return found or UNSET

    return read


def duration(node: Node) -> float:
    """A duration as Go writes it (`1h30m`), in seconds."""
    given = text(node)
    if not given:
        return UNSET
    if given == "0":
        return 0.0
    parts = list(_GO_DURATION.finditer(given))
    if "".join(part.group() for part in parts) != given:
        raise Wrong(f"is {given!r}; write it like 30s, 1m30s or 500ms")
    return sum(float(part[1]) * _DURATION_UNITS[part[2]] for part in parts)


def pairs(node: Node) -> dict[str, str]:
    """Texts by name; a whole number is its text."""
    if not isinstance(node.value, Mapping):
        raise Wrong(f"is {node.value!r}; it must be a mapping")
    found: dict[str, str] = {}
    for name, value in node.of_mapping.items():
        if isinstance(value, str | int) and not isinstance(value, bool):
            found[name] = str(value)
        else:
            node.wrong(f"is {value!r}; give a text, in quotes", name)
    return found


def unread(node: Node) -> Any:
    """A key that is known and has no effect here."""
    return UNSET


def not_here(message: str) -> Key:
    """A key without effect here; noted unless it is switched off."""

    def read(node: Node) -> Any:
        if node.value is not False:
            node.note(message)
        return UNSET

    return Key(read)


def unused(*keys: str) -> dict[str, Key]:
    return dict.fromkeys(keys, not_here("is not used here"))


def split_command(text: str, instead: str = "") -> tuple[list[str], str | None]:
    """A command's arguments, split as a shell would, and the first operator that only a shell would heed."""
    import shlex

    try:
        argv = shlex.split(text)
        tokens = list(shlex.shlex(text, posix=False, punctuation_chars=True))
    except ValueError as exc:
        raise Wrong(f"cannot be split into arguments: {str(exc).lower()}{instead}") from None
    return argv, next((token for token in tokens if set(token) <= set("();<>|&")), None)


def spoken(sentence: str) -> str:
    """A sentence with its first letter in lower case, to follow a semicolon."""
    return f"{sentence[:1].lower()}{sentence[1:]}"
