"""Hooks that nobody waits for: begun where they stand, going on beside the run, ended with it at the latest."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import Handler
from hookline.engine.result import CONTINUE, HookAction, HookResult
from hookline.errors import HooklineError
from hookline.runners import Runner

MOST = 4
"""So many go on at once on one runner; the others wait. They have no limit, and must not take every place there is."""
GRACE = 5.0
"""Seconds that those still going on have when the run ends."""

_WELL = "ended well"
_PLACES: WeakKeyDictionary[Runner, asyncio.Semaphore] = WeakKeyDictionary()


@dataclass(slots=True)
class _BackgroundCall:
    """One call of a hook: whether it has begun by now, and how it ended."""

    hook: str
    begun: bool = False
    how: str | None = None

    def in_words(self) -> str:
        if self.how is not None:
            return self.how
        if self.begun:
            return "was still running and was ended with the run"
        return f"was never started: {MOST} others were running until the run ended"


class Background:
    """The calls that were begun and not waited for, by run."""

    def __init__(self, runner: Runner) -> None:
        self._places = _PLACES.setdefault(runner, asyncio.Semaphore(MOST))
        self._going: dict[str, dict[asyncio.Task[None], _BackgroundCall]] = {}

    def handler(self, hook: str, unlimited: Handler, limited: Handler) -> Handler:
        """Begins the hook and goes on at once.

        Where a foreign agent asks, this process ends with the answer and would take the hook along, so it is
        waited for within its limit.
        """

        def begin(
            ctx: WorkflowContext | None, hook_context: HookContext, /
        ) -> Awaitable[HookResult] | HookResult:
            if hook_context.facts.native is not None:
                return limited(ctx, hook_context)
            call = _BackgroundCall(hook)
            going = self._going.setdefault(hook_context.facts.run_id, {})
            going[asyncio.ensure_future(self._call(call, unlimited, ctx, hook_context))] = call
            return CONTINUE

        return begin

    async def end(self, ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
        """At the end of a run: how each of its calls ended. What did not end well is told as well."""
        going = self._going.pop(hook_context.facts.run_id, {})
        if not going:
            return CONTINUE
        try:
            await asyncio.wait(going, timeout=GRACE)
        finally:
            for task in going:
                task.cancel()
        await asyncio.wait(going)
        for task, call in going.items():
            raised = None if task.cancelled() else task.exception()
            if raised is not None:
                call.how = f"broke: {type(raised).__name__}: {raised}"
        calls = going.values()
        trouble = _told(call for call in calls if call.how != _WELL)
        return HookResult(error_message=_told(calls), tell_user=trouble or None)

    async def _call(
        self, call: _BackgroundCall, handler: Handler, ctx: WorkflowContext | None, hook_context: HookContext
    ) -> None:
        async with self._places:
            call.begun = True
            try:
                answer = handler(ctx, hook_context)
                said = answer if isinstance(answer, HookResult) else await answer
            except HooklineError as exc:
                call.how = f"broke: {exc}"
            else:
                call.how = _WELL if said.action is HookAction.CONTINUE else _does_not_count(said)


def _does_not_count(said: HookResult) -> str:
    reason = f": {said.reason}" if said.reason else ""
    return f"said {said.action}, which does not count{reason}"


def _told(calls: Iterable[_BackgroundCall]) -> str:
    """One line for a hook and an ending, however often that was."""
    counted = Counter((call.hook, call.in_words()) for call in calls)
    return "\n".join(
        f"{hook}: {how}{f' ({count} times)' if count > 1 else ''}" for (hook, how), count in counted.items()
    )
