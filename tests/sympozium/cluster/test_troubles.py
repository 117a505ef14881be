"""What goes wrong around a run on a real cluster, each told as what it is, and the end that it comes to."""

import json
import time
from contextlib import contextmanager

import pytest

from tests.sympozium.cluster.agentruns import (
    BUSYBOX,
    CLEAN,
    cleaned,
    condition,
    ended,
    events,
    hook,
    hooks,
    nothing_left,
    pods,
    rule,
    run,
    scripted,
    status,
    there,
    until,
)
from tests.sympozium.cluster.manifests import hooked, made
from tests.sympozium.cluster.manifests import run as bare

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

LONGEST = "r" * 63
GREEDY = {
    "name": "eat",
    "image": "localhost/hookline:test",
    "command": ["python3", "-c", "x = b'x' * (2 << 30)"],
}
FOREIGN = {
    "foreign-job": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "foreign-job"},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "own", "image": BUSYBOX, "command": ["sleep", "1"]}],
                }
            }
        },
    },
    "foreign-claim": {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "foreign-claim-workspace"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    },
    "foreign-record": {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "foreign-record-record"},
        "stringData": {"kept": "by another"},
    },
}


def runs():
    ref = {"valueFrom": {"secretKeyRef": {"name": "some", "key": "absent"}}}
    keyed = hook("keyed", "true", env=[{"name": "KEY", **ref}])
    pulled = {"name": "pulled", "image": "localhost/no-such-image:1"}
    edit = {"name": "edit_file", "arguments": {"path": "large", "old": "x", "new": "y"}}
    turn = json.dumps([{"tools": [edit]}, "edited"])
    large = f"truncate -s 3G /workspace/large; printf %s '{turn}' > /workspace/script.json"
    huge = """(printf '["'; head -c 1000000 /dev/zero | tr '\\0' x; printf '"]') > /workspace/script.json"""
    return [
        run("in-vain", agentRef="nobody", lifecycle={"postRun": [CLEAN]}),
        run(LONGEST, lifecycle={"preRun": [hook("a", "true")], "postRun": [CLEAN], "rbac": [rule("configmaps")]}),
        run("no-key", lifecycle={"preRun": [keyed], "postRun": [CLEAN]}),
        run("no-key-after", lifecycle={"postRun": [keyed, CLEAN]}),
        run("no-image", lifecycle={"preRun": [pulled], "postRun": [CLEAN]}),
        run("no-image-after", lifecycle={"postRun": [pulled, CLEAN]}),
        run("huge", **scripted(lifecycle={"preRun": [hook("write", huge)], "postRun": [CLEAN]})),
        run("greedy", lifecycle={"preRun": [GREEDY], "postRun": [CLEAN]}),
        # Its agent edits a file that has to be in memory as a whole.
        run("greedy-agent", **scripted(lifecycle={"preRun": [hook("write", large)], "postRun": [CLEAN]})),
        *(run(name, lifecycle={"preRun": [hook("a", "true")], "postRun": [CLEAN]}) for name in FOREIGN),
    ]  # fmt: skip


AGENTS = [
    made(
        "Agent",
        {
            "agents": {
                "default": {
                    "model": "m",
                    "lifecycle": {"preRun": [hook("long", "sleep 10")], "postRun": [CLEAN]},
                }
            }
        },
        "goes",
    )
]


@pytest.fixture(scope="module")
def place(operated):
    """A namespace in which all the runs of this file are on their way at once."""
    with operated.namespace() as kubectl:
        kubectl.well("create", "secret", "generic", "some", "--from-literal=other=x")
        kubectl.well("create", given=[*FOREIGN.values(), *AGENTS])
        kubectl.uids = {name: uid(kubectl, each) for name, each in FOREIGN.items()}
        kubectl.well("create", given=runs())
        yield kubectl


def uid(kubectl, manifest):
    return kubectl.get(manifest["kind"].lower(), manifest["metadata"]["name"])["metadata"]["uid"]


WRONG = {
    "task": bare(task=3),
    "timeout": bare(task="t", timeout="soon"),
    "postRun image": bare(lifecycle={"postRun": [{"name": "a"}]}),
    "metadata.name": made("AgentRun", {"task": "t"}, "r" * 64),
    "preRun name": hooked("preRun", name="A_B"),
}


@pytest.mark.parametrize("field", WRONG)
def test_what_the_schema_refuses_is_told_by_its_field(place, field):
    refused = place("create", given=WRONG[field])
    assert refused.code != 0
    assert all(word in refused.err for word in field.split()), refused.err


@pytest.mark.rule("sympozium 1.2")
def test_a_run_waits_for_its_agent_to_come(place):
    place.well("create", given=run("waits", agentRef="comes", lifecycle={"postRun": [CLEAN]}))
    # It is given up after a minute, so this cannot wait for ever to see it wait.
    seen = time.monotonic() + 30
    while time.monotonic() < seen and not condition(status(place, "waits"), "Waiting"):
        time.sleep(0.5)
    place.well("create", given=made("Agent", {"agents": {"default": {"model": "m"}}}, "comes"))
    told = ended(place, "waits")
    assert told["phase"] == "Succeeded"
    assert told["result"].startswith("dry run of comes")
    assert condition(told, "Waiting") is None
    assert cleaned(told)


def test_a_run_whose_agent_never_comes_fails_after_a_minute(place):
    waiting = until(lambda: events(place, "in-vain").get("InstanceNotFound"), "it says what it waits for")
    assert "'nobody'" in waiting
    told = ended(place, "in-vain")
    assert (told["phase"], "'nobody'" in told["error"]) == ("Failed", True)
    assert pods(place, "in-vain") == []


def test_a_run_keeps_the_hooks_of_an_agent_that_is_deleted_meanwhile(place):
    place.well("create", given=run("orphan", agentRef="goes"))
    until(lambda: there(place, "job", "orphan"), "its Job is there")
    place.well("delete", "agents.sympozium.ai", "goes")
    told = ended(place, "orphan")
    assert told["phase"] == "Succeeded"
    assert hooks(told)["long"]["state"] == "succeeded"
    assert cleaned(told)


@pytest.mark.rule("sympozium B8")
def test_a_name_of_63_characters_runs_as_any_other(place):
    told = ended(place, LONGEST)
    assert (told["phase"], cleaned(told) != "") == ("Succeeded", True)
    assert told["jobName"] != told["postRunJobName"]
    assert max(len(told["jobName"]), len(told["postRunJobName"])) <= 63
    nothing_left(place, LONGEST)


# The run, how it ends, the hook that could not start, its word for it and what its message names.
NEVER = {
    "no-key": ("Failed", "keyed", "CreateContainerConfigError", "absent"),
    "no-key-after": ("Succeeded", "keyed", "CreateContainerConfigError", "absent"),
    "no-image": ("Failed", "pulled", "ImageNotPulled", "localhost/no-such-image:1"),
    "no-image-after": ("Succeeded", "pulled", "ImageNotPulled", "localhost/no-such-image:1"),
}


@pytest.mark.rule("sympozium 2.1")
@pytest.mark.parametrize("name", NEVER)
def test_a_container_that_cannot_start_is_told_while_it_waits_and_ends_as_that(place, name):
    phase, word, reason, what = NEVER[name]
    told = ended(place, name)
    assert told["phase"] == phase
    never = hooks(told)[word]
    assert (never["state"], never["reason"]) == ("failed", "not_started")
    assert what in never["message"]
    assert what in events(place, name)[reason]
    assert cleaned(told)
    if phase == "Failed":
        assert what in told["error"]
        assert hooks(told)["clean"]["tail"].startswith("cleaned with 1:")
    else:
        assert what in condition(told, "PostRunFailed")["message"]
    nothing_left(place, name)


def test_an_answer_of_a_megabyte_is_kept_in_part_and_that_is_told(place):
    told = ended(place, "huge")
    assert told["phase"] == "Succeeded", told.get("error")
    assert "1000000 bytes" in condition(told, "ResultCut")["message"]
    assert 200_000 < len(told["result"]) <= 256 * 1024
    assert cleaned(told)


@pytest.mark.rule("sympozium 2.1")
def test_what_is_killed_for_its_memory_is_told_as_that(place):
    told = ended(place, "greedy")
    assert told["phase"] == "Failed"
    assert "OOMKilled" in told["error"]
    assert cleaned(told)
    told = ended(place, "greedy-agent")
    assert told["phase"] == "Failed"
    assert "OOMKilled" in told["error"]
    assert "OOMKilled" in cleaned(told)


@pytest.mark.rule("sympozium B16")
@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_anothers_is_left_alone_and_the_run_says_that_it_is_in_the_way(place, name):
    told = ended(place, name)
    manifest = FOREIGN[name]
    assert told["phase"] == "Failed"
    assert f"{manifest['kind']} {manifest['metadata']['name']!r}" in told["error"]
    assert events(place, name)["Failed"] == told["error"]
    assert uid(place, manifest) == place.uids[name]
    assert pods(place, name) == []
    nothing_left(place, name)


def test_a_claim_that_a_quota_forbids_fails_the_run_with_its_words(operated):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"persistentvolumeclaims": "0"}},
    }
    with operated.namespace() as kubectl:
        kubectl.well("create", given=quota)
        until(lambda: kubectl.get("resourcequota", "none").get("status", {}).get("hard"), "the quota holds")
        kubectl.well("create", given=run("full", lifecycle={"postRun": [CLEAN]}))
        told = ended(kubectl, "full")
        assert told["phase"] == "Failed"
        assert "PersistentVolumeClaim" in told["error"]
        assert "exceeded quota: none" in told["error"]


def test_pods_that_a_quota_forbids_are_told_as_missing_and_fail_the_run(operated):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    with operated.namespace() as kubectl:
        kubectl.well("create", given=quota)
        until(lambda: kubectl.get("resourcequota", "none").get("status", {}).get("hard"), "the quota holds")
        kubectl.well("create", given=run("crowded"))
        waiting = until(lambda: condition(status(kubectl, "crowded"), "Waiting"), "it says that it waits")
        assert waiting["reason"] == "NoPod"
        told = ended(kubectl, "crowded")
        assert (told["phase"], "no pod" in told["error"]) == ("Failed", True)


@pytest.mark.rule("sympozium 2.1")
def test_a_pod_that_no_node_takes_is_told_and_runs_once_one_does(place):
    nodes = [each["metadata"]["name"] for each in place.get("nodes")["items"]]
    place.well("cordon", *nodes)
    try:
        place.well("create", given=run("homeless"))
        waiting = until(lambda: condition(status(place, "homeless"), "Waiting"), "it says that it waits")
    finally:
        place.well("uncordon", *nodes)
    assert waiting["reason"] == "Unschedulable"
    assert "unschedulable" in waiting["message"]
    assert "unschedulable" in events(place, "homeless")["Unschedulable"]
    told = ended(place, "homeless")
    assert (told["phase"], condition(told, "Waiting")) == ("Succeeded", None)


DEFAULT = "storageclass.kubernetes.io/is-default-class"


@contextmanager
def no_default_class(kubectl):
    classes = [each["metadata"] for each in kubectl.get("storageclasses")["items"]]
    default = [each["name"] for each in classes if each.get("annotations", {}).get(DEFAULT) == "true"]
    try:
        for name in default:
            kubectl.well("annotate", "storageclass", name, f"{DEFAULT}=false", "--overwrite")
        yield
    finally:
        for name in default:
            kubectl.well("annotate", "storageclass", name, f"{DEFAULT}=true", "--overwrite")


def volume(kubectl, claim):
    """A volume for one claim and no other, on the node's own disk."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{kubectl.name}-{claim}"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": kubectl.name, "name": claim},
            "hostPath": {"path": f"/var/lib/{kubectl.name}", "type": "DirectoryOrCreate"},
        },
    }


@pytest.mark.rule("sympozium 2.1")
def test_a_claim_that_cannot_be_bound_is_told_and_the_run_goes_on_once_it_is(place):
    with no_default_class(place):
        place.well("create", given=run("unbound", lifecycle={"postRun": [CLEAN]}))
        waiting = until(lambda: condition(status(place, "unbound"), "Waiting"), "it says that it waits")
    assert "unbound" in waiting["message"]
    assert "PersistentVolumeClaim" in events(place, "unbound")[waiting["reason"]]
    late = volume(place, "unbound-workspace")
    place.well("create", given=late)
    try:
        told = ended(place, "unbound")
    finally:
        place.well("delete", "pv", late["metadata"]["name"], "--wait=false")
    assert told["phase"] == "Succeeded"
    assert cleaned(told)
