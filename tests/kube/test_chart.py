"""The Helm chart renders to what `hookline operator manifest` prints; its made parts are current."""

import dataclasses
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from hookline.kube.operator import GRANTABLE, all_objects, crds
from hookline.options import Installation
from tools.chart import CHART, stale, write

ROOT = Path(__file__).parents[2]
PLAIN = Installation(image="registry.example/hookline:1.0")
RULE = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}
CASES = {
    "as it is": (PLAIN, {}),
    "in two namespaces": (
        dataclasses.replace(
            PLAIN, namespace="ops", watch=("team-a", "team-b"), max_run_history=0, replicas=1
        ),
        {"watched": ["team-a", "team-b"], "maxRunHistory": 0, "replicas": 1},
    ),
    "in all namespaces": (dataclasses.replace(PLAIN, all_namespaces=True), {"allNamespaces": True}),
    "with another agent": (
        dataclasses.replace(
            PLAIN,
            agent_image="registry.example/agent@sha256:12",
            agent_command="run --it",
            shared_account=True,
            storage_class="fast",
            workspace_size="2Gi",
            prepare_as_root=True,
        ),
        {
            "agentImage": "registry.example/agent@sha256:12",
            "agentCommand": "run --it",
            "sharedAccount": True,
            "storageClass": "fast",
            "workspaceSize": "2Gi",
            "prepareAsRoot": True,
        },
    ),
    "with kagent's agents": (
        dataclasses.replace(
            PLAIN,
            kagent=True,
            kagent_selector="team=blue",
            kagent_account=("reader",),
            kagent_client=("front", "back"),
            plain_registry=("10.0.0.1:5000",),
            labelled_secrets=True,
        ),
        {
            "kagent": True,
            "kagentSelector": "team=blue",
            "kagentAccounts": ["reader"],
            "kagentClients": ["front", "back"],
            "plainRegistries": ["10.0.0.1:5000"],
            "labelledSecrets": True,
        },
    ),
    "with more to grant": (PLAIN, {"grantable": [RULE]}),
    "with a long history": (
        dataclasses.replace(PLAIN, max_run_history=5_000_000),
        {"maxRunHistory": 5_000_000},
    ),
}


@pytest.fixture(scope="session")
def helm():
    """Of the package helm-binary, which lies beside this Python, or of the machine."""
    beside = Path(sys.executable).parent / "helm"
    found = str(beside) if beside.exists() else shutil.which("helm")
    if found is None:
        pytest.skip("no helm: it comes with the extra `dev` on Linux, x86_64")
    return found


def rendered(helm, tmp_path, values, namespace="hookline-system", *words):
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    return subprocess.run(
        [helm, "template", "hookline", str(CHART), "--namespace", namespace, "--values", str(file), *words],
        capture_output=True,
        text=True,
        check=False,
        env={"HOME": str(tmp_path)},
    )


def by_name(items):
    found = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in items
    }
    assert len(found) == len(items)
    return found


@pytest.mark.parametrize(("settings", "values"), CASES.values(), ids=CASES.keys())
def test_the_chart_renders_to_the_objects_of_the_manifest(helm, tmp_path, settings, values):
    done = rendered(helm, tmp_path, {"image": settings.image, **values}, settings.namespace, "--include-crds")
    assert done.returncode == 0, done.stderr
    # The namespace is made by helm itself, with --create-namespace.
    grantable = values.get("grantable", GRANTABLE)
    wanted = [each for each in all_objects(settings, grantable) if each["kind"] != "Namespace"]
    made = [each for each in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if each]
    assert by_name(made) == by_name([*crds(), *wanted])


def test_the_chart_has_the_defaults_of_the_program():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values == {
        "image": "",
        "agentImage": PLAIN.agent_image,
        "watched": list(PLAIN.watch),
        "replicas": PLAIN.replicas,
        "sharedAccount": PLAIN.shared_account,
        "maxRunHistory": PLAIN.max_run_history,
        "agentCommand": PLAIN.agent_command,
        "workspaceSize": PLAIN.workspace_size,
        "storageClass": PLAIN.storage_class,
        "prepareAsRoot": PLAIN.prepare_as_root,
        "grantable": list(GRANTABLE),
        "kagent": PLAIN.kagent,
        "kagentSelector": PLAIN.kagent_selector,
        "plainRegistries": list(PLAIN.plain_registry),
        "kagentAccounts": list(PLAIN.kagent_account),
        "kagentClients": list(PLAIN.kagent_client),
        "labelledSecrets": PLAIN.labelled_secrets,
        "allNamespaces": PLAIN.all_namespaces,
    }
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "image is missing"),
        ({"image": "a", "replica": 3}, "replica"),
        ({"image": "a", "replicas": 0}, "replicas"),
        ({"image": "a", "workspaceSize": "big"}, "workspaceSize"),
        ({"image": "a", "watched": "team-a"}, "watched"),
        ({"image": "a", "watched": ["team-a"], "allNamespaces": True}, "not"),
        ({"image": "a", "grantable": [{"verbs": ["get"]}]}, "grantable"),
    ],
)
def test_wrong_values_are_told(helm, tmp_path, values, told):
    done = rendered(helm, tmp_path, values)
    assert done.returncode != 0
    assert told in done.stderr


def test_the_chart_is_of_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (project["version"], project["version"])


def test_the_made_parts_of_the_chart_are_current():
    assert stale() == [], "run tools/chart.py --write"


def test_what_is_not_current_is_told_and_written_again(tmp_path):
    chart = shutil.copytree(CHART, tmp_path / "chart")
    (chart / "crds" / "agents.yaml").write_text("old")
    (chart / "crds" / "forgotten.yaml").write_text("old")
    (chart / "templates" / "rights.yaml").unlink()
    assert stale(chart) == ["crds/agents.yaml", "crds/forgotten.yaml", "templates/rights.yaml"]
    write(chart)
    assert stale(chart) == []
