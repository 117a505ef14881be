"""`hookline run --on kubernetes` and its companions against a real cluster with the operator installed."""

import base64
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from hookline.sympozium.cluster.records import records_of
from tests.kube.fixtures import BUSYBOX

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

LIMIT = 300.0
AGENT = f"""\
apiVersion: v1
kind: Secret
metadata: {{name: pager}}
stringData: {{token: s3cr3t-value}}
---
apiVersion: sympozium.ai/v1alpha1
kind: Agent
metadata: {{name: oncall}}
spec:
  agents:
    default:
      model: {{provider: scripted, model: /workspace/script.json}}
      lifecycle:
        preRun:
          - name: brief
            image: {BUSYBOX}
            env: [{{name: TOKEN, valueFrom: {{secretKeyRef: {{name: pager, key: token}}}}}}]
            command:
              - sh
              - -c
              - printf '["%s letters for %s of %s"]' "${{#TOKEN}}" "$INSTANCE_NAME" "$TEAM" > /workspace/script.json
        postRun:
          - {{name: report, image: "{BUSYBOX}", command: [sh, -c, 'echo "heard: $AGENT_RESULT"']}}
          - {{name: notify, image: "{BUSYBOX}", command: [sh, -c, 'echo nobody is in; exit 4']}}
"""
PACK = f"""\
apiVersion: sympozium.ai/v1alpha1
kind: PersonaPack
metadata: {{name: team}}
spec:
  personas:
    - name: writer
      model: {{provider: scripted, model: /workspace/script.json}}
      lifecycle:
        preRun:
          - name: brief
            image: {BUSYBOX}
            command: [sh, -c, 'printf "[\\"I am %s\\"]" "$INSTANCE_NAME" > /workspace/script.json']
    - {{name: reader, model: gpt-4o}}
"""


def run(**spec):
    return json.dumps(
        {
            "apiVersion": "sympozium.ai/v1alpha1",
            "kind": "AgentRun",
            "metadata": {"name": "trial"},
            "spec": {"task": "say hello", **spec},
        }
    )


def shell(name, script, **more):
    return {"name": name, "image": BUSYBOX, "command": ["sh", "-c", script], **more}


GATED = run(
    dryRun=True,
    lifecycle={"postRun": [shell("hold", "sleep 600", gate=True, timeout="10m"), shell("after", "true")]},
)
ENDLESS = run(
    model={"provider": "scripted", "model": "/workspace/script.json"},
    lifecycle={
        "preRun": [shell("brief", """echo '[{"text": "late", "delay": 500}]' > /workspace/script.json""")],
        "postRun": [shell("clean", "echo cleaned")],
    },
)


class There:
    """The commands, in a namespace of their own."""

    def __init__(self, kubectl, kubeconfig, folder):
        self.kubectl = kubectl
        self.folder = folder
        self.where = ["--on", "kubernetes", "--namespace", kubectl.name]
        self.env = {**os.environ, "KUBECONFIG": kubeconfig, "XDG_STATE_HOME": str(folder)}

    def words(self, command, *words):
        return [sys.executable, "-m", "hookline", command, *words, *self.where]

    def __call__(self, command, *words):
        return subprocess.run(
            self.words(command, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=self.env,
            timeout=LIMIT,
        )

    def file(self, text):
        made = self.folder / "file.yaml"
        made.write_text(text)
        return str(made)

    @contextmanager
    def begun(self, *words):
        """The command while it runs, its output in a file."""
        said = self.folder / "said"
        with (
            said.open("w") as out,
            subprocess.Popen(
                self.words(*words), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env
            ) as process,
        ):
            try:
                yield process, said
            finally:
                process.kill()

    def runs(self):
        return self.kubectl.get("agentruns")["items"]


@pytest.fixture
def there(operated, kubeconfig, tmp_path):
    with operated.namespace() as kubectl:
        yield There(kubectl, kubeconfig, tmp_path)


def until(found):
    """What is found in the end; it has to be within a generous time."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.1)
    raise AssertionError("it did not happen")


def test_a_run_of_an_agent_is_followed_to_its_answer(there):
    done = there("run", there.file(AGENT), "look", "--env", "TEAM=payments")
    assert (done.returncode, done.stdout) == (0, "12 letters for oncall of payments\n"), done.stderr
    for word in (
        "the Agent 'oncall' of the file is on the cluster now",
        "note   phase Running",
        "start  brief  ",
        "end    report  ",
        "broke: exited with 4: nobody is in",
        "note   phase Succeeded",
    ):
        assert word in done.stderr
    (stored,) = there.runs()
    name = stored["metadata"]["name"]
    assert re.fullmatch(r"oncall-[a-z0-9]+-[0-9a-f]{6}", name)
    assert stored["spec"]["agentRef"] == "oncall"
    assert "s3cr3t-value" not in json.dumps(stored) + done.stderr
    owners = there.kubectl.get("secret", f"{name}-pager")["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == [stored["metadata"]["uid"]]
    there.kubectl.well("delete", "agentrun", name)
    until(lambda: there.kubectl("get", "secret", f"{name}-pager").code != 0)


def test_a_member_of_a_pack_runs_as_the_agent_that_the_pack_makes(there):
    done = there("run", there.file(PACK), "write", "--persona", "writer", "--name", "one", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"]["result"] == "I am team-writer"
    assert there.kubectl.get("agents.sympozium.ai", "team-reader")
    again = there("run", there.file(PACK), "write", "--persona", "writer", "--name", "one")
    assert again.returncode == 2
    assert "already exists; give another --name, or none" in again.stderr


def test_a_hook_that_fails_fails_the_command(there):
    hooks = {"preRun": [shell("check", "echo no disk; exit 3")], "postRun": [shell("clean", "true")]}
    done = there("run", there.file(run(dryRun=True, lifecycle=hooks)))
    assert (done.returncode, done.stdout) == (1, "")
    assert "start  check" in done.stderr
    assert "exited with 3: no disk, so it failed the run" in " ".join(done.stderr.split())
    assert "end    clean" in done.stderr


def test_an_image_that_cannot_be_had_is_told_while_it_is_waited_for(there):
    hooks = {"preRun": [{"name": "a", "image": "localhost/none:1"}]}
    with there.begun("run", there.file(run(dryRun=True, lifecycle=hooks))) as (process, said):
        until(lambda: "Waiting: the image 'localhost/none:1' cannot be pulled" in said.read_text())
        assert process.poll() is None
        assert process.wait(LIMIT) == 1


def test_an_agent_that_is_not_there_is_told_and_a_run_with_hooks_of_its_own_goes_without(there):
    hooks = {"preRun": [shell("a", "true")]}
    done = there("run", there.file(run(dryRun=True, agentRef="nobody", lifecycle=hooks)))
    assert done.returncode == 0, done.stderr
    assert "there is no Agent 'nobody'" in done.stderr
    done = there("run", there.file(run(dryRun=True, agentRef="nobody")))
    assert done.returncode == 2
    assert len(there.runs()) == 1


def test_what_the_server_refuses_is_told_with_its_field_and_leaves_nothing(there):
    done = there("run", there.file(AGENT.replace("pager", "Pager_1")), "look", "--name", "one")
    assert done.returncode == 2, done.stderr
    assert "the cluster refused it" in done.stderr
    assert "metadata.name: Invalid value" in done.stderr
    assert there.runs() == []


@pytest.mark.parametrize(
    ("words", "code", "printed", "label"),
    [
        (["approve"], 0, "dry run of : say hello\n", "approved"),
        (["reject", "not today"], 1, "not today\n", "rejected"),
        (["rewrite", "better so"], 0, "better so\n", "rewritten"),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else None,
)
def test_a_gate_is_answered_from_another_terminal(there, words, code, printed, label):
    with there.begun("run", there.file(GATED), "--name", "gated", "--quiet") as (process, said):
        until(lambda: "waiting" in there("runs").stdout)
        answered = there(words[0], "gated", *words[1:])
        assert answered.returncode == 0, answered.stderr
        assert "dry run of : say hello" in answered.stdout
        assert process.wait(LIMIT) == code
        assert said.read_text() == printed
    stored = there.kubectl.get("agentrun", "gated")
    verdict = json.loads(stored["metadata"]["annotations"]["sympozium.ai/gate-verdict"])
    assert stored["status"]["gateVerdict"] == label
    assert verdict["digest"]
    assert stored["status"]["gateBy"] == verdict["by"]
    again = there("approve", "gated")
    assert again.returncode == 2
    assert "is not waiting for an answer; its phase is Succeeded" in again.stderr
    shown = there("runs", "gated").stdout
    assert f"gateVerdict  {label}" in shown
    assert "postRun after  succeeded" in shown


def test_an_interrupt_without_a_terminal_leaves_the_run_running(there):
    with there.begun("run", there.file(GATED), "--name", "gated") as (process, said):
        until(lambda: "waits for a verdict" in said.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 130
        assert "run gated goes on; see it: hookline runs gated --on kubernetes" in said.read_text()
    assert there("approve", "gated", "-y").returncode == 0
    until(lambda: there.kubectl.get("agentrun", "gated")["status"]["phase"] == "Succeeded")


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, words, env):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(words[0], words, env)

    def shows(self, word):
        while word not in self.seen:
            chunk = os.read(self.fd, 4096)
            assert chunk, self.seen
            self.seen += chunk.decode(errors="replace")

    def types(self, text):
        os.write(self.fd, text.encode())

    def ends(self):
        try:
            while chunk := os.read(self.fd, 4096):
                self.seen += chunk.decode(errors="replace")
        except OSError:
            pass  # how a terminal tells that nobody is there any more
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_an_interrupt_at_a_terminal_asks_and_ends_the_run_with_its_hooks(there):
    terminal = Terminal(there.words("run", there.file(ENDLESS), "--name", "endless"), there.env)
    terminal.shows("phase Running")
    terminal.types("\x03")
    terminal.shows("[l/e]")
    terminal.types("what?\n")
    terminal.shows("[l/e] what?")
    terminal.types("e\n")
    assert terminal.ends() == 130, terminal.seen
    assert "end    clean" in terminal.seen
    assert "run endless has ended and was removed" in terminal.seen
    assert there.runs() == []


@pytest.mark.parametrize("typed", ["l\n", "\x03"], ids=["leave", "a second interrupt"])
def test_an_interrupt_at_a_terminal_may_leave_the_run_running(there, typed):
    terminal = Terminal(there.words("run", there.file(ENDLESS), "--name", "endless"), there.env)
    terminal.shows("phase Running")
    terminal.types("\x03")
    terminal.shows("[l/e]")
    terminal.types(typed)
    assert terminal.ends() == 130, terminal.seen
    assert "run endless goes on" in terminal.seen
    (stored,) = there.runs()
    assert stored["status"]["phase"] == "Running"
    assert "deletionTimestamp" not in stored["metadata"]
    there.kubectl.well("delete", "agentrun", "endless")


def test_a_run_that_somebody_deletes_is_told(there):
    with there.begun("run", there.file(ENDLESS), "--name", "endless") as (process, said):
        until(lambda: "phase Running" in said.read_text())
        there.kubectl.well("delete", "agentrun", "endless")
        assert process.wait(LIMIT) == 1
        assert "the run was deleted" in said.read_text() or "was deleted by someone else" in said.read_text()


def test_runs_of_a_cluster_are_listed_with_their_phases(there):
    assert "no runs yet" in there("runs").stdout
    assert there("run", there.file(run(dryRun=True)), "--name", "one", "--quiet").returncode == 0
    listed = there("runs").stdout
    assert re.search(r"one +.*Succeeded", listed)
    (line,) = there("runs", "--json").stdout.splitlines()
    assert json.loads(line)["status"]["phase"] == "Succeeded"
    assert there("runs", "two").returncode == 2


RECORDED = run(
    dryRun=True,
    lifecycle={
        "preRun": [shell("a", "true"), shell("b", "echo ready")],
        "postRun": [shell("c", "echo no room; exit 4"), shell("d", "true")],
    },
)


def here(there, *words):
    """A command for this machine, with the same journal."""
    return subprocess.run(
        [sys.executable, "-m", "hookline", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=there.env,
        timeout=LIMIT,
    )


def on_record(there, run):
    lines = here(there, "runs", run, "--json").stdout.splitlines()
    return [json.loads(line) for line in lines]


def told(records):
    """What happened, without when and in which words."""
    keys = (
        "record",
        "scope_id",
        "parent_id",
        "scope",
        "point",
        "hook",
        "action",
        "status",
        "error_kind",
        "note",
    )
    return [tuple(each.get(key) for key in keys) for each in records]


def test_a_run_is_on_record_like_one_of_this_machine_also_when_it_is_gone(there):
    file = there.file(RECORDED)
    assert here(there, "run", file, "--on", "local", "--name", "mine").returncode == 0
    done = there("run", file, "--name", "there")
    assert done.returncode == 0, done.stderr
    there.kubectl.well("delete", "agentrun", "there")
    local, remote = on_record(there, "mine"), on_record(there, "there")
    assert told(remote) == told(local)
    hooks = [(each["point"], each["hook"]) for each in remote if each["record"] == "called"]
    assert hooks == [("run.start", "a"), ("run.start", "b"), ("run.end", "c"), ("run.end", "d")]
    shown = here(there, "runs", "there").stdout
    for words in ("start  b", "agent default", "broke: exited with 4: no room", "phase  Succeeded"):
        assert words in shown
    listed = here(there, "runs").stdout
    assert re.search(r"there-[0-9a-f]{8} .* 4  ok", listed), listed


def test_what_a_killed_follower_missed_is_brought_later_and_nothing_of_it_is_run_here(there):
    with there.begun("run", there.file(GATED), "--name", "gated") as (process, said):
        until(lambda: "waits for a verdict" in said.read_text())
        process.kill()
        process.wait(LIMIT)
    other = here(there, "run", there.file(RECORDED), "--on", "local", "--name", "other")
    assert other.returncode == 0, other.stderr
    assert re.search(r"gated-[0-9a-f]{8} .*on kubernetes", here(there, "runs").stdout)
    assert "fetches the rest" in here(there, "runs", "gated").stdout
    refused = here(there, "approve", "gated")
    assert refused.returncode == 2
    assert f"gated --on kubernetes --namespace {there.kubectl.name}" in " ".join(refused.stderr.split())
    assert there("approve", "gated", "-y").returncode == 0
    until(lambda: there.kubectl.get("agentrun", "gated")["status"]["phase"] == "Succeeded")
    shown = there("runs", "gated").stdout
    assert "end    hold" in shown
    assert "gateVerdict  approved" in shown
    there.kubectl.well("delete", "agentrun", "gated")
    assert [each["hook"] for each in on_record(there, "gated") if each["record"] == "called"] == [
        "hold",
        "after",
    ]
    assert on_record(there, "gated")[-1]["status"] == "ok"


def test_the_operator_has_a_record_of_runs_that_nobody_followed(there):
    there.kubectl.well("create", given=json.loads(RECORDED))
    until(lambda: there.kubectl.get("agentrun", "trial").get("status", {}).get("phase") == "Succeeded")
    run = there.kubectl.get("agentrun", "trial")
    system = ("-n", "hookline-system")
    holder = there.kubectl.get("lease", "hookline-operator", *system)["spec"]["holderIdentity"]

    def kept():
        pod = holder.rpartition("_")[0]
        run_id = f"trial-{run['metadata']['uid'][:8]}"
        said = there.kubectl(
            "exec", *system, pod, "--", "python3", "-m", "hookline", "runs", run_id, "--json"
        )
        return [json.loads(line) for line in said.out.splitlines()] if said.code == 0 else []

    records = until(lambda: kept() if kept() and kept()[-1]["record"] == "ended" else None)
    assert told(records) == told(json.loads(json.dumps([_as_json(each) for each in records_of(run)])))


def _as_json(record):
    return {"record": type(record).__name__.lower(), **record._asdict()}


def test_the_example_says_what_it_comes_to_there(there):
    place = Path(__file__).parents[3] / "examples/sympozium/incident.yaml"
    done = subprocess.run(
        [sys.executable, "-m", "hookline", "explain", str(place), "--on", "kubernetes", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    made = json.loads(done.stdout)["objects"]
    for each in made:
        for owner in each["metadata"].get("ownerReferences", ()):
            owner["uid"] = "00000000-0000-0000-0000-000000000000"
        each["metadata"]["namespace"] = there.kubectl.name
        there.kubectl.well("create", "--dry-run=server", given=each)


SCRIPT = json.dumps([{"tools": [{"name": "bash", "arguments": {"command": "echo hi"}}]}, "done"])
WORKING = run(
    model={"provider": "scripted", "model": "/workspace/script.json"},
    lifecycle={"preRun": [shell("brief", f"echo '{SCRIPT}' > $WORKSPACE/script.json")]},
)


def scopes(records):
    """What began and ended, by depth, whatever file the model's script is in."""
    depth, found = {}, []
    for each in records:
        if each["record"] == "begun":
            depth[each["scope_id"]] = depth.get(each["parent_id"], -1) + 1
            name = "" if each["scope"] == "run" else each["name"].partition("/")[0]
            found.append((depth[each["scope_id"]], each["scope"], name))
        elif each["record"] == "ended":
            found.append((depth[each["scope_id"]], each["scope"], each["status"]))
    return found


def test_what_an_agent_does_inside_is_on_record_there_and_at_the_operator_like_here(there):
    script = there.folder / "script.json"
    script.write_text(SCRIPT)
    file = there.file(WORKING)
    words = ("--on", "local", "--name", "mine", "--model", f"scripted/{script}")
    mine = here(there, "run", file, *words)
    assert mine.returncode == 0, mine.stderr
    done = there("run", file, "--name", "there")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    local, remote = on_record(there, "mine"), on_record(there, "there")
    assert scopes(remote) == scopes(local)
    assert [each[1:] for each in scopes(remote) if each[0] == 3][2:4] == [("tool", "bash"), ("tool", "ok")]
    assert told(remote) == told(local)
    (tool,) = (each for each in remote if each["record"] == "ended" and each["scope"] == "tool")
    assert tool["output"] == {"exit_code": 0, "output": "hi\n"}
    for line in ("    step 1\n", "      tool bash", "        = bash ok"):
        assert line in done.stderr, done.stderr
    assert done.stderr.index("= bash ok") < done.stderr.index("    = ok")
    assert scopes(at_the_operator(there, tool["run_id"])) == scopes(local)


def at_the_operator(there, run_id):
    """What the journal of the operator that leads has of a run that is over."""
    words = ("python3", "-m", "hookline", "runs", run_id, "--json")
    place = ("-n", "hookline-system")
    lease = there.kubectl.get("lease", "hookline-operator", *place)
    pod = lease["spec"]["holderIdentity"].partition("_")[0]

    def found():
        done = there.kubectl("exec", pod, *place, "--", *words)
        records = [json.loads(line) for line in done.out.splitlines()] if done.code == 0 else []
        return records if records and records[-1]["record"] == "ended" else None

    return until(found)


def test_who_may_not_read_the_log_follows_the_run_all_the_same(there):
    """With rights to AgentRuns and to nothing else, there is one note, also on record."""
    kubectl = there.kubectl
    kubectl.well("create", "serviceaccount", "follower")
    kubectl.well("create", "role", "follower", "--verb=*", "--resource=agentruns.sympozium.ai")
    kubectl.well(
        "create", "rolebinding", "follower", "--role=follower", f"--serviceaccount={kubectl.name}:follower"
    )
    head = {"name": "pass", "annotations": {"kubernetes.io/service-account.name": "follower"}}
    asked = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token"}
    kubectl.well("create", given={**asked, "metadata": head})
    token = until(lambda: kubectl.get("secret", "pass").get("data", {}).get("token"))
    config = yaml.safe_load(Path(there.env["KUBECONFIG"]).read_text())
    for user in config["users"]:
        user["user"] = {"token": base64.b64decode(token).decode()}
    (there.folder / "config").write_text(yaml.safe_dump(config))
    there.env["KUBECONFIG"] = str(there.folder / "config")
    done = there("run", there.file(WORKING), "--name", "there")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    said = " ".join(done.stderr.split())
    assert said.count("some of the agent's inner records are missing: its pod cannot be looked up") == 1
    assert "pods is forbidden" in said
    notes = [each["note"] for each in on_record(there, "there") if each.get("point") == "x.hookline.inside"]
    assert len(notes) == 1
    assert "inner records are missing: its pod cannot be looked up" in notes[0]


def test_a_policy_of_the_file_goes_along_and_its_agent_has_no_shell(there):
    calls = [{"tools": [{"name": "bash", "arguments": {"command": "touch /workspace/shell"}}]}, "done"]
    hooks = {
        "preRun": [shell("brief", f"echo '{json.dumps(calls)}' > /workspace/script.json")],
        "postRun": [shell("look", "ls /workspace")],
    }
    default = {"model": {"provider": "scripted", "model": "/workspace/script.json"}, "lifecycle": hooks}
    gating = {"rules": [{"tool": "execute_command", "action": "deny"}]}
    head = {"apiVersion": "sympozium.ai/v1alpha1"}
    made = [
        {**head, "kind": "SympoziumPolicy", "metadata": {"name": "strict"}, "spec": {"toolGating": gating}},
        {**head, "kind": "Agent", "metadata": {"name": "oncall"}, "spec": {"agents": {"default": default}, "policyRef": "strict"}},
    ]  # fmt: skip
    done = there("run", there.file("\n---\n".join(map(json.dumps, made))), "look")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    (hook,) = [each for each in there.runs()[0]["status"]["hooks"] if each["name"] == "look"]
    assert "script.json" in hook["tail"]
    assert "shell" not in hook["tail"]
    there.kubectl.well("delete", "sympoziumpolicy", "strict")
    made[1]["metadata"]["name"] = "other"
    alone = there("run", there.file(json.dumps(made[1])), "look")
    assert alone.returncode == 2
    assert "there is no SympoziumPolicy 'strict'" in " ".join(alone.stderr.split())
