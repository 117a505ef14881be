"""What Sympozium's own controller gets wrong or leaves out, as far as it concerns one machine: each shown in a real run."""

import asyncio
import json
import os
import select
import socket
from dataclasses import replace

import pytest

from hookline import HookResult, SqliteJournal
from hookline import hook as python_function
from hookline.engine.record import Ended, Verdict, VerdictKind
from hookline.errors import FileError, UsageError
from hookline.handlers.python import python_hook
from hookline.runners import Mount
from hookline.sympozium.phases import Phase, digest
from hookline.sympozium.run.folders import FolderError
from tests.sympozium.run.conftest import hook, lifecycle, with_approver
from tests.sympozium.run.test_command import Command, _until
from tests.sympozium.run.test_gates import gate, says

RESULT = 'printf %s "$AGENT_RESULT" > $TRUTH/result; echo $AGENT_EXIT_CODE > $TRUTH/code'
PACK = """
apiVersion: sympozium.ai/v1alpha1
kind: Ensemble
metadata: {name: team}
spec:
  enabled: true
  agentConfigs:
    - name: triage
      systemPrompt: Look.
      lifecycle:
        preRun:
          - {name: a, image: "busybox:1.36", command: [sh, -c, "echo first > $TRUTH/said"]}
"""


def answers(text):
    """An agent that gives that very answer."""
    code = f"import json, os; open(os.environ['IPC_DIR'] + '/output/result.json', 'w').write({json.dumps({'status': 'success', 'response': text})!r})"
    return ("python3", "-c", code)


@pytest.fixture
def command(tmp_path):
    return Command(tmp_path)


@pytest.mark.rule("sympozium B4")
async def test_time_that_the_run_took_is_not_taken_from_the_hooks_after_it(ground):
    after = [hook("slow", "sleep 2; touch $TRUTH/slow", timeout="60s"), hook("last", "touch $TRUTH/last")]
    ran = await ground.run({"timeout": "1s", **lifecycle(after=after)}, agent_command=("sleep", "60"))
    assert (ran.phase, ran.status["error"]) == ("Failed", "timeout")
    assert [each["state"] for each in ran.status["hooks"]] == ["succeeded", "succeeded"]
    assert (ground.truth / "slow").exists()
    assert (ground.truth / "last").exists()


@pytest.mark.rule("sympozium B4")
async def test_a_person_may_take_longer_for_a_verdict_than_the_run_may(ground):
    async def slowly(_question):
        await asyncio.sleep(1.5)
        return Verdict(VerdictKind.APPROVE, by="ada")

    with_approver(ground, slowly)
    ran = await ground.run({"timeout": "1s", **lifecycle(after=[gate("true")])})
    assert (ran.status["gateVerdict"], ran.status["result"]) == ("approved", "fine")


@pytest.mark.rule("sympozium B6")
async def test_a_gate_that_gave_its_verdict_goes_on_to_its_end_and_so_do_the_others(ground):
    script = f"{says('approve')}; sleep 0.5; touch $TRUTH/gate"
    ran = await ground.run(lifecycle(after=[hook("later", "touch $TRUTH/later"), gate(script)]))
    assert ran.status["gateVerdict"] == "approved"
    assert (ground.truth / "gate").exists()
    assert (ground.truth / "later").exists()
    assert [each["state"] for each in ran.status["hooks"]] == ["succeeded", "succeeded"]


@pytest.mark.rule("sympozium B8")
@pytest.mark.parametrize("length", [62, 63])
async def test_a_run_with_the_longest_name_runs_its_hooks_like_any_other(ground, length):
    ran = await ground.run(lifecycle(after=[hook("a", "touch $TRUTH/a")]), name="n" * length)
    assert (ran.run_id, ran.phase) == ("n" * length, "Succeeded")
    assert (ground.truth / "a").exists()


@pytest.mark.rule("sympozium B8")
@pytest.mark.parametrize("name", ["n" * 64, "-a", "a-", "A", "a_b", "../a", "a/b", ".", "kept.1"])
async def test_a_name_that_cannot_be_one_is_refused_before_anything_is_made(ground, name):
    with pytest.raises(UsageError, match=r"--name is .*at most 63 lower-case letters"):
        await ground.run({}, name=name)
    assert not (ground.home / "agentruns").exists()


@pytest.mark.rule("sympozium B10")
async def test_a_hooks_own_variable_counts_above_the_runs_before_and_after_alike(ground):
    show = 'echo "$WHO $AGENT_RUN_ID $INSTANCE_NAME" > $TRUTH/$HOOKLINE_POINT'
    forged = [{"name": "WHO", "value": "hook"}, {"name": "INSTANCE_NAME", "value": "forged"}]
    spec = {"env": {"WHO": "run", "AGENT_RUN_ID": "forged", "AGENT_RESULT": "forged"}}
    hooks = lifecycle([hook("a", show, env=forged)], [hook("b", f"{show}; {RESULT}", env=forged)])
    ran = await ground.run({**spec, **hooks})
    assert ground.said("run.start") == ground.said("run.end") == f"hook {ran.run_id} oncall\n"
    assert ground.said("result") == "fine"


@pytest.mark.rule("sympozium B11")
async def test_hooks_have_the_real_code_and_an_answer_with_dollars_as_it_is(ground):
    answer = "costs $$5, see $(AGENT_RUN_ID) and $HOME; `id`"
    ran = await ground.run(lifecycle(after=[hook("a", RESULT)]), agent_command=answers(answer))
    assert ran.status["result"] == ground.said("result") == answer
    ran = await ground.run(lifecycle(after=[hook("a", RESULT)]), agent_command=("sh", "-c", "exit 42"))
    assert (ran.status["exitCode"], ground.said("code")) == (42, "42\n")


@pytest.mark.rule("sympozium B12", "sympozium C14", "sympozium 1.17.21")
@pytest.mark.parametrize("way", ["filed", "printed"])
async def test_an_answer_that_quotes_the_marker_is_whole(ground, way):
    answer = 'it prints __SYMPOZIUM_RESULT__{"status":"error"}__SYMPOZIUM_END__\nlike that'
    told = json.dumps({"status": "success", "response": answer})
    shown = f"print('__SYMPOZIUM_RESULT__' + {told!r} + '__SYMPOZIUM_END__')"
    agent = answers(answer) if way == "filed" else ("python3", "-c", shown)
    ran = await ground.run({}, agent_command=agent)
    assert (ran.phase, ran.status["result"]) == ("Succeeded", answer)


@pytest.mark.rule("sympozium B12")
async def test_an_empty_answer_is_one(ground):
    ran = await ground.run(lifecycle(after=[hook("a", RESULT)]), agent_command=answers(""))
    assert (ran.phase, ran.status["result"], ground.said("code")) == ("Succeeded", "", "0\n")


@pytest.mark.rule("sympozium B14")
async def test_what_is_kept_of_a_manifest_is_every_letter_of_it(ground):
    gated = hook("g", "echo 'a  b'", gate=True, timeout="10m", args=["x y"], imagePullPolicy="Never")
    text = "# mine\n" + json.dumps(
        {
            "apiVersion": "sympozium.ai/v1alpha1",
            "kind": "AgentRun",
            "metadata": {"name": "demo"},
            "spec": {"agentRef": "a", "task": "t", **lifecycle(after=[gated], gateDefault="allow")},
        }
    )
    found = []

    async def look(question):
        found.append((ground.home / "agentruns" / question.run_id / "manifest.yaml").read_text())
        return Verdict(VerdictKind.APPROVE, by="ada")

    with_approver(ground, look)
    await ground.run(text)
    assert found == [text]


@pytest.mark.rule("sympozium B15", "sympozium 1.17.8")
async def test_a_hook_past_its_limit_after_the_run_is_the_same_one_condition(ground):
    after = [hook("slow", "sleep 60", timeout="1s"), hook("bad", "exit 3")]
    ran = await ground.run(lifecycle(after=after))
    (condition,) = ran.status["conditions"]
    assert ran.phase == "Succeeded"
    assert condition["message"] == (
        "postRun hooks failed: 'slow' failed: passed its limit of 1 s; 'bad' failed: exit code 3"
    )


@pytest.mark.rule("sympozium B16")
async def test_what_another_run_of_that_name_left_is_not_taken_for_ours(ground):
    place = ground.home / "agentruns" / "nightly"
    (place / "workspace").mkdir(parents=True)
    (place / "workspace" / "theirs").touch()
    with pytest.raises(FolderError, match="there is a run 'nightly' already"):
        await ground.run({}, name="nightly")
    assert (place / "workspace" / "theirs").exists()
    folder = ground.site.home.folder("nightly")
    folder.remove()


@pytest.mark.rule("sympozium B17", "sympozium X7")
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"mode": "server"}, "mode: server is not used on one machine: the run is done once, as a task"),
        ({"agentSandbox": {"enabled": True, "warmPoolRef": "p"}}, "agentSandbox: is not used on one machine"),
        ({"skills": [{"skillPackRef": "host-net"}]}, "skills: is not used on one machine"),
    ],
)
def test_what_is_not_heeded_here_is_said_and_the_hooks_run_all_the_same(command, spec, said):
    hooks = lifecycle([hook("a", f"touch {command.folder}/a")], [hook("b", f"touch {command.folder}/b")])
    code, _, err = command.run({**spec, **hooks})
    assert code == 0
    assert said in " ".join(err.split())
    assert (command.folder / "a").exists()
    assert (command.folder / "b").exists()
    _, out, _ = command("check", file=command.write({**spec, **hooks}))
    assert said in " ".join(out.split())


@pytest.mark.rule("sympozium B18", "sympozium 1.14")
@pytest.mark.parametrize(
    ("script", "code", "label"),
    [(says("approve"), 0, "approved"), (says("rewrite", response="x"), 0, "rewritten"), (says("reject"), 1, "rejected"), ("true", 1, "timeout"), ("exit 1", 1, "error")],
)  # fmt: skip
def test_a_command_after_a_run_whose_answer_was_withheld_does_not_go_on(command, script, code, label):
    ended, out, _ = command.run(lifecycle(after=[gate(script)]), json=True)
    status = json.loads(out.splitlines()[-1])["status"]
    assert (ended, status["phase"], status["gateVerdict"]) == (code, "Succeeded", label)


@pytest.mark.rule("sympozium B18", "sympozium C5", "sympozium 1.17.18")
async def test_a_gated_run_that_is_skipped_says_so_like_any_other(ground):
    async def never(_question):
        raise AssertionError("there is no answer to ask about")

    with_approver(ground, never)
    before = [hook("a", "echo no news > $IPC_DIR/control/skip")]
    ran = await ground.run(
        lifecycle(before, [gate("touch $TRUTH/gate")]), agent_command=("sh", "-c", "touch $TRUTH/agent")
    )
    assert (ran.phase, ran.status["result"]) == ("Skipped", "no news")
    (over,) = (each for each in ground.records if isinstance(each, Ended) and each.scope == "run")
    assert (over.status, over.output["phase"]) == ("skipped", "Skipped")
    assert os.listdir(ground.truth) == []


@pytest.mark.rule("sympozium X1", "sympozium X6")
async def test_what_is_a_hooks_to_use_is_neither_the_agents_nor_another_hooks(ground, tmp_path):
    file = tmp_path / "secrets"
    file.write_text("pagerduty/token=very-secret-word\n")
    ref = {"name": "PD", "valueFrom": {"secretKeyRef": {"name": "pagerduty", "key": "token"}}}
    look = 'env > $TRUTH/$1; cat /proc/self/environ >> $TRUTH/$1; ls -R "$IPC_DIR" "$WORKSPACE" >> $TRUTH/$1'
    spec = lifecycle([hook("with", "test -n $PD", env=[ref])], [hook("b", look.replace("$1", "after"))])
    agent = ("sh", "-c", look, "sh", "agent")
    ran = await ground.run(spec, agent_command=agent, secrets=str(file))
    assert ran.phase == "Succeeded"
    assert "TASK=" in ground.said("agent")
    assert "very-secret-word" not in ground.said("agent") + ground.said("after")


@pytest.mark.rule("sympozium X3")
async def test_a_verdict_is_kept_with_who_gave_it_and_the_answer_it_was_for(ground):
    kept = []

    async def ada(question):
        kept.append(question)
        return Verdict(VerdictKind.APPROVE, by="ada")

    with_approver(ground, ada)
    ran = await ground.run(
        lifecycle(after=[gate("true"), hook("b", f"cat {ground.home}/agentruns/*/seen.json > $TRUTH/seen")])
    )
    assert ran.status["gate"] == {"action": "approve", "by": "ada", "reason": ""}
    (over,) = (each for each in ground.journal.records(ran.run_id) if _is_run_end(each))
    assert over.output["gate"]["by"] == "ada"
    assert kept[0].value == "fine"
    if ground.on == "local":
        assert json.loads(ground.said("seen"))["verdict"]["digest"] == digest("fine")


def _is_run_end(record):
    return isinstance(record, Ended) and record.scope == "run"


@pytest.mark.rule("sympozium X3")
def test_nothing_of_an_answer_is_shown_before_its_verdict(command, screen):
    said = '{"status":"success","response":"the very answer"}'
    process = command.start(
        "run", file=command.write(lifecycle(after=[gate("true")])), on="local", name="nightly", ask="journal",
        code_to=screen.name, env=[f"R={said}"], agent_command="sh -c 'printf %s \"$R\" > $IPC_DIR/output/result.json'",
    )  # fmt: skip
    asked = SqliteJournal(command.folder / "home" / "journal.db")
    try:
        _until(lambda: asked.questions() or process.poll() is not None)
        shown = "".join(map(_so_far, (process.stdout, process.stderr)))
        assert "phase PostRunning" in shown
        assert "the very answer" not in shown
        assert command("approve", typed=screen.code(), run="nightly")[0] == 0
        out, _ = process.communicate(timeout=60)
        assert out == "the very answer\n"
    finally:
        asked.close()
        process.kill()
        process.communicate()


def _so_far(stream):
    """What a process has written there."""
    found = b""
    while select.select([stream], [], [], 0)[0] and (part := os.read(stream.fileno(), 65536)):
        found += part
    return found.decode()


@pytest.mark.rule("sympozium X4")
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}, "is given together with value"),
        ({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}, "only secretKeyRef is a source"),
        ({"name": "A", "valueFrom": {"secretKeyRef": {"name": "a"}}}, "it names the key"),
    ],
)  # fmt: skip
def test_what_a_hook_is_given_is_checked_without_any_policy(command, entry, said):
    code, _, err = command.run(lifecycle([hook("a", "true", env=[entry])]))
    assert code == 2
    assert said in " ".join(err.split())


@pytest.mark.rule("sympozium X5")
async def test_before_within_and_after_there_is_no_network_unless_it_is_asked_for(ground):
    if not ground.site.agent_runner.capabilities.isolates:
        assert ground.on == "local", "it isolates nothing, and says so"
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reach = f"""python3 -c "import socket; socket.create_connection(('127.0.0.1', {port}), 5)" && touch $TRUTH/$1; true"""
        spec = lifecycle([hook("a", reach.replace("$1", "a"))], [hook("b", reach.replace("$1", "b"))])
        agent = ("sh", "-c", reach, "sh", "agent")
        assert (await ground.run(spec, agent_command=agent)).phase == "Succeeded"
        assert os.listdir(ground.truth) == []
        await ground.run(spec, agent_command=agent, network=True)
        assert sorted(os.listdir(ground.truth)) == ["a", "agent", "b"]
        for _ in range(3):
            server.accept()[0].close()


EVIL = "'; touch $TRUTH/evil; echo '\"; touch $TRUTH/evil; `touch $TRUTH/evil` $(touch $TRUTH/evil)\n* ~ \\"


@pytest.mark.rule("sympozium X8")
@pytest.mark.parametrize(
    "script", ["$AGENT_RESULT", "$(AGENT_RESULT)", "${AGENT_RESULT}", "$(AGAIN)"], ids=str
)
async def test_what_the_model_wrote_is_never_run(ground, script):
    env = [{"name": "AGAIN", "value": "[$(AGENT_RESULT)]"}]
    after = [hook("a", f'printf %s "{script}" > $TRUTH/said', env=env)]
    ran = await ground.run(lifecycle(after=after), agent_command=answers(EVIL))
    assert ran.phase == "Succeeded"
    assert ground.said("said") == (f"[{EVIL}]" if "AGAIN" in script else EVIL)
    assert not (ground.truth / "evil").exists()


@pytest.mark.rule("sympozium X8")
async def test_a_hook_has_the_answer_as_json_on_its_input_and_need_not_quote_it(ground):
    after = [hook("a", "cat > $TRUTH/input")]
    await ground.run(lifecycle(after=after), agent_command=answers(EVIL))
    assert json.loads(ground.said("input"))["current_output"]["result"] == EVIL


@pytest.mark.rule("sympozium X8", "sympozium C13")
def test_check_tells_of_an_answer_that_would_be_part_of_a_script(command):
    file = command.write(lifecycle(after=[hook("a", "echo $(AGENT_RESULT)")]))
    code, out, _ = command("check", file=file)
    assert code == 0
    assert "what the model wrote a part of the script" in " ".join(out.split())


@pytest.mark.rule("sympozium C2")
def test_what_a_hook_does_not_have_is_said(command):
    more = {"retries": 3, "when": "failure", "failurePolicy": "ignore"}
    code, _, err = command.run(lifecycle([hook("a", "true", **more)]))
    assert code == 0
    for key in more:
        assert f"preRun[0].{key}: a hook does not have this, so it has no effect" in " ".join(err.split())


@pytest.mark.rule("sympozium C3")
@pytest.mark.parametrize(("script", "cleaned"), [("true", "always"), ("exit 1", "always failed")])
async def test_clean_up_is_a_hook_after_the_run_and_one_for_failures_asks_the_code(ground, script, cleaned):
    after = [
        hook("always", "printf always >> $TRUTH/cleaned"),
        hook("on-failure", "test $AGENT_EXIT_CODE = 0 || printf ' failed' >> $TRUTH/cleaned"),
    ]
    await ground.run(lifecycle(after=after), agent_command=("sh", "-c", script))
    assert ground.said("cleaned") == cleaned


@pytest.mark.rule("sympozium C7")
async def test_what_a_hook_before_the_run_left_can_be_put_into_the_task(ground):
    @python_function(on="agent.start")
    def with_alerts(ctx, hook_context):
        with open(f"{ctx.workspace}/context/alerts.txt") as file:
            asked = f"{hook_context.current_payload['input']}: {file.read()}"
        return HookResult.continue_with(modified_payload={"input": asked})

    ground.site = replace(ground.site, hooks=(python_hook(with_alerts),))
    before = [hook("fetch", "printf 'disk full' > $WORKSPACE/context/alerts.txt")]
    ran = await ground.run(
        lifecycle(before), agent_command=("sh", "-c", 'printf %s "$TASK" > $TRUTH/task; true')
    )
    assert ran.phase == "Succeeded"
    assert ground.said("task") == "look at it: disk full"


class Noting:
    """A runner that hands on to another, and keeps the limits that were asked for."""

    def __init__(self, runner):
        self._runner, self.limits = runner, []

    def __getattr__(self, name):
        return getattr(self._runner, name)

    async def run(self, order):
        self.limits.append(order.timeout)
        return await self._runner.run(order)


@pytest.mark.rule("sympozium C8", "sympozium 1.17.15")
async def test_limits_above_ten_minutes_are_asked_for_as_they_are_written(ground):
    noting = Noting(ground.site.agent_runner)
    site = replace(ground.site, runner_of=lambda _: noting, agent_runner=noting)
    hooks = lifecycle([hook("a", "true", timeout="20m")], [hook("b", "true", timeout="1h30m")])
    ran = await ground.run({"timeout": "2h", **hooks}, site=site)
    assert ran.phase == "Succeeded"
    assert noting.limits == [1200.0, 7200.0, 5400.0]


@pytest.mark.rule("sympozium C9")
async def test_a_member_of_a_pack_has_the_hooks_that_its_file_has_now(ground):
    for word in ("first", "second"):
        ran = await ground.run(PACK.replace("first", word), task="go", persona="triage")
        assert (ran.phase, ground.said("said")) == ("Succeeded", f"{word}\n")


@pytest.mark.rule("sympozium C10", "sympozium C14")
async def test_a_folder_that_lasts_is_mounted_and_each_workspace_is_its_own(ground, tmp_path):
    lasting = tmp_path / "lasting"
    lasting.mkdir()
    mounts = (
        Mount(target=str(ground.truth), source=str(ground.truth)),
        Mount(target=str(lasting), source=str(lasting)),
    )
    script = f"echo x >> {lasting}/runs; echo x >> $WORKSPACE/runs; cat $WORKSPACE/runs > $TRUTH/own"
    for _ in range(2):
        assert (await ground.run(lifecycle([hook("a", script)]), mounts=mounts)).phase == "Succeeded"
    assert (lasting / "runs").read_text() == "x\nx\n"
    assert ground.said("own") == "x\n"


@pytest.mark.rule("sympozium C11")
@pytest.mark.parametrize(
    ("before", "script", "phase"),
    [("true", "true", "Succeeded"), ("true", "exit 1", "Failed"), ("echo x > $IPC_DIR/control/skip", "true", "Skipped")],
)  # fmt: skip
async def test_each_of_the_three_ends_is_an_end_everywhere(ground, before, script, phase):
    assert [each for each in Phase if each.ended] == ["Succeeded", "Failed", "Skipped"]
    ran = await ground.run(lifecycle([hook("a", before)]), agent_command=("sh", "-c", script))
    assert (ran.phase, ran.phase.ended, "completedAt" in ran.status) == (phase, True, True)
    assert ground.journal.unfinished() == []
    assert ground.left() == []


@pytest.mark.rule("sympozium 1.17.15")
async def test_each_hooks_image_is_pulled_as_that_hook_says(ground):
    runner, asked = ground.site.agent_runner, []

    def runner_of(policy):
        asked.append(policy)
        return runner

    before = [hook(word.lower(), "true", imagePullPolicy=word) for word in ("Always", "Never")]
    ran = await ground.run(
        lifecycle([*before, hook("plain", "true")]), site=replace(ground.site, runner_of=runner_of)
    )
    assert ran.phase == "Succeeded"
    assert asked == ["Always", "Never", "IfNotPresent"]


@pytest.mark.rule("sympozium 1.17.19")
@pytest.mark.parametrize("task", [["a"], 5, True, {"mode": "other"}, {"tool": "x"}, "", None], ids=str)
async def test_a_task_that_is_none_is_told_with_its_place_and_nothing_runs(ground, task):
    with pytest.raises(FileError, match=r"run\.yaml:1: spec.*(task|mode)"):
        await ground.run({"task": task, **lifecycle([hook("a", "touch $TRUTH/a")])})
    assert os.listdir(ground.truth) == []
    assert ground.left() == []
