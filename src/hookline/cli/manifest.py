"""`hookline operator manifest`: all that an installation needs."""

from __future__ import annotations

from dataclasses import dataclass

from hookline.cli.crds import print_objects
from hookline.cli.operator import OperatorOptions, check
from hookline.options import flag, option


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
    settings = Installation(
        image=options.image,
        namespace=options.namespace,
        watched=options.watch,
        agent_image=options.agent_image,
        replicas=options.replicas,
        shared_account=options.shared_account,
        max_run_history=options.max_run_history,
        agent_command=options.agent_command,
        workspace_size=options.workspace_size,
        storage_class=options.storage_class,
        prepare_as_root=options.prepare_as_root,
        kagent=options.kagent,
        kagent_selector=options.kagent_selector,
        plain_registries=options.plain_registry,
    )
    print_objects([*([] if options.without_crds else crds()), *all_objects(settings)], as_json=options.json)
    return 0


COMMANDS = {"operator manifest": (ManifestOptions, manifest)}
