"""`hookline operator`, `operator manifest` and `crds`: the program for a cluster, and its installation."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline.errors import UsageError
from hookline.files import output
from hookline.journal import default_path
from hookline.options import Installation, OperatorOptions, flag, option
from hookline.terminal import log_filter

if TYPE_CHECKING:
    from hookline.engine.record import Journal
    from hookline.kube.client import Cluster
    from hookline.kube.controller import Controller


@dataclass(kw_only=True, eq=False, repr=False)
class StartOptions(OperatorOptions):
    namespace: tuple[str, ...] = option(
        "a namespace to work in; may be repeated [default: the context's, or the pod's own]", ()
    )
    port: int = option("port of /healthz and /readyz; 0 picks a free one", 8080, least=0, most=65535)


def start(options: StartOptions) -> int:
    """Run the operator with the rights that this machine or pod has."""
    _check(options, options.namespace)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(log_filter())
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    from hookline.kagent.controller import AgentController
    from hookline.kagent.objects import Pods
    from hookline.kube.operator import main
    from hookline.sympozium.cluster.controller import AgentRunController

    pods = Pods(
        image=options.image,
        plain=options.plain_registry,
        accounts=options.kagent_account,
        clients=options.kagent_client,
    )

    def controllers(cluster: Cluster, journal: Journal | None) -> list[Controller]:
        own = () if options.all_namespaces else (cluster.namespace or "default",)
        namespaces = options.namespace or own
        runs = AgentRunController(cluster, options, namespaces, journal)
        if not options.kagent:
            return [runs]
        agents = AgentController(
            cluster, pods, selector=options.kagent_selector, namespaces=namespaces, journal=journal
        )
        return [runs, agents]

    return main(controllers, port=options.port, journal=default_path(os.environ))


def _check(options: OperatorOptions, namespaces: Sequence[str]) -> None:
    from hookline.kagent.controller import selector_of
    from hookline.kube.operator import check

    check(options, namespaces)
    if selector_of(options.kagent_selector) and not options.kagent:
        raise UsageError("--kagent-selector needs --kagent")


def manifest(options: Installation) -> int:
    from hookline.kube.operator import all_objects, crds

    _check(options, options.watch)
    print_objects([*([] if options.without_crds else crds()), *all_objects(options)], as_json=options.json)
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
