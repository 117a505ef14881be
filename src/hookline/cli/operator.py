"""`hookline operator`, `operator manifest` and `crds`: the program for a cluster, and its installation."""

from __future__ import annotations

import json
import logging
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from hookline.errors import UsageError
from hookline.files import output
from hookline.journal import default_path
from hookline.options import flag, option

if TYPE_CHECKING:
    from hookline.engine.record import Journal
    from hookline.kube.client import Cluster
    from hookline.kube.controller import Controller


@dataclass(kw_only=True, eq=False, repr=False)
class OperatorOptions:
    """Options of the operator, however it is started."""

    image: str = option("hookline's own image, built from deploy/Containerfile (required)")
    agent_image: str = option("the image agents run in [default: hookline's own]")
    shared_account: bool = flag("bind lifecycle.rbac to the account sympozium-agent instead of one per run")
    max_run_history: int = option("how many finished runs of an agent to keep", 50, least=0)
    agent_command: str = option("the command that agents run [default: the built-in agent]")
    workspace_size: str = option("size of the volume that a run's hooks share", "1Gi")
    storage_class: str = option("storage class of that volume [default: the cluster's]")
    prepare_as_root: bool = flag(
        "create a volume's folders as root, for volumes that ignore fsGroup (host paths, some NFS)"
    )
    kagent: bool = flag("reconcile kagent Agents too: those that have hooks, or those selected")
    kagent_selector: str = option("LABEL=VALUE: reconcile only the Agents with this label")
    plain_registry: tuple[str, ...] = option("HOST:PORT that hook images may be fetched from without TLS", ())


@dataclass(kw_only=True, eq=False, repr=False)
class StartOptions(OperatorOptions):
    namespace: tuple[str, ...] = option("watch only this namespace; may be repeated [default: all]", ())
    port: int = option("port of /healthz and /readyz; 0 picks a free one", 8080, least=0, most=65535)


def start(options: StartOptions) -> int:
    """Run the operator with the rights that this machine or pod has."""
    check(options)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    from hookline.kagent.controller import AgentController
    from hookline.kagent.objects import Pods
    from hookline.kube.operator import main
    from hookline.sympozium.cluster.controller import AgentRunController
    from hookline.sympozium.cluster.objects import OperatorSettings

    given = _shared(options, OperatorSettings)
    given["agent_command"] = tuple(shlex.split(options.agent_command))
    settings = OperatorSettings(**given)
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
            "--image is missing; give hookline's own image, built from deploy/Containerfile,"
            " such as registry.example/hookline:1.0"
        )
    if selector_of(options.kagent_selector) and not options.kagent:
        raise UsageError("--kagent-selector needs --kagent")


def _shared(options: OperatorOptions, settings: type[Any]) -> dict[str, Any]:
    """The options that are settings too, by their names."""
    names = [each.name for each in fields(settings)]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


@dataclass(kw_only=True, eq=False, repr=False)
class ManifestOptions(OperatorOptions):
    namespace: str = option("the namespace of the operator itself", "hookline-system")
    watch: tuple[str, ...] = option("watch only this namespace; may be repeated [default: all]", ())
    replicas: int = option("number of replicas, of which one is the leader", 2, least=1)
    without_crds: bool = flag("leave out the CustomResourceDefinitions")
    json: bool = flag("print one List as JSON")


def manifest(options: ManifestOptions) -> int:
    from hookline.kube.operator import Installation, all_objects, crds

    check(options)
    settings = Installation(**_shared(options, Installation))
    print_objects([*([] if options.without_crds else crds()), *all_objects(settings)], as_json=options.json)
    return 0


@dataclass(kw_only=True, eq=False, repr=False)
class CrdsOptions:
    kagent: bool = flag("print those of kagent instead, for a cluster without kagent")
    json: bool = flag("print one List as JSON")


def print_crds(options: CrdsOptions) -> int:
    from hookline.kube.operator import crds

    print_objects(crds("kagent" if options.kagent else "sympozium"), as_json=options.json)
    return 0


def yaml_of(objects: Sequence[Any]) -> str:
    """One document for each, and in each every part written out."""
    import yaml

    class Plain(yaml.CSafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump_all(
        objects, Dumper=Plain, sort_keys=False, allow_unicode=True, width=110, explicit_start=True
    )


def print_objects(objects: Sequence[Any], *, as_json: bool) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    output.write(json.dumps(listed, indent=2) + "\n" if as_json else yaml_of(objects))
