"""kagent's Agents on a real cluster: hooks out of images from a registry, an agent that is asked over A2A."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from hookline.kube.operator import crds
from tests.fakes.images import MadeImage
from tests.fakes.registry import FakeRegistry
from tests.kube.kubectl import Kubectl
from tests.kube.outside import Outside, outside_of_the_cluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

LIMIT = 300.0
LOGIN = ("robot", "secret-of-the-registry")
CHECK = """#!/usr/bin/env python3
import json, sys
event = json.load(sys.stdin)
print(json.dumps({"decision": "block", "reason": "no " + event["tool_name"] + " in this cluster"}))
"""
TELL = """#!/usr/bin/env python3
import json, os, sys, urllib.request
event = json.load(sys.stdin)
about = {"event": event, "folder": os.environ["KAGENT_HOOKS_FOLDER"], "agent": os.environ["KAGENT_NAME"]}
to = "URL/told/" + os.environ["KAGENT_NAMESPACE"] + "/" + event["hook_event_name"]
urllib.request.urlopen(urllib.request.Request(to, data=json.dumps(about).encode(), method="POST")).read()
"""
# Two tools over MCP, by hand: the image has what hookline needs and nothing more.
SERVER = """
import json, sys
schema = {"type": "object", "properties": {"command": {"type": "string"}}}
tools = [{"name": each, "description": each, "inputSchema": schema} for each in ("bash", "echo")]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    word, params = asked["method"], asked.get("params") or {}
    if word == "initialize":
        said = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "shells", "version": "1"}}
    elif word == "tools/list":
        said = {"tools": tools}
    elif word == "tools/call":
        said = {"content": [{"type": "text", "text": "ran " + params["name"]}]}
    else:
        said = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": said}), flush=True)
"""
CALL = """
import sys, urllib.request
sent = urllib.request.Request(sys.argv[1], data=sys.argv[2].encode(), headers={"Content-Type": "application/json"})
print(urllib.request.urlopen(sent, timeout=240).read().decode())
"""


@dataclass
class Site:
    """A cluster with an operator that keeps kagent's agents in one namespace, and a world outside of it."""

    kubectl: Kubectl
    outside: Outside
    registry: FakeRegistry
    home: str
    """The operator's namespace."""

    @property
    def host(self) -> str:
        return self.outside.url.removeprefix("http://")

    def image(self, name: str) -> str:
        return f"{self.host}/org/{name}"

    def agent(self, name: str, hooks: list[dict[str, Any]], *turns: Any) -> list[dict[str, Any]]:
        """An agent with a model of its own that answers these turns, and two tools."""
        model = self.outside.model(name, *turns)
        inner = {
            "systemMessage": "You are a helpful assistant.",
            "modelConfig": name,
            "tools": [{"type": "McpServer", "mcpServer": {"kind": "MCPServer", "name": "shells"}}],
            "deployment": {"imagePullSecrets": [{"name": "regcred"}]},
        }
        return [
            made("Agent", "v1alpha2", name, {"type": "Declarative", "hooks": hooks, "declarative": inner}),
            made(
                "ModelConfig",
                "v1alpha2",
                name,
                {
                    "provider": "OpenAI",
                    "model": "some-model",
                    "openAI": {"baseUrl": model["baseURL"]},
                    "apiKeySecret": "openai-secret",
                    "apiKeySecretKey": "api-key",
                },
            ),
        ]

    def images(self) -> list[tuple[str, str, dict[str, str]]]:
        """The images of the hooks: name, version and files of each."""
        tell = TELL.replace("URL", self.outside.url)
        return [
            ("security-hooks", "v1.0", {"check-tool-use.sh": CHECK, "inject-session-metadata.py": tell}),
            ("audit-hooks", "v2.0", {"audit.sh": tell}),
        ]

    @property
    def shared(self) -> list[dict[str, Any]]:
        """What all agents refer to."""
        logins = {"auths": {self.host: {"username": LOGIN[0], "password": LOGIN[1]}}}
        return [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "regcred"},
                "type": "kubernetes.io/dockerconfigjson",
                "stringData": {".dockerconfigjson": json.dumps(logins)},
            },
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "openai-secret"},
                "stringData": {"api-key": "sk-of-the-cluster"},
            },
            made(
                "MCPServer", "v1alpha1", "shells", {"deployment": {"cmd": "python3", "args": ["-c", SERVER]}}
            ),
        ]

    def condition(self, name: str, word: str) -> dict[str, Any]:
        status = self.kubectl.get("agents.kagent.dev", name).get("status", {})
        return next((each for each in status.get("conditions", ()) if each["type"] == word), {})

    def until(self, name: str, word: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + LIMIT
        while not wanted(found := self.condition(name, word)):
            assert time.monotonic() < end, self.trouble(name, found)
            time.sleep(0.5)
        return found

    def ready(self, name: str) -> None:
        self.until(name, "Ready", lambda each: each.get("status") == "True")

    def trouble(self, name: str, found: Any) -> str:
        pods = self.kubectl("describe", "pods", "-l", f"kagent={name}").out
        logs = self.kubectl("logs", f"deployment/{name}", "--all-containers", "--tail=50")
        return f"{found}\n{pods}\n{logs.out}{logs.err}"

    def asked(self, name: str, text: str, method: str = "message/send") -> str:
        """What a pod of the agent answers over A2A, asked from inside the cluster's network."""
        pods = self.kubectl.get("pods", "-l", f"kagent={name}")["items"]
        address = next(
            each["status"]["podIP"] for each in pods if not each["metadata"].get("deletionTimestamp")
        )
        parts = [{"kind": "text", "text": text}]
        params = {"message": {"role": "user", "messageId": "m", "contextId": "c1", "parts": parts}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        done = subprocess.run(
            [
                os.environ["HOOKLINE_TEST_CLUSTER"],
                "in",
                sys.executable,
                "-c",
                CALL,
                f"http://{address}:8080/",
                body,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr}\n{self.trouble(name, '')}"
        return done.stdout

    def recorded(self, run_id: str) -> list[dict[str, Any]]:
        """What the operator's journal has of a run, once that has ended there."""
        words = ("exec", "-n", self.home, "deploy/hookline-operator", "--", "python3", "-m", "hookline")
        end = time.monotonic() + LIMIT
        while True:
            done = self.kubectl(*words, "runs", run_id, "--json")
            records = [json.loads(line) for line in done.out.splitlines()] if done.code == 0 else []
            if any(each["record"] == "ended" and each["scope"] == "run" for each in records):
                return records
            log = self.kubectl("logs", "-n", self.home, "deploy/hookline-operator", "--tail=50")
            assert time.monotonic() < end, f"{done.out}{done.err}\n{log.out}"
            time.sleep(0.5)


def made(kind: str, version: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"kagent.dev/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def site(kubeconfig, image, tmp_path_factory) -> Iterator[Site]:
    kubectl = Kubectl(kubeconfig, tmp_path_factory.mktemp("kubectl"))
    kubectl.define([*crds(), *crds("kagent")])
    with (
        outside_of_the_cluster() as outside,
        FakeRegistry(login=LOGIN, auth="basic") as registry,
        kubectl.namespace() as inside,
    ):
        outside.registry = registry
        home = f"hookline-{uuid.uuid4().hex[:8]}"
        printed = subprocess.run(
            [
                sys.executable,
                "-m",
                "hookline",
                "operator",
                "manifest",
                "--image",
                image,
                "--without-crds",
                "--namespace",
                home,
                "--watch",
                inside.name,
                "--replicas",
                "1",
                "--kagent",
                "--plain-registry",
                outside.url.removeprefix("http://"),
            ],
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        kubectl.well("apply", given=[each for each in yaml.safe_load_all(printed) if each])
        try:
            kubectl.well(
                "rollout", "status", "deployment/hookline-operator", "-n", home, f"--timeout={LIMIT:g}s"
            )
            there = Site(inside, outside, registry, home)
            _furnish(there)
            yield there
        finally:
            kubectl.well("delete", "namespace", home, "--wait=false")


def _furnish(site: Site) -> None:
    for name, version, files in site.images():
        site.registry.put(f"org/{name}", version, MadeImage.of(files))
    site.kubectl.well("apply", given=site.shared)


def hooks(site: Site) -> list[dict[str, Any]]:
    security, audit = site.image("security-hooks:v1.0"), site.image("audit-hooks:v2.0")
    return [
        {
            "ref": security,
            "event": "PreToolUse",
            "type": "claude-command",
            "matcher": "bash|shell_exec",
            "command": "check-tool-use.sh",
        },
        {"ref": security, "event": "SessionStart", "command": "inject-session-metadata.py"},
        {"ref": audit, "event": "PostToolUse", "command": "audit.sh"},
    ]


def call(name: str, command: str) -> dict[str, Any]:
    return {"tools": [{"name": name, "arguments": {"command": command}}]}


@pytest.mark.statement("KA14", "KA15", "KA16", "KA33", "KA39")
@pytest.mark.rule("kagent 1.7", "kagent 1.8")
def test_the_golden_case_runs_and_blocks_a_tool_call_over_a2a(site):
    name = "hooks-agent"
    turns = [call("bash", "rm -rf /"), call("echo", "hi"), "The shell was refused.", "Still here."]
    site.kubectl.well("apply", given=site.agent(name, hooks(site), *turns))
    site.ready(name)
    assert site.condition(name, "Accepted")["status"] == "True"

    pod = site.kubectl.get("pods", "-l", f"kagent={name}")["items"][0]
    (init,) = pod["status"]["initContainerStatuses"]
    assert (init["name"], init["state"]["terminated"]["exitCode"]) == ("hooks-init", 0)
    manifests = [path for path in site.registry.paths("/manifests/") if path.endswith(("v1.0", "v2.0"))]
    assert len(set(manifests)) == 2, "two images, though three hooks"
    seen = (
        "import os\n"
        "print(sorted(each for each in os.listdir('/hooks') if not each.startswith('.')))\n"
        "print(sorted(os.listdir('/hooks/security-hooks')))\n"
        "try: open('/hooks/x', 'w')\n"
        "except OSError as exc: print(exc.strerror)\n"
    )
    listed = site.kubectl.well("exec", f"deployment/{name}", "-c", "kagent", "--", "python3", "-c", seen)
    assert listed.splitlines() == [
        "['audit-hooks', 'security-hooks']",
        "['check-tool-use.sh', 'inject-session-metadata.py']",
        "Read-only file system",
    ]

    task = json.loads(site.asked(name, "clean up"))["result"]
    assert task["status"]["state"] == "completed", task
    assert task["artifacts"][0]["parts"][0]["text"] == "The shell was refused."
    refused, ran = task["artifacts"][0]["metadata"]["hookline"]["tools"]
    assert refused["tool"] == "bash"
    assert "no bash in this cluster" in json.dumps(refused)
    assert ran["status"] == "ok"
    told_model = json.dumps(site.outside.requests(name)[1].body)
    assert "no bash in this cluster" in told_model

    begun = json.loads(site.outside.told[site.kubectl.name, "SessionStart"])
    assert (begun["event"]["session_id"], begun["folder"]) == ("c1", "/hooks")
    audited = json.loads(site.outside.told[site.kubectl.name, "PostToolUse"])
    assert (audited["event"]["tool_name"], audited["agent"]) == ("echo", name)

    records = site.recorded(task["artifacts"][0]["metadata"]["hookline"]["run_id"])
    (blocked,) = [each for each in records if each["record"] == "called" and each["action"] == "block"]
    assert "no bash in this cluster" in blocked["reason"]
    assert pod["metadata"]["uid"] in records[0]["source"]

    streamed = site.asked(name, "and now?", "message/stream")
    events = [json.loads(line[5:]) for line in streamed.splitlines() if line.startswith("data:")]
    assert events[-1]["result"]["status"]["state"] == "completed"
    assert "Still here." in streamed


def test_a_container_that_is_started_anew_goes_on_being_on_record(site):
    name = "again"
    site.kubectl.well("apply", given=site.agent(name, hooks(site), "One.", "Two."))
    site.ready(name)

    def run_of(text: str) -> str:
        task = json.loads(site.asked(name, "hi"))["result"]
        assert task["artifacts"][0]["parts"][0]["text"] == text
        return task["artifacts"][0]["metadata"]["hookline"]["run_id"]

    first = run_of("One.")
    site.kubectl.well(
        "exec", f"deployment/{name}", "-c", "kagent", "--", "python3", "-c", "import os; os.kill(1, 15)"
    )
    end = time.monotonic() + LIMIT
    while True:
        (pod,) = site.kubectl.get("pods", "-l", f"kagent={name}")["items"]
        (now,) = pod["status"]["containerStatuses"]
        if now["restartCount"] == 1 and now["ready"]:
            break
        assert time.monotonic() < end, site.trouble(name, now)
        time.sleep(0.5)
    second = run_of("Two.")
    for run_id in (first, second):
        ids = [
            (each["record"], each["scope_id"], each.get("point"), each.get("hook"))
            for each in site.recorded(run_id)
        ]
        assert len(ids) == len(set(ids)), "nothing is there twice"
    ended = [each for each in site.recorded(first) if each["record"] == "ended"]
    assert "session" in {each["scope"] for each in ended}, "its last words are there too"
    site.kubectl.well("delete", "agents.kagent.dev", name)


def test_a_change_of_the_hooks_rolls_the_pods(site):
    name = "changing"
    objects = site.agent(name, hooks(site)[:2], call("bash", "ls"), "Refused.", call("bash", "ls"), "Ran.")
    site.kubectl.well("apply", given=objects)
    site.ready(name)
    assert "no bash in this cluster" in site.asked(name, "go")
    before = site.kubectl.get("pods", "-l", f"kagent={name}")["items"][0]["metadata"]["name"]

    objects[0]["spec"]["hooks"] = hooks(site)[2:]
    site.kubectl.well("apply", given=objects)
    end = time.monotonic() + LIMIT
    while any(
        each["metadata"]["name"] == before
        for each in site.kubectl.get("pods", "-l", f"kagent={name}")["items"]
    ):
        assert time.monotonic() < end, site.trouble(name, "the pod before is still there")
        time.sleep(0.5)
    site.ready(name)
    assert "Ran." in site.asked(name, "go")

    objects[0]["spec"]["hooks"] = []
    site.kubectl.well("apply", given=objects)
    while site.kubectl("get", "deployment", name).code == 0:
        assert time.monotonic() < end + LIMIT, (
            "an agent without hooks is not ours, and what we made of it goes"
        )
        time.sleep(0.5)


def test_an_image_that_cannot_be_fetched_is_told_with_the_registry_s_words(site):
    name = "no-image"
    gone = [{**hooks(site)[0], "ref": site.image("no-such-hooks:v1")}]
    site.kubectl.well("apply", given=site.agent(name, gone, "never"))
    found = site.until(name, "Ready", lambda each: each.get("reason") == "HooksNotFetched")
    assert found["status"] == "False"
    assert "no-such-hooks" in found["message"]
    site.kubectl.well("delete", "agents.kagent.dev", name)


@pytest.mark.statement("KA31", "KA42")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"event": "PreTool"}, "Unsupported value"),
        ({"type": "other"}, "Unsupported value"),
        ({"command": ""}, "command"),
        ({"ref": None}, "ref"),
    ],
)
def test_the_server_itself_refuses_a_wrong_hook(site, change, said):
    wrong = site.agent("wrong", [{**hooks(site)[0], **change}], "x")[0]
    done = site.kubectl("create", given=wrong)
    assert done.code != 0
    assert said in done.err


def test_the_server_itself_refuses_too_many_hooks(site):
    done = site.kubectl("create", given=site.agent("many", [hooks(site)[0]] * 21, "x")[0])
    assert done.code != 0
    assert "20" in done.err


def test_a_mistake_is_told_in_the_status_and_a_foreign_object_is_left_alone(site):
    name = "mistaken"
    two = [hooks(site)[0], {**hooks(site)[2], "ref": f"{site.host}/other/security-hooks:v9"}]
    site.kubectl.well("apply", given=site.agent(name, two, "x"))
    found = site.until(name, "Accepted", lambda each: each.get("status") == "False")
    assert "distinct names" in found["message"]
    assert site.kubectl("get", "deployment", name).code != 0

    name = "taken"
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": 1}], "selector": {"their": "own"}},
    }
    site.kubectl.well("create", given=theirs)
    site.kubectl.well("apply", given=site.agent(name, hooks(site), "x"))
    found = site.until(name, "Accepted", lambda each: each.get("reason") == "NameTaken")
    assert f"Service '{name}'" in found["message"]
    assert site.kubectl.get("service", name)["spec"]["selector"] == {"their": "own"}


def test_an_agent_that_is_deleted_takes_all_of_it_along(site):
    name = "leaving"
    ends = [{**hooks(site)[2], "event": "SessionEnd"}]
    site.kubectl.well("apply", given=site.agent(name, ends, "Hello."))
    site.ready(name)
    assert "Hello." in site.asked(name, "hi")
    site.kubectl.well("delete", "agents.kagent.dev", name)
    end = time.monotonic() + LIMIT
    for kind in ("deployment", "service", "serviceaccount", "secret", "pod"):
        while site.kubectl.get(kind, "-l", f"kagent={name}")["items"]:
            assert time.monotonic() < end, f"the {kind} is still there"
            time.sleep(0.5)
    told = json.loads(site.outside.told[site.kubectl.name, "SessionEnd"])
    assert told["event"]["session_id"] == "c1"
