"""CPU time of small things on a busy machine: interleaved, repeated, the lowest kept (standard library only)."""

import asyncio
import gc
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple

SAMPLE = 0.003  # CPU seconds; shorter samples are more often left alone by the rest of the machine
LEAST_ROUNDS = 10

Run = Callable[[int], Awaitable[None]]


class Timed(NamedTuple):
    """A run makes that many tool calls, in multiples of `step`."""

    run: Run
    step: int = 1


class Cost(NamedTuple):
    """Lowest CPU seconds per tool call: of all rounds, and of either half of them."""

    lowest: float
    even: float
    odd: float


def costs(runs: dict[Hashable, Timed], seconds: float) -> dict[Hashable, Cost]:
    """Every run timed once per round, so that a slow spell of the machine hits all alike.

    In a new order each round: whoever always came after a tiny loop would always find cold caches.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        calls = {key: enough_calls(loop, timed) for key, timed in runs.items()}
        # What the imports left behind need not be looked at before every sample.
        gc.collect()
        gc.freeze()
        samples: dict[Hashable, list[float]] = {key: [] for key in runs}
        order = random.Random(0)
        end, rounds = time.perf_counter() + seconds, 0
        while time.perf_counter() < end or rounds < LEAST_ROUNDS:
            for key in order.sample(list(runs), len(runs)):
                samples[key].append(spent(loop, runs[key].run, calls[key]) / calls[key])
            rounds += 1
    finally:
        gc.unfreeze()
        loop.close()
    return {key: Cost(min(xs), min(xs[::2]), min(xs[1::2])) for key, xs in samples.items()}


def enough_calls(loop: asyncio.AbstractEventLoop, timed: Timed) -> int:
    """Also warms the run up."""
    calls = timed.step
    spent(loop, timed.run, calls)
    while spent(loop, timed.run, calls) < SAMPLE:
        calls *= 2
    return calls


def spent(loop: asyncio.AbstractEventLoop, run: Run, calls: int) -> float:
    gc.collect()
    gc.disable()
    try:
        start = time.process_time_ns()
        loop.run_until_complete(run(calls))
        return (time.process_time_ns() - start) / 1e9
    finally:
        gc.enable()


def times_called(functions: tuple[Callable[..., Any], ...], timed: Timed) -> int:
    """How often a run of `step` tool calls enters these functions, in any thread."""
    codes = {function.__code__ for function in functions}
    seen = 0

    def count(frame: Any, event: str, _arg: Any) -> None:
        nonlocal seen
        seen += event == "call" and frame.f_code in codes

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        asyncio.run(awaited(timed))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


async def awaited(timed: Timed) -> None:
    await timed.run(timed.step)
