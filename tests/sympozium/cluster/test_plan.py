"""Whole runs in a cluster in memory: what is seen of them on the way, what containers are told, and how they end."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from hookline.kube.objects import CLAIM, EVENT, JOB, POD, ROLE, ROLE_BINDING, SANDBOX, SECRET
from hookline.kube.pod_state import Workload
from hookline.sympozium.cluster.objects import FOLLOWED, RunObjects
from hookline.sympozium.cluster.observation import (
    ANSWER_LOST,
    FINALIZER,
    MOST_KEPT,
    Record,
    World,
    frozen_of,
    read,
    spec_of,
)
from hookline.sympozium.cluster.plan import plan
from hookline.sympozium.phases import digest
from hookline.sympozium.run.agent import BEGIN, END
from hookline.sympozium.types import GROUP
from tests.kube.memory_cluster import START, Play
from tests.sympozium.cluster.scenes import (
    PULL,
    RULES,
    SCENES,
    both,
    gate,
    over_time,
    sandboxed,
    scene,
    skipped,
    verdict,
)
from tests.sympozium.cluster.world import NAMESPACE, SETTINGS, Scene, agent_run, answered, hook

ALL = ["pre-a", "pre-b", "agent", "post-c", "post-d", "post-e"]
AFTER = ["post-c", "post-d", "post-e"]

# What happens: the phases, the containers that began, the end of the error, the hooks that failed.
ENDINGS: dict[str, tuple[list[str], list[str], str, list[str]]] = {
    "no hooks": (["Pending", "Running", "Succeeded"], ["agent"], "", []),
    "hooks before and after": (["Pending", "Running", "PostRunning", "Succeeded"], ALL, "", []),
    "the second hook before fails": (
        ["Pending", "PostRunning", "Failed"],
        ["pre-a", "pre-b", *AFTER],
        "preRun hook 'b' failed: exit code 3",
        ["b"],
    ),
    "the second hook before hangs": (
        ["Pending", "PostRunning", "Failed"],
        ["pre-a", "pre-b", *AFTER],
        "preRun hook 'b' failed: passed its limit of 300 s",
        ["b"],
    ),
    "an image before cannot be had": (
        ["Pending", "PostRunning", "Failed"],
        ["pre-a", *AFTER],
        "preRun hook 'b' failed: could not start (the image 'busybox:1.36' cannot be pulled: Back-off pulling image)",
        ["b"],
    ),
    "the agent fails": (
        ["Pending", "Running", "PostRunning", "Failed"],
        ALL,
        "agent exited with code 7: it broke",
        [],
    ),
    "the agent takes too long": (["Pending", "Running", "PostRunning", "Failed"], ALL, "timeout", []),
    "the agent is killed for its memory": (
        ["Pending", "Running", "PostRunning", "Failed"],
        ALL,
        "OOMKilled: it passed its memory limit",
        [],
    ),
    "the first hook after fails": (["Pending", "Running", "PostRunning", "Succeeded"], ALL, "", ["c"]),
    "the second hook after hangs": (["Pending", "Running", "PostRunning", "Succeeded"], ALL, "", ["d"]),
    "an image after cannot be had": (
        ["Pending", "Running", "PostRunning", "Succeeded"],
        ["pre-a", "pre-b", "agent", "post-c", "post-e"],
        "",
        ["d"],
    ),
    "a hook after is put away by its node": (
        ["Pending", "Running", "PostRunning", "Succeeded"],
        ALL,
        "",
        ["c"],
    ),
    "nothing to do": (["Pending", "Running", "Skipped"], ["pre-a", "pre-b", "agent"], "", []),
    "a gate that approves and waits on": (
        ["Pending", "Running", "PostRunning", "Succeeded"],
        ["pre-a", "agent", "post-ask", "post-c", "post-d"],
        "",
        [],
    ),
    "a gate that rejects and ends": (
        ["Pending", "Running", "PostRunning", "Succeeded"],
        ["pre-a", "agent", "post-ask", "post-c", "post-d"],
        "",
        [],
    ),
    "a gate that says nothing": (
        ["Pending", "Running", "PostRunning", "Succeeded"],
        ["pre-a", "agent", "post-ask", "post-c", "post-d"],
        "",
        [],
    ),
    "in a sandbox": (
        ["Pending", "Running", "PostRunning", "Succeeded"],
        ["pre-a", "agent", "post-c", "post-d"],
        "",
        [],
    ),
}


@pytest.mark.statement("SZ4", "SZ7", "SZ9", "SZ10", "SZ11", "SZ14", "SZ15", "SZ18", "SZ27")
@pytest.mark.statement("SZ16", "SZ35", "SZ36", "SZ64", "SZ70", "SZ71", "SZ72")
@pytest.mark.rule(
    "sympozium 1.17.1",
    "sympozium 1.17.2",
    "sympozium 1.17.3",
    "sympozium 1.17.7",
    "sympozium 1.17.8",
    "sympozium 1.17.9",
    "sympozium 1.17.12",
    "sympozium 2.1",
    "sympozium B3",
    "sympozium B5",
    "sympozium B9",
    "sympozium B15",
)
@pytest.mark.parametrize("name", ENDINGS)
async def test_a_run_goes_through_its_phases_runs_its_hooks_in_order_and_leaves_nothing(name: str) -> None:
    phases, ran, error, failed = ENDINGS[name]
    done = await SCENES[name]().to_the_end()
    assert done.cluster.phases == phases
    assert done.ran == ran
    assert done.status.get("error", "") == error
    assert [name for name, state in done.hooks.items() if state == "failed"] == failed
    after = [each for each in failed if each in "cde"]
    assert ("PostRunFailed" in done.conditions) == bool(after)
    assert all(repr(each) in done.conditions["PostRunFailed"]["message"] for each in after)
    assert "completedAt" in done.status
    assert done.cluster.left() == []
    assert done.failures == []


def test_every_scene_has_its_ending() -> None:
    assert set(ENDINGS) == set(SCENES)


@pytest.mark.parametrize("name", SCENES)
async def test_after_the_end_another_look_does_nothing(name: str) -> None:
    done = await SCENES[name]().to_the_end()
    calls, run = len(done.cluster.calls), done.now
    assert run is not None
    run["metadata"]["finalizers"] = [FINALIZER]
    await done.look()
    assert [call for call in done.cluster.calls[calls:] if "status" in call] == []
    await done.look()
    assert done.cluster.version == int(run["metadata"]["resourceVersion"])


@pytest.mark.parametrize("name", SCENES)
async def test_looking_twice_at_the_same_changes_nothing_more(name: str) -> None:
    """Level-based: with nothing new to see there is nothing to do, whatever the run is at."""
    playing = SCENES[name]()
    for phase in ("Pending", "Running", "PostRunning"):
        await playing.until(lambda: playing.over or playing.status.get("phase") == phase)  # noqa: B023
        await playing.look()
        await playing.look()
        version = playing.cluster.version
        await playing.look()
        assert playing.cluster.version == version or playing.over, (phase, playing.cluster.calls[-3:])


@pytest.mark.statement("SZ12", "SZ13", "SZ14", "SZ27")
async def test_hooks_after_are_the_init_containers_of_one_job_made_when_the_agent_has_ended() -> None:
    done = await both().to_the_end()
    jobs = [name for name in done.cluster.made if name.startswith("Job/")]
    assert jobs == ["Job/r", "Job/r-postrun"]
    playing = both()
    await playing.until(lambda: "agent" in playing.ran)
    assert [job["metadata"]["name"] for job in playing.cluster.all(JOB)] == ["r"]
    await playing.until(lambda: len(playing.cluster.all(JOB)) == 2)
    job = playing.cluster.all(JOB)[1]
    names = [each["name"] for each in job["spec"]["template"]["spec"]["initContainers"]]
    assert names == ["prepare", *AFTER]
    assert playing.status["exitCode"] == 0 if "exitCode" in playing.status else True


@pytest.mark.rule("sympozium B4", "sympozium 2.1", "sympozium 1.17.8")
async def test_a_further_job_holds_the_hooks_after_one_that_failed() -> None:
    done = await both(post_c=Play(code=1, says="no bucket"), post_d=Play(seconds=None)).to_the_end()
    jobs = [name for name in done.cluster.made if name.startswith("Job/")]
    assert jobs == ["Job/r", "Job/r-postrun", "Job/r-postrun-2", "Job/r-postrun-3"]
    told = {each["name"]: each for each in done.status["hooks"]}
    assert told["c"]["exitCode"] == 1
    assert told["c"]["tail"] == "no bucket"
    assert told["d"]["reason"] == "timed_out"
    assert told["d"]["seconds"] == 300
    assert told["e"]["state"] == "succeeded"
    assert done.status["phase"] == "Succeeded"


@pytest.mark.rule("sympozium B4")
async def test_hooks_after_a_long_run_have_their_whole_time() -> None:
    playing = both(agent=Play(seconds=3000, says=answered("late")), post_c=Play(seconds=290))
    playing.run["spec"]["timeout"] = "1h"
    await playing.to_the_end()
    assert playing.hooks["c"] == "succeeded"


@pytest.mark.statement("SZ30", "SZ31", "SZ32", "SZ41", "SZ42", "SZ43", "SZ44")
@pytest.mark.rule(
    "sympozium 1.17.5", "sympozium 1.17.7", "sympozium 1.17.9", "sympozium B11", "sympozium B10"
)
@pytest.mark.parametrize(
    ("plays", "code", "text"),
    [
        ({}, "0", "the answer"),
        ({"agent": Play(code=7, says="it broke")}, "7", "agent exited with code 7: it broke"),
        ({"agent": Play(seconds=None)}, "1", "timeout"),
        ({"pre-a": Play(code=3)}, "1", "preRun hook 'a' failed: exit code 3"),
        ({"agent": Play(says=answered("costs $5, $(HOME) and $$"))}, "0", "costs $5, $(HOME) and $$"),
    ],
)
async def test_hooks_after_are_told_how_the_agent_ended(plays: dict[str, Play], code: str, text: str) -> None:
    spec = {"env": {"B": "2", "A": "1", "AGENT_RESULT": "mine"}, "agentRef": "oncall"}
    playing = scene(
        plays, spec=spec, preRun=[hook("a")], postRun=[hook("c", env=[{"name": "B", "value": "own"}])]
    )
    playing.instance = {
        "apiVersion": GROUP,
        "kind": "Agent",
        "metadata": {"name": "oncall", "namespace": NAMESPACE},
        "spec": {"agents": {"default": {"model": "gpt-4o"}}},
    }
    await playing.to_the_end()
    identity = {"AGENT_RUN_ID": "r", "INSTANCE_NAME": "oncall", "AGENT_NAMESPACE": NAMESPACE, "A": "1"}
    identity |= {"WORKSPACE": "/workspace", "IPC_DIR": "/ipc"}
    assert playing.env("pre-a") == {**identity, "B": "2"}
    found = playing.env("post-c")
    assert found == {**identity, "B": "own", "AGENT_EXIT_CODE": code, "AGENT_RESULT": text}
    assert list(found)[2:7] == [*list(identity)[:3], "AGENT_EXIT_CODE", "AGENT_RESULT"]


@pytest.mark.statement("SZ33")
@pytest.mark.rule("sympozium 1.17.6", "sympozium B11")
async def test_a_long_answer_is_cut_for_hooks_and_never_inside_a_character() -> None:
    text = "a" + "ä" * (20 * 1024)
    done = await both(agent=Play(says=answered(text))).to_the_end()
    assert done.env("post-c")["AGENT_RESULT"] == "a" + "ä" * (16 * 1024 - 1)
    assert done.status["result"] == text


@pytest.mark.parametrize("letter", ["x", '"', "\n", "\x01", "ä"])
async def test_an_answer_of_1_MB_is_kept_as_far_as_an_object_can_hold_it_and_that_is_told(
    letter: str,
) -> None:
    whole = letter * (1_000_000 // len(letter.encode()))
    playing = both(agent=Play(says=answered(whole)))
    playing.run["spec"]["task"] = "t" * 200 * 1024
    done = await playing.to_the_end()
    assert done.status["phase"] == "Succeeded"
    kept = done.status["result"]
    assert whole.startswith(kept)
    assert 16 * 1024 < len(kept.encode()) <= MOST_KEPT
    if letter == "x":
        assert len(kept) == MOST_KEPT
    assert done.conditions["ResultCut"]["message"] == (
        f"the answer has 1000000 bytes, of which the first {len(kept.encode())} are kept"
    )


async def test_a_task_of_200_KiB_is_in_the_record_and_in_no_variable() -> None:
    task = "t" * 200 * 1024
    playing = Scene(run=agent_run(task=task))
    await playing.until(lambda: "agent" in playing.ran)
    (kept,) = playing.cluster.all(SECRET)
    import base64

    assert json.loads(base64.b64decode(kept["data"]["task.json"])) == {"task": task}
    assert "TASK" not in playing.env("agent")
    assert (await playing.to_the_end()).status["phase"] == "Succeeded"


OUTCOMES: list[tuple[str, str, dict[str, Any], str, str]] = [
    (verdict(), "block", {"seconds": None}, "approved", "the answer"),
    (verdict(), "block", {}, "approved", "the answer"),
    (verdict("reject"), "block", {}, "rejected", "Response blocked by policy"),
    (verdict("reject", response="no"), "allow", {"code": 1}, "rejected", "no"),
    (verdict("rewrite", response="mild"), "block", {}, "rewritten", "mild"),
    (verdict("rewrite", response=""), "block", {}, "rewritten", ""),
    ("", "block", {}, "timeout", "Response blocked: gate hook did not return a verdict"),
    ("", "block", {"code": 1}, "error", "Response blocked: gate hook did not return a verdict"),
    ("", "block", {"seconds": None}, "error", "Response blocked: gate hook did not return a verdict"),
    ("", "allow", {}, "allowed-by-default", "the answer"),
    ("", "allow", {"code": 1}, "allowed-by-default", "the answer"),
    ("{no json", "block", {}, "timeout", "Response blocked: gate hook did not return a verdict"),
    (verdict("perhaps"), "block", {}, "timeout", "Response blocked: gate hook did not return a verdict"),
    (verdict(digest=digest("the answer")), "block", {"seconds": None}, "approved", "the answer"),
    (
        verdict(digest=digest("another")),
        "block",
        {},
        "timeout",
        "Response blocked: gate hook did not return a verdict",
    ),
]


@pytest.mark.rule("sympozium 1.14", "sympozium 1.17.17", "sympozium B6", "sympozium B18")
@pytest.mark.parametrize(("said", "default", "play", "label", "result"), OUTCOMES)
async def test_what_a_gate_comes_to(
    said: str, default: str, play: dict[str, Any], label: str, result: str
) -> None:
    done = await gate(said, default=default, **play).to_the_end()
    assert done.status["gateVerdict"] == label
    assert done.status["result"] == result
    assert done.ran == ["pre-a", "agent", "post-ask", "post-c", "post-d"]
    assert done.env("post-ask")["AGENT_RESULT"] == "the answer"
    assert done.env("post-ask")["GATE_MODE"] == "true"
    assert [done.env(each)["AGENT_RESULT"] for each in ("post-c", "post-d")] == [result, result]
    assert "GATE_MODE" not in done.env("post-c")
    assert done.cluster.left() == []


@pytest.mark.rule("sympozium B6", "sympozium X3", "sympozium 1.17.17")
async def test_a_gate_is_alone_in_its_job_and_the_answer_is_nowhere_before_it_is_through() -> None:
    playing = gate(seconds=None)
    await playing.until(lambda: "post-ask" in playing.ran)
    await playing.look()
    job = playing.cluster.all(JOB)[-1]
    names = [each["name"] for each in job["spec"]["template"]["spec"]["initContainers"]]
    assert names == ["prepare", "post-ask"]
    assert "result" not in playing.status
    assert playing.status["gateDigest"] == digest("the answer")
    assert playing.status["phase"] == "PostRunning"
    playing.annotate(verdict())
    await playing.to_the_end()
    assert "gateDigest" not in playing.status
    assert playing.status["gateBy"] == "ada"
    assert playing.ran[-2:] == ["post-c", "post-d"]


@pytest.mark.rule("sympozium X3", "sympozium 1.17.17")
@pytest.mark.parametrize("moment", ["at once", "while the agent runs", "as the agent ends, unseen"])
async def test_a_verdict_from_before_the_answer_was_known_is_void(moment: str) -> None:
    playing = gate()
    if moment == "at once":
        playing.run["metadata"]["annotations"] = {"sympozium.ai/gate-verdict": verdict()}
    else:
        await playing.until(lambda: "agent" in playing.ran)
        if moment == "as the agent ends, unseen":
            await playing.look()
            playing.cluster.now = START.replace(minute=5)
            assert playing.node.beat()
        playing.annotate(verdict())
    await playing.to_the_end()
    assert playing.status["gateVerdict"] in ("timeout", "error")


@pytest.mark.rule("sympozium X3")
async def test_a_verdict_that_is_taken_away_and_given_again_holds() -> None:
    playing = gate(seconds=None)
    playing.run["metadata"]["annotations"] = {"sympozium.ai/gate-verdict": verdict()}
    await playing.until(lambda: "post-ask" in playing.ran)
    for text in ("", verdict()):
        playing.annotate(text)
        await playing.look()
    assert (await playing.to_the_end()).status["gateVerdict"] == "approved"


@pytest.mark.rule("sympozium 1.14")
async def test_a_verdict_after_the_gate_is_through_changes_nothing() -> None:
    playing = gate()
    await playing.until(lambda: "post-d" in playing.ran)
    playing.annotate(verdict())
    assert (await playing.to_the_end()).status["gateVerdict"] == "timeout"


@pytest.mark.rule("sympozium 1.14", "sympozium 1.15")
@pytest.mark.parametrize("agent", [Play(code=1), Play(says=answered("why", status="skipped"))])
async def test_a_gate_has_nothing_to_decide_where_there_is_no_answer(agent: Play) -> None:
    playing = gate(verdict())
    playing.plays["agent"] = agent
    await playing.to_the_end()
    assert "gateVerdict" not in playing.status
    assert ("post-ask" in playing.ran) == bool(agent.code)


@pytest.mark.rule("sympozium 1.15", "sympozium 1.17.18", "sympozium B9")
@pytest.mark.parametrize(
    ("said", "reason"), [("quiet night", "quiet night"), ("", "preRun hook requested skip")]
)
async def test_a_run_with_nothing_to_do_runs_no_hook_after_it_and_says_why(said: str, reason: str) -> None:
    playing = skipped()
    playing.plays["agent"].says = answered(said, status="skipped")
    await playing.to_the_end()
    assert playing.status["result"] == reason
    assert playing.ran == ["pre-a", "pre-b", "agent"]
    assert playing.cluster.left() == []


@pytest.mark.statement("SZ5", "SZ16", "SZ34")
@pytest.mark.rule("sympozium 1.17.1", "sympozium 1.17.3")
async def test_a_workspace_that_lasts_is_made_before_the_job_and_only_for_hooks_after_it() -> None:
    done = await scene(preRun=[hook("a")]).to_the_end()
    assert not any("Claim" in name for name in done.cluster.made)
    playing = scene(postRun=[hook("c")])
    await playing.until(lambda: playing.cluster.all(JOB))
    assert playing.status.get("phase", "Pending") == "Pending"
    assert playing.cluster.made[3:5] == ["PersistentVolumeClaim/r-workspace", "Job/r"]
    await playing.until(lambda: len(playing.cluster.all(POD)) == 2)
    volumes = [pod["spec"]["volumes"][0] for pod in playing.cluster.all(POD)]
    assert volumes == [{"name": "workspace", "persistentVolumeClaim": {"claimName": "r-workspace"}}] * 2
    assert (await playing.to_the_end()).cluster.all(CLAIM) == []


@pytest.mark.statement("SZ6", "SZ47", "SZ50", "SZ53")
@pytest.mark.rule("sympozium 1.17.10", "sympozium X1", "sympozium X2")
async def test_rights_are_made_while_pending_held_through_the_hooks_and_gone_with_the_end() -> None:
    done = await scene(postRun=[hook("c")]).to_the_end()
    assert not any(name.startswith("Role") for name in done.cluster.made)
    playing = both()
    await playing.until(lambda: "pre-a" in playing.ran)
    assert playing.status["phase"] == "Pending"
    (role,), (binding,) = playing.cluster.all(ROLE), playing.cluster.all(ROLE_BINDING)
    assert role["rules"] == RULES
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "sympozium-lifecycle-r"
    await playing.until(lambda: "post-e" in playing.ran)
    assert playing.cluster.all(ROLE) == [role]
    await playing.to_the_end()
    assert playing.cluster.all(ROLE) == playing.cluster.all(ROLE_BINDING) == []


@pytest.mark.rule("sympozium 2.1", "sympozium 1.6")
@pytest.mark.parametrize("refused", ["Role", "RoleBinding", "PersistentVolumeClaim", "Job", "Secret"])
async def test_a_run_for_which_the_cluster_will_not_make_something_fails_with_the_reason(
    refused: str,
) -> None:
    playing = both()
    playing.cluster.refused[refused] = "exceeded quota"
    await playing.to_the_end()
    # Without the record, nothing was told before.
    assert playing.cluster.phases == (["Failed"] if refused == "Secret" else ["Pending", "Failed"])
    assert "exceeded quota" in playing.status["error"]
    assert ("hookline-grantable" in playing.status["error"]) == refused.startswith("Role")
    assert playing.ran == []
    assert "completedAt" in playing.status
    assert playing.cluster.left() == []


async def test_a_job_for_hooks_that_the_cluster_refuses_is_told_and_the_run_ends() -> None:
    playing = both()
    playing.cluster.refused["Job/r-postrun"] = "exceeded quota: pods"
    await playing.to_the_end()
    assert playing.status["phase"] == "Succeeded"
    assert "exceeded quota: pods" in playing.conditions["PostRunFailed"]["message"]
    assert playing.cluster.left() == []


@pytest.mark.rule("sympozium B16", "sympozium 2.2")
@pytest.mark.parametrize(
    "what", ["Job/r", "PersistentVolumeClaim/r-workspace", "Secret/r-record", "Role/sympozium-lifecycle-r"]
)
async def test_what_is_somebody_elses_is_neither_taken_nor_removed(what: str) -> None:
    kind, name = what.split("/")
    playing = both()
    apis = {"Job": "batch/v1", "Role": "rbac.authorization.k8s.io/v1"}
    foreign = {
        "apiVersion": apis.get(kind, "v1"),
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
    }
    if kind == "Job":
        foreign |= {
            "spec": {"activeDeadlineSeconds": 10**6},
            "status": {"conditions": [{"type": "Complete"}]},
        }
    playing.cluster.add(foreign)
    await playing.to_the_end()
    assert playing.status["phase"] == "Failed"
    assert f"there is a {kind} {name!r} already that does not belong to this run" in playing.status["error"]
    assert foreign in playing.cluster.objects.values()
    assert playing.cluster.left() == []


@pytest.mark.rule("sympozium B16", "sympozium 2.2")
async def test_what_is_left_of_an_earlier_run_of_that_name_is_waited_for_and_not_taken() -> None:
    playing = both()
    owner = {"apiVersion": GROUP, "kind": "AgentRun", "name": "r", "uid": "run-0"}
    head = {"name": "r-workspace", "namespace": NAMESPACE, "uid": "old", "ownerReferences": [owner]}
    playing.cluster.add({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": head})
    before = agent_run("r", uid="run-0")
    before["metadata"]["namespace"] = "elsewhere"
    playing.cluster.add(before)
    await playing.until(lambda: playing.failures)
    assert "left over from an earlier run" in playing.failures[0]
    assert playing.cluster.all(JOB) == []
    playing.cluster.remove(before)
    await playing.to_the_end()
    assert playing.status["phase"] == "Succeeded"
    assert playing.cluster.left() == []


@pytest.mark.rule("sympozium 1.4", "sympozium 2.1")
async def test_a_run_waits_a_minute_for_its_agent_and_says_so() -> None:
    playing = Scene(run=agent_run(agentRef="oncall"))
    await playing.until(lambda: playing.status)
    said = "there is no Agent or SympoziumInstance 'oncall' in team"
    assert playing.status["phase"] == "Pending"
    assert playing.conditions["Waiting"]["message"] == said
    version = playing.cluster.version
    await playing.look()
    assert playing.cluster.version == version
    await playing.to_the_end()
    assert playing.status["error"] == said
    assert playing.conditions == {}
    assert (playing.cluster.now - START).total_seconds() == 60


def pack(**member: Any) -> dict[str, Any]:
    head = {"name": "crew", "namespace": NAMESPACE}
    personas = [{"name": "oncall", "model": "gpt-4o", "systemPrompt": "calm", **member}]
    return {"apiVersion": GROUP, "kind": "PersonaPack", "metadata": head, "spec": {"personas": personas}}


@pytest.mark.statement("SZ62")
@pytest.mark.rule("sympozium 1.2", "sympozium X3")
async def test_a_run_has_the_hooks_of_its_agent_as_they_were_when_it_began() -> None:
    playing = Scene(run=agent_run(agentRef="crew-oncall"))
    await playing.until(lambda: playing.status)
    playing.instance = pack(lifecycle={"preRun": [hook("a")], "postRun": [hook("c")]})
    await playing.until(lambda: "agent" in playing.ran)
    assert "Waiting" not in playing.conditions
    playing.instance = None
    await playing.to_the_end()
    assert playing.ran == ["pre-a", "agent", "post-c"]
    assert playing.env("agent")["SYSTEM_PROMPT"] == "calm"
    assert playing.status["phase"] == "Succeeded"


@pytest.mark.rule("sympozium B17", "sympozium 1.4", "sympozium 1.17.16", "sympozium 1.17.19")
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"mode": "server"}, "mode: server is not supported here"),
        ({"agentSandbox": {"enabled": True, "warmPoolRef": "p"}}, "agentSandbox.warmPoolRef"),
        ({"task": None}, "task"),
        ({"task": 3}, "task"),
        ({"lifecycle": {"preRun": [hook("a", gate=True)]}}, "gate"),
        ({"lifecycle": {"postRun": [hook("a", gate=True), hook("b", gate=True)]}}, "gate"),
        ({"lifecycle": {"postRun": [{"name": "a"}]}}, "image"),
    ],
)
async def test_what_cannot_be_run_as_it_is_written_fails_at_once_and_says_what_is_wrong(
    spec: dict[str, Any], said: str
) -> None:
    done = await Scene(run=agent_run(**spec)).to_the_end()
    assert done.cluster.phases == ["Failed"]
    assert said in done.status["error"]
    assert done.cluster.made == ["AgentRun/r"]


async def test_the_built_in_agent_is_not_started_without_a_model() -> None:
    done = await Scene(run=agent_run(), settings=replace(SETTINGS, agent_command="")).to_the_end()
    assert done.status["error"].startswith("the built-in agent has no model")
    named = agent_run(model={"provider": "openai", "model": "gpt-4o"})
    done = await Scene(run=named, settings=replace(SETTINGS, agent_command="")).to_the_end()
    assert done.status["phase"] == "Succeeded"


MODEL = {"provider": "openai", "model": "gpt-4o"}
KEPT = answered("yes").partition("\n")[2]
LOGS = {
    "a whole log": (answered("yes"), "", None),
    "a log that the node lost, and the answer with the container's end": ("", KEPT, None),
    "a log that the node lost": ("", "", ANSWER_LOST),
    "a log that ends before the answer": ("at work\n", "", ANSWER_LOST),
    "an answer too long to be kept with the end": ("", KEPT[20:], ANSWER_LOST),
}


@pytest.mark.parametrize(("says", "leaves", "error"), LOGS.values(), ids=LOGS)
async def test_a_run_whose_answer_was_lost_with_the_log_is_no_success(
    says: str, leaves: str, error: str | None
) -> None:
    after = [{"name": "gate", "image": "i", "gate": True}]
    playing = Scene(
        run=agent_run(model=MODEL, lifecycle={"postRun": after, "gateDefault": "allow"}),
        settings=replace(SETTINGS, agent_command=""),
        plays={"agent": Play(says=says, leaves=leaves)},
    )
    status = (await playing.to_the_end()).status
    assert (status["phase"], status.get("error")) == ("Failed" if error else "Succeeded", error)
    assert status.get("result", "") == ("" if error else "yes")


@pytest.mark.parametrize("deleted", [False, True])
async def test_the_log_of_a_run_that_somebody_follows_is_kept_for_a_moment_after_its_end(
    deleted: bool,
) -> None:
    playing = Scene(run=agent_run())
    playing.run["metadata"]["labels"] = {FOLLOWED: "r"}
    await playing.until(lambda: playing.status.get("phase") == "Succeeded")
    ended = playing.cluster.now
    await playing.look()
    assert len(playing.cluster.all(POD)) == 1
    if deleted:
        playing.delete_run()
    await playing.to_the_end()
    waited = (playing.cluster.now - ended).total_seconds()
    assert waited < 1 if deleted else 9 <= waited <= 11
    assert playing.cluster.left() == []


WAITS = {
    "an image": ({"agent": Play(never=PULL)}, "ImageNotPulled", "agent", 45),
    "an image that is never pulled": (
        {"agent": Play(never=("ErrImageNeverPull", "not present"))},
        "ImageNotPulled",
        "agent",
        0,
    ),
    "a secret": (
        {"pre-a": Play(never=("CreateContainerConfigError", 'secret "s" not found'))},
        "CreateContainerConfigError",
        "a",
        45,
    ),
}


@pytest.mark.rule("sympozium 2.1")
@pytest.mark.parametrize("name", WAITS)
async def test_what_keeps_a_container_from_starting_is_told_at_once_and_fails_within_a_minute(
    name: str,
) -> None:
    plays, reason, who, seconds = WAITS[name]
    playing = scene(plays, preRun=[hook("a")], postRun=[hook("c")])
    if seconds:
        await playing.until(lambda: "Waiting" in playing.conditions)
        assert playing.conditions["Waiting"]["reason"] == reason
        await playing.look()
        version = playing.cluster.version
        await playing.look()
        assert playing.cluster.version == version
    began = playing.cluster.now
    await playing.to_the_end()
    assert playing.status["phase"] == "Failed"
    assert playing.ran[-1:] == ["post-c"]
    assert (playing.cluster.now - began).total_seconds() <= seconds + 10
    assert "Waiting" not in playing.conditions
    assert (who == "agent") == ("cannot be pulled" in playing.status["error"])
    events = [each["reason"] for each in playing.cluster.all(EVENT)]
    assert not seconds or reason in events


@pytest.mark.rule("sympozium 2.1")
async def test_a_pod_that_gets_no_place_is_told_at_once_and_given_up_after_ten_minutes() -> None:
    playing = both()
    playing.node.full = "0/1 nodes are available: 1 Insufficient cpu."
    await playing.until(lambda: "Waiting" in playing.conditions)
    assert playing.conditions["Waiting"]["message"] == playing.node.full
    await playing.until(lambda: (playing.cluster.now - START).total_seconds() >= 600 or playing.over)
    playing.node.full = ""
    await playing.to_the_end()
    assert playing.status["error"].startswith("0/1 nodes")
    assert playing.ran == AFTER


async def test_a_job_of_which_the_cluster_makes_no_pod_is_told_and_given_up() -> None:
    playing = both()
    playing.node.asleep = True
    await playing.until(lambda: "Waiting" in playing.conditions)
    assert playing.conditions["Waiting"]["reason"] == "NoPod"
    await playing.to_the_end()
    assert playing.status["error"] == "the cluster has created no pod for it"
    assert playing.cluster.left() == []


@pytest.mark.rule("sympozium 2.2")
async def test_a_pod_that_was_deleted_on_a_node_that_does_not_answer_is_given_up_after_a_minute() -> None:
    playing = both(agent=Play(seconds=None))
    playing.run["spec"]["timeout"] = "24h"
    await playing.until(lambda: playing.status.get("phase") == "Running")
    playing.node.lost = True
    playing.delete_all(POD)
    await playing.to_the_end()
    assert playing.status["phase"] == "Failed"
    assert playing.ran == ALL
    assert (playing.cluster.now - START).total_seconds() < 180


@pytest.mark.rule("sympozium B7", "sympozium 2.2")
async def test_a_job_that_was_gone_before_it_was_read_ends_the_run_and_its_hooks_run() -> None:
    playing = both()
    await playing.until(lambda: "agent" in playing.ran)
    await playing.look()
    for kind in (JOB, POD):
        for each in playing.cluster.all(kind):
            del playing.cluster.objects[(kind.kind, NAMESPACE, each["metadata"]["name"])]
    playing.cluster.version += 1
    await playing.to_the_end()
    assert playing.status["phase"] == "Failed"
    assert playing.status["error"] == "it was deleted before it ended"
    assert playing.ran == ALL


@pytest.mark.rule("sympozium 2.3", "sympozium 1.17.20")
@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Skipped"])
async def test_an_ended_run_whose_job_is_gone_keeps_its_status(phase: str) -> None:
    playing = both()
    told = {"phase": phase, "error": "a more precise reason", "observedGeneration": 1}
    playing.run |= {"status": dict(told)}
    playing.run["metadata"]["finalizers"] = [FINALIZER]
    await playing.to_the_end()
    assert playing.status == told
    assert playing.ran == []


@pytest.mark.rule("sympozium B8")
@pytest.mark.parametrize("length", [55, 60, 61, 62, 63])
async def test_a_run_with_a_long_name_has_objects_with_right_names_of_their_own(length: int) -> None:
    name = "r" * (length - 1) + "1"
    playing = Scene(run=agent_run(name, lifecycle={"postRun": [hook("c"), hook("d")], "rbac": RULES}))
    playing.plays["post-c"] = Play(code=1)
    await playing.to_the_end()
    assert playing.failures == []
    assert playing.status["phase"] == "Succeeded"
    assert playing.ran == ["agent", "post-c", "post-d"]
    made = [each for each in playing.cluster.made if each.startswith("Job/")]
    assert len(set(made)) == 3
    assert playing.cluster.left() == []


@pytest.mark.rule("sympozium B13")
async def test_with_keep_jobs_and_workspace_stay_as_long_as_the_run_and_rights_do_not() -> None:
    playing = both()
    playing.run["spec"]["cleanup"] = "keep"
    await playing.to_the_end()
    assert {name.split("/")[0] for name in playing.cluster.left()} == {"Job", "PersistentVolumeClaim", "Pod"}
    playing.delete_run()
    await playing.until(lambda: not playing.node.beat())
    assert playing.cluster.left() == []


@pytest.mark.statement("SZ64", "SZ65", "SZ67", "SZ68", "SZ69")
@pytest.mark.rule("sympozium 1.17.13", "sympozium 1.16")
async def test_a_sandbox_holds_hooks_before_and_agent_and_goes_before_the_hooks_after_run() -> None:
    playing = sandboxed()
    await playing.until(lambda: "agent" in playing.ran)
    (box,) = playing.cluster.all(SANDBOX)
    inside = box["spec"]["podTemplate"]["spec"]
    assert [each["name"] for each in inside["initContainers"]] == ["prepare", "pre-a"]
    assert inside["runtimeClassName"] == "gvisor"
    assert playing.cluster.all(JOB) == []
    await playing.until(lambda: playing.cluster.all(JOB))
    assert playing.cluster.all(SANDBOX) == []
    outside = playing.cluster.all(JOB)[0]["spec"]["template"]["spec"]
    assert "runtimeClassName" not in outside
    assert outside["volumes"][0] == inside["volumes"][0]
    await playing.to_the_end()
    assert playing.status["sandboxName"] == "sb-r"
    assert "jobName" not in playing.status


async def test_a_sandbox_that_somebody_removed_fails_the_run_and_its_hooks_run() -> None:
    playing = sandboxed()
    await playing.until(lambda: playing.status.get("phase") == "Running")
    playing.delete_all(SANDBOX)
    await playing.to_the_end()
    assert playing.status["phase"] == "Failed"
    assert playing.ran[-2:] == ["post-c", "post-d"]


@pytest.mark.rule("sympozium 2.1", "sympozium B5", "sympozium 1.13")
@pytest.mark.parametrize("at", ["pre-b", "agent", "post-d"])
async def test_a_run_deleted_on_its_way_is_ended_has_its_hooks_run_and_goes(at: str) -> None:
    playing = both(**{at.replace("-", "_"): Play(seconds=100)})
    await playing.until(lambda: at in playing.ran)
    playing.delete_run()
    await playing.to_the_end()
    assert playing.now is None
    assert playing.ran[-3:] == AFTER
    code = playing.env("post-c")["AGENT_EXIT_CODE"]
    assert (code == "0") == (at == "post-d")
    assert playing.cluster.left() == []


async def test_secrets_of_hooks_are_masked_in_what_is_kept_and_told() -> None:
    playing = scene(
        {"pre-a": Play(code=1, says="login with hunter2hunter2 failed")},
        preRun=[hook("a", env=[{"name": "DB_PASSWORD", "value": "hunter2hunter2"}])],
    )
    await playing.to_the_end()
    assert "hunter2" not in json.dumps(playing.status)
    assert "login with" in json.dumps(playing.status)


async def test_the_record_is_what_a_new_operator_goes_on_from() -> None:
    import base64

    playing = over_time()
    await playing.until(lambda: playing.status.get("phase") == "PostRunning")
    (kept,) = playing.cluster.all(SECRET)
    found = read({key: base64.b64decode(value).decode() for key, value in kept["data"].items()})
    assert found.agent is not None
    assert found.agent.over
    assert found.agent.ended
    assert found.seen.agent.reason == "timed_out"


@pytest.mark.parametrize(
    ("given", "name"),
    [({"systemPrompt": "x" * 120_000}, "SYSTEM_PROMPT"), ({"env": {"NOTES": "x" * 120_000}}, "NOTES")],
)
async def test_a_text_that_no_variable_can_hold_ends_the_run_with_the_reason(given, name):
    ran = Scene(run=agent_run(**given))
    await ran.to_the_end()
    assert ran.status["phase"] == "Failed"
    assert name in ran.status["error"]
    assert ran.ran == []


def test_an_agent_that_was_quicker_than_our_look_is_shown_as_running_all_the_same():
    run = agent_run()
    frozen = frozen_of(run, None)
    job = RunObjects(spec_of(frozen), "run-1", SETTINGS).agent_job()
    job["metadata"] |= {"uid": "job-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    ended = {"exitCode": 0, "startedAt": "2026-01-01T00:00:01Z", "finishedAt": "2026-01-01T00:00:02Z"}
    status = {"name": "agent", "state": {"terminated": ended}}
    prepared = {"name": "prepare", "state": {"terminated": ended}}
    owner = {"kind": "Job", "name": "r", "uid": "job-1"}
    pod = {
        "metadata": {"name": "r-x", "uid": "pod-1", "ownerReferences": [owner], "creationTimestamp": START},
        "status": {"containerStatuses": [status], "initContainerStatuses": [prepared]},
    }
    world = World(
        run={**run, "status": {"phase": "Pending"}},
        now=datetime(2026, 1, 1, 1, tzinfo=UTC),
        settings=SETTINGS,
        record=Record(frozen=frozen, agent=Workload(name="r", uid="job-1")),
        jobs=[job],
        pods=[pod],
        logs={("pod-1", "agent"): answered("done"), ("pod-1", "prepare"): ""},
    )
    first = plan(world)
    assert (first.status["phase"], first.record, first.make) == ("Running", None, ())
    then = plan(replace(world, run={**run, "status": first.status}))
    assert (then.status["phase"], then.status["result"]) == ("Succeeded", "done")


async def test_secrets_of_a_run_are_masked_in_why_its_agent_failed():
    said = json.dumps({"status": "error", "error": "login with very-secret-word was refused"})
    plays = {"agent": Play(code=1, says=f"{BEGIN}{said}{END}\n")}
    done = await Scene(run=agent_run(env={"API_TOKEN": "very-secret-word"}), plays=plays).to_the_end()
    assert done.status["phase"] == "Failed"
    assert "was refused" in done.status["error"]
    assert "very-secret-word" not in json.dumps(done.status) + json.dumps(done.cluster.all(EVENT))
