"""`hookline run`, `check` and `explain`: commands on a file, carried out by its system (as `serve` and `try` are)."""

from __future__ import annotations

import os

from hookline import systems
from hookline.engine.hook import Hook, Mode
from hookline.errors import HooklineError, UsageError
from hookline.options import CheckOptions, ExplainOptions, RunOptions
from hookline.terminal import MISTAKE, WARNING, Explained, Problem, out, print_explained, print_json


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
    found: list[Problem] = []
    more = _more_hooks(options.hooks, found)
    for file in options.files:
        try:
            found += systems.problems(file, options, more)
        except HooklineError as exc:
            found.append(Problem.of(exc, file))
    found = list(dict.fromkeys(found))
    mistakes = [each for each in found if each.level == MISTAKE]
    warnings = [each for each in found if each.level == WARNING]
    if options.json:
        print_json({"files": options.files, "problems": [each._asdict() for each in found]})
    else:
        for each in (*warnings, *mistakes):
            out.print(each)
        told = [_counted(mistakes, "problem")] if mistakes else [f"{', '.join(options.files)}: no problems"]
        out.print(", ".join([*told, _counted(warnings, "warning")] if warnings else told))
    return 2 if mistakes or (options.strict and warnings) else 0


def _counted(found: list[Problem], word: str) -> str:
    return f"1 {word}" if len(found) == 1 else f"{len(found)} {word}s"


def _more_hooks(files: tuple[str, ...], found: list[Problem]) -> list[Hook]:
    if not files:
        return []
    from hookline.hookfile.attach import load_hooks

    more: list[Hook] = []
    for each in files:
        try:
            attached = load_hooks(each)
            more += attached.hooks
            found += attached.all_problems(each)
        except HooklineError as exc:
            found.append(Problem.of(exc, each))
    return more


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
    from hookline.hookfile.attach import load_hooks
    from hookline.hookfile.sources import is_approved
    from hookline.pyagent.system import explained_hooks, hook_rows

    hooks: list[Hook] = []
    for file in (options.file, *options.hooks):
        attached = load_hooks(file, imports=file in options.hooks or is_approved(file, os.environ))
        if attached.problems:
            raise attached.problems[0]
        hooks += [hook for hook in attached.hooks if hook.mode is not Mode.OFF]
    rows = list(hook_rows(hooks))
    standing = {str(row["point"]) for row in rows}
    concerned = [gap for gap in gaps() if standing & set(gap.points)]
    lines = [
        f"  {', '.join(each for each in gap.points if each in standing)}: {gap.text}" for gap in concerned
    ]
    note = (
        "\n".join(["not covered by hooks there, or only in part", *lines])
        if lines
        else "all of it is covered by hooks there"
    )
    name = f"google-adk {TESTED}"
    return Explained(
        head=[f"around an agent of {name}"],
        hooks=explained_hooks(rows),
        notes=[note],
        value={"for": name, "hooks": rows, "gaps": [gap._asdict() for gap in concerned]},
    )
