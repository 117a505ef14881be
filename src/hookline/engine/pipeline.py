"""fire: the only place where a hook is called.

One walk over the hooks of a point, in order. Each gets a context of its own and sees the changes of those before it;
the first that stops ends the walk. A hook is someone else's code: whatever it does (raise, hang, return rubbish, ignore
cancellation), the result is "broke", never a verdict and never a crash of ours.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar
from functools import lru_cache
from itertools import chain
from types import CoroutineType
from typing import Any

from hookline.engine.context import Facts, Given, HookContext
from hookline.engine.effect import CANCELLED, NOTHING, Effect, effect_of
from hookline.engine.hook import Hook, Matcher, Mode
from hookline.engine.point import HookAction, Point
from hookline.engine.record import Called, Recorder, decided
from hookline.engine.result import CONTINUE, ENDS_THE_WALK, HookResult, Outcome, add_up
from hookline.errors import HookBroke

_clock = time.perf_counter
# A name of our own: looking up a member of an enum takes as long as half a hook.
_GO_ON = HookAction.CONTINUE
_COROUTINE: Any = CoroutineType
_new = HookContext.__new__
_type: Any = type

_Mark = tuple["_Mark | None"]
"""The mark of a walk, known by its identity. It holds the mark of the walk whose hook fires this one."""
_INSIDE: ContextVar[_Mark | None] = ContextVar("hookline_inside", default=None)
"""The innermost current walk. Timers and tasks that a hook starts have a copy of it, and are recognised by it."""


_LEEWAY = 0.1
"""Seconds over its limit that a hook which did not wait may take: the machine may have been busy with something else."""
_forked = False
"""True in a process that a hook has forked; it ends where the hook returns, for the run is its parent's."""


def _note_fork() -> None:
    global _forked
    _forked = inside()


os.register_at_fork(after_in_child=_note_fork)


def inside() -> bool:
    """True in the code of a hook, and in what it has started."""
    return _INSIDE.get() is not None


def end_fork() -> None:
    """End a process that a hook has forked and that came back from the hook."""
    if _forked:
        os._exit(0)


class Pipeline:
    """The hooks of one agent in one run, by point."""

    __slots__ = ("_at", "_last", "hooks", "matched", "matching", "recorder")

    def __init__(
        self, hooks: Sequence[Hook], recorder: Recorder | None = None, matched: set[str] | None = None
    ) -> None:
        self.hooks = tuple(hooks)
        self.recorder = recorder or Recorder()
        self.matched = set[str]() if matched is None else matched
        self.matching = [hook for hook in self.hooks if hook.match is not None]
        """The hooks that are only for some tools."""
        at: dict[Point | str, list[Hook]] = {}
        for hook in self.hooks:
            if hook.mode is not Mode.OFF:
                for point in hook.points:
                    at.setdefault(point, []).append(hook)
        self._at = {point: tuple(standing) for point, standing in at.items()}
        self._last = {
            point: last
            for point, standing in self._at.items()
            if (last := tuple(hook for hook in standing if hook.last_word))
        }

    def at(self, point: Point | str) -> tuple[Hook, ...]:
        """The hooks at a point, in order, without those that are off."""
        return self._at.get(point, ())

    async def fire(self, context: HookContext) -> Outcome:
        """Call the hooks at the context's point; the sum of their answers."""
        given = context.given
        facts = given.facts
        standing = self._at.get(facts.point)
        if standing is None:
            return Outcome(_GO_ON, given.payload, given.output)
        recorder = self.recorder if self.recorder.on else None
        workflow, outer = facts.workflow, _INSIDE.get()
        last = self._last.get(facts.point) if self._last else None
        mark: _Mark = (outer,)
        # Most hooks only continue, and then there is nothing to add up.
        walk = _Walk(given, recorder, len(standing), mark) if recorder is not None or last else None
        _INSIDE.set(mark)
        began = _clock()
        try:
            for hook in chain(standing, walk.called_again(last)) if walk and last else standing:
                # As `HookContext.of` does, which is a call more for every hook.
                view = _new(HookContext)
                view._given = given  # pyright: ignore[reportPrivateUsage]
                view.untouched = True
                waiting = None
                if walk is not None:
                    walk.begin(began)
                try:
                    if hook.match is not None and not self._fits(hook, hook.match, facts):
                        continue
                    if hook.when is not None and not hook.when(view):
                        continue
                    answer: Any = hook.handler(workflow, view)
                    kind = _type(answer)
                    if kind is not _COROUTINE and kind is not HookResult and hasattr(kind, "__await__"):
                        answer, kind = _awaited(answer), _COROUTINE
                    if kind is _COROUTINE:
                        # The first step by hand: most hooks answer in it, and need no limit.
                        try:
                            waiting = answer, answer.send(None)
                        except StopIteration as stop:
                            answer = stop.value
                except KeyboardInterrupt:
                    raise
                except BaseException as exc:
                    answer = exc
                if _forked:
                    end_fork()
                before, began = began, _clock()
                if began - before > _LEEWAY and _is_over(hook, began - before):
                    # Nothing could interrupt it; what it says now is too late all the same.
                    waiting, answer = None, _overran(hook, waiting)
                if answer is CONTINUE and view.untouched:
                    if walk is not None:
                        walk.note(hook, NOTHING)
                    continue
                if walk is None:
                    walk = _Walk(given, None, 0, mark)
                if waiting is not None:
                    answer = await walk.waited_for(hook, *waiting)
                if walk.takes(hook, effect_of(hook, view, answer)):
                    break
                given, began = walk.given, _clock()
        finally:
            _INSIDE.set(outer)
        if walk is None or (walk.complete and not walk.answers and not walk.changed):
            return Outcome(_GO_ON, given.payload, given.output)
        return walk.outcome()

    async def fire_last(self, context: HookContext) -> Outcome:
        """Call only the hooks that have the last word: a person has changed the value after all were called."""
        return await Pipeline(self._last.get(context.given.facts.point, ()), self.recorder).fire(context)

    def _fits(self, hook: Hook, match: Matcher, facts: Facts) -> bool:
        if not match(facts):
            return False
        self.matched.add(hook.name)
        return True


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


def _is_over(hook: Hook, seconds: float) -> bool:
    return hook.timeout is not None and not hook.limits_itself and seconds > hook.timeout + _LEEWAY


def _overran(hook: Hook, waiting: tuple[Coroutine[Any, Any, Any], Any] | None) -> HookBroke:
    if waiting is not None:
        with suppress(Exception, SystemExit):  # whatever it does when it is closed, it is over
            waiting[0].close()
    return HookBroke(
        f"ran past its limit of {hook.timeout:g} s, and held up everything else", kind="timed_out"
    )


def _warn(text: str, *values: Any) -> None:
    import logging  # slow to load, and seldom needed

    logging.getLogger(__name__).warning(text, *values)


@lru_cache(maxsize=256)
def _warn_once(hook: str, point: str, note: str) -> None:
    """Tell what has no effect where nobody watches the run: once, for it is the same at every call."""
    _warn("hook %s at %s: %s", hook, point, note)


class _Walk:
    """One walk over the hooks of a point: the values for the next hook, the answers so far, and the record of both."""

    answers: tuple[tuple[str, HookResult], ...] = ()
    changed = False
    changed_below = False
    """True if a hook without the last word changed the value."""
    complete = True
    """True if the recorded calls are complete without an outcome."""
    _started = 0.0
    _told = False

    def __init__(self, given: Given, recorder: Recorder | None, hooks: int, mark: _Mark) -> None:
        self.given = given
        self._mark = mark
        self._recorder = recorder
        self._left = hooks

    async def waited_for(self, hook: Hook, coroutine: Coroutine[Any, Any, Any], pending: Any) -> Any:
        """The answer of a hook whose coroutine waits for something."""
        # Loaded only here: `hookline answer` fires points without an event loop.
        from asyncio import CancelledError

        from hookline.engine.limit import finished

        limit = None if hook.limits_itself else hook.timeout
        try:
            answer = await finished(coroutine, pending, limit, self.holds)
            end_fork()
            return answer
        except CancelledError:
            self.note(hook, CANCELLED)
            raise

    def holds(self, context: Context) -> bool:
        """True if a hook of this walk has started what runs in this context."""
        mark = context.get(_INSIDE)
        while mark is not None and mark is not self._mark:
            (mark,) = mark
        return mark is not None

    def takes(self, hook: Hook, effect: Effect) -> bool:
        """Apply the effect of an answer; True if it ends the walk."""
        self.note(hook, effect)
        if (effect.error or effect.is_odd) and (self._recorder is None or not self._recorder.watchers):
            facts = self.given.facts
            if effect.error is not None:
                _warn("%s: hook %s at %s broke: %s", facts.run_id, hook.name, facts.point, effect.error)
            else:
                _warn_once(hook.name, facts.point, effect.note or "")
        if effect.changed is not None:
            self.given = Given(self.given.facts, effect.payload, effect.output)
            self.changed = True
            self.changed_below = self.changed_below or not hook.last_word
        if effect.result is not CONTINUE:
            self.answers = (*self.answers, (hook.name, effect.result))
        return effect.result.action in ENDS_THE_WALK

    def called_again(self, last: tuple[Hook, ...]) -> Iterator[Hook]:
        """The hooks with the last word, after all hooks were called; none if nothing was changed below them."""
        if self.changed_below:
            yield from last

    def value(self) -> Any:
        """The value that the point is about: the input at a start, the output at an end."""
        point = self.given.facts.point
        at_start = not isinstance(point, Point) or point.is_start
        return self.given.payload if at_start else self.given.output

    def outcome(self) -> Outcome:
        """The sum of the answers; recorded, unless the calls are complete without it."""
        given = self.given
        outcome = add_up(given.payload, given.output, self.answers, changed=self.changed)
        if self._recorder is not None and not self.complete:
            self._recorder.note(decided(given.facts.run_id, given.facts, outcome))
        return outcome

    def begin(self, now: float) -> None:
        """Note the time at which the next hook is called."""
        self._left -= 1
        self._started = now

    def note(self, hook: Hook, effect: Effect) -> None:
        """Record one call.

        The first call that did more than continue has the given value; later values follow from the changes.
        """
        if self._recorder is None:
            return
        given, decides = None, False
        if effect is not NOTHING:
            decides = effect.decides
            if not self._told and not effect.is_silent:
                given, self._told = self.value(), True
        self.complete = not (self._left or self.answers or self.changed or decides)
        said = effect.said or effect.result
        facts = self.given.facts
        self._recorder.note(
            Called(
                facts.run_id,
                facts.scope_id,
                facts.point,
                hook.name,
                time.time(),
                _clock() - self._started,
                said.action,
                said.error_message,
                given,
                effect.changed,
                hook.mode,
                effect.error_kind,
                effect.error,
                effect.note,
                said.tell_model,
                said.tell_user,
                self.complete,
            )
        )
