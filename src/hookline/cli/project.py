"""`hookline init`, `trust` and `schema`: the hook file of a project."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookline.claude.hooks import when_text
from hookline.engine.hook import HookDeclaration
from hookline.errors import FileError, HooklineError, UsageError
from hookline.files import output
from hookline.hookfile.person import agent_above, missing_person, need_person
from hookline.hookfile.read import read, schema
from hookline.hookfile.trust import (
    FILE,
    MACHINE,
    TRUST,
    approve,
    content_digest,
    content_of,
    distrusted,
    fix,
    is_expected,
    is_there,
    nearest,
    withdraw,
)
from hookline.options import argument, flag
from hookline.terminal import out, print_json, says_yes


class Report:
    """Lines for a person, or at the end one JSON value for a program."""

    def __init__(self, json: bool) -> None:
        self.json = json

    def __call__(self, text: str) -> None:
        if not self.json:
            out.print(text)

    def done(self, value: dict[str, Any]) -> int:
        if self.json:
            print_json(value)
        return 0


def approve_shown(
    file: Path, say: Report, *, broken: bool = False, unless: Callable[[], str | None] | None = None
) -> dict[str, Any] | None:
    """Approve a file after showing what it would run, as it was when it was read for that.

    One with a mistake is not approved, nor where `unless` gives a reason, which is said.
    """
    try:
        fix(file)
        hooks = read(file).checked().hooks
    except HooklineError as exc:
        if not broken:
            raise
        say(f"not approved: {exc}")
        return None
    rows = [
        {
            "name": each.name,
            "points": [str(point) for point in each.points],
            "match": each.match,
            "when": each.when,
            "runs": _runs(each),
        }
        for each in hooks
    ]
    say(f"{file}:")
    for each in hooks:
        match = ", ".join(each.match) if isinstance(each.match, tuple) else each.match
        only = f" for {match}" if match else ""
        only += f" when {when_text(each)}" if each.when else ""
        say(f"  {each.name} at {', '.join(each.points)}{only} runs {_runs(each)}")
    if not rows:
        say("  no hooks")
    named = [name for name, found in content_of(file, hooks).items() if found and name != file.name]
    if named and unless is not None:
        say(f"  with {', '.join(named)}")
    if unless is not None and (why := unless()):
        say(
            f"{file} is not approved: {why}; in a terminal of your own: hookline trust {shlex.quote(str(file))}"
        )
        return None
    also = approve(file, hooks, os.environ)
    covered = f", with {', '.join(also)}" if also else ""
    say(f"approved{covered}; after a change it must be approved again")
    return {"file": str(file), "hooks": rows, "also": also}


def approve_found(file: Path, say: Report) -> dict[str, Any] | None:
    """Approve a file that may have come with a repository, if a person looks at it and says yes."""
    if distrusted(file, os.environ) is None:
        say(f"{file} is approved already")
        return None

    def unless() -> str | None:
        why = missing_person(os.environ)
        return why or (
            None
            if says_yes("approve it? Its hooks run on this machine, as you [y/N] ")
            else "you did not say yes"
        )

    return approve_shown(file, say, broken=True, unless=unless)


def approve_written(why: str | None, file: Path, say: Report) -> dict[str, Any] | None:
    """Approve a file that was just written, unless there is a reason why nobody is there to do that; it is said."""
    return approve_shown(file, say, broken=True, unless=lambda: why)


def _runs(hook: HookDeclaration) -> str:
    params = hook.params
    if hook.kind == "python":
        return f"{params.get('file') or params['module']}:{params['function']}"
    if hook.kind == "command":
        return shlex.join(params["argv"])
    if hook.kind == "image":
        return shlex.join([params["image"], *params["command"], *params.get("args", ())])
    return str(params["script"]).strip() if hook.kind == "shell" else str(params["url"])


FIRST = """\
# The hooks of this project, for every agent that hookline runs or answers for: they hold for `hookline run`, `try`,
# `explain`, `check` and `serve` of any file here or below, and for `hookline answer`.
# Check it with `hookline check hookline.yaml`. After a change, approve it again with `hookline trust`.
version: 1
hooks:
  # A ready guard: refuses a git push that would overwrite what others have pushed.
  - name: no-force-push
    on: tool.start          # before a tool is called; tool.end is after it
    match: kind:shell       # every tool that runs commands, whatever the agent calls it
    python: hookline.guards:no_force_push

  # Asks you before an agent changes this file, its own settings or what hookline keeps.
  - name: protect-hookline
    on: tool.start
    python: hookline.guards:protect_hookline

  # A script of your own: any exit code but 0 refuses the call.
  # - name: tests-before-push
  #   on: tool.start
  #   match: kind:shell
  #   when: {input.command: {contains: git push}}   # no process starts for other calls
  #   shell: make test
  #   timeout: 5m
  #   on_error: block
"""


@dataclass(kw_only=True, eq=False, repr=False)
class InitOptions:
    file: Path = argument("the file to write", Path(FILE))
    json: bool = flag("print JSON")


def init(options: InitOptions) -> int:
    file = options.file
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"{file} is not a name for a hook file; it must end in .yaml")
    # Whoever takes an approved file away has not approved what comes in its place.
    nobody = missing_person(os.environ) if is_expected(file, os.environ) else agent_above(os.environ)
    try:
        with open(file, "x", encoding="utf-8") as opened:
            opened.write(FIRST)
    except FileExistsError:
        raise FileError("exists already; it was not changed", file=file) from None
    except OSError as exc:
        raise FileError(f"cannot be written: {exc.strerror}", file=file) from exc
    report = Report(options.json)
    report(f"wrote {file}")
    approved = approve_written(nobody, file, report)
    report("next: hookline install claude-code")
    return report.done({"wrote": str(file), "approved": approved})


@dataclass(kw_only=True, eq=False, repr=False)
class TrustOptions:
    file: Path | None = argument(
        f"the hook file [default: the nearest {FILE}, here or in a folder above]", None
    )
    digest: bool = flag(
        f"approve nothing, and print the digest of the file and of those it names, for ${TRUST} or {MACHINE}/trusted"
    )
    json: bool = flag("print JSON")


def trust(options: TrustOptions) -> int:
    found = options.file or nearest(Path.cwd(), os.environ)
    if found is None:
        raise UsageError(f"there is no {FILE} in {Path.cwd()} or above it; `hookline init` writes one")
    report = Report(options.json)
    if options.digest:
        fix(found)
        digest = content_digest(found, read(found).checked().hooks)
        report(digest)
        return report.done({"file": str(found), "digest": digest})
    need_person(
        "trust",
        os.environ,
        "without one, name the file (--hooks FILE, `hookline answer --file FILE`), which approves it for that call,"
        " or set HOOKLINE_TRUST to what `hookline trust --digest` prints",
    )
    if not is_there(found) and withdraw(found, os.environ):
        report(f"{found} is not there any more; its approval is taken back")
        return report.done({"approved": None})
    return report.done({"approved": approve_shown(found, report)})


@dataclass(kw_only=True, eq=False, repr=False)
class SchemaOptions:
    pass


def print_schema(_options: SchemaOptions) -> int:
    output.write(json.dumps(schema(), indent=2, ensure_ascii=False) + "\n")
    return 0
