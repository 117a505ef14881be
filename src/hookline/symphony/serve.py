"""`hookline serve WORKFLOW.md`: works on the issues of a tracker until it is stopped, and shows its state."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline import files
from hookline.engine.pipeline import Recorder
from hookline.errors import UsageError
from hookline.hookfile.attach import hooks_of
from hookline.journal import default_path, open_journal
from hookline.journal.masking import Mask
from hookline.journal.recovery import owner
from hookline.kube.lease import Lease, LeaseHeld
from hookline.options import AGENT, KUBERNETES, WORKFLOW, ServeOptions, Target, refuse_given
from hookline.runners.local import LocalRunner
from hookline.secret_names import secrets_in
from hookline.source import text_of
from hookline.symphony.agents import CodingAgent
from hookline.symphony.agents.guard import guard_of
from hookline.symphony.attempt import SiteWorker
from hookline.symphony.read import WatchedWorkflow, Workflow, WorkflowError, workflow_file
from hookline.symphony.run import agent_of, log_masked, site_of, tracker_of
from hookline.symphony.service import IssueWorker, Service
from hookline.symphony.state import LastLines, Picture, api, serving
from hookline.symphony.trackers import TrackerError
from hookline.symphony.workspace import WorkspaceRoot
from hookline.tasks import cancel_and_wait, on_signals
from hookline.terminal import err, print_json

if TYPE_CHECKING:
    from hookline.kube.client import Cluster
    from hookline.symphony.cluster import ClusterWorker

logger = logging.getLogger(__name__)

REFRESH = 0.5
"""Seconds between two pictures of the state."""
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
    path = workflow_file(options.file or None, Path.cwd())
    mask = Mask(secrets_in(os.environ))
    last = LastLines()
    live = err.is_terminal and not options.json and not options.quiet
    _log(mask, last, live=live, quiet=options.quiet)
    watched = WatchedWorkflow(
        path,
        os.environ,
        strict=options.strict,
        told=logging.getLogger("hookline.symphony").warning,
        check=_checked,
    )
    show = Picture(last, path) if live else print_json if options.json else None
    served = partial(_served, watched, mask, options.port, show)
    if options.on:
        return asyncio.run(_served_there(watched, options, mask, served))
    with open_journal() as journal, WorkspaceRoot(watched.workflow.root) as root:
        # More than attempts at once, so that a hook that hangs does not hold up others.
        runner = LocalRunner(cap=max(64, 2 * watched.workflow.agent.max_concurrent_agents))
        hooks = tuple(hooks_of(options.hooks, runner))
        site = site_of(lambda: watched.workflow, root, runner, Recorder(journal), mask, hooks=hooks)
        guard = guard_of(options.hooks, hooks, os.environ)
        warn_once = cache(logger.warning)

        def agent(workflow: Workflow) -> CodingAgent:
            for line in guard.blind(workflow.agent) if guard else ():
                warn_once(line)
            return agent_of(workflow, site, guard)

        agent(watched.workflow)
        return asyncio.run(served(SiteWorker(site, agent)))


async def _served(
    watched: WatchedWorkflow,
    mask: Mask,
    port: int | None,
    show: Callable[[dict[str, Any]], None] | None,
    worker: IssueWorker,
    work: Callable[[Service], Awaitable[None]] = Service.run,
) -> int:
    changed = asyncio.Event()
    service = Service(
        watched,
        lambda workflow: tracker_of(workflow, os.environ),
        worker,
        changed=changed.set,
        mask=mask.text,
    )
    on_signals(lambda _number: service.stop())
    try:
        tracker = tracker_of(watched.workflow, os.environ)
        try:
            await worker.recover(watched.workflow, tracker)
        finally:
            await tracker.close()
        async with _api(watched, service, port), _shown(service, changed, show):
            await work(service)
    finally:
        await worker.close()
    return 0


async def _served_there(
    watched: WatchedWorkflow,
    options: ServeOptions,
    mask: Mask,
    served: Callable[[IssueWorker, Callable[[Service], Awaitable[None]]], Awaitable[int]],
) -> int:
    from hookline.kube.client import connected
    from hookline.symphony.cluster import NEAR, ClusterWorker, Terms, workflow_id

    workflow = watched.workflow
    if workflow.tracker.kind in NEAR:
        logger.warning(
            "pods do not see the issues of the tracker %s: each attempt is one turn, and the service checks the"
            " issue after it",
            workflow.tracker.kind,
        )
    hooks = tuple((os.path.basename(each), text_of(each)) for each in options.hooks)
    payloads = os.environ.get("HOOKLINE_PAYLOADS")
    target = Target(namespace=options.namespace, context=options.context, kubeconfig=options.kubeconfig)
    home = default_path(os.environ).parent
    with open_journal() as journal:
        async with connected(target) as cluster:
            terms = Terms(
                namespace=target.namespace or cluster.namespace,
                image=options.image[0],
                secrets=options.secret,
                size=options.storage_size or "1Gi",
                storage_class=options.storage_class,
                open_as_root=options.open_volume_as_root,
                hooks=hooks,
                env={"HOOKLINE_PAYLOADS": payloads} if payloads else {},
            )
            async with _sole_service(cluster, terms.namespace, workflow_id(workflow), home) as lease:
                worker = ClusterWorker(
                    cluster,
                    terms,
                    workflow,
                    text=lambda: watched.text,
                    journal=journal,
                    me=owner(),
                    mask=mask,
                )
                return await served(worker, lambda service: _until_lost(service, worker, lease))


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
async def _api(watched: WatchedWorkflow, service: Service, port: int | None) -> AsyncGenerator[None, None]:
    server = watched.workflow.server
    wanted = server.port if port is None else port
    if wanted is None:
        yield
        return
    app = api(service.snapshot, service.issue, service.refresh)
    async with serving(app, server.host, wanted) as bound:
        err.print(f"the state is at http://{server.host}:{bound}/api/v1/state")
        yield


@asynccontextmanager
async def _shown(
    service: Service, changed: asyncio.Event, show: Callable[[dict[str, Any]], None] | None
) -> AsyncGenerator[None, None]:
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
        closing = getattr(show, "close", None)
        if closing is not None:
            closing()


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


def _checked(workflow: Workflow) -> None:
    """Check that the tracker and the agent of a workflow can be made."""
    try:
        tracker_of(workflow, os.environ)
    except TrackerError as exc:
        raise WorkflowError(str(exc), kind=exc.kind, file=workflow.file, key="tracker") from exc
    agent_of(workflow)
