"""Regular expressions compiled on first use: a guard has many, and one command needs few of them."""

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


def compiled_later(text: str, flags: int = 0) -> re.Pattern[str]:
    return cast("re.Pattern[str]", _LazyPattern(text, flags))
