import asyncio
import contextvars

import pytest

from hookline.engine.eager import begun
from hookline.engine.point import Status
from hookline.engine.result import HookResult
from tests.engine.builders import Life, standing

GO_ON = HookResult.continue_with()


def turns():
    """Empty until the loop has taken a turn."""
    taken = []
    asyncio.get_running_loop().call_soon(taken.append, 1)
    return taken


async def left_alone():
    """Until every task that was begun has ended, but this one."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


async def test_what_does_not_wait_is_done_at_once():
    async def answers():
        return 7

    taken = turns()
    assert (begun(answers()), taken) == (7, [])


async def test_what_it_raises_at_once_is_raised_at_once():
    here = asyncio.current_task()

    async def fails():
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        begun(fails())
    assert asyncio.current_task() is here
    await left_alone()


async def test_what_waits_goes_on_in_the_task_that_it_began_in():
    here, seen, let_go = asyncio.current_task(), [], asyncio.Event()

    async def waits():
        seen.append(asyncio.current_task())
        await let_go.wait()
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())
        return 7

    task = begun(waits())
    assert asyncio.current_task() is here
    assert seen == [task]
    let_go.set()
    assert await task == 7
    assert seen == [task, task, task]
    assert task is not here


async def test_what_does_not_wait_is_in_a_task_of_its_own_too():
    async def looks():
        return asyncio.current_task()

    other = begun(looks())
    assert isinstance(other, asyncio.Task)
    assert other is not asyncio.current_task()
    await left_alone()


@pytest.mark.parametrize("waits", [False, True])
async def test_what_it_sets_in_its_context_stays_there(waits):
    var = contextvars.ContextVar("var", default="mine")

    async def sets():
        var.set("its own")
        if waits:
            await asyncio.sleep(0)
        return var.get()

    found = begun(sets())
    assert (await found if waits else found) == "its own"
    assert var.get() == "mine"


@pytest.mark.parametrize("seconds", [-1, 0, 0.001])
async def test_a_timeout_that_it_enters_at_once_is_its_own(seconds):
    async def limited():
        try:
            async with asyncio.timeout(seconds):
                await asyncio.Event().wait()
        except TimeoutError:
            return "in time"

    task = begun(limited())
    assert await task == "in time"
    assert asyncio.current_task().cancelling() == 0


async def test_a_task_group_that_it_enters_at_once_is_its_own():
    async def fails():
        raise ValueError("boom")

    async def grouped():
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                await asyncio.Event().wait()
        except* ValueError:
            pass
        return "ended"

    assert await begun(grouped()) == "ended"


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_cancelled_it_cancels_what_it_waits_for(turns):
    inner = asyncio.ensure_future(asyncio.Event().wait())
    order = []

    async def waits():
        try:
            await inner
        except asyncio.CancelledError:
            order.append(("told", inner.cancelled()))
            raise

    task = begun(waits())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), order) == (True, [("told", True)])


@pytest.mark.parametrize("turns", [0, 1])
async def test_cancelled_where_it_only_lets_others_go_first(turns):
    told = []

    async def yields():
        try:
            while True:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    task = begun(yields())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), told) == (True, ["cancelled"])


@pytest.mark.parametrize("waits", [False, True])
async def test_one_that_cancels_itself_is_cancelled(waits):
    async def gives_up():
        asyncio.current_task().cancel()
        if waits:
            await asyncio.Event().wait()

    task = begun(gives_up())
    await asyncio.wait([task])
    assert task.cancelled()
    assert asyncio.current_task().cancelling() == 0


async def test_a_cancelled_one_may_go_on():
    first, second = asyncio.Event(), asyncio.Event()

    async def stays():
        try:
            await first.wait()
        except asyncio.CancelledError:
            await second.wait()
        return "stayed"

    task = begun(stays())
    task.cancel()
    second.set()
    assert await task == "stayed"


async def test_end_hooks_that_do_not_wait_take_no_turn_of_the_loop():
    @standing("agent.end")
    async def quick(ctx, hook_context):
        return GO_ON

    life = Life((quick,))
    taken = turns()

    async def body(outcome):
        return {}

    await life.scope("agent").around({}, body)
    assert (taken, life.ended.status) == ([], Status.OK)


async def test_an_end_hook_is_never_in_the_task_of_the_run():
    seen = []

    @standing("agent.end")
    async def looks(ctx, hook_context):
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())
        return GO_ON

    async def body(outcome):
        return {}

    await Life((looks, looks)).scope("agent").around({}, body)
    assert len(set(seen)) == 1
    assert asyncio.current_task() not in seen
