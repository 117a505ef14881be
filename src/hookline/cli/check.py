"""`hookline check`: every mistake in files, with its place."""

from __future__ import annotations

from hookline import systems
from hookline.engine.hook import Hook
from hookline.errors import HooklineError
from hookline.options import CheckOptions
from hookline.terminal import out, print_json


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
        out.print(count if found else f"{', '.join(options.files)}: nothing wrong")
    return 2 if found else 0


def _more_hooks(files: tuple[str, ...], found: list[str]) -> list[Hook]:
    if not files:
        return []
    from hookline.hookfile.attach import load_hooks
    from hookline.runners.sync import SyncRunner  # nothing is run, and it starts faster

    more: list[Hook] = []
    for each in files:
        try:
            attached = load_hooks(each, SyncRunner())
        except HooklineError as exc:
            found.append(str(exc))
            continue
        more += attached.hooks
        found += attached.all_problems()
    return more


COMMANDS = {"check": (CheckOptions, check)}
