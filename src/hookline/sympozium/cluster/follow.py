"""A run on a cluster followed to its end: its records to the user's journal, and the same as a tree on the terminal.

The inner records of its agent are in the agent's log. A run can be followed without them: where the log cannot be read,
or is gone already, a note says so.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from hookline.engine.record import Journal, Record
from hookline.errors import HooklineError, JournalError
from hookline.journal.masking import Mask
from hookline.journal.stream import split_line
from hookline.journal.view import Line
from hookline.kube.client import Cluster
from hookline.kube.controller import Store
from hookline.kube.logs import GONE, LogReader
from hookline.kube.objects import AGENT_RUN, POD, ApiRefused, ClusterError, Object, items, owners, within
from hookline.kube.pod_state import ContainerPhase, container_state
from hookline.sympozium.cluster import records
from hookline.sympozium.cluster.ledger import InnerRecords, Ledger, RunView
from hookline.sympozium.cluster.objects import AGENT, FOLLOWED, RUN_LABEL, names
from hookline.sympozium.cluster.observation import has_ended
from hookline.sympozium.phases import Phase
from hookline.sympozium.run.folders import RECORDS
from hookline.sympozium.view import print_end
from hookline.tasks import INTERRUPTED, cancel_and_wait, on_signals
from hookline.terminal import err, show, warn

SILENT = 20.0
"""Seconds after which a run without any status seems to have no operator."""
LAST_LINES = 20.0
"""Seconds to read the rest of the log of an agent that has ended."""
_PAUSE = 1.0


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
        self._journal = journal
        self._ledger: Ledger | None = Ledger(journal)
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
        """Follow the run; returns the exit code of the command."""
        await self._written(lambda ledger: ledger.take(self._run))
        async with self._watching():
            while True:
                event = await self._events.get()
                code = await event()
                if code is not None:
                    return code

    def _put(self, heed: Callable[..., Awaitable[int | None]], *about: Any) -> None:
        """Queue an event for its handler; a handler that returns an exit code ends the command."""
        self._events.put_nowait(partial(heed, *about))

    @asynccontextmanager
    async def _watching(self) -> AsyncGenerator[None]:
        """Watch the run, its agent's log, the clock and signals; all that happens goes into one queue."""
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
        log = AgentLog(self._cluster, self._run, lambda line: self._put(self._take_line, line))
        self._put(self._log_ended, await log.read())

    async def _silent(self) -> None:
        """Warn that the run has no operator."""
        if not within(self._run, "status"):
            warn(
                f"no operator handles run {self._name}: it has no status after {SILENT:g} s; is the operator running, and"
                " does it work in this namespace? kubectl get deployments -A -l app.kubernetes.io/name=hookline"
                " (hookline operator manifest --image IMAGE --watch NAMESPACE | kubectl apply -f - installs it)",
            )

    async def _in_turn(self, run: Object | None) -> int | None:
        """The run has changed, or is gone. Changes after the agent's end are held back until its log has come, or has had
        its time."""
        if run is None and self._held:
            code = await self._log_ended("the run is gone")
            return await self._changed(run) if code is None else code
        if run is None or self._inside.over or not records.would_tell(run):
            return await self._changed(run)
        if not self._held and not records.agent_is_over(run):
            code = await self._changed(run)
            await self._shown_inside()
            return code
        if not self._held:
            why = f"its log did not end within {LAST_LINES:g} s"
            asyncio.get_running_loop().call_later(LAST_LINES, self._put, self._log_ended, why)
        self._held.append(run)
        return None

    async def _take_line(self, line: str | None) -> None:
        """A line of the agent's log has come; None before all of them come again."""
        # A line that comes too late has no place any more.
        if not self._inside.over:
            await self._inside.take(line)
            await self._shown_inside()

    async def _shown_inside(self) -> None:
        if records.agent_has_begun(self._run):
            new = self._inside.new()
            await self._written(lambda ledger: ledger.add(self._run, new))
            self._show(self._view.inside(new))

    async def _log_ended(self, why: str) -> int | None:
        """The log has ended; `why` some of it is missing, if any is."""
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
        """Warn at once, and not when the agent has ended: the user may be waiting for lines that never come."""
        missing = self._inside.missing(self._run)
        for text in missing:
            if text not in self._missing_told and not self._quiet:
                warn(text)
        self._missing_told.update(missing)

    def _show(self, lines: Iterable[Line]) -> None:
        for line in () if self._quiet else lines:
            show(line, err)

    async def _changed(self, run: Object | None) -> int | None:
        if run is None or run["metadata"]["uid"] != self._run["metadata"]["uid"]:
            await self._written(lambda ledger: ledger.lost(records.run_id_of(self._run)))
            return self._gone()
        self._run = run
        last = self._inside.over and records.agent_is_over(run)
        rest = self._inside.new() if last else []
        notes = [records.inside_note(run, text) for text in self._inside.missing(run)]

        async def inside() -> list[Record]:
            return [*rest, *notes]

        await self._written(lambda ledger: ledger.take(run, inside))
        self._show(self._view.lines(run, rest))
        self._tell_missing()
        return self._over() if has_ended(run) and not self._ending else None

    async def _written(self, write: Callable[[Ledger], Awaitable[object]]) -> None:
        """Write to the user's journal; the run is followed to its end also where that fails."""
        if self._ledger is None:
            return
        try:
            await write(self._ledger)
            self._journal.flush()
        except JournalError as exc:
            self._ledger = None
            warn(f"the run continues, but is no longer recorded here: {exc}")

    def _gone(self) -> int:
        if self._ending:
            warn(f"run {self._name} has ended and was removed")
            return INTERRUPTED
        raise HooklineError(f"run {self._name} was deleted by someone else before it ended")

    def _over(self) -> int:
        status = within(self._run, "status")
        end = Phase(status["phase"])
        return print_end(self._name, end, status, json=self._json, where=f" {self._where}")

    async def _interrupted(self, asks: bool) -> int | None:
        """A signal came; `asks` if there is a terminal to ask whether the run is to end."""
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
        """The answer was typed; empty where the terminal was closed."""
        word = line.strip().lower()
        if not line or word in ("l", "leave"):
            return self._left()
        if word not in ("e", "end"):
            self._ask()
            return None
        self._ending = True
        warn("ending it; Ctrl-C again leaves before it has ended")
        uid = self._run["metadata"]["uid"]
        await self._cluster.delete(AGENT_RUN, self._name, self._namespace, uid=uid)
        return None

    def _left(self) -> int:
        doing = "is being ended" if self._ending else "goes on"
        warn(
            f"\nrun {self._name} {doing}; see it: hookline runs {self._name} {self._where}\n"
            f"end it: kubectl delete agentrun {self._name} --namespace {self._namespace}",
        )
        return INTERRUPTED


class AgentLog:
    """The log of a run's agent. `took` gets the line of each record; None before all of them come again."""

    def __init__(self, cluster: Cluster, run: Object, took: Callable[[str | None], None]) -> None:
        metadata = run["metadata"]
        self._cluster, self._took = cluster, took
        self._namespace = str(metadata["namespace"])
        made = names(metadata["name"])
        self._owners = (made.agent, made.sandbox)
        self._labels = {RUN_LABEL: str(metadata["name"]), "sympozium.ai/component": "agent-run"}
        self._changed = asyncio.Event()
        self._first = ""
        """The uid of the first pod; one that replaces it would begin anew, and does not count."""
        self._pods = Store(
            cluster,
            POD,
            namespace=self._namespace,
            labels=self._labels,
            on_change=lambda before, after: self._changed.set(),
        )

    async def read(self) -> str:
        """Read it until the agent has ended. Returns why some records may never come; empty where all came."""
        try:
            await self._cluster.list(POD, self._namespace, self._labels)
        except ApiRefused as exc:
            return f"its pod cannot be looked up: {exc.message}"
        except ClusterError:
            pass  # tried again below, for as long as it takes
        watching = asyncio.create_task(self._pods.run())
        try:
            pod = await self._started()
            if pod is None:
                return GONE
            if not _tells(pod):
                return ""
            name, again = str(pod["metadata"]["name"]), partial(self._took, None)
            log = LogReader(self._cluster, name, self._namespace, AGENT, self._line, again)
            return await log.read(self._has_ended, self._wait)
        finally:
            await cancel_and_wait(watching)

    async def _started(self) -> Object | None:
        """The pod when its agent has begun; None where it went before that was seen."""
        while True:
            self._changed.clear()
            pod = self._pod()
            if pod is None and self._first:
                return None
            if pod is not None and container_state(pod, AGENT).state is not ContainerPhase.WAITING:
                return pod
            await self._changed.wait()

    def _pod(self) -> Object | None:
        # Anyone may label a pod; the run's own are those of its Job or sandbox.
        own = [
            pod
            for pod in self._pods.all()
            if any(owner.get("name") in self._owners for owner in owners(pod))
            and self._first in ("", pod["metadata"]["uid"])
        ]
        found = min(own, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)
        self._first = found["metadata"]["uid"] if found is not None else self._first
        return found

    async def _line(self, line: str) -> None:
        _, ours = split_line(line)
        if ours is not None:
            self._took(ours)

    def _has_ended(self) -> bool:
        pod = self._pod()
        return pod is None or container_state(pod, AGENT).state is ContainerPhase.ENDED

    async def _wait(self) -> None:
        """Wait a moment for the pod to say that its container has ended, which comes after the log's end."""
        if self._has_ended():
            await asyncio.sleep(_PAUSE)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE):
                while not self._has_ended():
                    self._changed.clear()
                    await self._changed.wait()


def _tells(pod: Object) -> bool:
    """True if the agent prints inner records; a foreign one does not."""
    containers = items(within(pod, "spec").get("containers"))
    given = (each for box in containers if box.get("name") == AGENT for each in items(box.get("env")))
    return any((each.get("name"), each.get("value")) == (RECORDS, "1") for each in given)
