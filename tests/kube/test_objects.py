"""Objects are known by what they say they are."""

import subprocess
import sys

import pytest

from hookline.errors import UsageError
from hookline.kube.objects import AGENT_RUN, JOB, KINDS, NAMESPACE, POD, kind_of, objects_in
from hookline.source import load_all

KNOWN = {
    "a custom one": ("sympozium.ai/v1alpha1", "AgentRun", AGENT_RUN),
    "a built-in one": ("v1", "Pod", POD),
    "of a group": ("batch/v1", "Job", JOB),
    "of no namespace": ("v1", "Namespace", NAMESPACE),
}


@pytest.mark.parametrize(("api_version", "kind", "known"), KNOWN.values(), ids=KNOWN.keys())
def test_an_object_says_its_kind(api_version, kind, known):
    assert kind_of({"apiVersion": api_version, "kind": kind}) is known
    assert known.api_version == api_version


UNKNOWN = {
    "another version": (
        {"apiVersion": "batch/v1beta1", "kind": "Job"},
        "Job is known with apiVersion 'batch/v1'",
    ),
    "misspelt": ({"apiVersion": "sympozium.ai/v1alpha1", "kind": "AgentRuns"}, "did you mean 'AgentRun'?"),
    "nothing": ({}, "apiVersion '', kind ''"),
}


@pytest.mark.parametrize(("obj", "said"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_an_unknown_kind_is_told_with_what_would_be_right(obj, said):
    with pytest.raises(UsageError) as told:
        kind_of(obj)
    assert said in str(told.value)


def test_each_object_of_a_list_knows_the_line_where_it_begins():
    text = "kind: Pod\n---\nkind: List\nitems:\n  - kind: Job\n\n  - kind: Pod\n    metadata: {name: a}\n"
    found = [(each.value["kind"], each.line) for each in objects_in(load_all(text, "x.yaml"))]
    assert found == [("Pod", 1), ("Job", 5), ("Pod", 7)]


def test_no_two_kinds_have_the_same_address():
    assert len({(kind.group, kind.plural) for kind in KINDS.values()}) == len(KINDS)


def test_only_the_cluster_module_loads_its_client():
    code = (
        "import sys, hookline.kube, hookline.kube.objects, hookline.kube.controller, "
        "hookline.kube.lease; print('lightkube' in sys.modules, 'httpx2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
