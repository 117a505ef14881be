"""`hookline run FILE --on kubernetes`: puts the run on a cluster and shows how it fares there until it has ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from hookline.engine.lifecycle import new_run_id
from hookline.engine.record import Begun, Journal, Record
from hookline.errors import HooklineError, JournalError, UsageError
from hookline.journal.masking import Mask
from hookline.journal.view import Line, Tree
from hookline.kube.connect import KUBERNETES, Target, connected
from hookline.sympozium.check import doubts
from hookline.sympozium.cluster.progress import ENDED, Progress, phase_in, status_in
from hookline.sympozium.cluster.records import (
    Ledger,
    agent_has_begun,
    agent_is_over,
    foreign_of,
    inside_note,
    records_of,
    run_id_of,
    would_tell,
)
from hookline.sympozium.phases import WITHHELD, Phase
from hookline.sympozium.read import parse
from hookline.sympozium.request import Asked, secret_values
from hookline.sympozium.types import RunSpec
from hookline.terminal import err, open_journal, out, print_json, secrets_of, show

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

__all__ = ["refuse_useless", "submit"]

Object = dict[str, Any]

SILENT = 20.0
"""Seconds after which a run without any status is one that nobody looks after."""
LAST_LINES = 20.0
"""Seconds to hear the rest of what an agent that is over has told."""
_INTERRUPTED = 130


def refuse_useless(options: Mapping[str, Any]) -> None:
    """An option that nobody heeds on a cluster would be a wish that nobody heard."""
    useless = [f"--{name}" for name, value in options.items() if value]
    if useless:
        raise UsageError(f"{', '.join(useless)}: not with --on {KUBERNETES}; it is for runs on this machine")


def submit(asked: Asked, spec: RunSpec, target: Target, *, json: bool = False, quiet: bool = False) -> int:
    """Make an AgentRun of what was asked for, and follow it to its end."""
    secrets = secret_values(asked, spec, os.environ)
    mask = Mask([*secrets_of(os.environ), *secrets])

    async def main(journal: Journal) -> int:
        async with connected(target) as cluster:
            made = await _submitted(cluster, asked, spec, target, quiet=quiet or json)
            where = target.words(made["metadata"]["namespace"])
            follow = _Follow(cluster, made, where, mask, journal, json=json, quiet=quiet or json)
            return await follow.ended()

    with open_journal(secrets) as journal:
        return asyncio.run(main(journal))


async def _submitted(cluster: Cluster, asked: Asked, spec: RunSpec, target: Target, *, quiet: bool) -> Object:
    """Put the run there, with the agent and the Secrets that its file brings."""
    from hookline.kube.kinds import AGENT_RUN, SECRET
    from hookline.sympozium.cluster import bundle as submitting

    manifests = parse(asked.text, asked.file)
    objects = submitting.documents(asked.text, asked.file)
    said = target.namespace or (spec.namespace if submitting.names_namespace(objects) else "")
    name = asked.name or submitting.named(spec.name, new_run_id())
    run = replace(spec, name=name, namespace=said or cluster.namespace)
    notes = [*map(str, doubts(run.hooks, set(run.env)).problems), *submitting.unheeded(run)]
    _tell(dict.fromkeys(notes), quiet=quiet)
    # The first call: what is wrong with the way there is told before anything is made.
    await cluster.list(AGENT_RUN, run.namespace, {submitting.FOLLOWED: name})
    run = await _with_agent(cluster, run, asked, quiet=quiet)
    secrets = submitting.secrets_of(run, objects, manifests.secrets)
    manifest = submitting.manifest(submitting.with_own_secrets(run, manifests.secrets))
    put: list[Object] = []
    try:
        # Before the run, so that none of its containers waits for them.
        for each in secrets:
            put.append(await cluster.create(each))
        made = await cluster.create(manifest)
    except BaseException:
        for each in put:
            await cluster.delete(SECRET, each["metadata"]["name"], run.namespace, uid=each["metadata"]["uid"])
        raise
    for each in put:
        await cluster.patch(SECRET, each["metadata"]["name"], run.namespace, _owned_by(made))
    return made


async def _with_agent(cluster: Cluster, run: RunSpec, asked: Asked, *, quiet: bool) -> RunSpec:
    """The run with an agent that is there, or without one: what it takes of the file's it has in itself."""
    from hookline.kube.kinds import AGENT, INSTANCE
    from hookline.sympozium.cluster import bundle as submitting

    if not run.instance:
        return run
    manifests = parse(asked.text, asked.file)
    written = submitting.instance_in(manifests, run.instance)
    for kind in (AGENT, INSTANCE):
        stored = await cluster.get(kind, run.instance, run.namespace)
        if stored is not None:
            if written and submitting.differs(stored, written):
                _tell([_DIFFERS.format(kind=kind.kind, name=run.instance, file=asked.file)], quiet=quiet)
            return run
    source = submitting.source_of(submitting.documents(asked.text, asked.file), manifests, run)
    if source is not None:
        return await _with_source(cluster, run, source, quiet=quiet)
    if run.lifecycle is None:
        # Its hooks would be the agent's, and one of them may be a guard.
        raise run.place.problem(
            f"agentRef names {run.instance!r}, and neither this file nor the namespace {run.namespace!r} has an"
            " Agent or SympoziumInstance of that name; apply it first, or leave agentRef out"
        )
    _tell([_NO_AGENT.format(name=run.instance, namespace=run.namespace)], quiet=quiet)
    return replace(run, instance="")


_DIFFERS = (
    "the {kind} {name!r} on the cluster is not the one in {file}; this run has what the file says, and the cluster's"
    " stays as it is (kubectl apply -f changes it)"
)
_NO_AGENT = "there is no Agent {name!r} in the namespace {namespace!r}; the run goes without agentRef, so INSTANCE_NAME is empty"


async def _with_source(cluster: Cluster, run: RunSpec, source: Object, *, quiet: bool) -> RunSpec:
    from hookline.kube.errors import AlreadyThere

    told = f"{source['kind']} {source['metadata']['name']!r}"
    try:
        await cluster.create(source)
    except AlreadyThere as exc:
        # A pack that is there, and has no such member.
        raise UsageError(
            f"the {told} is on the cluster already and makes no agent {run.instance!r}; kubectl apply -f changes it"
        ) from exc
    _tell(
        [
            f"the {told} of the file is on the cluster now, and stays there; Secrets of the file go with the run"
        ],
        quiet=quiet,
    )
    return run


def _owned_by(run: Object) -> Object:
    from hookline.sympozium.cluster.objects import Owner

    metadata = run["metadata"]
    owner = Owner(name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])
    return {"metadata": {"ownerReferences": [{**owner.reference, "controller": False}]}}


def _tell(texts: Iterable[str], *, quiet: bool) -> None:
    for text in () if quiet else texts:
        err.print(text, style="yellow")


class Changed(NamedTuple):
    """The run as it is now; None where it is gone."""

    run: Object | None


class Interrupted(NamedTuple):
    """A signal came; `asks` where there is somebody to ask what is meant by it."""

    asks: bool


class Typed(NamedTuple):
    """A line from the terminal; empty where it was closed."""

    line: str


class Silence(NamedTuple):
    """So much time has passed that something should have been heard."""


class Heard(NamedTuple):
    """A record from inside the agent, as it was printed; None where all come again from the first one on."""

    line: str | None


class HeardAll(NamedTuple):
    """No more of them will come; `why` some are missing, if any are."""

    why: str = ""


_Event = Changed | Interrupted | Typed | Silence | Heard | HeardAll


class _Record:
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


class _Inside:
    """What the agent of a run tells of what it does, on its way to the record and the screen."""

    def __init__(self, run: Object, mask: Mask, width: int) -> None:
        self._run, self._mask = run, mask
        self._foreign = foreign_of(run, mask)
        self._tree = Tree(mask, width)
        self._known: set[tuple[type, str]] = set()
        self._waiting: list[Record] = []
        self.over = bool(run["spec"].get("dryRun"))
        self.why = ""
        """What keeps the rest from being heard."""

    def take(self, line: str | None) -> None:
        """A line as it was heard; None before all of them come again."""
        if line is None:
            self._foreign = foreign_of(self._run, self._mask)
            return
        record = self._foreign.record(line.encode())
        if record is not None and (type(record), record.scope_id) not in self._known:
            self._known.add((type(record), record.scope_id))
            self._waiting.append(record)

    def new(self) -> list[Record]:
        """Those that nobody has had."""
        new, self._waiting = self._waiting, []
        return new

    def missing(self, run: Object) -> list[str]:
        """What is to be told of those that never come, once that is certain."""
        why = f"what the agent did inside is not all on record: {self.why}" if self.why else ""
        certain = self.over and would_tell(run) and agent_has_begun(run)
        return [text for text in (why, self._foreign.lacks) if text and certain]

    def lines(self, run: Object, records: Iterable[Record]) -> Iterator[Line]:
        """They stand below the agent, whose own line is told by the status."""
        for each in records_of(run):
            if isinstance(each, Begun):
                list(self._tree.lines(each))
        for each in records:
            yield from self._tree.lines(each)


class _Follow:
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
        self._record = _Record(journal)
        self._run = made
        self._name, self._namespace = made["metadata"]["name"], made["metadata"]["namespace"]
        self._where = where
        self._json = json
        self._quiet = quiet
        self._progress = Progress(
            mask,
            width=max(err.width, 60),
            how_to_answer=f"; in another terminal: hookline approve {self._name} {where}   (or reject, rewrite)",
        )
        self._inside = _Inside(made, mask, max(err.width, 60))
        self._held: list[Changed] = []
        self._missing_told: set[str] = set()
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._asked = False
        self._ending = False

    async def ended(self) -> int:
        """The exit code of the command."""
        await self._record.take(self._run)
        async with self._heard():
            while True:
                code = await self._seen(await self._events.get())
                if code is not None:
                    return code

    @asynccontextmanager
    async def _heard(self) -> AsyncGenerator[None]:
        """With all that may happen put into one queue."""
        from hookline.kube.cache import Store
        from hookline.kube.kinds import AGENT_RUN
        from hookline.sympozium.cluster.bundle import FOLLOWED

        loop = asyncio.get_running_loop()
        store = Store(
            self._cluster,
            AGENT_RUN,
            namespace=self._namespace,
            labels={FOLLOWED: self._name},
            on_change=lambda before, after: self._events.put_nowait(Changed(after)),
        )
        store.put(self._run)
        tasks = [asyncio.create_task(store.run())]
        if not self._inside.over:
            tasks.append(asyncio.create_task(self._listen()))
        silence = loop.call_later(SILENT, self._events.put_nowait, Silence())
        asks = sys.stdin.isatty()
        loop.add_signal_handler(signal.SIGINT, self._events.put_nowait, Interrupted(asks))
        loop.add_signal_handler(signal.SIGTERM, self._events.put_nowait, Interrupted(False))
        try:
            yield
        finally:
            silence.cancel()
            for task in tasks:
                task.cancel()
            if self._asked:
                loop.remove_reader(sys.stdin.fileno())
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self) -> None:
        from hookline.sympozium.cluster.logs import hear

        why = await hear(self._cluster, self._run, lambda line: self._events.put_nowait(Heard(line)))
        self._events.put_nowait(HeardAll(why))

    async def _seen(self, event: _Event) -> int | None:
        if isinstance(event, Changed):
            return await self._in_turn(event)
        if isinstance(event, Heard):
            await self._heard_line(event.line)
            return None
        if isinstance(event, HeardAll):
            return await self._heard_all(event.why)
        if isinstance(event, Interrupted):
            return self._interrupted(event)
        if isinstance(event, Typed):
            return await self._typed(event.line)
        if not status_in(self._run):
            err.print(
                f"nobody looks after run {self._name}: it has no status after {SILENT:g} s; is the operator there?"
                " kubectl get deployments -A -l app.kubernetes.io/name=hookline"
                " (hookline operator manifest --image IMAGE | kubectl apply -f - installs it)",
                style="yellow",
            )
        return None

    async def _in_turn(self, event: Changed) -> int | None:
        """What comes after the agent's end waits until all that the agent told has come, or has had its time."""
        run = event.run
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
            late = HeardAll(f"its log had not ended {LAST_LINES:g} s after it")
            asyncio.get_running_loop().call_later(LAST_LINES, self._events.put_nowait, late)
        self._held.append(event)
        return None

    async def _heard_line(self, line: str | None) -> None:
        # What comes later than it was waited for has no place any more.
        if not self._inside.over:
            self._inside.take(line)
            await self._shown_inside()

    async def _shown_inside(self) -> None:
        if agent_has_begun(self._run):
            new = self._inside.new()
            await self._record.add(self._run, new)
            self._show(self._inside.lines(self._run, new))

    async def _heard_all(self, why: str) -> int | None:
        if self._inside.over:
            return None
        self._inside.over, self._inside.why = True, why
        self._tell_missing()
        held, self._held = self._held, []
        for event in held:
            code = await self._changed(event.run)
            if code is not None:
                return code
        return None

    def _tell_missing(self) -> None:
        """At once, and not when the agent has ended: somebody may be looking at nothing."""
        missing = self._inside.missing(self._run)
        _tell([text for text in missing if text not in self._missing_told], quiet=self._quiet)
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
        self._show(self._progress.lines(run, self._inside.lines(run, rest)))
        self._tell_missing()
        return self._over() if phase_in(run) in ENDED and not self._ending else None

    def _gone(self) -> int:
        if self._ending:
            err.print(f"run {self._name} is ended, and gone", style="yellow")
            return _INTERRUPTED
        raise HooklineError(f"run {self._name} was deleted by somebody else before it had ended")

    def _over(self) -> int:
        status, now = status_in(self._run), Phase(phase_in(self._run))
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

    def _interrupted(self, event: Interrupted) -> int | None:
        if self._asked or self._ending or not event.asks:
            return self._left()
        self._asked = True
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)
        self._ask()
        return None

    def _ask(self) -> None:
        err.print(f"leave run {self._name} running, or end it (its postRun hooks still run)? [l/e] ", end="")

    def _read(self) -> None:
        self._events.put_nowait(Typed(os.read(sys.stdin.fileno(), 4096).decode(errors="replace")))

    async def _typed(self, line: str) -> int | None:
        word = line.strip().lower()
        if not line or word in ("l", "leave"):
            return self._left()
        if word not in ("e", "end"):
            self._ask()
            return None
        from hookline.kube.kinds import AGENT_RUN

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
