"""`hookline crds` and `hookline operator`: what a cluster is given, and the program that works there."""

from __future__ import annotations

import json as json_
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from hookline.errors import UsageError
from hookline.journal.home import default_path

__all__ = ["crds", "operator", "yaml_of"]

operator = typer.Typer(
    help="The operator for Kubernetes: AgentRuns, agents and packs of Sympozium.", rich_markup_mode=None
)

IMAGE = Annotated[
    str, typer.Option("--image", help="hookline's own image, made of deploy/Containerfile; it must be given")
]
AGENT_IMAGE = Annotated[
    str, typer.Option("--agent-image", help="the image agents run in [default: hookline's own]")
]
SHARED = Annotated[
    bool,
    typer.Option(
        "--shared-account", help="bind lifecycle.rbac to sympozium-agent, not to an account of the run's own"
    ),
]
HISTORY = Annotated[
    int, typer.Option("--max-run-history", min=0, help="how many ended runs of an agent are kept")
]
COMMAND = Annotated[
    str, typer.Option("--agent-command", help="what agents run, as one line [default: the built-in agent]")
]
SIZE = Annotated[str, typer.Option("--workspace-size", help="of the volume that a run's hooks share")]
STORAGE = Annotated[str, typer.Option("--storage-class", help="of that volume [default: the cluster's]")]
AS_ROOT = Annotated[
    bool,
    typer.Option(
        "--prepare-as-root",
        help="make a volume's folders as root, where it does not take the pod's group (host paths, some NFS)",
    ),
]
KAGENT = Annotated[
    bool, typer.Option("--kagent", help="keep kagent's Agents too: those that have hooks, unless selected")
]
SELECTOR = Annotated[
    str, typer.Option("--kagent-selector", help="LABEL=VALUE: keep the Agents with this label, and no others")
]
PLAIN = Annotated[
    list[str] | None,
    typer.Option("--plain-registry", help="HOST:PORT that hook images may be fetched from without TLS"),
]
JSON = Annotated[bool, typer.Option("--json", help="one List as JSON")]


def crds(
    kagent: Annotated[
        bool, typer.Option("--kagent", help="those of kagent instead, for a cluster that has no kagent")
    ] = False,
    json: JSON = False,
) -> None:
    """Print the CustomResourceDefinitions, for `kubectl apply -f -`."""
    from hookline.kagent.crds import kagent_crds
    from hookline.sympozium.cluster.crds import crds as definitions

    _print(kagent_crds() if kagent else definitions(), json)


@operator.callback(invoke_without_command=True)
def running(
    context: typer.Context,
    image: IMAGE = "",
    agent_image: AGENT_IMAGE = "",
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", help="work in this one only; may be given again")
    ] = None,
    shared_account: SHARED = False,
    max_run_history: HISTORY = 50,
    agent_command: COMMAND = "",
    workspace_size: SIZE = "1Gi",
    storage_class: STORAGE = "",
    prepare_as_root: AS_ROOT = False,
    kagent: KAGENT = False,
    kagent_selector: SELECTOR = "",
    plain_registry: PLAIN = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="of /healthz, /readyz; 0 is any")] = 8080,
) -> int:
    """Run the operator until it is stopped, with the rights that this machine or pod has."""
    if context.invoked_subcommand is not None:
        return 0
    _needs(image)
    _check_selector(kagent_selector, kagent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    from hookline.sympozium.cluster.controller import main
    from hookline.sympozium.cluster.objects import Settings

    settings = Settings(
        image=image,
        agent_image=agent_image,
        agent_command=tuple(shlex.split(agent_command)),
        shared_account=shared_account,
        workspace_size=workspace_size,
        storage_class=storage_class,
        max_run_history=max_run_history,
        prepare_as_root=prepare_as_root,
        kagent=kagent,
        kagent_selector=kagent_selector,
        plain_registries=tuple(plain_registry or ()),
    )
    return main(
        settings=settings,
        namespaces=tuple(namespace or ()),
        port=port,
        journal=default_path(os.environ),
    )


@operator.command()
def manifest(
    image: IMAGE = "",
    agent_image: AGENT_IMAGE = "",
    namespace: Annotated[str, typer.Option(help="where the operator itself stands")] = "hookline-system",
    watch: Annotated[
        list[str] | None,
        typer.Option("--watch", help="work in this namespace only; may be given again [default: all]"),
    ] = None,
    replicas: Annotated[int, typer.Option(min=1, help="of which one acts")] = 2,
    shared_account: SHARED = False,
    max_run_history: HISTORY = 50,
    agent_command: COMMAND = "",
    workspace_size: SIZE = "1Gi",
    storage_class: STORAGE = "",
    prepare_as_root: AS_ROOT = False,
    kagent: KAGENT = False,
    kagent_selector: SELECTOR = "",
    plain_registry: PLAIN = None,
    without_crds: Annotated[bool, typer.Option("--without-crds", help="they are there already")] = False,
    json: JSON = False,
) -> None:
    """Print all that an installation needs, for `kubectl apply -f -`."""
    from hookline.kube.install import Installation, objects
    from hookline.sympozium.cluster.crds import crds as definitions

    _needs(image)
    _check_selector(kagent_selector, kagent)
    settings = Installation(
        image=image,
        namespace=namespace,
        watched=tuple(watch or ()),
        agent_image=agent_image,
        replicas=replicas,
        shared_account=shared_account,
        max_run_history=max_run_history,
        agent_command=agent_command,
        workspace_size=workspace_size,
        storage_class=storage_class,
        prepare_as_root=prepare_as_root,
        kagent=kagent,
        kagent_selector=kagent_selector,
        plain_registries=tuple(plain_registry or ()),
    )
    _print([*([] if without_crds else definitions()), *objects(settings)], json)


def yaml_of(objects: Sequence[Any]) -> str:
    """One document for each, and in each every part written out."""
    import yaml

    class Plain(yaml.CSafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump_all(
        objects, Dumper=Plain, sort_keys=False, allow_unicode=True, width=110, explicit_start=True
    )


def _print(objects: Sequence[Any], json: bool) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    sys.stdout.write(json_.dumps(listed, indent=2) + "\n" if json else yaml_of(objects))
    sys.stdout.flush()


def _needs(image: str) -> None:
    if not image:
        raise UsageError(
            "--image is missing; it is hookline's own image, which deploy/Containerfile makes,"
            " such as registry.example/hookline:1.0"
        )


def _check_selector(text: str, kagent: bool) -> None:
    from hookline.kagent.controller import selector_of

    if selector_of(text) and not kagent:
        raise UsageError("--kagent-selector: it says which Agents of kagent's, and --kagent is not given")
