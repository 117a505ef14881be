"""What the folders of a run may hold: who writes without end is stopped, and the run ends as it should."""

import asyncio
import subprocess
import threading
from dataclasses import replace

import pytest

from hookline.errors import UsageError
from hookline.runners import tags as tagged
from hookline.sympozium.run.folders import (
    LEAST_FREE,
    DiskUsage,
    Folder,
    Home,
    apart,
    in_bytes,
    overfull,
    shown,
)
from tests.sympozium.run.conftest import hook, lifecycle

MIB = 1024**2
SMALL = 4 * MIB
ENDLESS = {
    "one file": "yes > $WORKSPACE/file; sleep 1000",
    "many files": "i=0; while :; do head -c 65536 /dev/zero > $WORKSPACE/$i; i=$((i+1)); done",
    "empty files": 'mkdir $WORKSPACE/d; i=0; while :; do : > "$WORKSPACE/d/$i"; i=$((i+1)); done',
    "and it will not go": "trap '' TERM; while :; do head -c 65536 /dev/zero >> $WORKSPACE/a; done",
}
NOTED = hook(
    "after", "echo $AGENT_EXIT_CODE > $TRUTH/after; ls $WORKSPACE > $WORKSPACE/list && touch $TRUTH/listed"
)


def of_hook(ran, name):
    return next(each for each in ran.status["hooks"] if each["name"] == name)


@pytest.mark.parametrize("script", ENDLESS.values(), ids=ENDLESS.keys())
async def test_a_hook_that_fills_the_workspace_is_stopped_and_post_run_runs(ground, script):
    ran = await ground.run(lifecycle([hook("fills", script)], [NOTED]), workspace_size=SMALL)
    assert ran.phase == "Failed"
    assert ran.status["error"].startswith("preRun hook 'fills' failed: wrote too much (/workspace holds ")
    assert "; at most 4 MiB (--workspace-size)" in ran.status["error"]
    assert of_hook(ran, "fills")["reason"] == "overfull"
    assert ground.said("after") == "1\n"
    assert (ground.truth / "listed").exists(), "a hook that tidies up must be able to write"
    assert of_hook(ran, "after")["state"] == "succeeded"
    assert tagged.carriers(ground.site.runner_of("").mark.encode()) == {}


async def test_an_agent_that_fills_the_workspace_is_stopped_and_post_run_runs(ground):
    agent = ("sh", "-c", ENDLESS["many files"])
    ran = await ground.run(lifecycle([], [NOTED]), workspace_size=SMALL, agent_command=agent)
    assert ran.phase == "Failed"
    assert "/workspace holds" in ran.status["error"]
    assert ground.said("after") == "1\n"


async def test_a_post_run_hook_that_fills_the_workspace_changes_nothing_for_the_run(ground):
    after = [hook("fills", ENDLESS["many files"]), NOTED]
    ran = await ground.run(lifecycle([], after), workspace_size=SMALL)
    assert ran.phase == "Succeeded"
    (condition,) = ran.status["conditions"]
    assert "'fills' failed: wrote too much (/workspace holds" in condition["message"]
    assert ground.said("after") == "0\n"


async def test_what_a_hook_has_left_too_much_of_counts_although_it_ended_well(ground):
    script = "for i in 1 2 3; do head -c 2097152 /dev/zero > $WORKSPACE/$i; done"
    ran = await ground.run(lifecycle([hook("fills", script)]), workspace_size=SMALL)
    assert ran.phase == "Failed"
    assert of_hook(ran, "fills")["reason"] == "overfull"


async def test_the_folder_for_messages_is_held_too(ground):
    script = "i=0; while :; do head -c 4194304 /dev/zero > $IPC_DIR/output/$i; i=$((i+1)); done"
    ran = await ground.run(lifecycle([hook("fills", script)], [NOTED]))
    assert "/ipc holds" in ran.status["error"]
    assert "at most 64 MiB" in ran.status["error"]
    assert ground.said("after") == "1\n"


async def test_what_fits_is_let_be(ground):
    script = (
        "for i in 1 2 3; do head -c 1048576 /dev/zero > $WORKSPACE/$i; done; ln $WORKSPACE/1 $WORKSPACE/again"
    )
    ran = await ground.run(lifecycle([hook("a", script)], [NOTED]), workspace_size=SMALL)
    assert ran.phase == "Succeeded"


NESTED = """import os
os.chdir(os.environ["WORKSPACE"])
for _ in range(3000):
    os.mkdir("d" * 50)
    os.chdir("d" * 50)
os.chmod(".", 0)
"""


async def test_folders_that_are_nested_without_end_are_removed(ground):
    deep = {"name": "deep", "image": "busybox:1.36", "command": ["python3", "-c", NESTED]}
    try:
        ran = await ground.run(lifecycle([deep]))
        assert (ran.phase, ran.problem) == ("Succeeded", "")
        assert ground.left() == []
    finally:
        # What cannot be removed by us cannot be removed by pytest either.
        subprocess.run(["rm", "-rf", str(ground.home / "agentruns")], check=True)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1Gi", 1024**3), ("512Mi", 512 * MIB), ("1.5Ki", 1536), ("2k", 2000), ("3M", 3_000_000), ("1e6", 10**6), ("77", 77)],
)  # fmt: skip
def test_a_size_is_a_quantity_of_kubernetes(text, size):
    assert in_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1Gb", "1 GiB", "1K", "ten", "1e99", "100m"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match=r"--workspace-size is .* such as 512Mi"):
        in_bytes(text)


def test_sizes_are_shown_as_a_person_reads_them():
    assert [shown(each) for each in (0, 1023, 1536, 64 * MIB, 1024**3)] == [
        "0 B", "1023 B", "1.5 KiB", "64 MiB", "1 GiB",
    ]  # fmt: skip


PLENTY = LEAST_FREE * 10
LOOKS = {
    "room": ((0, PLENTY), (100, PLENTY), ""),
    "more than allowed": ((0, PLENTY), (101, PLENTY), "/workspace holds 101 B; at most 100 B (--workspace-size)"),
    "it was so before": ((900, PLENTY), (900, PLENTY), ""),
    "it was so before, and a little was added": ((900, PLENTY), (906, PLENTY), ""),
    "it was so before, and more was added": ((900, PLENTY), (907, PLENTY), "/workspace holds 907 B"),
    "nearly as much before": ((99, PLENTY), (103, PLENTY), "/workspace holds 103 B"),
    "a full disk": ((0, PLENTY), (0, LEAST_FREE - 1), "the disk of /workspace is nearly full"),
    "a disk that was full before": ((0, LEAST_FREE - 1), (0, LEAST_FREE - 1), ""),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "said"), LOOKS.values(), ids=LOOKS.keys())
def test_a_process_answers_for_what_came_while_it_ran(before, now, said):
    looks = [DiskUsage({"/workspace": held}, free) for held, free in (before, now)]
    found = overfull({"/workspace": 100}, *looks)
    assert found.startswith(said)
    assert bool(found) == bool(said)


class Waiting(Folder):
    """A folder whose removal takes until somebody else has done something."""

    removing = threading.Event()
    go_on = threading.Event()

    def remove(self) -> None:
        self.removing.set()
        assert self.go_on.wait(60), "nobody else could do anything meanwhile"
        super().remove()


class SlowHome(Home):
    def make(self, run_id: str) -> Folder:
        made = super().make(run_id)
        made.let_go()
        slow = Waiting(made.path)
        assert slow.hold()
        return slow


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_removal_that_takes_long_holds_nobody_up_and_is_waited_for(ground, cancelled):
    Waiting.removing.clear()
    Waiting.go_on.clear()
    site = replace(ground.site, home=SlowHome(ground.site.home.path))
    running = asyncio.ensure_future(ground.run({}, site=site))
    while not Waiting.removing.is_set():
        await asyncio.sleep(0.01)
    assert ground.left(), "it is removed only now"
    if cancelled:
        running.cancel()
        await asyncio.sleep(0)
        assert not running.done()
    Waiting.go_on.set()
    if cancelled:
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        assert (await running).phase == "Succeeded"
    assert ground.left() == []


async def test_what_goes_wrong_in_a_thread_comes_out():
    def wrong() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await apart(wrong)
