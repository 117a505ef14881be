"""The command around a run: what it prints, what `--resume`, `explain` and `runs` say, and wrong use."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from tests import forks
from tests.sympozium.run.conftest import hook, lifecycle, manifest

WORDS = {"file": "", "run": "", "mounts": "--mount"}


def arguments(does, given):
    """A command line of what is given, by name."""
    words = [does]
    for key, value in given.items():
        option = WORDS.get(key, f"--{key.replace('_', '-')}")
        for each in value if isinstance(value, list) else [value]:
            words += [option] if each is True else [each] if not option else [option, each]
    return words


class Command:
    def __init__(self, folder):
        self.folder = folder
        self.environ = {
            **os.environ,
            "HOOKLINE_HOME": str(folder / "home"),
            "COLUMNS": "120",
            "NO_COLOR": "1",
        }

    def write(self, spec, name="run.yaml"):
        file = self.folder / name
        file.write_text(spec if isinstance(spec, str) else manifest(spec))
        return str(file)

    def start(self, does, **given):
        words = [sys.executable, "-m", "hookline", *arguments(does, given)]
        return subprocess.Popen(
            words, cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, does, typed="", **given):
        person = does in ("approve", "reject", "rewrite")
        done = forks.run(
            arguments(does, given), cwd=self.folder, env=self.environ, terminal=person, typed=typed
        )
        return done.returncode, done.stdout, done.stderr

    def run(self, spec, **given):
        given = {"on": "local", "agent_command": "sh -c 'echo hi'", **given}
        return self("run", file=self.write(spec), **given)


@pytest.fixture
def command(tmp_path):
    return Command(tmp_path)


def test_the_terminal_tells_phases_and_hooks_and_the_answer_is_on_standard_output(command):
    said = '{"status":"success","response":"all fine"}'
    spec = lifecycle([hook("fetch", "true")], [hook("notify", "echo bad luck; exit 2")])
    code, out, err = command.run(
        spec, agent_command='sh -c \'printf "%s" "$R" > $IPC_DIR/output/result.json\'', env=[f"R={said}"]
    )
    assert (code, out) == (0, "all fine\n")
    for word in (
        "phase Pending",
        "fetch",
        "phase Running",
        "phase PostRunning",
        "notify",
        "bad luck",
        "phase Succeeded",
    ):
        assert word in err
    assert "local isolates nothing" in err
    code, shown, _ = command("runs", run="last")
    assert "phase  Succeeded" in shown
    assert "condition  PostRunFailed" in shown
    assert "postRun notify  failed, exit code 2" in shown
    assert "| bad luck" in shown


def test_as_json_every_line_is_a_record_and_the_last_has_the_status(command):
    code, out, _ = command.run(lifecycle([hook("a", "true")]), json=True)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert lines[-1]["status"]["phase"] == "Succeeded"
    assert lines[-1]["status"]["hooks"][0]["state"] == "succeeded"
    ended = next(each for each in lines if each["record"] == "ended" and each["scope"] == "run")
    assert ended["output"]["phase"] == "Succeeded"


def test_a_failed_run_exits_with_1_and_says_why(command):
    code, out, err = command.run(lifecycle([hook("a", "echo no such host; exit 6")]))
    assert (code, out) == (1, "")
    assert "preRun hook 'a' failed: exit code 6" in err


def test_a_skipped_run_exits_with_0(command):
    code, out, _ = command.run(lifecycle([hook("a", "echo nothing new > $IPC_DIR/control/skip")]))
    assert (code, out) == (0, "skipped: nothing new\n")


@pytest.mark.parametrize(("sign", "code"), [({}, 0), ({"CLAUDECODE": "1"}, 1)])
def test_an_agent_that_starts_a_run_does_not_answer_for_its_gate(command, sign, code):
    """The gate's hook decides nothing, so that only a person's word lets the answer through."""
    said = '{"status":"success","response":"all fine"}'
    given = {
        "file": command.write(lifecycle(after=[hook("gate", "true", gate=True)])),
        "on": "local",
        "agent_command": 'sh -c \'printf "%s" "$R" > $IPC_DIR/output/result.json\'',
        "env": f"R={said}",
        "ask": "terminal",
    }
    environ = {**command.environ, **sign}
    done = forks.run(arguments("run", given), cwd=command.folder, env=environ, stdin="a\n")
    assert (done.returncode, "all fine" in done.stdout) == (code, not sign), done.stderr


WRONG = {
    "a field that is nearly right": ({"lifecycle": {"preRum": []}}, {}, "preRun"),
    "no image": ({"lifecycle": {"preRun": [{"name": "a", "command": ["true"]}]}}, {}, "image"),
    "two hooks of one name": (lifecycle([hook("a", "true"), hook("a", "true")]), {}, "'a'"),
    "a gate before the run": (lifecycle([hook("a", "true", gate=True)]), {}, "gate: true is only valid on postRun hooks, not preRun"),
    "two gates": (lifecycle(after=[hook("a", "true", gate=True), hook("b", "true", gate=True)]), {}, "at most one postRun hook may set gate: true, found 2"),
    "a name that is no label": (lifecycle([hook("A_b", "true")]), {}, "A_b"),
    "no task": ({"task": None}, {}, "task"),
    "another place": ({}, {"on": "moon"}, "--on is 'moon'; known: local, sandbox, container"),
    "a persona where there is no pack": ({}, {"persona": "x"}, "no persona 'x'"),
    "a command with half a quotation": ({}, {"agent_command": "echo 'hi"}, "--agent-command \"echo 'hi\" cannot be split into words"),
    "a mount that is not there": ({}, {"mounts": ["/no/such"]}, "/no/such"),
    "a secrets file that is not there": ({}, {"secrets": "nowhere"}, "no such file"),
    "another kind": ("apiVersion: sympozium.ai/v1alpha1\nkind: AgentRum\nmetadata: {name: a}\nspec: {}\n", {}, "AgentRun"),
}  # fmt: skip


@pytest.mark.rule("sympozium 1.17.16", "sympozium 1.17.19")
@pytest.mark.parametrize(("spec", "given", "said"), WRONG.values(), ids=WRONG.keys())
def test_wrong_use_is_told_and_nothing_runs(command, spec, given, said):
    code, out, err = command.run(spec, **given)
    assert (code, out) == (2, "")
    assert said in err
    home = command.folder / "home" / "agentruns"
    assert not home.exists() or not [each for each in home.iterdir() if each.is_dir()]


@pytest.mark.rule("sympozium X2")
def test_rbac_on_one_machine_is_said(command):
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    _, _, err = command.run(lifecycle(rbac=rules))
    assert "rbac" in err
    assert "not used on one machine" in err


def test_a_path_that_is_written_out_is_told_where_it_leads_nowhere(command):
    _, _, err = command.run(lifecycle([hook("a", "ls /workspace || true")]))
    assert "hook 'a' names /workspace" in err
    assert "$WORKSPACE" in err


@pytest.mark.rule("sympozium C13")
def test_explain_says_what_runs_where_and_what_is_not_used(command):
    file = command.write(lifecycle([hook("a", "true", timeout="30s")], [hook("b", "true", gate=True)]))
    code, out, _ = command("explain", file=file, on="sandbox")
    assert code == 0
    for word in ("run.start (preRun)", "1. a", "limit 30 s, on error fail", "1. b", "until a verdict"):
        assert word in out
    assert "sandbox does not pull image 'busybox:1.36'" in out


@pytest.mark.rule("sympozium X6")
def test_a_secret_written_in_the_manifest_is_in_no_record(command):
    env = [{"name": "PD_TOKEN", "value": "your-pagerduty-token"}]
    code, out, err = command.run(lifecycle([hook("a", "echo $PD_TOKEN; exit 1", env=env)]))
    assert code == 1
    assert "your-pagerduty-token" not in out + err
    for file in (command.folder / "home").iterdir():
        assert file.is_dir() or b"your-pagerduty-token" not in file.read_bytes()


def test_a_run_that_was_killed_is_resumed_by_its_id(command):
    flag = command.folder / "begun"
    spec = lifecycle(after=[hook("clean", f"touch {command.folder}/cleaned")])
    process = command.start(
        "run", file=command.write(spec), on="local", name="nightly",
        agent_command=f"sh -c 'touch {flag}; sleep 100'", quiet=True,
    )  # fmt: skip
    _until(flag.exists)
    process.kill()
    process.communicate()
    code, _, err = command("run", resume="nightly")
    assert code == 1
    assert "lost: the process that held this run is gone" in err
    assert (command.folder / "cleaned").exists()
    assert not (command.folder / "home" / "agentruns" / "nightly").exists()
    code, _, err = command("run", resume="nightly")
    assert code == 2
    assert "there is nothing to resume" in err


def test_a_run_that_is_at_work_is_not_resumed(command):
    flag = command.folder / "begun"
    process = command.start(
        "run", file=command.write({}), on="local", name="nightly",
        agent_command=f"sh -c 'touch {flag}; sleep 100'", quiet=True,
    )  # fmt: skip
    _until(flag.exists)
    try:
        code, _, err = command("run", resume="nightly")
        assert code == 2
        assert "at work in another process" in err
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert not (command.folder / "home" / "agentruns" / "nightly").exists()


def test_ctrl_c_runs_the_post_run_hooks(command):
    flag = command.folder / "begun"
    spec = lifecycle(after=[hook("clean", f"echo $AGENT_EXIT_CODE > {command.folder}/cleaned")])
    process = command.start(
        "run", file=command.write(spec), on="local",
        agent_command=f"sh -c 'touch {flag}; sleep 100'",
    )  # fmt: skip
    _until(flag.exists)
    process.send_signal(2)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert (command.folder / "cleaned").read_text() == "1\n"


def _until(holds):
    ends = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.rule("sympozium B7")
def test_a_run_killed_in_its_post_run_hooks_keeps_what_its_agent_came_to(command):
    truth = command.folder / "truth"
    script = f"echo $AGENT_EXIT_CODE >> {truth}; test -e {command.folder}/go || sleep 100"
    spec = lifecycle(after=[hook("slow", script)])
    process = command.start(
        "run", file=command.write(spec), on="local", name="nightly",
        agent_command="sh -c true", quiet=True,
    )  # fmt: skip
    _until(truth.exists)
    process.kill()
    process.communicate()
    (command.folder / "go").touch()
    code, _, _ = command("run", resume="nightly")
    assert code == 0
    assert truth.read_text() == "0\n0\n"
    _, shown, _ = command("runs", run="nightly")
    assert "phase  Succeeded" in shown
    assert "unfinished ones were run again" in shown


@pytest.mark.rule("sympozium 1.14", "sympozium X3")
@pytest.mark.parametrize(
    ("word", "label", "result"),
    [(["approve"], "approved", "fine"), (["reject", "no names"], "rejected", "no names"), (["rewrite", "nicer"], "rewritten", "nicer")],
)  # fmt: skip
def test_a_gate_waits_for_approve_reject_or_rewrite_in_another_terminal(command, screen, word, label, result):
    said = '{"status":"success","response":"fine"}'
    process = command.start(
        "run", file=command.write(lifecycle(after=[hook("gate", "true", gate=True)])), on="local",
        name="nightly", ask="journal", code_to=screen.name, json=True, env=[f"R={said}"],
        agent_command="sh -c 'printf %s \"$R\" > $IPC_DIR/output/result.json'",
    )  # fmt: skip
    verb, *text = word
    given = {"run": "nightly"} | ({"file": text[0]} if text else {})
    code = screen.code()
    _until(lambda: command(verb, typed=code, **given)[0] == 0 or process.poll() is not None)
    out, _ = process.communicate(timeout=60)
    status = json.loads(out.splitlines()[-1])["status"]
    assert (status["gateVerdict"], status["result"]) == (label, result)
    assert status["gate"]["by"]


@pytest.mark.rule("sympozium C13")
def test_check_says_what_cannot_work_as_it_is_written(command):
    file = command.write(
        lifecycle([hook("a", "curl -H 'Token $PD' $NOWHERE", env=[{"name": "PD", "value": "x"}])])
    )
    code, out, _ = command("check", file=file)
    assert code == 0
    assert "$PD is in single quotes" in out
    assert "$NOWHERE is not set" in out
    assert command("check", file=command.write(lifecycle([hook("a", "ls $WORKSPACE")])))[0] == 0


@pytest.mark.parametrize("does", ["check", "explain"])
@pytest.mark.parametrize("given", ["", "env", "env_file"])
def test_a_variable_that_the_command_line_gives_is_set(command, does, given):
    file = command.write(lifecycle([hook("a", "curl $ALERTMANAGER_URL")]))
    (command.folder / "vars").write_text("ALERTMANAGER_URL=http://127.0.0.1:9\n")
    options = {"": {}, "env": {"env": ["ALERTMANAGER_URL=x"]}, "env_file": {"env_file": "vars"}}[given]
    code, out, err = command(does, file=file, **options)
    assert ("$ALERTMANAGER_URL is not set" in " ".join(out.split())) == (not given), err
    assert code == 0


def test_a_variable_of_this_process_reaches_no_hook_and_is_told(command):
    command.environ["ALERTMANAGER_URL"] = "x"
    code, out, _ = command("check", file=command.write(lifecycle([hook("a", "curl $ALERTMANAGER_URL")])))
    assert code == 0
    assert "$ALERTMANAGER_URL is not set" in out


ORDERS = {
    "it went well": (lifecycle([hook("first", "true")], [hook("last", "true")]), "Pending first Running PostRunning last Succeeded"),
    "preRun failed": (lifecycle([hook("first", "exit 3")]), "Pending first Failed"),
    "preRun failed, and postRun runs": (lifecycle([hook("first", "exit 3")], [hook("last", "exit 4")]), "Pending first PostRunning last Failed"),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "order"), ORDERS.values(), ids=ORDERS.keys())
def test_a_phase_is_told_below_the_hook_that_brought_it(command, spec, order):
    _, _, err = command.run(spec)
    found = re.findall(r"^ *(?:note   phase|start |end   ) (\w+)", err, re.MULTILINE)
    assert " ".join(found) == order, err


def test_the_size_of_the_workspace_is_the_command_lines_to_say(command):
    spec = lifecycle([hook("fills", "head -c 3000000 /dev/zero > $WORKSPACE/file")])
    code, _, err = command.run(spec, workspace_size="1Mi")
    assert code == 1
    assert "at most 1 MiB (--workspace-size)" in " ".join(err.split())
    assert command.run(spec, workspace_size="4Mi")[0] == 0
    code, _, err = command.run(spec, workspace_size="1Gb")
    assert code == 2
    assert "--workspace-size is '1Gb'; give bytes, or a quantity such as 512Mi or 2Gi" in " ".join(
        err.split()
    )
    _, out, _ = command("explain", file=command.write(spec))
    assert "/workspace may hold 1 GiB (--workspace-size), /ipc 64 MiB, /tmp 256 MiB" in " ".join(out.split())
