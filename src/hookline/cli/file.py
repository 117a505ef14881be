"""`hookline run`, `serve`, `try`, `check` and `explain`: commands on a file, carried out by its system."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from hookline import systems
from hookline.engine.hook import Hook, Mode, settled_on_error
from hookline.engine.point import Point
from hookline.errors import HooklineError, UsageError
from hookline.options import CheckOptions, ExplainOptions, RunOptions, ServeOptions, TryOptions
from hookline.terminal import out, print_explained, print_json


def run(options: RunOptions) -> int:
    options.set_environment()
    if options.resume:
        from hookline.sympozium.run.command import resume_agentrun

        return resume_agentrun(options)
    if not options.file:
        raise UsageError("FILE is missing: hookline run FILE")
    return systems.run(options)


def check(options: CheckOptions) -> int:
    options.set_environment()
    found: list[str] = []
    notes: list[str] = []
    more = _more_hooks(options.hooks, found)
    for file in options.files:
        try:
            told = systems.problems(file, options, more)
            found += told.problems
            notes += told.notes
        except HooklineError as exc:
            found.append(str(exc))
    found, notes = list(dict.fromkeys(found)), list(dict.fromkeys(notes))
    if options.json:
        print_json({"files": options.files, "problems": found, "notes": notes})
    else:
        for text in (*notes, *found):
            out.print(text)
        count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
        out.print(count if found else f"{', '.join(options.files)}: no problems")
    return 2 if found else 0


def _more_hooks(files: tuple[str, ...], found: list[str]) -> list[Hook]:
    if not files:
        return []
    from hookline.hookfile.attach import load_hooks
    from hookline.runners.local import LocalRunner

    more: list[Hook] = []
    for each in files:
        try:
            attached = load_hooks(each, LocalRunner())
        except HooklineError as exc:
            found.append(str(exc))
            continue
        more += attached.hooks
        found += attached.all_problems()
    return more


def explain(options: ExplainOptions) -> int:
    options.set_environment()
    if options.framework:
        return _explain_for(options)
    print_explained(systems.explain(options), as_json=options.json)
    return 0


class Gap(Protocol):
    """A code path of a framework that cannot be hooked, and the points that it affects."""

    @property
    def points(self) -> tuple[str, ...]: ...

    @property
    def text(self) -> str: ...


class Framework(NamedTuple):
    """A framework that hookline has an adapter for."""

    name: str
    gaps: tuple[Gap, ...]


def _adk() -> Framework:
    from hookline.adapters import google_adk

    return Framework(f"google-adk {google_adk.TESTED}", google_adk.gaps())


FRAMEWORKS: dict[str, Callable[[], Framework]] = {"adk": _adk}


def _explain_for(options: ExplainOptions) -> int:
    """Print the hooks of the files by point, and every gap that affects one of them."""
    if options.framework not in FRAMEWORKS:
        raise UsageError(f"--for is {options.framework!r}; known: {', '.join(FRAMEWORKS)}")
    system = FRAMEWORKS[options.framework]()
    rows = list(_rows(_hooks([options.file, *options.hooks])))
    standing = {str(row["point"]) for row in rows}
    concerned = [gap for gap in system.gaps if standing & set(gap.points)]
    if options.json:
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
        "\nnot covered by hooks there, or only in part"
        if concerned
        else "\nall of it is covered by hooks there",
        style="bold",
    )
    for gap in concerned:
        named = ", ".join(point for point in gap.points if point in standing)
        out.print(f"  {named}: {gap.text}")
    return 0


def _hooks(files: Iterable[str]) -> list[Hook]:
    from hookline.hookfile.attach import load_hooks
    from hookline.runners.local import LocalRunner

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


COMMANDS = {
    "run": (RunOptions, run),
    "serve": (ServeOptions, systems.serve),
    "try": (TryOptions, systems.try_),
    "check": (CheckOptions, check),
    "explain": (ExplainOptions, explain),
}
