"""What an installation is given: no more rights than it needs, and a Deployment that a strict cluster takes."""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

from hookline.cli.operator import StartOptions
from hookline.cli.parser import parse
from hookline.errors import UsageError
from hookline.kube.operator import (
    GRANTABLE,
    KAGENT_RULES,
    RULES,
    USER,
    all_objects,
    arguments,
    crds,
)
from hookline.options import Installation
from tests import forks
from tests.kube.kubectl import Kubectl, missing
from tests.sympozium.cluster.manifests import HOOK, run

ROOT = Path(__file__).parents[2]
PLAIN = Installation(image="registry.example/hookline:1.0")
EVERYWHERE = dataclasses.replace(PLAIN, all_namespaces=True)
NARROW = dataclasses.replace(
    PLAIN,
    namespace="ops",
    watch=("team-a", "team-b"),
    agent_image="registry.example/agent:2",
    replicas=3,
    shared_account=True,
    max_run_history=7,
    agent_command="run --it",
    workspace_size="2Gi",
    storage_class="fast",
    prepare_as_root=True,
    kagent=True,
    kagent_selector="team=blue",
    plain_registry=("10.0.0.1:5000",),
    kagent_account=("reader", "writer"),
    kagent_client=("front",),
    labelled_secrets=True,
)


def of_kind(settings, kind):
    return [each for each in all_objects(settings) if each["kind"] == kind]


def names(settings):
    return [
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        for each in all_objects(settings)
    ]


def may(rules, group, resource, verb):
    """Whether rules allow it, as the API server reads them."""
    return any(
        not rule.get("resourceNames")  # of those by name nobody is asked here
        and {group, "*"} & set(rule["apiGroups"])
        and {resource, "*"} & set(rule["resources"])
        and {verb, "*"} & set(rule["verbs"])
        for rule in rules
    )


def test_an_installation_is_all_of_this():
    assert names(PLAIN) == [
        ("Namespace", "", "hookline-system"),
        ("ServiceAccount", "hookline-system", "hookline-operator"),
        ("Role", "hookline-system", "hookline-operator"),
        ("RoleBinding", "hookline-system", "hookline-operator"),
        ("Role", "hookline-system", "hookline-grantable"),
        ("RoleBinding", "hookline-system", "hookline-grantable"),
        ("Role", "hookline-system", "hookline-operator-leading"),
        ("RoleBinding", "hookline-system", "hookline-operator-leading"),
        ("Deployment", "hookline-system", "hookline-operator"),
    ]


def test_an_installation_for_all_namespaces_has_roles_for_all():
    assert names(EVERYWHERE) == [
        ("Namespace", "", "hookline-system"),
        ("ServiceAccount", "hookline-system", "hookline-operator"),
        ("ClusterRole", "", "hookline-operator"),
        ("ClusterRoleBinding", "", "hookline-operator"),
        ("ClusterRole", "", "hookline-grantable"),
        ("ClusterRoleBinding", "", "hookline-grantable"),
        ("Role", "hookline-system", "hookline-operator-leading"),
        ("RoleBinding", "hookline-system", "hookline-operator-leading"),
        ("Deployment", "hookline-system", "hookline-operator"),
    ]


def test_with_watched_namespaces_nothing_holds_outside_of_them():
    assert {kind for kind, namespace, _ in names(NARROW) if not namespace} == {"Namespace"}
    roles = [(namespace, name) for kind, namespace, name in names(NARROW) if kind == "Role"]
    assert roles == [
        ("team-a", "hookline-operator"),
        ("team-b", "hookline-operator"),
        ("team-a", "hookline-grantable"),
        ("team-b", "hookline-grantable"),
        ("team-a", "hookline-operator-kagent"),
        ("team-b", "hookline-operator-kagent"),
        ("ops", "hookline-operator-leading"),
    ]


@pytest.mark.parametrize("settings", [PLAIN, EVERYWHERE, NARROW], ids=["plain", "everywhere", "narrow"])
def test_every_right_is_the_operators_account_alone(settings):
    bindings = of_kind(settings, "ClusterRoleBinding") + of_kind(settings, "RoleBinding")
    account = {"kind": "ServiceAccount", "name": "hookline-operator", "namespace": settings.namespace}
    assert [each["subjects"] for each in bindings] == [[account]] * len(bindings)
    for each in bindings:
        role = each["roleRef"]
        place = each["metadata"].get("namespace", "")
        assert (role["kind"], place, role["name"]) in names(settings)


ALL = ("*", "escalate", "bind", "impersonate", "deletecollection", "use", "approve")


def test_no_right_is_without_bounds():
    for rule in (*RULES, *GRANTABLE, *KAGENT_RULES):
        assert "*" not in [*rule["apiGroups"], *rule["resources"]]
        assert not set(ALL) & set(rule["verbs"])


@pytest.mark.parametrize(
    ("group", "resource", "verbs"),
    [
        ("", "secrets", {"get", "create", "patch", "delete"}),
        ("", "pods", {"get", "list", "watch", "delete"}),
        ("", "pods/log", {"get"}),
        ("", "pods/exec", set()),
        ("", "serviceaccounts", {"get", "create", "delete"}),
        ("", "serviceaccounts/token", set()),
        ("", "nodes", set()),
        ("", "namespaces", set()),
        ("", "configmaps", set()),
        ("rbac.authorization.k8s.io", "roles", {"get", "create", "delete"}),
        ("rbac.authorization.k8s.io", "clusterroles", set()),
        ("rbac.authorization.k8s.io", "clusterrolebindings", set()),
        ("sympozium.ai", "agentruns", {"get", "list", "watch", "patch", "delete"}),
        ("sympozium.ai", "agents", {"get", "list", "watch", "create", "update", "delete"}),
        ("sympozium.ai", "sympoziuminstances", {"get", "list", "watch"}),
        ("batch", "jobs", {"get", "list", "watch", "create", "patch", "delete"}),
        ("agents.x-k8s.io", "sandboxes", {"get", "list", "watch", "create", "delete"}),
    ],
)
def test_the_operator_may_do_what_it_does_and_no_more(group, resource, verbs):
    known = ("get", "list", "watch", "create", "update", "patch", "delete")
    assert {verb for verb in known if may(RULES, group, resource, verb)} == verbs


@pytest.mark.parametrize("verb", ["get", "list", "create", "patch"])
@pytest.mark.parametrize(
    ("group", "resource"),
    [
        ("", "secrets"),
        ("", "pods/exec"),
        ("", "pods"),
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("sympozium.ai", "agentruns/status"),
    ],
)
def test_what_hooks_can_be_granted_is_never_the_namespace(group, resource, verb):
    assert not may(GRANTABLE, group, resource, verb)


def test_the_operators_pod_keeps_to_the_strictest_standard():
    (deployment,) = of_kind(PLAIN, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]
    assert set(container["resources"]) == {"requests", "limits"}
    assert deployment["spec"]["replicas"] == 2
    assert (
        deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    )


def test_the_operators_command_line_is_one_that_it_understands():
    word, *options = arguments(NARROW)
    assert word == "operator"
    given = vars(parse(StartOptions, options, word, ""))
    assert {key: value for key, value in given.items() if key != "port"} == {
        "image": NARROW.image,
        "agent_image": NARROW.agent_image,
        "namespace": NARROW.watch,
        "shared_account": True,
        "max_run_history": 7,
        "agent_command": "run --it",
        "workspace_size": "2Gi",
        "storage_class": "fast",
        "prepare_as_root": True,
        "kagent": True,
        "kagent_selector": "team=blue",
        "plain_registry": ("10.0.0.1:5000",),
        "kagent_account": ("reader", "writer"),
        "kagent_client": ("front",),
        "labelled_secrets": True,
        "all_namespaces": False,
    }


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"image": ""}, "--image is missing; give hookline's own image"),
        ({"image": "a b"}, "the image is 'a b'"),
        ({"agent_image": "a\nb"}, "the agent image is 'a\\nb'"),
        ({"namespace": "Ops"}, "'Ops' is not a name of a namespace"),
        ({"watch": ("a", "b.c")}, "'b.c' is not a name of a namespace"),
        ({"watch": ("a", "kube-system")}, "'kube-system' is a namespace of the cluster itself"),
        ({"namespace": "kube-system"}, "'kube-system' is a namespace of the cluster itself"),
        ({"watch": ("a",), "all_namespaces": True}, "--all-namespaces is given, and namespaces too"),
        ({"workspace_size": "big"}, "the size of a workspace is 'big'; write it like 1Gi"),
        ({"agent_command": "run 'it"}, "cannot be split into words: no closing quotation"),
    ],
)
def test_settings_that_cannot_be_are_told(changed, told):
    with pytest.raises(UsageError, match=r"\w") as caught:
        all_objects(dataclasses.replace(PLAIN, **changed))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--replicas", "0"), "--replicas is 0; it must be 1 or more"),
        (("--max-run-history", "-1"), "--max-run-history is -1; it must be 0 or more"),
    ],
)
def test_numbers_that_cannot_be_are_told(words, told):
    with pytest.raises(UsageError, match=r"\w") as caught:
        parse(Installation, ["--image", "i", *words], "operator manifest", "")
    assert told in str(caught.value)


def hookline(*words):
    return forks.run(words)


WORDS = (
    "--image registry.example/hookline:1.0 --agent-image registry.example/agent:2 --namespace ops"
    " --watch team-a --watch team-b --replicas 3 --shared-account --max-run-history 7"
    " --workspace-size 2Gi --storage-class fast --prepare-as-root --agent-command 'run --it'"
    " --kagent --kagent-selector team=blue --plain-registry 10.0.0.1:5000"
    " --kagent-account reader --kagent-account writer --kagent-client front --labelled-secrets"
)


def test_the_command_prints_all_of_it():
    plain = hookline("operator", "manifest", "--image", PLAIN.image)
    assert list(yaml.load_all(plain.stdout, Loader=yaml.CSafeLoader)) == [*crds(), *all_objects(PLAIN)]
    narrow = hookline("operator", "manifest", *shlex.split(WORDS), "--without-crds", "--json")
    assert json.loads(narrow.stdout) == {"apiVersion": "v1", "kind": "List", "items": all_objects(NARROW)}


def test_the_definitions_are_printed_by_themselves():
    assert list(yaml.load_all(hookline("crds").stdout, Loader=yaml.CSafeLoader)) == crds()
    assert json.loads(hookline("crds", "--json").stdout)["items"] == crds()
    assert list(yaml.load_all(hookline("crds", "--kagent").stdout, Loader=yaml.CSafeLoader)) == crds("kagent")


def test_a_selector_without_agents_to_select_is_told():
    done = hookline("operator", "manifest", "--image", "i", "--kagent-selector", "team=blue")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--kagent-selector needs --kagent" in done.stderr
    done = hookline("operator", "manifest", "--image", "i", "--kagent", "--kagent-selector", "blue")
    assert "write LABEL=VALUE" in done.stderr


@pytest.mark.parametrize("words", [["operator", "manifest"], ["operator"]])
def test_without_an_image_it_says_what_to_give(words):
    done = hookline(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--image is missing" in done.stderr
    assert "deploy/Containerfile" in done.stderr


def test_the_command_line_loads_nothing_of_the_cluster_before_it_is_used():
    code = (
        "import sys, hookline.cli.operator; print([m for m in sys.modules if m.startswith('hookline.kube')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_both_images_hold_the_same_and_run_as_the_deployment_says():
    recipe = (ROOT / "deploy" / "Containerfile").read_text()
    script = (ROOT / "deploy" / "test-image").read_text()
    extras = re.search(r"/source\[([\w,]+)\]", recipe)[1].split(",")
    assert extras == re.findall(r'"(\w+)"', re.search(r"^EXTRAS = (.*)$", script, re.MULTILINE)[1])
    assert f"USER {USER}:{USER}" in recipe
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])


@pytest.fixture(scope="module")
def installed(kubeconfig, tmp_path_factory):
    """An installation in namespaces of its own, with no right outside of them."""
    found = Kubectl(kubeconfig, tmp_path_factory.mktemp("kubectl"))
    found.define(crds())
    with found.namespace() as own, found.namespace() as watched:
        settings = dataclasses.replace(PLAIN, namespace=own.name, watch=(watched.name,), replicas=1)
        found.well("apply", given=listed(all_objects(settings)))
        yield settings, found, watched


def listed(items):
    return {"apiVersion": "v1", "kind": "List", "items": items}


@pytest.mark.real
def test_the_server_keeps_every_field_of_an_installation(installed):
    settings, kubectl, _ = installed
    stored = json.loads(kubectl.well("get", "-o", "json", given=listed(all_objects(settings))))["items"]
    assert missing(all_objects(settings), stored) == []


@pytest.mark.real
def test_an_installation_for_all_namespaces_is_taken(kubeconfig, tmp_path):
    kubectl = Kubectl(kubeconfig, tmp_path)
    kubectl.define(crds())
    with kubectl.namespace() as own:
        settings = dataclasses.replace(EVERYWHERE, namespace=own.name)
        done = kubectl("apply", "--dry-run=server", given=listed(all_objects(settings)))
        assert done.code == 0, done.err
        assert len(done.out.splitlines()) == len(all_objects(settings))


@pytest.mark.real
@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("get secrets", "yes"),
        ("list secrets", "no"),
        ("watch secrets", "no"),
        ("watch agentruns.sympozium.ai", "yes"),
        ("patch agentruns.sympozium.ai --subresource=status", "yes"),
        ("create jobs.batch", "yes"),
        ("get pods --subresource=log", "yes"),
        ("create pods", "no"),
        ("create pods --subresource=exec", "no"),
        ("create roles.rbac.authorization.k8s.io", "yes"),
        ("escalate roles.rbac.authorization.k8s.io", "no"),
        ("create configmaps", "yes"),
        ("list nodes", "no"),
        ("list agentruns.sympozium.ai -A", "no"),
        ("list leases.coordination.k8s.io", "no"),
    ],
)
def test_the_server_gives_the_account_these_rights(installed, asked, answer):
    settings, _, kubectl = installed
    done = kubectl("auth", "can-i", *asked.split(), f"--as={account(settings)}")
    assert done.out.strip().splitlines()[-1:] == [answer], done.err


@pytest.mark.real
@pytest.mark.parametrize("namespace", ["kube-system", "default"])
def test_the_server_gives_the_account_nothing_in_other_namespaces(installed, namespace):
    settings, everywhere, _ = installed
    for asked in (
        "get secrets",
        "list secrets",
        "create secrets",
        "create jobs.batch",
        "create roles",
        "get pods",
    ):
        done = everywhere("auth", "can-i", *asked.split(), f"--as={account(settings)}", "-n", namespace)
        assert done.out.strip().splitlines()[-1:] == ["no"], (asked, done.err)


@pytest.mark.real
@pytest.mark.rule("sympozium 1.6")
@pytest.mark.parametrize(
    ("rule", "granted"),
    [
        (["", "configmaps", "create"], True),
        (["sympozium.ai", "agentruns", "patch"], True),
        (["", "secrets", "list"], False),
        (["", "pods/exec", "create"], False),
        (["*", "*", "*"], False),
        (["rbac.authorization.k8s.io", "roles", "escalate"], False),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, list) else str(each),
)
def test_the_operator_can_grant_what_it_holds_and_nothing_wider(installed, rule, granted):
    settings, _, kubectl = installed
    group, resource, verb = rule
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "for-a-run"},
        "rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}],
    }
    done = kubectl("create", "--dry-run=server", f"--as={account(settings)}", given=role)
    assert (done.code == 0) is granted, done.err
    assert granted or "attempting to grant RBAC permissions not currently held" in done.err


@pytest.mark.real
def test_the_rights_are_enough_to_begin_a_run_and_to_clean_up_after_it(installed, kubeconfig, tmp_path):
    settings, everywhere, kubectl = installed
    mine = as_account(everywhere, settings, kubeconfig, tmp_path)
    words = ["operator", "--image", settings.image, "--namespace", kubectl.name, "--port", "0"]
    with (tmp_path / "log").open("w+") as log:
        program = subprocess.Popen(
            [sys.executable, "-m", "hookline", *words],
            env={**os.environ, "KUBECONFIG": str(mine)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            kubectl.well("create", given=RUN)
            found = until(lambda: kinds_of(kubectl) == {"Job", "Role", "RoleBinding"})
            kubectl.well("delete", "agentrun", "whole", "--timeout=300s")
            gone = until(lambda: not kinds_of(kubectl))
        finally:
            program.terminate()
            program.wait(60)
        log.seek(0)
        told = log.read()
    assert found, told
    assert gone, told
    assert "orbidden" not in told


RUN = run(
    task="t",
    model={"provider": "openai", "model": "m"},
    lifecycle={
        "rbac": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
        "preRun": [HOOK],
    },
) | {"metadata": {"name": "whole"}}


def as_account(kubectl, settings, kubeconfig, folder):
    """A kubeconfig with a token of the operator's account."""
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{settings.namespace}/serviceaccounts/hookline-operator/token"
    token = json.loads(kubectl.well("create", "--raw", path, given=asked))["status"]["token"]
    config = json.loads(kubectl.well("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    config["users"] = [{"name": "operator", "user": {"token": token}}]
    config["contexts"][0]["context"] |= {"user": "operator", "namespace": settings.namespace}
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    return file


def kinds_of(kubectl):
    """The kinds of objects that there are of the run."""
    kinds = "jobs,roles,rolebindings"
    found = kubectl.get(kinds, "-l", "sympozium.ai/agent-run=whole")
    return {each["kind"] for each in found["items"]}


def until(holds, limit=120.0):
    end = time.monotonic() + limit
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def account(settings):
    return f"system:serviceaccount:{settings.namespace}:hookline-operator"
