"""Manifests run in this process, with real processes around them, on this machine and in the sandbox."""

import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from hookline import SqliteJournal
from hookline.journal.recovery import owner
from hookline.runners import Mount
from hookline.runners.container import ContainerRunner
from hookline.runners.local import LocalRunner
from hookline.runners.sandbox import SandboxRunner
from hookline.sympozium.resolve import RunRequest
from hookline.sympozium.run.folders import Home
from hookline.sympozium.run.hooks import LocalSite
from hookline.sympozium.run.local import run
from tests.runners.places import installed

MAKES = {"local": LocalRunner, "sandbox": SandboxRunner, "container": lambda: ContainerRunner(pull="never")}
IMAGE = "localhost/hookline-agentruns:test"
AGENT = ("sh", "-c", 'printf \'{"status":"success","response":"fine"}\' > $IPC_DIR/output/result.json')


class Ground:
    """One home with its journal, and a runner for what is run there."""

    def __init__(self, folder: Path, on: str) -> None:
        self.folder, self.on = folder, on
        self.home = folder / "home"
        self.truth = folder / "truth"
        self.truth.mkdir()
        self.journal = SqliteJournal(self.home / "journal.db")
        self.records = []
        self.site = None

    def open(self) -> LocalSite:
        runner = MAKES[self.on]()
        self.site = LocalSite(
            home=Home(self.home / "agentruns"),
            runner_of=lambda _: runner,
            agent_runner=runner,
            journal=self.journal,
            owner=owner(),
            watchers=(self.records.append,),
            environ={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
        )
        return self.site

    def asked(self, spec, **given) -> RunRequest:
        """An AgentRun of `spec`, or the text of a whole manifest."""
        text = spec if isinstance(spec, str) else manifest(spec)
        shared = Mount(target=str(self.truth), source=str(self.truth))
        given = {"agent_command": AGENT, "mounts": (shared,), "env": {"TRUTH": str(self.truth)}, **given}
        if self.on == "container":
            text = text.replace("busybox:1.36", IMAGE)
            given = {"agent_image": IMAGE, **given}
        return RunRequest(file="run.yaml", text=text, on=self.on, **given)

    async def run(self, spec, *, site=None, **given):
        site = site or self.site
        return await run(site, self.asked(spec, **given))

    def said(self, name: str) -> str:
        """What a hook or the agent wrote to a file that outlives the run."""
        place = self.truth / name
        return place.read_text() if place.exists() else ""

    def phases(self) -> list[str]:
        notes = [getattr(each, "note", None) or "" for each in self.records]
        return [note.removeprefix("phase ") for note in notes if note.startswith("phase ")]

    def left(self) -> list[str]:
        place = self.home / "agentruns"
        return [each.name for each in place.iterdir() if each.is_dir()] if place.is_dir() else []


def manifest(spec) -> str:
    whole = {"agentRef": "oncall", "task": "look at it", **spec}
    head = {"apiVersion": "sympozium.ai/v1alpha1", "kind": "AgentRun", "metadata": {"name": "demo"}}
    return json.dumps({**head, "spec": whole})


def hook(name, script, **more):
    return {"name": name, "image": "busybox:1.36", "command": ["sh", "-c", script], **more}


def lifecycle(before=(), after=(), **more):
    return {"lifecycle": {"preRun": list(before), "postRun": list(after), **more}}


def pytest_generate_tests(metafunc):
    """Everywhere without more than bubblewrap; with a marker, in containers what needs no more than busybox."""
    if "ground" not in metafunc.fixturenames:
        return
    places = ["local", "sandbox"]
    if metafunc.module.__name__.rpartition(".")[2] in ("test_local", "test_gates"):
        places.append(pytest.param("container", marks=pytest.mark.real))
    metafunc.parametrize("ground", places, indirect=True)


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    """All of busybox, and nothing else."""
    installed(podman="podman", runc="runc", busybox="busybox-static")
    program = shutil.which("busybox") or "busybox"
    names = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    archive = tmp_path_factory.mktemp("image") / "rootfs.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("bin", "tmp", "workspace", "ipc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        tar.add(program, "bin/busybox")
        for name in names:
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            if name != "busybox":
                tar.addfile(entry)
    command = ["podman", "import", "--quiet", "--change", 'ENTRYPOINT ["/bin/false"]', str(archive), IMAGE]
    subprocess.run(command, check=True, capture_output=True)
    yield IMAGE
    subprocess.run(["podman", "rmi", "--force", IMAGE], check=False, capture_output=True)


@pytest.fixture
async def ground(request, tmp_path):
    if request.param == "sandbox":
        installed(bwrap="bubblewrap")
    if request.param == "container":
        request.getfixturevalue("image")
    made = Ground(tmp_path, request.param)
    site = made.open()
    yield made
    await site.runner_of("").close()
    made.journal.close()
    assert made.left() == [], "folders of a run were left"


def with_approver(ground, answer):
    """The same site, where somebody answers."""
    ground.site = replace(ground.site, approver=answer)
    return ground.site
