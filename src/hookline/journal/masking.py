"""Mask: removes secrets from what is stored and shown, by name, value and shape, before anything is cut.

Almost nothing that is stored holds a secret, so a value is first written as JSON at once, and only a text that
contains a suspicious word or a known secret is walked item by item. The walk keeps what only looks like a secret:
counts of tokens, and references (`$API_TOKEN`, `secretKeyRef`).
"""

import json
import json.encoder
import math
import re
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, cast

from hookline.engine.stdlib import lazy_pattern
from hookline.secrets import HIDDEN, is_plain, is_secret, secret_words
from hookline.secrets.shapes import may_hold_shape, shape_hints
from hookline.secrets.text import may_hold_name, without_secrets

SHORTEST = 6
"""A known secret shorter than this is not searched for; it would be part of too many words."""

_DEPTH = 100
_LONGEST_NUMBER = 8192  # bits; Python itself refuses to write out much longer ones


class Mask:
    """Knows some secrets by value and the usual ones by name."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {text for secret in secrets for text in (secret, secret.strip()) if len(text) >= SHORTEST}
        self._secrets = known
        self._hints = tuple({hint for secret in known for hint in _hints(secret)})

    def suspects(self, text: str) -> bool:
        """True if a JSON text may hold a secret; False is certain."""
        for hint in self._hints:
            if hint in text:
                return True
        return may_hold_name(text) or _shapes.may_be_in(text)

    def json(self, value: Any, cap: int | None = None) -> str:
        """A value as masked JSON text; above `cap` bytes its head, in a JSON object that says so."""
        text = dumped(value)
        if text is None or self.suspects(text):
            text = _dump(self._walked(value, ()))
        text = storable(text)
        size = _size(text)
        if cap is not None and size > cap:
            text = _capped(text, size, cap)
        # A secret can only be left here where it is spelled across JSON's own signs.
        return f'"{self._mark(text)}"' if self._knows(text) else text

    def text(self, value: str, cap: int | None = None) -> str:
        """A masked string; above `cap` bytes its head and its length."""
        text = storable(self._string(value))
        if cap is not None:
            text = cut(text, cap)
        return self._mark(text) if self._knows(text) else text

    def exact(self) -> "ExactMask":
        """The same secrets, for what a person is asked about."""
        return ExactMask(self._secrets)

    @cached_property
    def _needles(self) -> tuple[str, ...]:
        """Every spelling of every known secret; made on first use, for a text that contains a hint."""
        needles = {spelling for secret in self._secrets for spelling in _spellings(secret)}
        return tuple(sorted(needles, key=len, reverse=True))

    @cached_property
    def _values(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._needles)))

    def _knows(self, text: str) -> bool:
        return any(hint in text for hint in self._hints) and any(needle in text for needle in self._needles)

    def _walked(self, value: Any, trail: tuple[int, ...]) -> Any:
        if isinstance(value, str):
            return self._string(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return self._number(value)
        if len(trail) >= _DEPTH or id(value) in trail:
            return f"<{type(value).__name__}, {'inside itself' if id(value) in trail else 'nested too deep'}>"
        trail = (*trail, id(value))
        if isinstance(value, dict):
            return self._pairs(cast("dict[Any, Any]", value), trail)
        if isinstance(value, list | tuple):
            return self._items(cast("list[Any]", value), trail)
        return self._walked(_opened(value), trail)

    def _pairs(self, value: dict[Any, Any], trail: tuple[int, ...]) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        # Kubernetes and HTTP libraries write a name and its value as two entries.
        told = value.get("name", value.get("key"))
        entry = self._rule(told) if isinstance(told, str) else None
        for key, item in value.items():
            name = key if isinstance(key, str) else _key(key)
            masked = self._string(name)
            # By the name as it is stored, too: a part that made it look like a count may be hidden now.
            rule = entry if entry is not None and name == "value" else self._rule(masked) or self._rule(name)
            while masked in shown:
                masked += "*"
            shown[masked] = self._walked(item, trail) if rule is None else self._hidden(item, rule, trail)
        return shown

    def _items(self, value: list[Any] | tuple[Any, ...], trail: tuple[int, ...]) -> list[Any]:
        shown: list[Any] = []
        before: Any = None
        for item in value:
            rule = None
            named = isinstance(before, str) and _A_NAME.fullmatch(before)
            if named and (len(value) == 2 or before.startswith("-")):
                rule = self._rule(before)
            shown.append(self._walked(item, trail) if rule is None else self._hidden(item, rule, trail))
            before = item
        return shown

    def _hidden(self, value: Any, rule: "_SecretName", trail: tuple[int, ...]) -> Any:
        """The value under a secret name; a value that cannot be a secret stays."""
        if value is None or isinstance(value, bool) or _is_reference(value):
            return self._walked(value, trail)
        if rule.counts and isinstance(value, int | float):
            return self._number(value)
        if rule.plural and isinstance(value, str) and _COUNT.fullmatch(value):
            return self._string(value)
        this = id(value)
        if not rule.plural or this in trail or len(trail) >= _DEPTH:
            return HIDDEN
        if isinstance(value, dict):
            pairs = cast("dict[Any, Any]", value).items()
            return {self._string(str(key)): self._hidden(item, rule, (*trail, this)) for key, item in pairs}
        if isinstance(value, list | tuple):
            return [self._hidden(item, rule, (*trail, this)) for item in cast("list[Any]", value)]
        return HIDDEN

    def _number(self, value: float) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return repr(value)
        if isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER:
            return f"<a number of {value.bit_length()} bits>"
        return self._mark(repr(value)) if self._needles and self._knows(repr(value)) else value

    def _mark(self, secret: str) -> str:
        return HIDDEN

    def _rule(self, name: str) -> "_SecretName | None":
        return _rule(name)

    def _string(self, text: str) -> str:
        return self._without_values(without_secrets(self._without_values(text)))

    def _without_values(self, text: str) -> str:
        if not any(hint in text for hint in self._hints):
            return text
        # The texts left and right of a masked value may form a secret, once they are joined.
        while (masked := self._values.sub(lambda found: self._mark(found[0]), text)) != text:
            text = masked
        return text


class ExactMask(Mask):
    """Hides known secrets alone, each by as many stars as it has characters; `hidden` counts them.

    A person decides about what is shown here, so nothing is hidden because of its looks.
    """

    hidden = 0

    def suspects(self, text: str) -> bool:
        return any(hint in text for hint in self._hints)

    def _string(self, text: str) -> str:
        return self._without_values(text)

    def _rule(self, name: str) -> None:
        return None

    def _mark(self, secret: str) -> str:
        self.hidden += len(secret) if secret.strip("*") else 0
        return "*" * len(secret)


def dumped(value: Any) -> str | None:
    """A value as JSON text, or None if it must be walked (NaN, odd keys, a cycle)."""
    try:
        return _dump(value)
    except (TypeError, ValueError, RecursionError):
        return None


def cut(text: str, cap: int) -> str:
    """At most `cap` bytes of a text, never half a character, and a note that it is cut."""
    size = _size(text)
    return text if size <= cap else f"{_head(text, cap)} ... (cut, {size} bytes)"


class _Shapes:
    """Looks for the beginnings of secrets of known shapes.

    RE2 reads ten times as fast, and takes as long to load as plain texts are looked for in this many characters:
    `hookline answer` seldom reads as many, a run does.
    """

    WORTH_LOADING = 100_000

    def __init__(self) -> None:
        self._read = 0
        self._found: Callable[[str], object] = may_hold_shape

    def may_be_in(self, text: str) -> bool:
        if self._read < self.WORTH_LOADING:
            self._read += len(text)
            if self._read >= self.WORTH_LOADING:
                from hookline.matcher import search

                self._found = search(shape_hints())
        return bool(self._found(text))


_shapes = _Shapes()


class _SecretName(NamedTuple):
    """The rule for a secret name. With `counts` numbers stay, with `plural` also lists and texts of numbers."""

    counts: bool
    plural: bool


_REFERENCE_KEYS = frozenset(
    [
        *("valueFrom", "secretKeyRef", "configMapKeyRef", "fieldRef", "secretRef", "ref", "env"),
        *("secretName", "items", "defaultMode", "optional"),  # a volume of Kubernetes
    ]
)
_SPELLED_ALIKE = lazy_pattern(r"[ !#-.0-\[\]-~]+")
_SHORTEST_HINT = 4
_COUNT = lazy_pattern(r"\d[\d.,_]{0,14}[kKmM]?")
_A_NAME = lazy_pattern(r"-{0,2}[A-Za-z_][\w.-]{0,60}")


@lru_cache(maxsize=2048)
def _rule(name: str) -> _SecretName | None:
    if not is_secret(name):
        return None
    counts = secret_words(name) == {"token"}
    return _SecretName(counts, counts and "tokens" in name.lower())


def _is_reference(value: Any) -> bool:
    if isinstance(value, str):
        return is_plain(value)
    if isinstance(value, dict):
        keys = set(cast("dict[Any, Any]", value))
        return bool(keys) and keys <= _REFERENCE_KEYS
    return False


def _spellings(secret: str) -> set[str]:
    """A secret as it is, and as it stands in JSON, also in JSON inside JSON."""
    spellings = {secret}
    for _ in range(3):
        inside = {json.dumps(text, ensure_ascii=ascii)[1:-1] for text in spellings for ascii in (True, False)}
        spellings |= inside | {text.replace("/", "\\/") for text in inside}
    return spellings


def _hints(secret: str) -> set[str]:
    """The texts to look for first: one part that every spelling has in it, where there is one."""
    core = max(_SPELLED_ALIKE.findall(secret), key=len, default="")
    return {core} if len(core) >= _SHORTEST_HINT else _spellings(secret)


def _opened(value: Any) -> Any:
    """A value that JSON does not know, opened by one layer: its content, or its repr."""
    from hookline.engine.plain import opened  # few values need it, and writing must start quickly

    try:
        return opened(value, lambda inner: inner, repr)
    except Exception as exc:
        # Someone else's code; a record must not be lost because of it.
        return f"<{type(value).__name__}, which cannot be shown: {type(exc).__name__}>"


def _key(key: Any) -> str:
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    shown = _opened(key)
    return shown if isinstance(shown, str) else repr(shown)


def _encoder() -> Callable[[Any], str]:
    # JSONEncoder builds the C encoder anew for each call, which takes longer than a small value itself.
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(
            ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_opened
        ).encode
    encode = make(None, _opened, json.encoder.encode_basestring, None, ":", ",", False, False, False)
    join = "".join
    return lambda value: join(encode(value, 0))


_dump = _encoder()


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def storable(text: str) -> str:
    if text.isascii():
        return text
    # Half a surrogate pair has no UTF-8; written as \udcxx it is also what JSON has for it.
    return text.encode("utf-8", "backslashreplace").decode()


def _head(text: str, size: int) -> str:
    return text.encode()[:size].decode("utf-8", "ignore")


def _capped(text: str, size: int, cap: int) -> str:
    """The head of a JSON text as JSON of at most `cap` bytes (or an empty head)."""
    frame = len(_dump({"__cut__": True, "bytes": size, "head": ""}))
    head = _head(text, max(0, cap - frame))
    over = _size(_dump(head)) - 2 - (cap - frame)
    if over > 0:
        # Each quote takes one byte more than before; every character that goes saves at least one.
        head = head[: max(0, len(head) - over)]
    return _dump({"__cut__": True, "bytes": size, "head": head})
