"""`hookline run agent.py "question" --on kubernetes`: the agent runs in a Job, and its records come back here."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import json as jsonlib
import os
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hookline.engine.record import THERE, Begun, Journal, Owner, Record, RunRow
from hookline.errors import FileError, HooklineError, UsageError
from hookline.hookfile.sources import texts_to_send
from hookline.journal import default_path, open_journal
from hookline.journal.masking import Mask
from hookline.journal.recovery import alive, is_abandoned, lost_ends, owner
from hookline.journal.stream import Intake, OnceJournal
from hookline.kube.jobs import COMPONENT_LABEL, GIVEN, JobEnd, JobFollower, Task, end, started
from hookline.kube.objects import JOB, Object
from hookline.kube.pod_state import is_over
from hookline.options import KUBERNETES, RunOptions, Target
from hookline.pyagent.run import RESULT, asked
from hookline.secrets import secrets_in
from hookline.source import SUFFIXES, file_and_name, text_of
from hookline.tasks import INTERRUPTED, off_signals, on_signals
from hookline.terminal import err, print_result, warn, watcher

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

LONGEST_INPUT = 100 * 1024
MOST_FILES = 900 * 1024
_SCRIPTED = "scripted/"
_COMPONENT = "run"
_OWNER = "hookline.dev/owner"
_DAY = 24 * 3600
_CUT = "the end of the pod's log is missing, as when a pod prints more than its node keeps"


def run_there(options: RunOptions, target: Target) -> int:
    """Run an agent in Python as a Job."""
    if options.ask not in ("", "refuse"):
        raise UsageError(f"--ask {options.ask}: questions cannot be answered in a pod and are refused there")
    sent = RunFiles(options.file, options.hooks, options.model)
    question = asked(options)
    size = len(question.encode())
    if size > LONGEST_INPUT:
        raise UsageError(f"the question has {size} bytes, and {LONGEST_INPUT} can be sent to a pod")
    words = ["--records", "--ask", "refuse"]
    words += [word for each in sent.hooks for word in ("--hooks", each)]
    given_words = {"--model": sent.model, "--session": options.session, "--user": options.user}
    words += [f"{name}={value}" for name, value in given_words.items() if value]
    words += ["--timeout", f"{options.timeout:g}"] if options.timeout is not None else []
    task = Task(
        name=f"hookline-run-{secrets.token_hex(4)}",
        namespace=target.namespace or "",
        image=_image(options.image),
        # What is asked may look like an option, and may be anybody's text.
        args=("run", *words, "--", sent.target, question),
        component=_COMPONENT,
        notes={_OWNER: jsonlib.dumps([_journal(), *owner()])},
        kept=_DAY,
        env=options.variables(),
        files=sent.files,
        secrets=options.secret,
        timeout=options.timeout,
    )
    return asyncio.run(_sent(task, target, json=options.json, quiet=options.quiet))


class RunFiles:
    """The files of a run, with their paths in the pod: the agent's with the modules beside it, and those with hooks."""

    def __init__(self, file: str, hooks: Sequence[str], model: str) -> None:
        self.files: dict[str, str] = {}
        self.target = self._code(file, "agent")
        self.hooks = [self._code(each, f"hooks-{number}") for number, each in enumerate(hooks, 1)]
        self.model = model
        if model.startswith(_SCRIPTED):
            script = Path(model.removeprefix(_SCRIPTED))
            self.files["model/script"] = text_of(script)
            self.model = f"{_SCRIPTED}{GIVEN}/model/script"
        size = sum(len(text.encode()) for text in self.files.values())
        if size > MOST_FILES:
            raise UsageError(
                f"{file} and the modules it imports are {size} bytes, and {MOST_FILES} can be sent;"
                " put them into the image, and name the agent as MODULE:NAME"
            )

    def _code(self, target: str, folder: str) -> str:
        path, name = file_and_name(target)
        if not path.exists():
            if path.suffix in (".py", *SUFFIXES) or "/" in str(path):
                raise FileError("there is no such file", file=path)
            return target  # a module, which the image has to have
        if path.suffix in SUFFIXES:
            texts = texts_to_send(path)
            self.files.update((f"{folder}/{each}", text) for each, text in texts.items())
            return f"{GIVEN}/{folder}/{next(iter(texts))}"
        for each in [path, *_beside(path)]:
            self.files[f"{folder}/{each.relative_to(path.parent)}"] = text_of(each)
        where = f"{GIVEN}/{folder}/{path.name}"
        return f"{where}:{name}" if name else where


def _beside(path: Path) -> list[Path]:
    """The Python files beside a file that it imports, and those that these import."""
    found: list[Path] = []
    waiting = [path] if path.suffix == ".py" else []
    while waiting:
        for each in _imported(waiting.pop(), path.parent):
            if each not in found and each != path:
                found.append(each)
                waiting.append(each)
    return found


def _imported(file: Path, folder: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(text_of(file), str(file))
    except SyntaxError as exc:
        raise FileError(f"this is not Python: {exc.msg}", file=file, line=exc.lineno) from exc
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        else:
            continue
        for top in {name.partition(".")[0] for name in names}:
            if (folder / f"{top}.py").is_file():
                yield folder / f"{top}.py"
            elif (folder / top / "__init__.py").is_file():
                yield from sorted((folder / top).rglob("*.py"))


def _image(images: Sequence[str]) -> str:
    if len(images) != 1 or "=" in images[0]:
        told = f"; these are {len(images)}: {', '.join(images)}" if len(images) > 1 else ""
        raise UsageError(
            f"--on {KUBERNETES} needs one image for the agent, with hookline in it: --image NAME{told}"
        )
    return images[0]


async def _sent(task: Task, target: Target, *, json: bool, quiet: bool) -> int:
    from hookline.kube.client import connected

    mask = Mask([*secrets_in(os.environ), *secrets_in(task.env)])
    watch = watcher(mask, json=json, quiet=quiet)
    with open_journal() as journal:
        async with connected(target) as cluster:
            namespace = target.namespace or cluster.namespace
            await _ended_others(cluster, journal, namespace)
            job, _ = await started(cluster, replace(task, namespace=namespace))
            stream = RunStream(journal, _source(job, cluster), watch, quiet=quiet)
            async with _interrupts(cluster, job, stream.interrupted):
                follower = JobFollower(
                    cluster, job, printed=stream.printed, waits=stream.waits, ending=stream.interrupted
                )
                ending = await follower.ended()
            await stream.closed(ending)
            await end(cluster, job)
            return stream.over(ending, json=json)


@asynccontextmanager
async def _interrupts(cluster: Cluster, job: Object, interrupted: asyncio.Event) -> AsyncGenerator[None]:
    """A first signal ends the Job with its end hooks, a second one at once."""
    ends: list[asyncio.Task[None]] = []

    def interrupt(_number: int) -> None:
        if not ends:
            warn("interrupted: end hooks are running in the pod; Ctrl-C again ends them too")
        interrupted.set()
        ends.append(asyncio.ensure_future(end(cluster, job, at_once=bool(ends))))

    on_signals(interrupt)
    try:
        yield
    finally:
        off_signals()
        await asyncio.gather(*ends)


class RunStream:
    """The stream of a Job's pod: records go to the journal and to `watch`, other lines to standard error.

    `runs` are those that an earlier reader of the stream has begun."""

    def __init__(
        self,
        journal: Journal,
        source: str,
        watch: Callable[[Record], None] | None,
        *,
        quiet: bool,
        runs: Iterable[str] = (),
    ) -> None:
        self._journal = journal
        self._once = OnceJournal(journal)
        self._intake = Intake(self._write, self._own)
        self._source = source
        self._watch = watch
        self._quiet = quiet
        self._runs = dict.fromkeys(runs)
        self._run_id = ""
        self._result: Mapping[str, Any] | None = None
        self._last: deque[str] = deque(maxlen=10)
        self.interrupted = asyncio.Event()

    async def printed(self, line: str) -> None:
        """Take in a line of the log; the next one is read afterwards."""
        message, others = await self._intake.take(line)
        if others:
            self._last.append(others)
            if not self._quiet:
                err.print(others, style="dim")
        if message is not None and message.word == RESULT:
            self._result = message.value

    def waits(self, why: str) -> None:
        warn(f"the pod does not start yet: {why}")

    async def closed(self, ending: JobEnd) -> None:
        """End the scopes that the Job left open, and warn of missing records."""
        cut = _CUT if ending.exit_code == 0 else f"its program ended with {ending.exit_code} before it"
        why = ending.why or cut
        for run_id in self._runs:
            for each in lost_ends(self._journal.records(run_id), why):
                await self._write(each)
        self._journal.flush()  # before the Job is forgotten with its log
        if self._intake.missing:
            warn(f"not in the pod's log, nor in the journal: {self._intake.missing} records")
        elif ending.log_lost:
            warn("the end of the pod's log could not be read, and is not in the journal")

    def over(self, ending: JobEnd, *, json: bool) -> int:
        """Print the answer, or raise the failure; returns the exit code."""
        if self._result is not None:
            print_result(self._result["value"], self._result["text"], json=json)
        if self.interrupted.is_set():
            return INTERRUPTED
        if ending.exit_code == 0 and self._result is None:
            raise HooklineError(f"the run ended well, and its answer is lost: {_CUT}{self._where}")
        for line in self._last if ending.exit_code and self._quiet else ():
            err.print(line)  # why it failed is among the last it said
        if ending.exit_code is None:
            how = "the run was cut off" if ending.began else "the run never began"
            raise HooklineError(f"{how}: {ending.why}{self._where}")
        return ending.exit_code

    @property
    def _where(self) -> str:
        return f" (hookline runs {self._run_id})" if self._run_id else ""

    def _own(self, record: Record) -> Record:
        """The record with this process as the owner of its run, and the Job as its source."""
        self._runs[record.run_id] = None
        if isinstance(record, Begun) and record.parent_id is None:
            self._run_id = record.run_id
            return record._replace(owner=owner(), source=self._source)
        return record

    async def _write(self, record: Record) -> bool:
        new = await self._once.write(record)
        if new and self._watch is not None:
            self._watch(record)
        return new


async def _ended_others(cluster: Cluster, journal: Journal, namespace: str) -> None:
    """Read the Jobs of killed commands that are over into the journal, and remove them."""
    found, _ = await cluster.list(JOB, namespace, {COMPONENT_LABEL: _COMPONENT})
    left = {_source(job, cluster): job for job in found if _is_left(job)}
    rows = {
        str(row.source): row
        for row in journal.unfinished()
        if is_abandoned(row) and _is_in(row, cluster, namespace)
    }
    for source in dict.fromkeys([*left, *rows]):
        job, row = left.get(source), rows.get(source)
        if job is not None and not is_over(job):
            warn(f"an earlier run is still running as Job {job['metadata']['name']} in {namespace}")
            continue
        if row is not None and not journal.claim(row.run_id, cast("Owner", row.owner), owner()):
            continue
        stream = RunStream(journal, source, None, quiet=True, runs=[row.run_id] if row is not None else ())
        if job is None:
            await stream.closed(JobEnd(why="its Job is gone"))
        else:
            await stream.closed(await JobFollower(cluster, job, printed=stream.printed).ended())
            await end(cluster, job)
        if row is not None:
            warn(f"run {row.run_id} ({row.name}) has ended meanwhile; it is in the journal now")


def _is_left(job: Object) -> bool:
    """True if it was made by a command of this machine with the same journal that is dead."""
    try:
        journal, *said = jsonlib.loads(job["metadata"].get("annotations", {}).get(_OWNER, ""))
        made_by = Owner(*said)
    except (ValueError, TypeError):
        return False
    return journal == _journal() and made_by.boot_id == owner().boot_id and not alive(made_by)


def _journal() -> str:
    return hashlib.sha256(str(default_path(os.environ)).encode()).hexdigest()[:16]


def _is_in(row: RunRow, cluster: Cluster, namespace: str) -> bool:
    place, _, server = (row.source or "").partition(" at ")
    return place.startswith(f"{THERE}{namespace}/") and server == cluster.server


def _source(job: Object, cluster: Cluster) -> str:
    metadata = job["metadata"]
    return f"{THERE}{metadata['namespace']}/{metadata['name']} at {cluster.server}"
