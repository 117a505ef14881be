"""`hookline operator`: the program that works in a cluster."""

from __future__ import annotations

import logging
import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline.errors import UsageError
from hookline.journal.user import default_path
from hookline.options import flag, option

if TYPE_CHECKING:
    from hookline.engine.record import Journal
    from hookline.kube.client import Cluster
    from hookline.kube.controller import Controller


@dataclass(kw_only=True, eq=False, repr=False)
class OperatorOptions:
    """What holds for the operator however it is started."""

    image: str = option("hookline's own image, made of deploy/Containerfile; it must be given")
    agent_image: str = option("the image agents run in [default: hookline's own]")
    shared_account: bool = flag("bind lifecycle.rbac to sympozium-agent, not to an account of the run's own")
    max_run_history: int = option("how many ended runs of an agent are kept", 50, kind="int", least=0)
    agent_command: str = option("what agents run, as one line [default: the built-in agent]")
    workspace_size: str = option("of the volume that a run's hooks share", "1Gi")
    storage_class: str = option("of that volume [default: the cluster's]")
    prepare_as_root: bool = flag(
        "make a volume's folders as root, where it does not take the pod's group (host paths, some NFS)"
    )
    kagent: bool = flag("keep kagent's Agents too: those that have hooks, unless selected")
    kagent_selector: str = option("LABEL=VALUE: keep the Agents with this label, and no others")
    plain_registry: tuple[str, ...] = option(
        "HOST:PORT that hook images may be fetched from without TLS", kind="texts"
    )


@dataclass(kw_only=True, eq=False, repr=False)
class StartOptions(OperatorOptions):
    namespace: tuple[str, ...] = option("work in this one only; may be given again", kind="texts")
    port: int = option("of /healthz, /readyz; 0 is any", 8080, kind="int", least=0, most=65535)


def start(options: StartOptions) -> int:
    """Run the operator with the rights that this machine or pod has."""
    check(options)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    from hookline.kagent.controller import AgentController
    from hookline.kagent.objects import Pods
    from hookline.kube.controller import main
    from hookline.sympozium.cluster.controller import AgentRunController
    from hookline.sympozium.cluster.objects import Settings

    settings = Settings(
        image=options.image,
        agent_image=options.agent_image,
        agent_command=tuple(shlex.split(options.agent_command)),
        shared_account=options.shared_account,
        workspace_size=options.workspace_size,
        storage_class=options.storage_class,
        max_run_history=options.max_run_history,
        prepare_as_root=options.prepare_as_root,
    )
    pods = Pods(image=options.image, plain=options.plain_registry)

    def controllers(cluster: Cluster, journal: Journal | None) -> list[Controller]:
        runs = AgentRunController(cluster, settings, options.namespace, journal)
        if not options.kagent:
            return [runs]
        agents = AgentController(
            cluster, pods, selector=options.kagent_selector, namespaces=options.namespace, journal=journal
        )
        return [runs, agents]

    return main(controllers, port=options.port, journal=default_path(os.environ))


def check(options: OperatorOptions) -> None:
    from hookline.kagent.controller import selector_of

    if not options.image:
        raise UsageError(
            "--image is missing; it is hookline's own image, which deploy/Containerfile makes,"
            " such as registry.example/hookline:1.0"
        )
    if selector_of(options.kagent_selector) and not options.kagent:
        raise UsageError("--kagent-selector: it says which Agents of kagent's, and --kagent is not given")


COMMANDS = {"operator": (StartOptions, start)}
