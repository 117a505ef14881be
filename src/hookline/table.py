"""A mapping in a file while it is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from hookline.errors import FileError
from hookline.source import Document, Trail

DURATION_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_GO_DURATION = re.compile(rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(DURATION_UNITS)})", re.ASCII)


class Place(NamedTuple):
    """Where something stands in a file."""

    file: str
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def problem(self, message: str) -> FileError:
        return FileError(message, file=self.file, line=self.line, key=self.key)


class Told:
    """What there is to say about a file. `broken` are hooks whose matcher is no pattern."""

    def __init__(self) -> None:
        self.problems: list[FileError] = []
        self.broken: list[FileError] = []
        self.notes: list[str] = []


class At:
    """A mapping in a file while it is read; what is wrong in it is told where it stands."""

    def __init__(self, document: Document, value: Mapping[str, Any], trail: Trail, told: Told) -> None:
        self.value = value
        self._document = document
        self._trail = trail
        self._told = told

    @classmethod
    def empty(cls) -> At:
        """A mapping that is not there: it has nothing, and nothing is wrong in it."""
        return cls(Document({}, ""), {}, (), Told())

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def count(self, key: str) -> int:
        value = self.value.get(key)
        return len(cast("list[Any]", value)) if isinstance(value, list) else 0

    def place(self, message: str, *inner: str | int) -> FileError:
        return self._document.problem(message, (*self._trail, *inner))

    def spot(self, *inner: str | int) -> Place:
        """The same place as a value, for what is told of it later."""
        found = self.place("", *inner)
        return Place(found.file, found.line, found.key)

    def line(self) -> str:
        place = self.place("")
        return f"{place.file}:{place.line}"

    def wrong(self, message: str, *inner: str | int) -> None:
        self._told.problems.append(self.place(message, *inner))

    def note(self, message: str, *inner: str | int) -> None:
        self._told.notes.append(str(self.place(message, *inner)))

    def text(self, key: str, *, needed: str = "") -> str:
        """The text of a key; `needed` says what it is where it must be there."""
        value = self.value.get(key)
        if isinstance(value, str) and (value.strip() or not needed):
            return value
        if value is None and key not in self.value:
            if needed:
                self.wrong(f"{key} is missing; {needed}")
        elif value is not None or needed:
            wanted = needed or "give a text, in quotes if it looks like a number"
            self.wrong(f"is {value!r}; {wanted}", key)
        return ""

    def mapping(self, key: str) -> At | None:
        value = self.value.get(key)
        if isinstance(value, Mapping):
            return At(self._document, cast("Mapping[str, Any]", value), (*self._trail, key), self._told)
        if value is not None:
            self.wrong(f"is {value!r}; it must be a mapping", key)
        return None

    def mappings(self, key: str, each: str) -> Iterator[At]:
        """The mappings of a list; `each` says what one of them looks like."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, list):
            self.wrong(f"is not a list; begin each with `{each}`", key)
            return
        for index, item in enumerate(cast("list[Any]", value or [])):
            if isinstance(item, Mapping):
                known = cast("Mapping[str, Any]", item)
                yield At(self._document, known, (*self._trail, key, index), self._told)
            else:
                self.wrong(f"is {item!r}; it must be a mapping (`{each}`)", key, index)

    def texts(self, key: str) -> tuple[str, ...]:
        value: Any = self.value.get(key)
        if value is None:
            return ()
        items = cast("list[Any]", value) if isinstance(value, list) else []
        if not isinstance(value, list):
            self.wrong(f"is {value!r}; it must be a list", key)
        for index, item in enumerate(items):
            if not isinstance(item, str):
                self.wrong(f"is {item!r}; give a text, in quotes", key, index)
        return tuple(item for item in items if isinstance(item, str))

    def number(self, key: str) -> float | None:
        """A number, which may be given as a text."""
        value = self.value.get(key)
        if value is None:
            return None
        try:
            if isinstance(value, bool):
                raise ValueError
            return float(value)
        except (TypeError, ValueError):
            self.wrong(f"is {value!r}; give a number", key)
            return None

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.value.get(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.wrong(f"is {value!r}; give true or false", key)
        return default

    def word(self, key: str, known: Iterable[str], default: str = "") -> str:
        """One word of a closed list."""
        text = self.text(key)
        if text and text not in known:
            self.wrong(f"unknown word {text!r}{meant(text, known)}", key)
            return default
        return text or default

    def duration(self, key: str) -> float | None:
        """A duration as Go writes it, in seconds."""
        text = self.text(key)
        if not text:
            return None
        found = seconds_of(text)
        if found is None:
            self.wrong(f"is {text!r}; write it like 30s, 1m30s or 500ms", key)
        return found

    def pairs(self, key: str) -> dict[str, str]:
        found: dict[str, str] = {}
        given = self.mapping(key)
        values: Mapping[str, Any] = given.value if given else {}
        for name, value in values.items():
            if isinstance(value, str | int) and not isinstance(value, bool):
                found[name] = str(value)
            else:
                self.wrong(f"is {value!r}; give a text, in quotes", key, name)
        return found

    def keys(self, *known: str, instead: Mapping[str, str] | None = None, strict: bool = False) -> None:
        """Tells of keys that are not known. What looks like a slip is wrong, another is only not read here."""
        for key in self.value:
            if key in known:
                continue
            hint = (instead or {}).get(key) or meant(key, known)
            if strict or key in (instead or {}) or "did you mean" in hint:
                self.wrong(f"unknown key{hint}", key)
            else:
                self.note("this key is not known here and has no effect", key)


def seconds_of(text: str) -> float | None:
    """`1h30m` in seconds; None where it is no duration of Go's, or none that can be waited for."""
    if text == "0":
        return 0.0
    parts = list(_GO_DURATION.finditer(text))
    if not parts or "".join(part.group() for part in parts) != text:
        return None
    return sum(float(part[1]) * DURATION_UNITS[part[2]] for part in parts)


def meant(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` for a near miss in letters of any size, else the list of what is known."""
    import difflib  # only for a message; `hookline answer` must start quickly

    words = {each.lower(): each for each in known}
    low = word.lower()
    near = difflib.get_close_matches(low, words, n=1, cutoff=0.7)
    near = near or [each for each in words if len(word) > 2 and each.startswith(low)]
    return f"; did you mean {words[near[0]]}?" if near else f"; known: {', '.join(words.values())}"
