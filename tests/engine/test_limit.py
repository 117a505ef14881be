"""A hook's limit and its cancellation: the hook under test waits, and somebody wants it to end."""

import asyncio
import contextvars
import inspect
import threading

import pytest

from hookline.engine.hook import hook, source_of
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point
from hookline.engine.result import HookResult
from hookline.handlers.python import python_hook
from tests.engine.builders import context, fired, noting, saying, standing

GO_ON = HookResult.continue_with()
TINY = 0.05


async def forever():
    await asyncio.Event().wait()


async def test_a_hook_that_never_returns_is_broke_at_its_limit():
    @standing(timeout=TINY)
    async def hangs(ctx, hook_context):
        await forever()

    seen = await fired(hangs)
    assert (seen.outcome.action, seen.call.error_kind) == ("fail", "timed_out")
    assert seen.outcome.reason == seen.call.error == "ran past its limit of 0.05 s"


async def test_a_sync_hook_that_never_returns_is_broke_at_its_limit():
    event = threading.Event()

    @hook(timeout=TINY)
    def hangs(ctx, hook_context):
        event.wait()

    try:
        seen = await fired(python_hook(hangs, [Point.TOOL_START]))
    finally:
        event.set()
    assert (seen.outcome.action, seen.call.error_kind) == ("fail", "timed_out")
    assert seen.call.error.startswith("ran past its limit of 0.05 s")


async def test_a_sync_hook_that_returns_something_to_await_is_under_its_limit_too():
    @hook(timeout=TINY)
    def hangs(ctx, hook_context):
        return forever()

    seen = await fired(python_hook(hangs, [Point.TOOL_START]))
    assert seen.call.error_kind == "timed_out"
    assert seen.call.error == f"ran past its limit of 0.05 s [{source_of(hangs)}]"


async def test_a_sync_hook_whose_awaitable_ignores_its_cancellation_is_given_up(short_grace):
    ended = asyncio.Event()

    @hook(timeout=TINY, on_error="continue")
    def stays(ctx, hook_context):
        return swallows_it_always(ended)

    seen = await fired(python_hook(stays, [Point.TOOL_START]), saying(HookResult.block("next")))
    ended.set()
    assert (seen.calls[0].error_kind, seen.outcome.reason) == ("timed_out", "next")


async def test_what_a_sync_hook_gives_to_await_after_its_limit_is_closed_and_nothing_complains_of_it():
    let_go, made = threading.Event(), []

    async def never():
        raise AssertionError

    @hook(timeout=TINY, on_error="continue")
    def late(ctx, hook_context):
        let_go.wait(60)
        made.append(never())
        return made[0]

    seen = await fired(python_hook(late, [Point.TOOL_START]))
    let_go.set()
    async with asyncio.timeout(60):
        while not (made and inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED):
            await asyncio.sleep(0.01)
    assert seen.calls[0].error_kind == "timed_out"


async def test_a_sync_hook_that_returns_something_to_await_can_be_cancelled():
    waiting, cancelled = asyncio.Event(), asyncio.Event()

    async def waits():
        waiting.set()
        try:
            await forever()
        finally:
            cancelled.set()

    hook_ = python_hook(lambda ctx, hook_context: waits(), [Point.TOOL_START])
    firing = asyncio.ensure_future(fired(hook_))
    await waiting.wait()
    firing.cancel()
    await asyncio.wait([firing])
    assert (firing.cancelled(), cancelled.is_set()) == (True, True)


async def test_a_sync_hook_that_returns_something_to_await_is_awaited():
    async def answers():
        await asyncio.sleep(0)
        return HookResult.block("no")

    seen = await fired(python_hook(lambda ctx, hook_context: answers(), [Point.TOOL_START]))
    assert (seen.outcome.action, seen.outcome.reason) == ("block", "no")


async def test_a_hook_that_does_not_wait_needs_no_limit():
    @standing(timeout=1e-9)
    async def quick(ctx, hook_context):
        return HookResult.block("said so")

    assert (await fired(quick)).outcome.reason == "said so"


async def test_a_hook_without_a_limit_may_wait():
    @standing(timeout=None)
    async def waits(ctx, hook_context):
        for _ in range(100):
            await asyncio.sleep(0)
        return HookResult.block("at last")

    assert (await fired(waits)).outcome.reason == "at last"


class Later:
    """Awaitable, and no coroutine."""

    def __await__(self):
        yield from asyncio.sleep(0).__await__()
        return HookResult.block("later")


AWAITABLES = {
    "an object": Later,
    "a task": lambda: asyncio.ensure_future(asyncio.sleep(0, HookResult.block("later"))),
}


@pytest.mark.parametrize("make", AWAITABLES.values(), ids=AWAITABLES)
async def test_an_inline_hook_may_return_anything_that_can_be_awaited(make):
    assert (await fired(standing()(lambda ctx, hook_context: make()))).outcome.reason == "later"


async def test_an_awaitable_that_never_ends_is_under_the_limit():
    hangs = standing(timeout=TINY)(lambda ctx, hook_context: asyncio.Event().wait())
    assert (await fired(hangs)).call.error_kind == "timed_out"


async def test_a_timeout_error_of_the_hooks_own_is_not_its_limit():
    @standing(timeout=60)
    async def gives_up(ctx, hook_context):
        async with asyncio.timeout(0):
            await forever()

    seen = await fired(gives_up)
    assert (seen.call.error_kind, "TimeoutError" in seen.call.error) == ("raised", True)


async def test_a_hook_that_turns_its_cancellation_into_an_error_is_still_past_its_limit():
    @standing(timeout=TINY)
    async def converts(ctx, hook_context):
        try:
            await forever()
        except asyncio.CancelledError:
            raise ConnectionError("broken off") from None

    assert (await fired(converts)).call.error_kind == "timed_out"


async def test_a_hook_may_clean_up_at_its_limit():
    cleaned = []

    @standing(timeout=TINY)
    async def cleans(ctx, hook_context):
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            async with asyncio.timeout(5):
                await asyncio.sleep(0)
            cleaned.append(True)

    assert (await fired(cleans)).call.error == "ran past its limit of 0.05 s"
    assert cleaned == [True]


# -- the hook uses asyncio's own tools, rightly ------------------------------------------------------------


async def inner_timeout():
    try:
        async with asyncio.timeout(0.001):
            await forever()
    except TimeoutError:
        return


async def inner_wait_for():
    try:
        await asyncio.wait_for(forever(), 0.001)
    except TimeoutError:
        return


async def inner_group():
    async def raises():
        raise ValueError("inner")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(raises())
            await forever()
    except* ValueError:
        pass


async def inner_group_that_fails_at_its_end():
    async def raises():
        raise ValueError("inner")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(raises())
            group.create_task(forever())
    except* ValueError:
        pass


async def inner_groups_that_fail():
    async with asyncio.TaskGroup() as group:
        group.create_task(inner_group_that_fails_at_its_end())
        await inner_group_that_fails_at_its_end()
        await inner_group()


async def inner_group_that_works():
    async with asyncio.TaskGroup() as group:
        one = group.create_task(asyncio.sleep(0, 1))
        two = group.create_task(asyncio.sleep(0, 2))
    assert one.result() + two.result() == 3


async def inner_gather():
    assert await asyncio.gather(asyncio.sleep(0, 1), asyncio.shield(asyncio.sleep(0, 2))) == [1, 2]


async def inner_thread():
    assert await asyncio.to_thread(lambda: 7) == 7


INNER = [
    inner_timeout,
    inner_wait_for,
    inner_group,
    inner_group_that_fails_at_its_end,
    inner_groups_that_fail,
    inner_group_that_works,
    inner_gather,
    inner_thread,
]


@pytest.mark.parametrize("inner", INNER, ids=lambda inner: inner.__name__)
@pytest.mark.parametrize("timeout", [60, None])
async def test_a_hook_may_use_asyncio_as_it_likes(inner, timeout):
    @standing(timeout=timeout)
    async def uses(ctx, hook_context):
        await inner()
        await asyncio.sleep(0)
        await inner()
        return HookResult.block("done")

    assert (await fired(uses)).outcome.reason == "done"
    assert asyncio.current_task().cancelling() == 0, "nothing of it is left on the task"


@pytest.mark.parametrize(
    "inner", [inner_timeout, inner_group, inner_group_that_fails_at_its_end], ids=lambda inner: inner.__name__
)
async def test_a_limit_inside_the_hook_does_not_take_the_place_of_its_own(inner):
    @standing(timeout=TINY)
    async def hangs(ctx, hook_context):
        await inner()
        await forever()

    seen = await fired(hangs)
    assert (seen.call.error_kind, seen.call.error) == ("timed_out", "ran past its limit of 0.05 s")


@pytest.mark.parametrize("timeout", [60, None])
async def test_a_limit_inside_the_hook_does_not_end_the_hook_later(timeout, short_grace):
    @standing(timeout=timeout)
    async def goes_on(ctx, hook_context):
        await inner_timeout()
        await asyncio.sleep(0.1)  # longer than the time it would have to end in, had it been cancelled
        return HookResult.block("done")

    assert (await fired(goes_on)).outcome.reason == "done"


async def slow_after_its_timeout():
    try:
        async with asyncio.timeout(0.001):
            try:
                await forever()
            finally:
                await asyncio.sleep(0.1)
    except TimeoutError:
        return


async def slow_after_its_group_failed():
    async def raises():
        raise ValueError("inner")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(raises())
            try:
                await forever()
            finally:
                await asyncio.sleep(0.1)
    except* ValueError:
        pass


async def slow_task_of_a_group_that_failed():
    async def slow():
        try:
            await forever()
        finally:
            await asyncio.sleep(0.1)

    async def raises():
        raise ValueError("inner")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow())
            await asyncio.sleep(0)
            group.create_task(raises())
    except* ValueError:
        pass


SLOW = [slow_after_its_timeout, slow_after_its_group_failed, slow_task_of_a_group_that_failed]


@pytest.mark.parametrize("slow", SLOW, ids=lambda each: each.__name__)
@pytest.mark.parametrize("timeout", [60, None])
async def test_what_a_hook_cancels_in_itself_may_take_its_time(slow, timeout, short_grace):
    """Longer than a cancelled hook may take: it is not the hook that is cancelled, and nobody else either."""

    @standing(timeout=timeout)
    async def cleans_up(ctx, hook_context):
        await slow()
        return HookResult.block("done")

    assert (await fired(cleans_up)).outcome.reason == "done"
    assert asyncio.current_task().cancelling() == 0


async def stuck_after_its_timeout(stuck):
    async with asyncio.timeout(0.001):
        while True:
            try:
                await forever()
            except asyncio.CancelledError:
                stuck.set()


async def test_a_hook_that_ignores_its_own_timeout_is_given_up_at_its_limit(short_grace):
    stuck = asyncio.Event()

    @standing(timeout=TINY, on_error="continue")
    async def ignores(ctx, hook_context):
        await stuck_after_its_timeout(stuck)

    assert (await fired(ignores)).call.error_kind == "timed_out"
    assert stuck.is_set()
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.parametrize("timeout", [60, None])
async def test_a_hook_that_ignores_its_own_timeout_does_not_hold_up_a_cancelled_run(timeout, short_grace):
    stuck = asyncio.Event()

    @standing(timeout=timeout, on_error="continue")
    async def ignores(ctx, hook_context):
        await stuck_after_its_timeout(stuck)

    firing = asyncio.ensure_future(fired(ignores))
    await stuck.wait()
    firing.cancel()
    await asyncio.wait([firing])
    assert firing.cancelled()


async def test_a_hook_keeps_its_task_and_its_context_while_it_waits():
    who = contextvars.ContextVar("who")
    who.set("caller")
    tasks = [asyncio.current_task()]

    @standing()
    async def looks(ctx, hook_context):
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0)
        tasks.append(asyncio.current_task())
        return HookResult.block(who.get())

    assert (await fired(looks)).outcome.reason == "caller"
    assert len(set(tasks)) == 1


async def test_what_waits_wrongly_is_told_and_not_left_hanging():
    class Odd:
        def __await__(self):
            yield "what is this"

    @standing(timeout=None)
    async def odd(ctx, hook_context):
        await Odd()

    @standing(timeout=None)
    async def awaits_itself(ctx, hook_context):
        await asyncio.sleep(0)
        await asyncio.current_task()

    assert "bad yield" in (await fired(odd)).call.error
    assert "cannot await on itself" in (await fired(awaits_itself)).call.error


async def test_a_future_of_another_loop_is_told_and_not_waited_for():
    other = asyncio.new_event_loop()
    try:

        @standing(timeout=None)
        async def lost(ctx, hook_context):
            await other.create_future()

        assert "attached to a different loop" in (await fired(lost)).call.error
    finally:
        other.close()


# -- the hook ignores its cancellation ---------------------------------------------------------------------


async def swallows_it():
    try:
        await forever()
    except asyncio.CancelledError:
        return


async def swallows_it_always(ended):
    while not ended.is_set():
        try:
            await ended.wait()
        except asyncio.CancelledError:
            continue


async def awaits_a_task_that_swallows_it():
    await asyncio.ensure_future(swallows_it())


async def waits_for_what_swallows_it():
    await asyncio.wait_for(swallows_it(), 60)


SWALLOWS = [swallows_it, awaits_a_task_that_swallows_it, waits_for_what_swallows_it]


@pytest.mark.parametrize("swallow", SWALLOWS, ids=lambda each: each.__name__)
async def test_one_that_swallows_its_cancellation_is_broke_all_the_same(swallow):
    @standing(timeout=TINY)
    async def swallows(ctx, hook_context):
        await swallow()
        return HookResult.allow("as if nothing had been")

    seen = await fired(swallows)
    assert (seen.outcome.action, seen.call.error_kind) == ("fail", "timed_out")
    assert asyncio.current_task().cancelling() == 0


async def directly(ended):
    await swallows_it_always(ended)


async def through_a_task(ended):
    await asyncio.ensure_future(swallows_it_always(ended))


async def through_wait_for(ended):
    await asyncio.wait_for(swallows_it_always(ended), 60)


ALWAYS = [directly, through_a_task, through_wait_for]


@pytest.mark.parametrize("swallow", ALWAYS, ids=lambda each: each.__name__)
async def test_one_that_never_ends_is_given_up(swallow, short_grace):
    ended = asyncio.Event()
    later = []

    @standing(timeout=TINY, on_error="continue")
    async def stays(ctx, hook_context):
        await swallow(ended)
        return HookResult.block("never said")

    seen = await fired(stays, noting(later), payload={"a": 1})
    assert seen.outcome.action == "continue"
    assert seen.calls[0].error == "ran past its limit of 0.05 s, ignored its cancellation and was given up"
    assert later == [{"a": 1}], "the next hook has its turn"
    assert asyncio.current_task().cancelling() == 0
    ended.set()


@pytest.mark.parametrize("swallow", ALWAYS, ids=lambda each: each.__name__)
async def test_one_that_never_ends_does_not_hold_up_a_cancelled_run(swallow, short_grace):
    ended, waiting = asyncio.Event(), asyncio.Event()

    @standing(timeout=None)
    async def stays(ctx, hook_context):
        waiting.set()
        await swallow(ended)

    firing = asyncio.ensure_future(fired(stays))
    await waiting.wait()
    firing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await firing
    ended.set()


@pytest.mark.parametrize("error", [ValueError("on top"), SystemExit(1), asyncio.CancelledError()], ids=repr)
async def test_one_that_fails_even_when_given_up_is_given_up(error, short_grace):
    @standing(timeout=TINY, on_error="continue")
    async def stubborn(ctx, hook_context):
        while True:
            try:
                await forever()
            except asyncio.CancelledError:
                continue
            except GeneratorExit:
                raise error from None

    seen = await fired(stubborn, saying(HookResult.block("next")))
    assert [call.error_kind for call in seen.calls] == ["timed_out", None]
    assert seen.outcome.reason == "next"


async def test_one_that_ignores_even_its_closing_is_given_up(short_grace):
    over = []

    @standing(timeout=TINY, on_error="continue")
    async def stubborn(ctx, hook_context):
        while not over:
            try:
                await forever()
            except BaseException:
                continue

    seen = await fired(stubborn, saying(HookResult.block("next")))
    over.append(True)
    assert [call.error_kind for call in seen.calls] == ["timed_out", None]


# -- somebody else cancels ---------------------------------------------------------------------------------


async def cancelled_while_waiting(handler, **fields):
    """The firing, cancelled from outside as soon as its hook waits."""
    waiting = asyncio.Event()

    @standing(**fields)
    async def waits(ctx, hook_context):
        waiting.set()
        return await handler()

    later = []
    firing = asyncio.ensure_future(Pipeline([waits, noting(later)]).fire(context()))
    await waiting.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    firing.cancel()
    await asyncio.wait([firing])
    assert later == [], "no hook is called after that"
    return firing


async def converts():
    try:
        await forever()
    except asyncio.CancelledError:
        raise ConnectionError("broken off") from None


async def answers_quickly():
    try:
        await forever()
    except asyncio.CancelledError:
        return HookResult.block("no")


async def fails_to_clean_up():
    try:
        await forever()
    finally:
        raise OSError("disk full")


async def waits_for_a_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(forever())


async def after_a_group_that_failed():
    await inner_group_that_fails_at_its_end()
    await forever()


OUTSIDE = [
    forever,
    waits_for_a_group,
    after_a_group_that_failed,
    swallows_it,
    awaits_a_task_that_swallows_it,
    waits_for_what_swallows_it,
    converts,
    answers_quickly,
    fails_to_clean_up,
]


@pytest.mark.parametrize("handler", OUTSIDE, ids=lambda each: each.__name__)
@pytest.mark.parametrize("timeout", [60, None])
@pytest.mark.parametrize("on_error", ["continue", "fail"])
async def test_a_cancellation_from_outside_is_never_lost(handler, timeout, on_error):
    firing = await cancelled_while_waiting(handler, timeout=timeout, on_error=on_error)
    assert firing.cancelled()


async def test_a_cancelled_hook_is_on_record_as_cancelled():
    waiting = asyncio.Event()

    @standing()
    async def waits(ctx, hook_context):
        waiting.set()
        await forever()

    records = []
    firing = asyncio.ensure_future(Pipeline([waits], Recorder(watchers=[records.append])).fire(context()))
    await waiting.wait()
    firing.cancel()
    await asyncio.wait([firing])
    assert [(record.error_kind, record.action) for record in records] == [("cancelled", "continue")]


async def test_a_cancellation_that_comes_during_the_first_step_is_not_lost():
    """As a signal handler does it: while the hook computes, before it waits for the first time."""

    async def run():
        task = asyncio.current_task()

        @standing(on_error="continue")
        async def computes(ctx, hook_context):
            task.cancel()
            await asyncio.sleep(0)
            return GO_ON

        await fired(computes)

    task = asyncio.ensure_future(run())
    await asyncio.wait([task])
    assert task.cancelled()


@pytest.mark.parametrize("where", ["the same hook", "a later hook"])
async def test_a_cancellation_that_comes_after_a_wait_comes_once(where):
    """Delivered twice, it would pass for the second interrupt, which ends the end hooks."""

    async def run():
        task = asyncio.current_task()

        @standing()
        async def waits(ctx, hook_context):
            await asyncio.sleep(0)
            if where == "the same hook":
                task.cancel()
            return GO_ON

        @standing()
        async def computes(ctx, hook_context):
            if where == "a later hook":
                task.cancel()
            return GO_ON

        try:
            await fired(waits, computes)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "cleaned up"
        return "never cancelled"

    assert await asyncio.ensure_future(run()) == "cleaned up"


async def test_a_limit_around_the_run_is_not_the_hooks_limit():
    @standing(timeout=60)
    async def hangs(ctx, hook_context):
        await forever()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(TINY):
            await fired(hangs)
    assert asyncio.current_task().cancelling() == 0


async def test_a_cancelled_error_of_the_hooks_own_is_broke_and_cancels_nobody():
    @standing(on_error="continue")
    async def at_once(ctx, hook_context):
        raise asyncio.CancelledError

    @standing(on_error="continue")
    async def after_a_while(ctx, hook_context):
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    @standing(on_error="continue")
    async def by_a_task(ctx, hook_context):
        task = asyncio.ensure_future(forever())
        await asyncio.sleep(0)
        task.cancel()
        await task

    @standing(on_error="continue")
    def inline(ctx, hook_context):
        raise asyncio.CancelledError

    @hook(on_error="continue")
    def in_a_thread(ctx, hook_context):
        raise asyncio.CancelledError

    seen = await fired(
        at_once, after_a_while, by_a_task, inline, python_hook(in_a_thread, [Point.TOOL_START]), saying(GO_ON)
    )
    assert seen.outcome.action == "continue"
    assert [call.error_kind for call in seen.calls] == ["raised"] * 5 + [None]
    assert all("CancelledError" in call.error for call in seen.calls[:5])
    assert asyncio.current_task().cancelling() == 0


async def test_in_a_task_that_took_an_earlier_cancellation_hooks_still_run():
    """Somebody caught a cancellation and never took it back; that is not a new one."""

    async def run():
        try:
            await forever()
        except asyncio.CancelledError:
            pass

        @standing(on_error="continue")
        async def waits(ctx, hook_context):
            await asyncio.sleep(0)
            return HookResult.continue_with(modified_payload={"b": 2})

        @standing(on_error="continue")
        async def raises(ctx, hook_context):
            raise asyncio.CancelledError

        return await fired(raises, waits, payload={"a": 1})

    task = asyncio.ensure_future(run())
    await asyncio.sleep(0)
    task.cancel()
    assert (await task).outcome.payload == {"a": 1, "b": 2}


# -- a hook that fires points itself -----------------------------------------------------------------------


def firing_inside(*inner, around=None, **fields):
    """A hook that fires another pipeline with these hooks, in its own task."""

    @standing(name="outer", **fields)
    async def outer(ctx, hook_context):
        inside = Pipeline(inner).fire(context())
        outcome = await (inside if around is None else around(inside))
        return HookResult.block(f"inside: {outcome.reason}")

    return outer


@pytest.mark.parametrize("inner", [*INNER, *SLOW], ids=lambda inner: inner.__name__)
async def test_a_hook_inside_a_hook_may_use_asyncio_as_it_likes_too(inner, short_grace):
    @standing(timeout=60)
    async def uses(ctx, hook_context):
        await inner()
        return HookResult.block("done")

    assert (await fired(firing_inside(uses, timeout=60))).outcome.reason == "inside: done"
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.parametrize("swallow", ALWAYS, ids=lambda each: each.__name__)
async def test_a_timeout_of_the_outer_hook_is_no_affair_of_the_inner_one(swallow, short_grace):
    ended, later = asyncio.Event(), []

    async def limited(inside):
        async with asyncio.timeout(0.01):
            return await inside

    @standing(timeout=None)
    async def stays(ctx, hook_context):
        await swallow(ended)

    seen = await fired(firing_inside(stays, noting(later), around=limited, timeout=60))
    ended.set()
    assert (seen.call.error_kind, "TimeoutError" in seen.call.error, later) == ("raised", True, [])
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.parametrize("swallow", ALWAYS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("outer", [TINY, None], ids=["at its limit", "cancelled"])
async def test_an_inner_hook_that_never_ends_holds_up_nobody(swallow, outer, short_grace):
    ended, waiting = asyncio.Event(), asyncio.Event()

    @standing(timeout=None)
    async def stays(ctx, hook_context):
        waiting.set()
        await swallow(ended)

    firing = asyncio.ensure_future(fired(firing_inside(stays, timeout=outer)))
    await waiting.wait()
    if outer is None:
        firing.cancel()
    await asyncio.wait([firing])
    ended.set()
    assert firing.cancelled() if outer is None else firing.result().call.error_kind == "timed_out"


# -- who cancels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [60, None])
async def test_a_hooks_own_timeout_and_a_cancellation_at_the_same_moment_are_a_cancellation(timeout):
    waiting = asyncio.Event()
    limits = []

    @standing(timeout=timeout, on_error="continue")
    async def waits(ctx, hook_context):
        try:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                waiting.set()
                await forever()
        except TimeoutError:
            pass
        return GO_ON

    firing = asyncio.ensure_future(fired(waits))
    await waiting.wait()
    loop = asyncio.get_running_loop()
    limits[0].reschedule(loop.time())
    loop.call_soon(firing.cancel)
    await asyncio.wait([firing])
    assert firing.cancelled()


async def test_a_task_group_around_the_run_ends_a_hook_that_started_a_task_in_it():
    """The hook started the task that fails, and the group that is ended by it is not the hook's."""

    async def fails():
        raise ValueError("in the group")

    async def run():
        async with asyncio.TaskGroup() as group:

            @standing(on_error="continue")
            async def starts(ctx, hook_context):
                group.create_task(fails())
                await forever()

            await Pipeline([starts], Recorder(watchers=[records.append])).fire(context())

    records = []
    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await run()
    assert [record.error_kind for record in records] == ["cancelled"]


async def test_one_that_lets_others_go_first_for_ever_is_under_its_limit_too(short_grace):
    @standing(timeout=TINY, on_error="continue")
    async def spins(ctx, hook_context):
        while True:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                continue

    assert (await fired(spins)).call.error_kind == "timed_out"


async def test_a_limit_is_armed_only_when_a_hook_waits():
    armed = []
    loop = asyncio.get_running_loop()
    call_at = loop.call_at
    loop.call_at = lambda *args, **more: armed.append(args[0]) or call_at(*args, **more)
    try:
        await fired(saying(GO_ON, timeout=60))
        assert armed == []
        await fired(standing(timeout=60)(lambda ctx, hook_context: asyncio.sleep(0, GO_ON)))
    finally:
        del loop.call_at
    assert len(armed) == 1
