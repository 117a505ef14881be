"""Four formats in three places: one example of each runs on this machine, in a sandbox and on a cluster, and what is on
record of it afterwards is the same. The table in the README is made of what was seen here."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hookline.engine.record import Begun, Called, Decided, Ended, Record
from hookline.journal.encoding import decoded
from hookline.journal.sqlite import SqliteJournal
from tests.kagent.test_on_kubernetes import Site, call, hooks
from tests.kagent.test_on_kubernetes import site as kagent_site  # noqa: F401  (a fixture)
from tests.kube.fixtures import BUSYBOX, ROOT
from tests.kube.kubectl import Kubectl
from tests.runners.places import installed

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

PLACES = {"local": "this machine", "sandbox": "a sandbox", "kubernetes": "Kubernetes"}
LIMIT = 300.0
BEGIN, END = "<!-- the matrix, made by tests/test_matrix.py -->\n", "<!-- the end of it -->\n"
AGENT = """\
from hookline import Agent, HookResult, Scripted, hook, tool

@hook
def polite(ctx, hook_context):
    asked = hook_context.current_payload["input"]
    return HookResult.continue_with(modified_payload={"input": f"please {asked}"})

@tool
def push(branch: str, force: bool = False) -> str:
    return f"pushed {branch}"

CALLS = [{"branch": "main", "force": True}, {"branch": "main"}]
agent = Agent(
    id="coder",
    model=Scripted([*({"tools": [{"name": "push", "arguments": each}]} for each in CALLS), "pushed"]),
    tools=[push],
    on_start=polite,
)
"""
HOOKS = """\
hooks:
  - {name: begins, on: agent.start, shell: 'echo "$HOOKLINE_POINT" >&2'}
  - name: no-force
    on: tool.start
    shell: 'if grep -q "\\"force\\": *true"; then echo "no force" >&2; exit 2; fi'
  - {name: breaks, on: tool.end, shell: exit 7, on_error: continue}
"""
WORKFLOW = """\
---
tracker: {kind: folder}
polling: {interval_ms: 600000}
workspace: {root: ws}
hooks:
  after_create: echo made > notes
  before_run: test -e notes
  after_run: exit 3
  before_remove: test "$(cat notes)" = made
agent:
  kind: command
  command: ["sh", "-c", "wget -q -O /dev/null HOLD"]
  max_turns: 1
---
Work on {{ issue.identifier }}
"""
RUN: dict[str, Any] = {
    "apiVersion": "sympozium.ai/v1alpha1",
    "kind": "AgentRun",
    "metadata": {"name": "nightly"},
    "spec": {
        "task": "look",
        "dryRun": True,
        "lifecycle": {
            "preRun": [
                {
                    "name": "brief",
                    "image": BUSYBOX,
                    "command": ["sh", "-c", 'echo ready > "$WORKSPACE/brief"'],
                }
            ],
            "postRun": [
                {
                    "name": "report",
                    "image": BUSYBOX,
                    "command": ["sh", "-c", 'cat "$WORKSPACE/brief"; exit 4'],
                },
                {"name": "notify", "image": BUSYBOX, "command": ["sh", "-c", "true"]},
            ],
        },
    },
}


class Matrix:
    """Where the examples run. What was seen of one in one place is kept."""

    def __init__(self, site: Site, operated: Kubectl, kubeconfig: str, image: str, folder: Path) -> None:
        self.site, self.outside, self.kubectl, self.operated = site, site.outside, site.kubectl, operated
        self.kubeconfig, self.image, self.folder = kubeconfig, image, folder
        self._seen: dict[tuple[str, str], list[str]] = {}

    def seen(self, format: str, place: str) -> list[str]:
        """The order of points and what was decided at each."""
        if (format, place) not in self._seen:
            self._seen[format, place] = FORMATS[format](self, place)
        return self._seen[format, place]

    def place(self, name: str) -> Path:
        made = self.folder / name
        made.mkdir()
        return made

    def start(self, folder: Path, *words: str) -> subprocess.Popen[str]:
        """A command in the cluster's network, where model and server of the tests are."""
        env = {**os.environ, "KUBECONFIG": self.kubeconfig, "HOOKLINE_HOME": str(folder / "home")}
        return subprocess.Popen(
            [os.environ["HOOKLINE_TEST_CLUSTER"], "in", sys.executable, "-m", "hookline", *words],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def there(self, *more: str) -> list[str]:
        return ["--on", "kubernetes", "--namespace", self.kubectl.name, "--image", self.image, *more]

    def done(self, folder: Path, *words: str) -> None:
        process = self.start(folder, *words)
        told, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, told

    def until(self, holds: Callable[[], bool], told: Callable[[], str] = str) -> None:
        ends = time.monotonic() + LIMIT
        while not holds():
            assert time.monotonic() < ends, told()
            time.sleep(0.1)


def python_agent(matrix: Matrix, place: str) -> list[str]:
    folder = matrix.place(f"python-{place}")
    (folder / "agent.py").write_text(AGENT)
    (folder / "hooks.yaml").write_text(HOOKS)
    where = matrix.there() if place == "kubernetes" else ["--on", place]
    matrix.done(folder, "run", "agent.py", "push it", "--hooks", "hooks.yaml", *where)
    return story(kept(folder))


def kagent_agent(matrix: Matrix, place: str) -> list[str]:
    site = matrix.site
    turns = [call("bash", "rm -rf /"), call("echo", "hi"), "The shell was refused."]
    name = f"matrix-{place}"
    objects = [*site.agent(name, hooks(site), *turns), *site.shared]
    if place == "kubernetes":
        site.kubectl.well("apply", given=objects)
        site.ready(name)
        task = json.loads(site.asked(name, "clean up"))["result"]
        run_id = task["artifacts"][0]["metadata"]["hookline"]["run_id"]
        return _without_goodbye(story([_record(each) for each in site.recorded(run_id)]))
    folder = matrix.place(name)
    (folder / "agent.yaml").write_text(yaml.safe_dump_all(objects))
    images: list[str] = []
    for image, version, files in site.images():
        (folder / image).mkdir()
        for file, text in files.items():
            (folder / image / file).write_text(text)
            (folder / image / file).chmod(0o755)
        images += ["--image", f"{site.image(f'{image}:{version}')}={folder / image}"]
    network = [] if place == "local" else ["--network"]
    matrix.done(folder, "run", "agent.yaml", "clean up", "--on", place, *images, *network)
    return _without_goodbye(story(kept(folder)))


def _without_goodbye(told: list[str]) -> list[str]:
    """A conversation with a server goes on when its first message is answered."""
    return [line for line in told if not line.startswith("session.end")]


def workflow(matrix: Matrix, place: str) -> list[str]:
    folder = matrix.place(f"workflow-{place}")
    run = f"matrix-{place}"
    (folder / "WORKFLOW.md").write_text(WORKFLOW.replace("HOLD", f"{matrix.outside.url}/hold/{run}/agent"))
    (folder / "issues").mkdir()
    issue = folder / "issues" / "ABC-123.md"
    issue.write_text("---\ntitle: tidy up\nstate: Todo\n---\n")
    words = ["run", "WORKFLOW.md", "--issue", "ABC-123", "--on", place]
    if place == "kubernetes":
        words = ["serve", "WORKFLOW.md", *matrix.there("--open-volume-as-root")]
    process = matrix.start(folder, *words)
    try:
        matrix.until(lambda: (run, "agent") in matrix.outside.held or process.poll() is not None)
        issue.write_text("---\ntitle: tidy up\nstate: Done\n---\n")
        matrix.outside.release(run, "agent")
        matrix.until(
            lambda: any(isinstance(each, Ended) and each.scope == "workspace" for each in kept(folder))
        )
        if place == "kubernetes":
            process.send_signal(signal.SIGTERM)
        told, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, told
    finally:
        process.kill()
        process.wait()
    return story(kept(folder))


def agent_run(matrix: Matrix, place: str) -> list[str]:
    folder = matrix.place(f"agentrun-{place}")
    (folder / "run.yaml").write_text(yaml.safe_dump(RUN))
    if place != "kubernetes":
        matrix.done(folder, "run", "run.yaml", "--on", place)
    else:
        with matrix.operated.namespace() as kubectl:
            matrix.done(folder, "run", "run.yaml", "--on", place, "--namespace", kubectl.name)
    return story(kept(folder))


FORMATS: dict[str, Callable[[Matrix, str], list[str]]] = {
    "an agent in Python": python_agent,
    "a kagent `Agent`": kagent_agent,
    "a `WORKFLOW.md`": workflow,
    "an `AgentRun`": agent_run,
}


def kept(folder: Path) -> list[Record]:
    """All that a journal has, in the order in which it happened."""
    journal = SqliteJournal(folder / "home" / "journal.db")
    try:
        runs = [journal.records(row.run_id) for row in journal.runs()]
    finally:
        journal.close()
    return (
        runs[0]
        if len(runs) == 1
        else sorted((each for run in runs for each in run), key=lambda each: each.at)
    )


def story(records: list[Record]) -> list[str]:
    told: list[str] = []
    for each in records:
        if isinstance(each, Begun):
            told.append(f"{each.scope}.start")
        elif isinstance(each, Called):
            told.append(f"{each.point} {each.hook}: {each.error_kind or each.action}")
        elif isinstance(each, Decided):
            told.append(f"{each.point} = {each.action}")
        else:
            told.append(f"{each.scope}.end {each.status}")
    return told


def _record(line: dict[str, Any]) -> Record:
    kind = {"begun": "begin", "called": "call", "decided": "outcome", "ended": "end"}[line.pop("record")]
    run_id = line.pop("run_id")
    return decoded(run_id, [kind, *line.values()])


@pytest.fixture(scope="module")
def matrix(kagent_site, operated, kubeconfig, image, tmp_path_factory):  # noqa: F811
    installed(bwrap="bubblewrap")
    return Matrix(kagent_site, operated, kubeconfig, image, tmp_path_factory.mktemp("matrix"))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("format", FORMATS)
def test_an_example_has_the_same_points_and_decisions_wherever_it_runs(matrix, format, place):
    seen = matrix.seen(format, place)
    assert any(": block" in line or ": exit" in line or "failed" in line for line in seen), seen
    assert seen == matrix.seen(format, "local")


def test_the_table_in_the_readme_is_what_was_seen(matrix):
    rows = [
        f"| {format} | {' | '.join(_cell(matrix.seen(format, place)) for place in PLACES)} |"
        for format in FORMATS
    ]
    table = "\n".join([f"| | {' | '.join(PLACES.values())} |", "|---" * (len(PLACES) + 1) + "|", *rows, ""])
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    now, _, after = rest.partition(END)
    if os.environ.get("HOOKLINE_WRITE"):
        readme.write_text(f"{before}{BEGIN}{table}{END}{after}")
        return
    assert now == table, "HOOKLINE_WRITE=1 writes it"


def _cell(seen: list[str]) -> str:
    calls = [line for line in seen if ": " in line]
    points = [line for line in seen if line not in calls and " = " not in line]
    other = [line for line in calls if not line.endswith(": continue")]
    return f"{len(points)} points, {len(calls)} calls of hooks, {len(other)} other than yes"
