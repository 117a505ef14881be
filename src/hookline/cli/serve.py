"""`hookline serve`: works on the issues of a tracker until it is stopped, and shows what goes on; or serves an agent."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hookline.engine.pipeline import Recorder
from hookline.errors import UsageError
from hookline.journal.home import default_path
from hookline.journal.masking import Mask
from hookline.journal.owner import owner
from hookline.kube.connect import CONTEXT, KUBECONFIG, KUBERNETES, NAMESPACE, Target, connected
from hookline.pyagent.run import FILE, IMAGES, hooks_of
from hookline.pyagent.serve import HOST, IDLE, MODEL, TOOLS, URL, serve_agent
from hookline.runners.local import LocalRunner
from hookline.source import text_of
from hookline.symphony.agents import CodingAgent
from hookline.symphony.agents.guard import Once, guard_of
from hookline.symphony.attempt import Site, recovered
from hookline.symphony.board.api import serving
from hookline.symphony.board.reload import Watched
from hookline.symphony.board.service import Service
from hookline.symphony.hooks import Outputs
from hookline.symphony.read import Workflow, WorkflowError, workflow_file
from hookline.symphony.trackers import TrackerError
from hookline.symphony.worker import SiteWorker, agent_of, secret_names, tracker_of
from hookline.symphony.workspace import Root
from hookline.systems import is_agent
from hookline.terminal import err, open_journal, print_json, secrets_of

if TYPE_CHECKING:
    from hookline.symphony.cluster import ClusterWorker

__all__ = ["serve"]

REFRESH = 0.5
"""Seconds between two pictures of the state."""
_LOG_SIZE, _LOG_FILES = 10 * 1024 * 1024, 5
_SHOWN = 8


def serve(
    file: Annotated[
        str, typer.Argument(help=f"WORKFLOW.md [default: the one in this folder]; or {FILE}")
    ] = "",
    hooks: Annotated[
        list[str] | None, typer.Option(help="a file with more hooks, for every attempt or message")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="serve the state, or an agent, over HTTP here; 0 is any free port [agent: 8080]"),
    ] = None,
    host: HOST = "",
    url: URL = "",
    model: MODEL = "",
    image: IMAGES = None,
    tools: TOOLS = None,
    session_idle: IDLE = None,
    on: Annotated[str, typer.Option(help="kubernetes: each attempt at an issue is a Job there")] = "",
    namespace: NAMESPACE = "",
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
    secret: Annotated[
        list[str] | None, typer.Option(help="a Secret whose keys become variables of the pods")
    ] = None,
    storage_size: Annotated[str, typer.Option(help="of each workspace's volume [default: 1Gi]")] = "",
    storage_class: Annotated[
        str, typer.Option(help="of each workspace's volume [default: the cluster's]")
    ] = "",
    open_volume_as_root: Annotated[
        bool, typer.Option(help="for volumes that do not take the group of a pod")
    ] = False,
    strict: Annotated[bool, typer.Option(help="refuse what is otherwise only warned about")] = False,
    json: Annotated[bool, typer.Option("--json", help="the state as JSON lines on standard output")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="only warnings")] = False,
) -> int:
    """Work on the issues of a tracker until stopped, each in a workspace of its own; or answer messages over A2A."""
    own: dict[str, Any] = {
        "host": host,
        "url": url,
        "model": model,
        "image": image,
        "tools": tools,
        "session_idle": session_idle,
    }
    there: dict[str, Any] = {
        "on": on,
        "namespace": namespace,
        "context": context,
        "kubeconfig": kubeconfig,
        "secret": secret,
        "storage_size": storage_size,
        "storage_class": storage_class,
        "open_volume_as_root": open_volume_as_root,
    }
    if is_agent(file):
        _refuse(there, "this is for a WORKFLOW.md, and the file is an agent")
        return serve_agent(file, hooks=hooks, port=port, strict=strict, json=json, quiet=quiet, **own)
    terms = _terms(there, own.pop("image") if on == KUBERNETES else None, hooks)
    _refuse(own, "this is for an agent, and the file is a WORKFLOW.md")
    path = workflow_file(file or None, Path.cwd())
    mask = Mask(secrets_of(os.environ))
    notes = _Notes()
    live = err.is_terminal and not json and not quiet
    _log(mask, notes, live=live, quiet=quiet)
    watched = Watched(
        path,
        os.environ,
        strict=strict,
        told=logging.getLogger("hookline.symphony").warning,
        check=_checked,
    )
    show = _Picture(notes, watched) if live else print_json if json else None
    if terms is not None:
        target = Target(namespace=namespace, context=context, kubeconfig=kubeconfig)
        return asyncio.run(_served_there(watched, target, terms, mask, port, show))
    with open_journal() as journal, Root(watched.workflow.root) as root:
        runner = LocalRunner(cap=_processes(watched))
        names = secret_names(watched.workflow, os.environ)
        more = tuple(hooks_of(hooks, runner))
        site = Site(
            current=lambda: watched.workflow,
            root=root,
            runner=runner,
            environ=dict(os.environ),
            recorder=Recorder(journal),
            secret_names=names,
            mask=mask,
            outputs=Outputs(default_path(os.environ).parent / "outputs"),
            owner=owner(),
            hooks=more,
        )
        guard = guard_of(hooks, more, os.environ)
        warn = Once(logging.getLogger(__name__).warning)

        def agent(workflow: Workflow) -> CodingAgent:
            warn(guard.blind(workflow.agent) if guard else ())
            return agent_of(workflow, site.withheld_names, more, journal, guard)

        agent(watched.workflow)
        worker = SiteWorker(site, agent)
        return asyncio.run(_served(watched, site, worker, runner, port, show))


async def _served(
    watched: Watched,
    site: Site,
    worker: SiteWorker,
    runner: LocalRunner,
    port: int | None,
    show: Callable[[dict[str, Any]], None] | None,
) -> int:
    changed = asyncio.Event()
    service = Service(watched, lambda workflow: tracker_of(workflow, os.environ), worker, changed=changed.set)
    _on_signals(service)
    try:
        for line in await recovered(site):
            logging.getLogger(__name__).warning("what a killed service left could not be finished: %s", line)
        async with _api(watched, service, port), _shown(service, changed, show):
            await service.run()
    finally:
        await runner.close()
    return 0


async def _served_there(
    watched: Watched,
    target: Target,
    terms: dict[str, Any],
    mask: Mask,
    port: int | None,
    show: Callable[[dict[str, Any]], None] | None,
) -> int:
    from hookline.symphony.cluster import NEAR, ClusterWorker, Terms, workflow_id
    from hookline.symphony.lease import alone

    log, workflow = logging.getLogger(__name__), watched.workflow
    if workflow.tracker.kind in NEAR:
        log.warning(
            "pods do not see the issues of the tracker %s: each attempt is one turn, and after it the issue is looked"
            " at here",
            workflow.tracker.kind,
        )
    changed = asyncio.Event()
    home = default_path(os.environ).parent
    with open_journal() as journal:
        async with connected(target) as cluster:
            placed = Terms(namespace=target.namespace or cluster.namespace, **terms)
            async with alone(cluster, placed.namespace, workflow_id(workflow), home, log.warning) as lease:
                worker = ClusterWorker(
                    cluster,
                    placed,
                    workflow,
                    text=lambda: watched.text,
                    journal=journal,
                    me=owner(),
                    mask=mask,
                )
                service = Service(
                    watched, lambda found: tracker_of(found, os.environ), worker, changed=changed.set
                )
                _on_signals(service)
                try:
                    await _taken_up(worker, workflow)
                    async with _api(watched, service, port), _shown(service, changed, show):
                        await _until_lost(service, worker, lease)
                finally:
                    await worker.close()
    return 0


async def _taken_up(worker: ClusterWorker, workflow: Workflow) -> None:
    tracker = tracker_of(workflow, os.environ)
    try:
        await worker.recovered(workflow, tracker)
    finally:
        await tracker.close()


async def _until_lost(service: Service, worker: ClusterWorker, lease: asyncio.Task[None]) -> None:
    """Until the service is stopped. Where the lease is lost it leaves at once, and what is at work goes on."""
    running = asyncio.ensure_future(service.run())
    await asyncio.wait({running, lease}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        worker.leave()
        service.stop()
        service.stop()
    await running
    if lease.done():
        lease.result()


@asynccontextmanager
async def _api(watched: Watched, service: Service, port: int | None) -> AsyncGenerator[None, None]:
    server = watched.workflow.server
    wanted = server.port if port is None else port
    if wanted is None:
        yield
        return
    async with serving(
        server.host, wanted, state=service.snapshot, issue=service.issue, refresh=service.refresh
    ) as bound:
        err.print(f"the state is at http://{server.host}:{bound}/api/v1/state")
        yield


@asynccontextmanager
async def _shown(
    service: Service, changed: asyncio.Event, show: Callable[[dict[str, Any]], None] | None
) -> AsyncGenerator[None, None]:
    """A picture after every change, not more often than people can look, and one at the end."""
    if show is None:
        yield
        return

    async def pictures() -> None:
        while True:
            await changed.wait()
            changed.clear()
            show(service.snapshot())
            await asyncio.sleep(REFRESH)

    task = asyncio.ensure_future(pictures())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        show(service.snapshot())
        closing = getattr(show, "close", None)
        if closing is not None:
            closing()


def _terms(there: dict[str, Any], images: list[str] | None, hooks: list[str] | None) -> dict[str, Any] | None:
    """What the options say of pods and volumes; None where the work is done here."""
    if there["on"] not in ("", KUBERNETES):
        raise UsageError(
            f"--on is {there['on']!r}; known: {KUBERNETES}, or nothing, then the work is done here"
        )
    if not there["on"]:
        _refuse(there, f"this goes with --on {KUBERNETES}")
        return None
    if images is None or len(images) != 1 or "=" in images[0]:
        raise UsageError(
            f"--on {KUBERNETES} needs the one image of the pods, with hookline and the agent in it: --image NAME"
        )
    payloads = os.environ.get("HOOKLINE_PAYLOADS")
    return {
        "image": images[0],
        "secrets": tuple(there["secret"] or ()),
        "size": there["storage_size"] or "1Gi",
        "storage_class": there["storage_class"],
        "open_as_root": there["open_volume_as_root"],
        "hooks": tuple((os.path.basename(each), text_of(each)) for each in hooks or ()),
        "env": {"HOOKLINE_PAYLOADS": payloads} if payloads else {},
    }


def _refuse(options: dict[str, Any], why: str) -> None:
    useless = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    if useless:
        raise UsageError(f"{', '.join(useless)}: {why}")


def _on_signals(service: Service) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, service.stop)


def _checked(workflow: Workflow) -> None:
    """What a service of this workflow would need at once: its tracker can be made, and so can its agent."""
    try:
        names = secret_names(workflow, os.environ)
    except TrackerError as exc:
        raise WorkflowError(str(exc), kind=exc.kind, file=workflow.file, key="tracker") from exc
    agent_of(workflow, names)


def _processes(watched: Watched) -> int:
    """Hooks are limited by the attempts that there may be; a cap below that would let a hook that hangs hold others."""
    return max(64, 2 * watched.workflow.agent.max_concurrent_agents)


class _Notes(logging.Handler):
    """The last lines of the log, for the picture."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines = [*self.lines, f"{_clock(record.created)} {record.getMessage()}"][-_SHOWN:]


def _log(mask: Mask, notes: _Notes, *, live: bool, quiet: bool) -> None:
    """All of it in files beside the journal, masked; on the terminal too, where no picture is shown."""
    folder = default_path(os.environ).parent / "logs"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = RotatingFileHandler(folder / "serve.log", maxBytes=_LOG_SIZE, backupCount=_LOG_FILES)
    form = logging.Formatter("time=%(asctime)s level=%(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    ours = logging.getLogger("hookline")
    ours.setLevel(logging.INFO)
    handlers: list[logging.Handler] = [notes, kept]
    if not live:
        shown = logging.StreamHandler(sys.stderr)
        shown.setLevel(logging.WARNING if quiet else logging.INFO)
        handlers.append(shown)
    for handler in handlers:
        handler.addFilter(lambda record: _masked(record, mask))
        handler.setFormatter(form)
        ours.addHandler(handler)


def _masked(record: logging.LogRecord, mask: Mask) -> bool:
    record.msg, record.args = mask.text(record.getMessage()), None
    if record.exc_info and not record.exc_text:
        record.exc_text = mask.text(logging.Formatter().formatException(record.exc_info))
    return True


class _Picture:
    """The state on a terminal, drawn over the last one."""

    def __init__(self, notes: _Notes, watched: Watched) -> None:
        self._notes = notes
        self._watched = watched
        self._live = Live(console=err, auto_refresh=False, transient=False)
        self._live.start()

    def __call__(self, state: dict[str, Any]) -> None:
        self._live.update(_drawn(state, self._notes.lines, self._watched.file), refresh=True)

    def close(self) -> None:
        self._live.stop()


def _drawn(state: dict[str, Any], lines: list[str], file: str) -> RenderableType:
    counts = state["counts"]
    head = Text(
        f"{file}: {counts['running']} running, {counts['retrying']} waiting, {counts['blocked']} blocked",
        style="bold",
    )
    table = Table(box=None, pad_edge=False, expand=False)
    for column in ("issue", "now", "what"):
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for each in state["running"]:
        now = "stopping" if each["stopping"] else f"running, turn {each['turn_count'] + 1}"
        table.add_row(each["issue_identifier"], now, each["last_message"] or "")
    for each in state["blocked"]:
        table.add_row(each["issue_identifier"], "blocked", each["error"] or "")
    for each in state["retrying"]:
        table.add_row(each["issue_identifier"], f"waits until {each['due_at'][11:19]}", each["error"] or "")
    for each in state["finished"][-5:]:
        table.add_row(each["issue_identifier"], each["outcome"], each["error"] or f"{each['seconds']:.1f} s")
    parts: list[RenderableType] = [head, table]
    if state["configuration_error"]:
        parts.append(Text(str(state["configuration_error"]), style="red"))
    parts += [Text(line, style="dim", overflow="ellipsis", no_wrap=True) for line in lines]
    return Group(*parts)


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
