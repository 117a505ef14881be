"""The seed's five examples, as they are written, in the sandbox: their programs are stand-ins that talk to a server here."""

import json
import os
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hookline.runners import Mount
from hookline.sympozium.check import problems_in
from tests.runners.places import installed
from tests.sympozium.run.conftest import Ground, hook, lifecycle

FIXTURES = Path(__file__).parents[2] / "fixtures" / "sympozium"
STAND_INS = {
    "curl": """
import re
words = sys.argv[1:]
headers = dict(words[i + 1].split(": ", 1) for i, word in enumerate(words) if word == "-H")
url = next(word for word in words if word.startswith("http"))
given = words[words.index("-d") + 1].encode() if "-d" in words else None
sys.stdout.write(ask("POST" if given else "GET", re.sub("^https?://[^/]*", "", url), given, headers))
""",
    "aws": """
assert sys.argv[1:3] == ["s3", "cp"], sys.argv
content = open(sys.argv[3], "rb").read()
ask("PUT", "/" + sys.argv[4].replace("s3://", ""), content, {"Key": os.environ["AWS_ACCESS_KEY_ID"]})
""",
    "kubectl": """
verb, kind, name, *rest = sys.argv[1:]
data = dict(word.removeprefix("--from-literal=").split("=", 1) for word in rest)
ask({"create": "POST", "delete": "DELETE"}[verb], f"/{kind}/{name}", json.dumps(data).encode())
""",
}
COMMON = """#!/usr/bin/env python3
import json, os, sys, urllib.request

def ask(method, path, content=None, headers={}):
    asked = urllib.request.Request(os.environ["SERVER"] + path, content, headers, method=method)
    return urllib.request.urlopen(asked).read().decode()
"""
INCIDENTS = '{"incidents": [{"id": "PD-1", "title": "disk full"}]}'


class Server:
    """Keeps what it is sent, by method and path."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []
        self.headers: list[dict[str, str]] = []
        keeps = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                keeps.seen.append((self.command, self.path, self.rfile.read(size).decode()))
                keeps.headers.append({key.lower(): value for key, value in self.headers.items()})
                self.send_response(200)
                self.send_header("Content-Length", str(len(INCIDENTS)))
                self.end_headers()
                self.wfile.write(INCIDENTS.encode())

            do_GET = do_PUT = do_POST = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def serving():
    made = Server()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


@pytest.fixture
async def scene(tmp_path):
    installed(bwrap="bubblewrap")
    ground = Ground(tmp_path, "sandbox")
    tools = tmp_path / "stand-ins"
    tools.mkdir()
    for name, code in STAND_INS.items():
        (tools / name).write_text(COMMON + code)
        (tools / name).chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    ground.site = replace(ground.open(), environ={"PATH": path})
    with serving() as server:
        ground.server = server
        ground.given = {
            "network": True,
            "env": {"SERVER": server.url, "ALERTMANAGER_URL": server.url},
            "mounts": (Mount(target=str(tools), source=str(tools), read_only=True),),
        }
        yield ground
    await ground.site.runner_of("").close()
    ground.journal.close()
    assert ground.left() == []


def scripted(folder, *turns):
    file = folder / "script.json"
    file.write_text(json.dumps(turns))
    return {"agent_command": (), "model": f"scripted/{file}"}


def reads(name, answer):
    """An agent that reads a file of the context, and answers if it stands there."""
    return [
        {"tools": [{"name": "read_file", "arguments": {"path": f"context/{name}"}}]},
        {"text": answer, "expect": "PD-1"},
    ]


async def ran(scene, name, task="What is going on?", **given):
    text = (FIXTURES / name).read_text()
    return await scene.run(text, task=task, **{**scene.given, **given})


@pytest.mark.rule("sympozium 1.17.14", "sympozium B1", "sympozium B2")
@pytest.mark.statement("SZ3", "SZ19", "SZ24", "SZ54", "SZ55", "SZ56", "SZ58", "SZ59")
async def test_the_pagerduty_example_fetches_incidents_that_the_agent_reads(scene):
    agent = scripted(scene.folder, *reads("incidents.json", "disk full on one host"))
    done = await ran(scene, "oncall-agent.yaml", **agent)
    assert (done.phase, done.status["result"]) == ("Succeeded", "disk full on one host")
    assert done.run_id.startswith("oncall-agent-")
    ((method, path, _),) = scene.server.seen
    assert (method, path) == ("GET", "/incidents?statuses[]=triggered")
    # As it is written the shell does not fill the token in; `check` says so.
    assert scene.server.headers[0]["authorization"] == "Token token=$PD_TOKEN"
    problems = problems_in(str(FIXTURES / "oncall-agent.yaml"), {})
    assert any("$PD_TOKEN is in single quotes" in each.message for each in problems)


@pytest.mark.rule("sympozium 1.17.14")
@pytest.mark.statement("SZ37", "SZ60")
async def test_the_s3_example_uploads_the_agents_report(scene):
    agent = scripted(
        scene.folder,
        {"tools": [{"name": "write_file", "arguments": {"path": "report.md", "content": "# all quiet"}}]},
        "written",
    )
    done = await ran(scene, "upload-report.yaml", **agent)
    assert done.phase == "Succeeded"
    assert scene.server.seen == [("PUT", f"/my-bucket/reports/{done.run_id}.md", "# all quiet")]
    assert scene.server.headers[0]["key"] == "AKIA..."


@pytest.mark.rule("sympozium 1.17.14")
@pytest.mark.statement("SZ39", "SZ61")
@pytest.mark.parametrize("command", ["true", "exit 1"])
async def test_the_configmap_example_creates_before_and_deletes_after_also_after_a_failure(scene, command):
    done = await ran(scene, "scratch-configmap.yaml", agent_command=("sh", "-c", command))
    assert done.phase == ("Succeeded" if command == "true" else "Failed")
    assert [(method, path) for method, path, _ in scene.server.seen] == [
        ("POST", "/configmap/agent-scratch"),
        ("DELETE", "/configmap/agent-scratch"),
    ]
    assert json.loads(scene.server.seen[0][2]) == {"run": done.run_id}


@pytest.mark.rule("sympozium 1.17.14")
@pytest.mark.statement("SZ49")
async def test_the_rbac_example_runs_and_its_date_stays_as_it_is_written(scene):
    done = await ran(scene, "rbac.yaml", agent_command=("true",))
    assert done.phase == "Succeeded"
    assert json.loads(scene.server.seen[0][2]) == {"started": "$(date)"}
    problems = problems_in(str(FIXTURES / "rbac.yaml"), {})
    assert any("$(date) is not expanded" in each.message for each in problems)


@pytest.mark.rule("sympozium 1.17.14", "sympozium K8")
@pytest.mark.statement("SZ62", "SZ63")
async def test_a_persona_of_the_pack_gets_its_hooks_and_its_variable_from_outside(scene):
    agent = scripted(scene.folder, *reads("alerts.json", "one alert"))
    done = await ran(scene, "oncall-team.yaml", persona="triage-agent", **agent)
    assert (done.phase, done.status["result"]) == ("Succeeded", "one alert")
    assert scene.server.seen == [("GET", "/api/v2/alerts", "")]
    problems = problems_in(str(FIXTURES / "oncall-team.yaml"), {})
    assert any("$ALERTMANAGER_URL is not set" in each.message for each in problems)
    problems = problems_in(str(FIXTURES / "oncall-team.yaml"), {"ALERTMANAGER_URL": "x"})
    assert problems == []


@pytest.mark.statement("SZ25")
async def test_a_repository_that_a_hook_cloned_is_the_agents_to_read(scene):
    origin = scene.folder / "origin"
    name = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "init", "-q", origin], check=True)
    (origin / "VERSION").write_text("1.4")
    subprocess.run(["git", "-C", origin, "add", "."], check=True)
    subprocess.run(["git", "-C", origin, *name, "commit", "-qm", "first"], check=True)
    # The sandbox has a user of its own, whom git would not trust with another's folder.
    clone = f"git -c safe.directory='*' clone -q file://{origin} /workspace/repo"
    given = {
        **scene.given,
        "mounts": (*scene.given["mounts"], Mount(target=str(origin), source=str(origin), read_only=True)),
    }
    agent = scripted(
        scene.folder,
        {"tools": [{"name": "read_file", "arguments": {"path": "repo/VERSION"}}]},
        {"text": "it is 1.4", "expect": "1.4"},
    )
    done = await scene.run(lifecycle([hook("clone", clone)]), **{**given, **agent})
    assert (done.phase, done.status["result"]) == ("Succeeded", "it is 1.4")


@pytest.mark.statement("SZ38", "SZ40")
async def test_after_the_agent_a_summary_is_posted_and_the_next_pipeline_is_set_off(scene):
    after = [
        hook("slack", 'curl -d "$AGENT_RUN_ID: $AGENT_RESULT" $SERVER/slack'),
        hook("deploy", 'test "$AGENT_EXIT_CODE" = 0 && curl -d "run=$AGENT_RUN_ID" $SERVER/pipelines/deploy'),
    ]
    done = await scene.run(lifecycle(after=after), **{**scene.given, **scripted(scene.folder, "all quiet")})
    assert done.phase == "Succeeded"
    assert scene.server.seen == [
        ("POST", "/slack", f"{done.run_id}: all quiet"),
        ("POST", "/pipelines/deploy", f"run={done.run_id}"),
    ]
