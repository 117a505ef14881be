"""Writes the parts of the Helm chart that are made of the code: the definitions of the kinds, and the operator's rights.

`--write` makes them; `--check` exits 1 if those on disk are not what would be written, and says which.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from hookline.cli.crds import yaml_of
from hookline.kube.install import KAGENT_RULES, LEADING, RULES
from hookline.sympozium.cluster.crds import crds

CHART = Path(__file__).resolve().parents[1] / "deploy" / "chart" / "hookline"
HEAD = "# Made by tools/chart.py; do not edit it.\n"


def parts() -> Mapping[str, str]:
    """The text of each file, by its path in the chart."""
    made = {f"crds/{crd['metadata']['name'].partition('.')[0]}.yaml": yaml_of([crd]) for crd in crds()}
    for name, rules in {"rules": RULES, "kagent": KAGENT_RULES, "leading": LEADING}.items():
        made[f"files/{name}.yaml"] = yaml_of([list(rules)]).removeprefix("---\n")
    return {path: HEAD + text for path, text in made.items()}


def stale(chart: Path = CHART) -> list[str]:
    """The files that are not as they would be written, those that nobody would write among them."""
    made = parts()
    there = {
        str(file.relative_to(chart)): file.read_text()
        for part in ("crds", "files")
        for file in (chart / part).iterdir()
    }
    return sorted(path for path in made.keys() | there.keys() if made.get(path) != there.get(path))


def write(chart: Path = CHART) -> None:
    made = parts()
    for path in stale(chart):
        if path in made:
            (chart / path).write_text(made[path])
        else:
            (chart / path).unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--write", action="store_true")
    chosen.add_argument("--check", action="store_true")
    if parser.parse_args().write:
        write()
    left = stale()
    if left:
        print(f"not current: {', '.join(left)}; run tools/chart.py --write", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
