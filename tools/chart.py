"""Writes the Helm chart out of the code: the definitions of the kinds, the operator's rights and its Deployment.

The objects are those of `hookline operator manifest`, made of marks in place of settings; a mark then becomes the
expression for the chart's value. By hand are only the values themselves, their schema and the notes.

`--write` makes them; `--check` exits 1 if those on disk are not what would be written, and says which.
"""

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hookline.cli.operator import yaml_of
from hookline.kube.operator import GRANTABLE_NAME, NAME, OPTIONS, all_objects, arguments, crds
from hookline.options import Installation

CHART = Path(__file__).resolve().parents[1] / "deploy" / "chart" / "hookline"
HEAD = "# Made by tools/chart.py; do not edit it.\n"
IMAGE = (
    '{{ required "image is missing; it is hookline\'s own image, which deploy/Containerfile makes"'
    " .Values.image | quote }}"
)
MARKED = Installation(
    image="image-mark",
    namespace="namespace-mark",
    replicas=77777,
    kagent=True,
)
GRANTABLE = ({"grantable": "mark"},)
VALUES = {
    "watch": "watched",
    "plain_registry": "plainRegistries",
    "kagent_account": "kagentAccounts",
    "kagent_client": "kagentClients",
}
EXPRESSIONS = {
    "image: image-mark": f"image: {IMAGE}",
    "namespace-mark": "{{ $.Release.Namespace }}",
    "watched-mark": "{{ . }}",
    "replicas: 77777": "replicas: {{ .Values.replicas }}",
    "rules:\n- grantable: mark\n": "rules:\n  {{- toYaml $.Values.grantable | nindent 2 }}\n",
}


def parts() -> Mapping[str, str]:
    """The text of each file, by its path in the chart."""
    made = {f"crds/{crd['metadata']['name'].partition('.')[0]}.yaml": yaml_of([crd]) for crd in crds()}
    made |= {"templates/operator.yaml": _operator(), "templates/rights.yaml": _rights()}
    return {path: HEAD + text for path, text in made.items()}


def _operator() -> str:
    (deployment,) = (each for each in all_objects(MARKED, GRANTABLE) if each["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["args"] = ["arguments-mark"]
    text = _template([deployment])
    line = re.search(r"^ *- arguments-mark\n", text, re.MULTILINE)
    assert line is not None
    indent = line[0][: line[0].index("-")]
    return text.replace(line[0], "".join(f"{indent}{each}\n" for each in _arguments()))


def _arguments() -> Iterable[str]:
    """The operator's command line: each option as its setting's type wants it."""
    yield "- operator"
    for field, option in OPTIONS.items():
        value, default = f"$.Values.{VALUES.get(field) or _camel(field)}", getattr(MARKED, field)
        if isinstance(default, bool):
            yield from (f"{{{{- if {value} }}}}", f"- {option}", "{{- end }}")
        elif isinstance(default, tuple):
            yield from (f"{{{{- range {value} }}}}", f"- {option}", "- {{ . | quote }}", "{{- end }}")
        elif isinstance(default, int):
            yield from (f"- {option}", f"- {{{{ {value} | int | quote }}}}")
        else:
            yield from (f"{{{{- with {value} }}}}", f"- {option}", "- {{ . | quote }}", "{{- end }}")
    port, number = arguments(MARKED)[-2:]
    yield from (f"- {port}", f'- "{number}"')


def _rights() -> str:
    """The account and its roles, in all namespaces or in each of those that are watched, by default the operator's own."""
    narrow = dataclasses.replace(MARKED, watch=("watched-mark",))
    wide = dataclasses.replace(MARKED, all_namespaces=True)
    beside = [
        each for each in all_objects(wide, GRANTABLE) if each["metadata"].get("namespace") == MARKED.namespace
    ]
    return (
        _template([each for each in beside if each["kind"] != "Deployment"])
        + "{{- if .Values.allNamespaces }}\n"
        + _roles(wide, None)
        + "{{- else }}\n{{- range .Values.watched | default (list .Release.Namespace) }}\n"
        + _roles(narrow, "watched-mark")
        + "{{- end }}\n{{- end }}\n"
    )


def _roles(settings: Installation, namespace: str | None) -> str:
    found = [
        each
        for each in all_objects(settings, GRANTABLE)
        if each["kind"].endswith(("Role", "RoleBinding")) and each["metadata"].get("namespace") == namespace
    ]
    always = [each for each in found if each["metadata"]["name"] in (NAME, GRANTABLE_NAME)]
    kagent = [each for each in found if each not in always]
    return _template(always) + "{{- if $.Values.kagent }}\n" + _template(kagent) + "{{- end }}\n"


def _template(marked: list[Any]) -> str:
    text = yaml_of(marked)
    for mark, expression in EXPRESSIONS.items():
        text = text.replace(mark, expression)
    return text


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(map(str.capitalize, rest))


def stale(chart: Path = CHART) -> list[str]:
    """The files that are not as they would be written, those that nobody would write among them."""
    made = parts()
    there = {
        str(file.relative_to(chart)): file.read_text()
        for part in ("crds", "templates")
        for file in (chart / part).glob("*.yaml")
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
