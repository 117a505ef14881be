"""`hookline schema`: the JSON Schema of hookline.yaml."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from hookline.hookfile.read import schema


@dataclass(kw_only=True, eq=False, repr=False)
class SchemaOptions:
    pass


def print_schema(_options: SchemaOptions) -> int:
    sys.stdout.write(json.dumps(schema(), indent=2, ensure_ascii=False) + "\n")
    return 0


COMMANDS = {"schema": (SchemaOptions, print_schema)}
