"""`hookline init`: writes a first hookline.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hookline.cli.approval import Report, approve_shown
from hookline.errors import FileError, UsageError
from hookline.hookfile.trust import FILE
from hookline.options import argument, flag

FIRST = """\
# The hooks of this project, for every agent that hookline runs or answers for.
# Check it with `hookline check hookline.yaml`. After a change, approve it again with `hookline trust`.
version: 1
hooks:
  # A ready guard: refuses a git push that would overwrite what others have pushed.
  - name: no-force-push
    on: tool.start          # before a tool is called; tool.end is after it
    match: kind:shell       # every tool that runs commands, whatever the agent calls it
    python: hookline.guards:no_force_push

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
    file: Path = argument("the file to write", Path(FILE), kind="path")
    json: bool = flag("for a program to read")


def init(options: InitOptions) -> int:
    file = options.file
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"{file} would not be known as a hook file; its name must end in .yaml")
    try:
        with open(file, "x", encoding="utf-8") as opened:
            opened.write(FIRST)
    except FileExistsError:
        raise FileError("is there already; it was not changed", file=file) from None
    except OSError as exc:
        raise FileError(f"cannot be written: {exc.strerror}", file=file) from exc
    report = Report(options.json)
    report(f"wrote {file}")
    approved = approve_shown(file, report)
    report("next: hookline install claude-code")
    return report.done({"wrote": str(file), "approved": approved})


COMMANDS = {"init": (InitOptions, init)}
