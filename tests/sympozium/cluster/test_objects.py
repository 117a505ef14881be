"""What one run comes to, as objects."""

import json
from dataclasses import replace
from typing import Any

import pytest

from hookline.kube.pod_state import ContainerPhase, ContainerState
from hookline.sympozium.cluster import objects
from hookline.sympozium.cluster.objects import RunObjects
from hookline.sympozium.cluster.observation import frozen_of, spec_of
from hookline.sympozium.phases import AgentSeen, Seen
from hookline.sympozium.types import GROUP, RunSpec
from tests.sympozium.cluster.scenes import RULES
from tests.sympozium.cluster.world import NAMESPACE, SETTINGS, agent_run, hook

OWNER = {
    "apiVersion": GROUP,
    "kind": "AgentRun",
    "name": "r",
    "uid": "run-1",
    "controller": True,
    "blockOwnerDeletion": False,
}
BOTH = {"preRun": [hook("a"), hook("b")], "postRun": [hook("c"), hook("d")]}
DONE = Seen(agent=AgentSeen(state=ContainerPhase.ENDED, exit_code=0, result="the answer"))


def spec(**given: Any) -> RunSpec:
    return spec_of(frozen_of(agent_run(**given), None))


def of(run: RunSpec, **settings: Any) -> RunObjects:
    return RunObjects(run, OWNER["uid"], replace(SETTINGS, **settings))


def agent_pod(run: RunSpec, **settings: Any) -> dict[str, Any]:
    return of(run, **settings).agent_job()["spec"]["template"]["spec"]


def post_pod(run: RunSpec, seen: Seen = DONE, **settings: Any) -> dict[str, Any]:
    positions = range(len(run.hooks.post_run))
    job = of(run, **settings).post_job(seen, tuple(positions), 1)
    return job["spec"]["template"]["spec"]


def names(pod: dict[str, Any]) -> list[str]:
    return [each["name"] for each in pod["initContainers"]]


@pytest.mark.statement("SZ8", "SZ9", "SZ13")
def test_hooks_are_init_containers_in_their_order_after_one_of_ours() -> None:
    run = spec(lifecycle=BOTH)
    assert names(agent_pod(run)) == ["prepare", "pre-a", "pre-b"]
    assert [each["name"] for each in agent_pod(run)["containers"]] == ["agent"]
    assert names(post_pod(run)) == ["prepare", "post-c", "post-d"]


@pytest.mark.rule("sympozium B8")
@pytest.mark.parametrize("length", [50, 54, 55, 60, 61, 62, 63])
def test_names_are_never_too_long_and_never_those_of_another_object(length: int) -> None:
    name = "a" * (length - 2) + "-1"
    kinds = objects.names(name)
    jobs = {kinds.agent, objects.child(name, "-postrun"), objects.child(name, "-postrun-2")}
    assert len(jobs) == 3
    assert all(len(each) <= 63 and not each.endswith("-") for each in (*jobs, kinds.sandbox))
    other = objects.child(name[:-1] + "2", "-postrun")
    assert other not in jobs


@pytest.mark.statement("SZ5", "SZ20", "SZ23", "SZ28", "SZ34", "SZ69")
@pytest.mark.rule("sympozium 1.17.2", "sympozium 1.17.4", "sympozium 1.8")
def test_every_hook_and_the_agent_see_the_same_folders_and_they_last_where_hooks_come_after() -> None:
    passing, lasting = spec(lifecycle={"preRun": [hook("a")]}), spec(lifecycle=BOTH)
    assert "emptyDir" in agent_pod(passing)["volumes"][0]
    claim = {"name": "workspace", "persistentVolumeClaim": {"claimName": "r-workspace"}}
    assert agent_pod(lasting)["volumes"][0] == post_pod(lasting)["volumes"][0] == claim
    for run, pods in ((passing, [agent_pod(passing)]), (lasting, [agent_pod(lasting), post_pod(lasting)])):
        ours = [each for pod in pods for each in (*pod["initContainers"], *pod["containers"])]
        mounts = [each["volumeMounts"] for each in ours if each["name"] not in ("prepare", "done")]
        assert all(each == mounts[0] for each in mounts), run.name
        assert [each["mountPath"] for each in mounts[0]] == ["/workspace", "/ipc", "/tmp"]


@pytest.mark.statement("SZ45", "SZ46")
@pytest.mark.rule("sympozium 1.17.11", "sympozium X1")
def test_without_rules_hooks_run_as_the_namespaces_account_and_have_no_token() -> None:
    run = spec(lifecycle=BOTH)
    for pod in (agent_pod(run), post_pod(run)):
        assert pod["serviceAccountName"] == "sympozium-agent"
        assert pod["automountServiceAccountToken"] is False
        assert "token" not in [each["name"] for each in pod["volumes"]]
    assert of(run).grants() == []
    assert "ownerReferences" not in of(run).shared_account()["metadata"]


@pytest.mark.statement("SZ17", "SZ47", "SZ48", "SZ50", "SZ52")
@pytest.mark.rule("sympozium X1", "sympozium X2", "sympozium 1.17.10")
def test_rules_are_one_role_bound_to_the_runs_own_account_whose_token_only_hooks_have() -> None:
    run = spec(lifecycle={**BOTH, "rbac": RULES})
    account, role, binding = of(run).grants()
    assert role["rules"] == RULES
    assert [each["kind"] for each in (account, role, binding)] == ["ServiceAccount", "Role", "RoleBinding"]
    assert all(each["metadata"]["ownerReferences"] == [OWNER] for each in (account, role, binding))
    own = "sympozium-lifecycle-r"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": own, "namespace": NAMESPACE}]
    for pod in (agent_pod(run), post_pod(run)):
        assert pod["serviceAccountName"] == own
        with_token = [
            each["name"]
            for each in (*pod["initContainers"], *pod["containers"])
            if "token" in [mount["name"] for mount in each["volumeMounts"]]
        ]
        assert with_token == [name for name in names(pod) if name != "prepare"]


@pytest.mark.statement("SZ51")
def test_with_a_shared_account_the_role_is_bound_to_it_as_the_seed_writes() -> None:
    run = spec(lifecycle={**BOTH, "rbac": RULES})
    role, binding = of(run, shared_account=True).grants()
    assert binding["subjects"][0]["name"] == "sympozium-agent"
    assert role["kind"] == "Role"
    assert agent_pod(run, shared_account=True)["serviceAccountName"] == "sympozium-agent"


@pytest.mark.rule("sympozium B10", "sympozium B11", "sympozium 1.10")
def test_a_dollar_that_nobody_wrote_for_the_cluster_is_doubled_and_one_of_the_file_is_not() -> None:
    run = spec(
        env={"PLACE": "$(AGENT_RUN_ID)/x"},
        lifecycle={"postRun": [hook("c", env=[{"name": "AGENT_RUN_ID", "value": "mine"}])]},
    )
    answer = replace(DONE, agent=replace(DONE.agent, result="a $(PLACE) costs $5"))
    listed = post_pod(run, answer)["initContainers"][1]["env"]
    assert listed == [
        {"name": "WORKSPACE", "value": "/workspace"},
        {"name": "IPC_DIR", "value": "/ipc"},
        {"name": "AGENT_RUN_ID", "value": "r"},
        {"name": "INSTANCE_NAME", "value": ""},
        {"name": "AGENT_NAMESPACE", "value": NAMESPACE},
        {"name": "AGENT_EXIT_CODE", "value": "0"},
        {"name": "AGENT_RESULT", "value": "a $$(PLACE) costs $$5"},
        {"name": "PLACE", "value": "$(AGENT_RUN_ID)/x"},
    ]


@pytest.mark.rule("sympozium 1.17.15", "sympozium C6", "sympozium B3")
def test_what_a_hook_is_written_with_is_what_its_container_has() -> None:
    ref = {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}
    given = hook(
        "c",
        command=["sh", "-c"],
        args=["true"],
        imagePullPolicy="Always",
        timeout="2m",
        env=[{"name": "T", "valueFrom": ref}],
    )
    run = spec(lifecycle={"preRun": [given]}, timeout="1m", imagePullSecrets=[{"name": "p"}])
    made = agent_pod(run)["initContainers"][1]
    assert {key: made[key] for key in ("image", "command", "args", "imagePullPolicy")} == {
        "image": "busybox:1.36",
        "command": ["sh", "-c"],
        "args": ["true"],
        "imagePullPolicy": "Always",
    }
    assert made["env"][-1] == {"name": "T", "valueFrom": ref}
    job = of(run).agent_job()
    assert job["spec"]["activeDeadlineSeconds"] == 120 + 60 + objects.START_SECONDS
    assert job["spec"]["backoffLimit"] == 0
    assert "ttlSecondsAfterFinished" not in job["spec"]
    assert agent_pod(run)["imagePullSecrets"] == [{"name": "p"}]


@pytest.mark.rule("sympozium 1.7", "sympozium 1.8", "sympozium X5", "sympozium X7", "sympozium 2.3")
def test_no_container_has_more_than_it_needs() -> None:
    run = spec(lifecycle={**BOTH, "rbac": RULES})
    for pod in (agent_pod(run), post_pod(run)):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        for each in (*pod["initContainers"], *pod["containers"]):
            assert each["securityContext"]["readOnlyRootFilesystem"] is True
            assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert each["securityContext"]["allowPrivilegeEscalation"] is False
            assert each["resources"]["limits"]
    rooted = agent_pod(run, prepare_as_root=True)["initContainers"]
    assert [each["securityContext"].get("runAsUser") for each in rooted] == [0, None, None]


@pytest.mark.statement("SZ64", "SZ65", "SZ66")
@pytest.mark.rule("sympozium 2.3", "sympozium 1.16")
def test_a_sandbox_has_the_same_pod_as_the_job_and_the_class_it_is_told() -> None:
    run = spec(lifecycle=BOTH, agentSandbox={"enabled": True, "runtimeClass": "kata"})
    box = of(run).agent_sandbox()["spec"]["podTemplate"]["spec"]
    assert box == {**agent_pod(run), "runtimeClassName": "kata"}
    assert "runtimeClassName" not in post_pod(run)


@pytest.mark.parametrize("number", [1, 2, 12])
def test_a_follow_up_job_says_which_hooks_it_holds(number: int) -> None:
    run = spec(lifecycle=BOTH)
    job = of(run).post_job(DONE, (1,), number)
    assert objects.positions_of(json.loads(json.dumps(job))) == (1,)
    assert objects.positions_of(of(run).agent_job()) == ()
    assert job["metadata"]["name"] == ("r-postrun" if number == 1 else f"r-postrun-{number}")


def test_the_same_run_comes_to_the_same_objects() -> None:
    run = spec(lifecycle={**BOTH, "rbac": RULES}, env={"B": "1", "A": "2"})
    seen = replace(DONE, pre_run=(ContainerState(state=ContainerPhase.ENDED, exit_code=0),) * 2)
    assert agent_pod(run) == agent_pod(spec(lifecycle={**BOTH, "rbac": RULES}, env={"A": "2", "B": "1"}))
    assert post_pod(run, seen) == post_pod(run, seen)


def test_storage_is_as_the_installation_says() -> None:
    run = spec(lifecycle=BOTH)
    made = of(run, workspace_size="5Gi", storage_class="fast").claim()
    assert made["spec"]["resources"]["requests"]["storage"] == "5Gi"
    assert made["spec"]["storageClassName"] == "fast"
    assert "storageClassName" not in of(run).claim()["spec"]
