"""What is a container's alone: images, engines, labels, and what is left when everybody was killed."""

import asyncio
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from hookline.errors import UsageError
from hookline.runners import Mount, Order, tags
from hookline.runners.container import ContainerRunner, arguments, find_engine
from tests.runners.places import IMAGE, Place, until

pytestmark = pytest.mark.timeout(300)


# Without an engine.


def test_without_an_engine_it_is_said_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="need podman or docker"):
        ContainerRunner()


async def test_an_order_that_no_container_can_carry_out_could_not_start(tmp_path):
    runner = ContainerRunner(engine=("false",))
    source = tmp_path / "a:b,c"
    source.mkdir()
    wrong = {
        "names no image": Order(argv=("true",)),
        "is not a name of an image": Order(argv=("true",), image="--privileged"),
        "a colon and a comma": Order(
            argv=("true",), image="x", mounts=(Mount(target="/w", source=str(source)),)
        ),
        "more than one line": Order(argv=("true",), image="x", env={"LD_PRELOAD": "a\nb"}),
    }
    for message, order in wrong.items():
        assert message in ((await runner.run(order)).not_started or "")
    await runner.close()


def test_a_container_is_given_no_more_than_was_ordered(tmp_path):
    order = Order(argv=("check", "-x"), image="guard:1", env={"A": "secret\nvalue"})
    words = arguments(order, "podman", {"A": "secret\nvalue"})
    assert words[-4:] == ["--entrypoint", "check", "guard:1", "-x"]
    for pair in (
        ("--cap-drop", "all"),
        ("--network", "none"),
        ("--security-opt", "no-new-privileges"),
        ("--env", "A"),
    ):
        assert pair in pairwise(words)
    assert "--read-only" in words
    assert not any("secret" in word for word in words)
    words = arguments(Order(argv=("-x",), image="guard:1", own_program=True, network=True), "docker", {})
    assert words[-2:] == ["guard:1", "-x"]
    assert "--entrypoint" not in words
    assert ("--network", "host") in pairwise(words)


def test_an_owner_is_one_process_and_no_later_one_with_its_number():
    mine = tags.owner(os.getpid())
    assert mine is not None
    assert not tags._is_gone(mine)
    assert tags._is_gone(mine + "1")
    assert tags._is_gone("another-boot.1." + mine.split(".", 2)[2])
    boot, _, rest = mine.split(".", 2)
    assert not tags._is_gone(f"{boot}.1.{rest}1"), "one whose processes we do not see is not ours to judge"


# With podman.


@pytest.fixture
async def place(image, tmp_path):
    runner = ContainerRunner(pull="never")
    yield Place("container", runner, tmp_path)
    await runner.close()
    assert tags.labelled(find_engine(), runner.label) == []


@pytest.mark.real
async def test_an_image_that_is_not_there_could_not_start(place):
    ending = await place.runner.run(Order(argv=("true",), image="localhost/hookline-none:1"))
    assert "image 'localhost/hookline-none:1' is not on this machine" in (ending.not_started or "")
    missing = ContainerRunner()
    ending = await missing.run(Order(argv=("true",), image="localhost:1/hookline-none:1"))
    assert "could not be pulled: " in (ending.not_started or "")
    await missing.close()


@pytest.mark.real
async def test_a_container_has_no_capability_and_cannot_change_the_machine(place):
    ending = await place.runner.run(place.sh("cat /proc/self/status; echo 1 > /proc/sys/kernel/panic"))
    lines = dict(line.split(":\t") for line in ending.stdout.text.splitlines() if ":\t" in line)
    assert {int(lines[f"Cap{each}"], 16) for each in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert lines["NoNewPrivs"] == "1"
    assert "Read-only" in ending.stderr.text


@pytest.mark.real
async def test_a_container_has_the_network_only_on_request(place):
    inside = [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    script = "cat /proc/net/dev"
    alone = (await place.runner.run(place.sh(script))).stdout.text.splitlines()[2:]
    ours = (await place.runner.run(place.sh(script, network=True))).stdout.text.splitlines()[2:]
    assert [line.split(":")[0].strip() for line in alone] == ["lo"]
    assert [line.split(":")[0].strip() for line in ours] == inside


@pytest.mark.real
async def test_the_values_of_its_variables_are_in_no_command_line(place):
    seconds = place.sleep()
    running = asyncio.create_task(
        place.runner.run(place.sh(seconds, env={"TOKEN": "a-secret", "TWO": "a-secret\nx"}))
    )
    await place.up()
    lines = [Path(f"/proc/{name}/cmdline") for name in os.listdir("/proc") if name.isdigit()]
    shown = b"".join(_read(line) for line in lines)
    assert seconds.encode() in shown
    assert b"a-secret" not in shown
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


HOST = """
import asyncio, sys
from itertools import pairwise
from pathlib import Path
from tests.runners.places import RUNNERS, Place

async def main(folder, seconds):
    place = Place("container", RUNNERS["container"](), Path(folder))
    await place.runner.run(place.sh(f"sleep {seconds}"))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.real
async def test_what_everybody_left_who_was_killed_the_next_one_removes(place):
    """Also the watcher was killed; only the labels are left to tell."""
    seconds = place.sleep().split()[1]
    with subprocess.Popen([sys.executable, "-c", HOST, str(place.workspace), seconds]) as host:
        await place.up()
        for pid in _children(host.pid):
            if b"tags.py" in _read(Path(f"/proc/{pid}/cmdline")):
                os.kill(pid, signal.SIGKILL)
        host.kill()
    assert place.alive()
    mine = asyncio.create_task(place.runner.run(place.sh(place.sleep())))
    await until(
        lambda: not any(str(seconds).encode() in _read(Path(f"/proc/{pid}/cmdline")) for pid in place.alive())
    )
    await place.up()
    await place.runner.sweep()
    assert place.alive(), "the containers of a hookline that lives are left alone"
    mine.cancel()
    with pytest.raises(asyncio.CancelledError):
        await mine


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.real
async def test_a_run_that_is_closed_in_the_middle_leaves_nothing(place):
    await place.runner.run(place.sh("true"))
    run = place.runner.run(place.sh(place.sleep()))
    run.send(None)
    await place.up()
    run.close()
    assert place.alive() == []


@pytest.mark.real
def test_the_image_of_these_tests_came_from_no_registry(image):
    assert image == IMAGE
    assert image.startswith("localhost/")
