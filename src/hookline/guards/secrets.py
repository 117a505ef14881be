"""mask_secrets: takes what looks like a secret out of what tools, models and agents give back.

Every pattern is bounded or begins where nothing like it can have begun before, so that a long text takes time in
proportion to its length. Masking what is masked changes nothing.
"""

from __future__ import annotations

import re

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import hook
from hookline.engine.result import HookResult
from hookline.guards.redact import answered
from hookline.secret_names import HIDDEN, WORDS, is_secret_to_agent


@hook(on=["tool.end", "model.end", "agent.end"], inline=True, name="mask_secrets")
def mask_secrets(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
    """Masks secrets of well-known shapes and under well-known names."""
    return answered(hook_context, masked)


def masked(text: str, key: str | None = None) -> str:
    """The text without secrets; `key` is the name it stands under, if it has one."""
    if key is not None and is_secret_to_agent(key) and _is_value(key, text):
        return HIDDEN
    text = _without_private_keys(text)
    found = 1
    while found:
        # One that stood right behind another begins a word only when that is gone.
        text, found = _SHAPES.subn(_hidden_shape, text)
    text = _AUTHORIZATION.sub(rf"\g<1>{HIDDEN}", text)
    text = _BEARER.sub(rf"\g<1>{HIDDEN}", text)
    text = _IN_URL.sub(rf"\g<1>{HIDDEN}@", text)
    return _ASSIGNED.sub(_hidden_value, text)


# What a provider's keys begin with, and the least that follows.
_PREFIXED = (
    r"sk-(?:ant|proj|svcacct|admin|or|lf)-[\w-]{16,}",
    r"sk-(?=[A-Za-z]{0,60}\d)[A-Za-z0-9]{20,}",
    r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",
    r"whsec_[A-Za-z0-9+/=]{16,}",
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_\w{20,}",
    r"gl(?:pat|ptt|dt|rt|soat)-[\w-]{16,}",
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    r"xox[abceoprs]-[\w-]{10,}",
    r"xapp-\d-[\w-]{10,}",
    r"AIza[\w-]{35}",
    r"ya29\.[\w-]{20,}",
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-[\w-]{50,}",
    r"hf_[A-Za-z0-9]{30,}",
    r"gsk_[A-Za-z0-9]{40,}",
    r"xai-[A-Za-z0-9]{40,}",
    r"r8_[A-Za-z0-9]{36,}",
    r"lin_api_[A-Za-z0-9]{30,}",
    r"do[opr]_v1_[a-f0-9]{64}",
    r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
    r"dapi[a-f0-9]{32}(?![A-Za-z0-9])",
    r"SG\.[\w-]{16,64}\.[\w-]{16,}",
    r"AGE-SECRET-KEY-1[0-9A-Z]{50,}",
    r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?",
)
_SHAPES = re.compile(
    rf"(?<![A-Za-z0-9_-])(?:{'|'.join(_PREFIXED)})"
    r"|(?<=hooks\.slack\.com/services/)[\w/]{20,}"
    r"|(?<![\w-])\d{8,10}:AA[\w-]{33}(?![\w-])"
)
_AUTHORIZATION = re.compile(
    r"((?<![A-Za-z])authorization\\{0,3}[\"']?[ \t]{0,3}[:=][ \t]{0,3}\\{0,3}[\"']?"
    r"(?:(?:bearer|basic|token|digest|negotiate|apikey|key)[ \t]{1,4})?)"
    r"(?!(?:bearer|basic|token|digest|negotiate|apikey|key)\b)[^\s\"',;$*<{(\[\\][^\s\"',;\\]{5,}",
    re.IGNORECASE,
)
_BEARER = re.compile(
    r"((?<![A-Za-z])bearer[ \t]{1,4})(?=[A-Za-z._~+/=-]{0,200}\d)[\w.~+/=-]{16,}", re.IGNORECASE
)
_IN_URL = re.compile(r"(://[^\s/:@\"'<>]{0,100}:)(?![$*{<])[^\s/@\"'<>]{1,256}@")

_ASSIGNED = re.compile(
    # An option's or variable's name, from the telling word on; then how it is written, then the value.
    rf"(?P<name>(?:{WORDS})[\w.-]{{0,40}}+)"
    r"(?:(?P<quoted>\\{0,3}[\"']?\]?[ \t]{0,3}(?:=>|:=|=|:)[ \t]{0,3}(?P<quote>\\{0,3}[\"']))(?P<inside>[^\s\"'\\]{4,}+(?=(?P=quote)))"
    r"|(?P<plain>=)(?P<value>[^\s\"'`;&|<>(){}\[\],$*\\]{4,}+)(?![(\[{])"
    r"|(?P<yaml>:[ \t]{1,4})(?P<line>[^\s\"'`;&|<>(){}\[\],$*\\]{8,}+)(?=[ \t]*(?:[\r\n]|$)))",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"\$\{?\w*\}?.*|\{\{.*|<.*>|%\(.*|\*+|process\.env\..*|os\.environ.*", re.DOTALL)
_NUMBER = re.compile(r"[\d.,_]+[kKmM]?")
_LETTERS = re.compile(r"[A-Za-z]")
_ANYTHING = re.compile(r"\d")
_PLAIN_VALUES = ("none", "null", "true", "false", "bearer", "basic", "digest", "negotiate")


def _is_value(name: str, value: str) -> bool:
    """Whether this can be a secret at all: not nothing, no reference, no count of tokens."""
    if not value.strip() or _REFERENCE.fullmatch(value) or value.lower() in _PLAIN_VALUES:
        return False
    return not (_NUMBER.fullmatch(value) and "token" in name.lower())


def _hidden_value(found: re.Match[str]) -> str:
    name = found["name"]
    value = found["inside"] or found["value"] or found["line"]
    if not is_secret_to_agent(name) or not _is_value(name, value):
        return found[0]
    looks = bool(_ANYTHING.search(value)) and bool(_LETTERS.search(value) or "token" not in name.lower())
    # Code is full of `token=next_token`; a variable's value or one with a digit is none.
    if found["plain"] and not (looks or name.isupper()):
        return found[0]
    if found["yaml"] and not looks:
        return found[0]
    return found[0].removesuffix(value) + HIDDEN


def _hidden_shape(_found: re.Match[str]) -> str:
    return HIDDEN


_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = re.compile(r"(?:[A-Za-z0-9+/=\s\\:,]|-(?!--))*")


def _without_private_keys(text: str) -> str:
    begins = _KEY_BEGINS.search(text)
    if begins is None:
        return text
    parts: list[str] = []
    done = 0
    closed = True
    while begins is not None:
        ends = _KEY_ENDS.search(text, begins.end()) if closed else None
        closed = ends is not None
        body = _KEY_BODY.match(text, begins.end())
        # A key that was cut off is one as far as it goes.
        stop = ends.start() if ends else body.end() if body else begins.end()
        parts.append(text[done : begins.end()])
        if text[begins.end() : stop].strip() or ends:
            parts.append(HIDDEN)
            done = stop
        else:
            done = begins.end()
        begins = _KEY_BEGINS.search(text, stop)
    parts.append(text[done:])
    return "".join(parts)
