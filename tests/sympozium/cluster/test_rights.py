"""Who may do what on a real cluster, tried from inside: hooks, the agent, the operator."""

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.sympozium.cluster.agentruns import (
    IMAGE,
    arranged,
    bash,
    ended,
    events,
    hook,
    hooks,
    no_operator,
    probe,
    rule,
    run,
    said,
    scripted,
    status,
    there,
    until,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

CORE = "/api/v1/namespaces"
OURS = "/apis/sympozium.ai/v1alpha1/namespaces"
CONFIG_MAPS = rule("configmaps", verbs=("get", "list", "create"))
RUNS = rule("agentruns", verbs=("get", "patch"), groups=("sympozium.ai",))
REFUSED = (401, 403)
MET = '"are":"together"'
WIDE = {
    "wide-secrets": rule("secrets"),
    "wide-all": rule("*", verbs=("*",), groups=("*",)),
    "wide-exec": rule("pods/exec", verbs=("create",)),
    "wide-roles": rule("roles", verbs=("create",), groups=("rbac.authorization.k8s.io",)),
    "wide-verb": rule("configmaps", verbs=("get", "deletecollection")),
    "wide-one-of-two": rule("configmaps", "pods"),
}
ACCOUNTS = ("serviceaccount", "role", "rolebinding")


def tries(place, elsewhere, word):
    """Requests of a hook with a right to get, list and create configmaps."""
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"token-{word}"}}
    return [
        f"POST {CORE}/{place}/configmaps {json.dumps({**made, 'data': {'token': 'TOKEN'}})}",
        f"GET {CORE}/{place}/configmaps/token-{word}",
        f"DELETE {CORE}/{place}/configmaps/token-{word}",
        f"GET {CORE}/{place}/secrets",
        f"GET {CORE}/{place}/pods",
        f"GET {CORE}/{elsewhere}/configmaps",
        f"GET {CORE}",
        f"GET {OURS}/{place}/agentruns",
    ]


def answers(place, elsewhere, word):
    codes = (201, 200, 403, 403, 403, 403, 403, 403)
    asked = (" ".join(each.split(" ")[:2]) for each in tries(place, elsewhere, word))
    return {"holds one": True, **dict(zip(asked, codes, strict=True))}


def verdict_of(place, name, by):
    said = json.dumps({"action": "approve", "by": by})
    merge = {"metadata": {"annotations": {"sympozium.ai/gate-verdict": said}}}
    return f"PATCH {OURS}/{place}/agentruns/{name} {json.dumps(merge)}"


def probed(*requests):
    """The agent's command: it tries the API, and looks for a token wherever one might be."""
    words = " ".join(f"'{each}'" for each in requests)
    tokens = "ls -d /var/run/secrets /run/secrets 2>/dev/null | wc -l"
    return bash(
        f"python3 /workspace/probe.py {words} > /workspace/seen; {tokens} > /workspace/tokens; cat /workspace/seen"
    )


def runs(place, elsewhere):
    granted, lists = "granted", [f"GET {CORE}/{place}/configmaps", f"GET {CORE}/{place}/secrets"]
    told = hook("told", "cat /workspace/tokens /workspace/seen")
    go = f"{CORE}/{place}/configmaps/go"
    gated = {
        "gateDefault": "block",
        "rbac": [RUNS],
        "preRun": [arranged(probed(verdict_of(place, "self-approving", "the agent")), "the answer")],
    }
    return [
        run(
            granted,
            **scripted(
                lifecycle={
                    "rbac": [CONFIG_MAPS],
                    "preRun": [arranged(probed(*lists), "done"), probe("before", *tries(place, elsewhere, "before"))],
                    "postRun": [told, probe("after", *tries(place, elsewhere, "after"))],
                }
            ),
        ),
        run("plain", lifecycle={"preRun": [probe("before", *lists)], "postRun": [probe("after", *lists)]}),
        run(
            "one",
            lifecycle={
                "rbac": [CONFIG_MAPS],
                "preRun": [probe("meet", f"UNTIL {go} {MET}", lists[0], f"GET {OURS}/{place}/agentruns/one")],
            },
        ),
        run(
            "other",
            lifecycle={
                "rbac": [RUNS],
                "preRun": [probe("meet", f"UNTIL {OURS}/{place}/agentruns/other {MET}", lists[0], f"GET {OURS}/{place}/agentruns/one")],
            },
        ),
        run("deleted", lifecycle={"rbac": [CONFIG_MAPS], "preRun": [hook("long", "sleep 600")]}),
        run(
            "self-approving",
            **scripted(lifecycle={**gated, "postRun": [hook("ask", "cat /workspace/seen", gate=True), told]}),
        ),
        run(
            "approved",
            lifecycle={
                "rbac": [RUNS],
                "gateDefault": "block",
                "postRun": [probe("ask", verdict_of(place, "approved", "the gate"), gate=True)],
            },
        ),
        run(
            "meddling",
            lifecycle={
                "rbac": [RUNS],
                "preRun": [
                    probe(
                        "meddle",
                        verdict_of(place, "approved", "another run"),
                        verdict_of(place, "meddling", "its own hook"),
                        f"GET {OURS}/{place}/agentruns/approved",
                    )
                ],
            },
        ),
        *(
            run(name, lifecycle={"rbac": [each], "preRun": [hook("a", "true")], "postRun": [hook("b", "true")]})
            for name, each in WIDE.items()
        ),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def elsewhere(operated):
    with operated.namespace() as kubectl:
        yield kubectl


@pytest.fixture(scope="module")
def place(operated, elsewhere):
    """A namespace in which all the runs of this file are on their way at once."""
    with operated.namespace() as kubectl:
        kubectl.well("create", given=runs(kubectl.name, elsewhere.name))
        yield kubectl


def gone(kubectl, name):
    return not any(there(kubectl, kind, f"sympozium-lifecycle-{name}") for kind in ACCOUNTS)


def code_of(server, token, path):
    """What the API answers to somebody who has that token and nothing else."""
    asked = urllib.request.Request(server + path, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(asked, context=ssl._create_unverified_context(), timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code


@pytest.fixture(scope="module")
def server(kubeconfig):
    return yaml.safe_load(Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"]


@pytest.mark.rule("sympozium X1", "sympozium X2", "sympozium 1.6")
@pytest.mark.statement("SZ17", "SZ47", "SZ48", "SZ49", "SZ50", "SZ53")
def test_a_hook_may_do_what_was_granted_and_nothing_else_and_nothing_once_the_run_is_over(
    place, elsewhere, server
):
    told = ended(place, "granted")
    assert told["phase"] == "Succeeded", told
    for word in ("before", "after"):
        assert said(told, word) == answers(place.name, elsewhere.name, word)
    assert gone(place, "granted")
    for word in ("before", "after"):
        token = place.get("configmap", f"token-{word}")["data"]["token"]
        assert token.count(".") == 2
        path = f"{CORE}/{place.name}/configmaps"
        until(
            lambda t=token, p=path: code_of(server, t, p) in REFUSED, f"the token of {word} is still good", 20
        )


@pytest.mark.rule("sympozium X1")
@pytest.mark.statement("SZ46")
def test_the_agent_has_no_token_though_its_hooks_have_one(place):
    told = ended(place, "granted")
    tokens, seen = hooks(told)["told"]["tail"].splitlines()
    assert tokens == "0"
    found = dict(json.loads(seen))
    assert found.pop("holds one") is False
    assert len(found) == 2
    assert set(found.values()) <= set(REFUSED)


@pytest.mark.rule("sympozium 1.6")
@pytest.mark.statement("SZ6", "SZ45", "SZ46", "SZ47")
def test_without_rbac_hooks_run_as_the_account_that_may_do_nothing_and_have_no_token(place):
    told = ended(place, "plain")
    for word in ("before", "after"):
        found = said(told, word)
        assert found.pop("holds one") is False
        assert len(found) == 2
        assert set(found.values()) <= set(REFUSED)
    assert gone(place, "plain")
    account = f"system:serviceaccount:{place.name}:sympozium-agent"
    assert place("auth", "can-i", "get", "configmaps", "--as", account).out.strip() == "no"


@pytest.mark.rule("sympozium X1")
@pytest.mark.statement("SZ50")
def test_two_runs_at_once_do_not_have_each_others_rights(place):
    until(lambda: not gone(place, "one") and not gone(place, "other"), "both runs have their rights")
    place.well("create", "configmap", "go", "--from-literal=are=together")
    place.well("annotate", "agentrun", "other", "are=together")
    one, other = said(ended(place, "one"), "meet"), said(ended(place, "other"), "meet")
    maps, asked = f"GET {CORE}/{place.name}/configmaps", f"GET {OURS}/{place.name}/agentruns/one"
    assert (one[maps], one[asked]) == (200, 403)
    assert (other[maps], other[asked]) == (403, 200)


@pytest.mark.rule("sympozium 1.6", "sympozium 2.1")
@pytest.mark.parametrize("name", WIDE)
def test_a_right_that_is_too_wide_fails_the_run_and_nothing_is_begun(place, name):
    told = ended(place, name)
    wanted = WIDE[name]
    assert told["phase"] == "Failed"
    assert "hookline-grantable" in told["error"]
    assert f"{wanted['verbs'][-1]} {wanted['resources'][-1]}" in told["error"]
    assert events(place, name)["Failed"] == told["error"]
    assert {each["message"] for each in told["hooks"] if each["state"] == "failed"} == {
        "failed: could not start (nothing was begun)"
    }
    found = place.get("pods,jobs", "-l", f"sympozium.ai/agent-run={name}")["items"]
    made = place.get("events", f"--field-selector=involvedObject.kind=Job,involvedObject.name={name}")[
        "items"
    ]
    assert (found, made) == ([], [])
    assert gone(place, name)


@pytest.mark.rule("sympozium X1", "sympozium X3")
def test_the_agent_cannot_approve_its_own_answer(place):
    told = ended(place, "self-approving")
    found = said(told, "ask")
    assert found.pop("holds one") is False
    assert set(found.values()) <= set(REFUSED)
    assert len(found) == 1
    assert (told["gateVerdict"], told["phase"]) == ("timeout", "Succeeded")
    assert "the answer" not in told["result"]
    assert not place.get("agentrun", "self-approving")["metadata"].get("annotations")


@pytest.mark.rule("sympozium 1.14")
def test_a_gate_hook_with_the_right_to_can_give_the_verdict(place):
    told = ended(place, "approved")
    assert (told["phase"], told["gateVerdict"], told["gateBy"]) == ("Succeeded", "approved", "the gate")
    assert told["result"].startswith("dry run")


@pytest.mark.rule("sympozium 1.14")
def test_a_hook_with_the_right_to_cannot_give_the_verdict_of_another_run(place):
    found = said(ended(place, "meddling"), "meddle")
    path = f"{OURS}/{place.name}/agentruns"
    assert found == {
        "holds one": True,
        f"PATCH {path}/approved": 403,
        f"PATCH {path}/meddling": 200,
        f"GET {path}/approved": 200,
    }
    assert ended(place, "approved")["gateBy"] == "the gate"


@pytest.mark.statement("SZ52")
def test_the_rights_go_with_a_run_that_is_deleted_halfway(place):
    until(
        lambda: any(each["state"] == "running" for each in status(place, "deleted").get("hooks", ())),
        "it runs",
    )
    assert not gone(place, "deleted")
    place.well("delete", "agentrun", "deleted", "--timeout=300s")
    until(lambda: gone(place, "deleted"), "its rights are gone")
    until(lambda: not place.get("pods", "-l", "sympozium.ai/agent-run=deleted")["items"], "its pod is gone")


OPERATOR = "system:serviceaccount:hookline-system:hookline-operator"
MAY = {
    "get secrets": "yes",
    "list secrets": "no",
    "watch secrets": "no",
    "update secrets": "no",
    "create serviceaccounts": "yes",
    "list serviceaccounts": "no",
    "create serviceaccounts/token": "no",
    "create roles": "yes",
    "update roles": "no",
    "escalate roles": "no",
    "bind roles": "no",
    "create clusterroles": "no",
    "create clusterrolebindings": "no",
    "list clusterroles": "no",
    "get clusterroles/hookline-grantable": "yes",
    "get clusterroles/cluster-admin": "no",
    "impersonate serviceaccounts": "no",
    "create jobs": "yes",
    "update jobs": "no",
    "create pods": "no",
    "delete pods": "yes",
    "get pods/log": "yes",
    "create pods/exec": "no",
    "create pods/attach": "no",
    "create persistentvolumeclaims": "yes",
    "list nodes": "no",
    "list namespaces": "no",
    "delete namespaces": "no",
    "create deployments": "no",
    "patch agentruns": "yes",
    "patch agentruns/status": "yes",
    "create agentruns": "no",
    "patch customresourcedefinitions": "no",
}


def test_the_operator_itself_may_do_what_it_needs_and_no_more(operated):
    found = {}
    for each in MAY:
        verb, what = each.split()
        resource, _, part = what.partition("/")
        # `kubectl auth can-i` reads TYPE/NAME; a subresource is an option.
        words = (
            [resource, f"--subresource={part}"]
            if resource in ("pods", "agentruns", "serviceaccounts") and part
            else [what]
        )
        found[each] = operated("auth", "can-i", verb, *words, "--as", OPERATOR, "-n", "default").out.strip()
    assert found == MAY


@contextmanager
def operator(kubeconfig, namespace, *options):
    """Another operator, outside, which works in one namespace only."""
    command = [sys.executable, "-m", "hookline", "operator", "--image", IMAGE, "--namespace", namespace]
    process = subprocess.Popen(
        [*command, "--prepare-as-root", "--port", "0", *options],
        env={**os.environ, "KUBECONFIG": kubeconfig},
    )
    try:
        yield
        assert process.poll() is None, "the operator has ended by itself"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.rule("sympozium 1.6")
@pytest.mark.statement("SZ17", "SZ45", "SZ50", "SZ51", "SZ53")
def test_with_a_shared_account_the_rights_are_bound_to_that_and_go_too(operated, kubeconfig):
    with operated.namespace() as place, no_operator(place):
        maps, secrets = f"GET {CORE}/{place.name}/configmaps", f"GET {CORE}/{place.name}/secrets"
        go = f"UNTIL {CORE}/{place.name}/configmaps/go {MET}"
        lifecycle = {"rbac": [CONFIG_MAPS], "preRun": [probe("meet", go, maps, secrets)]}
        with operator(kubeconfig, place.name, "--shared-account"):
            place.well("create", given=run("sharing", lifecycle=lifecycle))
            name = "sympozium-lifecycle-sharing"
            until(lambda: there(place, "rolebinding", name), "the rights are there")
            (subject,) = place.get("rolebinding", name)["subjects"]
            place.well("create", "configmap", "go", "--from-literal=are=together")
            told = ended(place, "sharing")
        assert (subject["kind"], subject["name"]) == ("ServiceAccount", "sympozium-agent")
        assert told["phase"] == "Succeeded", told
        assert said(told, "meet") == {"holds one": True, maps: 200, secrets: 403}
        assert gone(place, "sharing")
        assert there(place, "serviceaccount", "sympozium-agent")
        account = f"system:serviceaccount:{place.name}:sympozium-agent"
        assert place("auth", "can-i", "get", "configmaps", "--as", account).out.strip() == "no"
