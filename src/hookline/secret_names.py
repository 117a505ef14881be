"""The list of secret names, the only one.

Three functions read it, by the cost of a mistake:

- A variable's value (`secrets_in`) is masked wherever that very value stands. One word in the name is enough.
- A field of a record (`is_secret`) is masked by its name alone, so a field that only describes a secret is let
  through: its name, its type, a count of tokens.
- A field that an agent works with (`is_secret_to_agent`) must stay readable also where it says where a secret is
  kept: an agent that edits `PASSWORD_FILE` needs the path.
"""

from __future__ import annotations

from collections.abc import Mapping

from hookline.engine.secret_shapes import lazy_pattern

_KINDS_OF_KEY = ("access", "account", "api", "auth", "encryption", "master", "private", "service", "signing")
# Each alternative begins with a plain letter: patterns are searched much faster so.
KEYS = "|".join(rf"{kind}[_ .-]?key" for kind in _KINDS_OF_KEY)
"""The keys that make a name secret: the text of a pattern for lower case, and a part of `WORDS`."""
WORDS = (
    # Not a tokenizer, not a secretary, not the path of a file with passwords.
    r"token(?!i[sz])|secret(?!ar)|passw|passphrase|pgpass(?!file)|credential|authorization|cookie"
    rf"|{KEYS}"
)
"""The words that make a name secret: the text of a pattern for lower case."""

PLAIN_WORDS = ("token", "secret", "pass", "credential", "authorization", "cookie", "key")
"""At least one of these is in every text that `WORDS` fits: a plain search is much faster than a pattern."""

_WORDS = lazy_pattern(WORDS)
_ABOUT = lazy_pattern(
    r"(?:token|secret|passw(?:or)?d|credential|cookie|key)s?"
    r"(?:names?|(?:key)?refs?|types?|ur[li]s?|endpoints?|counts?|limits?|usage|budgets?|polic(?:y|ies))$"
    r"|^apikeysecret(?:key)?$|^imagepullsecrets?$"
)
_POINTERS = lazy_pattern(
    r"(?:names?|files?|paths?|dir|ur[li]s?|types?|counts?|limits?|lengths?|size|usage|used|budget|ids?|refs?|"
    r"polic(?:y|ies)|expiry|expires?(?:_?(?:in|at))?|ttl|env|fields?|headers?|endpoints?|scopes?|manager|store)$"
)
_BETWEEN_WORDS = lazy_pattern("[^a-z0-9]+")
_LONGEST = 120


def secret_words(name: str) -> set[str]:
    """The words in a name that make it secret."""
    low = name.lower()
    if low == "auth":
        return {low}
    if not any(word in low for word in PLAIN_WORDS):
        return set()
    return set(_WORDS.findall(low))


def secrets_in(*environments: Mapping[str, object]) -> list[str]:
    """The texts under secret names in these environments."""
    pairs = (pair for environ in environments for pair in environ.items())
    return [value for name, value in pairs if isinstance(value, str) and secret_words(name)]


def is_secret(name: str) -> bool:
    """True if a field of this name holds a secret; False for one that only describes a secret (`token_type`)."""
    if len(name) > _LONGEST or not secret_words(name):
        return False
    return _ABOUT.search(_BETWEEN_WORDS.sub("", name.lower())) is None


def is_secret_to_agent(name: str) -> bool:
    """True if a field of this name holds a secret, and does not merely say where one is kept (`token_file`)."""
    return is_secret(name) and _POINTERS.search(name.strip().lower()) is None
