"""A text without its secrets: those of known shapes, and values that follow a secret name.

What follows a name is a guess, so only what can be a secret is taken: no words of a sentence, no code, no references. In a
command the value ends where another command may begin, so that none is ever hidden.
"""

import re
from typing import NamedTuple

from hookline.engine.stdlib import lazy_pattern
from hookline.secrets import HIDDEN, KEYS, PLAIN_WORDS, WORDS, is_plain, is_secret_to_agent, secret_words
from hookline.secrets.shapes import without_shapes


def without_secrets(text: str) -> str:
    """The text with `HIDDEN` in the place of each secret; doing so again changes nothing."""
    text = without_shapes(text)
    low = _lowered(text)
    # Plain words first, for they are found much faster than patterns.
    if any(word in low for word in _NAMED):
        for pattern in (_ASSIGNED, _FLAGGED):
            text = _without_assigned(text, pattern)
        text = _BEARER.sub(rf"\g<1>{HIDDEN}", text)
    for hint, pattern in _SPOKEN:
        if hint in low:
            text = _without_spoken(text, pattern)
    return text


def may_hold_name(text: str) -> bool:
    """True if a JSON text may hold a secret that only what stands before it tells of; False is certain."""
    low = text.lower()
    # Plain words first, for they are found much faster than patterns.
    if "secret" in low or "credential" in low or "cookie" in low or "bearer" in low:
        return True
    if "pass" in low and ("passw" in low or "passphrase" in low or "pgpass" in low):
        return True
    if "auth" in low and ("authorization" in low or '"auth"' in low):
        return True
    if "token" in low and _SOME_TOKEN.search(low) is not None:
        return True
    if "key" in low and _SOME_KEY.search(low) is not None:
        return True
    return any(map(low.__contains__, _HINTS))


# A number behind a JSON key that ends in tokens, or in tokens_used, is a count.
_SOME_TOKEN = lazy_pattern(r'token(?!s?(?:_[a-z]{1,20}){0,2}":(?:[\d-]|null))')
_SOME_KEY = lazy_pattern(KEYS)


_NAMED = (*PLAIN_WORDS, "bearer")

# Each starts at the word itself and is bounded, so that a long text takes time in proportion to its length.
_ASSIGNED = lazy_pattern(
    rf"(?P<name>(?:{WORDS})[\w.-]{{0,60}}+)(?P<closed>(?:\\{{0,7}}[\"'])?\]?)"
    r"(?P<sep>[ \t]{0,4}(?:=>|:=|==?|:)[ \t]{0,4})"
    r"(?P<scheme>(?:bearer|basic|token|apikey|negotiate|bot|ssws|key)[ \t]{1,4}(?=\S))?"
)
_FLAGGED = lazy_pattern(
    rf"--(?:[\w-]{{0,40}}?)(?P<name>(?:{WORDS})[\w-]{{0,40}}+)(?P<closed>)(?P<sep>[ \t]{{1,4}})(?P<scheme>)(?!-)"
)
_BEARER = lazy_pattern(
    r"((?<![A-Za-z])bearer[ \t]{1,4})(?=[A-Za-z._~+/=-]{0,200}\d)[\w.~+/=-]{16,}", re.IGNORECASE
)
_QUOTE = lazy_pattern(r"(\\{0,7})([\"'])")
_WORD = lazy_pattern(r"(?:[^\s\"'&;|<>`\\$]|\\(?![\"'nrt\\])|\$(?!\())+")
_LINE = lazy_pattern(r"(?:[^\r\n\"'\\;&|`$]|\\(?![\"'nrt\\]))+")
_COOKIES = lazy_pattern(
    r"[\w.!#%*+^~-]{1,100}=[^\s;\"'|&<>`$\\]+"
    r"(?:;[ ]?(?:(?:expires|max-age|path|domain|samesite)=[\w ,:./-]*|httponly|secure|partitioned"
    r"|[\w.!#%*+^~-]{1,100}=(?!/)[^\s;\"'|&<>`$\\]*)(?=[;\r\n\"'\\]|$))*",
    re.IGNORECASE,
)
_SEPARATOR = lazy_pattern(r"[;&|\n]")
_ENDS = lazy_pattern(r"[ \t]*(?:$|[\r\n,;)}\]\"'&|\\])")
_CODE = lazy_pattern(r"[A-Za-z_][\w.]*[(\[].*", re.DOTALL)
_NAME = lazy_pattern(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_MIXED = lazy_pattern(
    r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z]).{6,}|(?=.*[a-z])(?=.*[A-Z])[A-Za-z+/=]{24,}", re.DOTALL
)
_COUNT = lazy_pattern(r"\d[\d.,_]{0,14}[kKmM]?")
_WORDS_OF_A_SENTENCE = frozenset(
    [
        "is",
        "to",
        "or",
        "and",
        "was",
        "must",
        "needs",
        "need",
        "from",
        "with",
        "for",
        "option",
        "flag",
        "in",
        "as",
        "not",
        "requires",
        "file",
        "stdin",
        "prompt",
        "can",
        "will",
        "may",
        "should",
        "has",
        "on",
    ]
)


class _Quotes:
    """Counts the quotation marks of a text up to places that only go forward."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._odd = {'"': False, "'": False}

    def are_odd(self, place: int) -> dict[str, bool]:
        for mark in self._odd:
            self._odd[mark] ^= self._text.count(mark, self._at, place) % 2 == 1
        self._at = place
        return self._odd


class _Value(NamedTuple):
    """The value that follows a name in a text."""

    start: int
    end: int
    quoted: bool


def _without_assigned(text: str, pattern: re.Pattern[str]) -> str:
    low = _lowered(text)
    found = pattern.search(low)
    parts: list[str] = []
    done = 0
    quotes = _Quotes(text)
    while found is not None:
        value = _value_after(text, found, quotes)
        if value.end > value.start and _is_secret(text, found, value):
            parts += text[done : value.start], HIDDEN
            done = value.end
        # Never back into the part already read: an unclosed quote must not be searched for again and again.
        found = pattern.search(low, max(found.end(), value.end))
    return "".join((*parts, text[done:]))


def _value_after(text: str, found: re.Match[str], quotes: _Quotes) -> _Value:
    name, start = found["name"], found.end()
    quote = _QUOTE.match(text, start)
    if quote is not None:
        return _Value(quote.end(), _quoted_end(text, quote, quotes), True)
    shape = _COOKIES if name.startswith("cookie") else _LINE if name.startswith("authorization") else _WORD
    word = shape.match(text, start)
    if word is None:
        return _Value(start, start, False)
    return _Value(start, start + len(word[0].rstrip(",)}]> \t")), False)


def _quoted_end(text: str, quote: re.Match[str], quotes: _Quotes) -> int:
    start, mark = quote.end(), quote[2]
    end = _closing(text, start, mark, len(quote[1]))
    separator = _SEPARATOR.search(text, start, end)
    if separator is None:
        return end
    # The mark may end what another one began, or have no end; then commands may follow in what looks quoted.
    odd = quotes.are_odd(quote.start(2))
    other = "'" if mark == '"' else '"'
    is_surely_quoted = end < len(text) and not odd[mark] and not (odd[other] and other in text[start:end])
    return end if is_surely_quoted else separator.start()


def _closing(text: str, start: int, quote: str, escapes: int) -> int:
    """The end of a quoted value: at the same quote with no more backslashes than the opening one had."""
    at = start
    while (at := text.find(quote, at)) >= 0:
        slashes = at
        while slashes > start and text[slashes - 1] == "\\":
            slashes -= 1
        if at - slashes <= escapes:
            return slashes
        at += 1
    return len(text)


def _is_secret(text: str, found: re.Match[str], value: _Value) -> bool:
    name, said = found["name"], text[value.start : value.end]
    if not is_secret_to_agent(name) or is_plain(said) or said.startswith(HIDDEN):
        return False
    if secret_words(name) == {"token"} and _COUNT.fullmatch(said) and ("tokens" in name or len(said) < 6):
        return False
    if value.quoted or found["scheme"] or name.startswith("cookie"):
        return True
    return _is_secret_unquoted(text, found, said, value.end)


def _is_secret_unquoted(text: str, found: re.Match[str], said: str, end: int) -> bool:
    name, sep = found["name"], found["sep"]
    written = text[found.start("name") : found.end("name")]
    if _CODE.fullmatch(said) or text[end : end + 1] in ("(", "[") or said.startswith("id="):
        return False
    if written.isupper() and sep == "=":
        return True
    code = _NAME.fullmatch(said) and (secret_words(said) or said.startswith(("get_", "next_", "new_")))
    if code:
        return False
    if _MIXED.fullmatch(said) or (said.isdecimal() and len(said) >= 6):
        return True
    if name.startswith("authorization"):
        return not said.isalpha()
    if sep == "=":
        return not (_NAME.fullmatch(said) and ("." in said or "_" in said))
    if not name.startswith(("passw", "passphrase")):
        return False
    if not sep.strip():
        return said.lower() not in _WORDS_OF_A_SENTENCE
    return sep.strip() == ":" and not found["closed"] and _ENDS.match(text, end) is not None


# Secrets after a flag of a program, or in a file of its own: a text that is in each, and the pattern of the whole.
_TOLD = r"(?P<said>(?![$*<{])[^\s\"';&|`<>\\]{1,256})"
_SPOKEN = tuple(
    (hint, lazy_pattern(pattern, re.IGNORECASE))
    for hint, pattern in (
        (
            "curl",
            r"\bcurl\b[^\n;|&]{0,300}?\s(?:-u|--user|-U|--proxy-user)[ =]?[\"']?[\w.@+%-]{0,64}:" + _TOLD,
        ),
        ("wget", r"\bwget\b[^\n;|&]{0,300}?\s--(?:http-|ftp-|proxy-)?password=" + _TOLD),
        ("sshpass", r"\bsshpass\s+-p\s{0,3}[\"']?" + _TOLD),
        ("mysql", r"\bmysql(?:dump|admin|import)?\b[^\n;|&]{0,200}?\s-p(?![\s-])[\"']?" + _TOLD),
        ("mariadb", r"\bmariadb\b[^\n;|&]{0,200}?\s-p(?![\s-])[\"']?" + _TOLD),
        ("redis-cli", r"\bredis-cli\b[^\n;|&]{0,200}?\s-a\s{1,3}[\"']?" + _TOLD),
        ("login", r"\blogin\b[^\n;|&]{0,200}?\s-p[ =]{0,3}[\"']?(?!\d{1,5}\b)" + _TOLD),
        (
            "login",
            r"(?:\bmachine\s{1,8}[^\s\"';&|\\]{1,100}|\bdefault)(?:\s|\\[nrt]){1,8}login(?:\s|\\[nrt]){1,8}[^\s\"';&|\\]{1,100}"
            r"(?:\s|\\[nrt]){1,8}password\s{1,8}" + _TOLD,
        ),
        ("pass:", r"(?<![A-Za-z])pass:" + _TOLD),
        ("pwd=", r"(?:mysql_|;[ ]?)pwd=(?![/~.])" + _TOLD),
        *(
            (
                f"auth{mark}",
                r"(?<![A-Za-z_])auth\\{0,3}[\"']\s{0,3}:\s{0,3}\\{0,3}[\"'](?P<said>[A-Za-z0-9+/=]{8,})",
            )
            for mark in ('"', "'", "\\")
        ),
    )
)

_HINTS = tuple(dict.fromkeys(hint for hint, _ in _SPOKEN))


def _without_spoken(text: str, pattern: re.Pattern[str]) -> str:
    return pattern.sub(
        lambda found: (
            found[0][: found.start("said") - found.start()]
            + HIDDEN
            + found[0][found.end("said") - found.start() :]
        ),
        text,
    )


def _lowered(text: str) -> str:
    low = text.lower()
    if len(low) == len(text):
        return low
    # A few letters grow when lowered, and positions must stay.
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)
