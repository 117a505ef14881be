"""Which cluster a command means, the way to it, and what its refusals mean to a user."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookline.errors import HooklineError, UsageError

if TYPE_CHECKING:
    from hookline.kube.client import Cluster

__all__ = [
    "CONTEXT",
    "KUBECONFIG",
    "KUBERNETES",
    "NAMESPACE",
    "ON",
    "Target",
    "chosen",
    "chosen_cluster",
    "connected",
    "found_run",
]

KUBERNETES = "kubernetes"
ON = Annotated[str, typer.Option(help="kubernetes: of a run on a cluster")]
NAMESPACE = Annotated[
    str, typer.Option("--namespace", "-n", help="its namespace there [default: the context's]")
]
CONTEXT = Annotated[str, typer.Option(help="the context of the kubeconfig [default: the current one]")]
KUBECONFIG = Annotated[
    str, typer.Option(help="the kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the pod's own]")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which cluster is meant, and which namespace there."""

    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""

    def words(self, namespace: str = "") -> str:
        """The options that lead another command there."""
        given = {
            "--namespace": namespace or self.namespace,
            "--context": self.context,
            "--kubeconfig": self.kubeconfig,
        }
        parts = [f"{name} {shlex.quote(value)}" for name, value in given.items() if value]
        return " ".join([f"--on {KUBERNETES}", *parts])


def chosen(on: str, namespace: str, context: str, kubeconfig: str) -> Target | None:
    """The cluster of a run that is there; None for those of this machine."""
    if on not in ("", KUBERNETES):
        raise UsageError(f"--on is {on!r}; known: {KUBERNETES}, or nothing for runs of this machine")
    if not on and namespace:
        raise UsageError(f"--namespace: this goes with --on {KUBERNETES}")
    return chosen_cluster(on, context, kubeconfig, namespace=namespace)


def chosen_cluster(on: str, context: str, kubeconfig: str, *, namespace: str = "") -> Target | None:
    """The cluster that the options name; None for this machine, where they mean nothing."""
    if on == KUBERNETES:
        return Target(namespace=namespace, context=context, kubeconfig=kubeconfig)
    given = {"--context": context, "--kubeconfig": kubeconfig}
    useless = [name for name, value in given.items() if value]
    if useless:
        raise UsageError(f"{', '.join(useless)}: this goes with --on {KUBERNETES}")
    return None


@asynccontextmanager
async def connected(target: Target) -> AsyncGenerator[Cluster]:
    """The cluster, and its refusals in words that say what to do."""
    try:
        from hookline.kube.client import Cluster
    except ImportError as exc:
        raise UsageError(
            f"--on {KUBERNETES} needs more packages ({exc}): pip install 'hookline[kube]'"
        ) from exc
    async with Cluster.from_kubeconfig(target.kubeconfig or None, target.context or None) as cluster:
        with _told(cluster, target.namespace or cluster.namespace):
            yield cluster


async def found_run(cluster: Cluster, name: str, namespace: str) -> dict[str, Any]:
    """The one AgentRun that starts so; `last` is the newest."""
    from hookline.kube.kinds import AGENT_RUN

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
    from hookline.kube.errors import AlreadyThere, NotThere, Refused

    try:
        yield
    except NotThere as exc:
        if "namespaces " in exc.message:
            raise UsageError(
                f"there is no namespace {namespace!r} on {cluster.server}; kubectl create namespace {namespace}"
            ) from exc
        raise UsageError(
            f"{cluster.server} does not know AgentRuns ({exc.message}); have it know them:"
            " hookline crds | kubectl apply -f -"
        ) from exc
    except AlreadyThere as exc:
        raise UsageError(f"{exc.message}; give another --name, or none") from exc
    except Refused as exc:
        if exc.status in (400, 422):
            raise UsageError(f"the cluster does not take it: {exc.message}") from exc
        if exc.status == 403:
            raise HooklineError(f"you have no right to do this on {cluster.server}: {exc.message}") from exc
        if exc.status == 401:
            raise HooklineError(f"{cluster.server} does not know you: {exc.message}") from exc
        raise
