"""`hookline explain --for adk`: what hooks come to around an agent of another framework, and what they do not reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from hookline.engine.hook import Hook, Mode, settled_on_error
from hookline.engine.point import Point
from hookline.errors import UsageError
from hookline.pyagent.load import load_hooks
from hookline.runners.local import LocalRunner
from hookline.terminal import out, print_json

__all__ = ["explained_for"]


class Gap(Protocol):
    """One path that a framework lets nobody hook, and the points that this concerns."""

    @property
    def points(self) -> tuple[str, ...]: ...

    @property
    def text(self) -> str: ...


class System(NamedTuple):
    """A framework that hookline has an adapter for."""

    name: str
    gaps: tuple[Gap, ...]


def _adk() -> System:
    from hookline.adapters import google_adk

    return System(f"google-adk {google_adk.TESTED}", google_adk.gaps())


SYSTEMS: dict[str, Callable[[], System]] = {"adk": _adk}


def explained_for(word: str, files: Iterable[str], *, json: bool) -> int:
    """Print the hooks of the files by point, and every gap that concerns one of them."""
    if word not in SYSTEMS:
        raise UsageError(f"--for is {word!r}; known: {', '.join(SYSTEMS)}")
    system = SYSTEMS[word]()
    hooks = _hooks(files)
    rows = list(_rows(hooks))
    standing = {str(row["point"]) for row in rows}
    concerned = [gap for gap in system.gaps if standing & set(gap.points)]
    if json:
        gaps = [{"points": list(gap.points), "text": gap.text} for gap in concerned]
        print_json({"for": system.name, "hooks": rows, "gaps": gaps})
        return 0
    out.print(f"around an agent of {system.name}")
    point = None
    for row in rows:
        if row["point"] != point:
            point = row["point"]
            out.print(f"\n{point}", style="bold")
        out.print(f"  {row['order']}. {row['name']} ({row['kind']}), if it breaks: {row['on_error']}")
        out.print(f"     {row['source']}", style="dim")
    out.print(
        "\nnot hooked there, or not wholly" if concerned else "\nall of it is hooked there", style="bold"
    )
    for gap in concerned:
        named = ", ".join(point for point in gap.points if point in standing)
        out.print(f"  {named}: {gap.text}")
    return 0


def _hooks(files: Iterable[str]) -> list[Hook]:
    found: list[Hook] = []
    for file in files:
        attached = load_hooks(file, LocalRunner())
        if attached.problems:
            raise attached.problems[0]
        found += attached.hooks
    return found


def _rows(hooks: list[Hook]) -> Iterable[dict[str, Any]]:
    for point in Point:
        standing = [hook for hook in hooks if point in hook.points and hook.mode is not Mode.OFF]
        for order, hook in enumerate(standing, 1):
            yield {
                "point": point,
                "order": order,
                "name": hook.name,
                "kind": hook.kind,
                "match": hook.match_text,
                "on_error": settled_on_error(hook, point),
                "mode": hook.mode,
                "source": hook.source,
            }
