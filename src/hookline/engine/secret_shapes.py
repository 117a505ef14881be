"""Secrets by shape: the only table of how the keys and tokens of well-known services look.

The journal, the terminal, the reasons of a refusal and the guard `mask_secrets` use it. Every pattern is bounded or
begins at a fixed text, so that the time is proportional to the length of the text; each is compiled on first use.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _LazyPattern:
    def __init__(self, text: str, flags: int) -> None:
        self._pattern = text, flags

    def __getattr__(self, name: str) -> Any:
        # Found as a plain attribute from now on.
        value = self.__dict__[name] = getattr(re.compile(*self._pattern), name)
        return value


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern that is compiled when first used: most texts need few of them, and starting must be quick."""
    return cast("re.Pattern[str]", _LazyPattern(text, flags))


HIDDEN = "***"
"""Stands where a secret was."""

# How a token begins, and the rest of it with the least number of characters.
_TOKENS = (
    (r"sk-", r"(?:ant|proj|svcacct|admin|or|lf)-[\w-]{16,}"),
    (r"sk-", r"(?=[A-Za-z]{0,60}\d)[A-Za-z0-9]{20,}"),
    (r"[sr]k_(?:live|test)_", r"[A-Za-z0-9]{16,}"),
    (r"whsec_", r"[A-Za-z0-9+/=]{16,}"),
    (r"gh[pousr]_", r"[A-Za-z0-9]{20,}"),
    (r"github_pat_", r"\w{20,}"),
    (r"gl(?:pat|ptt|dt|rt|soat)-", r"[\w-]{16,}"),
    # A key id, and the key itself where that is written beside it.
    (
        r"(?:AKIA|ASIA|ABIA|ACCA)",
        r"[A-Z0-9]{16}(?![A-Za-z0-9])(?:[\s:,;|\"'\\]{1,4}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?",
    ),
    (r"xox[abceoprs]-", r"[\w-]{10,}"),
    (r"xapp-\d-", r"[\w-]{10,}"),
    (r"AIza", r"[\w-]{35}"),
    (r"ya29\.", r"[\w-]{20,}"),
    (r"npm_", r"[A-Za-z0-9]{36}"),
    (r"pypi-", r"[\w-]{50,}"),
    (r"hf_", r"[A-Za-z0-9]{30,}"),
    (r"gsk_", r"[A-Za-z0-9]{40,}"),
    (r"xai-", r"[A-Za-z0-9]{40,}"),
    (r"r8_", r"[A-Za-z0-9]{36,}"),
    (r"lin_api_", r"[A-Za-z0-9]{30,}"),
    (r"do[opr]_v1_", r"[a-f0-9]{64}"),
    (r"shp(?:at|ca|pa|ss)_", r"[a-fA-F0-9]{32}"),
    (r"dapi", r"[a-f0-9]{32}(?![A-Za-z0-9])"),
    (r"SG\.", r"[\w-]{16,64}\.[\w-]{16,}"),
    # Docker, Vault, Grafana, Sentry, Notion, Figma, Perplexity and Atlassian; identifiers that begin so have no digit.
    (
        r"(?:dckr_[op]at_|hv[bs]\.|gl(?:c|sa)_|sntry[su]_|ntn_|figd_|pplx-|ATATT3)",
        r"(?=[A-Za-z_=+/-]{0,60}\d)[\w=+/-]{24,}",
    ),
    (r"AccountKey=", r"[A-Za-z0-9+/]{80,}={0,2}"),
    (r"AGE-SECRET-KEY-1", r"[0-9A-Z]{50,}"),
    (r"eyJ", r"[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?"),
)
_TOKEN = lazy_pattern(
    rf"(?<![A-Za-z0-9_-])(?:{'|'.join(begins + rest for begins, rest in _TOKENS)})"
    r"|(?<=hooks\.slack\.com/services/)[\w/]{20,}"
    r"|(?<![\w-])\d{8,10}:AA[\w-]{33}(?![\w-])"
)
_IN_URL = lazy_pattern(r"(://[^\s/:@\"'<>]{0,100}:)(?![$*{<])[^\s/@\"'<>]{1,256}@")
_KEY_BEGINS = lazy_pattern(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = lazy_pattern(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = lazy_pattern(r"(?:[A-Za-z0-9+/=\s\\:,]|-(?!--))*")

HINTS = "|".join(
    (
        *dict.fromkeys(begins for begins, _ in _TOKENS),
        r"hooks\.slack\.com/services/",
        r":AA[\w-]{33}",
        r"://[^\s/\"]*:[^\s/\"]*@",
        "PRIVATE KEY",
    )
)
"""The beginnings of all secrets of known shapes, as the text of a pattern: without one of them there is none."""
_HINT = lazy_pattern(HINTS)


def without_shapes(text: str) -> str:
    """The text without tokens, private keys and passwords in URLs; `HIDDEN` stands in their place."""
    if _HINT.search(text) is None:
        return text
    text = _without_private_keys(text)
    found = 1
    while found:
        # A secret directly after another begins a word only once that one is masked.
        text, found = _TOKEN.subn(HIDDEN, text)
    return _IN_URL.sub(rf"\g<1>{HIDDEN}@", text)


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
