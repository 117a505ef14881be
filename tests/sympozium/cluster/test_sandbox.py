"""Agent Sandbox mode on a real cluster: its definition is the third party's own, a small stand-in makes its pods."""

import os
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.kube.kubectl import Kubectl
from tests.sympozium.cluster.agentruns import (
    Object,
    condition,
    ended,
    events,
    hook,
    hooks,
    run,
    status,
    there,
    until,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

DEFINITION = "sandboxes.agents.x-k8s.io"
SANDBOXES = "sandboxes.v1alpha1.agents.x-k8s.io"
CLASS = "hookline-test"


class StandIn:
    """Makes a pod of each Sandbox, as agent-sandbox does: of the same name, of its template, owned by it."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.seen: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self._kubectl = kubectl
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    @contextmanager
    def at_work(self):
        self._thread.start()
        try:
            yield self
        finally:
            self._over.set()
            self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(0.5):
            for each in self._kubectl.get(SANDBOXES)["items"]:
                self._look_at(each)

    def _look_at(self, sandbox: Object) -> None:
        name = sandbox["metadata"]["name"]
        if name in self.seen or sandbox["metadata"].get("deletionTimestamp"):
            return
        self.seen[name] = sandbox
        template = sandbox["spec"]["podTemplate"]
        owner = {
            "apiVersion": sandbox["apiVersion"],
            "kind": "Sandbox",
            "name": name,
            "uid": sandbox["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        head = {"name": name, "labels": template["metadata"]["labels"], "ownerReferences": [owner]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": template["spec"]}
        self._kubectl.well("create", given=pod)
        self.pods[name] = self._kubectl.get("pod", name)


def sandboxed(name, **spec):
    return run(name, agentSandbox={"enabled": True, "runtimeClass": CLASS}, **spec)


def runs():
    left = hook("left", "cat /workspace/note /ipc/note; echo $AGENT_EXIT_CODE")
    note = hook("note", "echo from before > /workspace/note; echo on ipc > /ipc/note")
    return [
        sandboxed("whole", lifecycle={"preRun": [note], "postRun": [left]}),
        sandboxed("bare"),
        sandboxed("broken", lifecycle={"preRun": [hook("note", "exit 3")], "postRun": [left]}),
        sandboxed(
            "halfway", lifecycle={"preRun": [hook("long", "sleep 600")], "postRun": [hook("left", "true")]}
        ),
    ]


def plainer(schema):
    """For servers of 1.20, which take a text that is empty for none: none is right too, and no default is empty."""
    if isinstance(schema, list):  # versions; of other lists nothing has to be changed
        return [plainer(each) if "schema" in each else each for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: each for key, each in schema.items() if not key.startswith("x-kubernetes-list-")}
    none = {"nullable": True} if schema.get("type") == "string" and "jsonPath" not in schema else {}
    return {key: plainer(each) for key, each in kept.items() if (key, each) != ("default", "")} | none


@pytest.fixture(scope="module")
def shared():
    place = os.environ.get("HOOKLINE_SHARED")
    if not place:
        pytest.skip("no definition of Sandbox: set HOOKLINE_SHARED to the folder with fixtures/agent-sandbox")
    return Path(place) / "fixtures/agent-sandbox/sandboxes-crd.yaml"


@pytest.fixture(scope="module")
def without(operated):
    """A namespace of a cluster that has no Sandboxes."""
    operated.well("delete", "crd", DEFINITION, "--ignore-not-found", "--timeout=300s")
    with operated.namespace() as kubectl:
        kubectl.well("create", given=sandboxed("whole", lifecycle={"postRun": [hook("left", "true")]}))
        yield kubectl


@pytest.fixture(scope="module")
def place(operated, without, shared):
    """A namespace of a cluster that has them, with the stand-in at work and all the runs on their way."""
    ended(without, "whole")
    definition = plainer(yaml.safe_load(shared.read_text()))
    # Its webhook, which turns one version into the other, is no part of this; to the server they are the same then.
    definition["spec"]["conversion"] = {"strategy": "None"}
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": CLASS}}
    try:
        # An older client does not know all of it, and a server leaves out what it does not know.
        operated.well("create", "--validate=false", given=definition)
        until(lambda: operated("get", SANDBOXES, "--all-namespaces").code == 0, "the cluster has Sandboxes")
        operated.well("apply", given={**runtime, "handler": "runc"})
        with operated.namespace() as kubectl, StandIn(kubectl).at_work() as stand_in:
            kubectl.stand_in = stand_in
            kubectl.well("create", given=runs())
            yield kubectl
            kubectl.well("delete", "agentruns", "--all", "--timeout=300s")
    finally:
        operated.well("delete", "runtimeclass", CLASS, "--ignore-not-found")
        operated.well("delete", "crd", DEFINITION, "--ignore-not-found", "--timeout=300s")


def test_without_the_definition_a_run_fails_with_the_reason(without):
    told = ended(without, "whole")
    assert told["phase"] == "Failed"
    assert "this cluster has no Sandbox of agents.x-k8s.io" in told["error"]
    assert events(without, "whole")["Failed"] == told["error"]
    assert without.get("pods")["items"] == []


@pytest.mark.rule("sympozium 1.16")
@pytest.mark.statement("SZ64", "SZ65", "SZ66", "SZ67", "SZ69")
def test_hooks_before_run_inside_the_sandbox_those_after_in_a_job_outside_and_both_have_the_workspace(place):
    until(lambda: "sb-whole" in place.stand_in.pods, "its Sandbox has a pod")
    pod = place.stand_in.pods["sb-whole"]["spec"]
    assert [each["name"] for each in pod["initContainers"]] == ["prepare", "pre-note"]
    assert [each["name"] for each in pod["containers"]] == ["agent"]
    assert pod["runtimeClassName"] == CLASS
    told = ended(place, "whole")
    assert told["phase"] == "Succeeded", told
    assert told["result"].startswith("dry run")
    assert (told["sandboxName"], told["postRunJobName"]) == ("sb-whole", "whole-postrun")
    assert "jobName" not in told
    assert hooks(told)["left"]["tail"].splitlines() == ["from before", "on ipc", "0"]


def outside(kubectl, name):
    """The Job of the hooks after, as it was once it was there, and whether there was a Sandbox then."""

    def found():
        if not there(kubectl, "job", f"{name}-postrun"):
            return None
        return kubectl.get("job", f"{name}-postrun"), there(kubectl, "sandbox", f"sb-{name}")

    return until(found, f"{name} has no Job after it")


@pytest.mark.statement("SZ67", "SZ68")
def test_the_sandbox_is_gone_before_the_hooks_after_it_begin(place):
    until(lambda: status(place, "halfway").get("hooks", [{}])[0].get("state") == "running", "its hook runs")
    place.well("delete", "pod", "sb-halfway", "--wait=false")
    job, also = outside(place, "halfway")
    assert also is False
    assert "runtimeClassName" not in job["spec"]["template"]["spec"]
    told = ended(place, "halfway")
    assert told["phase"] == "Failed"
    assert "deleted" in told["error"]
    assert hooks(told)["left"]["state"] == "succeeded"


@pytest.mark.statement("SZ64")
def test_without_hooks_a_sandbox_runs_its_agent_and_goes(place):
    told = ended(place, "bare")
    assert (told["phase"], told["sandboxName"]) == ("Succeeded", "sb-bare")
    until(lambda: not there(place, "sandbox", "sb-bare"), "its Sandbox is gone")
    until(lambda: not there(place, "pod", "sb-bare"), "and its pod")


@pytest.mark.statement("SZ64", "SZ67")
def test_a_hook_that_fails_inside_ends_the_run_and_those_outside_still_run(place):
    told = ended(place, "broken")
    assert (told["phase"], hooks(told)["note"]["exitCode"]) == ("Failed", 3)
    assert "exit code 3" in told["error"]
    # There is no note to be read, and that is the hook's own trouble.
    assert "1" in hooks(told)["left"]["tail"].splitlines()
    assert condition(told, "PostRunFailed") is None
    assert not there(place, "sandbox", "sb-broken")
