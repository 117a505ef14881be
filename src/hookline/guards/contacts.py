"""redact_emails and redact_phones: remove e-mail addresses and phone numbers from inputs and outputs."""

from __future__ import annotations

import re

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import hook
from hookline.engine.result import HookResult
from hookline.guards.redact import answered

EMAIL = "[email]"
PHONE = "[phone]"
_POINTS = ("agent.start", "tool.end", "model.end", "agent.end")


@hook(on=_POINTS, inline=True, name="redact_emails")
def redact_emails(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
    """Replaces every e-mail address by `[email]`."""
    return answered(hook_context, without_emails)


@hook(on=_POINTS, inline=True, name="redact_phones")
def redact_phones(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
    """Replaces every phone number in a common notation by `[phone]`."""
    return answered(hook_context, without_phones)


def without_emails(text: str, key: str | None = None) -> str:
    if not _AT.search(text):
        return text
    return _EMAIL.sub(EMAIL, text)


def without_phones(text: str, key: str | None = None) -> str:
    return _PHONE.sub(PHONE, text)


_AT = re.compile(r"@|\uff20|%40|&#64;|[\[(]\s?at\s?[\])]", re.IGNORECASE)
_EMAIL = re.compile(
    r"(?<![\w.%+-])(?!git@)[\w.%+'-]{0,63}\w[ ]?(?:@|\uff20|&#64;|[\[(]\s?at\s?[\])])"
    # Not a file name such as logo@2x.png.
    r"[ ]?(?!\d{1,2}x\.)(?:[^\W_](?:[\w-]{0,61}[^\W_])?(?:\.|[ ]?[\[(]\s?dot\s?[\])][ ]?)){1,8}[^\W\d_]{2,24}(?![\w-])"
    r"|(?<![\w.%+-])[\w.+-]{1,64}%40(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])",
    re.IGNORECASE,
)

_BEFORE = r"(?<![\w.,:/+#$@=-])"
_AFTER = r"(?![\w/=@:]|[.,-]\w)"
_PHONE = re.compile(
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
