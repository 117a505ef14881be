"""`hookline prune`: drops old runs from the journal."""

from __future__ import annotations

from dataclasses import dataclass

from hookline.journal.sqlite import KEEP_BYTES, KEEP_DAYS
from hookline.journal.user import open_journal
from hookline.options import flag, option
from hookline.terminal import out, print_json

_MEGABYTE = 1048576


@dataclass(kw_only=True, eq=False, repr=False)
class PruneOptions:
    days: float = option("keep runs that are younger", KEEP_DAYS, kind="float")
    megabytes: float = option("keep the file below this size", KEEP_BYTES / _MEGABYTE, kind="float")
    json: bool = flag("for a program to read")


def prune(options: PruneOptions) -> int:
    with open_journal() as journal:
        gone = journal.prune(keep_days=options.days, keep_bytes=int(options.megabytes * _MEGABYTE))
    if options.json:
        print_json({"pruned": gone})
    else:
        out.print("1 run dropped" if gone == 1 else f"{gone} runs dropped")
    return 0


COMMANDS = {"prune": (PruneOptions, prune)}
