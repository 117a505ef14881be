"""Cancel and wait, finish in spite of a cancellation, back off, and what a first and a second signal do."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from hookline.tasks import StopToken, WorkStopped, backoff, cancel_and_wait, finish, set_within, stoppable


async def started(work):
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    return task


async def slow_end(turns, said):
    try:
        await asyncio.Event().wait()
    finally:
        for _ in range(turns):
            await asyncio.sleep(0)
        said.append("ended")


async def refusing():
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise ValueError("not so") from None


async def test_cancelled_tasks_are_at_their_end_however_that_is():
    said = []
    done = await started(asyncio.sleep(0, "done"))
    await done
    tasks = [await started(slow_end(5, said)), await started(refusing()), done]
    await cancel_and_wait(*tasks)
    assert [task.done() for task in tasks] == [True, True, True]
    assert said == ["ended"]
    assert done.result() == "done"


async def test_nothing_to_cancel_is_no_mistake():
    await cancel_and_wait()
    await cancel_and_wait(insist=True)


async def test_cancelled_meanwhile_we_leave_unless_we_insist():
    for insist, ended in ((False, False), (True, True)):
        work = await started(slow_end(5, []))
        waiting = await started(cancel_and_wait(work, insist=insist))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert work.done() is ended
        await asyncio.wait({work})


async def test_what_is_to_be_finished_is_finished_before_the_cancellation():
    said = []

    async def work():
        for number in range(5):
            await asyncio.sleep(0)
            said.append(number)

    finishing = await started(finish(work()))
    for _ in range(3):
        finishing.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await finishing
    assert said == [0, 1, 2, 3, 4]


async def test_an_event_is_waited_for_until_it_is_set_or_its_time_is_over():
    event = asyncio.Event()
    await set_within(event, 0.01)
    waiting = await started(set_within(event, None))
    assert not waiting.done()
    event.set()
    await waiting


async def test_what_is_finished_gives_its_result_or_its_error():
    assert await finish(asyncio.sleep(0, "done")) == "done"
    failing = await started(refusing())
    failing.cancel()
    with pytest.raises(ValueError, match="not so"):
        await finish(failing)


PAUSES = [
    (0, 1.0),
    (1, 1.0),
    (2, 2.0),
    (3, 4.0),
    (5, 10.0),
    (1000, 10.0),
    (10**9, 10.0),
]


@pytest.mark.parametrize(("attempt", "pause"), PAUSES)
def test_pauses_double_up_to_the_longest(attempt, pause):
    assert backoff(attempt, first=1.0, longest=10.0) == pause


def test_jitter_only_shortens_a_pause_and_not_always_alike():
    found = {backoff(3, first=1.0, longest=10.0, jitter=0.5) for _ in range(50)}
    assert all(2.0 <= each <= 4.0 for each in found)
    assert len(found) > 1


PROGRAM = """
import asyncio, sys
from hookline.tasks import run_interruptible

async def main():
    print("begun", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("ending", flush=True)
        await asyncio.sleep(float(sys.argv[1]))
        print("ended", flush=True)

sys.exit(run_interruptible(main, lambda text: print(text, flush=True)))
"""


def program(seconds):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, seconds], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


TOLD = "interrupted: end hooks are running; Ctrl-C again ends them too\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_end_run_and_the_code_is_130(number):
    process = program("0")
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == (TOLD + "ending\nended\n", "", 130)


def test_a_second_signal_ends_the_end_too_and_is_told_once():
    process = program("60")
    assert process.stdout.readline() == "begun\n"
    os.kill(process.pid, signal.SIGINT)
    assert process.stdout.readline() == TOLD
    assert process.stdout.readline() == "ending\n"
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == ("", "", 130)


async def test_work_in_a_thread_gives_its_result_or_its_error():
    assert await stoppable(lambda stop: "done", timeout=10) == "done"

    def wrong(stop):
        raise ValueError("not so")

    with pytest.raises(ValueError, match="not so"):
        await stoppable(wrong, timeout=10)


async def test_work_in_a_thread_is_stopped_past_its_limit_and_when_we_are_cancelled():
    ended = []

    def work(stop):
        with stop.ending(lambda: ended.append("told")):
            try:
                stop.wait(60)
            except WorkStopped:
                ended.append("stopped")
                raise

    with pytest.raises(TimeoutError):
        await stoppable(work, timeout=0.05)
    assert ended == ["told", "stopped"]
    ended.clear()
    task = asyncio.ensure_future(stoppable(work, timeout=60))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["told", "stopped"]


def test_work_that_was_stopped_before_begins_nothing():
    stop = StopToken()
    stop.stop()
    with pytest.raises(WorkStopped), stop.ending(lambda: None):
        pytest.fail("it began")
