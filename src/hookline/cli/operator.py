"""`hookline operator`, `operator manifest` and `crds`: the program for a cluster, and its installation."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from hookline.errors import UsageError
from hookline.journal.user import default_path
from hookline.options import flag, option

if TYPE_CHECKING:
    from hookline.engine.record import Journal
    from hookline.kube.client import Cluster
    from hookline.kube.controller import Controller


@dataclass(kw_only=True, eq=False, repr=False)
class OperatorOptions:
    """Options of the operator, however it is started."""

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
            "--image is missing; it is hookline's own image, which deploy/Containerfile makes,"
            " such as registry.example/hookline:1.0"
        )
    if selector_of(options.kagent_selector) and not options.kagent:
        raise UsageError("--kagent-selector: it says which Agents of kagent's, and --kagent is not given")


def _shared(options: OperatorOptions, settings: type[Any]) -> dict[str, Any]:
    """The options that are settings too, by their names."""
    names = [each.name for each in fields(settings)]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


@dataclass(kw_only=True, eq=False, repr=False)
class ManifestOptions(OperatorOptions):
    namespace: str = option("where the operator itself stands", "hookline-system")
    watch: tuple[str, ...] = option(
        "work in this namespace only; may be given again [default: all]", kind="texts"
    )
    replicas: int = option("of which one acts", 2, kind="int", least=1)
    without_crds: bool = flag("they are there already")
    json: bool = flag("one List as JSON")


def manifest(options: ManifestOptions) -> int:
    from hookline.kube.install import Installation, all_objects, crds

    check(options)
    settings = Installation(**_shared(options, Installation))
    print_objects([*([] if options.without_crds else crds()), *all_objects(settings)], as_json=options.json)
    return 0


@dataclass(kw_only=True, eq=False, repr=False)
class CrdsOptions:
    kagent: bool = flag("those of kagent instead, for a cluster that has no kagent")
    json: bool = flag("one List as JSON")


def print_crds(options: CrdsOptions) -> int:
    from hookline.kube.install import crds

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
    sys.stdout.write(json.dumps(listed, indent=2) + "\n" if as_json else yaml_of(objects))
    sys.stdout.flush()


COMMANDS = {
    "operator": (StartOptions, start),
    "operator manifest": (ManifestOptions, manifest),
    "crds": (CrdsOptions, print_crds),
}
