"""Guards that rewrite text: mask_secrets, redact_emails and redact_phones.

Each rewrites the texts in nested values, at any point, and changes nothing if none is found. Every pattern is bounded
or has an anchored start, so that the time is proportional to the length of the text; it is compiled on first use.
Rewriting a rewritten text changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import hook
from hookline.engine.point import Point
from hookline.engine.result import CONTINUE, HookResult
from hookline.engine.stdlib import lazy_pattern
from hookline.secrets import HIDDEN, is_plain, is_secret_to_agent
from hookline.secrets.text import without_secrets

EMAIL = "[email]"
PHONE = "[phone]"
_OUTPUTS = ("tool.end", "model.end", "agent.end")
_TEXTS = ("agent.start", *_OUTPUTS)

Rewrite = Callable[[str, str | None], str]
"""Returns the replacement of a text, given the text and the key it is stored under."""

# Keys that are never rewritten: ids, settings of a request, and arguments of tool calls.
KEPT: Mapping[Point, frozenset[str]] = {
    Point.AGENT_START: frozenset({"provider_kwargs"}),
    Point.AGENT_END: frozenset({"agent_run_id", "session_id"}),
    Point.MODEL_END: frozenset({"tool_calls"}),
}


@hook(on=_OUTPUTS, inline=True, name="mask_secrets", changes="output")
def mask_secrets(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
    """Masks secrets of well-known shapes and under well-known names."""
    return answered(hook_context, masked)


@hook(on=_TEXTS, inline=True, name="redact_emails", changes="output")
def redact_emails(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
    """Replaces every e-mail address by `[email]`."""
    return answered(hook_context, without_emails)


@hook(on=_TEXTS, inline=True, name="redact_phones", changes="output")
def redact_phones(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
    """Replaces every phone number in a common notation by `[phone]`."""
    return answered(hook_context, without_phones)


def without_emails(text: str, key: str | None = None) -> str:
    return _EMAIL.sub(EMAIL, text) if _AT.search(text) else text


def without_phones(text: str, key: str | None = None) -> str:
    return _PHONE.sub(PHONE, text) if "tel:" in text or _DIGIT.search(text) else text


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
        # A flag and its value, as programs are called with them.
        flags = [
            each.lstrip("-") if isinstance(each, str) and each.startswith("--") else "" for each in items
        ]
        after = [
            rewritten(item, rewrite, flag or key) for item, flag in zip(items, ["", *flags], strict=False)
        ]
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
        # Kubernetes and HTTP libraries write a name and its value as two entries.
        of = value.get("name", value.get("key")) if key == "value" else key
        after[name] = rewritten(item, rewrite, of if isinstance(of, str) else None)
        same = same and name == key and after[name] is item
    return value if same else after


def _changed(point: Point, value: Any, *, replace: bool = False) -> HookResult:
    if point.is_start:
        return HookResult.continue_with(modified_payload=value, replace=replace)
    return HookResult.continue_with(modified_output=value, replace=replace)


_AT = lazy_pattern(r"@|\uff20|%40|&#64;|[\[(]\s?at\s?[\])]", re.IGNORECASE)
_EMAIL = lazy_pattern(
    r"(?<![\w.%+-])(?!git@)[\w.%+'-]{0,63}\w[ ]?(?:@|\uff20|&#64;|[\[(]\s?at\s?[\])])"
    # Not a file name such as logo@2x.png.
    r"[ ]?(?!\d{1,2}x\.)(?:[^\W_](?:[\w-]{0,61}[^\W_])?(?:\.|[ ]?[\[(]\s?dot\s?[\])][ ]?)){1,8}[^\W\d_]{2,24}(?![\w-])"
    r"|(?<![\w.%+-])[\w.+-]{1,64}%40(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])",
    re.IGNORECASE,
)

_BEFORE = r"(?<![\w.,:/+#$@=-])"
_AFTER = r"(?![\w/=@:]|[.,-]\w)"
_PHONE = lazy_pattern(
    "|".join(
        (
            # +49 (0)30 123456, +1 415-555-2671, +14155552671
            r"(?<![\w.,/+#$@-])\+[1-9](?:[ ().\u00a0/-]{0,3}\d){7,14}" + _AFTER,
            # 0049 30 123456: only in groups, because a long number alone may be anything
            _BEFORE + r"00[1-9]\d{0,2}[ -]\(?\d{1,4}\)?(?:[ -]?\d){5,9}" + _AFTER,
            # (415) 555-2671, 415-555-2671, 1-415-555-2671, 415.555.2671
            r"(?<![\w.,:/+#$@=-])(?:1[ .-])?(?:\([2-9]\d\d\)[ ]?|[2-9]\d\d(?P<sep>[ .-]))[2-9]\d\d(?(sep)(?P=sep)|[ .-])\d{4}"
            + _AFTER,
            # 06 12 34 56 78
            _BEFORE + r"0[1-9](?P<two>[ .-])\d\d(?:(?P=two)\d\d){3}" + _AFTER,
            # 020 7946 0958, 0171/1234567, (030) 1234567
            _BEFORE + r"(?:\(0[1-9]\d{1,3}\)[ ]?|0[1-9]\d{1,3}[ /-])\d{3,4}[ -]?\d{3,5}" + _AFTER,
            r"(?<=tel:)\+?[\d().-]{7,20}",
        )
    )
)


def masked(text: str, key: str | None = None) -> str:
    """The text without secrets; `key` is the key it is stored under, if any."""
    if key is not None and is_secret_to_agent(key) and not is_plain(text) and not _is_count(key, text):
        return HIDDEN
    return without_secrets(text)


def _is_count(name: str, value: str) -> bool:
    return "token" in name.lower() and _NUMBER.fullmatch(value) is not None


_NUMBER = lazy_pattern(r"[\d.,_]+[kKmM]?")
_DIGIT = lazy_pattern(r"\d")
