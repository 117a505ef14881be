"""What is taken away from a run on a real cluster while it is on its way, and the end that it comes to."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.sympozium.cluster.agentruns import (
    CLEAN,
    arranged,
    cleaned,
    condition,
    ended,
    events,
    hook,
    hooks,
    no_operator,
    nothing_left,
    pods,
    run,
    scripted,
    status,
    there,
    until,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

LONG = "trap 'exit 143' TERM; sleep 600 & wait"
SLOW = {"text": "late", "delay": 600}
STAGES = ("before", "agent", "after")


def staged(name, stage):
    """A run that stands in one of its stages until something happens to it; whatever that is, `clean` is to run."""
    before = [
        arranged(SLOW if stage == "agent" else "done"),
        *([hook("long", LONG)] if stage == "before" else []),
    ]
    after = [*([hook("long", LONG)] if stage == "after" else []), CLEAN]
    return run(name, **scripted(lifecycle={"preRun": before, "postRun": after}))


def runs():
    return [
        *(staged(f"{what}-{stage}", stage) for what in ("pod", "job") for stage in STAGES),
        staged("evicted", "agent"),
        staged("no-claim", "agent"),
    ]


@pytest.fixture(scope="module")
def place(operated):
    """A namespace in which all the runs of this file are on their way at once."""
    with operated.namespace() as kubectl:
        kubectl.well("create", given=runs())
        yield kubectl


def is_at(kubectl, name, stage):
    """Whether it stands where it stands for long."""
    now = status(kubectl, name)
    if stage == "agent":
        return now.get("phase") == "Running"
    return hooks(now).get("long", {}).get("state") == "running"


@pytest.mark.rule("sympozium B5", "sympozium B7")
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("what", ["pod", "job"])
def test_what_is_deleted_by_hand_ends_the_run_with_the_reason_and_the_rest_of_the_hooks_run(
    place, what, stage
):
    name = f"{what}-{stage}"
    until(lambda: is_at(place, name, stage), f"{name} is at work")
    component = "post-run" if stage == "after" else "agent-run"
    labels = f"sympozium.ai/agent-run={name},sympozium.ai/component={component}"
    place.well("delete", what, "-l", labels, "--wait=false")
    told = ended(place, name)
    assert told["phase"] == ("Succeeded" if stage == "after" else "Failed")
    assert cleaned(told)
    if stage == "after":
        assert hooks(told)["long"]["reason"] == "killed"
        assert "deleted" in condition(told, "PostRunFailed")["message"]
    else:
        assert "deleted" in told["error"], told
    nothing_left(place, name)


@pytest.mark.rule("sympozium 2.1")
def test_a_pod_that_is_evicted_ends_the_run_with_that_reason(place):
    until(lambda: is_at(place, "evicted", "agent"), "it is at work")
    (pod,) = pods(place, "evicted")
    pod["status"] |= {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on resource: memory.",
    }
    path = f"/api/v1/namespaces/{place.name}/pods/{pod['metadata']['name']}/status"
    place.well("replace", "--raw", path, given=pod)
    told = ended(place, "evicted")
    assert told["phase"] == "Failed"
    assert "Evicted: The node was low on resource: memory." in told["error"]
    assert cleaned(told)


def test_a_workspace_that_is_deleted_is_told_and_the_hooks_have_an_empty_one(place):
    until(lambda: is_at(place, "no-claim", "agent"), "it is at work")
    place.well("delete", "pvc", "no-claim-workspace", "--wait=false")
    # The volume lasts as long as a pod has it.
    place.well("delete", "pod", "-l", "sympozium.ai/agent-run=no-claim", "--wait=false")
    told = ended(place, "no-claim")
    assert told["phase"] == "Failed"
    assert condition(told, "WorkspaceLost")["reason"] == "ClaimDeleted"
    assert "WorkspaceLost" in events(place, "no-claim")
    assert cleaned(told)
    nothing_left(place, "no-claim")


@pytest.mark.rule("sympozium B5", "sympozium 2.2")
def test_a_job_that_is_gone_before_it_was_read_fails_the_run_and_the_hooks_after_it_run(place):
    place.well(
        "create", given=run("unread", lifecycle={"preRun": [hook("a", "sleep 15")], "postRun": [CLEAN]})
    )
    until(lambda: there(place, "job", "unread"), "its Job is there")
    with no_operator(place):
        place.well("wait", "--for=condition=Complete", "job/unread", "--timeout=300s")
        place.well("delete", "job", "unread")
        until(lambda: pods(place, "unread") == [], "its pod is gone")
    told = ended(place, "unread")
    assert told["phase"] == "Failed"
    assert "deleted" in told["error"]
    assert cleaned(told)
    nothing_left(place, "unread")


def server_of(kubeconfig):
    """The process of the cluster's API server, where the cluster is one that was started for the tests."""
    mark = str(Path(kubeconfig).parent).encode()
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes()
        except OSError:
            continue
        if words.split(b"\0")[0].endswith(b"/kube-apiserver") and mark in words:
            return int(each.name)
    return pytest.skip(
        "the API server is no process of this machine; unset KUBECONFIG, set HOOKLINE_TEST_CLUSTER"
    )


@pytest.mark.rule("sympozium 2.2")
def test_an_api_server_that_is_gone_for_a_minute_loses_no_run(place, kubeconfig):
    process = server_of(kubeconfig)
    place.well("create", given=staged("cut-off", "agent"))
    slow = run("away", lifecycle={"preRun": [hook("a", "sleep 20")], "postRun": [CLEAN]})
    place.well("create", given=slow)
    until(lambda: hooks(status(place, "away")).get("a", {}).get("state") == "running", "it runs")
    os.kill(process, signal.SIGSTOP)
    try:
        time.sleep(50)  # this is how long it is gone
    finally:
        os.kill(process, signal.SIGCONT)
    told = ended(place, "away")
    assert told["phase"] == "Succeeded"
    assert cleaned(told)
    place.well("delete", "agentrun", "cut-off", "--timeout=300s")
    nothing_left(place, "cut-off")
