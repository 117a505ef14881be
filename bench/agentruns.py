"""What an AgentRun costs on one machine: two preRun hooks, an agent and two postRun hooks, in each place they can run.

Beside it the same five processes with nothing around them: plain ones, bubblewrap or podman with the very words that
hookline gives it. One run at a time, and many at once. Wall time: most of it is spent in other processes. Each case has
a process of its own, so that the memory is its own.
"""

import asyncio
import json
import logging
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

ROUNDS, QUICK_ROUNDS, IN_CONTAINERS = 60, 12, 5
AT_ONCE = 8  # processes; as many for the bare ones
LIMIT = 300
IMAGE = "localhost/hookline-bench:latest"
COMMAND = ("sh", "-c", ":")
BEFORE, AFTER = 2, 2
SCALES = {
    "local": "its processes, bare",
    "sandbox": "the same, bare bubblewrap",
    "container": "the same, bare podman",
}
MANY = (("local", 20), ("local", 200), ("sandbox", 200))


class NotHere(Exception):
    """Why something cannot be measured on this machine."""


def agentrun_costs(quick: bool, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Milliseconds of a run and the ratio to its bare processes; where one could not be measured, why."""
    rounds = dict.fromkeys(SCALES, QUICK_ROUNDS if quick else ROUNDS) | {"container": IN_CONTAINERS}
    cases = [(f"a run, {on}", on, rounds[on], 1) for on in SCALES]
    cases += [(f"{count} runs at once, {on}", on, count, count) for on, count in MANY]
    found: list[dict[str, Any]] = []
    for what, on, number, together in cases:
        tell(f"  {what}")
        found.append({"what": what, "scale": SCALES[on], **_measured(on, number, together)})
    return found


def _measured(on: str, number: int, together: int) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), on, str(number), str(together)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {LIMIT} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    return json.loads(done.stdout)


def manifest() -> str:
    def hook(name: str) -> dict[str, Any]:
        return {"name": name, "image": IMAGE, "command": list(COMMAND)}

    hooks = {
        "preRun": [hook(f"before-{n}") for n in range(BEFORE)],
        "postRun": [hook(f"after-{n}") for n in range(AFTER)],
    }
    head = {"apiVersion": "sympozium.ai/v1alpha1", "kind": "AgentRun", "metadata": {"name": "bench"}}
    return json.dumps({**head, "spec": {"agentRef": "bench", "task": "nothing", "lifecycle": hooks}})


class Ground:
    """One home with its journal, and the runner."""

    def __init__(self, folder: Path, on: str) -> None:
        from hookline.journal.recovery import owner
        from hookline.journal.sqlite import SqliteJournal
        from hookline.sympozium.resolve import RunRequest
        from hookline.sympozium.run.folders import Home
        from hookline.sympozium.run.hooks import LocalSite

        self.folder = folder
        self.runner = _runner(on)
        self.journal = SqliteJournal(folder / "journal.db")
        self.site = LocalSite(
            home=Home(folder / "agentruns"),
            runner_of=lambda _: self.runner,
            agent_runner=self.runner,
            journal=self.journal,
            owner=owner(),
            environ=dict(os.environ),
        )
        self.asked = RunRequest(
            file="run.yaml", text=manifest(), on=on, agent_command=COMMAND, agent_image=IMAGE
        )

    async def run(self) -> None:
        """A run to its end; what was cut short was quick, but did not do the work."""
        from hookline.sympozium.run.local import run

        ran = await run(self.site, self.asked)
        assert ran.phase == "Succeeded", ran.status
        assert [each["state"] for each in ran.status["hooks"]] == ["succeeded"] * (BEFORE + AFTER), ran.status

    async def close(self) -> None:
        await self.runner.close()
        self.journal.close()
        left = [each.name for each in (self.folder / "agentruns").iterdir() if each.is_dir()]
        assert left == [], left


def _runner(on: str) -> Any:
    from hookline.runners.container import ContainerRunner
    from hookline.runners.local import LocalRunner
    from hookline.runners.sandbox import SandboxRunner

    local = LocalRunner(cap=AT_ONCE)
    if on == "local":
        return local
    return SandboxRunner(local) if on == "sandbox" else ContainerRunner(local, pull="never")


def bare_words(on: str, workspace: Path) -> list[str]:
    """One of the processes, as it is started in that place."""
    from hookline.runners import Mount, Order, container, sandbox

    places = [Mount(target=f"/{name}", source=str(workspace)) for name in ("workspace", "ipc")]
    order = Order(
        argv=COMMAND, cwd="/workspace", env={"PATH": os.environ["PATH"]}, mounts=tuple(places), image=IMAGE
    )
    if on == "local":
        return list(COMMAND)
    if on == "sandbox":
        return [sandbox.bubblewrap(), *sandbox.arguments(order, {}), *COMMAND]
    engine = container.find_engine()
    return [*engine, "run", "--rm", *container.arguments(order, engine[0], {})]


def bare_run(words: Sequence[str], folder: Path) -> None:
    for _ in range(BEFORE + 1 + AFTER):
        subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True)


async def in_turn(ground: Ground, words: Sequence[str], rounds: int) -> tuple[float, float]:
    """Milliseconds of a run and of its bare processes, each the median, one after the other."""
    found: tuple[list[float], list[float]] = ([], [])
    await ground.run()  # imports and caches are not a run's own
    for _ in range(rounds):
        started = time.perf_counter()
        await ground.run()
        between = time.perf_counter()
        bare_run(words, ground.folder)
        found[0].append(between - started)
        found[1].append(time.perf_counter() - between)
    return statistics.median(found[0]) * 1e3, statistics.median(found[1]) * 1e3


async def at_once(ground: Ground, words: Sequence[str], count: int) -> tuple[float, float, float]:
    """Milliseconds of each of many runs at once and of their bare processes, and KiB for each run."""
    await ground.run()
    first = bare_at_once(words, ground.folder, count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    await asyncio.gather(*(ground.run() for _ in range(count)))
    took = time.perf_counter() - started
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    bare = (first + bare_at_once(words, ground.folder, count)) / 2
    return took / count * 1e3, bare / count * 1e3, kib / count


def bare_at_once(words: Sequence[str], folder: Path, count: int) -> float:
    started = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda _: bare_run(words, folder), range(count)))
    return time.perf_counter() - started


async def case(on: str, number: int, together: int, folder: Path) -> dict[str, Any]:
    logging.disable(logging.CRITICAL)
    workspace = folder / "bare"
    workspace.mkdir()
    words = bare_words(on, workspace)
    ground = Ground(folder, on)
    try:
        kib = None
        if together == 1:
            ms, scale = await in_turn(ground, words, number)
        else:
            ms, scale, kib = await at_once(ground, words, together)
    finally:
        await ground.close()
    return {
        "ms": round(ms, 2),
        "ratio": round(ms / scale, 2),
        "kib_each": None if kib is None else round(kib, 1),
        "number": number,
    }


def make_image(folder: Path) -> None:
    """An image of busybox alone, which no registry has."""
    program = shutil.which("busybox")
    if program is None:
        raise NotHere("there is no busybox to make an image of; apt-get install busybox-static")
    archive = folder / "rootfs.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("bin", "tmp", "workspace", "ipc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        tar.add(program, "bin/busybox")
        entry = tarfile.TarInfo("bin/sh")
        entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
        tar.addfile(entry)
    done = subprocess.run(
        [*_engine(), "import", "--quiet", str(archive), IMAGE], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotHere((done.stderr.strip().splitlines() or ["podman makes no image"])[-1])


def _engine() -> tuple[str, ...]:
    from hookline.runners.container import find_engine

    return find_engine()


def main(on: str, number: int, together: int) -> int:
    from hookline.errors import HooklineError

    with tempfile.TemporaryDirectory() as folder:
        try:
            if on == "container":
                make_image(Path(folder))
            print(json.dumps(asyncio.run(case(on, number, together, Path(folder)))))
        except (NotHere, HooklineError) as exc:
            print(json.dumps({"error": str(exc)}))
        except subprocess.CalledProcessError as exc:
            said = (exc.stderr or b"").decode("utf-8", "replace").strip().splitlines()
            print(json.dumps({"error": f"the bare process failed: {said[-1] if said else exc}"}))
        finally:
            if on == "container":
                with suppress(HooklineError, OSError):
                    subprocess.run([*_engine(), "rmi", "--force", IMAGE], capture_output=True, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
