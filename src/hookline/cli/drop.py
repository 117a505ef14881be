"""`hookline runs drop`: the end of a run that was broken off, without its end hooks."""

from __future__ import annotations

import asyncio
import getpass
import os
from dataclasses import dataclass

from hookline.hookfile.person import refuse_agent
from hookline.journal import open_journal
from hookline.journal.recovery import drop
from hookline.options import argument
from hookline.terminal import found_run, out


@dataclass(kw_only=True, eq=False, repr=False)
class DropOptions:
    run: str = argument("a run's id, the beginning of one, or `last`", required=True)


def drop_run(options: DropOptions) -> int:
    refuse_agent("runs drop", os.environ)
    with open_journal() as journal:
        run_id = found_run(journal, options.run)
        asyncio.run(drop(journal, run_id, getpass.getuser()))
    out.print(f"run {run_id} is ended; its end hooks do not run")
    return 0
