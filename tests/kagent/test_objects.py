"""What a kagent Agent comes to: pure, so by tables."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from hookline.errors import FileError
from hookline.kagent.agent import EVENTS
from hookline.kagent.controller import condition_of, selected, selector_of
from hookline.kagent.fetch import main as fetched
from hookline.kagent.fetch import merged
from hookline.kagent.keys import AGENT, MOST_HOOKS
from hookline.kagent.objects import APPLIED, CONFIG_HASH, Compiled, Pods, compiled, has_hooks
from hookline.kagent.system import load
from hookline.kube.objects import KAGENT, MCP_SERVER, MODEL_CONFIG, REMOTE_MCP_SERVER, Kind
from hookline.kube.operator import crds
from tests.fakes.images import MadeImage
from tests.fakes.registry import FakeRegistry

PODS = Pods(image="registry.example/hookline:1.0")
SECURITY, AUDIT = "ghcr.io/org/security-hooks:v1.0", "ghcr.io/org/audit-hooks:v2.0"
HOOKS = [
    {
        "ref": SECURITY,
        "event": "PreToolUse",
        "type": "claude-command",
        "matcher": "bash|shell_exec",
        "command": "check-tool-use.sh",
    },
    {"ref": SECURITY, "event": "SessionStart", "command": "inject-session-metadata.py"},
    {"ref": AUDIT, "event": "PostToolUse", "command": "audit.sh"},
]


def made(kind: Kind, name: str, spec: dict[str, Any], namespace: str = "test") -> dict[str, Any]:
    head = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "resourceVersion": "7"}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": head, "spec": spec}


def agent(name: str = "hooks-agent", hooks: Any = None, **declarative: Any) -> dict[str, Any]:
    inner = {"systemMessage": "You are a helpful assistant.", "modelConfig": "basic-model", **declarative}
    spec = {"type": "Declarative", "hooks": HOOKS if hooks is None else hooks, "declarative": inner}
    return made(KAGENT, name, spec)


MODEL = made(
    MODEL_CONFIG,
    "basic-model",
    {
        "provider": "OpenAI",
        "model": "gpt-4o",
        "apiKeySecret": "openai-secret",
        "apiKeySecretKey": "api-key",
    },
)


def from_(given: dict[str, Any], *others: dict[str, Any], pods: Pods = PODS) -> Compiled:
    known = {
        (each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]): each
        for each in (given, MODEL, *others)
    }
    return compiled(given, lambda kind, namespace, name: known.get((kind.kind, namespace, name)), pods)


def objects(*args: Any, **more: Any) -> dict[str, dict[str, Any]]:
    found = from_(*args, **more)
    assert found.problems == ()
    return {each["kind"]: each for each in found.objects}


def pod_of(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return found["Deployment"]["spec"]["template"]["spec"]


LABELS = {
    "app": "kagent",
    "kagent": "hooks-agent",
    # Not kagent's: its controller would take them for its own.
    "app.kubernetes.io/managed-by": "hookline",
    "app.kubernetes.io/name": "hooks-agent",
    "app.kubernetes.io/part-of": "kagent",
}


@pytest.mark.statement("KA16", "KA33", "KA38")
@pytest.mark.rule("kagent 1.2", "kagent 1.7", "kagent 1.8")
def test_the_golden_case_of_three_hooks_and_two_images_compiles_to_the_stated_objects():
    found = objects(agent())
    assert list(found) == ["Secret", "ServiceAccount", "NetworkPolicy", "Deployment", "Service"]
    for each in found.values():
        head = each["metadata"]
        assert (head["name"], head["namespace"], head["labels"]) == ("hooks-agent", "test", LABELS)
        (owner,) = head["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"]) == ("kagent.dev/v1alpha2", "Agent")
        assert (owner["name"], owner["uid"], owner["controller"]) == (
            "hooks-agent",
            "uid-of-hooks-agent",
            True,
        )

    # Three entries in the order of the file, a matcher on the first only, and the type filled in.
    config = json.loads(found["Secret"]["stringData"]["config.json"])
    assert config == {
        "model": {"type": "openai", "model": "gpt-4o"},
        "description": "",
        "instruction": "You are a helpful assistant.",
        "hooks": [
            {
                "event": "PreToolUse",
                "type": "claude-command",
                "matcher": "bash|shell_exec",
                "command": "check-tool-use.sh",
                "dir": "/hooks/security-hooks",
            },
            {
                "event": "SessionStart",
                "type": "claude-command",
                "command": "inject-session-metadata.py",
                "dir": "/hooks/security-hooks",
            },
            {
                "event": "PostToolUse",
                "type": "claude-command",
                "command": "audit.sh",
                "dir": "/hooks/audit-hooks",
            },
        ],
    }
    card = json.loads(found["Secret"]["stringData"]["agent-card.json"])
    assert (card["name"], card["url"]) == ("hooks_agent", "http://hooks-agent.test:8080")
    assert card["capabilities"]["streaming"] is True

    spec = found["Deployment"]["spec"]
    selector = {"app": "kagent", "kagent": "hooks-agent"}
    assert spec["selector"]["matchLabels"] == selector
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    assert spec["template"]["metadata"]["labels"] == LABELS
    assert list(spec["template"]["metadata"]["annotations"]) == ["kagent.dev/config-hash"]

    pod = spec["template"]["spec"]
    (init,), (container,) = pod["initContainers"], pod["containers"]
    assert (init["name"], container["name"]) == ("hooks-init", "kagent")
    # Decision 23: the same two fetches, by a program of ours, where upstream has a shell template.
    assert init["command"] == [
        *("python3", "-P", "-m", "hookline.kagent.fetch", "--into", "/hooks"),
        f"{SECURITY}=security-hooks",
        f"{AUDIT}=audit-hooks",
    ]
    assert init["image"] == container["image"] == PODS.image
    assert {"name": "kagent-hooks", "mountPath": "/hooks"} in init["volumeMounts"]
    assert {"name": "kagent-hooks", "mountPath": "/hooks", "readOnly": True} in container["volumeMounts"]
    assert {"name": "config", "mountPath": "/config", "readOnly": True} in container["volumeMounts"]
    assert init["securityContext"] == container["securityContext"]
    env = {each["name"]: each for each in container["env"]}
    assert env["KAGENT_HOOKS_FOLDER"] == {"name": "KAGENT_HOOKS_FOLDER", "value": "/hooks"}
    assert env["HOOKLINE_RECORDS"] == {"name": "HOOKLINE_RECORDS", "value": "1"}, "the operator reads them"
    assert env["KAGENT_NAME"]["value"] == "hooks-agent"
    assert env["KAGENT_NAMESPACE"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    # Under a name that says of which Secret it is, where upstream has OPENAI_API_KEY: two keys may share a name.
    assert env["Secret.openai-secret.api-key"]["valueFrom"] == {
        "secretKeyRef": {"name": "openai-secret", "key": "api-key"}
    }
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]
    assert container["readinessProbe"]["httpGet"] == {"path": "/.well-known/agent-card.json", "port": "http"}
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["config"]["secret"] == {"secretName": "hooks-agent"}
    assert "emptyDir" in volumes["kagent-hooks"]
    assert pod["serviceAccountName"] == "hooks-agent"

    assert found["Service"]["spec"] == {
        "type": "ClusterIP",
        "selector": selector,
        "ports": [{"name": "http", "port": 8080, "targetPort": 8080}],
    }


def test_the_pods_read_the_same_agent_from_their_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("Secret.openai-secret.api-key", "sk-of-the-cluster")
    monkeypatch.setenv("api-key", "sk-of-another")
    file = tmp_path / "agent.yaml"
    file.write_text(objects(agent())["Secret"]["stringData"]["agent.yaml"])
    loaded = load(f"{file}:hooks-agent")
    assert loaded.problems == ()
    assert loaded.refs == (SECURITY, AUDIT)
    assert loaded.secrets == ("sk-of-the-cluster",)
    loaded.check_model()


def test_no_value_of_a_secret_is_in_what_is_made():
    text = json.dumps(from_(agent()).objects)
    assert "secretKeyRef" in text
    assert "uid-of-basic-model" not in text, "what the cluster keeps about an object is not copied"


def test_the_pods_hold_to_the_strictest_rules():
    pod = pod_of(objects(agent()))
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in (*pod["initContainers"], *pod["containers"]):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert each["resources"]["limits"]


def changed(**more: Any) -> str:
    return objects(agent(**more))["Deployment"]["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH]


@pytest.mark.rule("kagent 1.7")
def test_a_change_of_the_hooks_or_the_message_or_the_model_rolls_the_pods_and_nothing_else_does():
    first = changed()
    assert changed() == first
    assert changed(hooks=HOOKS[:2]) != first
    assert changed(systemMessage="Other words.") != first
    renamed = {**MODEL, "spec": {**MODEL["spec"], "model": "gpt-5"}}
    other = objects(agent(), renamed)["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert other[CONFIG_HASH] != first
    touched = agent()
    touched["metadata"]["resourceVersion"], touched["status"] = "8", {"conditions": []}
    template = objects(touched)["Deployment"]["spec"]["template"]
    assert template["metadata"]["annotations"][CONFIG_HASH] == first


def test_each_object_says_what_it_was_made_of():
    one, two = from_(agent()).objects, from_(agent(hooks=HOOKS[:1])).objects
    same = {
        each["kind"]
        for each, other in zip(one, two, strict=True)
        if each["metadata"]["annotations"][APPLIED] == other["metadata"]["annotations"][APPLIED]
    }
    assert same == {"ServiceAccount", "NetworkPolicy", "Service"}


def test_logins_of_registries_are_shown_to_the_first_container_alone():
    wishes = {"imagePullSecrets": [{"name": "regcred"}, {"name": "other"}]}
    pod = pod_of(objects(agent(deployment=wishes), pods=Pods(image="i", plain=("10.0.0.1:5000",))))
    (init,), (container,) = pod["initContainers"], pod["containers"]
    assert pod["imagePullSecrets"] == [{"name": "regcred"}, {"name": "other"}]
    assert init["command"][6:12] == [
        *("--plain", "10.0.0.1:5000"),
        *("--login", "/logins/0/config.json"),
        *("--login", "/logins/1/config.json"),
    ]
    assert {"name": "login-0", "mountPath": "/logins/0", "readOnly": True} in init["volumeMounts"]
    assert not any(each["name"].startswith("login") for each in container["volumeMounts"])
    volume = next(each for each in pod["volumes"] if each["name"] == "login-1")
    assert volume["secret"] == {
        "secretName": "other",
        "items": [{"key": ".dockerconfigjson", "path": "config.json"}],
        "optional": True,
    }


def test_what_the_cluster_would_take_for_a_variable_is_kept_from_it():
    pod = pod_of(objects(agent(hooks=[{**HOOKS[0], "ref": "$(HOME)/evil/hooks:v1"}])))
    assert pod["initContainers"][0]["command"][-1] == "$$(HOME)/evil/hooks:v1=hooks"


def test_an_account_that_is_stated_is_used_and_has_its_token():
    pods = Pods(image="i", accounts=("other", "mine"))
    found = objects(agent(deployment={"serviceAccountName": "mine"}), pods=pods)
    assert "ServiceAccount" not in found
    pod = pod_of(found)
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("mine", True)


def test_what_a_deployment_asks_for_is_taken_or_told():
    wishes = {
        "replicas": 2,
        "labels": {"team": "blue", "kagent": "another"},
        "annotations": {"note": "x"},
        "env": [{"name": "MODE", "value": "fast"}, {"name": "KAGENT_HOOKS_FOLDER", "value": "/elsewhere"}],
        "resources": {"limits": {"memory": "2Gi"}},
        "nodeSelector": {"disk": "ssd"},
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
        "securityContext": {"privileged": True},
    }
    found = from_(agent(deployment=wishes))
    deployment = next(each for each in found.objects if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["template"]["metadata"]["labels"] == {"team": "blue", **LABELS}
    assert deployment["spec"]["template"]["metadata"]["annotations"]["note"] == "x"
    env = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert (env["MODE"], env["KAGENT_HOOKS_FOLDER"]) == ("fast", "/hooks")
    assert pod["containers"][0]["resources"] == {"limits": {"memory": "2Gi"}}
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert "hostPath" not in json.dumps(pod)
    assert "privileged" not in json.dumps(pod)
    told = " ".join(found.notes)
    for key in ("deployment.volumes", "deployment.securityContext", "deployment.replicas"):
        assert told.count(f"{key}: ") == 1


def test_a_key_without_effect_is_told_in_the_status_too():
    found = from_(agent(executeCodeBlocks=True))
    assert found.notes == ("spec.declarative.executeCodeBlocks: code blocks in answers are not run here",)


def test_what_an_agent_refers_to_goes_along_and_its_images_too():
    server = made(REMOTE_MCP_SERVER, "web", {"url": "http://web:80/mcp"})
    local = made(MCP_SERVER, "files", {"deployment": {"cmd": "serve-files"}})
    inner = agent("inner", hooks=[{**HOOKS[2], "ref": "ghcr.io/org/inner-hooks:v1"}])
    tools = [
        {"type": "McpServer", "mcpServer": {"kind": "RemoteMCPServer", "name": "web"}},
        {"type": "McpServer", "mcpServer": {"name": "files"}},
        {"type": "Agent", "agent": {"name": "inner"}},
    ]
    found = objects(agent(tools=tools), server, local, inner)
    kept = list(yaml.safe_load_all(found["Secret"]["stringData"]["agent.yaml"]))
    named = [(each["kind"], each["metadata"]["name"]) for each in kept]
    assert named == [
        ("Agent", "hooks-agent"),
        ("ModelConfig", "basic-model"),
        ("RemoteMCPServer", "web"),
        ("MCPServer", "files"),
        ("Agent", "inner"),
    ]
    assert pod_of(found)["initContainers"][0]["command"][-1] == "ghcr.io/org/inner-hooks:v1=inner-hooks"


TOOL = "spec.declarative.tools[0]"
ABSENT = {
    "of no object": ({"mcpServer": {"name": "gone"}}, f"{TOOL}: there is no MCPServer 'gone'"),
    "of another namespace": (
        {"mcpServer": {"kind": "RemoteMCPServer", "name": "web", "namespace": "theirs"}},
        f"{TOOL}: the RemoteMCPServer 'web' is in another namespace",
    ),
    "of a kind that is none": (
        {"mcpServer": {"kind": "Service", "name": "web"}},
        f"{TOOL}: a Service means nothing",
    ),
}


@pytest.mark.parametrize(("tool", "said"), ABSENT.values(), ids=ABSENT.keys())
def test_a_tool_that_is_not_to_be_had_is_told_and_costs_itself_alone(tool, said):
    theirs = made(REMOTE_MCP_SERVER, "web", {"url": "http://web"}, namespace="theirs")
    found = from_(agent(tools=[{"type": "McpServer", **tool}]), theirs)
    assert found.objects
    assert any(said in note for note in found.notes)


WRONG = {
    "an unknown event": (
        agent(hooks=[{**HOOKS[0], "event": "PreTool"}]),
        "spec.hooks[0].event: unknown event",
    ),
    "no command": (agent(hooks=[{"ref": SECURITY, "event": "PreToolUse"}]), "spec.hooks[0]"),
    "two images of one name": (
        agent(hooks=[HOOKS[0], {**HOOKS[2], "ref": "other.io/x/security-hooks:v9"}]),
        "distinct names",
    ),
    "too many": (agent(hooks=[HOOKS[0]] * 21), "at most 20"),
    "no model": (agent(modelConfig="gone"), "there is no ModelConfig 'gone' in the namespace 'test'"),
    "BYO": (made(KAGENT, "own", {"type": "BYO", "hooks": HOOKS, "byo": {}}), "BYO"),
    "a name that no Service can have": (agent("9-lives"), "cannot be the name of a Service"),
}


@pytest.mark.parametrize(("given", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_told_with_its_key_and_nothing_is_made(given, said):
    found = from_(given)
    assert found.objects == ()
    assert any(said in problem for problem in found.problems), found.problems


def test_an_agent_without_hooks_has_no_first_container():
    plain = agent(hooks=[])
    assert not has_hooks(plain)
    assert has_hooks(agent())
    pod = pod_of(objects(plain))
    assert "initContainers" not in pod
    assert "KAGENT_HOOKS_FOLDER" not in [each["name"] for each in pod["containers"][0]["env"]]


def schema() -> dict[str, Any]:
    (definition, *_) = crds("kagent")
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_the_definition_has_the_keys_of_a_hook_that_are_read_and_no_other():
    spec = schema()["properties"]["spec"]["properties"]
    assert set(spec["hooks"]["items"]["properties"]) == set(AGENT.keys["hooks"].below.keys)
    assert spec["hooks"]["maxItems"] == MOST_HOOKS
    assert set(spec["hooks"]["items"]["properties"]["event"]["enum"]) == set(EVENTS)
    # The rest of an agent is kept as it was written.
    assert set(spec) < set(AGENT.keys)


SCHEMA_WRONG = {
    "an unknown event": [{**HOOKS[0], "event": "PreTool"}],
    "an unknown type": [{**HOOKS[0], "type": "http"}],
    "no image": [{"event": "PreToolUse", "command": "x"}],
    "no event": [{"ref": SECURITY, "command": "x"}],
    "no command": [{"ref": SECURITY, "event": "PreToolUse"}],
    "an empty command": [{**HOOKS[0], "command": ""}],
    "too many": [HOOKS[0]] * 21,
}


@pytest.mark.statement("KA31", "KA42")
@pytest.mark.rule("kagent 1.1")
def test_the_definition_takes_the_golden_case_and_twenty_hooks():
    jsonschema.validate(agent(), schema())
    jsonschema.validate(agent(hooks=[HOOKS[0]] * 20), schema())
    entry = schema()["properties"]["spec"]["properties"]["hooks"]["items"]["properties"]
    assert entry["event"]["enum"] == ["PreToolUse", "PostToolUse", "SessionStart", "SessionEnd"]
    assert (entry["type"]["enum"], entry["type"]["default"]) == (["claude-command"], "claude-command")


@pytest.mark.statement("KA31", "KA42")
@pytest.mark.rule("kagent 1.1")
@pytest.mark.parametrize("hooks", SCHEMA_WRONG.values(), ids=SCHEMA_WRONG.keys())
def test_the_definition_refuses_a_wrong_hook(hooks):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(agent(hooks=hooks), schema())


def test_agents_are_ours_by_their_hooks_or_by_a_label():
    with_hooks, without = agent(), agent(hooks=[])
    assert selected(with_hooks, None)
    assert not selected(without, None)
    without["metadata"]["labels"] = {"team": "blue"}
    assert selected(without, selector_of("team=blue"))
    assert not selected(with_hooks, selector_of("team=blue"))


def deployment(**status: Any) -> dict[str, Any]:
    template = {"metadata": {"annotations": {CONFIG_HASH: "now"}}}
    return {
        "metadata": {"name": "a", "generation": 2},
        "spec": {"replicas": 1, "template": template},
        "status": status,
    }


def pod(mark: str = "now", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "annotations": {CONFIG_HASH: mark}}, "status": status}


SERVES = {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
ENDED = {"terminated": {"exitCode": 1, "message": "error: org/h: not found\n"}}
AGAIN = {"waiting": {"reason": "CrashLoopBackOff"}}
READY = {
    "nothing was made": (None, [], False, "NotMade", "no pods"),
    "it serves": (deployment(**SERVES), [], True, "Ready", "1 of 1"),
    "it was changed since": (deployment(**{**SERVES, "observedGeneration": 1}), [], False, "Starting", "1"),
    "the pods before still serve": (deployment(**{**SERVES, "replicas": 2}), [], False, "Starting", "1"),
    "an image is not there": (
        deployment(),
        [pod(initContainerStatuses=[{"name": "hooks-init", "state": ENDED}])],
        False,
        "HooksNotFetched",
        "hooks-init ended with 1: error: org/h: not found",
    ),
    "and is waited for": (
        deployment(),
        [pod(initContainerStatuses=[{"name": "hooks-init", "state": AGAIN, "lastState": ENDED}])],
        False,
        "HooksNotFetched",
        "not found",
    ),
    "that of a pod before is no matter": (
        deployment(),
        [pod("before", initContainerStatuses=[{"name": "hooks-init", "state": ENDED}])],
        False,
        "Starting",
        "0 of 1",
    ),
    "the program crashes": (
        deployment(),
        [pod(containerStatuses=[{"name": "kagent", "state": AGAIN, "lastState": ENDED}])],
        False,
        "Crashed",
        "kagent ended with 1",
    ),
    "a key is not there": (
        deployment(),
        [
            pod(
                containerStatuses=[
                    {
                        "name": "kagent",
                        "state": {
                            "waiting": {
                                "reason": "CreateContainerConfigError",
                                "message": 'secret "s" not found',
                            }
                        },
                    }
                ]
            )
        ],
        False,
        "CreateContainerConfigError",
        'secret "s" not found',
    ),
}


@pytest.mark.parametrize(("made", "pods", "ready", "reason", "said"), READY.values(), ids=READY.keys())
def test_how_the_pods_fare_is_told_in_the_words_of_who_knows(made, pods, ready, reason, said):
    found = condition_of(made, pods)
    assert (found.type, found.status, found.reason) == ("Ready", ready, reason)
    assert said in found.message


def words(*given: str, environ: Any = None) -> tuple[int, list[str]]:
    said: list[str] = []
    return fetched(given, environ or {}, said.append), said


@pytest.mark.statement("KA14", "KA44")
@pytest.mark.rule("kagent 1.7")
def test_each_image_is_fetched_once_into_the_folder_and_again_without_harm(tmp_path):
    folder, login = tmp_path / "hooks", tmp_path / "config.json"
    folder.mkdir()
    with FakeRegistry(login=("me", "pw"), auth="basic") as registry:
        registry.put("org/one", "v1", MadeImage.of({"check.sh": "#!/bin/sh\n"}))
        registry.put("org/two", "v1", MadeImage.of({"audit.sh": "#!/bin/sh\n"}))
        one, two = f"{registry.host}/org/one:v1", f"{registry.host}/org/two:v1"
        login.write_text(json.dumps({"auths": {registry.host: {"username": "me", "password": "pw"}}}))
        wanted = ("--into", str(folder), "--login", str(login), f"{one}=one", f"{two}=two")
        assert words(*wanted)[0] == 0
        code, said = words(*wanted)
        assert code == 0
        blobs = registry.paths("/blobs/")
        assert len(blobs) == len(set(blobs)), "what is there is not fetched again"
        assert any(each.startswith(f"{one} is in {folder}/one: sha256:") for each in said)
    assert (folder / "one" / "check.sh").is_file()
    assert (folder / "two" / "audit.sh").is_file()
    assert not (folder / "one" / "audit.sh").exists()
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    assert (moved / "one" / "check.sh").is_file(), "a folder may be mounted anywhere"


def test_an_image_that_is_not_there_ends_it_with_the_registry_s_words(tmp_path):
    with FakeRegistry() as registry:
        code, said = words("--into", str(tmp_path), f"{registry.host}/org/gone:v1=gone")
    assert code == 1
    assert "org/gone" in said[-1]
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("pair", ["x", "=name", "ref=", "ref=../up", "ref=.images"])
def test_a_folder_that_is_none_is_told(tmp_path, pair):
    code, said = words("--into", str(tmp_path), pair)
    assert code == 1
    assert "write REF=NAME" in said[0]


def test_logins_are_put_together_and_the_first_for_a_registry_is_taken(tmp_path):
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    first.write_text(json.dumps({"auths": {"a.io": {"auth": "1"}}}))
    second.write_text(json.dumps({"auths": {"a.io": {"auth": "2"}, "b.io": {"auth": "3"}}}))
    said: list[str] = []
    found = merged([first, tmp_path / "gone.json", second], said.append)
    assert found == {"auths": {"a.io": {"auth": "1"}, "b.io": {"auth": "3"}}}
    assert "gone.json is not there" in said[0]
    for wrong, why in {"[]": "not a JSON object", "{}": "auths", "{": "not a docker configuration"}.items():
        first.write_text(wrong)
        with pytest.raises(FileError, match=why):
            merged([first], said.append)
