"""What the service costs: a thousand issues through fifty slots, beside starting the same processes with nothing around.

Also how long a new issue waits for its agent while fifty hooks hang, beside the same service with none. Wall time: most
of it is spent in other processes. Each case has a process of its own, so that the memory is its own.
"""

import asyncio
import json
import logging
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

ISSUES, QUICK_ISSUES, SLOTS, HANGING, ROUNDS = 1000, 200, 50, 50, 20
LONGEST = 120  # seconds; what takes longer does not work at all
SHELL = ("sh", "-lc", ":")
CASES = {"an issue, no hooks": 0, "an issue, four hooks": 4}
NEW = f"a new issue, {HANGING} hooks hang"
WORKFLOW = """---
tracker: {kind: memory}
polling: {interval_ms: INTERVAL}
workspace: {root: work}
agent: {kind: command, command: "true", max_turns: 1, max_concurrent_agents: SLOTS}
hooks:
HOOKS
---
{{ issue.title }}
"""
HOOKS = ("after_create", "before_run", "after_run", "before_remove")


def board_costs(quick: bool) -> list[dict[str, Any]]:
    """Milliseconds of an issue and the ratio to its bare processes; of a new one and the ratio to a quiet service."""
    issues = QUICK_ISSUES if quick else ISSUES
    lines = [_measured(what, str(issues)) for what in CASES]
    return [*lines, _measured(NEW, str(ROUNDS))]


def _measured(what: str, number: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), what, number]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


class Listed:
    """A tracker in memory."""

    omitted: Sequence[str] = ()

    def __init__(self, issues: Sequence[Any]) -> None:
        self.issues = {issue.id: issue for issue in issues}

    async def by_states(self, states: Sequence[str]) -> list[Any]:
        return [issue for issue in self.issues.values() if issue.state in states]

    async def by_ids(self, ids: Sequence[str]) -> list[Any]:
        return [self.issues[id] for id in ids]

    async def close(self) -> None:
        pass


def closing(agent: Any, tracker: Listed) -> Callable[[Any], Any]:
    """The agent of a workflow, whose issue is done when its turn is over."""

    def made(place: Any) -> Any:
        session = agent(place)
        turn = session.turn

        async def last_turn(prompt: str) -> str:
            said = await turn(prompt)
            name = Path(place.workspace).name
            tracker.issues[name] = replace(tracker.issues[name], state="Done")
            return said

        session.turn = last_turn
        return session

    return made


@asynccontextmanager
async def served(
    folder: Path, tracker: Listed, scripts: dict[str, str], *, interval: int, slots: int, agent: Any = None
) -> AsyncIterator[Any]:
    from hookline.engine.pipeline import Recorder
    from hookline.journal.recovery import owner
    from hookline.journal.sqlite import SqliteJournal
    from hookline.runners.local import LocalRunner
    from hookline.symphony.hooks import AttemptSite
    from hookline.symphony.read import WatchedWorkflow
    from hookline.symphony.run import SiteWorker, agent_of
    from hookline.symphony.service import Service
    from hookline.symphony.workspace import WorkspaceRoot

    logging.disable(logging.CRITICAL)
    text = WORKFLOW.replace("INTERVAL", str(interval)).replace("SLOTS", str(slots))
    hooks = "\n".join(f"  {name}: {json.dumps(script)}" for name, script in scripts.items()) or "  x-none: 1"
    file = folder / "WORKFLOW.md"
    file.write_text(text.replace("HOOKS", hooks))
    watched = WatchedWorkflow(str(file), os.environ)
    journal, runner = SqliteJournal(folder / "journal.db"), LocalRunner(cap=4 * slots)
    with WorkspaceRoot(watched.workflow.root) as root:
        site = AttemptSite(
            current=lambda: watched.workflow,
            root=root,
            runner=runner,
            environ=dict(os.environ),
            recorder=Recorder(journal),
            owner=owner(),
        )
        worker = SiteWorker(site, lambda workflow: agent or closing(agent_of(workflow, site), tracker))
        service = Service(watched, lambda _: tracker, worker)
        running = asyncio.ensure_future(service.run())
        try:
            yield service
        finally:
            service.stop()
            service.stop()
            await running
            await runner.close()
            journal.close()


def issue(name: str) -> Any:
    from hookline.symphony.trackers import Issue

    return Issue(id=name, identifier=name, title=name, state="Todo")


async def worked_off(count: int, hooks: int, folder: Path) -> tuple[float, int]:
    """Seconds for all issues with the removal of their workspaces, and the memory it took, in KiB."""
    tracker = Listed([issue(f"A-{n}") for n in range(count)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    async with served(folder, tracker, dict.fromkeys(HOOKS[:hooks], ":"), interval=20, slots=SLOTS):
        await until(lambda: all(each.state == "Done" for each in tracker.issues.values()))
        await until(lambda: not [name for name in os.listdir(folder / "work") if not name.startswith(".")])
        took = time.perf_counter() - started
    _whole(folder / "journal.db", count, hooks)
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def _whole(journal: Path, count: int, hooks: int) -> None:
    """What was cut short was quick, but did not do the work."""
    db = sqlite3.connect(journal)
    try:
        records = [record for (body,) in db.execute("SELECT body FROM record") for record in json.loads(body)]
    finally:
        db.close()
    calls = sum(record[0] == "call" for record in records)
    assert calls == count * hooks, f"{calls} hooks are on record"


def bare(count: int, hooks: int, folder: Path) -> float:
    """Seconds for the same processes, as many at once, with nothing around them."""
    started = time.perf_counter()

    def one(_: int) -> None:
        for argv in (*[SHELL] * hooks, ("true",)):
            subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True)

    with ThreadPoolExecutor(SLOTS) as pool:
        list(pool.map(one, range(count)))
    return time.perf_counter() - started


class Waiting:
    """A session that only says when it was opened, and whose turn does not end by itself."""

    id = "waiting"

    def __init__(self, place: Any, opened: dict[str, float]) -> None:
        self._name = Path(place.workspace).name
        self._opened = opened

    async def open(self) -> None:
        self._opened[self._name] = time.perf_counter()

    async def turn(self, prompt: str) -> str:
        await asyncio.Event().wait()
        return ""

    async def close(self) -> None:
        pass


async def latency(hanging: int, rounds: int, folder: Path) -> float:
    """Milliseconds from the moment an issue is there to the start of its agent, in the middle of the rounds."""
    tracker, opened = Listed([issue(f"HANG-{n}") for n in range(hanging)]), dict[str, float]()
    script = f'case "$SYMPHONY_ISSUE_IDENTIFIER" in HANG-*) touch {folder}/"$SYMPHONY_ISSUE_IDENTIFIER"; sleep 600 ;; esac'
    slots, found = hanging + rounds, list[float]()
    agent = partial(Waiting, opened=opened)
    async with served(
        folder, tracker, {"before_run": script}, interval=3_600_000, slots=slots, agent=agent
    ) as service:
        await until(lambda: len(list(folder.glob("HANG-*"))) == hanging)
        for n in range(rounds):
            name = f"NEW-{n}"
            tracker.issues[name] = issue(name)
            began = time.perf_counter()
            service.refresh()
            await until(lambda name=name: name in opened)
            found.append((opened[name] - began) * 1e3)
    return statistics.median(found)


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONGEST):
        while not claim():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.005)


def case(what: str, number: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        if what == NEW:
            quiet = asyncio.run(latency(0, number, Path(one)))
            ms, scale, kib = asyncio.run(latency(HANGING, number, Path(two))), quiet, None
        else:
            asyncio.run(worked_off(5, CASES[what], Path(one)))  # imports and caches are not an issue's own
            before = bare(number, CASES[what], Path(one))
            seconds, memory = asyncio.run(worked_off(number, CASES[what], Path(two)))
            after = bare(number, CASES[what], Path(one))
            ms, scale, kib = seconds / number * 1e3, (before + after) / 2 / number * 1e3, memory / number
    return {
        "what": what,
        "scale": "the same, none hangs" if what == NEW else "its processes, bare",
        "ms": round(ms, 2),
        "ratio": round(ms / scale, 2),
        "kib_each": None if kib is None else round(kib, 1),
        "number": number,
    }


if __name__ == "__main__":
    print(json.dumps(case(sys.argv[1], int(sys.argv[2]))))
