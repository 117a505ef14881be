"""The seed's five examples on a real cluster, as they are written: two manifests whole, three under an AgentRun's header.

Their images are here under their own names, made of busybox. `curl` and `aws` in them are scripts that talk to a server
of ours instead of PagerDuty and S3; `kubectl` is the real one and talks to the cluster.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kube.outside import outside_of_the_cluster
from tests.kube.watch_log import Watched
from tests.runners.places import installed
from tests.sympozium.cluster.test_runs import Ran, until, when
from tests.sympozium.run.test_seed import FIXTURES, INCIDENTS, reads

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

LIMIT = 600.0
CURL = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    -H) header=$2; shift ;;
    http*) path=${1#*://*/} ;;
  esac
  shift
done
exec wget -q -O - --header "${header-X: none}" "$SERVER/$path"
"""
AWS = """#!/bin/sh
[ "$1 $2" = "s3 cp" ] || exit 2
exec wget -q -O /dev/null --header "Key: $AWS_ACCESS_KEY_ID" --post-file "$3" "$SERVER/${4#s3://}"
"""
RUN = """
apiVersion: sympozium.ai/v1alpha1
kind: AgentRun
metadata:
  name: {name}
"""
# The fragments are a `spec:` with `lifecycle:` in it, so what a run needs besides can stand behind them.
REST = """
  task: What is going on?
  model:
    provider: openai
    model: some-model
    baseURL: "{url}/model/{name}/v1"
  env:
    SERVER: "{url}"
    ALERTMANAGER_URL: "{url}"
    OPENAI_API_KEY: any
"""
FRAGMENTS = {"uploads": "upload-report.yaml", "scratch": "scratch-configmap.yaml", "context": "rbac.yaml"}
OF_OTHERS = {
    "incidents": """
spec:
  instanceRef: oncall-agent
  task: What is going on?
  systemPrompt: Read /workspace/context/incidents.json for what is going on.
  env:
    SERVER: "{url}"
    MODEL_BASE_URL: "{url}/model/incidents/v1"
    OPENAI_API_KEY: any
""",
    "alerts": "\nspec:\n  instanceRef: oncall-team-triage-agent" + REST,
}
TURNS = {
    "incidents": reads("incidents.json", "disk full on one host"),
    "alerts": reads("alerts.json", "one alert"),
    "uploads": [
        {"tools": [{"name": "write_file", "arguments": {"path": "report.md", "content": "# all quiet"}}]},
        "written",
    ],
    "scratch": ["ready"],
    "context": ["ready"],
}


def of_busybox(place: Path, **programs: str | Path) -> Path:
    """A root directory with all of busybox, and these programs: scripts, or files that are copied."""
    installed(busybox="busybox-static")
    busybox = shutil.which("busybox") or ""
    for folder in ("bin", "tmp", "usr/local/bin"):
        (place / folder).mkdir(parents=True)
    shutil.copy(busybox, place / "bin/busybox")
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in set(names) - {"busybox"}:
        (place / "bin" / name).symlink_to("busybox")
    for name, program in programs.items():
        file = place / "usr/local/bin" / name
        shutil.copy(program, file) if isinstance(program, Path) else file.write_text(program)
        file.chmod(0o755)
    return place


@pytest.fixture(scope="module")
def images(kubeconfig, tmp_path_factory):
    program = os.environ.get("HOOKLINE_TEST_CLUSTER")
    if not program:
        pytest.skip("no program to load images with: set HOOKLINE_TEST_CLUSTER")
    where = [program, "in", "sh", "-c", "command -v kubectl"]
    kubectl = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
    made: dict[str, dict[str, str | Path]] = {
        "curlimages/curl:latest": {"curl": CURL},
        "amazon/aws-cli:latest": {"aws": AWS},
        "bitnami/kubectl:latest": {"kubectl": kubectl},
    }
    for number, (name, programs) in enumerate(made.items()):
        place = of_busybox(tmp_path_factory.mktemp("image") / str(number), **programs)
        # As a node names what it is asked for without a registry.
        subprocess.run([program, "image", f"docker.io/{name}", str(place)], check=True)
        shutil.rmtree(place)


@pytest.fixture(scope="module")
def ran(operated, images, tmp_path_factory):
    """All five at once, to the end."""
    folder = tmp_path_factory.mktemp("runs")
    kinds = ("agentruns", "jobs", "pods", "configmaps")
    with (
        outside_of_the_cluster(INCIDENTS) as outside,
        operated.namespace() as kubectl,
        Watched(kubectl, *kinds) as watched,
    ):
        made = Ran(kubectl, watched, outside)
        for name, turns in TURNS.items():
            outside.model(name, *turns)
        for name in ("oncall-agent.yaml", "oncall-team.yaml"):
            kubectl.well("apply", "-f", str(FIXTURES / name))
        texts = {name: (FIXTURES / file).read_text() + REST for name, file in FRAGMENTS.items()}
        for name, text in {**texts, **OF_OTHERS}.items():
            file = folder / f"{name}.yaml"
            file.write_text((RUN + text).replace("{name}", name).replace("{url}", outside.url))
            kubectl.well("apply", "-f", str(file))
        until(lambda: all(made.over(name) for name in TURNS), LIMIT)
        yield made


@pytest.mark.rule("sympozium 1.17.14", "sympozium B1", "sympozium B2", "sympozium K2")
@pytest.mark.statement("SZ3", "SZ19", "SZ24", "SZ54", "SZ55", "SZ56", "SZ58", "SZ59")
def test_the_pagerduty_example_fetches_incidents_that_the_agent_reads(ran):
    status = ran.status("incidents")
    assert (status["phase"], status.get("result")) == ("Succeeded", "disk full on one host")
    (asked,) = [each for each in ran.outside.asked if each.path.startswith("/incidents")]
    assert (asked.method, asked.path) == ("GET", "/incidents?statuses[]=triggered")
    # As it is written the shell does not fill the token in; `hookline check` says so.
    assert asked.headers["authorization"] == "Token token=$PD_TOKEN"
    first = ran.outside.requests("incidents")[0]
    assert first.body["model"] == "gpt-4o"
    assert "/workspace/context/incidents.json" in str(first.body["messages"][0])


@pytest.mark.rule("sympozium 1.17.14")
@pytest.mark.statement("SZ37", "SZ60")
def test_the_s3_example_uploads_the_agents_report(ran):
    assert ran.status("uploads")["phase"] == "Succeeded"
    (asked,) = [each for each in ran.outside.asked if each.path.startswith("/my-bucket")]
    assert (asked.path, asked.body) == ("/my-bucket/reports/uploads.md", "# all quiet")
    assert asked.headers["key"] == "AKIA..."


@pytest.mark.rule("sympozium 1.17.14", "sympozium 1.17.10")
@pytest.mark.statement("SZ39", "SZ47", "SZ48", "SZ61")
def test_the_configmap_example_creates_before_the_agent_and_deletes_after_it(ran):
    assert ran.status("scratch")["phase"] == "Succeeded"
    assert ran.status("scratch").get("conditions") is None
    made, gone = ran.watched.of("configmaps", "agent-scratch")
    assert (made.type, gone.type) == ("ADDED", "DELETED")
    assert made.object["data"] == {"run": "scratch"}
    pods = ran.pods("scratch", "agent-run")
    assert made.number < when(pods, "agent", "terminated") < gone.number < ran.came("scratch", "Succeeded")


@pytest.mark.rule("sympozium 1.17.14", "sympozium 1.10")
@pytest.mark.statement("SZ47", "SZ48", "SZ49")
def test_the_rbac_example_works_and_its_date_stays_as_it_is_written(ran):
    assert ran.status("context")["phase"] == "Succeeded"
    assert ran.status("context").get("conditions") is None
    made, gone = ran.watched.of("configmaps", "run-context")
    # No shell is asked, and the cluster knows no variable of that name; `hookline check` says so.
    assert made.object["data"] == {"started": "$(date)"}
    assert gone.type == "DELETED"


@pytest.mark.rule("sympozium 1.17.14", "sympozium K8", "sympozium K3")
@pytest.mark.statement("SZ62", "SZ63")
def test_a_persona_of_the_pack_gets_its_hooks_and_its_variable_from_the_run(ran):
    status = ran.status("alerts")
    assert (status["phase"], status.get("result")) == ("Succeeded", "one alert")
    (asked,) = [each for each in ran.outside.asked if each.path == "/api/v2/alerts"]
    assert asked.method == "GET"
    said = ran.outside.requests("alerts")[0].body["messages"][0]
    assert "You are an SRE triage agent..." in str(said)
