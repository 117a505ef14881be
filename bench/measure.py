"""What one peer prints: a line about itself, then one JSON line per case and number of hooks.

First line: {"lib", "python", "packages": {name: version}}. Then either
{"lib", "case", "group", "hooks", "events", "limited", "threaded", "us_per_hook", "us_noise", "clear", "us_bare",
"us_plain", "ratio", "ratio_plain", "ratio_same", "us_per_point", "us_bare_point", "us_call", "note"}, those with "hook" and
"ratio" only where there is one, or {"lib", "case", "group", "error"}.

us_per_hook is (time with N hooks - time with none) / (N * events). us_bare and us_plain are the same for the bare
loops, measured between the case's own samples in the same process; ratio is us_per_hook / us_bare. A hook of ours has
to return something, so ratio_same is beside a bare loop over the very same hook. us_noise is how
far the two halves of the rounds disagree, and a figure is clear when it is over twice that. us_per_point, for
dispatch on its own, is a whole point: what the tool call costs more than without any point, by event.
"""

import asyncio
import json
import platform
import sys
from collections.abc import Callable, Hashable, Iterator
from importlib import metadata
from typing import Any, NamedTuple

import bare
from timing import Cost, Run, Timed, costs, times_called

DISPATCH, LOOP = "dispatch", "loop"
BARE, PLAIN, SAME, ALONE = "bare", "plain", "same", "alone"
CHECKED_HOOKS = 2
CLEAR_OF_NOISE = 2
UP_TO_100 = (1, 10, 100)
UP_TO_1000 = (*UP_TO_100, 1000)  # where a cheap hook would drown in the noise of its loop


class Case(NamedTuple):
    name: str
    make: Callable[[int], Run]  # the number of hooks before, and again after, the tool
    called: tuple[Callable[..., Any], ...]  # the hooks, to see that they are really called
    group: str = LOOP
    hooks: tuple[int, ...] = UP_TO_100
    events: float = 2  # hook events per tool call
    step: int = 1  # tool calls per run of the agent
    limited: bool = False
    threaded: bool = False
    note: str = ""

    def timed(self, n: int) -> Timed:
        return Timed(self.make(n), self.step)

    def key(self, n: int) -> Hashable:
        """Without hooks, every loop case of a peer is the same agent, timed once."""
        return (self.name if n or self.group == DISPATCH else LOOP), n


def measure(
    lib: str, cases: tuple[Case, ...], packages: tuple[str, ...] = (), same: bare.Hook = bare.noop
) -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    versions = {name: metadata.version(name) for name in packages}
    say({"lib": lib, "python": platform.python_version(), "packages": versions})
    asyncio.run(bare.check_lazy_limit())

    runs: dict[Hashable, Timed] = {ALONE: Timed(bare.alone())}
    for n in (0, *sorted({n for case in cases for n in case.hooks})):
        runs[BARE, n] = Timed(bare.limited(n))
        runs[PLAIN, n] = Timed(bare.plain(n))
        if same is not bare.noop:
            runs[SAME, n] = Timed(bare.limited(n, same))
    sound = []
    for case in cases:
        try:
            check(case)
            runs |= {case.key(n): case.timed(n) for n in (0, *case.hooks)}
        except Exception as exc:
            reason = f"{type(exc).__name__}: {exc}"
            say({"lib": lib, "case": case.name, "group": case.group, "error": reason})
        else:
            sound.append(case)

    found = costs(runs, seconds)
    for case in sound:
        for line in lines(case, found):
            say({"lib": lib, **line})


def check(case: Case) -> None:
    wanted = CHECKED_HOOKS * case.events * case.step
    seen = times_called(case.called, case.timed(CHECKED_HOOKS))
    if seen < wanted:
        raise AssertionError(f"the hooks were called {seen} times, not {wanted}")


def lines(case: Case, found: dict[Hashable, Cost]) -> Iterator[dict[str, Any]]:
    none = found[case.key(0)]
    for n in (0, *case.hooks):
        cost = found[case.key(n)]
        line: dict[str, Any] = {
            "case": case.name,
            "group": case.group,
            "hooks": n,
            "events": case.events,
            "limited": case.limited,
            "threaded": case.threaded,
            "us_call": micro(cost.lowest),
            "note": case.note,
        }
        if case.group == DISPATCH:
            line["us_per_point"] = micro((cost.lowest - found[ALONE].lowest) / case.events)
            line["us_bare_point"] = micro((found[BARE, n].lowest - found[ALONE].lowest) / 2)
        yield line | (per_hook(none, cost, n * case.events) | beside(found, none, cost, n, case) if n else {})


def per_hook(none: Cost, cost: Cost, events: float) -> dict[str, Any]:
    even, odd = (cost.even - none.even) / events, (cost.odd - none.odd) / events
    hook, noise = (cost.lowest - none.lowest) / events, abs(even - odd)
    return {"us_per_hook": micro(hook), "us_noise": micro(noise), "clear": hook > CLEAR_OF_NOISE * noise}


def beside(found: dict[Hashable, Cost], none: Cost, cost: Cost, n: int, case: Case) -> dict[str, Any]:
    hook = (cost.lowest - none.lowest) / (n * case.events)
    loops = [loop for loop in (BARE, PLAIN, SAME) if (loop, n) in found]
    cost_of = {loop: (found[loop, n].lowest - found[loop, 0].lowest) / (n * 2) for loop in loops}
    return {
        "us_bare": micro(cost_of[BARE]),
        "us_plain": micro(cost_of[PLAIN]),
        "ratio": round(hook / cost_of[BARE], 2),
        "ratio_plain": round(hook / cost_of[PLAIN], 2),
        "ratio_same": round(hook / cost_of.get(SAME, cost_of[BARE]), 2),
    }


def micro(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)
