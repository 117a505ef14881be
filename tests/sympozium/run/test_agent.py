"""The agent inside a run: the built-in one with its tool calls on /ipc, any command, and what either may leave."""

import json
import sys

import pytest

from hookline.errors import FileError, UsageError
from hookline.runners import Mount
from tests.sympozium.run.conftest import hook, lifecycle

WRITE = "import os, json; open(os.environ['IPC_DIR'] + '/output/result.json', 'wb').write({content})"


def python(code):
    return ("python3", "-c", code)


def script(tmp_path, *turns):
    file = tmp_path / "script.json"
    file.write_text(json.dumps(turns))
    return f"scripted/{file}"


@pytest.mark.rule("sympozium 5.1", "sympozium 5.3", "sympozium 5.4")
@pytest.mark.statement("SZ19", "SZ22", "SZ59")
async def test_the_built_in_agent_reads_what_pre_run_left_and_its_tool_calls_are_on_ipc(ground, tmp_path):
    model = script(
        tmp_path,
        {
            "tools": [
                {"name": "write_file", "arguments": {"path": "report.md", "content": "all quiet"}},
                {"name": "bash", "arguments": {"command": "cat context/incidents.json"}, "id": "a/../b"},
            ]
        },
        {"text": "one incident", "expect": "PD-1", "usage": {"input_tokens": 5, "output_tokens": 2}},
    )
    before = [hook("fetch", "echo PD-1 > $WORKSPACE/context/incidents.json")]
    after = [hook("keep", "cp $IPC_DIR/tools/* $IPC_DIR/done $WORKSPACE/report.md $TRUTH")]
    prompt = "Read /workspace/context/incidents.json."
    ran = await ground.run(
        {"systemPrompt": prompt, **lifecycle(before, after)}, agent_command=(), model=model
    )
    assert (ran.phase, ran.status["result"]) == ("Succeeded", "one incident")
    assert ran.status["tokenUsage"]["inputTokens"] == 5
    assert ran.status["tokenUsage"]["toolCalls"] == 2
    requests = {each.name: json.loads(each.read_text()) for each in ground.truth.glob("exec-request-*")}
    results = {each.name: json.loads(each.read_text()) for each in ground.truth.glob("exec-result-*")}
    bash = next(each for each in requests.values() if each["_meta"]["tool"] == "bash")
    said = next(each for each in results.values() if each["id"] == bash["id"])
    assert (bash["command"], bash["workDir"]) == ("cat context/incidents.json", "/workspace")
    assert (said["exitCode"], said["stdout"], said["timedOut"]) == (0, "PD-1\n", False)
    assert len(requests) == len(results) == 2
    assert (ground.said("done"), ground.said("report.md")) == ("done", "all quiet")


async def test_a_tool_that_the_policy_denies_is_none_of_the_agents(ground, tmp_path):
    calls = [
        {"name": "bash", "arguments": {"command": "touch $TRUTH/shell"}},
        {"name": "write_file", "arguments": {"path": "written", "content": "x"}},
    ]
    model = script(tmp_path, {"tools": calls}, "ok")
    keep = lifecycle(after=[hook("keep", "cp $WORKSPACE/written $TRUTH; true")])
    for given, left in (
        ({"deny": ["execute_command"]}, ["written"]),
        ({"allow": ["read_file"]}, []),
        ({"deny": ["execute_comand"]}, ["shell", "written"]),
    ):
        ran = await ground.run({"toolPolicy": given, **keep}, agent_command=(), model=model)
        assert ran.phase == "Succeeded"
        assert sorted(each.name for each in ground.truth.iterdir()) == left
        for name in left:
            (ground.truth / name).unlink()
    notes = [getattr(each, "note", None) or "" for each in ground.records]
    assert [note for note in notes if "'execute_comand' matches no tool" in note]


async def test_an_environment_does_not_loosen_the_tools(ground, tmp_path):
    model = script(tmp_path, {"tools": [{"name": "bash", "arguments": {"command": "touch $TRUTH/x"}}]}, "ok")
    env = {"TRUTH": str(ground.truth), "TOOL_POLICY_DENY": "nothing"}
    spec = {"toolPolicy": {"deny": ["execute_command"]}, "env": env}
    ran = await ground.run(spec, agent_command=(), model=model)
    assert ran.phase == "Succeeded"
    assert not (ground.truth / "x").exists()


async def test_a_model_that_fails_fails_the_run_and_says_why(ground, tmp_path):
    after = [hook("a", 'printf %s "$AGENT_RESULT" > $TRUTH/result')]
    ran = await ground.run(
        lifecycle(after=after), agent_command=(), model=script(tmp_path, {"error": "quota exceeded"})
    )
    assert ran.phase == "Failed"
    assert "quota exceeded" in ran.status["error"]
    assert "quota exceeded" in ground.said("result")


@pytest.mark.rule("sympozium C13")
async def test_a_dry_run_asks_no_model(ground):
    ran = await ground.run({"dryRun": True}, agent_command=())
    assert ran.phase == "Succeeded"
    assert "look at it" in ran.status["result"]


async def test_a_run_without_a_model_is_told_before_anything_runs(ground):
    with pytest.raises(FileError, match=r"--model provider/name, or --agent-command"):
        await ground.run(lifecycle([hook("a", "touch $TRUTH/a")]), agent_command=())
    assert not (ground.truth / "a").exists()


async def test_a_model_behind_a_network_that_is_not_there_is_told_first(ground):
    spec = {"model": {"provider": "openai", "model": "gpt-4o", "authSecretRef": "k"}}
    if ground.on == "sandbox":
        with pytest.raises(UsageError, match="--network"):
            await ground.run(spec, agent_command=())
    else:
        ran = await ground.run(spec, agent_command=())
        assert "OPENAI_API_KEY" in ran.status["error"]


LEFT = {
    "nothing, exit 0": ("pass", "Succeeded", ""),
    "nothing, exit 3": (
        "import sys; print('gone wrong', file=sys.stderr); sys.exit(3)",
        "Failed",
        "gone wrong",
    ),
    "half a result": (WRITE.format(content='b\'{"status": "succ\''), "Failed", "not whole JSON"),
    "binary": (WRITE.format(content="bytes(range(256)) * 50"), "Failed", "UTF-8"),
    "100 MB": (
        WRITE.format(content='b\'{"status":"success","response":"\' + b"x" * 100_000_000 + b\'"}\''),
        "Failed",
        "at most",
    ),
    "a list": (WRITE.format(content="b'[1]'"), "Failed", "must be an object"),
    "another status": (WRITE.format(content='b\'{"status": "done"}\''), "Failed", "success, error, skipped"),
    "an error and exit 0": (
        WRITE.format(content='b\'{"status":"error","error":"no idea"}\''),
        "Failed",
        "no idea",
    ),
    "success and exit 2": (
        WRITE.format(content='b\'{"status":"success"}\'') + "; raise SystemExit(2)",
        "Failed",
        "2",
    ),
    "a link to a file of ours": (
        "import os; os.symlink('/etc/passwd', os.environ['IPC_DIR'] + '/output/result.json')",
        "Succeeded",
        "",
    ),
    "a pipe": ("import os; os.mkfifo(os.environ['IPC_DIR'] + '/output/result.json')", "Succeeded", ""),
    "a folder that leads out": (
        "import os; d = os.environ['IPC_DIR'] + '/output'; os.rmdir(d); os.symlink('/etc', d)",
        "Succeeded",
        "",
    ),
}


@pytest.mark.rule("sympozium 1.17.21", "sympozium B12")
@pytest.mark.parametrize(("code", "phase", "said"), LEFT.values(), ids=LEFT.keys())
async def test_what_an_agent_leaves_is_taken_for_what_it_is(ground, code, phase, said):
    after = [hook("a", "echo $AGENT_EXIT_CODE > $TRUTH/code")]
    ran = await ground.run(lifecycle(after=after), agent_command=python(code))
    assert ran.phase == phase
    assert said in ran.status.get("error", "")
    assert ran.status.get("result", "") == ""
    assert (ground.said("code") == "0\n") is (phase == "Succeeded")


@pytest.mark.rule("sympozium 1.17.21", "sympozium 5.4")
async def test_without_a_file_the_marker_in_the_output_is_the_result(ground):
    code = (
        "print('noise\\n' * 900); import json;"
        "print('__SYMPOZIUM_RESULT__' + json.dumps({'status': 'success', 'response': 'from the marker'})"
        " + '__SYMPOZIUM_END__'); print('bye')"
    )
    ran = await ground.run({}, agent_command=python(code))
    assert (ran.phase, ran.status["result"]) == ("Succeeded", "from the marker")


@pytest.mark.rule("sympozium B12", "sympozium C14")
async def test_the_file_counts_above_the_marker_and_a_broken_file_not(ground):
    marker = 'print(\'__SYMPOZIUM_RESULT__{"status":"success","response":"printed"}__SYMPOZIUM_END__\')'
    whole = WRITE.format(content='b\'{"status":"success","response":"filed"}\'')
    both = await ground.run({}, agent_command=python(f"{marker}; {whole}"))
    broken = await ground.run({}, agent_command=python(f"{marker}; {WRITE.format(content=repr(b'{'))}"))
    assert (both.status["result"], broken.status["result"]) == ("filed", "printed")


async def test_an_agent_that_is_not_there_fails_the_run_and_says_so(ground):
    ran = await ground.run(lifecycle(after=[hook("a", "touch $TRUTH/a")]), agent_command=("no-such-agent",))
    assert ran.phase == "Failed"
    assert "no-such-agent" in ran.status["error"]
    assert (ground.truth / "a").exists()


@pytest.mark.rule("sympozium X6")
async def test_a_secret_that_an_agent_prints_is_in_no_record(ground, tmp_path):
    file = tmp_path / "secrets"
    file.write_text("pagerduty/token=very-secret-word\n")
    ref = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "pagerduty", "key": "token"}}}
    ran = await ground.run(
        lifecycle(after=[hook("b", "echo $T; exit 1", env=[ref])]),
        agent_command=("sh", "-c", "echo very-secret-word >&2; exit 1"),
        secrets=str(file),
    )
    assert ran.phase == "Failed"
    assert "very-secret-word" not in json.dumps(ran.status)
    assert "very-secret-word" not in str(ground.records)


async def test_the_agents_own_python_is_this_one(ground, tmp_path):
    place = Mount(target=str(ground.truth), source=str(ground.truth))
    model = script(
        tmp_path,
        {
            "tools": [
                {
                    "name": "bash",
                    "arguments": {
                        "command": "tr '\\0' '\\n' < /proc/$PPID/cmdline > $TRUTH/who; echo ${OPENAI_API_KEY-none} > $TRUTH/key"
                    },
                }
            ]
        },
        "ok",
    )
    ran = await ground.run({}, agent_command=(), model=model, mounts=(place,))
    assert ran.phase == "Succeeded"
    assert sys.executable in ground.said("who")
    assert ground.said("key") == "none\n"
