"""`hookline crds`: the CustomResourceDefinitions."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hookline.options import flag


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


COMMANDS = {"crds": (CrdsOptions, print_crds)}
