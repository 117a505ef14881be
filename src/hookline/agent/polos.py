"""The words of Polos: keywords of an agent for points, and lists of functions for hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from hookline.engine.point import Point
from hookline.errors import UsageError

KEYWORDS: Mapping[str, Point] = {
    "on_run_start": Point.RUN_START,
    "on_run_end": Point.RUN_END,
    "on_session_start": Point.SESSION_START,
    "on_session_end": Point.SESSION_END,
    "on_start": Point.AGENT_START,
    "on_end": Point.AGENT_END,
    "on_agent_step_start": Point.STEP_START,
    "on_agent_step_end": Point.STEP_END,
    "on_model_start": Point.MODEL_START,
    "on_model_end": Point.MODEL_END,
    "on_tool_start": Point.TOOL_START,
    "on_tool_end": Point.TOOL_END,
}
"""Six are the seed's; the others name the points that it does not have."""


def functions(keyword: str, given: Any) -> list[Callable[..., Any]]:
    """What was given to a keyword, as a list: nothing, one function, or several."""
    if given is None:
        return []
    if callable(given):
        return [given]
    if not isinstance(given, list | tuple):
        raise UsageError(
            f"Invalid hooks type: {keyword} is {type(given).__name__}; give a list of functions, or one function"
        )
    for item in cast("Iterable[Any]", given):
        if not callable(item):
            raise UsageError(f"Invalid hook type: {keyword} has {item!r}; each must be a function")
    return list(cast("Iterable[Callable[..., Any]]", given))
