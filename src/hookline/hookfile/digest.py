"""SHA-256 without OpenSSL, whose loading would take a tenth of the time of `hookline answer`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any


def digest(parts: Iterable[bytes]) -> str:
    """Of all the parts, as one content."""
    found = _sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


def _own() -> Any:
    """Python's own: the first name from 3.12 on, the second before. One built without it has only the third."""
    for name in ("_sha2", "_sha256"):
        try:
            return import_module(name).sha256
        except ImportError:
            continue
    return import_module("hashlib").sha256


_sha256 = _own()
