"""The agents that a pack makes, and the runs that go."""

import copy
from typing import Any

import pytest

from hookline.sympozium.cluster.controller import members, outdated
from hookline.sympozium.types import GROUP
from tests.sympozium.cluster.world import NAMESPACE, hook

HOOK = hook("c", args=["-v"], timeout="2m", env=[{"name": "A", "value": "1"}])
RULE = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}


def pack(*personas: dict[str, Any], kind: str = "PersonaPack", **spec: Any) -> dict[str, Any]:
    word = "personas" if kind == "PersonaPack" else "agentConfigs"
    head = {"name": "crew", "namespace": NAMESPACE, "uid": "pack-1"}
    return {"apiVersion": GROUP, "kind": kind, "metadata": head, "spec": {word: list(personas), **spec}}


def member(name: str = "oncall", **more: Any) -> dict[str, Any]:
    return {"name": name, "systemPrompt": "calm", "lifecycle": {"postRun": [HOOK], "rbac": [RULE]}, **more}


def stored(agents: Any) -> list[dict[str, Any]]:
    """Agents as the server has them: with what it fills in."""
    found = copy.deepcopy(list(agents))
    for each in found:
        each["metadata"] |= {"uid": f"uid-{each['metadata']['name']}", "resourceVersion": "7"}
        lifecycle = each["spec"]["agents"]["default"].get("lifecycle")
        if lifecycle is not None:
            lifecycle.setdefault("gateDefault", "block")
            for one in lifecycle.get("postRun", ()):
                one.setdefault("imagePullPolicy", "IfNotPresent")
    return found


@pytest.mark.statement("SZ62")
@pytest.mark.rule("sympozium K7", "sympozium K8", "sympozium 1.2")
def test_every_member_becomes_an_agent_with_its_whole_lifecycle() -> None:
    found = members(pack(member(), member("night")), [])
    assert [each["metadata"]["name"] for each in found.put] == ["crew-oncall", "crew-night"]
    default = found.put[0]["spec"]["agents"]["default"]
    assert default["lifecycle"] == member()["lifecycle"]
    assert found.put[0]["metadata"]["labels"]["sympozium.ai/ensemble"] == "crew"
    assert found.put[0]["metadata"]["labels"]["sympozium.ai/agent-config"] == "oncall"
    assert found.status["phase"] == "Ready"
    assert found.status["personaCount"] == 2


@pytest.mark.rule("sympozium K8")
def test_an_ensemble_is_off_until_it_is_enabled_and_one_that_is_turned_off_takes_its_agents_along() -> None:
    off = members(pack(member(), kind="Ensemble"), [])
    assert (off.put, off.status["phase"]) == ((), "Disabled")
    on = members(pack(member(), kind="Ensemble", enabled=True), [])
    assert len(on.put) == 1
    assert len(members(pack(member(), kind="Ensemble", enabled=False), stored(on.put)).remove) == 1


def test_an_agent_that_is_as_it_should_be_is_left_as_it_is() -> None:
    have = stored(members(pack(member()), []).put)
    assert members(pack(member()), have).put == ()


CHANGES: dict[str, dict[str, Any]] = {
    "another prompt": member(systemPrompt="calmer"),
    "a prompt less": {key: value for key, value in member().items() if key != "systemPrompt"},
    "no hooks": {key: value for key, value in member().items() if key != "lifecycle"},
    "a hook more": member(lifecycle={"postRun": [HOOK, hook("d")], "rbac": [RULE]}),
    "a right less": member(lifecycle={"postRun": [HOOK]}),
    "a limit less": member(
        lifecycle={"postRun": [{k: v for k, v in HOOK.items() if k != "timeout"}], "rbac": [RULE]}
    ),
    "a variable less": member(lifecycle={"postRun": [{**HOOK, "env": []}], "rbac": [RULE]}),
    "a gate": member(lifecycle={"postRun": [{**HOOK, "gate": True}], "rbac": [RULE]}),
}


@pytest.mark.rule("sympozium 2.3", "sympozium C9")
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_pack_converges_to_what_a_new_one_makes_and_then_rests(name: str) -> None:
    have = stored(members(pack(member()), []).put)
    changed = pack(CHANGES[name])
    (put,) = members(changed, have).put
    assert put == members(changed, []).put[0]
    assert members(changed, stored([put])).put == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda agent: agent["spec"]["agents"]["default"].pop("lifecycle"),
        lambda agent: agent["spec"]["agents"]["default"].update(systemPrompt="mine"),
        lambda agent: agent["metadata"]["labels"].clear(),
    ],
)
def test_what_somebody_changed_in_an_agent_of_a_pack_is_put_right(change: Any) -> None:
    (have,) = stored(members(pack(member()), []).put)
    change(have)
    assert len(members(pack(member()), [have]).put) == 1


def test_the_agent_of_a_member_that_is_no_more_goes() -> None:
    have = stored(members(pack(member(), member("night")), []).put)
    found = members(pack(member()), have)
    assert [each["metadata"]["name"] for each in found.remove] == ["crew-night"]
    excluded = members(pack(member(), member("night"), excludePersonas=["night"]), have)
    assert [each["metadata"]["name"] for each in excluded.remove] == ["crew-night"]


@pytest.mark.rule("sympozium B16")
def test_an_agent_of_that_name_that_is_not_the_packs_is_left_alone_and_told() -> None:
    foreign = {"metadata": {"name": "crew-oncall", "namespace": NAMESPACE, "uid": "x"}, "spec": {}}
    found = members(pack(member(), member("night")), [foreign])
    assert [each["metadata"]["name"] for each in found.put] == ["crew-night"]
    assert found.remove == ()
    assert found.status["phase"] == "Error"
    assert "crew-oncall" in found.status["message"]


def test_a_pack_that_cannot_be_read_keeps_the_agents_of_the_last_one_that_could() -> None:
    have = stored(members(pack(member()), []).put)
    found = members(pack(member(lifecycle={"postRun": [{"name": "c"}]})), have)
    assert (found.put, found.remove) == ((), ())
    assert found.status["phase"] == "Error"
    assert "image" in found.status["message"]


def run(name: str, day: int, phase: str, instance: str = "oncall", **head: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "creationTimestamp": f"2026-01-{day:02}T00:00:00Z",
        **head,
    }
    return {"metadata": metadata, "spec": {"agentRef": instance}, "status": {"phase": phase}}


@pytest.mark.rule("sympozium 1.17.22", "sympozium C11", "sympozium 2.3")
def test_the_oldest_ended_runs_go_skipped_ones_too_and_never_one_that_is_active() -> None:
    runs = [
        run("new", 9, "Succeeded"),
        run("skipped", 2, "Skipped"),
        run("active", 1, "PostRunning"),
        run("pending", 1, ""),
        run("failed", 3, "Failed"),
        run("going", 1, "Failed", deletionTimestamp="2026-02-01T00:00:00Z"),
        run("other", 1, "Succeeded", "another"),
    ]
    assert [each["metadata"]["name"] for each in outdated(runs, 1)] == ["skipped", "failed"]
    assert [each["metadata"]["name"] for each in outdated(runs, 2)] == ["skipped"]
    assert outdated(runs, 50) == []
