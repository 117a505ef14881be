"""A run from its beginning to its end: phases, hooks, folders, variables, limits, and every way to fail."""

import asyncio
import json
import os

import pytest

from hookline.engine.record import Begun, Called, Ended
from hookline.errors import FileError, UsageError
from hookline.runners import Mount
from tests.sympozium.run.conftest import hook, lifecycle

OK = '{"status":"success","response":"%s"}'
STATE = 'echo $AGENT_EXIT_CODE > $TRUTH/code; printf %s "$AGENT_RESULT" > $TRUTH/result'


def agent(script):
    return ("sh", "-c", script)


@pytest.mark.rule("sympozium 1.17.1", "sympozium C12")
@pytest.mark.statement("SZ4", "SZ10", "SZ15", "SZ70", "SZ71", "SZ72")
async def test_without_hooks_a_run_is_pending_running_and_succeeded(ground):
    ran = await ground.run({})
    assert (ran.phase, ran.status["result"]) == ("Succeeded", "fine")
    assert ground.phases() == ["Pending", "Running", "Succeeded"]


@pytest.mark.rule("sympozium 1.17.2")
@pytest.mark.statement("SZ1", "SZ2", "SZ7", "SZ9", "SZ18", "SZ19", "SZ20", "SZ21", "SZ23", "SZ26")
async def test_pre_run_hooks_run_one_after_another_before_the_agent(ground):
    before = [
        hook(
            "one",
            "echo 1 > $WORKSPACE/context/a; cat $IPC_DIR/input/task.json > $TRUTH/task; touch $TMPDIR/x",
        ),
        hook("two", "cat $WORKSPACE/context/a > $WORKSPACE/b; echo 2 >> $WORKSPACE/b"),
    ]
    work = agent(
        'cat $WORKSPACE/b > $TRUTH/seen; printf \'{"status":"success"}\' > $IPC_DIR/output/result.json'
    )
    ran = await ground.run(lifecycle(before), agent_command=work)
    assert ran.phase == "Succeeded"
    assert ground.said("seen") == "1\n2\n"
    assert json.loads(ground.said("task")) == {"task": "look at it"}
    assert ground.phases() == ["Pending", "Running", "Succeeded"]
    order = [each.hook for each in ground.records if isinstance(each, Called)]
    agents = [each for each in ground.records if isinstance(each, Begun) and each.scope == "agent"]
    assert order == ["one", "two"]
    assert ground.records.index(agents[0]) > max(
        index for index, each in enumerate(ground.records) if isinstance(each, Called)
    )


@pytest.mark.rule("sympozium 1.17.3", "sympozium 1.17.4")
@pytest.mark.statement("SZ11", "SZ14", "SZ27", "SZ28", "SZ30", "SZ32", "SZ70")
async def test_post_run_hooks_see_the_workspace_and_how_the_agent_ended(ground):
    after = [
        hook(
            "one", f"{STATE}; cat $WORKSPACE/pre $WORKSPACE/report > $TRUTH/files; ls $IPC_DIR > $TRUTH/ipc"
        ),
        hook("two", "date +%s%N > $TRUTH/two"),
    ]
    work = agent(f"echo rep > $WORKSPACE/report; printf '{OK % 'the answer'}' > $IPC_DIR/output/result.json")
    ran = await ground.run(lifecycle([hook("pre", "echo pre > $WORKSPACE/pre")], after), agent_command=work)
    assert ran.phase == "Succeeded"
    assert ground.phases() == ["Pending", "Running", "PostRunning", "Succeeded"]
    assert (ground.said("code"), ground.said("result")) == ("0\n", "the answer")
    assert ground.said("files") == "pre\nrep\n"
    assert {"control", "input", "output", "tools"} <= set(ground.said("ipc").split())


@pytest.mark.rule("sympozium 1.17.5")
@pytest.mark.statement("SZ29", "SZ41", "SZ42", "SZ43", "SZ44", "SZ57")
async def test_every_hook_has_the_runs_variables_and_its_own(ground):
    names = "AGENT_RUN_ID INSTANCE_NAME AGENT_NAMESPACE LEVEL OWN HOOKLINE_POINT"
    show = f'for name in {names}; do env | grep "^$name="; done > $TRUTH/$HOOKLINE_POINT'
    own = {"env": [{"name": "OWN", "value": "mine"}, {"name": "AGENT_RUN_ID", "value": "forged"}]}
    spec = {"env": {"LEVEL": "debug", "OWN": "the run's"}}
    ran = await ground.run(
        {**spec, **lifecycle([hook("a", show)], [hook("b", show, **own)])}, namespace="prod"
    )
    assert ran.phase == "Succeeded"
    start = dict(line.split("=") for line in ground.said("run.start").splitlines())
    end = dict(line.split("=") for line in ground.said("run.end").splitlines())
    assert start == {
        "AGENT_RUN_ID": ran.run_id,
        "INSTANCE_NAME": "oncall",
        "AGENT_NAMESPACE": "prod",
        "LEVEL": "debug",
        "OWN": "the run's",
        "HOOKLINE_POINT": "run.start",
    }
    assert end == {**start, "OWN": "mine", "HOOKLINE_POINT": "run.end"}
    assert (await ground.run({})).run_id != ran.run_id


@pytest.mark.rule("sympozium 1.17.6")
@pytest.mark.statement("SZ33")
async def test_a_long_answer_is_cut_for_hooks_and_never_inside_a_character(ground, tmp_path):
    answer = "é" * 20_000 + "x"
    result = tmp_path / "result.json"
    result.write_text(json.dumps({"status": "success", "response": answer}))
    mounts = (
        Mount(target=str(ground.truth), source=str(ground.truth)),
        Mount(target=str(result), source=str(result), read_only=True),
    )
    ran = await ground.run(
        lifecycle(after=[hook("a", STATE)]),
        agent_command=agent(f"cp {result} $IPC_DIR/output/result.json"),
        mounts=mounts,
    )
    assert ran.status["result"] == answer
    assert ground.said("result") == "é" * 16_384


@pytest.mark.rule("sympozium 1.17.7")
@pytest.mark.statement("SZ31", "SZ39")
async def test_after_a_failed_agent_hooks_run_and_know_its_real_code(ground):
    ran = await ground.run(
        lifecycle(after=[hook("a", STATE)]), agent_command=agent("echo no luck >&2; exit 7")
    )
    assert ran.phase == "Failed"
    assert ground.said("code") == "7\n"
    assert "no luck" in ran.status["error"]
    assert ground.phases() == ["Pending", "Running", "PostRunning", "Failed"]


@pytest.mark.rule("sympozium 1.17.8", "sympozium B15", "sympozium C1")
@pytest.mark.statement("SZ35", "SZ36")
async def test_a_failing_post_run_hook_changes_no_phase_and_stops_no_other(ground):
    after = [
        hook("one", "echo bye; exit 3"),
        hook("two", "touch $TRUTH/two; exit 4"),
        hook("three", "touch $TRUTH/three"),
    ]
    ran = await ground.run(lifecycle(after=after))
    assert ran.phase == "Succeeded"
    assert (ground.truth / "two").exists()
    assert (ground.truth / "three").exists()
    (condition,) = ran.status["conditions"]
    assert condition["type"] == "PostRunFailed"
    assert "'one'" in condition["message"]
    assert "'two'" in condition["message"]
    told = {each["name"]: each for each in ran.status["hooks"]}
    assert (told["one"]["state"], told["one"]["exitCode"], told["one"]["tail"]) == ("failed", 3, "bye")
    assert told["three"]["state"] == "succeeded"


@pytest.mark.rule("sympozium 1.17.9")
async def test_after_a_failed_pre_run_hook_no_agent_starts_and_post_run_runs(ground):
    before = [hook("one", "echo broken; exit 5"), hook("two", "touch $TRUTH/two")]
    ran = await ground.run(lifecycle(before, [hook("a", STATE)]), agent_command=agent("touch $TRUTH/agent"))
    assert ran.phase == "Failed"
    assert "'one'" in ran.status["error"]
    assert not (ground.truth / "two").exists()
    assert not (ground.truth / "agent").exists()
    assert ground.said("code") == "1\n"
    assert ground.phases() == ["Pending", "PostRunning", "Failed"]


@pytest.mark.rule("sympozium 1.17.18", "sympozium B2", "sympozium C5")
async def test_a_skip_runs_the_other_pre_run_hooks_and_no_agent_and_no_post_run(ground):
    before = [hook("one", "echo ' nothing new ' > $IPC_DIR/control/skip"), hook("two", "touch $TRUTH/two")]
    ran = await ground.run(lifecycle(before, [hook("a", STATE)]), agent_command=agent("touch $TRUTH/agent"))
    assert (ran.phase, ran.status["result"]) == ("Skipped", "nothing new")
    assert (ground.truth / "two").exists()
    assert not (ground.truth / "agent").exists()
    assert ground.said("code") == ""
    assert ground.phases() == ["Pending", "Skipped"]


@pytest.mark.rule("sympozium 1.17.18")
async def test_a_skip_without_a_reason_has_one(ground):
    ran = await ground.run(lifecycle([hook("one", ": > $IPC_DIR/control/skip")]))
    assert (ran.phase, ran.status["result"]) == ("Skipped", "preRun hook requested skip")


@pytest.mark.rule("sympozium T9")
async def test_an_agent_that_says_skipped_ends_the_run_so_and_post_run_does_not_run(ground):
    said = '{"status":"skipped","response":"seen before"}'
    ran = await ground.run(
        lifecycle(after=[hook("a", STATE)]),
        agent_command=agent(f"printf '{said}' > $IPC_DIR/output/result.json"),
    )
    assert (ran.phase, ran.status["result"]) == ("Skipped", "seen before")
    assert ground.said("code") == ""


@pytest.mark.rule("sympozium 1.17.15", "sympozium B3")
async def test_a_hook_past_its_timeout_is_ended_and_told(ground):
    before = [hook("slow", "trap '' TERM; sleep 60 & sleep 60", timeout="1s")]
    ran = await ground.run(lifecycle(before, [hook("a", STATE)]))
    assert ran.phase == "Failed"
    assert "limit of 1 s" in ran.status["error"]
    assert ground.said("code") == "1\n"


@pytest.mark.rule("sympozium B5", "sympozium 2.1")
async def test_after_an_agent_past_its_timeout_post_run_runs(ground):
    ran = await ground.run(
        {"timeout": "1s", **lifecycle(after=[hook("a", STATE)])}, agent_command=agent("sleep 60")
    )
    assert (ran.phase, ran.status["error"]) == ("Failed", "timeout")
    assert ground.said("code") == "1\n"
    ended = [each for each in ground.records if isinstance(each, Ended) and each.scope == "run"]
    assert ended[0].status == "timed_out"


@pytest.mark.rule("sympozium B5", "sympozium C3")
async def test_a_cancelled_run_runs_its_post_run_hooks_and_removes_its_folders(ground):
    after = [hook("a", STATE)]
    running = asyncio.ensure_future(
        ground.run(lifecycle(after=after), agent_command=agent("touch $TRUTH/begun; sleep 60"))
    )
    while not (ground.truth / "begun").exists():
        await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ground.said("code") == "1\n"
    assert ground.phases()[-2:] == ["PostRunning", "Failed"]


@pytest.mark.rule("sympozium 1.17.15", "sympozium C6", "sympozium X6")
async def test_a_secret_is_handed_to_the_hook_that_asks_for_it_and_to_no_other(ground, tmp_path):
    file = tmp_path / "secrets"
    file.write_text("# mine\npagerduty/token=very-secret-word\n")
    ref = {"name": "PD", "valueFrom": {"secretKeyRef": {"name": "pagerduty", "key": "token"}}}
    maybe = {"name": "NO", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y", "optional": True}}}
    before = [
        hook("with", 'printf %s "$PD${NO-unset}" > $TRUTH/with', env=[ref, maybe]),
        hook("without", 'printf %s "${PD-unset}" > $TRUTH/without'),
    ]
    ran = await ground.run(lifecycle(before), secrets=str(file))
    assert ran.phase == "Succeeded"
    assert (ground.said("with"), ground.said("without")) == ("very-secret-wordunset", "unset")


async def test_a_secret_that_is_missing_is_told_before_anything_runs(ground):
    ref = {"name": "PD", "valueFrom": {"secretKeyRef": {"name": "pagerduty", "key": "token"}}}
    with pytest.raises(FileError, match=r"no Secret 'pagerduty'.*PAGERDUTY_TOKEN"):
        await ground.run(lifecycle([hook("a", "touch $TRUTH/ran", env=[ref])]))
    assert not (ground.truth / "ran").exists()
    assert ground.left() == []


@pytest.mark.rule("sympozium 1.17.15")
async def test_args_follow_the_command_and_known_variables_are_filled_in(ground):
    one = {
        "name": "a",
        "image": "busybox:1.36",
        "command": ["sh", "-c", 'echo "$0 $1" > $$TRUTH/a'],
        "args": ["$(INSTANCE_NAME)", "$(date)"],
    }
    ran = await ground.run(lifecycle([one]))
    assert ran.phase == "Succeeded"
    assert ground.said("a") == "oncall $(date)\n"


async def test_a_hook_without_a_command_is_not_started_and_says_why(ground):
    ran = await ground.run(lifecycle([{"name": "a", "image": "busybox:1.36"}]))
    assert ran.phase == "Failed"
    # In a container it is the image's own, and that is `false` here.
    assert ("exit code 1" if ground.on == "container" else "--on container") in ran.status["error"]


@pytest.mark.rule("sympozium B9", "sympozium 1.17.12")
@pytest.mark.statement("SZ16")
@pytest.mark.parametrize(
    ("before", "script"),
    [("exit 1", "true"), ("echo x > $IPC_DIR/control/skip", "true"), ("true", "exit 1"), ("true", "true")],
)
async def test_the_workspace_is_removed_however_the_run_ends(ground, before, script):
    leave = "mkdir -p $WORKSPACE/deep/er; touch $WORKSPACE/deep/er/x; ln -s /etc $WORKSPACE/etc; chmod 0 $WORKSPACE/deep"
    ran = await ground.run(lifecycle([hook("one", f"{leave}; {before}")]), agent_command=agent(script))
    assert ran.problem == ""
    assert ground.left() == []
    assert os.path.exists("/etc/passwd")


@pytest.mark.rule("sympozium B13")
async def test_with_cleanup_keep_the_workspace_stays_and_that_is_said(ground):
    ran = await ground.run({"cleanup": "keep", **lifecycle([hook("a", "echo 1 > $WORKSPACE/a")])})
    assert ran.kept is not None
    assert (ran.kept / "a").read_text() == "1\n"
    assert ground.left() == ["kept"]
    ran.kept.rename(ground.folder / "gone")
    (ground.home / "agentruns" / "kept").rmdir()


@pytest.mark.rule("sympozium 1.17.19")
async def test_a_task_may_be_an_object(ground):
    spec = {"task": {"mode": "sidecar-driven", "tool": "ping", "parameters": {"host": "a"}}}
    work = agent('printf %s "${TASK-none}" > $TRUTH/env; cat $IPC_DIR/input/task.json > $TRUTH/task')
    ran = await ground.run(spec, agent_command=work)
    assert ran.phase == "Succeeded"
    assert ground.said("env") == "none"
    assert json.loads(ground.said("task"))["task"]["tool"] == "ping"


@pytest.mark.rule("sympozium B16")
async def test_a_name_is_given_once(ground):
    first = await ground.run({}, name="nightly")
    assert first.run_id == "nightly"
    with pytest.raises(UsageError, match="already"):
        await ground.run({}, name="nightly")


async def test_a_hook_that_leaves_children_leaves_none_behind(ground):
    before = [hook("a", "setsid sleep 300 >/dev/null 2>&1 & echo $! > $TRUTH/pid")]
    ran = await ground.run(lifecycle(before), agent_command=agent("true"))
    assert ran.phase == "Succeeded"
    if ground.on == "local":  # inside the sandbox its number is another
        pid = ground.said("pid").strip()
        for _ in range(500):
            if not os.path.exists(f"/proc/{pid}"):
                break
            await asyncio.sleep(0.02)
        assert not os.path.exists(f"/proc/{pid}")
