"""The cluster that the options of a command name, the connection to it, and its errors as messages for a user."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline.errors import HooklineError, UsageError
from hookline.options import KUBERNETES, ClusterOptions, RunOptions, refuse_given

if TYPE_CHECKING:
    from hookline.kube.client import Cluster
    from hookline.kube.objects import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cluster, and a namespace there."""

    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""

    def words(self, namespace: str = "") -> str:
        """The options that name this cluster to another command."""
        given = {
            "--namespace": namespace or self.namespace,
            "--context": self.context,
            "--kubeconfig": self.kubeconfig,
        }
        parts = [f"{name} {shlex.quote(value)}" for name, value in given.items() if value]
        return " ".join([f"--on {KUBERNETES}", *parts])


def target_of(options: ClusterOptions | RunOptions) -> Target | None:
    """The cluster that the options name; None for this machine, where cluster options are refused."""
    if options.on == KUBERNETES:
        return Target(namespace=options.namespace, context=options.context, kubeconfig=options.kubeconfig)
    refuse_given(options, ("context", "kubeconfig"), f"only with --on {KUBERNETES}")
    return None


def target_of_runs(options: ClusterOptions) -> Target | None:
    """The cluster whose runs the options name; None for runs of this machine."""
    if options.on not in ("", KUBERNETES):
        raise UsageError(
            f"--on is {options.on!r}; known: {KUBERNETES}; leave it out for runs of this machine"
        )
    if not options.on:
        refuse_given(options, ("namespace",), f"only with --on {KUBERNETES}")
    return target_of(options)


@asynccontextmanager
async def connected(target: Target) -> AsyncGenerator[Cluster]:
    """The cluster; its errors are raised with messages that say what to do."""
    try:
        from hookline.kube.client import Cluster
    except ImportError as exc:
        raise UsageError(
            f"--on {KUBERNETES} needs more packages ({exc}): pip install 'hookline[kube]'"
        ) from exc
    async with Cluster.from_kubeconfig(target.kubeconfig or None, target.context or None) as cluster:
        with _told(cluster, target.namespace or cluster.namespace):
            yield cluster


async def found_run(cluster: Cluster, name: str, namespace: str) -> Object:
    """The AgentRun with this name or prefix; `last` is the newest."""
    from hookline.kube.objects import AGENT_RUN  # `hookline runs` without a cluster should start quickly

    runs, _ = await cluster.list(AGENT_RUN, namespace)
    exact = [each for each in runs if each["metadata"]["name"] == name]
    if name == "last" and not exact:
        exact = sorted(runs, key=lambda each: str(each["metadata"].get("creationTimestamp")))[-1:]
    found = exact or [each for each in runs if each["metadata"]["name"].startswith(name)]
    if not found:
        raise UsageError(f"there is no AgentRun {name!r} in the namespace {namespace!r} of {cluster.server}")
    if len(found) > 1:
        names = ", ".join(each["metadata"]["name"] for each in found[:5])
        raise UsageError(f"{name!r} could be {names}; give more of it")
    return found[0]


@contextmanager
def _told(cluster: Cluster, namespace: str) -> Generator[None]:
    from hookline.kube.objects import AlreadyThere, ApiRefused, NotThere

    try:
        yield
    except NotThere as exc:
        if "namespaces " in exc.message:
            raise UsageError(
                f"there is no namespace {namespace!r} on {cluster.server}; kubectl create namespace {namespace}"
            ) from exc
        raise UsageError(
            f"{cluster.server} has no AgentRuns installed ({exc.message}); install them:"
            " hookline crds | kubectl apply -f -"
        ) from exc
    except AlreadyThere as exc:
        raise UsageError(f"{exc.message}; give another --name, or none") from exc
    except ApiRefused as exc:
        if exc.status in (400, 422):
            raise UsageError(f"the cluster refused it: {exc.message}") from exc
        if exc.status == 403:
            raise HooklineError(f"you are not allowed to do this on {cluster.server}: {exc.message}") from exc
        if exc.status == 401:
            raise HooklineError(f"{cluster.server} did not accept your credentials: {exc.message}") from exc
        raise
