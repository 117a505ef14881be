"""`hookline serve WORKFLOW.md`: works on the issues of a tracker until it is stopped, and shows its state."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import cache
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline import files
from hookline.engine.pipeline import Recorder
from hookline.engine.plain import visible, visible_json
from hookline.errors import UsageError, needs
from hookline.journal import default_path, open_journal
from hookline.journal.masking import Mask
from hookline.kube.lease import Lease, LeaseHeld
from hookline.options import AGENT, KUBERNETES, WORKFLOW, ServeOptions, Target, refuse_given
from hookline.runners.local import LocalRunner
from hookline.secrets import secrets_in
from hookline.symphony.agents import CodingAgent
from hookline.symphony.attempt import IssueWorker
from hookline.symphony.read import WatchedWorkflow, Workflow, workflow_file
from hookline.symphony.run import (
    SiteWorker,
    agent_of,
    check_tracker,
    log_masked,
    site_of,
    tracker_of,
)
from hookline.symphony.service import Service
from hookline.symphony.workspace import WorkspaceRoot
from hookline.tasks import cancel_and_wait, on_signals
from hookline.terminal import err, print_json, warn

if TYPE_CHECKING:
    from hookline.kube.client import Cluster
    from hookline.symphony.cluster import ClusterWorker

logger = logging.getLogger(__name__)

Show = Callable[[dict[str, Any]], None]
"""Shows a state to the user."""
Work = tuple[IssueWorker, Callable[[Service], Awaitable[None]]]
"""Who works on issues, and the run of the service around that."""
REFRESH = 0.5
"""Seconds between two pictures of the state."""
_SHOWN = 8
"""Lines of the log below the table."""
_LOG_SIZE, _LOG_FILES = 10 * 1024 * 1024, 5
_FOR_PODS = (
    "namespace",
    "context",
    "kubeconfig",
    "secret",
    "storage_size",
    "storage_class",
    "open_volume_as_root",
)


def serve_workflow(options: ServeOptions) -> int:
    """Work on the issues here, or each in a pod of a cluster."""
    _check_place(options)
    path = workflow_file(options.file)
    mask = Mask(secrets_in(os.environ))
    last = LastLines()
    live = err.is_terminal and not options.json and not options.quiet
    _log(mask, last, live=live, quiet=options.quiet)
    watched = WatchedWorkflow(path, os.environ, strict=options.strict, check=check_tracker)
    with _picture(last, path) if live else nullcontext(print_json if options.json else None) as show:
        return asyncio.run(_served(watched, options, mask, show))


async def _served(watched: WatchedWorkflow, options: ServeOptions, mask: Mask, show: Show | None) -> int:
    changed = asyncio.Event()
    place = _work_on_cluster(watched, options) if options.on else _work_here(watched, options, mask)
    async with place as (worker, work):
        service = Service(watched, tracker_of, worker, changed=changed.set, mask=mask)
        on_signals(lambda _number: service.stop())
        try:
            tracker = tracker_of(watched.workflow)
            try:
                await worker.recover(watched.workflow, tracker)
            finally:
                await tracker.close()
            async with _api(watched, service, options), _shown(service, changed, show):
                await work(service)
        finally:
            await worker.close()
    return 0


@asynccontextmanager
async def _work_here(watched: WatchedWorkflow, options: ServeOptions, mask: Mask) -> AsyncGenerator[Work]:
    with open_journal() as journal, WorkspaceRoot(watched.workflow.root) as root:
        # More than attempts at once, so that a hook that hangs does not hold up others.
        runner = LocalRunner(cap=max(64, 2 * watched.workflow.agent.max_concurrent_agents))
        site = site_of(lambda: watched.workflow, root, runner, Recorder(journal), mask, options.hooks)
        warn_once = cache(logger.warning)

        def agent(workflow: Workflow) -> CodingAgent:
            for line in site.guard.blind(workflow.agent) if site.guard else ():
                warn_once(line)
            return agent_of(workflow, site)

        agent(watched.workflow)
        yield SiteWorker(site, agent), Service.run


@asynccontextmanager
async def _work_on_cluster(watched: WatchedWorkflow, options: ServeOptions) -> AsyncGenerator[Work]:
    from hookline.kube.client import connected
    from hookline.symphony.cluster import NEAR, ClusterWorker, workflow_id

    workflow = watched.workflow
    if workflow.tracker.kind in NEAR:
        logger.warning(
            "pods do not see the issues of the tracker %s: each attempt is one turn, and the service checks the"
            " issue after it",
            workflow.tracker.kind,
        )
    target = Target(namespace=options.namespace, context=options.context, kubeconfig=options.kubeconfig)
    home = default_path(os.environ).parent
    with open_journal() as journal:
        async with connected(target) as cluster:
            namespace, id = target.namespace or cluster.namespace, workflow_id(workflow)
            async with _sole_service(cluster, namespace, id, home) as lease:
                worker = ClusterWorker(cluster, namespace, options, id, journal)
                yield worker, lambda service: _until_lost(service, worker, lease)


@asynccontextmanager
async def _sole_service(
    cluster: Cluster, namespace: str, id: str, home: Path
) -> AsyncGenerator[asyncio.Task[None]]:
    """Holds the lease of the one service that works on a workflow in a namespace; the task fails if it is lost."""
    lock = home / f"serve-{namespace}-{id}.lock"
    lease = Lease(
        cluster, namespace, f"hookline-serve-{id}", lock=lock, duration=40, every=5.0, patience=30.0
    )
    try:
        async with lease.held(wait=False) as renewal:
            yield renewal
    except LeaseHeld as exc:
        raise UsageError(
            f"{exc.holder} already works on this in the namespace {namespace!r}; stop it, or give this one another"
            " workspace.root or another namespace"
        ) from exc


async def _until_lost(service: Service, worker: ClusterWorker, lease: asyncio.Task[None]) -> None:
    """Run the service until it is stopped. If the lease is lost it leaves at once, and its Jobs go on."""
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
async def _api(
    watched: WatchedWorkflow, service: Service, options: ServeOptions
) -> AsyncGenerator[None, None]:
    server = watched.workflow.server
    wanted = server.port if options.port is None else options.port
    if wanted is None:
        yield
        return
    with needs("serving over HTTP", "orchestrator"):
        from hookline import http_server
    token, told = http_server.token_for(server.host, options, terminal=err.is_terminal)
    listener = http_server.listen(server.host, wanted)
    async with http_server.serving(api(service), listener, token=token):
        err.print(f"the state is at http://{server.host}:{listener.getsockname()[1]}/api/v1/state")
        if told:
            warn(told)
        yield


@asynccontextmanager
async def _shown(service: Service, changed: asyncio.Event, show: Show | None) -> AsyncGenerator[None, None]:
    """Shows the state after every change, at most every `REFRESH` seconds, and at the end."""
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
        await cancel_and_wait(task)
        show(service.snapshot())


def _log(mask: Mask, last: LastLines, *, live: bool, quiet: bool) -> None:
    """Log to files beside the journal; to the terminal too, where no picture is shown."""
    folder = default_path(os.environ).parent / "logs"
    files.private_folder(folder)
    kept = RotatingFileHandler(folder / "serve.log", maxBytes=_LOG_SIZE, backupCount=_LOG_FILES)
    handlers: list[logging.Handler] = [last, kept]
    if not live:
        shown = logging.StreamHandler(sys.stderr)
        shown.setLevel(logging.WARNING if quiet else logging.INFO)
        handlers.append(shown)
    form = logging.Formatter("time=%(asctime)s level=%(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    for handler in handlers:
        handler.setFormatter(form)
    log_masked(mask, *handlers)


def _check_place(options: ServeOptions) -> None:
    """Refuse options that do not fit the place of the work: this machine, or the pods of a cluster."""
    if options.on not in ("", KUBERNETES):
        raise UsageError(f"--on is {options.on!r}; known: {KUBERNETES}; leave it out to work on this machine")
    if not options.on:
        refuse_given(options, _FOR_PODS, f"only with --on {KUBERNETES}")
        refuse_given(options, ("image",), f"only for {AGENT}; the file is {WORKFLOW}")
    elif len(options.image) != 1 or "=" in options.image[0]:
        raise UsageError(
            f"--on {KUBERNETES} needs one image for the pods, with hookline and the agent in it: --image NAME"
        )


def api(service: Service) -> Any:
    """The service as an ASGI application: its state, one issue, and a poll on request."""
    with needs("serving over HTTP", "orchestrator"):
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.requests import Request
        from starlette.responses import JSONResponse as Response
        from starlette.routing import Route

    class JSONResponse(Response):
        def render(self, content: Any) -> bytes:
            return visible_json(super().render(content).decode()).encode()

    async def show_state(_request: Request) -> JSONResponse:
        return JSONResponse(service.snapshot())

    async def show_issue(request: Request) -> JSONResponse:
        name = request.path_params["identifier"]
        if name == "refresh":
            raise HTTPException(405)
        found = service.issue(name)
        if found is None:
            return error(404, "issue_not_found", f"no issue {name!r} is running, waiting or blocked")
        return JSONResponse(found)

    async def look_now(_request: Request) -> JSONResponse:
        return JSONResponse(service.refresh(), status_code=202)

    async def failed(_request: Request, exc: Exception) -> JSONResponse:
        if not isinstance(exc, HTTPException):
            return error(500, "internal_error", "internal error")
        said = exc.detail.lower()
        return error(exc.status_code, said.replace(" ", "_"), said)

    def error(status: int, code: str, message: str) -> JSONResponse:
        return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)

    return Starlette(
        routes=[
            Route("/api/v1/state", show_state, methods=["GET"]),
            Route("/api/v1/refresh", look_now, methods=["POST"]),
            Route("/api/v1/{identifier:path}", show_issue, methods=["GET"]),
        ],
        exception_handlers={HTTPException: failed, 500: failed},
    )


class LastLines(logging.Handler):
    """The last lines of the log, for the picture below the table."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        self.lines = [*self.lines, f"{clock} {record.getMessage()}"][-_SHOWN:]


@contextmanager
def _picture(last: LastLines, file: str) -> Generator[Show]:
    """Draws the state on a terminal, in place."""
    from rich.console import Console
    from rich.live import Live

    with Live(
        console=Console(stderr=True, emoji=False, markup=False), auto_refresh=False, transient=False
    ) as live:
        yield lambda state: live.update(_drawn(state, last.lines, file), refresh=True)


def _drawn(state: dict[str, Any], lines: list[str], file: str) -> Any:
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

    counts = state["counts"]
    head = Text(
        f"{file}: {counts['running']} running, {counts['retrying']} waiting, {counts['blocked']} blocked",
        style="bold",
    )
    table = Table(box=None, pad_edge=False, expand=False)

    def add(*cells: str) -> None:
        table.add_row(*(Text(visible(cell).replace("\n", " ")) for cell in cells))

    for column in ("issue", "now", "what"):
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for each in state["running"]:
        now = "stopping" if each["stopping"] else f"running, turn {each['turn_count'] + 1}"
        add(each["issue_identifier"], now, each["last_message"] or "")
    for each in state["blocked"]:
        add(each["issue_identifier"], "blocked", each["error"] or "")
    for each in state["retrying"]:
        add(each["issue_identifier"], f"waits until {each['due_at'][11:19]}", each["error"] or "")
    for each in state["finished"][-5:]:
        add(each["issue_identifier"], each["outcome"], each["error"] or f"{each['seconds']:.1f} s")
    parts: list[RenderableType] = [head, table]
    if state["configuration_error"]:
        parts.append(Text(visible(str(state["configuration_error"])), style="red"))
    parts += [Text(line, style="dim", overflow="ellipsis", no_wrap=True) for line in lines]
    return Group(*parts)
