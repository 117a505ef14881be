"""Where the suite of runners runs: each place with its runner, and what it takes to have one on this machine."""

import asyncio
import os
import secrets
import shutil
import subprocess
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from hookline.runners import Mount, Order, Runner
from hookline.runners.container import ContainerRunner
from hookline.runners.local import LocalRunner
from hookline.runners.sandbox import SandboxRunner
from tests.programs import installed

IMAGE = "localhost/hookline-busybox:test"
PATH = "/usr/local/bin:/usr/bin:/bin"
APPLETS = (
    *("cat", "echo", "env", "false", "head", "id", "ls", "mkdir", "printf", "pwd", "rm", "seq", "setsid"),
    *("sh", "sleep", "sort", "tail", "touch", "tr", "true", "wc", "yes"),
)


def made_image(folder: Path) -> str:
    """A small image of busybox alone, which no registry has."""
    installed(podman="podman", runc="runc", busybox="busybox-static")
    archive = folder / "rootfs.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("bin", "tmp", "workspace"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        tar.add(shutil.which("busybox") or "busybox", "bin/busybox")
        for name in APPLETS:
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    change = ["--change", 'ENTRYPOINT ["/bin/echo", "the image says"]']
    subprocess.run(
        ["podman", "import", "--quiet", *change, str(archive), IMAGE], check=True, capture_output=True
    )
    return IMAGE


@dataclass
class Place:
    """One runner, with a workspace that its processes share with the test."""

    kind: str
    runner: Runner
    workspace: Path
    started: list[str] = field(default_factory=list)

    def sh(self, script: str, *, env: dict[str, str] | None = None, **more) -> Order:
        return self.order("sh", "-c", script, env=env, **more)

    def order(
        self, *argv: str, env: dict[str, str] | None = None, mounts: tuple[Mount, ...] = (), **more
    ) -> Order:
        workspace = Mount(target="/workspace", source=str(self.workspace), variable="WORKSPACE")
        return Order(
            argv=argv,
            env={"PATH": PATH, **(env or {})},
            mounts=(workspace, *mounts),
            image=IMAGE if self.kind == "container" else None,
            **more,
        )

    def sleep(self) -> str:
        """A command that runs too long, and can be told from every other by its argument."""
        seconds = f"{secrets.randbelow(10**9) + 10**9}"
        self.started.append(seconds)
        return f"sleep {seconds}"

    def alive(self) -> list[int]:
        """Those of them that run, wherever: what is isolated is seen from outside."""
        return [pid for seconds in self.started for pid in running("sleep", seconds)]

    async def up(self, count: int = 1) -> None:
        await until(lambda: len(self.alive()) >= count)


RUNNERS = {"local": LocalRunner, "sandbox": SandboxRunner, "container": lambda: ContainerRunner(pull="never")}


def running(*argv: str) -> list[int]:
    """The live processes whose command line ends like that."""
    wanted = [word.encode() for word in argv]
    found: list[int] = []
    for name in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0") if name.isdigit() else []
        except OSError:
            continue
        if words[-len(wanted) - 1 : -1] == wanted:
            found.append(int(name))
    return found


async def until(true, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.02)
