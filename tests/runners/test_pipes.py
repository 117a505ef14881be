"""Processes that are talked with while they run: real ones, that go by themselves or do not."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from hookline.runners import Order
from hookline.runners.local import Piped, piped

ECHO = "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)"


def python(code: str) -> Order:
    return Order(argv=(sys.executable, "-c", code), env={"PATH": os.environ["PATH"]})


async def read(fd: int) -> bytes:
    """What comes next; empty at the end."""
    loop = asyncio.get_running_loop()
    there = loop.create_future()
    loop.add_reader(fd, there.set_result, None)
    try:
        async with asyncio.timeout(60):
            await there
    finally:
        loop.remove_reader(fd)
    return os.read(fd, 65536)


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


async def pid_of(process: Piped) -> int:
    return int(await read(process.stdout))


def alive(pid: int) -> bool:
    """Whether it runs; one that waits to be reaped by somebody does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_it_is_talked_with_and_goes_when_its_input_is_closed():
    before = open_files()
    async with piped(python(ECHO)) as process:
        os.write(process.stdin, b"hello\n")
        assert await read(process.stdout) == b"HELLO\n"
    assert process.ending.result().exit_code == 0
    assert open_files() == before


async def test_one_that_stays_is_ended_with_what_it_started():
    code = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    before = open_files()
    async with piped(python(code), patience=0.1) as process:
        child = await pid_of(process)
        assert alive(child)
    assert not alive(child)
    assert process.ending.cancelled()
    assert open_files() == before


async def test_one_that_ends_by_itself_says_how():
    async with piped(python("import sys; sys.stderr.write('bye'); sys.exit(3)")) as process:
        assert await read(process.stderr) == b"bye"
        assert await read(process.stdout) == b""
        ending = await process.ending
    assert ending.in_words() == "exited with 3"


@pytest.mark.parametrize("argv", [("no-such-program",), (sys.executable, "missing.py")])
async def test_one_that_cannot_start_comes_to_an_end_for_whoever_reads_from_it(argv):
    before = open_files()
    async with piped(Order(argv=argv, env={})) as process:
        assert await read(process.stdout) == b""
        assert await read(process.stderr) == b""
    assert process.ending.result().not_started
    assert open_files() == before


async def test_a_task_that_is_cancelled_leaves_nothing():
    before = open_files()
    begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def use() -> None:
        async with piped(
            python("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
        ) as process:
            begun.set_result(await pid_of(process))
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    pid = await begun
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # in the middle of its ending
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(pid)
    assert open_files() == before
