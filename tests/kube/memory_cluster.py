"""A cluster in memory for the parts of the operator that decide and act: the API server's rules, a clock that only the
test moves, and a node that plays what containers do. Nothing here waits or talks to anybody."""

import base64
import json
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hookline.kube.objects import (
    AGENT_RUN,
    CLAIM,
    JOB,
    POD,
    SANDBOX,
    SECRET,
    AlreadyThere,
    ApiRefused,
    Conflict,
    Kind,
    NotThere,
    kind_of,
)

Object = dict[str, Any]
Key = tuple[str, str, str]

START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_SECRET = 2**20
MOST_OBJECT = 3 * 2**19
GRACE = 10.0
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Crash(Exception):
    """The operator is gone, at once and without a word."""


class PretendCluster:
    """Takes the calls that `Hands` makes. Every change has a number, and `interrupt` is told each one after it is done;
    it may change more, or raise."""

    def __init__(self) -> None:
        self.now = START
        self.objects: dict[Key, Object] = {}
        self.version = 0
        self.logs: dict[tuple[str, str], str] = {}
        self.refused: dict[str, str] = {}
        """What it will not make: a reason by `Kind` or `Kind/name`."""
        self.interrupt: Callable[[int], None] = lambda number: None
        self.phases: list[str] = []
        """Of the run, one after another as they were told."""
        self.calls: list[str] = []
        self.made: list[str] = []

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        return copied(self.objects.get((kind.kind, namespace or "", name)))

    async def create(self, obj: Object) -> Object:
        made = copied(obj)
        kind, head = kind_of(made), made["metadata"]
        key = (kind.kind, head["namespace"], head["name"])
        self.calls.append(f"create {kind.kind}/{head['name']}")
        why = self.refused.get(kind.kind) or self.refused.get(f"{kind.kind}/{head['name']}")
        if why:
            raise ApiRefused(403, why)
        _check(kind, made)
        if key in self.objects:
            raise AlreadyThere(409, f"{kind.plural} {head['name']!r} already exists")
        if kind is SECRET:
            _encode(made)
        self.add(made)
        return copied(made)

    async def patch(
        self,
        kind: Kind,
        name: str,
        namespace: str | None,
        merge: Object,
        *,
        subresource: str = "",
        resource_version: str = "",
    ) -> Object:
        self.calls.append(f"patch {kind.kind}/{name}{f'/{subresource}' if subresource else ''}")
        have = self.objects.get((kind.kind, namespace or "", name))
        if have is None:
            raise NotThere(404, f"{kind.plural} {name!r} not found")
        if resource_version and resource_version != have["metadata"]["resourceVersion"]:
            raise Conflict(409, "the object has been modified")
        change = copied(merge)
        if kind is AGENT_RUN:
            change = {key: value for key, value in change.items() if (key == "status") == bool(subresource)}
        after = _merged(have, change)
        if kind is SECRET:
            _encode(after)
        _check(kind, after)
        if after == have:
            return copied(have)
        if after.get("spec") != have.get("spec"):
            after["metadata"]["generation"] += 1
        have.clear()
        have.update(after)
        self._told_phase(kind, have)
        if _is_let_go(have):
            del self.objects[(kind.kind, namespace or "", name)]
        self._changed(have)
        return copied(have)

    async def delete(
        self, kind: Kind, name: str, namespace: str | None = None, *, uid: str = "", grace: int | None = None
    ) -> bool:
        self.calls.append(f"delete {kind.kind}/{name}")
        have = self.objects.get((kind.kind, namespace or "", name))
        if have is None or (uid and have["metadata"]["uid"] != uid):
            return False
        self.remove(have)
        return True

    async def log(
        self, pod: str, namespace: str | None, container: str, *, tail_lines: int | None = None, **_: Any
    ) -> str | None:
        have = self.objects.get((POD.kind, namespace or "", pod))
        if have is None:
            return None
        text = self.logs.get((have["metadata"]["uid"], container), "")
        lines = text.split("\n") if text.endswith("\n") or not text else [*text.split("\n"), ""]
        return "\n".join(lines[-(tail_lines or 10**9) - 1 :])

    def add(self, made: Object) -> Object:
        """Put an object there, as it is, with all that the server gives it."""
        head = made["metadata"]
        head.setdefault("uid", f"uid-{self.version + 1}")
        head["creationTimestamp"] = written(self.now)
        head["generation"] = 1
        self.objects[(made["kind"], head["namespace"], head["name"])] = made
        if made["kind"] != "Event":
            self.made.append(f"{made['kind']}/{head['name']}")
        self._changed(made)
        return made

    def remove(self, have: Object) -> None:
        """As the server does it: what is held, runs or is in use is only marked."""
        head = have["metadata"]
        held = bool(head.get("finalizers")) or self._in_use(have)
        if held and head.get("deletionTimestamp"):
            return
        if held:
            grace = GRACE if have["kind"] == POD.kind else 0.0
            head["deletionTimestamp"] = written(self.now + timedelta(seconds=grace))
        else:
            self.objects.pop((have["kind"], head["namespace"], head["name"]), None)
        self._changed(have)

    def touched(self, have: Object) -> None:
        """Something of an object has been changed in place."""
        self._changed(have)

    def all(self, kind: Kind) -> list[Object]:
        return [self.objects[key] for key in sorted(key for key in self.objects if key[0] == kind.kind)]

    def owned(self, kind: Kind, uid: str) -> list[Object]:
        return [each for each in self.all(kind) if uid in _owners(each)]

    def left(self) -> list[str]:
        """What is there besides runs, events and what nobody owns."""
        return sorted(f"{kind}/{name}" for (kind, _, name), each in self.objects.items() if _owners(each))

    def collect(self) -> bool:
        """What belongs to something that is gone goes too; whether there was any."""
        uids = {each["metadata"]["uid"] for each in self.objects.values()}
        for each in list(self.objects.values()):
            ending = each["metadata"].get("deletionTimestamp")
            owners = _owners(each)
            orphaned = owners and not owners & uids
            unused = ending and each["kind"] == CLAIM.kind and not self._in_use(each)
            if (orphaned and not ending) or unused:
                self.remove(each)
                return True
        return False

    def _in_use(self, have: Object) -> bool:
        if have["kind"] == POD.kind:
            over = have["status"]["phase"] in ("Failed", "Succeeded")
            return not over and any("running" in each["state"] for each in statuses(have))
        if have["kind"] != CLAIM.kind:
            return False
        placed = [{"type": "PodScheduled", "status": "True"}]
        users = (pod for pod in self.all(POD) if pod["status"].get("conditions") == placed)
        # Also by one that has ended, as long as it is there.
        return any(claim_of(pod) == have["metadata"]["name"] for pod in users)

    def _told_phase(self, kind: Kind, have: Object) -> None:
        phase = have.get("status", {}).get("phase")
        if kind is AGENT_RUN and phase and [phase] != self.phases[-1:]:
            self.phases.append(phase)

    def _changed(self, have: Object) -> None:
        self.version += 1
        have["metadata"]["resourceVersion"] = str(self.version)
        self.interrupt(self.version)


@dataclass(kw_only=True)
class Play:
    """What one container does. With `never` it does not start, for that reason and with that message."""

    code: int = 0
    seconds: float | None = 1.0
    says: str = ""
    leaves: str = ""
    """What stands in its /dev/termination-log at its end."""
    reason: str = ""
    never: tuple[str, str] | None = None
    evicted: bool = False
    """Its pod is put away instead when its time is up."""
    then: Callable[[], None] = lambda: None
    """What it does to the world while it runs."""


@dataclass(kw_only=True)
class Node:
    """Scheduler, kubelet and the controllers of Jobs and Sandboxes."""

    cluster: PretendCluster
    plays: dict[str, Play]
    ran: list[str] = field(default_factory=list)
    """Containers in the order in which they began; ours are left out."""
    through: list[str] = field(default_factory=list)
    """Those that ended by themselves."""
    seen: dict[str, Object] = field(default_factory=dict)
    """The container as it was made, of each that began."""
    asleep: bool = False
    """Makes no pod of a Job."""
    full: str = ""
    """Why no pod gets a place."""
    lost: bool = False
    """What is ended on it does not go."""
    number: int = 0

    def beat(self) -> bool:
        """One thing that is due now; whether there was any."""
        return any(self._job(job) for job in self.cluster.all(JOB)) or self._others()

    def _others(self) -> bool:
        wholes = self.cluster.all(SANDBOX)
        if any(self._pod_made(each, each["spec"]["podTemplate"]) for each in wholes):
            return True
        return any(self._pod(pod) for pod in self.cluster.all(POD)) or self.cluster.collect()

    def next(self) -> datetime | None:
        """When something will be due that is not now."""
        moments: list[datetime] = []
        for pod in self.cluster.all(POD):
            for status in statuses(pod):
                began, play = status["state"].get("running"), self._play(status["name"])
                if began and play.seconds is not None and not (self.lost and _ending(pod)):
                    moments.append(moment(began["startedAt"]) + timedelta(seconds=play.seconds))
        moments += [
            _deadline(job) for job in self.cluster.all(JOB) if not _conditions(job) and not _ending(job)
        ]
        return min((each for each in moments if each > self.cluster.now), default=None)

    def _play(self, container: str) -> Play:
        return self.plays.get(container, Play())

    def _job(self, job: Object) -> bool:
        if _conditions(job) or _ending(job):
            return False
        pods = self.cluster.owned(POD, job["metadata"]["uid"])
        if _deadline(job) <= self.cluster.now:
            for pod in pods:
                self.cluster.remove(pod)
            return self._finish(job, "Failed", "DeadlineExceeded")
        phases = {pod["status"]["phase"] for pod in pods}
        if "Succeeded" in phases:
            return self._finish(job, "Complete", "")
        if "Failed" in phases:
            return self._finish(job, "Failed", "BackoffLimitExceeded")
        return self._pod_made(job, job["spec"]["template"])

    def _finish(self, job: Object, kind: str, reason: str) -> bool:
        condition = {"type": kind, "status": "True", "reason": reason, "message": "said the controller"}
        job["status"] = {"conditions": [condition]}
        self.cluster.touched(job)
        return True

    def _pod_made(self, whole: Object, template: Object) -> bool:
        head = whole["metadata"]
        own = self.cluster.owned(POD, head["uid"])
        if self.asleep or _ending(whole) or any(not _ending(pod) for pod in own):
            return False
        self.number += 1
        spec = copied(template["spec"])
        waiting = [
            {"name": each["name"], "state": {"waiting": {"reason": "PodInitializing"}}}
            for each in (*spec["initContainers"], *spec["containers"])
        ]
        count = len(spec["initContainers"])
        status = {"phase": "Pending", "conditions": []}
        status |= {"initContainerStatuses": waiting[:count], "containerStatuses": waiting[count:]}
        owner = {"apiVersion": whole["apiVersion"], "kind": whole["kind"]}
        owner |= {"name": head["name"], "uid": head["uid"]}
        metadata = {"name": f"{head['name'][:50]}-p{self.number}", "namespace": head["namespace"]}
        metadata |= {"labels": dict(template["metadata"]["labels"]), "ownerReferences": [owner]}
        self.cluster.add(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
        )
        return True

    def _pod(self, pod: Object) -> bool:
        if pod["status"]["phase"] in ("Succeeded", "Failed"):
            return False
        if _ending(pod):
            return not self.lost and self._ended(pod)
        if why := self._no_place(pod):
            return self._told(pod, [{"type": "PodScheduled", "status": "False", **why}])
        told = self._told(pod, [{"type": "PodScheduled", "status": "True"}])
        return told or self._containers(pod)

    def _no_place(self, pod: Object) -> Object | None:
        if any("waiting" not in each["state"] for each in statuses(pod)):
            return None
        if self.full:
            return {"reason": "Unschedulable", "message": self.full}
        name = claim_of(pod)
        claim = self.cluster.objects.get((CLAIM.kind, pod["metadata"]["namespace"], name or ""))
        if name and (claim is None or _ending(claim)):
            return {"reason": "Unschedulable", "message": f'persistentvolumeclaim "{name}" not found'}
        return None

    def _told(self, pod: Object, conditions: list[Object]) -> bool:
        if pod["status"]["conditions"] == conditions:
            return False
        pod["status"]["conditions"] = conditions
        self.cluster.touched(pod)
        return True

    def _containers(self, pod: Object) -> bool:
        listed = statuses(pod)
        status = next(each for each in listed if "terminated" not in each["state"])
        play = self._play(status["name"])
        if "waiting" in status["state"]:
            return self._begin(pod, status, play)
        began = moment(status["state"]["running"]["startedAt"])
        if play.seconds is None or self.cluster.now < began + timedelta(seconds=play.seconds):
            return False
        if play.evicted:
            # Nothing is told of its containers any more.
            pod["status"] = {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}
        else:
            self._end(status, play.code, play.reason, play.leaves)
            self.through.append(status["name"])
            last = status is listed[-1]
            pod["status"]["phase"] = (
                "Failed" if play.code else "Succeeded" if last else pod["status"]["phase"]
            )
        self.cluster.touched(pod)
        return True

    def _begin(self, pod: Object, status: Object, play: Play) -> bool:
        if play.never:
            reason, message = play.never
            waits = {"waiting": {"reason": reason, "message": message}}
            if status["state"] == waits:
                return False
            status["state"] = waits
            self.cluster.touched(pod)
            return True
        status["state"] = {"running": {"startedAt": written(self.cluster.now)}}
        every = (*pod["spec"]["initContainers"], *pod["spec"]["containers"])
        name = status["name"]
        self.cluster.logs[(pod["metadata"]["uid"], name)] = play.says
        if name not in ("prepare", "done"):
            self.ran.append(name)
            self.seen[name] = next(each for each in every if each["name"] == name)
        if status in pod["status"]["containerStatuses"]:
            pod["status"]["phase"] = "Running"
        play.then()
        self.cluster.touched(pod)
        return True

    def _end(self, status: Object, code: int, reason: str = "", message: str = "") -> None:
        began = status["state"].get("running", {}).get("startedAt", written(self.cluster.now))
        how = {"exitCode": code, "startedAt": began, "finishedAt": written(self.cluster.now)}
        how |= {"message": message} if message else {}
        status["state"] = {"terminated": {**how, "reason": reason or ("Error" if code else "Completed")}}

    def _ended(self, pod: Object) -> bool:
        """One that was told to go: what runs is killed, which is seen, and then it is no more."""
        running = [each for each in statuses(pod) if "running" in each["state"]]
        for status in running:
            self._end(status, 137)
        if running:
            self.cluster.touched(pod)
        else:
            self.cluster.remove(pod)
        return True


def copied(value: Any) -> Any:
    """Much faster than `copy.deepcopy` for what is plain."""
    return pickle.loads(pickle.dumps(value))


def written(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def statuses(pod: Object) -> list[Object]:
    status = pod["status"]
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def claim_of(pod: Object) -> str | None:
    names = (each.get("persistentVolumeClaim", {}).get("claimName") for each in pod["spec"]["volumes"])
    return next((name for name in names if name), None)


def _ending(have: Object) -> bool:
    return bool(have["metadata"].get("deletionTimestamp"))


def _is_let_go(have: Object) -> bool:
    return _ending(have) and not have["metadata"].get("finalizers")


def _owners(have: Object) -> set[str]:
    return {owner["uid"] for owner in have["metadata"].get("ownerReferences", ())}


def _conditions(job: Object) -> list[Object]:
    return job.get("status", {}).get("conditions", [])


def _deadline(job: Object) -> datetime:
    return moment(job["metadata"]["creationTimestamp"]) + timedelta(
        seconds=job["spec"]["activeDeadlineSeconds"]
    )


def _merged(have: Any, change: Any) -> Any:
    """A merge patch: None takes away."""
    if not isinstance(change, dict):
        return change
    after = dict(have) if isinstance(have, dict) else {}
    for key, value in change.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = _merged(after.get(key), value)
    return after


def _encode(secret: Object) -> None:
    texts = secret.pop("stringData", {})
    coded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    secret["data"] = {**secret.get("data", {}), **coded}


def _check(kind: Kind, obj: Object) -> None:
    """What the real one would not take."""
    wrong = "; ".join(_wrong(kind, obj))
    if wrong:
        raise ApiRefused(422, wrong)


def _wrong(kind: Kind, obj: Object) -> list[str]:
    head = obj["metadata"]
    found: list[str] = []
    if len(head["name"]) > (63 if kind is JOB else 253) or not _NAME.fullmatch(head["name"]):
        found.append(f"metadata.name: invalid: {head['name']!r}")
    labels = [*head.get("labels", {}).values()]
    template = obj.get("spec", {}).get("template" if kind is JOB else "podTemplate", {})
    labels += template.get("metadata", {}).get("labels", {}).values()
    found += [f"label: {text!r}" for text in labels if len(text) > 63 or not _LABEL.fullmatch(text)]
    if kind is SECRET:
        size = sum(len(base64.b64decode(value)) for value in obj.get("data", {}).values())
        size += sum(len(text.encode()) for text in obj.get("stringData", {}).values())
        found += [f"data: must have at most {MOST_SECRET} bytes"] if size > MOST_SECRET else []
    if len(json.dumps(obj, ensure_ascii=False).encode("utf-8", "replace")) > MOST_OBJECT:
        found.append("etcdserver: request is too large")
    names = [each["name"] for each in template.get("spec", {}).get("initContainers", ())]
    found += [f"container {name!r}" for name in names if len(name) > 63 or names.count(name) > 1]
    return found
