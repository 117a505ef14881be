"""A run on a cluster followed to its end: its records to the user's journal, and the same as a tree on the terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from hookline.engine.point import Point
from hookline.engine.record import Called, Decided, Journal, Record
from hookline.engine.result import HookAction
from hookline.errors import HooklineError, JournalError
from hookline.journal.masking import Mask
from hookline.journal.view import Line, Tree
from hookline.kube.objects import items, phase_of, within
from hookline.sympozium.cluster.agent_log import InnerRecords, read_agent_log
from hookline.sympozium.cluster.ledger import Ledger
from hookline.sympozium.cluster.records import (
    ENDED,
    PHASE,
    RUN_SCOPE,
    agent_has_begun,
    agent_is_over,
    inside_note,
    is_agents_end,
    is_runs_end,
    records_of,
    run_id_of,
    would_tell,
)
from hookline.sympozium.phases import WITHHELD, Phase
from hookline.tasks import cancel_and_wait, on_signals
from hookline.terminal import err, out, print_json, show

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

Object = dict[str, Any]

SILENT = 20.0
"""Seconds after which a run without any status is one that nobody looks after."""
LAST_LINES = 20.0
"""Seconds to hear the rest of what an agent that is over has told."""
_INTERRUPTED = 130
_TOLD_BY_HOOKS = "PostRunFailed"


class RunView:
    """A run on a cluster as the lines of any run: its records as its status brings them, and notes on what that tells
    besides. `how_to_answer` is told when the answer waits for a verdict."""

    def __init__(self, mask: Mask | None = None, *, width: int = 80, how_to_answer: str = "") -> None:
        self._mask = mask or Mask()
        self._tree = Tree(self._mask, width)
        self._how_to_answer = how_to_answer
        self._count = 0
        self._phase = ""
        self._noted: set[tuple[str, ...]] = set()

    def lines(self, run: Object, inside: Iterable[Record] = ()) -> Iterator[Line]:
        """What is new in the run as it is now; `inside` is what its agent did before it ended."""
        told = records_of(run)
        new, self._count = told[self._count :], max(self._count, len(told))
        found = [(_place(each), each) for each in (*new, *inside) if getattr(each, "point", "") != PHASE]
        notes = [(place, _note(run, self._mask.text(text))) for place, text in self._notes(run)]
        for _, record in sorted([*found, *notes], key=lambda each: each[0]):
            # It is found again by the name that it has on the cluster.
            yield from self._tree.lines(record._replace(run_id=run["metadata"]["name"]))

    def inside(self, records: Iterable[Record]) -> Iterator[Line]:
        """What the agent does, while it does it."""
        for each in records:
            yield from self._tree.lines(each)

    def _notes(self, run: Object) -> Iterator[tuple[int, str]]:
        """What the status tells that is in no record, each once, with its place among the records."""
        status, now = within(run, "status"), phase_of(run)
        if now and now != self._phase:
            self._phase = now
            yield _PHASE_OVER if now in ENDED else _PHASE, f"phase {now}"
        if status.get("gateDigest") and self._once("gate"):
            yield _GATE, f"the answer waits for a verdict{self._how_to_answer}"
        word = str(status.get("gateVerdict") or "")
        if word and self._once("verdict"):
            by = f" by {status['gateBy']}" if status.get("gateBy") else ""
            yield _GATE, f"gate {word}{by}"
        for each in items(status.get("conditions")):
            key = tuple(str(each.get(part)) for part in ("type", "reason", "message"))
            known_by_hooks = each.get("type") == _TOLD_BY_HOOKS
            if each.get("status") == "True" and not known_by_hooks and self._once("condition", *key):
                yield _CONDITION, f"{each.get('type')}: {each.get('message')}"

    def _once(self, *what: str) -> bool:
        new = what not in self._noted
        self._noted.add(what)
        return new


_BEFORE, _PHASE, _AGENT_OVER, _GATE, _AFTER, _CONDITION, _PHASE_OVER, _OVER = range(8)
"""The order of what is new at one look at a run."""


def _place(record: Record) -> int:
    if is_runs_end(record):
        return _OVER
    if is_agents_end(record):
        return _AGENT_OVER
    is_after = isinstance(record, Called) and record.point is Point.RUN_END
    return _AFTER if is_after else _BEFORE


def _note(run: Object, text: str) -> Decided:
    return Decided(run_id_of(run), RUN_SCOPE, PHASE, time.time(), HookAction.CONTINUE, note=text)


class RunLedger:
    """The run in the user's journal; what cannot be written there keeps nobody from following it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._ledger: Ledger | None = Ledger(journal)

    async def take(self, run: Object, inside: Iterable[Record] = ()) -> None:
        """`inside` is the rest of what the agent told, once it is over."""

        async def rest() -> list[Record]:
            return list(inside)

        await self._written(lambda ledger: ledger.take(run, rest))

    async def add(self, run: Object, inside: Iterable[Record]) -> None:
        await self._written(lambda ledger: ledger.add(run, inside))

    async def lost(self, run: Object) -> None:
        await self._written(lambda ledger: ledger.lost(run_id_of(run)))

    async def _written(self, write: Callable[[Ledger], Awaitable[object]]) -> None:
        if self._ledger is None:
            return
        try:
            await write(self._ledger)
            self._journal.flush()
        except JournalError as exc:
            self._ledger = None
            err.print(f"the run goes on, and is not on record here any more: {exc}", style="yellow")


class RunFollower:
    """One run, from when it was put there until it has ended or its follower leaves."""

    def __init__(
        self,
        cluster: Cluster,
        made: Object,
        where: str,
        mask: Mask,
        journal: Journal,
        *,
        json: bool,
        quiet: bool,
    ) -> None:
        self._cluster = cluster
        self._record = RunLedger(journal)
        self._run = made
        self._name, self._namespace = made["metadata"]["name"], made["metadata"]["namespace"]
        self._where = where
        self._json = json
        self._quiet = quiet
        self._view = RunView(
            mask,
            width=max(err.width, 60),
            how_to_answer=f"; in another terminal: hookline approve {self._name} {where}   (or reject, rewrite)",
        )
        self._inside = InnerRecords(made, mask)
        self._held: list[Object] = []
        self._missing_told: set[str] = set()
        self._events: asyncio.Queue[Callable[[], Awaitable[int | None]]] = asyncio.Queue()
        self._asked = False
        self._ending = False

    async def ended(self) -> int:
        """The exit code of the command."""
        await self._record.take(self._run)
        async with self._heard():
            while True:
                event = await self._events.get()
                code = await event()
                if code is not None:
                    return code

    def _put(self, heed: Callable[..., Awaitable[int | None]], *about: Any) -> None:
        """Something has happened, and is heeded in its turn; what gives an exit code ends the command."""
        self._events.put_nowait(partial(heed, *about))

    @asynccontextmanager
    async def _heard(self) -> AsyncGenerator[None]:
        """With all that may happen put into one queue."""
        from hookline.kube.cache import Store
        from hookline.kube.objects import AGENT_RUN
        from hookline.sympozium.cluster.bundle import FOLLOWED

        loop = asyncio.get_running_loop()
        store = Store(
            self._cluster,
            AGENT_RUN,
            namespace=self._namespace,
            labels={FOLLOWED: self._name},
            on_change=lambda before, after: self._put(self._in_turn, after),
        )
        store.put(self._run)
        tasks = [asyncio.create_task(store.run())]
        if not self._inside.over:
            tasks.append(asyncio.create_task(self._listen()))
        silence = loop.call_later(SILENT, self._put, self._silent)
        asks = sys.stdin.isatty()
        on_signals(lambda number: self._put(self._interrupted, asks and number == signal.SIGINT))
        try:
            yield
        finally:
            silence.cancel()
            if self._asked:
                loop.remove_reader(sys.stdin.fileno())
            await cancel_and_wait(*tasks)

    async def _listen(self) -> None:
        why = await read_agent_log(self._cluster, self._run, lambda line: self._put(self._heard_line, line))
        self._put(self._heard_all, why)

    async def _silent(self) -> None:
        """So much time has passed that something should have been heard."""
        if not within(self._run, "status"):
            err.print(
                f"nobody looks after run {self._name}: it has no status after {SILENT:g} s; is the operator there?"
                " kubectl get deployments -A -l app.kubernetes.io/name=hookline"
                " (hookline operator manifest --image IMAGE | kubectl apply -f - installs it)",
                style="yellow",
            )

    async def _in_turn(self, run: Object | None) -> int | None:
        """The run has changed, or is gone. What comes after the agent's end waits until all that the agent told has come,
        or has had its time."""
        if run is None and self._held:
            code = await self._heard_all("the run is gone")
            return await self._changed(run) if code is None else code
        if run is None or self._inside.over or not would_tell(run):
            return await self._changed(run)
        if not self._held and not agent_is_over(run):
            code = await self._changed(run)
            await self._shown_inside()
            return code
        if not self._held:
            why = f"its log had not ended {LAST_LINES:g} s after it"
            asyncio.get_running_loop().call_later(LAST_LINES, self._put, self._heard_all, why)
        self._held.append(run)
        return None

    async def _heard_line(self, line: str | None) -> None:
        """A line from inside the agent has come; None where all come again from the first one on."""
        # What comes later than it was waited for has no place any more.
        if not self._inside.over:
            await self._inside.take(line)
            await self._shown_inside()

    async def _shown_inside(self) -> None:
        if agent_has_begun(self._run):
            new = self._inside.new()
            await self._record.add(self._run, new)
            self._show(self._view.inside(new))

    async def _heard_all(self, why: str) -> int | None:
        """No more of them will come; `why` some are missing, if any are."""
        if self._inside.over:
            return None
        self._inside.over, self._inside.why = True, why
        self._tell_missing()
        held, self._held = self._held, []
        for run in held:
            code = await self._changed(run)
            if code is not None:
                return code
        return None

    def _tell_missing(self) -> None:
        """At once, and not when the agent has ended: somebody may be looking at nothing."""
        missing = self._inside.missing(self._run)
        for text in missing:
            if text not in self._missing_told and not self._quiet:
                err.print(text, style="yellow")
        self._missing_told.update(missing)

    def _show(self, lines: Iterable[Line]) -> None:
        for line in () if self._quiet else lines:
            show(line, err)

    async def _changed(self, run: Object | None) -> int | None:
        if run is None or run["metadata"]["uid"] != self._run["metadata"]["uid"]:
            await self._record.lost(self._run)
            return self._gone()
        self._run = run
        last = self._inside.over and agent_is_over(run)
        rest = self._inside.new() if last else []
        notes = [inside_note(run, text) for text in self._inside.missing(run)]
        await self._record.take(run, [*rest, *notes])
        self._show(self._view.lines(run, rest))
        self._tell_missing()
        return self._over() if phase_of(run) in ENDED and not self._ending else None

    def _gone(self) -> int:
        if self._ending:
            err.print(f"run {self._name} is ended, and gone", style="yellow")
            return _INTERRUPTED
        raise HooklineError(f"run {self._name} was deleted by somebody else before it had ended")

    def _over(self) -> int:
        status, now = within(self._run, "status"), Phase(phase_of(self._run))
        if self._json:
            print_json({"record": "result", "run_id": self._name, "status": status})
        elif now is Phase.SKIPPED:
            out.print(f"skipped: {status.get('result', '')}")
        elif now is Phase.SUCCEEDED:
            out.print(str(status.get("result") or ""))
        else:
            err.print(
                f"error: {status.get('error') or now} (hookline runs {self._name} {self._where})", style="red"
            )
        # The run succeeded; what comes after it must not go on as if its answer were out.
        return 1 if status.get("gateVerdict") in WITHHELD or now is Phase.FAILED else 0

    async def _interrupted(self, asks: bool) -> int | None:
        """A signal came; `asks` where there is somebody to ask what is meant by it."""
        if self._asked or self._ending or not asks:
            return self._left()
        self._asked = True
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)
        self._ask()
        return None

    def _ask(self) -> None:
        err.print(f"leave run {self._name} running, or end it (its postRun hooks still run)? [l/e] ", end="")

    def _read(self) -> None:
        self._put(self._typed, os.read(sys.stdin.fileno(), 4096).decode(errors="replace"))

    async def _typed(self, line: str) -> int | None:
        """A line from the terminal has come; empty where it was closed."""
        word = line.strip().lower()
        if not line or word in ("l", "leave"):
            return self._left()
        if word not in ("e", "end"):
            self._ask()
            return None
        from hookline.kube.objects import AGENT_RUN

        self._ending = True
        err.print("ending it; once more Ctrl-C leaves before that is done", style="yellow")
        uid = self._run["metadata"]["uid"]
        await self._cluster.delete(AGENT_RUN, self._name, self._namespace, uid=uid)
        return None

    def _left(self) -> int:
        doing = "is being ended" if self._ending else "goes on"
        err.print(
            f"\nrun {self._name} {doing}; see it: hookline runs {self._name} {self._where}\n"
            f"end it: kubectl delete agentrun {self._name} --namespace {self._namespace}",
            style="yellow",
        )
        return _INTERRUPTED
