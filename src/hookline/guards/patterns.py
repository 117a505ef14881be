"""Patterns that are compiled when they are first used: a guard has many, and one command needs few of them."""

from __future__ import annotations

import re
from typing import Any, cast


class _Later:
    def __init__(self, text: str, flags: int) -> None:
        self._pattern = text, flags

    def __getattr__(self, name: str) -> Any:
        # From now on it is found without asking here.
        value = self.__dict__[name] = getattr(re.compile(*self._pattern), name)
        return value


def compiled_later(text: str, flags: int = 0) -> re.Pattern[str]:
    return cast("re.Pattern[str]", _Later(text, flags))
