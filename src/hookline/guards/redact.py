"""The common part of guards that rewrite text: in nested values, at any point, without a change if nothing was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from hookline.engine.context import HookContext
from hookline.engine.point import Point
from hookline.engine.result import CONTINUE, HookResult

Rewrite = Callable[[str, str | None], str]
"""Returns the replacement of a text, given the text and the key it is stored under."""

# Keys that are never rewritten: ids, settings of a request, and arguments of tool calls.
KEPT: Mapping[Point, frozenset[str]] = {
    Point.AGENT_START: frozenset({"provider_kwargs"}),
    Point.AGENT_END: frozenset({"agent_run_id", "session_id"}),
    Point.MODEL_END: frozenset({"tool_calls"}),
}


def answered(hook_context: HookContext, rewrite: Rewrite) -> HookResult:
    """Continues with the input (at a start) or the output (at an end) rewritten, if that changed anything."""
    point = hook_context.point
    if not isinstance(point, Point):
        return CONTINUE
    before = hook_context.current_payload if point.is_start else hook_context.current_output
    if isinstance(before, dict):
        pairs = cast("dict[Any, Any]", before)
        kept = KEPT.get(point, frozenset())
        own = {key: item for key, item in pairs.items() if key not in kept}
        after = rewritten(own, rewrite)
        if after is own:
            return CONTINUE
        if after.keys() != own.keys():
            whole = {**after, **{key: item for key, item in pairs.items() if key in kept}}
            return _changed(point, whole, replace=True)
        # Only the changed keys: the rest may hold values that a hook cannot return.
        return _changed(point, {key: item for key, item in after.items() if item is not own[key]})
    after = rewritten(before, rewrite)
    return CONTINUE if after is before else _changed(point, after)


def rewritten(value: Any, rewrite: Rewrite, key: str | None = None) -> Any:
    """The value with every text in it rewritten; the same object if none changed."""
    if isinstance(value, str):
        after = rewrite(value, key)
        return value if after == value else after
    if isinstance(value, bytes | bytearray):
        text = value.decode(errors="replace")
        after = rewrite(text, key)
        return value if after == text else after
    if isinstance(value, dict):
        return _pairs(cast("dict[Any, Any]", value), rewrite)
    if isinstance(value, list | tuple | set | frozenset):
        items = list(cast("list[Any]", value))
        after = [rewritten(item, rewrite, key) for item in items]
        changed = any(new is not old for new, old in zip(after, items, strict=True))
        return after if changed else cast("Any", value)
    return value


def _pairs(value: dict[Any, Any], rewrite: Rewrite) -> dict[Any, Any]:
    after: dict[Any, Any] = {}
    same = True
    for key, item in value.items():
        name = rewrite(key, None) if isinstance(key, str) else key
        while name != key and (name in after or name in value):
            name += "*"
        after[name] = rewritten(item, rewrite, key if isinstance(key, str) else None)
        same = same and name == key and after[name] is item
    return value if same else after


def _changed(point: Point, value: Any, *, replace: bool = False) -> HookResult:
    if point.is_start:
        return HookResult.continue_with(modified_payload=value, replace=replace)
    return HookResult.continue_with(modified_output=value, replace=replace)
