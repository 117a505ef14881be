"""One-time codes of questions: an answer from another terminal counts if it was given with the code.

The code is shown where the question is, and kept nowhere. The process that waits keeps the key that is derived from
it. The journal has a salted digest of the key, by which a mistyped code is told, and a signature with each answer:
who writes into the journal without the code has not answered, nor has a person to whom another question was shown.
"""

import os
from typing import NamedTuple

from hookline.engine.record import Question, Verdict
from hookline.journal.masking import dumped, storable

_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Without those that look alike; 32, so that each has five bits."""
_LENGTH = 8
_ROUNDS = 100_000
"""Rounds of the derivation, which make guesses from the digest slow: a code is shorter than a key."""


class Code(NamedTuple):
    """A code as it is shown, its key, and what the journal keeps of it."""

    text: str
    key: bytes
    digest: str


def new_code() -> Code:
    letters = "".join(_LETTERS[byte % 32] for byte in os.urandom(_LENGTH))
    salt = os.urandom(16)
    key = _key(letters, salt)
    return Code(f"{letters[:4]}-{letters[4:]}", key, f"{salt.hex()}.{_digest(key)}")


def key_of(code: str, digest: str) -> bytes | None:
    """The key of a code that a person typed; None if it is not the code of that digest."""
    salt, _, known = digest.partition(".")
    key = _key("".join(filter(str.isalnum, code.upper())), bytes.fromhex(salt))
    return key if _digest(key) == known else None


def signature(key: bytes, shown: Question, kind: str, text: str, by: str, rewrite: str | None) -> str:
    """The signature of an answer, of the texts that the journal keeps, to a question as it was shown."""
    import hmac
    import json

    asked = [shown.id, shown.point, shown.tool, shown.reasons, shown.value, shown.hidden, shown.digest]
    return hmac.digest(key, json.dumps([asked, kind, text, by, rewrite]).encode(), "sha256").hex()


def is_signed(key: bytes, shown: Question, verdict: Verdict) -> bool:
    """True if a verdict from the journal was given with the code of that key, to the question as it should be shown."""
    rewrite = None if verdict.value is None else storable(dumped(verdict.value) or "")
    return verdict.signature == signature(key, shown, verdict.kind.value, verdict.text, verdict.by, rewrite)


def _key(letters: str, salt: bytes) -> bytes:
    import hashlib  # slow to load, and few commands need it

    return hashlib.pbkdf2_hmac("sha256", letters.encode(), salt, _ROUNDS)


def _digest(key: bytes) -> str:
    import hashlib

    return hashlib.sha256(key).hexdigest()
