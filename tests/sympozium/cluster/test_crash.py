"""`kill -9` of the operator at random moments, and what is its own removed by hand: every run ends as it should, no hook
is lost or run twice, nothing is left."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hookline.kube.operator import NAME, crds
from hookline.sympozium.cluster.objects import RUN_LABEL, SHARED_ACCOUNT
from hookline.sympozium.cluster.observation import FINALIZER
from tests.kube.fixtures import BUSYBOX, ROOT
from tests.kube.kubectl import Kubectl
from tests.kube.outside import Outside, outside_of_the_cluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

KILLS = 30
LONGEST = 6.0
SHORT, LONGER = 3, 8
"""Seconds of a lease: the next operator waits that long for one that was killed, which a busy machine may well outlast."""
INSTALLED = ("deployment/hookline-operator", "-n", "hookline-system")
ENDS = ("Succeeded", "Failed", "Skipped")
RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A sort of run and its right ending. `before` and `after` are its hooks with what each does besides telling that it
    was called; `called` are those that must be called, the agent among them, and no others may."""

    before: tuple[tuple[str, str], ...] = ()
    agent: str = "sleep 3"
    after: tuple[tuple[str, str], ...] = ()
    more: tuple[tuple[str, Any], ...] = ()
    limits: tuple[tuple[str, str], ...] = ()
    gate: str = ""
    phase: str | None = "Succeeded"
    called: str = ""
    failed: tuple[str, ...] = ()
    """The postRun hooks that are told as failed."""
    removes: str = ""
    """What is removed by hand while `held` waits for somebody; it only goes on if a claim was."""
    held: str = ""
    again: tuple[str, ...] = ()
    """What the cluster may begin anew by itself, in the pod that it puts in place of one that was removed."""

    def __post_init__(self) -> None:
        assert not self.held or self.held == "agent" or self.held in dict(self.after)


TWO = (("c", "sleep 1"), ("d", "sleep 1"))
CASES: dict[str, Case] = {
    "plain": Case(called="agent"),
    "before": Case(before=(("a", "sleep 1"),), called="a agent"),
    "after": Case(after=TWO, called="agent c d"),
    "both": Case(before=(("a", ":"), ("b", "sleep 1")), after=TWO, called="a b agent c d"),
    # Nobody's agent ran, and what has to be cleaned up is cleaned up all the same.
    "wrong-before": Case(before=(("a", "exit 3"), ("b", ":")), after=TWO[:1], phase="Failed", called="a c"),
    "wrong-after": Case(
        after=(("c", "sleep 1"), ("wrong", "exit 1"), ("d", "sleep 1")),
        called="agent c wrong d",
        failed=("wrong",),
    ),
    "skip": Case(
        before=(("a", "echo nothing to do > /ipc/control/skip"),), after=TWO, phase="Skipped", called="a"
    ),
    "gate": Case(
        after=(("c", ":"), ("ask", "sleep 1")),
        gate="ask",
        more=(("gateDefault", "allow"),),
        called="agent ask c",
    ),
    "slow": Case(
        after=(("c", "sleep 600"), ("d", ":")), limits=(("c", "3s"),), called="agent c d", failed=("c",)
    ),
    "granted": Case(
        before=(("a", ":"),), after=(("c", "sleep 1"),), more=(("rbac", RULES),), called="a agent c"
    ),
    "no-agent-pod": Case(
        after=TWO, removes="pod", held="agent", phase="Failed", called="agent c d", again=("agent",)
    ),
    "no-agent-job": Case(after=TWO, removes="job", held="agent", phase="Failed", called="agent c d"),
    # The agent's ending stands; the hook that was cut off is told as failed, and those after it run.
    "no-hook-pod": Case(after=TWO, removes="pod", held="c", called="agent c d", failed=("c",), again=("c",)),
    "no-hook-job": Case(after=TWO, removes="job", held="c", called="agent c d", failed=("c",)),
    # What was in the workspace is gone with it, but nothing else.
    "no-claim-agent": Case(after=TWO, removes="pvc", held="agent", called="agent c d"),
    "no-claim-hook": Case(after=TWO, removes="pvc", held="c", called="agent c d"),
    # Its agent is ended, its hooks run, and then it goes.
    "deleted": Case(after=TWO, removes="agentrun", held="agent", phase=None, called="agent c d"),
}
FLIGHT = (*CASES, "both", "wrong-after", "granted")
REMOVED = {
    "pod": lambda run, held: ["pod", "-l", f"{RUN_LABEL}={run},sympozium.ai/component={_component(held)}"],
    "job": lambda run, held: ["job", "-l", f"{RUN_LABEL}={run},sympozium.ai/component={_component(held)}"],
    "pvc": lambda run, held: ["pvc", "-l", f"{RUN_LABEL}={run}"],
    "agentrun": lambda run, held: ["agentrun", run],
}


def _component(held: str) -> str:
    return "agent-run" if held == "agent" else "post-run"


def manifest(name: str, case: Case, url: str) -> dict[str, Any]:
    def told(word: str, work: str) -> str:
        # Told until it is heard, and counted once: a busy node may break off a connection.
        call = (
            "read me < /proc/sys/kernel/random/uuid;"
            f" until wget -q -O /dev/null {url}/called/{name}/{word}/$me; do sleep 0.1; done"
        )
        hold = f"wget -q -O /dev/null {url}/hold/{name}/{word} & wait $!; "
        return f"{call}; {hold if word == case.held else ''}{work}"

    def hook(word: str, work: str) -> dict[str, Any]:
        limit = dict(case.limits).get(word)
        return {
            "name": word,
            "image": BUSYBOX,
            "command": ["sh", "-c", f'trap "exit 143" TERM; {told(word, work)}'],
            **({"timeout": limit} if limit else {}),
            **({"gate": True} if word == case.gate else {}),
        }

    lifecycle = {
        "preRun": [hook(*each) for each in case.before],
        "postRun": [hook(*each) for each in case.after],
        **dict(case.more),
    }
    spec = {"task": "look", "env": {"WORK": told("agent", case.agent)}}
    return {
        "apiVersion": "sympozium.ai/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": name},
        "spec": {**spec, "lifecycle": {key: value for key, value in lifecycle.items() if value}},
    }


class Field:
    """One namespace with its runs, and the operators that come and go."""

    def __init__(self, kubectl: Kubectl, kubeconfig: str, image: str, folder: Path, outside: Outside) -> None:
        self.kubectl, self.outside, self.folder = kubectl, outside, folder
        self.runs: dict[str, Case] = {}
        self._words = [
            sys.executable,
            "-m",
            "tests.sympozium.cluster.operator",
            kubeconfig,
            image,
            kubectl.name,
        ]
        self._started: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def start(self, seconds: int = SHORT) -> "Operating":
        log = self.folder / f"operator-{len(self._started)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*self._words, str(seconds)],
                cwd=ROOT,
                env={**os.environ, "FIELD_MARK": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self._started.append(process)
        return Operating(process, log)

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()

    def let_go(self) -> None:
        """What a test that failed has left must not keep the namespace for ever."""
        for name, run in self.all().items():
            if run["metadata"].get("finalizers"):
                change = '{"metadata": {"finalizers": null}}'
                self.kubectl("patch", "agentrun", name, "--type=merge", "-p", change)

    def submit(self, sort: str) -> str:
        name = f"{sort}-{len(self.runs)}"
        self.kubectl.well("create", given=manifest(name, CASES[sort], self.outside.url))
        with self._lock:
            self.runs[name] = CASES[sort]
        return name

    def all(self) -> dict[str, dict[str, Any]]:
        return {each["metadata"]["name"]: each for each in self.kubectl.get("agentruns")["items"]}

    def one(self, name: str) -> dict[str, Any]:
        return self.all().get(name, {})

    def phase(self, name: str) -> str:
        return self.one(name).get("status", {}).get("phase", "")

    def victims(self) -> list[str]:
        with self._lock:
            return [name for name, case in self.runs.items() if case.removes]

    def ended(self) -> bool:
        return all(
            each.get("status", {}).get("phase") in ENDS
            and FINALIZER not in each["metadata"].get("finalizers", ())
            for each in self.all().values()
        )

    def calls(self) -> Counter[tuple[str, str]]:
        paths = {tuple(each.path.split("/")) for each in self.outside.asked}
        return Counter((run, word) for _, _, run, word, _ in (path for path in paths if path[1] == "called"))

    def left(self) -> list[str]:
        """All that was made for runs and is still there."""
        kinds = "jobs,pods,pvc,secrets,roles,rolebindings,serviceaccounts"
        found = self.kubectl.get(kinds)["items"]
        return [
            f"{each['kind']} {each['metadata']['name']}" for each in found if not _is_the_namespaces(each)
        ]

    def processes(self) -> list[str]:
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and self._is_ours(pid)]

    def _is_ours(self, pid: str) -> bool:
        try:
            return f"FIELD_MARK={self.folder}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    def logs(self) -> str:
        return "".join(file.read_text() for file in sorted(self.folder.glob("operator-*.log")))


@dataclass(frozen=True, slots=True)
class Operating:
    """An operator at work, or one that was."""

    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def count(self, words: str) -> int:
        return self.log.read_text().count(words)

    def leads(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return self.count(" is the leader") > self.count("is no longer the leader")

    def acts(self) -> bool:
        return self.leads() and self.count(" is the leader") == self.count(" watching ")


def _is_the_namespaces(each: dict[str, Any]) -> bool:
    """Whether an object comes with the namespace, or is shared by its runs."""
    name = each["metadata"]["name"]
    if each["kind"] == "Secret":
        account = each["metadata"].get("annotations", {}).get("kubernetes.io/service-account.name")
        return account in ("default", SHARED_ACCOUNT)
    return each["kind"] == "ServiceAccount" and name in ("default", SHARED_ACCOUNT)


def until(holds: Callable[[], bool], why: str | Callable[[], str], limit: float = 300) -> None:
    ends = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < ends, why if isinstance(why, str) else why()
        time.sleep(0.1)


@pytest.fixture(scope="module")
def defined(kubeconfig, tmp_path_factory) -> Iterator[Kubectl]:
    """A cluster that knows our kinds, and in which no operator of ours works."""
    kubectl = Kubectl(kubeconfig, tmp_path_factory.mktemp("kubectl"))
    kubectl.define(crds())
    found = kubectl("get", *INSTALLED, "-o", "jsonpath={.spec.replicas}")
    if found.code != 0:
        assert "NotFound" in found.err, found.err
        yield kubectl
        return
    kubectl.well("scale", *INSTALLED, "--replicas=0")
    try:
        kubectl.well("rollout", "status", *INSTALLED, "--timeout=180s")
        pods = ("get", "pods", "-n", "hookline-system", "-o", "name")
        until(lambda: not kubectl.well(*pods), "the installed operator does not go")
        yield kubectl
    finally:
        kubectl.well("scale", *INSTALLED, f"--replicas={found.out}")
        kubectl.well("rollout", "status", *INSTALLED, "--timeout=180s")


@pytest.fixture
def field(defined, kubeconfig, image, tmp_path) -> Iterator[Field]:
    with outside_of_the_cluster() as outside, defined.namespace() as kubectl:
        made = Field(kubectl, kubeconfig, image, tmp_path, outside)
        try:
            yield made
        finally:
            made.close()
            made.let_go()


class Remover(threading.Thread):
    """Removes by hand what each victim is to lose, some time after it was seen to run."""

    def __init__(self, field: Field, chance: random.Random) -> None:
        super().__init__()
        self.field = field
        self.chance = chance
        self.done: set[str] = set()
        self.failure: BaseException | None = None
        self._enough = threading.Event()

    def run(self) -> None:
        try:
            while not self._enough.wait(0.3):
                self._look()
        except BaseException as exc:
            self.failure = exc

    def stop(self) -> None:
        self._enough.set()
        self.join()

    def _look(self) -> None:
        due = [name for name in self.field.victims() if name not in self.done]
        runs = self.field.all() if due else {}
        for name in due:
            case = self.field.runs[name]
            if (name, case.held) in self.field.outside.held and _is_seen(runs.get(name, {}), case.held):
                time.sleep(self.chance.uniform(0, 1.5))
                words = REMOVED[case.removes](name, case.held)
                self.field.kubectl.well("delete", "--wait=false", *words)
                self.done.add(name)
                if case.removes == "pvc":
                    self.field.outside.release(name, case.held)


def _is_seen(run: dict[str, Any], held: str) -> bool:
    """Whether the operator has told that it runs; a pod that nobody saw may as well be another."""
    status = run.get("status", {})
    if held == "agent":
        return status.get("phase") == "Running"
    return any(each["name"] == held and each["state"] == "running" for each in status.get("hooks", ()))


@contextmanager
def removing(field: Field, chance: random.Random) -> Iterator[Remover]:
    remover = Remover(field, chance)
    remover.start()
    try:
        yield remover
    finally:
        remover.stop()
    if remover.failure is not None:
        raise remover.failure


@pytest.mark.rule("sympozium 2.2", "sympozium 2.3", "sympozium B5", "sympozium B7", "sympozium B9")
def test_an_operator_that_is_killed_again_and_again_ends_every_run_as_it_should(field, chance):
    waiting = list(FLIGHT)
    chance.shuffle(waiting)
    with removing(field, random.Random(chance.random())) as remover:
        for kill in range(KILLS):
            # So that some begin, run and end at any time, up to the last kill.
            while waiting and len(field.runs) < 4 + kill * (len(FLIGHT) - 4) / (KILLS - 8):
                field.submit(waiting.pop())
            operator = field.start()
            # From its first look on, so that it is not killed while it only waits.
            until(operator.acts, "the next operator does not take over")
            time.sleep(chance.uniform(0, LONGEST) ** 2 / LONGEST)
            operator.kill()
        last = field.start()
        until(lambda: remover.failure is not None or remover.done == set(field.victims()), "none to remove")
        until(field.ended, lambda: f"runs were lost: {_phases(field)}\n{last.log.read_text()}")
    _nothing_is_left(field)
    last.kill()
    assert field.processes() == []
    _every_run_ended_as_it_should(field)


def _nothing_is_left(field: Field) -> None:
    # A node may remove the sandboxes of ended pods only once a minute, and their claims stay until then.
    until(lambda: not field.left(), lambda: f"left: {field.left()}")


def _phases(field: Field) -> dict[str, str]:
    return {name: each.get("status", {}).get("phase", "") for name, each in field.all().items()}


def _every_run_ended_as_it_should(field: Field) -> None:
    runs, calls = field.all(), field.calls()
    wrong: list[str] = []
    for name, case in field.runs.items():
        status = runs[name].get("status", {}) if name in runs else {}
        if status.get("phase") != case.phase:
            wrong.append(f"{name} ended as {status.get('phase')}: {status.get('error')}")
        failed = [
            each["name"]
            for each in status.get("hooks", ())
            if each["stage"] == "postRun" and each["state"] == "failed"
        ]
        if failed != list(case.failed):
            wrong.append(f"{name}: {failed} are told as failed, not {list(case.failed)}")
        wrong += _miscalled(name, case, calls)
    assert not wrong, "\n".join([*wrong, field.logs()])
    assert "Traceback" not in field.logs(), field.logs()


def _miscalled(name: str, case: Case, calls: Counter[tuple[str, str]]) -> list[str]:
    words = case.called.split()
    found = [f"{name}: {word} was not called" for word in words if not calls[name, word]]
    found += [
        f"{name}: {word} was called {count} times"
        for (run, word), count in calls.items()
        if run == name and count > 1 and word not in case.again
    ]
    return found + [f"{name}: {word} was called" for run, word in calls if run == name and word not in words]


@pytest.mark.rule("sympozium 2.2")
def test_of_two_operators_the_other_takes_over_when_the_acting_one_is_killed(field):
    both = [field.start(LONGER), field.start(LONGER)]
    until(lambda: any(each.leads() for each in both), "nobody leads")
    for sort in ("both", "wrong-after", "slow", "granted"):
        field.submit(sort)
    until(lambda: "Running" in _phases(field).values(), field.logs)
    first, second = sorted(both, key=Operating.leads, reverse=True)
    first.kill()
    until(second.leads, "the other one does not take over")
    until(field.ended, lambda: f"{_phases(field)}\n{field.logs()}")
    _nothing_is_left(field)
    second.kill()
    _every_run_ended_as_it_should(field)


@pytest.mark.rule("sympozium 2.2")
def test_an_operator_whose_lease_is_given_to_another_stops_acting_until_it_has_it_again(field):
    operator = field.start(LONGER)
    until(operator.leads, "nobody leads")
    # The claim's run is the one whose agent waits until it is told to go on.
    held = field.submit("no-claim-agent")
    until(lambda: field.phase(held) == "Running", lambda: operator.log.read_text())
    _give_lease(field, "somebody", 600)
    until(lambda: operator.count("is no longer the leader") == 1, lambda: operator.log.read_text())
    version = field.one(held)["metadata"]["resourceVersion"]
    field.outside.release(held, "agent")
    other = field.submit("plain")
    job = f"-l{RUN_LABEL}={held}"
    until(
        lambda: [each["status"].get("succeeded") for each in field.kubectl.get("jobs", job)["items"]] == [1],
        "the agent does not end",
    )
    time.sleep(3)
    assert field.one(held)["metadata"]["resourceVersion"] == version
    assert "status" not in field.one(other)
    assert "finalizers" not in field.one(other)["metadata"]
    _give_lease(field, "", 1)
    until(field.ended, lambda: f"{_phases(field)}\n{field.logs()}")
    _nothing_is_left(field)
    _every_run_ended_as_it_should(field)


def _give_lease(field: Field, holder: str, seconds: int) -> None:
    change = f'{{"spec": {{"holderIdentity": "{holder}", "leaseDurationSeconds": {seconds}}}}}'
    field.kubectl.well("patch", "lease", NAME, "--type=merge", "-p", change)
