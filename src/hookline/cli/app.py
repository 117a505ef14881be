"""Every command but `answer`. Only this module turns an error into an exit code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import typer
from rich.text import Text

from hookline.errors import FileError, HooklineError, JournalError, RunEnded, UsageError
from hookline.terminal import err

__all__ = ["COMMANDS", "app", "commanded"]

FAILED, WRONG = 1, 2

COMMANDS = {
    "run": "cli.run:run",
    "check": "cli.check:check",
    "explain": "cli.check:explain",
    "try": "cli.check:try_",
    "schema": "cli.check:schema",
    "serve": "cli.serve:serve",
    "attempt": "symphony.pod:attempt",
    "operator": "cli.operator:operator",
    "crds": "cli.operator:crds",
    "workspace": "symphony.system:workspace",
    "runs": "cli.runs:runs",
    "logs": "cli.runs:logs",
    "approve": "cli.runs:approve",
    "reject": "cli.runs:reject",
    "rewrite": "cli.runs:rewrite",
    "prune": "cli.runs:prune",
    "init": "cli.install:init",
    "install": "cli.install:install",
    "uninstall": "cli.install:uninstall",
    "trust": "cli.install:trust",
}


def app(words: Sequence[str]) -> typer.Typer:
    """The command line. Only the command that is called is loaded; all of them where help is asked for."""
    made = typer.Typer(
        name="hookline",
        help="Lifecycle hooks for AI agents: your code before and after an agent's run, work, steps and tool calls.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    # Without a callback a single command would take the place of the whole.
    made.callback()(lambda: None)
    called = next((word for word in words if not word.startswith("-")), "")
    for name in [called] if called in COMMANDS else COMMANDS:
        module, _, function = COMMANDS[name].partition(":")
        command = getattr(importlib.import_module(f"hookline.{module}"), function)
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        else:
            made.command(name)(command)
    return made


def commanded(arguments: list[str] | None = None) -> int:
    """Exit 0 done or skipped, 1 failed or refused, 2 wrong use or wrong file, 130 interrupted."""
    try:
        words = sys.argv[1:] if arguments is None else arguments
        code = app(words)(args=words, standalone_mode=False)
    except (UsageError, FileError, JournalError) as exc:
        code = _told(exc, WRONG)
    except RunEnded as exc:
        where = f" (hookline runs {exc.run_id})" if exc.run_id else ""
        code = _told(exc, FAILED, where)
    except HooklineError as exc:
        code = _told(exc, FAILED)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        code = FAILED  # whoever read our output has gone
    except Exception as exc:
        code = _of_typer(exc)
    return code if isinstance(code, int) else 0


def _told(exc: BaseException, code: int, where: str = "") -> int:
    err.print(Text(f"error: {exc}{where}", style="red"))
    return code


def _of_typer(exc: Exception) -> int:
    """Typer's own complaints about the command line; anything else is a defect of ours and shows its trace."""
    show = getattr(exc, "show", None)
    if show is None:
        raise exc
    show()
    return getattr(exc, "exit_code", WRONG)
