"""A changed output in the shape of the client's own: a client drops any other, and keeps the real one."""

from __future__ import annotations

from typing import Any, cast

from hookline.engine.plain import as_text, mapping
from hookline.engine.result import WITHHELD
from hookline.engine.secret_shapes import lazy_pattern

Json = dict[str, Any]


def keys_gone(before: Any, after: Any) -> bool:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return False
    return bool(set(cast("Json", before)) - set(cast("Json", after)))


def fitted(before: Any, after: Any) -> tuple[bool, Any]:
    """The changed result converted to the type of the tool's own, and whether that was possible."""
    if before is None or isinstance(after, type(before)):
        if isinstance(before, dict) and isinstance(after, dict):
            empty = {key: _empty(value) for key, value in cast("Json", before).items()}
            return True, empty | cast("Json", after)
        return True, after
    text = as_text(after)
    if isinstance(before, str):
        return True, text
    if isinstance(before, list):
        return True, [{"type": "text", "text": text}]
    if isinstance(before, dict) and "stdout" in before:
        return True, {**cast("Json", before), "stdout": text, "stderr": ""}
    return False, after


_DEEPEST = 50
_WORD = lazy_pattern(r"[A-Za-z_]{1,32}")
_OF_THE_SHAPE = frozenset({"type", "mode", "status", "role", "finishReason", "service_tier", "speed"})
"""Keys whose words a client checks: with others it would drop the changed output, and keep the real one."""


def withheld(value: Any, native: Json, told: list[str], key: str = "", depth: int = 1) -> Any:
    """The output in its own shape, with one sentence in place of its first text and nothing for the others."""
    if isinstance(value, dict | list) and depth > _DEEPEST:
        return type(cast("Any", value))()
    if isinstance(value, dict):
        members = cast("Json", value).items()
        return {name: withheld(item, native, told, name, depth + 1) for name, item in members}
    if isinstance(value, list):
        return [withheld(item, native, told, "", depth + 1) for item in cast("list[Any]", value)]
    if not isinstance(value, str) or not value or (key in _OF_THE_SHAPE and _WORD.fullmatch(value)):
        return value
    if key.lower().endswith("path") and value in mapping(native.get("tool_input")).values():
        return value
    told.append(key)
    return WITHHELD if len(told) == 1 else ""


def _empty(value: Any) -> Any:
    """The empty value of the same type, for a key that a hook removed: the original must not come back."""
    return value if isinstance(value, bool) or value is None else type(value)()
