"""What the operator does about kagent's Agents, against a cluster in memory: made, changed, told, and nothing of others."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from hookline.kagent.controller import AgentController
from hookline.kagent.objects import CONFIG_HASH, Pods
from hookline.kube.objects import KAGENT, MCP_SERVER, Conflict, Kind, NotThere, kind_of
from tests.kagent.test_objects import AUDIT, HOOKS, MODEL, agent
from tests.kube.memory_cluster import Object, PretendCluster, copied

LIMIT = 30.0
PODS = Pods(image="i")
MADE = [
    f"{kind}/hooks-agent" for kind in ("Deployment", "NetworkPolicy", "Secret", "Service", "ServiceAccount")
]


class Watchable(PretendCluster):
    """That can be listed and watched too; `unknown` are kinds that it does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.unknown: set[Kind] = {MCP_SERVER}
        self._events: list[tuple[int, str, Object]] = []

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Any = None
    ) -> tuple[list[Object], str]:
        if kind in self.unknown:
            raise NotThere(404, f"no {kind.plural}")
        return [copied(each) for each in self.all(kind) if _fits(each, kind, labels)], str(self.version)

    async def watch(
        self, kind: Kind, namespace: str | None = None, labels: Any = None, resource_version: str = ""
    ) -> AsyncGenerator[tuple[str, Object], None]:
        seen = int(resource_version or 0)
        while True:
            for number, word, obj in self._events:
                if number > seen and _fits(obj, kind, labels):
                    seen = number
                    yield word, copied(obj)
            await asyncio.sleep(0.005)

    async def replace(self, obj: Object) -> Object:
        head = obj["metadata"]
        have = self.objects[(obj["kind"], head["namespace"], head["name"])]
        if head["resourceVersion"] != have["metadata"]["resourceVersion"]:
            raise Conflict(409, "the object has been modified")
        self.calls.append(f"replace {obj['kind']}/{head['name']}")
        kept = {key: have["metadata"][key] for key in ("uid", "generation", "creationTimestamp")}
        made = {**copied(obj), "metadata": {**copied(head), **kept}, "status": have.get("status", {})}
        made["metadata"]["generation"] += 1
        have.clear()
        have.update(made)
        self.touched(have)
        return copied(have)

    def _changed(self, have: Object) -> None:
        super()._changed(have)
        head = have["metadata"]
        there = (have["kind"], head["namespace"], head["name"]) in self.objects
        self._events.append((self.version, "MODIFIED" if there else "DELETED", copied(have)))

    def conditions(self, name: str = "hooks-agent") -> dict[str, Object]:
        status = self.objects[("Agent", "test", name)].get("status", {})
        return {each["type"]: each for each in status.get("conditions", ())}

    def serves(self, name: str = "hooks-agent") -> None:
        """A node has done its work."""
        have = self.objects[("Deployment", "test", name)]
        counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), 1)
        have["status"] = {"observedGeneration": have["metadata"]["generation"], **counts}
        self.touched(have)


def _fits(obj: Object, kind: Kind, labels: str | None) -> bool:
    have = obj["metadata"].get("labels", {})
    pairs = [each.partition("=") for each in (labels or "").split(",") if each]
    return kind_of(obj) is kind and all(
        have.get(key) == value if equals else key in have for key, equals, value in pairs
    )


@contextlib.asynccontextmanager
async def keeping(cluster: Watchable, pods: Pods = PODS, **more: Any):
    """Keeps the agents while the block runs; waits until something holds."""
    task = asyncio.ensure_future(AgentController(cluster, pods, **more).run())

    async def until(holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(LIMIT):
            while not holds():
                assert not task.done(), task.exception()
                await asyncio.sleep(0.01)

    try:
        yield until
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.fixture
def cluster() -> Watchable:
    made = Watchable()
    made.add(copied(MODEL))
    return made


async def settled(cluster: Watchable) -> None:
    """Nothing more is written for a while."""
    while True:
        before = cluster.version
        await asyncio.sleep(0.3)
        if cluster.version == before:
            return


async def test_an_agent_with_hooks_is_made_once_and_told_when_it_serves(cluster):
    async with keeping(cluster) as until:
        cluster.add(agent())
        await until(lambda: cluster.conditions().get("Accepted", {}).get("status") == "True")
        assert cluster.left() == MADE
        assert cluster.conditions()["Ready"]["status"] == "False"
        cluster.serves()
        await until(lambda: cluster.conditions()["Ready"]["status"] == "True")
        await settled(cluster)
    assert [each for each in cluster.calls if each.startswith("replace")] == []
    assert len([each for each in cluster.calls if each.startswith("create")]) == len(MADE)


async def test_a_second_operator_finds_what_the_first_made_and_changes_nothing(cluster):
    cluster.add(agent())
    async with keeping(cluster) as until:
        await until(lambda: "Ready" in cluster.conditions())
        await settled(cluster)
    cluster.calls.clear()
    async with keeping(cluster):
        await settled(cluster)
    assert cluster.calls == []


async def test_a_change_of_the_agent_or_of_its_model_changes_the_pods(cluster):
    def mark() -> str:
        template = cluster.objects[("Deployment", "test", "hooks-agent")]["spec"]["template"]
        return template["metadata"]["annotations"][CONFIG_HASH]

    cluster.add(agent())
    async with keeping(cluster) as until:
        await until(lambda: "Ready" in cluster.conditions())
        first = mark()
        await cluster.patch(KAGENT, "hooks-agent", "test", {"spec": {"hooks": HOOKS[2:]}})
        await until(lambda: mark() != first)
        command = cluster.objects[("Deployment", "test", "hooks-agent")]["spec"]["template"]["spec"]
        assert command["initContainers"][0]["command"][-1] == f"{AUDIT}=audit-hooks"
        second = mark()
        model = cluster.objects[("ModelConfig", "test", "basic-model")]
        model["spec"] = {**model["spec"], "model": "gpt-5"}
        cluster.touched(model)
        await until(lambda: mark() != second)
        assert cluster.left() == MADE


async def test_a_mistake_is_told_and_what_ran_before_runs_on(cluster):
    cluster.add(agent())
    async with keeping(cluster) as until:
        await until(lambda: "Ready" in cluster.conditions())
        cluster.serves()
        wrong = [{**HOOKS[0], "event": "PreTool"}]
        await cluster.patch(KAGENT, "hooks-agent", "test", {"spec": {"hooks": wrong}})
        await until(lambda: cluster.conditions()["Accepted"]["status"] == "False")
        told = cluster.conditions()
    assert "spec.hooks[0].event: unknown event 'PreTool'" in told["Accepted"]["message"]
    assert "still runs" in told["Accepted"]["message"]
    assert told["Ready"]["status"] == "False", "what serves is not what the agent says now"
    assert cluster.left() == MADE


async def test_a_missing_model_is_made_up_for_when_it_comes(cluster):
    del cluster.objects[("ModelConfig", "test", "basic-model")]
    cluster.add(agent())
    async with keeping(cluster) as until:
        await until(lambda: cluster.conditions().get("Accepted", {}).get("status") == "False")
        assert "there is no ModelConfig 'basic-model'" in cluster.conditions()["Accepted"]["message"]
        cluster.add(copied(MODEL))
        await until(lambda: cluster.conditions()["Accepted"]["status"] == "True")


FOREIGN = {
    "of nobody": {},
    "of another agent": {
        "labels": {"app.kubernetes.io/managed-by": "hookline"},
        "ownerReferences": [{"kind": "Agent", "name": "hooks-agent", "uid": "another"}],
    },
    "of kagent's controller": {
        "labels": {"app.kubernetes.io/managed-by": "kagent"},
        "ownerReferences": [{"kind": "Agent", "name": "hooks-agent", "uid": "uid-of-hooks-agent"}],
    },
}


@pytest.mark.parametrize("head", FOREIGN.values(), ids=FOREIGN.keys())
async def test_what_is_somebody_else_s_is_left_alone_and_told(cluster, head):
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "hooks-agent", "namespace": "test", **head},
        "spec": {"replicas": 7},
    }
    cluster.add(copied(theirs))
    cluster.add(agent())
    async with keeping(cluster) as until:
        await until(lambda: cluster.conditions().get("Accepted", {}).get("reason") == "NameTaken")
        assert "Deployment 'hooks-agent'" in cluster.conditions()["Accepted"]["message"]
        await cluster.patch(KAGENT, "hooks-agent", "test", {"spec": {"hooks": []}})
        await settled(cluster)
    assert cluster.objects[("Deployment", "test", "hooks-agent")]["spec"] == {"replicas": 7}


async def test_hooks_that_are_taken_away_take_what_was_made_along(cluster):
    cluster.add(agent())
    async with keeping(cluster) as until:
        await until(lambda: "Ready" in cluster.conditions())
        await cluster.patch(KAGENT, "hooks-agent", "test", {"spec": {"hooks": []}})
        await until(lambda: cluster.left() == [])


async def test_agents_without_hooks_or_without_the_label_are_none_of_ours(cluster):
    labelled = agent("labelled", hooks=[])
    labelled["metadata"]["labels"] = {"team": "blue"}
    cluster.add(labelled)
    cluster.add(agent())
    async with keeping(cluster, selector="team=blue") as until:
        await until(lambda: "Ready" in cluster.conditions("labelled"))
        await settled(cluster)
    assert cluster.conditions() == {}
    assert cluster.left() == [each.replace("hooks-agent", "labelled") for each in MADE]


async def test_what_the_server_refuses_is_told_in_its_words_and_tried_again(cluster):
    cluster.refused["Deployment"] = "exceeded quota: pods"
    cluster.add(agent())
    async with keeping(cluster) as until:
        await until(lambda: cluster.conditions().get("Accepted", {}).get("reason") == "Refused")
        assert "exceeded quota" in cluster.conditions()["Accepted"]["message"]
        cluster.refused.clear()
        await until(lambda: cluster.conditions()["Accepted"]["status"] == "True")
