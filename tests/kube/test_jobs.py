"""A program of hookline's as a Job: what its pod is given, and what it may not do."""

import pytest

from hookline.kube.jobs import GIVEN, JOB_LABEL, Task, claim_spec, job_of, secret_of

TASK = Task(
    name="hookline-run-1",
    namespace="here",
    image="registry/agent:1",
    args=("run", f"{GIVEN}/agent/agent.py", "what is $(HOME)?"),
    component="run",
    env={"TOKEN": "s3cr3t-value"},
    files={"agent/agent.py": "agent = 1", "hooks-1/more.yaml": "hooks: []"},
    secrets=("model-key",),
    timeout=60.0,
)


def pod(task):
    return job_of(task)["spec"]["template"]["spec"]


def test_what_it_is_given_travels_in_a_secret_that_goes_with_the_job():
    job = job_of(TASK)
    secret = secret_of(TASK, {"metadata": {**job["metadata"], "uid": "u1"}})
    assert secret["stringData"] == {
        "file.0": "agent = 1",
        "file.1": "hooks: []",
        "env.TOKEN": "s3cr3t-value",
    }
    assert [each["uid"] for each in secret["metadata"]["ownerReferences"]] == ["u1"]
    [given] = [each["secret"] for each in pod(TASK)["volumes"] if each["name"] == "given"]
    assert given["secretName"] == secret["metadata"]["name"]
    assert {each["path"]: secret["stringData"][each["key"]] for each in given["items"]} == TASK.files
    assert "s3cr3t-value" not in str(job)


def test_an_argument_reaches_the_program_as_it_was_given():
    [container] = pod(TASK)["containers"]
    assert container["command"] == [
        *("python3", "-P", "-m", "hookline", "run"),
        *(f"{GIVEN}/agent/agent.py", "what is $$(HOME)?"),
    ]


def test_secrets_of_the_user_become_variables_by_reference():
    [container] = pod(TASK)["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "model-key"}}]
    refs = {
        each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"] if "valueFrom" in each
    }
    assert refs == {"TOKEN": {"name": "hookline-run-1-given", "key": "env.TOKEN"}}


def test_its_pod_is_nobody_in_the_cluster_and_no_root_on_its_node():
    made = pod(TASK)
    assert made["automountServiceAccountToken"] is False
    assert made["securityContext"]["runAsNonRoot"] is True
    [container] = made["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_job_is_not_tried_again_by_the_cluster_and_ends_also_when_nobody_looks():
    spec = job_of(TASK)["spec"]
    assert spec["backoffLimit"] == 0
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["activeDeadlineSeconds"] > 60
    assert job_of(TASK)["metadata"]["labels"][JOB_LABEL] == TASK.name


@pytest.mark.parametrize("as_root", [False, True])
def test_with_a_claim_the_journal_is_on_it_and_root_only_opens_it(as_root):
    task = Task(
        name="a",
        namespace="here",
        image="i",
        args=("attempt",),
        component="attempt",
        claim="vol",
        open_claim_as_root=as_root,
    )
    made = pod(task)
    assert {"name": "claim", "persistentVolumeClaim": {"claimName": "vol"}} in made["volumes"]
    home = next(each for each in made["containers"][0]["env"] if each["name"] == "HOOKLINE_HOME")
    assert home["value"].startswith("/workspaces/")
    assert [each["securityContext"]["runAsUser"] for each in made.get("initContainers", [])] == (
        [0] if as_root else []
    )


def test_a_volume_has_its_size_and_class_and_without_one_that_of_the_cluster():
    made = claim_spec("2Gi", "fast")
    assert made["resources"]["requests"]["storage"] == "2Gi"
    assert made["storageClassName"] == "fast"
    assert "storageClassName" not in claim_spec("2Gi", "")
