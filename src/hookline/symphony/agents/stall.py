"""Waiting for work that has to give a sign of life now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from hookline.symphony.agents import TurnFailed
from hookline.tasks import cancel_and_wait

T = TypeVar("T")


async def unless_silent(work: asyncio.Future[T], heard: Callable[[], float], limit: float) -> T:
    """What the work comes to; past its limit of silence it is cancelled, waited for, and a TurnFailed.

    `heard` is when it last gave a sign, in the loop's time. Cancelled ourselves, we end it first as well.
    """
    loop = asyncio.get_running_loop()
    try:
        while not work.done():
            left = heard() + limit - loop.time()
            if left <= 0:
                raise TurnFailed(f"nothing was heard of the agent for {limit:g} s", kind="turn_timeout")
            await asyncio.wait({work}, timeout=left)
    except BaseException:
        await cancel_and_wait(work, insist=True)
        raise
    if work.cancelled():
        raise TurnFailed("the turn was ended", kind="turn_cancelled")
    return work.result()
