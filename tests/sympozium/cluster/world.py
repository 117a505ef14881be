"""One run in a cluster in memory: the operator's hands and a node, turn by turn, until nothing is left to be done."""

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hookline.kube.objects import AGENT_RUN, CLAIM, JOB, POD, SANDBOX, ClusterError, Kind
from hookline.options import OperatorOptions
from hookline.sympozium.cluster.apply import Applier
from hookline.sympozium.cluster.observation import FINALIZER, Record, World
from hookline.sympozium.cluster.plan import Plan
from hookline.sympozium.run.agent import BEGIN, END
from hookline.sympozium.types import GROUP
from tests.kube.memory_cluster import Crash, Node, Object, Play, PretendCluster, copied

SETTINGS = OperatorOptions(image="hookline:test", agent_command="agent")
NAMESPACE = "team"
ENDS = ("Succeeded", "Failed", "Skipped")
_MOST_TURNS = 3000
_KEPT = ("run", "crashes", "wake", "plan", "started", "failures", "_seen_at", "_records")


class Stuck(AssertionError):
    """The run has not ended, and nobody will look at it again."""


def answered(text: str, **more: Any) -> str:
    """What an agent prints that answers with a text."""
    return f"at work\n{BEGIN}{json.dumps({'status': 'success', 'response': text, **more})}{END}\n"


def hook(name: str, **fields: Any) -> Object:
    return {"name": name, "image": "busybox:1.36", **fields}


def agent_run(name: str = "r", uid: str = "run-1", **spec: Any) -> Object:
    head = {"name": name, "namespace": NAMESPACE, "uid": uid}
    return {"apiVersion": GROUP, "kind": "AgentRun", "metadata": head, "spec": {"task": "look", **spec}}


@dataclass(kw_only=True)
class Scene:
    """A run with what its containers do. `crashes` counts how often the operator was gone."""

    run: Object
    plays: dict[str, Play] = field(default_factory=dict)
    settings: OperatorOptions = SETTINGS
    instance: Object | None = None
    policy: Object | None = None
    cluster: PretendCluster = field(default_factory=PretendCluster)
    crashes: int = 0
    forgetful: bool = False
    before_turn: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.plays = {"agent": Play(says=answered("the answer"), seconds=5), **self.plays}
        self.node = Node(cluster=self.cluster, plays=self.plays)
        self.name = self.run["metadata"]["name"]
        self.wake: datetime | None = None
        self.plan: Plan | None = None
        self.started = False
        self._seen_at = -1
        self._restart()

    @property
    def now(self) -> Object | None:
        """The run as the cluster has it, None where it is gone."""
        return self.cluster.objects.get((AGENT_RUN.kind, NAMESPACE, self.name))

    @property
    def status(self) -> Object:
        return (self.now or {}).get("status", {})

    @property
    def conditions(self) -> dict[str, Object]:
        found = self.status.get("conditions", [])
        assert len({each["type"] for each in found}) == len(found), "a condition is told twice"
        return {each["type"]: each for each in found}

    @property
    def hooks(self) -> dict[str, str]:
        """How each hook ended."""
        return {each["name"]: each["state"] for each in self.status.get("hooks", ())}

    @property
    def ran(self) -> list[str]:
        return self.node.ran

    @property
    def over(self) -> bool:
        run = self.now
        if run is None:
            return self.started
        phase = run.get("status", {}).get("phase")
        return phase in ENDS and FINALIZER not in run["metadata"].get("finalizers", ())

    def env(self, container: str) -> dict[str, str]:
        """The variables of a container that began, as the kubelet sets those that have a plain text."""
        listed = self.node.seen[container]["env"]
        return {each["name"]: each["value"].replace("$$", "$") for each in listed if "value" in each}

    def annotate(self, text: str) -> None:
        """Somebody gives a verdict."""
        run = self.now
        assert run is not None
        run["metadata"].setdefault("annotations", {})["sympozium.ai/gate-verdict"] = text
        self.cluster.touched(run)

    def delete_run(self) -> None:
        if self.now is not None:
            self.cluster.remove(self.now)

    def delete_all(self, kind: Kind) -> None:
        """Somebody removes what there is of a kind, by hand."""
        for each in self.cluster.all(kind):
            self.cluster.remove(each)

    async def to_the_end(self) -> "Scene":
        """Play until the run is put away and nothing more happens."""
        await self.until(lambda: self.over)
        return await self.until(lambda: not self.node.beat())

    async def until(self, reached: Any) -> "Scene":
        if not self.started:
            self.started = True
            self.cluster.add(self.run)
        for _ in range(_MOST_TURNS):
            self.before_turn()
            try:
                if reached():
                    return self
                await self._turn()
            except Crash:
                self._restart()
        raise Stuck(f"it does not come to an end: {self.status}")

    def saved(self) -> bytes:
        """All that is of the run between two turns, for `back_to`."""
        own = {name: value for name, value in vars(self).items() if name in _KEPT}
        cluster = {name: value for name, value in vars(self.cluster).items() if name != "interrupt"}
        node = {name: value for name, value in vars(self.node).items() if name not in ("cluster", "plays")}
        return pickle.dumps((own, cluster, node, self._applier._masks))

    def back_to(self, saved: bytes) -> None:
        """Go on from there, as if nothing had been played since."""
        own, cluster, node, masks = pickle.loads(saved)
        self._restart()
        vars(self).update(own)
        vars(self.cluster).update(cluster)
        vars(self.node).update(node)
        self._applier._masks = masks

    async def look(self) -> None:
        """What the operator does when something of the run has changed."""
        run = self.now
        if self.forgetful:
            self._restart()
        self._seen_at = self.cluster.version
        self.wake = None
        if run is None or self.over:
            return
        uid = run["metadata"]["uid"]
        try:
            if uid not in self._records and FINALIZER in run["metadata"].get("finalizers", ()):
                found = await self._applier.read_record(run)
                if found is not None:
                    self._records[uid] = found
            self.plan, record = await self._applier.apply(self._world(run))
        except ClusterError as exc:
            self.failures.append(str(exc))
            self._records.pop(uid, None)
            self.wake = self.cluster.now + timedelta(seconds=1)
            return
        if record is not None:
            self._records[uid] = record
        self.wake = self.plan.wake

    async def _turn(self) -> None:
        due = self.wake is not None and self.wake <= self.cluster.now
        if due or self.cluster.version != self._seen_at:
            await self.look()
            self.node.beat()
            return
        if self.node.beat():
            return
        moments = [each for each in (self.wake, self.node.next()) if each is not None]
        if not moments:
            raise Stuck(f"nobody will look at it again: {self.status}")
        self.cluster.now = max(self.cluster.now, min(moments))

    def _restart(self) -> None:
        """All that is not in the cluster is forgotten."""
        self.crashes += 1
        self._records: dict[str, Record] = {}
        self._applier = Applier(self.cluster, lambda obj: None)  # type: ignore[arg-type]
        self._seen_at = -1
        self.wake = None
        self.failures: list[str] = getattr(self, "failures", [])

    def _world(self, run: Object) -> World:
        cluster, uid = self.cluster, run["metadata"]["uid"]
        jobs, sandboxes = cluster.owned(JOB, uid), cluster.owned(SANDBOX, uid)
        record = self._records.get(uid)
        made = (record.agent, *record.post) if record else ()
        uids = [each["metadata"]["uid"] for each in (*jobs, *sandboxes)]
        uids += [each.uid for each in made if each is not None and each.uid not in uids]
        pods = [pod for each in uids for pod in cluster.owned(POD, each)]
        return World(
            run=copied(run),
            now=cluster.now,
            settings=self.settings,
            record=record,
            instance=self.instance,
            policy=self.policy,
            jobs=copied(jobs),
            pods=copied(pods),
            sandboxes=copied(sandboxes),
            claims=copied(cluster.owned(CLAIM, uid)),
        )
