"""Records and questions to JSON texts, masked and capped, and back; for every journal that stores, and the stream.

A record is a JSON array: its kind, then its fields in order without the run's id, which the journal keeps beside
it. Fields may be added to a record's type at its end, with a default, without a migration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from hookline.engine.point import HookAction, Point, Scope, Status
from hookline.engine.record import Begun, Called, Decided, Ended, Owner, Question, Record, Verdict
from hookline.errors import JournalError
from hookline.files import keyed_digest
from hookline.journal.masking import Mask, dumped, storable
from hookline.journal.messages import KEY, Messages, Ranges, Stored, messages_of

if TYPE_CHECKING:
    from hookline.engine.result import Reason

CAP = 65536
"""Bytes of one payload, output or text that are kept."""

MASKED = "__masked__"
"""Set in a stored declaration that held a secret: it differs from the declared one, and must not be run."""


class Encoding:
    """Encodes the records of one journal: its mask, its cap, with or without payloads."""

    __slots__ = ("_names", "cap", "mask", "messages", "payloads")

    def __init__(
        self, mask: Mask, *, payloads: bool = True, cap: int = CAP, has_messages: bool = False
    ) -> None:
        self.mask = mask
        self.payloads = payloads
        self.cap = cap
        self._names: dict[str, str] = {}
        self.messages = Messages(self._payload) if has_messages else None
        """Stores messages by themselves, where records are kept together with them."""

    def record(self, record: Record) -> str:
        text = self._quiet_call(record) if isinstance(record, Called) else None
        if text is None:
            record = record if self.payloads else record._replace(**_NO_PAYLOADS[type(record)])
            ranges, record = self._referring(record)
            text = self._whole(record)
            if ranges:
                text = f"[{_word(ranges)},{text[1:]}"
        return text

    def _referring(self, record: Record) -> tuple[dict[str, Ranges], Record]:
        """The ranges of the messages in each payload of a record, and the record without these messages."""
        ranges: dict[str, Ranges] = {}
        for name in _NO_PAYLOADS[type(record)] if self.messages is not None else ():
            value = getattr(record, name)
            messages = messages_of(value)
            if messages is not None and self.messages is not None:
                ranges[name] = self.messages.ranges(record.run_id, messages)
                record = record._replace(**{name: {**value, KEY: None}})
        return ranges, record

    def _quiet_call(self, record: Called) -> str | None:
        """The record of a hook that only continued, as most do: formatted by hand, in half the time."""
        if (
            record[6:16] != _QUIET_CALL
            or record.point.__class__ is not Point
            or not record.scope_id.isalnum()
        ):
            return None
        name = self._names.get(record.hook)
        if name is None:
            name = self._names[record.hook] = self.text_json(record.hook)
        last = "true" if record.last else "false"
        return (
            f'["call","{record.scope_id}","{_WORD[record.point]}",{name},{record.at!r},{record.seconds:.9f},'
            f'"continue",null,null,null,"enforce",null,null,null,null,null,{last}]'
        )

    def _whole(self, record: Record) -> str:
        text = dumped((_KIND[type(record)], *record[1:]))
        # Four bytes are the most that a character takes.
        if text is None or len(text) * 4 > self.cap or self.mask.suspects(text):
            return self._carefully(record)
        return storable(text)

    def question(self, question: Question, digest: str) -> str:
        """A question as a person is to see it: whole, without known secrets, and how many characters those have."""
        exact = self.mask.exact()
        reasons = [
            (hook, action, self.mask.exact().text(text, self.cap)) for hook, action, text in question.reasons
        ]
        parts = [
            _word(question.point),
            self.text_json(question.tool),
            _word(reasons),
            exact.json(question.value if self.payloads else None),
            _word(digest),
            _word(exact.hidden),
        ]
        return f"[{','.join(parts)}]"

    @staticmethod
    def digest(question: Question, key: bytes) -> str:
        """The keyed digest of what is asked about, as it truly is."""
        asked = [_word(question.point), question.tool, question.value]
        return keyed_digest(Mask().exact().json(asked).encode(), key)

    def verdict(self, verdict: Verdict) -> tuple[str, str, str | None]:
        """Text, author, and the new input; the input is not masked, because it will be used."""
        rewrite = None
        if verdict.value is not None:
            rewrite = storable(dumped(verdict.value) or self.mask.json(verdict.value))
        return self.mask.text(verdict.text, self.cap), self.mask.text(verdict.by, self.cap), rewrite

    def text(self, value: str | None) -> str | None:
        return None if value is None else self.mask.text(value, self.cap)

    def text_json(self, value: Any) -> str:
        return _word(self.text(value) if isinstance(value, str) else value)

    def _carefully(self, record: Record) -> str:
        """Encodes field by field: our own words stay, everything from outside is masked and capped."""
        parts = [_word(_KIND[type(record)])]
        for name, value in zip(record._fields[1:], record[1:], strict=True):
            parts.append(_TREATED[name](self, value) if name in _TREATED else _word(value))
        return f"[{','.join(parts)}]"

    def _payload(self, value: Any) -> str:
        return self.mask.json(value, self.cap)

    def _reasons(self, reasons: tuple[Reason, ...]) -> str:
        parts = [
            f"[{self.text_json(hook)},{_word(action)},{self.text_json(text)}]"
            for hook, action, text in reasons
        ]
        return f"[{','.join(parts)}]"

    def _declaration(self, value: dict[str, Any] | None) -> str:
        text = self.mask.json(value)
        if value is None or text == dumped(value):
            return text
        masked = json.loads(text)
        return _word({**masked, MASKED: True} if isinstance(masked, dict) else {MASKED: True})


_QUIET_CALL = ("continue", None, None, None, "enforce", None, None, None, None, None)


def _word(value: Any) -> str:
    return storable(dumped(value) or "null")


_KIND: Mapping[type[Record], str] = {Begun: "begin", Called: "call", Decided: "outcome", Ended: "end"}

_TEXTS = ("name", "source", "hook", "reason", "error", "note", "tell_model", "tell_user")
_PAYLOADS = frozenset({"payload", "given", "changed", "output"})
_NO_PAYLOADS = {kind: dict.fromkeys(_PAYLOADS & set(kind._fields)) for kind in _KIND}
# By name for all kinds of record; a name means the same in each.
_TREATED: Mapping[str, Callable[[Encoding, Any], str]] = {
    **dict.fromkeys(_TEXTS, Encoding.text_json),
    **dict.fromkeys(("about", *_PAYLOADS), Encoding._payload),  # pyright: ignore[reportPrivateUsage]
    "declaration": Encoding._declaration,  # pyright: ignore[reportPrivateUsage]
    "reasons": Encoding._reasons,  # pyright: ignore[reportPrivateUsage]
}


def decoded(run_id: str, fields: list[Any], stored: Stored | None = None) -> Record:
    """The record that was written as these fields; one that refers to messages has the `stored` ones."""
    kind, *rest = fields
    if stored is not None and isinstance(kind, dict):
        record = decoded(run_id, rest)
        found = cast("dict[str, Ranges]", kind).items()
        return record._replace(**{name: stored.restored(getattr(record, name), each) for name, each in found})
    if kind not in _READ:
        raise JournalError(f"run {run_id} has a record of the kind {kind!r}; known: {', '.join(_READ)}")
    make, reads = _READ[kind]
    values = [run_id, *rest]
    for place, read in reads:
        if place < len(values):
            values[place] = read(values[place])
    return make(*values)


def decoded_question(body: str) -> tuple[Point | str, str | None, tuple[Reason, ...], Any, str, int]:
    point, tool, reasons, value, *more = json.loads(body)
    digest, hidden = more or ("", 0)
    return _point(point), tool, _reasons(reasons), value, digest, hidden


def _point(word: str) -> Point | str:
    return _POINTS.get(word, word)


def _owner(values: Any) -> Owner | None:
    return None if values is None else Owner(*values)


def _reasons(values: Any) -> tuple[Reason, ...]:
    from hookline.engine.result import Reason  # only to read: writing must start quickly

    return tuple(Reason(hook, HookAction(action), text) for hook, action, text in values)


_POINTS: Mapping[str, Point] = {point.value: point for point in Point}
_WORD: Mapping[str, str] = {point: point.value for point in Point}
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "scope": Scope,
    "point": _point,
    "action": HookAction,
    "status": Status,
    "reasons": _reasons,
    "owner": _owner,
}
"""The fields that are more than plain values, by name for all kinds of record."""
_READ: Mapping[str, tuple[Callable[..., Record], list[tuple[int, Callable[[Any], Any]]]]] = {
    word: (kind, [(place, _READERS[name]) for place, name in enumerate(kind._fields) if name in _READERS])
    for kind, word in _KIND.items()
}
