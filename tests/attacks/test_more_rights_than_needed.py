"""What somebody who may write an AgentRun or an Agent reaches through the operator, and what its account may do itself."""

import asyncio
import json
from dataclasses import replace
from itertools import product

import pytest

from hookline.kagent.objects import Pods
from hookline.kube.objects import AGENT_RUN, DEPLOYMENT, ROLE, SECRET
from hookline.sympozium.cluster.controller import AgentRunController
from tests import forks
from tests.kagent.test_controller import Watchable, keeping, settled
from tests.kagent.test_objects import MODEL, agent
from tests.kube.memory_cluster import copied
from tests.sympozium.cluster.world import NAMESPACE, SETTINGS, Scene, agent_run, hook

IMAGE = "registry.example/hookline:1.0"


def hookline(*words):
    return forks.run(words)


def installation(*words):
    done = hookline("operator", "manifest", "--image", IMAGE, "--without-crds", "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["items"]


def may(items, namespace, group, resource, verb, name=""):
    """True if the objects of an installation allow it to the operator in a namespace, as the API server decides it."""
    for each in items:
        if not each["kind"].endswith("RoleBinding"):
            continue
        place = each["metadata"].get("namespace", "")
        if place and place != namespace:
            continue
        wanted = (each["roleRef"]["kind"], each["roleRef"]["name"], place if place else "")
        for role in items:
            key = (role["kind"], role["metadata"]["name"], role["metadata"].get("namespace", ""))
            if key == wanted and allowed(role["rules"], group, resource, verb, name):
                return True
    return False


def allowed(rules, group, resource, verb, name=""):
    return any(
        {group, "*"} & set(rule["apiGroups"])
        and {resource, "*"} & set(rule["resources"])
        and {verb, "*"} & set(rule["verbs"])
        and (not rule.get("resourceNames") or name in rule["resourceNames"])
        for rule in rules
    )


DANGEROUS = (
    ("", "secrets"),
    ("batch", "jobs"),
    ("rbac.authorization.k8s.io", "roles"),
    ("apps", "deployments"),
)


@pytest.mark.parametrize("words", [(), ("--kagent",), ("--watch", "team-a", "--watch", "team-b", "--kagent")])
def test_the_operator_does_not_reach_other_namespaces_unless_that_was_asked_for(words):
    items = installation(*words)
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    for namespace, (group, resource), verb in product(("kube-system", "default", "team-c"), DANGEROUS, verbs):
        assert not may(items, namespace, group, resource, verb), (namespace, resource, verb)
    inside = words[1] if "--watch" in words else "hookline-system"
    assert may(items, inside, "batch", "jobs", "create")


def test_all_namespaces_are_watched_on_request():
    items = installation("--all-namespaces")
    assert may(items, "team-c", "batch", "jobs", "create")


@pytest.mark.parametrize("name", ["kube-system", "kube-public", "kube-node-lease"])
def test_no_operator_works_in_a_namespace_of_the_cluster_itself(name):
    watching = hookline("operator", "manifest", "--image", IMAGE, "--watch", "team-a", "--watch", name)
    beginning = hookline("operator", "--image", IMAGE, "--namespace", name)
    installed = hookline("operator", "manifest", "--image", IMAGE, "--namespace", name)
    for done in (watching, beginning, installed):
        assert (done.returncode, done.stdout) == (2, "")
        assert name in done.stderr


def in_place(obj, namespace):
    made = copied(obj)
    made["metadata"]["namespace"] = namespace
    return made


async def test_an_agent_in_kube_system_gets_no_pod_though_all_namespaces_are_watched():
    cluster = Watchable()
    for namespace in ("test", "kube-system"):
        cluster.add(in_place(MODEL, namespace))
        foreign = in_place(agent(), namespace)
        foreign["metadata"]["uid"] = f"uid-in-{namespace}"
        cluster.add(foreign)
    async with keeping(cluster) as until:
        await until(lambda: cluster.conditions().get("Accepted", {}).get("status") == "True")
        await settled(cluster)
    made = {namespace for kind, namespace, _ in cluster.objects if kind == DEPLOYMENT.kind}
    assert made == {"test"}


async def test_a_run_in_kube_system_gets_no_pod_though_all_namespaces_are_watched():
    cluster = Watchable()
    for namespace in ("test", "kube-system"):
        run = agent_run(uid=f"uid-in-{namespace}")
        run["metadata"]["namespace"] = namespace
        cluster.add(run)
    task = asyncio.ensure_future(AgentRunController(cluster, SETTINGS).run())
    try:
        async with asyncio.timeout(30):
            while "create Job/r" not in cluster.calls:
                assert not task.done(), task.exception()
                await asyncio.sleep(0.01)
        await settled(cluster)
    finally:
        task.cancel()
        await asyncio.wait({task})
    there = cluster.objects[AGENT_RUN.kind, "kube-system", "r"]
    assert ("status" in there, "finalizers" in there["metadata"]) == (False, False)
    assert {kind for kind, namespace, _ in cluster.objects if namespace == "kube-system"} == {AGENT_RUN.kind}


def accounts_of(cluster):
    return [each["spec"]["template"]["spec"]["serviceAccountName"] for each in cluster.all(DEPLOYMENT)]


@pytest.mark.parametrize("given", [(), ("reader",)], ids=["none are given", "another is given"])
async def test_an_agent_does_not_run_as_an_account_that_the_installation_does_not_give(given):
    cluster = Watchable()
    cluster.add(copied(MODEL))
    cluster.add(agent(deployment={"serviceAccountName": "cluster-admin"}))
    async with serving(cluster, Pods(image="i", accounts=given)) as until:
        await until(lambda: cluster.conditions().get("Accepted", {}).get("status") == "False")
        await settled(cluster)
    assert accounts_of(cluster) == []
    told = cluster.conditions()["Accepted"]["message"]
    assert "serviceAccountName" in told
    assert "--kagent-account" in told


async def test_an_agent_runs_as_an_account_that_the_installation_gives():
    cluster = Watchable()
    cluster.add(copied(MODEL))
    cluster.add(agent(deployment={"serviceAccountName": "reader"}))
    async with serving(cluster, Pods(image="i", accounts=("reader",))) as until:
        await until(lambda: cluster.conditions().get("Accepted", {}).get("status") == "True")
    assert accounts_of(cluster) == ["reader"]


def serving(cluster, pods):
    return keeping(cluster, pods=pods)


def admits(policy, *, labels, namespace, home, port):
    """True if a NetworkPolicy lets a pod with these labels of a namespace connect to the port, as the API defines it."""
    for rule in policy["spec"]["ingress"]:
        if port not in [each["port"] for each in rule.get("ports", [])]:
            continue
        for peer in rule["from"]:
            wanted = peer.get("podSelector", {}).get("matchLabels", {})
            if not wanted.items() <= labels.items():
                continue
            spaces = peer.get("namespaceSelector")
            if namespace == home if spaces is None else named(spaces, namespace):
                return True
    return False


def named(selector, namespace):
    return selector["matchLabels"].items() <= {"kubernetes.io/metadata.name": namespace}.items()


async def test_an_agent_without_a_token_is_not_reached_from_other_namespaces():
    cluster = Watchable()
    cluster.add(copied(MODEL))
    cluster.add(agent())
    async with serving(cluster, Pods(image="i", clients=("front",))) as until:
        await until(lambda: cluster.conditions().get("Accepted", {}).get("status") == "True")
    (deployment,) = cluster.all(DEPLOYMENT)
    command = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    (policy,) = [each for (kind, _, _), each in cluster.objects.items() if kind == "NetworkPolicy"]
    assert "--no-token" in command
    pods = deployment["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pods.items()
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    for namespace, port, admitted in (
        ("test", 8080, True),
        ("front", 8080, True),
        ("other", 8080, False),
        ("front", 22, False),
    ):
        assert admits(policy, labels={"a": "b"}, namespace=namespace, home="test", port=port) is admitted


def names_secret(place, name):
    """A run that names a Secret, for a variable of a hook, of its model or for its images."""
    if place == "images":
        return agent_run(imagePullSecrets=[{"name": name}], lifecycle={"preRun": [hook("a")]})
    if place == "model":
        return agent_run(model={"provider": "openai", "model": "x", "authSecretRef": name})
    env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}]
    return agent_run(lifecycle={"preRun": [hook("a", env=env)]})


def secret(name, **labels):
    head = {"name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": head, "data": {"k": "c2VjcmV0"}}


@pytest.mark.parametrize("place", ["hook", "model", "images"])
@pytest.mark.parametrize("there", ["without a label", "with another", "not there", "the record of a run"])
async def test_a_run_does_not_begin_with_a_secret_that_is_not_for_runs(place, there):
    name = "other-record" if there == "the record of a run" else "database"
    scene = Scene(run=names_secret(place, name), settings=labelled())
    if there != "not there":
        labels = {"hookline.dev/for-runs": "false"} if there == "with another" else {"a": "b"}
        scene.cluster.add(secret(name, **labels))
    await scene.to_the_end()
    assert scene.status["phase"] == "Failed"
    assert (name in scene.status["error"], "hookline.dev/for-runs=true" in scene.status["error"]) == (
        True,
        True,
    )
    assert scene.ran == []
    assert not any(each.startswith("create Job") for each in scene.cluster.calls)


@pytest.mark.parametrize("place", ["hook", "model", "images"])
async def test_a_run_begins_with_a_secret_that_is_for_runs(place):
    for settings, labels in ((labelled(), {"hookline.dev/for-runs": "true"}), (SETTINGS, {})):
        scene = Scene(run=names_secret(place, "database"), settings=settings)
        scene.cluster.add(secret("database", **labels))
        await scene.to_the_end()
        assert scene.status["phase"] == "Succeeded", scene.status


def labelled():
    return replace(SETTINGS, labelled_secrets=True)


VERDICTS = {
    "patch": {"apiGroups": ["sympozium.ai"], "resources": ["agentruns"], "verbs": ["get", "patch"]},
    "two groups": {
        "apiGroups": ["", "sympozium.ai"],
        "resources": ["configmaps", "agentruns"],
        "verbs": ["get"],
    },
    "together": {
        "apiGroups": ["sympozium.ai"],
        "resources": ["agentruns"],
        "verbs": ["list", "watch", "patch"],
    },
}


async def granted(wanted, *, grantable=None, here=None):
    """The rules of the role that a run gets, and the run at its end."""
    scene = Scene(run=agent_run("mine", lifecycle={"rbac": [wanted], "preRun": [hook("a")]}))
    if grantable is not None:
        scene.cluster.objects["ClusterRole", "", "hookline-grantable"] = grantable
    if here is not None:
        here["metadata"]["uid"] = "h"
        scene.cluster.objects[ROLE.kind, NAMESPACE, "hookline-grantable"] = here
    made = []
    create = scene.cluster.create

    async def noted(obj):
        made.append(copied(obj))
        return await create(obj)

    scene.cluster.create = noted
    await scene.to_the_end()
    return [rule for each in made if each["kind"] == ROLE.kind for rule in each["rules"]], scene


@pytest.mark.parametrize("name", ["patch", "together"])
async def test_a_hook_cannot_approve_the_gate_of_another_run(name):
    rules, scene = await granted(VERDICTS[name])
    assert scene.status["phase"] == "Succeeded", scene.status
    assert allowed(rules, "sympozium.ai", "agentruns", "patch", "mine")
    for other in ("other", "mine-2", "", "hookline.dev/own-run"):
        assert not allowed(rules, "sympozium.ai", "agentruns", "patch", other)
    for verb in set(VERDICTS[name]["verbs"]) - {"patch"}:
        assert allowed(rules, "sympozium.ai", "agentruns", verb, "other")


async def test_what_is_grantable_for_every_run_is_granted_for_every_run():
    whole = {"apiGroups": ["sympozium.ai"], "resources": ["agentruns"], "verbs": ["get", "patch"]}
    head = {"name": "hookline-grantable", "uid": "g"}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": head,
        "rules": [whole],
    }
    rules, scene = await granted(VERDICTS["patch"], grantable=role)
    assert scene.status["phase"] == "Succeeded"
    assert rules == [whole]


async def test_a_wide_role_that_an_older_installation_left_grants_nothing():
    whole = {"apiGroups": ["sympozium.ai"], "resources": ["agentruns"], "verbs": ["get", "patch"]}
    left = {"kind": "ClusterRole", "metadata": {"name": "hookline-grantable", "uid": "g"}, "rules": [whole]}
    (now,) = [
        each
        for each in installation("--watch", NAMESPACE)
        if (each["kind"], each["metadata"]["name"]) == (ROLE.kind, "hookline-grantable")
    ]
    rules, scene = await granted(VERDICTS["patch"], grantable=left, here=now)
    assert scene.status["phase"] == "Succeeded"
    assert not allowed(rules, "sympozium.ai", "agentruns", "patch", "other")


@pytest.mark.parametrize("verb", ["update", "delete", "create", "deletecollection"])
async def test_a_hook_gets_no_other_right_to_change_runs(verb):
    rules, scene = await granted({**VERDICTS["patch"], "verbs": [verb]})
    assert (scene.status["phase"], rules) == ("Failed", [])
    assert scene.ran == []


def test_what_the_installation_prints_is_what_hooks_are_granted_by():
    (role,) = [
        each for each in installation() if each["kind"] == "Role" and "grantable" in each["metadata"]["name"]
    ]
    for other in ("other", ""):
        assert not allowed(role["rules"], "sympozium.ai", "agentruns", "patch", other)
    assert not allowed(role["rules"], "", SECRET.plural, "get", "x")
