"""What hooks may be granted, held against the role of the installation that says so."""

import pytest

from hookline.kube.operator import GRANTABLE, GRANTABLE_NAME, RULES
from hookline.sympozium.cluster.apply import beyond
from tests.sympozium.cluster.world import NAMESPACE, Scene, agent_run, hook

CORE = ("",)


def rule(*resources, verbs=("get",), groups=CORE, **more):
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs), **more}


# What is wanted, what is grantable, what is too much of it.
CASES = {
    "all of it": ([rule("configmaps")], GRANTABLE, []),
    "one verb more": ([rule("configmaps", verbs=("get", "use"))], GRANTABLE, ["use configmaps"]),
    "one resource more": ([rule("configmaps", "secrets")], GRANTABLE, ["get secrets"]),
    "everything": ([rule("*", verbs=("*",), groups=("*",))], GRANTABLE, ["* * of *"]),
    "all verbs": ([rule("configmaps", verbs=("*",))], GRANTABLE, ["* configmaps"]),
    "the same name in another group": (
        [rule("configmaps", groups=("other.dev",))],
        GRANTABLE,
        ["get configmaps of other.dev"],
    ),
    "a part of it": ([rule("agentruns/status", groups=("sympozium.ai",))], GRANTABLE, ["get agentruns/status of sympozium.ai"]),
    "a part where all is grantable": ([rule("pods/exec")], [rule("*")], []),
    "two rules together": ([rule("a", "b")], [rule("a"), rule("b")], []),
    "groups and verbs of two rules are not mixed": (
        [rule("a", verbs=("get", "list"))],
        [rule("a"), rule("b", verbs=("list",))],
        ["list a"],
    ),
    "by name only": ([rule("pods")], [rule("pods", resourceNames=["one"])], ["get pods"]),
    "of paths": ([rule("pods")], [{"nonResourceURLs": ["*"], "verbs": ["*"]}], ["get pods"]),
    "nothing is grantable": ([rule("configmaps")], [], ["get configmaps"]),
    "nothing is wanted": ([], [], []),
}  # fmt: skip


@pytest.mark.parametrize(("wanted", "grantable", "more"), CASES.values(), ids=CASES)
def test_what_is_wanted_and_not_grantable_is_named(wanted, grantable, more):
    assert beyond(wanted, grantable) == more


@pytest.mark.parametrize("held", RULES, ids=lambda each: each["resources"][0])
def test_what_the_operator_holds_for_its_own_work_is_not_handed_on(held):
    """The API server would let it."""
    kept = [each for each in held["resources"] if each != "agentruns"]
    assert not kept or beyond([{**held, "resources": kept}], GRANTABLE)


def asking(wanted):
    return Scene(run=agent_run(lifecycle={"rbac": [wanted], "preRun": [hook("a")]}))


def role(kind, *rules):
    where = {"namespace": NAMESPACE} if kind == "Role" else {}
    head = {"name": GRANTABLE_NAME, "uid": "grantable", **where}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": head,
        "rules": list(rules),
    }


async def test_a_run_that_asks_for_secrets_fails_and_nothing_is_made_for_it():
    scene = await asking(rule("secrets")).to_the_end()
    assert scene.status["phase"] == "Failed"
    assert scene.status["error"].endswith("get secrets")
    assert scene.ran == []


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
async def test_what_the_installation_adds_is_granted_and_what_it_takes_away_is_not(kind):
    for wanted, phase in ((rule("pods"), "Succeeded"), (rule("configmaps"), "Failed")):
        scene = asking(wanted)
        made = role(kind, rule("pods"))
        scene.cluster.objects[kind, made["metadata"].get("namespace", ""), GRANTABLE_NAME] = made
        await scene.to_the_end()
        assert scene.status["phase"] == phase
