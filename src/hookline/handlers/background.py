"""Hooks that nobody waits for: begun where they stand, going on beside the run, ended with it at the latest."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from weakref import WeakKeyDictionary

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import Handler, Hook, OnError
from hookline.engine.point import Point
from hookline.engine.result import CONTINUE, HookAction, HookResult
from hookline.errors import HooklineError
from hookline.runners import Runner

MOST = 4
"""So many go on at once on one runner; the others wait. They have no limit, and must not take every place there is."""
GRACE = 5.0
"""Seconds that those still going on have when the run ends."""

_WELL = "ended well"
_PLACES: WeakKeyDictionary[Runner, asyncio.Semaphore] = WeakKeyDictionary()


class Background:
    """The calls that were begun and not waited for, by run, each with the name of its hook."""

    def __init__(self, runner: Runner) -> None:
        self._places = _PLACES.setdefault(runner, asyncio.Semaphore(MOST))
        self._going: dict[str, dict[asyncio.Task[str], str]] = {}

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
            going = self._going.setdefault(hook_context.facts.run_id, {})
            going[asyncio.ensure_future(self._ended(unlimited, ctx, hook_context))] = hook
            return CONTINUE

        return begin

    def last_hook(self, file: Path) -> Hook:
        """The hook that ends the calls of a file's hooks with the run."""
        return Hook(
            name=f"the end of async hooks ({file.name})",
            points=frozenset({Point.RUN_END}),
            handler=self.end,
            kind="background",
            timeout=None,
            on_error=OnError.CONTINUE,
            source=str(file),
        )

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
        # One line for a hook and an ending, however often that was.
        ended = Counter((hook, task.result()) for task, hook in going.items())
        lines = {
            f"{hook}: {how}{f' ({count} times)' if count > 1 else ''}": how
            for (hook, how), count in ended.items()
        }
        trouble = "\n".join(line for line, how in lines.items() if how != _WELL)
        return HookResult(error_message="\n".join(lines), tell_user=trouble or None)

    async def _ended(self, handler: Handler, ctx: WorkflowContext | None, hook_context: HookContext) -> str:
        """Make the call; how it ended, in words."""
        cut_off = f"was never started: {MOST} others were running until the run ended"
        try:
            async with self._places:
                cut_off = "was still running and was ended with the run"
                answer = handler(ctx, hook_context)
                said = answer if isinstance(answer, HookResult) else await answer
        except asyncio.CancelledError:
            return cut_off
        except HooklineError as exc:
            return f"broke: {exc}"
        except Exception as exc:
            return f"broke: {type(exc).__name__}: {exc}"
        if said.action is HookAction.CONTINUE:
            return _WELL
        reason = f": {said.reason}" if said.reason else ""
        return f"said {said.action}, which does not count{reason}"
