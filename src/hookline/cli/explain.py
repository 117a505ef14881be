"""`hookline explain`: which hooks run where; with `--for`, around an agent of another framework."""

from __future__ import annotations

from hookline import systems
from hookline.engine.hook import Hook, Mode
from hookline.errors import UsageError
from hookline.hookfile.attach import load_hooks
from hookline.options import ExplainOptions
from hookline.runners.local import LocalRunner
from hookline.terminal import Explained, print_explained


def explain(options: ExplainOptions) -> int:
    options.set_environment()
    explained = _explain_for_adk(options) if options.framework else systems.explain(options)
    print_explained(explained, as_json=options.json)
    return 0


def _explain_for_adk(options: ExplainOptions) -> Explained:
    """The hooks of the files around an agent of Google's ADK, and every gap that concerns one of them."""
    if options.framework != "adk":
        raise UsageError(f"--for is {options.framework!r}; known: adk")
    from hookline.adapters.google_adk import TESTED, gaps
    from hookline.pyagent.system import explained_hooks, hook_rows

    rows = list(hook_rows(_hooks([options.file, *options.hooks])))
    standing = {str(row["point"]) for row in rows}
    concerned = [gap for gap in gaps() if standing & set(gap.points)]
    lines = [
        f"  {', '.join(each for each in gap.points if each in standing)}: {gap.text}" for gap in concerned
    ]
    note = "\n".join(["not hooked there, or not wholly", *lines]) if lines else "all of it is hooked there"
    name = f"google-adk {TESTED}"
    return Explained(
        head=[f"around an agent of {name}"],
        hooks=explained_hooks(rows),
        notes=[note],
        value={"for": name, "hooks": rows, "gaps": [gap._asdict() for gap in concerned]},
    )


def _hooks(files: list[str]) -> list[Hook]:
    found: list[Hook] = []
    for file in files:
        attached = load_hooks(file, LocalRunner())
        if attached.problems:
            raise attached.problems[0]
        found += [hook for hook in attached.hooks if hook.mode is not Mode.OFF]
    return found


COMMANDS = {"explain": (ExplainOptions, explain)}
