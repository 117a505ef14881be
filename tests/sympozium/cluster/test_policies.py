"""A SympoziumPolicy on a cluster: it is read from there, holds for the runs of its agents, and a missing one fails them."""

from typing import Any

import pytest

from hookline.kube.objects import JOB
from hookline.kube.operator import RULES
from hookline.sympozium.types import GROUP
from tests.kube.memory_cluster import START
from tests.sympozium.cluster.test_controller import ground
from tests.sympozium.cluster.world import NAMESPACE, Scene, agent_run, hook

IMAGES = {"imagePolicy": {"allowedRegistries": ["ghcr.io/org/"]}}
NO_SHELL = {"toolGating": {"rules": [{"tool": "execute_command", "action": "deny"}]}}


def made(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    head = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
    return {"apiVersion": GROUP, "kind": kind, "metadata": head, "spec": spec}


def agent(**default: Any) -> dict[str, Any]:
    return made("Agent", "oncall", policyRef="strict", agents={"default": {"model": "m", **default}})


async def test_a_run_waits_a_minute_for_its_policy_and_then_fails() -> None:
    playing = Scene(run=agent_run(agentRef="oncall"), instance=agent())
    await playing.until(lambda: playing.status)
    said = "there is no SympoziumPolicy 'strict' in team"
    assert (playing.status["phase"], playing.conditions["Waiting"]["message"]) == ("Pending", said)
    await playing.to_the_end()
    assert (playing.status["phase"], playing.status["error"], playing.ran) == ("Failed", said, [])
    assert (playing.cluster.now - START).total_seconds() == 60


@pytest.mark.parametrize("kind", ["Agent", "Ensemble"])
async def test_a_run_that_breaks_its_policy_fails_before_anything_is_made(kind: str) -> None:
    hooks = {"preRun": [hook("a")]}
    pack = made(
        "Ensemble", "crew", enabled=True, policyRef="strict", agentConfigs=[{"name": "a", "lifecycle": hooks}]
    )
    instance, name = (agent(lifecycle=hooks), "oncall") if kind == "Agent" else (pack, "crew-a")
    playing = Scene(run=agent_run(agentRef=name), instance=instance)
    playing.policy = made("SympoziumPolicy", "strict", **IMAGES)
    await playing.to_the_end()
    assert playing.status["phase"] == "Failed"
    assert "image 'busybox:1.36' is not allowed by the SympoziumPolicy 'strict'" in playing.status["error"]
    assert (playing.ran, playing.cluster.all(JOB)) == ([], [])


async def test_the_policy_as_it_was_when_the_run_began_holds_to_its_end() -> None:
    playing = Scene(run=agent_run(agentRef="oncall"), instance=agent(lifecycle={"postRun": [hook("c")]}))
    playing.policy = made("SympoziumPolicy", "strict", **NO_SHELL)
    await playing.until(lambda: "agent" in playing.ran)
    playing.policy = made("SympoziumPolicy", "strict", **IMAGES)
    await playing.to_the_end()
    assert (playing.status["phase"], playing.ran) == ("Succeeded", ["agent", "post-c"])
    assert playing.env("agent")["TOOL_POLICY_DENY"] == "execute_command"


async def test_the_controller_reads_the_policy_and_wakes_the_runs_that_wait_for_it() -> None:
    async with ground() as there:
        there.cluster.add(agent())
        there.add("r", "run-1", agentRef="oncall")

        def status(name: str) -> dict[str, Any]:
            return (there.run(name) or {}).get("status", {})

        await there.until(lambda: "conditions" in status("r"))
        assert status("r")["conditions"][0]["reason"] == "PolicyNotFound"
        there.cluster.add(made("SympoziumPolicy", "strict", **NO_SHELL))
        await there.until(there.over)
        assert status("r")["phase"] == "Succeeded"
        env = {each["name"]: each.get("value") for each in there.node.seen["agent"]["env"]}
        assert env["TOOL_POLICY_DENY"] == "execute_command"
        there.add("broken", "run-2", agentRef="oncall", toolPolicy={"allow": ["bash"]})
        await there.until(there.over)
        assert "tool 'bash' is denied by the SympoziumPolicy 'strict'" in status("broken")["error"]


def test_the_operator_may_look_at_policies_and_change_none() -> None:
    rules = [rule["verbs"] for rule in RULES if "sympoziumpolicies" in rule["resources"]]
    assert rules == [["get", "list", "watch"]]
