import asyncio
import contextvars
import threading
from contextlib import contextmanager

import pytest

from hookline.engine.threads import Threads
from hookline.errors import HookBroke

WHO = contextvars.ContextVar("WHO", default="nobody")


@contextmanager
def held():
    """Something a thread can hang on; let go at the end, so that no thread outlives its test."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


async def test_a_function_runs_in_a_daemon_thread_of_ours():
    thread = await Threads().call(threading.current_thread, timeout=5)
    assert thread is not threading.main_thread()
    assert thread.daemon, "one that never returns must not hold up the exit"
    assert thread.name == "hookline-hook"


async def test_arguments_and_result_go_through():
    assert await Threads().call(lambda *given: given, 1, "a", timeout=None) == (1, "a")


async def test_the_thread_sees_the_callers_context_and_cannot_change_it():
    WHO.set("caller")

    def look():
        before = WHO.get()
        WHO.set("thread")
        return before

    assert await Threads().call(look, timeout=5) == "caller"
    assert WHO.get() == "caller"


async def test_a_thread_is_used_again():
    threads = Threads()
    first = await threads.call(threading.get_ident, timeout=5)
    assert {await threads.call(threading.get_ident, timeout=5) for _ in range(5)} == {first}


ERRORS = {
    "an error": (ValueError("x"), ValueError),
    "an exit": (SystemExit(3), SystemExit),
    "a timeout of its own": (TimeoutError("theirs"), TimeoutError),
    "the end of an iterator": (StopIteration(1), RuntimeError),
    "an interrupt that no user made": (KeyboardInterrupt(), RuntimeError),
    "the end of a generator": (GeneratorExit(), RuntimeError),
}


@pytest.mark.parametrize(("error", "raised"), ERRORS.values(), ids=ERRORS)
async def test_what_a_function_raises_is_raised_to_the_caller(error, raised):
    def raises():
        raise error

    threads = Threads(cap=1)
    with pytest.raises(raised) as told:
        await threads.call(raises, timeout=5)
    if raised is RuntimeError:
        assert type(error).__name__ in str(told.value)
    assert await threads.call(lambda: "next", timeout=5) == "next", "its place is free again"


async def test_past_its_limit_a_call_is_broke_and_its_thread_left_to_itself():
    with held() as event:
        with pytest.raises(
            HookBroke, match=r"ran past its limit of 0\.05 s; its thread cannot be stopped"
        ) as told:
            await Threads().call(event.wait, timeout=0.05)
        assert told.value.kind == "timed_out"


async def test_a_timeout_error_of_the_function_is_not_its_limit():
    def raises():
        raise TimeoutError("the database did not answer")

    with pytest.raises(TimeoutError, match="the database"):
        await Threads().call(raises, timeout=60)


async def test_waiting_for_a_free_thread_is_not_part_of_the_limit():
    threads = Threads(cap=1)
    with held() as event:
        slow = asyncio.ensure_future(threads.call(event.wait, timeout=0.2))
        await asyncio.sleep(0)
        # It waits 0.2 s for its place, four times its own limit.
        assert await threads.call(lambda: "done", timeout=0.05) == "done"
        with pytest.raises(HookBroke):
            await slow


async def test_no_more_threads_than_the_cap_are_at_work():
    threads = Threads(cap=2)
    lock = threading.Lock()
    at_work, most = 0, 0
    pair = threading.Barrier(2)

    def work():
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        pair.wait(timeout=5)
        with lock:
            at_work -= 1

    await asyncio.gather(*(threads.call(work, timeout=10) for _ in range(10)))
    assert most == 2


async def test_a_thread_left_behind_frees_its_place_for_the_next():
    threads = Threads(cap=2)
    with held() as event:
        for _ in range(4):
            with pytest.raises(HookBroke):
                await threads.call(event.wait, timeout=0.01)
        assert await threads.call(lambda: "done", timeout=5) == "done"


async def test_a_thread_left_behind_takes_no_more_work():
    threads = Threads(cap=1)
    idents = []
    entered = threading.Event()
    with held() as event:

        def hangs():
            idents.append(threading.current_thread())
            entered.set()
            event.wait()

        with pytest.raises(HookBroke):
            await threads.call(hangs, timeout=0.01)
        assert entered.wait(5)
        event.set()
        idents[0].join(5)
        assert not idents[0].is_alive()
        assert await threads.call(threading.current_thread, timeout=5) is not idents[0]


async def test_a_cancelled_call_frees_its_place():
    threads = Threads(cap=1)
    with held() as event:
        call = asyncio.ensure_future(threads.call(event.wait, timeout=None))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await threads.call(lambda: "done", timeout=5) == "done"


async def test_one_who_stops_waiting_for_a_place_does_not_keep_it():
    threads = Threads(cap=1)
    with held() as event:
        first = asyncio.ensure_future(threads.call(event.wait, timeout=None))
        await asyncio.sleep(0)
        waiting = [asyncio.ensure_future(threads.call(lambda: "done", timeout=5)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[1].cancel()
        event.set()
        assert await first is True
        assert await waiting[2] == "done"
        assert await threads.call(lambda: "again", timeout=5) == "again"


async def test_one_who_is_cancelled_as_its_turn_comes_gives_it_on():
    threads = Threads(cap=1)
    with held() as event:
        first = asyncio.ensure_future(threads.call(event.wait, timeout=None))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(threads.call(lambda: "second", timeout=5))
        third = asyncio.ensure_future(threads.call(lambda: "third", timeout=5))
        await asyncio.sleep(0)
        # The first is left, so the second has the place; cancelled before it could take it, it passes it on.
        first.cancel()
        first.add_done_callback(lambda _: asyncio.get_running_loop().call_soon(second.cancel))
        assert await third == "third"
        assert (await asyncio.gather(second, return_exceptions=True))[0].__class__ in (
            asyncio.CancelledError,
            str,
        )
        assert await threads.call(lambda: "fourth", timeout=5) == "fourth"


def test_a_loop_that_is_gone_does_not_keep_a_place():
    threads = Threads(cap=1)
    with held() as event:

        async def gives_up():
            first = asyncio.ensure_future(threads.call(event.wait, timeout=None))
            second = asyncio.ensure_future(threads.call(lambda: "second", timeout=None))
            await asyncio.sleep(0)
            return first, second

        asyncio.run(gives_up())
        assert asyncio.run(threads.call(lambda: "here", timeout=5)) == "here"


async def test_where_no_thread_can_be_started_the_hook_is_broke_and_the_place_is_free(monkeypatch):
    threads = Threads(cap=1)

    def no_more(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        for _ in range(2):
            with pytest.raises(HookBroke, match="can't start new thread") as told:
                await threads.call(lambda: "done", timeout=5)
            assert told.value.kind == "not_started"
    assert await threads.call(lambda: "done", timeout=5) == "done"
