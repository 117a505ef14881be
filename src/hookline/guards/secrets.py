"""mask_secrets: masks text that looks like a secret in the output of tools, models and agents.

Every pattern is bounded or has an anchored start, so that the time is proportional to the length of the text. Masking
a masked text changes nothing.
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
    """The text without secrets; `key` is the key it is stored under, if any."""
    if key is not None and is_secret_to_agent(key) and _is_value(key, text):
        return HIDDEN
    text = _without_private_keys(text)
    found = 1
    while found:
        # A secret directly after another begins a word only once that one is masked.
        text, found = _SHAPES.subn(HIDDEN, text)
    text = _AUTHORIZATION.sub(rf"\g<1>{HIDDEN}", text)
    text = _BEARER.sub(rf"\g<1>{HIDDEN}", text)
    text = _IN_URL.sub(rf"\g<1>{HIDDEN}@", text)
    return _ASSIGNED.sub(_hidden_value, text)


# The prefixes of providers' keys, with the least number of characters that follow.
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
    # The name of an option or variable from the word that marks a secret; then the separator, then the value.
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
    """True if the value can be a secret: not empty, not a reference, not a number of tokens."""
    if not value.strip() or _REFERENCE.fullmatch(value) or value.lower() in _PLAIN_VALUES:
        return False
    return not (_NUMBER.fullmatch(value) and "token" in name.lower())


def _hidden_value(found: re.Match[str]) -> str:
    name = found["name"]
    value = found["inside"] or found["value"] or found["line"]
    if not is_secret_to_agent(name) or not _is_value(name, value):
        return found[0]
    looks = bool(_ANYTHING.search(value)) and bool(_LETTERS.search(value) or "token" not in name.lower())
    # Code is full of `token=next_token`: only an upper-case name or a value with a digit counts.
    if found["plain"] and not (looks or name.isupper()):
        return found[0]
    if found["yaml"] and not looks:
        return found[0]
    return found[0].removesuffix(value) + HIDDEN


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
        # A key that is cut off is masked up to its last character.
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
