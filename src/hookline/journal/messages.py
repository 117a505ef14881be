"""The messages of a run: each is stored once, and the records of steps and model calls refer to it.

A record has the list of messages under `messages` of a payload. It is stored as ranges of their numbers, so that a step
costs what is new in it, however long the conversation is.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from operator import is_
from typing import Any, NamedTuple, cast

from hookline.engine.plain import mapping
from hookline.engine.shared import Copies, Shared
from hookline.journal.masking import dumped

KEY = "messages"
Ranges = list[int]
"""First and last (exclusive) numbers, one pair after another."""


class NewMessage(NamedTuple):
    number: int
    run_id: str
    body: str


def messages_of(value: Any) -> list[Any] | None:
    """The messages in a payload; None if it has none that can be stored by themselves."""
    if value.__class__ is not dict:
        return None
    found: Any = cast("dict[Any, Any]", value).get(KEY)
    if not isinstance(found, list) or not found:
        return None
    messages = cast("list[Any]", found)
    return messages if {*map(type, _raw(messages))} == {dict} else None


class _Known:
    """The numbers of one run. Another process may write of the same run: each begins where nobody else does."""

    def __init__(self) -> None:
        self.following = int.from_bytes(os.urandom(7)) << 4
        self.by_id: dict[int, int] = {}
        self.by_content: dict[str, int] = {}
        self.held: list[Any] = []
        """The messages that `by_id` knows, so that no other object takes their ids."""
        self.last: dict[int, tuple[Shared, Ranges]] = {}
        """The last list of each conversation, by its first message."""


class Messages:
    """Gives each message of a run a number. `new` has those that are still to be stored."""

    def __init__(self, text_of: Callable[[Any], str]) -> None:
        self._text_of = text_of
        self._runs: dict[str, _Known] = {}
        self.new: list[NewMessage] = []

    def ranges(self, run_id: str, messages: list[Any]) -> Ranges:
        known = self._runs.get(run_id)
        if known is None:
            known = self._runs[run_id] = _Known()
        given = _raw(messages)
        before, ranges = known.last.get(id(given[0]), (Shared(), []))
        # Most lists begin as the one before.
        start = _same(before, given)
        found = _head(ranges, start)
        is_shared = isinstance(messages, Shared)
        for message in given[start:]:
            number = self._number(run_id, known, message, is_shared)
            if found and found[-1] == number:
                found[-1] = number + 1
            else:
                found += number, number + 1
        if is_shared:
            known.last[id(given[0])] = messages, found
        return found

    def forget(self, run_id: str | None = None) -> None:
        """The messages of a run that is over, or of all runs: they are not in the file any more."""
        if run_id is None:
            self._runs.clear()
        else:
            self._runs.pop(run_id, None)

    def _number(self, run_id: str, known: _Known, message: Any, is_shared: bool) -> int:
        number = known.by_id.get(id(message))
        if number is not None:
            return number
        text = dumped(message) or self._text_of(message)
        number = known.by_content.get(text)
        if number is None:
            number = known.by_content[text] = known.following
            known.following += 1
            self.new.append(NewMessage(number, run_id, self._text_of(message)))
        if is_shared:
            known.by_id[id(message)] = number
            known.held.append(message)
        return number


class Stored:
    """The messages of a run as they are read again. `fetch` gets their numbers and texts, in order."""

    def __init__(self, fetch: Callable[[], Iterable[tuple[int, str]]]) -> None:
        self._fetch = fetch
        self._numbers: list[int] | None = None
        self._bodies: list[str] = []
        self._read: dict[int, Any] = {}

    def load(self) -> None:
        if self._numbers is None:
            rows = list(self._fetch())
            self._numbers = [number for number, _ in rows]
            self._bodies = [body for _, body in rows]

    def between(self, first: int, end: int) -> Iterator[Any]:
        from bisect import bisect_left  # not for who writes

        self.load()
        numbers = self._numbers or []
        places = range(bisect_left(numbers, first), bisect_left(numbers, end))
        for place in places:
            if place not in self._read:
                self._read[place] = json.loads(self._bodies[place])
            yield self._read[place]
        if len(places) < end - first:
            yield {
                "role": "user",
                "content": f"({end - first - len(places)} messages are not in the journal)",
            }

    def restored(self, value: Any, ranges: Ranges) -> Any:
        """A payload with its messages."""
        return {**mapping(value), KEY: _Kept(self, ranges)}


class _Kept(list[Any]):
    """Messages of a record, read when they are looked at: most who read records never do."""

    __slots__ = ("_ranges", "_stored")

    def __init__(self, stored: Stored, ranges: Ranges) -> None:
        super().__init__()
        self._stored, self._ranges = stored, ranges

    def __iter__(self) -> Iterator[Any]:
        pairs = zip(self._ranges[::2], self._ranges[1::2], strict=True)
        return (message for first, end in pairs for message in self._stored.between(first, end))

    def __len__(self) -> int:
        return sum(self._ranges[1::2]) - sum(self._ranges[::2])

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __contains__(self, item: object) -> bool:
        return item in list(self)

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(cast("list[Any]", other)) if isinstance(other, _Kept) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __add__(self, other: Any) -> list[Any]:
        return list(self) + list(other)

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return list, (list(self),)


def _same(one: list[Any], other: list[Any]) -> int:
    """The number of items, from the first on, that are the same objects in both lists."""
    low, high = 0, min(len(one), len(other))
    middle = high
    while low < high:
        if all(map(is_, one[low:middle], other[low:middle])):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


def _head(ranges: Ranges, count: int) -> Ranges:
    """The ranges of the first messages."""
    head: Ranges = []
    for first, end in zip(ranges[::2], ranges[1::2], strict=True):
        taken = min(end - first, count)
        head += (first, first + taken) if taken else ()
        count -= taken
    return head


def _raw(messages: list[Any]) -> list[Any]:
    """The items of a list, of the copies of a hook those that it has not read too, as they are."""
    return list(list[Any].__iter__(messages)) if isinstance(messages, Copies) else messages
