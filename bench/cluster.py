"""What an AgentRun costs on Kubernetes: beside it the same claim and the same two Jobs, made by hand and watched to their end.

One run after another, and many at once. API calls are those of the operator, without the ones that keep its lease; the
list and the watch of each kind are among them. The operator has a process of its own, so that its memory is its own.

The cluster is that of $KUBECONFIG, with hookline's image as $HOOKLINE_TEST_IMAGE, else the one that the program
$HOOKLINE_TEST_CLUSTER starts and ends. Without either nothing is measured.
"""

import asyncio
import json
import logging
import os
import shlex
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

HERE = str(Path(__file__).resolve())
ROOT = Path(HERE).parents[1]
IMAGE = "localhost/hookline:bench"
AGENT = ("sh", "-c", "echo done")
WORDS = ["sh", "-c", ":"]
LIMIT = 1500
SEPARATE = 600.0


class Sizes(NamedTuple):
    """`waves` runs begin together, again and again; the memory is read after the waves that `told` numbers."""

    rounds: int
    waves: int
    told: tuple[int, ...]
    many: int


FULL, QUICK = Sizes(5, 20, (1, 3, 5), 100), Sizes(2, 4, (1, 2, 3), 12)


class NotHere(Exception):
    """Why nothing can be measured."""


def cluster_costs(quick: bool, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Seconds and API calls of a run with their ratios to those by hand, and the operator's memory; or why not."""
    try:
        with _a_cluster() as (kubeconfig, image):
            command = [sys.executable, "-W", "ignore", HERE, "measure"]
            done = subprocess.run(
                [*command, kubeconfig, image, str(int(quick))],
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
    except NotHere as exc:
        return [_missing(str(exc), tell)]
    except subprocess.TimeoutExpired:
        return [_missing(f"took longer than {LIMIT} s", tell)]
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return [_missing(said[-1], tell)]
    return json.loads(done.stdout)


def _missing(why: str, tell: Callable[[str], None]) -> dict[str, Any]:
    tell(f"  not measured: {why}")
    return {"what": "a run on Kubernetes", "error": why}


@contextmanager
def _a_cluster() -> Iterator[tuple[str, str]]:
    """Its kubeconfig and hookline's image in it; one that we started ends with us."""
    given, program = os.environ.get("KUBECONFIG"), os.environ.get("HOOKLINE_TEST_CLUSTER")
    image = os.environ.get("HOOKLINE_TEST_IMAGE")
    if given and image:
        yield given, image
        return
    if not program:
        raise NotHere("no cluster: set HOOKLINE_TEST_CLUSTER, or KUBECONFIG and HOOKLINE_TEST_IMAGE")
    there = subprocess.run([program, "status"], capture_output=True, check=False).returncode == 0
    try:
        kubeconfig = given or _printed([program, "up"])
        yield kubeconfig, image or _printed([sys.executable, str(ROOT / "deploy/test-image"), program, IMAGE])
    finally:
        if not there and not given:
            subprocess.run([program, "down"], capture_output=True, check=False)


def _printed(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NotHere(f"{Path(command[-1]).name}: {said[-1]}")
    return done.stdout.strip()


def run_of(name: str, namespace: str, image: str) -> dict[str, Any]:
    def hook(word: str) -> dict[str, Any]:
        return {"name": word, "image": image, "command": WORDS}

    return {
        "apiVersion": "sympozium.ai/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"task": "nothing", "lifecycle": {"preRun": [hook("before")], "postRun": [hook("after")]}},
    }


class Waiting:
    """A copy of what is there of one kind in one namespace, at which one can wait."""

    def __init__(
        self, cluster: Any, kind: Any, namespace: str, over: Callable[[dict[str, Any]], bool]
    ) -> None:
        from hookline.kube.controller import Store

        self._over = over
        self._ends: dict[str, asyncio.Event] = {}
        self.store = Store(cluster, kind, namespace=namespace, on_change=self._changed)

    async def ended(self, name: str) -> None:
        async with asyncio.timeout(SEPARATE):
            await self._end(name).wait()

    def _end(self, name: str) -> asyncio.Event:
        return self._ends.setdefault(name, asyncio.Event())

    def _changed(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        if after is not None and self._over(after):
            self._end(after["metadata"]["name"]).set()


class ByHand:
    """Makes what the operator makes, but for what it keeps for itself, and nothing looks after it."""

    def __init__(self, cluster: Any, namespace: str, image: str) -> None:
        from hookline.kube.objects import JOB
        from hookline.kube.pod_state import is_over
        from hookline.options import OperatorOptions

        self.cluster, self.namespace, self.image = cluster, namespace, image
        self.settings = OperatorOptions(image=image, agent_command=shlex.join(AGENT), prepare_as_root=True)
        self.jobs = Waiting(cluster, JOB, namespace, is_over)

    async def run(self, name: str) -> None:
        from hookline.kube.pod_state import ContainerPhase
        from hookline.sympozium.cluster import objects
        from hookline.sympozium.cluster.observation import frozen_of, spec_of
        from hookline.sympozium.phases import AgentSeen, Seen

        spec = spec_of(frozen_of(run_of(name, self.namespace, self.image), None))
        made = objects.RunObjects(spec, "nobody", self.settings)
        seen = Seen(agent=AgentSeen(state=ContainerPhase.ENDED, exit_code=0))
        record, claim, agent = made.record({}), made.claim(), made.agent_job()
        after = made.post_job(seen, (0,), 1)
        # The secret holds the task, which the first container of both Jobs reads.
        for each in (record, claim, agent):
            await self._make(each)
        await self._through(agent)
        await self._make(after)
        await self._through(after)
        for each in (agent, after, claim, record):
            await self._remove(each)

    async def _make(self, obj: dict[str, Any]) -> None:
        head = {key: value for key, value in obj["metadata"].items() if key != "ownerReferences"}
        await self.cluster.create({**obj, "metadata": head})

    async def _through(self, job: dict[str, Any]) -> None:
        name = job["metadata"]["name"]
        await self.jobs.ended(name)
        found = self.jobs.store.get(self.namespace, name)
        assert found is not None
        assert found["status"].get("succeeded"), found

    async def _remove(self, obj: dict[str, Any]) -> None:
        from hookline.kube.objects import kind_of

        await self.cluster.delete(kind_of(obj), obj["metadata"]["name"], self.namespace)


class ByOperator:
    """Submits runs and waits until they are put away."""

    def __init__(self, cluster: Any, namespace: str, image: str) -> None:
        from hookline.kube.objects import AGENT_RUN

        self.cluster, self.namespace, self.image = cluster, namespace, image
        self.runs = Waiting(cluster, AGENT_RUN, namespace, _is_put_away)

    async def run(self, name: str) -> None:
        await self.cluster.create(run_of(name, self.namespace, self.image))
        await self.runs.ended(name)
        found = self.runs.store.get(self.namespace, name)
        assert found is not None
        assert found["status"]["phase"] == "Succeeded", found
        assert [each["state"] for each in found["status"]["hooks"]] == ["succeeded"] * 2, found


def _is_put_away(run: dict[str, Any]) -> bool:
    ended = run.get("status", {}).get("phase") in ("Succeeded", "Failed", "Skipped")
    return ended and not run["metadata"].get("finalizers")


class Operator:
    """The operator's process; it tells its calls whenever it is asked."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def calls(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        line = await self.process.stdout.readline()
        if not line:
            raise NotHere("the operator ended by itself")
        return json.loads(line)

    def mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


@asynccontextmanager
async def operating(kubeconfig: str, image: str, namespace: str) -> AsyncIterator[Operator]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        HERE,
        "operate",
        kubeconfig,
        image,
        namespace,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield Operator(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def operate(kubeconfig: str, image: str, namespace: str) -> None:
    """Be the operator until standard input ends."""
    from hookline.kube.client import Cluster
    from hookline.kube.operator import serve
    from hookline.options import OperatorOptions
    from hookline.sympozium.cluster.controller import AgentRunController

    logging.disable(logging.CRITICAL)
    settings = OperatorOptions(
        image=image, agent_command=shlex.join(AGENT), prepare_as_root=True, max_run_history=10_000
    )
    async with Cluster(kubeconfig) as cluster:
        controller = AgentRunController(cluster, settings, (namespace,))
        work = asyncio.create_task(serve(cluster, lambda *_: [controller], lease_namespace=namespace))
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(sum(count for call, count in cluster.calls.items() if "Lease" not in call), flush=True)
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


@asynccontextmanager
async def namespace_in(cluster: Any) -> AsyncIterator[str]:
    from hookline.kube.objects import NAMESPACE
    from hookline.sympozium.cluster.objects import SHARED_ACCOUNT

    name = f"bench-{uuid.uuid4().hex[:12]}"
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        account = {"name": SHARED_ACCOUNT, "namespace": name}
        await cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        yield name
    finally:
        await cluster.delete(NAMESPACE, name)


async def define(cluster: Any) -> None:
    """Has the cluster know our kinds, and makes sure that nobody else does the work."""
    from hookline.kube.objects import AGENT_RUN, DEPLOYMENT, AlreadyThere, ClusterError
    from hookline.kube.operator import crds

    other = await cluster.get(DEPLOYMENT, "hookline-operator", "hookline-system")
    if other is not None and other["spec"].get("replicas"):
        raise NotHere("an operator is installed in that cluster, and would do the work as well")
    for each in crds():
        with suppress(AlreadyThere):
            await cluster.create(each)
    async with asyncio.timeout(60):
        while True:
            with suppress(ClusterError):
                await cluster.list(AGENT_RUN, "default")
                return
            await asyncio.sleep(0.2)


Side = ByHand | ByOperator


async def timed(side: Side, names: list[str]) -> float:
    """Seconds until all have ended that begin together."""
    started = time.perf_counter()
    await asyncio.gather(*(side.run(name) for name in names))
    return time.perf_counter() - started


async def compared(
    what: str, sizes: tuple[int, int], hand: ByHand, ours: ByOperator, calls: Callable[[], Awaitable[int]]
) -> dict[str, Any]:
    """`sizes` are how many rounds there are, and how many runs begin together in each. By hand and by the operator in turn."""
    rounds, together = sizes
    seconds: tuple[list[float], list[float]] = ([], [])
    counts = [0, 0]
    for number in range(rounds):
        names = [f"{what.replace(' ', '-')}-{number}-{n}" for n in range(together)]
        before = hand.cluster.calls.total()
        seconds[0].append(await timed(hand, names))
        between = await calls()
        counts[0] += hand.cluster.calls.total() - before
        seconds[1].append(await timed(ours, names))
        counts[1] += await calls() - between
    by_hand, by_us = (statistics.median(each) / together for each in seconds)
    runs = rounds * together
    return {
        "what": what,
        "number": runs,
        "seconds": round(by_us, 2),
        "hand_seconds": round(by_hand, 2),
        "ratio": round(by_us / by_hand, 2),
        "calls": round(counts[1] / runs, 1),
        "hand_calls": round(counts[0] / runs, 1),
    }


async def remembered(sizes: Sizes, ours: ByOperator, operator: Operator) -> list[dict[str, Any]]:
    """The operator's memory after so many runs, those before them not counted."""
    found: list[dict[str, Any]] = []
    for wave in range(1, max(sizes.told) + 1):
        await timed(ours, [f"wave-{wave}-{n}" for n in range(sizes.waves)])
        if wave in sizes.told:
            mib, runs = operator.mib(), wave * sizes.waves
            ratio = round(mib / (found[0]["mib"] if found else mib), 2)
            found.append(
                {"what": f"memory after {runs} runs", "number": runs, "mib": round(mib, 1), "ratio": ratio}
            )
    return found


async def measure(kubeconfig: str, image: str, sizes: Sizes) -> list[dict[str, Any]]:
    from hookline.kube.client import Cluster

    logging.disable(logging.CRITICAL)
    async with Cluster(kubeconfig) as for_hand, Cluster(kubeconfig) as for_us:
        await define(for_hand)
        async with (
            namespace_in(for_hand) as one,
            namespace_in(for_us) as two,
            operating(kubeconfig, image, two) as operator,
            asyncio.TaskGroup() as group,
        ):
            hand, ours = ByHand(for_hand, one, image), ByOperator(for_us, two, image)
            watches = [group.create_task(each.store.run()) for each in (hand.jobs, ours.runs)]
            for side in (hand, ours):
                await side.run("first")  # images are unpacked, caches filled
            found = [await compared("a run", (sizes.rounds, 1), hand, ours, operator.calls)]
            found += await remembered(sizes, ours, operator)
            found.append(
                await compared(f"{sizes.many} runs at once", (1, sizes.many), hand, ours, operator.calls)
            )
            runs = sizes.waves * max(sizes.told) + sizes.many
            mib = operator.mib()
            ratio = round(mib / found[1]["mib"], 2)
            found.append(
                {"what": f"memory after {runs} runs", "number": runs, "mib": round(mib, 1), "ratio": ratio}
            )
            for watch in watches:
                watch.cancel()
            return found


def main(what: str, kubeconfig: str, image: str, more: str) -> int:
    if what == "operate":
        asyncio.run(operate(kubeconfig, image, more))
        return 0
    try:
        print(json.dumps(asyncio.run(measure(kubeconfig, image, QUICK if int(more) else FULL))))
    except NotHere as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))
